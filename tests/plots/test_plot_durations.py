"""Trend, distribution, and queue times by hour."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh
from plot_frames import at, builds, jobs, labels, legend, marks, note, title

from buildframe import metrics, plots
from buildframe.errors import BadInput
from buildframe.plots import theme


def test_trend_shows_median_and_band_in_minutes():
    ax = plots.duration_trend(builds())
    assert marks(ax, "median")[0][1] == pytest.approx(10.5)  # of 1 to 20 minutes
    (band,) = (one for one in ax.collections if one.get_label().startswith("median to p95"))
    assert band.get_datalim(ax.transData).y1 == pytest.approx(19.05)
    assert title(ax) == "Wall time of 60 builds"
    assert note(ax) == ""
    assert "bucket not complete" not in legend(ax)


def test_trend_marks_the_bucket_that_is_not_over():
    frame = builds(fetched=2.5 * 1440)
    frame.loc[59, "finished_at"] = pd.NaT
    ax = plots.duration_trend(frame)
    assert [line.get_markerfacecolor() for line in ax.lines if line.get_label() == "bucket not complete"] == [(1,) * 4]
    assert len(marks(ax, "bucket not complete")) == 1
    assert title(ax) == "Wall time of 59 builds"
    assert note(ax) == "1 not finished"


def test_trend_marks_changes_and_their_intervals_in_the_zone():
    times = ["2026-03-10T23:00Z", "2026-03-09T23:00Z", "2026-03-12T23:00Z"]
    stamps = dict(zip(["at", "at_low", "at_high"], map(pd.Timestamp, times), strict=True))
    changes = pd.DataFrame([stamps | {"p50_change_s": 60.0}, stamps | {"p50_change_s": -1.0}])
    ax = plots.duration_trend(builds(), tz="Europe/Berlin", changes=changes)
    assert [one for one in legend(ax) if "since" in one] == ["longer since 11 Mar", "shorter since 11 Mar"]
    (line,) = (one for one in ax.lines if one.get_label() == "longer since 11 Mar")
    assert line.get_xdata()[0] == pd.Timestamp("2026-03-11")
    (span, _) = ax.patches
    assert span.get_width() == pytest.approx(3)
    assert legend(plots.duration_trend(builds(), changes=changes.iloc[:0])) == legend(plots.duration_trend(builds()))
    with pytest.raises(BadInput, match="no column 'at'"):
        plots.duration_trend(builds(), changes=pd.DataFrame({"x": [1]}))


def test_trend_has_no_band_where_there_are_too_few_and_a_bar_where_it_stands_alone():
    assert legend(plots.duration_trend(builds(each=19))) == ["median"]
    frame = builds()
    segments = [one.get_segments() for one in plots.duration_trend(frame).collections if hasattr(one, "get_segments")]
    assert segments == [[]]
    one_full_day = frame[(frame["created_at"].dt.day == 11) | (frame["created_at"].dt.minute < 5)]
    ax = plots.duration_trend(one_full_day)
    assert [len(one.get_segments()) for one in ax.collections if hasattr(one, "get_segments")] == [1]


def test_trend_says_why_there_is_no_median():
    ax = plots.duration_trend(builds(each=1))
    assert ax.texts[0].get_text() == "A median needs two finished builds in a bucket."


def test_trend_keeps_negative_durations_in_sight():
    frame = builds()
    frame["finished_at"] -= pd.Timedelta(1, "h")
    ax = plots.duration_trend(frame)
    assert ax.get_ylim()[0] < -40
    assert note(ax) == "60 negative"
    assert plots.duration_trend(builds()).get_ylim()[0] == 0


def test_trend_begins_its_days_in_the_zone_and_shows_its_clock():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("matplotlib").rcParams, "timezone", "Asia/Tokyo")
        ax = plots.duration_trend(builds(days=1), tz="Europe/Berlin")
        ax.figure.canvas.draw()
        (x, _) = marks(ax, "median")[0]
        assert "Europe/Berlin" in ax.get_xlabel()
        assert ax.xaxis.get_major_formatter().format_ticks([x]) == ["00:00"]


@pytest.mark.parametrize(("plot", "freq"), [(plots.duration_trend, "1D"), (plots.success_trend, "1D"),
                                            (plots.success_trend, "1h"), (plots.duration_trend, "1W")])  # fmt: skip
def test_one_bucket_has_an_axis_on_which_its_date_can_be_read(plot, freq):
    ax = plot(builds(days=1), freq=freq)
    low, high = ax.get_xlim()
    assert high - low == pytest.approx(6 * pd.Timedelta(freq) / pd.Timedelta(1, "D"))
    assert low < next(x for line in ax.lines for x in line.get_xdata(orig=False)) < high


def test_one_bucket_does_not_cut_an_outage_that_lasts_longer():
    ax = plots.success_trend(builds(days=1, fetched=20 * 1440), branch="main")
    assert ax.get_xlim()[1] >= max(bar.get_x() + bar.get_width() for bar in ax.patches) > ax.get_xlim()[0] + 20


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
    assert list(curve.get_xdata()) == [1, 1, 2, 3, 4]
    assert list(curve.get_ydata()) == [0, 0.25, 0.5, 0.75, 1]
    assert legend(ax) == ["4 rows, median 2.5 min"]
    assert ax.get_xlabel() == "wall time (minutes)"
    assert ax.get_xlim()[0] == 0


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
    assert ax.get_xlabel() == "queue time (minutes)"


def test_distribution_says_when_its_scale_is_logarithmic_and_keeps_zero_and_negative_durations():
    frame = jobs(40, started_at=at(*[k + (400 if k == 39 else -1 if k == 0 else 0) for k in range(40)]))
    ax = plots.distribution(frame, of=metrics.queue_time)
    assert ax.get_xscale() == "symlog"
    assert "logarithmic above 0.1" in ax.get_xlabel()
    assert ax.get_xlim()[0] < -1
    assert note(ax) == "1 negative"


def test_distribution_of_many_rows_draws_no_more_points_than_a_screen_has():
    n = 10_000
    ax = plots.distribution(builds(days=1, each=n, finished_at=at(*range(1, n + 1)), created_at=at(*[0] * n)))
    curve = ax.lines[0]
    assert len(curve.get_xdata()) == 2001
    assert list(curve.get_xdata()[[1, -1]]) == [1, n]
    assert np.allclose(curve.get_ydata()[1:], np.asarray(curve.get_xdata()[1:]) / n)


def cells(ax) -> dict[tuple[int, int], str]:
    return {(int(text.get_position()[1]), int(text.get_position()[0])): text.get_text()
            for text in ax.texts if text.get_transform() == ax.transData}  # fmt: skip


def test_hours_hold_the_percentile_over_all_weeks():
    n = 40
    week = [60 * 9 + k % 20 + (7 * 1440 if k >= 20 else 0) for k in range(n)]  # Tuesday, 9 h, two weeks
    frame = jobs(n, runnable_at=at(*week), started_at=at(*[moment + k for k, moment in enumerate(week)]))
    ax = plots.queue_times_by_hour(frame, q=0.5)
    assert cells(ax) == {(1, 9): "20"}  # of 0 to 39, 19.5
    assert "p50" in note(ax)
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
