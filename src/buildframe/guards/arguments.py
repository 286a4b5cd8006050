"""Check the arguments of public functions and methods against their annotations, before anything is sent."""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import difflib
import functools
import inspect
import itertools
import numbers
import os
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, Unpack, cast, get_args, get_origin, get_type_hints

import numpy as np

from buildframe.errors import BadInput, BuildframeError
from buildframe.guards.arrow_frames import as_pandas, plain_argument
from buildframe.guards.interrupts import annotate_interrupts
from buildframe.guards.secrets import confined, is_confined
from buildframe.spec import Endpoint, find_violations
from buildframe.spec.declare import note_in
from buildframe.spec.operations import Property
from buildframe.terminal import show

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[["_Parameters", Sequence[Any], Mapping[str, Any]], None]

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


def checked_frames(function: F) -> F:
    """Decorate as `checked_call` a function that uses whole frames of users, such as a plot.

    It gets them with plain texts, also if these were categories, and with an index without names.
    """
    checked_function = checked_call(function)

    @functools.wraps(checked_function)
    def call(*arguments: Any, **options: Any) -> Any:
        plain_options = {name: plain_argument(value) for name, value in options.items()}
        return checked_function(*map(plain_argument, arguments), **plain_options)

    return cast("F", call)


def checked_location(function: F) -> F:
    """Decorate as `checked_call` a function that takes the path or URL of a user, and refuses a URL with a password.

    Tracebacks of its refusals do not contain the URL. Unforeseen errors keep their frames.
    """
    return cast("F", confined(checked_call(function), BuildframeError))


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
            advice = _pipeline_advice(name, option, value, declared)
            advice = advice or _advice(name, option, declared, endpoint, positional)
            raise BadInput(f"{name} has no option {option!r}. {advice}")
        hint = declared.get(option, Any)
        if hint is not Any and option not in closely:
            _check_type(option, hint, value)


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
    annotated, parameters = annotate_interrupts(method), _Parameters(method)

    @functools.wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            arguments = tuple(map(_plain_number, arguments))
            options = {name: _plain_number(value, name) for name, value in options.items()}
            arguments, options = parameters.read_frames(arguments, options)
            named = parameters.named_for(arguments)
            named.check_number_of(arguments)
            check_call(named, arguments, options)
            named.check_missing(arguments, options)
            return annotated(*arguments, **options)
        except (ValueError, OverflowError) as why:  # from a number within a list, mapping or array
            if not any(words in str(why) for words in _TOO_LONG):
                raise
            raise BadInput(f"{parameters.call}: pass numbers of at most {_MOST_DIGITS} digits.") from why

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


