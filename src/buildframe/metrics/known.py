"""Rows beside what is known of their groups, in any engine: a threshold, a rank, the moment of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics import spark
from buildframe.metrics.engines import GROUP, Floats, Integers, Rows, lazy

_OTHERS = "{} of the other"


def with_known(found: Rows, groups: pd.DataFrame, known: Mapping[str, Floats | Integers]) -> Rows:
    """The rows with these columns, whose values are those of their groups; rows of other groups are left out.

    `groups` are rows of what `tally` calls so, and `known` stand in their order.
    """
    if found.frame.implementation.is_pandas():
        return replace(found, frame=lazy(_in_pandas(found.frame.to_native(), groups, known)))
    return replace(found, frame=joined(found.frame, _brought(found.frame, groups.assign(**known)), found.by))


def joined(rows: nw.LazyFrame[Any], others: nw.LazyFrame[Any], on: Sequence[str]) -> nw.LazyFrame[Any]:
    """Each of the rows, in an engine other than pandas, beside the others that are like it in the columns `on`.

    Nulls are alike, as in groups.
    """
    names = {name: _OTHERS.format(name) for name in on}
    native, more = rows.to_native(), others.rename(names).to_native()
    if rows.implementation.is_polars():
        both = native.join(more, left_on=list(names), right_on=list(names.values()), nulls_equal=True)
    elif rows.implementation.is_duckdb():
        alike = (f'"{name}" IS NOT DISTINCT FROM "{other}"' for name, other in names.items())
        both = native.set_alias("rows of it").join(more.set_alias("others"), " AND ".join(alike))
    else:
        both = native.join(more, on=spark.alike(names))
    return lazy(both).drop(*names.values(), strict=False)


def _in_pandas(native: pd.DataFrame, groups: pd.DataFrame, known: Mapping[str, Floats | Integers]) -> pd.DataFrame:
    """Groups are numbered, so that no join is needed."""
    codes, wanted = native[GROUP].to_numpy(np.int64), groups[GROUP].to_numpy(np.int64)
    places = np.full(max(codes.max(initial=-1), wanted.max(initial=-1)) + 1, -1)
    places[wanted] = np.arange(len(wanted))
    place = places[codes]
    own = native if (place >= 0).all() else native[place >= 0]
    return own.assign(**{name: values[place[place >= 0]] for name, values in known.items()})


def _brought(rows: nw.LazyFrame[Any], few: pd.DataFrame) -> nw.LazyFrame[Any]:
    """A small frame in the engine of the rows."""
    native = rows.to_native()
    if rows.implementation.is_duckdb():
        return lazy(_constants(native, few))
    if spark.is_spark(rows):
        return lazy(spark.brought(native.sparkSession, few))
    return lazy(rows.implementation.to_native_namespace().from_pandas(few))


def _constants(native: Any, few: pd.DataFrame) -> Any:
    """As a relation does not tell its connection, to which a table would have to be added."""
    from duckdb import ConstantExpression, FunctionExpression

    one_row = native.limit(0).aggregate([FunctionExpression("count_star").alias("one")])
    lists = ([None if pd.isna(value) else value for value in few[name].tolist()] for name in few)
    unnested = (FunctionExpression("unnest", ConstantExpression(values)) for values in lists)
    return one_row.select(*(values.alias(name) for name, values in zip(map(str, few), unnested, strict=True)))
