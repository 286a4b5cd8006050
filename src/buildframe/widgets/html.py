"""Format values as HTML: text is escaped, and links lead to http and https only. Knows no widgets."""

from __future__ import annotations

import html
from collections.abc import Iterable
from urllib.parse import urlsplit

import pandas as pd

from buildframe.errors import BuildframeError
from buildframe.formatting import escape_invisible, truncate_middle

_MAX_TEXT = 4000


def is_missing(value: object) -> bool:
    """Return whether a value is None, NA, NaT or NaN."""
    return value is None or value is pd.NA or value != value


def plain(value: object) -> str:
    """Return a value as text: timestamps to the second in UTC, an empty string for a missing value."""
    if is_missing(value):
        return ""
    if isinstance(value, pd.Timestamp):
        return f"{value.tz_convert('UTC'):%Y-%m-%d %H:%M:%S}"
    return str(value)


def text(value: object, max_length: int = _MAX_TEXT) -> str:
    """Return a value as HTML that contains only text."""
    return html.escape(truncate_middle(escape_invisible(plain(value)), max_length))


def lines(value: object) -> str:
    """Return a value of several lines as HTML that contains only text and line breaks."""
    return "<br>".join(map(text, plain(value).splitlines()))


def timestamp(value: object) -> str:
    """Return a timestamp in UTC as HTML; an empty string for a missing value."""
    return "" if is_missing(value) else f"{text(value)} UTC"


def cell(value: object) -> str:
    """Return a value as one short line, for a cell of a `DataTable`."""
    return escape_invisible(truncate_middle(plain(value)))


def label(value: object) -> str:
    """
    Return a value as the text of a trait that is not HTML, such as the label of a button.

    Without "<", because "<!--<script" within the saved state would break an exported page.
    """
    return truncate_middle(escape_invisible(plain(value))).replace("<", "‹")


def link(url: object, content: object) -> str:
    """Return a link that opens in a new tab if the URL is http or https, otherwise only its text."""
    if not isinstance(url, str) or not _is_web(url):
        return text(content)
    return f'<a href="{html.escape(url)}" target="_blank" rel="noopener noreferrer">{text(content)}</a>'


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()


def hint(content: str) -> str:
    """Return HTML as explanatory text in a small font."""
    return f'<div class="bf-hint">{content}</div>'


def message(content: str, *, is_error: bool = False, extra: str = "") -> str:
    """Return a message that screen readers announce; `extra` is HTML that follows the text."""
    role, css_class = ("alert", "bf-error") if is_error else ("status", "bf-status")
    return f'<div role="{role}" class="{css_class}">{lines(content)} {extra}</div>'


def property_table(rows: Iterable[tuple[str, str]], caption: str) -> str:
    """Return a table of names and HTML values; rows without a value are left out."""
    shown = "".join(f'<tr><th scope="row">{text(name)}</th><td>{value}</td></tr>' for name, value in rows if value)
    return f'<table class="bf-properties"><caption>{text(caption)}</caption>{shown}</table>'


def error_text(error: BaseException) -> str:
    """Return an error with its notes as text; errors of other packages with their type."""
    summary = str(error) if isinstance(error, BuildframeError) else f"{type(error).__name__}: {error}"
    return "\n".join([summary, *getattr(error, "__notes__", ())])


def wait_text(seconds: float, reason: str) -> str:
    """Return why an action waits; still true when the wait is over."""
    return f"Waiting {seconds:.0f} s: {reason}. Continues automatically."
