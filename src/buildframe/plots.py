"""Pictures of builds and jobs: `frame, ax=None -> Axes`.

Durations are minutes here, and nowhere else. Without `ax` a new figure is made, of a size that fits.
A frame with nothing to show gives an Axes that says so. A missing column, or times without a zone,
raise BadInput. Names come from outside, so they are drawn as they are, never read as formulas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.columns import column, moments
from buildframe.metrics.durations import is_script
from buildframe.metrics.steps import without_emoji

BLUE, SKY, ORANGE, RED, GREY = "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#999999"
"""Colours that colour-blind readers tell apart (Okabe and Ito, Color Universal Design, 2008)."""

INCHES_A_LABEL = 0.16

INK, FAINT = "#333333", "#E4E4E4"

LOOK: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.usetex": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.facecolor": "white",
    "date.converter": "concise",
    "figure.facecolor": "white",
    "legend.fontsize": 9,
    "legend.frameon": False,
    "hatch.linewidth": 0.8,
}


@contextlib.contextmanager
def _look() -> Iterator[None]:
    """Our look, for the block only; a style context would also undo the settings by which a notebook shows."""
    before: dict[Any, Any] = {name: rcParams[name] for name in LOOK}
    rcParams.update(LOOK)
    try:
        yield
    finally:
        rcParams.update(before)


def duration_trend(builds: pd.DataFrame, ax: Axes | None = None, freq: str = "1D") -> Axes:
    """Wall time of builds over time: the median as a line, a band from it up to the 95th percentile.

    `freq` as in `metrics.trend`; buckets are in UTC, by creation. A bucket of fewer than 2 builds has
    no median, one of fewer than 20 no p95. A bucket that was not over when the builds were fetched is
    hollow. Builds of every outcome count: choose before, as in `builds[builds["state"] == "passed"]`.
    Needs `created_at`, `finished_at`, `fetched_at`.
    """
    buckets = metrics.trend(builds, freq=freq)
    with _look():
        ax = _axes(ax, 9, 4.2)
        if buckets["p50_s"].isna().all():
            return _say(ax, _why_no_median(int(buckets["n"].sum()), "builds in a bucket"))
        _draw_trend(ax, buckets)
        left_out = _counted(buckets, n_censored="not finished", n_negative="negative")
        _dress(ax, f"Wall time of {buckets['n'].sum():,} builds{left_out}", grid="y")
        ax.set_xlabel(f"created (UTC), in buckets of {freq}")
        ax.set_ylabel("wall time (minutes)")
        _legend_above(ax)
    return ax


def step_times(jobs: pd.DataFrame, ax: Axes | None = None, top: int = 12) -> Axes:
    """Queue time and run time of the `top` slowest steps: a dot at the median, a bar up to the 95th percentile.

    Steps as in `metrics.step`, apart by `pipeline` where the frame holds several; script jobs of every
    outcome and attempt; ordered by the largest value shown. A step with fewer than 20 durations has no
    p95: its dot is hollow; one with fewer than 2 is not shown. Needs `type`, `step_key`, `name`,
    `runnable_at`, `started_at`, `finished_at`.
    """
    times = _times_of_steps(jobs)
    shown = times.head(top).iloc[::-1]
    with _look():
        ax = _axes(ax, 9, 1.8 + 0.42 * max(len(shown), 3))
        if shown.empty:
            return _say(ax, _why_no_median(len(times), "jobs of a step"))
        _draw_spans(ax, shown, "queue", ORANGE, "s", +0.17)
        _draw_spans(ax, shown, "run", BLUE, "o", -0.17)
        _dress(ax, f"Queue time and run time of {_of(len(shown), len(times), 'steps')}", grid="x")
        ax.set_xlim(left=0 if ax.dataLim.xmin >= 0 else None)
        labels = [f"{shortened(str(name), 32)}  ({n:,})" for name, n in zip(shown.index, shown["n"], strict=True)]
        ax.set_yticks(range(len(shown)), labels, parse_math=False)
        ax.set_xlabel("minutes, median (dot) to 95th percentile (end of bar)")
        ax.set_ylabel("step (runs)")
        _legend_above(ax)
    return ax


def timeline(jobs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The script jobs of one build as bars: waiting for an agent, then running.

    Attempts and shards of a step lie together, steps in the order in which they came up. A failed run
    is hatched, a retried attempt ends in a ring, what was not over when it was fetched ends in an
    arrow at `fetched_at`. Many jobs are labelled by step. Jobs that were never runnable are counted in
    the title; a run that starts before its job is runnable (clocks disagree) has no waiting bar.

    Needs `build_id`, `build_number`, `build_created_at`, `fetched_at`, `state`, `retried`, `type`,
    `pipeline`, `step_key`, `name`, `runnable_at`, `started_at`, `finished_at`. BadInput: more than one build.
    """
    scripts = _scripts_of_one_build(jobs)
    bars = _bars(scripts)
    with _look():
        ax = _axes(ax, 10, float(np.clip(1.6 + 0.26 * len(bars), 3, 12)))
        if bars.empty:
            return _say(ax, "No job of this build has been runnable." if len(scripts) else "There are no jobs.")
        _draw_bars(ax, bars)
        _dress(ax, _title_of_build(scripts, bars), grid="x")
        _label_rows(ax, bars)
        ax.set_xlabel("minutes since the build was created")
        _legend_above(ax)
    return ax


