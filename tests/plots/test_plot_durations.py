"""Trend, distribution, and queue times by hour."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import QuadMesh

from buildframe import metrics, plots
from buildframe.errors import BadInput
from buildframe.plots import theme
from tests.metrics.each_case import for_each
from tests.plots.plot_frames import DAY, at, builds, jobs, kinds, labels, legend, marks, note, overlaps, scope, title


def test_trend_shows_the_median_with_its_interval_the_95th_percentile_and_each_build():
    ax = plots.duration_trend(builds())
    assert [y for _, y in marks(ax, "median")] == pytest.approx([630] * 3)  # of 1 to 20 minutes
    assert [y for _, y in marks(ax, "p95")] == pytest.approx([19.05 * 60] * 3)
    assert [x - DAY for x, _ in marks(ax, "median")] == [0.5, 1.5, 2.5]  # the middle of each day
    assert points(ax, theme.GREEN) == 54
    assert points(ax, theme.RED) == 6
    assert title(ax) == "Wall time of 60 builds"
    assert scope(ax) == ["web", "main", "10 to 12 Mar 2026"]
    assert note(ax) == "point: a build; band along the line: 95 % interval of the median"
    assert legend(ax) == ["median", "p95", "passed", "failed"]


def points(ax: plt.Axes, color: str) -> int:
    """How many builds have this color; few have larger points."""
    return sum(
        len(line.get_xdata()) for line in ax.lines if line.get_marker() in (".", "o") and line.get_color() == color
    )


def test_the_interval_of_the_median_is_a_band():
    even = np.linspace(0, 3 * 1440 - 1, 300)
    frame = builds(3, 100, created_at=at(*even), finished_at=at(*(even + 1 + np.arange(300) % 20)))
    ax, numbers = plots.duration_trend(frame, freq="1D"), metrics.trend(frame)
    box = next(one for one in ax.collections if len(one.get_paths())).get_datalim(ax.transData)
    assert (box.y0, box.y1) == pytest.approx((numbers["p50_low_s"].min(), numbers["p50_high_s"].max()))


def test_buckets_are_as_long_as_the_95th_percentile_needs():
    days = np.arange(30).repeat(4) * 1440
    few = builds(1, 120, 30 * 1440, created_at=at(*days), finished_at=at(*(days + 5)))
    ax = plots.duration_trend(few)
    assert ax.get_xlabel() == "Week created (UTC)"
    assert len(marks(ax, "p95")) == 4  # not of the last two days
    assert plots.duration_trend(few, freq="1D").get_xlabel() == "Day created (UTC)"


def test_few_builds_that_are_much_longer_are_at_the_upper_end():
    frame = builds(5, 60)
    frame.loc[5, "finished_at"] += pd.Timedelta(9, "D")
    ax = plots.duration_trend(frame)
    assert ax.get_ylim()[1] == pytest.approx(1.25 * 3600, rel=0.1)
    assert "1 build beyond" in note(ax)
    assert [line.get_marker() for line in ax.lines if line.get_marker() == "^"] == ["^"]


def test_trend_marks_the_bucket_that_is_not_over():
    frame = builds(fetched=2.5 * 1440)
    frame.loc[59, "finished_at"] = pd.NaT
    ax = plots.duration_trend(frame)
    hollow = [line for line in ax.lines if line.get_marker() == "o" and line.get_markerfacecolor() == (1,) * 4]
    assert [len(line.get_xdata()) for line in hollow] == [1]
    assert "bucket not complete" in legend(ax)
    assert title(ax) == "Wall time of 59 builds"
    assert note(ax).endswith("; 1 not finished")


@pytest.mark.long
def test_trend_marks_changes_with_their_sizes_and_their_intervals_in_the_zone():
    times = ["2026-03-10T23:00Z", "2026-03-09T23:00Z", "2026-03-12T23:00Z"]
    stamps = dict(zip(["at", "at_low", "at_high"], map(pd.Timestamp, times), strict=True))
    changes = pd.DataFrame([stamps | {"p50_change_s": 60.0, "p50_before_s": 240.0},
                            stamps | {"p50_change_s": -1.0, "p50_before_s": np.nan}])  # fmt: skip
    ax = plots.duration_trend(builds(), tz="Europe/Berlin", changes=changes)
    assert "change of the median" in legend(ax)
    texts = [text for text in ax.texts if text.get_text()[0] in "+−"]
    assert [text.get_text() for text in texts] == ["+1 min (+25 %)", "−1.0 s"]
    assert overlaps(texts) == []
    assert [text.xy[0] - DAY for text in texts] == [1, 1]
    (span, _) = ax.patches
    assert span.get_width() == pytest.approx(3)
    assert legend(plots.duration_trend(builds(), changes=changes.iloc[:0])) == legend(plots.duration_trend(builds()))
    with pytest.raises(BadInput, match="no column 'at'"):
        plots.duration_trend(builds(), changes=pd.DataFrame({"x": [1]}))


@pytest.mark.long
def test_the_size_of_a_change_stays_legible_in_a_figure_that_is_darkened():
    frame = builds(20)
    frame.loc[200:, "finished_at"] += pd.Timedelta(30, "min")
    ax = plots.duration_trend(frame, changes=True)
    theme.darken(ax.figure, "#111111")
    (text,) = (text for text in ax.texts if text.get_text()[0] == "+")
    assert theme.luminance(text.get_bbox_patch().get_facecolor()[:3]) < 0.1 < theme.luminance(text.get_color())


def test_trend_finds_changes_on_request():
    frame = builds(20)
    frame.loc[200:, "finished_at"] += pd.Timedelta(30, "min")
    ax = plots.duration_trend(frame, changes=True)
    assert [text.get_text() for text in ax.texts if text.get_text()[0] in "+−"] == ["+30 min (+286 %)"]
    assert "change of the median" not in legend(plots.duration_trend(frame))


def test_trend_has_no_95th_percentile_where_there_are_too_few():
    assert legend(plots.duration_trend(builds(each=19))) == ["median", "passed", "failed"]
    frame = builds()
    one_full_day = frame[(frame["created_at"].dt.day == 11) | (frame["created_at"].dt.minute < 5)]
    assert len(marks(plots.duration_trend(one_full_day, freq="1D"), "p95")) == 1


@pytest.mark.long
def test_groups_have_a_color_each_and_cells_share_their_axes():
    two = pd.concat([builds(pipeline="web"), builds(pipeline="api", branch="trunk")], ignore_index=True)
    ax = plots.duration_trend(two, by="pipeline")
    assert legend(ax) == ["api", "web"]
    assert scope(ax) == ["2 pipelines", "2 branches", "10 to 12 Mar 2026"]
    cells = plots.duration_trend(two, col="pipeline")
    assert [one.get_title(loc="left") for one in cells] == ["api", "web"]
    assert len({(one.get_xlim(), one.get_ylim()) for one in cells}) == 1


def test_trend_is_the_percentile_of_each_group_per_day():
    frame = jobs(300, queue=["a", "b", "b"] * 100, runnable_at=at(*[1440 * (k % 5) for k in range(300)]),
                 started_at=at(*[1440 * (k % 5) + k % 3 + 1 for k in range(300)]))  # fmt: skip
    ax = plots.trend(frame, of=metrics.queue_time, by="queue", q=0.9)
    numbers = metrics.trend(frame, of=metrics.queue_time, by="queue", q=[0.9], at="runnable_at")
    for queue in "ab":
        expected = numbers.loc[numbers["queue"] == queue, "p90_s"]
        assert [y for _, y in marks(ax, queue)] == pytest.approx(list(expected))
    assert title(ax) == "p90 of queue time of 300 jobs by queue"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Day runnable (UTC)", "queue time, p90")
    few = plots.trend(frame.head(3), of=metrics.queue_time, q=0.9)
    assert few.texts[0].get_text() == "No bucket has the 10 rows that p90 needs."


def test_trend_shows_the_groups_with_most_rows_and_counts_the_others():
    frame = builds(pipeline=["a", "b", "b", "c", "c", "c"] * 10)
    ax = plots.trend(frame, by="pipeline", top=2)
    assert legend(ax)[:2] == ["b", "c"]
    assert "1 pipeline value with fewer rows not shown" in note(ax)


def test_groups_that_differ_much_share_a_logarithmic_axis():
    slow = builds(pipeline="slow")
    slow["finished_at"] += pd.Timedelta(1, "D")
    ax = plots.trend(pd.concat([builds(), slow], ignore_index=True), by="pipeline")
    assert ax.get_yscale() == "symlog"
    assert ax.get_ylabel() == "wall time, median, logarithmic"
    assert plots.trend(builds(), by="pipeline").get_yscale() == "linear"


def test_trend_says_why_there_is_no_median():
    ax = plots.duration_trend(builds(each=1))
    assert "no bucket has the two finished builds that a median needs" in note(ax)
    assert points(ax, theme.RED) == 3
    none = plots.duration_trend(builds(finished_at=at(*[None] * 60)))
    assert none.texts[0].get_text() == "No build has finished."


def test_trend_keeps_negative_durations_in_sight():
    frame = builds()
    frame["finished_at"] -= pd.Timedelta(1, "h")
    ax = plots.duration_trend(frame)
    assert ax.get_ylim()[0] < -40 * 60
    assert note(ax).endswith("60 negative")
    assert plots.duration_trend(builds()).get_ylim()[0] == 0


def test_trend_begins_its_days_in_the_zone_and_shows_its_clock():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("matplotlib").rcParams, "timezone", "Asia/Tokyo")
        ax = plots.duration_trend(builds(days=1), freq="1D", tz="Europe/Berlin")
        ax.figure.draw_without_rendering()
        (x, _) = marks(ax, "median")[0]
        assert "Europe/Berlin" in ax.get_xlabel()
        assert ax.xaxis.get_major_formatter().format_ticks([x]) == ["12:00"]


@for_each({
    "durations of a day": (plots.duration_trend, "1D"), "success of an hour": (plots.success_trend, "1h"),
    "durations of a week": (plots.duration_trend, "1W"),
})  # fmt: skip
def test_one_bucket_has_an_axis_on_which_its_date_can_be_read(case):
    plot, freq = case
    ax = plot(builds(days=1), freq=freq)
    low, high = ax.get_xlim()
    assert high - low == pytest.approx(6 * pd.Timedelta(freq) / pd.Timedelta(1, "D"))
    assert low < next(x for line in ax.lines for x in line.get_xdata(orig=False)) < high


def test_one_bucket_does_not_cut_an_outage_that_lasts_longer():
    ax = plots.success_trend(builds(days=1, fetched=20 * 1440), branch="main")
    ends = [path.get_extents().x1 for path in kinds(ax)["branch failing"].get_paths()]
    assert ax.get_xlim()[1] >= max(ends) > ax.get_xlim()[0] + 20


def test_few_builds_have_larger_points_and_no_line():
    one, many = (plots.duration_trend(builds(days=1, each=n)) for n in (1, 30))
    sizes = [max(line.get_markersize() for line in ax.lines if len(line.get_xdata())) for ax in (one, many)]
    assert sizes[0] > sizes[1]
    assert "median" not in legend(one)
    assert "median" in legend(many)


def test_one_is_no_plural():
    one = builds(days=1, each=1)
    assert legend(plots.distribution(one)) == ["1 row"]


def test_numbers_in_cells_stand_out_from_every_shade():
    n = 24 * 40
    up = [k % 24 * 60 + k // 24 for k in range(n)]
    ax = plots.queue_times_by_hour(jobs(n, runnable_at=at(*up), started_at=at(*[u + k % 24 for k, u in enumerate(up)])))
    (mesh,) = (one for one in ax.collections if isinstance(one, QuadMesh))
    mesh.update_scalarmappable()
    shades = mesh.get_facecolors()[[24 * day + hour for day, hour in cells(ax)]]
    inks = [text.get_color() for text in ax.texts if text.get_transform() == ax.transData]
    assert len(inks) == 24
    assert all(contrast(*pair) >= 4.5 for pair in zip(shades, inks, strict=True))


def contrast(a: object, b: object) -> float:
    """Of two colors, from 1 to 21 (WCAG 2.1)."""
    low, high = sorted(theme.luminance(one) for one in (a, b))
    return (high + 0.05) / (low + 0.05)


def test_luminance_is_that_of_the_guidelines():
    assert theme.luminance("white") == pytest.approx(1)
    assert contrast("#767676", "white") == pytest.approx(4.54, abs=0.01)  # the lightest gray that passes AA on white


def test_distribution_is_the_share_that_took_at_most_so_long():
    ax = plots.distribution(builds(days=1, each=4))
    (curve,) = (line for line in ax.lines if line.get_label().startswith("4 rows"))
    assert list(curve.get_xdata()) == [60, 60, 120, 180, 240]
    assert list(curve.get_ydata()) == [0, 0.25, 0.5, 0.75, 1]
    assert legend(ax) == ["4 rows, median 2 min 30 s"]
    assert ax.get_xlabel() == "wall time"
    assert ax.get_xlim()[0] == 0


@pytest.mark.long
def test_distribution_puts_a_row_at_the_moment_of_the_split_after_it():
    frame = builds(days=2, each=20)
    frame.loc[[3, 25, 26], "finished_at"] = pd.NaT
    ax = plots.distribution(frame, split="2026-03-11")
    assert legend(ax) == [
        "before 2026-03-11: 19 rows, median 11 min; 1 not seen to end",
        "from 2026-03-11: 18 rows, median 12 min; 2 not seen to end",
    ]
    assert "before 2026-03-11 00:01 UTC: 20 rows" in legend(plots.distribution(frame, split="2026-03-11T00:01Z"))[0]
    assert len(legend(plots.distribution(frame, split="2027-01-01"))) == 1
    with pytest.raises(BadInput, match="split"):
        plots.distribution(frame, split="2026-03-11T00:00:00")


def test_distribution_of_any_duration_by_any_moment():
    frame = jobs(30).assign(ran=lambda frame: metrics.run_time(frame))
    assert legend(plots.distribution(frame, of="ran")) == ["30 rows, median 2 min"]
    ax = plots.distribution(frame, of=metrics.queue_time, split="2026-03-10", at="build_created_at")
    assert legend(ax) == ["from 2026-03-10: 30 rows, median 1 min"]
    assert ax.get_xlabel() == "queue time"


def test_distribution_says_when_its_scale_is_logarithmic_and_keeps_zero_and_negative_durations():
    frame = jobs(40, started_at=at(*[k + (400 if k == 39 else -1 if k == 0 else 0) for k in range(40)]))
    ax = plots.distribution(frame, of=metrics.queue_time)
    assert ax.get_xscale() == "symlog"
    assert ax.get_xlabel() == "queue time, logarithmic"
    assert ax.get_xlim()[0] < -60
    assert note(ax) == "1 negative"


def test_distribution_of_many_rows_draws_no_more_points_than_a_screen_has():
    n = 10_000
    ax = plots.distribution(builds(days=1, each=n, finished_at=at(*range(1, n + 1)), created_at=at(*[0] * n)))
    curve = ax.lines[0]
    assert len(curve.get_xdata()) == 2001
    assert list(curve.get_xdata()[[1, -1]]) == [60, 60 * n]
    assert np.allclose(curve.get_ydata()[1:], np.asarray(curve.get_xdata()[1:]) / 60 / n)


def cells(ax) -> dict[tuple[int, int], str]:
    return {(int(text.get_position()[1]), int(text.get_position()[0])): text.get_text()
            for text in ax.texts if text.get_transform() == ax.transData}  # fmt: skip


@pytest.mark.long
def test_hours_hold_the_percentile_over_all_weeks():
    n = 40
    week = [60 * 9 + k % 20 + (7 * 1440 if k >= 20 else 0) for k in range(n)]  # Tuesday, 9 h, two weeks
    frame = jobs(n, runnable_at=at(*week), started_at=at(*[moment + k for k, moment in enumerate(week)]))
    ax = plots.queue_times_by_hour(frame, q=0.5)
    assert cells(ax) == {(1, 9): "20"}  # of 0 to 39, 19.5
    assert note(ax).startswith("cell: median in minutes")
    assert cells(plots.queue_times_by_hour(frame, tz="Europe/Berlin")) == {(1, 10): "37"}
    assert cells(plots.queue_times_by_hour(frame, tz="America/Los_Angeles")) == {
        (1, 2): "37"
    }  # after their clocks change
    assert labels(ax)[1] == "Tuesday"
    with pytest.raises(BadInput, match="tz="):
        plots.queue_times_by_hour(frame, tz="Mars")


def test_hours_with_too_few_jobs_are_dots_and_those_that_never_started_are_counted():
    frame = jobs(43, runnable_at=at(*[0] * 40, 90, 300, 301), started_at=at(*[2] * 40, 91, None, None))
    ax = plots.queue_times_by_hour(frame)
    assert cells(ax) == {(1, 0): "2.0"}
    (dots,) = (line for line in ax.lines if line.get_marker() == ".")
    assert list(zip(dots.get_xdata(), dots.get_ydata(), strict=True)) == [(1.5, 1.5), (5.5, 1.5)]
    assert title(ax) == "Queue time of 41 jobs by hour and weekday"
    assert note(ax) == "cell: p95 in minutes, · = unknown; 2 never started"
    few = plots.queue_times_by_hour(frame.head(3))
    assert few.texts[0].get_text() == "No hour of the week has enough jobs for a percentile of 0.95."


@pytest.mark.long
def test_a_first_bucket_inside_which_builds_begin_is_not_complete_and_its_point_is_where_builds_are():
    late = builds(days=13).assign(created_at=lambda rows: rows["created_at"] + pd.Timedelta(3, "D"))
    for plot, label in (
        (plots.duration_trend, "median"),
        (plots.success_trend, "success rate"),
        (plots.trend, "median"),
    ):
        drawn = [plot(frame, freq="W-TUE") for frame in (late, builds(days=16, fetched=21 * 1440))]
        points = [
            next(x for line in ax.lines if line.get_label() == label for x in line.get_xdata(orig=False))
            for ax in drawn
        ]
        assert points[0] - DAY == pytest.approx(5)
        assert points[1] - DAY == pytest.approx(3.5)
        assert ["bucket not complete" in legend(ax) for ax in drawn] == [True, False], plot


def test_a_bucket_begins_at_its_start_if_rows_pause_as_long_elsewhere():
    nights = builds(days=4).assign(
        created_at=lambda rows: rows["created_at"] + pd.Timedelta(9, "h"), fetched_at=at(*[9999] * 80)
    )
    assert "bucket not complete" not in legend(plots.duration_trend(nights, freq="1D"))


def test_the_legend_names_the_interval_of_the_time_of_a_change():
    frame = builds(20)
    frame.loc[200:, "finished_at"] += pd.Timedelta(30, "min")
    ax = plots.duration_trend(frame, changes=True)
    assert "when (95 % interval)" in legend(ax)
    assert "when (95 % interval)" not in legend(plots.duration_trend(frame))
    assert "band along the line: 95 % interval of the median" in note(ax)
