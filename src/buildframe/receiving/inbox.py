"""Events that wait in memory until a thread writes them to a store, many at once."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from buildframe.errors import BadInput, BuildframeError
from buildframe.store.history import Store
from buildframe.webhooks import Event

EVERY = 60.0
"""Seconds that the oldest event waits at most before it is written."""

MANY = 5_000
"""Events that are written without waiting longer."""

MOST = 20_000
"""Events that may wait; of more the service is told to come again."""

_DAY = 86_400.0
_LOG = logging.getLogger("buildframe")


class Inbox:
    """Takes events from any thread, and writes them to a store in batches until it is closed.

    A batch that cannot be written waits for the next attempt, together with what came meanwhile.
    """

    def __init__(self, store: Store, *, personal: bool = False, env: bool = False, every: float = EVERY) -> None:
        if not 0 < every <= _DAY:
            raise BadInput(f"every={every!r}: pass the seconds that an event may wait, more than 0 and at most a day.")
        _ = store.covers  # refuses a store that was never synced
        self._store, self._keeping, self._every = store, {"personal": personal, "env": env}, every
        self._waiting: deque[tuple[float, Event]] = deque()
        self._counts: Counter[str] = Counter()
        self._failures, self._not_before, self._closing = 0, 0.0, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="buildframe inbox", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, event: Event) -> bool:
        """Take an event; False where too many wait."""
        with self._changed:
            if len(self._waiting) >= MOST or self._closing:
                return False
            self._waiting.append((time.monotonic(), event))
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
            oldest = time.monotonic() - self._waiting[0][0] if self._waiting else None
            written = {name: self._counts[name] for name in ("received", "builds", "jobs", "left_out", "lost")}
            return {**written, "waiting": len(self._waiting), "oldest_s": oldest, "failures": self._failures}

    # --- the thread that writes

    def _run(self) -> None:
        while batch := self._batch():
            self._write(batch)

    def _batch(self) -> list[Event]:
        """What is to be written, once it is time; nothing where it is closed and all is written, or cannot be."""
        with self._changed:
            while not self._closing and (left := self._seconds_left()) != 0:
                self._changed.wait(left)
            if self._closing and self._failures:
                self._give_up(len(self._waiting))
            return [event for _, event in self._waiting]

    def _seconds_left(self) -> float | None:
        """Until it is time to write; None: there is nothing."""
        if not self._waiting:
            return None
        due = 0.0 if len(self._waiting) >= MANY else self._waiting[0][0] + self._every
        return max(0.0, max(due, self._not_before) - time.monotonic())

    def _write(self, batch: Sequence[Event]) -> None:
        try:
            told = self._store.receive(batch, **self._keeping)
        except BuildframeError as why:
            _LOG.warning("%d deliveries could not be written, and wait: %s", len(batch), why)
            with self._changed:
                self._failures, self._not_before = self._failures + 1, time.monotonic() + self._every
        except Exception:  # whatever it is, those that come later must not wait for ever
            _LOG.exception("Deliveries could not be made rows")
            with self._changed:
                self._give_up(len(batch))
        else:
            with self._changed:
                self._drop(len(batch), builds=told.builds, jobs=told.jobs, left_out=told.left_out)
                self._failures = 0

    def _give_up(self, many: int) -> None:
        if many:
            _LOG.error("%d deliveries are lost to the store until its next sync", many)
            self._drop(many, lost=many)

    def _drop(self, many: int, **counts: int) -> None:
        for _ in range(many):
            self._waiting.popleft()
        self._counts.update(counts)
