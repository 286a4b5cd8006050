"""Step times, and where the machine time goes."""

from __future__ import annotations

import pandas as pd
import pytest

from buildframe import plots
from buildframe.errors import BadInput
from tests.plots.plot_frames import at, jobs, labels, legend, marks, note, title


def test_steps_are_ordered_by_their_largest_value_and_counted():
    slow = jobs(20, name="slow", finished_at=at(*[k + 31 for k in range(20)]))
    waits = jobs(
        20, name="waits", started_at=at(*[k + 20 for k in range(20)]), finished_at=at(*[k + 21 for k in range(20)])
    )
    ax = plots.step_times(pd.concat([jobs(20, name="quick"), slow, waits]))
    assert labels(ax) == ["quick  (20)", "waits  (20)", "slow  (20)"]  # from the bottom
    assert [x for x, _ in marks(ax, "queue time")] == [60, 1200, 60]
    assert [x for x, _ in marks(ax, "run time")] == [120, 60, 1800]
    assert title(ax) == "Queue time and run time of 3 steps"
    assert ax.get_xlim()[0] == 0
    early = jobs(20, started_at=at(*[k - 5 for k in range(20)]), name="early")
    assert plots.step_times(early).get_xlim()[0] <= -300


@pytest.mark.long
def test_steps_with_too_few_runs_are_hollow_and_the_rest_is_announced():
    frame = jobs(60, name=[f"step {k % 10}" for k in range(60)])
    ax = plots.step_times(frame, top=4)
    assert legend(ax) == ["queue time, p95 unknown", "run time, p95 unknown"]
    assert len(labels(ax)) == 4
    assert title(ax) == "Queue time and run time of the slowest 4 of 10 steps"
    rare = pd.concat([frame, jobs(2, name="rare", finished_at=at(9000, 9000))])
    assert "rare  (2)" not in labels(plots.step_times(rare))
    assert note(plots.step_times(rare)) == "marker: median; bar: up to p95; 1 step with fewer than 5 runs not shown"
    assert "rare  (2)" in labels(plots.step_times(rare, min_runs=1))
    assert plots.step_times(jobs(2, name="a")).texts[0].get_text() == "No step has 5 runs."
    with pytest.raises(BadInput, match="min_runs=0"):
        plots.step_times(frame, min_runs=0)


def test_time_spent_ranks_steps_by_their_sum_with_shares_that_add_up():
    often = jobs(30, name="often")
    long = jobs(3, name="long", finished_at=at(31, 32, 33))
    still = jobs(2, name="still", state="running", finished_at=at(None, None))
    ax = plots.time_spent(pd.concat([often, long, still], ignore_index=True))
    assert labels(ax) == ["often  (30)", "long  (3)"]  # from the bottom
    assert [bar.get_width() for bar in ax.patches] == [3600, 5400]
    assert [text.get_text() for text in ax.texts if text.get_text().endswith("%")] == ["40.0 %", "60.0 %"]
    assert title(ax) == "2 h 30 min of machine time by step"
    assert note(ax) == "33 runs of 2 steps, all attempts; 2 still running"


def test_the_bars_of_time_spent_are_divided_by_a_key():
    frame = jobs(8, name=["a", "a", "a", "b"] * 2, queue=["x", "y", None, "x"] * 2)
    ax = plots.time_spent(frame, by="queue")
    assert legend(ax) == ["(no name)", "x", "y"]
    assert title(ax) == "16 min of machine time by step and queue"
    by_label = {one.get_label(): [bar.get_width() for bar in one] for one in ax.containers}
    assert by_label == {"(no name)": [0, 240], "x": [240, 240], "y": [0, 240]}


def test_time_spent_says_the_share_of_what_it_does_not_show():
    ax = plots.time_spent(jobs(40, name=[f"step {k % 10}" for k in range(40)]), top=4)
    assert len(labels(ax)) == 4
    assert note(ax) == "40 runs of 10 steps, all attempts; the 6 steps not shown: 60.0 %"


def test_time_spent_keeps_negative_runs_in_its_sums_and_counts_them():
    ax = plots.time_spent(jobs(4, finished_at=at(2, 4, 5, 0), name="a"))
    assert ax.patches[0].get_width() == pytest.approx(60 * (1 + 2 + 2 - 4))
    assert note(ax).endswith("1 negative")
    assert plots.time_spent(jobs(2, finished_at=at(0, 0))).get_xlim()[0] < -60


def test_steps_of_several_pipelines_are_apart():
    frame = jobs(40, name="lint", pipeline=["api", "web"] * 20)
    for plot in (plots.step_times, plots.time_spent):
        assert sorted(labels(plot(frame))) == ["api / lint  (20)", "web / lint  (20)"], plot
