"""Compute what the explorer of builds draws: a point per build, ticks, counts and texts. Knows no widget or page."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from buildframe.formatting import escape_invisible, format_count, format_duration, truncate_middle
from buildframe.metrics import wall_time
from buildframe.metrics.columns import NAT, Flags, Floats, Integers, column, microseconds, seconds, timestamps
from buildframe.metrics.durations import is_blocked
from buildframe.plots import theme
from buildframe.plots.names import prefix_if_several
from buildframe.plots.units import show_durations
from buildframe.templates import web_link

_NEVER_RAN = ("skipped", "not_run")
_BLUE = "#2F87C8"  # contrasts with light and dark backgrounds; `theme.BLUE` is too dark for the latter
_KINDS = (
    ("passed", _BLUE, "disc"),
    ("failed", theme.RED, "cross"),
    ("canceled", theme.GRAY, "square"),
    ("not finished or blocked, as long as seen", theme.GREEN, "triangle"),
    ("other", theme.PURPLE, "diamond"),
)
_OPEN, _OTHER = 3, 4
"""Places in `_KINDS`. The first ones are those of states with that name."""

_WIDE = 30  # the scale is logarithmic if the longest build took this many times as long as the shortest
_LEAST = 1.0  # seconds; shorter builds are drawn here on a logarithmic scale
_SIZE = (9.0, 3.2)  # inches, for which ticks are chosen
_MARGIN = 0.03
_MOST_TEXT = 100  # characters of a name or message


class ExplorerPoints(NamedTuple):
    """What the page draws (`content`, of JSON types), and the same in a sentence."""

    content: dict[str, Any]
    summary: str


def compute_points(builds: pd.DataFrame) -> ExplorerPoints:
    """Return a point per build with a time of creation, in this order, and what is said about the others."""
    created = microseconds(timestamps(builds, "created_at"))
    lasted, is_open = _durations(builds)
    kinds = _kinds(builds, is_open)
    drawn = (created != NAT) & ~np.isnan(lasted)
    order = np.argsort(created, kind="stable")[int((created == NAT).sum()) :]
    low, high = _widen(created[order])
    axes = _lay_out(lasted[drawn], low, high)
    y = np.full(len(builds), np.nan)
    y[drawn] = axes.places
    content = {
        "n": len(builds),
        "title": _title(len(builds), created[order]),
        "created": created[order].tolist(),
        "y": [None if np.isnan(place) else round(place, 4) for place in y[order].tolist()],
        "kind": kinds[order].tolist(),
        "text": _texts(builds.iloc[order], lasted[order], is_open[order]),
        "url": [web_link(url) for url in _values(builds.iloc[order], "web_url")],
        "range": [low, high],
        **axes.content,
        "kinds": [
            {"name": name, "color": color, "shape": shape, "n": int((kinds[drawn] == place).sum())}
            for place, (name, color, shape) in enumerate(_KINDS)
        ],
        "note": _note(lasted, created, drawn, axes.is_log),
    }
    return ExplorerPoints(content, _summarize(content))


def _durations(builds: pd.DataFrame) -> tuple[Floats, Flags]:
    """Return wall times in seconds, those of unfinished and blocked builds as long as seen, and which these are."""
    lasted: Floats = np.array(seconds(wall_time(builds), "wall_time"), np.float64)
    has_no_end = timestamps(builds, "finished_at").isna() | is_blocked(builds)
    never_ran = np.array([state in _NEVER_RAN for state in _values(builds, "state")], bool)
    is_open = has_no_end.to_numpy(bool) & ~never_ran
    if "fetched_at" in builds:
        seen = seconds(timestamps(builds, "fetched_at") - timestamps(builds, "created_at"), "fetched_at")
        lasted[is_open] = seen.to_numpy(np.float64)[is_open]
    return lasted, is_open


def _kinds(builds: pd.DataFrame, is_open: Flags) -> Integers:
    names = {name: place for place, (name, _, _) in enumerate(_KINDS[:_OPEN])}
    kinds = np.array([names.get(state, _OTHER) for state in _values(builds, "state")], np.int64)
    return np.where(is_open, _OPEN, kinds)


def _values(builds: pd.DataFrame, name: str) -> list[Any]:
    """Return the values of a column, None if missing; all are None without the column."""
    if name not in builds:
        return [None] * len(builds)
    values = column(builds, name).astype(object)
    return list(values.where(values.notna(), None))


# Axes


class ExplorerAxes(NamedTuple):
    """Places of builds, from 0 to 1, and what the page draws around them."""

    places: Floats
    is_log: bool
    content: dict[str, Any]


def _lay_out(lasted: Floats, low: int, high: int) -> ExplorerAxes:
    """Return the places of durations, with the ticks that other plots of this size have."""
    if not high:
        return ExplorerAxes(lasted, False, {"durations": [], "dates": [], "period": "", "scale": "wall time"})
    longest, shortest = (max(float(end), _LEAST) for end in (lasted.max(initial=0), lasted.min(initial=np.inf)))
    is_log = longest > _WIDE * shortest
    shown = np.maximum(lasted, _LEAST) if is_log else lasted
    with theme.active_theme(None):
        ax = Figure(figsize=_SIZE).add_axes((0, 0, 1, 1))
        if is_log:
            ax.set_yscale("log")
        ax.margins(y=_MARGIN)
        ends = [min(shown.min(initial=longest), longest if is_log else 0), shown.max(initial=_LEAST)]
        days = np.array([low, high], "datetime64[us]")
        ax.plot(days, ends)
        ax.set_xlim(*days)
        show_durations(ax, "y")
        theme.format_dates(ax)
        dates, durations = (_ticks(ax, which) for which in ("x", "y"))
        period = _period(low, high)
    scale = "wall time, logarithmic" if is_log else "wall time"
    places = (ax.transScale + ax.transLimits).transform(np.column_stack([np.zeros(len(shown)), shown]))[:, 1]
    return ExplorerAxes(places, is_log, {"durations": durations, "dates": dates, "period": period, "scale": scale})


def _ticks(ax: Axes, which: str) -> list[tuple[float, str]]:
    """Return the place from 0 to 1 and the label of each tick that is in sight."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    values: list[float] = axis.get_majorticklocs().tolist()
    labels = axis.get_major_formatter().format_ticks(values)
    points = np.column_stack([values, np.ones(len(values))] if which == "x" else [np.zeros(len(values)), values])
    places = (ax.transScale + ax.transLimits).transform(points)[:, 0 if which == "x" else 1]
    return [(round(place, 4), label) for place, label in zip(places.tolist(), labels, strict=True) if 0 <= place <= 1]


