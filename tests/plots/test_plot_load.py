"""Concurrency and queue depth."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.patches import StepPatch

from buildframe import plots
from buildframe.plots.load import summarize_bins
from tests.plots.plot_frames import DAY, at, concurrency, jobs, legend, note, queue_depth, scope, title


def steps(ax: plt.Axes, label: str) -> list[float]:
    """The value of each bucket."""
    (patch,) = (one for one in ax.patches if isinstance(one, StepPatch) and one.get_label() == label)
    return [float(value) for value in patch.get_data().values]


def names(axes: np.ndarray) -> list[str]:
    return [ax.get_title(loc="left") for ax in axes]


def under(axes: np.ndarray) -> list[str]:
    """The line below the name of each cell."""
    return [next(text.get_text() for text in ax.texts if getattr(text, "xy", None) == (0, 1)) for ax in axes]


def test_each_queue_has_a_row_of_axes_and_those_with_most_jobs_come_first():
    frame = jobs(6, queue=["a", "b", "b", "b", "c", "c"], started_at=at(1, 2, 3, 4, 5, 6), finished_at=at(*[20] * 6))
    axes = plots.concurrency(frame)
    assert names(axes) == ["b", "c", "a"]
    assert [max(steps(ax, "peak")) for ax in axes] == [3, 2, 1]
    assert len({ax.get_xlim() for ax in axes}) == 1
    assert axes[0].figure.get_suptitle() == ""
    waiting = plots.queue_depth(frame, top=2)
    assert names(waiting) == ["b", "c"]
    assert any("1 queue value with fewer rows not shown" in text.get_text() for text in waiting[0].figure.texts)


def test_one_queue_has_one_axes():
    (ax,) = plots.concurrency(jobs(3))
    assert title(ax) == "Running jobs of queue default"
    assert scope(ax) == ["web", "10 Mar 2026"]


def test_one_queue_of_several_counts_its_own_jobs():
    frame = jobs(6, queue=["a", "b", "b", "b", "c", "c"], started_at=at(1, 2, 3, 4, 5, 6), finished_at=at(*[20] * 6))
    (ax,) = plots.concurrency(frame, top=1)
    assert title(ax) == "Running jobs of queue b"
    assert "3 jobs ran" in note(ax)
    assert note(ax).endswith("2 queue values with fewer rows not shown")


def test_all_queues_are_counted_together_on_the_axes_of_the_user():
    _, mine = plt.subplots()
    ax = plots.concurrency(jobs(4, queue=["a", "a", "b", "b"], started_at=at(1, 1, 1, 1)), mine)
    assert ax is mine
    assert max(steps(ax, "peak")) == 4


def test_the_note_has_the_bin_width_the_jobs_and_the_peak():
    ax = concurrency(jobs(3))
    assert ax.get_ylabel() == "jobs"
    assert note(ax) == "peak, mean and median of each 5 s; 3 jobs ran; peak 2; capacity 2 (most at once)"
    week = jobs(2, started_at=at(0, 10_000), finished_at=at(1, 10_010))
    assert "median of each 3 h; 2 jobs ran" in note(concurrency(week))
    assert "1 job became runnable" in note(queue_depth(jobs(1)))


def test_the_capacity_is_the_number_of_agents_if_it_is_fixed():
    frame = jobs(20, agent_id=["a", "b"] * 10)
    assert "capacity: 2 (agents)" in legend(concurrency(frame))
    assert "capacity: 2 (most at once)" in legend(concurrency(jobs(20)))
    assert "capacity: 2 (most at once)" in legend(concurrency(frame.drop(columns="agent_id")))
    lines = [line for line in concurrency(frame).lines if line.get_label().startswith("capacity")]
    assert [list(line.get_ydata()) for line in lines] == [[2, 2]]


def test_a_capacity_far_above_the_queue_is_not_drawn():
    many = jobs(9, started_at=at(*[8.5] * 9), finished_at=at(*[9.5] * 8, 60), runnable_at=at(*[8.4] * 9))
    few = many.assign(runnable_at=at(*[8.5] * 8, 8.0))
    assert "capacity: 9 (agents)" in legend(queue_depth(many))
    assert not [one for one in legend(queue_depth(few)) if "capacity" in one]


def changes(levels: list[tuple[float, int]]) -> pd.DataFrame:
    return pd.DataFrame({"at": at(*[minute for minute, _ in levels]), "running": [level for _, level in levels]})


def test_the_median_of_a_bin_is_weighted_by_time():
    edges = START_S + 60 * np.array([0.0, 10, 20, 30])
    steps_of = changes([(0, 1), (4, 5), (10, 2), (15.5, 9), (20, 0)])
    peaks, medians, means = summarize_bins(steps_of, "running", edges)
    assert peaks.tolist() == [5, 9, 0]
    assert medians.tolist() == [5, 2, 0]
    assert means.tolist() == pytest.approx([3.4, 5.15, 0])


START_S = DAY * 86400


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=9, unique_by=lambda one: one[0]))
def test_bins_have_the_peaks_and_medians_of_every_second(levels):
    ordered = [*sorted(levels), (60, 0)]
    edges = START_S + 60 * np.array([0.0, 20, 40, 60])
    each = np.zeros(60)
    for (minute, level), (end, _) in itertools.pairwise(ordered):
        each[minute:end] = level
    peaks, medians, means = summarize_bins(changes(ordered), "running", edges)
    for k in range(3):
        own = np.sort(each[20 * k : 20 * k + 20])
        assert peaks[k] == own[-1]
        assert own[9] <= medians[k] <= own[10]
        assert means[k] == pytest.approx(np.mean(own))


def test_short_peaks_in_long_bins_are_drawn():
    runs = [k * 1440.0 for k in range(30)] * 3
    ax = concurrency(jobs(90, started_at=at(*runs), finished_at=at(*[one + 1 for one in runs])))
    assert "of each 12 h" in note(ax)
    assert max(steps(ax, "peak")) == 3 <= ax.get_ylim()[1]
    assert max(steps(ax, "median")) == 0


def test_times_are_those_of_the_zone():
    ax = concurrency(jobs(3), tz="Asia/Tokyo")
    assert ax.get_xlabel() == "Asia/Tokyo"
    assert 24 * (ax.get_xlim()[0] - DAY) == pytest.approx(9, abs=0.1)


def test_what_may_be_missing_is_hatched():
    created = [0, 1000, 2000]
    frame = jobs(3, build_created_at=at(*created), runnable_at=at(*created), started_at=at(*[k + 1 for k in created]),
                 finished_at=at(*[k + 30 for k in created]))  # fmt: skip
    ax = concurrency(frame)
    assert legend(ax)[-1] == "jobs may be missing"
    hatched = [patch.get_extents().transformed(ax.transData.inverted()) for patch in ax.patches if patch.get_hatch()]
    minutes = [((box.x0 - DAY) * 1440, (box.x1 - DAY) * 1440) for box in hatched]
    assert len(minutes) == 2
    assert minutes[0][0] < 1.1
    assert minutes[1][1] > 2029


def test_nothing_that_waited_is_said():
    ax = queue_depth(jobs(2, started_at=at(0, 1)))
    assert ax.texts[0].get_text() == "No job was waiting."
