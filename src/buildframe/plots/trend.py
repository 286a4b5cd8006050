"""How long builds take, over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.arguments import checked_call
from buildframe.plots.look import (
    BLUE,
    SKY,
    around_one,
    canvas,
    counted,
    dates,
    dress,
    ground,
    listed,
    minutes_from_zero,
    say,
    sum_of,
)  # fmt: skip


@checked_call
def duration_trend(builds: pd.DataFrame, ax: Axes | None = None, freq: str = "1D", tz: str = "UTC") -> Axes:
    """Wall time of builds over time: the median as a line, a band from it up to the 95th percentile.

    `freq` and `tz` as in `metrics.trend`; buckets are by creation. A bucket of fewer than 2 builds has
    no median, one of fewer than 20 no p95. A bucket that was not over when the builds were fetched is
    hollow. Builds of every outcome count: choose before, as in `builds[builds["state"] == "passed"]`.
    Builds that are not over, among them blocked ones, are in no bucket's median; they are counted in the title.
    Needs `created_at`, `finished_at`, `fetched_at`; uses `blocked` and `state`.
    """
    buckets = metrics.trend(builds, freq=freq, tz=tz)
    n = sum_of(buckets, "n")
    with canvas(ax, 9, 4.2) as ax:
        if buckets["p50_s"].isna().all():
            return say(ax, why_no_median(n, "builds in a bucket"))
        _draw(ax, buckets)
        around_one(ax, buckets["bucket"], freq)
        dates(ax)
        ax.set_xlabel(f"created ({tz}), in buckets of {freq}")
        ax.set_ylabel("wall time (minutes)")
        left_out = listed(not_finished=sum_of(buckets, "n_censored"), negative=sum_of(buckets, "n_negative"))
        dress(ax, f"Wall time of {counted(n, 'build')}", left_out, grid="y")
    return ax


def why_no_median(n: int, what: str) -> str:
    """The sentence for a picture of medians that has none."""
    return f"A median needs two finished {what}; none has as many." if n else "Nothing here has finished."


def _draw(ax: Axes, buckets: pd.DataFrame) -> None:
    at = buckets["bucket"].dt.tz_localize(None).to_numpy()
    p50, p95 = buckets["p50_s"].to_numpy() / 60, buckets["p95_s"].to_numpy() / 60
    partial = buckets["partial"].fillna(False).to_numpy(bool)
    if not np.isnan(p95).all():
        ax.fill_between(at, p50, p95, color=SKY, alpha=0.35, linewidth=0, label="median to p95 (buckets of 20 or more)")
        lonely = alone(~np.isnan(p95))
        ax.vlines(at[lonely], p50[lonely], p95[lonely], color=SKY, alpha=0.6, linewidth=4)
    draw_line(ax, at, p50, partial, "median")
    minutes_from_zero(ax, float(np.nanmin(p50)))


def draw_line(ax: Axes, at: Any, values: Any, partial: npt.NDArray[np.bool_], label: str) -> None:
    """A value of each bucket, with dots that are hollow where a bucket was not over."""
    ax.plot(at, values, color=BLUE, linewidth=1.8, label=label)
    ax.plot(at[~partial], values[~partial], "o", color=BLUE, markersize=5 if len(at) <= 60 else 2.5)
    if partial.any():
        ax.plot(at[partial], values[partial], "o", color=BLUE, markerfacecolor=ground(ax), markersize=7,
                label="bucket not over yet")  # fmt: skip


def alone(known: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which have no known neighbour, so that no area can be drawn to one."""
    padded = np.pad(known, 1)
    found: npt.NDArray[np.bool_] = known & ~padded[:-2] & ~padded[2:]
    return found
