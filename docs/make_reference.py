"""Write the pages of the reference that come from declarations, from the parser and from responses of a sandbox."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator
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


def write() -> None:
    """Write all pages."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
