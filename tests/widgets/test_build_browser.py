"""The faces of the build browser, its buttons and its form, without a browser, against a live sandbox."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import ipywidgets
import pandas as pd
import pytest

import buildframe as bf
from buildframe import widgets
from buildframe.sandbox_server import SCOPES
from buildframe.widgets.browser import BuildBrowser
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.widgets.faces_read import settled, until, words

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        yield workspace


@pytest.fixture
def browser(live: Workspace) -> Iterator[BuildBrowser]:
    made = widgets.BuildBrowser(live, created_from="10d")
    settled(made._lane, made.filters._lane)
    yield made
    made.close()


def choose(browser: BuildBrowser, place: int) -> None:
    browser.table.chosen = place
    settled(browser.detail._lane)


def numbers(browser: BuildBrowser) -> list[int]:
    """As the page sorts them."""
    return [row[0] for row in sorted(browser.table.visible_rows(), key=lambda row: row[6], reverse=True)]


def test_all_builds_are_there(live: Workspace, browser: BuildBrowser) -> None:
    expected = live.builds(created_from="10d", progress=False)
    assert numbers(browser) == expected["number"].tolist()
    assert (browser.table.columns[6]["title"], browser.table.order) == ("Created (UTC)", [6, True])
    as_of = f"{pd.Timestamp(expected.attrs['as_of']):%H:%M:%S} UTC"
    assert words(browser.said) == f"{len(expected)} builds, complete, as of {as_of}."
    assert browser.stop_button.disabled
    assert set(browser.filters.pipeline.options) == set(live.pipelines()["slug"])


def test_filters_of_the_service(live: Workspace, browser: BuildBrowser) -> None:
    name, id = next(iter(browser.filters._creators.items()))
    browser.filters.pipeline.value, browser.filters.branch.value, browser.filters.creator.value = "web", "main", name
    browser.load_button.click()
    settled(browser._lane)
    expected = live.pipeline("web").builds(created_from="10d", branch="main", creator=id, progress=False)
    assert numbers(browser) == expected["number"].tolist()
    browser.filters.state.value = "passed"
    browser.load_button.click()
    settled(browser._lane)
    assert {row[1] for row in browser.table.rows} <= {"passed"}
    assert "filtered by state, which changes" in words(browser.said)


def test_message_and_commit_are_looked_for_among_the_loaded(browser: BuildBrowser) -> None:
    build = browser.builds.iloc[5]
    browser.message.value = build["message"].upper()
    assert {row[4] for row in browser.table.visible_rows()} == {build["message"].splitlines()[0]}
    browser.commit.value = build["commit"][:12]
    assert build["number"] in [row[0] for row in browser.table.visible_rows()]
    browser.commit.value = "no such"
    assert browser.table.visible_rows() == []


@pytest.mark.parametrize(("field", "value", "told"), [
    ("created_from", "yesterdayish", "created_from='yesterdayish' is not a valid time. Use '2026-10-01'"),
    ("created_to", "2020-01-01", "No time lies between"),
    ("creator", "somebody", "No creator somebody is known: choose a name of the list, or give a user's UUID."),
    ("pipeline", "no/slug", "pipeline='no/slug' is not a slug"),
    ("pipeline", "nowhere", "404: No pipeline found"),
])  # fmt: skip
def test_what_cannot_be_asked_is_told(browser: BuildBrowser, field: str, value: str, told: str) -> None:
    rows = browser.table.rows
    getattr(browser.filters, field).value = value
    browser.load_button.click()
    settled(browser._lane)
    assert 'role="alert"' in browser.said.value
    assert told in words(browser.said)
    assert "Showing previous results (created from 10d), as of " in words(browser.said)
    assert browser.stop_button.disabled
    assert (browser.table.rows, browser.table.former) == (rows, True)
    browser._pressed_at = 0.0
    browser.filters.state.value = "failed"
    assert told in words(browser.said)
    assert "The filters were changed since; Load asks with them." in words(browser.said)


def test_nothing_that_matches_is_told_with_what_was_asked_for(browser: BuildBrowser) -> None:
    browser.filters.branch.value = HOSTILE
    assert "The filters were changed since; Load asks with them." in words(browser.said)
    browser.load_button.click()
    settled(browser._lane)
    assert words(browser.said).startswith("0 builds, complete, as of ")
    assert f"Nothing matches: branch {HOSTILE}, created from 10d." in words(browser.said)
    assert "<img" not in browser.said.value
    assert (browser.table.rows, browser.table.former) == ([], False)


def test_enter_in_a_filter_loads(live: Workspace, browser: BuildBrowser) -> None:
    browser.filters.branch.value = "main"
    browser.filters.branch._handle_custom_msg({"event": "submit"}, [])
    settled(browser._lane)
    assert len(browser.builds) == len(live.builds(created_from="10d", branch="main", progress=False))


def test_a_value_that_comes_after_the_click_that_followed_it_counts(browser: BuildBrowser) -> None:
    browser.load_button.click()
    browser.filters.branch.value = "main"
    settled(browser._lane)
    assert set(browser.builds["branch"]) == {"main"}


def test_a_build_stays_chosen_where_others_come_before_it(live: Workspace, browser: BuildBrowser) -> None:
    choose(browser, 3)
    chosen, found = browser.table.rows[3], browser.detail.found
    live.sandbox.push("api")
    browser.load_button.click()
    settled(browser._lane, browser.detail._lane)
    assert browser.table.rows[browser.table.chosen] == chosen
    assert browser.table.chosen > 3
    assert browser.detail.found is found


@pytest.mark.parametrize(("scopes", "told", "hint"), [
    (["read_builds"], "builds, complete", ""),
    (["read_pipelines"], "Use a token that has the scope read_builds.", ""),
    (None, "401: Authentication required", "Names cannot be offered, only typed: 401: Authentication required"),
])  # fmt: skip
def test_tokens_that_may_do_less(live: Workspace, scopes: list[str] | None, told: str, hint: str) -> None:
    token = live.sandbox.token(scopes) if scopes else "nobody knows this one".replace(" ", "")
    made = widgets.BuildBrowser(bf.connect("acme", base_url=live.sandbox.url, token=token))
    settled(made._lane, made.filters._lane)
    assert told in words(made.said)
    assert words(made.filters.said).startswith(hint)
    assert bool(words(made.filters.said)) == bool(hint)
    made.close()


def test_one_pipeline(live: Workspace) -> None:
    made = widgets.BuildBrowser(live.pipeline("web"), created_from="30d")
    settled(made._lane, made.filters._lane)
    expected = live.pipeline("web").builds(created_from="30d", progress=False)
    assert made.builds["number"].tolist() == expected["number"].tolist()
    assert made.filters.creator.options
    choose(made, 0)
    assert made.detail.found is not None
    made.close()


def test_a_chosen_build_with_its_jobs_and_log(live: Workspace, browser: BuildBrowser) -> None:
    place = next(place for place, row in enumerate(browser.table.rows) if row[1] == "failed")
    choose(browser, place)
    number, slug = browser.table.rows[place][0], browser.table.rows[place][2]
    assert f"{slug} #{number}" in words(browser.detail.facts)
    assert browser.detail.jobs.visible_rows()[browser.detail.jobs.chosen][0] in {"failed", "timed_out"}
    assert browser.detail.actions.cancel.disabled
    browser.detail.log_button.click()
    settled(browser.detail._logs)
    assert "<pre" in browser.detail.log_text.value
    assert "\x1b" not in browser.detail.log_text.value


def test_a_new_build_shows_in_the_table_whatever_the_filters(live: Workspace, browser: BuildBrowser) -> None:
    values = {"commit": "HEAD", "branch": HOSTILE, "message": HOSTILE}
    for name, value in values.items():
        browser.form.fields[name].input.value = value
    browser.form.fields["ignore_pipeline_branch_filters"].input.value = True
    browser.form.pipeline.value = "web"
    browser.form.create.click()
    settled(browser.form._lane, browser._again)
    number = int(live.pipeline("web").builds(created_from="1h", branch=HOSTILE, progress=False)["number"].iloc[0])
    assert numbers(browser)[0] == number
    assert browser.table.rows[-1][2:5] == ["web", HOSTILE, HOSTILE]
    assert f"web #{number} updated; it may not match the filters." in words(browser.said)
    choose(browser, len(browser.builds) - 1)
    assert HOSTILE not in browser.detail.facts.value
    assert HOSTILE in words(browser.detail.facts)


def test_a_canceled_build_shows_so_in_its_row(live: Workspace) -> None:
    live.sandbox.push("web")
    live.sandbox.clock.advance(dt.timedelta(minutes=1))
    browser = widgets.BuildBrowser(live.pipeline("web"), created_from="1h")
    settled(browser._lane)
    choose(browser, 0)
    browser.detail.actions.cancel.click()
    browser.detail.actions.yes.click()
    settled(browser.detail.actions._lane, browser._again, browser.detail._lane)
    assert browser.table.rows[0][1] == "canceled"
    assert browser.table.chosen == 0
    browser.close()


def test_a_build_that_was_deleted_after_it_was_made_holds_no_other_row_up(live: Workspace) -> None:
    live.sandbox.push("web")
    live.sandbox.clock.advance(dt.timedelta(minutes=1))
    browser = widgets.BuildBrowser(live.pipeline("web"), created_from="1h")
    settled(browser._lane)
    gone = live.pipeline("web").create_build(commit="HEAD", branch="main")
    live.pipeline("web").cancel(gone.number)
    live.sandbox.forget("web", [gone.number])
    browser._acted(gone)
    settled(browser._again)
    told = words(browser.said)
    assert told.startswith(f"{len(browser.builds)} builds, complete")
    assert f"The row of web #{gone.number} could not be brought up to date. 404" in told
    choose(browser, 0)
    browser.detail.actions.cancel.click()
    browser.detail.actions.yes.click()
    settled(browser.detail.actions._lane, browser._again, browser.detail._lane)
    assert browser.table.rows[0][1] == "canceled"
    assert "404" not in words(browser.said)
    browser.close()


def test_a_server_that_is_gone_is_told(live: Workspace, browser: BuildBrowser) -> None:
    live.sandbox.stop()
    browser.load_button.click()
    settled(browser._lane)
    assert words(browser.said).startswith(f"No response from {live.sandbox.url}")
    assert browser.stop_button.disabled


@pytest.fixture
def hanging(scripted: Callable[..., Scripted]) -> Iterator[Scripted]:
    """Whoever asks for the branch `slow` waits; others get an empty list."""
    gate, hung = threading.Event(), list[str]()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "slow" in handler.path:
            hung.append(handler.path)
            gate.wait(60)
        says(b"[]")(handler)

    yield scripted(answer)
    gate.set()
    assert hung


def test_a_request_that_hangs_holds_nothing_up(hanging: Scripted) -> None:
    ws = bf.connect("acme", base_url=hanging.url, token="t" * 20)
    made = widgets.BuildBrowser(ws, created_from="2026-10-01")
    settled(made._lane)
    made.filters.branch.value = "slow"
    made.load_button.click()
    assert words(made.said).startswith("Loading …")
    assert not made.stop_button.disabled
    until(lambda: any("slow" in path for path in hanging.asked))
    made.stop_button.click()
    assert words(made.said).startswith("Stopped: 0 builds, others are missing")
    settled(made._lane)
    for _ in range(3):
        made.load_button.click()
    made.filters.branch.value = "quick"
    made.load_button.click()
    until(lambda: "complete" in words(made.said))
    assert "Nothing matches: branch quick" in words(made.said)
    made.close()


def test_stop_ends_a_wait_and_nothing_more_is_sent(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b"", 503, Retry_After="50"))
    made = widgets.BuildBrowser(bf.connect("acme", base_url=server.url, token="t" * 20), created_from="2026-10-01")
    until(lambda: "Waiting 50 s: the service returned 503." in words(made.said))
    made.stop_button.click()
    made.filters.close()
    assert made._lane.wait(20)
    assert made.filters._lane.wait(20)
    assert len(server.asked) == 2
    assert words(made.said).startswith("Stopped: 0 builds, others are missing")
    made.close()


def test_when_nobody_looks_loading_stops_and_no_thread_is_left(live: Workspace) -> None:
    made = widgets.BuildBrowser(live, created_from="30d")
    made._view_count = 1
    made._view_count = 0
    settled(made._lane, made.filters._lane)
    assert "complete" not in words(made.said)
    made.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "buildframe-widget"]


def test_no_state_holds_the_token(live: Workspace) -> None:
    token = live.sandbox.token(SCOPES)
    ws = bf.connect("acme", base_url=live.sandbox.url, token=token)
    made = widgets.BuildBrowser(ws, created_from="10d")
    settled(made._lane, made.filters._lane)
    choose(made, 0)
    assert token not in json.dumps(ipywidgets.Widget.get_manager_state(), default=str)
    made.close()


def test_what_is_no_argument_is_refused_by_name(live: Workspace) -> None:
    with pytest.raises(bf.BadInput, match=r"'created_form'. Did you mean 'created_from'"):
        widgets.BuildBrowser(live, created_form="7d")
    with pytest.raises(bf.BadInput, match="workspace"):
        widgets.BuildBrowser("acme")
    with pytest.raises(bf.BadInput, match="created_from=7: pass a text"):
        widgets.BuildBrowser(live, created_from=7)
    everywhere = bf.connect(base_url=live.sandbox.url, token=live.sandbox.token())
    with pytest.raises(bf.BadInput, match="of all organizations"):
        widgets.BuildBrowser(everywhere)
