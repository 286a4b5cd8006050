"""Rank the flaky tests of a suite, compare two lists of them, and derive the lifecycle of each from a stored history.

Knows the service's lists, not runs of tests.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import timestamps
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.rows import Frame
from buildframe.spec.times import parse_duration

_NAMES = ("id", "scope", "name", "location")
_READ = (*_NAMES, "instances", "latest_occurrence_at", "last_resolved_at", "fetched_at")
_LIST = ("organization", "suite")
_STAMPS = ["latest_occurrence_at", "last_resolved_at", "valid_from", "valid_to"]
_OWNERS = "ownership_team_ids"
_OF_TEST = ("first_listed_at", "known_start", "listed_until", "instances", "latest_occurrence_at", "n_reopened")


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
    rows = engine_of(tests).collect_columns(tests, _READ).set_index("id", drop=False)
    if rows["id"].isna().any():
        raise BadInput(f"{name}= contains a test without an id. Drop that row.")
    if (duplicated := rows["id"].duplicated()).any():
        raise BadInput(f"{name}= contains the test {rows['id'][duplicated].iloc[0]!r} twice. Pass a single list.")
    flags = {"is_resolved": _is_resolved(rows), "recurred": _has_recurred(rows)}
    return rows.assign(**{name: flag.astype("boolean") for name, flag in flags.items()})


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


@checked_names
def flaky_lifecycle(
    history: Frame, new: str | dt.timedelta = "7d", dormant: str | dt.timedelta = "14d"
) -> pd.DataFrame:
    """
    Report the lifecycle of each flaky test from the stored history of its list.

    Parameters
    ----------
    history : DataFrame
        Result of `store.flaky_tests(history=True)`, as pandas, Polars, DuckDB or PySpark: one row per test and state,
        valid from one reading of the list until another. Needs the columns `id`, `scope`, `name`, `location`,
        `instances`, `latest_occurrence_at`, `last_resolved_at`, `fetched_at`, `valid_from` and `valid_to`. Tests are
        identified by `organization` and `suite`, too, if the frame has them.
    new : str or timedelta, default "7d"
        How long a test counts as new after its first listing.
    dormant : str or timedelta, default "14d"
        How long after its latest occurrence a test counts as dormant.

    Returns
    -------
    pandas.DataFrame
        One row per test, ordered by `organization`, `suite` and `id`, which come first. No rows give no rows.

        ==================== =================== ============================================================
        scope                str                 as last listed
        name                 str                 as last listed
        location             str                 as last listed
        status               str                 state at the last reading of the list: see Notes
        since                datetime64[us, UTC] when the status began, at the latest: see Notes
        known_since          boolean             earlier readings show that it did not hold before; else it may
                                                 have begun before `since`
        first_listed_at      datetime64[us, UTC] first reading that listed the test
        known_start          boolean             an earlier reading did not list it; else it may be older
        listed_until         datetime64[us, UTC] last reading, or the first that no longer listed it
        instances            Int64               as last listed
        latest_occurrence_at datetime64[us, UTC] as last listed; NaT if unknown
        n_reopened           Int64               how often it was reopened
        ownership_team_ids   str                 as last listed, if the history has the column
        ==================== =================== ============================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `new` or `dormant` is not a length of time, or a test
        occurs twice in one reading.

    See Also
    --------
    flaky_board : Compare two lists.

    Notes
    -----
    The status is the first of these that holds:

    - `resolved`: it is resolved without a later occurrence, since `last_resolved_at`; or it is no longer listed, since
      the first reading without it.
    - `dormant`: its latest occurrence is older than `dormant`, since that age.
    - `reopened`: it was resolved or not listed, and then occurred or was listed again, since the occurrence that the
      first reading of this shows, or since that reading if it shows none.
    - `new`: it was first listed within `new`, and earlier readings did not list it, since the first occurrence that a
      reading shows, or since its first reading, whichever is earlier.
    - `active`: it is listed and none of these, since the same time as for `new`.

    A reading shows the latest occurrence only, so earlier ones since the previous reading are unknown. The first
    reading of a list has no previous one: `known_since` is False for what it already shows.

    Examples
    --------
    >>> metrics.flaky_lifecycle(history)["status"].value_counts()
    status
    resolved    64
    active      41
    reopened    22
    dormant      1
    Name: count, dtype: int64
    """
    lengths = {"new": new, "dormant": dormant}
    new_within, dormant_after = (pd.Timedelta(parse_duration(length, name)) for name, length in lengths.items())
    states, by = _prepare_states(history)
    tests = states.drop_duplicates(by, keep="last")
    reopenings = states[states["reopened"]].drop_duplicates(by, keep="last")
    reopened = reopenings.set_index(by)[["reopened_at", "known_reopening"]].reindex(tests.set_index(by).index)
    tests = tests.assign(**{str(name): values.array for name, values in reopened.items()})
    status = _find_status(tests, new_within, dormant_after)
    names = [name for name in _NAMES if name not in by]
    of_test = [*_OF_TEST, *([_OWNERS] if _OWNERS in tests else [])]
    return pd.concat([tests[[*by, *names]], status, tests[of_test]], axis=1).reset_index(drop=True)


def _prepare_states(history: Frame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows by test and time with columns per test, and the names of the columns that identify tests."""
    rows = engine_of(history).collect_columns(history, [*_READ, "valid_from", "valid_to"], (*_LIST, _OWNERS))
    rows = rows.assign(**{name: timestamps(rows, name) for name in ("valid_from", "valid_to")})
    by = [name for name in (*_LIST, "id") if name in rows]
    states = rows.sort_values([*by, "valid_from"], ignore_index=True)
    if (duplicated := states.duplicated([*by, "valid_from"])).any():
        raise BadInput(
            f"The history contains the test {states['id'][duplicated].iloc[0]!r} twice at one time. "
            "Pass a single suite."
        )
    before = states.groupby(by, dropna=False)[_STAMPS].shift()
    states = states.assign(reopened=_has_reopened(states, before), reopened_at=_reopened_at(states, before))
    of_test = states.groupby(by, dropna=False)
    lists = [states[name] for name in by if name != "id"] or [pd.Series(0, states.index)]
    readings = states[["valid_from", "valid_to", "fetched_at"]].max(axis=1)
    first, read_at = of_test["valid_from"].transform("min"), readings.groupby(lists, dropna=False).transform("max")
    known_start = (first > first.groupby(lists, dropna=False).transform("min")).astype("boolean")
    more = {
        "read_at": read_at,
        "first_listed_at": first,
        "first_seen_at": pd.concat([first, of_test["latest_occurrence_at"].transform("min")], axis=1).min(axis=1),
        "known_start": known_start,
        "known_reopening": known_start | before["valid_from"].notna(),
        "listed_until": states["valid_to"].fillna(read_at),
        "n_reopened": of_test["reopened"].transform("sum").astype("Int64"),
    }
    return states.assign(**more), by


