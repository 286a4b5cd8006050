"""Check responses against the types in the golden files."""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests import golden

Body = dict[str, Any]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@functools.cache
def stamp(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.replace(" UTC", "Z"))


def is_stamp(value: Any) -> bool:
    try:
        return isinstance(value, str) and stamp(value).tzinfo is not None
    except ValueError:
        return False


def is_uuid(value: Any) -> bool:
    return isinstance(value, str) and UUID.fullmatch(value) is not None


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


@functools.cache
def nested_in(resource: str) -> list[tuple[str, str]]:
    types = ((key, part) for key, type in golden.fields_of(resource).items() for part in type.split(" or "))
    return [(key, name) for key, part in types if (name := part.removeprefix("array of ")) in golden.RESOURCES]


@functools.cache
def allowed_types(resource: str) -> dict[str, list[str]]:
    """The alternative types of each field of a resource."""
    known = golden.fields_of(resource)
    return {key: known[key].split(" or ") + ["null"] * golden.may_be_null(resource, key) for key in known}


def find_violations(seen: Seen) -> set[str]:
    types = allowed_types(seen.resource)
    return {
        f"{seen.where}.{key}: {value!r}"
        for key, value in seen.body.items()
        if key in types and not any(fits(value, type) for type in types[key])
    }


def reached_from(resource: str) -> Iterator[str]:
    yield resource
    for _, name in nested_in(resource):
        yield from reached_from(name)
