"""Estimate how long a change takes to show in reports that look every night, from how much days differ."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.change_search import Series, fewest_days, needed_distance
from buildframe.metrics.columns import Flags, Floats
from buildframe.metrics.daily_scores import HITS, ROWS, group_edges, measure_rows, score_groups
from buildframe.metrics.discoveries import NIGHTLY
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.engines.rows import PLACE, Frame, GroupedRows
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.outcomes import failed
from buildframe.terminal import show

_POWER = 0.8
"""Probability with which a change is marked."""

_PERIODS = 4
"""Periods that are searched for changes, and that the longer comparison compares with as many before."""

_LEAST_DAYS = 10
"""With fewer days with rows, their spread is unknown."""

_LEAST_OF_DURATIONS = 2.6e-5
"""Orders of days as clear as this are hardly among the shuffles, so that smaller probabilities are extrapolated."""

_TESTS_OF_PIPELINE = 12
"""Half of the level is for six tests of each pipeline: of durations and of failures, two comparisons and a search."""

_CHANGES = np.geomspace(0.005, 10, 400)
_MEASURED = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Relative changes of durations whose effect on scores is measured; those between are interpolated."""

_QUANTILES = 1_000
"""Quantiles that stand for the durations of a group with more rows."""


@checked_names
def days_to_see(
    frame: Frame,
    of: RowMetric | str = wall_time,
    by: By = None,
    change: float = 0.1,
    at: str = "created_at",
    tz: str = "UTC",
    *,
    days: int = 7,
    tests: int | None = None,
) -> pd.DataFrame:
    """
    Estimate how many days after a change a nightly report shows it.

    Parameters
    ----------
    frame : DataFrame
        Builds or jobs of some weeks: pandas, Polars (eager or lazy), DuckDB relation or PySpark. Needs the column `at`
        and the columns that `of` needs.
    of : row metric or str, default wall_time
        What may change: a duration (a row metric such as `run_time`, or a column of timedeltas or of seconds, `..._s`),
        or `metrics.failed` for the share of builds or jobs that fail.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.
    change : float, default 0.1
        Relative size of the change, above -1 and not 0: 0.1 for durations or failure rates a tenth higher.
    at : str, default "created_at"
        Column of timestamps that assigns rows to days.
    tz : str, default "UTC"
        Time zone of the days.
    days : int, default 7
        Number of days that the report compares with as many before; at least 1. It also compares four times as many,
        and searches these for changes.
    tests : int, optional
        Number of equal tests among which the change must stand out. In the report that is the column `tests` of its
        table `days_to_see`. By default 12 for each group, as in a report on pipelines if the store has no queues: it
        makes six tests for each, which share half of the level. A step of a report has 16.

    Returns
    -------
    pandas.DataFrame
        One row per group, ordered by key, null keys last. After the keys:

        =============== ======= ====================================================================
        n               Int64   rows that have a time and a value, or that passed or failed
        days            Int64   days with such rows
        days_to_see     Int64   days after the change when four of five reports show it; null if that
                                takes more than four periods, or with fewer than 10 days with rows
        smallest_change float64 smallest relative increase that is shown within one period; NaN if
                                above 10, or with fewer than 10 days with rows
        =============== ======= ====================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, a duration is infinite, or `of`, `change`, `tz`, `days` or
        `tests` is invalid.

    See Also
    --------
    change_points : Find when a duration or a failure rate changed.
    percentile_change : Compare two periods.

    Notes
    -----
    A report shows what remains notable among all its tests, so that in 60 nights without any change at most one in ten
    alarms: its most certain change needs a p-value below .1 / 60 / `tests`. Changes are searched for in four periods,
    and one and four periods are compared with as many before. The chance that any of these tests shows a change follows
    from how much days differ, by ranks as in `change_points`, and the days are those after which it reaches .8. The
    search shows a change after five to eight days with rows at the earliest. Comparisons see most after one or four
    periods, when none of the days before the change is left on their later side. In simulated reports with
    as many builds on each day, the days were right within about a quarter. If the chance stays near .8 after one
    period, the days can jump to three: with quiet weekends, steps 50 % slower had 7 or 22 days, and four of five stores
    had a first report after 13.

    Limits: the store is taken to hold eight periods, which the longer comparison needs; with fewer, changes that take
    more than three periods may not show. The days in the frame are taken to have no change themselves, and not to
    depend on each other. `smallest_change` of durations is interpolated between measured sizes, and more than 1,000
    rows of a group are represented by 1,000 quantiles. Other changes at the same time make a change clearer.

    Examples
    --------
    >>> weeks = [builds.assign(created_at=builds["created_at"] + pd.Timedelta(7 * week, "D")) for week in range(4)]
    >>> timed = pd.concat(weeks).assign(wall_s=pd.concat([metrics.wall_time(builds).dt.total_seconds()] * 4))
    >>> metrics.days_to_see(timed, "wall_s", "pipeline", change=1.0).round(2).head(3)
      pipeline    n  days  days_to_see  smallest_change
    0      api  128    28            7             0.78
    1  billing   44    24           27              NaN
    2     data   72    28            7             0.24
    """
    _check_arguments(change, days, tests)
    rows, buckets = measure_rows(frame, of, by, at, tz)
    is_rate = of is failed
    groups, units, series = score_groups(rows, is_rate=is_rate)
    edges = group_edges(units)
    n = np.array([units[ROWS].to_numpy()[start:stop].sum() for start, stop in edges], np.int64)
    n_days = np.array([stop - start for start, stop in edges], np.int64)
    shifts = _shift_rates(units, edges) if is_rate else _shift_durations(rows, groups, change)
    level = NIGHTLY / (_TESTS_OF_PIPELINE * max(len(edges), 1) if tests is None else tests)
    fewest_at = level if is_rate else max(level, _LEAST_OF_DURATIONS)
    seen = [
        _Group.of(one, len(buckets), days, level, fewest_at)
        if len(one.score) >= _LEAST_DAYS and np.ptp(one.score) > 0
        else None
        for one in series
    ]
    waits = [None if own is None else own.days(shift(change)) for own, shift in zip(seen, shifts, strict=True)]
    least = [np.nan if own is None else own.smallest(shift) for own, shift in zip(seen, shifts, strict=True)]
    columns: dict[str, Any] = {"n": pd.array(n, "Int64"), "days": pd.array(n_days, "Int64")}
    columns |= {"days_to_see": pd.array(waits, "Int64"), "smallest_change": np.array(least, np.float64)}
    return join_keys(rows.name_keys(groups).reset_index(drop=True), pd.DataFrame(columns))


