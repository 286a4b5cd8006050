"""Fixtures for tests of widgets."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Iterator

import ipywidgets
import pytest

from buildframe.widgets import background_tasks, build_details
from buildframe.widgets.components import AccessibilityHelper


@pytest.fixture
def focused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the selectors to which the focus was moved.

    The method is replaced by its own name: after a rename, a name in a string could replace another method, such as
    `DOMWidget.focus` of ipywidgets, and the list would stay empty.
    """
    selectors: list[str] = []
    method = AccessibilityHelper.move_focus.__name__
    assert method in vars(AccessibilityHelper)
    monkeypatch.setattr(AccessibilityHelper, method, lambda _, selector: selectors.append(selector))
    return selectors


@pytest.fixture
def report_all_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report waits of less than a second too, so that tests are fast."""
    monkeypatch.setattr(background_tasks, "_SHORTEST_REPORTED_WAIT", 0.0)


@pytest.fixture
def without_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load builds without their timeline, which takes three quarters of the time."""
    monkeypatch.setattr(build_details, "compute_ledger", lambda *_: None)
    monkeypatch.setattr(build_details, "render_timeline", lambda *_, **__: "")


@pytest.fixture(autouse=True, scope="module")
def _close_widgets_and_connections() -> Iterator[None]:
    """Close the widgets of a module, which ipywidgets keeps in one registry per process, and their connections."""
    yield
    ipywidgets.Widget.close_all()
    for thread in threading.enumerate():
        if thread.name == "buildframe-widget":
            thread.join(30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.freeze()  # the next collection would visit what is left, and take half a second
