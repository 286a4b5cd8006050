"""The flaky tests of a suite as a board: which matter most, and what became of those of an earlier list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.errors import BadInput
from buildframe.metrics.columns import moments
from buildframe.metrics.engines import Frame, collected

_NAMES = ("id", "scope", "name", "location")
_STAMPS = ("latest_occurrence_at", "last_resolved_at", "fetched_at")


@checked_names
def flaky_board(tests: Frame, before: Frame | None = None) -> pd.DataFrame:
    """Flaky tests as the service lists them, those with most instances first, and what changed since an earlier list.

    `tests` is `ws.flaky_tests(suite=...)`, `before` an earlier snapshot of the same list, saved whole: a list that
    was cut by `search=` or `branch=` makes tests come and go that did not. Both are frames of pandas, Polars or
    DuckDB. Needs `id`, `scope`, `name`, `location`, `instances`, `latest_occurrence_at`, `last_resolved_at`,
    `fetched_at`.

    One row a test, ordered by instances, then by latest occurrence, the greatest first; columns:
    `id`, `scope`, `name`, `location` (str); `instances` (Int64): occurrences as the service counts them;
    `latest_occurrence_at`, `last_resolved_at` (`datetime64[us, UTC]`);
    `last_seen_s` (float64): seconds from the latest occurrence until the list was fetched;
    `age_at_least_s` (float64): seconds from the earliest sign of it, in either list, until the list was fetched. The
    service does not tell the first occurrence, so this is a lower bound, and grows as `before` lies further back;
    `is_resolved` (boolean): resolved, and no occurrence is known since;
    `recurred` (boolean): an occurrence is known after it was resolved.

    With `before` besides:
    `status` (str): `resolved`: it is resolved now, or no longer listed. Else `came_back`: it was resolved in `before`,
    or it recurred after it was resolved between the lists or while `before` did not list it. Else `still`: listed both
    times. Else `new`: not listed before, and never resolved;
    `new_instances` (Int64): instances now less those then, negative where the service forgot some; null for tests that
    one of the lists lacks.
    That a test is no longer listed says only that the service does not list it: it may have been resolved, deleted or
    renamed. Such tests have the values of `before`; their seconds count until the latest `fetched_at` of `tests`.

    An empty list gives these columns and no rows; all of `before` is then resolved, and its seconds NaN, for nothing
    tells when the empty list was fetched. BadInput: a missing column, naive times, a test without id or listed twice,
    `before` fetched after `tests`.
    """
    now = _listed(tests, "tests")
    if before is None:
        return _ordered(_aged(now, now))
    then = _listed(before, "before")
    if then["fetched_at"].max() > now["fetched_at"].max():
        raise BadInput("before= was fetched after the tests; give the earlier list as before=.")
    gone = then[~then.index.isin(now.index)].assign(fetched_at=now["fetched_at"].max())
    both = pd.concat([now, gone]).astype(now.dtypes)
    return _ordered(_aged(both, then).assign(**_changes(both, now, then)))


def _listed(tests: Frame, name: str) -> pd.DataFrame:
    """The list by id, its stamps in UTC, with `is_resolved` and `recurred`."""
    found = collected(tests, [*_NAMES, "instances", *_STAMPS]).set_index("id", drop=False)
    found = found.assign(**{stamp: moments(found, stamp) for stamp in _STAMPS})
    if found["id"].isna().any():
        raise BadInput(f"{name}= holds a test without id.")
    if (twice := found["id"].duplicated()).any():
        raise BadInput(f"{name}= holds the test {found['id'][twice].iloc[0]!r} twice; give one list, not several.")
    recurred = (found["latest_occurrence_at"] > found["last_resolved_at"]).astype("boolean")
    return found.assign(is_resolved=found["last_resolved_at"].notna().astype("boolean") & ~recurred, recurred=recurred)


def _aged(tests: pd.DataFrame, then: pd.DataFrame) -> pd.DataFrame:
    signs = ["latest_occurrence_at", "last_resolved_at"]
    earliest = pd.concat([tests[signs], then[signs].reindex(tests.index)], axis=1).min(axis=1)
    until = tests["fetched_at"]
    return tests.assign(
        last_seen_s=(until - tests["latest_occurrence_at"]).dt.total_seconds(),
        age_at_least_s=(until - earliest).dt.total_seconds(),
    )


def _changes(tests: pd.DataFrame, now: pd.DataFrame, then: pd.DataFrame) -> dict[str, Any]:
    """The columns that two lists give."""
    earlier = then.reindex(tests.index)
    was_listed, is_listed = tests.index.isin(then.index), tests.index.isin(now.index)
    was_resolved = earlier["is_resolved"].fillna(value=False)
    resolved_anew = ~(tests["last_resolved_at"] <= earlier["last_resolved_at"])
    came_back = was_resolved | (tests["recurred"] & resolved_anew)
    cases = [tests["is_resolved"] | ~is_listed, came_back, was_listed]
    status = np.select([np.asarray(case, bool) for case in cases], ["resolved", "came_back", "still"], "new")
    return {
        "status": pd.Series(status, tests.index, dtype="str"),
        "new_instances": (tests["instances"] - earlier["instances"]).where(is_listed),
    }


def _ordered(board: pd.DataFrame) -> pd.DataFrame:
    first = ["instances", "latest_occurrence_at", "id"]
    ordered = board.reset_index(drop=True).sort_values(first, ascending=[False, False, True], ignore_index=True)
    return ordered.drop(columns="fetched_at")
