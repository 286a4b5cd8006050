"""The jobs of one build, as bars along time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe.arguments import checked_call
from buildframe.errors import BadInput
from buildframe.metrics.bars import bars_of, is_negative
from buildframe.metrics.columns import column
from buildframe.metrics.steps import without_emoji
from buildframe.plots.look import (
    BLUE,
    BROWN,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    canvas,
    counted,
    dress,
    faint,
    fitting,
    ground,
    ink,
    joined,
    labels,
    say,
    some,
)  # fmt: skip
from buildframe.plots.room import POINTS_A_LABEL, room, signs


@checked_call
def timeline(jobs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The jobs of one build as bars: waiting for an agent, then running; its triggers and block steps between them.

    Attempts and shards of a step lie together, steps in the order in which they came up. A run that
    failed or timed out is hatched; an attempt that was retried ends in a ring; what was not
    over when it was fetched ends in an arrow at `fetched_at`. A trigger lasts from when it was runnable
    until the build that it triggered ended. Of a block step the service tells only when it was
    unblocked: its bar begins where what had started before has ended, so at the gap in which nothing
    ran, and a diamond is at its end. Many jobs are labelled by step. Jobs that were never runnable are
    counted; wait steps are not shown. Where clocks disagree: a run that ends before it starts is a dotted line
    from a stroke at its start back to an arrow at its end; one that starts before its job is runnable
    has no waiting bar; both are counted.

    Needs `build_id`, `build_number`, `build_created_at`, `fetched_at`, `state`, `retried`, `type`,
    `pipeline`, `step_key`, `name`, `runnable_at`, `started_at`, `finished_at`; `unblocked_at` of block
    steps. BadInput: more than one build.
    """
    shown = _of_one_build(jobs)
    bars = bars_of(shown)
    with canvas(ax, 10, float(np.clip(1.7 + 0.26 * len(bars), 3, 12))) as ax:
        if bars.empty:
            return say(ax, "No job of this build has been runnable." if len(shown) else "There are no jobs.")
        _draw(ax, bars)
        _label_rows(ax, bars)
        ax.set_xlabel("minutes since the build was created")
        pipeline, number = fitting(str(column(shown, "pipeline").iloc[0]), 40), column(shown, "build_number").iloc[0]
        dress(ax, f"{pipeline} #{number}: {counted(len(bars), 'job')}", _note(bars, len(shown) - len(bars)), grid="x")
    return ax


def _note(bars: pd.DataFrame, never: int) -> str:
    return joined(
        some(never, "more job", f"{'was' if never == 1 else 'were'} never runnable"),
        some(int(is_negative(bars).sum()), "negative run", "(clocks disagree)"),
        some(int((bars["wait_to"] < bars["first"]).sum()), "negative wait", "not drawn"),
    )


def _of_one_build(jobs: pd.DataFrame) -> pd.DataFrame:
    builds = column(jobs, "build_id").nunique()
    if builds > 1:
        number = column(jobs, "build_number").iloc[0]
        raise BadInput(
            f'The frame holds {builds} builds; a timeline is of one: jobs[jobs["build_number"] == {number}], '
            "of one pipeline."
        )
    return jobs[column(jobs, "type").isin(["script", "trigger", "manual"])]


# Drawing


def _looks(ax: Axes, thin: bool) -> dict[str, dict[str, Any]]:
    """Hatches would not show on thin bars, so that their colours, too, tell outcomes apart."""
    back, outline = ground(ax), 0.0 if thin else 0.8
    grey, green = ("#909090", "#74CBB0") if thin else ("#C4C4C4", GREEN)  # in print apart from bars beside them
    looks: dict[str, dict[str, Any]] = {
        "ran": {"facecolor": BLUE},
        "failed": {"facecolor": RED, "edgecolor": back, "hatch": "////", "linewidth": 0},
        "timed out": {"facecolor": BROWN, "edgecolor": back, "hatch": "xxxx", "linewidth": 0},
        "canceled": {"facecolor": grey, "edgecolor": ink(), "linewidth": outline},
        "triggered build": {"facecolor": green},
        "blocked": {"facecolor": back, "edgecolor": PURPLE, "hatch": "....", "linewidth": 0.8},
    }
    return {kind: look | ({"hatch": None} if thin and kind != "blocked" else {}) for kind, look in looks.items()}


