"""What the time went to: sentences, headline, tables and files agree, and add up as they are shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe.formatting import format_duration
from buildframe.report import measurements as measuring
from buildframe.report.content import Report
from buildframe.report.explanations import add_up, describe_causes, describe_mean, explain_wall_times
from buildframe.report.overview import draw_conclusions
from buildframe.report.page import render
from buildframe.report.page import summary as summarize
from buildframe.report.periods import Period
from buildframe.report.reported_changes import reported
from buildframe.report.tables import select_rows
from tests import worlds
from tests.report.reports import made

SIZES = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
AMOUNT = r"[+−]?(?:(?:\d+ (?:d|h|min|s))(?: (?=\d))?)+"


def seconds(amount: str) -> int:
    total = sum(int(count) * SIZES[unit] for count, unit in re.findall(r"(\d+) (d|h|min|s)", amount))
    return -total if amount.startswith("−") else total


def amounts(sentence: str) -> tuple[int, list[int]]:
    """Return the difference that a sentence states, and those of its causes."""
    much, way, causes = re.fullmatch(
        rf".* (?:is|has been) ({AMOUNT}) (slower|faster) on average[^:]*: (.*)", sentence
    ).groups()
    stated = seconds(much) * (1 if way == "slower" else -1)
    return stated, [seconds(amount) for amount in re.findall(rf" ({AMOUNT})(?: \(|, |$)", f" {causes}")]


def explanation(rows: list[tuple[float, float, bool]]) -> pd.DataFrame:
    """Steps that took so long before and after, and whether that is notable."""
    frame = pd.DataFrame(rows, columns=["before_s", "after_s", "notable"])
    frame["change_s"] = frame["after_s"] - frame["before_s"]
    steps = [f"s{number}" for number in range(len(rows))]
    frame = frame.assign(pipeline="api", kind="run", step=steps, queue=None, low_s=np.nan, high_s=np.nan)
    return frame.sort_values("change_s", key=abs, ascending=False, ignore_index=True)


SIDE = st.floats(-5, 20_000)


@settings(max_examples=30)
@given(st.lists(st.tuples(SIDE, SIDE, st.booleans()), min_size=1, max_size=15))
def test_rows_and_sentences_add_up_as_they_are_shown(rows: list[tuple[float, float, bool]]) -> None:
    table = explanation(rows)
    shown = add_up(table)
    total = shown.iloc[-1]
    for side in ("before_s", "after_s", "change_s"):
        assert shown[side].iloc[:-1].sum() == total[side]
        assert (shown[side] == shown[side].round()).all()
    assert abs(total["change_s"] - table["change_s"].sum()) <= 1
    assert (shown["after_s"] - shown["before_s"] == shown["change_s"]).all()
    assert shown["notable"].sum() == table["notable"].sum()
    causes = describe_causes(shown)
    if total["change_s"] and table["notable"].any():
        stated, each = amounts(f"api is {describe_mean(shown)} on average: {causes}")
        assert stated == sum(each) == total["change_s"]
        is_against = (shown.loc[shown["notable"], "change_s"].head(3) * total["change_s"] <= 0).all()
        assert causes.startswith("significant changes are in the other direction: ") == is_against
    else:
        assert total["change_s"] == 0 or causes == "no change is significant"
    assert (shown.iloc[:-2]["notable"] | (shown.iloc[:-2]["change_s"] != 0)).all()


def test_a_sentence_names_notable_causes_only() -> None:
    rows = [(100.2, 289.4, True), (50.0, 98.0, True), (20.0, 50.0, False), (30.0, 6.0, False), (5.0, 5.3, True)]
    table = explanation(rows)
    table.loc[table["step"] == "s1", ["kind", "step", "queue"]] = ["queue", None, "macos"]
    shown = add_up(table)
    assert describe_mean(shown) == "4 min 4 s slower"
    assert describe_causes(shown) == "s0 +3 min 9 s (run), macos +48 s (queue), s4 0 s (run), other +7 s"
    faster = explanation([(100.2, 289.4, True), (500.0, 98.0, False)]).assign(effect="time")
    assert describe_causes(add_up(faster)) == (
        "significant changes are in the other direction: s0 of api +3 min 9 s (run); other −6 min 42 s"
    )
    nameless = table.assign(notable=True, kind="setup")
    assert describe_causes(add_up(nameless)).startswith("setup +3 min 9 s, setup +48 s, setup +30 s, other −23 s")


# Reports of several worlds with planted changes, at a level at which other changes are significant, too

PLANTED = {"web": (600, 0), "api": (240, 300), "docs": (-20, 0), "mobile": (0, 900)}
"""Seconds by which the last job of each build runs and waits longer, by pipeline."""


def plant(builds: pd.DataFrame, jobs: pd.DataFrame, since: pd.Timestamp) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return builds and jobs whose last job that passed takes longer from a day on."""
    builds, jobs = builds.set_index("id", drop=False), jobs.copy()
    for pipeline, (runs, waits) in PLANTED.items():
        own = builds[(builds["pipeline"] == pipeline) & (builds["created_at"] >= since) & ~builds["blocked"]]
        ran = jobs[jobs["build_id"].isin(own["id"]) & jobs["queue"].notna() & jobs["finished_at"].notna()]
        last = ran.sort_values("finished_at").drop_duplicates("build_id", keep="last")
        last = last[(last["finished_at"] - last["started_at"]).dt.total_seconds() + runs > 1]
        jobs.loc[last.index, "started_at"] += pd.Timedelta(waits, "s")
        jobs.loc[last.index, "finished_at"] += pd.Timedelta(runs + waits, "s")
        builds.loc[last["build_id"], "finished_at"] += pd.Timedelta(runs + waits, "s")
    return builds.reset_index(drop=True), jobs


