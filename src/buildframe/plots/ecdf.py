"""How durations are distributed, in one period against another."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from buildframe import metrics
from buildframe.arguments import checked_call
from buildframe.metrics.columns import moments
from buildframe.metrics.durations import RowMetric
from buildframe.metrics.measured import seconds_of
from buildframe.plots.look import BLUE, ORANGE, canvas, counted, dress, faint, ground, listed, say
from buildframe.spec.times import When, when

Floats = npt.NDArray[np.float64]

_MOST_POINTS = 2000  # more than a screen has
_PERIOD = "period"
_SHORT = 0.1  # minutes; below it a logarithmic scale is linear, so that it can show zeros


@checked_call
def distribution(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    of: RowMetric | str = metrics.wall_time,
    split: When | None = None,
    at: str = "created_at",
) -> Axes:
    """The share of rows whose duration is at most so long: before a moment, and from then on.

    `of` is a metric of rows or the name of a timedelta column; `split` a datetime or ISO text with a zone,
    or a bare date (midnight UTC), compared with the column `at` (for jobs, `build_created_at` keeps those of
    a build together); without it there is one curve. A dot is at each median. The scale is logarithmic where
    the longest is more than 50 times the median, and says so. Rows that began and were not seen to end are in
    no curve, so that real ones lie further right; they are counted. Needs the columns of `of`, and `at`
    where there is a `split`.
    """
    told = frame.assign(**{_PERIOD: _periods(frame, split, at)})
    told = told[told[_PERIOD].notna()]
    counts = metrics.percentiles(told, of=of, by=_PERIOD, q=[0.5])  # refuses what is no frame of these rows
    minutes = seconds_of(told, of) / 60
    with canvas(ax, 9, 4.4) as ax:
        if np.isnan(minutes).all():
            return say(ax, "Nothing here has finished, so there is no duration.")
        for (_, period), colour, line in zip(counts.iterrows(), (BLUE, ORANGE), ("-", "--"), strict=False):
            _draw(ax, minutes[told[_PERIOD].eq(period[_PERIOD]).to_numpy(bool)], period, colour, line)
        _scale(ax, minutes[~np.isnan(minutes)])
        what = (of if isinstance(of, str) else getattr(of, "__name__", "duration")).replace("_", " ")
        ax.set_xlabel(f"{what} (minutes{f', logarithmic from {_SHORT} on' if ax.get_xscale() == 'symlog' else ''})")
        ax.set_ylabel("share that took at most so long")
        dress(ax, f"Distribution of {what}", listed(negative=int((minutes < 0).sum())))
        ax.grid(color=faint(), linewidth=0.8)
    return ax


def _periods(frame: pd.DataFrame, split: When | None, at: str) -> pd.Series[str]:
    if split is None:
        return pd.Series("all", index=frame.index, dtype="str")
    moment = pd.Timestamp(when(split, "split"))
    times = moments(frame, at)
    text = f"{moment:%Y-%m-%d}" if moment == moment.normalize() else f"{moment:%Y-%m-%d %H:%M} UTC"
    names = pd.Series(np.where(times < moment, f"before {text}", f"from {text} on"), index=frame.index, dtype="str")
    return names.where(times.notna())


def _draw(ax: Axes, minutes: Floats, period: pd.Series[Any], colour: str, line: str) -> None:
    ordered = np.sort(minutes[~np.isnan(minutes)])
    if not len(ordered):
        return
    ranks = np.unique(np.linspace(1, len(ordered), min(len(ordered), _MOST_POINTS)).astype(int))
    x, y = ordered[ranks - 1], ranks / len(ordered)
    left_out = listed(not_seen_to_end=0 if pd.isna(period["n_censored"]) else int(period["n_censored"]))
    name = "" if period[_PERIOD] == "all" else f"{period[_PERIOD]}: "
    median = "" if np.isnan(period["p50_s"]) else f", median {_plain(period['p50_s'] / 60)} min"
    label = f"{name}{counted(len(ordered), 'row')}{median}{f'; {left_out}' if left_out else ''}"
    ax.plot([x[0], *x], [0, *y], color=colour, linestyle=line, linewidth=1.8, drawstyle="steps-post", label=label)
    ax.plot(period["p50_s"] / 60, 0.5, "o", color=colour, markerfacecolor=ground(ax), markersize=7)


def _plain(minutes: float) -> str:
    return f"{minutes:,.0f}" if minutes >= 100 else f"{minutes:.3g}"


def _scale(ax: Axes, minutes: Floats) -> None:
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    if minutes.max() > 50 * max(np.median(minutes), _SHORT):
        ax.set_xscale("symlog", linthresh=_SHORT)
    if minutes.min() >= 0:
        ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
