"""Format values as HTML from templates, and as plain text. Knows no widgets."""

from __future__ import annotations

import functools
from typing import Any

import pandas as pd

from buildframe.errors import BuildframeError
from buildframe.formatting import escape_invisible, format_name, truncate_middle
from buildframe.templates import load_templates

_MAX_TEXT = 4000


def plain(value: Any) -> str:
    """Return a value as text: timestamps to the second in UTC, an empty string for a missing value."""
    if pd.isna(value):
        return ""
    if isinstance(value, pd.Timestamp):
        return f"{value.tz_convert('UTC'):%Y-%m-%d %H:%M:%S}"
    return str(value)


def timestamp(value: Any) -> str:
    """Return a timestamp as text in UTC; an empty string for a missing value."""
    return "" if pd.isna(value) else f"{plain(value)} UTC"


def clock_time(as_of: str | None) -> str:
    """Return the time of day of a response, in UTC."""
    return f"{pd.Timestamp(as_of):%H:%M:%S} UTC" if as_of else "an unknown time"


def build_name(slug: object, number: object) -> str:
    """Return pipeline and number of a build, for use in a sentence."""
    return f"{format_name(slug)} #{number}"


def first_line(value: object) -> str:
    """Return the first line of a value as text."""
    return (plain(value).splitlines() or [""])[0]


def cell(value: object) -> str:
    """Return a value as one short line, for a cell of a `DataTable`."""
    return escape_invisible(truncate_middle(plain(value)))


def label(value: object) -> str:
    """
    Return a value as the text of a trait that is not HTML, such as the label of a button.

    Without "<", because "<!--<script" within the saved state would break an exported page.
    """
    return truncate_middle(escape_invisible(plain(value))).replace("<", "‹")


def render(template: str, **values: Any) -> str:
    """Return a template of this package as HTML. Values are shown as text, and missing ones as nothing."""
    page: str = _templates().get_template(f"{template}.html.j2").render(values)
    return page


def component(macro: str, *values: object) -> str:
    """Return a macro of `components.html.j2` as HTML."""
    return str(fragment(macro, *values))


def fragment(macro: str, *values: object) -> str:
    """Return a macro of `components.html.j2` as HTML that templates and other macros insert without escaping it."""
    part: str = getattr(_templates().get_template("components.html.j2").module, macro)(*values)
    return part


@functools.cache
def _templates() -> Any:
    def show(value: object) -> str:
        return escape_invisible(truncate_middle(plain(value), _MAX_TEXT))

    templates = load_templates("buildframe.widgets", "This widget", show)
    templates.globals |= {"plain": plain, "timestamp": timestamp}
    return templates


def hint(content: object) -> str:
    """Return a text in a small font."""
    return component("hint", content)


def link(url: object, content: object) -> str:
    """Return a link that opens in a new tab if the URL is http or https, otherwise only its text."""
    return fragment("link", url, content)


def message(content: str, *, is_error: bool = False, extra: str = "") -> str:
    """Return a message that screen readers announce; `extra` is HTML that follows the text."""
    return component("message", content, is_error, extra)


def error_text(error: BaseException) -> str:
    """Return an error with its notes as text; errors of other packages with their type."""
    summary = str(error) if isinstance(error, BuildframeError) else f"{type(error).__name__}: {error}"
    return "\n".join([summary, *getattr(error, "__notes__", ())])


def wait_text(seconds: float, reason: str) -> str:
    """Return why an action waits; still true when the wait is over."""
    return f"Waiting {seconds:.0f} s: {reason}. Continues automatically."
