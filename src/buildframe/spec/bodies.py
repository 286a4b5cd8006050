"""Validate the body of a request against the declaration of its operation. Used by the client and the sandbox."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, is_typeddict

from buildframe.spec.declare import note_in
from buildframe.spec.forms import find_problem
from buildframe.spec.operations import Check, Property, properties_of
from buildframe.terminal import show

_PLAIN: dict[Any, str] = {str: "text", bool: "true or false", int: "a whole number", types.NoneType: "null"}


class Violation(NamedTuple):
    """
    One violation in a body.

    Attributes
    ----------
    field : str
        Place of the value, such as `author.email` or `steps[2].type`.
    problem : str
        What is wrong with it.
    unknown : bool
        Whether the name is not declared. The service ignores such names.
    """

    field: str
    problem: str
    unknown: bool = False


def find_violations(declared: Sequence[Property], body: Mapping[str, Any], where: str = "") -> Iterator[Violation]:
    """
    Yield every violation in a request body, or in an object of it.

    Parameters
    ----------
    declared : sequence of Property
        Declared properties, such as `create_build.properties`.
    body : mapping
        The body, as decoded from JSON.
    where : str, default ""
        Prefix of the fields in violations.

    Yields
    ------
    Violation
        In the order of the declarations, undeclared names first.

    Examples
    --------
    >>> from buildframe.spec import create_build, find_violations
    >>> [violation.field for violation in find_violations(create_build.properties, {"commit": "HEAD", "message": 1})]
    ['branch', 'message']
    """
    properties = {entry.name: entry for entry in declared}
    for name in [name for name in body if name not in properties]:
        yield Violation(where + str(name), f"is unknown. Use one of: {', '.join(properties)}", unknown=True)
    for name, entry in properties.items():
        if name in body:
            yield from _find_violations(entry.type, body[name], where + name, entry.check)
        elif entry.required:
            yield Violation(where + name, "is missing")


def _find_violations(hint: Any, value: Any, where: str, check: Check | None = None) -> Iterator[Violation]:
    if get_origin(hint) is Annotated:
        yield from _find_violations(get_args(hint)[0], value, where, note_in(hint, Check))
    elif is_typeddict(hint) and isinstance(value, Mapping):
        yield from find_violations(properties_of(hint), value, f"{where}.")
    elif is_typeddict(hint):
        yield Violation(where, "must be an object")
    elif get_origin(hint) in (Union, types.UnionType):
        yield from _union_violations(get_args(hint), value, where, check)
    elif not _fits(hint, value):
        yield Violation(where, f"must be {describe_type(hint)}")
    elif check is not None and isinstance(value, str) and (wrong := find_problem(check.form, value)):
        yield Violation(where, f"{wrong}, not {show(value)}" if value.strip() and check.form != "yaml" else wrong)
    else:
        yield from _inner_violations(hint, value, where)


def _union_violations(options: Sequence[Any], value: Any, where: str, check: Check | None) -> Iterator[Violation]:
    """Select an object type by its `type` key; for other values the first option of the same shape."""
    objects = [option for option in options if is_typeddict(option)]
    if len(objects) > 1 and isinstance(value, Mapping):
        options = [option for option in objects if _fits(_type_of(option), value.get("type"))]
        place, problem = f"{where}.type", f"one of {', '.join(str(get_args(_type_of(each))[0]) for each in objects)}"
    else:
        options, place, problem = [each for each in options if _fits(each, value)], where, _either(options)
    if options:
        yield from _find_violations(options[0], value, where, check)
    else:
        yield Violation(place, f"must be {problem}")


def _type_of(option: Any) -> Any:
    return next(entry.type for entry in properties_of(option) if entry.name == "type")


def _inner_violations(hint: Any, value: Any, where: str) -> Iterator[Violation]:
    if get_origin(hint) is Sequence:
        for index, item in enumerate(value):
            yield from _find_violations(get_args(hint)[0], item, f"{where}[{index}]")
    elif get_origin(hint) is Mapping:
        for key, item in value.items():
            yield from _find_violations(get_args(hint)[0], key, f"{where}.{key}")
            yield from _find_violations(get_args(hint)[1], item, f"{where}.{key}")


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value has the outermost type of a hint."""
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is Sequence:
        return isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if get_origin(hint) is Mapping or is_typeddict(hint):
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, get_origin(hint) or hint)


def describe_type(hint: Any) -> str:
    """
    Describe a declared type for people.

    Parameters
    ----------
    hint : type hint
        Type of a property.

    Returns
    -------
    str
        Noun phrase such as "a list of text".

    Examples
    --------
    >>> from collections.abc import Sequence
    >>> from buildframe.spec import describe_type
    >>> describe_type(Sequence[str])
    'a list of text'
    """
    if get_origin(hint) is Annotated:
        return describe_type(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) in (Union, types.UnionType):
        return _either(get_args(hint))
    if get_origin(hint) is Sequence:
        return f"a list of {describe_type(get_args(hint)[0])}"
    if get_origin(hint) is Mapping:
        return f"an object of {describe_type(get_args(hint)[1])}"
    return _PLAIN.get(hint, "an object")


def _either(options: Sequence[Any]) -> str:
    return " or ".join(dict.fromkeys(describe_type(option) for option in options))
