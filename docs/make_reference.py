"""Write docs/reference.md from the declarations: `python docs/make_reference.py`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path

from buildframe import errors
from buildframe.spec import ENDPOINTS, TABLES, Column, Endpoint, Filter

PAGE = Path(__file__).with_name("reference.md")
DTYPES = {
    "text": "`str`",
    "integer": "`Int64`",
    "flag": "`boolean`",
    "moment": "`datetime64[us, UTC]`",
    "json": "`str` (JSON)",
}


def page() -> str:
    """The whole page as Markdown."""
    parts = [
        "# Reference",
        "Generated from the declarations in `src/buildframe/spec/` by `docs/make_reference.py`; a test compares them.",
        "## Tables",
        "Every column is there with its dtype, also in an empty frame and where the service left a key out. "
        "A nested object gives the columns that its declaration lists. Maps and lists are JSON text.",
        *(part for name, columns in TABLES.items() for part in table(name, columns)),
        "## Operations",
        *(part for endpoint in ENDPOINTS for part in operation(endpoint)),
        "## Errors",
        f"```text\n{inspect.getdoc(errors)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def table(name: str, columns: Iterable[Column]) -> Iterator[str]:
    yield f"### `{name}`"
    yield markdown(("column", "dtype", "in the answer", "meaning"), map(_row, columns))


def _row(column: Column) -> tuple[str, ...]:
    path = f"`{'.'.join(column.path)}`" if column.path else "–"
    return (f"`{column.name}`", DTYPES[column.kind], path, column.doc)


def operation(endpoint: Endpoint) -> Iterator[str]:
    yield f"### `{endpoint.method} {endpoint.path}`"
    scope = f"`{endpoint.scope}`" if endpoint.scope else "none"
    pages = ", in pages" if endpoint.paginated else ""
    yield f"{endpoint.doc} Answers {endpoint.success} with `{endpoint.returns.__name__}`{pages}. Scope: {scope}."
    if endpoint.filters:
        yield markdown(("filter", "takes", "meaning"), ((f"`{f.name}`", _takes(f), f.doc) for f in endpoint.filters))


def _takes(entry: Filter) -> str:
    kinds = {"text": "text", "flag": "True or False", "moment": "time", "map": "mapping of texts"}
    one = kinds[entry.kind]
    many = f"{one}, or a list" if entry.many else one
    return f"{many}: {', '.join(f'`{choice}`' for choice in entry.choices)}" if entry.choices else many


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