def _has_reopened(states: pd.DataFrame, before: pd.DataFrame) -> pd.Series:
    """Return whether each state reopened its test; `before` holds the previous states, null if there is none."""
    was_known = before["valid_from"].notna()
    was_resolved = was_known & before["last_resolved_at"].notna() & ~_has_recurred(before)
    was_missing = was_known & (before["valid_to"] < states["valid_from"])
    resolved_between = _has_recurred(states) & ~(states["last_resolved_at"] <= before["last_resolved_at"])
    return ~_is_resolved(states) & (was_resolved | was_missing | resolved_between)


def _reopened_at(states: pd.DataFrame, before: pd.DataFrame) -> pd.Series:
    """Return when each state reopened its test at the latest: at the occurrence that it shows, or at its reading."""
    bounds = [states["last_resolved_at"], before["last_resolved_at"]]
    bounds.append(before["valid_to"].where(before["valid_to"] < states["valid_from"]))
    occurred_after = states["latest_occurrence_at"] > pd.concat(bounds, axis=1).max(axis=1)
    times = [states["latest_occurrence_at"].where(occurred_after), states["valid_from"]]
    return pd.concat(times, axis=1).min(axis=1)


def _find_status(tests: pd.DataFrame, new_within: pd.Timedelta, dormant_after: pd.Timedelta) -> pd.DataFrame:
    is_listed, is_resolved = tests["valid_to"].isna(), _is_resolved(tests)
    dormant_since = tests["latest_occurrence_at"] + dormant_after
    cases = {
        "resolved": (~is_listed | is_resolved, tests["last_resolved_at"].where(is_resolved, tests["valid_to"])),
        "dormant": (dormant_since < tests["read_at"], dormant_since),
        "reopened": (tests["reopened_at"].notna(), tests["reopened_at"]),
        "new": (
            tests["known_start"] & (tests["first_listed_at"] >= tests["read_at"] - new_within),
            tests["first_seen_at"],
        ),
    }
    status = pd.Series("active", tests.index, dtype="str")
    since = tests["first_seen_at"]
    for name, (holds, began) in reversed(cases.items()):
        status, since = status.mask(holds.astype(bool), name), since.mask(holds.astype(bool), began)
    known = tests["known_start"].mask(status == "reopened", tests["known_reopening"])
    known = known.mask(status.isin(["resolved", "dormant"]), other=True)
    return pd.DataFrame({"status": status, "since": since, "known_since": known.astype("boolean")})


def _is_resolved(states: pd.DataFrame) -> pd.Series:
    return states["last_resolved_at"].notna() & ~_has_recurred(states)


def _has_recurred(states: pd.DataFrame) -> pd.Series:
    return states["latest_occurrence_at"] > states["last_resolved_at"]
