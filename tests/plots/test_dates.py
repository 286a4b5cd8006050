"""Ticks of axes of times: at round times, at least two, and not more than there is room for."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.dates import num2date

from buildframe import plots
from buildframe.plots.dates import RoundTimeLocator, format_dates
from tests.plots.plot_frames import at, concurrency, jobs, laid_out

_MINUTE = 1 / 1440


def a_month_of_jobs(queues: int = 1):
    up = np.arange(0, 28 * 1440, 700.0)
    return jobs(len(up), queue=[f"q{k % queues}" for k in range(len(up))], runnable_at=at(*up), started_at=at(*up + 1),
                finished_at=at(*up + 90), build_created_at=at(*up), fetched_at=at(*[29 * 1440] * len(up)))  # fmt: skip


def shown(ax: plt.Axes) -> list[str]:
    low, high = ax.get_xlim()
    places = ax.xaxis.get_majorticklocs()
    return [
        label.get_text()
        for label, place in zip(ax.get_xticklabels(), places, strict=True)
        if low <= place <= high and label.get_text()
    ]


def test_there_are_two_ticks_or_more_but_not_too_many():
    for days in (_MINUTE, 0.05, 0.3, 1, 2, 3.5, 10, 27, 28, 31, 45, 100, 365, 4000):
        for most, start in itertools.product((2, 3, 5, 9), 20_000.37 + np.linspace(0, 40, 20)):
            ticks = RoundTimeLocator(most).tick_values(start, start + days)
            assert 2 <= len(ticks) <= most, (most, start, days)
            assert start <= ticks[0] < ticks[-1] <= start + days, (most, start, days)
            assert (np.diff(ticks) > 0).all(), (most, start, days)
    assert RoundTimeLocator(5).tick_values(20_000.0, 20_000.0) == [20_000.0], "one time has one tick"


def test_ticks_are_at_round_days_of_the_calendar():
    expected = {
        10: ["2026-10-03", "2026-10-05", "2026-10-07", "2026-10-09", "2026-10-11"],
        28: ["2026-10-08", "2026-10-15", "2026-10-22"],
        200: ["2026-11-01", "2027-01-01", "2027-03-01"],
        2000: ["2028-01-01", "2030-01-01", "2032-01-01"],
    }
    start = (np.datetime64("2026-10-02") - np.datetime64(0, "D")).astype(int) + 0.4
    ticks = {days: RoundTimeLocator(5).tick_values(start, start + days) for days in expected}
    assert {days: [f"{num2date(tick):%Y-%m-%d}" for tick in own] for days, own in ticks.items()} == expected


@pytest.mark.long
def test_a_small_figure_of_a_month_has_days_and_not_one_hour():
    with mpl.rc_context({"figure.figsize": (3.5, 2.6)}):
        one, many = concurrency(a_month_of_jobs()), plots.concurrency(a_month_of_jobs(3))[-1]
    for ax in (laid_out(one), laid_out(many)):
        assert len(shown(ax)) > 1
        assert not any(":" in label for label in shown(ax))
        assert ax.xaxis.get_major_formatter().get_offset() in ("2026", "2026-Mar", "2026-Apr")


@pytest.mark.long
def test_an_axes_of_two_has_days():
    for width in (8, 9):
        _, axes = plt.subplots(1, 2, figsize=(width, 3), layout="constrained")
        for plot in (plots.concurrency, plots.queue_depth):
            axes[1].clear()
            plot(a_month_of_jobs(), axes[1], by=None)
            assert len(shown(laid_out(axes[1]))) > 1


def test_the_end_of_the_axis_has_what_all_ticks_share():
    expected = {
        ("2026-10-02", 26): "2026-Oct",
        ("2026-10-02", 30): "2026",  # the last tick is in November
        ("2026-10-02", 0.8): "2026-Oct-02",
        ("2026-10-02", 2): "2026-Oct",
        ("2026-10-02", 200): "",
        ("2026-02-01", 200): "2026",
        ("2026-12-30", 5): "2026 to 2027",
        ("2026-12-31", 1.3): "2026 to 2027",
    }
    found = {}
    for first, days in expected:
        _, ax = plt.subplots()
        start = np.datetime64(first).astype(int) + 0.05
        ax.set_xlim(start, start + days)
        format_dates(ax)
        found[first, days] = laid_out(ax).xaxis.get_major_formatter().get_offset()
    assert found == expected
