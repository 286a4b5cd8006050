"""Requests of a sync and what they store: each rule by itself, against a scripted service."""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from email.utils import format_datetime

import pandas as pd
import pytest

import buildframe as bf
from buildframe.spec import Moment
from tests.store.scripted_service import BUILDS, NOW, PIPELINES

OPEN = "scheduled,running,failing,canceling"


def states(store: bf.Store) -> dict[int, str]:
    builds = store.builds()
    return dict(sorted(zip(builds["number"].tolist(), builds["state"], strict=True)))


def back(**by: float) -> str:
    return Moment.of(NOW - dt.timedelta(**by)).text()


# --- (a), (b) and (c)


def test_open_builds_are_requested_without_time_range_and_blocked_ones_are_not(service, ws, store):
    for number, state in enumerate(["scheduled", "running", "failing", "canceling", "waiting", "passed"]):
        service.add(number, state, days=400)
    service.add(9, "passed", days=400, blocked=True)
    store.sync(ws, since="1d", progress=False)
    assert states(store) == {0: "scheduled", 1: "running", 2: "failing", 3: "canceling"}
    assert service.lists()[0] == {"state[]": OPEN}


def test_then_what_finished_and_what_was_created_since_the_last_sync(service, ws, store):
    service.add(1, "passed", days=50, finished_at=back(days=49))
    store.sync(ws, since="1d", progress=False)
    since = Moment.of(service.now - dt.timedelta(minutes=5)).text()
    service.later(hours=1)
    service.builds[0]["finished_at"] = service.now.text()  # it was reopened, and ended again
    service.add(2, "not_run")
    service.lists()
    store.sync(ws, since="1d", progress=False)
    assert states(store) == {1: "passed", 2: "not_run"}
    assert service.lists() == [
        {"state[]": OPEN},
        {"finished_from": since, "created_to": since},
        {"created_from": since},
    ]


@pytest.mark.long
def test_with_nothing_new_there_are_three_requests_for_builds_and_one_for_each_list(service, ws, store):
    service.add(1, "passed", days=0.5, finished_at=back(days=0.4))
    service.add(2, "running")
    service.add(3, "failed", blocked=True)
    store.sync(ws, since="30d", progress=False)
    service.later(days=1, minutes=20)
    service.paths()
    done = store.sync(ws, since="30d", progress=False)
    assert service.paths() == [BUILDS, BUILDS, BUILDS, PIPELINES]
    assert (done.requests, done.jobs) == (4, 1)  # of the build that runs


# --- (d)


@pytest.mark.long
def test_a_build_that_was_open_is_requested_by_the_time_of_its_creation(service, ws, store):
    build = service.add(1, "waiting")
    store.sync(ws, since="1d", progress=False)
    service.later(hours=1)
    build["state"] = "skipped"  # without an end, so that no list contains it
    service.paths()
    done = store.sync(ws, since="1d", progress=False)
    assert states(store) == {1: "skipped"}
    *_, (_, query) = service.requests
    assert service.paths() == [BUILDS, BUILDS, BUILDS, PIPELINES, BUILDS]
    created, minute = Moment.parse(build["created_at"]), dt.timedelta(minutes=1)
    assert Moment.parse(query["created_from"]) + minute <= created <= Moment.parse(query["created_to"]) - minute
    assert (done.builds, done.jobs, done.requests) == (1, 1, 5)
    store.sync(ws, since="1d", progress=False)
    assert len(service.paths()) == 4


def test_builds_that_can_change_are_requested_until_they_cannot(service, ws, store):
    """Builds of each state, and ended builds of which an agent has a job. Four hours lie between the builds."""
    open_states = ["waiting", "creating", "waiting_failed", "scheduled", "running"]
    held = ["assigned", "accepted", "running", "canceling", "timing_out"]
    changing = [(state, "passed", False) for state in open_states] + [("canceled", job, False) for job in held]
    settled = [("passed", "passed", False), ("failed", "waiting", False), ("passed", "blocked", True)]
    settled += [("running", "limited", True)]
    for number, (state, jobs, blocked) in enumerate([*changing, *settled]):
        service.add(number, state, days=number / 6, jobs=jobs, blocked=blocked)
    store.sync(ws, since="5d", progress=False)
    service.later(hours=1)
    for build in service.builds:  # without an end, so that no list contains it
        build["state"] = "skipped"
        build["jobs"][0]["state"] = "canceled"
    store.sync(ws, since="5d", progress=False)
    is_again = store.jobs().set_index("build_number")["state"].sort_index().eq("canceled")
    assert [case for case, again in zip([*changing, *settled], is_again, strict=True) if again] == changing
    service.paths()
    store.sync(ws, since="5d", progress=False)
    assert len(service.paths()) == 4


