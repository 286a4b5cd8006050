"""What is later than what is stored, lists kept as they change, and marks: against plain rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe.errors import StoreFailed
from buildframe.spec import Moment
from buildframe.store import changes
from buildframe.store.kept import IS_TOLD, Keeping, as_table
from buildframe.store.state import NEVER, Mark, State
from tests.store.batches import Build, batch, flaky, moment

AT = st.integers(0, 5)
fetched = st.dictionaries(st.integers(0, 5), AT)


def _rows(times: dict[int, int]) -> pa.Table:
    at = pa.array([moment(at).us for at in times.values()], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"id": pa.array([str(key) for key in times], pa.string()), "fetched_at": at})


@settings(deadline=None)
@given(fetched, fetched)
def test_nothing_that_was_fetched_earlier_replaces(new: dict[int, int], stored: dict[int, int]) -> None:
    found = changes.later(_rows(new), _rows(stored))["id"].to_pylist()
    assert found == [str(key) for key, at in new.items() if at >= stored.get(key, -1)]


@settings(deadline=None)
@given(fetched, fetched, st.sets(st.integers(0, 5)))
def test_what_a_delivery_told_later_overtakes_what_was_read(
    new: dict[int, int], stored: dict[int, int], told: set[int]
) -> None:
    there = _rows(stored).append_column(IS_TOLD, pa.array([key in told for key in stored], pa.bool_()))
    found = changes.overtaken(_rows(new), there)["id"].to_pylist()
    assert found == [str(key) for key, at in new.items() if key in told and at < stored.get(key, -1)]
    assert not changes.overtaken(_rows(new), _rows(stored)).num_rows, "where nothing was ever told"


@settings(deadline=None)
@given(fetched, st.lists(st.tuples(st.integers(0, 5), AT)))
def test_jobs_told_since_are_those_of_later_than_the_reading(read: dict[int, int], jobs: list[tuple[int, int]]) -> None:
    theirs = [(key, at) for key, at in jobs if key in read]
    at = pa.array([moment(at).us for _, at in theirs], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"build_id": pa.array([str(key) for key, _ in theirs], pa.string()), "fetched_at": at})
    found = changes.told_since(rows, _rows(read)).to_pylist()
    assert [(int(row["build_id"]), row["fetched_at"]) for row in found] == [
        (key, moment(at)) for key, at in theirs if at > read[key]
    ]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.tuples(st.integers(0, 3), AT), unique_by=lambda one: one[0]), min_size=1, max_size=3))
def test_of_several_walks_each_build_as_the_last_walk_has_it(walks: list[list[tuple[int, int]]]) -> None:
    parts = [batch([Build(key, at, jobs=(number, 7)) for key, at in walk], 9) for number, walk in enumerate(walks)]
    builds, jobs = changes.latest_of([(part.builds, part.jobs) for part in parts])
    wanted: dict[str, tuple[int, int]] = {}
    for number, walk in enumerate(walks):
        for key, at in walk:
            wanted[f"build-{key}"] = (at, number)
    assert dict(zip(builds["id"], builds["message"], strict=True)) == {
        id: f"as of {at}" for id, (at, _) in wanted.items()
    }
    assert sorted(jobs["id"]) == sorted(f"{id}/{job}" for id, (_, number) in wanted.items() for job in (number, 7))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), max_size=6))
def test_a_list_is_kept_as_it_changes(readings: list[dict[str, int]]) -> None:
    schema, whose = Keeping().schema("flaky_tests"), {"organization": "acme", "suite": "rspec"}
    other = flaky({"a": 1}, 0, "jest")
    stored = _listed(other.frame, dict(other.whose), 0, schema)
    for at, reading in enumerate(readings, 1):
        rows = _listed(flaky(reading, at).frame, whose, at, schema)
        kept = changes.changed(stored, rows, whose, moment(at))
        assert (kept is stored) == (reading == _valid_at(stored, at - 1, "rspec"))
        stored = kept
    for at, reading in enumerate(readings, 1):
        assert _valid_at(stored, at, "rspec") == reading
    assert _valid_at(stored, len(readings), "jest") == {"a": 1}


def _listed(frame: pd.DataFrame, whose: dict[str, str], at: int, schema: pa.Schema) -> pa.Table:
    return as_table(frame.assign(**whose, valid_from=pd.Timestamp(moment(at))), schema)


def _valid_at(stored: pa.Table, at: int, suite: str) -> dict[str, int]:
    then = moment(at)
    rows = [row for row in stored.to_pylist() if row["suite"] == suite and row["valid_from"] <= then]
    valid = [row for row in rows if row["valid_to"] is None or row["valid_to"] > then]
    found = {row["id"]: row["instances"] for row in valid}
    assert len(found) == len(valid)
    return found


# --- the state


def _mark(since: int, until: int) -> Mark:
    return Mark(moment(since), moment(until))


@pytest.mark.parametrize(
    ("now", "basis", "wanted"),
    [
        (None, None, _mark(10, 20)),
        (_mark(12, 15), _mark(12, 15), _mark(10, 20)),
        (_mark(12, 18), _mark(12, 15), _mark(10, 18)),  # another sync came between: what both know
        (_mark(5, 30), None, _mark(5, 20)),
    ],
)
def test_a_mark_claims_no_more_than_is_known(now: Mark | None, basis: Mark | None, wanted: Mark) -> None:
    state = State(marks={} if now is None else {"acme": now}).marked("acme", _mark(10, 20), basis)
    assert state.marks == {"acme": wanted}


def test_a_state_is_read_as_it_was_told() -> None:
    marks = {"acme": _mark(0, 1), "other": replace(_mark(0, 2), seen=moment(1))}
    state = State(7, moment(1), {"jobs": 3}, marks, {"members/acme": moment(0)}, 4, True, moment(5), moment(1), 3)
    assert State._read(7, state.told()) == state


def test_a_state_of_an_earlier_version_has_a_sure_mark() -> None:
    told = State(7, moment(1), {"jobs": 3}, {"acme": _mark(0, 1)}).told()
    for name in ("here", "sure", "ordered"):
        del told[name]
    state = State._read(7, told)
    assert (state.marks["acme"].again, state.here, state.ordered) == (moment(1), None, 0)


def test_a_state_of_a_later_format_is_refused() -> None:
    told: dict[str, Any] = {**State(1, moment(1)).told(), "format": 2}
    with pytest.raises(StoreFailed, match=r"later version of buildframe \(format 2\)"):
        State._read(1, told)


class Told:
    """A table of builds that carries states at some of its versions."""

    def __init__(self, states: list[int | None], first: int) -> None:
        self.version = len(states) - 1
        self._states, self._first = states, first
        self.read = 0

    def told(self, version: int) -> dict[str, Any] | None:
        self.read += 1
        at = self._states[version]
        return None if at is None else State(version, moment(at), first=self._first).told()


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int | None], int]:
    states, at = [], 0
    for is_told in draw(st.lists(st.booleans(), max_size=12)):
        at += draw(st.integers(0, 2))
        states.append(at if is_told else None)
    states.append(at)
    told = [version for version, at_then in enumerate(states) if at_then is not None]
    return states, draw(st.sampled_from(told))


@given(histories(), st.integers(-1, 30))
def test_the_state_at_a_time_is_the_last_that_is_not_later(history: tuple[list[int | None], int], second: int) -> None:
    states, first = history
    table: Any = Told(states, first)
    wanted = [version for version, at in enumerate(states) if version >= first and at is not None and at <= second]
    found = State.at(table, moment(second))
    assert (None if found is None else found.version) == (wanted[-1] if wanted else None)
    by_version = State.at(table, second) if 0 <= second < len(states) else None
    below = [version for version, at in enumerate(states) if first <= version <= second and at is not None]
    if 0 <= second < len(states):
        assert (None if by_version is None else by_version.version) == (below[-1] if below else None)
    assert State.oldest(table).version == first


def test_a_time_is_found_by_reading_few_of_many_versions() -> None:
    table: Any = Told(list(range(5_000)), 0)
    found = State.at(table, moment(1_234))
    assert found is not None
    assert found.version == 1_234
    assert table.read < 20
    assert State.at(table, Moment.of(NEVER)) is None
