"""The jobs of one build, as bars along time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.columns import column, moments
from buildframe.metrics.steps import without_emoji
from buildframe.plots.look import (
    BLUE,
    BROWN,
    GREEN,
    NO_NAME,
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
    bars = _bars(shown)
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
        some(int(_is_negative(bars).sum()), "negative run", "(clocks disagree)"),
        some(int((bars["wait_to"] < bars["first"]).sum()), "negative wait", "not drawn"),
    )


def _is_negative(bars: pd.DataFrame) -> pd.Series[bool]:
    return bars["end"] < bars["run_from"]


def _of_one_build(jobs: pd.DataFrame) -> pd.DataFrame:
    builds = column(jobs, "build_id").nunique()
    if builds > 1:
        number = column(jobs, "build_number").iloc[0]
        raise BadInput(
            f'The frame holds {builds} builds; a timeline is of one: jobs[jobs["build_number"] == {number}], '
            "of one pipeline."
        )
    return jobs[column(jobs, "type").isin(["script", "trigger", "manual"])]


def _bars(jobs: pd.DataFrame) -> pd.DataFrame:
    """One row a job that came up, in the order of drawing; stamps in minutes since the build's creation."""
    stamps = _stamps(jobs)
    zero = moments(jobs, "build_created_at").min()
    minutes = {name: (stamp - zero).dt.total_seconds() / 60 for name, stamp in stamps.items()}
    bars = pd.DataFrame({**minutes, "kind": _kinds(jobs), "step": metrics.step(jobs)})
    bars["open"] = moments(jobs, "finished_at").isna() & ~(_is(jobs, "manual") & (column(jobs, "state") != "blocked"))
    bars["name"] = _names(jobs, bars["step"])
    bars["retried"] = column(jobs, "retried").astype("boolean").fillna(False).astype(bool)
    return _in_order(bars[bars["first"].notna()])


def _stamps(jobs: pd.DataFrame) -> dict[str, pd.Series[Any]]:
    """When a bar begins (`first`), its waiting ends, its run begins, and all ends."""
    runnable, started, finished, fetched = (
        moments(jobs, name) for name in ("runnable_at", "started_at", "finished_at", "fetched_at")
    )
    runs_at_once = _is(jobs, "trigger") & runnable.notna()
    run_from, end = started.mask(runs_at_once, runnable), finished.fillna(fetched)
    manual = _is(jobs, "manual")
    if manual.any():
        unblocked = moments(jobs, "unblocked_at").mask(column(jobs, "state").eq("blocked"), fetched)
        end = end.mask(manual, unblocked)
        run_from = run_from.mask(manual, _gaps(unblocked.where(manual), jobs, run_from, end))
    first = runnable.fillna(run_from)
    return {"first": first, "wait_to": run_from.fillna(finished).fillna(fetched), "run_from": run_from, "end": end}


def _gaps(until: pd.Series[Any], jobs: pd.DataFrame, run_from: pd.Series[Any], end: pd.Series[Any]) -> pd.Series[Any]:
    """Where the gap before each block step's end begins: at the last end of what had begun by then."""
    created = moments(jobs, "build_created_at")

    def gap(row: Any, moment: pd.Timestamp) -> Any:
        ends = end[(run_from < moment) | (end < moment)].max()
        return min(moment, max(created[row], ends) if pd.notna(ends) else created[row])

    begins = {row: gap(row, moment) for row, moment in until.dropna().items()}
    return pd.Series(begins, index=until.index, dtype=until.dtype)


def _is(jobs: pd.DataFrame, kind: str) -> pd.Series[bool]:
    return column(jobs, "type").eq(kind).fillna(False).astype(bool)


def _names(jobs: pd.DataFrame, steps: pd.Series[Any]) -> pd.Series[str]:
    known = column(jobs, "name")
    if "label" in jobs:
        known = known.fillna(jobs["label"])  # block steps have no name, but a label
    return known.fillna(steps).fillna(NO_NAME)


def _in_order(bars: pd.DataFrame) -> pd.DataFrame:
    """Steps by their first job, in a step the jobs by time."""
    steps = bars["step"].fillna(bars["name"])
    came_up = bars.groupby(steps)["first"].transform("min")
    ordered = bars.assign(step=steps, came_up=came_up).sort_values(["came_up", "step", "first", "end", "name"])
    return ordered.reset_index(drop=True)


_STATES = {
    **dict.fromkeys(["failed", "expired", "broken"], "failed"),
    "timed_out": "timed out",
    **dict.fromkeys(["canceled", "canceling"], "canceled"),
}


def _kinds(jobs: pd.DataFrame) -> pd.Series[str]:
    done = pd.Series("ran", index=jobs.index, dtype="str").mask(_is(jobs, "trigger"), "triggered build")
    by_state = column(jobs, "state").map(_STATES).astype("str")
    return by_state.fillna(done).mask(_is(jobs, "manual"), "blocked")


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
        ran = bars[(bars["kind"] == kind) & bars["run_from"].notna() & ~_is_negative(bars)]
        if len(ran):
            ax.barh(ran.index, ran["end"] - ran["run_from"], height, left=ran["run_from"], label=kind, **look)
    _mark_ends(ax, bars)
    ax.set_ylim(max(len(bars), 3) - 0.4, -0.6)
    _draw_negative(ax, bars[_is_negative(bars)])
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
