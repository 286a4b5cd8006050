"""How often builds pass, and when a branch was broken."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.arguments import checked_call
from buildframe.plots.look import (
    RED,
    SKY,
    around_one,
    canvas,
    counted,
    dates,
    dress,
    faint,
    fitting,
    ink,
    labels,
    listed,
    say,
    some,
    sum_of,
)  # fmt: skip
from buildframe.plots.room import POINTS_A_LABEL, room, signs
from buildframe.plots.trend import alone, draw_line

_MOST_LANES = 10
_LANE = 8  # percent points that a lane is high, at least
_LEAST = 70  # points that the rates are high, at least


_PERCENTS = range(0, 101, 20)


@checked_call
def success_trend(
    builds: pd.DataFrame,
    ax: Axes | None = None,
    freq: str = "1D",
    tz: str = "UTC",
    branch: str | None = None,
    pipelines: pd.DataFrame | None = None,
) -> Axes:
    """The success rate over time with its Wilson 95 % band, and the outages of a branch as red spans below it.

    `freq` and `tz` as in `metrics.success_trend`; a bucket that was not over when the builds were fetched is
    hollow. With `branch`, or with `pipelines=ws.pipelines()` for each pipeline's default branch, only builds of
    that branch count, and below lies a lane for each pipeline with its outages (`metrics.outages`); one that is
    still open ends in an arrow. Up to ten pipelines have a lane, those broken for longest; the others are
    counted. Needs what `metrics.success_trend` and, with a branch, `metrics.outages` need.
    """
    red = None
    if branch is not None or pipelines is not None:
        red = metrics.outages(builds, branch=branch, pipelines=pipelines)
        builds = _on_branch(builds, metrics.recovery_time(builds, branch=branch, pipelines=pipelines))
    buckets = metrics.success_trend(builds, freq=freq, tz=tz)
    lanes = [] if red is None else _lanes(red)
    with canvas(ax, 9, 3.8 + 0.22 * len(lanes)) as ax:
        lanes = lanes[: max(int((room(ax)[1] - _LEAST) / POINTS_A_LABEL), 0)]
        if buckets["rate"].isna().all():
            return say(ax, "No build here has passed or failed.")
        _draw(ax, buckets)
        if red is not None:
            _draw_lanes(ax, red, lanes, tz)
        around_one(ax, buckets["bucket"], freq)
        dates(ax)
        ax.set_xlabel(f"created ({tz}), in buckets of {freq}")
        ax.set_ylabel("builds that passed")
        passed, failed = sum_of(buckets, "passed"), sum_of(buckets, "failed")
        note = f"{passed:,} passed, {failed:,} failed" + ("" if red is None else _note(red, lanes))
        on = f" on {fitting(branch, 30)}" if branch else "" if pipelines is None else " on default branches"
        dress(ax, f"Success rate of {counted(passed + failed, 'build')}{on}", note)
        ax.grid(axis="y", color=faint(), linewidth=0.8)
    return ax


def _on_branch(builds: pd.DataFrame, keys: pd.DataFrame) -> pd.DataFrame:
    """The builds of these pipelines on the branch that stands beside each."""
    names = [name for name in ("organization", "pipeline", "branch") if name in keys]
    there = pd.MultiIndex.from_frame(keys[names])
    return builds[pd.MultiIndex.from_frame(builds[names]).isin(there)]


def _named(frame: pd.DataFrame) -> pd.Series[str]:
    """The pipeline, and before it the organization where there are several."""
    several = "organization" in frame and frame["organization"].nunique() > 1
    return frame["organization"] + " / " + frame["pipeline"] if several else frame["pipeline"]


def _lanes(red: pd.DataFrame) -> list[str]:
    """The pipelines that were red for longest, at the top the longest."""
    return list(red["seen_s"].groupby(_named(red)).sum().sort_values(ascending=False, kind="stable").index)[
        :_MOST_LANES
    ]


def _note(red: pd.DataFrame, lanes: list[str]) -> str:
    if red.empty:
        return "; no outage"
    found = f"; {counted(len(red), 'outage')} of {counted(_named(red).nunique(), 'pipeline')}"
    hidden = some(_named(red).nunique() - len(lanes), "pipeline", "not shown")
    return ", ".join(part for part in (found, listed(still_open=int(red["open"].sum())), hidden) if part)


def _draw(ax: Axes, buckets: pd.DataFrame) -> None:
    at = buckets["bucket"].dt.tz_localize(None).to_numpy()
    rate, low, high = (100 * buckets[name].to_numpy(np.float64) for name in ("rate", "low", "high"))
    partial = buckets["partial"].fillna(False).to_numpy(bool) & ~np.isnan(rate)
    ax.fill_between(at, low, high, color=SKY, alpha=0.35, linewidth=0, label="95% interval (Wilson)")
    lonely = alone(~np.isnan(rate))
    ax.vlines(at[lonely], low[lonely], high[lonely], color=SKY, alpha=0.6, linewidth=4)
    draw_line(ax, at, rate, partial, "success rate")
    ax.set_yticks(_PERCENTS, [f"{percent}%" for percent in _PERCENTS])
    ax.set_ylim(0, 103)


def _height_of_lane(ax: Axes, n: int) -> float:
    """In percent points, so that a label has room."""
    height = room(ax)[1]
    return max(_LANE, 103 * POINTS_A_LABEL / max(height - POINTS_A_LABEL * (n + 0.7), 1))


def _draw_lanes(ax: Axes, red: pd.DataFrame, lanes: list[str], tz: str) -> None:
    lane = _height_of_lane(ax, len(lanes))
    begin = red["failed_at"].dt.tz_convert(tz).dt.tz_localize(None)
    spans = pd.DataFrame({"begin": begin, "end": begin + pd.to_timedelta(red["seen_s"], unit="s"), "open": red["open"]})
    spans["y"] = _named(red).map({name: -lane * (k + 1) for k, name in enumerate(lanes)})
    spans = spans[spans["y"].notna()]
    if len(spans):
        ax.barh(spans["y"], spans["end"] - spans["begin"], 0.6 * lane, left=spans["begin"], color=RED, edgecolor=RED,
                linewidth=1, label="branch failing")  # fmt: skip
    still = spans[spans["open"].fillna(False).astype(bool)]
    if len(still):
        ax.plot(still["end"], still["y"], ">", color=ink(), markersize=5, linestyle="none", label="still failing")
    names = labels(lanes, signs(ax, 24))
    ticks: dict[float, str] = {percent: f"{percent}%" for percent in _PERCENTS}
    ticks |= {-lane * (k + 1): names[name] for k, name in enumerate(lanes)}
    ax.set_yticks(list(ticks), list(ticks.values()), parse_math=False)
    ax.axhline(0, color=faint(), linewidth=0.8)
    ax.set_ylim(-lane * (len(lanes) + 0.7) if lanes else 0, 103)
