"""Build msgspec structs for the rows of a list: only the keys that become columns, times as text, nested values as raw
JSON. msgspec skips all other keys without creating objects, which makes decoding fast. Does not know frames.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import GenericAlias
from typing import Any, get_args

import msgspec

from buildframe.spec.declare import Field, Kind, Resource, columns_of, fields_of, is_list_of_resources, nested_resource

MORE = "more_"  # attribute of a row with the values of extra paths, by column name

Path = tuple[str, ...]
"""Path of a value in a record: ("state",), ("agent", "name"), or in the records of a list ("jobs", "state")."""

_NULL = msgspec.Raw(b"null")
_LEAVES: dict[Kind, tuple[Any, Any]] = {
    "text": (str | int | float | bool | None, None),  # other values are converted to text
    "integer": (int | None, None),
    "number": (float | None, None),
    "flag": (bool | None, None),
    "timestamp": (str | None, None),
    "json": (msgspec.Raw, _NULL),
}


@functools.cache
def row_type(resource: type[Resource], paths: tuple[Path, ...] | None = None) -> type[msgspec.Struct]:
    """Return the struct of one row with the values at `paths`, by default all columns, including those of nested lists.

    The fields are in the order of `paths`. Decoding is fastest in the order in which the service sends them.
    """
    selected = _all_paths(resource) if paths is None else paths
    declared = {field.name: field for field in fields_of(resource)}
    fields = [_field(declared[name], _below(name, selected)) for name in dict.fromkeys(path[0] for path in selected)]
    unsent = (MORE, dict[str, str | None] | None, msgspec.field(default=None, name="(not sent)"))
    return msgspec.defstruct(f"{resource.__name__}Row", [*fields, unsent], kw_only=True, gc=False)


def sort_paths(paths: tuple[Path, ...], body: bytes) -> tuple[Path, ...]:
    """Sort `paths` by their order in the longest record of a list; paths that it lacks come last."""
    longest = max(msgspec.json.decode(body, type=list[msgspec.Raw]), key=len)
    positions = {path: position for position, path in enumerate(_paths_in(msgspec.json.decode(longest)))}
    last = len(positions)
    return tuple(sorted(paths, key=lambda path: [positions.get(path[: n + 1], last) for n in range(len(path))]))


def _paths_in(value: Any) -> Iterator[Path]:
    if isinstance(value, list):
        yield from _paths_in(max(value, key=lambda one: len(one) if isinstance(one, dict) else 0, default=None))
    elif isinstance(value, dict):
        for key, nested in value.items():
            yield (key,)
            yield from ((key, *path) for path in _paths_in(nested))


def _all_paths(resource: type[Resource]) -> tuple[Path, ...]:
    own = [column.path for column in columns_of(resource) if column.path]
    lists = [(field.name, nested_resource(field.type)) for field in fields_of(resource) if is_list_of_resources(field)]
    return (*own, *((name, *path) for name, nested in lists if nested for path in _all_paths(nested)))


def _below(name: str, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the remainder of each path that starts with `name`."""
    return tuple(path[1:] for path in paths if path[0] == name)


def _field(field: Field, inside: tuple[Path, ...]) -> tuple[str, Any, Any]:
    nested = nested_resource(field.type)
    if field.flat is not None and nested is not None:
        return field.name, _nested(field, nested, inside), None
    if is_list_of_resources(field) and nested is not None:
        return field.name, GenericAlias(list, (row_type(nested, inside),)) | None, None
    return field.name, *_LEAVES[field.kind]


def _nested(field: Field, nested: type[Resource], inside: tuple[Path, ...]) -> Any:
    inner = {part.name: part for part in fields_of(nested)}
    leaves = [(key, *_LEAVES[inner[key].kind]) for (key,) in inside]
    row = msgspec.defstruct(f"{nested.__name__}Row", leaves, kw_only=True, gc=False)
    return row | str | None if str in get_args(field.type) else row | None
