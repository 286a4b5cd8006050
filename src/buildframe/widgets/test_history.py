"""What a store has kept of the flaky tests of a suite, and what became of one of them, as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.formatting import counted
from buildframe.store.store import Store
from buildframe.widgets import html

STATUS = {
    "new": "listed for the first time within 7 days, while earlier readings did not have it",
    "active": "listed, and none of the others",
    "resolved": "marked as resolved, and not seen since",
    "reopened": "was resolved, or not listed, and flaked or was listed again",
    "dormant": "has not flaked for more than 14 days",
}
"""What each status of `metrics.flaky_lifecycle` means of a test that is listed."""

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 118, 44, 12, 12, 26
"""Of the picture, and what is free around its steps."""


class Past(NamedTuple):
    """The list of a suite as it changed: each state of each test, and what became of each (by id)."""

    states: pd.DataFrame
    tests: pd.DataFrame
    place: str
    first: pd.Timestamp
    last: pd.Timestamp

    def first_states(self, tests: pd.DataFrame) -> pd.DataFrame:
        """Of these tests the earliest that was kept, as a list that was read before theirs."""
        states = self.states[self.states["id"].isin(tests["id"])].drop_duplicates("id")
        known: pd.DataFrame = states[states["valid_from"] <= tests["fetched_at"].max()]
        return known.assign(fetched_at=known["valid_from"])

    def status(self, id: str) -> str:
        """What became of a test, in a word."""
        return str(self.tests.loc[id, "status"]) if id in self.tests.index else "not kept"


class Step(NamedTuple):
    """What a reading found: so many instances, which readings had until another one; NaT until: no longer listed."""

    at: pd.Timestamp
    until: pd.Timestamp
    instances: int | None


def read(store: Store, organization: str, suite: str) -> Past:
    """All that a store has of a suite. BadInput: it has nothing of it, or only of another organization."""
    found = store.flaky_tests(suite, history=True)
    own = found[found["organization"] == organization]
    place = str(found.attrs["source"])
    if own.empty:
        raise BadInput(f"The store at {place} holds no flaky test of suite {suite!r} of organization {organization!r}.")
    states = own.sort_values(["valid_from", "id"], ignore_index=True)
    last = states[["valid_from", "valid_to", "fetched_at"]].max().max()
    return Past(states, metrics.flaky_lifecycle(states).set_index("id"), place, states["valid_from"].min(), last)


def told(past: Past, id: str, now: int | None) -> str:
    """What became of a test with so many instances now: facts, a picture of its instances, and the same as a table."""
    if id not in past.tests.index:
        return (
            f'<div class="bf-hint">The store does not know this test: no reading up to '
            f"{moment(past.last)} listed it.</div>"
        )
    states, test = past.states[past.states["id"] == id], past.tests.loc[id]
    steps, gone = _steps(states, past.last), states["valid_to"].iloc[-1]
    facts = html.facts(_facts(past, test, steps, gone, now), "What became of it")
    return facts + _picture(past, steps) + _table(states)


def _facts(past: Past, test: Any, steps: Sequence[Step], gone: Any, now: int | None) -> list[tuple[str, str]]:
    start = "no earlier reading had it" if test["known_start"] else "the first reading that is kept: may be older"
    meaning = STATUS[test["status"]] if pd.isna(gone) else "no longer listed, so perhaps deleted or renamed"
    return [
        ("Status", f"{html.text(test['status'])}: {html.text(meaning)}"),
        ("Since", moment(test["since"])),
        ("As of", f"the reading of {moment(past.last)}"),
        ("First listed", f"{moment(test['first_listed_at'])} ({start})"),
        ("Not listed from", moment(gone)),
        ("Reopened", f"{counted(int(test['n_reopened']), 'time')}, as far as readings tell"),
        ("New instances", "; ".join(filter(None, _news(steps, now, is_listed=pd.isna(gone))))),
    ]


def _news(steps: Sequence[Step], now: int | None, *, is_listed: bool) -> list[str]:
    """How many more instances there are now than by the last reading, and by the first that listed it."""
    last, first = steps[-1].instances, steps[0].instances
    return [
        _more(last, now, "since the last reading") if is_listed else "the last reading did not list it",
        _more(first, now, "since it was first listed"),
    ]


def _more(then: int | None, now: int | None, since: str) -> str:
    if then is None or now is None:
        return ""
    return f"{f'{now - then:+,}'.replace('-', '−') if now != then else 'none'} {since} ({then:,} then, {now:,} now)"


def _steps(states: pd.DataFrame, last: pd.Timestamp) -> list[Step]:
    counts = map(_number, states["instances"])
    return list(map(Step, states["valid_from"], states["valid_to"].fillna(last), counts))


def _picture(past: Past, steps: Sequence[Step]) -> str:
    """Its instances by reading, as far as the store reaches. All in it are numbers and times."""
    known = [step for step in steps if step.instances is not None]
    most = max((step.instances or 0 for step in known), default=0)
    drawn = "".join(_step(past, step, most) for step in known)
    base, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    words = "A dot is a reading that found a new state, a line what the last reading had; between two nothing is known."
    return (
        f'<figure class="bf-steps"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_words(known)}">'
        f'<path d="M{_LEFT} {_TOP}V{base}H{right}"/>{drawn}'
        f'<text x="{_LEFT - 6}" y="{_TOP + 4}" text-anchor="end">{most:,}</text>'
        f'<text x="{_LEFT - 6}" y="{base + 4}" text-anchor="end">0</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{past.first:%Y-%m-%d %H:%M}</text>'
        f'<text x="{right}" y="{_HEIGHT - 8}" text-anchor="end">{past.last:%Y-%m-%d %H:%M}</text></svg>'
        f"<figcaption>Instances by reading, in UTC. {words}</figcaption></figure>"
    )


def _step(past: Past, step: Step, most: int) -> str:
    reach = (past.last - past.first) / pd.Timedelta(1, "s") or 1.0
    start, end = (
        _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((at - past.first) / pd.Timedelta(1, "s")) / reach
        for at in (step.at, step.until)
    )
    y = _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (step.instances or 0) / max(most, 1)
    told = f"{moment(step.at)}: {counted(step.instances or 0, 'instance')}"
    return (
        f'<path class="bf-step" d="M{start:.1f} {y:.1f}H{end:.1f}"/>'
        f'<circle cx="{start:.1f}" cy="{y:.1f}" r="3"><title>{told}</title></circle>'
    )


def _words(known: Sequence[Step]) -> str:
    if not known:
        return "Instances by reading: none is known."
    first, last = known[0], known[-1]
    return (
        f"Instances by reading: {first.instances:,} by that of {moment(first.at)}, {last.instances:,} by that of "
        f"{moment(last.at)}; {counted(len(known), 'state')}, all in the table below."
    )


def _table(states: pd.DataFrame) -> str:
    rows = "".join(_rows(states.to_dict("records")))
    names = ("Reading (UTC)", "Instances", "Latest occurrence (UTC)", "Last resolved (UTC)")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    return (
        f"<details><summary>{counted(len(states), 'state')}, by the reading that found it</summary>"
        f'<div class="bf-readings" role="region" aria-label="States, by the reading that found each" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _rows(states: Sequence[dict[Any, Any]]) -> list[str]:
    """A row for each state, and one where a reading did not list the test."""
    rows = []
    for place, state in enumerate(states):
        number = _number(state["instances"])
        cells = [
            state["valid_from"], "unknown" if number is None else f"{number:,}", state["latest_occurrence_at"],
            state["last_resolved_at"],
        ]  # fmt: skip
        rows.append(f"<tr>{''.join(f'<td>{html.text(cell)}</td>' for cell in cells)}</tr>")
        following = states[place + 1]["valid_from"] if place + 1 < len(states) else None
        if not pd.isna(state["valid_to"]) and state["valid_to"] != following:
            rows.append(f'<tr><td>{html.text(state["valid_to"])}</td><td colspan="3">not listed</td></tr>')
    return rows


def _number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def moment(at: Any) -> str:
    """A time in UTC, as HTML; nothing for none."""
    return "" if pd.isna(at) else f"{html.text(pd.Timestamp(at))} UTC"


STYLE = """<style>
.bf-steps { margin: 8px 0; max-width: 560px; color: var(--jp-content-font-color1, #212121); line-height: 1.4; }
.bf-steps svg { width: 100%; display: block; font-size: 11px; }
.bf-steps path { fill: none; stroke: currentColor; }
.bf-steps text { fill: currentColor; }
.bf-steps .bf-step { stroke: var(--jp-brand-color1, #1976d2); stroke-width: 2; stroke-dasharray: 2 2; }
.bf-steps circle { fill: var(--jp-brand-color1, #1976d2); }
.bf-steps figcaption { font-size: 90%; }
.bf-halves.bf-halves { display: grid; gap: 0 24px; overflow: visible;
  grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); }
.bf-halves > .widget-html, .bf-halves .widget-html-content { width: 100%; min-width: 0; height: auto; }
.bf-halves caption { overflow-wrap: anywhere; }
.bf-halves details { margin: 2px; color: var(--jp-content-font-color1, #212121); line-height: 1.4; }
.bf-readings { max-height: 240px; overflow: auto; font-size: 90%; font-variant-numeric: tabular-nums; }
.bf-readings th, .bf-readings td { text-align: left; vertical-align: bottom; padding: 0 12px 0 0; }
.bf-readings td { white-space: nowrap; }
</style>"""
"""What the picture and the table of readings look like, in the colours of JupyterLab's theme where there is one."""
