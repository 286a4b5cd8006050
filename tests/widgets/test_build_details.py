"""The selected build: properties, jobs, logs and refreshes."""

from __future__ import annotations

import datetime as dt
import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets
import pytest
import tenacity

import buildframe as bf
from buildframe import spec
from buildframe.formatting import format_duration
from buildframe.http import retry
from buildframe.sandbox_server import Fault
from buildframe.widgets.build_details import BuildDetails
from buildframe.widgets.log_page import render_log
from buildframe.workspace import PipelineWorkspace, Workspace
from tests import worlds
from tests.conftest import Scripted, hang_up, says
from tests.widgets.widget_helpers import (
    HOSTILE_TEXTS,
    html_tags,
    is_safe,
    is_shown,
    running_threads,
    visible_text,
    wait_for,
    workspace_of,
)

Start = Callable[..., Scripted]


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        workspace.sandbox.push("web")
        workspace.sandbox.clock.advance(dt.timedelta(minutes=2))
        yield workspace


WITHOUT_TIMELINE = pytest.mark.usefixtures("without_timeline")


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())


def show(detail: BuildDetails, slug: str, number: int) -> BuildDetails:
    detail.load(slug, number)
    wait_for(detail)
    return detail


def in_state(live: Workspace, state: str) -> tuple[str, int]:
    row = live.builds(created_from="30d", state=state, progress=False).iloc[0]
    return str(row["pipeline"]), int(row["number"])


def selected_job(detail: BuildDetails) -> list[Any]:
    return detail.jobs.rows[detail.jobs.selected]


@WITHOUT_TIMELINE
def test_properties_as_text_and_links(live: Workspace) -> None:
    slug, number = in_state(live, "failed")
    detail, build = show(BuildDetails(live), slug, number), live.pipeline(slug).build(number)
    message = visible_text(detail.properties)
    assert f"{slug} #{number}" in message
    assert 'data-state="failed">failed<' in detail.properties.value
    assert f"Created{build.created_at:%Y-%m-%d %H:%M:%S} UTC" in message
    assert "waited " in message
    assert "so far" not in message
    assert ("a", {"href": build.web_url, "target": "_blank", "rel": "noopener noreferrer"}) in html_tags(
        detail.properties.value
    )
    again = live.pipeline(slug).rebuild(number)
    made = show(detail, slug, again.number)
    assert f"Rebuilt from#{number}" in visible_text(made.properties)
    assert ("href", build.web_url) in [pair for _, found in html_tags(made.properties.value) for pair in found.items()]


@pytest.mark.long
@WITHOUT_TIMELINE
def test_a_blocked_build_is_unfinished(live: Workspace) -> None:
    builds = live.builds(progress=False)
    blocked = builds[builds["blocked"]].iloc[0]
    detail = show(BuildDetails(live), blocked["pipeline"], int(blocked["number"]))
    so_far = format_duration((blocked["fetched_at"].floor("s") - blocked["created_at"]).total_seconds())
    assert f"took {so_far} so far, blocked" in visible_text(detail.properties)


@WITHOUT_TIMELINE
def test_an_unfinished_build_shows_its_time_and_can_be_refreshed(live: Workspace) -> None:
    detail = show(BuildDetails(live), *in_state(live, "running"))
    assert "so far" in visible_text(detail.properties)
    assert "As of2026-10-30 15:02:00 UTC" in visible_text(detail.properties)
    live.sandbox.clock.advance(dt.timedelta(minutes=1))
    detail.reload.click()
    wait_for(detail)
    assert "As of2026-10-30 15:03:00 UTC" in visible_text(detail.properties)


