"""Read a paginated listing of builds with several threads. Knows pages and threads; does not know HTTP."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from buildframe.errors import ServiceError
from buildframe.fetching.listing_state import NewRows, PageQuery, PagesShrunk
from buildframe.fetching.ordering import Batch
from buildframe.fetching.range_reader import Reader
from buildframe.fetching.source import BuildPages
from buildframe.fetching.time_pagination import TimePagination
from buildframe.http.budget import Canceled
from buildframe.http.protocol import Page

_JOIN_TIMEOUT = 2.0  # seconds; threads that still connect by then are abandoned, and can do nothing any more
_TICK = 0.1  # seconds; how often the calling thread checks the deadline, and can receive Ctrl-C on every system


class WorkerPool:
    """Reads a listing with threads. Iterate once: yields True for each new batch, and False about every 0.1 s.

    `batches` contains the results so far, in any order. When the context ends for whatever reason, pending requests are
    aborted, and the pagination keeps what is left to read. No thread stays behind, except for those that still connect,
    or if the wait for them is interrupted.
    """

    def __init__(self, pagination: TimePagination, pages: BuildPages, workers: int) -> None:
        self._pagination = pagination
        self._pages = pages
        self._budget = pages.budget
        self._has_failed = self._is_closed = False
        self._in_conversion = 0  # pages that the pagination counts as read, and that are not in `batches` yet
        self._changed = threading.Condition()
        self.batches: list[Batch] = []  # not yielded: an interrupt could lose them between two steps
        self._events: queue.SimpleQueue[bool | BaseException] = queue.SimpleQueue()  # True: a batch; False: thread ends
        self._threads = [threading.Thread(target=self._work, name=f"reader-{i}", daemon=True) for i in range(workers)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._pagination.is_over:
            self._budget.cancel()
            self._pages.abort()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._in_conversion)
        until = time.monotonic() + _JOIN_TIMEOUT
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, until - time.monotonic()))

    def __iter__(self) -> Iterator[bool]:
        """Raise the first error of a worker at once, but Canceled only when all have ended."""
        canceled: Canceled | None = None
        for thread in self._threads:
            thread.start()
        running = len(self._threads)
        while running:
            event = self._next_event()
            if isinstance(event, Canceled):
                canceled = canceled or event
            elif isinstance(event, BaseException):
                raise event
            elif event is False:
                running -= 1
            else:
                yield event is True
        if canceled is not None:
            raise canceled

    def _next_event(self) -> bool | BaseException | None:
        """Return the next event, or None if there is none for a while."""
        try:
            return self._events.get(timeout=_TICK)
        except queue.Empty:
            if self._budget.is_expired or self._budget.is_canceled:
                self._budget.check()
            return None

    # --- in the threads of the workers

    def _work(self) -> None:
        try:
            while (reader := self._next_reader()) is not None:
                self._read(reader)
        except BaseException as error:  # it is raised in the calling thread
            self._events.put(error)
            with self._changed:
                self._has_failed = True
                self._changed.notify_all()
        self._events.put(False)

    def _next_reader(self) -> Reader | None:
        """Wait for a reader; return None when the listing is over, was canceled or has failed."""
        with self._changed:
            while not (self._budget.is_canceled or self._has_failed or self._pagination.is_over):
                reader = self._pagination.start(self._pages.useful_workers(self._pagination.pages_left))
                if reader is not None:
                    return reader
                self._changed.wait()
            self._changed.notify_all()
            return None

    def _read(self, reader: Reader) -> None:
        while (query := reader.query) is not None:
            try:
                page = self._pages.fetch(query)
            except (ServiceError, PagesShrunk) as refusal:
                with self._changed:
                    self._check_open()
                    reader.refuse(refusal)
                continue
            with self._changed:
                self._check_open()
                new = reader.take(page)
                self._in_conversion += 1
                self._changed.notify_all()
            self._convert(query, page, new)
        with self._changed:
            self._pagination.end(reader)
            self._changed.notify_all()

    def _convert(self, query: PageQuery, page: Page, new: NewRows) -> None:
        try:
            self.batches.append(self._pages.convert(query, page, new))
        except BaseException as error:
            with self._changed:
                self._pagination.state.unverified.append((query.range, str(error) or repr(error)))
            raise
        finally:
            with self._changed:
                self._in_conversion -= 1
                self._changed.notify_all()
        self._events.put(True)

    def _check_open(self) -> None:
        """Raise Canceled if a page comes too late to count as read."""
        if self._is_closed:
            raise Canceled("it was canceled")
