"""Small multiples, titles, and axes of durations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import QuadMesh

from buildframe import metrics, plots
from buildframe.plots.buckets import choose_frequency, find_middles
from buildframe.plots.panels import choose_pairs
from buildframe.plots.scope import describe_scope, format_days
from buildframe.plots.units import show_durations
from tests.plots.plot_frames import (
    at,
    builds,
    flaky_tests,
    flipping,
    heading,
    jobs,
    legend,
    note,
    overlaps,
    scope,
    segments,
    ticks,
    title,
)
from tests.refusals import refusal, wrong_messages


def of_pipelines(n: int, frame=builds, **options: object) -> pd.DataFrame:
    return pd.concat([frame(pipeline=f"p{k:02d}", **options) for k in range(n)], ignore_index=True)


IN_CELLS = [
    (plots.calendar, builds),
    (plots.commit_grid, flipping),
    (plots.concurrency, jobs),
    (plots.contention, lambda **options: jobs(9, started_at=at(*range(5, 14)), **options)),
    (plots.distribution, builds),
    (plots.duration_trend, builds),
    (plots.flake_scores, flipping),
    (plots.flips, flipping),
    (plots.queue_depth, jobs),
    (plots.queue_times_by_hour, lambda **options: jobs(40, **options)),
    (plots.step_times, lambda **options: jobs(20, name="lint", **options)),
    (plots.success_trend, builds),
    (plots.survival, jobs),
    (plots.time_ledger, segments),
    (plots.time_spent, jobs),
    (plots.trend, builds),
]
"""Each plot that has `col` and `row`, with frames of one pipeline."""


def with_column(frame: pd.DataFrame, **options: object) -> pd.DataFrame:
    return frame.assign(**options)


FIRST = ("calendar", "commit_grid", "duration_trend", "survival")
"""Those that are tested on every change: a table of days, one of commits, a line with points, and curves."""


@pytest.mark.parametrize(
    ("plot", "frame"),
    [
        pytest.param(*one, id=one[0].__name__, marks=[pytest.mark.long] * (one[0].__name__ not in FIRST))
        for one in IN_CELLS
    ],
)
def test_small_multiples_have_a_cell_for_each_group_and_one_header(plot, frame):
    two = pd.concat([with_column(frame(), pipeline=name) for name in ("api", "web")], ignore_index=True)
    if "id" in two:
        two["id"] += two["pipeline"]
    axes = plot(two, col="pipeline")
    figure = axes[0].figure
    figure.draw_without_rendering()
    assert [ax.get_title(loc="left") for ax in axes] == ["api", "web"]
    assert all(ax.axison for ax in axes)
    assert len(figure.legends) <= 1
    assert not any(ax.get_legend() for ax in axes)
    of_figure = figure.texts[0].get_text().replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")
    assert "pipeline" in of_figure.split(" · ")[0]
    assert of_figure.split(" · ")[1] == "2 pipelines"
    texts = [*figure.texts, *(figure.legends[0].get_texts() if figure.legends else [])]
    texts += [text for ax in axes for text in (heading(ax), *ticks(ax), ax.xaxis.label, ax.yaxis.label)]
    assert overlaps(texts) == []
    boxes = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
    assert min(box.x0 for box in boxes) >= -1
    assert max(box.y1 for box in boxes) <= figure.bbox.y1 + 1


def test_limits_are_those_of_all_cells_and_inner_labels_are_hidden():
    slow = builds(pipeline="slow", finished_at=at(*[k // 20 * 1440 + k % 20 + 90 for k in range(60)]))
    axes = plots.trend(pd.concat([builds(), slow, builds(pipeline="api")]), row="pipeline")
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in axes}) == 1
    assert axes[0].get_ylim()[1] > 90 * 60
    assert [ax.get_xlabel() != "" for ax in axes] == [False, False, True]
    axes[0].set_ylim(0, 60)
    assert axes[2].get_ylim() == (0, 60)


@pytest.mark.long
def test_col_and_row_are_a_matrix_and_its_empty_cells_say_so():
    frame = builds(pipeline=["api", "web"] * 30, branch=["main"] * 30 + ["topic", "main"] * 15)
    axes = plots.success_trend(
        frame[(frame["pipeline"] == "api") | (frame["branch"] == "main")], col="branch", row="pipeline"
    )
    assert axes.shape == (2, 2)
    assert [ax.get_title(loc="left") for ax in axes.flat] == ["api · main", "api · topic", "web · main", "web · topic"]
    assert [ax.axison for ax in axes.flat] == [True, True, True, False]
    assert [text.get_text() for text in axes[1, 1].texts] == ["No builds."]


def test_rows_and_columns_of_a_matrix_are_those_that_meet():
    alone = [(f"alone {k}", f"own {k}") for k in range(9)] * 9
    meeting = [(f"p{k}", f"b{m}") for k in range(3) for m in range(3)]
    rows, columns = (pd.Series(names) for names in zip(*alone, *meeting, strict=True))
    chosen, others = choose_pairs(rows, columns)
    assert [*chosen[:3], *others[:3]] == ["p0", "p1", "p2", "b0", "b1", "b2"]
    assert (len(chosen), len(others)) == (4, 4)  # a fourth column that has a row of its own


@pytest.mark.long
def test_the_groups_with_most_rows_have_cells_and_the_others_are_counted():
    small = builds(1, each=3, pipeline="small")
    many = pd.concat([of_pipelines(13, days=1, each=5), small], ignore_index=True)
    axes = plots.calendar(many, col="pipeline")
    assert len(axes) == 12
    assert "small" not in [ax.get_title(loc="left") for ax in axes]
    note = axes[0].figure.texts[1].get_text().replace("\n", " ")
    assert "2 more values of pipeline with fewer rows not shown" in note


def test_axes_of_the_user_and_small_multiples_exclude_each_other():
    _, ax = plt.subplots()
    assert wrong_messages([
        ("ax= is one Axes", lambda: plots.trend(builds(), ax, col="pipeline")),
        ("no column 'team'", lambda: plots.trend(builds(), row="team")),
        ("split= and by=", lambda: plots.distribution(builds(), by="pipeline", split="2026-03-11")),
        *(("is no key", lambda place=place, key=key: plots.trend(builds(), **{place: key})) for place in ("by", "col")
          for key in (["pipeline", "branch"], 5)),
    ]) == {}  # fmt: skip


def test_an_empty_frame_has_one_cell_that_says_so():
    axes = plots.distribution(builds().iloc[:0], col="pipeline")
    assert [ax.texts[0].get_text() for ax in axes] == ["No row has finished, so there is no duration."]


def test_small_multiples_have_the_width_of_the_user():
    with plt.rc_context({"figure.figsize": (4, 9)}):
        axes = plots.trend(of_pipelines(3), col="pipeline")
    assert axes[0].figure.get_figwidth() == 4
    assert len({ax.get_position().x0 for ax in axes}) == 1  # below each other


def test_a_title_of_the_user_replaces_that_of_the_plot():
    assert plots.time_spent(jobs(), title="Mine").get_title(loc="left") == "Mine"
    ax = plots.explain(segments(), segments(build_id="x"), title="Mine", allow_reversed=True)
    assert ax.get_title(loc="left") == "Mine"
    axes = plots.time_spent(jobs(), col="queue", title="Mine")
    assert axes[0].figure.texts[0].get_text() == "Mine"


@pytest.mark.long
def test_the_title_names_pipeline_branch_and_period():
    assert scope(plots.trend(builds())) == ["web", "main", "10 to 12 Mar 2026"]
    several = builds(pipeline=["api", "web", "docs"] * 20, branch=["main", "topic"] * 30)
    assert scope(plots.trend(several)) == ["3 pipelines", "2 branches", "10 to 12 Mar 2026"]
    assert scope(plots.time_spent(jobs())) == ["web", "10 Mar 2026"]
    assert title(plots.flaky_board(flaky_tests(2))) == "2 flaky tests, 3 instances"
    late = builds(created_at=at(*[1439] * 60))
    assert describe_scope(late, "Asia/Tokyo").endswith("11\N{NO-BREAK SPACE}Mar\N{NO-BREAK SPACE}2026")


def test_periods_leave_out_what_both_ends_share():
    periods = {
        ("2026-10-03", "2026-10-03"): "3 Oct 2026", ("2026-10-01", "2026-10-28"): "1 to 28 Oct 2026",
        ("2026-09-28", "2026-10-03"): "28 Sep to 3 Oct 2026",
        ("2025-12-28", "2026-01-03"): "28 Dec 2025 to 3 Jan 2026",
    }  # fmt: skip
    assert {ends: format_days(*map(pd.Timestamp, ends)) for ends in periods} == periods


def test_durations_have_round_ticks_of_one_unit():
    expected = {
        4: ["0", "0.5 s", "1 s"], 90: ["0", "15 s", "30 s"], 600: ["0", "2 min", "4 min"],
        5400: ["0", "15 min", "30 min"], 36_000: ["0", "2 h", "4 h"], 400_000: ["0", "1 d", "2 d"],
        6_138_780: ["0", "10 d", "20 d"],
    }  # fmt: skip
    first = {}
    for most in expected:
        figure, ax = plt.subplots(figsize=(9, 4))
        ax.set_ylim(0, most)
        show_durations(ax, "y")
        figure.draw_without_rendering()
        texts = [text.get_text() for text in ax.get_yticklabels()]
        assert len({text.split(" ")[-1] for text in texts if text != "0"}) == 1, texts
        assert 3 <= len(texts) <= 10, texts
        first[most] = texts[:3]
    assert first == expected


def test_ticks_follow_the_limits_and_logarithmic_axes_have_a_unit_for_each_tick():
    figure, ax = plt.subplots(figsize=(9, 4))
    show_durations(ax, "x")
    ax.set_xlim(-7200, 7200 * 3)
    figure.draw_without_rendering()
    assert "\N{MINUS SIGN}2 h" in [text.get_text() for text in ax.get_xticklabels()]
    ax.set_xlim(60, 75)
    figure.draw_without_rendering()
    assert [text.get_text() for text in ax.get_xticklabels()][:2] == ["60 s", "62 s"]
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(0, 1e6)
    show_durations(ax, "x")
    figure.draw_without_rendering()
    texts = [text.get_text() for text in ax.get_xticklabels()]
    assert {"0", "1 s", "1 min", "1 h", "1 d"} <= set(texts)


def test_buckets_are_the_shortest_of_which_most_have_enough_rows():
    hours = np.arange(0, 28 * 24, 0.5)
    times = at(*(60 * hours))
    assert choose_frequency(times, "UTC", 20) == "1D"
    assert choose_frequency(times, "UTC", 60) == "2D"
    assert choose_frequency(times, "UTC", 200) == "W-MON"
    assert choose_frequency(times.head(48 * 3), "UTC", 20) == "12h"
    assert choose_frequency(times.iloc[::48], "UTC", 20) == "W-MON"  # with five or more
    assert choose_frequency(times, "UTC", 20, times.index.to_series() % 2) == "1D"
    assert choose_frequency(times, "UTC", 20, times.index.to_series() % 3) == "2D"
    assert choose_frequency(times.iloc[:0], "UTC", 20) == "1D"


def test_the_middle_of_a_bucket_allows_for_its_length():
    starts = pd.Series(pd.date_range("2026-01-01", periods=3, freq="MS", tz="UTC"))
    assert find_middles(starts, "MS").dt.strftime("%m-%d %H").tolist() == ["01-16 12", "02-15 00", "03-16 12"]


def test_a_calendar_has_the_share_of_failures_of_each_day():
    ax = plots.calendar(builds(days=9, each=20))
    (mesh,) = (one for one in ax.collections if isinstance(one, QuadMesh))
    table = mesh.get_array()
    assert table.shape == (2, 7)
    assert np.ma.masked_invalid(table).count() == 9
    assert table[0, 1] == pytest.approx(0.1)  # Tuesday, 10 March
    assert {text.get_text() for text in ax.texts} >= {"10", "18"}
    assert [label.get_text() for label in ax.get_yticklabels()] == ["9 Mar", "16 Mar"]
    hours = plots.calendar(builds(), of=metrics.wall_time, tz="Asia/Tokyo")
    assert "10" in [text.get_text() for text in hours.texts]  # minutes
    assert title(hours) == "Median of wall time of 60 builds by day"


def test_a_calendar_has_the_number_of_builds_of_each_day():
    frame = builds(9, 20)
    ax = plots.calendar(frame[frame["number"] > 7])
    assert [text.get_text() for text in ax.texts if text.get_ha() == "right"] == ["13", *["20"] * 8]
    _, small = plt.subplots(figsize=(2, 1.6), layout="constrained")
    plots.calendar(frame[frame["number"] > 7], small)
    assert not [text for text in small.texts if text.get_ha() == "right"]
    _, low = plt.subplots(figsize=(8, 2), layout="constrained")
    plots.calendar(builds(80, 2), low)
    assert "share of builds that failed in percent, from 100 to 100; 2 builds a day" in note(low)


def test_a_calendar_draws_a_line_between_months():
    ax = plots.calendar(builds(days=30, each=2))
    (line,) = ax.lines
    assert list(zip(line.get_xdata(), line.get_ydata(), strict=True)) == [(0, 4), (2, 4), (2, 3), (7, 3)]  # 1 April


def test_the_commit_grid_has_the_newest_commits_first_and_the_worst_steps_at_the_top():
    frame = flipping(3, 6)
    frame.loc[frame["commit"].str.startswith("0000005"), "state"] = "failed"
    frame.loc[frame["commit"].str.startswith("0000005"), "exit_status"] = 1
    ax = plots.commit_grid(frame)
    (mesh,) = (one for one in ax.collections if isinstance(one, QuadMesh))
    assert mesh.get_array().tolist() == [[4, 5, 5, 5, 5, 5], [4, 5, 5, 5, 5, 5], [4, 5, 0, 5, 0, 5], [4, 0, 5, 0, 0, 5]]
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["all steps  (6)", "step 0  (6)", "step 1  (4)", "step 2  (3)"]
    assert ax.get_xticklabels()[0].get_text() == "10 Mar  0000005"
    assert legend(ax) == ["passed", "failed every time", "passed and failed (flip)"]
    crosses = next(line for line in ax.lines if line.get_marker() == "x")
    assert len(crosses.get_xdata()) == 15
    few = plots.commit_grid(frame, top=1, commits=2)
    assert "4 older commits not shown" in few.texts[-1].get_text()
    assert "commits=0" in refusal(plots.commit_grid, frame, commits=0)


def test_the_time_ledger_adds_up_to_the_mean_wall_time():
    two = [segments(10), segments(10, kind="queue"), segments(4, pipeline="web", kind="unknown")]
    ledger = pd.concat(two, ignore_index=True)
    ax = plots.time_ledger(ledger)
    sums = ledger.groupby("pipeline")["duration_s"].sum() / [10, 4]
    ends = {
        round(bar.get_y() + bar.get_height() / 2): bar.get_x() + bar.get_width() for one in ax.containers for bar in one
    }
    order = sums.sort_values()
    assert [ends[k] for k in range(2)] == pytest.approx(list(order))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["web  (4)", "api  (10)"]
    assert legend(ax) == ["run", "wait: agent", "unknown"]
    assert plots.time_ledger(ledger, by=None).get_yticklabels()[0].get_text() == "all builds  (10)"


def test_names_of_cells_keep_what_distinguishes_them():
    pipelines = [f"payments-platform-{name}-service-eu-west-1-production" for name in ("api", "web")]
    frame = pd.concat([builds(pipeline=name) for name in pipelines])
    axes = plots.trend(frame, col="pipeline")
    assert ["-api-" in axes[0].get_title(loc="left"), "-web-" in axes[1].get_title(loc="left")] == [True, True]


@pytest.mark.long
def test_rows_whose_duration_never_began_have_no_cell():
    never = jobs(4, queue=None, type="waiter", started_at=at(*[None] * 4), finished_at=at(*[None] * 4))
    axes = plots.trend(pd.concat([never, jobs(4)]), of=metrics.run_time, col="queue")
    assert [ax.get_title(loc="left") for ax in axes] == ["default"]


def test_the_first_cell_that_is_drawn_in_a_row_has_the_labels_of_the_axis():
    running = builds(pipeline="a", finished_at=at(*[None] * 60))
    axes = plots.duration_trend(pd.concat([running, builds(pipeline="b"), builds(pipeline="c")]), col="pipeline")
    assert [ax.axison for ax in axes] == [False, True, True]
    assert [bool(ax.get_ylabel()) for ax in axes] == [False, True, False]
    assert [any(text.get_text() for text in ax.get_yticklabels()) for ax in axes[1:]] == [True, False]


def test_the_note_names_a_cell_that_has_only_rows_of_groups_that_are_not_shown():
    many = pd.concat([jobs(8, pipeline="a"), jobs(2, pipeline="b", queue="macos"), jobs(2, pipeline="b", queue="win")])
    notes = [
        plots.trend(frame, of=metrics.run_time, by="pipeline", col="queue", top=1)[0].figure.texts[1].get_text()
        for frame in (many[many["queue"] != "win"], many)
    ]
    assert "1 pipeline value with fewer rows not shown, so no queue macos" in notes[0]
    assert "so no cell of 2 queue values" in notes[1]


def test_cells_of_a_calendar_have_the_same_weeks():
    late = builds(days=6, pipeline="late").assign(created_at=lambda rows: rows["created_at"] + pd.Timedelta(8, "D"))
    axes = plots.calendar(pd.concat([builds(days=14, pipeline="early"), late]), col="pipeline")
    assert len({ax.get_ylim() for ax in axes}) == 1
    places = [{text.get_text(): text.get_position()[1] for text in ax.texts if text.get_ha() == "left"} for ax in axes]
    same = set(places[0]) & set(places[1])
    assert {"18", "19"} <= same
    assert all(places[0][day] == places[1][day] for day in same)


def test_the_note_of_a_calendar_explains_its_dots():
    few = pd.concat([builds(days=2), builds(days=1, each=1, created_at=at(3 * 1440), finished_at=at(3 * 1440 + 5))])
    assert "dot: too few builds" in note(plots.calendar(few, of=metrics.wall_time))
    assert "dot" not in note(plots.calendar(builds(), of=metrics.wall_time))
