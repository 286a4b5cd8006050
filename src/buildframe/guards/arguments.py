"""Check the arguments of public functions and methods against their annotations, before anything is sent."""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import inspect
import numbers
import operator
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, Sized
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, Unpack, cast, get_args, get_origin, get_type_hints

import numpy as np

from buildframe.errors import BadInput
from buildframe.guards.interrupts import annotate_interrupts
from buildframe.guards.secrets import confined, is_confined, without_frames
from buildframe.spec import Endpoint, find_violations
from buildframe.spec.declare import note_in
from buildframe.spec.operations import Property
from buildframe.terminal import show

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[types.FunctionType, Sequence[Any], Mapping[str, Any]], None]

_PAGING = {"after", "before", "cursor", "first", "last", "limit", "number", "offset", "page", "page_size", "per_page"}
_SORTING = {"direction", "order", "order_by", "sort", "sort_by"}
_LIMITS = ("max_requests", "deadline")
_MOST_DIGITS = 300
_TOO_LONG = ("set_int_max_str_digits", "too large for a float")  # in Python's errors about numbers that it cannot print


def checked(owner: type[T]) -> type[T]:
    """Decorate a class so that its public methods raise BadInput for unknown options and values of another type.

    Properties raise it for arguments of the constructor that they cannot use.
    """
    for name, method in list(vars(owner).items()):
        if isinstance(method, types.FunctionType) and not name.startswith("_"):
            code = method.__code__
            has_options = code.co_kwonlyargcount or code.co_flags & inspect.CO_VARKEYWORDS
            setattr(owner, name, _confined_if_secret(method, _check_options if has_options else _check_names))
        elif isinstance(method, property) and not name.startswith("_"):
            setattr(owner, name, method.getter(_confined_if_secret(method.fget, _check_names)))
    return owner


def checked_call(function: F) -> F:
    """Decorate a function so that it raises BadInput for unknown options and arguments of another type than annotated.

    Arguments whose annotation cannot be checked, such as a callable, are passed on.
    """
    return cast("F", _confined_if_secret(function, _check_arguments))


def checked_fields(owner: type[T]) -> type[T]:
    """Decorate a dataclass so that it raises BadInput for unknown fields and values of another type than declared."""
    owner.__init__ = checked_call(owner.__init__)  # type: ignore[method-assign]
    return owner


def checked_names(function: F) -> F:
    """Decorate a function so that it raises BadInput for unknown options. It checks their values itself."""
    return cast("F", _confined_if_secret(function, _check_names))


def _confined_if_secret(method: Any, check_call: Check) -> Any:
    """Return the method with checks. Actions are confined, since their properties may contain secrets."""
    endpoint: Endpoint | None = getattr(method, "endpoint", None)
    is_secret = is_confined(method) or (endpoint is not None and endpoint.method != "GET")
    call = _checking(inspect.unwrap(method, stop=lambda one: not is_confined(one)), check_call)
    return confined(call) if is_secret else call


def check(
    name: str,
    declared: Mapping[str, Any],
    given: Mapping[str, Any],
    endpoint: Endpoint | None = None,
    positional: Sequence[str] = (),
) -> None:
    """Raise BadInput for options that are not declared, and for values of another type than declared.

    Filters and properties of `endpoint` are checked with the request. An error may also suggest the names of
    `positional` arguments.
    """
    closely = {*endpoint.filter_names, *endpoint.property_names} if endpoint else set()
    for option, value in given.items():
        if option not in declared and not _is_for_the_body(option, declared, endpoint):
            raise BadInput(f"{name} has no option {option!r}. {_advice(name, option, declared, endpoint, positional)}")
        if option in declared and option not in closely:
            _check_type(option, declared[option], value)


def _plain_number(value: Any, name: str = "number") -> Any:
    """Return Python's int or float instead of another number, such as one of numpy."""
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        if abs(int(value)) >= 10**_MOST_DIGITS:  # Python cannot print more than 4,300 digits, not even in an error
            raise BadInput(f"{name}: pass a number of at most {_MOST_DIGITS} digits.")
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def _is_for_the_body(option: str, declared: Mapping[str, Any], endpoint: Endpoint | None) -> bool:
    """Whether the check of the body handles an unknown option, since it reports everything that is wrong at once."""
    if endpoint is None or not endpoint.properties:
        return False
    near = difflib.get_close_matches(option.lower(), declared, n=1)
    return not near or near[0] in endpoint.property_names


