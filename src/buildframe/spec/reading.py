"""Convert JSON to typed records. Casts mistyped values and keeps unknown fields. Does not know HTTP."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from buildframe.errors import Malformed
from buildframe.spec.declare import UNKNOWN, Resource, nested_resource
from buildframe.spec.times import Moment

R = TypeVar("R", bound=Resource)


def convert_record(kind: type[R], value: Any) -> R:
    """Convert decoded JSON to a typed record; raise msgspec's errors if it is no object or lacks a required field.

    A value of another type than declared is converted to text if text is declared, else it stays unchanged.
    """
    try:
        return convert_exact_record(kind, value)
    except (msgspec.ValidationError, Malformed):
        required = [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
        if not isinstance(value, Mapping) or any(value.get(name) is None for name in required):
            raise
        return _with_unknown(_convert_fields(kind, value), value)


def convert_exact_record(kind: type[R], value: Any) -> R:
    """Convert a decoded object; raise msgspec's errors or Malformed if a value has another type than declared."""
    return _with_unknown(msgspec.convert(value, kind, strict=False, dec_hook=_moment), value)


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
        return Moment.parse(value)
    raise ValueError(f"expected a timestamp, got {value!r}")


def _convert_fields(kind: type[R], document: Mapping[str, Any]) -> R:
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return kind(**{name: _convert_value(_hints_of(kind)[name], document.get(key)) for name, key in names})


@functools.cache
def _hints_of(kind: type[Resource]) -> dict[str, Any]:
    return get_type_hints(kind)


def _convert_value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    try:
        return msgspec.convert(value, hint, strict=False, dec_hook=_moment)
    except (msgspec.ValidationError, Malformed):
        return _cast(hint, value)


def _cast(hint: Any, value: Any) -> Any:
    nested = next(filter(None, map(nested_resource, (hint, *get_args(hint)))), None)
    if nested is not None and isinstance(value, Mapping):
        return _convert_fields(nested, value)
    if nested is not None and isinstance(value, list):
        return [_convert_fields(nested, item) if isinstance(item, Mapping) else item for item in value]
    if str in (hint, *get_args(hint)):
        return msgspec.json.encode(value).decode()
    return value
