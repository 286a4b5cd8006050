"""Select the significant changes of a report and describe each in a sentence. Does not know pages or limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from buildframe.formatting import (
    format_count,
    format_date,
    format_duration,
    format_name,
    format_percent,
    format_points,
    format_timestamp,
)
from buildframe.report.content import Finding
from buildframe.report.measurements import Measurements
from buildframe.report.periods import Period
from buildframe.report.reported_changes import reported

_MAX_STEPS = 3
"""Steps that are named in a finding about a pipeline."""

Row = dict[Any, Any]


def findings(measurements: Measurements, period: Period) -> list[Finding]:
    """
    Return the significant changes: deteriorations first, then by question and size.

    Parameters
    ----------
    measurements : Measurements
        Tables of the report.
    period : Period
        Period of the report.
    """
    rows = [*_speed(measurements, period), *_reliability(measurements, period), *_waiting(measurements, period)]
    return sorted(rows, key=lambda one: not one.bad)


def _reported(measurements: Measurements, name: str, period: Period, direction: str) -> list[Row]:
    """Return the rows of a table with a reported change, with `days` if these are not those of the period."""
    table = reported(measurements, name, period)
    rows: list[Row] = table[table[direction] != ""].to_dict("records")
    for row in rows:
        row["days"] = f" in the last {period.history.days} days" if row["is_long"] else ""
        row["since"] = None if pd.isna(row["since"]) else row["since"]
    return rows


def _subject(row: Row) -> str:
    """Return the name of the pipeline or queue, or `pipeline: step`."""
    return ": ".join(format_name(row[key]) for key in ("queue", "pipeline", "step") if key in row)


# --- Are we slower?


def _speed(measurements: Measurements, period: Period) -> Iterator[Finding]:
    steps = _reported(measurements, "step_time", period, "p50_direction")
    named: list[Row] = []
    for row in _reported(measurements, "wall_time", period, "p50_direction"):
        what = f"The median wall time of passed builds of {_subject(row)}"
        if row["is_compared"]:
            text = f"{what} is {_compared(row, 'p50')}{_since(row)}."
        else:
            own = _steps_with_same_direction(steps, row)
            named += own
            text = f"{what} has been {_changed(row, *_LONGER)}{_name_steps(own)}."
        yield Finding("speed", _subject(row), text, _is_up(row), row["since"])
    for row in steps:
        if not any(row is one for one in named):
            what = f"The median {row['part']} time of {_step(row)}"
            how = f"is {_compared(row, 'p50')}{_since(row)}"
            text = f"{what} {how}." if row["is_compared"] else f"{what} has been {_changed(row, *_LONGER)}."
            yield Finding("speed", _subject(row), text, _is_up(row), row["since"])


_LONGER = ("longer", "shorter")


def _is_up(row: Row) -> bool:
    return bool(row["p50_direction"] == "up")


def _steps_with_same_direction(steps: list[Row], change: Row) -> list[Row]:
    """Return the steps of a pipeline that may have changed with it, in the same direction, largest first.

    Only their change points are known, and the intervals of their times overlap.
    """
    own = [
        step
        for step in steps
        if not step["is_compared"]
        and (step["pipeline"], _is_up(step)) == (change["pipeline"], _is_up(change))
        and step["last at_low"] <= change["last at_high"]
        and change["last at_low"] <= step["last at_high"]
    ]
    return sorted(own, key=lambda step: -abs(step["last p50_change_s"]))[:_MAX_STEPS]


def _name_steps(steps: list[Row]) -> str:
    """ "; steps that changed: e2e (10 min to 15 min)"; "" without steps."""
    named = [
        f"{format_name(step['step'])} ({format_duration(step['last p50_before_s'])} to "
        f"{format_duration(step['last p50_after_s'])})"
        for step in steps
    ]
    return f"; steps that changed: {', '.join(named)}" if named else ""


def _changed(row: Row, more: str, less: str) -> str:
    """ "longer since about Mon 19 Oct 2026 (17 to 19 Oct), between builds #7 and #9: 21 min, before 17 min"."""
    name, end, format = ("p50", "_s", format_duration) if "last p50_after_s" in row else ("rate", "", format_percent)
    before, after = (row[f"last {name}_{side}{end}"] for side in ("before", "after"))
    numbers: list[Any] = [row["last number_before"], row["last number_after"]]
    builds = "" if any(map(pd.isna, numbers)) else f", between builds #{numbers[0]:.0f} and #{numbers[1]:.0f}"
    direction = more if after > before else less
    low, high = row["last at_low"], row["last at_high"]
    days = f" ({low.day} {low:%b} to {high.day} {high:%b})" if low.date() < high.date() else ""
    return (
        f"{direction} since about {format_date(row['since'])}{days}{builds}: {format(after)}, before {format(before)}"
    )


def _since(row: Row) -> str:
    return "" if row["since"] is None else f", since about {format_date(row['since'])}"


def _compared(row: Row, name: str) -> str:
    """ "21 min, before 17 min (4 min longer; interval 1 min to 6 min)"."""
    change, low, high = (row[f"{name}_change{end}_s"] for end in ("", "_low", "_high"))
    least, most = map(format_duration, sorted((abs(low), abs(high))))
    return (
        f"{format_duration(row[f'{name}_s'])}{row['days']}, before {format_duration(row[f'{name}_before_s'])} "
        f"({format_duration(abs(change))} {'longer' if change > 0 else 'shorter'}; interval {least} to {most})"
    )


def _step(row: Row) -> str:
    return f"step {format_name(row['step'])} of {format_name(row['pipeline'])}"


# --- Are we less reliable?


def _reliability(measurements: Measurements, period: Period) -> Iterator[Finding]:
    for row in _reported(measurements, "success", period, "direction"):
        text = f"The success rate of {_subject(row)} is {_rates(row)}{_since(row)}."
        if not row["is_compared"]:
            text = f"Builds of {_subject(row)} have failed {_changed(row, *_MORE_OFTEN)}."
        yield Finding("reliability", _subject(row), text, row["direction"] == "down", row["since"])
    for row in _reported(measurements, "step_failures", period, "direction"):
        text = f"The failure rate of {_step(row)} is {_rates(row)}{_since(row)}."
        if not row["is_compared"]:
            text = f"The {_step(row)} has failed {_changed(row, *_MORE_OFTEN)}."
        yield Finding("reliability", _subject(row), text, row["direction"] == "up", row["since"])


_MORE_OFTEN = ("more often", "less often")


def describe_outages(measurements: Measurements) -> list[str]:
    """Return a sentence for each default branch that is broken now."""
    outages = measurements.outages[measurements.outages["open"]].sort_values("failed_at")
    return [
        f"{format_name(row['pipeline'])} has been broken on {format_name(row['branch'])} since "
        f"{format_timestamp(row['failed_at'])}{' or earlier' if row['start_unknown'] else ''}: "
        f"{format_count(row['failed'], 'failed build')}, none passed."
        for row in outages.to_dict("records")
    ]


def _rates(row: Row) -> str:
    """ "80.0 %, before 90.0 % (interval of the change −15.0 to −5.0 points)"."""
    rate, before = format_percent(row["rate"]), format_percent(row["rate_before"])
    low, high = format_points(row["low"]), format_points(row["high"])
    return f"{rate}{row['days']}, before {before} (interval of the change {low} to {high} points)"


# --- Do we wait for agents?


def _waiting(measurements: Measurements, period: Period) -> Iterator[Finding]:
    subjects = set()
    for name, percentile in (("p95", "95th percentile of the"), ("p50", "median")):
        for row in _reported(measurements, "queue_time", period, f"{name}_direction"):
            if row["queue"] not in subjects:
                subjects.add(row["queue"])
                text = f"The {percentile} queue time of jobs of {_subject(row)} is {_compared(row, name)}."
                yield Finding("waiting", _subject(row), text, row[f"{name}_direction"] == "up")
