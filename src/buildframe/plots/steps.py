"""Plot how long steps wait and run, and which steps use the most machine time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count, format_duration, label_steps
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.durations import is_script
from buildframe.metrics.grouping import Key
from buildframe.metrics.job_ends import IS_OVER, with_ends
from buildframe.plots import theme
from buildframe.plots.groups import GROUP, ShownGroups, by_phrase, choose_groups
from buildframe.plots.header import mark_label
from buildframe.plots.layout import count_rows_that_fit, font_points, width_beside
from buildframe.plots.names import step_names
from buildframe.plots.panels import Panel, Placement, draw
from buildframe.plots.trend import VARIED
from buildframe.plots.units import show_durations

_CHARACTERS = 32
_MOST_PARTS = 6
_OTHER_PART = "others of the plot"
_POINTS_PER_STEP = 16  # height of a step with its two bars


@checked_frames
def step_times(
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    top: int = 12,
    min_runs: int = 5,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
) -> Any:
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
    min_runs : int, default 5
        Minimum number of runs of a step. The note counts steps with fewer.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the days in the title.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`. Durations are in seconds.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `top` or `min_runs` is below 1, or `ax` is used with `col` or `row`.

    See Also
    --------
    time_spent : Steps by total machine time.
    buildframe.metrics.percentiles : The numbers of this plot.

    Notes
    -----
    Script jobs of every state and attempt count, grouped by `metrics.step`. Steps are ordered by their largest value. A
    hollow marker means that the 95th percentile is unknown: fewer than 20 durations, or too many jobs that were not
    seen to end. Steps without a median are not shown; the note counts those with too many such jobs, and those with
    fewer than `min_runs` runs, whose largest values are chance.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d")
    >>> ax = plots.step_times(jobs, top=5)
    >>> len(ax.get_yticklabels())
    5
    """
    theme.check_positive(top=top, min_runs=min_runs)

    def summarize(rows: pd.DataFrame) -> _StepTimes:
        return _times_of_steps(rows, min_runs)

    def paint(one: _StepTimes, panel: Panel[_StepTimes]) -> None:
        ax, times = panel.ax, one.times
        shown = times.head(count_rows_that_fit(ax, top, _POINTS_PER_STEP)).iloc[::-1]
        rare = theme.count_note(one.n_rare, "step", f"with fewer than {format_count(min_runs, 'run')} not shown")
        if shown.empty:
            message = "A median needs two finished jobs of a step." if one.n_jobs else "Nothing has finished."
            panel.show_message(f"No step has {format_count(min_runs, 'run')}." if one.n_rare else message)
            return
        _draw_spans(ax, shown, "queue", theme.ORANGE, "s", +0.17)
        _draw_spans(ax, shown, "run", theme.BLUE, "o", -0.17)
        ax.set(xlabel="duration", ylabel="step (runs)")
        _set_x_limits(ax, panel.summaries)
        show_durations(ax, "x")
        theme.label_rows(ax, range(len(shown)), shown.index, _CHARACTERS, shown["n"], times.index)
        steps = format_count(len(times), "step")
        which = "" if len(shown) == len(times) else f"the slowest {len(shown)} of "
        unknown = f"{format_count(one.n_unknown, 'step')} not shown: too few jobs were seen to end"
        note = theme.join_notes(rare, unknown if one.n_unknown else "")
        panel.decorate(f"Queue time and run time of {which}{steps}", note, "x", short=f"{which}{steps}",
                       key="marker: median; bar: up to p95")  # fmt: skip

    def size(one: _StepTimes) -> tuple[float, float]:
        return 9, 1.8 + 0.42 * float(np.clip(len(one.times), 3, top))

    place = Placement(ax, col, row, title, tz)
    return draw(summarize, paint, jobs[is_script(jobs)], place, "Queue time and run time of steps", size, "x")


