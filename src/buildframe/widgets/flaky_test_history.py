"""Show the history of a flaky test that a store has recorded, as HTML.

A sync records the service's list of flaky tests as a snapshot. The store keeps each state of each test with the
snapshots between which it was valid.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.store.store import Store
from buildframe.widgets import html
from buildframe.widgets.data_table import to_rows

QUIET_AFTER_S = 14 * 86_400
"""Seconds since its latest occurrence after which `metrics.flaky_lifecycle` calls a test quiet by default."""

_STATUS_MEANINGS = {
    "new": "first listed within the last 7 days, and not in earlier snapshots",
    "active": "listed, and neither new, resolved, reopened nor quiet",
    "resolved": "marked as resolved, and not seen since; or not seen for more than 56 days",
    "reopened": "was resolved, and then flaked or was listed again",
    "quiet": "has not flaked for more than 14 days, or is no longer listed",
}


class SuiteHistory(NamedTuple):
    """All recorded states of a suite's tests, the lifecycle of each test by id, and the first and last snapshot."""

    states: pd.DataFrame
    tests: pd.DataFrame
    store_url: str
    first: pd.Timestamp
    last: pd.Timestamp

    def first_states(self, tests: pd.DataFrame) -> pd.DataFrame:
        """Return the first recorded state of these tests, in the form of an earlier list."""
        states = self.states[self.states["id"].isin(tests["id"])].drop_duplicates("id")
        earlier: pd.DataFrame = states[states["valid_from"] <= tests["fetched_at"].max()]
        return earlier.assign(fetched_at=earlier["valid_from"])


def load_history(store: Store, organization: str, suite: str, tests: pd.DataFrame) -> SuiteHistory:
    """Load the history of a suite; raise BadInput if the store has none for this organization or these tests."""
    found = store.flaky_tests(suite, history=True)
    own = found[found["organization"] == organization]
    url = str(found.attrs["source"])
    if own.empty:
        raise BadInput(
            f"The store at {url} contains no flaky test of suite {suite!r} of organization {organization!r}."
        )
    states = own.sort_values(["valid_from", "id"], ignore_index=True)
    last = states[["valid_from", "valid_to", "fetched_at"]].max().max()
    if len(tests) and not tests["id"].isin(states["id"]).any():  # ids are unique across services
        raise BadInput(
            f"The store at {url} contains none of these tests. It belongs to another service, which needs its own "
            f"store, or all tests are newer than its last snapshot ({html.plain(last)} UTC)."
        )
    return SuiteHistory(states, metrics.flaky_lifecycle(states).set_index("id"), url, states["valid_from"].min(), last)


def render_history(history: SuiteHistory, id: str, instances: int | None) -> str:
    """Return the history of a test as HTML: properties, a chart of its instances, and a table of its states."""
    if id not in history.tests.index:
        return html.hint(
            f"The store has no history of this test: no snapshot up to {html.timestamp(history.last)} lists it."
        )
    test, states = history.tests.loc[id], to_rows(history.states[history.states["id"] == id])
    most = max(state["instances"] or 0 for state in states)
    chart = {"states": states, "most": most, "length": max(history.last - history.first, pd.Timedelta(1, "s"))}
    properties = {"test": test, "meaning": _STATUS_MEANINGS[str(test["status"])], "instances": instances}
    return html.render("flaky_test_history", history=history, **properties, **chart)
