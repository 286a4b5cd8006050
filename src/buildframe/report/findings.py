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

_MAX_STEPS = 3
"""Steps that are named in a finding about a pipeline."""

_MIN_CHANGE_S = 1.0
"""Smaller changes are not reported, even if they are significant."""

Row = dict[Any, Any]


def findings(measurements: Measurements, since: pd.Timestamp) -> list[Finding]:
    """
    Return the significant changes: deteriorations first, then by question and size.

    Parameters
    ----------
    measurements : Measurements
        Tables of the report.
    since : Timestamp
        Earliest day of a change point that is reported.
    """
    rows = [
        *_speed(measurements, since),
        *_changes(measurements, since),
        *_reliability(measurements),
        *_waiting(measurements),
    ]
    return sorted(rows, key=lambda one: not one.bad)


def significant(table: pd.DataFrame, change: str) -> pd.DataFrame:
    """Return the rows whose interval of a change (`change`, or such as `p50_change`) excludes 0, largest first."""
    prefix, unit = ("", "") if change == "change" else (f"{change}_", "_s")
    rows = table[(table[f"{prefix}low{unit}"] > 0) | (table[f"{prefix}high{unit}"] < 0)]
    return rows.loc[rows[f"{change}{unit}"].abs().sort_values(ascending=False, kind="stable").index]


def _subject(row: Row) -> str:
    """Return the name of the pipeline or queue, or `pipeline: step`."""
    return ": ".join(format_name(row[key]) for key in ("queue", "pipeline", "step") if key in row)


# --- Are we slower?


def recent_changes(changes: pd.DataFrame, since: pd.Timestamp) -> pd.DataFrame:
    """Return the last change of each group, if it is recent, large enough and significant among all groups."""
    last = changes.drop_duplicates([name for name in ("pipeline", "step") if name in changes], keep="last")
    is_large = last["p50_change_s"].abs() >= _MIN_CHANGE_S
    return last[last["notable"].astype(bool) & is_large & (last["at"] >= since)]


def date_changes(table: pd.DataFrame, changes: pd.DataFrame) -> pd.DataFrame:
    """Add to a comparison `since`, the time of a change (NaT if unknown), and whether it is `longer` since then.

    A change in the other direction than a significant difference of the periods is left out.
    """
    keys = [name for name in ("pipeline", "step") if name in changes]
    found = table[keys].merge(changes[[*keys, "at", "p50_change_s"]], how="left", on=keys).set_axis(table.index)
    difference = table["p50_change_s"].where(table.index.isin(significant(table, "p50_change").index))
    is_other = found["p50_change_s"] * difference < 0
    if "part" in table:
        is_other |= table["part"] != "run"
    return table.assign(since=found["at"].mask(is_other), longer=found["p50_change_s"] > 0)


def _speed(measurements: Measurements, since: pd.Timestamp) -> Iterator[Finding]:
    for row in _large_and_dated(measurements.wall_time, measurements.wall_time_changes, since):
        text = f"The median wall time of passed builds of {_subject(row)} is {_compared(row, 'p50')}{_since(row)}."
        yield Finding("speed", _subject(row), text, row["p50_change_s"] > 0, row["since"])
    for row in _large_and_dated(measurements.step_time, measurements.step_changes, since):
        text = f"The median {row['part']} time of {_step(row)} is {_compared(row, 'p50')}{_since(row)}."
        yield Finding("speed", _subject(row), text, row["p50_change_s"] > 0, row["since"])


def _large_and_dated(table: pd.DataFrame, changes: pd.DataFrame, since: pd.Timestamp) -> list[Row]:
    """Return the rows whose change is significant and large enough, with the time since which it holds."""
    rows: list[Row] = date_changes(_large_enough(table, "p50"), recent_changes(changes, since)).to_dict("records")
    return [row | {"since": None if pd.isna(row["since"]) else row["since"]} for row in rows]


