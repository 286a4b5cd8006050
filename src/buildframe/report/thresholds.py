"""Limits that a user sets in a small TOML file, and what became of each in a period."""

from __future__ import annotations

import datetime as dt
import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self

import pandas as pd

from buildframe.bodies import nearest
from buildframe.errors import BadInput
from buildframe.report.content import Verdict
from buildframe.report.facts import Facts
from buildframe.spec.times import span as length_of
from buildframe.words import counted, named, percent, span

EVERY = "*"
"""The name that stands for every queue or pipeline that is not named."""

Row = Mapping[str, Any]
Status = Literal["over", "perhaps", "within", "unknown"]

_FIRST: tuple[Status, ...] = ("over", "perhaps", "unknown", "within")


@dataclass(frozen=True)
class Thresholds:
    """Limits by name, or for `"*"`: every one that is not named.

    `queue_time`: of a queue, seconds; the 95th percentile of the queue time, at most. `success_rate`: of a pipeline,
    the share of builds that pass, at least. `wall_time`: of a pipeline, the share by which the median wall time of
    passed builds may be longer than in the period before.
    """

    queue_time: Mapping[str, float]
    success_rate: Mapping[str, float]
    wall_time: Mapping[str, float]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """The limits of a TOML file, in UTF-8.

        BadInput, which names the file, the limit and what is expected: no such file, no TOML, no limit in it, an
        unknown name, a value that is none.
        """
        given = _toml(path)
        known = [field.name for field in fields(cls)]
        for name, table in given.items():
            if name not in known:
                raise BadInput(f"{path}: there are no limits of {name!r}.{nearest(name, known)}")
            if not isinstance(table, dict):
                raise BadInput(f"{path}: {name} is a table of names and limits; write [{name}] above them.")
        if not any(given.values()):
            raise BadInput(f"{path}: it sets no limit. It takes the tables {', '.join(known)}.")
        return cls(**{name: _limits(path, name, given.get(name, {})) for name in known})


def judged(thresholds: Thresholds, facts: Facts) -> list[Verdict]:
    """What became of each limit in the period, the worst first.

    A limit is `over` only where the whole interval of what was measured lies beyond it, and `unknown` where its queue
    or pipeline has too little data, or none.
    """
    found = [
        *_each(thresholds.queue_time, facts.queue_time, "queue", _queue_time),
        *_each(thresholds.success_rate, facts.success, "pipeline", _success_rate),
        *_each(thresholds.wall_time, facts.wall_time, "pipeline", _wall_time),
    ]
    return sorted(found, key=lambda verdict: _FIRST.index(verdict.status))


# --- the file


def _toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise BadInput(f"{path}: the file of thresholds is not UTF-8; save it as that.") from None
    except tomllib.TOMLDecodeError as why:
        raise BadInput(f"{path}: this is not TOML: {why}.") from None
    except (OSError, ValueError) as why:
        raise BadInput(f"{path}: the file of thresholds cannot be read: {why}") from None


def _limits(path: str | os.PathLike[str], table: str, given: Mapping[str, Any]) -> dict[str, float]:
    return {name: _limit(path, table, name, value) for name, value in given.items()}


def _limit(path: str | os.PathLike[str], table: str, name: str, value: Any) -> float:
    limit = _READ[table](value)
    if limit is None:
        quotes = " A name with a dot needs quotes." if isinstance(value, dict) else ""
        raise BadInput(f"{path}: [{table}] {name!r} is {value!r}, but takes {_TAKES[table]}.{quotes}")
    return limit


def _seconds(value: Any) -> float | None:
    try:
        length = length_of(value, "") if isinstance(value, str) else dt.timedelta(0)
    except BadInput:
        return None
    return length.total_seconds() or None


def _share(value: Any) -> float | None:
    return _number(value, 1) or None


def _longer(value: Any) -> float | None:
    return _number(value, 10)


def _number(value: Any, most: float) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= most else None  # no comparison holds for NaN


