"""The tests that flake most."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
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
    labels,
    say,
)  # fmt: skip

_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))
_STATUS = {
    "new": ("new", RED, ""),
    "came_back": ("came back", ORANGE, "////"),
    "still": ("still flaky", BLUE, ""),
    "resolved": ("resolved", GREEN, "...."),
}


def flaky_board(tests: pd.DataFrame, ax: Axes | None = None, before: pd.DataFrame | None = None, top: int = 20) -> Axes:
    """The `top` tests with most instances of flaking, and when each flaked last.

    `tests` is `ws.flaky_tests(suite=...)`. Colours tell which are resolved; with `before`, an earlier snapshot of the
    same list, also what is new and what came back, as in `metrics.flaky_board`. Needs what that needs.
    """
    found = metrics.flaky_board(tests, before)
    shown = found.head(top).iloc[::-1].reset_index(drop=True)
    with canvas(ax, 9, 1.8 + 0.3 * float(np.clip(len(shown), 3, top))) as ax:
        if shown.empty:
            return say(ax, "The service lists no flaky test.")
        _draw(ax, shown)
        ax.set_xlabel("instances of flaking")
        n = int(found["instances"].fillna(0).sum())
        which = f"the {len(shown)} with most; " if len(found) > len(shown) else ""
        title = f"{counted(len(found), 'flaky test')}, {counted(n, 'instance')}"
        dress(ax, title, f"{which}beside each when it last flaked, seen from its list", grid="x")
    return ax


def _draw(ax: Axes, shown: pd.DataFrame) -> None:
    instances = shown["instances"].fillna(0).to_numpy(np.float64)
    status = shown["status"] if "status" in shown else shown["is_resolved"].map({True: "resolved", False: "still"})
    for key, (said, colour, hatch) in _STATUS.items():
        if (own := status.eq(key).to_numpy(bool)).any():
            ax.barh(np.flatnonzero(own), instances[own], 0.7, color=colour, hatch=hatch, edgecolor=ground(ax),
                    linewidth=0, label=said)  # fmt: skip
    for row, (n, seconds) in enumerate(zip(instances, shown["last_seen_s"], strict=True)):
        ax.annotate(_ago(seconds), (n, row), (4, 0), textcoords="offset points", va="center", fontsize=9, color=ink())
    names = _names(shown)
    short = labels(names, 44)
    ax.set_yticks(range(len(shown)), [short[name] for name in names], parse_math=False)
    ax.margins(x=0.14)
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