def _checking(method: types.FunctionType, check_call: Check) -> Callable[..., Any]:
    annotated = annotate_interrupts(method)

    @functools.wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        refused: BadInput
        try:
            arguments = tuple(map(_plain_number, arguments))
            options = {name: _plain_number(value, name) for name, value in options.items()}
            check_call(method, arguments, options)
            return annotated(*arguments, **options)
        except BadInput as why:  # also about a URL with a password: no frame may contain it
            refused = without_frames(why)
        except (ValueError, OverflowError) as why:  # from a number within a list, mapping or array
            if not any(words in str(why) for words in _TOO_LONG):
                raise
            refused = BadInput(f"{_name_of(method)}: pass numbers of at most {_MOST_DIGITS} digits.")
        del arguments, options
        raise refused

    if any(map(inspect.isfunction, method.__defaults__ or ())):
        call.__signature__ = _name_functions(inspect.signature(method))  # type: ignore[attr-defined]
    return call


class _FunctionName(str):
    """A default in a signature: `of=queue_time` instead of `of=<function queue_time at 0x...>`."""

    __slots__ = ()
    __repr__ = str.__str__


def _name_functions(signature: inspect.Signature) -> inspect.Signature:
    named = (
        each.replace(default=_FunctionName(each.default.__name__)) if inspect.isfunction(each.default) else each
        for each in signature.parameters.values()
    )
    return signature.replace(parameters=[*named])


def _check_options(method: types.FunctionType, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Check names and types of the options of a method."""
    _check_number_of(method, arguments)
    positional, declared, takes_any = _positional(method), _options_of(method), _takes_any_option(method)
    given = {
        name: value for name, value in options.items() if name not in positional and (name in declared or not takes_any)
    }
    check(_name_of(method), declared, given, getattr(method, "endpoint", None), _without_self(positional))


def _check_names(method: types.FunctionType, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    _check_number_of(method, arguments)
    names = _without_self([*_positional(method), *_only_by_name(method)])
    for option in options:
        if option not in names:
            raise BadInput(f"{_name_of(method)} has no option {option!r}. {_nearest(_name_of(method), option, names)}")


def _check_arguments(function: types.FunctionType, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Check names and types of all arguments of a function."""
    _check_names(function, arguments, options)
    given = {**dict(zip(_positional(function), arguments, strict=False)), **options}
    for name, hint in _checkable(function).items():
        if name in given:
            _check_type(name, hint, given[name])


def _check_number_of(method: types.FunctionType, arguments: Sequence[Any]) -> None:
    """Raise BadInput for options that are passed without their names."""
    positional = _positional(method)
    if len(arguments) > len(positional) and not method.__code__.co_flags & inspect.CO_VARARGS:
        names, name = _without_self(positional), _name_of(method)
        most = f"only {', '.join(names)}" if names else "nothing"
        has_more = method.__code__.co_flags & inspect.CO_VARKEYWORDS
        options = ", ".join(_options_of(method) if has_more else _only_by_name(method)) or "none"
        raise BadInput(f"{name} takes {most} without a name. Pass options by name. Options of {name}: {options}.")


def _name_of(method: types.FunctionType) -> str:
    """Return the name of a call, such as "builds()", or "Store()" for its `__init__`."""
    return f"{method.__qualname__.removesuffix('.__init__').split('.')[-1]}()"


def _positional(method: types.FunctionType) -> tuple[str, ...]:
    return method.__code__.co_varnames[: method.__code__.co_argcount]


def _only_by_name(method: types.FunctionType) -> tuple[str, ...]:
    code = method.__code__
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]


def _without_self(names: Sequence[str]) -> Sequence[str]:
    return names[1:] if names[:1] in (("self",), ["self"]) else names


@functools.cache
def _checkable(function: types.FunctionType) -> dict[str, Any]:
    """Return the types of the parameters that can be checked."""
    names = (*_positional(function), *_only_by_name(function))
    hints = {name: _hint(function, name) for name in names if name in function.__annotations__}
    return {name: hint for name, hint in hints.items() if _can_be_checked(hint)}


def _hint(function: types.FunctionType, name: str) -> Any:
    """Return a parameter's annotation, or its text if only type checkers can evaluate it, as `pd.Series[Any]`."""
    text = function.__annotations__[name]
    alone = types.SimpleNamespace(__annotations__={name: text})
    try:
        return get_type_hints(alone, function.__globals__, include_extras=True)[name]
    except (TypeError, NameError):
        return text