def _changes(measurements: Measurements, since: pd.Timestamp) -> Iterator[Finding]:
    """Return changes within the two periods that a comparison of the periods does not show."""
    compared_steps = _large_enough(measurements.step_time, "p50").query("part == 'run'")
    reported = set(zip(compared_steps["pipeline"], compared_steps["step"], strict=True))
    compared = set(_large_enough(measurements.wall_time, "p50")["pipeline"])
    steps = recent_changes(measurements.step_changes, since)
    for row in recent_changes(measurements.wall_time_changes, since).to_dict("records"):
        if row["pipeline"] not in compared:
            own = _steps_with_same_direction(steps, row)
            reported |= {(step["pipeline"], step["step"]) for step in own}
            named = ", ".join(
                f"{format_name(step['step'])} ({format_duration(step['p50_before_s'])} to "
                f"{format_duration(step['p50_after_s'])})"
                for step in own
            )
            text = f"The median wall time of passed builds of {_subject(row)} {_changed(row)}"
            text += f"; steps that changed: {named}." if own else "."
            yield Finding("speed", _subject(row), text, _is_longer(row), row["at"])
    for row in steps.to_dict("records"):
        if (row["pipeline"], row["step"]) not in reported:
            text = f"The median run time of {_step(row)} {_changed(row)}."
            yield Finding("speed", _subject(row), text, _is_longer(row), row["at"])


def _steps_with_same_direction(steps: pd.DataFrame, change: Row) -> list[Row]:
    """Return the steps of a pipeline that changed in the same direction, largest change first."""
    own = steps[(steps["pipeline"] == change["pipeline"]) & ((steps["p50_change_s"] > 0) == _is_longer(change))]
    largest = own["p50_change_s"].abs().nlargest(_MAX_STEPS).index
    rows: list[Row] = own.loc[largest].to_dict("records")
    return rows


def _large_enough(table: pd.DataFrame, percentile: str) -> pd.DataFrame:
    """Return the rows whose change is significant and large enough."""
    rows = significant(table, f"{percentile}_change")
    return rows[rows[f"{percentile}_change_s"].abs() >= _MIN_CHANGE_S]


def _is_longer(row: Row) -> bool:
    return bool(row["p50_change_s"] > 0)


def _changed(row: Row) -> str:
    """ "has been longer since about Mon 19 Oct 2026, between builds #7 and #9: 21 min, before 17 min"."""
    direction = "longer" if _is_longer(row) else "shorter"
    values = f"{format_duration(row['p50_after_s'])}, before {format_duration(row['p50_before_s'])}"
    numbers: list[Any] = [row["number_before"], row["number_after"]]
    builds = "" if any(map(pd.isna, numbers)) else f", between builds #{numbers[0]} and #{numbers[1]}"
    return f"has been {direction} since about {format_date(row['at'])}{builds}: {values}"


def _since(row: Row) -> str:
    return "" if row["since"] is None else f", since about {format_date(row['since'])}"


def _compared(row: Row, name: str) -> str:
    """ "21 min, before 17 min (4 min longer; interval 1 min to 6 min)"."""
    change, low, high = (row[f"{name}_change{end}_s"] for end in ("", "_low", "_high"))
    least, most = map(format_duration, sorted((abs(low), abs(high))))
    return (
        f"{format_duration(row[f'{name}_s'])}, before {format_duration(row[f'{name}_before_s'])} "
        f"({format_duration(abs(change))} {'longer' if change > 0 else 'shorter'}; interval {least} to {most})"
    )


def _step(row: Row) -> str:
    return f"step {format_name(row['step'])} of {format_name(row['pipeline'])}"


# --- Are we less reliable?


def _reliability(measurements: Measurements) -> Iterator[Finding]:
    for row in significant(measurements.success, "change").to_dict("records"):
        text = f"The success rate of {_subject(row)} is {_rates(row)}."
        yield Finding("reliability", _subject(row), text, row["change"] < 0)
    for row in significant(measurements.step_failures, "change").to_dict("records"):
        text = f"The failure rate of {_step(row)} is {_rates(row)}."
        yield Finding("reliability", _subject(row), text, row["change"] > 0)


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
    return f"{rate}, before {before} (interval of the change {low} to {high} points)"


# --- Do we wait for agents?


def _waiting(measurements: Measurements) -> Iterator[Finding]:
    reported = set()
    for name, percentile in (("p95", "95th percentile of the"), ("p50", "median")):
        for row in _large_enough(measurements.queue_time, name).to_dict("records"):
            if row["queue"] not in reported:
                reported.add(row["queue"])
                text = f"The {percentile} queue time of jobs of {_subject(row)} is {_compared(row, name)}."
                yield Finding("waiting", _subject(row), text, row[f"{name}_change_s"] > 0)
