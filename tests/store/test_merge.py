"""Compare merging, histories of lists and coverage with simple models."""

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
from buildframe.store import merge
from buildframe.store.retained_columns import HAS_WEBHOOK_UPDATE, Retention, as_table
from buildframe.store.sync_state import NEVER, Coverage, SyncState
from tests.store.batches import Build, batch, flaky, moment

AT = st.integers(0, 5)
fetched = st.dictionaries(st.integers(0, 5), AT)


def _rows(times: dict[int, int]) -> pa.Table:
    at = pa.array([moment(at).us for at in times.values()], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"id": pa.array([str(key) for key in times], pa.string()), "fetched_at": at})


@settings(deadline=None, max_examples=50)
@given(fetched, fetched)
def test_nothing_that_was_fetched_earlier_replaces(new: dict[int, int], stored: dict[int, int]) -> None:
    found = merge.newer_builds(_rows(new), _rows(stored))["id"].to_pylist()
    assert found == [str(key) for key, at in new.items() if at >= stored.get(key, -1)]


@settings(deadline=None, max_examples=50)
@given(fetched, fetched, st.sets(st.integers(0, 5)))
def test_a_later_delivery_supersedes_a_fetched_build(
    new: dict[int, int], stored: dict[int, int], delivered: set[int]
) -> None:
    there = _rows(stored).append_column(HAS_WEBHOOK_UPDATE, pa.array([key in delivered for key in stored], pa.bool_()))
    found = merge.superseded_builds(_rows(new), there)["id"].to_pylist()
    assert found == [str(key) for key, at in new.items() if key in delivered and at < stored.get(key, -1)]
    assert not merge.superseded_builds(_rows(new), _rows(stored)).num_rows, "without deliveries"


@settings(deadline=None, max_examples=50)
@given(fetched, st.lists(st.tuples(st.integers(0, 5), AT)))
def test_jobs_updated_since_are_later_than_the_fetch(read: dict[int, int], jobs: list[tuple[int, int]]) -> None:
    theirs = [(key, at) for key, at in jobs if key in read]
    at = pa.array([moment(at).us for _, at in theirs], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"build_id": pa.array([str(key) for key, _ in theirs], pa.string()), "fetched_at": at})
    found = merge.jobs_updated_since(rows, _rows(read)).to_pylist()
    assert [(int(row["build_id"]), row["fetched_at"]) for row in found] == [
        (key, moment(at)) for key, at in theirs if at > read[key]
    ]


@settings(deadline=None, max_examples=15)
@given(st.lists(st.lists(st.tuples(st.integers(0, 3), AT), unique_by=lambda one: one[0]), min_size=1, max_size=3))
def test_each_build_comes_from_the_last_listing_that_contains_it(listings: list[list[tuple[int, int]]]) -> None:
    parts = [
        batch([Build(key, at, jobs=(number, 7)) for key, at in listing], 9) for number, listing in enumerate(listings)
    ]
    builds, jobs = merge.latest_builds([(part.builds, part.jobs) for part in parts])
    wanted: dict[str, tuple[int, int]] = {}
    for number, listing in enumerate(listings):
        for key, at in listing:
            wanted[f"build-{key}"] = (at, number)
    assert dict(zip(builds["id"], builds["message"], strict=True)) == {
        id: f"as of {at}" for id, (at, _) in wanted.items()
    }
    assert sorted(jobs["id"]) == sorted(f"{id}/{job}" for id, (_, number) in wanted.items() for job in (number, 7))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), max_size=6))
def test_a_list_is_kept_as_it_changes(readings: list[dict[str, int]]) -> None:
    schema, keys = Retention().schema("flaky_tests"), {"organization": "acme", "suite": "rspec"}
    other = flaky({"a": 1}, 0, "jest")
    stored = _listed(other.frame, dict(other.keys), 0, schema)
    for at, reading in enumerate(readings, 1):
        rows = _listed(flaky(reading, at).frame, keys, at, schema)
        kept = merge.update_history(stored, rows, keys, moment(at))
        assert (kept is stored) == (reading == _valid_at(stored, at - 1, "rspec"))
        stored = kept
    for at, reading in enumerate(readings, 1):
        assert _valid_at(stored, at, "rspec") == reading
    assert _valid_at(stored, len(readings), "jest") == {"a": 1}


