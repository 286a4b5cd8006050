"""Show the keywords that a method accepts in its signature and docstring. Does not know what they mean."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from buildframe.fetching.options import DEFAULTS
from buildframe.spec import TABLES, Endpoint
from buildframe.spec.arrow_types import arrow_types, pandas_types

F = TypeVar("F", bound=Callable[..., Any])

_CATCH_ALL = re.compile(r"^\*\*\w+.*\n(?: +.*\n)*", re.MULTILINE)
_RETURNS = re.compile(r"^Returns\n-+\n(?:.+\n)*", re.MULTILINE)
_TABLE = re.compile(r"table\s+`(\w+)`")
_DEFAULT = re.compile(r" \(([^ ()]+)\)$")  # the default at the end of a description, such as " (False)"


class _NotSent:
    """Default of properties: the request does not contain them. None would be null."""

    def __repr__(self) -> str:
        return "<not sent>"


NOT_SENT: Final = _NotSent()


def accepts(endpoint: Endpoint, keywords: type[Any]) -> Callable[[F], F]:
    """Decorate a method whose `**` parameter takes filters and options, or properties, of an endpoint.

    `keywords` is the TypedDict of the parameter. Its keys replace the parameter in the signature, and in the section
    Parameters of the docstring. The section Returns gets the columns of each table that it names.
    """

    def decorate(method: F) -> F:
        method.endpoint = endpoint  # type: ignore[attr-defined]  # guards.arguments checks by it
        hints = get_type_hints(keywords, include_extras=True)
        required = {entry.name for entry in endpoint.properties if entry.required}
        has_properties = bool(endpoint.properties)
        entries = [_entry(name, hint, name in required) for name, hint in hints.items()]
        documented = inspect.cleandoc(method.__doc__ or "")
        described = _CATCH_ALL.sub(lambda _: "".join(entries), documented, count=1)
        method.__doc__ = _RETURNS.sub(lambda section: section[0] + _columns(section[0]), described, count=1)
        signature = inspect.signature(method)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        added = [_parameter(name, hint, name in required, has_properties) for name, hint in hints.items()]
        method.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return method

    return decorate


def _parameter(name: str, hint: Any, is_required: bool, has_properties: bool) -> inspect.Parameter:
    kind, _ = _type_and_meaning(hint)
    if is_required:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
    default = NOT_SENT if has_properties else DEFAULTS.get(name)
    annotation = kind if default is not None else kind | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _entry(name: str, hint: Any, is_required: bool) -> str:
    """Return an entry of the section Parameters."""
    kind, meaning = _type_and_meaning(hint)
    text = _DEFAULT.sub("", meaning)
    default = _DEFAULT.search(meaning)
    suffix = "" if is_required else f", default {default[1]}" if default else ", optional"
    return f"{name} : {' or '.join(dict.fromkeys(_words(kind)))}{suffix}\n    {text[0].upper()}{text[1:]}.\n"


def _columns(section: str) -> str:
    """Return the columns of the tables that a section Returns names."""
    return "".join(f"\n{textwrap.indent(_table(name), '    ')}\n" for name in _TABLE.findall(section))


def _table(name: str) -> str:
    """Return the columns of a table with dtype and meaning, as a simple table of reStructuredText."""
    dtypes = {kind: str(pandas_types()[arrow]) for kind, arrow in arrow_types(large=True).items()}
    dtypes["json"] += " (JSON)"
    rows = [(column.name, dtypes[column.kind], column.doc) for column in TABLES[name]]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    rule = " ".join("=" * width for width in widths)
    lines = (" ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join([f"Columns of `{name}`. {_NULL}", "", rule, *lines, rule])


_NULL = "Times are in UTC. Null means that the service sent no value; for a time, also that it has not come."


def _type_and_meaning(hint: Any) -> tuple[Any, str]:
    while get_origin(hint) is not Annotated:
        (hint,) = get_args(hint)[:1]  # Required
    kind, *notes = get_args(hint)
    return kind, next(note for note in notes if isinstance(note, str))


def _words(kind: Any) -> Iterator[str]:
    """Yield the names of a type and its alternatives as numpydoc writes them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        for each in arguments:
            if each is not types.NoneType:
                yield from _words(each)
    elif origin is Annotated:
        yield from _words(arguments[0])
    elif origin is Literal:
        yield f"{{{', '.join(map(repr, arguments))}}}"
    elif origin is Sequence:
        yield f"sequence of {' or '.join(dict.fromkeys(_words(arguments[0])))}"
    elif origin is Mapping or is_typeddict(kind):
        yield "mapping"
    else:
        yield str(getattr(kind, "__name__", kind))
