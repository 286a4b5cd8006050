"""Read the fields of a block step from the YAML of its pipeline. Knows YAML, no widgets.

The service reports a block step without its fields, so they are known only if the pipeline's own configuration has the
step. Steps that a job uploads are not in there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_NAMES = ("block", "input", "manual")


class BlockField(NamedTuple):
    """A field: its key in the meta-data, its texts, its default, and its options (label, value) if it is a choice."""

    key: str
    label: str
    hint: str
    is_required: bool
    default: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    is_multiple: bool


class BlockStep(NamedTuple):
    """The prompt of a block step, and its fields."""

    prompt: str
    fields: tuple[BlockField, ...]


def find_block_step(configuration: str | None, key: str | None, label: str | None) -> BlockStep | None:
    """Return the block step with this key, or without a key this label; None if the configuration has no such step."""
    for step in _block_steps(_load(configuration)):
        own_label = next((step[name] for name in _NAMES if isinstance(step.get(name), str)), step.get("label"))
        own_key = next((step[name] for name in ("key", "id", "identifier") if step.get(name)), None)
        if own_key == key if key and own_key else own_label == label:
            fields = step.get("fields")
            read = map(_read_field, fields if isinstance(fields, list) else [])
            return BlockStep(_text(step.get("prompt")), tuple(field for field in read if field))
    return None


def _load(configuration: str | None) -> Any:
    """Return the YAML as objects; None if it cannot be read, or PyYAML is not installed."""
    try:
        import yaml  # type: ignore[import-untyped]  # no stubs installed
    except ModuleNotFoundError:
        return None
    try:
        return yaml.safe_load(configuration or "")
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _block_steps(node: Any) -> Iterator[Mapping[Any, Any]]:
    """Yield the block steps of a pipeline, also within groups."""
    steps = node.get("steps") if isinstance(node, dict) else node
    for step in steps if isinstance(steps, list) else []:
        if not isinstance(step, dict):
            continue
        if "group" in step:
            yield from _block_steps({"steps": [each for each in step.get("steps") or [] if "group" not in each]})
        elif step.get("type") in _NAMES or any(name in step for name in _NAMES):
            yield step


def _read_field(field: Any) -> BlockField | None:
    if not isinstance(field, dict) or not field.get("key"):
        return None
    options = field.get("options")
    read = [each for each in options if isinstance(each, dict)] if isinstance(options, list) else []
    default = field.get("default")
    return BlockField(
        key=_text(field["key"]),
        label=_text(field.get("text") or field.get("select") or field["key"]),
        hint=_text(field.get("hint")),
        is_required=field.get("required") is not False,
        default=tuple(map(_text, default)) if isinstance(default, list) else tuple(filter(None, [_text(default)])),
        options=tuple((_text(each.get("label") or each.get("value")), _text(each.get("value"))) for each in read),
        is_multiple=field.get("multiple") is True,
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)
