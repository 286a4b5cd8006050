"""Write the pages of the reference that come from declarations, from the parser and from responses of a sandbox."""

from __future__ import annotations

import ast
import importlib
import pydoc
import re
import types
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import make_command_line
import make_operations
from page_parts import links, markdown

import buildframe as bf
from buildframe.spec import TABLES, Column

FOLDER = Path(__file__).with_name("reference")
DTYPES = {
    "text": ("`str`", "–"),
    "integer": ("`Int64`", "whole number"),
    "number": ("`float64`", "number"),
    "flag": ("`boolean`", "true or false"),
    "timestamp": ("`datetime64[us, UTC]`", "timestamp, microseconds"),
    "json": ("`str`", "JSON text"),
}
LISTS = {
    "metrics": "A metric is `frame -> Series`, a summary `frame -> frame`. "
    "[Metrics](../metrics.md) shows which to use.",
    "plots": "A plot is `frame -> Axes`, or an array of Axes with `col` or `row`; `explore` returns a widget. "
    "The [gallery](../gallery/index.md) has an image of each.",
    "report": "Read the content of a report and render it. [Reports](../report.md) has the command.",
    "webhooks": "[Webhooks](../webhooks.md) shows a server that uses these functions.",
    "widgets": "[Widgets](../widgets.md) shows how to use them.",
}
"""What the page of a module begins with; then it lists the names in `__all__`."""

METHODS = types.FunctionType, classmethod, staticmethod
PROPERTIES = property, cached_property
MOST_ON_THE_PAGE = 10
"""Methods and properties that the page of a class contains. If it has more, each has its own page."""


def pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    made = make_operations.pages() | make_command_line.pages() | {"tables.md": tables(), "modules.md": modules()}
    for name, introduction in LISTS.items():
        listed = sorted(importlib.import_module(f"buildframe.{name}").__all__, key=str.lower)
        made[f"{name}.md"] = links(name, introduction, (f"buildframe.{name}.{member}" for member in listed))
    return {name: "\n\n".join(parts) + "\n" for name, parts in made.items()}


def modules() -> list[str]:
    """Return the page of all modules, with the first paragraph of their docstrings."""
    root = Path(bf.__file__).parent
    packages: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(root.rglob("*.py"), key=lambda path: (path.parent, path.name != "__init__.py", path.name)):
        responsibility = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        package = path.parent.relative_to(root.parent).as_posix()
        row = (f"`{path.name}`", " ".join(responsibility.split("\n\n")[0].split()))
        packages.setdefault(package, []).append(row)
    return [
        "# Modules",
        "What each module is responsible for. [Design](../design.md) has the layers.",
        *(part for name, rows in packages.items() for part in (f"## {name}", markdown(("module", "purpose"), rows))),
    ]


def tables() -> list[str]:
    return [
        "# Tables",
        "Each frame has all columns with their dtypes, even if it is empty or the service left a key out. "
        "A nested object gives the columns that its declaration lists. Maps and lists are JSON text. Missing "
        "values are null.",
        *(part for name, columns in TABLES.items() for part in table(name, columns)),
    ]


def table(name: str, columns: Iterable[Column]) -> Iterator[str]:
    yield f"## `{name}`"
    yield markdown(("column", "meaning", "dtype", "unit", "in the response"), map(_row, columns))


def _row(column: Column) -> tuple[str, ...]:
    path = f"`{'.'.join(column.path)}`" if column.path else "–"
    return (f"`{column.name}`", column.doc, *DTYPES[column.kind], path)


def members() -> dict[str, list[tuple[str, str]]]:
    """Return the public methods and properties of each class that a page lists, except of errors, by its full name."""
    found = ((name, pydoc.locate(name)) for name in sorted(listed()))
    kinds = {name: kind for name, kind in found if isinstance(kind, type) and not issubclass(kind, Exception)}
    return {name: sorted(members_of(kind)) for name, kind in kinds.items()}


def listed() -> set[str]:
    """Return the full names of all objects that pages list."""
    return {name for page in FOLDER.glob("*.md") for name in re.findall(r"^   ~(.+)$", page.read_text("utf-8"), re.M)}


def remove_others() -> None:
    """Remove pages of objects that an earlier version listed."""
    for page in (FOLDER / "api").glob("*.rst"):
        if not {page.stem, page.stem.rpartition(".")[0]} & listed():
            page.unlink()


def members_of(kind: type) -> Iterable[tuple[str, str]]:
    """Return name and kind of the public methods and properties that a class does not inherit from elsewhere."""
    own = (base for base in reversed(kind.__mro__) if base.__module__.startswith("buildframe."))
    values = {name: value for base in own for name, value in vars(base).items() if not name.startswith("_")}
    methods = {name: "method" for name, value in values.items() if isinstance(value, METHODS)}
    return (methods | {name: "property" for name, value in values.items() if isinstance(value, PROPERTIES)}).items()


def write() -> None:
    """Write all pages."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    remove_others()


if __name__ == "__main__":
    write()
