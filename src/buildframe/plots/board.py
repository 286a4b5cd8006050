"""The tests that flake most."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.arguments import checked_call
from buildframe.plots.look import (
    BLUE,
    GREEN,
    NO_NAME,
    ORANGE,
    RED,
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
    some,
)  # fmt: skip
from buildframe.plots.room import POINTS_A_LABEL, at_left, room, signs

_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))
_STATUS = {
    "new": ("new", RED, ""),
    "came_back": ("came back", ORANGE, "////"),
    "still": ("still flaky", BLUE, ""),
    "resolved": ("resolved", GREEN, "...."),
}


@checked_call
def flaky_board(tests: pd.DataFrame, ax: Axes | None = None, before: pd.DataFrame | None = None, top: int = 20) -> Axes:
    """Up to `top` tests with most instances of flaking, and when each flaked last.

    `tests` is `ws.flaky_tests(suite=...)`; those that are still flaky come first, those resolved after them. With
    `before`, an earlier snapshot of the same list, colours tell apart what is new, came back, is still flaky, or was
    resolved between the two (as `status` in `metrics.flaky_board`); the rows are shared out among these, so that none
    hides another. What was resolved before the earlier snapshot already is only counted. Needs what
    `metrics.flaky_board` needs.
    """
    found = metrics.flaky_board(tests, before)
    found = found.assign(status=_status(found))
    known = pd.Series(False, index=found.index) if before is None else _resolved_then(found, before)
    board = found[~known]
    with canvas(ax, 9, 1.8 + 0.3 * float(np.clip(len(board), 3, most(top)))) as ax:
        if board.empty:
            return say(ax, _nothing(len(found)))
        shown = _chosen(board, min(top, max(int(room(ax)[1] / POINTS_A_LABEL), 1)), before is not None)
        _draw(ax, shown.iloc[::-1].reset_index(drop=True))
        ax.set_xlabel("instances of flaking")
        dress(ax, _title(board), _note(board, len(shown), int(known.sum()), before is not None), grid="x")
    return ax


def _status(found: pd.DataFrame) -> pd.Series[str]:
    known = found["status"] if "status" in found else found["is_resolved"].map({True: "resolved", False: "still"})
    return known.astype("str")


def _resolved_then(found: pd.DataFrame, before: pd.DataFrame) -> pd.Series[bool]:
    """Which are resolved, and were so in the earlier list, not since."""
    then = metrics.flaky_board(before).set_index("id").reindex(found["id"])
    was = then["is_resolved"].fillna(False).to_numpy(bool)
    anew = found["last_resolved_at"].to_numpy() > then["last_resolved_at"].to_numpy()
    return found["status"].eq("resolved") & was & ~anew


def _chosen(board: pd.DataFrame, top: int, is_news: bool) -> pd.DataFrame:
    """So many rows, by status, in each those with most instances; resolved ones are the last unless they are news."""
    place = board["status"].map({status: k for k, status in enumerate(_STATUS)})
    turn = board.groupby("status").cumcount() + (0 if is_news else len(board) * board["status"].eq("resolved"))
    taken = board.assign(place=place, turn=turn).sort_values(["turn", "place"], kind="stable").head(top)
    return taken.sort_values(["place", "turn"])


def _nothing(resolved: int) -> str:
    known = f" {counted(resolved, 'test')} had been resolved already." if resolved else ""
    return f"The service lists no flaky test.{known}"


def _title(board: pd.DataFrame) -> str:
    """What flakes still, and apart from it what is resolved."""
    flaky = board[board["status"] != "resolved"]
    if flaky.empty:
        return f"No flaky test, {len(board):,} resolved"
    instances = int(flaky["instances"].fillna(0).sum())
    return f"{counted(len(flaky), 'flaky test')}, {counted(instances, 'instance')}"


def _note(board: pd.DataFrame, shown: int, resolved_then: int, is_news: bool) -> str:
    counts = board["status"].value_counts()
    said = {what: int(counts.get(status, 0)) for status, (what, *_) in _STATUS.items()}
    told = listed(**said) if is_news or said["resolved"] else ""
    known = some(resolved_then, "test", "resolved before the earlier list not shown")
    hidden = f"{shown:,} of {len(board):,} shown" if shown < len(board) else ""
    return joined(told, known, hidden, "beside each when it last flaked, seen from its list")


def _draw(ax: Axes, shown: pd.DataFrame) -> None:
    instances = shown["instances"].fillna(0).to_numpy(np.float64)
    for key, (said, colour, hatch) in _STATUS.items():
        if (own := shown["status"].eq(key).to_numpy(bool)).any():
            ax.barh(np.flatnonzero(own), instances[own], 0.7, color=colour, hatch=hatch, edgecolor=ground(ax),
                    linewidth=0, label=said)  # fmt: skip
    for row, (n, seconds) in enumerate(zip(instances, shown["last_seen_s"], strict=True)):
        ax.annotate(_ago(seconds), (n, row), (4, 0), textcoords="offset points", va="center", fontsize=9, color=ink())
    names = _names(shown)
    short = labels(names, signs(ax, 44))
    ax.set_yticks(range(len(shown)), [short[name] for name in names], parse_math=False)
    ax.set_xlim(0, max(instances.max(), 1) / max(1 - 95 / room(ax, at_left(ax, 44))[0], 0.15))
    ax.set_ylim(min(len(shown) - 3, 0) - 0.6, len(shown) - 0.4)


def _names(shown: pd.DataFrame) -> list[str]:
    """The name of each test, with its scope where two share it, and its place where they share that."""
    names = shown["name"].fillna(NO_NAME)
    for more in ("scope", "location", "id"):
        twice = names.duplicated(keep=False) & shown[more].notna()
        names = names.mask(twice, names + " · " + shown[more])
    return list(names)


def _ago(seconds: float) -> str:
    """ "3 days ago", the largest unit of which there is one."""
    if np.isnan(seconds):
        return "when is not known"
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= length), _UNITS[-1])
    return f"{counted(max(int(seconds // length), 0), unit)} ago"
