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

_STATUS_MEANINGS = {
    "new": "first listed within the last 7 days, and not in earlier snapshots",
    "active": "listed, and neither new, resolved, reopened nor dormant",
    "resolved": "marked as resolved, and not seen since",
    "reopened": "was resolved or not listed, and then flaked or was listed again",
    "dormant": "has not flaked for more than 14 days",
}
_CHART = {
    "width": 480,
    "height": 118,
    "left": 44,
    "right": 468,
    "top": 12,
    "bottom": 92,
}  # with its axes


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

    def status(self, id: str) -> str:
        """Return the status of a test."""
        return str(self.tests.loc[id, "status"]) if id in self.tests.index else "not stored"


def load_history(store: Store, organization: str, suite: str) -> SuiteHistory:
    """Load the history of a suite; raise BadInput if the store has none for this organization."""
    found = store.flaky_tests(suite, history=True)
    own = found[found["organization"] == organization]
    url = str(found.attrs["source"])
    if own.empty:
        raise BadInput(
            f"The store at {url} contains no flaky test of suite {suite!r} of organization {organization!r}."
        )
    states = own.sort_values(["valid_from", "id"], ignore_index=True)
    last = states[["valid_from", "valid_to", "fetched_at"]].max().max()
    return SuiteHistory(states, metrics.flaky_lifecycle(states).set_index("id"), url, states["valid_from"].min(), last)


def render_history(history: SuiteHistory, id: str, instances: int | None) -> str:
    """Return the history of a test as HTML: properties, a chart of its instances, and a table of its states."""
    if id not in history.tests.index:
        return html.hint(
            f"The store has no history of this test: no snapshot up to {html.timestamp(history.last)} lists it."
        )
    test, states = history.tests.loc[id], history.states[history.states["id"] == id]
    rows = to_rows(states)
    most = max(row["instances"] or 0 for row in rows)
    return html.render(
        "flaky_test_history",
        history=history,
        test=test,
        meaning=_STATUS_MEANINGS[str(test["status"])],
        unlisted_at=rows[-1]["valid_to"],
        instances=instances,
        first_count=rows[0]["instances"],
        last_count=rows[-1]["instances"],
        states=rows,
        lines=to_rows(_chart_lines(history, states, most)),
        most=most,
        chart=_CHART,
    )


def _chart_lines(history: SuiteHistory, states: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the known states with their positions on the chart, whose axis ends at the largest count."""
    listed = states.dropna(subset="instances")
    count = listed["instances"].astype(int)
    length = (history.last - history.first) / pd.Timedelta(1, "s") or 1.0

    def x(times: pd.Series[pd.Timestamp]) -> pd.Series[float]:
        share = (times - history.first).dt.total_seconds() / length
        return _CHART["left"] + (_CHART["right"] - _CHART["left"]) * share

    y = _CHART["bottom"] - (_CHART["bottom"] - _CHART["top"]) * count / max(most, 1)
    ends = listed["valid_to"].fillna(history.last)
    return pd.DataFrame(
        {"time": listed["valid_from"], "count": count, "x": x(listed["valid_from"]), "x_end": x(ends), "y": y}
    )
