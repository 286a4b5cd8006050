"""The timeline as HTML: positions and titles of bars, and escaped text."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from buildframe.metrics.timeline import infer_ledger
from buildframe.widgets.timeline import render_timeline
from tests.widgets.widget_helpers import HOSTILE_TEXTS, html_tags, is_safe

START = pd.Timestamp("2026-03-10", tz="UTC")


def at(*minutes: float | None) -> pd.Series[Any]:
    stamps = [pd.NaT if m is None else START + pd.Timedelta(m, "min") for m in minutes]
    return pd.Series(stamps, dtype="datetime64[us, UTC]")


def jobs(n: int, **columns: object) -> pd.DataFrame:
    """Return jobs of one build: runnable at k, started at k + 1, finished at k + 3 minutes, fetched at n + 2."""
    columns_of_jobs = {"id": [f"j{k}" for k in range(n)], "build_id": "b", "build_number": 41, "pipeline": "web",
             "type": "script", "queue": "default", "soft_failed": False, "retried_in_job_id": None, "retry_type": None,
             "created_at": at(*[0] * n), "name": [f"job {k}" for k in range(n)], "label": None, "step_key": None,
             "state": "passed", "retried": False, "build_created_at": at(*[0] * n), "runnable_at": at(*range(n)),
             "started_at": at(*[k + 1 for k in range(n)]), "finished_at": at(*[k + 3 for k in range(n)]),
             "fetched_at": at(*[n + 2] * n), "unblocked_at": at(*[None] * n)}  # fmt: skip
    return pd.DataFrame(columns_of_jobs | columns, index=range(n))


def bars(page: str) -> list[tuple[str, float, float]]:
    """Return kind, left edge and width of each bar, in percent."""
    found = re.findall(r'class="bf-bar-([\w-]+)" style="left:([-\d.]+)%;width:([\d.]+)%"', page)
    return [(kind, float(left), float(width)) for kind, left, width in found]


def titles(page: str) -> list[str]:
    return [str(each["title"]) for _, each in html_tags(page) if each.get("class") == "bf-timeline-row"]


def test_bars_show_waiting_and_running() -> None:
    page = render_timeline(jobs(2), "web #41", None, is_unfinished=False)
    assert bars(page) == [("waited", 0, 25), ("ran", 25, 50), ("waited", 25, 25), ("ran", 50, 50)]
    assert titles(page) == ["job 0: waited 1 min, ran 2 min", "job 1: waited 1 min, ran 2 min"]
    assert "Timeline of web #41: 2 jobs in 4 min." in page
    assert re.findall(r'bf-timeline-tick[^"]*" style="left:([\d.]+)%">([^<]*)<', page) == [
        ("0.000", "0"), ("25.000", "1 min"), ("50.000", "2 min"), ("75.000", "3 min"), ("100.000", "4 min"),
    ]  # fmt: skip
    short = render_timeline(jobs(1, finished_at=at(1.5)), "web #41", None, is_unfinished=False)
    assert re.findall(r"bf-timeline-tick.*?>([^<]*)<", short) == ["0", "20 s", "40 s", "60 s", "80 s"]
    assert page.count("bf-last-tick") == 1, "the label of the last tick is on its left, where it has room"
    assert "bf-last-tick" not in short


def rows(page: str) -> list[str]:
    """Return the HTML of each bar's row."""
    return re.findall(r'<div class="bf-timeline-row" .*?</div>', page, re.DOTALL)


def chain_of_each_kind() -> pd.DataFrame:
    """Return an upload, a step that was retried by a person, a block step, a trigger, and a step beside the chain."""
    return jobs(
        6,
        type=["script", "script", "script", "manual", "trigger", "script"],
        name=["upload", "unit", "unit", "ship?", "deploy", "lint"],
        state=["passed", "failed", "passed", "unblocked", "passed", "passed"],
        retried=[False, True, False, False, False, False],
        retried_in_job_id=[None, "j2", None, None, None, None],
        retry_type=[None, "manual", None, None, None, None],
        created_at=at(0, 3, 14, 0, 0, 3),
        runnable_at=at(1, 3, 14, None, 30, 3),
        started_at=at(2, 5, 15, None, None, 5),
        finished_at=at(3.5, 9, 20, None, 40, 6),
        unblocked_at=at(None, None, None, 30, None, None),
        fetched_at=at(*[50] * 6),
    )


def test_the_critical_chain_is_marked_and_summed_by_kind() -> None:
    frame = chain_of_each_kind()
    page = render_timeline(frame, "web #41", infer_ledger(frame), is_unfinished=False)
    spent, timeline = page.split("</figure>", 1)
    kinds = ["setup", "blocked", "manual-retry", "waited", "ran", "retry", "triggered-build"]
    assert [kind for kind, *_ in bars(spent)] == kinds
    assert [left for _, left, _ in bars(spent)] == [2.5 * minutes for minutes in (0, 1, 11, 16, 20, 26, 30)]
    label = next(str(each["aria-label"]) for _, each in html_tags(spent) if each.get("class") == "bf-spent")
    assert label.startswith("What web #41 spent its time on: 40 min in all. setup: 1 min (2 %). ")
    assert "waiting for a person to unblock: 10 min (25 %). waiting for a person to retry: 5 min (12 %)." in label
    assert "inferred from this build alone: upload → unit → unit → ship? → deploy<" in spent
    assert [title.endswith("; on the critical chain") for title in titles(timeline)] == [1, 0, 1, 1, 1, 1]
    assert [re.findall(r"bf-bar-([\w-]+) bf-gap", row) for row in rows(timeline)] == [
        ["setup"], [], [], ["manual-retry"], ["blocked"], [],
    ]  # fmt: skip
    links = [[left for kind, left, _ in bars(row) if kind == "link"] for row in rows(timeline)]
    assert links == [[], [7.5], [7.5], [22.5], [50], [75]]


