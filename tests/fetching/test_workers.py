"""The worker pool: its threads, its errors and interrupts, and listings beside event loops and other threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe.errors import Invalid, Unreachable
from buildframe.fetching import workers
from buildframe.fetching.listing_state import NewRows, PageQuery
from buildframe.fetching.time_pagination import TimePagination
from buildframe.fetching.time_ranges import TimeRange
from buildframe.fetching.workers import WorkerPool
from buildframe.http.budget import Canceled, RequestBudget
from buildframe.http.protocol import Page
from tests.conftest import says
from tests.in_memory_service import SECOND, InMemoryService, at
from tests.listing import Responder, evenly, listing

BUILDS = evenly(1200, every=50, jobs=1)


class Read:
    """A worker pool on a service in memory, with a record of its calls and their threads."""

    def __init__(
        self,
        workers: int = 4,
        on_request: Callable[[int], None] = lambda number: None,
        on_convert: Callable[[list[str]], None] = lambda ids: None,
        **budget: Any,
    ) -> None:
        self.service = InMemoryService(size=10)  # of 300 builds, b300 the newest
        for _ in range(300):
            self.service.create(60 * SECOND, 0)
        self.pagination = TimePagination(TimeRange())
        self.budget = RequestBudget(**budget)
        self.requested_by: list[str] = []
        self.aborts = 0
        self._on_request, self._on_convert = on_request, on_convert
        self._lock = threading.Lock()
        self._workers = workers
        self.pool: WorkerPool = WorkerPool(self.pagination, self, workers)

    def fetch(self, query: PageQuery) -> Page:
        self.budget.count_request()
        with self._lock:
            self.requested_by.append(threading.current_thread().name)
            number = len(self.requested_by)
        self._on_request(number)
        page = self.service.respond(query)
        assert isinstance(page, Page)
        return page

    def convert(self, query: PageQuery, page: Page, new: NewRows) -> list[str]:
        ids = [row.id for row in new.rows]
        self._on_convert(ids)
        return ids

    def useful_workers(self, pages_left: float | None) -> int:
        return self._workers

    def abort(self) -> None:
        self.aborts += 1

    def run(self, step: Callable[[], None] = lambda: None) -> int:
        steps = 0
        with self.pool:
            for is_new in self.pool:
                if is_new:
                    steps += 1
                    step()
        return steps

    @property
    def found(self) -> list[str]:
        return [id for part in self.pool.batches for id in part]


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("reader-")]


def throwing(error: BaseException, at_request: int) -> Callable[[int], None]:
    def throw(number: int) -> None:
        if number == at_request:
            raise error

    return throw


def interrupting(step: int) -> Callable[[], None]:
    """Return a function that raises KeyboardInterrupt at this step."""
    steps = iter(range(1, 100))

    def interrupt() -> None:
        if next(steps) == step:
            raise KeyboardInterrupt

    return interrupt


def is_found_or_left(read: Read) -> bool:
    left = [
        each.id
        for each in read.service.builds
        if any(w.may_contain(at(each.created)) for w in read.pagination.remaining)
    ]
    return {*read.found, *left} == {each.id for each in read.service.builds}


@pytest.mark.parametrize("workers", [1, 4, 8])
def test_all_builds_are_read(workers: int) -> None:
    read = Read(workers, lambda number: time.sleep(0.005))
    steps = read.run()
    assert sorted(read.found) == sorted(build.id for build in read.service.builds)
    assert steps == len(read.pool.batches) == len(read.requested_by)
    assert set(read.requested_by) <= {f"reader-{n}" for n in range(workers)}
    assert len(set(read.requested_by)) == 1 or workers > 1
    assert (readers(), read.aborts, read.budget.is_canceled) == ([], 0, False)


def test_an_error_of_a_worker_is_raised_in_the_calling_thread() -> None:
    for error, number in [
        (Unreachable("gone"), 1),
        (Invalid(400, "no"), 4),
        (MemoryError(), 4),
        (KeyError("a bug"), 4),
    ]:
        read = Read(4, throwing(error, number))
        with pytest.raises(type(error)) as caught:
            read.run()
        assert caught.value is error
        assert (readers(), read.aborts, read.budget.is_canceled) == ([], 1, True)
        assert not read.pagination.is_over
        assert read.pagination.remaining


def test_all_requests_are_finished_if_the_budget_is_used_up() -> None:
    read = Read(4, lambda number: time.sleep(0.02), max_requests=9)
    with pytest.raises(Canceled, match="max_requests=9 is used up"):
        read.run()
    assert len(read.requested_by) == len(read.pool.batches) == 9
    assert readers() == []


@pytest.mark.parametrize("step", [1, 3])
def test_an_interrupt_between_two_steps_loses_nothing(step: int) -> None:
    read = Read(4)
    with pytest.raises(KeyboardInterrupt):
        read.run(interrupting(step))
    assert len(read.found) == len(read.pagination.state.created) > 0
    assert readers() == []
    assert is_found_or_left(read)


def test_a_response_after_an_interrupt_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker may have waited for a connection, for example, which cannot be aborted."""
    monkeypatch.setattr(workers, "_JOIN_TIMEOUT", 0.05)
    connected = threading.Event()

    def stuck(number: int) -> None:
        if number == 3:
            connected.wait(60)

    read = Read(2, stuck)
    with pytest.raises(KeyboardInterrupt):
        read.run(interrupting(step=4))
    late = readers()
    assert late
    before = read.pagination.remaining, len(read.pagination.state.created), list(read.found)
    connected.set()
    for reader in late:
        reader.join()
    assert (read.pagination.remaining, len(read.pagination.state.created), list(read.found)) == before
    assert is_found_or_left(read)


