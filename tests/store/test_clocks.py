"""Wrong dates, of one response or of all of a sync: ahead, behind, missing. A store loses no build by them."""

from __future__ import annotations

import datetime as dt
import random
import shutil
import time
import warnings
from collections.abc import Callable
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe.http import response
from buildframe.spec import Moment
from buildframe.store import sync as syncing
from buildframe.store import sync_clock, transactions
from buildframe.workspace import Workspace
from tests import worlds
from tests.store.scripted_service import NOW, PIPELINES, Service
from tests.store.test_damage import make_older

Skew = Callable[[int], float]
"""The hours by which the Date of each response of a sync is ahead, by its number."""


@pytest.fixture
def service(service: Service) -> Service:
    service.is_simulated = False
    return service


class Here:
    """The clock of this machine."""

    at = NOW


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> type[Here]:
    set_clock(monkeypatch)
    return Here


def set_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Here, "at", NOW)
    patch.setattr(sync_clock, "local_clock", lambda: Here.at)


def sync(service: Service, ws: Workspace, store: bf.Store, skew: Skew = lambda number: 0.0) -> syncing.SyncResult:
    """A sync whose responses have these dates; time goes on a second with each of them."""
    numbers = iter(range(10_000))

    def date(path: str) -> str:
        shown = service.now + dt.timedelta(hours=skew(next(numbers)))
        service.later(seconds=1)
        return format_datetime(shown, usegmt=True)

    service.date = date
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return store.sync(ws, since="10d", progress=False)


def go_on(service: Service, **by: float) -> None:
    """Let time go on, here and at the service."""
    service.later(**by)
    Here.at = Moment.of(Here.at + dt.timedelta(**by))


def live(service: Service, hours: int, chance: random.Random | None = None) -> None:
    """Let the service work: each hour a build is created, one of an earlier hour is reopened, and both end."""
    chance = chance or random.Random(1)
    for _ in range(hours):
        go_on(service, hours=1)
        number = len(service.builds)
        build = service.add(number, chance.choice(["running", "passed", "skipped"]))
        build["finished_at"] = build["created_at"] if build["state"] == "passed" else None
        old = chance.choice(service.builds)
        old["state"], old["finished_at"] = "failed", Moment.of(service.now - dt.timedelta(minutes=5)).text()


def lost(service: Service, store: bf.Store) -> dict[str, set[Any]]:
    """Builds of the last nine days that the store has otherwise than the service, or not at all."""
    since = Moment.of(service.now - dt.timedelta(days=9))
    own = [build for build in service.builds if Moment.parse(build["created_at"]) >= since]
    served = {(b["number"], b["state"], b["finished_at"] and Moment.parse(b["finished_at"])) for b in own}
    kept = store.builds(created_from=since)[["number", "state", "finished_at"]]
    stored = {(n, state, None if pd.isna(at) else at) for n, state, at in kept.itertuples(index=False)}
    return {"served": served - stored, "stored": stored - served}


NOTHING = {"served": set(), "stored": set()}
ONE_AHEAD = {f"response {n} is 2 days ahead": (lambda m: lambda i: 48.0 if i == m else 0.0)(n) for n in range(4)}
FIRST_LANE = "all are 2 days ahead"
SKEWS: dict[str, Skew] = ONE_AHEAD | {
    "all are 2 days ahead": lambda i: 48.0,
    "all are 2 hours ahead": lambda i: 2.0,
    "all are 50 minutes ahead": lambda i: 0.8,
    "they alternate": lambda i: 48.0 * (i % 2),
    "the first is 2 days behind": lambda i: -48.0 if i == 0 else 0.0,
    "all are 2 days behind": lambda i: -48.0,
    "all are of 1970": lambda i: -(NOW - Moment.from_us(0)) / dt.timedelta(hours=1),
    "all are 100 years ahead": lambda i: 876_000.0,
}
FEW = ["response 0 is 2 days ahead", "they alternate", "the first is 2 days behind", *list(SKEWS)[-2:]]