@pytest.mark.long
def test_a_job_of_a_missed_build_is_stored_as_in_lists(service, ws, store):
    build = service.add(1, "waiting")
    store.sync(ws, since="1d", progress=False)
    service.later(hours=1)
    build["state"] = "skipped"
    store.sync(ws, since="1d", progress=False)
    ours, theirs = store.jobs(), ws.jobs(progress=False)
    names = [name for name in ours if name != "fetched_at"]
    pd.testing.assert_frame_equal(ours[names], theirs[names])
    assert ours["agent_hostname"].isna().all()


def test_a_build_that_is_gone_is_marked_and_not_requested_again(service, ws, store):
    service.add(1, "running")
    store.sync(ws, since="1d", progress=False)
    kept = store.jobs()
    service.later(hours=1)
    build = service.builds.pop()
    done = store.sync(ws, since="1d", progress=False)
    (gone_at,) = store.builds(columns=["gone_at"])["gone_at"]
    assert (done.gone, gone_at) == (1, service.now)
    assert states(store) == {1: "running"}
    pd.testing.assert_frame_equal(store.jobs(), kept, check_like=True)
    service.later(hours=1)
    service.paths()
    store.sync(ws, since="1d", progress=False)
    assert len(service.paths()) == 4
    service.builds.append(build)  # the token may see it again
    store.sync(ws, since="1d", progress=False)
    assert store.builds(columns=["gone_at"])["gone_at"].isna().all()


@pytest.mark.long
def test_a_sync_from_the_first_day_of_all_ends(service, ws, store):
    service.add(1, "passed")
    assert store.sync(ws, since=dt.date.min, progress=False).since == Moment(1, 1, 1, tzinfo=dt.UTC)


def _is_of_missed_builds(query):
    times = [Moment.parse(text) for name in ("created_from", "created_to") for text in query.get(name, ())]
    return len(times) == 2 and times[1] - times[0] == dt.timedelta(minutes=12)


@pytest.mark.long
@pytest.mark.parametrize("is_cached", [True, False])
def test_a_build_is_not_gone_because_a_cache_has_a_list_from_before_it(service, ws, store, is_cached):
    service.add(1, "passed", days=0.9)
    store.sync(ws, since="1d", progress=False)
    service.later(hours=1)
    build = service.add(2, "waiting")
    store.sync(ws, since="1d", progress=False)
    service.later(hours=1)
    body, date, of_missed = service.body, service.date, []

    def reply(path, query):
        of_missed[:] = [_is_of_missed_builds(query)]
        return ([], "") if of_missed[0] else body(path, query)

    service.body = reply
    old = format_datetime(service.now - dt.timedelta(hours=2), usegmt=True)
    service.date = lambda path: old if of_missed == [True] and is_cached else date(path)
    done = store.sync(ws, since="1d", progress=False)
    assert (done.complete, done.gone) == (not is_cached, int(not is_cached))
    if is_cached:
        assert "an older state in a cache; sync again" in done.why
        service.body, service.date, build["state"] = body, date, "skipped"
        assert store.sync(ws, since="1d", progress=False).complete
        assert states(store) == {1: "passed", 2: "skipped"}


@pytest.mark.long
def test_a_build_is_not_gone_because_a_request_fails(service, ws, store):
    service.add(1, "waiting")
    store.sync(ws, since="1d", progress=False)
    service.later(hours=1)
    service.failing = lambda path, query: 404 if _is_of_missed_builds(query) else None
    with pytest.raises(bf.NotFound):
        store.sync(ws, since="1d", progress=False)
    service.failing = lambda path, query: None
    assert store.sync(ws, since="1d", progress=False).gone == 0


@pytest.mark.long
def test_a_build_is_not_gone_because_the_service_rounds_times(service, ws, store):
    build = service.add(1, "waiting")
    build["created_at"] = service.now.replace(hour=11, minute=59, second=59, microsecond=999_700).text()
    whole = service.whole
    service.whole = lambda build, alone=False: whole(build, alone) | {"created_at": "2026-11-01T12:00:00.000Z"}
    service.later(hours=1)  # else the build is in the list of new builds
    store.sync(ws, since="1d", progress=False)
    service.later(hours=1)
    build["state"] = "skipped"
    assert store.sync(ws, since="1d", progress=False).gone == 0
    assert states(store) == {1: "skipped"}


@pytest.mark.parametrize("builds", [0, 1])
def test_a_slug_that_another_pipeline_gets_during_a_sync(service, ws, store, builds):
    service.add(1, "running")
    store.sync(ws.pipeline("web"), since="1d", progress=False)
    service.later(hours=1)
    for number in range(builds):
        service.add(50 + number, "passed", pipeline_id="p-new")["jobs"][0]["id"] = "job of another"
    web, before = ws.pipeline("web"), store.version

    def swap(path: str) -> None:
        if path.endswith("/builds"):
            service.pipelines = {"p-web": "site", "p-new": "web"}

    service.after = swap
    with pytest.raises(bf.Incomplete, match="slug 'web'"):
        store.sync(web, since="1d", progress=False)
    assert (store.version, states(store)) == (before, {1: "running"})


