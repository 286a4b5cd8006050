"""What tests of widgets share."""

from __future__ import annotations

import pytest

from buildframe.widgets.buttons import Guide


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where the focus was led."""
    found: list[str] = []
    monkeypatch.setattr(Guide, "lead", lambda guide, selector: found.append(selector))
    return found