def _listed(frame: pd.DataFrame, keys: dict[str, str], at: int, schema: pa.Schema) -> pa.Table:
    return as_table(frame.assign(**keys, valid_from=pd.Timestamp(moment(at))), schema)


def _valid_at(stored: pa.Table, at: int, suite: str) -> dict[str, int]:
    then = moment(at)
    rows = [row for row in stored.to_pylist() if row["suite"] == suite and row["valid_from"] <= then]
    valid = [row for row in rows if row["valid_to"] is None or row["valid_to"] > then]
    found = {row["id"]: row["instances"] for row in valid}
    assert len(found) == len(valid)
    return found


# --- the state


def _coverage(since: int, until: int) -> Coverage:
    return Coverage(moment(since), moment(until), moment(until))


def test_coverage_claims_no_more_than_both_syncs_guarantee() -> None:
    for now, base, wanted in (
        (None, None, _coverage(10, 20)),
        (_coverage(12, 15), _coverage(12, 15), _coverage(10, 20)),
        (_coverage(12, 18), _coverage(12, 15), _coverage(10, 18)),  # a concurrent sync: what both guarantee
        (_coverage(5, 30), None, _coverage(5, 20)),
    ):
        state = SyncState(coverage={} if now is None else {"acme": now}).with_coverage("acme", _coverage(10, 20), base)
        assert state.coverage == {"acme": wanted}


def test_a_state_survives_a_round_trip_through_json() -> None:
    coverage = {"acme": _coverage(0, 1), "other": replace(_coverage(0, 2), confirmed=moment(1))}
    state = SyncState(
        7, moment(1), {"jobs": 3}, coverage, {"members/acme": moment(0)}, 4, True, moment(5), moment(1), 3
    )
    assert SyncState._from_json(7, state.to_json()) == state


def test_a_state_without_optional_times_survives_a_round_trip() -> None:
    state = SyncState._from_json(7, SyncState(7, moment(1), {"jobs": 3}, {"acme": _coverage(0, 1)}).to_json())
    assert (state.coverage["acme"].resync_from, state.local_time, state.ordered_from) == (moment(1), None, 0)


def test_a_state_of_another_format_is_refused() -> None:
    for other in (1, 3):
        data: dict[str, Any] = {**SyncState(1, moment(1)).to_json(), "format": other}
        with pytest.raises(StoreFailed, match=rf"format {other}, .*reads format 2"):
            SyncState._from_json(1, data)


class BuildsTable:
    """A builds table whose commits have a state at some of its versions."""

    def __init__(self, states: list[int | None], first: int) -> None:
        self.version = len(states) - 1
        self._states, self._first = states, first
        self.read = 0

    def metadata(self, version: int) -> dict[str, Any] | None:
        self.read += 1
        at = self._states[version]
        return None if at is None else SyncState(version, moment(at), first=min(self._first, version)).to_json()


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int | None], int]:
    states, at = [], 0
    for has_state in draw(st.lists(st.booleans(), max_size=12)):
        at += draw(st.integers(0, 2))
        states.append(at if has_state else None)
    states.append(at)
    with_state = [version for version, at_then in enumerate(states) if at_then is not None]
    return states, draw(st.sampled_from(with_state))


@given(histories(), st.integers(-1, 30))
def test_the_state_at_a_time_is_the_last_that_is_not_later(history: tuple[list[int | None], int], second: int) -> None:
    states, first = history
    table: Any = BuildsTable(states, first)
    wanted = [version for version, at in enumerate(states) if version >= first and at is not None and at <= second]
    found = SyncState.at(table, moment(second))
    assert (None if found is None else found.version) == (wanted[-1] if wanted else None)
    by_version = SyncState.at(table, second) if 0 <= second < len(states) else None
    below = [version for version, at in enumerate(states) if first <= version <= second and at is not None]
    if 0 <= second < len(states):
        assert (None if by_version is None else by_version.version) == (below[-1] if below else None)
    assert SyncState.oldest(table).version == first


def test_a_time_is_found_by_reading_few_of_many_versions() -> None:
    table: Any = BuildsTable(list(range(5_000)), 0)
    found = SyncState.at(table, moment(1_234))
    assert found is not None
    assert found.version == 1_234
    assert table.read < 20
    assert SyncState.at(table, Moment.of(NEVER)) is None
