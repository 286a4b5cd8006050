"""Several readers of one walk at the same time, in threads of their own, and the thread that waits for them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from buildframe.errors import ServiceError
from buildframe.fetching.time_pagination import Ask, BuildWalk, Kept, Stretch
from buildframe.http.budget import RequestBudget
from buildframe.http.cancellation import Canceled
from buildframe.http.protocol import Page

T = TypeVar("T")

_PATIENCE = 2.0  # seconds; who still waits for a connection to be made then is left behind, and can do nothing any more
_TICK = 0.1  # seconds; how often the waiting thread looks at the clock, and is open to Ctrl-C on every system


class Crew(Generic[T]):
    """Reads a walk with so many threads; iterate, once, until it is read: a step for each response.

    `results` is what `digest` makes of the answers, in no order. `ask` and `digest` are called in these threads,
    `tick` from time to time in the one that iterates. Used as a context: when it is left, for whatever reason, `cut`
    ends the requests under way. What was read by then is in `results`, and the walk stays as it is. No thread stays
    behind, but for those that wait for a connection to be made, or where who waits for them is interrupted.
    """

    def __init__(
        self,
        walk: BuildWalk,
        ask: Callable[[Ask], Page],
        digest: Callable[[Page, Kept, int], T],
        budget: RequestBudget,
        *,
        workers: int,
        cut: Callable[[], None],
        tick: Callable[[], None],
    ) -> None:
        self._walk = walk
        self._ask = ask
        self._digest = digest
        self._budget = budget
        self._cut = cut
        self._tick = tick
        self._is_failing = self._is_left = False
        self._in_hand = 0  # answers that the walk has counted as read, and that are in no result yet
        self._changed = threading.Condition()
        self.results: list[T] = []  # whoever iterates keeps none: an interrupt could lose it between two steps
        self._news: queue.SimpleQueue[bool | BaseException] = queue.SimpleQueue()  # True: an answer; False: an end
        self._threads = [threading.Thread(target=self._work, name=f"reader-{i}", daemon=True) for i in range(workers)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._walk.is_over:
            self._budget.cancel()
            self._cut()
        with self._changed:
            self._is_left = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._in_hand)
        until = time.monotonic() + _PATIENCE
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, until - time.monotonic()))

    def __iter__(self) -> Iterator[None]:
        """Raises the first error of a worker at once; Canceled when all have ended."""
        halted: Canceled | None = None
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            while news := self._next():
                if isinstance(news, Canceled):
                    halted = halted or news
                elif isinstance(news, BaseException):
                    raise news
                else:
                    yield
        if halted is not None:
            raise halted

    def _next(self) -> bool | BaseException:
        while True:
            self._tick()
            try:
                return self._news.get(timeout=_TICK)
            except queue.Empty:
                if self._budget.is_expired or self._budget.is_canceled:
                    self._budget.check()

    # --- in the readers' threads

    def _work(self) -> None:
        try:
            while (stretch := self._take()) is not None:
                self._read(stretch)
        except BaseException as error:  # it is raised where the user is
            self._news.put(error)
            with self._changed:
                self._is_failing = True
                self._changed.notify_all()
        self._news.put(False)

    def _take(self) -> Stretch | None:
        """A stretch to read, once there is one; None when the walk is over, or was stopped."""
        with self._changed:
            while not (self._budget.is_canceled or self._is_failing or self._walk.is_over):
                stretch = self._walk.start()
                if stretch is not None:
                    return stretch
                self._changed.wait()
            self._changed.notify_all()
            return None

    def _read(self, stretch: Stretch) -> None:
        while stretch.ask is not None:
            ask = stretch.ask
            try:
                page = self._ask(ask)
            except ServiceError as refusal:
                with self._changed:
                    self._check()
                    stretch.refuse(refusal)
                continue
            with self._changed:
                self._check()
                kept = stretch.take(page)
                self._in_hand += 1
                self._changed.notify_all()
            self._hand_over(ask, page, kept)
        with self._changed:
            self._walk.end(stretch)
            self._changed.notify_all()

    def _hand_over(self, ask: Ask, page: Page, kept: Kept) -> None:
        try:
            self.results.append(self._digest(page, kept, ask.number))
        except BaseException as error:
            with self._changed:
                self._walk.doubts.append((ask.window, str(error) or repr(error)))
            raise
        finally:
            with self._changed:
                self._in_hand -= 1
                self._changed.notify_all()
        self._news.put(True)

    def _check(self) -> None:
        """What comes late must not count as read."""
        if self._is_left:
            raise Canceled("it was canceled")
