"""The jobs of one build as bars along time, as HTML in the colours of the page; its meaning is `plots.timeline`'s."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from buildframe.formatting import counted, span
from buildframe.metrics.steps import without_emoji
from buildframe.metrics.timeline import compute_bars, is_negative
from buildframe.widgets import html

_TICKS = 6
_OF_MANY = ("are not runnable yet", "were never runnable")
_MARKS = {"retried": "↻", "unblocked": "◆", "not over yet": "▶"}


def timeline(jobs: pd.DataFrame, name: str, *, goes_on: bool) -> str:
    """The timeline of a build's jobs as HTML: a legend, a bar a job, an axis in minutes; `name` is the build's.

    Takes the frame of jobs of `Pipeline.history_of`. `goes_on` tells that the build is not over, so that more of its
    jobs may come up. Every text in it is escaped.
    """
    bars = compute_bars(jobs)
    if bars.empty:
        return f'<div class="bf-hint">{html.text(f"Timeline: no job of {name} has been runnable.")}</div>'
    low, high = _ends(bars)
    told = html.text(f"Timeline of {name}: {_summary(bars, jobs, goes_on)}")
    rows = "".join(_row(bar, low, high) for bar in bars.to_dict("records"))
    return (
        f'<figure class="bf-timeline"><figcaption>{told}</figcaption>{_legend(bars)}'
        f'<div class="bf-bars" role="region" tabindex="0" aria-label="{told}">'
        f'<div role="img" aria-label="{told} The table of jobs has the numbers.">{_axis(low, high)}{rows}</div>'
        "</div></figure>"
    )


def _ends(bars: pd.DataFrame) -> tuple[float, float]:
    """From where to where the axis goes, in minutes."""
    stamps = bars[["first", "wait_to", "run_from", "end"]].to_numpy()
    low, high = min(0.0, float(np.nanmin(stamps))), float(np.nanmax(stamps))
    return low, max(high, low + 1 / 60)


def _summary(bars: pd.DataFrame, jobs: pd.DataFrame, goes_on: bool) -> str:
    low, high = _ends(bars)
    never = int(jobs["type"].isin(["script", "trigger", "manual"]).sum()) - len(bars)
    negative = int(is_negative(bars).sum())
    parts = [f"{counted(len(bars), 'job')} in {span(60 * (high - low))}"]
    now, ever = ("is not runnable yet", "was never runnable") if never == 1 else _OF_MANY
    parts += [f"{counted(never, 'more job')} {now if goes_on else ever}"] if never else []
    parts += [f"{counted(negative, 'job')} ended before starting (clocks disagree)"] if negative else []
    return f"{'; '.join(parts)}."


def _kind(bar: dict[Any, Any]) -> str:
    """A bar's kind as the end of a class name."""
    return str(bar["kind"]).replace(" ", "-")


def _marks(bar: dict[Any, Any]) -> list[str]:
    """What is to be said at the end of a bar."""
    unblocked = bar["kind"] == "blocked" and not bar["open"]
    there = {"retried": bar["retried"], "unblocked": unblocked, "not over yet": bar["open"]}
    return [name for name, is_there in there.items() if is_there]


def _row(bar: dict[Any, Any], low: float, high: float) -> str:
    label = html.text(without_emoji(str(bar["name"])), 80)
    parts = "".join(_parts(bar, low, high))
    return f'<div class="bf-line" title="{html.text(_told(bar), 600)}"><span>{label}</span><b>{parts}</b></div>'


def _parts(bar: dict[Any, Any], low: float, high: float) -> Iterator[str]:
    def part(look: str, start: float, end: float, sign: str = "") -> str:
        left, wide = 100 * (start - low) / (high - low), 100 * (end - start) / (high - low)
        return f'<i class="bf-bar-{look}" style="left:{left:.3f}%;width:{wide:.3f}%">{sign}</i>'

    if bar["wait_to"] > bar["first"]:
        yield part("waited", bar["first"], bar["wait_to"])
    if bar["end"] < bar["run_from"]:
        yield part("backwards", bar["end"], bar["run_from"])
    elif not math.isnan(bar["run_from"]):
        yield part(_kind(bar), bar["run_from"], bar["end"])
    if signs := "".join(_MARKS[name] for name in _marks(bar)):
        yield part("end", bar["end"], bar["end"], signs)


