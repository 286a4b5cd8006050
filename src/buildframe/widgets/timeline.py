"""Draw the jobs of one build as bars along time, as HTML in the colors of the page.

The bars are those of `plots.timeline`: both draw `metrics.timeline.compute_bars`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from buildframe.formatting import format_count, format_duration
from buildframe.metrics.steps import without_emoji
from buildframe.metrics.timeline import compute_bars, is_negative
from buildframe.widgets import html

_MAX_TICKS = 6
_KINDS = ("ran", "failed", "timed out", "canceled", "triggered build", "blocked")
_END_SIGNS = {"retried": "↻", "unblocked": "◆", "not finished": "▶"}


def render_timeline(jobs: pd.DataFrame, name: str, *, is_unfinished: bool) -> str:
    """
    Return the timeline of a build's jobs as HTML: a legend, one bar per job, and an axis in minutes.

    `jobs` are those of `Pipeline.history_of`, and `name` is the build's. In an unfinished build, jobs that are not
    runnable yet may still become so. All text is escaped.
    """
    bars = compute_bars(jobs)
    if bars.empty:
        return html.hint(html.text(f"Timeline: no job of {name} has been runnable."))
    stamps = bars[["first", "wait_to", "run_from", "end"]].to_numpy()
    low = min(0.0, float(np.nanmin(stamps)))  # minutes, as all positions
    high = max(float(np.nanmax(stamps)), low + 1 / 60)
    waiting = int(jobs["type"].isin(["script", "trigger", "manual"]).sum()) - len(bars)
    caption = html.text(f"Timeline of {name}: {_summary(bars, high - low, waiting, is_unfinished)}")
    records = bars.to_dict("records")
    rows = "".join(_row(bar, low, high) for bar in records)
    return (
        f'<figure class="bf-timeline"><figcaption>{caption}</figcaption>{_legend(bars, records)}'
        f'<div class="bf-timeline-bars" role="region" tabindex="0" aria-label="{caption}">'
        f'<div role="img" aria-label="{caption} The table of jobs has the numbers.">{_axis(low, high)}{rows}</div>'
        "</div></figure>"
    )


def _summary(bars: pd.DataFrame, length: float, waiting: int, is_unfinished: bool) -> str:
    negative = int(is_negative(bars).sum())
    parts = [f"{format_count(len(bars), 'job')} in {format_duration(60 * length)}"]
    verb = "is" if waiting == 1 else "are"
    state = f"{verb} not runnable yet" if is_unfinished else f"{'was' if waiting == 1 else 'were'} never runnable"
    parts += [f"{format_count(waiting, 'more job')} {state}"] if waiting else []
    parts += [f"{format_count(negative, 'job')} ended before starting (clocks disagree)"] if negative else []
    return f"{'; '.join(parts)}."


def _end_notes(bar: dict[Any, Any]) -> list[str]:
    """Return what the signs at the end of a bar mean."""
    is_unblocked = bar["kind"] == "blocked" and not bar["open"]
    notes = {"retried": bar["retried"], "unblocked": is_unblocked, "not finished": bar["open"]}
    return [note for note, applies in notes.items() if applies]


def _row(bar: dict[Any, Any], low: float, high: float) -> str:
    name = without_emoji(str(bar["name"]))
    segments = "".join(_segments(bar, low, high))
    return (
        f'<div class="bf-timeline-row" title="{html.text(f"{name}: {_description(bar)}", 600)}">'
        f"<span>{html.text(name, 80)}</span><b>{segments}</b></div>"
    )


def _segments(bar: dict[Any, Any], low: float, high: float) -> Iterator[str]:
    def segment(css_class: str, start: float, end: float, signs: str = "") -> str:
        left, width = 100 * (start - low) / (high - low), 100 * (end - start) / (high - low)
        return f'<i class="bf-bar-{css_class}" style="left:{left:.3f}%;width:{width:.3f}%">{signs}</i>'

    if bar["wait_to"] > bar["first"]:
        yield segment("waited", bar["first"], bar["wait_to"])
    if bar["end"] < bar["run_from"]:
        yield segment("backwards", bar["end"], bar["run_from"])
    elif not math.isnan(bar["run_from"]):
        yield segment(str(bar["kind"]).replace(" ", "-"), bar["run_from"], bar["end"])
    if signs := "".join(map(_END_SIGNS.__getitem__, _end_notes(bar))):
        yield segment("end", bar["end"], bar["end"], signs)


def _description(bar: dict[Any, Any]) -> str:
    waited, ran = 60 * (bar["wait_to"] - bar["first"]), 60 * (bar["end"] - bar["run_from"])
    parts = [] if bar["kind"] == "ran" else [str(bar["kind"])]
    parts += [f"waited {format_duration(waited)}"] if waited > 0 else []
    if ran < 0:
        parts.append("ended before it started (clocks disagree)")
    elif not math.isnan(ran):
        parts.append(f"{'took' if bar['kind'] in {'blocked', 'triggered build'} else 'ran'} {format_duration(ran)}")
    return ", ".join([*parts, *_end_notes(bar)])


def _legend(bars: pd.DataFrame, records: list[dict[Any, Any]]) -> str:
    classes = {"waiting for an agent": "waited"} if (bars["wait_to"] > bars["first"]).any() else {}
    present = {bar["kind"] for bar in records}
    classes |= {kind: kind.replace(" ", "-") for kind in _KINDS if kind in present}
    classes |= {"ends before it starts": "backwards"} if is_negative(bars).any() else {}
    notes = {note for bar in records for note in _end_notes(bar)}
    keys = [f'<i class="bf-bar-{css_class}"></i>{html.text(name)}' for name, css_class in classes.items()]
    keys += [f"{sign} {html.text(note)}" for note, sign in _END_SIGNS.items() if note in notes]
    return f'<div class="bf-timeline-legend">{"".join(f"<span>{key}</span>" for key in keys)}</div>'


def _axis(low: float, high: float) -> str:
    ticks = "".join(
        f'<i class="bf-timeline-tick" style="left:{100 * (tick - low) / (high - low):.3f}%">{tick:,.10g}</i>'
        for tick in _ticks(low, high)
    )
    unit = '<span title="minutes since the build was created">minutes</span>'
    return f'<div class="bf-timeline-row bf-timeline-axis">{unit}<b>{ticks}</b></div>'


def _ticks(low: float, high: float) -> list[float]:
    """Return at most about six round numbers of minutes."""
    minimum = (high - low) / _MAX_TICKS
    decade = 10.0 ** math.floor(math.log10(minimum))
    distance = next(step * decade for step in (1, 2, 5, 10) if step * decade >= minimum)
    return [round(n * distance, 10) for n in range(math.ceil(low / distance), math.floor(high / distance) + 1)]
