"""Rows that stand twice in a frame."""

from __future__ import annotations

from typing import Any

import pandas as pd

from buildframe.arguments import checked_names
from buildframe.errors import BadInput
from buildframe.metrics.columns import column, moments


@checked_names
def latest(frame: pd.DataFrame) -> pd.DataFrame:
    """One row an `id`, the one that was fetched last; rows keep their order and index.

    Frames that are fetched hold each id once. Put together from several (`pd.concat`) they may not, and summaries
    count rows, as they are too many to be compared each time. Of rows fetched at the same time the first one
    stays, rows without an id stay all. Needs `id`, `fetched_at`; BadInput: one of them is missing, naive times.
    """
    _check_is_pandas(frame)
    by_age = moments(frame, "fetched_at").reset_index(drop=True).sort_values(ascending=False, kind="stable").index
    ids = column(frame, "id").reset_index(drop=True).loc[by_age]
    kept = by_age[~ids.duplicated() | ids.isna()]
    return frame.iloc[kept.sort_values()]


def _check_is_pandas(frame: Any) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise BadInput(
            f"A {type(frame).__name__} is no frame of pandas, which metrics.latest takes; a store holds each row once. "
            'Elsewhere keep the rows by the engine: in Polars .sort("fetched_at").unique("id", keep="last"), in DuckDB '
            "and Spark those of row_number() OVER (PARTITION BY id ORDER BY fetched_at DESC) = 1."
        )


def check_once(frame: pd.DataFrame) -> None:
    """BadInput where an id stands in two rows; a frame without ids cannot be checked."""
    if "id" not in frame or (ids := column(frame, "id").dropna()).is_unique:
        return
    twice = ids[ids.duplicated()].iloc[0]
    raise BadInput(f"The id {twice!r} stands in several rows; metrics.latest(frame) keeps the one fetched last.")