@pytest.mark.parametrize(
    "name", [FIRST_LANE, *(pytest.param(name, marks=pytest.mark.long) for name in SKEWS if name != FIRST_LANE)]
)
def test_a_sync_with_wrong_dates_loses_nothing(service, ws, store, name):
    """The first sync after it is before the dates that were two days ahead, the second one is after them."""
    live(service, 12)
    sync(service, ws, store)
    live(service, 5)
    sync(service, ws, store, SKEWS[name])
    for hours in (1, 50):
        live(service, hours)
        sync(service, ws, store)
    assert lost(service, store) == NOTHING
    assert store.as_of <= service.now
    ((_, until),) = store.covers.values()
    assert until == store.as_of


@pytest.mark.long
@pytest.mark.parametrize("name", FEW)
def test_the_first_sync_may_be_the_wrong_one(service, ws, store, name):
    live(service, 12)
    sync(service, ws, store, SKEWS[name])
    for _ in range(2):
        live(service, 3)
        sync(service, ws, store)
    assert lost(service, store) == NOTHING


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_after_two_right_syncs_a_store_equals_the_service_whatever_was_before(service, ws, store, seed, here):
    chance = random.Random(seed)
    for _ in range(6):
        live(service, chance.choice([1, 2, 30]), chance)
        set_by = dt.timedelta(hours=chance.choice([0, 0, 0, -30, 30]))  # somebody sets the clock of this machine
        here.at = Moment.of(here.at + set_by)
        sync(service, ws, store, SKEWS[chance.choice(list(SKEWS))])
    for _ in range(2):
        live(service, chance.choice([1, 30]), chance)
        sync(service, ws, store)
    assert lost(service, store) == NOTHING, f"seed {seed}"


@pytest.mark.long
@pytest.mark.parametrize(("ahead", "is_first"), [("organization", True), ("organization", False), ("pipeline", True)])
def test_two_syncs_at_once_lose_nothing_though_one_has_dates_ahead(service, ws, store, monkeypatch, ahead, is_first):
    """That one reads a build, which changes; then the other one reads it, and has the earlier dates."""
    scopes = {"organization": ws, "pipeline": ws.pipeline("web")}
    ahead_one, other = scopes.pop(ahead), *scopes.values()
    live(service, 3)
    for scope in (ahead_one, other):
        sync(service, scope, store)
    go_on(service, hours=2)
    build, commit = service.add(9, "passed", finished_at=service.now.text()), transactions.commit

    def between(*first):
        build.update(state="failed", finished_at=service.now.text())
        go_on(service, hours=1)
        done = []

        def last(*second):
            done.extend(commit(*batch) for batch in ((first, second) if is_first else (second,)))
            return done[-1]

        monkeypatch.setattr(transactions, "commit", last)
        sync(service, other, store)
        monkeypatch.setattr(transactions, "commit", commit)
        return done[0] if is_first else commit(*first)

    monkeypatch.setattr(transactions, "commit", between)
    sync(service, ahead_one, store, lambda i: 20.0)
    assert store.builds().set_index("number")["state"][9] == "passed"
    go_on(service, hours=1)
    sync(service, other, store)
    assert lost(service, store) == NOTHING


@pytest.mark.long
@pytest.mark.parametrize("name", ["all are 2 days behind", "all are of 1970"])
def test_dates_behind_make_no_sync_read_more_of_the_past(service, ws, store, name):
    live(service, 72)
    sync(service, ws, store)
    known = service.now
    for skew in (SKEWS[name], SKEWS[name], lambda i: 0.0):
        live(service, 1)
        service.lists()
        sync(service, ws, store, skew)
        begins = [q["created_from"] for q in service.lists() if "created_from" in q]
        assert min(map(Moment.parse, begins)) > known - dt.timedelta(days=10, hours=1)
    assert lost(service, store) == NOTHING


@pytest.mark.long
def test_a_cache_that_returns_an_older_state_of_a_sync_that_reads_back_loses_nothing(service, ws, store):
    live(service, 100)
    now = service.builds
    is_cached = False

    def older_state(path: str, query: dict[str, list[str]]) -> None:
        nonlocal is_cached
        if {"created_from", "created_to"} <= set(query) and not is_cached:
            is_cached = True
            service.builds = now[:20]

    def restored(path: str) -> None:
        service.builds = now

    service.failing, service.after = older_state, restored
    sync(service, ws, store, lambda number: 0.0 if service.builds is now else -80.0)
    assert is_cached
    for _ in range(2):
        live(service, 1)
        sync(service, ws, store)
    assert lost(service, store) == NOTHING


