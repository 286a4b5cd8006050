"""Validate the format of strings, such as slugs and UUIDs, and guess a slug from a URL. Does not know requests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal
from urllib.parse import unquote
from uuid import UUID

Form = Literal["filled", "name", "sha", "slug", "uuid", "yaml"]
"""`slug` is the slug of a pipeline, as the API documents it. `name` is any other slug, whose format is undocumented."""

_SLUG = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,99}")
_PATTERNS: dict[Form, tuple[re.Pattern[str], str]] = {
    "slug": (_SLUG, "letters and digits, after the first also hyphens"),
    "name": (re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,99}"), "letters, digits, hyphens, underscores and dots"),
}


def find_problem(form: Form, text: str) -> str | None:
    """Return what is wrong with a string, such as "must be a UUID"; None if it is valid.

    The form `sha` is not validated here; requests validate it with a more detailed message.
    """
    if form in _PATTERNS:
        pattern, rule = _PATTERNS[form]
        return None if pattern.fullmatch(text) else f"must be {rule}, 100 characters at most"
    return _PROBLEMS[form](text)


def guess_slug(text: str, collection: str, position: int) -> str | None:
    """Guess the slug from a URL, a path or a name such as "Acme Inc"; return None if there is none.

    `collection` precedes the slug in API URLs, such as `pipelines`. `position` is its index in other paths.
    """
    segments = [segment for segment in re.split(r"/+", re.sub(r"^\w+://[^/]*|[?#].*", "", unquote(text))) if segment]
    if collection in segments[:-1]:
        return _as_slug(segments[segments.index(collection) + 1])
    if len(segments) > 1:
        return _as_slug(segments[min(position, len(segments) - 1)])
    return _as_slug("".join(segments))


def _as_slug(name: str) -> str | None:
    slug = re.sub(r"[^0-9a-z]+", "-", name.lower()).strip("-")
    return slug if _SLUG.fullmatch(slug) else None


def _check_filled(text: str) -> str | None:
    if "\0" in text:
        return "must not contain NUL"
    return None if text.strip() else "must not be empty"


def _check_uuid(text: str) -> str | None:
    try:
        is_uuid = str(UUID(text)) == text.lower()
    except ValueError:
        is_uuid = False
    return None if is_uuid else "must be a UUID"


def _check_yaml(text: str) -> str | None:
    """Check for a mapping or a list. PyYAML is optional; without it only the service validates the YAML."""
    if not text.strip():
        return "must not be empty"
    try:
        import yaml  # type: ignore[import-untyped]  # no stubs installed
    except ModuleNotFoundError:
        return None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)  # creates no objects and does not expand aliases
    except yaml.MarkedYAMLError as why:
        line = f"line {why.problem_mark.line + 1}: " if why.problem_mark else ""
        return f"must be valid YAML; {line}{why.problem or why.context}"
    except (yaml.YAMLError, ValueError) as why:
        return f"must be valid YAML; {str(why).splitlines()[0]}"
    except RecursionError:
        return "must be YAML that is nested less deeply"
    return "must be a list of steps or a mapping in YAML" if isinstance(node, yaml.ScalarNode) else None


_PROBLEMS: dict[Form, Callable[[str], str | None]] = {"filled": _check_filled, "uuid": _check_uuid, "yaml": _check_yaml}
