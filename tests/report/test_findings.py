"""Findings of a report: they name the changes planted in the sandbox and nothing else, in clear sentences."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from pyarrow import dataset

import buildframe as bf
from buildframe import metrics
from buildframe.formatting import format_change, format_duration
from buildframe.report.content import Finding, Report
from buildframe.report.findings import describe_outages, findings
from buildframe.report.level_changes import tabulate
from buildframe.report.measurements import Measurements
from buildframe.report.periods import Period
from buildframe.report.reported_changes import reported
from tests.report.reports import Month, read_month, report_of_month, without_builds

MONDAY = pd.Timestamp("2026-10-26", tz="UTC")
WEEK = Period.last(MONDAY, 7)
BEFORE = WEEK.before.start
UTC = "datetime64[us, UTC]"


@pytest.fixture(scope="module")
def month() -> Month:
    return read_month()


def measured_on(as_of: str) -> tuple[Measurements, list[Finding]]:
    report = report_of_month(as_of)
    return report.measurements, list(report.findings)


@pytest.fixture(scope="module")
def monday() -> tuple[Measurements, list[Finding]]:
    return measured_on("2026-10-26T08:00Z")


@pytest.mark.long
def test_only_the_slower_step_is_found_with_its_pipeline_and_day(month, monday):
    slower = month.truth.slower_steps[0]
    measurements, found = monday
    (whole,) = [one for one in found if one.question == "speed"]
    assert (whole.subject, whole.bad) == (slower.pipeline, True)
    assert whole.since is not None
    assert abs(whole.since - pd.Timestamp(slower.at)) <= pd.Timedelta("3D")
    assert re.search(rf"at the median since \d+ Oct: {slower.step_key} \+[^,]* \(run\), other ", whole.text)
    assert whole.change is not None
    assert f" {format_duration(whole.change.change)} slower at the median " in whole.headline
    cause = measurements.explanation.query("notable").iloc[0]
    assert (cause["kind"], cause["step"]) == ("run", slower.step_key)
    assert cause["after_s"] / cause["before_s"] == pytest.approx(slower.factor, rel=0.15)
    row = measurements.step_time.query("step == @slower.step_key and part == 'run'").iloc[0]
    assert row["p50_s"] / row["p50_before_s"] == pytest.approx(slower.factor, rel=0.15)
    (change,) = measurements.step_changes.query("step == @slower.step_key").to_dict("records")
    assert change["at_low"] <= change["at"] <= change["at_high"]
    assert change["notable"]
    assert [one for one in found if one.question == "waiting"] == []
    assert [one for one in found if one.question == "reliability"] == []


@pytest.mark.long
def test_before_the_step_gets_slower_no_finding_concerns_speed():
    _, found = measured_on("2026-10-19T00:00Z")
    assert [one for one in found if one.question == "speed"] == []


@pytest.mark.long
def test_a_change_within_both_periods_is_reported_with_its_day():
    _, found = measured_on("2026-10-30T15:00Z")
    (finding,) = [one for one in found if one.question == "speed"]
    assert "api" in finding.subject
    assert "integration" in finding.text
    assert "since about" in finding.text
    assert finding.since is not None


@pytest.mark.long
def test_numbers_are_those_of_the_metrics(month, monday):
    builds, jobs, *_ = month
    measurements, _ = monday
    week = (builds["finished_at"] >= MONDAY - pd.Timedelta("7D")) & (builds["finished_at"] < MONDAY)
    expected = metrics.percentiles(builds[week & (builds["state"] == "passed")], metrics.wall_time, "pipeline")
    own = measurements.wall_time[["pipeline", "n", "p50_s", "p95_s"]]
    pd.testing.assert_frame_equal(own, expected[["pipeline", "n", "p50_s", "p95_s"]])
    rates = metrics.success_rate(builds[week], "pipeline")
    pd.testing.assert_frame_equal(
        measurements.success[["pipeline", "passed", "n", "rate"]], rates[["pipeline", "passed", "n", "rate"]]
    )
    runnable = (jobs["runnable_at"] >= MONDAY - pd.Timedelta("7D")) & (jobs["runnable_at"] < MONDAY)
    waits = metrics.percentiles(jobs[runnable], by="queue")
    pd.testing.assert_frame_equal(measurements.queue_time[["queue", "n", "p95_s"]], waits[["queue", "n", "p95_s"]])
    hours = measurements.load.set_index("what").loc["machine hours", "now"]
    assert hours * 3600 == pytest.approx(measurements.waste["machine_s"].sum())


@pytest.mark.long
def test_how_long_changes_take_to_show_can_be_computed_from_the_tables(month, monday):
    limits = monday[0].days_to_see
    (tests,) = limits["tests"].unique()
    builds = WEEK.history.of(month.builds, "finished_at")
    again = metrics.days_to_see(builds, metrics.failed, "pipeline", at="finished_at", tests=int(tests))
    own = limits[limits["of"] == "failures"].reset_index(drop=True)
    pd.testing.assert_frame_equal(own[list(again)], again)


@pytest.mark.long
def test_blocked_builds_are_counted_but_have_no_wall_time_and_no_end(month, monday):
    builds = month.builds
    measurements, _ = monday
    own = builds[builds["created_at"] < MONDAY]
    week = own[(own["finished_at"] >= MONDAY - pd.Timedelta("7D")) & (own["finished_at"] < MONDAY)]
    is_over = ~week["blocked"]
    passed = week[week["state"] == "passed"]
    minutes = (passed["finished_at"] - passed["created_at"]).dt.total_seconds()
    wall_time = measurements.wall_time.set_index("pipeline")
    ended = minutes[~passed["blocked"]].groupby(passed["pipeline"]).median()
    has_blocked = wall_time["n_censored"] > 0
    assert wall_time.loc[~has_blocked, "p50_s"].to_dict() == ended[~has_blocked].to_dict()
    assert (wall_time.loc[has_blocked, "p50_s"] > ended[has_blocked]).all()
    assert wall_time["n_censored"].sum() == passed["blocked"].sum() > 0
    assert measurements.load.set_index("what").loc["builds finished", "now"] == is_over.sum() < len(week)


@pytest.mark.long
def test_without_measurements_there_are_no_findings(monday, quiet):
    assert findings(quiet, WEEK) == []
    empty = {name for name, table in quiet.tables().items() if table.empty}
    assert empty == set(quiet.tables()) - {"load"}
    whole, _ = monday
    for name, table in quiet.tables().items():
        assert list(table) == list(getattr(whole, name)), name


# Wording of findings


@pytest.fixture(scope="module")
def quiet(small_report: Report) -> Measurements:
    """Return measurements without rows; tests replace tables of it."""
    return without_builds(small_report).measurements


def wall(**more: object) -> pd.DataFrame:
    row = {"pipeline": "web", "p50_s": 1260.0, "p50_before_s": 1020.0, "p50_change_s": 240.0, "p50_notable": True}
    row |= {"p50_change_low_s": 60.0, "p50_change_high_s": 360.0, "n": 70, "n_before": 80}
    return pd.DataFrame([row | {"p50_at_least_s": float("nan"), "p50_before_at_least_s": float("nan")} | more])


def rates(**more: object) -> pd.DataFrame:
    row = {"pipeline": "web", "rate": 0.8, "rate_before": 0.9, "change": -0.1, "low": -0.15, "high": -0.05}
    counts = dict.fromkeys(("n", "n_before", "passed", "passed_before", "failed", "failed_before"), 60)
    return pd.DataFrame([row | counts | {"notable": True} | more])


NOT = {"p50_notable": False}


def change(**more: object) -> pd.DataFrame:
    row = {"pipeline": "web", "notable": True, "p50_before_s": 600.0, "p50_after_s": 900.0, "p50_change_s": 300.0}
    row |= {"p50_change_low_s": 200.0, "p50_change_high_s": 400.0, "n_before": 90, "n_after": 40}
    at = pd.Timestamp("2026-10-19", tz="UTC")
    row |= {"at": at, "at_low": at, "at_high": at, "number_before": 7, "number_after": 9}
    return pd.DataFrame([row | more])


def failure_change(**more: object) -> pd.DataFrame:
    levels = {
        "rate_before": 0.1,
        "rate_after": 0.3,
        "rate_change": 0.2,
        "rate_change_low": 0.1,
        "rate_change_high": 0.3,
    }
    of_durations = [name for name in change() if name.startswith("p50")]
    return change(**(levels | more)).drop(columns=of_durations)


FASTER = {"p50_after_s": 500.0, "p50_change_s": -100.0}


def said(quiet: Measurements, **tables: pd.DataFrame) -> list[str]:
    return [one.text for one in findings(replace(quiet, **tables), WEEK)]


def test_slower_and_faster_pipelines_are_reported(quiet):
    assert said(quiet, wall_time=wall()) == [
        "The median wall time of passed builds of web is 21 min, before 17 min (4 min longer; interval 1 min to 6 min)."
    ]
    faster = wall(p50_s=780.0, p50_change_s=-240.0, p50_change_low_s=-360.0, p50_change_high_s=-60.0)
    (finding,) = findings(replace(quiet, wall_time=faster), WEEK)
    assert not finding.bad
    assert finding.text.endswith("13 min, before 17 min (4 min shorter; interval 1 min to 6 min).")
    assert said(quiet, wall_time=wall(**NOT)) == []
    assert "(4 min longer; interval at least 1 min)" in said(quiet, wall_time=wall(p50_change_high_s=np.nan))[0]


@pytest.mark.long
def test_a_change_point_is_reported_with_its_day_and_builds(quiet):
    assert said(quiet, wall_time=wall(**NOT), wall_time_changes=change()) == [
        "The median wall time of passed builds of web has been longer since about Mon 19 Oct 2026, "
        "between builds #7 and #9: 15 min, before 10 min."
    ]
    (text,) = said(quiet, wall_time=wall(**NOT), wall_time_changes=change(number_before=pd.NA))
    assert "since about Mon 19 Oct 2026: 15 min" in text
    (text,) = said(quiet, wall_time=wall(**NOT), wall_time_changes=change(at=BEFORE - pd.Timedelta("1D")))
    assert "since about Sun 11 Oct 2026" in text
    days = {"at_low": pd.Timestamp("2026-10-17", tz="UTC"), "at_high": pd.Timestamp("2026-10-20", tz="UTC")}
    (text,) = said(quiet, wall_time=wall(**NOT), wall_time_changes=change(**days))
    assert "since about Mon 19 Oct 2026 (17 Oct to 20 Oct), between" in text
    assert said(quiet, wall_time=wall(**NOT), wall_time_changes=change(notable=False)) == []


def explained(*rows: tuple[str, str | None, str | None, float, bool], **more: object) -> pd.DataFrame:
    """Return rows (kind, step, queue, change, notable) of `web`, each of 100 seconds before."""
    table = pd.DataFrame(rows, columns=["kind", "step", "queue", "change_s", "notable"])
    usual = {"pipeline": "web", "before_s": 100.0, "after_s": 100 + table["change_s"], "low_s": 0.0, "high_s": 0.0}
    usual["n_open"] = 0
    return table.assign(**(usual | more))


CAUSES = (
    ("run", "e2e", None, 189.0, True), ("queue", None, "macos", 48.0, True), ("run", "lint", None, 6.0, False),
)  # fmt: skip


@pytest.mark.long
def test_a_changed_pipeline_has_its_causes_and_replaces_its_steps(quiet):
    steps = pd.concat([wall(step="e2e", part="run"), wall(step="lint", part="run", pipeline="api")], ignore_index=True)
    tables = {"wall_time": wall(), "explanation": explained(*CAUSES), "step_time": steps}
    whole, step, waits = findings(replace(quiet, **tables), WEEK)
    assert whole.headline == "web is 4 min slower at the median"
    assert whole.why == "e2e +3 min 9 s (run), macos +48 s (queue), other +6 s; in all +4 min 3 s on average"
    assert whole.cost == "In this period, 70 passed builds took 4 h 43 min longer in all."
    assert whole.text == (
        f"{whole.headline}: {whole.why}. The median wall time of passed builds of web is 21 min, before 17 min "
        "(4 min longer; interval 1 min to 6 min); the mean is 9 min 3 s, before 5 min."
    )
    assert (step.subject, step.headline) == ("api: lint", "Step lint of api is slower, its builds not significantly")
    assert (waits.question, waits.subject) == ("waiting", "macos")
    assert waits.text == "Builds of web wait 48 s longer on average for agents of macos."
    dated, *_, waits = said(quiet, **tables | {"wall_time": wall(**NOT), "wall_time_changes": change()})
    assert waits == "Builds of web have waited 48 s longer on average for agents of macos since 19 Oct."
    assert dated.startswith("web has been 5 min slower at the median since 19 Oct: e2e +3 min 9 s (run), ")
    (both, *_) = findings(replace(quiet, **tables, wall_time_changes=change()), WEEK)
    assert (both.headline, both.since) == (whole.headline, change()["at"][0])  # the causes are those of the periods
    long = said(quiet, **tables | {"wall_time": wall(**NOT), "long_wall_time": wall()})[0]
    assert long.startswith("web is 4 min slower at the median in the last 28 days: ")
    unknown = explained(*((*row[:4], False) for row in CAUSES))
    (text, *_) = said(quiet, **tables | {"explanation": unknown})
    assert ": no change is significant; in all +4 min 3 s on average. The median" in text


def test_a_mean_that_does_not_follow_the_median_has_no_causes(quiet):
    shorter = explained(("run", "e2e", None, -5.0, True))
    (finding,) = findings(replace(quiet, wall_time=wall(), explanation=shorter), WEEK)
    assert (finding.headline, finding.why) == ("web is 4 min slower at the median", "")
    assert finding.text.endswith("(4 min longer; interval 1 min to 6 min); the mean changed by −5 s.")


@pytest.mark.long
def test_a_faster_pipeline_has_the_number_of_builds_that_have_not_ended(quiet):
    def headline(change: float, n_open: int) -> str:
        table = explained(("run", "e2e", None, change, True), n_open=n_open)
        (finding,) = findings(replace(quiet, wall_time=wall(p50_change_s=5 * change), explanation=table), WEEK)
        amount = format_change(change)
        assert finding.why == f"e2e {amount} (run); in all {amount} on average"
        return finding.headline

    assert headline(-48.0, 0) == "web is 4 min faster at the median"
    clause = "(2 builds have not ended and are not counted)"
    assert headline(-48.0, 2) == f"web is 4 min faster at the median {clause}"
    assert "(1 build has not ended and is not counted)" in headline(-48.0, 1)
    assert headline(48.0, 2) == "web is 4 min slower at the median"


@pytest.mark.long
def test_a_queue_that_contradicts_a_cause_is_not_reported(quiet):
    queue = wall(queue="macos").drop(columns="pipeline")
    p95 = {name.replace("p50", "p95"): queue[name] for name in queue if name.startswith("p50")}
    shorter = explained(("queue", None, "macos", -48.0, True))
    tables = {"wall_time": wall(p50_change_s=-240.0), "queue_time": queue.assign(**p95), "explanation": shorter}
    measurements = replace(quiet, **tables)
    waiting = [one for one in findings(measurements, WEEK) if one.question == "waiting"]
    assert [(one.text, one.bad) for one in waiting] == [
        ("Builds of web wait 48 s shorter on average for agents of macos.", False)
    ]
    row = reported(measurements.tables(), "queue_time").iloc[0]
    assert (row["p95_direction"], row["p50_direction"]) == ("", "")
    longer = replace(measurements, explanation=pd.concat([shorter, shorter.assign(change_s=9.0, pipeline="api")]))
    (waits,) = [one for one in findings(longer, WEEK) if one.question == "waiting"]
    assert waits.text.startswith("The 95th percentile of the queue time of jobs of macos is 21 min, before 17 min")


def test_a_step_that_contradicts_a_cause_compares_the_periods(quiet):
    step, since = wall(step="e2e", part="run", **NOT), change(step="e2e")
    for cause, direction in ((-48.0, ""), (48.0, "up")):
        causes = explained(("run", "e2e", None, cause, True))
        tables = replace(quiet, step_time=step, step_changes=since, explanation=causes).tables()
        (row,) = reported(tables, "step_time").to_dict("records")
        assert (row["p50_direction"], pd.notna(row["since"])) == (direction, direction != "")
        assert (row["p50_s"], row["n"]) == ((900.0, 40) if direction else (1260.0, 70))


@pytest.mark.long
def test_of_several_changes_only_the_last_still_holds(quiet):
    later = change(at=pd.Timestamp("2026-10-22", tz="UTC"), **FASTER)
    both = pd.concat([change(), later], ignore_index=True)
    (text,) = said(quiet, wall_time=wall(**NOT), wall_time_changes=both)
    assert "has been shorter since about Thu 22 Oct 2026" in text
    for level, n_findings in ((700.0, 0), (760.0, 1), (1200.0, 1)):  # of 600 to 900 seconds before
        then = later.assign(notable=False, p50_before_s=900.0, p50_after_s=level, p50_change_s=level - 900)
        both = pd.concat([change(), then], ignore_index=True)
        texts = said(quiet, wall_time=wall(**NOT), wall_time_changes=both)
        assert [text[-48:] for text in texts] == n_findings * [
            "26, between builds #7 and #9: 15 min, before 10 min."[-48:]
        ]


def test_a_change_that_lasts_is_reported_behind_one_that_was_undone(quiet):
    days = [pd.Timestamp(f"2026-10-{day}", tz="UTC") for day in (17, 20, 23)]
    levels = [(100.0, 200.0), (200.0, 300.0), (300.0, 210.0)]
    changes = [
        change(at=at, p50_before_s=before, p50_after_s=after, p50_change_s=after - before, notable=after > before)
        for at, (before, after) in zip(days, levels, strict=True)
    ]
    both = pd.concat(changes, ignore_index=True)
    (text,) = said(quiet, wall_time=wall(**NOT), wall_time_changes=both)
    assert "since about Sat 17 Oct 2026" in text


@pytest.mark.long
def test_a_difference_of_the_periods_is_reported_with_the_day_of_its_change(quiet):
    step = wall(step="e2e", part="run")
    (text,) = said(quiet, step_time=step, step_changes=change(step="e2e"))
    assert text == (
        "The median run time of step e2e of web is 21 min, before 17 min (4 min longer; interval 1 min to 6 min), "
        "since about Mon 19 Oct 2026."
    )
    (other_way,) = said(quiet, step_time=step, step_changes=change(step="e2e", **FASTER))
    assert "since" not in other_way
    both = pd.concat([wall(step="e2e", part="queue"), step.assign(**NOT)], ignore_index=True)
    (waits, ran) = said(quiet, step_time=both, step_changes=change(step="e2e"))
    assert waits.startswith("The median queue time of step e2e of web is 21 min")
    assert "since" not in waits
    assert "run time of step e2e of web has been longer since" in ran
    (whole,) = findings(replace(quiet, wall_time=wall(), wall_time_changes=change()), WEEK)
    assert whole.since == change()["at"][0]


@pytest.mark.long
def test_tables_date_the_changes_that_findings_report(quiet):
    for of_table, of_change, direction, is_dated in (
        ({}, {}, "up", True),  # both
        ({}, FASTER, "up", False),  # the periods differ, and the last change was in the other direction
        (NOT, FASTER, "down", True),  # only a change
        (NOT, {"notable": False}, "", False),
    ):
        tables = {"wall_time": wall(**of_table), "wall_time_changes": change(**of_change)}
        (row,) = reported(replace(quiet, **tables).tables(), "wall_time").to_dict("records")
        assert (row["p50_direction"], pd.notna(row["since"])) == (direction, is_dated)
        (*found,) = findings(replace(quiet, **tables), WEEK)
        wanted = [(direction == "up", is_dated)] if direction else []
        assert [(one.bad, one.since is not None) for one in found] == wanted
        if direction and of_table:  # the row has the levels of the change
            levels = (row["p50_before_s"], row["p50_s"], row["n_before"], row["n"])
            assert levels == (600, of_change["p50_after_s"], 90, 40)


def test_tables_have_the_failure_rates_of_the_changes_that_findings_report(quiet):
    tables = {"success": rates(notable=False), "failure_changes": failure_change()}
    (row,) = reported(replace(quiet, **tables).tables(), "success").to_dict("records")
    assert (row["passed_before"], row["n_before"], row["passed"], row["n"]) == (81, 90, 28, 40)
    assert (row["rate_before"], row["rate"], row["change"]) == pytest.approx((0.9, 0.7, -0.2))
    assert (row["low"], row["high"]) == pytest.approx((-0.3, -0.1))


@pytest.mark.long
def test_four_periods_show_what_two_do_not(quiet):
    long = wall(p50_s=1140.0, p50_change_s=120.0)
    (text,) = said(quiet, wall_time=wall(**NOT), long_wall_time=long)
    assert text == (
        "The median wall time of passed builds of web is 19 min in the last 28 days, before 17 min "
        "(2 min longer; interval 1 min to 6 min)."
    )
    for clearer in ({"wall_time": wall()}, {"wall_time": wall(**NOT), "wall_time_changes": change()}):
        (text,) = said(quiet, long_wall_time=long, **clearer)
        assert "28 days" not in text
    assert said(quiet, success=rates(notable=False), long_success=rates()) == [
        "The success rate of web is 80.0 % in the last 28 days, before 90.0 % "
        "(interval of the change −15.0 to −5.0 points)."
    ]
    assert said(quiet, long_success=rates()) == []  # it had no builds in the periods


@pytest.mark.long
def test_builds_and_steps_that_fail_more_often_are_reported(quiet):
    tables = {"success": rates(notable=False), "failure_changes": failure_change()}
    (finding,) = findings(replace(quiet, **tables), WEEK)
    assert (finding.bad, finding.question) == (True, "reliability")
    assert finding.text == (
        "Builds of web have failed more often since about Mon 19 Oct 2026, between builds #7 and #9: 30.0 %, before "
        "10.0 %."
    )
    (text,) = said(quiet, success=rates(), failure_changes=failure_change())
    assert text.endswith("(interval of the change −15.0 to −5.0 points), since about Mon 19 Oct 2026.")
    better = failure_change(step="e2e", rate_change=-0.2, rate_after=0.1, rate_before=0.3)
    steps = {"step_failures": rates(step="e2e", notable=False), "step_failure_changes": better}
    assert said(quiet, **steps)[0].startswith("The step e2e of web has failed less often since about Mon 19 Oct 2026")


def test_less_reliable_pipelines_and_steps_are_reported(quiet):
    assert said(quiet, success=rates()) == [
        "The success rate of web is 80.0 %, before 90.0 % (interval of the change −15.0 to −5.0 points)."
    ]
    worse = rates(step="e2e", rate=0.2, rate_before=0.1, change=0.1, low=0.05, high=0.15)
    (finding,) = findings(replace(quiet, step_failures=worse), WEEK)
    assert finding.bad
    assert finding.text == (
        "The failure rate of step e2e of web is 20.0 %, before 10.0 % (interval of the change 5.0 to 15.0 points)."
    )


def test_a_broken_branch_is_an_outage_and_not_a_finding(quiet):
    failed_at = pd.Series([MONDAY], dtype=UTC)
    outage = {"pipeline": "web", "branch": "main", "failed_at": failed_at, "failed": 2, "start_unknown": True}
    measurements = replace(quiet, outages=pd.DataFrame(outage | {"open": True}))
    assert findings(measurements, WEEK) == []
    assert describe_outages(measurements) == [
        "web has been broken on main since Mon 26 Oct 2026, 00:00 UTC or earlier: 2 failed builds, none passed."
    ]
    assert describe_outages(replace(measurements, outages=pd.DataFrame(outage | {"open": False}))) == []


def test_waiting_is_reported_once_per_queue(quiet):
    same = wall(queue="macos").drop(columns="pipeline")
    both = same.assign(
        **{name.replace("p50", "p95"): same[name] * 2 for name in same if name.endswith("_s")}, p95_notable=True
    )
    (text,) = said(quiet, queue_time=both)
    assert text.startswith("The 95th percentile of the queue time of jobs of macos is 42 min, before 34 min")
    only_median = both.assign(p95_notable=False)
    assert "The median queue time" in said(quiet, queue_time=only_median)[0]


def test_bad_findings_come_first_and_missing_names_are_marked(quiet):
    better = wall(pipeline=None, p50_change_s=-240.0, p50_change_low_s=-360.0, p50_change_high_s=-60.0)
    found = findings(replace(quiet, wall_time=pd.concat([better, wall()], ignore_index=True)), WEEK)
    assert [one.bad for one in found] == [True, False]
    assert "(no name)" in found[1].text


# Files


@pytest.fixture
def nights(month, monday, quiet, tmp_path) -> Path:
    """Return a folder with the files of a night with changes, and of one without any rows."""
    for night, measurements in enumerate((quiet, monday[0])):
        period = Period.last(MONDAY + pd.Timedelta(night, "D"), 7, "Europe/Berlin")
        found = tuple(findings(measurements, WEEK))
        content = Report(
            "acme", "ci", period.end, period, (), measurements, found, (), month.builds, month.jobs, BEFORE
        )
        for name, table in content.tables().items():
            if len(table.columns):
                (tmp_path / str(night)).mkdir(exist_ok=True)
                bf.save(tmp_path / str(night) / f"{name}.parquet", table)
    return tmp_path


@pytest.mark.long
def test_the_files_of_several_nights_are_one_table(nights, monday):
    names = {path.name for path in nights.glob("1/*")}
    assert {path.name for path in nights.glob("0/*")} == names
    assert "level_changes.parquet" in names
    for name in sorted(names):
        each = [bf.load(path) for path in sorted(nights.glob(f"*/{name}"))]
        first, second = (frame.dtypes.to_dict() for frame in each)
        assert first == second, name
        assert list(first)[:3] == ["period_start", "period_end", "as_of"]
        rows = sum(map(len, each))
        ((counted,),) = duckdb.sql(f"SELECT count(as_of) FROM '{nights}/*/{name}'").fetchall()
        table = dataset.dataset(sorted(map(str, nights.glob(f"*/{name}")))).to_table()
        assert counted == len(table) == len(pd.concat(each)) == rows
        assert set(map(str, table["period_end"].unique().to_pylist())) <= {
            "2026-10-25 23:00:00+00:00",
            "2026-10-26 23:00:00+00:00",
        }
    last = bf.load(nights / "1" / "level_changes.parquet")
    assert last["change"].tolist() == [one.change.change for one in monday[1]]


@pytest.mark.long
def test_the_table_of_level_changes_has_the_numbers_of_the_findings(monday):
    measurements, found = monday
    (speed,) = [one for one in found if one.question == "speed"]
    change = speed.change
    assert change is not None
    row = reported(measurements.tables(), "wall_time").iloc[0]
    assert (change.what, change.statistic, change.pipeline, change.is_worse) == ("wall time", "median", "api", True)
    assert (change.before, change.after, change.change) == tuple(
        row[f"p50_{name}s"] for name in ("before_", "", "change_")
    )
    assert change.low < change.change < change.high
    assert change.p < 0.001
    assert (change.n_before, change.n, change.since) == (row["n_before"], row["n"], speed.since)
    own = measurements.wall_time_changes.query("pipeline == 'api'").iloc[-1]
    assert (change.number_before, change.number_after) == (own["number_before"], own["number_after"])
    mean = measurements.explanation.query("pipeline == 'api'")["change_s"].sum()
    assert f", {change.n} passed builds took " in speed.cost
    assert f"took {format_duration(round(mean) * change.n)} longer in all" in speed.cost or abs(mean) < 1
    table = tabulate([change])
    assert table["since"].iloc[0] == speed.since
    assert table.dtypes.equals(tabulate([]).dtypes)
