"""Rank the flaky tests of a suite, and compare two lists of them. Knows the service's lists, not runs of tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import timestamps
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.protocol import Frame

_NAMES = ("id", "scope", "name", "location")
_STAMPS = ("latest_occurrence_at", "last_resolved_at", "fetched_at")


@checked_names
def flaky_board(tests: Frame, before: Frame | None = None) -> pd.DataFrame:
    """
    Rank flaky tests by number of instances, and report what changed since an earlier list.

    Parameters
    ----------
    tests : DataFrame
        Result of `ws.flaky_tests(suite=...)`, as pandas, Polars, DuckDB or PySpark. Needs the columns `id`, `scope`,
        `name`, `location`, `instances`, `latest_occurrence_at`, `last_resolved_at` and `fetched_at`.
    before : DataFrame, optional
        An earlier, complete list of the same suite. Do not filter either list by `search=` or `branch=`, because
        missing tests would look resolved.

    Returns
    -------
    pandas.DataFrame
        One row per test, ordered by instances, then by latest occurrence, both descending. An empty list gives no rows,
        or with `before` its tests as resolved, with NaN seconds.

        ==================== =================== ==============================================================
        id                   str                 id of the test
        scope                str                 as reported by the service
        name                 str                 as reported by the service
        location             str                 as reported by the service
        instances            Int64               occurrences that the service counts
        latest_occurrence_at datetime64[us, UTC] latest occurrence; NaT if unknown
        last_resolved_at     datetime64[us, UTC] when it was last resolved; NaT if never
        last_seen_s          float64             seconds from the latest occurrence until the list was fetched
        age_at_least_s       float64             seconds from the earliest sign of it in either list until the
                                                 list was fetched: a lower bound of its age
        is_resolved          boolean             resolved, without a later occurrence
        recurred             boolean             an occurrence followed its resolution
        status               str                 only with `before`: see Notes
        new_instances        Int64               only with `before`: instances now minus then; negative if the
                                                 service removed some, null if one list lacks the test
        ==================== =================== ==============================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, a test has no id or occurs twice, or `before` was fetched
        after `tests`.

    See Also
    --------
    flaky_lifecycle : The same over a stored history of lists.

    Notes
    -----
    The status is the first of these that holds:

    - `resolved`: it is resolved now, or is no longer listed. It may have been resolved, deleted or renamed.
    - `came_back`: it was resolved in `before`, or it recurred after a resolution that `before` does not have.
    - `still`: both lists have it.
    - `new`: `before` does not have it, and it was never resolved.

    Tests that are no longer listed have the values of `before`, and their seconds count until the latest `fetched_at`
    of `tests`.

    Examples
    --------
    >>> metrics.flaky_board(tests)[["instances", "is_resolved", "recurred"]].head(3)
       instances  is_resolved  recurred
    0         81         True     False
    1         72         True     False
    2         68         True     False
    >>> week_before = tests.tail(-1).assign(fetched_at=tests["fetched_at"] - pd.Timedelta("7D"))
    >>> metrics.flaky_board(tests, before=week_before)["status"].value_counts()
    status
    resolved     64
    still        63
    came_back     1
    Name: count, dtype: int64
    """
    current = _read_list(tests, "tests")
    if before is None:
        return _order(_with_ages(current, current))
    previous = _read_list(before, "before")
    if previous["fetched_at"].max() > current["fetched_at"].max():
        raise BadInput("before= was fetched after tests. Pass the earlier list as before=.")
    gone = previous[~previous.index.isin(current.index)].assign(fetched_at=current["fetched_at"].max())
    combined = pd.concat([current, gone]).astype(current.dtypes)
    return _order(_with_ages(combined, previous).assign(**_compare_lists(combined, current, previous)))


def _read_list(tests: Frame, name: str) -> pd.DataFrame:
    """Return the list by id, with timestamps in UTC, `is_resolved` and `recurred`."""
    rows = engine_of(tests).collect_columns(tests, [*_NAMES, "instances", *_STAMPS]).set_index("id", drop=False)
    rows = rows.assign(**{stamp: timestamps(rows, stamp) for stamp in _STAMPS})
    if rows["id"].isna().any():
        raise BadInput(f"{name}= contains a test without an id. Drop that row.")
    if (duplicated := rows["id"].duplicated()).any():
        raise BadInput(f"{name}= contains the test {rows['id'][duplicated].iloc[0]!r} twice. Pass a single list.")
    recurred = (rows["latest_occurrence_at"] > rows["last_resolved_at"]).astype("boolean")
    return rows.assign(is_resolved=rows["last_resolved_at"].notna().astype("boolean") & ~recurred, recurred=recurred)


def _with_ages(tests: pd.DataFrame, previous: pd.DataFrame) -> pd.DataFrame:
    signs = ["latest_occurrence_at", "last_resolved_at"]
    earliest = pd.concat([tests[signs], previous[signs].reindex(tests.index)], axis=1).min(axis=1)
    until = tests["fetched_at"]
    return tests.assign(
        last_seen_s=(until - tests["latest_occurrence_at"]).dt.total_seconds(),
        age_at_least_s=(until - earliest).dt.total_seconds(),
    )


def _compare_lists(tests: pd.DataFrame, current: pd.DataFrame, previous: pd.DataFrame) -> dict[str, Any]:
    """Compute the columns that need two lists."""
    earlier = previous.reindex(tests.index)
    was_listed, is_listed = tests.index.isin(previous.index), tests.index.isin(current.index)
    was_resolved = earlier["is_resolved"].fillna(value=False)
    resolved_again = ~(tests["last_resolved_at"] <= earlier["last_resolved_at"])
    came_back = was_resolved | (tests["recurred"] & resolved_again)
    cases = [tests["is_resolved"] | ~is_listed, came_back, was_listed]
    status = np.select([np.asarray(case, bool) for case in cases], ["resolved", "came_back", "still"], "new")
    return {
        "status": pd.Series(status, tests.index, dtype="str"),
        "new_instances": (tests["instances"] - earlier["instances"]).where(is_listed),
    }


def _order(board: pd.DataFrame) -> pd.DataFrame:
    first = ["instances", "latest_occurrence_at", "id"]
    ordered = board.reset_index(drop=True).sort_values(first, ascending=[False, False, True], ignore_index=True)
    return ordered.drop(columns="fetched_at")
