"""Objectives and rates: their tables in the file of limits, verdicts, numbers, page and summary."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from buildframe import metrics
from buildframe.report import page, read
from buildframe.report import plots as plots_module
from buildframe.report.content import Report, Verdict
from buildframe.report.measurements import Measurements, measure
from buildframe.report.objectives import Objective
from buildframe.report.plots import render_plots
from buildframe.report.thresholds import Thresholds, check_limits
from tests.refusals import wrong_refusals
from tests.report.child import stored

WHOLE = """
[objectives."jobs start"]
of = "queue_time"
within = "5m"
target = 0.95
by = "queue"

[objectives.fast]
of = "wall_time"
within = "1h"
target = 0.5
pipeline = "web"

[rates]
"*" = 0.01
macos = 0.08
"""


def file(folder: Path, text: str) -> Path:
    path = folder / "limits.toml"
    path.write_text(text)
    return path


def test_objectives_and_rates_are_read(tmp_path: Path) -> None:
    limits = Thresholds.read(file(tmp_path, WHOLE))
    assert limits.objectives == {
        "jobs start": Objective("queue_time", 300.0, 0.95, by="queue"),
        "fast": Objective("wall_time", 3600.0, 0.5, pipeline="web"),
    }
    assert limits.rates == {"*": 0.01, "macos": 0.08}
    alone = Thresholds.read(file(tmp_path, "[rates]\nmacos = 0\n"))
    assert alone == Thresholds({}, {}, {}, {}, {"macos": 0.0})


GOOD = '[objectives.a]\nof = "queue_time"\nwithin = "5m"\ntarget = 0.9\n'


BAD_TABLES = [
    ("[objectives]\na = 3\n", "[objectives] 'a' is 3, not a table. Write [objectives.'a'] above"),
    ("objectives = 3\n", "objectives is not a table. Write [objectives] above"),
    (GOOD.replace("within", "with_in"), "[objectives.'a']: 'with_in' is not a key of an objective. Did you mean"),
    (GOOD.replace('of = "queue_time"\n', ""), "[objectives.'a'] has no 'of'. Add one of 'queue_time', 'run_time'"),
    (GOOD.replace('within = "5m"\n', ""), "[objectives.'a'] has no 'within'. Add a duration above 0"),
    (GOOD.replace("target = 0.9\n", ""), "[objectives.'a'] has no 'target'. Add a share between 0 and 1"),
    (GOOD.replace("queue_time", "wait"), "[objectives.'a'] 'of' is 'wait'. Use one of 'queue_time'"),
    (GOOD.replace('"queue_time"', "3"), "[objectives.'a'] 'of' is 3. Use one of"),
    (GOOD.replace("5m", "5 minutes"), "'within' is '5 minutes'. Use a duration above 0"),
    (GOOD.replace('"5m"', "300"), "'within' is 300. Use a duration above 0"),
    (GOOD.replace("0.9", "95"), "'target' is 95. Use a share between 0 and 1"),
    (GOOD.replace("0.9", "1"), "'target' is 1. Use a share"),
    (GOOD.replace("0.9", "0.0"), "'target' is 0.0. Use a share"),
    (GOOD.replace("0.9", "true"), "'target' is True. Use a share"),
    (GOOD + 'by = "step"\n', "'by' is 'step'. Use 'queue' or 'pipeline'"),
    (GOOD + "queue = 3\n", "'queue' is 3. Use the name of a queue"),
    (GOOD.replace("queue_time", "wall_time") + 'by = "queue"\n', "[objectives.'a']: builds have no queue"),
    (GOOD.replace("queue_time", "wall_time") + 'queue = "macos"\n', "[objectives.'a']: builds have no queue"),
    ("[rates]\nmacos = -1\n", "[rates] 'macos' is -1. Use the price of a minute, at least 0"),
    ("[rates]\nmacos = '1'\n", "[rates] 'macos' is '1'. Use the price"),
    ("[rates]\nmacos = inf\n", "[rates] 'macos' is inf. Use the price"),
    ("[rates]\nmac.os = 1\n", "Quote names that contain a dot."),
]


def test_bad_tables_are_refused_by_file_table_and_value(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    cases = [(text, f"^{re.escape(str(path))}: (?s:.*){re.escape(words)}") for text, words in BAD_TABLES]
    assert wrong_refusals(cases, lambda text: Thresholds.read(file(tmp_path, text))) == {}


ROW = {
    "objective": "jobs start", "queue": "macos", "pipeline": None, "of": "queue_time", "within_s": 300.0, "target": 0.9,
    "n": 1000, "met": 850, "missed": 150, "undecided": 2, "share": 0.85, "low": 0.8, "high": 0.88, "budget_used": 1.5,
}  # fmt: skip
NAN = float("nan")


def verdict_of(row: dict[str, Any], target: float) -> Verdict:
    objective = Objective("queue_time", 300.0, target, by="queue")
    empty = {name: pd.DataFrame() for name in Measurements.__dataclass_fields__}
    tables = Measurements(**empty | {"objectives": pd.DataFrame([ROW | row])})
    [verdict] = check_limits(Thresholds({}, {}, {}, {"jobs start": objective}), tables)
    return verdict


VERDICTS: list[tuple[dict[str, Any], float, str, str]] = [
    ({}, 0.9, "over", "jobs start (macos): 85.0 % of 1,000 jobs met the objective, queue time within 5 min"),
    ({}, 0.9, "over", "(interval 80.0 % to 88.0 %; 150.0 % of the error budget used; 2 undecided)"),
    ({}, 0.9, "over", "; the limit is at least 90.0 %."),
    ({}, 0.88, "perhaps", "; the limit is at least 88.0 %, which lies within the interval."),
    ({}, 0.85, "within", "; the limit is at least 85.0 %."),
    ({"low": NAN, "high": NAN}, 0.9, "unknown", "(no interval; 150.0 %"),
    ({"low": NAN, "high": NAN}, 0.8, "within", "no interval"),
    (
        {"n": 0, "share": NAN, "low": NAN, "high": NAN},
        0.8,
        "unknown",
        "(macos): no job met or missed the objective",
    ),
    ({"undecided": 0}, 0.9, "over", "error budget used); the limit"),
    ({"queue": None}, 0.9, "over", "jobs start (no name): 85.0 %"),
]
"""Changes of the row, a target, and the status and some words of the verdict."""


def test_an_objective_is_missed_if_its_whole_interval_is_below_the_target() -> None:
    wrong = []
    for row, target, status, words in VERDICTS:
        verdict = verdict_of(row, target)
        if verdict.status != status or words not in verdict.text:
            wrong.append((row, target, verdict))
    assert wrong == []


def test_an_objective_without_rows_is_unknown() -> None:
    empty = Measurements(**{name: pd.DataFrame() for name in Measurements.__dataclass_fields__})
    tables = replace(empty, objectives=pd.DataFrame([ROW]))
    [verdict] = check_limits(Thresholds({}, {}, {}, {"other": Objective("queue_time", 60.0, 0.9)}), tables)
    assert verdict == Verdict("other", "unknown", "The objective other has no rows in this period.")
    queues = pd.DataFrame({"queue": ["default", "macos"]})
    of_queue = {"other": Objective("queue_time", 60.0, 0.9, queue="macoss")}
    [verdict] = check_limits(Thresholds({}, {}, {}, of_queue), replace(tables, queue_time=queues))
    assert verdict.text == "The objective other has no rows in this period. Did you mean macos?"


@pytest.fixture(scope="module")
def report(small_report: Report) -> Report:
    """A report with objectives and rates."""
    plain = small_report
    objectives = {
        "start": Objective("queue_time", 60.0, 0.99, by="queue"),
        "start | <b>fast</b>": Objective("queue_time", 86400.0, 0.01, queue="default"),
        "wall": Objective("wall_time", 3600.0, 0.5, pipeline="web"),
        "gone": Objective("run_time", 60.0, 0.5, queue="no such queue"),
    }
    limits = Thresholds({}, {}, {}, objectives, {"macos": 0.08, "docker": 0.02, "arm": 1.0})
    builds, jobs, since = plain.builds, plain.jobs, plain.builds["created_at"].min()
    measurements = measure(builds, jobs, plain.pipelines, None, plain.period, since=since,
                           objectives=objectives, rates=limits.rates)  # fmt: skip
    return replace(plain, measurements=measurements, verdicts=tuple(check_limits(limits, measurements)))


@pytest.fixture
def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the plots empty, because drawing takes most of the time."""
    monkeypatch.setattr(plots_module, "_draw_pngs", lambda _: ("", ""))


