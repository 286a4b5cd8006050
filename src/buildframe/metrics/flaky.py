"""Rank the flaky tests of a suite, compare two lists of them, and derive the lifecycle of each.

Knows the service's lists, not runs of tests. A list shows the tests that flaked within a period. A
test that is not in it was quiet for that long, which does not mean that it is resolved.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import TEXT, TIMESTAMP, timestamps
from buildframe.metrics.input_frames import Frame, collect_columns, column_names
from buildframe.spec.flaky_tests import DEFAULT_PERIOD, PERIODS
from buildframe.spec.times import parse_duration

_NAMES = ("id", "scope", "name", "location")
_READ = (*_NAMES, "instances", "latest_occurrence_at", "last_resolved_at", "fetched_at")
_ONLY_FLAKY_TESTS = {
    "instances": "Int64",
    "latest_occurrence_at": TIMESTAMP,
    "last_resolved_at": TIMESTAMP,
}
"""Columns of `flaky_tests` for which `tests` has nothing of the same meaning, and their dtypes."""

_METRICS = ("labels", "reliability")
"""Columns of `tests` that decide which of its rows are flaky tests."""

_HAS_FLAKY_LABEL = r"""[\[ ,]["']flaky["'][\], ]"""  # in JSON, or in a list of Python as text
_LIST = ("organization", "suite")
_STAMPS = ["latest_occurrence_at", "last_resolved_at", "valid_from", "valid_to"]
_OWNERS = "ownership_team_ids"
_PERIOD = "period"
_OF_TEST = (
    "first_listed_at",
    "known_start",
    "listed_until",
    "instances",
    "latest_occurrence_at",
    "quiet_s",
    "n_reopened",
)


@checked_names
def flaky_board(
    tests: Frame,
    before: Frame | None = None,
    resolved_after: str | dt.timedelta = "56d",
) -> pd.DataFrame:
    """
    Rank flaky tests by number of instances, and report what changed since an earlier list.

    Parameters
    ----------
    tests : DataFrame
        Result of `ws.flaky_tests(suite=...)`, as pandas, Polars, DuckDB or PySpark. Needs the
        columns `id`, `scope`, `name`, `location`, `instances`, `latest_occurrence_at`,
        `last_resolved_at` and `fetched_at`.
    before : DataFrame, optional
        An earlier, complete list of the same suite and period. Do not filter either list by
        `search=` or `branch=`, because missing tests would look quiet.
    resolved_after : str or timedelta, default "56d"
        How long after its latest occurrence a test that is no longer listed counts as resolved.
        Must be longer than the periods of the lists.

    Returns
    -------
    pandas.DataFrame
        One row per test, ordered by instances, then by latest occurrence, both descending. An empty
        list gives no rows, or with `before` its tests as quiet, with NaN seconds.

        ==================== =================== ===================================================
        id                   str                 id of the test
        scope                str                 as reported by the service
        name                 str                 as reported by the service
        location             str                 as reported by the service
        instances            Int64               occurrences that the service counts
        latest_occurrence_at datetime64[us, UTC] latest occurrence; NaT if unknown
        last_resolved_at     datetime64[us, UTC] when it was last resolved; NaT if never
        last_seen_s          float64             seconds from the latest occurrence until the list
                                                 was fetched
        age_at_least_s       float64             seconds from the earliest sign of it in either list
                                                 until the list was fetched: a lower bound of its
                                                 age
        is_resolved          boolean             resolved, without a later occurrence
        recurred             boolean             an occurrence followed its resolution
        status               str                 only with `before`: see Notes
        new_instances        Int64               only with `before`: instances now minus then;
                                                 negative if the service removed some, null if one
                                                 list lacks the test
        ==================== =================== ===================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, a test has no id or occurs twice,
        `before` was fetched after `tests`, or `resolved_after` is not longer than a period.

    See Also
    --------
    flaky_lifecycle : The same over a stored history of lists.

    Notes
    -----
    The status is the first of these that holds:

    - `resolved`: it is resolved now, or is no longer listed and has been quiet for longer than
      `resolved_after`.
    - `quiet`: it is no longer listed. It did not flake within the period of the list, or was
      deleted or renamed.
    - `came_back`: it was resolved in `before`, or it recurred after a resolution that `before` does
      not have.
    - `still`: both lists have it.
    - `new`: `before` does not have it, and it was never resolved. It may have flaked before the
      period of `before`.

    The period is the column `period` of lists from a store, and 7 days without it.

    Tests that are no longer listed have the values of `before`, and their seconds count until the
    latest `fetched_at` of `tests`.

    Examples
    --------
    >>> metrics.flaky_board(tests)[["instances", "is_resolved", "recurred"]].head(3)
       instances  is_resolved  recurred
    0         49        False      True
    1         35        False      True
    2         34        False     False
    >>> week_before = tests.tail(-1).assign(fetched_at=tests["fetched_at"] - pd.Timedelta("7D"))
    >>> metrics.flaky_board(tests, before=week_before)["status"].value_counts()
    status
    still       55
    resolved    12
    Name: count, dtype: int64
    """
    resolved_after = pd.Timedelta(parse_duration(resolved_after, "resolved_after"))
    current = _read_list(tests, "tests")
    if before is None:
        return _order(_with_ages(current, current))
    previous = _read_list(before, "before")
    _check_silence(resolved_after, pd.concat([current[_PERIOD], previous[_PERIOD]]))
    if previous["fetched_at"].max() > current["fetched_at"].max():
        raise BadInput("before= was fetched after tests. Pass the earlier list as before=.")
    gone = previous[~previous.index.isin(current.index)].assign(
        fetched_at=current["fetched_at"].max(),
    )
    combined = pd.concat([current, gone]).astype(current.dtypes)
    ranked = _with_ages(combined, previous)
    return _order(ranked.assign(**_compare_lists(ranked, current, previous, resolved_after)))


def _read_list(tests: Frame, name: str) -> pd.DataFrame:
    """Return the list by id, with timestamps in UTC, `is_resolved` and `recurred`."""
    rows = collect_columns(tests, _READ, (_PERIOD,)).set_index("id", drop=False)
    if rows["id"].isna().any():
        raise BadInput(f"{name}= contains a test without an id. Drop that row.")
    is_repeated = rows["id"].duplicated()
    if is_repeated.any():
        test = rows["id"][is_repeated].iloc[0]
        raise BadInput(f"{name}= contains the test {test!r} twice. Pass a single list.")
    return _with_period(rows).assign(
        is_resolved=_is_resolved(rows).astype("boolean"),
        recurred=_has_recurred(rows).astype("boolean"),
    )


def _with_period(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the period of their lists: the default if they do not have it."""
    periods = rows[_PERIOD] if _PERIOD in rows else pd.Series(None, rows.index, dtype=TEXT)
    return rows.assign(**{_PERIOD: periods.fillna(DEFAULT_PERIOD)})


def _check_silence(resolved_after: pd.Timedelta, periods: pd.Series[str]) -> None:
    """Raise BadInput if a test that is unlisted for this long could still be in a period."""
    for period in periods.unique():
        if period in PERIODS and resolved_after <= PERIODS[period]:
            raise BadInput(
                f"resolved_after is {resolved_after}, which is not longer than the period of a "
                f"list, {period}. Pass a longer time, such as '56d'."
            )


def _with_ages(tests: pd.DataFrame, previous: pd.DataFrame) -> pd.DataFrame:
    signs = ["latest_occurrence_at", "last_resolved_at"]
    earliest = pd.concat([tests[signs], previous[signs].reindex(tests.index)], axis=1).min(axis=1)
    until = tests["fetched_at"]
    return tests.assign(
        last_seen_s=(until - tests["latest_occurrence_at"]).dt.total_seconds(),
        age_at_least_s=(until - earliest).dt.total_seconds(),
    )


def _compare_lists(
    tests: pd.DataFrame,
    current: pd.DataFrame,
    previous: pd.DataFrame,
    resolved_after: pd.Timedelta,
) -> dict[str, Any]:
    """Compute the columns that need two lists."""
    earlier = previous.reindex(tests.index)
    was_listed = tests.index.isin(previous.index)
    is_listed = tests.index.isin(current.index)
    was_resolved = earlier["is_resolved"].fillna(value=False)
    resolved_again = ~(tests["last_resolved_at"] <= earlier["last_resolved_at"])
    came_back = was_resolved | (tests["recurred"] & resolved_again)
    is_silent = ~is_listed & (tests["last_seen_s"] > resolved_after.total_seconds())
    cases = {
        "resolved": tests["is_resolved"] | is_silent,
        "quiet": ~is_listed,
        "came_back": came_back,
        "still": was_listed,
    }
    status = np.select([np.asarray(case, bool) for case in cases.values()], list(cases), "new")
    return {
        "status": pd.Series(status, tests.index, dtype=TEXT),
        "new_instances": (tests["instances"] - earlier["instances"]).where(is_listed),
    }


def _order(board: pd.DataFrame) -> pd.DataFrame:
    first = ["instances", "latest_occurrence_at", "id"]
    ordered = board.reset_index(drop=True).sort_values(
        first,
        ascending=[False, False, True],
        ignore_index=True,
    )
    return ordered.drop(columns=["fetched_at", _PERIOD])


@checked_names
def flaky_lifecycle(
    history: Frame,
    new: str | dt.timedelta = "7d",
    quiet: str | dt.timedelta = "14d",
    resolved_after: str | dt.timedelta = "56d",
) -> pd.DataFrame:
    """
    Report the lifecycle of each flaky test from the stored history of its list.

    Parameters
    ----------
    history : DataFrame
        Result of `store.flaky_tests(history=True)`, as pandas, Polars, DuckDB or PySpark: one row
        per test and state, valid from one reading of the list until another. Needs the columns
        `id`, `scope`, `name`, `location`, `instances`, `latest_occurrence_at`, `last_resolved_at`,
        `fetched_at`, `valid_from` and `valid_to`. Tests are identified by `organization` and
        `suite`, too, if the frame has them. Without `period`, the lists are those of 7 days.
        It may also be snapshots of `ws.tests(suite=...)`, whose columns `labels` and `reliability`
        replace `instances`, `latest_occurrence_at` and `last_resolved_at`: see Notes.
    new : str or timedelta, default "7d"
        How long a test counts as new after its first listing.
    quiet : str or timedelta, default "14d"
        How long after its latest occurrence a test that is still listed counts as quiet.
    resolved_after : str or timedelta, default "56d"
        How long after its latest occurrence a test counts as resolved. Must be longer than the
        periods of the lists.

    Returns
    -------
    pandas.DataFrame
        One row per test, ordered by `organization`, `suite` and `id`, which come first. No rows
        give no rows.

        ==================== =================== ===================================================
        scope                str                 as last listed
        name                 str                 as last listed
        location             str                 as last listed
        status               str                 state at the last reading of the list: see Notes
        since                datetime64[us, UTC] when the status began, at the latest: see Notes
        known_since          boolean             earlier readings show that it did not hold before;
                                                 else it may have begun before `since`
        first_listed_at      datetime64[us, UTC] first reading that listed the test
        known_start          boolean             an earlier reading did not list it; else it may be
                                                 older
        listed_until         datetime64[us, UTC] last reading, or the first that no longer listed it
        instances            Int64               as last listed
        latest_occurrence_at datetime64[us, UTC] as last listed; NaT if unknown
        quiet_s              float64             seconds from the latest occurrence to the last
                                                 reading; NaN if unknown
        n_reopened           Int64               how often it was reopened
        ownership_team_ids   str                 as last listed, if the history has the column
        ==================== =================== ===================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `new`, `quiet` or `resolved_after` is
        not a length of time, `resolved_after` is not longer than a period, or a test occurs twice
        in one reading.

    See Also
    --------
    flaky_board : Compare two lists.

    Notes
    -----
    The status is the first of these that holds:

    - `resolved`: it is resolved without a later occurrence, since `last_resolved_at`; or it has
      been quiet for longer than `resolved_after`, since then.
    - `quiet`: it is no longer listed, or its latest occurrence is older than `quiet`, since that
      occurrence. Without one, since the first reading that no longer lists it.
    - `reopened`: it was resolved by either rule, and then occurred or was listed again, since the
      occurrence that the first reading of this shows, or since that reading if it shows none.
    - `new`: it was first listed within `new`, and earlier readings did not list it, since the first
      occurrence that a reading shows, or since its first reading, whichever is earlier.
    - `active`: it is listed and none of these, since the same time as for `new`.

    A reading shows the latest occurrence only, so earlier ones since the previous reading are
    unknown. The first reading of a list has no previous one: `known_since` is False for what it
    already shows.

    A list contains the tests that flaked within its period. So a test that flakes every 8 days is
    in every other list of 7 days. It is then quiet or active, and neither resolved nor reopened.

    Snapshots of `ws.tests` list tests that are not flaky, too. One counts as listed if it has the
    label `flaky` and both passed and failed within the period, so if its `reliability` is more than
    0 and less than 1. Without that it did not flake in the period, whatever its label. The other
    rows only show when the list was read. `instances` and `latest_occurrence_at` are null, as a
    failure need not be a flake, and no test is resolved before a silence of `resolved_after`. A
    store has no history of this list: set `valid_from` to the time of each snapshot, and `valid_to`
    to that of the next one, null for the last.

    Examples
    --------
    >>> metrics.flaky_lifecycle(history)["status"].value_counts()
    status
    active      37
    reopened    18
    resolved    12
    Name: count, dtype: int64
    """
    lengths = {"new": new, "quiet": quiet, "resolved_after": resolved_after}
    parsed = {name: pd.Timedelta(parse_duration(length, name)) for name, length in lengths.items()}
    sightings, by = _sightings_of_lists(history)
    _check_silence(parsed["resolved_after"], sightings[_PERIOD])
    states = _with_columns_of_tests(sightings, by, parsed["resolved_after"])
    tests = states.drop_duplicates(by, keep="last")
    reopenings = states[states["reopened"]].drop_duplicates(by, keep="last")
    reopened = reopenings.set_index(by)[["reopened_at", "known_reopening"]].reindex(
        tests.set_index(by).index,
    )
    tests = tests.assign(**{str(name): values.array for name, values in reopened.items()})
    status = _find_status(tests, parsed["new"], parsed["quiet"], parsed["resolved_after"])
    names = [name for name in _NAMES if name not in by]
    of_test = [*_OF_TEST, *([_OWNERS] if _OWNERS in tests else [])]
    return pd.concat([tests[[*by, *names]], status, tests[of_test]], axis=1).reset_index(drop=True)


def _sightings_of_lists(history: Frame) -> tuple[pd.DataFrame, list[str]]:
    """
    Return what readings of lists show of each test over time, and the columns that identify tests.

    A sighting is a state of a test: `valid_from` the reading that shows it first, `valid_to` the
    first one that does not, null if the last one shows it, `read_at` the last reading of its list,
    `read_from` the first one, `latest_occurrence_at`, `last_resolved_at` and `instances` as shown,
    and `period`, how far back the readings look. Sightings from another table, such as one with a
    row for each test and day, need the same columns.
    """
    rows = _with_period(_read_history(history))
    by = [name for name in (*_LIST, "id") if name in rows]
    states = rows.sort_values([*by, "valid_from"], ignore_index=True)
    is_repeated = states.duplicated([*by, "valid_from"])
    if is_repeated.any():
        test = states["id"][is_repeated].iloc[0]
        raise BadInput(
            f"The history contains the test {test!r} twice at one time. Pass a single suite.",
        )
    readings = states[["valid_from", "valid_to", "fetched_at"]].max(axis=1)
    lists = _lists(states, by)
    read_from = states["valid_from"].groupby(lists, dropna=False).transform("min")
    read_at = readings.groupby(lists, dropna=False).transform("max")
    states = states.assign(read_from=read_from, read_at=read_at)
    return states[_is_listed_as_flaky(states)].reset_index(drop=True), by


def _read_history(history: Frame) -> pd.DataFrame:
    """Return the columns of either list; those that only `flaky_tests` has are null if missing."""
    names = set(column_names(history))
    needed = [*_READ, "valid_from", "valid_to"]
    if "instances" not in names and not names.isdisjoint(_METRICS):
        needed = [*(name for name in needed if name not in _ONLY_FLAKY_TESTS), *_METRICS]
    optional = [*_ONLY_FLAKY_TESTS, *_METRICS, *_LIST, _OWNERS, _PERIOD]
    rows = collect_columns(history, needed, [name for name in optional if name not in needed])
    if "reliability" in rows:
        of_tests = rows[rows["instances"].isna()] if "instances" in rows else rows
        _check_reliability(of_tests["reliability"].astype("float64"))
    missing = {name: dtype for name, dtype in _ONLY_FLAKY_TESTS.items() if name not in rows}
    rows = rows.assign(
        **{name: pd.Series(None, rows.index, dtype=dtype) for name, dtype in missing.items()},
    )
    return rows.assign(**{name: timestamps(rows, name) for name in ("valid_from", "valid_to")})


def _check_reliability(reliability: pd.Series[float]) -> None:
    """Raise BadInput if the shares of passed executions are unknown, or no shares."""
    if len(reliability) and reliability.isna().all():
        advice = "Fetch the tests with ws.tests(), which asks for it."
        raise BadInput(f"The column 'reliability' has no value. {advice}")
    if not reliability.dropna().between(0, 1).all():
        raise BadInput(
            "The column 'reliability' has values outside of 0 to 1. Divide percentages by 100.",
        )


def _is_listed_as_flaky(states: pd.DataFrame) -> pd.Series[bool]:
    """Return whether each row lists a flaky test: all of `flaky_tests`, and some of `tests`."""
    if not set(_METRICS).issubset(states.columns):
        return pd.Series(True, states.index)
    labels = states["labels"].astype(TEXT)
    is_labeled = labels.str.contains(_HAS_FLAKY_LABEL).fillna(value=False).astype(bool)
    passed_and_failed = states["reliability"].astype("float64").between(0, 1, inclusive="neither")
    return states["instances"].notna() | (is_labeled & passed_and_failed)


def _lists(sightings: pd.DataFrame, by: list[str]) -> list[pd.Series]:
    """Return the values that identify the list of each sighting."""
    return [sightings[name] for name in by if name != "id"] or [pd.Series(0, sightings.index)]


def _with_columns_of_tests(
    sightings: pd.DataFrame,
    by: list[str],
    resolved_after: pd.Timedelta,
) -> pd.DataFrame:
    """Add whether each sighting reopened its test, and columns of the whole test."""
    before = sightings.groupby(by, dropna=False)[_STAMPS].shift()
    reopened = _has_reopened(sightings, before, resolved_after)
    states = sightings.assign(reopened=reopened, reopened_at=_reopened_at(sightings, before))
    of_test = states.groupby(by, dropna=False)
    first = of_test["valid_from"].transform("min")
    known_start = (first > states["read_from"]).astype("boolean")
    seen_at = _seen_at(states)
    more = {
        "first_listed_at": first,
        "first_seen_at": pd.concat(
            [first, of_test["latest_occurrence_at"].transform("min")],
            axis=1,
        ).min(axis=1),
        "known_start": known_start,
        "known_reopening": known_start | before["valid_from"].notna(),
        "listed_until": states["valid_to"].fillna(states["read_at"]),
        "seen_at": seen_at,
        "quiet_s": (states["read_at"] - seen_at).dt.total_seconds(),
        "n_reopened": of_test["reopened"].transform("sum").astype("Int64"),
    }
    return states.assign(**more)


def _seen_at(states: pd.DataFrame) -> pd.Series:
    """Return when each test was last seen to flake: at its latest occurrence.

    Without one, an unlisted test was seen until the first reading that no longer lists it.
    """
    return states["latest_occurrence_at"].fillna(states["valid_to"])


def _has_reopened(
    states: pd.DataFrame,
    before: pd.DataFrame,
    resolved_after: pd.Timedelta,
) -> pd.Series:
    """Return whether each state reopened its test.

    `before` holds the previous states, null if there is none.
    """
    was_resolved = before["last_resolved_at"].notna() & ~_has_recurred(before)
    silence = states["latest_occurrence_at"].fillna(states["valid_from"]) - _seen_at(before)
    was_resolved_before = states["last_resolved_at"] <= before["last_resolved_at"]
    resolved_between = _has_recurred(states) & ~was_resolved_before
    return ~_is_resolved(states) & (was_resolved | (silence > resolved_after) | resolved_between)


def _reopened_at(states: pd.DataFrame, before: pd.DataFrame) -> pd.Series:
    """Return when each state reopened its test at the latest.

    That is at the occurrence that it shows, or at its reading.
    """
    bounds = [states["last_resolved_at"], before["last_resolved_at"], _seen_at(before)]
    occurred_after = states["latest_occurrence_at"] > pd.concat(bounds, axis=1).max(axis=1)
    times = [states["latest_occurrence_at"].where(occurred_after), states["valid_from"]]
    return pd.concat(times, axis=1).min(axis=1)


def _find_status(
    tests: pd.DataFrame,
    new_within: pd.Timedelta,
    quiet_after: pd.Timedelta,
    resolved_after: pd.Timedelta,
) -> pd.DataFrame:
    is_listed = tests["valid_to"].isna()
    is_resolved = _is_resolved(tests)
    seen_at = tests["seen_at"]
    silent_since = seen_at + resolved_after
    is_silent = silent_since < tests["read_at"]
    cases = {
        "resolved": (
            is_resolved | is_silent,
            tests["last_resolved_at"].where(is_resolved, silent_since),
        ),
        "quiet": (~is_listed | (seen_at + quiet_after < tests["read_at"]), seen_at),
        "reopened": (tests["reopened_at"].notna(), tests["reopened_at"]),
        "new": (
            tests["known_start"] & (tests["first_listed_at"] >= tests["read_at"] - new_within),
            tests["first_seen_at"],
        ),
    }
    status = pd.Series("active", tests.index, dtype=TEXT)
    since = tests["first_seen_at"]
    for name, (holds, began) in reversed(cases.items()):
        status = status.mask(holds.astype(bool), name)
        since = since.mask(holds.astype(bool), began)
    known = tests["known_start"].mask(status == "reopened", tests["known_reopening"])
    known = known.mask(status.isin(["resolved", "quiet"]), other=True)
    return pd.DataFrame({"status": status, "since": since, "known_since": known.astype("boolean")})


def _is_resolved(states: pd.DataFrame) -> pd.Series:
    return states["last_resolved_at"].notna() & ~_has_recurred(states)


def _has_recurred(states: pd.DataFrame) -> pd.Series:
    return states["latest_occurrence_at"] > states["last_resolved_at"]
