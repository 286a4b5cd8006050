"""Show the keywords that a method accepts in its signature and docstring. Does not know what they mean."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, TypeVar, get_type_hints

from buildframe.fetching.options import DEFAULTS
from buildframe.spec import TABLES, Endpoint
from buildframe.spec.arrow_types import arrow_types, pandas_types
from buildframe.spec.declare import describe_class
from buildframe.spec.operations import Property, properties_of

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


def accepts(endpoint: Endpoint, keywords: type) -> Callable[[F], F]:
    """Decorate a method whose `**` parameter takes filters and options, or properties, of an endpoint.

    `keywords` is the TypedDict of the parameter. Its keys replace the parameter in the signature, and in the section
    Parameters of the docstring. The section Returns gets the columns of each table that it names.
    """

    def decorate(method: F) -> F:
        method.endpoint = endpoint  # type: ignore[attr-defined]  # guards.arguments checks by it
        entries = properties_of(keywords)
        documented = inspect.cleandoc(method.__doc__ or "")
        described = _CATCH_ALL.sub(lambda _: "".join(map(_entry, entries)), documented, count=1)
        method.__doc__ = _RETURNS.sub(lambda section: section[0] + _columns(section[0]), described, count=1)
        signature = inspect.signature(method)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        added = [_parameter(entry, bool(endpoint.properties)) for entry in entries]
        method.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return method

    return decorate


def _parameter(entry: Property, has_properties: bool) -> inspect.Parameter:
    default = NOT_SENT if has_properties else DEFAULTS.get(entry.name)
    bare = get_type_hints(SimpleNamespace(__annotations__={"type": entry.type}))["type"]  # without nested Annotated
    annotation = bare if entry.required or default is not None else bare | None
    default = inspect.Parameter.empty if entry.required else default
    return inspect.Parameter(entry.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _entry(entry: Property) -> str:
    """Return an entry of the section Parameters."""
    text, default = _DEFAULT.sub("", entry.doc), _DEFAULT.search(entry.doc)
    suffix = "" if entry.required else f", default {default[1]}" if default else ", optional"
    return f"{entry.name} : {describe_class(entry.type)}{suffix}\n    {text[0].upper()}{text[1:]}.\n"


def _columns(section: str) -> str:
    """Return the columns of the tables that a section Returns names."""
    return "".join(f"\n{textwrap.indent(_table(name), '    ')}\n" for name in _TABLE.findall(section))


def _table(name: str) -> str:
    """Return the columns of a table with dtype and meaning, as a simple table of reStructuredText."""
    dtypes = {kind: str(pandas_types().get(arrow, "float64")) for kind, arrow in arrow_types(large=True).items()}
    dtypes["json"] += " (JSON)"
    rows = [(column.name, dtypes[column.kind], column.doc) for column in TABLES[name]]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    rule = " ".join("=" * width for width in widths)
    lines = (" ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join([f"Columns of `{name}`. {_NULL}", "", rule, *lines, rule])


_NULL = "Times are in UTC. Null means that the service sent no value; for a time, also that it has not come."
