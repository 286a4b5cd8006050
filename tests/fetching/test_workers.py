"""Readers at work: in whose threads, to which end, and beside what else runs in the process."""

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
from buildframe.http.budget import RequestBudget
from buildframe.http.cancellation import Canceled
from buildframe.http.protocol import Page
from tests.conftest import says
from tests.listing import Answer, evenly, listing
from tests.walked import SECOND, World, at

BUILDS = evenly(1200, every=50, jobs=1)


class Read:
    """A worker pool on a world in memory, and what it called from where."""

    def __init__(
        self,
        workers: int = 4,
        meddle: Callable[[int], None] = lambda number: None,
        digested: Callable[[list[str]], None] = lambda ids: None,
        **budget: Any,
    ) -> None:
        self.world = World(size=10)  # of 300 builds, b300 the newest
        for _ in range(300):
            self.world.create(60 * SECOND, 0)
        self.pagination = TimePagination(TimeRange())
        self.budget = RequestBudget(**budget)
        self.asked_by: list[str] = []
        self.cuts = 0
        self._meddle, self._digested = meddle, digested
        self._lock = threading.Lock()
        self._workers = workers
        self.pool: WorkerPool[list[str]] = WorkerPool(self.pagination, self, workers)

    def fetch(self, query: PageQuery) -> Page:
        self.budget.count_request()
        with self._lock:
            self.asked_by.append(threading.current_thread().name)
            number = len(self.asked_by)
        self._meddle(number)
        answer = self.world.answer(query)
        assert isinstance(answer, Page)
        return answer

    def convert(self, query: PageQuery, page: Page, new: NewRows) -> list[str]:
        ids = [row.id for row in new.rows]
        self._digested(ids)
        return ids

    def useful_workers(self, pages_left: float | None) -> int:
        return self._workers

    def abort(self) -> None:
        self.cuts += 1

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
    def meddle(number: int) -> None:
        if number == at_request:
            raise error

    return meddle


def interrupting(step: int) -> Callable[[], None]:
    """Interrupts whoever iterates, at this step."""
    steps = iter(range(1, 100))

    def interrupt() -> None:
        if next(steps) == step:
            raise KeyboardInterrupt

    return interrupt


def is_found_or_left(read: Read) -> bool:
    left = [
        each.id for each in read.world.builds if any(w.may_contain(at(each.created)) for w in read.pagination.remaining)
    ]
    return {*read.found, *left} == {each.id for each in read.world.builds}


@pytest.mark.parametrize("workers", [1, 4, 8])
def test_a_walk_is_read_to_its_end(workers: int) -> None:
    read = Read(workers, lambda number: time.sleep(0.005))
    steps = read.run()
    assert sorted(read.found) == sorted(build.id for build in read.world.builds)
    assert steps == len(read.pool.batches) == len(read.asked_by)
    assert set(read.asked_by) <= {f"reader-{n}" for n in range(workers)}
    assert len(set(read.asked_by)) == 1 or workers > 1
    assert (readers(), read.cuts, read.budget.is_canceled) == ([], 0, False)


@pytest.mark.parametrize("error", [Unreachable("gone"), Invalid(400, "no"), MemoryError(), KeyError("a bug")])
@pytest.mark.parametrize("number", [1, 4])
def test_an_error_of_a_reader_is_raised_where_the_walk_was_asked_for(error: Exception, number: int) -> None:
    read = Read(4, throwing(error, number))
    with pytest.raises(type(error)) as caught:
        read.run()
    assert caught.value is error
    assert (readers(), read.cuts, read.budget.is_canceled) == ([], 1, True)
    assert not read.pagination.is_over
    assert read.pagination.remaining


def test_who_is_halted_lets_the_others_finish_what_they_asked() -> None:
    read = Read(4, lambda number: time.sleep(0.02), max_requests=9)
    with pytest.raises(Canceled, match="max_requests=9 is used up"):
        read.run()
    assert len(read.asked_by) == len(read.pool.batches) == 9
    assert readers() == []


@pytest.mark.parametrize("step", [1, 3])
def test_an_interrupt_between_two_steps_loses_nothing(step: int) -> None:
    read = Read(4)
    with pytest.raises(KeyboardInterrupt):
        read.run(interrupting(step))
    assert len(read.found) == read.pagination.rows > 0
    assert readers() == []
    assert is_found_or_left(read)


