"""Queue deliveries on disk and in memory, and write them to a store in batches. Does not know HTTP.

Bodies are reduced to the fields that the store keeps, so that no others are written to disk.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from buildframe import webhooks
from buildframe.errors import BadInput, BuildframeError
from buildframe.receiver.write_ahead import Record, WriteAhead
from buildframe.spec import TABLES, Moment
from buildframe.store.retained_columns import Retention
from buildframe.store.store import Store
from buildframe.webhooks import HEADER_NAMES, Event

WRITE_INTERVAL_S = 60.0  # maximum time that a delivery waits before it is written
BATCH_SIZE = 5_000  # deliveries; when this many wait, they are written at once
BATCH_BYTES = 32 * 2**20  # of bodies; converting them to rows needs several times as much memory
MAX_WAITING = 20_000  # deliveries; further ones are refused with status 503
MAX_WAITING_BYTES = 256 * 2**20  # of bodies

_DAY = 86_400.0
_LOG = logging.getLogger("buildframe")


class _QueuedDelivery(NamedTuple):
    """Hold a delivery that waits. It is parsed again when it is written, which saves memory."""

    since: float
    record: Record

    def event(self) -> Event:
        at = Moment.from_us(self.record.received_us)
        return webhooks.parse(self.record.body, {HEADER_NAMES.event[0]: self.record.name}, received_at=at)


class Inbox:
    """
    Accept events from any thread and write them to a store in batches.

    An accepted event stays in the folder `write_ahead` until the store has it. A batch that cannot be written is
    retried. After `close`, the first failure ends the retries.

    Parameters
    ----------
    store : Store
        Store that has been synced at least once.
    personal : bool, default False
        Whether to store names and e-mail addresses.
    env : bool, default False
        Whether to store environment variables.
    every : float, default 60.0
        Maximum time in seconds that an event waits before it is written.
    write_ahead : str or path-like, optional
        Local folder for accepted events. By default `_deliveries` in the folder of the store.

    Raises
    ------
    BadInput
        If the store was never synced, `every` is out of range, or an object store has no `write_ahead`.
    StoreFailed
        If the folder cannot be written.
    """

    def __init__(
        self,
        store: Store,
        *,
        personal: bool = False,
        env: bool = False,
        every: float = WRITE_INTERVAL_S,
        write_ahead: str | os.PathLike[str] | None = None,
    ) -> None:
        if not 0 < every <= _DAY:
            raise BadInput(f"every={every!r} is not a valid interval. Pass seconds: more than 0, at most {_DAY:,.0f}.")
        folder = _folder(store, write_ahead)
        _ = store.covers  # raises BadInput for a store that was never synced
        self._store, self._options, self._every = store, {"personal": personal, "env": env}, every
        self._log = WriteAhead(folder)
        self._arrived: list[tuple[Record, Future[str | None]]] = []
        self._queue: deque[_QueuedDelivery] = deque()
        self._bytes = 0
        self._counts: Counter[str] = Counter()
        self._failures, self._not_before, self._disk_failures, self._batch_size = 0, 0.0, 0, BATCH_SIZE
        self._closing = self._is_last_try = False
        self._changed = threading.Condition()
        self._disk_thread = threading.Thread(target=self._run_disk, name="buildframe write-ahead", daemon=True)
        self._store_thread = threading.Thread(target=self._run_store, name="buildframe inbox", daemon=True)

    def start(self) -> None:
        """Start the threads. Deliveries that an earlier receiver left are written first."""
        self._enqueue(self._log.recover(), time.monotonic() - self._every)
        self._disk_thread.start()
        self._store_thread.start()

    def put(self, event: Event) -> Future[str | None]:
        """
        Accept an event.

        Parameters
        ----------
        event : Event
            Verified event.

        Returns
        -------
        Future
            Its result is None when the event is on disk, or the reason of a refusal.
        """
        accepted: Future[str | None] = Future()
        accepted.set_running_or_notify_cancel()  # a canceled request must not cancel it
        record = Record(event.received_at.us, event.name, reduce_body(event.body, **self._options))
        with self._changed:
            many, size = len(self._queue) + len(self._arrived), self._bytes + len(record.body)
            is_full = many >= MAX_WAITING or size > MAX_WAITING_BYTES
            if is_full or self._closing:
                accepted.set_result("Too many deliveries are waiting. Send it again later.")
                return accepted
            self._arrived.append((record, accepted))
            self._bytes += len(record.body)
            self._changed.notify_all()
        return accepted

    def close(self) -> None:
        """Write the waiting events, and stop. Events that cannot be written stay on disk for the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._disk_thread.join()
        with self._changed:
            self._is_last_try = True
            self._changed.notify_all()
        self._store_thread.join()
        self._log.close()

    def status(self) -> dict[str, Any]:
        """
        Return the counts of the inbox.

        Returns
        -------
        dict
            `received`, `builds`, `jobs`, `left_out`, `lost`: totals since the start. `waiting`, `waiting_bytes`,
            `oldest_s`: deliveries that wait, their size, and the age of the oldest in seconds. `failures`,
            `disk_failures`: failed writes since the last success, to the store and to disk.
        """
        with self._changed:
            oldest = time.monotonic() - self._queue[0].since if self._queue else None
            totals = {name: self._counts[name] for name in ("received", "builds", "jobs", "left_out", "lost")}
            waiting = {"waiting": len(self._queue), "waiting_bytes": self._bytes, "oldest_s": oldest}
            return {**totals, **waiting, "failures": self._failures, "disk_failures": self._disk_failures}

    # --- disk thread

    def _run_disk(self) -> None:
        while group := self._group():
            records = [record for record, _ in group]
            why = self._append(records)
            if why is None:
                self._enqueue(records, time.monotonic())
            with self._changed:
                self._bytes -= sum(len(record.body) for record in records)
            for _, accepted in group:
                accepted.set_result(why)

    def _group(self) -> list[tuple[Record, Future[str | None]]]:
        """Return the events that arrived since the last group. They share one flush to disk."""
        with self._changed:
            self._changed.wait_for(lambda: self._arrived or self._closing)
            group, self._arrived = self._arrived, []
            return group

    def _append(self, records: Sequence[Record]) -> str | None:
        try:
            self._log.append(records)
        except OSError as why:
            if not self._disk_failures:
                _LOG.error("Deliveries are refused because %s cannot be written: %s", self._log.folder, why)
            self._disk_failures += 1
            return "The delivery cannot be written to disk now. Send it again later."
        if self._disk_failures:
            _LOG.warning("Deliveries are accepted again: %s can be written", self._log.folder)
            self._disk_failures = 0
        return None

    def _enqueue(self, records: Iterable[Record], since: float) -> None:
        """Add records that are on disk to the queue for the store."""
        with self._changed:
            for record in records:
                self._queue.append(_QueuedDelivery(since, record))
                self._bytes += len(record.body)
                self._counts["received"] += 1
            self._changed.notify_all()

    # --- store thread

    def _run_store(self) -> None:
        while (batch := self._batch()) and self._write(batch):
            pass

    def _batch(self) -> list[_QueuedDelivery]:
        """Wait until it is time to write, and return the next batch. It is empty if the inbox is closed and empty."""
        with self._changed:
            while not self._is_last_try and (left := self._seconds_left()) != 0:
                self._changed.wait(left)
            return self._oldest()

    def _oldest(self) -> list[_QueuedDelivery]:
        """Return the oldest deliveries, as many as one batch may contain."""
        batch: list[_QueuedDelivery] = []
        size = 0
        for delivery in islice(self._queue, min(BATCH_SIZE, self._batch_size)):
            size += len(delivery.record.body)
            if batch and size > BATCH_BYTES:
                break
            batch.append(delivery)
        return batch

    def _seconds_left(self) -> float | None:
        """Return the seconds until the next write; None if the queue is empty."""
        if not self._queue:
            return None
        is_full = len(self._queue) >= BATCH_SIZE or self._bytes >= BATCH_BYTES
        due = 0.0 if is_full else self._queue[0].since + self._every
        return max(0.0, max(due, self._not_before) - time.monotonic())

    def _write(self, batch: Sequence[_QueuedDelivery]) -> bool:
        """Write a batch to the store, and return whether to go on with another."""
        is_last_try = self._is_last_try
        try:
            result = self._store.receive([delivery.event() for delivery in batch], **self._options)
        except BuildframeError as why:
            self._failures, self._not_before = self._failures + 1, time.monotonic() + self._every
            _LOG.warning("%d deliveries could not be written to the store and wait: %s", len(self._queue), why)
            if self._is_last_try:
                _LOG.error("%d deliveries stay in %s until the next start", len(self._queue), self._log.folder)
            return not is_last_try
        except Exception:  # later deliveries must not be blocked
            _LOG.exception("Deliveries could not be converted to rows")
            self._isolate_failure(len(batch))
        else:
            self._drop(len(batch), builds=result.builds, jobs=result.jobs, left_out=result.left_out)
            self._failures, self._batch_size = 0, BATCH_SIZE
        return True

    def _isolate_failure(self, count: int) -> None:
        """Halve the batch until the delivery that cannot be converted is alone. Then drop that delivery."""
        self._batch_size = max(1, count // 2)
        if count == 1:
            _LOG.error("A delivery was dropped. The next sync adds its build")
            self._drop(1, lost=1)

    def _drop(self, count: int, **counts: int) -> None:
        """Remove the oldest deliveries from disk and from the queue."""
        self._log.remove(count)
        with self._changed:
            for _ in range(count):
                self._bytes -= len(self._queue.popleft().record.body)
            self._counts.update(counts)


def _folder(store: Store, write_ahead: str | os.PathLike[str] | None) -> Path:
    """Return the folder of waiting deliveries, by default in the folder of the store."""
    if write_ahead is not None:
        return Path(write_ahead)
    if "://" in store.url:
        raise BadInput(
            f"The store at {store.url} is not a local folder. Set a persistent local folder for waiting deliveries "
            "with --write-ahead (write_ahead=, BUILDFRAME_WRITE_AHEAD)."
        )
    return Path(store.url, "_deliveries")


def reduce_body(body: bytes, *, personal: bool, env: bool) -> bytes:
    """
    Return a body with only the fields of build, job and pipeline that become columns.

    Parameters
    ----------
    body : bytes
        Delivery as JSON.
    personal : bool
        Whether to keep names and e-mail addresses. Ids of people are always kept.
    env : bool
        Whether to keep environment variables.

    Returns
    -------
    bytes
        JSON object.
    """
    fields = _projected(msgspec.Raw(body), webhooks.DELIVERY_ROWS, _excluded_fields(Retention(personal, env)))
    return bytes(memoryview(msgspec.json.encode(fields)))  # the encoder's own bytes use 50 % more memory


@functools.cache
def _excluded_fields(retention: Retention) -> frozenset[str]:
    names = {table: retention.excluded_columns(table) for table in ("builds", "jobs")}
    return frozenset(c.path[0] for table in names for c in TABLES[table] if c.path and c.name in names[table])


def _projected(value: msgspec.Raw, kind: type[msgspec.Struct] | None, excluded: frozenset[str]) -> Any:
    """Return the fields of `value` that become columns. Of excluded fields, only the ids are kept."""
    if kind is None or not bytes(value).lstrip().startswith(b"{"):
        return value
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    return {
        name: _only_id(fields[name]) if name in excluded else _projected(fields[name], inside, excluded)
        for name, inside in _fields(kind).items()
        if name in fields
    }


def _only_id(value: msgspec.Raw) -> Any:
    if not bytes(value).lstrip().startswith(b"{"):
        return None
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    return {name: fields[name] for name in ("id",) if name in fields}


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """Return the fields of a row type, each with its nested struct type, if any, without lists of rows."""
    nested: dict[str, type[msgspec.Struct] | None] = {}
    for field in msgspec.structs.fields(kind):
        kinds = [each for each in (field.type, *get_args(field.type)) if isinstance(each, type)]
        nested[field.encode_name] = next((each for each in kinds if issubclass(each, msgspec.Struct)), None)
    return {name: struct for name, struct in nested.items() if name != "jobs"}
