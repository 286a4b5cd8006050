"""A click or Enter that the kernel handles before the text that was typed before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from buildframe import widgets
from buildframe.widgets.bulk_cancel import BulkCancel
from buildframe.widgets.create_build_form import CreateBuildForm
from buildframe.workspace import Workspace
from tests import worlds
from tests.widgets.widget_helpers import visible_text


@pytest.fixture(scope="module")
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=200) as workspace:
        yield workspace


def open_browser(live: Workspace) -> tuple[Any, Callable[[], Any], Any]:
    browser = widgets.BuildBrowser(live, created_from="10d")
    return browser, browser.load_button.click, browser.filters.branch


def open_browser_for_enter(live: Workspace) -> tuple[Any, Callable[[], Any], Any]:
    browser = widgets.BuildBrowser(live, created_from="10d")
    branch = browser.filters.branch
    return browser, lambda: branch._handle_custom_msg({"event": "submit"}, []), branch


def open_flaky_board(live: Workspace) -> tuple[Any, Callable[[], Any], Any]:
    board = widgets.FlakyBoard(live, "rspec")
    return board, board.load_button.click, board.branch


def open_cancellation(live: Workspace) -> tuple[Any, Callable[[], Any], Any]:
    bulk = BulkCancel(live, find_marked=lambda: pytest.fail("nothing is marked"), on_done=lambda: None)
    return bulk, bulk.branch_button.click, bulk.branch


def open_form(live: Workspace) -> tuple[Any, Callable[[], Any], Any]:
    form = CreateBuildForm(live.pipeline("web"))
    return form, form.create.click, form.fields["branch"].input


@pytest.mark.parametrize(("open_widget", "outcome"), [
    (open_browser, "No build matches: branch none-such, created from 10d."),
    (open_browser_for_enter, "No build matches: branch none-such, created from 10d."),
    (open_flaky_board, "at least once on branch “none-such”"),
    (open_cancellation, "Nothing to cancel of branch none-such"),
    (open_form, "422"),
])  # fmt: skip
def test_the_text_counts(live: Workspace, open_widget: Callable[..., Any], outcome: str) -> None:
    async def kernel() -> None:
        widget, press, text = open_widget(live)
        while widget._tasks.is_busy:
            await asyncio.sleep(0.01)
        before = widget.status.value
        press()
        text.value = "none-such"
        while widget._tasks.is_busy or widget.status.value == before or "Filters changed" in widget.status.value:
            await asyncio.sleep(0.01)
        assert outcome in visible_text(widget.status)
        widget.close()

    asyncio.run(asyncio.wait_for(kernel(), 30))