class _Parameters:
    """The parameters of a function, except `self`. Types are evaluated at the first call that needs them."""

    def __init__(self, function: types.FunctionType) -> None:
        code, names = function.__code__, function.__code__.co_varnames
        end = code.co_argcount + code.co_kwonlyargcount
        self.call = f"{function.__qualname__.removesuffix('.__init__').split('.')[-1]}()"
        self.has_self = names[:1] == ("self",)
        self.positional, self.by_name = names[self.has_self : code.co_argcount], names[code.co_argcount : end]
        self.takes_any_number = bool(code.co_flags & inspect.CO_VARARGS)
        self._rest = names[end + self.takes_any_number] if code.co_flags & inspect.CO_VARKEYWORDS else None
        n_optional = len(function.__defaults__ or ())
        self._required = self.positional[: max(0, len(self.positional) - n_optional)]
        self.endpoint: Endpoint | None = getattr(function, "endpoint", None)
        self._function = function

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """The type of each parameter; Any if it cannot be checked."""
        hints = {name: self._hint(name) for name in (*self.positional, *self.by_name)}
        return {name: hint if _can_be_checked(hint) else Any for name, hint in hints.items()}

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """The types of keyword-only parameters, and of the TypedDict that the `**` parameter unpacks."""
        declared = {name: self._hint(name) for name in self.by_name}
        rest = self._hint(self._rest) if self._rest else None
        return declared | (get_type_hints(get_args(rest)[0], include_extras=True) if get_origin(rest) is Unpack else {})

    @functools.cached_property
    def takes_any_option(self) -> bool:
        """Whether the `**` parameter accepts any name, such as query parameters."""
        return self._rest is not None and get_origin(self._hint(self._rest)) is not Unpack

    def _hint(self, name: str) -> Any:
        """Return a parameter's annotation, or its text if only type checkers can evaluate it, as `pd.Series[Any]`."""
        text = self._function.__annotations__.get(name, Any)
        alone = types.SimpleNamespace(__annotations__={name: text})
        try:
            return get_type_hints(alone, self._function.__globals__, include_extras=True)[name]
        except (TypeError, NameError):
            return text

    def read_frames(
        self, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with frames that come from other libraries as DataFrames."""
        names = [*["self"][: self.has_self], *self.positional]
        named = itertools.zip_longest(names[: len(arguments)], arguments)
        return tuple(itertools.starmap(self._read, named)), {
            name: self._read(name, value) for name, value in options.items()
        }

    def _read(self, name: str, value: Any) -> Any:
        if not hasattr(value, "__arrow_c_stream__"):
            return value
        return as_pandas(value, self.hints.get(name))

    def named_for(self, arguments: Sequence[Any]) -> _Parameters:
        """Return the parameters under the name of the class that is created, which may inherit its constructor."""
        kind = type(arguments[0]).__name__ if arguments else ""
        if self._function.__name__ != "__init__" or self.call == f"{kind}()":
            return self
        named = copy.copy(self)
        named.call = f"{kind}()"
        return named

    def check_number_of(self, arguments: Sequence[Any]) -> None:
        """Raise BadInput for options that are passed without their names."""
        if len(arguments) > self.has_self + len(self.positional) and not self.takes_any_number:
            most = f"only {', '.join(self.positional)}" if self.positional else "nothing"
            options = ", ".join(self.options) or "none"
            raise BadInput(
                f"{self.call} takes {most} without a name. Pass options by name. Options of {self.call}: {options}."
            )

    def check_missing(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Raise BadInput for required arguments that are missing, and for those that are passed twice.

        Python's own error would name the class that defines a method, which may be an internal one.
        """
        passed = self.positional[: len(arguments) - self.has_self]
        missing = [name for name in self._required if name not in passed and name not in options]
        if missing:
            usage = f"{self.call[:-1]}{', '.join(self._required)})"
            raise BadInput(f"{self.call} needs {', '.join(missing)}. Call {usage}.")
        twice = [name for name in passed if name in options]
        if twice:
            raise BadInput(f"{self.call} is passed {twice[0]} twice. Pass it once.")


def _check_options(of: _Parameters, _: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Check names and types of the options of a method."""
    given = {name: value for name, value in options.items() if name not in of.positional}
    if of.takes_any_option:
        given = {name: value for name, value in given.items() if name in of.options}
    check(of.call, of.options, given, of.endpoint, of.positional)


def _check_names(of: _Parameters, _: Sequence[Any], options: Mapping[str, Any]) -> None:
    check(of.call, dict.fromkeys((*of.positional, *of.by_name), Any), options)


def _check_arguments(of: _Parameters, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Check names and types of all arguments of a function."""
    _check_names(of, arguments, options)
    of.check_missing(arguments, options)  # first, because the others may be in wrong places then
    by_position = dict(zip(of.positional, arguments[of.has_self :], strict=False))
    try:
        check(of.call, of.hints, {**by_position, **options})
    except BadInput as why:
        swapped = _find_swapped(of, by_position)
        if not swapped:
            raise
        advice = f"{' and '.join(swapped)} are swapped: call {of.call[:-1]}{', '.join(by_position)})."
        raise BadInput(f"{why} {advice}") from None


def _find_swapped(of: _Parameters, by_position: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of two arguments whose types are right if they are exchanged; else nothing."""
    for first, second in itertools.combinations(by_position, 2):
        exchanged = {first: by_position[second], second: by_position[first]}
        with contextlib.suppress(BadInput):
            check(of.call, of.hints, {**by_position, **exchanged})
            return first, second
    return ()


def _can_be_checked(hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType, Sequence, Mapping, Annotated):
        return all(_can_be_checked(inside) for inside in get_args(hint))
    return get_origin(hint) in (Literal, os.PathLike) or isinstance(hint, type)


def _advice(
    name: str, option: str, declared: Mapping[str, Any], endpoint: Endpoint | None, positional: Sequence[str]
) -> str:
    """Return what to write instead of an unknown option."""
    if endpoint and endpoint.lists and option in _PAGING:
        return f"It always reads all pages. {_how_to_read_less(declared, endpoint)}"
    if endpoint and endpoint.lists and option in _SORTING:
        return "Sort the frame that it returns, with .sort_values(...)."
    near = difflib.get_close_matches(option.lower(), [*declared, *positional], n=1)
    suggestion = f"Did you mean {near[0]!r}? " if near else ""
    return f"{suggestion}Options of {name}: {', '.join(declared) or 'none'}."


def _pipeline_advice(name: str, option: str, value: Any, declared: Mapping[str, Any]) -> str:
    """Return how to read one pipeline, if the method reads an organization and is passed a pipeline; else nothing."""
    if option not in ("pipeline", "pipelines", "slug") or "exclude_pipeline" not in declared:
        return ""
    slug = value if isinstance(value, str) else "web"
    several = "" if isinstance(value, str) else ' For several, select rows: frame[frame["pipeline"].isin([...])].'
    return f"For one pipeline, use ws.pipeline({show(slug)}).{name}.{several}"


def _how_to_read_less(declared: Mapping[str, Any], endpoint: Endpoint) -> str:
    filters = [entry.name for entry in endpoint.filters if entry.kind != "flag"]
    limits = [name for name in _LIMITS if name in declared]
    ways = [f"{kind} ({', '.join(names)})" for kind, names in (("a filter", filters), ("a limit", limits)) if names]
    return f"To read less, pass {' or '.join(ways)}." if ways else "Take rows of the frame: .head(...)."


def _check_type(name: str, hint: Any, value: Any) -> None:
    entry = Property(name, get_args(hint)[0] if get_origin(hint) is Annotated else hint, False, "", None)
    is_ordered = isinstance(value, Collection) and not isinstance(value, Set | Mapping | str | bytes)
    as_list = list(value) if is_ordered else value  # also of other sequences, such as a pandas index or an array
    if all(any(find_violations([entry], {name: one})) for one in (value, as_list)):
        meaning = note_in(hint, str)
        explanation = f"\n{name}: {meaning}." if meaning else ""
        # Values of a mapping may be secrets, as those of storage_options and env.
        takes_mapping = any(get_origin(kind) is Mapping for kind in (hint, *get_args(hint)))
        shown = f"<{type(value).__name__}>" if takes_mapping else show(value)
        raise BadInput(f"{name}={shown}: pass {_describe_type(entry.type)}.{explanation}")


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
        yield from _NAMES.get(get_origin(hint) or hint) or (f"{article} {hint.__name__}",)


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
