"""Deliveries that wait, on disk and in memory, until a thread writes them to a store, many at once."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from buildframe import webhooks
from buildframe.errors import BadInput, BuildframeError
from buildframe.receiving.reduced import reduced
from buildframe.receiving.write_ahead import Record, WriteAhead
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
    record: Record

    def event(self) -> Event:
        at = Moment.from_us(self.record.received_us)
        return webhooks.parse(self.record.body, {HEADER_NAMES.event[0]: self.record.name}, received_at=at)


class Inbox:
    """Takes events from any thread, and writes them to a store in batches until it is closed.

    An event is on disk, in the folder `write_ahead`, before it counts as taken, and until the store has it. A batch
    that cannot be written waits for the next attempt. When it is closed, one failure ends the attempts.
    """

    def __init__(
        self,
        store: Store,
        *,
        personal: bool = False,
        env: bool = False,
        every: float = EVERY,
        write_ahead: str | os.PathLike[str] | None = None,
    ) -> None:
        if not 0 < every <= _DAY:
            raise BadInput(f"every={every!r}: pass the seconds that an event may wait, more than 0 and at most a day.")
        folder = _folder(store, write_ahead)
        _ = store.covers  # refuses a store that was never synced
        self._store, self._keeping, self._every = store, {"personal": personal, "env": env}, every
        self._log = WriteAhead(folder)
        self._arrived: list[tuple[Record, Future[str | None]]] = []
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._counts: Counter[str] = Counter()
        self._failures, self._not_before, self._disk_failures, self._many = 0, 0.0, 0, MANY
        self._closing = self._is_last_try = False
        self._changed = threading.Condition()
        self._keeper = threading.Thread(target=self._keep, name="buildframe write-ahead", daemon=True)
        self._writer = threading.Thread(target=self._run, name="buildframe inbox", daemon=True)

    def start(self) -> None:
        """Begin to write, first what an earlier receiver left."""
        self._wait(self._log.recover(), time.monotonic() - self._every)
        self._keeper.start()
        self._writer.start()

    def put(self, event: Event) -> Future[str | None]:
        """Take an event. The result is None once it is on disk, or says why it was not taken."""
        taken: Future[str | None] = Future()
        taken.set_running_or_notify_cancel()  # so that a request which is canceled cannot cancel it
        record = Record(event.received_at.us, event.name, reduced(event.body, **self._keeping))
        with self._changed:
            many, size = len(self._waiting) + len(self._arrived), self._bytes + len(record.body)
            is_full = many >= MOST or size > MOST_BYTES
            if is_full or self._closing:
                taken.set_result("Too much waits to be written; send it again later.")
                return taken
            self._arrived.append((record, taken))
            self._bytes += len(record.body)
            self._changed.notify_all()
        return taken

    def close(self) -> None:
        """Write what waits, and end; what cannot be written stays on disk for the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._keeper.join()
        with self._changed:
            self._is_last_try = True
            self._changed.notify_all()
        self._writer.join()
        self._log.close()

    def told(self) -> dict[str, Any]:
        """How it stands: what waits and for how long, what was written, how often writing has failed since then."""
        with self._changed:
            oldest = time.monotonic() - self._waiting[0].since if self._waiting else None
            written = {name: self._counts[name] for name in ("received", "builds", "jobs", "left_out", "lost")}
            waiting = {"waiting": len(self._waiting), "waiting_bytes": self._bytes, "oldest_s": oldest}
            return {**written, **waiting, "failures": self._failures, "disk_failures": self._disk_failures}

    # --- the thread that writes to the disk

    def _keep(self) -> None:
        while group := self._group():
            records = [record for record, _ in group]
            why = self._append(records)
            if why is None:
                self._wait(records, time.monotonic())
            with self._changed:
                self._bytes -= sum(len(record.body) for record in records)
            for _, taken in group:
                taken.set_result(why)

    def _group(self) -> list[tuple[Record, Future[str | None]]]:
        """What has arrived since the last group: all of it shares one flush to the disk."""
        with self._changed:
            self._changed.wait_for(lambda: self._arrived or self._closing)
            group, self._arrived = self._arrived, []
            return group

    def _append(self, records: Sequence[Record]) -> str | None:
        try:
            self._log.append(records)
        except OSError as why:
            if not self._disk_failures:
                _LOG.error("Deliveries are refused, because they cannot be written to %s: %s", self._log.folder, why)
            self._disk_failures += 1
            return "The delivery cannot be kept now; send it again later."
        if self._disk_failures:
            _LOG.warning("Deliveries are taken again: they can be written to %s", self._log.folder)
            self._disk_failures = 0
        return None

    def _wait(self, records: Iterable[Record], since: float) -> None:
        """Let records that are on disk wait for the store."""
        with self._changed:
            for record in records:
                self._waiting.append(_Waiting(since, record))
                self._bytes += len(record.body)
                self._counts["received"] += 1
            self._changed.notify_all()

    # --- the thread that writes to the store

    def _run(self) -> None:
        while (batch := self._batch()) and self._write(batch):
            pass

    def _batch(self) -> list[_Waiting]:
        """What is to be written next, once it is time; nothing where it is closed and nothing waits."""
        with self._changed:
            while not self._is_last_try and (left := self._seconds_left()) != 0:
                self._changed.wait(left)
            return self._first()

    def _first(self) -> list[_Waiting]:
        """As many of those that have waited longest as are written at once."""
        first: list[_Waiting] = []
        size = 0
        for waiting in islice(self._waiting, min(MANY, self._many)):
            size += len(waiting.record.body)
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

    def _write(self, batch: Sequence[_Waiting]) -> bool:
        """Write a batch to the store, and return whether to go on with another."""
        is_last_try = self._is_last_try
        try:
            told = self._store.receive([waiting.event() for waiting in batch], **self._keeping)
        except BuildframeError as why:
            self._failed(why)
            return not is_last_try
        except Exception:  # whatever it is, those that come later must not wait for ever
            _LOG.exception("Deliveries could not be made rows")
            self._find_the_one(len(batch))
        else:
            self._drop(len(batch), builds=told.builds, jobs=told.jobs, left_out=told.left_out)
            self._failures, self._many = 0, MANY
        return True

    def _failed(self, why: BuildframeError) -> None:
        self._failures, self._not_before = self._failures + 1, time.monotonic() + self._every
        _LOG.warning("%d deliveries could not be written, and wait: %s", len(self._waiting), why)
        if self._is_last_try:
            _LOG.error("%d deliveries stay in %s until the next start", len(self._waiting), self._log.folder)

    def _find_the_one(self, many: int) -> None:
        """Write fewer at once, until the one that cannot be made rows is alone; give that up."""
        self._many = max(1, many // 2)
        if many == 1:
            _LOG.error("A delivery is lost to the store until its next sync")
            self._drop(1, lost=1)

    def _drop(self, many: int, **counts: int) -> None:
        """Forget the deliveries that have waited longest, on disk and here."""
        self._log.remove(many)
        with self._changed:
            for _ in range(many):
                self._bytes -= len(self._waiting.popleft().record.body)
            self._counts.update(counts)


def _folder(store: Store, write_ahead: str | os.PathLike[str] | None) -> Path:
    """Where deliveries wait on disk: by default in the store's folder."""
    if write_ahead is not None:
        return Path(write_ahead)
    if "://" in store.url:
        raise BadInput(
            f"The store at {store.url} is no folder: name a folder of this machine, which outlasts a restart, for "
            "deliveries that wait, with --write-ahead (write_ahead=, BUILDFRAME_WRITE_AHEAD)."
        )
    return Path(store.url, "_deliveries")