def test_failed_jobs_come_first_and_a_log_is_a_region_of_text(live: Workspace) -> None:
    detail = show(BuildDetails(live), *in_state(live, "failed"))
    assert (detail.jobs.selected, selected_job(detail)[0]) == (0, "failed")
    assert detail.jobs.label.startswith("Jobs of ")
    assert selected_job(detail)[1] in detail.log_button.description
    detail.log_button.click()
    wait_for(detail)
    ((_, region),) = [
        (tag, message) for tag, message in html_tags(detail.log_view.value) if message.get("class") == "bf-log"
    ]
    assert (region["role"], region["tabindex"]) == ("region", "0")
    assert region["aria-label"] == f"Log of {selected_job(detail)[1]}"
    assert "\x1b" not in detail.log_view.value
    assert "<config>" in visible_text(detail.log_view)
    assert is_safe(detail.log_view.value)
    shown = detail.log_view.value
    detail.reload.click()
    wait_for(detail)
    assert detail.log_view.value == shown
    show(detail, *in_state(live, "passed"))
    assert detail.log_view.value == ""


@pytest.mark.long
@WITHOUT_TIMELINE
def test_job_titles_contain_kind_and_notes(live: Workspace) -> None:
    jobs = live.jobs(created_from="30d", progress=False)
    for kind, message in (("manual", "block step: "), ("trigger", "trigger: ")):
        row = jobs[(jobs["type"] == kind) & jobs["state"].isin(["unblocked", "passed"])].iloc[0]
        detail = show(BuildDetails(live), row["pipeline"], int(row["build_number"]))
        place = next(place for place, cells in enumerate(detail.jobs.rows) if str(cells[1]).startswith(message))
        detail.jobs.selected = place
        assert detail.log_button.disabled
        assert detail.log_button.tooltip == "Only jobs that ran on an agent have a log"
    row = jobs[jobs["retried"].fillna(False)].iloc[0]
    cells = show(detail, row["pipeline"], int(row["build_number"])).jobs.rows
    assert any("(retried)" in str(each[1]) for each in cells)
    assert any("attempt 2" in str(each[1]) for each in cells)
    assert (
        len(cells)
        == (jobs["build_id"] == row["build_id"]).sum()
        - ((jobs["build_id"] == row["build_id"]) & (jobs["type"] == "waiter")).sum()
    )


@pytest.mark.long
@WITHOUT_TIMELINE
def test_the_selected_job_stays_selected_after_a_refresh(live: Workspace) -> None:
    detail = show(BuildDetails(live), *in_state(live, "running"))
    detail.jobs.selected = 3
    name = selected_job(detail)[1]
    live.sandbox.clock.advance(dt.timedelta(minutes=3))
    detail.reload.click()
    wait_for(detail)
    assert selected_job(detail)[1] == name


@WITHOUT_TIMELINE
def test_canceling_updates_the_properties(live: Workspace) -> None:
    changed: list[spec.Build] = []
    detail = show(BuildDetails(live, on_change=changed.append), *in_state(live, "running"))
    detail.actions.cancel.click()
    detail.actions.yes.click()
    wait_for(detail)
    assert 'data-state="canceled"' in detail.properties.value
    assert "is canceled" in visible_text(detail.actions.status)
    assert detail.actions.cancel.disabled
    assert [one.state for one in changed] == ["canceled"]


@WITHOUT_TIMELINE
def test_buttons_are_disabled_while_another_build_loads(live: Workspace) -> None:
    detail = show(BuildDetails(live), *in_state(live, "running"))
    assert not detail.actions.cancel.disabled
    slug, number = in_state(live, "failed")
    detail.load(slug, number)
    assert (detail.actions.cancel.disabled, detail.actions.rebuild.disabled, is_shown(detail.body)) == (
        True,
        True,
        True,
    )
    assert visible_text(detail.status) == f"Loading build #{number} …"
    wait_for(detail)
    assert (visible_text(detail.status), detail.actions.rebuild.disabled) == ("", False)


@WITHOUT_TIMELINE
def test_a_missing_build_and_a_failing_server(live: Workspace) -> None:
    slug, number = in_state(live, "failed")
    detail = show(BuildDetails(live), slug, 99_999)
    assert "404" in visible_text(detail.status)
    assert (is_shown(detail.body), is_shown(detail.reload)) == (False, True)
    show(detail, slug, number)
    live.sandbox.fault(Fault("status", route="get_build", status=503))
    detail.reload.click()
    wait_for(detail)
    assert "503" in visible_text(detail.status)
    assert is_shown(detail.body)
    live.sandbox.clear_faults()
    detail.reload.click()
    wait_for(detail)
    assert visible_text(detail.status) == ""


