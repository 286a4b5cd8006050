"""Read limits from a TOML file and check measurements against them. Does not know stores or pages."""

from __future__ import annotations

import datetime as dt
import functools
import math
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import pandas as pd

from buildframe.errors import BadInput
from buildframe.formatting import format_count, format_duration, format_name, format_percent, suggest_names
from buildframe.report.content import STATUSES, Status, Verdict
from buildframe.report.intervals import describe_interval
from buildframe.report.measurements import Measurements
from buildframe.report.objectives import OF_BUILDS, OF_JOBS, Objective
from buildframe.spec.times import parse_duration
from buildframe.terminal import nearest

DEFAULT = "*"
"""Name of the limit for all queues or pipelines without their own."""

Row = Mapping[Any, Any]

_interval = functools.partial(describe_interval, unknown="too few days for an interval")


@dataclass(frozen=True)
class Thresholds:
    """
    Hold limits by name. The name `"*"` applies to all queues or pipelines without their own limit.

    Parameters
    ----------
    queue_time : mapping of str to float
        Maximum 95th percentile of the queue time in seconds, by queue.
    success_rate : mapping of str to float
        Minimum share of builds that pass, in (0, 1], by pipeline.
    wall_time : mapping of str to float
        Maximum increase of the median wall time of passed builds over the period before, as a share, by pipeline.
    objectives : mapping of str to Objective, optional
        Promises about durations, by name.
    rates : mapping of str to float, optional
        Price of a minute of machine time, by queue. No limit: the report contains the cost.
    """

    queue_time: Mapping[str, float]
    success_rate: Mapping[str, float]
    wall_time: Mapping[str, float]
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """
        Read limits from a TOML file.

        Parameters
        ----------
        path : str or path-like
            File in UTF-8 with the tables `queue_time`, `success_rate`, `wall_time`, `rates`, and `objectives` with a
            table per objective, each optional. Durations are written such as `"10m"`, shares and prices as numbers.

        Returns
        -------
        Thresholds
            The limits.

        Raises
        ------
        BadInput
            If the file cannot be read, is not TOML, contains no limit, or contains an unknown table or invalid value.
        """
        tables = _toml(path)
        names = [field.name for field in fields(cls)]
        for name, table in tables.items():
            if name not in names:
                raise BadInput(f"{path}: {name!r} is not a table of limits.{nearest(name, names)}")
            if not isinstance(table, dict):
                raise BadInput(f"{path}: {name} is not a table. Write [{name}] above its limits.")
        if not any(tables.values()):
            raise BadInput(f"{path}: the file contains no limit. Add one to a table: {', '.join(names)}.")
        limits = {name: _limits(path, name, tables.get(name, {})) for name in _VALUES}
        return cls(**limits, objectives=_objectives(path, tables.get("objectives", {})))


def check_limits(thresholds: Thresholds, measurements: Measurements) -> list[Verdict]:
    """
    Check each limit, and return the results ordered by status.

    Parameters
    ----------
    thresholds : Thresholds
        Limits to check.
    measurements : Measurements
        Tables of the report.

    Returns
    -------
    list of Verdict
        A result per limit and row, ordered by `over`, `perhaps`, `unknown`, `within`.
    """
    verdicts = [
        *_check(thresholds.queue_time, measurements.queue_time, "queue", _queue_time),
        *_check(thresholds.success_rate, measurements.success, "pipeline", _success_rate),
        *_check(thresholds.wall_time, measurements.wall_time, "pipeline", _wall_time),
        *_check_objectives(thresholds.objectives, measurements),
    ]
    return sorted(verdicts, key=lambda verdict: STATUSES.index(verdict.status))


# --- file


