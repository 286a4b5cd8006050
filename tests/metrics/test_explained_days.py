"""`explain(builds, jobs, day=...)` compares a day with the 28 days before, as two ledgers would."""

from __future__ import annotations

import functools

import pandas as pd
import pytest

from buildframe import metrics
from tests.metrics.any_frame import in_spark
from tests.metrics.local_engines import LOCAL
from tests.metrics.replay_frames import START, build, frames, job
from tests.refusals import refusal, wrong_messages

DAY = 86_400
LAST = 30
"""Day whose builds wait longer, counted from `START`."""


def record() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Six builds on each of 31 days, with two steps in one queue that wait 60 s longer on the last day.

    On the first two days, which are older than 28 days, they run for an hour longer.
    """
    builds, jobs = [], []
    for day in range(LAST + 1):
        for number in range(6):
            id, start = f"{day}-{number}", DAY * day + 3_600 * number
            waited = 10 + number + (60 if day == LAST else 0)
            ran = 20 + (3_600 if day < 2 else 0)
            second = start + waited + ran
            end = second + waited + ran
            builds.append(build(id, start, end))
            jobs.append(job("a", start, start + waited, second, id, created_at=start))
            jobs.append(job("b", second, second + waited, end, id, created_at=start))
    made_builds, made_jobs = frames(builds, jobs)
    return made_builds.assign(pipeline_id=pd.Series("id of web", made_builds.index, dtype="str")), made_jobs


def date(day: int) -> str:
    return str((START + pd.Timedelta(day, "D")).date())


EXPLAIN = functools.partial(metrics.explain, day=date(LAST))


def test_waits_count_by_queue_and_runs_by_step():
    rows = EXPLAIN(*record(), pipeline="web").set_index("kind")
    wait = rows.loc["queue"]
    assert wait["change_s"] == pytest.approx(120)
    assert wait["notable"]
    assert (wait["queue"], wait["builds_before"], wait["builds_after"]) == ("default", 28 * 6, 6)
    assert pd.isna(wait["step"])
    assert set(rows.loc["run", "step"]) == {"a", "b"}
    assert rows.loc["run", "queue"].isna().all()
    assert rows.attrs["after_s"] - rows.attrs["before_s"] == pytest.approx(120)
    assert (rows.attrs["n_before"], rows.attrs["n_after"]) == (28 * 6, 6)


def test_it_is_what_two_ledgers_of_these_days_give():
    builds, jobs = record()
    builds = builds[builds["created_at"] >= START + pd.Timedelta(2, "D")]
    ledger = metrics.time_ledger(builds, jobs[jobs["build_id"].isin(builds["id"])])
    is_last = ledger["build_created_at"] >= START + pd.Timedelta(LAST, "D")
    for by, pipeline in ((None, "web"), ("pipeline", None), ("branch", None), (["pipeline", "branch"], "web")):
        expected = metrics.explain(ledger[~is_last], ledger[is_last], by=by)
        pd.testing.assert_frame_equal(EXPLAIN(*record(), by=by, pipeline=pipeline), expected)
    expected = metrics.explain(ledger[~is_last], ledger[is_last], by="pipeline")
    pd.testing.assert_frame_equal(EXPLAIN(*record()), expected)  # several pipelines need this
    whole = metrics.explain(ledger[~is_last], ledger[is_last], tail=0.2)
    pd.testing.assert_frame_equal(EXPLAIN(*record(), tail=0.2), whole)


def test_builds_that_have_not_ended_are_counted():
    builds, jobs = record()
    is_open = builds["id"].isin(["0-0", "5-1", "5-2", f"{LAST}-5"])  # the first is too old
    builds = builds.assign(state=builds["state"].mask(is_open, "running"))
    attrs = EXPLAIN(builds, jobs).attrs
    assert (attrs["n_open_before"], attrs["n_open_after"]) == (2, 1)
    assert (attrs["n_before"], attrs["n_after"]) == (28 * 6 - 2, 5)


def test_days_are_those_of_the_zone():
    """At 14 h ahead of UTC, builds after 10:00 belong to the next day."""
    builds, jobs = record()
    zone = "Pacific/Kiritimati"
    created = builds["created_at"] + pd.Timedelta(10, "h")
    attrs = metrics.explain(builds.assign(created_at=created), jobs, day=date(LAST), tz=zone).attrs
    local = created.dt.tz_convert(zone).dt.tz_localize(None).dt.normalize()
    expected = (local == pd.Timestamp(date(LAST))).sum()
    assert 0 < expected == attrs["n_after"]


def test_pipelines_by_slug_or_id():
    builds, jobs = record()
    expected = EXPLAIN(builds, jobs, pipeline="web")
    pd.testing.assert_frame_equal(EXPLAIN(builds, jobs, pipeline="id of web"), expected)
    others = builds.assign(id=builds["id"] + " of api", pipeline="api", pipeline_id="id of api")
    both = pd.concat([builds, others], ignore_index=True)
    pd.testing.assert_frame_equal(EXPLAIN(both, jobs, pipeline="web"), expected)


def test_days_of_several_types():
    expected = EXPLAIN(*record())
    for day in (pd.Timestamp(date(LAST)), pd.Timestamp(date(LAST)).date()):
        pd.testing.assert_frame_equal(metrics.explain(*record(), day=day), expected)


def test_frames_of_other_libraries_give_the_same():
    builds, jobs = record()
    expected = EXPLAIN(builds, jobs)
    for name, to in LOCAL.items():
        pd.testing.assert_frame_equal(EXPLAIN(to(builds), to(jobs)), expected, obj=name)


@pytest.mark.long
def test_frames_of_spark_give_the_same():
    builds, jobs = record()
    expected = EXPLAIN(builds, jobs)
    pd.testing.assert_frame_equal(EXPLAIN(in_spark(builds), in_spark(jobs)), expected)
    assert EXPLAIN(in_spark(builds), in_spark(jobs)).attrs == expected.attrs


def test_the_wrong_kind_of_frames_is_refused():
    builds, jobs = record()
    ledger = metrics.time_ledger(builds, jobs)
    cases = [
        ("this frame is a ledger", lambda: EXPLAIN(ledger, ledger)),
        ("this frame is a ledger", lambda: EXPLAIN(builds, ledger)),
        ("builds first, then jobs", lambda: EXPLAIN(jobs, builds)),
        ("builds first, then jobs", lambda: EXPLAIN(builds, builds)),
        ("To explain a day of builds and jobs, pass day=", lambda: metrics.explain(builds, jobs)),
        ("pipeline='web' needs day=", lambda: metrics.explain(ledger, ledger, pipeline="web")),
        ("pipeline='api' has no build. Use one of 'web'", lambda: EXPLAIN(builds, jobs, pipeline="api")),
        ("day='yesterday' is not a day", lambda: metrics.explain(builds, jobs, day="yesterday")),
        ("day=3 is not a day", lambda: metrics.explain(builds, jobs, day=3)),
        ("not a time zone", lambda: EXPLAIN(builds, jobs, tz="Mars")),
        ("'Passed', which is not a state", lambda: EXPLAIN(builds.assign(state="Passed"), jobs)),
    ]
    assert wrong_messages(cases) == {}


def test_a_day_needs_builds_on_and_before_it():
    builds, jobs = record()
    for day, when in ((LAST + 3, "on day=2026-04-04"), (0, "in the 28 days before day=2026-03-02")):
        words = f"No build of web that was created {when} has ended"
        assert words in refusal(metrics.explain, builds, jobs, day=date(day), pipeline="web")