WORLDS = int(os.environ.get("WORLDS", "1"))


@pytest.fixture(scope="module", params=range(1, 1 + WORLDS))
def reports(request: Any) -> Iterator[list[Report]]:
    with worlds.sandbox(seed=request.param, builds=700, days=30) as ci, pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "NIGHTLY", 0.5)
        history, pipelines = ci.history(progress=False), ci.pipelines()
        builds, jobs = plant(*history, pd.Timestamp("2026-10-16", tz="UTC"))
        yield [
            made(builds, jobs, pipelines, None, days, as_of=as_of)
            for days, as_of in ((7, "2026-10-22T08:00Z"), (7, "2026-10-24T08:00Z"), (12, "2026-10-30T08:00Z"))
        ]


@pytest.mark.long
def test_planted_changes_are_named(reports: list[Report]) -> None:
    assert any("(run)" in one.why for report in reports for one in report.findings)
    for report in reports:
        causes = report.measurements.explanation.query("notable").groupby("pipeline", sort=False).head(1)
        for pipeline, change in causes[["pipeline", "change_s"]].itertuples(index=False):
            assert (change > 0) == (sum(PLANTED.get(pipeline, (change,))) > 0)


@pytest.mark.long
def test_sentences_headlines_tables_and_files_agree(reports: list[Report]) -> None:
    for report in reports:
        explained = report.measurements.explanation
        found = [one for one in report.findings if one.question == "speed"]
        changed = {one.subject: one for one in found if ":" not in one.subject}
        rows = pd.DataFrame(select_rows(report)["explanation"]["rows"])
        assert set(explained.loc[explained["notable"].astype(bool), "pipeline"]) <= set(changed)
        for subject, finding in changed.items():
            own = rows[rows["pipeline"] == subject]
            total = own.iloc[-1]["change_s"]
            if finding.why:
                assert finding.text.startswith(f"{finding.headline}: {finding.why}. ")
                causes, mean = re.fullmatch(r"(.*); in all (.*) on average", finding.why).groups()
                way = "slower" if finding.bad else "faster"
                stated, each = amounts(f"{subject} is {mean.lstrip('+−')} {way} on average: {causes}")
                assert seconds(mean) == stated == total
                assert finding.bad == (stated > 0)
                assert sum(each) in (0, stated)
                named = re.findall(r"([^,:()]+) [+−][^,]* \((\w+)\)", finding.why)
                notable = own.loc[own["notable"], ["name", "kind"]].itertuples(index=False, name=None)
                assert {(name.strip(), kind) for name, kind in named} <= set(notable)
            else:
                assert total == 0 or (total > 0) != finding.bad
            assert finding.change.statistic == "median"
            median = format_duration(abs(finding.change.change))
            assert re.search(rf" {median} (slower|faster) at the median( |$)", finding.headline)
        first = next(iter(found), None)
        (speed, *_) = draw_conclusions(report)
        if first is not None:
            assert speed.headline == first.headline


