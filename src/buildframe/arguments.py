"""Check the options of public methods against their annotations, before anything is sent."""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import inspect
import numbers
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, Sized
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, Unpack, get_args, get_origin, get_type_hints

from buildframe.errors import BadInput
from buildframe.secret import confined, is_confined, without_frames
from buildframe.spec import Endpoint, misfits
from buildframe.spec.declare import Property

T = TypeVar("T")

_PAGING = {"after", "before", "cursor", "first", "last", "limit", "number", "offset", "page", "page_size", "per_page"}
_SORTING = {"direction", "order", "order_by", "sort", "sort_by"}
_LIMITS = ("max_requests", "deadline")


def checked(owner: type[T]) -> type[T]:
    """Let the public methods of a class refuse options that they do not have, and values of another type."""
    for name, method in list(vars(owner).items()):
        if isinstance(method, types.FunctionType) and not name.startswith("_") and _has_options(method):
            setattr(owner, name, _confined_if_secret(method))
    return owner


def _confined_if_secret(method: types.FunctionType) -> Callable[..., Any]:
    """The method with checks. The properties of actions may hold secrets, such as variables."""
    endpoint: Endpoint | None = getattr(method, "endpoint", None)
    if is_confined(method):
        return confined(_checking(inspect.unwrap(method, stop=lambda one: not is_confined(one))))
    is_action = endpoint is not None and endpoint.method != "GET"
    return confined(_checking(method)) if is_action else _checking(method)


def check(
    name: str,
    declared: Mapping[str, Any],
    given: Mapping[str, Any],
    endpoint: Endpoint | None = None,
    positional: Sequence[str] = (),
) -> None:
    """Raise BadInput for options that are not declared, and for values of another type than declared.

    Filters and properties of `endpoint` are left to the request, which checks them more closely. An error may suggest
    the names of `positional` arguments, too.
    """
    closely = {*endpoint.filter_names, *endpoint.property_names} if endpoint else set()
    for option, value in given.items():
        if option not in declared and not _is_for_the_body(option, declared, endpoint):
            raise BadInput(f"{name} has no option {option!r}. {_advice(name, option, declared, endpoint, positional)}")
        if option in declared and option not in closely:
            _check_type(option, declared[option], value)


def with_plain_numbers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with Python's int or float in place of other numbers, such as those of numpy."""
    return {name: _plain_number(value) for name, value in options.items()}


def _plain_number(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def _is_for_the_body(option: str, declared: Mapping[str, Any], endpoint: Endpoint | None) -> bool:
    """Whether an unknown option is left to the check of the body, which reports everything that is wrong at once."""
    if endpoint is None or not endpoint.properties:
        return False
    near = difflib.get_close_matches(option.lower(), declared, n=1)
    return not near or near[0] in endpoint.property_names


def _has_options(method: types.FunctionType) -> bool:
    code = method.__code__
    return bool(code.co_kwonlyargcount or code.co_flags & inspect.CO_VARKEYWORDS)


def _checking(method: types.FunctionType) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        refused: BadInput
        try:
            options = with_plain_numbers(options)
            _check_call(method, options)
            return method(*arguments, **options)
        except BadInput as why:  # of an address that holds a password, too: no frame may keep it
            refused = without_frames(why)
        del arguments, options
        raise refused

    return call


def _check_call(method: types.FunctionType, options: Mapping[str, Any]) -> None:
    positional = method.__code__.co_varnames[: method.__code__.co_argcount]
    declared, takes_any = _options_of(method), _takes_any_option(method)
    given = {
        name: value for name, value in options.items() if name not in positional and (name in declared or not takes_any)
    }
    check(f"{method.__name__}()", declared, given, getattr(method, "endpoint", None), positional[1:])


@functools.cache
def _options_of(method: types.FunctionType) -> dict[str, Any]:
    """The types of a method's keyword-only parameters, and of the TypedDict that its `**` parameter unpacks."""
    before = {*method.__code__.co_varnames[: method.__code__.co_argcount], "return"}
    options = {name: hint for name, hint in method.__annotations__.items() if name not in before}
    only_options = types.SimpleNamespace(__annotations__=options)  # other hints may not be evaluated
    hints = get_type_hints(only_options, method.__globals__, include_extras=True)
    declared: dict[str, Any] = {}
    for name, hint in hints.items():
        if get_origin(hint) is Unpack:
            declared |= get_type_hints(get_args(hint)[0], include_extras=True)
        elif name != _catch_all(method):
            declared[name] = hint
    return declared


def _catch_all(method: types.FunctionType) -> str | None:
    """The name of a method's `**` parameter."""
    parameters = inspect.signature(method, follow_wrapped=False).parameters.values()
    return next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None)


