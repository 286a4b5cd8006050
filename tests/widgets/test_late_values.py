"""Clicks that the kernel handles before the values that were entered before them."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pandas as pd
import pytest

from buildframe.sandbox_server import Fault
from buildframe.widgets.build_browser import BuildBrowser
from buildframe.widgets.build_details import BuildDetails
from buildframe.widgets.bulk_cancel import BulkCancel
from buildframe.widgets.create_build_form import CreateBuildForm
from buildframe.widgets.data_table import to_rows
from buildframe.widgets.flaky_board import FlakyBoard
from buildframe.widgets.unblock_form import UnblockForm
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.widgets.widget_helpers import is_busy, is_shown, press_enter, visible_text, wait_for, workspace_of

pytestmark = pytest.mark.usefixtures("without_timeline")

STEPS = """
steps:
  - block: One
    fields: [{text: Reason, key: reason}]
  - block: Two
"""


@pytest.fixture(scope="module")
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=200) as workspace:
        workspace.create_pipeline(
            name="Gate", cluster_id=None, repository="git@git.example.com:acme/x.git", configuration=STEPS
        )
        yield workspace


def in_kernel(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(steps(), 30))


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def idle(widget: Any) -> str:
    await until(lambda: not is_busy(widget))
    return visible_text(widget.status)


def test_a_search(live: Workspace) -> None:
    async def steps() -> None:
        board = FlakyBoard(live, "rspec")
        await idle(board)
        press_enter(board.branch)
        board.branch.value = "none-such"
        await until(lambda: "none-such" in visible_text(board.status))
        await idle(board)
        board.load_button.click()
        board.branch.value = "no-other"
        await until(lambda: "no-other" in visible_text(board.status))

    in_kernel(steps)


def test_a_new_build(live: Workspace) -> None:
    async def steps() -> None:
        form = CreateBuildForm(live.pipeline("web"))
        before = count(live)
        for _ in range(3):
            form.create.click()
        form.fields["branch"].input.value = "main"
        assert visible_text(form.status) == "Creating the build …"
        assert form.create.disabled, "although a field was edited"
        assert "was created" in await idle(form)
        form.create.click()
        assert "was created" in await idle(form)
        assert count(live) == before + 1

    in_kernel(steps)


def count(live: Workspace) -> int:
    return len(live.pipeline("web").builds(created_from="1h", progress=False))


def test_a_branch_to_cancel(live: Workspace) -> None:
    async def steps() -> None:
        bulk = BulkCancel(live, find_marked=marked, on_done=lambda: None)
        bulk.branch_button.click()
        bulk.branch.value = "none-such"
        assert bulk.branch_button.disabled
        assert "Nothing to cancel of branch none-such" in await idle(bulk)
        assert not bulk.branch_button.disabled

    in_kernel(steps)


def marked() -> pd.DataFrame:
    row = {"pipeline": "web", "number": 1, "branch": "main", "state": "running", "web_url": "https://ci.example.com"}
    return pd.DataFrame([row])


@pytest.mark.parametrize("button", ["marked_button", "no"])
def test_another_press_withdraws_the_search_of_a_branch(live: Workspace, button: str) -> None:
    async def steps() -> None:
        bulk = BulkCancel(live, find_marked=marked, on_done=lambda: None)
        bulk.branch.value = "none-such"
        bulk.branch_button.click()
        getattr(bulk, button).click()
        assert not bulk.branch_button.disabled
        await asyncio.sleep(0.6)
        assert await idle(bulk) == ""
        assert ("web #1" in visible_text(bulk.question)) == (button == "marked_button")

    in_kernel(steps)


def test_marked_builds_are_canceled_while_a_withdrawn_search_has_yet_to_end(scripted: Callable[..., Scripted]) -> None:
    over = threading.Event()
    canceled = says(b'{"id": "b", "number": 1, "state": "canceling"}')
    server = scripted(lambda handler: over.wait(20), canceled)
    ws = workspace_of(server)

    async def steps() -> None:
        done: list[bool] = []
        bulk = BulkCancel(ws, find_marked=marked, on_done=lambda: done.append(True))
        bulk.branch.value = "main"
        bulk.branch_button.click()
        await until(lambda: server.requests)
        bulk.show_marked(1)
        bulk.marked_button.click()
        bulk.yes.click()
        await until(lambda: done)
        assert visible_text(bulk.status) == "1 build: 1 canceled."

    try:
        in_kernel(steps)
    finally:
        over.set()


def show_new_build(live: Workspace, form: UnblockForm) -> int:
    """Let the form offer the first step of a new build, and return the build's number."""
    pipeline = live.pipeline("gate")
    number = pipeline.create_build(commit="HEAD", branch="main").number
    live.sandbox.clock.advance(dt.timedelta(minutes=1))
    _builds, jobs = pipeline.history_of(number)
    form.show("gate", to_rows(jobs))
    return number


