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

_ALPHA = 0.05
"""Significance level of change points, divided by the number of tests."""

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
    rows = [*_speed(measurements), *_shifts(measurements, since), *_reliability(measurements), *_waiting(measurements)]
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


def _speed(measurements: Measurements) -> Iterator[Finding]:
    for row in _large_enough(measurements.wall_time, "p50").to_dict("records"):
        text = f"The median wall time of passed builds of {_subject(row)} is {_compared(row, 'p50')}."
        yield Finding("speed", _subject(row), text, row["p50_change_s"] > 0)
    for row in _large_enough(measurements.step_time, "p50").to_dict("records"):
        since = _since(measurements.step_shift, row) if row["part"] == "run" else ""
        text = f"The median {row['part']} time of {_step(row)} is {_compared(row, 'p50')}{since}."
        yield Finding("speed", _subject(row), text, row["p50_change_s"] > 0)


def _shifts(measurements: Measurements, since: pd.Timestamp) -> Iterator[Finding]:
    """Return change points within the two periods that a comparison of the periods does not show."""
    changed_steps = _large_enough(measurements.step_time, "p50")
    reported = set(zip(changed_steps["pipeline"], changed_steps["step"], strict=True))
    slower = set(significant(measurements.wall_time, "p50_change")["pipeline"])
    for row in _significant_shifts(measurements.wall_time_shift).to_dict("records"):
        if row["pipeline"] not in slower and row["at"] >= since:
            steps = _steps_with_same_direction(measurements.step_shift, row)
            reported |= {(step["pipeline"], step["step"]) for step in steps}
            changes = ", ".join(
                f"{format_name(step['step'])} ({format_duration(step['p50_before_s'])} to "
                f"{format_duration(step['p50_after_s'])})"
                for step in steps
            )
            text = f"The daily median wall time of passed builds of {_subject(row)} {_shifted(row)}"
            text += f"; steps that changed: {changes}." if steps else "."
            yield Finding("speed", _subject(row), text, _is_longer(row), row["at"])
    for row in _significant_shifts(measurements.step_shift).to_dict("records"):
        if (row["pipeline"], row["step"]) not in reported and row["at"] >= since:
            text = f"The daily median run time of {_step(row)} {_shifted(row)}."
            yield Finding("speed", _subject(row), text, _is_longer(row), row["at"])


def _steps_with_same_direction(steps: pd.DataFrame, shift: Row) -> list[Row]:
    """Return the steps of a pipeline that changed in the same direction, largest change first."""
    own = _significant_shifts(steps[steps["pipeline"] == shift["pipeline"]])
    change = own["p50_after_s"] - own["p50_before_s"]
    same_way = own[(change > 0) == _is_longer(shift)]
    largest = change[same_way.index].abs().nlargest(_MAX_STEPS).index
    return same_way.loc[largest].to_dict("records")


def _large_enough(table: pd.DataFrame, percentile: str) -> pd.DataFrame:
    """Return the rows whose change is significant and large enough."""
    rows = significant(table, f"{percentile}_change")
    return rows[rows[f"{percentile}_change_s"].abs() >= _MIN_CHANGE_S]


def _significant_shifts(shifts: pd.DataFrame) -> pd.DataFrame:
    """Return the change points that are significant and large enough."""
    is_large = (shifts["p50_after_s"] - shifts["p50_before_s"]).abs() >= _MIN_CHANGE_S
    return shifts[(shifts["p_value"] < _ALPHA / max(1, shifts["p_value"].notna().sum())) & is_large]


def _is_longer(row: Row) -> bool:
    return bool(row["p50_after_s"] > row["p50_before_s"])


def _shifted(row: Row) -> str:
    """ "has been longer since about Mon 19 Oct 2026: 21 min, before 17 min"."""
    direction = "longer" if _is_longer(row) else "shorter"
    values = f"{format_duration(row['p50_after_s'])}, before {format_duration(row['p50_before_s'])}"
    return f"has been {direction} since about {format_date(row['at'])}: {values}"


def _since(shifts: pd.DataFrame, row: Row) -> str:
    """Return the day of a significant change point in the same direction, if there is one."""
    same = shifts[(shifts["pipeline"] == row["pipeline"]) & (shifts["step"] == row["step"])]
    for shift in same[same["p_value"] < _ALPHA].to_dict("records"):
        if _is_longer(shift) == (row["p50_change_s"] > 0):
            return f", since about {format_date(shift['at'])}"
    return ""


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
