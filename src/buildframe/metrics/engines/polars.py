"""Run summaries on Polars, eager or lazy. The streaming engine is the user's setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import narwhals as nw
import narwhals.selectors as ncs
import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe.metrics.columns import NAT, Integers
from buildframe.metrics.durations import Span
from buildframe.metrics.engines.intervals import AT
from buildframe.metrics.engines.protocol import Engine
from buildframe.metrics.engines.ranks import check_same_rows
from buildframe.metrics.engines.rows import GROUP, PLACE, SEEN_FOR, GroupedRows, GroupSums, RankedRows, Rows, SplitBy
from buildframe.metrics.engines.sorted_rows import CensoredRows, SortedRows


class PolarsEngine(Engine):
    """Engine for Polars."""

    def to_arrow(self, rows: Rows) -> pa.Table:
        return super().to_arrow(_decode(rows))

    def encode_keys(self, rows: GroupedRows) -> GroupedRows:
        polars, schema = rows.frame.implementation.to_native_namespace(), rows.frame.collect_schema()
        encoded = (
            polars.col(name).cast(polars.Categorical(polars.Categories.random()))
            for name in rows.by
            if schema[name] == nw.String
        )
        return replace(rows, frame=self.read(rows.frame.to_native().with_columns(encoded)))

    def _sum_by(self, rows: Rows, names: list[str], counts: Mapping[str, nw.Expr]) -> pa.Table:
        sums = {name: self._sum_flags(count) for name, count in counts.items()}  # flags as they are, in fewer bytes
        return self.to_arrow(rows.group_by(*names).agg(**sums))

    def join_nulls_equal(self, rows: Rows, others: Rows, names: Mapping[str, str]) -> Rows:
        left, right = list(names), list(names.values())
        joined = (
            _decode(rows).to_native().join(_decode(others).to_native(), left_on=left, right_on=right, nulls_equal=True)
        )
        return self.read(joined)

    def bring(self, rows: Rows, small: pd.DataFrame) -> Rows:
        return self.read(rows.implementation.to_native_namespace().from_pandas(small))

    def rank_rows(self, rows: GroupedRows, counts: GroupSums, span: Span | None, at: SplitBy) -> RankedRows:
        """Number the groups in Polars, and rank them in memory."""
        columns = replace(rows, frame=self.ranking_columns(rows, span, at))
        numbered = self._with_places(columns, counts.groups)
        needs = [PLACE, "value", *([AT] if at else []), *([SEEN_FOR] if span is not None else [])]
        table: Any = numbered.frame.select(*needs).to_native().collect()
        ended, censored = table.drop_nulls("value"), None
        if span is not None:
            left = table.drop_nulls(SEEN_FOR)
            censored = CensoredRows(left[PLACE].to_numpy(), left[SEEN_FOR].to_numpy(), _times(left))
        places, n = ended[PLACE].to_numpy(), counts.n_values
        check_same_rows(np.bincount(places, minlength=len(n))[: len(n)], n)
        return SortedRows(places, ended["value"].to_numpy(), n, _times(ended), censored, at)

    def _with_places(self, rows: GroupedRows, groups: pd.DataFrame) -> GroupedRows:
        """Add the place of each row's group; rows of other groups are dropped, or have a larger number."""
        places = np.arange(len(groups))
        if rows.by == [GROUP] and np.array_equal(groups[GROUP], places):  # a join takes longer
            return rows.with_columns(**{PLACE: nw.col(GROUP).cast(nw.Int64).fill_null(len(groups))})
        return self.with_group_values(rows, groups, {PLACE: places})


def _decode(rows: Rows) -> Rows:
    """Return texts in place of the codes of `encode_keys`."""
    return rows.with_columns(ncs.categorical().cast(nw.String))


def _times(table: Any) -> Integers | None:
    return table[AT].fill_null(NAT).to_numpy() if AT in table.columns else None
