"""Join values of groups to their rows in any engine, such as a threshold, a rank or the time of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics.engines import GROUP, Floats, GroupedRows, Integers, spark, to_lazy

_OTHERS = "{} of the other"


def with_group_values(found: GroupedRows, groups: pd.DataFrame, known: Mapping[str, Floats | Integers]) -> GroupedRows:
    """Add columns with the values of each row's group; rows of other groups are dropped.

    `groups` are rows of `GroupSums.groups`, and the values are in their order.
    """
    if found.frame.implementation.is_pandas():
        return replace(found, frame=to_lazy(_in_pandas(found.frame.to_native(), groups, known)))
    return replace(found, frame=join_nulls_equal(found.frame, _brought(found.frame, groups.assign(**known)), found.by))


def join_nulls_equal(rows: nw.LazyFrame[Any], others: nw.LazyFrame[Any], on: Sequence[str]) -> nw.LazyFrame[Any]:
    """Join rows with others that are equal in the columns `on`, nulls included, in engines other than pandas."""
    names = {name: _OTHERS.format(name) for name in on}
    native, more = rows.to_native(), others.rename(names).to_native()
    if rows.implementation.is_polars():
        both = native.join(more, left_on=list(names), right_on=list(names.values()), nulls_equal=True)
    elif rows.implementation.is_duckdb():
        alike = (f'"{name}" IS NOT DISTINCT FROM "{other}"' for name, other in names.items())
        both = native.set_alias("rows of it").join(more.set_alias("others"), " AND ".join(alike))
    else:
        both = native.join(more, on=spark.null_safe_equal(names))
    return to_lazy(both).drop(*names.values(), strict=False)


def _in_pandas(native: pd.DataFrame, groups: pd.DataFrame, known: Mapping[str, Floats | Integers]) -> pd.DataFrame:
    """Do the same in pandas, where groups are numbered and no join is needed."""
    codes, wanted = native[GROUP].to_numpy(np.int64), groups[GROUP].to_numpy(np.int64)
    places = np.full(max(codes.max(initial=-1), wanted.max(initial=-1)) + 1, -1)
    places[wanted] = np.arange(len(wanted))
    place = places[codes]
    own = native if (place >= 0).all() else native[place >= 0]
    return own.assign(**{name: values[place[place >= 0]] for name, values in known.items()})


def _brought(rows: nw.LazyFrame[Any], small: pd.DataFrame) -> nw.LazyFrame[Any]:
    """Move a small frame into the engine of the rows."""
    native = rows.to_native()
    if rows.implementation.is_duckdb():
        return to_lazy(_constants(native, small))
    if spark.is_spark(rows):
        return to_lazy(spark.broadcast(native.sparkSession, small))
    return to_lazy(rows.implementation.to_native_namespace().from_pandas(small))


def _constants(native: Any, small: pd.DataFrame) -> Any:
    """Build a relation from constants, because a relation gives no access to its connection."""
    from duckdb import ConstantExpression, FunctionExpression

    one_row = native.limit(0).aggregate([FunctionExpression("count_star").alias("one")])
    lists = ([None if pd.isna(value) else value for value in small[name].tolist()] for name in small)
    unnested = (FunctionExpression("unnest", ConstantExpression(values)) for values in lists)
    return one_row.select(*(values.alias(name) for name, values in zip(map(str, small), unnested, strict=True)))
