"""The chosen build: its facts, its jobs, its logs, and how it stays true."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets
import pytest
import tenacity

import buildframe as bf
from buildframe import spec
from buildframe.formatting import span
from buildframe.http import retry
from buildframe.sandbox_server import Fault
from buildframe.widgets.detail import Detail
from buildframe.workspace import Pipeline, Workspace
from tests import worlds
from tests.conftest import Scripted, hang_up, says
from tests.report.untrusted import UNTRUSTED
from tests.widgets.faces_read import is_harmless, settled, tags, words

Start = Callable[..., Scripted]


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        workspace.sandbox.push("web")
        workspace.sandbox.clock.advance(dt.timedelta(minutes=2))
        yield workspace


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_BACKOFF", tenacity.wait_none())


def show(detail: Detail, slug: str, number: int) -> Detail:
    detail.show(slug, number)
    settled(detail._lane)
    return detail


def in_state(live: Workspace, state: str) -> tuple[str, int]:
    row = live.builds(created_from="30d", state=state, progress=False).iloc[0]
    return str(row["pipeline"]), int(row["number"])


def is_shown(widget: Any) -> bool:
    return widget.layout.display != "none"


def job(detail: Detail) -> list[Any]:
    return detail.jobs.rows[detail.jobs.chosen]


def test_facts_in_words_and_links(live: Workspace) -> None:
    slug, number = in_state(live, "failed")
    detail, build = show(Detail(live), slug, number), live.pipeline(slug).build(number)
    told = words(detail.facts)
    assert f"{slug} #{number}" in told
    assert 'data-state="failed">failed<' in detail.facts.value
    assert f"Created{build.created_at:%Y-%m-%d %H:%M:%S} UTC" in told
    assert "waited " in told
    assert "so far" not in told
    assert ("a", {"href": build.web_url, "target": "_blank", "rel": "noopener noreferrer"}) in tags(detail.facts.value)
    again = live.pipeline(slug).rebuild(number)
    made = show(detail, slug, again.number)
    assert f"Rebuilt from#{number}" in words(made.facts)
    assert ("href", build.web_url) in [pair for _, found in tags(made.facts.value) for pair in found.items()]


def test_a_blocked_build_is_not_over(live: Workspace) -> None:
    builds = live.builds(progress=False)
    blocked = builds[builds["blocked"]].iloc[0]
    detail = show(Detail(live), blocked["pipeline"], int(blocked["number"]))
    so_far = span((blocked["fetched_at"].floor("s") - blocked["created_at"]).total_seconds())
    assert f"took {so_far} so far, blocked" in words(detail.facts)


def test_a_build_that_goes_on_says_as_of_when_and_is_read_again(live: Workspace) -> None:
    detail = show(Detail(live), *in_state(live, "running"))
    assert "so far" in words(detail.facts)
    assert "As of2026-10-30 15:02:00 UTC" in words(detail.facts)
    live.sandbox.clock.advance(dt.timedelta(minutes=1))
    detail.again.click()
    settled(detail._lane)
    assert "As of2026-10-30 15:03:00 UTC" in words(detail.facts)


def test_failed_jobs_come_first_and_their_log_is_a_region_of_text(live: Workspace) -> None:
    detail = show(Detail(live), *in_state(live, "failed"))
    assert (detail.jobs.chosen, job(detail)[0]) == (0, "failed")
    assert detail.jobs.label.startswith("Jobs of ")
    assert job(detail)[1] in detail.log_button.description
    detail.log_button.click()
    settled(detail._logs)
    ((_, region),) = [(tag, said) for tag, said in tags(detail.log_text.value) if said.get("class") == "bf-log"]
    assert (region["role"], region["tabindex"]) == ("region", "0")
    assert region["aria-label"] == f"Log of {job(detail)[1]}"
    assert "\x1b" not in detail.log_text.value
    assert "<config>" in words(detail.log_text)
    assert is_harmless(detail.log_text.value)
    shown = detail.log_text.value
    detail.again.click()
    settled(detail._lane)
    assert detail.log_text.value == shown
    show(detail, *in_state(live, "passed"))
    assert detail.log_text.value == ""


def test_jobs_are_told_as_what_they_are(live: Workspace) -> None:
    jobs = live.jobs(created_from="30d", progress=False)
    for kind, told in (("manual", "block step: "), ("trigger", "trigger: ")):
        row = jobs[(jobs["type"] == kind) & jobs["state"].isin(["unblocked", "passed"])].iloc[0]
        detail = show(Detail(live), row["pipeline"], int(row["build_number"]))
        place = next(place for place, cells in enumerate(detail.jobs.rows) if str(cells[1]).startswith(told))
        detail.jobs.chosen = place
        assert detail.log_button.disabled
        assert detail.log_button.tooltip == "Only jobs that an agent ran have a log"
    row = jobs[jobs["retried"].fillna(False)].iloc[0]
    cells = show(detail, row["pipeline"], int(row["build_number"])).jobs.rows
    assert any("(retried)" in str(each[1]) for each in cells)
    assert any("(attempt 2)" in str(each[1]) for each in cells)
    assert (
        len(cells)
        == (jobs["build_id"] == row["build_id"]).sum()
        - ((jobs["build_id"] == row["build_id"]) & (jobs["type"] == "waiter")).sum()
    )


def test_the_chosen_job_stays_chosen_when_the_build_is_read_again(live: Workspace) -> None:
    detail = show(Detail(live), *in_state(live, "running"))
    detail.jobs.chosen = 3
    name = job(detail)[1]
    live.sandbox.clock.advance(dt.timedelta(minutes=3))
    detail.again.click()
    settled(detail._lane)
    assert job(detail)[1] == name


def test_canceling_shows_in_the_facts(live: Workspace) -> None:
    told: list[spec.Build] = []
    detail = show(Detail(live, acted=told.append), *in_state(live, "running"))
    detail.actions.cancel.click()
    detail.actions.yes.click()
    settled(detail.actions._lane, detail._lane)
    assert 'data-state="canceled"' in detail.facts.value
    assert "is canceled" in words(detail.actions.said)
    assert detail.actions.cancel.disabled
    assert [one.state for one in told] == ["canceled"]


def test_while_another_build_loads_the_buttons_are_dead(live: Workspace) -> None:
    detail = show(Detail(live), *in_state(live, "running"))
    assert not detail.actions.cancel.disabled
    slug, number = in_state(live, "failed")
    detail.show(slug, number)
    assert (detail.actions.cancel.disabled, detail.actions.rebuild.disabled, is_shown(detail.body)) == (
        True,
        True,
        True,
    )
    assert words(detail.said) == f"Loading build #{number} …"
    settled(detail._lane)
    assert (words(detail.said), detail.actions.rebuild.disabled) == ("", False)


def test_a_build_that_is_not_there_and_a_server_that_is_gone(live: Workspace) -> None:
    slug, number = in_state(live, "failed")
    detail = show(Detail(live), slug, 99_999)
    assert "404" in words(detail.said)
    assert (is_shown(detail.body), is_shown(detail.again)) == (False, True)
    show(detail, slug, number)
    live.sandbox.fault(Fault("status", route="get_build", status=503))
    detail.again.click()
    settled(detail._lane)
    assert "503" in words(detail.said)
    assert is_shown(detail.body)
    live.sandbox.clear_faults()
    detail.again.click()
    settled(detail._lane)
    assert words(detail.said) == ""


def with_jobs(url: str, text: str = "a text", **job: object) -> dict[str, Any]:
    """A build in which every text is this one."""
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


def detail_of(start: Start, *after: Callable[[Any], None], text: str = "a text", **job: object) -> Detail:
    """A detail that shows such a build, on a server that answers with these from then on."""
    server = start(lambda handler: None)
    server._answers = [says(json.dumps(with_jobs(server.url, text, **job)).encode()), *after]
    return show(Detail(bf.connect("acme", base_url=server.url, token="t" * 20)), "web", 41)


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_texts_of_the_service_stay_texts(scripted: Start, hostile: str) -> None:
    detail = detail_of(scripted, says(hostile.encode("utf-8", "replace")), text=hostile)
    detail.log_button.click()
    settled(detail._logs)
    shown = [detail.said, detail.facts, detail.timeline, detail.log_text]
    assert all(is_harmless(widget.value) for widget in shown)
    assert is_shown(detail.body) or 'role="alert"' in detail.said.value


def test_what_it_saves_opens_nothing_in_an_exported_page(scripted: Start) -> None:
    detail = detail_of(scripted, text="<!--<script>")
    assert "‹!--‹script>" in detail.log_button.description
    state = json.dumps(ipywidgets.Widget.get_manager_state())
    assert detail.model_id in state
    assert "<!--" not in state
    assert "<script" not in state


def test_a_wait_for_the_limit_is_told_until_the_outcome_comes(scripted: Start, each_wait_is_told: None) -> None:
    refusal = says(b"{}", 429, Retry_After="1")
    detail, heard = detail_of(scripted, refusal, says(b'{"message": "No"}', 404), refusal, says(b"the log")), []
    for widget in (detail.said, detail.log_text):
        widget.observe(lambda change: heard.append(words(change.owner)), "value")
    show(detail, "web", 42)
    assert heard[0] == "Loading build #42 …"
    assert heard[1].startswith("Loading build #42 …Waiting 1 s: ")
    assert words(detail.said).startswith("404: No")
    heard.clear()
    assert log_of(detail) == "Log of a text the log"
    assert heard[0] == "Loading the log of a text …"
    assert heard[1].startswith("Loading the log of a text …Waiting 1 s: ")


def test_what_came_of_an_action_is_told_though_another_build_was_chosen(live: Workspace) -> None:
    slug, number = in_state(live, "running")
    detail, gate, cancel = show(Detail(live), slug, number), threading.Event(), Pipeline.cancel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pipeline, "cancel", lambda of, n: gate.wait(10) and cancel(of, n))
        detail.actions.cancel.click()
        detail.actions.yes.click()
        show(detail, *in_state(live, "failed"))
        assert words(detail.actions.said) == f"Asking the service to cancel build {slug} #{number} …"
        gate.set()
        settled(detail.actions._lane, detail._lane)
    told = f"Build {slug} #{number} is canceled."
    assert words(detail.actions.said).startswith(told)
    show(detail, *in_state(live, "passed"))
    assert words(detail.actions.said).startswith(told)
    show(detail, slug, number)
    assert words(detail.actions.said) == ""


def test_jobs_of_a_build_that_goes_on_may_come_up_yet(live: Workspace) -> None:
    assert "not runnable yet" in words(show(Detail(live), *in_state(live, "running")).timeline)


def log_of(detail: Detail) -> str:
    detail.log_button.click()
    settled(detail._logs)
    return words(detail.log_text)


@pytest.mark.parametrize(("log", "shown"), [
    ("\x1b[31mred\x1b[0m \x1b[1;38;5;9mx\x1b[K", "red x"),
    ("\x1b]8;;https://evil.example.com\x07link\x1b]8;;\x07 \x1b]0;title\x1b\\end", "link end"),
    ("\x1b_bk;t=1\x07one\n\x1b_bk;t=2\x07two", "one\ntwo"),
    ("10 %\r55 %\rdone\r\nnext", "done\nnext"),
    ("a\x1b]8;;never ended\nb", "a\nb"),
    ("a\x1b(Bb\x1b=c\x1bMd", "abcd"),
    ("<script>alert(1)</script> &amp;", "<script>alert(1)</script> &amp;"),
])  # fmt: skip
def test_a_log_is_text(scripted: Start, log: str, shown: str) -> None:
    assert log_of(detail_of(scripted, says(log.encode()))) == f"Log of a text {shown}"


def test_of_a_long_log_its_end_is_shown_and_what_is_left_out_is_told(scripted: Start) -> None:
    log = "\n".join(f"\x1b[3{n % 8}mline {n}\x1b[0m" for n in range(50_000))
    told = log_of(detail_of(scripted, says(log.encode())))
    assert told.endswith("line 49998\nline 49999")
    assert f"its last 60,000 of {len(log):,} signs" in told
    assert len(told) < 61_000
    assert "[3" not in told


def test_of_a_line_without_end_the_end_is_shown(scripted: Start) -> None:
    assert log_of(detail_of(scripted, says(b"." * 500_000 + b"\r100 %"))).endswith("100 %")


@pytest.mark.parametrize(("answer", "told"), [
    (says(b'{"message": "Gone <b>"}', 410), "410: Gone <b>The service has no such log: it was deleted"),
    (says(b'{"message": "No log found"}', 404), "404: No log foundThe service has no such log"),
    (says(b'{"message": "No scope read_build_logs"}', 403), "It needs a token that may read logs"),
    (hang_up, "No response from"),
])  # fmt: skip
def test_a_log_that_cannot_be_read_says_why_and_what_to_do(scripted: Start, answer: Any, told: str) -> None:
    detail = detail_of(scripted, answer)
    assert told in log_of(detail)
    assert 'role="alert"' in detail.log_text.value
    assert is_harmless(detail.log_text.value)


def test_the_page_of_a_log_is_linked_where_it_is_on_the_web(scripted: Start) -> None:
    for address, links in (("https://ci.example.com/41#j", 1), ("javascript:alert(1)", 0)):
        detail = detail_of(scripted, says(b"x"), web_url=address)
        log_of(detail)
        assert [tag for tag, _ in tags(detail.log_text.value)].count("a") == links


def test_of_a_pipeline_it_reads_logs_too_and_a_closed_one_leaves_no_thread(live: Workspace) -> None:
    slug, number = in_state(live, "failed")
    detail = show(Detail(live.pipeline(slug)), slug, number)
    assert log_of(detail).startswith("Log of ")
    detail.again.click()
    detail.close()
    settled(detail._lane, detail._logs)
    assert not [thread for thread in threading.enumerate() if thread.name == "buildframe-widget"]


def test_what_is_no_argument_is_refused_by_name(live: Workspace) -> None:
    with pytest.raises(TypeError, match="actde"):
        Detail(live, actde=print)
    with pytest.raises(bf.BadInput, match="ws=None"):
        Detail(None)
