"""Draw the jobs of one build as bars along time, as HTML in the colors of the page.

The bars are those of `plots.timeline`: both draw `metrics.timeline.compute_bars`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from buildframe.formatting import format_count, format_duration
from buildframe.metrics.steps import without_emoji
from buildframe.metrics.timeline import compute_bars, is_negative
from buildframe.widgets import html

_CSS_CLASSES = {
    "waiting for an agent": "waited", "ran": "ran", "failed": "failed", "timed out": "timed-out",
    "canceled": "canceled", "triggered build": "triggered-build", "blocked": "blocked",
    "ends before it starts": "backwards",
}  # fmt: skip
_END_SIGNS = {"retried": "↻", "unblocked": "◆", "not finished": "▶"}


def render_timeline(jobs: pd.DataFrame, name: str, *, is_unfinished: bool) -> str:
    """
    Return the timeline of a build's jobs as HTML: a legend, one bar per job, and an axis in minutes.

    `jobs` are those of `history_of`, and `name` is the build's. In an unfinished build, jobs that are not
    runnable yet may still become so. All text is escaped.
    """
    from matplotlib.ticker import MaxNLocator  # takes longer than all other imports of a widget

    bars = compute_bars(jobs)
    if bars.empty:
        return html.hint(f"Timeline: no job of {name} has been runnable.")
    times = bars[["first", "wait_to", "run_from", "end"]].to_numpy()
    low = min(0.0, float(np.nanmin(times)))  # minutes, as all positions
    high = max(float(np.nanmax(times)), low + 1 / 60)
    waiting = int(jobs["type"].isin(["script", "trigger", "manual"]).sum()) - len(bars)
    rows = [_describe(bar) for bar in bars.to_dict("records")]
    return html.render(
        "timeline",
        caption=f"Timeline of {name}: {_summary(bars, high - low, waiting, is_unfinished)}",
        bars=rows,
        low=low,
        length=high - low,
        ticks=[tick for tick in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high) if low <= tick <= high],
        legend=_legend(bars),
        css_classes=_CSS_CLASSES,
        signs={note: sign for note, sign in _END_SIGNS.items() if any(sign in row["signs"] for row in rows)},
    )


def _summary(bars: pd.DataFrame, length: float, waiting: int, is_unfinished: bool) -> str:
    negative = int(is_negative(bars).sum())
    parts = [f"{format_count(len(bars), 'job')} in {format_duration(60 * length)}"]
    verb = "is" if waiting == 1 else "are"
    state = f"{verb} not runnable yet" if is_unfinished else f"{'was' if waiting == 1 else 'were'} never runnable"
    parts += [f"{format_count(waiting, 'more job')} {state}"] if waiting else []
    parts += [f"{format_count(negative, 'job')} ended before starting (clocks disagree)"] if negative else []
    return f"{'; '.join(parts)}."


def _describe(bar: dict[Any, Any]) -> dict[Any, Any]:
    """Return a bar with its name, description, and the signs at its end."""
    waited, ran = 60 * (bar["wait_to"] - bar["first"]), 60 * (bar["end"] - bar["run_from"])
    parts = [] if bar["kind"] == "ran" else [str(bar["kind"])]
    parts += [f"waited {format_duration(waited)}"] if waited > 0 else []
    if ran < 0:
        parts.append("ended before it started (clocks disagree)")
    elif not math.isnan(ran):
        parts.append(f"{'took' if bar['kind'] in {'blocked', 'triggered build'} else 'ran'} {format_duration(ran)}")
    is_unblocked = bar["kind"] == "blocked" and not bar["open"]
    applies = {"retried": bar["retried"], "unblocked": is_unblocked, "not finished": bar["open"]}
    notes = [note for note in _END_SIGNS if applies[note]]
    signs = "".join(_END_SIGNS[note] for note in notes)
    return bar | {
        "name": without_emoji(str(bar["name"])), "description": ", ".join([*parts, *notes]), "signs": signs
    }  # fmt: skip


def _legend(bars: pd.DataFrame) -> dict[str, str]:
    """Return the CSS class of each kind of bar that is present, by name."""
    present = {*bars["kind"]}
    present |= {"waiting for an agent"} if (bars["wait_to"] > bars["first"]).any() else set()
    present |= {"ends before it starts"} if is_negative(bars).any() else set()
    return {name: css_class for name, css_class in _CSS_CLASSES.items() if name in present}
