"""Plot outcomes of steps by commit: of steps that flip, and of all steps."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.grouping import Key
from buildframe.metrics.time_buckets import to_zone
from buildframe.plots import theme
from buildframe.plots.layout import (
    axes_cell,
    count_rows_that_fit,
    font_points,
    is_cell,
    label_height,
    points_per_pixel,
    width_beside,
)
from buildframe.plots.names import step_names
from buildframe.plots.panels import Panel, Placement, draw

_MOST_COMMITS = 60
_CHARACTERS = 40
_ROW = 0.23  # inches
_LEAST_COMMITS = 20  # minimum width of the plot in columns, so that one commit does not fill it
_BELOW = 115.0  # points below the Axes for commit labels
_LEAST_HEIGHT = 270.0  # points of a plot, or 170 of a cell, with commit labels
_SHA = re.compile(r"\A([0-9a-f]{7})[0-9a-f]{33}\Z")
_VERDICTS = {
    "passed": ("passed", "#DCEBF4"),
    "infrastructure": ("infrastructure", theme.GRAY),
    "killed": ("killed, cause unknown", theme.PURPLE),
    "undecided": ("failed, not retried", "#F0B28C"),
    "deterministic": ("failed every time", theme.RED),
    "flaky": ("passed and failed (flip)", theme.ORANGE),
}
"""Label and color of each verdict, from best to worst."""

_NO_FAILURE = 2  # rank of the worst verdict that is no failure of the step
_PASSED_ON_DARK = "#24465C"


class _Verdicts(NamedTuple):
    """Steps by rank, the outcomes of all steps by commit, and the number of all steps."""

    steps: pd.DataFrame
    outcomes: pd.DataFrame
    n_steps: int


@checked_frames
def flips(
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    top: int = 20,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
) -> Any:
    """
    Plot steps against commits, newest on the left, and mark commits on which a step both failed and passed.

    Such a commit is a flip and has a cross. Rows are the first `top` steps of `metrics.flips` that ever flipped, in its
    order. Each label gives the number of flips and of commits on which the step passed at least once.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with `organization`, `pipeline`, `step_key`, `name`, `commit`, `matrix`, `parallel_group_index`, `type`,
        `state`, `soft_failed`, `exit_status`, `signal` and `finished_at`. Fetch them with `include_retried_jobs=True`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    top : int, default 20
        Maximum number of steps, at least 1.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the days in the title.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `top` is below 1, or `ax` is used with `col` or `row`.

    See Also
    --------
    commit_grid : All commits and steps, whatever their outcome.
    buildframe.metrics.flips : The ranking of steps.
    buildframe.metrics.outcomes_by_commit : The verdicts of this plot.

    Notes
    -----
    A cell is the worst verdict over the shards and matrix jobs of a step on a commit. It is empty if nothing passed or
    failed. "failed, not retried" is one failure, so nobody knows whether the step would have passed; "failed every
    time" is two failures or more without a pass. Columns are the latest 60 commits on which at least one of these steps
    did not simply pass, as in `commit_grid` the newest first, by the time of their first outcome that was no pass. The
    note counts earlier commits.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="10d", include_retried_jobs=True)
    >>> ax = plots.flips(jobs, top=5)
    >>> ax.get_ylabel()
    'step (flips / passing commits)'
    """
    theme.check_positive(top=top)

    def paint(one: _Verdicts, panel: Panel[_Verdicts]) -> None:
        ax = panel.ax
        shown = one.steps.head(count_rows_that_fit(ax, top, below=_points_below(ax)))
        if shown.empty:
            none = "No step both passed and failed on the same commit."
            panel.show_message(none if one.n_steps else "No job passed or failed.")
            return
        table = _rank_verdicts(one.outcomes, shown)
        troubled = table.loc[:, (table > 0).any()].iloc[:, ::-1]
        earlier = max(troubled.shape[1] - count_commits_that_fit(ax, _MOST_COMMITS), 0)
        newest = troubled.iloc[:, : troubled.shape[1] - earlier]
        draw_verdicts(ax, newest)
        counts = [f"{row.flaky:,} / {row.commits_passed:,}" for row in shown.itertuples(index=False)]
        theme.label_rows(ax, np.arange(len(shown)) + 0.5, shown["name"], _CHARACTERS, counts, one.steps["name"])
        _label_commits(ax, list(newest.columns))
        ax.set(xlabel="commit, newest first", ylabel="step (flips / passing commits)")
        hidden = {"earlier one": earlier, "step": len(one.steps) - len(shown)}
        left_out = (theme.count_note(n, what, "not shown") for what, n in hidden.items())
        heading = f"{format_count(int(one.steps['flaky'].sum()), 'flip')} of {format_count(len(one.steps), 'step')}"
        key = "commits on which at least one of these steps failed"
        panel.decorate(heading, theme.join_notes(*left_out), short=heading, key=key)
        ax.spines[:].set_visible(False)

    def size(one: _Verdicts) -> tuple[float, float]:
        each = theme.row_height(one.steps["name"].head(top), _ROW, _CHARACTERS)
        return 10, 3.2 + each * float(np.clip(len(one.steps), 3, top))

    place = Placement(ax, col, row, title, tz)
    return draw(_find_flips, paint, jobs, place, "Flips by step and commit,", size, "")


def _find_flips(jobs: pd.DataFrame) -> _Verdicts:
    steps = metrics.flips(jobs)
    steps = steps.assign(name=step_names(steps))
    outcomes = metrics.outcomes_by_commit(jobs) if (steps["flaky"] > 0).any() else steps
    return _Verdicts(steps[steps["flaky"] > 0], outcomes, len(steps))


@checked_frames
def commit_grid(
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    top: int = 25,
    commits: int = 40,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
) -> Any:
    """
    Plot the outcome of each step on each commit: newest commits on the left, the steps that fail most at the top.

    Commits on which a step both failed and passed have a cross.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the columns that `metrics.outcomes_by_commit` needs, fetched with `include_retried_jobs=True`. Select
        the jobs of one branch to see its history.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    top : int, default 25
        Maximum number of steps, at least 1.
    commits : int, default 40
        Maximum number of commits, at least 1: the newest.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the days.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `top` or `commits` is below 1, or `ax` is used with `col` or `row`.

    See Also
    --------
    flips : Only steps that both failed and passed, and only commits with failures.
    buildframe.metrics.outcomes_by_commit : The outcomes of this plot.

    Notes
    -----
    A cell is the worst outcome over the shards and matrix jobs of a step on a commit. It is empty if nothing passed or
    failed. "failed, not retried" is one failure; "failed every time" is two failures or more without a pass. The first
    row has the worst outcome of all steps. Labels give the number of commits on which a step failed. Commits are
    ordered by the end of their first job that passed or failed. The label of the newest one of a day begins with this
    day, and a line separates days.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d", include_retried_jobs=True)
    >>> ax = plots.commit_grid(jobs[jobs["pipeline"] == "web"], top=8)
    >>> ax.get_xlabel()
    'commit, newest first'
    """
    theme.check_positive(top=top, commits=commits)

    def paint(one: _Verdicts, panel: Panel[_Verdicts]) -> None:
        ax = panel.ax
        if one.steps.empty:
            panel.show_message("No job passed or failed.")
            return
        shown_commits, older = _choose_newest(one.outcomes, count_commits_that_fit(ax, commits))
        table = _rank_verdicts(one.outcomes, one.steps).reindex(columns=list(shown_commits.index))
        failed = (table > _NO_FAILURE).sum(axis=1)
        total = one.steps["failures"]
        ran = table.index[table.notna().any(axis=1)]
        order = sorted(ran, key=lambda k: (-failed[k], -total[k], one.steps["name"][k]))
        rows = order[: max(count_rows_that_fit(ax, top + 1, below=_points_below(ax)) - 1, 1)]
        draw_verdicts(ax, pd.concat([table.max().to_frame().T, table.loc[rows]], ignore_index=True))
        counts = [int((table.max() > _NO_FAILURE).sum()), *failed[rows]]
        names = ["all steps", *one.steps["name"][rows]]
        theme.label_rows(ax, np.arange(len(names)) + 0.5, names, _CHARACTERS, counts, one.steps["name"])
        days = to_zone(shown_commits, tz).dt.tz_localize(None).dt.normalize()
        _label_commits(ax, [str(commit) for commit in table], list(days))
        ax.axhline(1, color=theme.background(ax), linewidth=4)
        ax.set(xlabel="commit, newest first", ylabel="step (commits on which it failed)")
        hidden = order[len(rows) :]
        note = theme.join_notes(
            theme.count_note(older, "older commit", "not shown"),
            theme.count_note(int((failed[hidden] > 0).sum()), "step", "that failed less not shown"),
            theme.count_note(int((failed[hidden] == 0).sum()), "step", "that did not fail not shown"),
            theme.count_note(len(table) - len(ran), "step", "without an outcome on these commits"),
        )
        n = format_count(table.shape[1], "commit")
        panel.decorate(f"Outcomes of {format_count(len(ran), 'step')} on {n}", note, short=n)
        ax.spines[:].set_visible(False)

    def size(one: _Verdicts) -> tuple[float, float]:
        each = theme.row_height(one.steps["name"].head(top), _ROW, _CHARACTERS)
        return 11, 3.2 + each * float(np.clip(len(one.steps) + 1, 3, top + 1))

    place = Placement(ax, col, row, title, tz)
    return draw(_rank_by_failures, paint, jobs, place, "Outcomes of steps by commit,", size, "")


def _rank_by_failures(jobs: pd.DataFrame) -> _Verdicts:
    """Return all steps, those first that failed on most commits, with their outcomes."""
    outcomes = metrics.outcomes_by_commit(jobs).dropna(subset=["commit"])
    key = ["organization", "pipeline", "step"]
    is_bad = outcomes["verdict"].isin(["undecided", "deterministic", "flaky"])
    bad = outcomes.assign(failed=outcomes["commit"].where(is_bad)).groupby(key, dropna=False)
    steps = bad.agg(failures=("failed", "nunique"), last=("last_at", "max")).reset_index()
    steps = steps.assign(name=step_names(steps))
    steps = steps.sort_values(["failures", "last", "name"], ascending=[False, False, True])
    return _Verdicts(steps.reset_index(drop=True), outcomes, len(steps))


def _choose_newest(outcomes: pd.DataFrame, most: int) -> tuple[pd.Series[Any], int]:
    """Return the first outcomes of the newest commits, newest first, and the number of older commits."""
    times = outcomes.groupby("commit")["first_at"].min().sort_index()
    ordered = times.sort_values(ascending=False, kind="stable")
    return ordered.head(most), max(len(ordered) - most, 0)


def _rank_verdicts(outcomes: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the rank of the worst verdict per step (rows) and commit (columns), by the commit's first non-pass.

    Commits on which all of these steps only passed come last.
    """
    key = ["organization", "pipeline", "step"]
    rows = outcomes.merge(steps[key].assign(row=range(len(steps))), on=key)
    rows["rank"] = rows["verdict"].map({verdict: rank for rank, verdict in enumerate(_VERDICTS)}).astype("float64")
    troubled = rows[rows["rank"] > 0].groupby("commit")["first_at"].min()
    times = rows.groupby("commit")["first_at"].min()
    in_order = [*_in_order(troubled), *_in_order(times.drop(troubled.index))]
    worst = rows.groupby(["row", "commit"])["rank"].max().unstack()
    return worst.reindex(index=range(len(steps)), columns=in_order)