class _Group(NamedTuple):
    """How much the score of a day varies by chance, and how many standard errors each test needs.

    `fewest` is the number of days that the search needs after a change, and `spread` by how much its standard errors
    vary.
    """

    variance: float
    fewest: float
    period: int
    of_search: float
    spread: float
    of_comparison: float

    @classmethod
    def of(cls, series: Series, n_days: int, period: int, level: float, fewest_at: float) -> _Group:
        from scipy.special import ndtri

        score, weight = series
        active = len(score) / n_days
        residual = (weight * (score - np.average(score, weights=weight)) ** 2).sum() / (len(score) - 1)
        searched = series.between(max(0, len(score) - max(_LEAST_DAYS, round(_PERIODS * period * active))), len(score))
        needed = needed_distance(searched, level)
        fewest = fewest_days(len(searched.score), fewest_at) / active
        spread = np.sqrt(1 + needed**2 / (2 * (len(searched.score) - 2)))  # of a noncentral t
        variance = residual * n_days / weight.sum()
        return cls(variance, fewest, period, needed, float(spread), -float(ndtri(level / 2)))

    def is_seen(self, shift: float) -> Flags:
        """Return whether a shift of scores is marked after each number of days, up to four periods."""
        from scipy.special import ndtr

        history = _PERIODS * self.period
        after = np.arange(1, history + 1)
        searched = np.abs(shift) * np.sqrt(after * (history - after) / history / self.variance)
        missed = 1 - ndtr((searched - self.of_search) / self.spread) * (after >= self.fewest)
        for length in (self.period, history):
            share = np.minimum(after / length, 1)
            variance = 2 * self.variance + shift**2 * share * (1 - share)
            compared = np.abs(shift) * share * np.sqrt(length / variance)
            missed *= 1 - ndtr(compared - self.of_comparison) * (after <= length)
        return np.asarray(1 - missed >= _POWER)

    def days(self, shift: float) -> int | None:
        """Return the number of days after which a shift is marked; None if that takes longer than four periods."""
        seen = self.is_seen(shift)
        return int(seen.argmax()) + 1 if seen.any() else None

    def smallest(self, shift: Callable[[float], float]) -> float:
        """Return the smallest change that is marked within one period; NaN if none is."""
        at = bisect_left(_CHANGES, True, key=lambda change: bool(self.is_seen(shift(change))[: self.period].any()))
        return float(_CHANGES[at]) if at < len(_CHANGES) else np.nan


