"""Build msgspec structs for the rows of a list: only the keys that become columns, times as text,
nested values as raw JSON. msgspec skips all other keys without creating objects, which makes
decoding fast. A page that has a value of another type than declared is read row by row, and only
such a row field by field. Does not know frames.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import GenericAlias
from typing import Any, get_args, get_origin

import msgspec

from buildframe.spec.declare import (
    Field,
    Kind,
    Resource,
    columns_of,
    fields_of,
    is_list_of_resources,
    key_of,
    nested_resource,
)
from buildframe.spec.decoders import decoder_of
from buildframe.spec.odd_values import OddValue, TooManyValues, kind_of

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
    constants = {"KEYS": key_of(resource), "IS_BUILD": "jobs" in declared}
    return msgspec.defstruct(f"{resource.__name__}Row", [*fields, unsent], kw_only=True, gc=False, namespace=constants)


_MOST_SORTED = 2**22
"""Bytes of a record whose keys are sorted. Of a larger one, decoding all values would take long."""


def sort_paths(paths: tuple[Path, ...], body: bytes) -> tuple[Path, ...]:
    """Sort `paths` by their order in the longest record of a list; paths that it lacks come last."""
    longest = max(msgspec.json.decode(body, type=list[msgspec.Raw]), key=len)
    if len(longest) > _MOST_SORTED:
        return paths
    depth = max(map(len, paths), default=0)
    found = _paths_in(msgspec.json.decode(longest), depth)
    positions = {path: position for position, path in enumerate(found)}
    last = len(positions)
    return tuple(sorted(paths, key=lambda path: [positions.get(path[: n + 1], last) for n in range(len(path))]))


def _paths_in(value: Any, depth: int) -> Iterator[Path]:
    """Return the paths of up to `depth` keys in a value; of a list, those in its longest object."""
    if isinstance(value, list):
        value = max(value, key=lambda item: len(item) if isinstance(item, dict) else 0, default=None)
    if isinstance(value, dict) and depth:
        for key, nested in value.items():
            yield (key,)
            yield from ((key, *path) for path in _paths_in(nested, depth - 1))


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
    named = {"NAMED": field.flat.named if field.flat else None}
    row = msgspec.defstruct(f"{nested.__name__}Row", leaves, kw_only=True, gc=False, namespace=named)
    return row | str | None if str in get_args(field.type) else row | None


# --- pages with values of other types than declared ---------------------------------------------------------------


_MAX_VALUES = 300_000
"""Values of a page that is read value by value: some 100 builds with 50 jobs each."""


class RowDecoder:
    """Decodes a list of rows.

    Values of other types than declared become null, or text, and are added to `odd`.

    `decoder` decodes a whole page of rows of a type at once.
    """

    def __init__(self, row: type[msgspec.Struct], decoder: msgspec.json.Decoder[list[Any]]) -> None:
        self._row = row
        self._decoder = decoder
        self.odd: list[OddValue] = []

    def decode(self, body: bytes) -> list[Any]:
        """Return the rows of a body; raise msgspec's errors if it is no list of objects."""
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError:
            self.odd.clear()
            if body.count(b",") > _MAX_VALUES:
                raise TooManyValues(
                    f"has more than {_MAX_VALUES:,} values, some of other types than expected"
                ) from None
            raws = _decoder_of(list[msgspec.Raw]).decode(body)
        rows = []
        for position, raw in enumerate(raws):
            if _first(raw) != "{":
                raise msgspec.ValidationError(
                    f"row {position + 1} of {len(raws)} is {kind_of(bytes(raw))}, not an object"
                )
            row, odd = read_row(self._row, raw)
            rows.append(row)
            self.odd += odd
        return rows


def read_row(kind: type[msgspec.Struct], raw: bytes | msgspec.Raw) -> tuple[Any, list[OddValue]]:
    """Return an object as a row, and those of its values that do not fit."""
    try:
        return _decoder_of(kind).decode(raw), []
    except msgspec.ValidationError:
        pass
    odd: list[tuple[Path, Any, Any]] = []
    row = _read_fields(kind, raw, (), lambda path, value, job=None: odd.append((path, value, job)))
    return row, [OddValue.of(path, value, row, job) for path, value, job in odd]


Report = Callable[..., None]
"""Receives the path and the JSON of an odd value, and the job that has it, if one has."""


def _read_fields(kind: type[msgspec.Struct], raw: bytes | msgspec.Raw, path: Path, report: Report) -> Any:
    sent = _decoder_of(dict[str, msgspec.Raw]).decode(raw)
    keys = getattr(kind, "KEYS", ())
    values = {}
    for name, key, declared in _fields_of(kind):
        if key in sent:
            values[name] = _read_value(declared, sent[key], (*path, key), report, name in keys)
    return kind(**values)


def _read_value(declared: Any, raw: msgspec.Raw, path: Path, report: Report, is_key: bool = False) -> Any:
    """Return a value as its declared type.

    If it does not fit, report it and return what can be read of it.
    """
    try:
        return _decoder_of(declared).decode(raw)
    except msgspec.ValidationError:
        pass
    options = get_args(declared) or (declared,)
    nested = next(
        (option for option in options if isinstance(option, type) and issubclass(option, msgspec.Struct)), None
    )
    items = next((get_args(option)[0] for option in options if get_origin(option) is list), None)
    if nested is not None and _first(raw) == "{":
        return _read_fields(nested, raw, path, report)
    if items is not None and _first(raw) == "[":
        return list(_read_items(items, raw, path, report))
    report(path, raw)
    if nested is not None:
        return _read_named(nested, raw) if _first(raw) != "[" else None
    is_text = {str, int} <= set(options)  # a timestamp is declared as str alone
    return msgspec.json.format(bytes(raw), indent=-1).decode() if is_text and not is_key else None


def _read_items(kind: type[msgspec.Struct], raw: msgspec.Raw, path: Path, report: Report) -> Iterator[Any]:
    """Return the objects of a list as rows; other items are left out."""
    for item in _decoder_of(list[msgspec.Raw]).decode(raw):
        if _first(item) != "{":
            report(path, item)
            continue
        row, odd = read_row(kind, item)
        for value in odd:
            report((value.field,), msgspec.Raw(value.value), row)
        yield row


def _read_named(kind: type[msgspec.Struct], raw: msgspec.Raw) -> Any:
    """Return an object for a bare value of one of its fields, such as 5 for `{"number": 5}`."""
    named = getattr(kind, "NAMED", None)
    for name, _, declared in _fields_of(kind):
        if name == named:
            return kind(**{name: _read_value(declared, raw, (), lambda *_: None)})
    return None


@functools.lru_cache(maxsize=1024)
def _fields_of(kind: type[msgspec.Struct]) -> list[tuple[str, str, Any]]:
    """Return the attribute, the key and the type of each field."""
    return [(field.name, field.encode_name, field.type) for field in msgspec.structs.fields(kind)]


def _decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    return decoder_of(kind, strict=False)


def _first(raw: msgspec.Raw | bytes) -> str:
    """Return the first character of raw JSON, which has no space before it and shows the type."""
    return chr(memoryview(raw)[0])
