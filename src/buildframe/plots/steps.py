"""Plot how long steps wait and run, and which steps use the most machine time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_call
from buildframe.metrics.durations import is_script
from buildframe.plots import theme
from buildframe.plots.layout import count_rows_that_fit, label_width, plot_area

_POINTS_PER_STEP = 16  # height of a step with its two bars


@checked_call
def step_times(jobs: pd.DataFrame, ax: Axes | None = None, top: int = 12) -> Axes:
    """
    Plot queue time and run time of the slowest steps.

    A marker is the median, and a bar reaches from it to the 95th percentile.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with `type`, `step_key`, `name`, `runnable_at`, `started_at` and `finished_at`. If `pipeline` has several
        values, steps are grouped by pipeline too.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    top : int, default 12
        Maximum number of steps, at least 1.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, or `top` is below 1.

    See Also
    --------
    time_spent : Steps by total machine time.
    buildframe.metrics.percentiles : The numbers of this plot.

    Notes
    -----
    Script jobs of every state and attempt count, grouped by `metrics.step`. Steps are ordered by their largest value. A
    hollow marker means that the 95th percentile is unknown: fewer than 20 durations, or too many jobs that were not
    seen to end. Steps without a median are not shown; the note counts those with too many such jobs.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d")
    >>> ax = plots.step_times(jobs, top=5)
    >>> len(ax.get_yticklabels())
    5
    """
    times, n_unknown = _times_of_steps(jobs)
    with theme.themed_axes(ax, 9, 1.8 + 0.42 * float(np.clip(len(times), 3, theme.check_top(top)))) as ax:
        shown = times.head(count_rows_that_fit(ax, top, _POINTS_PER_STEP)).iloc[::-1]
        if shown.empty:
            return theme.show_message(ax, theme.no_median_message(len(times), "jobs of a step"))
        _draw_spans(ax, shown, "queue", theme.ORANGE, "s", +0.17)
        _draw_spans(ax, shown, "run", theme.BLUE, "o", -0.17)
        _set_x_limits(ax)
        theme.label_rows(ax, range(len(shown)), shown.index, 32, shown["n"])
        ax.set(xlabel="minutes, median (dot) to 95th percentile (end of bar)", ylabel="step (runs)")
        which = "" if len(shown) == len(times) else f"the slowest {len(shown)} of "
        note = f"{format_count(n_unknown, 'step')} not shown: too few jobs were seen to end" if n_unknown else ""
        theme.decorate(ax, f"Queue time and run time of {which}{format_count(len(times), 'step')}", note, grid="x")
    return ax


@checked_call
def time_spent(jobs: pd.DataFrame, ax: Axes | None = None, top: int = 20) -> Axes:
    """
    Plot the steps that use the most machine time, with their share of the total.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with `type`, `step_key`, `name`, `started_at` and `finished_at`. If `pipeline` has several values, steps
        are grouped by pipeline too.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    top : int, default 20
        Maximum number of steps, at least 1.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, or `top` is below 1.

    See Also
    --------
    step_times : Median and 95th percentile of each step.

    Notes
    -----
    Machine time is the sum of the run times of all attempts of script jobs, whatever their state. Jobs that are still
    running are not included; the note counts them. Negative run times, which come from clocks that disagree, are
    included and counted.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d")
    >>> ax = plots.time_spent(jobs, top=5)
    >>> ax.get_xlabel()
    'machine time (minutes)'
    """
    scripts = jobs[is_script(jobs)]
    runs = metrics.run_time(scripts).dt.total_seconds() / 60
    spent = runs.groupby(_step_of_pipeline(scripts)).agg(["sum", "count"])
    spent = spent[spent["count"] > 0].sort_index().sort_values("sum", ascending=False, kind="stable")
    with theme.themed_axes(ax, 9, 1.6 + 0.27 * float(np.clip(len(spent), 3, theme.check_top(top)))) as ax:
        top = count_rows_that_fit(ax, top)
        if spent.empty:
            return theme.show_message(ax, "No job has started and finished.")
        _draw_spent(ax, spent, top)
        ax.set(xlabel="machine time (minutes)", ylabel="step (runs)")
        running = int((scripts["started_at"].notna() & scripts["finished_at"].isna()).sum())
        note = _note_on_spent(spent, top, theme.list_counts(still_running=running, negative=int((runs < 0).sum())))
        total = spent["sum"].sum()
        theme.decorate(ax, f"{total:,.{0 if total >= 10 else 2}f} minutes of machine time by step", note, grid="x")
    return ax


def _set_x_limits(ax: Axes) -> None:
    """Set x limits that show every marker whole and include 0."""
    low, high = ax.dataLim.intervalx
    marks = max(high - min(low, 0), 1e-9) * 8 / plot_area(ax, label_width(ax, 32))[0]
    ax.set_xlim(0 if low >= 0 else low - marks, high + marks)


def _times_of_steps(jobs: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return `queue_p50`, `queue_p95`, `run_p50`, `run_p95` in minutes and `n` runs per step, the largest first.

    Also return the number of steps without any of these because too many jobs were not seen to end.
    """
    scripts = jobs[is_script(jobs)]
    queue = metrics.percentiles(scripts, of=metrics.queue_time, by=_step_of_pipeline)
    run = metrics.percentiles(scripts, of=metrics.run_time, by=_step_of_pipeline)
    minutes = {
        f"{name}_{p}": frame[f"{p}_s"] / 60 for name, frame in (("queue", queue), ("run", run)) for p in ("p50", "p95")
    }
    times = pd.DataFrame({"step": queue["step"], **minutes, "n": run["n"]}).set_index("step")
    largest = times[list(minutes)].max(axis=1).dropna()
    is_shown = times.index.isin(largest.index)
    n_unknown = int(((queue["p50_at_least_s"].notna() | run["p50_at_least_s"].notna()) & ~is_shown).sum())
    return times.loc[is_shown].iloc[np.argsort(-largest.to_numpy(), kind="stable")], n_unknown


