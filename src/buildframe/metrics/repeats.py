"""Rows that stand twice in a frame."""

from __future__ import annotations

import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import column, moments


def latest(frame: pd.DataFrame) -> pd.DataFrame:
    """One row an `id`, the one that was fetched last; rows keep their order and index.

    Frames that are fetched hold each id once. Put together from several (`pd.concat`) they may not, and summaries
    count rows, as they are too many to be compared each time. Of rows fetched at the same time the first one
    stays, rows without an id stay all. Needs `id`, `fetched_at`; BadInput: one of them is missing, naive times.
    """
    by_age = moments(frame, "fetched_at").reset_index(drop=True).sort_values(ascending=False, kind="stable").index
    ids = column(frame, "id").reset_index(drop=True).loc[by_age]
    kept = by_age[~ids.duplicated() | ids.isna()]
    return frame.iloc[kept.sort_values()]


def check_once(frame: pd.DataFrame) -> None:
    """BadInput where an id stands in two rows; a frame without ids cannot be checked."""
    if "id" not in frame or (ids := column(frame, "id").dropna()).is_unique:
        return
    twice = ids[ids.duplicated()].iloc[0]
    raise BadInput(f"The id {twice!r} stands in several rows; metrics.latest(frame) keeps the one fetched last.")