def _shift_rates(units: pd.DataFrame, edges: Sequence[tuple[int, int]]) -> list[Callable[[float], float]]:
    """Return for each group by how much the score of days shifts if its rate changes by a share of it."""

    def shift_from(rate: float) -> Callable[[float], float]:
        return lambda change: float(np.arcsin(np.sqrt(min(rate * (1 + change), 1))) - np.arcsin(np.sqrt(rate)))

    hits, n = units[HITS].to_numpy(np.float64), units[ROWS].to_numpy(np.float64)
    return [shift_from(hits[start:stop].sum() / n[start:stop].sum()) for start, stop in edges]


def _shift_durations(rows: GroupedRows, groups: pd.DataFrame, change: float) -> list[Callable[[float], float]]:
    """Return for each group by how much the score of days shifts if its durations change by a share of them.

    It is measured at `change` and at `_MEASURED`, and interpolated between these by the logarithm.
    """
    sizes = np.unique([*_MEASURED, change])
    place = int(np.searchsorted(sizes, 0))
    known = np.insert(np.log1p(sizes), place, 0.0)

    def shift_by(values: Floats) -> Callable[[float], float]:
        own = np.insert([_measure_shift(values, size) for size in sizes], place, 0.0)
        return lambda change: float(np.interp(np.log1p(change), known, own))

    return [shift_by(values) for values in _quantiles(rows, groups)]


def _quantiles(rows: GroupedRows, groups: pd.DataFrame) -> Iterator[Floats]:
    """Yield the values of each group in order: all, or `_QUANTILES` quantiles of more."""
    counts = rows.engine.count_values(rows, None, None)
    n = np.minimum(counts.n_values, _QUANTILES)
    number = np.arange(n.max(initial=0))
    middles = ((2 * number + 1) * counts.n_values[:, None]) // (2 * np.maximum(n, 1)[:, None]) + 1
    values = rows.engine.rank_values(rows, counts).values_at(np.where(number < n[:, None], middles, 0))
    places = groups.merge(counts.groups.assign(**{PLACE: range(len(n))}), how="left", on=rows.by)[PLACE]
    for place in places:
        yield values[place, : n[place]]


def _measure_shift(values: Floats, change: float) -> float:
    """Return by how much the mean score of values rises if all become larger by a share of them."""
    from scipy.special import ndtri

    both = pd.Series(np.concatenate([values, values * (1 + change)]))
    before, after = np.split(ndtri(both.rank().to_numpy() / (len(both) + 1)), 2)
    return float(after.mean() - before.mean())


def _check_arguments(change: float, days: int, tests: int | None) -> None:
    if isinstance(change, bool) or not isinstance(change, int | float) or not (change > -1 and change != 0):
        raise BadInput(
            f"change={show(change)} is not a relative size of a change. Use 0.1 for a tenth more, -0.1 for less."
        )
    for name, number in (("days", days), ("tests", tests)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise BadInput(f"{name}={show(number)} is not a whole number of at least 1.")