def shortened(name: str, width: int) -> str:
    """A name on one line of at most `width` signs: what is too long loses its middle."""
    line = "".join(
        sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in " ".join(name.split()) or "(no name)"
    )
    if len(line) <= width:
        return line
    tail = (width - 1) // 2
    return f"{line[: width - 1 - tail]}…{line[-tail:]}"


# Every picture


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax


def _dress(ax: Axes, title: str, grid: str) -> None:
    ax.set_title(title, loc="left", pad=28, parse_math=False)
    ax.grid(visible=False)
    ax.grid(axis="x" if grid == "x" else "y", color=FAINT, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left" if grid == "y" else "bottom"]].set_visible(False)
    ax.spines[:].set_color(GREY)
    ax.tick_params(length=0, labelsize=9, labelcolor=INK)
    minutes = ax.xaxis if grid == "x" else ax.yaxis
    minutes.set_major_locator(MaxNLocator(8))
    minutes.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _legend_above(ax: Axes) -> None:
    """Between title and picture, where it hides nothing."""
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(
        range(len(labels)), key=lambda i: getattr(handles[i], "get_linestyle", str)() == "None"
    )  # marks last
    ax.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=6,
        borderaxespad=0.4,
        handlelength=1.6,
        columnspacing=1.4,
    )


