"""Widgets for notebooks: skins over the methods that a user would type.

`BuildBrowser(ws)` lists builds, shows one with its jobs and logs, and acts on it; `BuildMonitor(ws)` follows those that
wait and run; `FlakyBoard(ws, suite)` ranks the flaky tests of a suite; `actions(build)` are just the buttons of a
build. Requests run off the kernel's thread; what goes wrong is told on the widget's own face. Needs the extra
`widgets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from buildframe.errors import MissingExtra

if TYPE_CHECKING:
    from buildframe.widgets.browser import BuildBrowser
    from buildframe.widgets.buttons import actions
    from buildframe.widgets.flaky_board import FlakyBoard
    from buildframe.widgets.monitor import BuildMonitor

__all__ = ["BuildBrowser", "BuildMonitor", "FlakyBoard", "actions"]

_PLACES = {"BuildBrowser": "browser", "BuildMonitor": "monitor", "FlakyBoard": "flaky_board", "actions": "buttons"}


def __getattr__(name: str) -> Any:
    """Each loads at first use, as it brings packages of its own."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name == "anywidget":
            raise MissingExtra("This widget", "widgets") from None
        raise


def __dir__() -> list[str]:
    return __all__
