"""Several readers of one walk at the same time, in threads of their own, and the thread that waits for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from buildframe.errors import BuildframeError, Invalid
from buildframe.pace import Effort, Halted
from buildframe.walk import Ask, BuildWalk, Kept, Stretch
from buildframe.wire import Page

T = TypeVar("T")

_TICK = 0.1  # seconds; how often the waiting thread looks at the clock, and is open to Ctrl-C on every system


class Crew(Generic[T]):
    """Reads a walk with so many threads; iterate, once, for what `digest` makes of each answer, in no order.

    `ask` and `digest` are called in these threads, `tick` from time to time in the one that iterates. Used as a
    context: when it is left, for whatever reason, `cut` ends the requests under way, and no thread stays behind.
    What was read by then is in `rest`.
    """

    def __init__(
        self,
        walk: BuildWalk,
        ask: Callable[[Ask], Page],
        digest: Callable[[Page, Kept, int], T],
        effort: Effort,
        *,
        workers: int,
        cut: Callable[[], None],
        tick: Callable[[], None],
    ) -> None:
        self._walk = walk
        self._ask = ask
        self._digest = digest
        self._effort = effort
        self._cut = cut
        self._tick = tick
        self._is_failing = False
        self._changed = threading.Condition()
        self._results: queue.SimpleQueue[T | BaseException | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"reader-{i}", daemon=True) for i in range(workers)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._walk.is_over:
            self._effort.stop()
            self._cut()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def __iter__(self) -> Iterator[T]:
        """Raises the first error of a reader at once; Halted, where nothing more may be asked, when all have ended."""
        halted: Halted | None = None
        for _ in self._threads:
            while (result := self._next()) is not None:
                if isinstance(result, Halted):
                    halted = halted or result
                elif isinstance(result, BaseException):
                    raise result
                else:
                    yield result
        if halted is not None:
            raise halted

    @property
    def rest(self) -> list[T]:
        """What was read and not handed out, once it was left."""
        found = []
        while not self._results.empty():
            result = self._results.get()
            if result is not None and not isinstance(result, BaseException):
                found.append(result)
        return found

    def _next(self) -> T | BaseException | None:
        while True:
            self._tick()
            try:
                return self._results.get(timeout=_TICK)
            except queue.Empty:
                if self._effort.seconds_left is not None and self._effort.seconds_left <= 0:
                    self._effort.check()

    # --- in the readers' threads

    def _work(self) -> None:
        try:
            while (stretch := self._take()) is not None:
                self._read(stretch)
        except BaseException as error:  # it is raised where the user is
            self._results.put(error)
            with self._changed:
                self._is_failing = True
                self._changed.notify_all()
        self._results.put(None)

    def _take(self) -> Stretch | None:
        """A stretch to read, once there is one; None when the walk is over, or was stopped."""
        with self._changed:
            while not (self._effort.stopped or self._is_failing or self._walk.is_over):
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
            except Invalid as refusal:
                with self._changed:
                    stretch.refuse(refusal)
                continue
            with self._changed:
                kept = stretch.take(page)
                self._changed.notify_all()
            self._hand_over(ask, page, kept)
        with self._changed:
            self._walk.end(stretch)
            self._changed.notify_all()

    def _hand_over(self, ask: Ask, page: Page, kept: Kept) -> None:
        try:
            self._results.put(self._digest(page, kept, ask.number))
        except BuildframeError as error:
            with self._changed:
                self._walk.doubts.append((ask.window, str(error)))
            raise