def _period(low: int, high: int) -> str:
    """Return what the whole axis has in common: its day, month or year; tick labels have the rest."""
    first, last = (pd.Timestamp(micros, unit="us") for micros in (low, high))
    if first.year != last.year:
        return f"{first.year} to {last.year}"
    if first.month != last.month:
        return f"{first.year}"
    return f"{first:%Y-%b-%d}" if first.day == last.day else f"{first:%Y-%b}"


def _widen(created: Integers) -> tuple[int, int]:
    """Return the first and last microsecond of the axis, with a margin."""
    if not len(created):
        return 0, 0
    low, high = int(created.min()), int(created.max())
    pad = max(int(_MARGIN / 2 * (high - low)), 60_000_000)
    return low - pad, high + pad


# Texts


def _texts(builds: pd.DataFrame, lasted: Floats, is_open: Flags) -> list[str]:
    """Return the lines about each build, those that are missing left out."""
    titles = _shorten(_titles(builds))
    branches = [name and f"branch {name}" for name in _shorten(_values(builds, "branch"))]
    times = [f"created {moment:%Y-%m-%d %H:%M:%S} UTC" for moment in timestamps(builds, "created_at")]
    messages = _shorten((text.splitlines() or [""])[0] if text else "" for text in _values(builds, "message"))
    lines = zip(titles, _outcomes(builds, lasted, is_open), branches, times, messages, strict=True)
    return ["\n".join(line for line in of_one if line) for of_one in lines]


def _titles(builds: pd.DataFrame) -> list[str]:
    pipelines = pd.Series([name or "" for name in _values(builds, "pipeline")], dtype="str")
    if "organization" in builds:
        pipelines = prefix_if_several(pipelines, pd.Series(_values(builds, "organization"), dtype="str"))
    numbers = [f"#{number}" if number is not None else "build" for number in _values(builds, "number")]
    return [f"{name} {number}".strip() for name, number in zip(pipelines, numbers, strict=True)]


def _outcomes(builds: pd.DataFrame, lasted: Floats, is_open: Flags) -> list[str]:
    rows = zip(_shorten(_values(builds, "state")), is_blocked(builds), lasted.tolist(), is_open.tolist(), strict=True)
    return [_outcome(*row) for row in rows]


def _outcome(state: str, blocked: bool, lasted: float, is_open: bool) -> str:
    state = f"blocked, {state}" if blocked and state not in ("", "blocked") else state or "state unknown"
    if np.isnan(lasted):
        return state
    clocks = ", clocks disagree" if lasted < 0 else ""
    return f"{state}, {'seen for' if is_open else 'took'} {format_duration(lasted)}{clocks}"


def _shorten(texts: Iterable[str | None]) -> list[str]:
    """Return texts on one line each, shortened; the same text is computed once."""
    shorten = functools.cache(lambda text: escape_invisible(truncate_middle(text, _MOST_TEXT)))
    return [shorten(str(text or "")) for text in texts]


def _note(lasted: Floats, created: Integers, drawn: Flags, is_log: bool) -> str:
    """Return what the points do not show."""
    undated = created == NAT
    short = int((lasted[drawn] < _LEAST).sum()) if is_log else 0
    sentences = [
        theme.count_note(int((~drawn & ~undated).sum()), "build", "without a duration not drawn"),
        theme.count_note(int(undated.sum()), "build", "without a time of creation not drawn"),
        theme.count_note(short, "build", f"below {_LEAST:.0f} s drawn at {_LEAST:.0f} s"),
        theme.count_note(int((lasted[drawn] < 0).sum()), "build", "ended before it started (clocks disagree)"),
    ]
    return theme.join_notes(*sentences)


def _title(n: int, created: Integers) -> str:
    if not len(created):
        return f"{format_count(n, 'build')}, none with a time of creation" if n else "No builds"
    first, last = (pd.Timestamp(micros, unit="us") for micros in (created.min(), created.max()))
    return f"{format_count(n, 'build')} created {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"


def _summarize(content: dict[str, Any]) -> str:
    counts = ", ".join(f"{kind['n']:,} {kind['name']}" for kind in content["kinds"] if kind["n"])
    return ". ".join(filter(None, [f"{content['title']}{counts and ': '}{counts}", content["note"]])) + "."
