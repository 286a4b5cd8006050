"""Plot the jobs of one build as bars along time, with its critical chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from buildframe.errors import BadInput
from buildframe.formatting import format_count, label_jobs, label_steps
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.columns import column, timestamps
from buildframe.metrics.time_buckets import to_zone
from buildframe.metrics.timeline import KIND_NAMES, compute_bars, compute_chain, infer_ledger, is_negative, sum_kinds
from buildframe.plots import theme
from buildframe.plots.layout import choose_apart, label_height, max_characters, plot_area
from buildframe.plots.units import show_durations

_LEAST_VISIBLE = 0.003
"""Gaps that are shorter than this share of the build are not drawn, as they would be thinner than a line."""

_BAR_TIMES = ("first", "wait_to", "run_from", "end", "step_begins")


@checked_frames
def timeline(
    jobs: pd.DataFrame, ax: Axes | None = None, ledger: pd.DataFrame | None = None, title: str | None = None,
    tz: str = "UTC",
) -> Axes:  # fmt: skip
    """
    Plot the jobs of one build as bars, time in queue and then run time, with the critical chain of the build.

    Triggers and block steps have bars too. Attempts and shards of a step are adjacent, and steps are in the order in
    which they became runnable.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs of one build with `id`, `build_id`, `build_number`, `build_created_at`, `fetched_at`, `state`, `retried`,
        `type`, `pipeline`, `step_key`, `name`, `runnable_at`, `started_at` and `finished_at`, and `unblocked_at` if
        there are block steps; without `ledger` also the columns that `metrics.time_ledger` needs.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    ledger : pandas.DataFrame, optional
        Segments of the build, from a `metrics.time_ledger` of all builds of the pipeline; those of other builds are
        ignored. By default the chain is inferred from `jobs` alone. The note says so, or that the ledger does not have
        the build.
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the time in the title, at which the build was created.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on.

    Raises
    ------
    BadInput
        If the frame contains several builds, a column is missing, a time has no zone, or `tz` is unknown. Without
        `ledger` also as for `metrics.time_ledger`.

    See Also
    --------
    concurrency : Jobs of many builds over time.
    step_graph : The critical chains of many builds.
    buildframe.metrics.time_ledger : The segments of the chain.

    Notes
    -----
    Failed and timed-out runs are hatched. A ring marks an attempt that was retried. An arrow at `fetched_at` marks a
    job that had not finished. A trigger's bar ends when the triggered build ended. A block step's bar ends with a
    diamond at `unblocked_at`; the service does not report when it was blocked, so the bar starts when all earlier jobs
    had ended. Builds with many jobs are labeled by step. Jobs that were never runnable are counted, and wait steps are
    not shown.

    The line below the bars is the critical chain: without a change to one of its parts, the build would not have ended
    earlier. It leads from the creation of the build through each job that let the next one start. Its waits before a
    job was runnable have bars by kind; purple ones waited for a person. The note lists the share of each kind in the
    chain. A build that has not ended has no chain.

    The dependencies between steps are inferred from times. From `jobs` alone, the chain can follow a job that only
    happened to end when another started, and waits for a limit of concurrency are unknown. Pass the `ledger` of all
    builds of the pipeline to avoid both.

    If clocks disagree, a run can end before it starts. It is drawn as a dotted line from its start back to its end. A
    run that starts before its job was runnable has no queue bar. The note counts both.

    Examples
    --------
    >>> builds, jobs = ci.history(created_from="7d")
    >>> of_build = jobs["build_id"] == builds["id"].iloc[-1]
    >>> ax = plots.timeline(jobs[of_build], ledger=metrics.time_ledger(builds, jobs))
    >>> ax.get_xlabel()
    'time since the build was created'
    """
    shown = _select_bars(jobs)
    bars, created = compute_bars(shown), _describe_creation(shown, tz)
    scope = created if title is None else ""
    with theme.themed_axes(ax, 10, float(np.clip(1.7 + 0.26 * len(bars), 3, 12))) as ax:
        if bars.empty:
            message = "No job of this build was runnable." if len(shown) else "No jobs."
            return theme.show_message(ax, message, title or _name_build(shown), scope)
        if ledger is None and not bars["open"].any():
            ledger = infer_ledger(shown)
        chain = compute_chain(shown, bars, ledger)
        bars, chain = (_in_seconds(frame, *names) for frame, names in ((bars, _BAR_TIMES), (chain, ("start", "end"))))
        _draw(ax, bars, chain)
        _label_rows(ax, bars)
        ax.set_xlabel("time since the build was created")
        show_durations(ax, "x")
        heading = f"{_name_build(shown)}: {format_count(len(bars), 'job')}"
        note = theme.join_notes(_note(bars, len(shown) - len(bars)), _chain_note(chain, ledger))
        theme.decorate(ax, title or heading, note, "x", scope)
    return ax


def _name_build(jobs: pd.DataFrame) -> str:
    """Return "web #41"."""
    if jobs.empty:
        return "Jobs of a build"
    return f"{theme.drawable(str(column(jobs, 'pipeline').iloc[0]), 40)} #{column(jobs, 'build_number').iloc[0]}"


def _describe_creation(jobs: pd.DataFrame, tz: str) -> str:
    """Return when the build was created: "3 Oct 2026 14:05 (UTC)"."""
    times = to_zone(timestamps(jobs, "build_created_at").dropna(), tz)
    return "" if times.empty else f"{times.iloc[0].day} {times.iloc[0]:%b %Y %H:%M} ({tz})"


def _in_seconds(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return the frame with these columns of minutes in seconds."""
    return frame.assign(**{name: 60 * frame[name] for name in names})


