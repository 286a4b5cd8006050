"""Small pages for people: plain HTML in which every text is escaped, and that loads and runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, NamedTuple

HTML = "text/html; charset=utf-8"
POLICY = {"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff"}


class Link(NamedTuple):
    """A text that leads to an address."""

    text: str
    address: str


def page(title: str, *parts: str) -> str:
    """A whole page."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    body = f"<h1>{escape(title)}</h1>{''.join(parts)}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def facts(known: Mapping[str, Any]) -> str:
    """Names and values; what is null is left out."""
    told = ((name, value) for name, value in known.items() if value is not None)
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{_cell(value)}</dd>' for name, value in told)}</dl>"


def table(names: Iterable[str], rows: Iterable[tuple[str, Iterable[Any]]]) -> str:
    """A table, each of whose rows has an id that an address can point to."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f'<tr id="{escape(id)}">{"".join(map(_data, cells))}</tr>' for id, cells in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _data(value: Any) -> str:
    return f"<td>{_cell(value)}</td>"


def _cell(value: Any) -> str:
    if isinstance(value, Link):
        return f'<a href="{escape(value.address)}">{escape(value.text)}</a>'
    return "" if value is None else escape(str(value))
