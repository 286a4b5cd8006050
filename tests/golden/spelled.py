"""Declared types in the words of the witness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

from buildframe.spec import Moment

_PLAIN: dict[Any, str] = {str: "string", int: "integer", bool: "boolean", Moment: "timestamp", Any: "any"}


def spelled(hint: Any) -> set[str]:
    """A declared type in the words of the witness: its alternatives, without null."""
    if get_origin(hint) is Annotated:
        return spelled(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return {word for part in get_args(hint) if part is not type(None) for word in spelled(part)}
    if get_origin(hint) in (list, Sequence):
        return {f"array of {word}" for word in spelled(get_args(hint)[0])}
    if (get_origin(hint) or hint) in (dict, Mapping) or is_typeddict(hint):
        return {"object"}
    if get_origin(hint) is Literal:
        return {"string"}
    return {_PLAIN.get(hint) or hint.__name__}
