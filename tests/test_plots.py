from __future__ import annotations

import io
import itertools
import warnings

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.container import BarContainer

from buildframe import plots
from buildframe.errors import BadInput

mpl.use("Agg")

UTC = "datetime64[us, UTC]"
START = pd.Timestamp("2026-03-10", tz="UTC")

UGLY = [
    r"$\frac{x$ y_{", "_^{}$$", "$", "\\", "%s {0} {", "<script>alert('x')</script>", "new\nline\ttab\x07bell",
    "\u202eright to left", "日本語テスト" * 20, "a" * 500, "  ", ":fire:", None,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def at(*minutes: float | None) -> pd.Series:
    return pd.Series([pd.NaT if m is None else START + pd.Timedelta(m, "min") for m in minutes], dtype=UTC)


def builds(days: int = 3, each: int = 20, fetched: float | None = None) -> pd.DataFrame:
    """`each` builds a day that take 1, 2, 3, ... minutes."""
    created = [day * 1440 + k for day in range(days) for k in range(each)]
    ended = [start + k % each + 1 for k, start in enumerate(created)]
    now = days * 1440 if fetched is None else fetched
    return pd.DataFrame(
        {"created_at": at(*created), "finished_at": at(*ended), "fetched_at": at(*[now] * len(created))}
    )


def jobs(n: int = 4, **columns: object) -> pd.DataFrame:
    """Jobs of one build, one after another: runnable at k, started at k + 1, finished at k + 3 minutes."""
    return pd.DataFrame(
        {
            "build_id": "b",
            "build_number": 41,
            "pipeline": "web",
            "build_created_at": at(*[0] * n),
            "type": "script",
            "name": [f"job {k}" for k in range(n)],
            "step_key": None,
            "state": "passed",
            "retried": False,
            "runnable_at": at(*range(n)),
            "started_at": at(*[k + 1 for k in range(n)]),
            "finished_at": at(*[k + 3 for k in range(n)]),
            "fetched_at": at(*[n + 10] * n),
            **columns,
        }
    )


def rendered(ax: plt.Axes) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the default font has no Japanese
        warnings.filterwarnings("ignore", "Matplotlib currently does not support")
        ax.figure.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
    return file.getvalue()


def legend(ax: plt.Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def labels(ax: plt.Axes) -> list[str]:
    return [text.get_text() for text in ax.get_yticklabels()]


def bars(ax: plt.Axes, label: str) -> list[tuple[float, float, int]]:
    """From, to and row of the bars of one kind."""
    found = [one for one in ax.containers if isinstance(one, BarContainer) and one.get_label() == label]
    return [
        (bar.get_x(), bar.get_x() + bar.get_width(), round(bar.get_y() + bar.get_height() / 2))
        for container in found
        for bar in container.patches
    ]


def marks(ax: plt.Axes, label: str) -> list[tuple[float, float]]:
    (line,) = (line for line in ax.lines if line.get_label() == label)
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(orig=False), line.get_ydata(orig=False), strict=True)]


ALL = [
    (plots.duration_trend, builds),
    (plots.step_times, lambda: pd.concat([jobs()] * 20, ignore_index=True)),
    (plots.timeline, jobs),
]


@pytest.mark.parametrize(("plot", "frame"), ALL)
def test_every_picture_draws_into_the_axes_given_and_leaves_settings_alone(plot, frame):
    figure, axes = plt.subplots(1, 2)
    before = dict(mpl.rcParams)
    assert plot(frame(), ax=axes[1]) is axes[1]
    assert dict(mpl.rcParams) == before
    assert not axes[0].has_data()
    assert plt.get_fignums() == [figure.number]
    rendered(axes[1])


@pytest.mark.parametrize(("plot", "frame"), ALL)
def test_every_picture_says_minutes_and_hides_nothing_under_its_legend(plot, frame):
    ax = plot(frame())
    rendered(ax)
    assert "minutes" in ax.get_xlabel() + ax.get_ylabel()
    assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1 - 1
    assert ax.get_title(loc="left")


@pytest.mark.parametrize(("plot", "frame"), ALL)
def test_nothing_to_show_is_said_in_words(plot, frame):
    whole = frame()
    stamps = ["created_at", "runnable_at", "started_at", "finished_at"]
    nulls = whole.assign(**{name: at(*[None] * len(whole)) for name in stamps if name in whole})
    for nothing in (whole.iloc[:0], nulls):
        ax = plot(nothing)
        rendered(ax)
        (said,) = ax.texts
        assert said.get_text().endswith(".")
        assert not ax.axison


@pytest.mark.parametrize(("plot", "frame"), ALL)
def test_the_order_of_rows_never_matters(plot, frame):
    assert rendered(plot(frame())) == rendered(plot(frame().iloc[::-1].reset_index(drop=True)))