def with_jobs(url: str, text: str = "a text", **job: object) -> dict[str, Any]:
    """Return a build whose every text is this one."""
    made = {"id": "j", "type": "script", "name": text, "state": "failed", "step_key": text, "exit_status": 1,
            "agent": {"name": text}, "agent_query_rules": [f"queue={text}"], "started_at": "2026-10-30T15:00:00Z",
            "runnable_at": "2026-10-30T14:00:00Z", "finished_at": "2026-10-30T15:01:00Z", "web_url": text,
            "raw_log_url": f"{url}/v2/log"}  # fmt: skip
    block = {"id": "k", "type": "manual", "label": text, "state": "unblocked", "unblocked_by": {"name": text},
             "unblocked_at": "2026-10-30T15:03:00Z"}  # fmt: skip
    trigger = {"id": "l", "type": "trigger", "name": text, "state": text, "triggered_build": {"number": text},
               "runnable_at": "2026-10-30T15:03:00Z"}  # fmt: skip
    names = dict.fromkeys(("state", "branch", "message", "commit", "source", "cancel_reason", "web_url"), text)
    return {"id": "b", "number": 41, "created_at": "2026-10-30T14:00:00Z", "creator": {"name": text}, **names,
            "author": {"name": text + "!"}, "pull_request": {"id": text, "base": text, "repository": text},
            "rebuilt_from": {"number": 7, "url": text}, "pipeline": {"id": "p", "slug": text, "name": text},
            "triggered_from": {"build_number": 3, "build_pipeline_slug": text},
            "jobs": [made | job, block, trigger]}  # fmt: skip


def detail_of(start: Start, text: str = "a text") -> tuple[BuildDetails, Scripted]:
    """Return details of such a build, and the server, for further responses."""
    server = start(lambda handler: None)
    server.responses = [says(json.dumps(with_jobs(server.url, text)).encode())]
    return show(BuildDetails(workspace_of(server)), "web", 41), server


def test_text_of_the_service_is_escaped(scripted: Start) -> None:
    server = scripted(lambda handler: None)
    detail, unsafe = BuildDetails(workspace_of(server), on_close=lambda: None), []
    for hostile in HOSTILE_TEXTS:
        build, log = json.dumps(with_jobs(server.url, hostile)).encode(), hostile.encode("utf-8", "replace")
        server.responses = [says(build), says(log)]
        show(detail, "web", 41)
        assert is_shown(detail.body) or 'role="alert"' in detail.status.value
        detail.log_button.click()
        wait_for(detail)
        shown = [detail.status, detail.properties, detail.timeline, detail.log_view]
        unsafe += [widget.value for widget in shown if not is_safe(widget.value)]
        detail.close_button.click()
    assert unsafe == []


def test_saved_state_contains_no_markup(scripted: Start) -> None:
    detail, _ = detail_of(scripted, "<!--<script>")
    assert "‹!--‹script>" in detail.log_button.description
    state = json.dumps(ipywidgets.Widget.get_manager_state())
    assert detail.model_id in state
    assert "<!--" not in state
    assert "<script" not in state


@WITHOUT_TIMELINE
def test_a_wait_for_the_rate_limit_is_shown(scripted: Start, report_all_waits: None) -> None:
    refusal = says(b"{}", 429, Retry_After="1")
    (detail, server), texts = detail_of(scripted), []
    server.responses = [refusal, says(b'{"message": "No"}', 404), refusal, says(b"the log")]
    for widget in (detail.status, detail.log_view):
        widget.observe(lambda change: texts.append(visible_text(change.owner)), "value")
    show(detail, "web", 42)
    assert texts[0] == "Loading build #42 …"
    assert texts[1].startswith("Loading build #42 …Waiting 1 s: ")
    assert visible_text(detail.status).startswith("404: No")
    texts.clear()
    assert log_of(detail) == "Log of a text #1\nthe log"
    assert texts[0] == "Loading the log of a text #1 …"
    assert texts[1].startswith("Loading the log of a text #1 …Waiting 1 s: ")