@pytest.mark.long
def test_the_numbers_are_those_of_the_metrics_for_rows_that_began_in_the_period(report: Report) -> None:
    table = report.measurements.objectives
    waited = report.period.of(report.jobs, "runnable_at")
    expected = metrics.objective(waited, metrics.queue_time, "60s", 0.99, by="queue")
    own = table[table["objective"] == "start"].reset_index(drop=True)
    pd.testing.assert_frame_equal(own[list(expected)], expected)
    assert own["pipeline"].isna().all()
    web = report.period.of(report.builds[report.builds["pipeline"] == "web"], "created_at")
    row = table[table["objective"] == "wall"].iloc[0]
    assert row["met"] == (metrics.wall_time(web) <= pd.Timedelta("1h")).sum() > 0
    assert row[["pipeline", "within_s", "target"]].tolist() == ["web", 3600.0, 0.5]
    cost = metrics.cost(report.period.of(report.jobs, "finished_at"), {"macos": 0.08, "docker": 0.02}, by="pipeline")
    pd.testing.assert_frame_equal(report.measurements.cost, cost)


@pytest.mark.long
def test_a_rate_is_that_of_the_key_or_id_of_a_queue_and_not_of_its_name_in_the_report(small_report: Report) -> None:
    plain, jobs = small_report, small_report.jobs
    is_default, is_web = jobs["queue"] == "default", jobs["pipeline"] == "web"
    ids = pd.Series("2" * 8, jobs.index, dtype="str").where(is_web, "1" * 8).where(is_default)
    apart = jobs.assign(queue_id=ids, cluster_id=ids)  # two clusters with a queue "default"
    rates = {"default": 60.0, "2" * 8: 120.0}
    cost = measure(plain.builds.iloc[:0], apart, plain.pipelines, None, plain.period, rates=rates).cost
    ended = plain.period.of(jobs[is_default & (jobs["type"] == "script")], "finished_at")
    hours = (ended["finished_at"] - ended["started_at"]).dt.total_seconds().groupby(ended["pipeline"]).sum() / 3600
    paid = cost.set_index("pipeline")["cost"] / 3600
    np.testing.assert_allclose(paid["docs"], hours["docs"])
    np.testing.assert_allclose(paid["web"], 2 * hours["web"])
    assert cost.attrs["unused_rates"] == []