class _StepTimes(NamedTuple):
    """Percentiles in seconds and runs by step, the longest first; and how many steps and jobs are not in it."""

    times: pd.DataFrame
    n_unknown: int
    n_rare: int
    n_jobs: int


@checked_frames
def time_spent(
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    top: int = 20,
    by: Key | None = None,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
) -> Any:
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
    by : str or function, optional
        Key that divides each bar by color, such as "state" or "queue": the six groups with the most jobs.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the days in the title.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`. Durations are in seconds.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `top` is below 1, or `ax` is used with `col` or `row`.

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
    'machine time'
    """
    theme.check_positive(top=top)
    groups = choose_groups(jobs[is_script(jobs)], by, _MOST_PARTS, (col, row), others=_OTHER_PART)

    def paint(one: _Spent, panel: Panel[_Spent]) -> None:
        ax, n = panel.ax, count_rows_that_fit(panel.ax, top)
        if one.spent.empty:
            panel.show_message("No job has started and finished.")
            return
        _draw_spent(ax, one, n, groups)
        show_durations(ax, "x")
        ax.set(xlabel="machine time", ylabel="step (runs)")
        note = _note_on_spent(one.spent, n, theme.list_counts(still_running=one.n_running, negative=one.n_negative))
        total = format_duration(one.spent["sum"].sum())
        panel.decorate(f"{total} of machine time by step{and_by(by)}", note, "x", short=total)

    def size(one: _Spent) -> tuple[float, float]:
        each = theme.row_height(one.spent.index[:top], 0.27, _CHARACTERS)
        return 9, 1.6 + each * float(np.clip(len(one.spent), 3, top))

    place = Placement(ax, col, row, title, tz)
    return draw(_sum_runs, paint, groups.frame, place, f"Machine time by step{and_by(by)},", size, "x")


class _Spent(NamedTuple):
    """Seconds and runs by step, the largest first; seconds by step and part; and counts of jobs."""

    spent: pd.DataFrame
    parts: pd.DataFrame
    n_running: int
    n_negative: int


def and_by(by: Key | None) -> str:
    """Return " and queue", for a title."""
    return by_phrase(by).replace(" by ", " and ")


def _sum_runs(scripts: pd.DataFrame) -> _Spent:
    runs = metrics.run_time(scripts).dt.total_seconds()
    steps = _step_of_pipeline(scripts)
    spent = runs.groupby(steps).agg(["sum", "count"])
    spent = spent[spent["count"] > 0].sort_index().sort_values("sum", ascending=False, kind="stable")
    parts = runs.groupby([steps, scripts[GROUP]]).sum().unstack(fill_value=0).reindex(spent.index)
    running = int((scripts["started_at"].notna() & ~with_ends(scripts)[IS_OVER]).sum())
    return _Spent(spent, parts, running, int((runs < 0).sum()))


def _set_x_limits(ax: Axes, summaries: Sequence[_StepTimes]) -> None:
    """Set x limits that show every marker whole and include 0; logarithmic if cells differ much."""
    low, high = ax.dataLim.intervalx
    columns = ["queue_p50", "queue_p95", "run_p50", "run_p95"]
    largest = [float(np.nanmax(one.times[columns].to_numpy(np.float64))) for one in summaries if len(one.times)]
    if low >= 0 and max(largest) > VARIED * max(min(largest), 1.0):
        ax.set_xscale("symlog", linthresh=max(min(largest) / 4, 1.0), linscale=0.4)
        ax.set_xlim(0, 1.6 * high)
        ax.set_xlabel(f"{ax.get_xlabel()}, logarithmic")
        return
    marks = max(high - min(low, 0), 1e-9) * 8 / width_beside(ax, _CHARACTERS)
    ax.set_xlim(0 if low >= 0 else low - marks, high + marks)


def _times_of_steps(jobs: pd.DataFrame, min_runs: int) -> _StepTimes:
    """Return `queue_p50`, `queue_p95`, `run_p50`, `run_p95` and `n` runs of steps, the largest first."""
    scripts = jobs[is_script(jobs)]
    queue = metrics.percentiles(scripts, of=metrics.queue_time, by=_step_of_pipeline)
    run = metrics.percentiles(scripts, of=metrics.run_time, by=_step_of_pipeline)
    frames = {"queue": queue, "run": run}
    seconds = {f"{name}_{p}": frame[f"{p}_s"] for name, frame in frames.items() for p in ("p50", "p95")}
    times = pd.DataFrame({"step": queue["step"], **seconds, "n": run["n"]}).set_index("step")
    is_rare = times["n"].fillna(0).to_numpy(np.int64) < min_runs
    has_median = times[list(seconds)].notna().any(axis=1).to_numpy()
    bounded = (queue["p50_at_least_s"].notna() | run["p50_at_least_s"].notna()).to_numpy()
    largest = times.loc[has_median & ~is_rare, list(seconds)].max(axis=1)
    ranked = times.loc[largest.index].iloc[np.argsort(-largest.to_numpy(), kind="stable")]
    n_rare = int((is_rare & has_median).sum())
    return _StepTimes(ranked, int((bounded & ~has_median).sum()), n_rare, len(times))


def _step_of_pipeline(jobs: pd.DataFrame) -> pd.Series[Any]:
    """Return the label of the step of each job, after the pipeline if there are several."""
    if "pipeline" in jobs:
        return step_names(jobs[["pipeline"]].assign(step=metrics.step(jobs))).rename("step")
    return label_steps(metrics.step(jobs)).fillna(theme.NO_NAME).rename("step")


def _draw_spans(ax: Axes, times: pd.DataFrame, name: str, color: str, marker: str, shift: float) -> None:
    y = np.arange(len(times)) + shift
    p50, p95 = times[f"{name}_p50"].to_numpy(), times[f"{name}_p95"].to_numpy()
    has_p95 = ~np.isnan(p95)
    ax.barh(y, p95 - p50, left=p50, height=0.22, color=color, alpha=0.5, linewidth=0)
    for kind, face, rows in (("", color, has_p95), (", p95 unknown", theme.background(ax), ~has_p95)):
        if rows.any():
            label = f"{name} time{kind}"
            ax.plot(p50[rows], y[rows], marker, color=color, markerfacecolor=face, markersize=7, label=label)


def _draw_spent(ax: Axes, one: _Spent, top: int, groups: ShownGroups) -> None:
    shown, all = one.spent.head(top).iloc[::-1], one.spent["sum"].sum()
    rows, begin = np.arange(len(shown)), np.zeros(len(shown))
    colors = {name: (style.color, groups.labels[name]) for name, style in groups.styles.items()}
    colors |= {_OTHER_PART: (theme.GRAY, "others")}
    for name, (color, label) in colors.items():
        if name in one.parts:
            part = one.parts.loc[shown.index, name].to_numpy(np.float64)
            drawn = ax.barh(rows, part, left=begin, height=0.7, color=color, label=label or "_nolegend_")
            mark_label(drawn, label)
            begin = begin + part
    theme.label_rows(ax, range(len(shown)), shown.index, _CHARACTERS, shown["count"], one.spent.index)
    theme.label_bars(ax, shown["sum"], (f"{100 * value / all:.1f} %" if all > 0 else "" for value in shown["sum"]))
    ax.margins(x=max(0.09, font_points(40) / width_beside(ax, _CHARACTERS)))


def _note_on_spent(spent: pd.DataFrame, top: int, left_out: str) -> str:
    others, all = spent.iloc[top:], spent["sum"].sum()
    hidden = ""
    if len(others):
        hidden = f"the {format_count(len(others), 'step')} not shown: {100 * others['sum'].sum() / all:.1f} %"
    runs = f"{format_count(int(spent['count'].sum()), 'run')} of {format_count(len(spent), 'step')}, all attempts"
    return theme.join_notes(runs, hidden, left_out)