def _step_of_pipeline(jobs: pd.DataFrame) -> pd.Series[Any]:
    """Return the step of each job, prefixed with the pipeline if the frame has several."""
    steps = metrics.step(jobs).fillna(theme.NO_NAME)
    return (theme.prefix_if_several(steps, jobs["pipeline"]) if "pipeline" in jobs else steps).rename("step")


def _draw_spans(ax: Axes, times: pd.DataFrame, name: str, color: str, marker: str, shift: float) -> None:
    y = np.arange(len(times)) + shift
    p50, p95 = times[f"{name}_p50"].to_numpy(), times[f"{name}_p95"].to_numpy()
    has_p95 = ~np.isnan(p95)
    ax.barh(y, p95 - p50, left=p50, height=0.22, color=color, alpha=0.5, linewidth=0)
    for kind, face, rows in (("", color, has_p95), (", p95 unknown", theme.background(ax), ~has_p95)):
        if rows.any():
            label = f"{name} time{kind}"
            ax.plot(p50[rows], y[rows], marker, color=color, markerfacecolor=face, markersize=7, label=label)


def _draw_spent(ax: Axes, spent: pd.DataFrame, top: int) -> None:
    shown, all = spent.head(top).iloc[::-1], spent["sum"].sum()
    ax.barh(np.arange(len(shown)), shown["sum"], height=0.7, color=theme.BLUE)
    theme.label_rows(ax, range(len(shown)), shown.index, 32, shown["count"])
    theme.label_bars(ax, shown["sum"], (f"{value / all:.1%}" if all > 0 else "" for value in shown["sum"]))
    ax.margins(x=max(0.09, 40 / plot_area(ax, label_width(ax, 32))[0]))


def _note_on_spent(spent: pd.DataFrame, top: int, left_out: str) -> str:
    others, all = spent.iloc[top:], spent["sum"].sum()
    hidden = ""
    if len(others):
        hidden = f"the {format_count(len(others), 'step')} not shown: {others['sum'].sum() / all:.1%}"
    runs = f"{format_count(int(spent['count'].sum()), 'run')} of {format_count(len(spent), 'step')}, all attempts"
    return theme.join_notes(runs, hidden, left_out)
