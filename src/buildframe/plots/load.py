"""How many jobs run, and how many wait, over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.arguments import checked_call
from buildframe.metrics.columns import moments
from buildframe.metrics.durations import is_script
from buildframe.plots.look import (
    BLUE,
    GREEN,
    GREY,
    NO_NAME,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    canvas,
    counted,
    dates,
    dress,
    ground,
    ink,
    labels,
    say,
)  # fmt: skip
from buildframe.plots.room import room

Floats = npt.NDArray[np.float64]

_LOOKS = ((BLUE, ""), (ORANGE, ""), (GREEN, "////"), (SKY, "...."), (RED, "xxxx"), (PURPLE, "\\\\\\\\"))
"""Colours as bright as each other are hatched apart, for a print without colour."""

_OTHERS = GREY, "----"
_BINS = 500  # about as many as there are pixels
_WIDTHS = {
    1: "1 s", 5: "5 s", 15: "15 s", 60: "1 min", 300: "5 min", 900: "15 min", 1800: "30 min", 3600: "1 h", 7200: "2 h",
    4 * 3600: "4 h", 8 * 3600: "8 h", 86400: "1 day", 7 * 86400: "7 days", 28 * 86400: "28 days",
}  # fmt: skip


@checked_call
def concurrency(jobs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How many jobs ran at once, as areas of queues one above the other.

    From `metrics.concurrency`, exact; drawn are means, weighted by time, of stretches so short that a picture
    can just show them; the axis says how long they are. A line above them is at the most that ran at any moment of
    each stretch, in all queues together; the legend says how many that were at most, in all and in each queue. The
    six busiest queues have a colour each, the others share one. Where a stretch is hatched, jobs of builds outside the
    frame may be missing. Times are UTC. Needs what `metrics.concurrency` needs, and `type`.
    """
    ran = moments(jobs, "started_at").notna() & is_script(jobs)
    return _areas(metrics.concurrency(jobs), "running", ax, int(ran.sum()), "ran")


@checked_call
def queue_depth(jobs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How many script jobs waited for an agent at once, as areas of queues one above the other.

    From `metrics.queue_depth`, and drawn as `concurrency`. Needs what `metrics.queue_depth` needs.
    """
    waited = moments(jobs, "runnable_at").notna() & is_script(jobs)
    return _areas(metrics.queue_depth(jobs), "waiting", ax, int(waited.sum()), "became runnable")


def _areas(changes: pd.DataFrame, count: str, ax: Axes | None, n: int, did: str) -> Axes:
    changes = changes.assign(queue=changes["queue"].fillna(NO_NAME))
    with canvas(ax, 10, 4.2) as ax:
        if not (changes[count] > 0).any():
            return say(ax, f"No job here was ever {count}.")
        edges, width = _edges(changes["at"])
        means = _means(changes, count, edges)
        _stack(ax, edges, means, changes.groupby("queue")[count].max())
        _draw_peaks(ax, edges, _peaks(changes, count, edges))
        _hatch(ax, changes)
        dates(ax)
        ax.set_xlabel("UTC")
        ax.set_ylabel(f"{count} jobs (mean of {width})")
        dress(ax, f"{count.capitalize()} jobs by queue", f"{counted(n, 'job')} {did}", grid="y")
    return ax


def _edges(at: pd.Series[Any]) -> tuple[Floats, str]:
    """Seconds since 1970 of the bounds of the stretches, and how long one is."""
    first, last = at.min().timestamp(), at.max().timestamp()
    width = next((seconds for seconds in _WIDTHS if (last - first) / seconds <= _BINS), max(_WIDTHS))
    start = first // width * width
    return start + width * np.arange(int((last - start) // width) + 2, dtype=np.float64), _WIDTHS[width]


def _means(changes: pd.DataFrame, count: str, edges: Floats) -> pd.DataFrame:
    """Means of each stretch (rows) and queue (columns), the queue of the largest area first."""
    end = changes["at"].max().timestamp()
    means = {}
    for queue, own in changes.sort_values("at", kind="stable").groupby("queue"):
        at = np.append(own["at"].astype("int64").to_numpy() / 1e6, end)
        area = np.append(0, np.cumsum(own[count].to_numpy(np.float64) * np.diff(at)))
        means[queue] = np.diff(np.interp(edges, at, area)) / np.diff(edges)
    found = pd.DataFrame(means)
    return found[found.sum().sort_values(ascending=False, kind="stable").index]


def _peaks(changes: pd.DataFrame, count: str, edges: Floats) -> Floats:
    """The most of all queues together at any moment of each stretch."""
    ordered = changes.sort_values("at", kind="stable")
    steps = ordered.groupby("queue")[count].diff().fillna(ordered[count]).astype("float64")
    levels = steps.groupby(ordered["at"]).sum().cumsum()
    at = levels.index.astype("int64").to_numpy() / 1e6
    stretch, level = np.searchsorted(edges, at, side="right") - 1, levels.to_numpy()
    last = np.searchsorted(at, edges[:-1], side="right") - 1  # the level that each stretch begins with
    peaks = np.where(last >= 0, level[last], 0.0)
    np.maximum.at(peaks, stretch, level)
    return peaks


def _draw_peaks(ax: Axes, edges: Floats, peaks: Floats) -> None:
    at = pd.to_datetime(edges, unit="s").to_numpy()
    ax.hlines(peaks, at[:-1], at[1:], color=ink(), linewidth=1, label=f"peak, at most {peaks.max():,.0f}")
    ax.set_ylim(0, 1.05 * peaks.max())


def _stack(ax: Axes, edges: Floats, means: pd.DataFrame, peaks: pd.Series[int]) -> None:
    own, others = list(means.columns[: len(_LOOKS)]), list(means.columns[len(_LOOKS) :])
    names = labels(means.columns, 24 if room(ax)[0] > 300 else 14)
    areas = [means[queue] for queue in own] + ([means[others].sum(axis=1)] if others else [])
    said = [f"{_visible(names[queue])}, at most {peaks[queue]:,}" for queue in own]
    said += [f"{counted(len(others), 'other queue')}"] if others else []
    looks = dict(zip(sorted(own), _LOOKS, strict=False))  # by name, so that a queue has one in all pictures
    colours, hatches = zip(*(looks[queue] for queue in own), *([_OTHERS] if others else []), strict=True)
    at = pd.to_datetime(edges, unit="s").to_numpy()
    ax.stackplot(at, [np.append(area, area.iloc[-1]) for area in areas], labels=said, step="post",
                 colors=colours, hatch=hatches, edgecolor=ground(ax), alpha=0.85, linewidth=0)  # fmt: skip
    ax.set_xlim(at[0], at[-1])


def _visible(name: str) -> str:
    """Legends leave out what begins with a low line."""
    return f" {name}" if name.startswith("_") else name


def _hatch(ax: Axes, changes: pd.DataFrame) -> None:
    """Over the stretches in which jobs of builds outside the frame may be missing, at its beginning and its end."""
    whole = changes.assign(whole=changes["whole"].fillna(False).astype(bool)).groupby("at")["whole"].first()
    at = whole.index.tz_localize(None).append(pd.DatetimeIndex([changes["at"].max().tz_localize(None)]))  # type: ignore[attr-defined]
    turns = np.flatnonzero(np.diff(~whole.to_numpy(), prepend=False, append=False))
    for k, (begin, end) in enumerate(zip(at[turns[::2]], at[turns[1::2]], strict=True)):
        ax.axvspan(begin, end, facecolor="none", edgecolor=ink(), alpha=0.35, hatch="///", linewidth=0,
                   label="_" * k + "jobs of other builds may be missing")  # fmt: skip
