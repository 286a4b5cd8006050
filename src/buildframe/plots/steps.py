"""Steps: how long they wait and run, and where the machine time goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.arguments import checked_call
from buildframe.metrics.durations import is_script
from buildframe.plots.look import (
    BLUE,
    NO_NAME,
    ORANGE,
    canvas,
    counted,
    dress,
    ground,
    ink,
    joined,
    labels,
    listed,
    most,
    say,
)  # fmt: skip
from buildframe.plots.room import POINTS_A_LABEL, at_left, room, signs
from buildframe.plots.trend import why_no_median

_POINTS_A_SPAN = 16  # high is a step with its two bars


@checked_call
def step_times(jobs: pd.DataFrame, ax: Axes | None = None, top: int = 12) -> Axes:
    """Queue time and run time of the `top` slowest steps: a dot at the median, a bar up to the 95th percentile.

    Steps as in `metrics.step`, apart by `pipeline` where the frame holds several; script jobs of every
    outcome and attempt; ordered by the largest value shown. A step with fewer than 20 durations has no
    p95: its dot is hollow; one with fewer than 2 is not shown. Needs `type`, `step_key`, `name`,
    `runnable_at`, `started_at`, `finished_at`.
    """
    times = _times_of_steps(jobs)
    with canvas(ax, 9, 1.8 + 0.42 * float(np.clip(len(times), 3, most(top)))) as ax:
        shown = times.head(_most(ax, top, _POINTS_A_SPAN)).iloc[::-1]
        if shown.empty:
            return say(ax, why_no_median(len(times), "jobs of a step"))
        _draw_spans(ax, shown, "queue", ORANGE, "s", +0.17)
        _draw_spans(ax, shown, "run", BLUE, "o", -0.17)
        _keep_in_sight(ax)
        _label(ax, shown["n"])
        ax.set_xlabel("minutes, median (dot) to 95th percentile (end of bar)")
        ax.set_ylabel("step (runs)")
        dress(ax, f"Queue time and run time of {_of(len(shown), len(times), 'slowest')}", grid="x")
    return ax


@checked_call
def time_spent(jobs: pd.DataFrame, ax: Axes | None = None, top: int = 20) -> Axes:
    """Where the machine time goes: the `top` steps by the sum of their run times, with their share of all.

    Script jobs of every outcome and attempt that have started and finished; jobs still running are left
    out and counted. Negative run times (clocks disagree) are in the sums, and counted. Steps as in
    `metrics.step`, apart by `pipeline` where the frame holds several; the share of those not shown is
    said. Needs `type`, `step_key`, `name`, `started_at`, `finished_at`.
    """
    scripts = jobs[is_script(jobs)]
    runs = metrics.run_time(scripts).dt.total_seconds() / 60
    spent = runs.groupby(_step_of_pipeline(scripts)).agg(["sum", "count"])
    spent = spent[spent["count"] > 0].sort_index().sort_values("sum", ascending=False, kind="stable")
    with canvas(ax, 9, 1.6 + 0.27 * float(np.clip(len(spent), 3, most(top)))) as ax:
        top = _most(ax, top, POINTS_A_LABEL)
        if spent.empty:
            return say(ax, "Nothing here has run and finished.")
        _draw_spent(ax, spent, top)
        ax.set_xlabel("machine time (minutes)")
        ax.set_ylabel("step (runs)")
        running = int((scripts["started_at"].notna() & scripts["finished_at"].isna()).sum())
        note = _note_on_spent(spent, top, listed(still_running=running, negative=int((runs < 0).sum())))
        total = spent["sum"].sum()
        dress(ax, f"{total:,.{0 if total >= 10 else 2}f} minutes of machine time by step", note, grid="x")
    return ax


def _most(ax: Axes, top: int, points: float) -> int:
    """How many rows of so many points there is room for, at most `top`."""
    return min(top, max(int(room(ax)[1] / points), 1))


def _keep_in_sight(ax: Axes) -> None:
    """The whole of the marks, from 0 on or whatever is less."""
    low, high = ax.dataLim.intervalx
    marks = max(high - min(low, 0), 1e-9) * 8 / room(ax, at_left(ax, 32))[0]
    ax.set_xlim(0 if low >= 0 else low - marks, high + marks)


def _of(shown: int, all: int, which: str) -> str:
    return counted(all, "step") if shown == all else f"the {which} {shown} of {counted(all, 'step')}"


def _label(ax: Axes, n: pd.Series[Any]) -> None:
    names = labels(n.index, signs(ax, 32))
    ax.set_yticks(range(len(n)), [f"{names[str(name)]}  ({runs:,})" for name, runs in n.items()], parse_math=False)


def _times_of_steps(jobs: pd.DataFrame) -> pd.DataFrame:
    """Minutes of each step, largest first: `queue_p50`, `queue_p95`, `run_p50`, `run_p95`, and `n` runs."""
    scripts = jobs[is_script(jobs)]
    queue = metrics.percentiles(scripts, of=metrics.queue_time, by=_step_of_pipeline)
    run = metrics.percentiles(scripts, of=metrics.run_time, by=_step_of_pipeline)
    minutes = {
        f"{name}_{p}": frame[f"{p}_s"] / 60 for name, frame in (("queue", queue), ("run", run)) for p in ("p50", "p95")
    }
    times = pd.DataFrame({"step": queue["step"], **minutes, "n": run["n"]}).set_index("step")
    largest = times[list(minutes)].max(axis=1).dropna()
    return times.loc[times.index.isin(largest.index)].iloc[np.argsort(-largest.to_numpy(), kind="stable")]


def _step_of_pipeline(jobs: pd.DataFrame) -> pd.Series[Any]:
    """The step, and before it the pipeline where the frame holds several, in which names repeat."""
    steps = metrics.step(jobs).fillna(NO_NAME).rename("step")
    if "pipeline" not in jobs or jobs["pipeline"].nunique() < 2:
        return steps
    return (jobs["pipeline"].fillna("?") + " / " + steps).rename("step")


def _draw_spans(ax: Axes, times: pd.DataFrame, name: str, colour: str, marker: str, shift: float) -> None:
    y = np.arange(len(times)) + shift
    p50, p95 = times[f"{name}_p50"].to_numpy(), times[f"{name}_p95"].to_numpy()
    whole = ~np.isnan(p95)
    ax.barh(y, p95 - p50, left=p50, height=0.22, color=colour, alpha=0.5, linewidth=0)
    for kind, face, rows in (("", colour, whole), (", too few for p95", ground(ax), ~whole)):
        if rows.any():
            label = f"{name} time{kind}"
            ax.plot(p50[rows], y[rows], marker, color=colour, markerfacecolor=face, markersize=7, label=label)


def _draw_spent(ax: Axes, spent: pd.DataFrame, top: int) -> None:
    shown, all = spent.head(top).iloc[::-1], spent["sum"].sum()
    ax.barh(np.arange(len(shown)), shown["sum"], height=0.7, color=BLUE)
    _label(ax, shown["count"])
    for row, value in enumerate(shown["sum"]):
        share = f"{value / all:.1%}" if all > 0 else ""
        ax.annotate(share, (max(value, 0), row), (4, 0), textcoords="offset points", va="center", fontsize=9,
                    color=ink())  # fmt: skip
    ax.margins(x=max(0.09, 40 / room(ax, at_left(ax, 32))[0]))
    ax.set_ylim(min(len(shown) - 3, 0) - 0.6, len(shown) - 0.4)


def _note_on_spent(spent: pd.DataFrame, top: int, left_out: str) -> str:
    others, all = spent.iloc[top:], spent["sum"].sum()
    hidden = f"the {counted(len(others), 'step')} not shown: {others['sum'].sum() / all:.1%}" if len(others) else ""
    runs = f"{counted(int(spent['count'].sum()), 'run')} of {counted(len(spent), 'step')}, all attempts"
    return joined(runs, hidden, left_out)
