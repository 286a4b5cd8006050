"""Error budgets."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import pyplot as plt

from buildframe import metrics, plots
from tests.plots.plot_frames import at, builds, jobs, labels, laid_out, legend, marks, note, objective, title
from tests.refusals import wrong_messages

BELOW, ABOVE = 0.4, 0.5  # the top of the budget's part, and the bottom of the shares' part


def budget(ax: plt.Axes, low: float = 0.0) -> list[float]:
    """The remaining budget at each end of a bucket; the part begins at `low`."""
    line = ax.lines[0]
    return [float(y) / BELOW * (1 - low) + low for y in line.get_ydata()]


def test_title_and_note_say_the_result():
    ax = objective(builds(days=3, each=20))  # of 20 builds a day, those of 16 to 20 minutes miss 15
    assert title(ax) == "75 % of 60 builds within 15 min of wall time, target 90 %"
    assert note(ax) == "error budget: 250 % used; 15 missed"
    waits = jobs(4, runnable_at=at(0, 1, 2, 0), started_at=at(1, 2, 3, None), finished_at=at(2, 3, 4, 2))
    ax = plots.objective(waits, of=metrics.queue_time, within="5m", target=0.95)
    assert title(ax) == "100 % of 3 jobs within 5 min of queue time, target 95 %"
    assert note(ax) == "error budget: 0 % used; 1 undecided"


def test_the_budget_falls_by_the_misses_of_each_bucket():
    ax = objective(builds(days=2, each=20), within="19m", target=0.8)  # 2 of 40 miss, 8 may
    assert budget(ax) == pytest.approx([1, 1 - 1 / 8, 1 - 2 / 8])
    assert "budget exceeded" not in legend(ax)
    over = objective(builds(days=2, each=20), within="10m", target=0.8)  # 20 of 40 miss, 8 may
    assert budget(over, low=-1.5) == pytest.approx([1, 1 - 10 / 8, 1 - 20 / 8])
    assert "budget exceeded" in legend(over)
    assert "−150 %" in labels(over)


def test_each_bucket_has_its_share_on_the_axis_of_the_target():
    days = builds(days=3, each=20, fetched=2.5 * 1440)
    ax = objective(days, within="19m", target=0.9)
    ticks = dict(zip(labels(ax), ax.get_yticks(), strict=True))
    (floor,) = (one for one in ("80 %", "60 %", "40 %") if one in ticks)
    low = float(floor[:-1]) / 100
    expected = ABOVE + (0.95 - low) / (1 - low) * (1 - ABOVE)
    assert [y for _, y in marks(ax, "share that met it")] == pytest.approx([expected] * 2)
    assert [y for _, y in marks(ax, "not complete")] == pytest.approx([expected])
    (target,) = {y for _, y in marks(ax, "target 90 %")}
    assert target == pytest.approx(ticks["90 %"])


def test_buckets_with_an_interval_have_a_bar():
    even = np.linspace(0, 3 * 1440 - 1, 300)
    frame = builds(
        3, 100, created_at=at(*even), finished_at=at(*[one + 1 + 20 * (k % 7 == 0) for k, one in enumerate(even)])
    )
    assert "95 % interval" in legend(objective(frame))
    assert "95 % interval" not in legend(objective(builds(each=4)))


def test_a_bucket_without_rows_is_empty():
    frame = builds(2, 20, 9999, created_at=at(*[0] * 20, *[3000] * 20), finished_at=at(*[1] * 20, *[3001] * 20))
    ax = objective(frame)
    assert np.isnan([y for _, y in marks(ax, "share that met it")]).tolist() == [False, True, False]
    laid_out(ax)


def test_nothing_is_decided():
    frame = builds(1, 2, finished_at=at(None, None), fetched_at=at(3, 3))
    assert objective(frame).texts[0].get_text() == "No row met or missed the promise."


def test_invalid_arguments_are_refused():
    assert wrong_messages([
        ("target=2", lambda: objective(builds(), target=2.0)),
        ("within", lambda: objective(builds(), within="soon")),
        ("freq", lambda: objective(builds(), freq="soon")),
    ]) == {}  # fmt: skip