def test_an_interrupt_waits_for_a_response_that_is_being_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_JOIN_TIMEOUT", 0.0)
    begun, interrupted = threading.Event(), threading.Event()

    def slow(ids: list[str]) -> None:
        if "b300" not in ids:
            begun.set()
            interrupted.wait(60)
            time.sleep(0.3)

    read = Read(2, on_convert=slow)

    def interrupt() -> None:
        begun.wait(60)
        interrupted.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read.run(interrupt)
    assert len(read.found) == len(read.pagination.state.created)
    assert is_found_or_left(read)


def test_a_page_that_cannot_be_converted_is_unverified() -> None:
    def fail(ids: list[str]) -> None:
        raise MemoryError

    read = Read(2, on_convert=fail)
    with pytest.raises(MemoryError):
        read.run()
    assert "MemoryError()" in [reason for _, reason in read.pagination.state.unverified]


def test_a_pool_that_is_not_iterated_starts_no_thread() -> None:
    with Read().pool:
        assert readers() == []


def test_no_thread_remains_if_another_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, list[int]()

    def start_two(thread: threading.Thread) -> None:
        started.append(1)
        if len(started) > 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    read = Read(4, lambda number: time.sleep(0.05))
    monkeypatch.setattr(threading.Thread, "start", start_two)
    with pytest.raises(RuntimeError, match="can't start"):
        read.run()
    assert readers() == []


# --- event loops and other threads ------------------------------------------------------------------------------------


def test_a_listing_inside_a_running_loop() -> None:
    """As in a notebook: the loop is blocked during the listing and continues afterwards."""

    async def main() -> tuple[pd.DataFrame, str]:
        later = asyncio.create_task(asyncio.sleep(0, "went on"))
        frame = service.connected().builds(workers=4)
        return frame, await later

    with listing(BUILDS) as service:
        frame, said = asyncio.run(main())
    assert (len(frame), said) == (1200, "went on")


@pytest.mark.long
def test_listings_in_threads_of_a_loop() -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(*(asyncio.to_thread(ws.builds, workers=2) for _ in range(3)))

    with listing(BUILDS) as service, service.connected() as ws:
        frames = asyncio.run(main())
    assert [len(frame) for frame in frames] == [1200] * 3


@pytest.mark.long
@pytest.mark.parametrize("shared", [True, False])
def test_concurrent_threads_get_their_own_results(shared: bool) -> None:
    with listing(BUILDS) as service:
        ws = service.connected()

        def history(which: int) -> pd.DataFrame:
            workspace = ws if shared else service.connected()
            return workspace.history(workers=1 + which % 4, created_from=BUILDS[-1 - 100 * which]["created_at"])[
                which % 2
            ]

        with ThreadPoolExecutor(8) as pool:
            frames = list(pool.map(history, range(8)))
    for which, frame in enumerate(frames):
        wanted = [each for each in BUILDS if each["number"] > 100 * which]
        ids = [job["id"] for each in wanted for job in each["jobs"]] if which % 2 else [each["id"] for each in wanted]
        assert list(frame["id"]) == ids
        assert frame.attrs["complete"]
    assert sum(frame.attrs["requests"] for frame in frames) == len(service.requests)


@pytest.mark.long
def test_a_failing_listing_does_not_disturb_others_of_the_same_workspace() -> None:
    def override(number: int, query: dict[str, str]) -> Responder | None:
        return says(b"{}", 401) if query.get("branch") == "broken" and "created_to" in query else None

    with listing(BUILDS, override) as service, service.connected() as ws, ThreadPoolExecutor(6) as pool:
        results = [pool.submit(ws.builds, branch="broken" if n % 2 else "main") for n in range(6)]
        assert [len(each.result()) for each in results[::2]] == [1200] * 3
        assert all(isinstance(each.exception(), bf.Unauthorized) for each in results[1::2])


def test_concurrent_listings_keep_their_own_limits() -> None:
    with listing(BUILDS) as service, service.connected() as ws, ThreadPoolExecutor(4) as pool:
        results = [pool.submit(ws.builds, max_requests=most) for most in (1, 2, 3, 4)]
        frames = [each.result() for each in results]
    assert [frame.attrs["requests"] for frame in frames] == [1, 2, 3, 4]
    assert len(service.requests) == 10
