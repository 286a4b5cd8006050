"""Deliveries that wait in memory until a thread writes them to a store, many at once."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from buildframe import webhooks
from buildframe.errors import BadInput, BuildframeError
from buildframe.spec import Moment
from buildframe.store.history import Store
from buildframe.webhooks import HEADER_NAMES, Event

EVERY = 60.0
"""Seconds that the oldest delivery waits at most before it is written."""

MANY = 5_000
"""Deliveries that are written without waiting longer, and at most at once."""

MANY_BYTES = 32 * 2**20
"""Bytes of their bodies, likewise: rows and columns need several times as many while they are made."""

MOST = 20_000
"""Deliveries that may wait; of more the service is told to come again."""

MOST_BYTES = 256 * 2**20
"""Bytes of their bodies, likewise."""

_DAY = 86_400.0
_LOG = logging.getLogger("buildframe")


class _Waiting(NamedTuple):
    """A delivery without its records, which hold what the body holds; they are read again when it is written."""

    since: float
    name: str
    received_at: Moment
    body: bytes

    def event(self) -> Event:
        return webhooks.parse(self.body, {HEADER_NAMES.event[0]: self.name}, received_at=self.received_at)


class Inbox:
    """Takes events from any thread, and writes them to a store in batches until it is closed.

    A batch that cannot be written waits for the next attempt. When it is closed, one failure ends the attempts.
    """

    def __init__(self, store: Store, *, personal: bool = False, env: bool = False, every: float = EVERY) -> None:
        if not 0 < every <= _DAY:
            raise BadInput(f"every={every!r}: pass the seconds that an event may wait, more than 0 and at most a day.")
        _ = store.covers  # refuses a store that was never synced
        self._store, self._keeping, self._every = store, {"personal": personal, "env": env}, every
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._counts: Counter[str] = Counter()
        self._failures, self._not_before = 0, 0.0
        self._closing = self._is_last_try = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="buildframe inbox", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, event: Event) -> bool:
        """Take an event; False where too many wait, or too large ones."""
        with self._changed:
            is_full = len(self._waiting) >= MOST or self._bytes + len(event.body) > MOST_BYTES
            if is_full or self._closing:
                return False
            self._waiting.append(_Waiting(time.monotonic(), event.name, event.received_at, event.body))
            self._bytes += len(event.body)
            self._counts["received"] += 1
            self._changed.notify()
        return True

    def close(self) -> None:
        """Write what waits, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def told(self) -> dict[str, Any]:
        """How it stands: what waits and for how long, what was written, how often writing has failed since then."""
        with self._changed:
            oldest = time.monotonic() - self._waiting[0].since if self._waiting else None
            written = {name: self._counts[name] for name in ("received", "builds", "jobs", "left_out", "lost")}
            waiting = {"waiting": len(self._waiting), "waiting_bytes": self._bytes, "oldest_s": oldest}
            return {**written, **waiting, "failures": self._failures}

    # --- the thread that writes

    def _run(self) -> None:
        while batch := self._batch():
            self._write(batch)

    def _batch(self) -> list[_Waiting]:
        """What is to be written next, once it is time; nothing where it is closed and nothing waits."""
        with self._changed:
            while not self._closing and (left := self._seconds_left()) != 0:
                self._changed.wait(left)
            self._is_last_try = self._closing
            return self._first()

    def _first(self) -> list[_Waiting]:
        """As many of those that have waited longest as are written at once."""
        first: list[_Waiting] = []
        size = 0
        for waiting in islice(self._waiting, MANY):
            size += len(waiting.body)
            if first and size > MANY_BYTES:
                break
            first.append(waiting)
        return first

    def _seconds_left(self) -> float | None:
        """Until it is time to write; None: there is nothing."""
        if not self._waiting:
            return None
        is_many = len(self._waiting) >= MANY or self._bytes >= MANY_BYTES
        due = 0.0 if is_many else self._waiting[0].since + self._every
        return max(0.0, max(due, self._not_before) - time.monotonic())

    def _write(self, batch: Sequence[_Waiting]) -> None:
        try:
            told = self._store.receive([waiting.event() for waiting in batch], **self._keeping)
        except BuildframeError as why:
            self._failed(why)
        except Exception:  # whatever it is, those that come later must not wait for ever
            _LOG.exception("Deliveries could not be made rows")
            with self._changed:
                self._give_up(len(batch))
        else:
            with self._changed:
                self._drop(len(batch), builds=told.builds, jobs=told.jobs, left_out=told.left_out)
                self._failures = 0

    def _failed(self, why: BuildframeError) -> None:
        _LOG.warning("%d deliveries could not be written, and wait: %s", len(self._waiting), why)
        with self._changed:
            self._failures, self._not_before = self._failures + 1, time.monotonic() + self._every
            if self._is_last_try:
                self._give_up(len(self._waiting))

    def _give_up(self, many: int) -> None:
        _LOG.error("%d deliveries are lost to the store until its next sync", many)
        self._drop(many, lost=many)

    def _drop(self, many: int, **counts: int) -> None:
        for _ in range(many):
            self._bytes -= len(self._waiting.popleft().body)
        self._counts.update(counts)