@pytest.mark.long
@WITHOUT_TIMELINE
def test_the_outcome_of_an_action_is_shown_after_another_build_was_selected(live: Workspace) -> None:
    slug, number = in_state(live, "running")
    detail, gate, cancel = show(BuildDetails(live), slug, number), threading.Event(), PipelineWorkspace.cancel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PipelineWorkspace, "cancel", lambda of, n: gate.wait(10) and cancel(of, n))
        detail.actions.cancel.click()
        detail.actions.yes.click()
        detail.load(*in_state(live, "failed"))
        wait_for(*detail.closables)
        assert visible_text(detail.actions.status) == f"Canceling build {slug} #{number} …"
        gate.set()
        wait_for(detail)
    message = f"Build {slug} #{number} is canceled."
    assert visible_text(detail.actions.status).startswith(message)
    show(detail, *in_state(live, "passed"))
    assert visible_text(detail.actions.status).startswith(message)
    show(detail, slug, number)
    assert visible_text(detail.actions.status) == ""


def test_the_time_of_a_finished_build_adds_up_by_kind(live: Workspace) -> None:
    slug, number = in_state(live, "passed")
    detail, build = show(BuildDetails(live), slug, number), live.pipeline(slug).build(number)
    assert build.created_at is not None
    assert build.finished_at is not None
    took = format_duration((build.finished_at - build.created_at).total_seconds())
    label = f"What {slug} #{number} spent its time on: {took} in all. "
    labels = [str(each.get("aria-label")) for _, each in html_tags(detail.timeline.value)]
    assert [text.startswith(label) for text in labels].count(True) == 1
    assert "Critical chain, inferred from this build alone: " in visible_text(detail.timeline)
    running = visible_text(show(detail, *in_state(live, "running")).timeline)
    assert "spent" not in running
    assert "chain" not in running
    assert "not runnable yet" in running


def log_of(detail: BuildDetails) -> str:
    """Load the log of the selected job, and return its text."""
    detail.log_button.click()
    wait_for(detail)
    return lines_of(detail.log_view.value)


def lines_of(page: str) -> str:
    lines = visible_text(ipywidgets.HTML(page), starts_line="bf-log-line").split("\n")
    return "\n".join(line.rstrip() for line in lines if line.strip())


def rendered(log: str) -> str:
    """Return a log as HTML."""
    page = render_log({"web_url": None}, "unit", log)
    assert is_safe(page)
    return page


def test_a_log_is_plain_text() -> None:
    expected = {
        "\x1b[31mred\x1b[0m \x1b[1;38;5;9mx\x1b[K": "red x",
        "\x1b]8;;https://evil.example.com\x07link\x1b]8;;\x07 \x1b]0;title\x1b\\end": "link end",
        "\x1b_bk;t=1\x07one\n\x1b_bk;t=2\x07two": "one\ntwo",
        "10 %\r55 %\rdone\r\nnext": "done\nnext",
        "a\x1b]8;;never ended\nb": "a\nb",
        "a\x1b(Bb\x1b=c\x1bMd": "abcd",
        "<script>alert(1)</script> &amp;": "<script>alert(1)</script> &amp;",
    }
    shown = {log: lines_of(rendered(log)) for log in expected}
    assert shown == {log: f"Log of unit\n{text}" for log, text in expected.items()}


def test_a_log_that_is_hard_to_parse_is_shown() -> None:
    """Python refuses to parse so many digits, and `²` is a digit for `str.isdigit`. Of a long line the end is shown."""
    colors = ("9" * 5000, "²", "38;5", "38;2;1", ";" * 60)
    logs = [*(f"\x1b[{color}mtext" for color in colors), "." * 500_000 + "\rtext"]
    assert [log[:9] for log in logs if not lines_of(rendered(log)).endswith("text")] == []


