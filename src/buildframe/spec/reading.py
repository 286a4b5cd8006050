"""Convert JSON to typed records. Casts mistyped values and keeps unknown fields. Does not know HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_origin

import msgspec

from buildframe.errors import Malformed
from buildframe.spec.declare import UNKNOWN, Field, Resource, fields_of, nested_resource
from buildframe.spec.decoders import convert
from buildframe.spec.odd_values import OddValue, TooManyValues, to_json
from buildframe.spec.times import VALID_YEARS, Moment

R = TypeVar("R", bound=Resource)
Path = tuple[str, ...]
Report = Callable[[Path, Any, Any], None]
"""Receives the path of an odd value, the value, and the job or other list item that has it."""

_MAX_VALUES = 300_000
"""Values of a record that is read value by value: a build with 5,000 jobs. They take some seconds."""

_MAX_ITEMS = 20_000
"""Items of a list in such a record. An object takes long even if it has few values."""


def convert_record(kind: type[R], value: Any, report: Callable[[OddValue], None] = lambda odd: None) -> R:
    """Convert decoded JSON to a typed record; raise msgspec's errors if it is no object or lacks a required field.

    A value of another type than declared is converted to text if text is declared, and stays if the
    field is a map or a list of any values. One in the place of an object is taken as the value that
    names it. Otherwise it becomes None and is in `unknown`. All but numbers and bools as text are
    reported.
    """
    try:
        return convert_exact_record(kind, value)
    except (msgspec.ValidationError, Malformed):
        required = [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
        if not isinstance(value, Mapping) or not all(_is_identity(value.get(name)) for name in required):
            raise
    longest = max((len(items) for items in value.values() if isinstance(items, list)), default=0)
    if longest > _MAX_ITEMS or to_json(value).count(",") > _MAX_VALUES:
        raise TooManyValues(
            f"has more than {_MAX_VALUES:,} values, or {_MAX_ITEMS:,} in a list, some of other types than expected"
        )
    odd: list[tuple[Path, Any, Any]] = []
    record = _convert_fields(kind, value, lambda path, sent, job: odd.append((path, sent, job)))
    for path, sent, job in odd:
        report(OddValue.of(path, sent, record, job))
    return record


def _is_identity(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def convert_exact_record(kind: type[R], value: Any) -> R:
    """Convert a decoded object; raise msgspec's errors or Malformed if a value has another type than declared."""
    return _with_unknown(convert(value, kind, strict=False, dec_hook=_moment), value)


def _with_unknown(record: R, document: Mapping[str, Any]) -> R:
    """Add undeclared fields to a record and its nested records."""
    names = dict(zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True))
    record.unknown = {key: value for key, value in document.items() if names.get(key, UNKNOWN) == UNKNOWN}
    for key in document.keys() & names.keys():
        value, sent = getattr(record, names[key]), document[key]
        pairs = zip(value, sent, strict=True) if isinstance(value, list) else [(value, sent)]
        for nested, source in pairs:
            if isinstance(nested, Resource):
                _with_unknown(nested, source)
    return record


def _moment(target: type, value: Any) -> Moment:
    if target is Moment and isinstance(value, str):
        moment = Moment.parse(value)
        if moment.year in VALID_YEARS:
            return moment
    raise ValueError(f"expected a timestamp, got {value!r}")


def _convert_fields(kind: type[R], document: Mapping[str, Any], report: Report) -> R:
    """Convert an object field by field.

    Values that would be lost are in `unknown`, beside undeclared fields.
    """
    fields = fields_of(kind)
    declared = {field.name for field in fields}
    unknown = {key: value for key, value in document.items() if key not in declared}
    values: dict[str, Any] = {}
    for name, field in zip(kind.__struct_fields__, fields, strict=False):  # `unknown` is the last
        sent = document.get(field.name)
        values[name], is_odd = (None, False) if sent is None else _convert_value(field, sent, report)
        if is_odd:
            is_kept = isinstance(values[name], str | Resource)
            unknown |= {} if is_kept else {field.name: sent}
            report((field.name,), sent, None)
    record = kind(**values)
    record.unknown = unknown
    return record


def _convert_value(field: Field, value: Any, report: Report) -> tuple[Any, bool]:
    """Return what can be read of a value, and whether it does not fit.

    Report values inside of it that do not fit.
    """
    nested = nested_resource(field.type)
    try:
        return _convert_exact(field, value), False
    except (msgspec.ValidationError, Malformed):
        pass
    if nested is not None and get_origin(field.type) is list:
        items = value if isinstance(value, list) else []
        objects = [_convert_item(field, nested, item, report) for item in items if isinstance(item, Mapping)]
        return objects if isinstance(value, list) else None, not items or len(objects) < len(items)
    if nested is not None and isinstance(value, Mapping):
        return _convert_fields(nested, value, lambda path, sent, item: report((field.name, *path), sent, item)), False
    if nested is not None:
        return None if isinstance(value, list) else _convert_named(field, nested, value), True
    if field.kind == "text":
        return to_json(value), isinstance(value, list | Mapping)
    return (value, False) if field.kind == "json" else (None, True)


def _convert_exact(field: Field, value: Any) -> Any:
    converted = convert(value, field.type, strict=False, dec_hook=_moment)
    pairs = zip(converted, value, strict=True) if isinstance(converted, list) else [(converted, value)]
    for record, sent in pairs:
        if isinstance(record, Resource):
            _with_unknown(record, sent)
    return converted


def _convert_item(field: Field, nested: type[R], item: Mapping[str, Any], report: Report) -> R:
    odd: list[tuple[Path, Any]] = []
    record = _convert_fields(nested, item, lambda path, sent, _: odd.append((path, sent)))
    for path, sent in odd:
        report(path, sent, record)
    return record


def _convert_named(field: Field, nested: type[R], value: Any) -> R | None:
    """Return an object for a bare value of one of its fields, such as 5 for `{"number": 5}`."""
    if field.flat is None or field.flat.named is None:
        return None
    return _convert_fields(nested, {field.flat.named: value}, lambda path, sent, item: None)
