"""What a list's bytes are read into: only the keys that give columns, stamps as text, maps and lists as raw JSON.

This is what makes a page cheap: msgspec skips all other keys without building anything for them.
"""

from __future__ import annotations

import functools
from types import GenericAlias
from typing import Any

import msgspec

from buildframe.spec.declare import Field, Kind, Resource, fields_of, flat, is_list_of_resources, resource_in

MORE = "more_"
"""Attribute of a row that holds values asked for by path, by the name of their column."""

_NULL = msgspec.Raw(b"null")
_LEAVES: dict[Kind, tuple[Any, Any]] = {
    "text": (str | int | float | bool | None, None),  # what is no text becomes one
    "integer": (int | None, None),
    "flag": (bool | None, None),
    "moment": (str | None, None),
    "json": (msgspec.Raw, _NULL),
}


@functools.cache
def row_type(resource: type[Resource], nested_lists: bool = True) -> type[msgspec.Struct]:
    """The struct of one row; `nested_lists=False` leaves out records with a table of their own (a build's jobs)."""
    wanted = (field for field in fields_of(resource) if field.sent)
    fields = [_field(field) for field in wanted if nested_lists or not is_list_of_resources(field)]
    unsent = (MORE, dict[str, str | None] | None, msgspec.field(default=None, name="(not sent)"))
    return msgspec.defstruct(f"{resource.__name__}Row", [*fields, unsent], kw_only=True, gc=False)


def _field(field: Field) -> tuple[str, Any, Any]:
    nested = resource_in(field.type)
    if field.flat is not None and nested is not None:
        return field.name, _nested(field, nested, field.flat), None
    if is_list_of_resources(field) and nested is not None:
        return field.name, GenericAlias(list, (row_type(nested),)) | None, None
    return field.name, *_LEAVES[field.kind]


def _nested(field: Field, nested: type[Resource], chosen: flat) -> Any:
    inner = {part.name: part for part in fields_of(nested)}
    leaves = [(key, *_LEAVES[inner[key].kind]) for key in chosen.keys]
    row = msgspec.defstruct(f"{nested.__name__}Row", leaves, kw_only=True, gc=False)
    return row | str | None if field.may_be_text else row | None
