"""Convert declared types to the names of types in the golden files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

from buildframe.spec import Moment

_PLAIN: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    Moment: "timestamp",
    Any: "any",
}


def type_names(hint: Any) -> set[str]:
    """Return the names of the alternatives of a declared type, without null."""
    if get_origin(hint) is Annotated:
        return type_names(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return {word for part in get_args(hint) if part is not type(None) for word in type_names(part)}
    if get_origin(hint) in (list, Sequence):
        return {f"array of {word}" for word in type_names(get_args(hint)[0])}
    if (get_origin(hint) or hint) in (dict, Mapping) or is_typeddict(hint):
        return {"object"}
    if get_origin(hint) is Literal:
        return {"string"}
    return {_PLAIN.get(hint) or hint.__name__}
