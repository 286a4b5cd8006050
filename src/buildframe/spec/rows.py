"""What a list's bytes are read into: only the keys that give columns, stamps as text, maps and lists as raw JSON.

This is what makes a page cheap: msgspec skips all other keys without building anything for them.
"""

from __future__ import annotations

import functools
from types import GenericAlias
from typing import Any

import msgspec

from buildframe.spec.declare import (
    Field,
    Kind,
    Resource,
    columns_of,
    fields_of,
    flat,
    is_list_of_resources,
    resource_in,
)

MORE = "more_"
"""Attribute of a row that holds values asked for by path, by the name of their column."""

Paths = frozenset[tuple[str, ...]]
"""Where values lie in a record: ("state",), ("agent", "name"), and in the records of a list ("jobs", "state")."""

_NULL = msgspec.Raw(b"null")
_LEAVES: dict[Kind, tuple[Any, Any]] = {
    "text": (str | int | float | bool | None, None),  # what is no text becomes one
    "integer": (int | None, None),
    "flag": (bool | None, None),
    "moment": (str | None, None),
    "json": (msgspec.Raw, _NULL),
}


@functools.cache
def row_type(resource: type[Resource], paths: Paths | None = None) -> type[msgspec.Struct]:
    """The struct of one row, with what lies at `paths`: by default all columns, and those of lists inside it."""
    wanted = _all_paths(resource) if paths is None else paths
    fields = [_field(field, _below(field.name, wanted)) for field in fields_of(resource) if _below(field.name, wanted)]
    unsent = (MORE, dict[str, str | None] | None, msgspec.field(default=None, name="(not sent)"))
    return msgspec.defstruct(f"{resource.__name__}Row", [*fields, unsent], kw_only=True, gc=False)


def _all_paths(resource: type[Resource]) -> Paths:
    own = {column.path for column in columns_of(resource) if column.path}
    lists = [(field.name, resource_in(field.type)) for field in fields_of(resource) if is_list_of_resources(field)]
    return frozenset(own | {(name, *path) for name, nested in lists if nested for path in _all_paths(nested)})


def _below(name: str, paths: Paths) -> Paths:
    """The rest of each path that begins with `name`."""
    return frozenset(path[1:] for path in paths if path[0] == name)


def _field(field: Field, inside: Paths) -> tuple[str, Any, Any]:
    nested = resource_in(field.type)
    if field.flat is not None and nested is not None:
        return field.name, _nested(field, nested, field.flat, inside), None
    if is_list_of_resources(field) and nested is not None:
        return field.name, GenericAlias(list, (row_type(nested, inside),)) | None, None
    return field.name, *_LEAVES[field.kind]


def _nested(field: Field, nested: type[Resource], chosen: flat, inside: Paths) -> Any:
    inner = {part.name: part for part in fields_of(nested)}
    leaves = [(key, *_LEAVES[inner[key].kind]) for key in chosen.keys if (key,) in inside]
    row = msgspec.defstruct(f"{nested.__name__}Row", leaves, kw_only=True, gc=False)
    return row | str | None if field.may_be_text else row | None