def _can_be_checked(hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType, Sequence, Mapping, Annotated):
        return all(_can_be_checked(inside) for inside in get_args(hint))
    return get_origin(hint) in (Literal, os.PathLike) or isinstance(hint, type)


@functools.cache
def _options_of(method: types.FunctionType) -> dict[str, Any]:
    """Return the types of keyword-only parameters, and of the TypedDict that the `**` parameter unpacks."""
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
    """Return the name of a method's `**` parameter."""
    parameters = inspect.signature(method, follow_wrapped=False).parameters.values()
    return next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None)


def _takes_any_option(method: types.FunctionType) -> bool:
    """Whether the `**` parameter of a method accepts any name, such as query parameters."""
    name = _catch_all(method)
    return name is not None and not str(method.__annotations__[name]).startswith("Unpack")


def _advice(
    name: str, option: str, declared: Mapping[str, Any], endpoint: Endpoint | None, positional: Sequence[str]
) -> str:
    """Return what to write instead of an unknown option."""
    if endpoint and endpoint.lists and option in _PAGING:
        return f"It always reads all pages. {_how_to_read_less(declared, endpoint)}"
    if endpoint and endpoint.lists and option in _SORTING:
        return "Sort the frame that it returns, with .sort_values(...)."
    return _nearest(name, option, declared, positional)


def _nearest(name: str, option: str, declared: Iterable[str], others: Sequence[str] = ()) -> str:
    """Return the name that may be meant, and all names."""
    near = difflib.get_close_matches(option.lower(), [*declared, *others], n=1)
    suggestion = f"Did you mean {near[0]!r}? " if near else ""
    return f"{suggestion}Options of {name}: {', '.join(declared) or 'none'}."


def _how_to_read_less(declared: Mapping[str, Any], endpoint: Endpoint) -> str:
    filters = [entry.name for entry in endpoint.filters if entry.kind != "flag"]
    limits = [name for name in _LIMITS if name in declared]
    ways = [f"{kind} ({', '.join(names)})" for kind, names in (("a filter", filters), ("a limit", limits)) if names]
    return f"To read less, pass {' or '.join(ways)}." if ways else "Take rows of the frame: .head(...)."


def _check_type(name: str, hint: Any, value: Any) -> None:
    entry = Property(name, _plain_type(hint), False, "", None)
    if all(any(find_violations([entry], {name: one})) for one in (value, _plain_value(value))):
        meaning = note_in(hint, str)
        explanation = f"\n{name}: {meaning}." if meaning else ""
        raise BadInput(f"{name}={show(value)}: pass {_describe_type(entry.type)}.{explanation}")


def _plain_type(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        return get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        options = (os.PathLike if get_origin(option) is os.PathLike else option for option in get_args(hint))
        return functools.reduce(operator.or_, options)
    return hint


def _plain_value(value: Any) -> Any:
    """Return other sequences, such as a pandas index or an array, as a list."""
    ordered = isinstance(value, Iterable) and isinstance(value, Sized) and not isinstance(value, Set | Mapping)
    return list(value) if ordered and not isinstance(value, str | bytes) else value


def _describe_type(hint: Any) -> str:
    """Describe a type, such as "True, False or None"."""
    *others, last = dict.fromkeys(_alternatives(hint))
    return f"{', '.join(others)} or {last}" if others else last


def _alternatives(hint: Any) -> Iterator[str]:
    if get_origin(hint) in (Union, types.UnionType):
        for option in get_args(hint):
            yield from _alternatives(option)
    elif get_origin(hint) is Literal:
        yield from map(repr, get_args(hint))
    elif get_origin(hint) is Mapping:
        yield f"a mapping from text to {_describe_type(get_args(hint)[1])}"
    elif get_origin(hint) is Sequence:
        yield f"a list of {_describe_type(get_args(hint)[0])}"
    else:
        article = "an" if hint.__name__[0] in "AEIOU" else "a"
        yield from _NAMES.get(hint) or (f"{article} {hint.__name__}",)


_NAMES: dict[Any, tuple[str, ...]] = {
    bool: ("True", "False"),
    str: ("text",),
    int: ("a whole number",),
    float: ("a number",),
    types.NoneType: ("None",),
    dt.date: ("a date", "a datetime"),
    dt.timedelta: ("a timedelta",),
    Path: ("a path",),
    os.PathLike: ("a path",),
}