async def open_step(live: Workspace, form: UnblockForm) -> int:
    number = show_new_build(live, form)
    form.start.click()
    await idle(form)
    return number


def first_state(live: Workspace, number: int) -> str:
    return live.pipeline("gate").build(number).jobs[0].state


def test_fields_of_a_block_step_also_if_another_build_is_selected_meanwhile(live: Workspace) -> None:
    async def steps() -> None:
        form = UnblockForm(live)
        number = await open_step(live, form)
        form.submit.click()
        form.inputs["reason"].value = "It is Friday"
        other = show_new_build(live, form)
        assert f"Unblocking One of build gate #{number} …" == visible_text(form.status)
        assert await idle(form) == f"One of build gate #{number} was unblocked with 1 value."
        assert (first_state(live, number), first_state(live, other)) == ("unblocked", "blocked")
        assert is_shown(form.choice), "the other build can be unblocked"
        assert live.pipeline("gate").build(number).meta_data == {"reason": "It is Friday"}

    in_kernel(steps)


def test_fields_that_arrive_after_another_build_was_selected_are_not_shown(live: Workspace) -> None:
    async def steps() -> None:
        form = UnblockForm(live)
        number = show_new_build(live, form)
        form.start.click()
        other = show_new_build(live, form)
        await idle(form)
        assert not is_shown(form.form)
        form.submit.click()
        await idle(form)
        assert (first_state(live, number), first_state(live, other)) == ("blocked", "blocked")

    in_kernel(steps)


def test_the_form_works_if_the_build_is_loaded_again_while_the_fields_are_read(live: Workspace) -> None:
    async def steps() -> None:
        form = UnblockForm(live)
        number = show_new_build(live, form)
        form.start.click()
        form.show("gate", to_rows(live.pipeline("gate").history_of(number).jobs))
        await idle(form)
        assert (is_shown(form.form), form.submit.disabled) == (True, False)

    in_kernel(steps)


def test_fields_of_a_step_that_is_no_longer_selected_are_not_shown(live: Workspace) -> None:
    async def steps() -> None:
        form = UnblockForm(live)
        number = live.pipeline("gate").create_build(commit="HEAD", branch="main").number
        live.sandbox.clock.advance(dt.timedelta(minutes=1))
        (one, _two) = to_rows(live.pipeline("gate").history_of(number).jobs)
        form.show("gate", [one, {**one, "id": "another"}])
        form.start.click()
        form.step.value = "another"
        await idle(form)
        assert (is_shown(form.form), form.start.disabled) == (False, False)

    in_kernel(steps)


async def unblock_shown_build(live: Workspace, details: BuildDetails) -> int:
    """Press "Unblock" for a new build in the details, and return the build's number."""
    number = show_new_build(live, details.unblock)
    details.load("gate", number)
    await idle(details)
    details.unblock.start.click()
    await idle(details.unblock)
    details.unblock.inputs["reason"].value = "It is Friday"
    details.unblock.submit.click()
    return number


def test_the_outcome_stays_until_another_build_is_shown(live: Workspace) -> None:
    async def steps() -> None:
        details = BuildDetails(live)
        number = await unblock_shown_build(live, details)
        await idle(details.unblock)
        await idle(details)
        assert "blocked" in [row[0] for row in details.jobs.rows], "the second step"
        assert visible_text(details.unblock.status) == f"One of build gate #{number} was unblocked with 1 value."
        details.load("web", 1)
        await idle(details)
        assert visible_text(details.unblock.status) == ""

    in_kernel(steps)


@pytest.mark.long
def test_the_outcome_stays_while_another_build_is_loaded(live: Workspace) -> None:
    async def steps() -> None:
        details = BuildDetails(live)
        number = await unblock_shown_build(live, details)
        live.sandbox.fault(Fault("latency", route="get_build", times=1, seconds=1))
        details.load("web", 1)
        await idle(details.unblock)
        await idle(details)
        assert visible_text(details.unblock.status) == f"One of build gate #{number} was unblocked with 1 value."

    in_kernel(steps)


def test_an_error_names_the_build_if_another_one_is_shown(live: Workspace) -> None:
    async def steps() -> None:
        details = BuildDetails(live)
        number = await unblock_shown_build(live, details)
        live.sandbox.fault(Fault("reset", route="unblock_job", times=1))
        details.load("gate", show_new_build(live, UnblockForm(live)))
        await idle(details)
        assert (await idle(details.unblock)).startswith(f"One of build gate #{number}: The request was sent")

    in_kernel(steps)


