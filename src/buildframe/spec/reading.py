"""Convert what the service sent to records: cast what has another shape than declared; refuse and drop nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from buildframe.errors import Malformed
from buildframe.spec.declare import UNKNOWN, Resource, resource_in
from buildframe.spec.times import Moment

R = TypeVar("R", bound=Resource)


def record_of(kind: type[R], body: bytes) -> R:
    """A body as a typed record; no JSON object, or one without what makes it this record, raises msgspec's errors.

    A value of another shape than declared is cast where a text is meant, and otherwise stays as it came.
    """
    return record_in(kind, msgspec.json.decode(body))


def record_in(kind: type[R], value: Any) -> R:
    """The same for a decoded object."""
    try:
        return exact_record_in(kind, value)
    except (msgspec.ValidationError, Malformed):
        if not isinstance(value, Mapping) or any(value.get(name) is None for name in _required(kind)):
            raise
        return _with_unknown(_piece_by_piece(kind, value), value)


def exact_record_in(kind: type[R], value: Any) -> R:
    """The same, refused with msgspec's errors or Malformed where something is of another shape than declared."""
    return _with_unknown(msgspec.convert(value, kind, strict=False, dec_hook=_moment), value)


def _with_unknown(record: R, document: Mapping[str, Any]) -> R:
    """The record, and each record in it, with the fields that its declaration does not name."""
    names = dict(zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True))
    record.unknown = {key: value for key, value in document.items() if names.get(key, UNKNOWN) == UNKNOWN}
    for key in document.keys() & names.keys():
        inside, sent = getattr(record, names[key]), document[key]
        pairs = zip(inside, sent, strict=True) if isinstance(inside, list) else [(inside, sent)]
        for nested, part in pairs:
            if isinstance(nested, Resource):
                _with_unknown(nested, part)
    return record


def _required(kind: type[Resource]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind) if field.required]


def _moment(wanted: type, value: Any) -> Moment:
    if wanted is Moment and isinstance(value, str):
        return Moment.parse(value)
    raise ValueError(f"expected a timestamp, got {value!r}")


def _piece_by_piece(kind: type[R], document: Mapping[str, Any]) -> R:
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return kind(**{name: _fitted(_hints_of(kind)[name], document.get(key)) for name, key in names})


@functools.cache
def _hints_of(kind: type[Resource]) -> dict[str, Any]:
    return get_type_hints(kind)


def _fitted(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    try:
        return msgspec.convert(value, hint, strict=False, dec_hook=_moment)
    except (msgspec.ValidationError, Malformed):
        return _cast(hint, value)


def _cast(hint: Any, value: Any) -> Any:
    nested = resource_in(hint) or next((found for part in get_args(hint) if (found := resource_in(part))), None)
    if nested is not None and isinstance(value, Mapping):
        return _piece_by_piece(nested, value)
    if nested is not None and isinstance(value, list):
        return [_piece_by_piece(nested, item) if isinstance(item, Mapping) else item for item in value]
    if str in (hint, *get_args(hint)):
        return msgspec.json.encode(value).decode()
    return value
