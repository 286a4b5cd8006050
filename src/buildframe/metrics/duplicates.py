"""Remove and detect rows that occur twice in a frame."""

from __future__ import annotations

import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import check_is_pandas, column, timestamps


@checked_names
def latest(frame: pd.DataFrame) -> pd.DataFrame:
    """
    Keep one row per `id`: the row that was fetched last.

    Fetched frames hold each id once. Frames that you concatenate may not, and summaries count every row.

    Parameters
    ----------
    frame : pandas.DataFrame
        Builds, jobs or other rows with the columns `id` and `fetched_at`.

    Returns
    -------
    pandas.DataFrame
        The remaining rows in their original order, with their original index. If rows of one id were fetched at the
        same time, the first one stays. Rows without an id all stay.

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `frame` is not a pandas frame.

    Examples
    --------
    >>> both = pd.concat([builds, builds.head(3)])
    >>> len(metrics.latest(both)) == len(builds)
    True
    """
    check_is_pandas(
        frame,
        "metrics.latest needs. Frames of a store hold each row once. For others use the engine: in Polars "
        '.sort("fetched_at").unique("id", keep="last"), in DuckDB and Spark filter by '
        "row_number() OVER (PARTITION BY id ORDER BY fetched_at DESC) = 1.",
    )
    fetched = timestamps(frame, "fetched_at").reset_index(drop=True)
    newest_first = fetched.sort_values(ascending=False, kind="stable").index
    ids = column(frame, "id").reset_index(drop=True).loc[newest_first]
    places = newest_first[~ids.duplicated() | ids.isna()]
    return frame.iloc[places.sort_values()]


def check_unique_ids(frame: pd.DataFrame) -> None:
    """Raise BadInput if an id occurs in two rows; a frame without ids passes."""
    if "id" not in frame or (ids := column(frame, "id").dropna()).is_unique:
        return
    duplicate = ids[ids.duplicated()].iloc[0]
    raise BadInput(
        f"The id {duplicate!r} occurs in several rows. Use metrics.latest(frame) to keep the latest of each."
    )
