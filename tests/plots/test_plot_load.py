"""Concurrency and queue depth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection, PolyCollection
from plot_frames import DAY, at, jobs, legend, note, title

from buildframe import plots


def of_queues(ax: plt.Axes) -> list[PolyCollection]:
    return [one for one in ax.collections if isinstance(one, PolyCollection)]


def peaks(ax: plt.Axes) -> list[float]:
    """Of each bin, as they are drawn."""
    (lines,) = (one for one in ax.collections if isinstance(one, LineCollection))
    return [float(line[0, 1]) for line in lines.get_segments()]


def areas(ax: plt.Axes) -> dict[str, float]:
    """Minutes times jobs of each area, by what the legend says."""
    bounds = {one.get_label(): one.get_paths()[0].vertices.T for one in of_queues(ax)}
    return {label: 1440 * abs(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1])) / 2 for label, (x, y) in bounds.items()}


def test_the_area_is_machine_time_of_each_queue():
    frame = jobs(4, queue=["a", "a", "b", "b"], finished_at=at(11, 12, 13, 24))
    found = areas(plots.concurrency(frame))
    assert found == pytest.approx({"a, max 2": 20, "b, max 2": 30})


def test_the_area_is_queue_time_of_each_queue():
    frame = jobs(3, queue=["a", "a", None], started_at=at(4, 3, None), finished_at=at(9, 9, None))
    found = areas(plots.queue_depth(frame))
    assert found == pytest.approx({"a, max 2": 6, "(no name), max 1": 11})  # which waits until it was fetched


@pytest.mark.slow
@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.lists(st.tuples(st.floats(0, 3000), st.floats(0.1, 900), st.sampled_from("abcdefghij")), min_size=1))
def test_means_keep_the_area_whatever_the_bin_width(runs):
    begin = [start for start, _, _ in runs]
    frame = jobs(len(runs), started_at=at(*begin), finished_at=at(*[start + long for start, long, _ in runs]),
                 runnable_at=at(*begin), queue=[queue for *_, queue in runs])  # fmt: skip
    found = areas(plots.concurrency(frame))
    plt.close("all")
    assert sum(found.values()) == pytest.approx(sum(long for _, long, _ in runs), rel=1e-3)
    assert len(found) == min(len(set(frame["queue"])), 7)


def test_six_queues_have_a_color_and_the_rest_share_one():
    frame = jobs(20, queue=[f"queue {k:02d}" for k in range(20)], finished_at=at(*[100 + 10 * k for k in range(20)]))
    ax = plots.concurrency(frame)
    assert [label.split(",")[0] for label in legend(ax)][:7] == [
        "queue 19", "queue 18", "queue 17", "queue 16", "queue 15", "queue 14", "14 other queues",
    ]  # fmt: skip


def test_a_queue_has_the_same_color_in_both_plots():
    frame = jobs(2, queue=["a", "b"], runnable_at=at(0, 0), started_at=at(9, 1), finished_at=at(10, 21))

    def colors(ax):
        return {one.get_label()[0]: tuple(one.get_facecolor()[0]) for one in of_queues(ax)}

    running, waiting = plots.concurrency(frame), plots.queue_depth(frame)
    assert legend(running)[0][0] == "b"
    assert legend(waiting)[0][0] == "a"
    assert colors(running) == colors(waiting)


def test_the_axis_has_the_bin_width_and_the_title_counts():
    ax = plots.concurrency(jobs(3))
    assert ax.get_ylabel() == "running jobs (mean of 1 s)"
    assert title(ax) == "Running jobs by queue"
    assert note(ax) == "3 jobs ran"
    week = jobs(2, started_at=at(0, 10_000), finished_at=at(1, 10_010))
    assert plots.concurrency(week).get_ylabel() == "running jobs (mean of 30 min)"
    assert plots.queue_depth(jobs(1)).get_ylabel() == "waiting jobs (mean of 1 s)"
    assert note(plots.queue_depth(jobs(1))) == "1 job became runnable"


def test_the_peak_of_each_bin_is_of_all_queues_at_one_time():
    frame = jobs(4, queue=["a", "a", "b", "b"], started_at=at(0, 0, 1, 5), finished_at=at(1, 1, 3, 6))
    ax = plots.concurrency(frame)  # two at once, then one, then none, then one
    assert "peak, max 2" in legend(ax)
    assert peaks(ax)[:5] == [2] * 5
    assert set(peaks(ax)) == {0, 1, 2}


def test_short_peaks_in_long_bins_are_drawn_and_in_the_legend():
    runs = [k * 1440.0 for k in range(30)] * 3
    ax = plots.concurrency(jobs(90, started_at=at(*runs), finished_at=at(*[one + 1 for one in runs])))
    assert ax.get_ylabel() == "running jobs (mean of 2 h)"
    assert max(peaks(ax)) == 3 <= ax.get_ylim()[1]
    assert legend(ax)[:2] == ["default, max 3", "peak, max 3"]


@pytest.mark.slow
@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.sampled_from("abc")), min_size=1, max_size=12))
def test_peaks_are_the_most_that_ran_at_any_moment(runs):
    begin, end = [start for start, _, _ in runs], [start + long for start, long, _ in runs]
    ax = plots.concurrency(jobs(len(runs), started_at=at(*begin), finished_at=at(*end), queue=[q for *_, q in runs]))
    (width,) = (each for each in (1, 5, 15) if f"(mean of {each} s)" in ax.get_ylabel())
    drawn = peaks(ax)
    plt.close("all")
    moments = [min(begin) + k * width // 60 for k in range(len(drawn))]
    running = [sum(start <= moment < start + long for start, long, _ in runs) for moment in moments]
    assert drawn == running


def test_what_may_be_missing_is_hatched():
    created = [0, 1000, 2000]
    frame = jobs(3, build_created_at=at(*created), runnable_at=at(*created), started_at=at(*[k + 1 for k in created]),
                 finished_at=at(*[k + 30 for k in created]))  # fmt: skip
    ax = plots.concurrency(frame)
    assert legend(ax)[-1] == "jobs of other builds may be missing"
    hatched = [patch.get_extents().transformed(ax.transData.inverted()) for patch in ax.patches if patch.get_hatch()]
    minutes = [((box.x0 - DAY) * 1440, (box.x1 - DAY) * 1440) for box in hatched]
    assert len(minutes) == 2
    assert minutes[0][0] < 1.1
    assert minutes[1][1] > 2029


def test_nothing_that_waited_is_said():
    ax = plots.queue_depth(jobs(2, started_at=at(0, 1)))
    assert ax.texts[0].get_text() == "No job was waiting."
