"""Canceling many builds from the browser: marked ones and those of a branch, with the outcome of each."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator

import pytest

import buildframe as bf
from buildframe import widgets
from buildframe.sandbox_server import SCOPES, Fault
from buildframe.widgets.build_browser import BuildBrowser
from buildframe.workspace import PipelineWorkspace, Workspace
from tests import worlds
from tests.widgets.widget_helpers import is_safe, is_shown, visible_text, wait_for

HOSTILE = "<img src=x>"


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=50) as workspace:
        for slug, branch in (("web", HOSTILE), ("web", "mine"), ("api", "mine"), ("web", "main")):
            pipeline = workspace.pipeline(slug)
            pipeline.create_build(commit="HEAD", branch=branch, ignore_pipeline_branch_filters=True)
        workspace.sandbox.clock.advance(dt.timedelta(seconds=30))
        yield workspace


@pytest.fixture
def browser(live: Workspace) -> Iterator[BuildBrowser]:
    made = browser_of(live)
    yield made
    made.close()


def browser_of(ws: Workspace | PipelineWorkspace) -> BuildBrowser:
    made = widgets.BuildBrowser(ws, created_from="1h")
    wait_for(made)
    made.bulk_button.click()
    return made


def ask_branch(browser: BuildBrowser, branch: str, slug: str = "") -> str:
    browser.bulk.branch.value, browser.bulk.pipeline.value = branch, slug
    browser.bulk.branch_button.click()
    wait_for(browser.bulk)
    return visible_text(browser.bulk.question)


def confirm(browser: BuildBrowser) -> str:
    browser.bulk.yes.click()
    wait_for(browser)
    return visible_text(browser.bulk.status)


def is_asking(browser: BuildBrowser) -> bool:
    return is_shown(browser.bulk.confirmation)


def canceled(live: Workspace) -> set[tuple[str, str]]:
    builds = live.builds(created_from="1h", progress=False)
    done = builds[builds["state"].isin(["canceled", "canceling"])]
    return set(zip(done["pipeline"], done["branch"], strict=True))


def test_all_builds_of_a_branch_after_one_question(live: Workspace, browser: BuildBrowser, focused: list[str]) -> None:
    question = ask_branch(browser, "mine")
    assert question.startswith("Cancel 2 builds of branch mine: ")
    assert {f"api #{number}" for number in live.pipeline("api").builds(branch="mine")["number"]} <= {
        name.strip() for name in question.split(":")[1].split("?")[0].split(",")
    }
    assert browser.bulk.yes.description == "Yes, cancel 2 builds"
    assert focused[-1] == ".bf-no"
    assert canceled(live) == set()
    assert confirm(browser) == "2 builds: 2 canceled."
    assert canceled(live) == {("web", "mine"), ("api", "mine")}
    assert [row[1] for row in browser.bulk.table.rows] == ["canceled", "canceled"]
    assert {row[1] for row in browser.table.rows if row[3] == "mine"} <= {"canceled", "canceling"}, "loaded again"


def test_one_pipeline(live: Workspace, browser: BuildBrowser) -> None:
    assert ask_branch(browser, "mine", "api").startswith("Cancel 1 build of branch mine of api: api #")
    confirm(browser)
    assert canceled(live) == {("api", "mine")}
    other = browser_of(live.pipeline("web"))
    assert ask_branch(other, "mine").startswith("Cancel 1 build of branch mine: web #")
    other.close()


def test_marked_builds(live: Workspace, browser: BuildBrowser) -> None:
    assert browser.table.has_marks
    assert browser.bulk.marked_button.disabled
    rows = browser.table.rows
    indexes = [place for place, row in enumerate(rows) if row[3] in (HOSTILE, "main") and row[1] == "running"]
    browser.table.marked = indexes
    assert browser.bulk.marked_button.description == f"Cancel {len(indexes)} marked builds…"
    browser.load_button.click()
    wait_for(browser)
    again = [browser.table.rows[place][:3] for place in browser.table.marked]
    assert sorted(again) == sorted(rows[place][:3] for place in indexes), "marks stay with their builds"
    browser.bulk.marked_button.click()
    assert visible_text(browser.bulk.question).startswith(
        f"Cancel {len(indexes)} builds of {len(indexes)} marked builds"
    )
    confirm(browser)
    assert ("web", HOSTILE) in canceled(live)
    assert ("web", "mine") not in canceled(live)
    assert is_safe(browser.bulk.question.value)
    browser.bulk_button.click()
    assert not browser.table.has_marks


def test_nothing_happens_without_a_confirmation(live: Workspace, browser: BuildBrowser) -> None:
    ask_branch(browser, "mine")
    browser.bulk.no.click()
    assert not is_asking(browser)
    browser.bulk.yes.click()  # hidden by now
    wait_for(browser.bulk)
    assert canceled(live) == set()


def test_closing_the_form_withdraws_the_question(browser: BuildBrowser) -> None:
    ask_branch(browser, "mine")
    browser.bulk_button.click()
    browser.bulk_button.click()
    assert not is_asking(browser)


def test_no_builds(browser: BuildBrowser) -> None:
    for branch, message in (
        ("", "Enter the branch whose builds are to be canceled"),
        ("nowhere", "Nothing to cancel of branch nowhere"),
    ):
        ask_branch(browser, branch)
        assert message in visible_text(browser.bulk.status)
        assert not is_asking(browser)
        assert not browser.bulk.branch_button.disabled


def test_failures_are_reported_per_build(live: Workspace, browser: BuildBrowser) -> None:
    ask_branch(browser, "mine")
    live.sandbox.fault(Fault("reset", route="cancel_build", times=1, before=True))
    assert confirm(browser) == "2 builds: 1 unknown, 1 canceled. The table says why. Canceling again is safe."
    assert [row[1] for row in browser.bulk.table.rows] == ["unknown", "canceled"]
    assert browser.bulk.table.rows[0][4]


def test_a_token_without_the_scope(live: Workspace) -> None:
    token = live.sandbox.token([scope for scope in SCOPES if scope != "write_builds"])
    browser = browser_of(bf.connect("acme", base_url=live.sandbox.url, token=token))
    ask_branch(browser, "mine")
    assert "1 failed, 1 not sent" in confirm(browser)
    assert "write_builds" in str(browser.bulk.table.rows[0][4])
    browser.close()


def test_the_start_does_not_replace_the_outcome(browser: BuildBrowser, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_branch(browser, "mine")
    show_action, (tasks,) = browser.bulk.status.show_action, browser.bulk.closables

    def show_late(action: str) -> None:
        if threading.current_thread() is threading.main_thread():
            tasks.join(0.5)
        show_action(action)

    monkeypatch.setattr(browser.bulk.status, "show_action", show_late)
    assert "2 canceled" in confirm(browser)


def test_stop_leaves_the_rest_running(live: Workspace, browser: BuildBrowser, monkeypatch: pytest.MonkeyPatch) -> None:
    cancel = PipelineWorkspace.cancel

    def cancel_and_stop(of: PipelineWorkspace, number: int) -> object:
        browser.bulk.stop.click()
        return cancel(of, number)

    monkeypatch.setattr(PipelineWorkspace, "cancel", cancel_and_stop)
    ask_branch(browser, "mine")
    assert "1 canceled, 1 not sent" in confirm(browser)
    assert len(canceled(live)) == 1
    assert browser.bulk.table.rows[1][4] == "Stopped before."