def _takes_any_option(method: types.FunctionType) -> bool:
    """Whether the `**` parameter of a method takes names that no declaration lists, such as query parameters."""
    name = _catch_all(method)
    return name is not None and not str(method.__annotations__[name]).startswith("Unpack")


def _advice(
    name: str, option: str, declared: Mapping[str, Any], endpoint: Endpoint | None, positional: Sequence[str]
) -> str:
    """What to write instead of an option that is not there."""
    near = difflib.get_close_matches(option.lower(), [*declared, *positional], n=1)
    if endpoint and endpoint.lists and option in _PAGING:
        return f"It always reads all pages. {_how_to_read_less(declared, endpoint)}"
    if endpoint and endpoint.lists and option in _SORTING:
        return "Sort the frame that it returns, with .sort_values(...)."
    suggestion = f"Did you mean {near[0]!r}? " if near else ""
    return f"{suggestion}Options of {name}: {', '.join(declared) or 'none'}."


def _how_to_read_less(declared: Mapping[str, Any], endpoint: Endpoint) -> str:
    filters = [entry.name for entry in endpoint.filters if entry.kind != "flag"]
    limits = [name for name in _LIMITS if name in declared]
    ways = [f"{kind} ({', '.join(names)})" for kind, names in (("a filter", filters), ("a limit", limits)) if names]
    return f"To read less, pass {' or '.join(ways)}." if ways else "Take rows of the frame: .head(...)."


def _check_type(name: str, hint: Any, value: Any) -> None:
    entry = Property(name, _plain_type(hint), False, "", None)
    if any(misfits([entry], {name: _plain_value(value)})):
        raise BadInput(f"{name}={value!r}: pass {_words(entry.type)}.{_meaning(name, hint)}")


def _plain_type(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _plain_value(value: Any) -> Any:
    """What lists in its own way, such as an index of pandas or an array, as a list."""
    ordered = isinstance(value, Iterable) and isinstance(value, Sized) and not isinstance(value, Set | Mapping)
    return list(value) if ordered and not isinstance(value, str | bytes) else value


def _meaning(name: str, hint: Any) -> str:
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return f"\n{name}: {notes[0]}." if notes else ""


def _words(hint: Any) -> str:
    """A type in words, such as "True, False or None"."""
    *others, last = dict.fromkeys(_alternatives(hint))
    return f"{', '.join(others)} or {last}" if others else last


def _alternatives(hint: Any) -> Iterator[str]:
    if get_origin(hint) in (Union, types.UnionType):
        for option in get_args(hint):
            yield from _alternatives(option)
    elif get_origin(hint) is Literal:
        yield from map(repr, get_args(hint))
    elif get_origin(hint) is Mapping:
        yield f"a mapping from text to {_words(get_args(hint)[1])}"
    elif get_origin(hint) is Sequence:
        yield f"a list of {_words(get_args(hint)[0])}"
    else:
        yield from _NAMES.get(hint) or (f"a {hint.__name__}",)


_NAMES: dict[Any, tuple[str, ...]] = {
    bool: ("True", "False"),
    str: ("text",),
    int: ("a whole number",),
    float: ("a number",),
    types.NoneType: ("None",),
    dt.date: ("a date", "a datetime"),
    dt.timedelta: ("a timedelta",),
    Path: ("a path",),
}
