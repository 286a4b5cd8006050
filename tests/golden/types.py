"""Check responses against the types in the golden files."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests import golden

Body = dict[str, Any]


def stamp(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.replace(" UTC", "Z"))


def is_stamp(value: Any) -> bool:
    try:
        return stamp(value).tzinfo is not None
    except (AttributeError, ValueError):
        return False


def is_uuid(value: Any) -> bool:
    try:
        return str(uuid.UUID(value)) == value
    except (AttributeError, TypeError, ValueError):
        return False


IS = {
    "string": lambda value: isinstance(value, str),
    "uuid": is_uuid,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "timestamp": is_stamp,
    "map": lambda value: isinstance(value, dict) and all(isinstance(text, str) for text in value.values()),
    "object": lambda value: isinstance(value, dict),
    "any": lambda value: True,
    "null": lambda value: value is None,
}


def fits(value: Any, type: str) -> bool:
    """Whether a JSON value has a type of the golden files. Fields of resources are checked separately."""
    if type.startswith("array of "):
        return isinstance(value, list) and all(fits(part, type.removeprefix("array of ")) for part in value)
    return IS.get(type, IS["object"])(value)


class Seen(NamedTuple):
    """A resource in a response, and its place there."""

    resource: str
    where: str
    body: Body


def seen_in(body: Any, resource: str, where: str) -> Iterator[Seen]:
    """Yield the resource and all resources inside it, at any depth."""
    if isinstance(body, list):
        for part in body:
            yield from seen_in(part, resource, where)
    elif isinstance(body, dict):
        yield Seen(resource, where, body)
        for key, name in nested_in(resource):
            yield from seen_in(body.get(key), name, f"{where}.{key}")


def nested_in(resource: str) -> list[tuple[str, str]]:
    types = ((key, part) for key, type in golden.fields_of(resource).items() for part in type.split(" or "))
    return [(key, name) for key, part in types if (name := part.removeprefix("array of ")) in golden.RESOURCES]


def find_violations(seen: Seen) -> set[str]:
    fields = golden.fields_of(seen.resource)
    nullable = {key for key in fields if golden.may_be_null(seen.resource, key)}
    types = {key: (fields[key].split(" or "), value) for key, value in seen.body.items() if key in fields}
    bad = {key for key, (parts, value) in types.items() if not any(fits(value, part) for part in parts)}
    return {
        f"{seen.where}.{key}: {seen.body[key]!r}" for key in bad if seen.body[key] is not None or key not in nullable
    }


def reached_from(resource: str) -> Iterator[str]:
    yield resource
    for _, name in nested_in(resource):
        yield from reached_from(name)
