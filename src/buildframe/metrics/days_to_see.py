"""Estimate how long a change takes to show in nightly reports, from how much days differ."""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.change_search import Series, fewest_days, needed_distance
from buildframe.metrics.columns import Flags, Floats, first_and_last
from buildframe.metrics.daily_scores import HITS, ROWS, ScoredDays, read_known_rows, score_groups
from buildframe.metrics.discoveries import NIGHTLY
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.input_frames import Frame, RowGroups, is_spark
from buildframe.metrics.numbered import earliest_by, latest_by
from buildframe.metrics.outcomes import failed
from buildframe.metrics.ranked_groups import RankedGroups
from buildframe.metrics.time_buckets import Buckets
from buildframe.metrics.validation import check_states
from buildframe.terminal import show

_POWER = 0.8
"""Probability with which a change is marked."""

_PERIODS = 4
"""Periods that are searched for changes; the longer comparison is between as many."""

_LEAST_DAYS = 10
"""With fewer days with rows, their spread is unknown."""

_LEAST_OF_DURATIONS = 2.6e-5
"""Smaller probabilities are extrapolated.

Orders of days as clear as this are hardly among the shuffles.
"""

_TESTS_OF_PIPELINE = 12
"""Half of the level is for six tests of each pipeline.

They are two comparisons and a search, of durations and of failures.
"""

_CHANGES = np.geomspace(0.005, 10, 400)
_MEASURED = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Relative changes of durations whose effect on scores is measured.

Those between are interpolated.
"""

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
        Builds or jobs of some weeks: pandas, Polars (eager or lazy), DuckDB relation or PySpark.
        Needs the column `at` and the columns that `of` needs.
    of : row metric or str, default wall_time
        What may change: a duration (a row metric such as `run_time`, or a column of timedeltas or
        of seconds, `..._s`), or `metrics.failed` for the share of builds or jobs that fail.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.
    change : float, default 0.1
        Relative size of the change, above -1 and not 0: 0.1 for durations or failure rates a tenth
        higher.
    at : str, default "created_at"
        Column of timestamps that assigns rows to days.
    tz : str, default "UTC"
        Time zone of the days.
    days : int, default 7
        Number of days that the report compares with as many before; at least 1. It also compares
        four times as many, and searches these for changes.
    tests : int, optional
        Number of equal tests among which the change must stand out. In the report that is the
        column `tests` of its table `days_to_see`. By default 12 for each group, as in a report on
        pipelines if the store has no queues: it makes six tests for each, which share half of the
        level. A step of a report has 16.

    Returns
    -------
    pandas.DataFrame
        One row per group, ordered by key, null keys last. After the keys:

        =============== ======= ====================================================================
        n               Int64   rows that have a time and a value, or that passed or failed
        days            Int64   days with such rows
        days_to_see     Int64   days after the change when four of five reports show it; null if
                                that takes more than four periods, or with fewer than 10 days
                                with rows
        smallest_change float64 smallest relative increase that is shown within one period; NaN if
                                above 10, or with fewer than 10 days with rows
        =============== ======= ====================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, a duration is infinite, or `of`,
        `change`, `tz`, `days` or `tests` is invalid.

    See Also
    --------
    change_points : Find when a duration or a failure rate changed.
    percentile_change : Compare two periods.

    Notes
    -----
    A report shows what remains notable among all its tests, so that in 60 nights without any change
    at most one in ten alarms: its most certain change needs a p-value below .1 / 60 / `tests`.
    Changes are searched for in four periods, and one and four periods are compared with as many
    before. The chance that any of these tests shows a change follows from how much days differ, by
    ranks as in `change_points`, and the days are those after which it reaches .8. The search shows
    a change after five to eight days with rows at the earliest. Comparisons see most after one or
    four periods, when none of the days before the change is left on their later side. In simulated
    reports with as many builds on each day, the days were right within about a quarter. If the
    chance stays near .8 after one period, the days can jump to three: with quiet weekends, steps 50
    % slower had 7 or 22 days, and four of five stores had a first report after 13.

    Limits: the store is taken to hold eight periods, which the longer comparison needs; with fewer,
    changes that take more than three periods may not show. The days in the frame are taken to have
    no change themselves, and not to depend on each other. `smallest_change` of durations is
    interpolated between measured sizes, and more than 1,000 rows of a group are represented by
    1,000 quantiles. Other changes at the same time make a change clearer.

    Examples
    --------
    >>> timed = builds.assign(wall_s=metrics.wall_time(builds).dt.total_seconds())
    >>> ages = [pd.Timedelta(7 * week, "D") for week in range(4)]
    >>> weeks = [timed.assign(created_at=timed["created_at"] + age) for age in ages]
    >>> timed = pd.concat(weeks)
    >>> metrics.days_to_see(timed, "wall_s", "pipeline", change=1.0).round(2).head(3)
      pipeline    n  days  days_to_see  smallest_change
    0      api  128    28            7             0.78
    1  billing   44    24           27              NaN
    2     data   72    28            7             0.24
    """
    _check_arguments(change, days, tests)
    if of is failed:
        check_states(frame, "state")
    by = spark_keys(frame, by)
    facts = _read_facts(frame, of, by, at, tz) if is_spark(frame) else None
    summarize = functools.partial(_summarize, of, by, change, at, tz, days, tests, facts)
    return summarize_groups(frame, summarize, by)