def _in_order(times: pd.Series[Any]) -> list[str]:
    return list(times.sort_index().sort_values(kind="stable").index)


def count_commits_that_fit(ax: Axes, most: int) -> int:
    """Return how many commits there is room for, at most `most`."""
    return max(min(most, int(width_beside(ax, _CHARACTERS) / 5)), 1)


def draw_verdicts(ax: Axes, table: pd.DataFrame) -> None:
    """Draw ranks of verdicts as cells of steps (rows, from the top) and commits (columns)."""
    ranks = table.to_numpy(np.float64)
    wide = width_beside(ax, _CHARACTERS) / max(ranks.shape[1], _LEAST_COMMITS)
    colors = [color for _, color in _VERDICTS.values()]
    colors[0] = colors[0] if theme.is_light() else _PASSED_ON_DARK
    ax.pcolormesh(np.ma.masked_invalid(ranks), cmap=ListedColormap(colors), vmin=-0.5, vmax=len(colors) - 0.5,
                  edgecolors=[theme.background(ax)], linewidth=min(1, wide / 10))  # fmt: skip
    for rank, ((label, _), color) in enumerate(zip(_VERDICTS.values(), colors, strict=True)):
        if (ranks == rank).any():
            ax.bar(0, 0, color=color, label=label)
    row, column = np.nonzero(ranks == len(colors) - 1)
    ax.plot(column + 0.5, row + 0.5, "x", color="#333333", markersize=min(5, 0.6 * wide), markeredgewidth=1.2)
    ax.set(xlim=(0, max(ranks.shape[1], _LEAST_COMMITS)), ylim=(max(len(ranks), 3), 0))