def _told(bar: dict[Any, Any]) -> str:
    """A bar in words."""
    waited, ran = 60 * (bar["wait_to"] - bar["first"]), 60 * (bar["end"] - bar["run_from"])
    words = [f"waited {span(waited)}"] if waited > 0 else []
    if ran < 0:
        words.append("ended before it started (clocks disagree)")
    elif not math.isnan(ran):
        words.append(f"{'took' if bar['kind'] in {'blocked', 'triggered build'} else 'ran'} {span(ran)}")
    kind = "" if bar["kind"] == "ran" else f"{bar['kind']}, "
    return f"{without_emoji(str(bar['name']))}: {kind}{', '.join([*words, *_marks(bar)])}"


def _legend(bars: pd.DataFrame) -> str:
    rows = bars.to_dict("records")
    kinds = ["ran", "failed", "timed out", "canceled", "triggered build", "blocked"]
    shown = {kind: kind.replace(" ", "-") for kind in kinds if kind in {bar["kind"] for bar in rows}}
    waited = {"waiting for an agent": "waited"} if (bars["wait_to"] > bars["first"]).any() else {}
    negative = {"ends before it starts": "backwards"} if is_negative(bars).any() else {}
    keys = [f'<i class="bf-bar-{look}"></i>{html.text(name)}' for name, look in (waited | shown | negative).items()]
    said = set(itertools.chain.from_iterable(map(_marks, rows)))
    keys += [f"{sign} {html.text(name)}" for name, sign in _MARKS.items() if name in said]
    return f'<div class="bf-legend">{"".join(f"<span>{key}</span>" for key in keys)}</div>'


def _axis(low: float, high: float) -> str:
    ticks = "".join(
        f'<i class="bf-tick" style="left:{100 * (tick - low) / (high - low):.3f}%">{tick:,.10g}</i>'
        for tick in _ticks(low, high)
    )
    unit = '<span title="minutes since the build was created">minutes</span>'
    return f'<div class="bf-line bf-axis">{unit}<b>{ticks}</b></div>'


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers of minutes, some six at most."""
    least = (high - low) / _TICKS
    decade = 10.0 ** math.floor(math.log10(least))
    apart = next(step * decade for step in (1, 2, 5, 10) if step * decade >= least)
    return [round(n * apart, 10) for n in range(math.ceil(low / apart), math.floor(high / apart) + 1)]


STYLE = """<style>
.bf-timeline { margin: 8px 0; color: var(--jp-content-font-color1, #212121); line-height: 1.4; }
.bf-timeline figcaption { font-weight: 600; }
.bf-timeline i { font-style: normal; }
.bf-legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 90%; padding: 2px 0; }
.bf-legend i { display: inline-block; width: 18px; height: 10px; margin-right: 5px; }
.bf-bars { max-height: 300px; overflow: auto; border: 1px solid var(--jp-border-color1, #bdbdbd);
  background: var(--jp-layout-color1, #fff); }
.bf-bars > div { min-width: 300px; padding-bottom: 4px; }
.bf-line { display: flex; height: 18px; line-height: 18px; font-size: 12px; }
.bf-line:hover { background: var(--jp-layout-color2, #eee); }
.bf-line > span { flex: 0 0 34%; max-width: 200px; padding: 0 6px; box-sizing: border-box; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }
.bf-line > b { flex: 1; position: relative; margin: 0 26px 0 2px; font-weight: 400; }
.bf-line > b > i { position: absolute; top: 3px; height: 12px; min-width: 2px; box-sizing: border-box; }
.bf-axis { position: sticky; top: 0; z-index: 1; background: var(--jp-layout-color2, #eee); }
.bf-axis > b > .bf-tick { top: 0; height: 18px; padding-left: 3px; border-left: 1px solid; white-space: nowrap; }
.bf-bar-waited { background: #c08a1a; }
.bf-line > b > .bf-bar-waited { top: 6px; height: 6px; }
.bf-bar-ran { background: #3b8fc9; }
.bf-bar-failed { background: repeating-linear-gradient(135deg, #d55e00 0 4px, #ffd7bd 4px 6px); }
.bf-bar-timed-out { background: repeating-linear-gradient(90deg, #a0522d 0 3px, #f3d9cc 3px 5px); }
.bf-bar-canceled { background: #9a9a9a; border: 1px solid currentColor; }
.bf-bar-triggered-build { background: #2fa583; }
.bf-bar-blocked { border: 2px dotted #c0649b; }
.bf-bar-backwards { border: 0 solid #d55e00; border-bottom: 2px dotted #d55e00;
  border-left-width: 3px; border-right: 2px solid #d55e00; }
.bf-line > b > .bf-bar-end { top: 0; height: 18px; padding-left: 3px; white-space: nowrap; }
</style>"""
"""What a timeline looks like; patterns tell kinds apart, too."""