class _FrameFacts(NamedTuple):
    """The numbers of days and groups of the frame, which a worker of Spark cannot see."""

    n_days: int
    n_groups: int


def _read_facts(frame: Frame, of: RowMetric | str, by: By, at: str, tz: str) -> _FrameFacts:
    """Return the facts of a frame of PySpark."""
    limits = summarize_groups(frame, functools.partial(_find_limits, of, by, at), by)
    if limits.empty:
        return _FrameFacts(n_days=0, n_groups=0)
    limits_of_all = (int(limits["first time"].min()), int(limits["last time"].max()))
    return _FrameFacts(len(Buckets.between([limits_of_all], "1D", tz)), len(limits))


def _find_limits(of: RowMetric | str, by: By, at: str, frame: Frame) -> pd.DataFrame:
    """Return the first and the last time of each group."""
    rows = read_known_rows(frame, of, by, at)
    times = rows.columns[at].to_numpy(np.int64)
    n_groups = len(rows.keys)
    limits = {
        "first time": earliest_by(rows.codes, times, n_groups),
        "last time": latest_by(rows.codes, times, n_groups),
    }
    return join_keys(rows.keys, pd.DataFrame(limits))


def _summarize(
    of: RowMetric | str,
    by: By,
    change: float,
    at: str,
    tz: str,
    days: int,
    tests: int | None,
    facts: _FrameFacts | None,
    frame: Frame,
) -> pd.DataFrame:
    rows = read_known_rows(frame, of, by, at)
    times = rows.columns[at].to_numpy(np.int64)
    buckets = Buckets.between([first_and_last(times)], "1D", tz)
    facts = facts or _FrameFacts(len(buckets), len(rows.keys))
    scored = score_groups(rows, buckets.numbers_of(times))
    level = NIGHTLY / (tests or _TESTS_OF_PIPELINE * max(facts.n_groups, 1))
    is_rate = of is failed
    shifts = _shift_rates(scored) if is_rate else _shift_durations(rows, change)
    fewest_at = level if is_rate else max(level, _LEAST_OF_DURATIONS)
    days_to_see: list[int | None] = []
    smallest: list[float] = []
    for series, shift in zip(scored.series, shifts, strict=True):
        if len(series.score) < _LEAST_DAYS or np.ptp(series.score) == 0:
            days_to_see.append(None)
            smallest.append(np.nan)
            continue
        detection = _Detection.of(series, facts.n_days, days, level, fewest_at)
        days_to_see.append(detection.days(shift(change)))
        smallest.append(detection.smallest(shift))
    columns = {
        "n": pd.array(np.bincount(rows.codes, minlength=len(rows.keys)), "Int64"),
        "days": pd.array(np.diff(scored.edges), "Int64"),
        "days_to_see": pd.array(days_to_see, "Int64"),
        "smallest_change": np.array(smallest, np.float64),
    }
    return join_keys(rows.keys, pd.DataFrame(columns))