@pytest.mark.long
def test_verdicts_name_each_group(report: Report) -> None:
    found = {verdict.subject: verdict.status for verdict in report.verdicts}
    assert {"start (default)", "start (macos)", "wall (web)", "gone"} <= {*found}
    assert found["start (macos)"] == "over"
    assert found["wall (web)"] == "within"
    assert found["gone"] == "unknown"


@pytest.mark.long
@pytest.mark.usefixtures("without_drawing")
def test_page_and_summary_show_objectives_and_cost(report: Report) -> None:
    html, text = page.render(report), page.summary(report)
    assert '<h3 id="objectives">' in html
    assert '<h3 id="cost">' in html
    assert "▲ missed" in html
    assert "start | &lt;b&gt;fast&lt;/b&gt;" in html
    assert "<b>fast" not in html + text
    assert "jobs of queues without a rate" in html
    assert "No job ran in these queues, which have a rate: arm." in html
    cost = report.measurements.cost
    total, wasted = f"{cost['cost'].sum():,.2f}", f"{cost['wasted_cost'].sum():,.2f}"
    assert f"Machine time cost {total}, of which {wasted} wasted" in text
    assert f"{total} in all, of which {wasted} wasted" in html
    first = html.split('<section class="answer"')[1].split("</section>")[0]
    assert f"Machine time cost {total}, of which {wasted} " in first
    is_met = [verdict.status == "within" and ":" in verdict.text for verdict in report.verdicts]
    assert first.count("✓ Met") == min(sum(is_met), 4) > 0
    rows = [line for line in text.splitlines() if line.startswith("| start")]
    assert len(rows) == len(report.measurements.objectives) - 1  # the one that is gone has no row; one is called wall
    assert any("| missed |" in row for row in rows)


@pytest.mark.long
def test_the_page_has_the_budget_of_the_worst_group_of_each_objective(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = render_plots(report)[4:]
    table = report.measurements.objectives
    starts = table[table["objective"] == "start"].set_index("queue")
    worst = str(starts["budget_used"].idxmax())
    captions = ["Objective start, queue " + worst, "Objective start | <b>fast</b>, queue default"]
    assert [plot.caption for plot in drawn] == [*captions, "Objective wall, pipeline web"]
    assert f"{starts.loc[worst, 'n']:,} jobs that met" in drawn[0].alt
    assert drawn[0].light != drawn[0].dark
    monkeypatch.setattr(plots_module, "LIGHT", plots_module.DARK)
    assert [plot.light for plot in render_plots(report)[4:]] == [plot.dark for plot in drawn]
    monkeypatch.setattr(plots_module, "_draw_pngs", lambda _: ("", ""))
    assert [plot.caption for plot in render_plots(report)[4:]] == [plot.caption for plot in drawn]


@pytest.mark.usefixtures("without_drawing")
def test_without_objectives_and_rates_the_page_has_neither(small_report: Report) -> None:
    plain = small_report
    html, text = page.render(plain), page.summary(plain)
    assert "Objective" not in html + text
    assert "achine time cost" not in html + text
    assert len(plain.measurements.objectives.columns) == len(plain.measurements.cost.columns) == 0


@pytest.mark.long
def test_a_store_is_reported_with_a_file_of_objectives(tmp_path: Path) -> None:
    content = read(stored()[0], 3, thresholds=file(tmp_path, WHOLE))
    assert {*content.measurements.objectives["objective"]} == {"jobs start", "fast"}
    assert np.isfinite(content.measurements.cost["cost"]).all()
    assert any(verdict.subject == "fast (web)" for verdict in content.verdicts)
