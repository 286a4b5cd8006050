"""What became of each flaky test, from lists that were kept as they changed."""

from __future__ import annotations

import datetime as dt

import pandas as pd

from buildframe.arguments import checked_names
from buildframe.errors import BadInput
from buildframe.metrics.columns import moments
from buildframe.metrics.engines import Frame, collected
from buildframe.spec.times import span

_LIST = ("organization", "suite")
_NAMES = ("id", "scope", "name", "location")
_STAMPS = ("latest_occurrence_at", "last_resolved_at", "fetched_at", "valid_from", "valid_to")
_OF_TESTS = ("first_listed_at", "known_start", "listed_until", "instances", "latest_occurrence_at", "n_reopened")


@checked_names
def flaky_lifecycle(
    history: Frame, new: str | dt.timedelta = "7d", dormant: str | dt.timedelta = "14d"
) -> pd.DataFrame:
    """What became of each flaky test, from a list of them that was kept as it changed.

    `history` is `store.flaky_tests(history=True)`, a frame of any engine: of each test one row for each
    state in which it was listed, valid from one reading of the list until another. Between two readings nothing is
    known. Needs `id`, `scope`, `name`, `location`, `instances`, `latest_occurrence_at`, `last_resolved_at`,
    `fetched_at`, `valid_from`, `valid_to`; tests are told apart by `organization` and `suite`, too, where there.

    One row a test, ordered by `organization`, `suite` and `id`; columns: these, `scope`, `name`, `location` (str) as
    last listed;
    `status` (str), the first of these that holds when the list was last read:
    `resolved`: it is resolved, and no occurrence is known since; or it is no longer listed, so perhaps deleted;
    `dormant`: its latest occurrence lies more than `dormant` back;
    `reopened`: it was resolved, or not listed, and occurred or was listed again;
    `new`: it was listed for the first time within `new`, while earlier readings did not have it;
    `active`: it is listed, and none of these;
    `since` (`datetime64[us, UTC]`): when that began: `last_resolved_at`, or the reading that first lacked it; the
    latest occurrence and `dormant`; the reading that found it reopened; for the others the first one that listed it;
    `first_listed_at` (`datetime64[us, UTC]`): the first reading that listed it;
    `known_start` (boolean): whether an earlier reading did not have it; else it may be older than what was kept;
    `listed_until` (`datetime64[us, UTC]`): the last reading, or the first that did not list it any more;
    `instances` (Int64), `latest_occurrence_at` (`datetime64[us, UTC]`): as last listed;
    `n_reopened` (Int64): how often it was found reopened.
    No rows give these columns and no rows. BadInput: a missing column, naive times, what is no length of time, a test
    twice in one reading.
    """
    fresh, quiet = (pd.Timedelta(span(length, name)) for length, name in ((new, "new"), (dormant, "dormant")))
    states, by = _states(history)
    tests = states.drop_duplicates(by, keep="last")
    again = states[states["reopened"]].drop_duplicates(by, keep="last")
    reopened_at = again.set_index(by)["valid_from"].reindex(tests.set_index(by).index).array
    status = _status(tests.assign(reopened_at=reopened_at), fresh, quiet)
    names = [name for name in _NAMES if name not in by]
    return pd.concat([tests[[*by, *names]], status, tests[list(_OF_TESTS)]], axis=1).reset_index(drop=True)


def _states(history: Frame) -> tuple[pd.DataFrame, list[str]]:
    """The rows by test and time, each with what is known of its test by then; and what tells tests apart."""
    found = collected(history, [*_NAMES, "instances", *_STAMPS], _LIST)
    found = found.assign(**{stamp: moments(found, stamp) for stamp in _STAMPS})
    by = [name for name in (*_LIST, "id") if name in found]
    states = found.sort_values([*by, "valid_from"], ignore_index=True)
    if (twice := states.duplicated([*by, "valid_from"])).any():
        raise BadInput(f"The history holds the test {states['id'][twice].iloc[0]!r} twice at one time; name its suite.")
    states = states.assign(reopened=_reopened(states, states.groupby(by, dropna=False)[list(_STAMPS)].shift()))
    of_test = states.groupby(by, dropna=False)
    lists = [states[name] for name in by if name != "id"] or [pd.Series(0, states.index)]
    readings = states[["valid_from", "valid_to", "fetched_at"]].max(axis=1)
    first, read_at = of_test["valid_from"].transform("min"), readings.groupby(lists, dropna=False).transform("max")
    more = {
        "read_at": read_at,
        "first_listed_at": first,
        "known_start": (first > first.groupby(lists, dropna=False).transform("min")).astype("boolean"),
        "listed_until": states["valid_to"].fillna(read_at),
        "n_reopened": of_test["reopened"].transform("sum").astype("Int64"),
    }
    return states.assign(**more), by


def _is_resolved(states: pd.DataFrame) -> pd.Series:
    return states["last_resolved_at"].notna() & ~_occurred_again(states)


def _occurred_again(states: pd.DataFrame) -> pd.Series:
    return states["latest_occurrence_at"] > states["last_resolved_at"]


def _reopened(states: pd.DataFrame, before: pd.DataFrame) -> pd.Series:
    """Whether a state began as the test came back; `before` is the state before each, nothing where there is none."""
    was_known = before["valid_from"].notna()
    was_resolved = was_known & before["last_resolved_at"].notna() & ~_occurred_again(before)
    was_missing = was_known & (before["valid_to"] < states["valid_from"])
    resolved_between = _occurred_again(states) & ~(states["last_resolved_at"] <= before["last_resolved_at"])
    return ~_is_resolved(states) & (was_resolved | was_missing | resolved_between)


def _status(tests: pd.DataFrame, fresh: pd.Timedelta, quiet: pd.Timedelta) -> pd.DataFrame:
    is_listed, is_resolved = tests["valid_to"].isna(), _is_resolved(tests)
    quiet_since = tests["latest_occurrence_at"] + quiet
    cases = {
        "resolved": (~is_listed | is_resolved, tests["last_resolved_at"].where(is_resolved, tests["valid_to"])),
        "dormant": (quiet_since < tests["read_at"], quiet_since),
        "reopened": (tests["reopened_at"].notna(), tests["reopened_at"]),
        "new": (
            tests["known_start"] & (tests["first_listed_at"] >= tests["read_at"] - fresh),
            tests["first_listed_at"],
        ),
    }
    status = pd.Series("active", tests.index, dtype="str")
    since = tests["first_listed_at"]
    for name, (holds, began) in reversed(cases.items()):
        status, since = status.mask(holds.astype(bool), name), since.mask(holds.astype(bool), began)
    return pd.DataFrame({"status": status, "since": since})