@pytest.mark.long
def test_a_number_that_belongs_to_another_build_after_a_restore(service, ws, store):
    service.add(1, "waiting")
    store.sync(ws, since="1d", progress=False)
    service.later(hours=1)
    service.builds.clear()
    service.add(1, "passed", id="restored")["jobs"][0]["id"] = "restored job"
    done = store.sync(ws, since="1d", progress=False)
    assert (done.complete, done.gone) == (True, 1)
    kept = store.builds(columns=["id", "gone_at"]).set_index("id")["gone_at"]
    assert kept.notna().to_dict() == {"b1": True, "restored": False}


@pytest.mark.long
def test_a_build_of_a_renamed_pipeline_is_found_though_another_has_the_old_slug(service, ws, store):
    build = service.add(1, "waiting")
    store.sync(ws, since="1d", progress=False)
    service.later(hours=1)
    service.pipelines = {"p-web": "site", "p-new": "web"}
    build["state"] = "skipped"
    store.sync(ws, since="1d", progress=False)
    assert states(store) == {1: "skipped"}


@pytest.mark.long
def test_a_build_of_a_deleted_pipeline_is_gone_though_another_one_has_its_slug_and_number(service, ws, store):
    service.add(1, "waiting")
    store.sync(ws, since="1d", progress=False)
    service.later(days=2)
    service.builds.clear()
    service.pipelines = {"p-new": "web"}
    service.add(1, "passed", days=1, id="other", pipeline_id="p-new")["jobs"][0]["id"] = "job of other"
    store.sync(ws, since="1d", progress=False)
    kept = store.builds(columns=["id", "state", "gone_at"]).set_index("id")
    assert kept["state"].to_dict() == {"b1": "waiting", "other": "passed"}
    assert kept["gone_at"].notna().to_dict() == {"b1": True, "other": False}


@pytest.mark.long
def test_a_pipeline_that_is_renamed_while_its_builds_are_looked_for_does_not_lose_them(service, ws, store):
    build = service.add(1, "waiting")
    store.sync(ws, since="1d", progress=False)
    build["state"] = "skipped"
    service.later(hours=1)

    def rename(path: str) -> None:
        if path == PIPELINES:
            service.pipelines = {"p-web": "site"}

    service.after = rename
    assert store.sync(ws, since="1d", progress=False).gone == 0
    service.later(hours=1)
    store.sync(ws, since="1d", progress=False)
    assert states(store) == {1: "skipped"}


# --- what a token may see


def test_a_pipeline_that_comes_to_be_seen_brings_its_older_builds(service, ws, store):
    for number, days in enumerate([1, 5, 15]):
        service.add(number, "passed", days=days, pipeline_id="p-hidden")
    store.sync(ws, since="10d", progress=False)
    assert states(store) == {}
    service.later(hours=1)
    service.pipelines["p-hidden"] = "hidden"
    service.paths()
    store.sync(ws, since="10d", progress=False)
    assert states(store) == {0: "passed", 1: "passed"}
    assert service.paths() == [BUILDS, BUILDS, BUILDS, PIPELINES, f"{PIPELINES}/hidden/builds", f"{PIPELINES}/hidden"]
    store.sync(ws, since="10d", progress=False)
    assert len(service.paths()) == 4


# --- deadlines


@pytest.mark.long
def test_what_a_sync_committed_before_its_deadline_stays(service, ws, store):
    for number, days in enumerate([0.5, 20, 40]):
        service.add(number, "passed", days=days)
    over, windows = threading.Event(), []

    def hang(path, query):
        windows.extend(query.get("created_to", []))
        if len(windows) > 2:
            over.wait(60)

    service.failing = hang
    with pytest.raises(bf.DeadlineExceeded, match="deadline=6s") as caught:
        store.sync(ws, since="300d", progress=False, deadline="6s")
    over.set()
    assert re.search(r"Committed data stays \(\d commits, version \d\)", caught.value.__notes__[-1])
    assert states(store) == {0: "passed"}
    service.failing = lambda path, query: None
    assert store.sync(ws, since="300d", progress=False).complete
    assert set(states(store)) == {0, 1, 2}


@pytest.mark.long
def test_a_sync_whose_deadline_passes_before_a_commit_leaves_no_store(service, ws, store):
    service.failing = lambda path, query: time.sleep(2)
    with pytest.raises(bf.DeadlineExceeded) as caught:
        store.sync(ws, progress=False, deadline=dt.timedelta(seconds=0.3))
    assert caught.value.__notes__[-1] == "Nothing was committed; the store is unchanged."
    with pytest.raises(bf.BadInput, match="There is no store"):
        _ = store.version