def _say(ax: Axes, sentence: str) -> Axes:
    ax.text(0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center", fontsize=11, parse_math=False)
    ax.set_axis_off()
    return ax


def _why_no_median(n: int, what: str) -> str:
    return f"A median needs two finished {what}; none has as many." if n else "Nothing here has finished."


def _counted(buckets: pd.DataFrame, **columns: str) -> str:
    """ ", 3 not finished", for the counts that are not zero."""
    sums = {word: int(buckets[name].sum()) for name, word in columns.items()}
    return "".join(f", {n:,} {word}" for word, n in sums.items() if n)


def _of(shown: int, all: int, what: str) -> str:
    return f"{all} {what}" if shown == all else f"the slowest {shown} of {all} {what}"


# The trend


def _draw_trend(ax: Axes, buckets: pd.DataFrame) -> None:
    at = buckets["bucket"].dt.tz_localize(None).to_numpy()
    p50, p95 = buckets["p50_s"].to_numpy() / 60, buckets["p95_s"].to_numpy() / 60
    partial = buckets["partial"].fillna(False).to_numpy(bool)
    if not np.isnan(p95).all():
        ax.fill_between(at, p50, p95, color=SKY, alpha=0.35, linewidth=0, label="median to p95 (buckets of 20 or more)")
        alone = _alone(~np.isnan(p95))
        ax.vlines(at[alone], p50[alone], p95[alone], color=SKY, alpha=0.6, linewidth=4)
    ax.plot(at, p50, color=BLUE, linewidth=1.8, label="median")
    dots = 5 if len(at) <= 60 else 2.5
    ax.plot(at[~partial], p50[~partial], "o", color=BLUE, markersize=dots)
    if partial.any():
        ax.plot(
            at[partial],
            p50[partial],
            "o",
            color=BLUE,
            markerfacecolor="white",
            markersize=7,
            label="bucket not over yet",
        )
    if np.nanmin(p50) >= 0:
        ax.set_ylim(bottom=0)


def _alone(known: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which have no known neighbour, so that no area can be drawn to one."""
    padded = np.pad(known, 1)
    alone: npt.NDArray[np.bool_] = known & ~padded[:-2] & ~padded[2:]
    return alone


# Steps


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
    steps = metrics.step(jobs).fillna("(no name)").rename("step")
    if "pipeline" not in jobs or jobs["pipeline"].nunique() < 2:
        return steps
    return (jobs["pipeline"].fillna("?") + " / " + steps).rename("step")


def _draw_spans(ax: Axes, times: pd.DataFrame, name: str, colour: str, marker: str, shift: float) -> None:
    y = np.arange(len(times)) + shift
    p50, p95 = times[f"{name}_p50"].to_numpy(), times[f"{name}_p95"].to_numpy()
    whole = ~np.isnan(p95)
    ax.barh(y, p95 - p50, left=p50, height=0.22, color=colour, alpha=0.5, linewidth=0)
    for kind, face, rows in (("", colour, whole), (", too few for p95", "white", ~whole)):
        if rows.any():
            label = f"{name} time{kind}"
            ax.plot(p50[rows], y[rows], marker, color=colour, markerfacecolor=face, markersize=7, label=label)


# The timeline


def _scripts_of_one_build(jobs: pd.DataFrame) -> pd.DataFrame:
    builds = column(jobs, "build_id").nunique()
    if builds > 1:
        number = column(jobs, "build_number").iloc[0]
        raise BadInput(
            f'The frame holds {builds} builds; a timeline is of one: jobs[jobs["build_number"] == {number}], '
            "of one pipeline."
        )
    return jobs[is_script(jobs)]


def _bars(jobs: pd.DataFrame) -> pd.DataFrame:
    """One row a job that was ever runnable, in the order of drawing; stamps in minutes since the build's creation."""
    runnable, started, finished, fetched = (
        moments(jobs, name) for name in ("runnable_at", "started_at", "finished_at", "fetched_at")
    )
    zero = moments(jobs, "build_created_at").min()
    first = runnable.fillna(started)
    stamps = {
        "first": first,
        "wait_to": started.fillna(finished).fillna(fetched),
        "run_from": started,
        "end": finished.fillna(fetched),
    }
    minutes = {name: (stamp - zero).dt.total_seconds() / 60 for name, stamp in stamps.items()}
    bars = pd.DataFrame({**minutes, "outcome": _outcomes(jobs), "step": metrics.step(jobs), "open": finished.isna()})
    names = column(jobs, "name").map(without_emoji, na_action="ignore")
    bars["name"] = names.fillna(bars["step"]).fillna("(no name)")
    bars["retried"] = column(jobs, "retried").astype("boolean").fillna(False).astype(bool)
    return _in_order(bars[bars["first"].notna()])


def _in_order(bars: pd.DataFrame) -> pd.DataFrame:
    """Steps by their first job, in a step the jobs by time."""
    steps = bars["step"].fillna(bars["name"])
    came_up = bars.groupby(steps)["first"].transform("min")
    ordered = bars.assign(step=steps, came_up=came_up).sort_values(["came_up", "step", "first", "end"])
    return ordered.reset_index(drop=True)


FAILED = ["failed", "timed_out", "expired", "broken"]
CANCELED = ["canceled", "canceling"]


def _outcomes(jobs: pd.DataFrame) -> pd.Series[str]:
    state = column(jobs, "state")
    outcome = pd.Series("ran", index=jobs.index, dtype="str")
    return outcome.mask(state.isin(FAILED), "failed").mask(state.isin(CANCELED), "canceled")


RUNS: dict[str, dict[str, Any]] = {
    "ran": {"color": BLUE},
    "failed": {"facecolor": RED, "edgecolor": "white", "hatch": "////", "linewidth": 0},
    "canceled": {"facecolor": "white", "edgecolor": INK, "linewidth": 0.8},
}


def _draw_bars(ax: Axes, bars: pd.DataFrame) -> None:
    waited = bars[bars["wait_to"] > bars["first"]]
    height = 0.7 if len(bars) <= 60 else 1.0
    ax.barh(waited.index, waited["wait_to"] - waited["first"], height * 0.6, left=waited["first"], color=ORANGE,
            alpha=0.55, label="waiting for an agent")  # fmt: skip
    for outcome, look in RUNS.items():
        ran = bars[(bars["outcome"] == outcome) & bars["run_from"].notna()]
        if len(ran):
            ax.barh(ran.index, ran["end"] - ran["run_from"], height, left=ran["run_from"], label=outcome, **look)
    _mark_ends(ax, bars)
    ax.set_ylim(max(len(bars), 3) - 0.4, -0.6)
    ax.set_xlim(left=min(0, np.nanmin(bars[["first", "run_from"]])))


def _mark_ends(ax: Axes, bars: pd.DataFrame) -> None:
    size = 6 if len(bars) <= 60 else 3.5
    ring: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "markeredgewidth": 1.4}
    arrow: dict[str, Any] = {"marker": ">"}
    for label, rows, mark in (("retried", bars["retried"], ring), ("not over yet", bars["open"], arrow)):
        if rows.any():
            ends = bars.loc[rows, "end"]
            ax.plot(ends, ends.index, color=INK, linestyle="none", markersize=size, label=label, clip_on=False, **mark)


def _label_rows(ax: Axes, bars: pd.DataFrame) -> None:
    """Each job by its name where there is room for that, else each step once."""
    rows_of_room = ax.get_window_extent().height / ax.figure.dpi / INCHES_A_LABEL
    if len(bars) <= rows_of_room:
        ax.set_yticks(bars.index, [shortened(name, 32) for name in bars["name"]], parse_math=False)
        return
    steps = bars.reset_index().groupby("step", sort=False)["index"].agg(["mean", "size"])
    apart = len(bars) / rows_of_room
    labelled = steps.loc[_spaced(steps["mean"], apart)]
    labels = [f"{shortened(str(name), 28)}  ({n:,})" for name, n in labelled["size"].items()]
    ax.set_yticks(labelled["mean"], labels, parse_math=False)
    borders = np.flatnonzero(bars["step"].ne(bars["step"].shift()))[1:] - 0.5
    if not (hidden := len(steps) - len(labelled)):
        ax.hlines(borders, 0, 1, transform=ax.get_yaxis_transform(), color=FAINT, linewidth=0.8, zorder=0)
    ax.set_ylabel(f"step (jobs); {hidden:,} more steps have no room for a label" if hidden else "step (jobs)")


def _spaced(positions: pd.Series[float], apart: float) -> list[bool]:
    """Which of ascending positions to keep so that they lie so far apart."""
    kept: list[bool] = []
    last = -np.inf
    for position in positions:
        kept.append(position - last >= apart)
        last = position if kept[-1] else last
    return kept


def _title_of_build(jobs: pd.DataFrame, bars: pd.DataFrame) -> str:
    pipeline, number = column(jobs, "pipeline").iloc[0], column(jobs, "build_number").iloc[0]
    waiting = len(jobs) - len(bars)
    return f"{pipeline} #{number}: {len(bars):,} job{'s'[: len(bars) != 1]}" + (
        f", {waiting:,} more never runnable" if waiting else ""
    )
