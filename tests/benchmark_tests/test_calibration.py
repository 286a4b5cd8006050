"""The benchmark of calibration counts intervals that contain the truth, marks missed targets and draws curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scipy.stats import norm

from tests.benchmarks import calibration, calibration_changes, calibration_curves, change_points
from tests.metrics.simulated_worlds import DURATIONS, Coverage, coverage, order_statistics

pytestmark = pytest.mark.long

IMAGE = Path(__file__).parents[2] / "docs" / "calibration.png"


def test_missing_intervals_are_counted_apart() -> None:
    assert coverage([1, 3, np.nan, 0], [2, 4, np.nan, 9], 2.0) == Coverage(2 / 3, 0.25)


def test_order_statistics_leave_out_missing_rows() -> None:
    rows = np.array([[*range(1, 101), np.nan], [*range(100, 0, -1), np.nan]], np.float64)
    low, high = order_statistics(rows, 0.5)
    assert (low.tolist(), high.tolist()) == ([40, 40], [61, 61])  # Conover (1999), Practical Nonparametric Statistics


def test_a_missed_target_is_bold() -> None:
    cell = calibration.Cell(Coverage(0.9, 0.25), 0.5, 0.92)
    assert cell.text() == "**0.90** / 0.50 / 0.25"
    assert cell._replace(least=0.9).text() == "0.90 / 0.50 / 0.25"


def test_planted_changes_count_as_found_if_each_is_near() -> None:
    world = change_points.World(0.5, (30, 37))
    assert change_points.evaluate(world, [[30, 40], [33], [], [26, 37]]) == (0.75, 0.25)
    assert change_points.evaluate(change_points.World(), [[], [3]]) == (0.5, None)


def test_intervals_are_those_of_the_found_change_that_is_nearest() -> None:
    """Of two series with a change each on day 2, one is found, and beside it another."""
    unit, value = np.repeat(np.arange(4), 25), np.repeat([0.0, 0.0, 1.0, 1.0], 25)
    found = {"series": [0, 0], "at": [1, 2], "at_low": [1, 2], "at_high": [1, 3], "days_before": [1, 1]}
    sizes = {"days_after": [1, 2], "rate_change_low": [-1.0, 0.8], "rate_change_high": [-1.0, 1.0]}
    shares = calibration_changes.measure_intervals(pd.DataFrame(found | sizes), [(unit, value)] * 2, [(2, 0.9)], "rate")
    assert shares == (0.5, Coverage(1.0, 0.0), 1.0, Coverage(1.0, 0.0), 1.0)
    assert shares.cells(0.88) == ("0.50", "1.00", "1.0", "1.00 / 1.00 / 0.00")


def test_shares_of_survival_curves_are_the_inverse_of_percentiles() -> None:
    after = np.array([120.0, 121.0, 181.0])
    expected = norm.sf((np.log([90, 150, 210]) - 5) / 0.8)
    assert calibration_curves.share_lasting(DURATIONS["ties"], after) == pytest.approx(expected, abs=1e-3)


def test_each_part_is_a_table() -> None:
    for part, table in calibration.PARTS.items():
        names, *rows = table(2)
        assert rows, part
        assert {len(row) for row in rows} == {len(names)}, part


def test_the_plot_shows_observed_coverage_of_both_methods() -> None:
    worlds = calibration.observe_levels(20)
    figure = calibration.draw(worlds)
    assert [ax.get_title() for ax in figure.axes] == [*worlds]
    for ax, curves in zip(figure.axes, worlds.values(), strict=True):
        assert [line.get_ydata().tolist() for line in ax.lines[1:]] == [pytest.approx(own) for own in curves.values()]
    plt.close(figure)


def test_the_image_of_the_documentation_is_small() -> None:
    assert IMAGE.stat().st_size < 100_000