def _toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise BadInput(f"{path}: the file of limits is not UTF-8. Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as why:
        raise BadInput(f"{path}: the file is not valid TOML: {why}.") from None
    except (OSError, ValueError) as why:
        raise BadInput(f"{path}: the file of limits cannot be read: {why}") from None


def _limits(path: str | os.PathLike[str], table: str, values: Mapping[str, Any]) -> dict[str, float]:
    parse, allowed = _VALUES[table]
    limits = {}
    for name, value in values.items():
        if (limit := parse(value)) is None:
            quotes = " Quote names that contain a dot." if isinstance(value, dict) else ""
            raise BadInput(f"{path}: [{table}] {name!r} is {value!r}. Use {allowed}.{quotes}")
        limits[name] = limit
    return limits


def _seconds(value: Any) -> float | None:
    try:
        length = parse_duration(value, "") if isinstance(value, str) else dt.timedelta(0)
    except BadInput:
        return None
    return length.total_seconds() or None


def _number(value: Any, most: float) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= most else None  # comparisons with NaN are False


_VALUES: dict[str, tuple[Callable[[Any], float | None], str]] = {
    "queue_time": (_seconds, 'a duration above 0, such as "90s", "10m" or "2h"'),
    "success_rate": (lambda value: _number(value, 1) or None, "a share in (0, 1], such as 0.9 for 90 %"),
    "wall_time": (lambda value: _number(value, 10), "a share from 0 to 10, such as 0.2 for 20 % longer"),
    "rates": (lambda value: _number(value, sys.float_info.max), "the price of a minute, at least 0, such as 0.08"),
}


def _objectives(path: str | os.PathLike[str], tables: Mapping[str, Any]) -> dict[str, Objective]:
    objectives = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise BadInput(
                f"{path}: [objectives] {name!r} is {table!r}, not a table. Write [objectives.{name!r}] above "
                "its of, within and target."
            )
        objectives[name] = _objective(f"{path}: [objectives.{name!r}]", table)
    return objectives


def _objective(where: str, table: Mapping[str, Any]) -> Objective:
    """Return the objective that a table declares; raise BadInput, beginning with `where`, if it is invalid."""
    for key in table:
        if key not in _KEYS:
            raise BadInput(f"{where}: {key!r} is not a key of an objective.{nearest(key, [*_KEYS])}")
    values = {}
    for key, (parse, allowed, is_needed) in _KEYS.items():
        if key in table and (value := parse(table[key])) is not None:
            values[key] = value
        elif key in table:
            raise BadInput(f"{where} {key!r} is {table[key]!r}. Use {allowed}.")
        elif is_needed:
            raise BadInput(f"{where} has no {key!r}. Add {allowed}.")
    objective = Objective(**values)
    if objective.of in OF_BUILDS and "queue" in (objective.by, objective.queue and "queue"):
        raise BadInput(f"{where}: builds have no queue. Use pipeline, or a duration of jobs such as of = 'queue_time'.")
    return objective


def _one_of(*allowed: str) -> Callable[[Any], str | None]:
    return lambda value: value if isinstance(value, str) and value in allowed else None


def _share(value: Any) -> float | None:
    share = _number(value, 1)
    return share if share is not None and 0 < share < 1 else None


_DURATIONS = (*OF_JOBS, *OF_BUILDS)
_KEYS: dict[str, tuple[Callable[[Any], Any], str, bool]] = {
    "of": (_one_of(*_DURATIONS), f"one of {', '.join(map(repr, _DURATIONS))}", True),
    "within": (_seconds, 'a duration above 0, such as "90s", "5m" or "2h"', True),
    "target": (_share, "a share between 0 and 1, such as 0.95 for 95 %", True),
    "by": (_one_of("queue", "pipeline"), "'queue' or 'pipeline'", False),
    "queue": (lambda value: value if isinstance(value, str) else None, "the name of a queue", False),
    "pipeline": (lambda value: value if isinstance(value, str) else None, "the slug of a pipeline", False),
}
"""Keys of an objective: how a value is read, what is allowed, and whether the key is needed."""

# --- verdicts


def _check(
    limits: Mapping[str, float], table: pd.DataFrame, key: str, check: Callable[[Row, str, float], Verdict]
) -> Iterator[Verdict]:
    """Return a verdict for each row with a limit, and for each limit without a row."""
    unused = {name: limit for name, limit in limits.items() if name != DEFAULT}
    for row in table.to_dict("records"):
        limit = unused.pop(row[key], limits.get(DEFAULT, math.nan))
        if not math.isnan(limit):
            yield check(row, format_name(row[key]), limit)
    for name in unused:
        advice = suggest_names(name, _names(key, table), "Names with rows")
        text = f"The {key} {format_name(name)} has no rows in this period or the one before. {advice}"
        yield Verdict(format_name(name), "unknown", text)


def _names(key: str, table: pd.DataFrame) -> list[str]:
    return sorted(map(str, table[key].dropna().unique())) if key in table else []


def _queue_time(row: Row, queue: str, limit: float) -> Verdict:
    value, low, high, least = (row[f"p95_{end}s"] for end in ("", "low_", "high_", "at_least_"))
    n, limit_text = format_count(row["n"], "job"), f"at most {format_duration(limit)}"
    subject = f"The 95th percentile of the queue time of {queue} is"
    if not math.isnan(least):
        text = f"{subject} at least {format_duration(least)} ({n}, and {row['n_censored']:,} that did not start)"
        return Verdict(queue, "over" if least > limit else "unknown", f"{text}; the limit is {limit_text}.")
    text = f"{subject} {format_duration(value)} ({_interval(low, high, format_duration)}; {n})"
    few = f"{n} of the queue {queue} started, too few for a 95th percentile"
    return _verdict(queue, value, low, limit, few if math.isnan(value) else text, limit_text)


def _success_rate(row: Row, pipeline: str, limit: float) -> Verdict:
    value, low, high, n = row["rate"], row["rate_low"], row["rate_high"], format_count(row["n"], "build")
    text = f"The success rate of {pipeline} is {format_percent(value)} ({_interval(low, high, format_percent)}; {n})"
    few, least = f"No build of {pipeline} passed or failed", f"at least {format_percent(limit)}"
    return _verdict(pipeline, -value, -high, -limit, few if math.isnan(value) else text, least)


def _wall_time(row: Row, pipeline: str, limit: float) -> Verdict:
    change, low, high = (row[f"p50_change_{end}s"] for end in ("", "low_", "high_"))
    n = f"{row['n']:,} and {format_count(row['n_before'], 'build')}"
    text = (
        f"The median wall time of passed builds of {pipeline} is {format_duration(row['p50_s'])}, "
        f"{_compared(change)} than before ({_interval(low, high, _compared)}; {n})"
    )
    few = f"{n} of {pipeline} passed, too few to compare the two periods"
    most, limit_text = limit * row["p50_before_s"], f"at most {format_percent(limit)} longer"
    return _verdict(pipeline, change, low, most, few if math.isnan(change) else text, limit_text)


def _check_objectives(objectives: Mapping[str, Objective], measurements: Measurements) -> Iterator[Verdict]:
    """Return a verdict for each row of an objective, and for each objective without a row."""
    table = measurements.objectives
    known = {"queue": _names("queue", measurements.queue_time), "pipeline": _names("pipeline", measurements.success)}
    for name, objective in objectives.items():
        rows = table[table["objective"] == name].to_dict("records")
        for row in rows:
            yield _objective_verdict(row, objective)
        if not rows:
            text = f"The objective {format_name(name)} has no rows in this period."
            wanted = [(getattr(objective, key), names) for key, names in known.items()]
            advice = [suggest_names(of, names, "Names with rows") for of, names in wanted if of and of not in names]
            yield Verdict(format_name(name), "unknown", " ".join([text, *advice]))


def _objective_verdict(row: Row, objective: Objective) -> Verdict:
    keys = [key for key in ("queue", "pipeline") if key == objective.by or not pd.isna(row[key])]
    groups = ", ".join("no name" if pd.isna(row[key]) else format_name(row[key]) for key in keys)
    subject = format_name(row["objective"]) + (f" ({groups})" if groups else "")
    kind = "build" if objective.of in OF_BUILDS else "job"
    n, undecided = format_count(row["n"], kind), f"; {row['undecided']:,} undecided" if row["undecided"] else ""
    interval = describe_interval(row["low"], row["high"], format_percent, "no interval")
    text = (
        f"{subject}: {format_percent(row['share'])} of {n} met the objective, {objective.of.replace('_', ' ')} within "
        f"{format_duration(objective.within)} ({interval}; "
        f"{format_percent(row['budget_used'])} of the error budget used{undecided})"
    )
    if math.isnan(row["share"]):
        text = f"{subject}: no {kind} met or missed the objective{undecided}"
    limit_text = f"at least {format_percent(objective.target)}"
    return _verdict(subject, -row["share"], -row["high"], -objective.target, text, limit_text)


def judge(value: float, low: float, limit: float) -> Status:
    """Return the status of a value with the lower end `low` of its interval and a maximum `limit`."""
    if value <= limit:
        return "within"
    if math.isnan(value) or math.isnan(low):
        return "unknown"
    return "over" if low > limit else "perhaps"


def _verdict(subject: str, value: float, low: float, limit: float, text: str, limit_text: str) -> Verdict:
    """Return the verdict on a value with the lower end `low` of its interval and a maximum `limit`."""
    status = judge(value, low, limit)
    doubt = ", which lies within the interval" if status == "perhaps" else ""
    return Verdict(subject, status, f"{text}; the limit is {limit_text}{doubt}.")


def _compared(seconds: float) -> str:
    return f"{format_duration(abs(seconds))} {'longer' if seconds > 0 else 'shorter'}"
