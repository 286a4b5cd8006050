"""Sum rows per group and day, and score the days, so that they can be compared. Does not search for changes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.change_search import Series, score_days, score_failures
from buildframe.metrics.durations import RowMetric
from buildframe.metrics.engines import engine_of, expressions
from buildframe.metrics.engines.dtypes import micros_column
from buildframe.metrics.engines.intervals import AT
from buildframe.metrics.engines.normal_scores import SCORE
from buildframe.metrics.engines.rows import GROUP, Frame, GroupedRows
from buildframe.metrics.grouping import By, find_groups
from buildframe.metrics.outcomes import failed, outcome_columns
from buildframe.metrics.time_buckets import Buckets
from buildframe.metrics.validation import INFINITE, check_states

Unit = Literal["day", "commit"]

DAY, HITS, ROWS, SUM, SQUARES = "day number", "hits", "rows", "sum", "squares"
_INFINITE = "infinite"

_RETRIES = ("retried", "retries_count")


def measure_rows(
    frame: Frame, of: RowMetric | str, by: By, at: str, tz: str, unit: Unit = "day"
) -> tuple[GroupedRows, Buckets]:
    """Return the rows that have a time and a value, or whose outcome counts, with days; and these days."""
    engine = engine_of(frame)
    available = engine.column_names(frame)
    suspects = [name for name in (number_column(available), "branch", "commit") if name in available]
    if of is failed:
        check_states(frame, "state")
        needs, wants = outcome_columns(available)
        needs = (*needs, "commit") if unit == "commit" else needs
        names = [*dict.fromkeys((*needs, at, *suspects))]
        rows = engine.group_rows(frame, names, by, [*wants, *_RETRIES])
        has_failed, is_counted = expressions.outcome(available)
        rows = rows.with_columns(**{HITS: has_failed, "value": is_counted})
        is_known = nw.col("value")
    else:
        rows = engine.measure(frame, of, by, needs=(*dict.fromkeys((at, *suspects)),))
        is_known = ~nw.col("value").is_null()
    rows = replace(rows, frame=rows.frame.filter(is_known & ~nw.col(at).is_null()))
    buckets = Buckets.of(rows, [at], "1D", tz, fetched=at)
    dated = buckets.with_bucket_numbers(rows, at, DAY).with_micros([at])
    return dated.with_columns(**{AT: nw.col(micros_column(at))}), buckets


def number_column(available: Sequence[str]) -> str:
    """Return the name of the column with numbers of builds."""
    return "build_number" if "build_number" in available else "number"


def sum_units(
    rows: GroupedRows, unit: str, sums: Mapping[str, nw.Expr], ends: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Sum flags, numbers and scores of each unit of each group; `ends` maps columns to `min` or `max`."""
    ends = ends or {}
    columns = {name: of.cast(nw.Float64 if name in (SUM, SQUARES) else nw.Int64) for name, of in sums.items()}
    selected = rows.frame.select(*rows.by, unit, *(name for name in ends if name not in columns), **columns)
    limits = [getattr(nw.col(name), end)() for name, end in ends.items()]
    return rows.engine.collect(selected.group_by(*rows.by, unit).agg(nw.col(*columns).sum(), *limits))


def number_units(rows: GroupedRows, table: pd.DataFrame, order: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the groups of a table, and its rows in order, with the number of their group."""
    codes, groups = find_groups(table, rows.by)
    units = table.drop(columns=rows.by).assign(**{GROUP: codes})
    return groups, units.sort_values([GROUP, *order], kind="stable", ignore_index=True)


def group_edges(units: pd.DataFrame) -> list[tuple[int, int]]:
    """Return the first unit of each group, and the one after its last."""
    ends = [*np.flatnonzero(np.diff(units[GROUP].to_numpy(), prepend=-1)).tolist(), len(units)]
    return list(itertools.pairwise(ends))


def score_groups(rows: GroupedRows, *, is_rate: bool) -> tuple[pd.DataFrame, pd.DataFrame, list[Series]]:
    """Return the groups, their days with counts of rows, and the scores of the days of each group."""
    sums: dict[str, nw.Expr] = {ROWS: nw.lit(1)}
    if is_rate:
        sums |= {HITS: nw.col(HITS)}
    else:
        rows = rows.engine.with_normal_scores(rows)
        sums |= {SUM: nw.col(SCORE), SQUARES: nw.col(SCORE) * nw.col(SCORE)}
    infinite = {} if is_rate else {_INFINITE: nw.col("value").abs() == float("inf")}
    groups, units = number_units(rows, sum_units(rows, DAY, sums | infinite), [DAY])
    if infinite and units.pop(_INFINITE).sum() > 0:
        raise BadInput(INFINITE)
    columns = [units[name].to_numpy(np.float64) for name in sums]
    score = score_failures if is_rate else score_days
    return groups, units, [score(*(one[start:stop] for one in columns)) for start, stop in group_edges(units)]
