"""Whether a request's body is what its operation declares; the client asks before sending, the sandbox on receipt."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, is_typeddict

from buildframe.spec.declare import Check, Property, check_in, properties_of
from buildframe.spec.forms import problem, short

_PLAIN: dict[Any, str] = {str: "text", bool: "true or false", int: "a whole number", types.NoneType: "null"}


class Misfit(NamedTuple):
    """Something in a body that is not as declared: where (`author.email`, `steps[2].type`), and what is wrong."""

    field: str
    problem: str
    unknown: bool = False  # a name that is not declared, which the service ignores


def misfits(declared: Sequence[Property], body: Mapping[str, Any], where: str = "") -> Iterator[Misfit]:
    """All that is wrong with a body, or with an object in it; nothing where it is as declared."""
    known = {entry.name: entry for entry in declared}
    for name in [name for name in body if name not in known]:
        yield Misfit(where + str(name), f"is not known; there are: {', '.join(known)}", unknown=True)
    for name, entry in known.items():
        if name in body:
            yield from _misfits(entry.type, body[name], where + name, entry.check)
        elif entry.required:
            yield Misfit(where + name, "is missing")


def _misfits(hint: Any, value: Any, where: str, check: Check | None = None) -> Iterator[Misfit]:
    if get_origin(hint) is Annotated:
        yield from _misfits(get_args(hint)[0], value, where, check_in(hint))
    elif is_typeddict(hint):
        yield from _object_misfits(hint, value, where)
    elif get_origin(hint) in (Union, types.UnionType):
        yield from _union_misfits(get_args(hint), value, where, check)
    elif not _fits(hint, value):
        yield Misfit(where, f"must be {words(hint)}")
    elif check is not None and isinstance(value, str) and (wrong := problem(check.form, value)):
        yield Misfit(where, f"{wrong}, not {short(value)}" if value.strip() and check.form != "yaml" else wrong)
    else:
        yield from _inner_misfits(hint, value, where)


def _object_misfits(hint: Any, value: Any, where: str) -> Iterator[Misfit]:
    if isinstance(value, Mapping):
        yield from misfits(properties_of(hint), value, f"{where}.")
    else:
        yield Misfit(where, "must be an object")


def _union_misfits(options: Sequence[Any], value: Any, where: str, check: Check | None) -> Iterator[Misfit]:
    """Objects are told apart by their `type`; of anything else the first option that has the value's shape counts."""
    objects = [option for option in options if is_typeddict(option)]
    if len(objects) > 1 and isinstance(value, Mapping):
        named = [option for option in objects if _fits(_type_of(option), value.get("type"))]
        kinds = ", ".join(str(get_args(_type_of(option))[0]) for option in objects)
        yield from _misfits(named[0], value, where) if named else [Misfit(f"{where}.type", f"must be one of {kinds}")]
        return
    chosen = next((option for option in options if _fits(option, value)), None)
    if chosen is None:
        yield Misfit(where, f"must be {_either(options)}")
    else:
        yield from _misfits(chosen, value, where, check)


def _type_of(option: Any) -> Any:
    return next(entry.type for entry in properties_of(option) if entry.name == "type")


def _inner_misfits(hint: Any, value: Any, where: str) -> Iterator[Misfit]:
    if get_origin(hint) is Sequence:
        for place, item in enumerate(value):
            yield from _misfits(get_args(hint)[0], item, f"{where}[{place}]")
    elif get_origin(hint) is Mapping:
        for key, item in value.items():
            yield from _misfits(get_args(hint)[0], key, f"{where}.{key}")
            yield from _misfits(get_args(hint)[1], item, f"{where}.{key}")


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value has the outer shape of a type."""
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is Sequence:
        return isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if get_origin(hint) is Mapping or is_typeddict(hint):
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)


def words(hint: Any) -> str:
    """A declared type in words, such as `a list of text`."""
    if get_origin(hint) is Annotated:
        return words(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) in (Union, types.UnionType):
        return _either(get_args(hint))
    if get_origin(hint) is Sequence:
        return f"a list of {words(get_args(hint)[0])}"
    if get_origin(hint) is Mapping:
        return f"an object of {words(get_args(hint)[1])}"
    return _PLAIN.get(hint, "an object")


def _either(options: Sequence[Any]) -> str:
    return " or ".join(dict.fromkeys(words(option) for option in options))
