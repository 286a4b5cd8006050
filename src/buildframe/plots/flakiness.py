"""Plot outcomes of steps by commit, how often steps fail at random, and the flaky tests of a suite."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_call
from buildframe.plots import theme
from buildframe.plots.layout import (
    POINTS_PER_LABEL,
    count_rows_that_fit,
    is_small,
    label_width,
    max_characters,
    plot_area,
)

_MOST_COMMITS = 60
_LEAST_COMMITS = 20  # minimum width of the plot in columns, so that one commit does not fill it
_BELOW = 115  # points below the Axes for commit labels
_SHA = re.compile(r"\A([0-9a-f]{7})[0-9a-f]{33}\Z")
_VERDICTS = {
    "passed": ("passed", "#DCEBF4"),
    "infrastructure": ("agent lost", theme.GRAY),
    "undecided": ("failed once", "#F0B28C"),
    "deterministic": ("only failed", theme.RED),
    "flaky": ("passed and failed (flip)", theme.ORANGE),
}
"""Label and color of each verdict, from best to worst."""

_SURE = 0.95
"""Probability from which a step counts as surely flaky."""

_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))
_STATUS = {
    "new": ("new", theme.RED, ""),
    "came_back": ("came back", theme.ORANGE, "////"),
    "still": ("still flaky", theme.BLUE, ""),
    "resolved": ("resolved", theme.GREEN, "...."),
}


@checked_call
def flips(jobs: pd.DataFrame, ax: Axes | None = None, top: int = 20) -> Axes:
    """
    Plot steps against commits, and mark commits on which a step both failed and passed.

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
    buildframe.metrics.flips : The ranking of steps.
    buildframe.metrics.outcomes_by_commit : The verdicts of this plot.

    Notes
    -----
    A cell is the worst verdict over the shards and matrix jobs of a step on a commit. It is empty if nothing passed or
    failed. Columns are the latest 60 commits on which at least one of these steps did not simply pass, in the order of
    their first outcome. The note counts earlier commits.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="10d", include_retried_jobs=True)
    >>> ax = plots.flips(jobs, top=5)
    >>> ax.get_ylabel()
    'step (flips / passing commits)'
    """
    steps = metrics.flips(jobs)
    steps = steps.assign(name=theme.prefix_if_several(steps["step"].fillna(theme.NO_NAME), steps["pipeline"]))
    flipped = steps[steps["flaky"] > 0]
    with theme.themed_axes(ax, 10, 3.2 + 0.23 * float(np.clip(len(flipped), 3, theme.check_top(top)))) as ax:
        shown = flipped.head(count_rows_that_fit(ax, top, below=_BELOW))
        if shown.empty:
            none = "No step both passed and failed on the same commit." if len(steps) else "No job passed or failed."
            return theme.show_message(ax, none)
        table = _rank_verdicts(metrics.outcomes_by_commit(jobs), shown)
        earlier = max(table.shape[1] - min(_MOST_COMMITS, int(plot_area(ax, label_width(ax, 40))[0] / 5)), 0)
        _draw_verdicts(ax, table.iloc[:, earlier:])
        _label_axes(ax, shown, list(table.columns[earlier:]))
        note = "commits on which at least one of these steps failed"
        hidden = {"earlier one": earlier, "step": len(flipped) - len(shown)}
        left_out = (theme.count_note(n, what, "not shown") for what, n in hidden.items())
        title = f"{format_count(int(flipped['flaky'].sum()), 'flip')} of {format_count(len(flipped), 'step')}"
        theme.decorate(ax, title, theme.join_notes(note, *left_out))
        ax.spines[:].set_visible(False)
    return ax


def _rank_verdicts(outcomes: pd.DataFrame, shown: pd.DataFrame) -> pd.DataFrame:
    """Return the rank of the worst verdict per step (rows) and commit (columns) with at least one non-pass."""
    key = ["organization", "pipeline", "step"]
    rows = outcomes.merge(shown[key].assign(row=range(len(shown))), on=key)
    rows["rank"] = rows["verdict"].map({verdict: rank for rank, verdict in enumerate(_VERDICTS)}).astype("float64")
    troubled = rows[rows["rank"] > 0].groupby("commit")["first_at"].min()
    in_order = troubled.sort_index().sort_values(kind="stable").index
    worst = rows.groupby(["row", "commit"])["rank"].max().unstack()
    return worst.reindex(index=range(len(shown)), columns=in_order)


def _draw_verdicts(ax: Axes, table: pd.DataFrame) -> None:
    ranks = table.to_numpy(np.float64)
    wide = plot_area(ax, label_width(ax, 40))[0] / max(ranks.shape[1], _LEAST_COMMITS)
    colors = [color for _, color in _VERDICTS.values()]
    ax.pcolormesh(np.ma.masked_invalid(ranks), cmap=ListedColormap(colors), vmin=-0.5, vmax=len(colors) - 0.5,
                  edgecolors=[theme.background(ax)], linewidth=min(1, wide / 10))  # fmt: skip
    for rank, (label, color) in enumerate(_VERDICTS.values()):
        if (ranks == rank).any():
            ax.bar(0, 0, color=color, label=label)
    row, column = np.nonzero(ranks == len(colors) - 1)
    ax.plot(column + 0.5, row + 0.5, "x", color="#333333", markersize=min(5, 0.6 * wide), markeredgewidth=1.2)


def _label_axes(ax: Axes, shown: pd.DataFrame, commits: list[str]) -> None:
    names = theme.unique_labels(shown["name"], max(max_characters(ax, 40) - 8, 9))
    rows = [
        f"{names[str(row.name)]}  ({row.flaky:,} / {row.commits_passed:,})" for row in shown.itertuples(index=False)
    ]
    ax.set_yticks(np.arange(len(shown)) + 0.5, rows, parse_math=False)
    _label_commits(ax, commits)
    ax.set(xlabel="commit, by time of its first outcome", ylabel="step (flips / passing commits)")
    ax.set(xlim=(0, max(len(commits), _LEAST_COMMITS)), ylim=(max(len(shown), 3), 0))


def _label_commits(ax: Axes, commits: list[str]) -> None:
    """Label every n-th commit as room allows, always including the latest."""
    short = theme.unique_labels(commits, 12, lambda name, width: theme.drawable(_SHA.sub(r"\1", name), width))
    every = int(np.ceil(POINTS_PER_LABEL * max(len(commits), _LEAST_COMMITS) / plot_area(ax, label_width(ax, 40))[0]))
    shown = range((len(commits) - 1) % every, len(commits), every)
    texts = ["" if is_small(ax) else short[commits[k]] for k in shown]
    ax.set_xticks([k + 0.5 for k in shown], texts, parse_math=False, rotation=90, family="monospace")


@checked_call
def flaky_board(tests: pd.DataFrame, ax: Axes | None = None, before: pd.DataFrame | None = None, top: int = 20) -> Axes:
    """
    Plot the tests with the most instances of flaking, and when each flaked last.

    Tests that are still flaky come first, resolved tests last.

    Parameters
    ----------
    tests : pandas.DataFrame
        Result of `ws.flaky_tests(suite=...)`, with `id`, `scope`, `name`, `location`, `instances`,
        `latest_occurrence_at`, `last_resolved_at` and `fetched_at`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    before : pandas.DataFrame, optional
        An earlier snapshot of the same list. Colors then separate tests that are new, came back, are still flaky, or
        were resolved between the two snapshots.
    top : int, default 20
        Maximum number of tests, at least 1.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, a test is listed twice, `before` is later than `tests`, or `top` is
        below 1.

    See Also
    --------
    buildframe.metrics.flaky_board : The ranking of this plot.
    flips : Steps that both failed and passed on one commit.

    Notes
    -----
    With `before`, rows are shared among the statuses, so that no status hides another. Tests that were already resolved
    in `before` are counted in the note and not drawn.

    Examples
    --------
    >>> tests = ci.flaky_tests(suite="rspec")
    >>> ax = plots.flaky_board(tests, top=10)
    >>> ax.get_xlabel()
    'instances of flaking'
    """
    ranked = metrics.flaky_board(tests, before)
    if before is None:
        ranked["status"] = ranked["is_resolved"].map({True: "resolved", False: "still"}).astype("str")
    is_hidden = pd.Series(False, index=ranked.index) if before is None else _find_resolved_before(ranked, before)
    board = ranked[~is_hidden]
    with theme.themed_axes(ax, 9, 1.8 + 0.3 * float(np.clip(len(board), 3, theme.check_top(top)))) as ax:
        if board.empty:
            earlier = f" {format_count(len(ranked), 'test')} already resolved." if len(ranked) else ""
            return theme.show_message(ax, f"The service lists no flaky test.{earlier}")
        shown = _select_tests(board, count_rows_that_fit(ax, top), before is not None)
        _draw_instances(ax, shown.iloc[::-1].reset_index(drop=True))
        ax.set_xlabel("instances of flaking")
        note = _note(board, len(shown), int(is_hidden.sum()), before is not None)
        theme.decorate(ax, _count_tests(board), note, grid="x")
    return ax


def _find_resolved_before(ranked: pd.DataFrame, before: pd.DataFrame) -> pd.Series[bool]:
    """Return which tests are resolved and were already resolved in the earlier list."""
    then = metrics.flaky_board(before).set_index("id").reindex(ranked["id"])
    was = then["is_resolved"].fillna(False).to_numpy(bool)
    again = ranked["last_resolved_at"].to_numpy() > then["last_resolved_at"].to_numpy()
    return ranked["status"].eq("resolved") & was & ~again


def _select_tests(board: pd.DataFrame, top: int, has_before: bool) -> pd.DataFrame:
    """Return up to `top` tests grouped by status, in each those with most instances."""
    place = board["status"].map({status: k for k, status in enumerate(_STATUS)})
    turn = board.groupby("status").cumcount() + (0 if has_before else len(board) * board["status"].eq("resolved"))
    taken = board.assign(place=place, turn=turn).sort_values(["turn", "place"], kind="stable").head(top)
    return taken.sort_values(["place", "turn"])


def _count_tests(board: pd.DataFrame) -> str:
    """Return the number of flaky tests and instances; resolved tests are not included."""
    flaky = board[board["status"] != "resolved"]
    if flaky.empty:
        return f"No flaky test, {len(board):,} resolved"
    instances = int(flaky["instances"].fillna(0).sum())
    return f"{format_count(len(flaky), 'flaky test')}, {format_count(instances, 'instance')}"


def _note(board: pd.DataFrame, shown: int, resolved_then: int, has_before: bool) -> str:
    counts = board["status"].value_counts()
    by_status = {what: int(counts.get(status, 0)) for status, (what, *_) in _STATUS.items()}
    counted_by_status = theme.list_counts(**by_status) if has_before or by_status["resolved"] else ""
    earlier = theme.count_note(resolved_then, "test", "resolved before the earlier list not shown")
    hidden = f"{shown:,} of {len(board):,} shown" if shown < len(board) else ""
    return theme.join_notes(counted_by_status, earlier, hidden, "Label: time since last flake")


def _draw_instances(ax: Axes, shown: pd.DataFrame) -> None:
    instances = shown["instances"].fillna(0).to_numpy(np.float64)
    for key, (label, color, hatch) in _STATUS.items():
        if (own := shown["status"].eq(key).to_numpy(bool)).any():
            ax.barh(np.flatnonzero(own), instances[own], 0.7, color=color, hatch=hatch, edgecolor=theme.background(ax),
                    linewidth=0, label=label)  # fmt: skip
    theme.label_bars(ax, instances, map(_format_age, shown["last_seen_s"]))
    names = _distinguish_names(shown)
    short = theme.unique_labels(names, max_characters(ax, 44))
    ax.set_yticks(range(len(shown)), [short[name] for name in names], parse_math=False)
    ax.set_xlim(0, max(instances.max(), 1) / max(1 - 95 / plot_area(ax, label_width(ax, 44))[0], 0.15))


def _distinguish_names(shown: pd.DataFrame) -> list[str]:
    """Return distinct names: the name, extended by scope, location and id where tests share it."""
    names = shown["name"].fillna(theme.NO_NAME)
    for more in ("scope", "location", "id"):
        twice = names.duplicated(keep=False) & shown[more].notna()
        names = names.mask(twice, names + " · " + shown[more])
    return list(names)


def _format_age(seconds: float) -> str:
    """Return an age such as "3 days ago", in the largest unit of which there is at least one."""
    if np.isnan(seconds):
        return "unknown"
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= length), _UNITS[-1])
    return f"{format_count(max(int(seconds // length), 0), unit)} ago"


@checked_call
def flake_scores(
    jobs: pd.DataFrame, ax: Axes | None = None, threshold: float = 0.01, retries: int = 1, top: int = 20
) -> Axes:
    """
    Plot the rate at which steps fail at random, with 90 % credible intervals.

    Rows are the first `top` steps of `metrics.flake_score`, in its order. Orange steps exceed the threshold with at
    least 95 % probability. Each label gives this probability.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the columns that `metrics.flake_score` needs, fetched with `include_retried_jobs=True`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    threshold : float, default 0.01
        Rate above which a step counts as flaky; a line marks it.
    retries : int, default 1
        How often a failure is tried again, for the power in the note.
    top : int, default 20
        Maximum number of steps, at least 1.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, or `threshold`, `retries` or `top` is out of range.

    See Also
    --------
    buildframe.metrics.flake_score : The rates.
    flips : The commits behind them.

    Notes
    -----
    The note counts steps whose commits could hardly have shown a rate at the threshold, if failures are tried again:
    their power is below 50 %.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="10d", include_retried_jobs=True)
    >>> ax = plots.flake_scores(jobs, top=5)
    >>> ax.get_xlabel()
    'attempts that fail at random (%)'
    """
    scores = metrics.flake_score(jobs, threshold=threshold, retries=retries)
    known = scores.dropna(subset="rate")
    with theme.themed_axes(ax, 9, 1.8 + 0.3 * float(np.clip(len(known), 3, theme.check_top(top)))) as ax:
        if known.empty:
            return theme.show_message(ax, "No step passed, or no commit was tried more than once: no rate is known.")
        shown = known.head(count_rows_that_fit(ax, top)).iloc[::-1].reset_index(drop=True)
        _draw_rates(ax, shown, threshold)
        unseen, above = int((known["power_retried"] < 0.5).sum()), int((known["p_above"] >= _SURE).sum())
        hidden = f"{len(shown):,} of {len(known):,} steps shown" if len(shown) < len(known) else ""
        few = theme.count_note(unseen, "step", f"with too few commits to show {threshold:.3g}")
        storms = theme.count_note(int(scores["n_storm"].sum()), "attempt", "in storms left out")
        title = f"{format_count(above, 'step')} surely above {100 * threshold:.3g} %"
        theme.decorate(ax, title, theme.join_notes("label: probability to be above", hidden, few, storms), grid="x")
    return ax


def _draw_rates(ax: Axes, shown: pd.DataFrame, threshold: float) -> None:
    """Draw each rate with its interval in percent, and the threshold."""
    percent = 100 * shown[["rate", "low", "high"]].to_numpy(np.float64)
    is_sure = (shown["p_above"] >= _SURE).to_numpy(bool)
    rows = np.arange(len(shown))
    for own, color, label in ((is_sure, theme.ORANGE, "surely above"), (~is_sure, theme.BLUE, "not surely")):
        if own.any():
            rate, low, high = percent[own].T
            ax.errorbar(
                rate, rows[own], xerr=[rate - low, high - rate], fmt="o", color=color, markersize=5, label=label
            )
    ax.axvline(100 * threshold, color=theme.GRAY, linestyle="--", linewidth=1, label="threshold")
    most = percent[:, 2].max()
    for row, (high, p) in enumerate(zip(percent[:, 2], shown["p_above"], strict=True)):
        ax.annotate(f"{100 * p:.0f} %", (high, row), (5, 0), textcoords="offset points", va="center", size="small")
    names = theme.prefix_if_several(shown["step"].fillna(theme.NO_NAME), shown["pipeline"])
    short = theme.unique_labels(names, max_characters(ax, 44))
    ax.set_yticks(rows, [short[str(name)] for name in names], parse_math=False)
    ax.set(xlabel="attempts that fail at random (%)", ylim=(-0.6, max(len(shown), 3) - 0.4))
    ax.set_xlim(0, max(most, 100 * threshold) / max(1 - 50 / plot_area(ax, label_width(ax, 44))[0], 0.15))
