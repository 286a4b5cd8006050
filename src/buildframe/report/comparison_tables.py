"""Select what the page's tables of comparisons show: both comparisons of a row side by side, with their plots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from buildframe.formatting import (
    format_change,
    format_count,
    format_duration,
    format_name,
    format_percent,
    format_points,
    format_whole_seconds,
)
from buildframe.report.content import Finding, Report
from buildframe.report.intervals import Format, Scale, signed
from buildframe.report.level_changes import LevelChange
from buildframe.report.periods import Period

Row = Mapping[Any, Any]
Urls = Mapping[tuple[Any, Any], str]
"""Pages of builds, by pipeline and number."""

_MAX_CHANGES = 30


@dataclass(frozen=True)
class ComparisonTable:
    """Describe a table of comparisons: its values, the words for more and less, and how changes are formatted.

    Plots of durations show changes as shares of the level before, so that short and long ones are comparable.
    """

    prefixes: tuple[str, ...]
    more: str
    less: str
    more_is_worse: bool
    format: Format
    describe: Format
    is_rate: bool = False

    def words(self, change: float) -> tuple[str, str]:
        """Return the word for the direction of a change, and its mood."""
        is_more = change > 0
        return (self.more if is_more else self.less), "bad" if is_more == self.more_is_worse else "good"


_SIGNED_DURATION = signed(format_duration)
_SIGNED_POINTS = signed(lambda share: f"{format_points(share)} points")
_RATE = (signed(format_points), _SIGNED_POINTS, True)
COMPARISONS = {
    "wall_time": ComparisonTable(("p50_",), "longer", "shorter", True, _SIGNED_DURATION, _SIGNED_DURATION),
    "step_time": ComparisonTable(("p50_",), "longer", "shorter", True, _SIGNED_DURATION, _SIGNED_DURATION),
    "queue_time": ComparisonTable(("p50_", "p95_"), "longer", "shorter", True, _SIGNED_DURATION, _SIGNED_DURATION),
    "success": ComparisonTable(("",), "higher", "lower", False, *_RATE),
    "step_failures": ComparisonTable(("",), "higher", "lower", True, *_RATE),
}


def side_by_side(report: Report, name: str) -> pd.DataFrame:
    """Return a table of comparisons: of the periods, of the history (`long_...`), and the reported change of each row.

    Rows with a reported change come first.
    """
    tables = report.measurements.tables()
    now, long, reported = tables[name], tables[f"long_{name}"], report.measurements.comparisons[name]
    keys = [key for key in ("queue", "pipeline", "step", "part") if key in now]
    directions = [f"{prefix}direction" for prefix in COMPARISONS[name].prefixes if f"{prefix}direction" in reported]
    marks = reported[[*keys, *directions, "since", "is_long"]].drop_duplicates(keys)
    long = long.rename(columns={column: f"long_{column}" for column in long if column not in keys})
    for table in (now, long):
        marks = marks.merge(table.drop_duplicates(keys), how="left", on=keys)
    return marks


def draw_intervals(selected: dict[str, Any], comparison: ComparisonTable) -> dict[str, Any]:
    """Add the plots of the rows, the label of their scale, and which columns have any content."""
    rows = selected["rows"]
    each = [(prefix, since) for prefix in comparison.prefixes for since in ("", "long_")]
    scale = Scale.of(_interval(row, prefix, since) for row in rows for prefix, since in each)
    for row in rows:
        for prefix, since in each:
            _draw(row, prefix, since, scale, comparison)
    has_long = any(row[f"long_{prefix}plot"].value for row in rows for prefix in comparison.prefixes)
    has_changes = any(row[f"{prefix}words"] for row in rows for prefix in comparison.prefixes)
    end = _end_of(scale, is_rate=comparison.is_rate)
    return selected | {"scale": end, "has_long": has_long, "has_changes": has_changes}


def _end_of(scale: Scale, *, is_rate: bool) -> str:
    """ "50 %", "20 points"."""
    return f"{100 * scale.limit:.0f} {'points' if is_rate else '%'}"


def _interval(row: Row, prefix: str, since: str) -> tuple[float, float, bool]:
    """Return the ends of the interval of a change as they are drawn, and whether the change is reported."""
    _, low, high, unit = _numbers(row, prefix, since)
    unit = unit if unit > 0 else math.nan
    return low / unit, high / unit, _is_reported(row, prefix, since)


def _numbers(row: Row, prefix: str, since: str) -> tuple[float, float, float, float]:
    """Return the change of a row, the ends of its interval, and the level before, which is 1 for rates."""
    names = [f"{prefix}change{end}_s" for end in ("", "_low", "_high")] if prefix else ["change", "low", "high"]
    change, low, high = (float(row.get(since + name, math.nan)) for name in names)
    return change, low, high, float(row.get(f"{since}{prefix}before_s", math.nan)) if prefix else 1.0


def _is_reported(row: Row, prefix: str, since: str) -> bool:
    notable = row.get(f"{since}{prefix}notable", False)
    return bool(row.get(f"{prefix}direction")) and notable is not pd.NA and bool(notable)


def _draw(row: dict[str, Any], prefix: str, since: str, scale: Scale, comparison: ComparisonTable) -> None:
    """Add a plot to a row, and the words for its reported change."""
    change, low, high, unit = _numbers(row, prefix, since)
    mood = comparison.words(change)[1] if _is_reported(row, prefix, since) else ""
    plot = scale.mark(change, low, high, mood, comparison.format, comparison.describe, unit)
    row[f"{since}{prefix}plot"] = plot
    direction = row.get(f"{prefix}direction", "")
    words = comparison.words(1.0 if direction == "up" else -1.0) if direction else ("", "")
    row[f"{prefix}words"], row[f"{prefix}mood"] = words


def select_changes(report: Report, urls: Urls) -> dict[str, Any]:
    """Return the level changes, each with its finding, its plot, and the pages of the builds around it."""
    found = [finding for finding in report.findings if finding.change is not None]
    changes = [finding.change for finding in found if finding.change]
    scales = {unit: Scale.of(_drawn(one for one in changes if one.unit == unit)) for unit in ("share", "s")}
    rows = [_describe_change(finding, report, scales, urls) for finding in found[:_MAX_CHANGES]]
    used = {one.unit for one in changes}
    ends = [f"±{_end_of(scale, is_rate=unit == 'share')}" for unit, scale in scales.items() if unit in used]
    n_hidden = max(0, len(found) - _MAX_CHANGES)
    return {"rows": rows, "n_hidden": n_hidden, "scale": "", "ends": " and ".join(ends)}


def _drawn(changes: Iterable[LevelChange]) -> list[tuple[float, float, bool]]:
    """Return the ends of the intervals of changes as they are drawn; all are reported."""
    return [(one.low / _unit(one), one.high / _unit(one), True) for one in changes if _unit(one) > 0]


def _unit(change: LevelChange) -> float:
    return 1.0 if change.unit == "share" else change.before


def _describe_change(finding: Finding, report: Report, scales: Mapping[str, Scale], urls: Urls) -> dict[str, Any]:
    change = finding.change
    assert change is not None
    is_share = change.unit == "share"
    level, mood = format_percent if is_share else format_duration, "bad" if finding.bad else "good"
    format_signed = _SIGNED_POINTS if is_share else _SIGNED_DURATION
    interval = change.change, change.low, change.high
    return {
        "name": finding.subject,
        "is_pipeline": change.step is None and change.queue is None,
        "pipeline": change.pipeline,
        "what": _describe_level(change),
        "compared": _describe_compared(change, report.period),
        "before": level(change.before),
        "after": level(change.after),
        "plot": scales[change.unit].mark(*interval, mood, format_signed, unit=_unit(change)),
        "p": change.p,
        "n_before": change.n_before,
        "n": change.n,
        "before_build": _describe_build(change.pipeline, change.number_before, urls),
        "after_build": _describe_build(change.pipeline, change.number_after, urls),
    }


def _describe_build(pipeline: str | None, number: int | None, urls: Urls) -> dict[str, Any] | None:
    return None if number is None else {"number": int(number), "url": urls.get((pipeline, number))}


def _describe_level(change: LevelChange) -> str:
    """ "median wall time", "success rate", "mean queue time of builds of web"."""
    level = change.what if change.statistic == "rate" else f"{change.statistic} {change.what}"
    return f"{level} of builds of {format_name(change.pipeline)}" if change.statistic == "mean" else level


def _describe_compared(change: LevelChange, period: Period) -> str:
    """ "since 19 Oct", "7 against 7 days (since 19 Oct)"."""
    since = "" if change.since is None else f"since {change.since.day} {change.since:%b}"
    if change.compares == "day":
        return since
    days = period.history.days if change.compares == "history" else period.days
    return f"{days} against {format_count(days, 'day')}{f' ({since})' if since else ''}"


def draw_causes(selected: dict[str, Any]) -> dict[str, Any]:
    """Add the plots of what the time went to: contributions in seconds, so that they can be added up."""
    intervals = [(row["low_s"], row["high_s"], row["notable"]) for row in selected["rows"]]
    scale = Scale.of(intervals, is_share=False)
    for row in selected["rows"]:
        way = "bad" if row["change_s"] > 0 else "good"
        interval = row["change_s"], row["low_s"], row["high_s"]
        plot = scale.mark(*interval, way if row["notable"] else "", format_change)
        row["plot"] = plot.as_text() if row["kind"] in ("other", "total") else plot
    return selected | {"scale": format_whole_seconds(scale.limit)}
