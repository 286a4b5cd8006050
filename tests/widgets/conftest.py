"""Fixtures that tests of widgets share."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import ipywidgets
import pytest

from buildframe.widgets import background_tasks
from buildframe.widgets.buttons import Guide


@pytest.fixture
def focused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The selectors that the focus was moved to.

    The method is replaced by its own name: after a rename, a name in a string could replace another method, such as
    `DOMWidget.focus` of ipywidgets, and the list would stay empty.
    """
    selectors: list[str] = []
    method = Guide.lead.__name__
    assert method in vars(Guide)
    monkeypatch.setattr(Guide, method, lambda _, selector: selectors.append(selector))
    return selectors


@pytest.fixture
def each_wait_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of less than a second, so that tests need no longer one."""
    monkeypatch.setattr(background_tasks, "_WORTH_TELLING", 0.0)


@pytest.fixture(autouse=True, scope="module")
def _close_widgets_and_connections() -> Iterator[None]:
    """Close the widgets of a module, which ipywidgets keeps in one registry per process, and their connections."""
    yield
    ipywidgets.Widget.close_all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
