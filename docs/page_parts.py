"""Parts that several generated pages have: tables, and lists of objects."""

from __future__ import annotations

from collections.abc import Iterable


def links(name: str, introduction: str, members: Iterable[str]) -> list[str]:
    """Return a page that lists objects by full name, with a link to the page that Sphinx makes from each docstring."""
    shown = "\n".join(f"   ~{member}" for member in members)
    listed = f".. autosummary::\n   :toctree: api\n   :nosignatures:\n\n{shown}"
    return [f"# {name.capitalize()}", introduction, f"```{{eval-rst}}\n{listed}\n```"]


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