def _note(bars: pd.DataFrame, never: int) -> str:
    return theme.join_notes(
        theme.count_note(never, "more job", f"{'was' if never == 1 else 'were'} never runnable"),
        theme.count_note(int(is_negative(bars).sum()), "negative run", "(clocks disagree)"),
        theme.count_note(int((bars["wait_to"] < bars["first"]).sum()), "negative wait", "not drawn"),
    )


def _chain_note(chain: pd.DataFrame, ledger: pd.DataFrame | None) -> str:
    """Return the share of each kind in the chain, the largest first, and what the chain is inferred from."""
    if ledger is None or chain.empty:
        return "" if ledger is None else "no chain: the ledger does not have this build"
    sums = sum_kinds(chain).clip(lower=0)
    shares = (sums / sums.sum()).sort_values(ascending=False, kind="stable")
    parts = [f"{100 * share:.0f} % {KIND_NAMES[str(kind)]}" for kind, share in shares.items() if share >= 0.005]
    # Selected rows of a ledger keep its attrs, so only the attrs know how many builds it follows from.
    source = ", inferred from this build alone" if ledger.attrs.get("n_builds") == 1 else ""
    return f"critical chain{source}: {', '.join(parts)}"


def _select_bars(jobs: pd.DataFrame) -> pd.DataFrame:
    builds = column(jobs, "build_id").nunique()
    if builds > 1:
        number = column(jobs, "build_number").iloc[0]
        raise BadInput(
            f"jobs: the frame contains {builds} builds; pass the jobs of one build of one pipeline, such as "
            f'jobs[jobs["build_number"] == {number}].'
        )
    return jobs[column(jobs, "type").isin(["script", "trigger", "manual"])].reset_index(drop=True)


# Drawing


def _bar_styles(ax: Axes, thin: bool) -> dict[str, dict[str, Any]]:
    """Return the bar style of each outcome; thin bars have no hatch, so their colors also differ."""
    back, outline = theme.background(ax), 0.0 if thin else 0.8
    # distinct from adjacent bars in prints without color
    gray, green = ("#909090", "#74CBB0") if thin else ("#C4C4C4", theme.GREEN)
    styles: dict[str, dict[str, Any]] = {
        "ran": {"facecolor": theme.BLUE},
        "failed": {"facecolor": theme.RED, "edgecolor": back, "hatch": "////", "linewidth": 0},
        "timed out": {"facecolor": theme.BROWN, "edgecolor": back, "hatch": "xxxx", "linewidth": 0},
        "canceled": {"facecolor": gray, "edgecolor": theme.text_color(), "linewidth": outline},
        "triggered build": {"facecolor": green},
        "blocked": {"facecolor": back, "edgecolor": theme.PURPLE, "hatch": "....", "linewidth": 0.8},
    }
    return {kind: style | ({"hatch": None} if thin and kind != "blocked" else {}) for kind, style in styles.items()}


def _gap_styles(ax: Axes, thin: bool) -> dict[str, dict[str, Any]]:
    """Return the bar style of each kind of gap before a job: outlined, and purple if a person was waited for."""
    colors = {
        "setup": (theme.SKY, "||||"), "dependency": (theme.GRAY, "----"), "concurrency": (theme.ORANGE, "xxxx"),
        "blocked": (theme.PURPLE, "...."), "manual_retry": (theme.PURPLE, "////"), "unknown": (theme.GRAY, ""),
    }  # fmt: skip
    common = {"facecolor": theme.background(ax), "linewidth": 0.8, "height": 0.42}
    return {
        kind: common | {"edgecolor": color, "hatch": None if thin else hatch} for kind, (color, hatch) in colors.items()
    }