def _draw(ax: Axes, bars: pd.DataFrame) -> None:
    waited = bars[bars["wait_to"] > bars["first"]]
    thin = _is_thin(ax, bars)
    height = 1.0 if thin else 0.7
    ax.barh(waited.index, waited["wait_to"] - waited["first"], 1.0 if thin else 0.42, left=waited["first"],
            color=ORANGE, alpha=0.55, label="waiting for an agent")  # fmt: skip
    for kind, look in _looks(ax, thin).items():
        ran = bars[(bars["kind"] == kind) & bars["run_from"].notna() & ~is_negative(bars)]
        if len(ran):
            ax.barh(ran.index, ran["end"] - ran["run_from"], height, left=ran["run_from"], label=kind, **look)
    _mark_ends(ax, bars)
    ax.set_ylim(max(len(bars), 3) - 0.4, -0.6)
    _draw_negative(ax, bars[is_negative(bars)])
    ax.set_xlim(left=min(0, np.nanmin(bars[["first", "run_from", "end"]])))


def _is_thin(ax: Axes, bars: pd.DataFrame) -> bool:
    """Whether a bar is too thin for a hatch."""
    return len(bars) > min(60, room(ax)[1] / 5)


def _draw_negative(ax: Axes, bars: pd.DataFrame) -> None:
    """From where each is said to have started back to where it is said to have ended."""
    if bars.empty:
        return
    ax.hlines(bars.index, bars["end"], bars["run_from"], color=ink(), linestyle=":", linewidth=1.2,
              label="ends before it starts")  # fmt: skip
    ax.plot(bars["run_from"], bars.index, "|", color=ink(), markersize=7, label="its start")
    ax.plot(bars["end"], bars.index, "<", color=RED, markersize=5, label="its end", clip_on=False)


def _mark_ends(ax: Axes, bars: pd.DataFrame) -> None:
    size = 3.5 if _is_thin(ax, bars) else 6
    unblocked = (bars["kind"] == "blocked") & ~bars["open"]
    for label, rows, marker, face in (
        ("retried", bars["retried"], "o", ground(ax)),
        ("unblocked", unblocked, "D", ink()),
        ("not over yet", bars["open"], ">", ink()),
    ):
        if rows.any():
            ends = bars.loc[rows, "end"]
            ax.plot(ends, ends.index, marker, color=ink(), markersize=size, markerfacecolor=face, markeredgewidth=1.2,
                    label=label, clip_on=False)  # fmt: skip


def _label_rows(ax: Axes, bars: pd.DataFrame) -> None:
    """Each job by its name where there is room for that, else each step once."""
    rows_of_room = room(ax)[1] / POINTS_A_LABEL
    if len(bars) <= rows_of_room:
        names = labels(bars["name"], signs(ax, 32), lambda name, width: fitting(without_emoji(name), width))
        ax.set_yticks(bars.index, list(bars["name"].map(names)), parse_math=False)
        return
    steps = bars.reset_index().groupby("step", sort=False)["index"].agg(["mean", "size"])
    labelled = steps.loc[_spaced(steps["mean"], len(bars) / rows_of_room)]
    names = labels(labelled.index, signs(ax, 28))
    ax.set_yticks(labelled["mean"], [f"{names[str(name)]}  ({n:,})" for name, n in labelled["size"].items()],
                  parse_math=False)  # fmt: skip
    borders = np.flatnonzero(bars["step"].ne(bars["step"].shift()))[1:] - 0.5
    if not (hidden := len(steps) - len(labelled)):
        ax.hlines(borders, 0, 1, transform=ax.get_yaxis_transform(), color=faint(), linewidth=0.8, zorder=0)
    ax.set_ylabel(f"step (jobs); {counted(hidden, 'more step')} with no room for a label" if hidden else "step (jobs)")


def _spaced(positions: pd.Series[float], apart: float) -> list[bool]:
    """Which of ascending positions to keep so that they lie so far apart."""
    kept: list[bool] = []
    last = -np.inf
    for position in positions:
        kept.append(position - last >= apart)
        last = position if kept[-1] else last
    return kept
