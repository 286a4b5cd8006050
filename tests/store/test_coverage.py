"""Coverage of a store: time ranges, incomplete syncs, and a pipeline beside its organization."""

from __future__ import annotations

import datetime as dt

import pytest

import buildframe as bf
from buildframe.spec import Moment
from buildframe.store import sync
from tests.store.scripted_service import BUILDS, NOW, PIPELINES, Service


def numbers(store: bf.Store) -> list[int]:
    return sorted(store.builds()["number"].tolist())


def ago(service: Service, **by: float) -> Moment:
    return Moment.of(service.now - dt.timedelta(**by))


def covered(service: Service) -> list[tuple[Moment, Moment]]:
    """Return the requested ranges of creation times, oldest first; an open end is the time of the service."""
    queries = [query for query in service.lists() if "created_from" in query]
    ends = [(query["created_from"], query.get("created_to", service.now.text())) for query in queries]
    return sorted((Moment.parse(start), Moment.parse(end)) for start, end in ends)


def refuse_after(service: Service, answers: int) -> None:
    """Let every request after so many fail for good."""
    left = iter(range(answers))
    service.failing = lambda path, query: None if next(left, None) is not None else 401


def test_the_first_sync_goes_back_to_since_without_a_gap(service, ws, store):
    for number in range(40):
        service.add(number, "passed", days=number)
    done = store.sync(ws, since="20d", progress=False)
    assert numbers(store) == list(range(20))
    assert (done.since, done.as_of, done.complete) == (ago(service, days=20), NOW, True)
    times = covered(service)
    assert (times[0][0], times[-1][1]) == (done.since, NOW)
    assert [end for _, end in times[:-1]] == [start for start, _ in times[1:]]


@pytest.mark.long
def test_a_busy_day_behind_quiet_weeks_is_stored_in_parts(service, ws, store, monkeypatch):
    service.size = 5
    monkeypatch.setattr(sync, "_MANY_JOBS", 20)
    monkeypatch.setattr(sync, "_PAGE", service.size)
    for number in range(150):
        service.add(number, "passed", days=20 + number / 150)
    sizes, commit = [], sync.transactions.commit

    def recorded(location, retention, batch):
        sizes.append(len(batch.jobs))
        return commit(location, retention, batch)

    monkeypatch.setattr(sync.transactions, "commit", recorded)
    done = store.sync(ws, since="30d", progress=False)
    assert (done.complete, done.since) == (True, ago(service, days=30))
    assert numbers(store) == list(range(150))
    assert max(sizes) <= 10 * service.size  # a part is a few responses


@pytest.mark.long
def test_a_wider_since_fills_in_and_says_so(service, ws, store):
    for number in range(40):
        service.add(number, "passed", days=number)
    store.sync(ws, since="5d", progress=False)
    first = ago(service, days=5)
    service.later(hours=1)
    service.lists()
    wider = store.sync(ws, since="30d", progress=False)
    assert numbers(store) == list(range(30))
    assert wider.since == ago(service, days=30)
    times = [(start, end) for start, end in covered(service) if start < first]
    assert (times[0][0], times[-1][1]) == (wider.since, first)
    assert store.sync(ws, since="1d", progress=False).since == wider.since


@pytest.mark.long
def test_cut_off_amid_filling_in_the_next_sync_goes_on_from_there(service, ws, store):
    for number in range(60):
        service.add(number, "passed", days=number)
    refuse_after(service, 5)  # under way, the newest, pipelines, two time ranges
    with pytest.raises(bf.Unauthorized):
        store.sync(ws, since="60d", progress=False)
    there, (oldest, _) = numbers(store), covered(service)[1]  # what was refused is the oldest
    assert there == list(range(len(there)))
    assert 3 <= len(there) < 30
    service.failing = lambda path, query: None
    store.sync(ws, since="60d", progress=False)
    assert numbers(store) == list(range(60))
    assert all(end <= oldest for start, end in covered(service) if end < ago(service, hours=1))


@pytest.mark.long
def test_after_a_long_pause_it_catches_up_in_time_ranges_and_keeps_its_rows(service, ws, store):
    store.sync(ws, since="1d", progress=False)
    before = service.now
    service.later(days=30)
    for number in range(29):
        service.add(number, "passed", days=29 - number)
    service.lists()
    refuse_after(service, 5)  # under way, ended, the first time range, pipelines, the second time range
    with pytest.raises(bf.Unauthorized):
        store.sync(ws, since="1d", progress=False)
    there = numbers(store)
    assert there == list(range(len(there)))
    assert 2 <= len(there) < 15
    first = covered(service)
    service.failing = lambda path, query: None
    done = store.sync(ws, since="1d", progress=False)
    assert numbers(store) == list(range(29))
    times = covered(service)
    assert times[0][0] > first[0][0]
    assert times[-1][1] == service.now == done.as_of
    assert [end for _, end in times[:-1]] == [start for start, _ in times[1:]]
    assert done.since < before


