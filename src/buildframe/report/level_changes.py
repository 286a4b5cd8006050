"""Describe the change behind each finding as a row of numbers: the table from which headlines and plots follow.

Knows tables of comparisons, not texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import pandas as pd

Row = Mapping[Any, Any]

Unit = Literal["s", "share"]


@dataclass(frozen=True)
class LevelChange:
    """
    Hold one significant change of a level, such as a median or a rate.

    Parameters
    ----------
    what : {"wall time", "run time", "queue time", "success rate", "failure rate"}
        What changed.
    statistic : {"median", "95th percentile", "mean", "rate"}
        Level of it that is compared.
    pipeline, step, queue : str, optional
        What it belongs to. None if it belongs to no pipeline, step or queue.
    is_worse : bool
        Whether the change is a deterioration.
    compares : {"period", "history", "day"}
        What `before` and `after` are levels of: the period before and the period; as many days as the history before
        it, and the history; or the days before and since a change point.
    since : Timestamp, optional
        Day of the change point. None if no day is known.
    since_low, since_high : Timestamp, optional
        Interval of that day.
    before, after, change : float
        Levels and their difference, in `unit`.
    low, high : float
        Interval of `change`; NaN if unknown.
    p : float
        p-value of this one test.
    n_before, n : int
        Number of builds or jobs on each side.
    number_before, number_after : int, optional
        Numbers of the last build before and the first build since the change point.
    unit : {"s", "share"}
        Unit of the levels.
    """

    what: str
    statistic: str
    pipeline: str | None
    step: str | None
    queue: str | None
    is_worse: bool
    compares: Literal["period", "history", "day"]
    since: pd.Timestamp | None
    since_low: pd.Timestamp | None
    since_high: pd.Timestamp | None
    before: float
    after: float
    change: float
    low: float
    high: float
    p: float
    n_before: int
    n: int
    number_before: int | None
    number_after: int | None
    unit: Unit


_DTYPES = (
    dict.fromkeys(("what", "statistic", "pipeline", "step", "queue", "compares", "unit"), "str")
    | dict.fromkeys(("before", "after", "change", "low", "high", "p"), "float64")
    | dict.fromkeys(("n_before", "n", "number_before", "number_after"), "Int64")
    | {"is_worse": "boolean"}
)
_TIMES = ("since", "since_low", "since_high")


def of_duration(row: Row, what: str, percentile: str, *, is_worse: bool) -> LevelChange:
    """Return the change of a percentile of a duration, from a row with a reported change."""
    names = {"before": "before_s", "after": "s", "change": "change_s", "low": "change_low_s", "high": "change_high_s"}
    levels = {name: row[f"{percentile}_{column}"] for name, column in names.items()}
    statistic = {"p50": "median", "p95": "95th percentile"}[percentile]
    p = row.get(f"{percentile}_change_p")
    return _change(row, p, levels, what=what, statistic=statistic, is_worse=is_worse, unit="s")


def of_rate(row: Row, what: str, *, is_worse: bool) -> LevelChange:
    """Return the change of a rate, from a row with a reported change."""
    names = {"before": "rate_before", "after": "rate", "change": "change", "low": "low", "high": "high"}
    levels = {name: row[column] for name, column in names.items()}
    return _change(row, row.get("p"), levels, what=what, statistic="rate", is_worse=is_worse, unit="share")


def of_wait(whole: Row, cause: Row) -> LevelChange:
    """Return the change of the mean time that a build waits in a queue: a cause of the change of its pipeline."""
    levels = {name: cause[f"{name}_s"] for name in ("before", "after", "change", "low", "high")}
    is_worse, row = levels["change"] > 0, {**whole, "queue": cause["queue"]}
    return _change(
        row, cause.get("p"), levels, what="queue time", statistic="mean", is_worse=is_worse, unit="s", is_cause=True
    )


def tabulate(changes: Iterable[LevelChange]) -> pd.DataFrame:
    """Return a row for each change, with the fields of `LevelChange` as columns. Times are in UTC."""
    table = pd.DataFrame([asdict(one) for one in changes], columns=[field.name for field in fields(LevelChange)])
    utc = {name: pd.to_datetime(table[name], utc=True).astype("datetime64[us, UTC]") for name in _TIMES}
    return table.astype(_DTYPES).assign(**utc)


def is_dated(row: Row) -> bool:
    """Return whether the reported change is that of a day, and not the difference of two periods."""
    return not row["is_compared"] and not pd.isna(row["since"])


def _change(row: Row, p: Any, levels: dict[str, Any], *, is_cause: bool = False, **texts: Any) -> LevelChange:
    """Return a change whose day and builds are those of the row, and `p` its p-value unless a day has its own."""
    p = row.get("last p") if is_dated(row) and not is_cause else p
    own: dict[str, Any] = {key: _known(row.get(key)) for key in ("pipeline", "step", "queue")}
    own |= {name: float(value) for name, value in levels.items()}
    return LevelChange(
        **own,
        compares="day" if is_dated(row) else "history" if row["is_long"] else "period",
        since=_known(row["since"]),
        since_low=_known(row.get("last at_low")),
        since_high=_known(row.get("last at_high")),
        number_before=_known(row.get("last number_before")),
        number_after=_known(row.get("last number_after")),
        p=math.nan if p is None else float(p),
        n_before=int(row["n_before"]),
        n=int(row["n"]),
        **texts,
    )


def _known(value: Any) -> Any:
    return None if value is None or pd.isna(value) else value