@pytest.mark.parametrize(("plot", "frame"), ALL)
def test_missing_columns_and_naive_times_are_refused(plot, frame):
    whole = frame()
    with pytest.raises(BadInput, match="finished_at"):
        plot(whole.drop(columns="finished_at"))
    with pytest.raises(BadInput, match="no time zone"):
        plot(whole.assign(finished_at=whole["finished_at"].dt.tz_localize(None)))


def test_trend_shows_median_and_band_in_minutes():
    ax = plots.duration_trend(builds())
    assert marks(ax, "median")[0][1] == pytest.approx(10.5)  # of 1 to 20 minutes
    (band,) = (one for one in ax.collections if one.get_label().startswith("median to p95"))
    assert band.get_datalim(ax.transData).y1 == pytest.approx(19.05)
    assert ax.get_title(loc="left") == "Wall time of 60 builds"
    assert "bucket not over yet" not in legend(ax)


def test_trend_marks_the_bucket_that_is_not_over():
    frame = builds(fetched=2.5 * 1440)
    frame.loc[59, "finished_at"] = pd.NaT
    ax = plots.duration_trend(frame)
    assert [line.get_markerfacecolor() for line in ax.lines if line.get_label() == "bucket not over yet"] == ["white"]
    assert len(marks(ax, "bucket not over yet")) == 1
    assert ax.get_title(loc="left") == "Wall time of 59 builds, 1 not finished"


def test_trend_has_no_band_where_there_are_too_few_and_a_bar_where_it_stands_alone():
    assert legend(plots.duration_trend(builds(each=19))) == ["median"]
    frame = builds()
    segments = [one.get_segments() for one in plots.duration_trend(frame).collections if hasattr(one, "get_segments")]
    assert segments == [[]]
    one_full_day = frame[(frame["created_at"].dt.day == 11) | (frame["created_at"].dt.minute < 5)]
    ax = plots.duration_trend(one_full_day)
    assert [len(one.get_segments()) for one in ax.collections if hasattr(one, "get_segments")] == [1]


def test_trend_tells_why_there_is_no_median():
    ax = plots.duration_trend(builds(each=1))
    assert ax.texts[0].get_text() == "A median needs two finished builds in a bucket; none has as many."


def test_trend_keeps_negative_durations_in_sight():
    frame = builds()
    frame["finished_at"] -= pd.Timedelta(1, "h")
    ax = plots.duration_trend(frame)
    assert ax.get_ylim()[0] < -40
    assert ax.get_title(loc="left") == "Wall time of 60 builds, 60 negative"
    assert plots.duration_trend(builds()).get_ylim()[0] == 0


def test_steps_are_ordered_by_their_largest_value_and_counted():
    slow = jobs(20, name="slow", finished_at=at(*[k + 31 for k in range(20)]))
    waits = jobs(
        20, name="waits", started_at=at(*[k + 20 for k in range(20)]), finished_at=at(*[k + 21 for k in range(20)])
    )
    ax = plots.step_times(pd.concat([jobs(20, name="quick"), slow, waits]))
    assert labels(ax) == ["quick  (20)", "waits  (20)", "slow  (20)"]  # from the bottom
    assert [x for x, _ in marks(ax, "queue time")] == [1, 20, 1]
    assert [x for x, _ in marks(ax, "run time")] == [2, 1, 30]
    assert ax.get_title(loc="left") == "Queue time and run time of 3 steps"
    assert ax.get_xlim()[0] == 0
    early = jobs(20, started_at=at(*[k - 5 for k in range(20)]), name="early")
    assert plots.step_times(early).get_xlim()[0] <= -5


def test_steps_with_too_few_runs_are_hollow_and_the_rest_is_announced():
    ax = plots.step_times(pd.concat([jobs(30, name=[f"step {k % 10}" for k in range(30)])]), top=4)
    assert legend(ax) == ["queue time, too few for p95", "run time, too few for p95"]
    assert len(labels(ax)) == 4
    assert ax.get_title(loc="left") == "Queue time and run time of the slowest 4 of 10 steps"


def test_timeline_tells_waiting_from_running():
    ax = plots.timeline(jobs(2))
    assert bars(ax, "waiting for an agent") == [(0, 1, 0), (1, 2, 1)]
    assert bars(ax, "ran") == [(1, 3, 0), (2, 4, 1)]
    assert labels(ax) == ["job 0", "job 1"]
    assert ax.yaxis_inverted()
    assert ax.get_title(loc="left") == "web #41: 2 jobs"
    assert legend(ax) == ["waiting for an agent", "ran"]


