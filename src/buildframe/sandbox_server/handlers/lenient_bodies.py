"""Read values of request bodies as the service does: "5" can be a number, "true" a flag."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, is_typeddict

from buildframe.spec import Check, Property, properties_of
from buildframe.spec.declare import note_in

_WHOLE_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def read_values(declared: Sequence[Property], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with the values that the service reads.

    Values that it refuses stay as they are.
    """
    properties = {entry.name: entry for entry in declared}
    values = dict(body)
    for name in values.keys() & properties.keys():
        values[name] = _read(properties[name].type, values[name], properties[name].check)
    return values


def _read(hint: Any, value: Any, check: Check | None = None) -> Any:
    if get_origin(hint) is Annotated:
        return _read(get_args(hint)[0], value, note_in(hint, Check))
    if get_origin(hint) in (Union, types.UnionType):
        return _read_union(get_args(hint), value, check)
    if is_typeddict(hint) and isinstance(value, Mapping):
        return read_values(properties_of(hint), value)
    if get_origin(hint) is Sequence and isinstance(value, list):
        return [_read(get_args(hint)[0], item) for item in value]
    if get_origin(hint) is Mapping and isinstance(value, Mapping):
        return {key: _read(get_args(hint)[1], item) for key, item in value.items()}
    if hint is int and isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return _FLAGS.get(value, value) if hint is bool and isinstance(value, str) else value


def _read_union(options: Sequence[Any], value: Any, check: Check | None) -> Any:
    """Read a value as the first option that changes it. An empty UUID that may be null is null."""
    if value == "" and types.NoneType in options and check == Check("uuid"):
        return None
    if isinstance(value, Mapping) and "type" in value:  # a step, which says what it is
        options = [option for option in options if value["type"] in _type_names(option)]
    readings = (_read(option, value) for option in options if option is not types.NoneType)
    return next((reading for reading in readings if reading != value), value)


def _type_names(option: Any) -> tuple[Any, ...]:
    if not is_typeddict(option):
        return ()
    hints = [entry.type for entry in properties_of(option) if entry.name == "type"]
    return get_args(hints[0]) if hints else ()
