"""Minimal HTML in which all text is escaped; it loads and runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, NamedTuple

HTML = "text/html; charset=utf-8"
POLICY = {"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff"}


class Hyperlink(NamedTuple):
    """A link: its text and its address."""

    text: str
    address: str


def page(title: str, *parts: str) -> str:
    """Return a page."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    body = f"<h1>{escape(title)}</h1>{''.join(parts)}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def definition_list(values: Mapping[str, Any]) -> str:
    """Return a definition list without null values."""
    shown = ((name, value) for name, value in values.items() if value is not None)
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{_cell(value)}</dd>' for name, value in shown)}</dl>"


def table(names: Iterable[str], rows: Iterable[tuple[str, Iterable[Any]]]) -> str:
    """Return a table whose rows have ids for URL fragments."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f'<tr id="{escape(id)}">{"".join(map(_data, cells))}</tr>' for id, cells in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _data(value: Any) -> str:
    return f"<td>{_cell(value)}</td>"


def _cell(value: Any) -> str:
    if isinstance(value, Hyperlink):
        return f'<a href="{escape(value.address)}">{escape(value.text)}</a>'
    return "" if value is None else escape(str(value))
