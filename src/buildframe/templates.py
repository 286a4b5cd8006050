"""Load Jinja templates that escape every value, and check links. Does not know what the templates show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pandas as pd

from buildframe import formatting
from buildframe.errors import MissingExtra

_FUNCTIONS = (
    "format_change", "format_count", "format_duration", "format_name", "format_percent",
    "format_points", "format_timestamp", "format_whole_seconds", "truncate_middle",
)  # fmt: skip


def load_templates(package: str, feature: str, finalize: Callable[[Any], object], *, html: bool = True) -> Any:
    """
    Return a Jinja environment for the templates in the folder of a package, such as `buildframe.report`.

    Without Jinja, raise MissingExtra: `feature` needs the extra that is named like the package. `finalize` returns the
    text that is shown for a value. HTML that a template has already rendered stays as it is.
    """
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        raise MissingExtra(feature, package.rpartition(".")[2]) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, ""),
        autoescape=html,  # noqa: S701 - `finalize` escapes Markdown
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else finalize(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {name: getattr(formatting, name) for name in _FUNCTIONS} | {
        "is_missing": pd.isna,
        "web_link": web_link,
    }
    return environment


def web_link(address: object) -> str | None:
    """Return the URL if it is a web page; None otherwise."""
    if not isinstance(address, str) or not address.isprintable() or " " in address:
        return None
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    return address if parts.scheme in ("http", "https") and parts.hostname else None
