"""Run summaries on Polars, eager or lazy. The streaming engine is the user's setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe.metrics.columns import Floats, Integers
from buildframe.metrics.engines.dtypes import to_typed_pandas
from buildframe.metrics.engines.protocol import Engine, GroupedRows, Rows
from buildframe.metrics.engines.ranks import check_same_rows


class PolarsEngine(Engine):
    """Engine for Polars."""

    def join_nulls_equal(self, rows: Rows, others: Rows, names: Mapping[str, str]) -> Rows:
        left, right = list(names), list(names.values())
        joined = rows.to_native().join(others.to_native(), left_on=left, right_on=right, nulls_equal=True)
        return self.read(joined)

    def bring(self, rows: Rows, small: pd.DataFrame) -> Rows:
        return self.read(rows.implementation.to_native_namespace().from_pandas(small))

    def values_at_ranks(self, rows: GroupedRows, groups: pd.DataFrame, n: Integers, ranks: Integers) -> Floats:
        """Sort each group into a list."""
        column = rows.frame.implementation.to_native_namespace().col("value")
        known = rows.frame.filter(~nw.col("value").is_null()).select(*rows.by, "value")
        table: pa.Table = known.to_native().group_by(rows.by).agg(column.sort()).collect().to_arrow()
        lists: Any = table["value"].combine_chunks()
        keys = to_typed_pandas(table.drop_columns(["value"]))
        keys = keys.assign(start=lists.offsets.to_numpy()[:-1], size=lists.value_lengths().to_numpy())
        own = groups.merge(keys, how="left", on=rows.by)[["start", "size"]].fillna(0).astype(np.int64)
        check_same_rows(own["size"].to_numpy(), n)
        is_there = (ranks > 0) & (n > 0)[:, None]
        places = np.where(is_there, own["start"].to_numpy()[:, None] + ranks - 1, -1)
        values = np.append(lists.values.to_numpy(), np.nan)  # so that the array is never empty
        return np.where(is_there, values[places], np.nan)
