"""Which steps passed and failed on one commit."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from buildframe import metrics
from buildframe.arguments import checked_call
from buildframe.plots.look import (
    GREY,
    NO_NAME,
    ORANGE,
    RED,
    canvas,
    counted,
    dress,
    fitting,
    ground,
    joined,
    labels,
    most,
    say,
    some,
)  # fmt: skip
from buildframe.plots.room import POINTS_A_LABEL, at_left, is_small, room, signs

_MOST_COMMITS = 60
_LEAST_COMMITS = 20  # that have room, or one would be as wide as the picture
_BELOW = 115  # points that the commits take
_SHA = re.compile("[0-9a-f]{40}")
_VERDICTS = {
    "passed": ("passed", "#DCEBF4"),
    "infrastructure": ("agent lost", GREY),
    "undecided": ("failed once", "#F0B28C"),
    "deterministic": ("only failed", RED),
    "flaky": ("passed and failed: a flip", ORANGE),
}
"""How each is said and drawn, from the best to the worst: of the shards of a step on a commit, the worst counts."""


@checked_call
def flips(jobs: pd.DataFrame, ax: Axes | None = None, top: int = 20) -> Axes:
    """Steps (rows) on commits (columns): which passed, which failed, and which did both (a flip, with a cross).

    Rows are the first `top` steps of `metrics.flips` that ever flipped, in its order, each with the number of its
    flips and of its commits that passed at least once. A cell is the worst verdict of `metrics.outcomes_by_commit`
    over the shards and matrix jobs of the step on the commit; it is empty where nothing passed or failed.
    Columns are the latest 60 commits, by when an outcome was first seen, on which one of these steps did not
    just pass; the others are counted. Steps are apart by `pipeline` where several have flipped. Needs what
    `metrics.flips` needs.
    """
    steps = _named(metrics.flips(jobs))
    flipped = steps[steps["flaky"] > 0]
    with canvas(ax, 10, 3.2 + 0.23 * float(np.clip(len(flipped), 3, most(top)))) as ax:
        shown = flipped.head(min(top, max(int(room(ax, below=_BELOW)[1] / POINTS_A_LABEL), 1)))
        if shown.empty:
            return say(ax, "No step has passed and failed on one commit." if len(steps) else "There are no outcomes.")
        table = _table(metrics.outcomes_by_commit(jobs), shown)
        earlier = max(table.shape[1] - min(_MOST_COMMITS, int(room(ax, at_left(ax, 40))[0] / 5)), 0)
        _draw(ax, table.iloc[:, earlier:])
        _label(ax, shown, list(table.columns[earlier:]))
        note = "commits on which one of these steps failed; of each step the flips of all commits that it passed"
        left_out = some(earlier, "earlier one", "not shown"), some(len(flipped) - len(shown), "step", "not shown")
        title = f"{counted(int(flipped['flaky'].sum()), 'flip')} of {counted(len(flipped), 'step')}"
        dress(ax, title, joined(note, *left_out))
        ax.spines[:].set_visible(False)
    return ax


def _named(found: pd.DataFrame) -> pd.DataFrame:
    """With a column `name`: the step, and before it the pipeline where there are several."""
    names = found["step"].fillna(NO_NAME)
    if found["pipeline"].nunique() > 1:
        names = found["pipeline"].fillna("?") + " / " + names
    return found.assign(name=names)


def _table(outcomes: pd.DataFrame, shown: pd.DataFrame) -> pd.DataFrame:
    """The place of the worst verdict of each step (rows) on each commit that they did not all just pass (columns)."""
    key = ["organization", "pipeline", "step"]
    found = outcomes.merge(shown[key].assign(row=range(len(shown))), on=key)
    found["rank"] = found["verdict"].map({verdict: rank for rank, verdict in enumerate(_VERDICTS)}).astype("float64")
    troubled = found[found["rank"] > 0].groupby("commit")["first_at"].min()
    in_order = troubled.sort_index().sort_values(kind="stable").index
    worst = found.groupby(["row", "commit"])["rank"].max().unstack()
    return worst.reindex(index=range(len(shown)), columns=in_order)


def _draw(ax: Axes, table: pd.DataFrame) -> None:
    ranks = table.to_numpy(np.float64)
    wide = room(ax, at_left(ax, 40))[0] / max(ranks.shape[1], _LEAST_COMMITS)
    colours = [colour for _, colour in _VERDICTS.values()]
    ax.pcolormesh(np.ma.masked_invalid(ranks), cmap=ListedColormap(colours), vmin=-0.5, vmax=len(colours) - 0.5,
                  edgecolors=[ground(ax)], linewidth=min(1, wide / 10))  # fmt: skip
    for rank, (said, colour) in enumerate(_VERDICTS.values()):
        if (ranks == rank).any():
            ax.bar(0, 0, color=colour, label=said)
    row, column = np.nonzero(ranks == len(colours) - 1)
    ax.plot(column + 0.5, row + 0.5, "x", color="#333333", markersize=min(5, 0.6 * wide), markeredgewidth=1.2)


def _label(ax: Axes, shown: pd.DataFrame, commits: list[str]) -> None:
    names = labels(shown["name"], max(signs(ax, 40) - 8, 9))
    rows = [
        f"{names[str(row.name)]}  ({row.flaky:,} of {row.commits_passed:,})" for row in shown.itertuples(index=False)
    ]
    ax.set_yticks(np.arange(len(shown)) + 0.5, rows, parse_math=False)
    _label_commits(ax, commits)
    ax.set_ylabel("step (flips)")
    ax.set_xlabel("commit, in the order in which their outcomes came")
    ax.set_xlim(0, max(len(commits), _LEAST_COMMITS))
    ax.set_ylim(max(len(shown), 3), 0)


def _label_commits(ax: Axes, commits: list[str]) -> None:
    """Each, or every second or so, as there is room, the latest always."""
    short = labels(commits, 12, _short)
    every = int(np.ceil(POINTS_A_LABEL * max(len(commits), _LEAST_COMMITS) / room(ax, at_left(ax, 40))[0]))
    shown = range((len(commits) - 1) % every, len(commits), every)
    words = ["" if is_small(ax) else short[commits[k]] for k in shown]
    ax.set_xticks([k + 0.5 for k in shown], words, parse_math=False, rotation=90, family="monospace")


def _short(commit: str, width: int) -> str:
    return commit[:7] if _SHA.fullmatch(commit) else fitting(commit, width)