def _draw_chain(ax: Axes, chain: pd.DataFrame, thin: bool) -> None:
    """Draw the gaps of the chain as bars by kind, and the chain as one line below the bars of its jobs."""
    span = chain["end"].max() - chain["start"].min()
    for kind, style in _gap_styles(ax, thin).items():
        gaps = chain[(chain["kind"] == kind) & (chain["end"] - chain["start"] > _LEAST_VISIBLE * span)]
        # block steps have bars, which can be shorter
        label = "_nolegend_" if kind == "blocked" else KIND_NAMES[kind]
        theme.draw_bars(ax, gaps["row"], gaps["start"], gaps["end"], label=label, zorder=0.9, **style)
    times, rows = chain[["start", "end"]].to_numpy().ravel(), np.repeat(chain["row"].to_numpy(), 2)
    halo = withStroke(linewidth=3.5, foreground=theme.background(ax))
    ax.plot(times, rows + 0.38, color=theme.text_color(), linewidth=1.8, label="critical chain", path_effects=[halo],
            solid_joinstyle="miter", solid_capstyle="butt")  # fmt: skip


def _draw(ax: Axes, bars: pd.DataFrame, chain: pd.DataFrame) -> None:
    waited = bars[bars["wait_to"] > bars["first"]]
    thin = len(bars) > min(60, plot_area(ax)[1] / 5)  # too thin for a hatch
    height = 1.0 if thin else 0.7
    theme.draw_bars(ax, waited.index, waited["first"], waited["wait_to"], 1.0 if thin else 0.42, color=theme.ORANGE,
               alpha=0.55, linewidth=0, label="waiting for an agent")  # fmt: skip
    for kind, style in _bar_styles(ax, thin).items():
        ran = bars[(bars["kind"] == kind) & bars["run_from"].notna() & ~is_negative(bars)]
        theme.draw_bars(ax, ran.index, ran["run_from"], ran["end"], height, label=kind, **style)
    if len(chain):
        _draw_chain(ax, chain, thin)
    _mark_ends(ax, bars, 3.5 if thin else 6)
    ax.set_ylim(max(len(bars), 3) - 0.4, -0.6)
    _draw_negative(ax, bars[is_negative(bars)])
    ax.set_xlim(left=min(0, np.nanmin(bars[["first", "run_from", "end"]])))


def _draw_negative(ax: Axes, bars: pd.DataFrame) -> None:
    """Draw runs that end before they start, from the reported start back to the reported end."""
    if bars.empty:
        return
    ax.hlines(bars.index, bars["end"], bars["run_from"], color=theme.text_color(), linestyle=":", linewidth=1.2,
              label="ends before it starts")  # fmt: skip
    ax.plot(bars["run_from"], bars.index, "|", color=theme.text_color(), markersize=7, label="its start")
    ax.plot(bars["end"], bars.index, "<", color=theme.RED, markersize=5, label="its end", clip_on=False)


def _mark_ends(ax: Axes, bars: pd.DataFrame, size: float) -> None:
    unblocked = (bars["kind"] == "blocked") & ~bars["open"]
    for label, rows, marker, face in (
        ("retried", bars["retried"], "o", theme.background(ax)),
        ("unblocked", unblocked, "D", theme.text_color()),
        ("not over yet", bars["open"], ">", theme.text_color()),
    ):
        if rows.any():
            ends = bars.loc[rows, "end"]
            ax.plot(ends, ends.index, marker, color=theme.text_color(), markersize=size, markerfacecolor=face,
                    markeredgewidth=1.2, label=label, clip_on=False)  # fmt: skip


def _label_rows(ax: Axes, bars: pd.DataFrame) -> None:
    """Label each job if there is room, otherwise each step once."""
    rows_of_room = plot_area(ax)[1] / label_height()
    if len(bars) <= rows_of_room:
        width = max_characters(ax, 32)
        jobs = label_jobs(bars["name"], bars["step"])
        ax.set_yticks(bars.index, list(jobs.map(theme.unique_labels(jobs, width))), parse_math=False)
        return
    steps = bars.reset_index().groupby("step", sort=False)["index"].agg(["mean", "size"])
    labeled = steps.iloc[choose_apart(steps["mean"], len(bars) / rows_of_room)]
    names = label_steps(pd.Series(steps.index, steps.index, dtype="str"))
    theme.label_rows(ax, labeled["mean"], names[labeled.index], 28, labeled["size"])
    borders = np.flatnonzero(bars["step"].ne(bars["step"].shift()))[1:] - 0.5
    if not (hidden := len(steps) - len(labeled)):
        ax.hlines(borders, 0, 1, transform=ax.get_yaxis_transform(), color=theme.grid_color(), linewidth=0.8, zorder=0)
    ax.set_ylabel(f"step (jobs); {format_count(hidden, 'more step')} without a label" if hidden else "step (jobs)")
