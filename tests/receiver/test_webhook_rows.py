"""Rows of builds and jobs from deliveries, each dated by its event; rows of a sync take precedence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe import webhooks
from buildframe.errors import BadInput
from buildframe.store import transactions
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.webhooks import Event
from tests.receiver.deliveries import event, of_job, stamp, states, synced
from tests.store.batches import Build, batch, moment

RUNNING = Build(1, at=0, state="running")


def test_a_new_build_and_its_jobs(tmp_path: Path) -> None:
    store = synced(tmp_path)
    result = store.receive(
        [event(state="started", started_at=stamp(5.25)), of_job(7.75), of_job(6, 1, state="started")]
    )
    assert (result.builds, result.jobs, result.left_out) == (1, 2, 0)
    (build,) = store.builds(columns=["id", "state", "fetched_at", "is_open", "day", "pipeline_id"]).itertuples()
    assert (build.id, build.state, build.is_open, str(build.day)) == ("build-1", "running", True, "2026-10-01")
    assert build.fetched_at == moment(7), "by the service's clock, in whole seconds as in responses"
    jobs = store.jobs(columns=["id", "state", "build_state", "build_id", "fetched_at", "run_time_s", "queue"])
    assert dict(zip(jobs["id"], jobs["state"], strict=True)) == {"build-1/0": "running", "build-1/1": "running"}
    assert set(jobs["build_id"]) == {"build-1"}
    assert set(jobs["queue"]) == {"default"}
    assert store.covers == {"acme": (moment(-100), moment(0))}, "the next sync requests the same as without deliveries"
    assert store.as_of == moment(0)


def test_other_jobs_stay_and_learn_the_state_of_their_build(tmp_path: Path) -> None:
    store = synced(tmp_path, RUNNING, Build(3, at=0))
    result = store.receive([event("build.finished", state="failed", finished_at=stamp(9))])
    assert (result.builds, result.jobs) == (1, 0)
    jobs = store.jobs(columns=["id", "state", "build_state", "name", "fetched_at"]).set_index("id")
    assert jobs.loc[["build-1/0", "build-1/1"], "build_state"].tolist() == ["failed", "failed"]
    assert jobs.loc["build-1/0", ["state", "name", "fetched_at"]].tolist() == ["running", "as of 0", moment(0)]
    assert jobs.loc["build-3/0", "build_state"] == "passed"


def late_and_twice() -> list[list[Event]]:
    """Return the events of one job in several orders, each of a build of its own; the last one is that it passed."""

    def passed(second: float, key: int) -> Event:
        return of_job(second, key=key, state="passed", finished_at=stamp(9.5 if second == 9 else second))

    return [
        [of_job(5, key=1), passed(9, 1)],
        [passed(9, 2), of_job(5, key=2)],
        [passed(9, 3), of_job(9, key=3)],
        [of_job(9.1, key=4), passed(9.1, 4)],
        [passed(9.1, 5), of_job(9.1, key=5), of_job(9.1, key=5)],
    ]


@pytest.mark.parametrize("at_once", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_order_in_which_they_come_changes_nothing(tmp_path: Path, at_once: bool) -> None:
    orders = late_and_twice()
    store = synced(tmp_path, *(Build(key, at=0, state="running") for key in range(1, len(orders) + 1)))
    batches = [[event for order in orders for event in order]]
    if not at_once:
        batches = [[order[place] for order in orders if place < len(order)] for place in range(3)]
    for events in batches:
        store.receive(events)
    assert {id: state for id, state in states(store).items() if id.endswith("/0")} == {
        f"build-{key}/0": "passed" for key in range(1, len(orders) + 1)
    }


@pytest.mark.long
def test_events_without_changes_create_no_version(tmp_path: Path) -> None:
    store = synced(tmp_path, RUNNING)
    first = store.receive([of_job(5)])
    assert store.receive([of_job(5), of_job(4)]) == type(first)(0, 0, 0, first.version)
    assert store.version == first.version
    assert store.receive([]).version == first.version


@pytest.mark.long
def test_a_late_one_after_a_sync_does_no_harm(tmp_path: Path) -> None:
    store = synced(tmp_path, RUNNING)
    synced(tmp_path, Build(1, at=60), at=60)
    result = store.receive([of_job(59), event(started_at=stamp(30))])
    assert (result.builds, result.jobs) == (0, 0)
    assert states(store) == {"build-1": "passed", "build-1/0": "passed", "build-1/1": "passed"}


def test_a_sync_replaces_earlier_events(tmp_path: Path) -> None:
    store = synced(tmp_path, RUNNING)
    store.receive([of_job(30), of_job(30, 7), event("build.finished", state="failed", finished_at=stamp(31))])
    synced(tmp_path, Build(1, at=31), at=31)
    assert states(store) == {"build-1": "passed", "build-1/0": "passed", "build-1/1": "passed"}
    assert set(store.jobs()["build_state"]) == {"passed"}
    assert not store.builds(columns=["is_open"])["is_open"].any()


@pytest.mark.long
def test_events_during_a_sync_stay_and_its_rows_are_added(tmp_path: Path) -> None:
    store = synced(tmp_path)
    store.receive([of_job(40, 0), event("build.failing", state="failing", failing_at=stamp(41))])
    synced(tmp_path, Build(1, at=20, state="running", jobs=(0, 1, 2)), at=20)
    assert states(store) == {
        "build-1": "failing",
        "build-1/0": "running",
        "build-1/1": "running",
        "build-1/2": "running",
    }
    jobs = store.jobs(columns=["id", "build_state", "fetched_at", "name"]).set_index("id")
    assert set(jobs["build_state"]) == {"failing"}
    assert jobs.loc["build-1/0", "fetched_at"] == moment(40)
    assert jobs.loc["build-1/1", "fetched_at"] == moment(20)
    assert store.builds(columns=["is_open"])["is_open"].all(), "so that the next sync requests it"


@pytest.mark.long
def test_of_the_second_in_which_a_sync_read_a_build_its_jobs_are_as_read(tmp_path: Path) -> None:
    store = synced(tmp_path, RUNNING)
    store.receive([of_job(20, 0, state="failed"), of_job(21, 1, state="failed")])
    synced(tmp_path, Build(1, at=20, state="running"), at=20)
    assert states(store) == {"build-1": "running", "build-1/0": "running", "build-1/1": "failed"}


def test_if_only_a_job_changed_its_build_is_requested_too(tmp_path: Path) -> None:
    def of_a_job(key: int, second: int, **more: Any) -> Event:
        job = {"id": f"build-{key}/7", "state": "failed", "finished_at": stamp(second)}
        return event("job.finished", key, job=job, **more)

    store = synced(tmp_path, Build(1, at=5), Build(2, at=5))
    result = store.receive([of_a_job(1, 9, state="finished"), of_a_job(2, 5, started_at=None)])
    assert (result.builds, result.jobs) == (0, 2)
    builds = store.builds(columns=["id", "state", "is_open", "has_webhook_update", "fetched_at"])
    assert sorted(builds.itertuples(index=False, name=None)) == [
        ("build-1", "passed", True, True, moment(9)),
        ("build-2", "passed", True, True, moment(5)),
    ]


@pytest.mark.long
def test_one_of_before_it_was_gone_does_not_bring_it_back(tmp_path: Path) -> None:
    store = synced(tmp_path, RUNNING)
    synced(tmp_path, at=60, gone=[RUNNING])
    assert store.receive([of_job(59)]).jobs == 0
    assert store.builds(columns=["gone_at"])["gone_at"].notna().all()
    store.receive([of_job(61)])
    assert store.builds(columns=["gone_at", "is_open"]).isna().to_numpy().tolist() == [[True, False]]


# --- words of notifications


STATES_OF_BUILDS: list[tuple[dict[str, Any], str]] = [
    ({"state": "started"}, "running"),
    ({"state": "passed"}, "passed"),
    ({"state": "a word of tomorrow"}, "a word of tomorrow"),
    ({"state": "blocked", "blocked_state": "failed"}, "failed"),
    ({"state": "blocked"}, "scheduled"),
    ({"state": "blocked", "blocked_state": ""}, "scheduled"),
    ({"state": "finished"}, "scheduled"),
    ({"state": None}, "scheduled"),
]


def scheduled(folder: Path, many: int) -> bf.Store:
    return synced(folder, *(Build(key, at=0, state="scheduled") for key in range(many)))


def test_states_of_builds(tmp_path: Path) -> None:
    store = scheduled(tmp_path, len(STATES_OF_BUILDS))
    store.receive([event(key=key, started_at=stamp(5), **sent) for key, (sent, _) in enumerate(STATES_OF_BUILDS)])
    builds = store.builds().set_index("id")
    for key, (sent, stored) in enumerate(STATES_OF_BUILDS):
        build = builds.loc[f"build-{key}"]
        assert build["state"] == stored, sent
        assert pd.isna(build["blocked"]) or build["blocked"] == (sent["state"] == "blocked"), sent


def test_a_build_that_is_blocked_is_so_where_only_its_state_says_so(tmp_path: Path) -> None:
    store = synced(tmp_path)
    store.receive([event(key=1, started_at=stamp(5), state="blocked", blocked_state="failed")])
    store.receive([event(key=2, started_at=stamp(5), state="passed", blocked=False)])
    assert store.builds().set_index("id")["blocked"].to_dict() == {"build-1": True, "build-2": False}


STATES_OF_JOBS: list[tuple[dict[str, Any], str]] = [
    ({"state": "started"}, "running"),
    ({"state": "finished", "exit_status": 0}, "passed"),
    ({"state": "finished", "exit_status": 1}, "scheduled"),
    ({"state": "finished", "exit_status": None}, "scheduled"),
    ({"state": "canceled"}, "canceled"),
]


def test_states_of_jobs(tmp_path: Path) -> None:
    store = scheduled(tmp_path, len(STATES_OF_JOBS))
    store.receive([of_job(5, key=key, **sent) for key, (sent, _) in enumerate(STATES_OF_JOBS)])
    found = states(store)
    stored = [(sent, found[f"build-{key}/0"]) for key, (sent, _) in enumerate(STATES_OF_JOBS)]
    assert stored == STATES_OF_JOBS


# --- what is left out


def test_what_a_store_cannot_hold_or_no_sync_covers(tmp_path: Path) -> None:
    left_out = [
        event(key=11, organization="globex"),
        event(key=12, pipeline={"slug": "web"}),
        event(key=13, created_at=None, started_at=stamp(5)),
        event(key=14, number=None),
        event(key=15, number=2**70),
        webhooks.parse(b'{"event": "ping"}'),
        webhooks.parse(b'{"event": "agent.connected", "agent": {}}'),
    ]
    store = synced(tmp_path)
    result = store.receive([*left_out, of_job(5, key=2), *left_out])
    assert set(states(store)) == {"build-2", "build-2/0"}
    assert (result.builds, result.jobs, result.left_out) == (1, 1, 2 * len(left_out))


def test_of_a_store_of_single_pipelines_the_others_are_left_out(tmp_path: Path) -> None:
    store = synced(tmp_path, scope="acme/pipeline-0")
    assert store.receive([event(key=1), event(key=2)]).left_out == 1
    assert set(states(store)) == {"build-2"}


def test_a_job_of_a_build_that_is_not_known_waits_for_the_sync(tmp_path: Path) -> None:
    store = synced(tmp_path, Build(3, at=0))
    result = store.receive([event("job.started", state="finished", job={"id": "j-1", "started_at": stamp(5)})])
    assert (result.builds, result.jobs) == (0, 0)
    assert set(store.jobs()["build_id"]) == {"build-3"}


def test_one_value_that_fits_no_column_holds_no_other_up(tmp_path: Path) -> None:
    store = synced(tmp_path)
    good = [of_job(5, key=key) for key in range(2, 9)]
    result = store.receive([*good[:3], of_job(5, exit_status=2**70), *good[3:]])
    assert (result.builds, result.jobs, result.left_out) == (8, 8, 0)


def test_names_and_variables_are_stored_only_on_request(tmp_path: Path) -> None:
    store = synced(tmp_path)
    store.receive([event(started_at=stamp(5))])
    text = store.sql("SELECT * FROM builds").to_csv()
    assert "creator_id" in text
    assert "Ada" not in text
    assert "hunter2" not in text
    store.receive([event(started_at=stamp(6))], personal=True, env=True)
    (kept,) = store.sql("SELECT creator, env FROM builds").itertuples(index=False)
    assert (kept.creator, json.loads(kept.env)) == ("Ada Example", {"SECRET": "hunter2"})


def test_a_store_that_was_never_synced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no store"):
        bf.Store(tmp_path).receive([of_job(5)])
    synced(tmp_path)
    with pytest.raises(BadInput, match="cannot be"):
        bf.Store(tmp_path, as_of=0).receive([of_job(5)])


# --- then and now


@pytest.mark.long
def test_the_past_is_as_syncs_left_it(tmp_path: Path) -> None:
    store = synced(tmp_path, RUNNING)
    result = store.receive([of_job(30, state="passed")])
    synced(tmp_path, Build(1, at=60), at=60)
    assert states(bf.Store(tmp_path, as_of=moment(59)))["build-1/0"] == "running"
    assert states(bf.Store(tmp_path, as_of=result.version))["build-1/0"] == "passed"
    assert states(bf.Store(tmp_path, as_of=moment(60)))["build-1/1"] == "passed"


@pytest.mark.long
def test_compacting_keeps_the_mark_of_webhook_updates(tmp_path: Path) -> None:
    store = synced(tmp_path, RUNNING, Build(3, at=0))
    for second in range(5):
        store.receive([of_job(second + 1, number=second, key=5)])
    transactions.compact(Location.of(tmp_path, None))
    assert states(store)["build-5/4"] == "running"
    assert "build-5" not in states(bf.Store(tmp_path, as_of=moment(0)))


@pytest.mark.long
def test_others_may_write_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, true, late = synced(tmp_path, RUNNING), TableVersion.commit, []

    def overtaken(table: TableVersion, *change: Any) -> int:
        if table.name == "builds" and not late:
            late.append(True)
            transactions.commit(Location.of(tmp_path, None), Retention(), batch([Build(3, at=50)], 50))
        return true(table, *change)

    monkeypatch.setattr(TableVersion, "commit", overtaken)
    result = store.receive([of_job(40)])
    assert late
    assert (result.builds, result.jobs) == (1, 1)
    assert states(store).keys() == {"build-1", "build-1/0", "build-1/1", "build-3", "build-3/0", "build-3/1"}
    assert store.as_of == moment(50)