@pytest.mark.long
def test_means_are_those_of_the_builds_that_the_reported_change_compares(reports: list[Report]) -> None:
    for report in reports:
        builds = report.builds[(report.builds["state"] == "passed") & ~report.builds["blocked"]]
        opened = report.builds[report.builds["blocked"] | report.builds["state"].isin(["running", "scheduled"])]
        wall = (builds["finished_at"] - builds["created_at"]).dt.total_seconds()
        changed = reported(report.measurements.tables(), "wall_time").drop_duplicates("pipeline")
        compared = changed.set_index("pipeline")
        assert len(report.measurements.explanation)
        for pipeline, rows in report.measurements.explanation.groupby("pipeline"):
            own = builds["pipeline"] == pipeline
            start, cut, end = rows[["before_from", "after_from", "after_to"]].iloc[0]
            after = own & (builds["finished_at"] >= cut) & (builds["finished_at"] < end)
            before = own & (builds["finished_at"] >= start) & (builds["finished_at"] < cut)
            counts = compared.loc[pipeline, ["n_before", "n"]].tolist()
            assert [before.sum(), after.sum()] == counts
            assert rows["after_s"].sum() == pytest.approx(wall[after].mean())
            assert rows["before_s"].sum() == pytest.approx(wall[before].mean())
            own_open = opened[opened["pipeline"] == pipeline]
            assert rows["n_open"].unique().tolist() == [own_open["created_at"].between(start, end, "left").sum()]
            assert rows["change_s"].sum() == pytest.approx(wall[after].mean() - wall[before].mean())


BOTH_SIDES: list[tuple[dict[str, Any], tuple[int, int, int]]] = [
    ({}, (6, 3, 0)),  # the periods
    ({"is_compared": True, "since": 2}, (6, 3, 0)),
    ({"is_long": True}, (24, 12, 0)),
    ({"since": 9}, (12, 9, 5)),  # the history begins 12 days before its end
    ({"since": 5}, (9, 5, 2)),
    ({"since": 2}, (5, 2, 0)),
]
"""Changes of a row, and how many days before the end of the period both sides begin and end."""


@pytest.mark.long
def test_both_sides_of_the_reported_change_are_explained(reports: list[Report]) -> None:
    period = Period.last(pd.Timestamp("2026-10-30", tz="UTC"), 3)

    def ago(days: int) -> pd.Timestamp:
        return period.end - pd.Timedelta(days, "D")

    changes = pd.DataFrame({"pipeline": ["web"] * 3 + ["api"], "at": [ago(9), ago(5), ago(2), ago(7)]})
    for change, days in BOTH_SIDES:
        row = {"pipeline": "web", "p50_direction": "up", "p50_change_p": 0.5, "is_long": False, "is_compared": False}
        row |= change | {"since": ago(change["since"]) if "since" in change else pd.NaT}
        explained = explain_wall_times(reports[0].builds, reports[0].jobs, pd.DataFrame([row]), changes, period)
        spans = explained[["before_from", "after_from", "after_to"]].drop_duplicates()
        assert spans.to_numpy().tolist() == [[ago(each) for each in days]]


@pytest.mark.long
def test_findings_on_steps_and_queues_do_not_contradict_a_cause(reports: list[Report]) -> None:
    for report in reports:
        explained = report.measurements.explanation
        causes = explained[explained["notable"].astype(bool)]
        speed = [one.subject for one in report.findings if one.question == "speed"]
        assert not [subject for subject in speed if ":" in subject and subject.split(": ")[0] in speed]
        waiting = {one.subject: one.bad for one in report.findings if one.question == "waiting"}
        assert len(waiting) == sum(one.question == "waiting" for one in report.findings)
        for queue, rows in causes[causes["kind"] == "queue"].groupby("queue"):
            assert waiting[queue] in set(rows["change_s"] > 0)


@pytest.mark.long
def test_the_page_shows_what_the_time_went_to(reports: list[Report], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildframe.report.page.render_plots", lambda report: [])
    report = next(one for one in reports if one.measurements.explanation["notable"].any())
    page, markdown = render(report), summarize(report)
    assert "What the time went to" in page
    (speed, *_) = draw_conclusions(report)
    assert f'<bdi dir="ltr">{speed.headline}</bdi>' in page
    assert f"**Worse:** {speed.headline}: {speed.findings[0].why}. " in markdown