def _has_commit_labels(ax: Axes) -> bool:
    """Return whether the Axes are high enough for labels of commits, which are upright."""
    return axes_cell(ax).height * points_per_pixel(ax) >= font_points(_LEAST_HEIGHT - 100 * is_cell(ax))


def _points_below(ax: Axes) -> float:
    return _BELOW if _has_commit_labels(ax) else 40.0


def _label_commits(ax: Axes, commits: list[str], days: list[Any] | None = None) -> None:
    """Label every n-th commit as room allows, from the newest on; the first of a day with the day."""
    short = theme.unique_labels(commits, 12, lambda name, width: theme.drawable(_SHA.sub(r"\1", name), width))
    every = int(np.ceil(label_height() * max(len(commits), _LEAST_COMMITS) / width_beside(ax, _CHARACTERS)))
    shown = range(0, len(commits), every)
    texts = [short[commits[k]] for k in shown]
    if days is not None:
        is_new = {k: k == 0 or days[k] != days[shown[max(i - 1, 0)]] for i, k in enumerate(shown)}
        texts = [
            f"{days[k].day} {days[k]:%b}  {text}" if is_new[k] else text for k, text in zip(shown, texts, strict=True)
        ]
        borders = [k for k in range(1, len(days)) if days[k] != days[k - 1]]
        ax.vlines(borders, 0, ax.get_ylim()[0], color=theme.background(ax), linewidth=3)
    texts = [text if _has_commit_labels(ax) else "" for text in texts]
    ax.set_xticks([k + 0.5 for k in shown], texts, parse_math=False, rotation=90, family="monospace")