def test_a_short_wait_is_less_than_one_percent() -> None:
    frame = jobs(1, started_at=at(0.1), finished_at=at(100))
    page = render_timeline(frame, "web #41", infer_ledger(frame), is_unfinished=False)
    assert "waiting for an agent: 6.0 s (&lt; 1 %)" in page
    assert "running: 1 h 39 min (100 %)" in page


def test_a_build_without_a_ledger_has_no_chain() -> None:
    page = render_timeline(chain_of_each_kind(), "web #41", None, is_unfinished=True)
    assert "chain" not in page
    assert "spent" not in page


def test_outcomes_attempts_and_unfinished_jobs() -> None:
    frame = jobs(
        6,
        state=["failed", "timed_out", "canceled", "running", "scheduled", "waiting"],
        retried=[True, None, False, False, False, False],
        runnable_at=at(0, 1, 2, 3, 4, None),
        started_at=at(1, 2, None, 4, None, None),
        finished_at=at(3, 4, 9, None, None, None),
        fetched_at=at(*[10] * 6),
    )
    page = render_timeline(frame, "web #41", None, is_unfinished=False)
    assert [kind for kind, *_ in bars(page)] == [
        "waited", "failed", "end", "waited", "timed-out", "waited", "waited", "ran", "end", "waited", "end",
    ]  # fmt: skip
    assert titles(page)[0] == "job 0: failed, waited 1 min, ran 2 min, retried"
    assert titles(page)[3] == "job 3: waited 1 min, ran 6 min, not finished"
    assert "5 jobs in 10 min; 1 more job was never runnable." in page
    assert "5 jobs in 10 min; 1 more job is not runnable yet." in render_timeline(
        frame, "web #41", None, is_unfinished=True
    )
    assert [text in page for text in ("↻ retried", "▶ not finished", "◆ unblocked")] == [True, True, False]


def test_block_steps_triggers_and_negative_runs() -> None:
    frame = jobs(
        4,
        type=["script", "manual", "trigger", "script"],
        name=["a", None, "b", "c"],
        label=[None, ":ship: Ship it?", None, None],
        state=["passed", "unblocked", "passed", "passed"],
        runnable_at=at(0, None, 9, 9),
        started_at=at(1, None, None, 10),
        finished_at=at(3, None, 12, 9),
        unblocked_at=at(None, 9, None, None),
    )
    page = render_timeline(frame, "web #41", None, is_unfinished=False)
    assert [(kind, round(left * 12 / 100), round(width * 12 / 100)) for kind, left, width in bars(page)] == [
        ("waited", 0, 1), ("ran", 1, 2), ("blocked", 3, 6), ("end", 9, 0), ("triggered-build", 9, 3),
        ("waited", 9, 1), ("backwards", 9, 1),
    ]  # fmt: skip
    assert "Ship it?: blocked, took 6 min, unblocked" in titles(page)
    assert "1 job ended before starting (clocks disagree)" in page


def test_a_build_without_a_runnable_job_says_so() -> None:
    for frame in (jobs(0), jobs(2, runnable_at=at(None, None), started_at=at(None, None))):
        frame["finished_at"] = pd.Series(pd.NaT, index=frame.index, dtype="datetime64[us, UTC]")
        assert "no job of web #41 has been runnable" in render_timeline(frame, "web #41", None, is_unfinished=False)


def test_bars_lie_within_the_axis() -> None:
    count = 50
    frame = jobs(count, started_at=at(*[k + 9 for k in range(count)]))  # later than the ends
    page = render_timeline(frame, "web #41", infer_ledger(frame), is_unfinished=False)
    assert len(titles(page)) == count
    assert all(left >= 0 and left + width <= 100.01 for _, left, width in bars(page))
    assert 2 <= page.count("bf-timeline-tick") <= 7


def test_a_build_of_zero_length_has_an_axis() -> None:
    page = render_timeline(
        jobs(1, started_at=at(0), finished_at=at(0), fetched_at=at(0)), "web #41", None, is_unfinished=False
    )
    assert page.count("bf-timeline-tick") >= 2


def test_text_is_escaped() -> None:
    unsafe = [hostile for hostile in HOSTILE_TEXTS if not is_safe(timeline_with(hostile))]
    assert unsafe == []


def timeline_with(hostile: str) -> str:
    text = hostile.encode("utf-8", "replace").decode()  # no column holds half a character
    kinds = ["script", "manual", "trigger"]
    frame = jobs(3, type=kinds, name=text, label=text, step_key=text, state=text, unblocked_at=at(1, 2, 3))
    ledger = infer_ledger(frame.assign(state="passed"))
    return render_timeline(frame, hostile, ledger, is_unfinished=True)