def test_a_long_log_shows_its_end_and_the_total_length() -> None:
    log = "\n".join(f"\x1b[3{n % 8}mline {n}\x1b[0m" for n in range(30_000))
    message = lines_of(rendered(log))
    assert message.endswith("line 29998\nline 29999")
    assert f"last 60,000 of {len(log):,} characters" in message
    assert len(message) < 61_000
    assert "[3" not in message


LOG = """\
~~~ Prepare
$ git fetch
--- :hammer: Build
\x1b[32m✓\x1b[0m compiled, 0 errors
--- Test
\x1b[1;31mFAILED\x1b[0m tests/test_tax.py
^^^ +++
+++ Report
\x1b[38;2;250;10;10mred\x1b[0m and \x1b[44mblue ground\x1b[0m
"""


def test_groups_with_errors_are_unfolded() -> None:
    page = rendered(LOG)
    summaries = re.findall(r"<details( open)?><summary>(.*?) <span", page)
    assert summaries == [("", "Prepare"), ("", "Build"), (" open", "Test"), (" open", "Report")]
    errors = re.findall(r'bf-log-error">(.*?)</span></pre>', page)
    assert [re.sub("<[^>]*>", "", line) for line in errors] == ["FAILED tests/test_tax.py", "red and blue ground"]
    assert "1 line, 1 error line" in lines_of(page)


def test_without_errors_the_last_group_is_unfolded() -> None:
    page = rendered("--- One\nfine\n--- Two\nno error")
    assert re.findall(r"<details( open)?>", page) == ["", " open"]
    assert "bf-log-error" not in page


def test_colors_are_those_of_the_style_sheet() -> None:
    spans = dict(re.findall(r'<span class="(bf-[fab][^"]*)">(.*?)</span>', rendered(LOG)))
    assert spans == {"bf-fg-2": "✓", "bf-ansi-bold bf-fg-1": "FAILED", "bf-fg-1": "red", "bf-bg-4": "blue ground"}


@WITHOUT_TIMELINE
def test_a_log_that_cannot_be_loaded_says_why_and_what_to_do(scripted: Start) -> None:
    detail, server = detail_of(scripted)
    failures = {
        "410: Gone <b>The log was deleted, or the job has not written one yet": says(b'{"message": "Gone <b>"}', 410),
        "404: No log foundThe log was deleted": says(b'{"message": "No log found"}', 404),
        "Use a token that can read logs": says(b'{"message": "No scope read_build_log_tasks"}', 403),
        "No response from": hang_up,
    }
    for message, failure in failures.items():
        server.responses = [failure]
        assert message in log_of(detail)
        assert 'role="alert"' in detail.log_view.value
        assert is_safe(detail.log_view.value)
    server.responses = [says(b"\x1b[31mred\x1b[0m")]
    assert log_of(detail) == "Log of a text #1\nred"


@WITHOUT_TIMELINE
def test_the_page_of_a_job_is_linked_if_it_is_on_the_web(scripted: Start) -> None:
    detail, server = detail_of(scripted)
    for address, links in (("https://ci.example.com/41#j", 1), ("javascript:alert(1)", 0)):
        server.responses = [says(json.dumps(with_jobs(server.url, web_url=address)).encode()), says(b"x")]
        show(detail, "web", 41)
        log_of(detail)
        assert [tag for tag, _ in html_tags(detail.log_view.value)].count("a") == links


@pytest.mark.long
@WITHOUT_TIMELINE
def test_a_pipeline_works_as_workspace_and_closing_leaves_no_thread(live: Workspace) -> None:
    slug, number = in_state(live, "failed")
    detail = show(BuildDetails(live.pipeline(slug)), slug, number)
    assert log_of(detail).startswith("Log of ")
    detail.reload.click()
    detail.close()
    wait_for(detail)
    assert running_threads() == []


def test_invalid_arguments_are_named() -> None:
    with pytest.raises(bf.BadInput, match="ws=None"):
        BuildDetails(None)