def test_timeline_shows_failed_canceled_retried_and_open_jobs():
    frame = jobs(
        6,
        state=["failed", "timed_out", "canceled", "running", "scheduled", "waiting"],
        retried=[True, None, False, False, False, False],
        runnable_at=at(0, 1, 2, 3, 4, None),
        started_at=at(1, 2, None, 4, None, None),
        finished_at=at(3, 4, 9, None, None, None),
    )
    ax = plots.timeline(frame)
    assert bars(ax, "failed") == [(1, 3, 0), (2, 4, 1)]
    assert bars(ax, "canceled") == []
    assert bars(ax, "ran") == [(4, 16, 3)]  # up to fetched_at
    assert bars(ax, "waiting for an agent")[2:] == [(2, 9, 2), (3, 4, 3), (4, 16, 4)]
    assert marks(ax, "retried") == [(3, 0)]
    assert marks(ax, "not over yet") == [(16, 3), (16, 4)]
    assert legend(ax) == ["waiting for an agent", "ran", "failed", "retried", "not over yet"]
    assert ax.get_title(loc="left") == "web #41: 5 jobs, 1 more never runnable"
    hatches = {one.get_label(): one.patches[0].get_hatch() for one in ax.containers}
    assert hatches["failed"]
    assert not hatches["ran"]
    assert bars(plots.timeline(jobs(1, state="canceled")), "canceled") == [(1, 3, 0)]


def test_timeline_keeps_the_attempts_of_a_step_together():
    frame = jobs(4, name=["a 1/2", "b", "a 2/2", "c"], step_key=[None, None, None, "b"])
    assert labels(plots.timeline(frame)) == ["a 1/2", "a 2/2", "b", "c"]


def test_timeline_leaves_out_jobs_that_no_agent_runs_and_waits_that_end_before_they_begin():
    frame = jobs(3, type=["script", "waiter", "script"], started_at=at(-2, 2, 3))
    ax = plots.timeline(frame)
    assert labels(ax) == ["job 0", "job 2"]
    assert bars(ax, "waiting for an agent") == [(2, 3, 1)]
    assert bars(ax, "ran") == [(-2, 3, 0), (3, 5, 1)]
    assert ax.get_xlim()[0] <= -2


def test_one_job_does_not_fill_the_picture():
    (bar,) = (one.patches[0] for one in plots.timeline(jobs(1)).containers if one.get_label() == "ran")
    ax = bar.axes
    assert bar.get_height() < 0.3 * abs(np.subtract(*ax.get_ylim()))


def test_timeline_refuses_several_builds():
    frame = jobs(2, build_id=["b", "c"], build_number=[41, 42])
    with pytest.raises(BadInput, match=r'2 builds.*jobs\[jobs\["build_number"\] == 41\]'):
        plots.timeline(frame)


@pytest.mark.parametrize(("steps", "hidden"), [(5, False), (400, True)])
def test_timeline_of_many_jobs_is_labelled_by_step_without_overlap(steps, hidden):
    ax = plots.timeline(jobs(400, name=[f"step {k % steps} #{k}" for k in range(400)]))
    rendered(ax)
    extents = [text.get_window_extent() for text in ax.get_yticklabels()]
    assert all(below.y1 <= above.y0 for above, below in itertools.pairwise(extents))
    assert ("have no room" in ax.get_ylabel()) == hidden
    assert len(labels(ax)) == 5 or hidden
    assert ax.figure.get_figheight() <= 12
    assert labels(ax)[0] == f"step 0  ({400 // steps})"


@pytest.mark.parametrize("plot", [plots.step_times, plots.timeline])
def test_names_are_drawn_as_they_are(plot):
    names = UGLY if plot is plots.timeline else UGLY * 2
    ax = plot(jobs(len(names), name=names, pipeline="$\\frac{"))
    assert not any(text.get_parse_math() for text in [*ax.get_yticklabels(), ax._left_title])
    rendered(ax)
    shown = " ".join(labels(ax))
    assert r"$\frac{x$ y_{" in shown
    assert "new line tab\N{REPLACEMENT CHARACTER}bell" in shown
    assert "(no name)" in shown
    assert max(len(label) for label in labels(ax)) <= 40


def test_long_names_lose_their_middle():
    assert plots.shortened("a" * 20 + "b" * 20, 11) == "aaaaa…bbbbb"
    assert plots.shortened("a" * 20 + "b" * 20, 10) == "aaaaa…bbbb"
    assert plots.shortened("a" * 11, 11) == "a" * 11
    for width in range(5, 40):
        assert len(plots.shortened("abc" * 30, width)) == width


def test_numbers_on_the_axis_are_plain():
    ax = plots.timeline(jobs(1, finished_at=at(200_000)))
    rendered(ax)
    ticks = [text.get_text() for text in ax.get_xticklabels()]
    assert "90,000" in ticks
    assert np.all([("e" not in tick) for tick in ticks])
