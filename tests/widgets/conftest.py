"""What tests of widgets share."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from buildframe.widgets import tasks
from buildframe.widgets.buttons import Guide


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where the focus was led."""
    found: list[str] = []
    monkeypatch.setattr(Guide, "lead", lambda guide, selector: found.append(selector))
    return found


@pytest.fixture
def each_wait_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of less than a second, so that tests need no longer one."""
    monkeypatch.setattr(tasks, "_WORTH_TELLING", 0.0)


@pytest.fixture(autouse=True, scope="module")
def _no_connections_are_left() -> Iterator[None]:
    """What these tests connected ends with them, not amid a test that takes warnings for errors."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