_READ: dict[str, Callable[[Any], float | None]] = {
    "queue_time": _seconds,
    "success_rate": _share,
    "wall_time": _longer,
}
_TAKES = {
    "queue_time": 'a length of time above 0, such as "90s", "10m" or "2h"',
    "success_rate": "a share above 0 and up to 1, such as 0.9 for 90 %",
    "wall_time": "a share from 0 to 10, such as 0.2 for 20 % longer",
}

# --- the verdicts


def _each(
    limits: Mapping[str, float], table: pd.DataFrame, key: str, judge: Callable[[Row, str, float], Verdict]
) -> Iterator[Verdict]:
    """A verdict for each row that has a limit, and for each name without a row."""
    left = {name: limit for name, limit in limits.items() if name != EVERY}
    for row in table.to_dict("records"):
        limit = left.pop(row[key], limits.get(EVERY, math.nan))
        if not math.isnan(limit):
            yield judge({str(name): value for name, value in row.items()}, named(row[key]), limit)
    for name in map(named, left):
        yield Verdict(name, "unknown", f"There is no {key} {name} in this period, nor in the one before it.")


def _queue_time(row: Row, queue: str, limit: float) -> Verdict:
    value, low, high = (row[f"p95_{end}s"] for end in ("", "low_", "high_"))
    n = counted(row["n"], "job")
    if math.isnan(value):
        few = f"{n} of the queue {queue} began: too few to tell the 95th percentile of their wait"
        return _unknown(queue, few, f"{span(limit)} at most")
    text = f"Jobs of the queue {queue} wait {span(value)} at the 95th percentile ({_surely(low, high, span)}; {n})"
    return _verdict(queue, _status(value, low, limit), text, f"{span(limit)} at most")


def _success_rate(row: Row, pipeline: str, limit: float) -> Verdict:
    value, low, high, n = row["rate"], row["rate_low"], row["rate_high"], counted(row["n"], "build")
    if math.isnan(value):
        return _unknown(pipeline, f"No build of {pipeline} passed or failed", f"{percent(limit)} at least")
    text = f"{percent(value)} of the builds of {pipeline} pass ({_surely(low, high, percent)}; {n})"
    return _verdict(pipeline, _status(-value, -high, -limit), text, f"{percent(limit)} at least")


def _wall_time(row: Row, pipeline: str, limit: float) -> Verdict:
    value, before, change = row["p50_s"], row["p50_before_s"], row["p50_change_s"]
    low, high = row["p50_change_low_s"], row["p50_change_high_s"]
    n = f"{row['n']:,} and {counted(row['n_before'], 'build')}"
    most = f"{percent(limit)} longer at most"
    if math.isnan(change):
        return _unknown(pipeline, f"{n} of {pipeline} passed: too few to compare the two periods", most)
    text = (
        f"Passed builds of {pipeline} take {span(value)} in the median, {_compared(change)} than in the period before "
        f"({_surely(low, high, _compared)}; {n})"
    )
    return _verdict(pipeline, _status(change, low, limit * before), text, most)


def _status(value: float, surely: float, limit: float) -> Status:
    """Of a value that is to be `limit` at most, and is `surely` as much as that."""
    if value <= limit:
        return "within"
    if math.isnan(surely):
        return "unknown"
    return "over" if surely > limit else "perhaps"


def _verdict(subject: str, status: Status, text: str, limit: str) -> Verdict:
    doubt = ", and noise may have taken it there" if status == "perhaps" else ""
    return Verdict(subject, status, f"{text}; the limit is {limit}{doubt}.")


def _unknown(subject: str, why: str, limit: str) -> Verdict:
    return Verdict(subject, "unknown", f"{why}; the limit is {limit}.")


def _surely(low: float, high: float, told: Callable[[float], str]) -> str:
    """The interval of a value, as far as it is known."""
    if math.isnan(low) and math.isnan(high):
        return "too few days to tell how sure that is"
    if math.isnan(high):
        return f"surely {told(low)} or more"
    return f"surely {told(low)} to {told(high)}" if not math.isnan(low) else f"surely {told(high)} or less"


def _compared(seconds: float) -> str:
    return f"{span(abs(seconds))} {'longer' if seconds > 0 else 'shorter'}"