@pytest.mark.long
def test_an_incomplete_sync_keeps_rows_reports_why_and_extends_no_coverage(service, ws, store):
    service.size = 3
    for number in range(10):
        service.add(number, "passed", days=number / 20)
    service.counted_too_many = 5
    with pytest.warns(UserWarning, match="Incomplete"):
        done = store.sync(ws, since="12h", progress=False)
    assert not done.complete
    assert "counts" in str(done.why)
    assert f"INCOMPLETE: {done.why}" in str(done)
    assert numbers(store) == list(range(10))
    assert store.covers == {}
    service.counted_too_many = 0
    first = service.now
    service.later(hours=3)
    service.lists()
    service.builds[9].update(state="failed", finished_at=service.now.text())  # it is too old for `since` by now
    done = store.sync(ws, since="12h", progress=False)
    assert done.complete
    finished = [query["finished_from"] for query in service.lists() if "finished_from" in query]
    assert finished == [Moment.of(first - dt.timedelta(minutes=5)).text()]
    assert done.since == ago(service, hours=12)
    assert store.builds().set_index("number").loc[9, "state"] == "failed"


@pytest.mark.long
def test_a_pipelines_own_sync_beside_that_of_its_organization(service, ws, store):
    service.pipelines["p-api"] = "api"
    for number in range(6):
        service.add(number, "passed", days=number, pipeline_id=["p-web", "p-api"][number % 2])
    store.sync(ws, since="10d", progress=False)
    since = Moment.of(service.now - dt.timedelta(minutes=5)).text()
    service.later(hours=1)
    service.add(6, "passed")
    service.add(7, "waiting", pipeline_id="p-api")
    service.paths()
    store.sync(ws.pipeline("web"), since="10d", progress=False)
    assert service.paths() == [
        f"{PIPELINES}/web",
        *[f"{PIPELINES}/web/builds"] * 3,
        f"{PIPELINES}/web",
    ]  # it knows what the other brought
    assert numbers(store) == list(range(7))
    service.later(hours=1)
    store.sync(ws, since="10d", progress=False)
    assert service.lists()[1]["finished_from"] == since  # the organization's own mark
    assert numbers(store) == list(range(8))


@pytest.mark.long
def test_a_pipelines_sync_alone_does_not_reach_for_its_organization(service, ws, store):
    service.pipelines["p-api"] = "api"
    service.add(1, "passed", days=0.5)
    service.add(2, "waiting", days=0.5, pipeline_id="p-api")
    store.sync(ws.pipeline("api"), since="1d", progress=False)
    assert numbers(store) == [2]
    service.paths()
    store.sync(ws.pipeline("web"), since="1d", progress=False)
    assert not [path for path in service.paths() if path.endswith("/builds/2")]
    assert store.builds(columns=["gone_at"])["gone_at"].isna().all()
    store.sync(ws, since="1d", progress=False)
    assert numbers(store) == [1, 2]


def test_a_result_describes_the_sync_in_a_sentence(service, ws, store):
    service.add(1, "waiting")
    service.add(2, "passed")
    assert str(store.sync(ws, since="1d", progress=False)) == (
        "2 builds and 2 jobs new or read again, by 3 requests; "
        "complete from 2026-10-31T12:00:00Z to 2026-11-01T12:00:00Z (version 1)"
    )
    service.later(hours=1)
    service.builds.clear()
    assert ", 1 gone, by " in str(store.sync(ws, since="1d", progress=False))


def test_without_a_scope_for_pipelines_it_says_which(service, ws, store):
    service.failing = lambda path, query: 403 if path == PIPELINES else None
    with pytest.raises(bf.Forbidden):
        store.sync(ws, progress=False)
    assert BUILDS in service.paths()


def test_a_since_in_the_future_is_refused_by_a_new_store_and_by_one_that_is_there(service, ws, store):
    service.add(1, "passed")
    with pytest.raises(bf.BadInput, match="since=2999-01-01T00:00:00Z"):
        store.sync(ws, since="2999-01-01", progress=False)
    first = store.sync(ws, since="1d", progress=False)
    with pytest.raises(bf.BadInput, match="since=2999-01-01T00:00:00Z"):
        store.sync(ws, since="2999-01-01", progress=False)
    almost_now = service.now + dt.timedelta(minutes=10)  # by a clock that is a little ahead
    assert store.sync(ws, since=almost_now, progress=False).version > first.version


@pytest.mark.long
@pytest.mark.parametrize("is_simulated", [True, False])
def test_a_pipeline_becomes_visible_after_a_sync_that_found_no_recent_build(service, ws, store, is_simulated):
    service.is_simulated = is_simulated
    for number in range(1, 4):
        service.add(number, "passed", days=number)
    store.sync(ws, since="1h", progress=False)
    service.pipelines["p-old"] = "old"
    service.later(minutes=30)
    assert store.sync(ws, since="10d", progress=False).complete
    assert numbers(store) == [1, 2, 3]
    assert sorted(store.pipelines()["slug"]) == ["old", "web"]
