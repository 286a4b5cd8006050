"""Show the history of a flaky test that a store has recorded, as HTML.

A sync records the service's list of flaky tests as a snapshot. The store keeps each state of each test with the
snapshots between which it was valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.formatting import format_count
from buildframe.store.store import Store
from buildframe.widgets import html

_STATUS_MEANINGS = {
    "new": "first listed within the last 7 days, and not in earlier snapshots",
    "active": "listed, and neither new, resolved, reopened nor dormant",
    "resolved": "marked as resolved, and not seen since",
    "reopened": "was resolved or not listed, and then flaked or was listed again",
    "dormant": "has not flaked for more than 14 days",
}
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 118, 44, 12, 12, 26  # of the chart, and its margins


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
        last = html.timestamp(history.last)
        return html.hint(f"The store has no history of this test: no snapshot up to {last} lists it.")
    states = history.states[history.states["id"] == id]
    properties = html.property_table(_properties(history, id, states, instances), "History")
    return properties + _chart(history, states) + _state_table(states)


def _properties(history: SuiteHistory, id: str, states: pd.DataFrame, instances: int | None) -> list[tuple[str, str]]:
    test: Any = history.tests.loc[id]
    unlisted_at = states["valid_to"].iloc[-1]
    is_listed = pd.isna(unlisted_at)
    start = "not in earlier snapshots" if test["known_start"] else "the first snapshot; the test may be older"
    meaning = _STATUS_MEANINGS[test["status"]] if is_listed else "no longer listed; it may be deleted or renamed"
    first, last = (_integer(states["instances"].iloc[index]) for index in (0, -1))
    changes = [
        _change_text(last, instances, "since the last snapshot") if is_listed else "not in the last snapshot",
        _change_text(first, instances, "since it was first listed"),
    ]
    return [
        ("Status", f"{html.text(test['status'])}: {html.text(meaning)}"),
        ("Since", html.timestamp(test["since"])),
        ("As of", f"the snapshot of {html.timestamp(history.last)}"),
        ("First listed", f"{html.timestamp(test['first_listed_at'])} ({start})"),
        ("Not listed from", html.timestamp(unlisted_at)),
        ("Reopened", f"{format_count(int(test['n_reopened']), 'time')} in the recorded snapshots"),
        ("New instances", "; ".join(filter(None, changes))),
    ]


def _change_text(then: int | None, now: int | None, since: str) -> str:
    if then is None or now is None:
        return ""
    return f"{f'{now - then:+,}'.replace('-', '−') if now != then else 'none'} {since} ({then:,} then, {now:,} now)"


def _chart(history: SuiteHistory, states: pd.DataFrame) -> str:
    """Return the instances by snapshot as SVG, which contains only numbers and times."""
    listed = states.dropna(subset=["instances"])
    starts, ends = listed["valid_from"], listed["valid_to"].fillna(history.last)
    counts = listed["instances"].astype(int).tolist()
    most = max(counts, default=0)
    lines = "".join(_chart_line(history, *line, most) for line in zip(starts, ends, counts, strict=True))
    base, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    note = "A dot is a snapshot with a new state; the dashed line repeats the last known value."
    return (
        f'<figure class="bf-history-chart"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{_chart_summary(starts, counts)}"><path d="M{_LEFT} {_TOP}V{base}H{right}"/>{lines}'
        f'<text x="{_LEFT - 6}" y="{_TOP + 4}" text-anchor="end">{most:,}</text>'
        f'<text x="{_LEFT - 6}" y="{base + 4}" text-anchor="end">0</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{history.first:%Y-%m-%d %H:%M}</text>'
        f'<text x="{right}" y="{_HEIGHT - 8}" text-anchor="end">{history.last:%Y-%m-%d %H:%M}</text></svg>'
        f"<figcaption>Instances by snapshot (UTC). {note}</figcaption></figure>"
    )


def _chart_line(history: SuiteHistory, start: pd.Timestamp, end: pd.Timestamp, count: int, most: int) -> str:
    length = (history.last - history.first) / pd.Timedelta(1, "s") or 1.0
    x, x_end = (
        _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((time - history.first) / pd.Timedelta(1, "s")) / length
        for time in (start, end)
    )
    y = _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * count / max(most, 1)
    return (
        f'<path class="bf-history-line" d="M{x:.1f} {y:.1f}H{x_end:.1f}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="3">'
        f"<title>{html.timestamp(start)}: {format_count(count, 'instance')}</title></circle>"
    )


def _chart_summary(starts: pd.Series[pd.Timestamp], counts: Sequence[int]) -> str:
    if not counts:
        return "Instances by snapshot: unknown."
    first, last = html.timestamp(starts.iloc[0]), html.timestamp(starts.iloc[-1])
    return (
        f"Instances by snapshot: {counts[0]:,} on {first}, {counts[-1]:,} on {last}; "
        f"{format_count(len(counts), 'state')}. The table below has all of them."
    )


def _state_table(states: pd.DataFrame) -> str:
    titles = ("Snapshot (UTC)", "Instances", "Latest occurrence (UTC)", "Last resolved (UTC)")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    rows = "".join(_state_rows(states.to_dict("records")))
    return (
        f"<details><summary>{format_count(len(states), 'state')} by snapshot</summary>"
        f'<div class="bf-history-table" role="region" aria-label="States by snapshot" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _state_rows(states: Sequence[dict[Any, Any]]) -> Iterator[str]:
    """Yield a row for each state, and one for each time at which the test was no longer listed."""
    next_starts = [*(state["valid_from"] for state in states[1:]), None]
    for state, next_start in zip(states, next_starts, strict=True):
        count = _integer(state["instances"])
        instances = "unknown" if count is None else f"{count:,}"
        cells = [state["valid_from"], instances, state["latest_occurrence_at"], state["last_resolved_at"]]
        yield f"<tr>{''.join(f'<td>{html.text(cell)}</td>' for cell in cells)}</tr>"
        if not html.is_missing(state["valid_to"]) and state["valid_to"] != next_start:
            yield f'<tr><td>{html.text(state["valid_to"])}</td><td colspan="3">not listed</td></tr>'


def _integer(value: Any) -> int | None:
    return None if html.is_missing(value) else int(value)