def test_the_pipeline_stays_while_a_build_is_about_to_be_created(live: Workspace) -> None:
    async def steps() -> None:
        form = CreateBuildForm(live)
        form.prepare(["web", "api"], "web")
        form.fields["branch"].input.value = "main"
        before = count(live)
        form.create.click()
        form.prepare(["web", "api"], "api")
        await idle(form)
        assert count(live) == before + 1

    in_kernel(steps)


@pytest.fixture(scope="module")
def trunk(live: Workspace) -> str:
    """Return the slug of a pipeline whose default branch is "trunk"."""
    repository = "git@git.example.com:acme/x.git"
    live.create_pipeline(
        name="Trunk", cluster_id=None, repository=repository, configuration=STEPS, default_branch="trunk"
    )
    return "trunk"


async def form_of_web(live: Workspace, trunk: str) -> CreateBuildForm:
    form = CreateBuildForm(live)
    form.prepare(["web", trunk], "web")
    await until(lambda: form.fields["branch"].input.value == "main")
    return form


def test_a_default_branch_that_arrives_after_the_click_is_not_used(live: Workspace, trunk: str) -> None:
    async def steps() -> None:
        form = await form_of_web(live, trunk)
        branch = form.fields["branch"].input
        form.pipeline.value = trunk
        form.create.click()
        assert "was created" in await idle(form)
        assert live.pipeline(trunk).builds(progress=False)["branch"].tolist() == ["main"]
        assert branch.value == "trunk", "for the next build"

    in_kernel(steps)


def test_a_default_branch_that_arrives_after_the_pipeline_changed_is_not_shown(live: Workspace, trunk: str) -> None:
    async def steps() -> None:
        form = await form_of_web(live, trunk)
        branch = form.fields["branch"].input
        form.pipeline.value = trunk
        form.pipeline.value = "web"
        await asyncio.to_thread(wait_for, form)
        await asyncio.sleep(0)
        assert branch.value == "main"

    in_kernel(steps)


def test_filters_that_are_copied_into_a_form(live: Workspace) -> None:
    async def steps() -> None:
        browser = BuildBrowser(live)
        browser.create_button.click()
        browser.filters.pipeline.value = "api"
        await until(lambda: browser.form.pipeline.value == "api")
        browser.bulk_button.click()
        browser.filters.branch.value = "feature/*"
        await until(lambda: browser.bulk.branch.value == "feature/*")
        assert browser.bulk.pipeline.value == "api"
        assert "Filters changed. Press Load" in await idle(browser)

    in_kernel(steps)


def record_loads(browser: BuildBrowser) -> list[str]:
    """Return the list of the filters of each request to come, which are read once for each."""
    queries: list[str] = []
    read = browser.filters.read
    browser.filters.read = lambda: (queries.append(browser.filters.description_text), read())[1]
    return queries


def test_characters_that_arrive_after_load_are_one_filter(live: Workspace) -> None:
    async def steps() -> None:
        browser = BuildBrowser(live)
        await idle(browser)
        queries = record_loads(browser)
        browser.load_button.click()
        for text in ("a", "ap", "api"):
            browser.filters.pipeline.value = text
            await asyncio.sleep(0.05)
        assert queries == ["created from 7d"], "it waits for the last character"
        await until(lambda: len(queries) > 1)
        await idle(browser)
        assert queries == ["created from 7d", "pipeline api, created from 7d"]
        assert set(browser.builds["pipeline"]) == {"api"}

    in_kernel(steps)


def test_a_filter_that_changes_near_stop_loads_nothing(live: Workspace) -> None:
    async def steps() -> None:
        browser = BuildBrowser(live)
        for stops in (("before", "after"), ("after",)):
            browser.filters.state.value = ""
            browser.load_button.click()
            await idle(browser)
            queries = record_loads(browser)
            if "before" in stops:
                browser.stop()
            browser.filters.state.value = "failed"
            browser.stop()
            await asyncio.sleep(0.4)
            assert queries == []

    in_kernel(steps)


def test_not_yet_withdraws_an_unblocking(live: Workspace) -> None:
    async def steps() -> None:
        form = UnblockForm(live)
        number = await open_step(live, form)
        form.inputs["reason"].value = "It is Friday"
        form.submit.click()
        form.decline.click()
        await asyncio.sleep(0.6)
        assert await idle(form) == ""
        assert (first_state(live, number), form.submit.disabled) == ("blocked", False)

    in_kernel(steps)