def test_an_answer_that_comes_after_all_was_left_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader was waiting for a connection, say, which nobody can cut off."""
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
    before = read.pagination.remaining, read.pagination.rows, list(read.found)
    connected.set()
    for reader in late:
        reader.join()
    assert (read.pagination.remaining, read.pagination.rows, list(read.found)) == before
    assert is_found_or_left(read)


@pytest.mark.slow
def test_an_answer_that_is_in_hand_when_all_is_left_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_JOIN_TIMEOUT", 0.0)
    begun, interrupted = threading.Event(), threading.Event()

    def slow(ids: list[str]) -> None:
        if "b300" not in ids:
            begun.set()
            interrupted.wait(60)
            time.sleep(0.3)

    read = Read(2, digested=slow)

    def interrupt() -> None:
        begun.wait(60)
        interrupted.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read.run(interrupt)
    assert len(read.found) == read.pagination.rows
    assert is_found_or_left(read)


def test_what_cannot_be_digested_is_doubtful() -> None:
    def fail(ids: list[str]) -> None:
        raise MemoryError

    read = Read(2, digested=fail)
    with pytest.raises(MemoryError):
        read.run()
    assert "MemoryError()" in [doubt for _, doubt in read.pagination.unverified]


def test_who_never_begins_starts_no_thread() -> None:
    with Read().pool:
        assert readers() == []


def test_a_thread_that_cannot_be_started_leaves_no_other_behind(monkeypatch: pytest.MonkeyPatch) -> None:
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


# --- beside others ----------------------------------------------------------------------------------------------------


def test_a_walk_inside_a_running_loop() -> None:
    """As in a notebook: the loop stands still meanwhile, and goes on."""

    async def main() -> tuple[pd.DataFrame, str]:
        later = asyncio.create_task(asyncio.sleep(0, "went on"))
        frame = service.connected().builds(workers=4)
        return frame, await later

    with listing(BUILDS) as service:
        frame, said = asyncio.run(main())
    assert (len(frame), said) == (1200, "went on")


def test_walks_in_threads_of_a_loop() -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(*(asyncio.to_thread(ws.builds, workers=2) for _ in range(3)))

    with listing(BUILDS) as service, service.connected() as ws:
        frames = asyncio.run(main())
    assert [len(frame) for frame in frames] == [1200] * 3


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_several_threads_at_once_get_what_each_asked_for(shared: bool) -> None:
    with listing(BUILDS) as service:
        ws = service.connected()

        def ask(which: int) -> pd.DataFrame:
            asks = ws if shared else service.connected()
            return asks.history(workers=1 + which % 4, created_from=BUILDS[-1 - 100 * which]["created_at"])[which % 2]

        with ThreadPoolExecutor(8) as pool:
            frames = list(pool.map(ask, range(8)))
    for which, frame in enumerate(frames):
        wanted = [each for each in BUILDS if each["number"] > 100 * which]
        ids = [job["id"] for each in wanted for job in each["jobs"]] if which % 2 else [each["id"] for each in wanted]
        assert list(frame["id"]) == ids
        assert frame.attrs["complete"]
    assert sum(frame.attrs["requests"] for frame in frames) == len(service.requests)


def test_one_that_fails_does_not_disturb_another_of_the_same_workspace() -> None:
    def meddle(number: int, query: dict[str, str]) -> Answer | None:
        return says(b"{}", 401) if query.get("branch") == "broken" and "created_to" in query else None

    with listing(BUILDS, meddle) as service, service.connected() as ws, ThreadPoolExecutor(6) as pool:
        walks = [pool.submit(ws.builds, branch="broken" if n % 2 else "main") for n in range(6)]
        assert [len(walk.result()) for walk in walks[::2]] == [1200] * 3
        assert all(isinstance(walk.exception(), bf.Unauthorized) for walk in walks[1::2])


def test_a_limit_is_kept_by_walks_side_by_side() -> None:
    with listing(BUILDS) as service, service.connected() as ws, ThreadPoolExecutor(4) as pool:
        walks = [pool.submit(ws.builds, max_requests=most) for most in (1, 2, 3, 4)]
        frames = [walk.result() for walk in walks]
    assert [frame.attrs["requests"] for frame in frames] == [1, 2, 3, 4]
    assert len(service.requests) == 10
