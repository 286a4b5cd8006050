"""Read the rows that a search for changes compares, and score the days of each group.

Does not search for changes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Container, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from buildframe.metrics.change_search import Series
from buildframe.metrics.columns import NAT, Floats, Integers
from buildframe.metrics.durations import RowMetric
from buildframe.metrics.grouping import By, number_groups
from buildframe.metrics.input_frames import Frame, RowGroups, column_names, read_rows
from buildframe.metrics.measured_rows import measure_rows, to_numbers
from buildframe.metrics.outcomes import failed, outcome_columns
from buildframe.metrics.row_flags import flag_outcomes, is_set

Unit = Literal["day", "commit"]

GROUP, DAY, ROWS, HITS = "group", "day", "rows", "hits"
"""Columns of days: the numbers of their group and day, their rows, and how many of these failed."""

FAILED = "has failed"
"""Column of rows if failures are counted, in place of `value`."""


class ScoredDays(NamedTuple):
    """The days of groups, ordered by group and day, and the scores of each group's days.

    `days` has the columns `GROUP`, `DAY` and `ROWS`, and `HITS` if failures are counted. `codes` is
    the row of `days` to which each row of the frame belongs, and `edges` limits the days of each
    group.
    """

    days: pd.DataFrame
    codes: Integers
    edges: Integers
    series: list[Series]


def read_known_rows(
    frame: Frame,
    of: RowMetric | str,
    by: By,
    at: str,
    names: Sequence[str] = (),
    unit: Unit = "day",
) -> RowGroups:
    """Return the rows that have a time and a value, or that passed or failed.

    Their columns are `value` (seconds) or `FAILED`, the time `at` (microseconds), and `names`. With
    `unit="commit"` they are the last attempts at known commits, with `retries_count` if the frame
    has it.
    """
    if of is not failed:
        needs = [*dict.fromkeys([at, *names])]
        rows = measure_rows(frame, of, by, needs)
        rows = rows._replace(columns=rows.columns[["value", *needs]])
        is_known = ~np.isnan(rows.columns["value"].to_numpy(np.float64))
        is_known &= rows.columns[at].to_numpy(np.int64) != NAT
        return rows if is_known.all() else rows.filter(is_known)
    of_outcome, wanted = outcome_columns(column_names(frame))
    needs = [*of_outcome, at]
    wants = [*wanted, *names]
    if unit == "commit":
        needs += ["commit"]
        wants += ["retried", "retries_count"]
    of_rows = functools.partial(_flag_failures, at, [at, *names], unit)
    return read_rows(frame, of_rows, needs, wants, by)


def _flag_failures(at: str, names: Sequence[str], unit: Unit, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that passed or failed and have a time, with some columns."""
    has_failed, is_known = flag_outcomes(rows)
    is_known &= rows[at].notna().to_numpy()
    columns = {name: to_numbers(rows[name]) for name in names} | {FAILED: has_failed}
    if unit == "commit":
        is_known &= rows["commit"].notna().to_numpy()
        if "retried" in rows:
            is_known &= ~is_set(rows, "retried")
        if "retries_count" in rows:
            columns["retries_count"] = rows["retries_count"].array
    return pd.DataFrame(columns, rows.index, copy=False)[is_known]


def build_columns(available: Container[str]) -> list[str]:
    """Return the columns that name a build: its number, branch and commit, as far as they exist."""
    return [name for name in (number_column(available), "branch", "commit") if name in available]


def number_column(available: Container[str]) -> str:
    """Return the name of the column with numbers of builds."""
    return "build_number" if "build_number" in available else "number"


def score_groups(rows: RowGroups, day: Integers) -> ScoredDays:
    """Count the rows of each day of each group, and score the days.

    `day` is the number of each row's day.
    """
    codes, days = number_groups(pd.DataFrame({GROUP: rows.codes, DAY: day}))
    days[ROWS] = np.bincount(codes, minlength=len(days))
    edges = np.searchsorted(days[GROUP], np.arange(len(rows.keys) + 1))
    days_of_groups = [slice(start, stop) for start, stop in itertools.pairwise(edges)]
    n = days[ROWS].to_numpy(np.float64)
    if FAILED in rows.columns:
        has_failed = rows.columns[FAILED].to_numpy(bool)
        days[HITS] = np.bincount(codes[has_failed], minlength=len(days))
        hits = days[HITS].to_numpy(np.float64)
        series = [score_failures(n[group], hits[group]) for group in days_of_groups]
    else:
        scores = _score_rows(rows)
        sums = pd.DataFrame({"sum": scores, "squares": scores**2}).groupby(codes).sum()
        total = sums["sum"].to_numpy(np.float64)
        squares = sums["squares"].to_numpy(np.float64)
        series = [score_days(n[group], total[group], squares[group]) for group in days_of_groups]
    return ScoredDays(days, codes, edges, series)


def _score_rows(rows: RowGroups) -> Floats:
    """Return the normal quantile of each row's rank in its group; equal values score equally."""
    from scipy.special import ndtri

    values = rows.columns["value"].to_numpy(np.float64)
    small_codes = rows.codes.astype(np.int16) if len(rows.keys) < 2**15 else rows.codes
    order = np.argsort(small_codes, kind="stable")  # a sort of small numbers compares nothing
    scores = np.empty(len(values))
    ends = np.cumsum(np.bincount(rows.codes, minlength=len(rows.keys)))
    for of_group in np.split(order, ends[:-1]) if len(ends) else ():
        ordered = of_group[np.argsort(values[of_group])]
        is_first = np.diff(values[ordered], prepend=np.nan) != 0
        first = np.flatnonzero(is_first)  # of the rows with equal values
        n_equal = np.diff(first, append=len(ordered))
        mean_rank = first + (n_equal + 1) / 2
        scores[ordered] = np.repeat(ndtri(mean_rank / (len(ordered) + 1)), n_equal)
    return scores


def score_days(n: Floats, sums: Floats, squares: Floats) -> Series:
    """Score days by the mean of the normal scores of their rows.

    Parameters are the sums of these scores and of their squares.
    """
    return Series(sums / n, _weigh_days(n, sums, squares))


def score_failures(n: Floats, failed: Floats) -> Series:
    """Score days by the transformed share of failures, so that variances hardly depend on it."""
    score = np.arcsin(np.sqrt((failed + 3 / 8) / (n + 3 / 4)))
    return Series(score, _weigh_days(n, failed, failed))


def _weigh_days(n: Floats, sums: Floats, squares: Floats) -> Floats:
    """Return weights by the number of rows, and by how alike rows of a day are.

    That is their intraclass correlation.
    """
    total = n.sum()
    days = len(n)
    if total <= days or days < 2:
        return np.ones(days)
    within = (squares - sums**2 / n).sum() / (total - days)
    between = (n * (sums / n - sums.sum() / total) ** 2).sum() / (days - 1)
    typical = (total - (n**2).sum() / total) / (days - 1)
    alike = max(0.0, (between - within) / (between + (typical - 1) * within)) if within > 0 else 1.0
    weights: Floats = n / (1 + (n - 1) * alike)
    return weights
