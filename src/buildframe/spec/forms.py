"""Forms that a text must have, such as a slug or a UUID: what is wrong with a text, and which slug was meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal
from urllib.parse import unquote
from uuid import UUID

Form = Literal["filled", "name", "sha", "slug", "uuid", "yaml"]
"""`slug` is a pipeline's slug, as the service's document describes it; `name` another one, of which it says nothing."""

_SLUG = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,99}")
_NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,99}")


def problem(form: Form, text: str) -> str | None:
    """What is wrong with a text, such as "must be a UUID"; None if it has the form.

    A SHA is that of a filter, where the request says more.
    """
    return _PROBLEMS[form](text)


def slug_in(text: str, collection: str, place: int) -> str | None:
    """The slug that was meant by an address or a path, or by a name such as "Acme Inc"; None if none is in it.

    `collection` is what stands before it in addresses of the API, such as `pipelines`; `place` its place in others.
    """
    segments = [segment for segment in re.split(r"/+", re.sub(r"^\w+://[^/]*|[?#].*", "", unquote(text))) if segment]
    if collection in segments[:-1]:
        return _as_slug(segments[segments.index(collection) + 1])
    if len(segments) > 1:
        return _as_slug(segments[min(place, len(segments) - 1)])
    return _as_slug("".join(segments))


def _as_slug(name: str) -> str | None:
    slug = re.sub(r"[^0-9a-z]+", "-", name.lower()).strip("-")
    return slug if _SLUG.fullmatch(slug) else None


def _not_filled(text: str) -> str | None:
    return None if text.strip() else "must not be empty"


def _no_slug(text: str) -> str | None:
    rule = "must be letters and digits, after the first also hyphens, 100 characters at most"
    return None if _SLUG.fullmatch(text) else rule


def _no_name(text: str) -> str | None:
    rule = "must be letters, digits, hyphens, underscores and dots, 100 characters at most"
    return None if _NAME.fullmatch(text) else rule


def _no_uuid(text: str) -> str | None:
    try:
        is_uuid = str(UUID(text)) == text.lower()
    except ValueError:
        is_uuid = False
    return None if is_uuid else "must be a UUID"


def _no_yaml(text: str) -> str | None:
    """Whether it is a mapping or a list; without PyYAML, which is optional, only the service checks it."""
    try:
        import yaml  # type: ignore[import-untyped]  # its stubs are not among our tools
    except ModuleNotFoundError:
        return None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)  # makes no objects, and does not follow aliases
    except yaml.MarkedYAMLError as why:
        line = f"line {why.problem_mark.line + 1}: " if why.problem_mark else ""
        return f"must be valid YAML; {line}{why.problem or why.context}"
    except (yaml.YAMLError, ValueError) as why:
        return f"must be valid YAML; {str(why).splitlines()[0]}"
    except RecursionError:
        return "must be YAML that is nested less deeply"
    return "must be a list of steps or a mapping in YAML" if isinstance(node, yaml.ScalarNode) else None


def short(text: str) -> str:
    """A text for an error message, without its end if it is long."""
    return repr(text) if len(text) <= 120 else f"{text[:100]!r}… ({len(text)} characters)"


_PROBLEMS: dict[Form, Callable[[str], str | None]] = {
    "filled": _not_filled,
    "name": _no_name,
    "slug": _no_slug,
    "uuid": _no_uuid,
    "yaml": _no_yaml,
}
