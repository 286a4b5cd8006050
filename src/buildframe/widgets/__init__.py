"""Notebook widgets that list builds, follow running builds, rank flaky tests, cancel, rebuild or create builds, and
predict what other agents or faster steps would change.

Requests and computations run in background threads, and errors appear in the widget. Needs the extra `widgets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from buildframe.guards.extras import needs_extra

if TYPE_CHECKING:
    from buildframe.widgets.build_actions import actions
    from buildframe.widgets.build_browser import BuildBrowser
    from buildframe.widgets.build_monitor import BuildMonitor
    from buildframe.widgets.flaky_board import FlakyBoard
    from buildframe.widgets.what_if import WhatIf

__all__ = ["BuildBrowser", "BuildMonitor", "FlakyBoard", "WhatIf", "actions"]

_MODULES = {
    "BuildBrowser": "build_browser",
    "BuildMonitor": "build_monitor",
    "FlakyBoard": "flaky_board",
    "WhatIf": "what_if",
    "actions": "build_actions",
}


def __getattr__(name: str) -> Any:
    """Load a widget at first use, because it imports optional packages."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    with needs_extra("This widget", "widgets", "anywidget"):
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
