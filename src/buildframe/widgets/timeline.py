"""Draw the jobs of one build as bars along time, as HTML in the colors of the page.

Bars and critical chain are those of `plots.timeline`: both draw what `metrics.timeline` computes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.formatting import format_count, format_duration, label_jobs
from buildframe.metrics import time_ledger
from buildframe.metrics.timeline import KIND_NAMES, compute_bars, compute_chain, is_negative, sum_kinds
from buildframe.widgets import html

_CSS_CLASSES = {
    "waiting for an agent": "waited", "ran": "ran", "failed": "failed", "timed out": "timed-out",
    "canceled": "canceled", "triggered build": "triggered-build", "blocked": "blocked",
    "ends before it starts": "backwards",
}  # fmt: skip
_KIND_CLASSES = {kind: kind.replace("_", "-") for kind in KIND_NAMES} | {
    "queue": "waited", "run": "ran", "trigger": "triggered-build",
}  # fmt: skip
_WITH_BARS = {"queue", "run", "retry", "trigger"}
"""Kinds of segments that bars of jobs show already."""

_END_SIGNS = {"retried": "↻", "unblocked": "◆", "not finished": "▶"}


def compute_ledger(builds: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame | None:
    """Return the ledger of one build; None if its ids or states are not those of the service."""
    try:
        return time_ledger(builds, jobs)
    except BadInput:
        return None


def render_timeline(
    jobs: pd.DataFrame, name: str, ledger: pd.DataFrame | None, *, is_unfinished: bool, minutes: float = 0
) -> str:
    """
    Return the timeline of a build's jobs as HTML: a legend, one bar per job, and an axis of durations.

    `jobs` are those of `history_of`, and `name` is the build's. If `ledger` has segments of the build, its critical
    chain is marked, and a stacked bar shows what the build spent its time on. In an unfinished build, jobs that are not
    runnable yet may still become so. The axis has at least `minutes`, so that timelines can share a scale. All text is
    escaped.
    """
    from buildframe.plots import units  # takes longer than all other imports of a widget

    bars = compute_bars(jobs)
    bars["name"] = label_jobs(bars["name"], bars["step"])
    if bars.empty:
        return html.hint(f"Timeline: no job of {name} has been runnable.")
    chain = compute_chain(jobs, bars, ledger)
    times = [*bars[["first", "wait_to", "run_from", "end"]].to_numpy().ravel(), *chain["start"], *chain["end"]]
    low = min(0.0, float(np.nanmin(times)))  # minutes, as all positions
    high = max(float(np.nanmax(times)), low + 1 / 60, minutes)
    unit, ticks = units.unit_of(60 * (high - low)), units.DurationLocator().tick_values(60 * low, 60 * high)
    waiting = int(jobs["type"].isin(["script", "trigger", "manual"]).sum()) - len(bars)
    marks = _chain_marks(chain, len(bars))
    rows = [_describe(bar) | of_row for bar, of_row in zip(bars.to_dict("records"), marks, strict=True)]
    return html.render(
        "timeline",
        name=name,
        caption=f"Timeline of {name}: {_summary(bars, float(np.nanmax(times)) - low, waiting, is_unfinished)}",
        bars=rows,
        low=low,
        length=high - low,
        ticks=[(tick / 60, units.format_in_unit(tick, *unit)) for tick in ticks],
        legend=_legend(bars),
        css_classes=_CSS_CLASSES,
        signs={note: sign for note, sign in _END_SIGNS.items() if any(sign in row["signs"] for row in rows)},
        spent=_time_spent(chain),
        spent_total=format_duration(chain["seconds"].sum()),
        chain=" → ".join(rows[row]["name"] for row in chain["row"][chain["row"].diff() != 0]),
    )


def _time_spent(chain: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the kinds of segments of the chain as parts of a bar, in percent."""
    sums = sum_kinds(chain)
    shares = 100 * sums.clip(lower=0) / max(sums.clip(lower=0).sum(), 1e-6)
    starts = shares.cumsum() - shares
    return [
        {
            "css_class": _KIND_CLASSES[kind],
            "start": starts[kind],
            "share": shares[kind],
            "text": f"{KIND_NAMES[kind]}: {format_duration(sums[kind])} ({_percent(shares[kind])})",
        }
        for kind in sums.index
    ]


def _percent(share: float) -> str:
    return "< 1 %" if 0 < share < 0.5 else f"{share:.0f} %"


def _chain_marks(chain: pd.DataFrame, n_bars: int) -> list[dict[str, Any]]:
    """Return for each bar the segments of the chain in its row, gaps without a bar, and where the chain crosses it."""
    marks: list[dict[str, Any]] = [{"chain": [], "gaps": [], "links": []} for _ in range(n_bars)]
    before = None
    for segment in chain.to_dict("records"):
        row = segment["row"]
        first, last = sorted((row, row if before is None else before))
        for crossed in range(first + 1, last + 1):
            marks[crossed]["links"].append(segment["start"])
        start, end = sorted((segment["start"], segment["end"]))
        marks[row]["chain"].append((start, end))
        if segment["kind"] not in _WITH_BARS and segment["end"] > segment["start"]:
            marks[row]["gaps"].append((_KIND_CLASSES[segment["kind"]], start, end))
        before = row
    return marks


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
        "name": str(bar["name"]), "description": ", ".join([*parts, *notes]), "signs": signs
    }  # fmt: skip


def _legend(bars: pd.DataFrame) -> dict[str, str]:
    """Return the CSS class of each kind of bar that is present, by name."""
    present = {*bars["kind"]}
    present |= {"waiting for an agent"} if (bars["wait_to"] > bars["first"]).any() else set()
    present |= {"ends before it starts"} if is_negative(bars).any() else set()
    return {name: css_class for name, css_class in _CSS_CLASSES.items() if name in present}