class _Detection(NamedTuple):
    """How much the score of a day varies by chance, and how many standard errors each test needs.

    `fewest` is the number of days that the search needs after a change, and `spread` by how much
    its standard errors vary.
    """

    variance: float
    fewest: float
    period: int
    of_search: float
    spread: float
    of_comparison: float

    @classmethod
    def of(
        cls,
        series: Series,
        n_days: int,
        period: int,
        level: float,
        fewest_at: float,
    ) -> _Detection:
        from scipy.special import ndtri

        score, weight = series
        active = len(score) / n_days
        deviation = score - np.average(score, weights=weight)
        residual = (weight * deviation**2).sum() / (len(score) - 1)
        n_searched = max(_LEAST_DAYS, round(_PERIODS * period * active))
        searched = series.between(max(0, len(score) - n_searched), len(score))
        needed = needed_distance(searched, level)
        fewest = fewest_days(len(searched.score), fewest_at) / active
        spread = np.sqrt(1 + needed**2 / (2 * (len(searched.score) - 2)))  # of a noncentral t
        variance = residual * n_days / weight.sum()
        return cls(variance, fewest, period, needed, float(spread), -float(ndtri(level / 2)))

    def is_seen(self, shift: float) -> Flags:
        """Return whether a shift of scores is marked after each number of days of four periods."""
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
        """Return after how many days a shift is marked; None if not within four periods."""
        seen = self.is_seen(shift)
        return int(seen.argmax()) + 1 if seen.any() else None

    def smallest(self, shift: Callable[[float], float]) -> float:
        """Return the smallest change that is marked within one period; NaN if none is."""

        def is_seen_in_time(change: float) -> bool:
            return bool(self.is_seen(shift(change))[: self.period].any())

        position = bisect_left(_CHANGES, True, key=is_seen_in_time)
        return float(_CHANGES[position]) if position < len(_CHANGES) else np.nan


def _shift_rates(scored: ScoredDays) -> Iterator[Callable[[float], float]]:
    """Yield by how much the score of each group's days shifts if its rate changes by a share."""
    for start, stop in itertools.pairwise(scored.edges):
        days = scored.days.iloc[start:stop]
        yield functools.partial(_shift_rate, float(days[HITS].sum() / days[ROWS].sum()))


def _shift_rate(rate: float, change: float) -> float:
    return float(np.arcsin(np.sqrt(min(rate * (1 + change), 1))) - np.arcsin(np.sqrt(rate)))


def _shift_durations(rows: RowGroups, change: float) -> Iterator[Callable[[float], float]]:
    """Yield by how much the score of each group's days shifts if its durations change by a share.

    It is measured at `change` and at `_MEASURED`, and interpolated between these by the logarithm.
    """
    sizes = np.unique([*_MEASURED, change])
    position_of_0 = int(np.searchsorted(sizes, 0))
    log_sizes = np.insert(np.log1p(sizes), position_of_0, 0.0)
    for values in _find_quantiles(rows):
        measured = [_measure_shift(values, size) for size in sizes]
        shifts = np.insert(measured, position_of_0, 0.0)
        yield functools.partial(_interpolate_shift, log_sizes, shifts)


def _interpolate_shift(log_sizes: Floats, shifts: Floats, change: float) -> float:
    return float(np.interp(np.log1p(change), log_sizes, shifts))


def _find_quantiles(rows: RowGroups) -> Iterator[Floats]:
    """Yield the values of each group in order: all, or `_QUANTILES` quantiles of more."""
    ranked = RankedGroups(rows)
    n = np.minimum(ranked.n, _QUANTILES)
    number = np.arange(n.max(initial=0))
    # the rank in the middle of each of n equal parts of the values of a group
    middles = ((2 * number + 1) * ranked.n[:, None]) // (2 * np.maximum(n, 1)[:, None]) + 1
    values = ranked.values_at(np.where(number < n[:, None], middles, 0))
    for of_group, n_quantiles in zip(values, n, strict=True):
        yield of_group[:n_quantiles]


def _measure_shift(values: Floats, change: float) -> float:
    """Return by how much the mean score of values rises if all become larger by a share of them."""
    from scipy.special import ndtri

    both = pd.Series(np.concatenate([values, values * (1 + change)]))
    before, after = np.split(ndtri(both.rank().to_numpy() / (len(both) + 1)), 2)
    return float(after.mean() - before.mean())


def _check_arguments(change: float, days: int, tests: int | None) -> None:
    is_number = isinstance(change, int | float) and not isinstance(change, bool)
    if not is_number or not (change > -1 and change != 0):
        hint = "Use 0.1 for a tenth more, -0.1 for less."
        raise BadInput(f"change={show(change)} is not a relative size of a change. {hint}")
    for name, number in (("days", days), ("tests", tests)):
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if number is not None and (not is_whole or number < 1):
            raise BadInput(f"{name}={show(number)} is not a whole number of at least 1.")