@pytest.mark.long
@pytest.mark.parametrize("hours_of_the_first", [0.0, -6.0])
def test_an_older_state_of_a_range_is_not_complete(service, ws, store, hours_of_the_first):
    """The first response of the sync may be of a cache as well, and even older."""
    build = service.add(1, "passed", days=4, finished_at=Moment.of(service.now - dt.timedelta(hours=2)).text())
    service.add(2, "passed", finished_at=service.now.text())
    store.sync(ws, since="1h", progress=False)
    go_on(service, hours=1)
    now = dict(build)

    def older_state(path: str, query: dict[str, list[str]]) -> None:
        begin, end = ([Moment.parse(text) for text in query.get(name, ())] for name in ("created_from", "created_to"))
        if begin and end and begin[0] < Moment.parse(now["created_at"]) < end[0]:
            build.update(state="blocked", finished_at=None)

    def hours(number: int) -> float:
        return -4.0 if build["state"] == "blocked" else hours_of_the_first if number == 0 else 0.0

    service.failing, service.after = older_state, lambda path: build.update(now)
    done = sync(service, ws, store, hours)
    assert not done.complete
    assert "an older state in a cache; sync again" in str(done.why)
    service.failing = lambda path, query: None
    assert sync(service, ws, store).complete
    assert store.builds().set_index("number").loc[1, "state"] == "passed"


@pytest.mark.long
def test_a_slow_answer_after_a_wrong_date_does_not_hide_what_happened_meanwhile(service, ws, store, monkeypatch):
    live(service, 3)
    sync(service, ws, store)
    go_on(service, hours=24)
    seconds = iter(range(0, 10**9, 1_200))  # 20 minutes between any two looks at the clock
    for module in (syncing, response):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(seconds), time=time.time))
    done = sync(service, ws, store, lambda i: 48.0 if i == 0 else 0.0)
    assert done.as_of < Moment.of(service.now - dt.timedelta(minutes=20))


@pytest.mark.long
def test_rows_of_a_page_whose_date_was_ahead_are_replaced_by_the_next_sync(service, ws, store):
    build = service.add(1, "running")
    sync(service, ws, store, lambda i: 48.0 if i == 0 else 0.0)  # the response with what is under way
    (at,) = store.builds()["fetched_at"]
    assert at <= service.now
    go_on(service, hours=1)
    build["state"] = "skipped"
    sync(service, ws, store)
    assert store.builds()["state"].tolist() == ["skipped"]


@pytest.mark.long
def test_lists_that_were_read_with_a_date_ahead_are_replaced_by_the_next_sync(service, ws, store):
    sync(service, ws, store, lambda i: 48.0)
    go_on(service, hours=1)
    service.pipelines = {"p-web": "site"}
    sync(service, ws, store)
    assert store.pipelines()["slug"].tolist() == ["site"]


@pytest.mark.long
def test_the_past_is_found_though_the_time_of_a_sync_went_back(service, ws, store):
    versions = {}
    for hours in (0.0, 48.0, 48.0, 0.0, 0.0):
        live(service, 2)
        done = sync(service, ws, store, lambda i, hours=hours: hours)
        versions[done.version] = (service.now, hours)
    path = store.files("builds")[0].split("/builds/")[0]
    for version, (at, hours) in versions.items():
        if not hours:
            assert bf.Store(path, as_of=at).version == version
    assert bf.Store(path, as_of="1h").version == max(v for v, (at, _) in versions.items() if at < service.now)


BEHIND = SKEWS["all are of 1970"](0)


HOURS = [(0, 0, 720), (0, 720, 720), (0, BEHIND, 0), (0, 720, 0), (0, 720, BEHIND)]


@pytest.fixture(scope="module", params=HOURS, ids=str)
def wrongly_dated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A store after syncs whose dates were so many hours ahead, and its versions."""
    folder, versions, service = tmp_path_factory.mktemp("wrongly-dated"), [], Service()
    service.is_simulated = False
    with (
        pytest.MonkeyPatch.context() as patch,
        bf.connect("acme", base_url=service.url, token="an-invented-token") as ws,
    ):
        set_clock(patch)
        for ahead in request.param:
            live(service, 2)
            versions.append(sync(service, ws, bf.Store(folder), lambda i, ahead=ahead: ahead).version)
    service.stop()
    return folder, versions


@pytest.mark.long
def test_a_cleaning_after_wrong_dates_keeps_what_is_young(wrongly_dated, tmp_path):
    """By the clock of this machine all was done two days ago, or, as that is wrong, too, 60 days ago."""
    folder, versions = wrongly_dated
    for days, kept in ((2, versions), (60, versions[:1])):
        store = bf.Store(shutil.copytree(folder, tmp_path / f"{days}"))
        make_older(Path(store.url), days)
        assert store.clean("7d") == 0
        assert all(len(bf.Store(store.url, as_of=version).builds()) for version in kept)


@pytest.mark.long
def test_a_version_that_is_dated_far_ahead_is_cleaned_in_time(service, ws, store):
    live(service, 2)
    old = sync(service, ws, store, lambda i: 876_000.0).version
    go_on(service, days=30)
    live(service, 2)
    sync(service, ws, store)
    make_older(Path(store.url), 60)
    store.clean("7d")
    with pytest.raises(bf.BadInput, match="first readable sync"):
        bf.Store(store.url, as_of=old).builds()


# --- a warning


@pytest.mark.long
@pytest.mark.parametrize("hours", [48.0, -3.0])
def test_a_clock_that_moves_otherwise_than_that_of_this_machine_is_warned_of(service, ws, store, hours):
    sync(service, ws, store)
    go_on(service, hours=5)
    service.date = lambda path: format_datetime(service.now + dt.timedelta(hours=hours), usegmt=True)
    with pytest.warns(UserWarning, match="clock has advanced by 2 .* by 5 h"):
        done = store.sync(ws, since="10d", progress=False)
    assert done.complete


@pytest.mark.long
def test_clocks_that_agree_or_are_of_a_sandbox_are_not(service, ws, store):
    for is_simulated, here in ((False, 0.9), (True, 48.0), (False, -0.9)):
        sync(service, ws, store)
        go_on(service, hours=5)
        service.later(hours=here)
        service.is_simulated = is_simulated
        service.date = lambda path: format_datetime(service.now, usegmt=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.sync(ws, since="10d", progress=False)


@pytest.mark.long
def test_a_sandbox_says_so():
    with worlds.sandbox(builds=60, days=2) as ci:
        assert ci.builds(progress=False).attrs["simulated"] is True


# --- a response without a date


def test_a_response_without_a_readable_date_is_requested_again(service, ws, store, monkeypatch):
    monkeypatch.setattr("buildframe.http.retry._backoff", lambda state: 0.0)
    service.add(1, "passed")
    unreadable = (None, "", "soon", "Sun, 01 Nov 12026 12:00:00 GMT")
    dates = iter(unreadable)
    service.date = lambda path: next(dates, format_datetime(service.now, usegmt=True))
    assert store.sync(ws, since="1d", progress=False).complete
    assert next(dates, "all were sent") == "all were sent"
    assert len(store.builds()) == 1
    for date in unreadable:
        service.date = lambda path, date=date: date if path == PIPELINES else format_datetime(service.now, usegmt=True)
        with pytest.raises(bf.Malformed, match="Date header"):
            store.sync(ws, since="1d", progress=False)


# --- ages in a listing


def test_an_age_that_was_counted_from_a_wrong_date_is_not_complete(service, ws):
    service.add(1, "passed", days=2.5)
    service.add(2, "passed", days=0.5)
    ahead = iter([48, 0])
    service.date = lambda path: format_datetime(service.now + dt.timedelta(hours=next(ahead)), usegmt=True)
    with pytest.warns(UserWarning, match="back from 2026-11-03T12:00:00Z"):
        builds = ws.builds(created_from="3d", progress=False)
    assert builds["number"].tolist() == [2]
    assert not builds.attrs["complete"]
    service.date = lambda path: format_datetime(service.now, usegmt=True)
    (left,) = builds.attrs["left"]
    assert ws.builds(**left, progress=False)["number"].tolist() == [2, 1]
