"""Write the deliveries of an inbox to a store, in batches, in a thread. Does not know HTTP."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from buildframe import webhooks
from buildframe.errors import BadInput, BuildframeError, StoreFailed
from buildframe.receiver.inbox import Inbox, WaitingDelivery
from buildframe.receiver.reduced_bodies import reduce_body
from buildframe.spec import Moment
from buildframe.store import webhook_rows
from buildframe.store.store import Store
from buildframe.webhooks import HEADER_NAMES, Event

WRITE_INTERVAL_S = 60.0  # maximum time that a delivery waits before it is written

_DAY = 86_400.0
_FAILURES = (BuildframeError, OSError, sqlite3.Error)  # of the store and of the inbox
_LOG = logging.getLogger("buildframe")


class StoreWriter:
    """
    Write deliveries to a store, at least every so many seconds. A batch that cannot be written is retried.

    Parameters
    ----------
    store : Store
        Store that has been synced at least once.
    inbox : Inbox
        Where deliveries wait.
    personal : bool
        Whether to store names and e-mail addresses.
    env : bool
        Whether to store environment variables.
    every : float
        Maximum time in seconds that a delivery waits before it is written.

    Raises
    ------
    BadInput
        If `every` is out of range.
    """

    def __init__(self, store: Store, inbox: Inbox, *, personal: bool, env: bool, every: float) -> None:
        self._store, self._inbox, self._every = store, inbox, every
        self._options = {"personal": personal, "env": env}
        if not 0 < every <= _DAY:
            raise BadInput(f"every={every!r} is not a valid interval. Pass seconds: more than 0, at most {_DAY:,.0f}.")
        self._counts: Counter[str] = Counter()
        self._failures = 0
        self._closing = threading.Event()
        self._at_end: dict[str, Any] | None = None
        self._thread = threading.Thread(target=self._run, name="buildframe store writer", daemon=True)

    def start(self) -> None:
        """Open the inbox, and start the thread. It writes first what an earlier receiver left."""
        self._inbox.open()
        self._thread.start()

    def put(self, event: Event) -> Future[str | None]:
        """Accept a verified event. The result is None when it is on disk, or the reason of a refusal."""
        body = reduce_body(event.body, **self._options)
        return self._inbox.put(event.received_at.us, event.name, body)

    def close(self) -> None:
        """Write what waits, and stop. What cannot be written stays in the inbox for the next start."""
        self._inbox.stop()
        self._closing.set()
        self._inbox.is_due.set()
        self._thread.join()
        status = self.status()
        with suppress(*_FAILURES):
            if not self._inbox.take_turn():
                status["waiting"] = 0  # the receiver whose turn it is writes them
        if status["waiting"] != 0:
            count = "An unknown number of" if status["waiting"] is None else status["waiting"]
            _LOG.error("%s deliveries stay in %s until the next start", count, self._inbox.path)
        self._at_end = status
        self._inbox.close()

    def status(self) -> dict[str, Any]:
        """
        Return counts.

        Returns
        -------
        dict
            `received`, `builds`, `jobs`, `left_out`, `lost`: totals since the start. `waiting`, `waiting_bytes`,
            `oldest_s`: deliveries that wait, their size, and the age of the oldest in seconds;
            None if the database cannot be read. `failures`, `disk_failures`: failed writes since
            the last success, to the store and to disk.
        """
        if self._at_end is not None:
            return self._at_end
        try:
            self._inbox.recover()
            waiting, size, since_us = self._inbox.waiting()
        except _FAILURES:  # of the disk, or the database is another one
            waiting, size, since_us = None, None, None
        return {
            "received": self._inbox.received,
            **{name: self._counts[name] for name in ("builds", "jobs", "left_out", "lost")},
            "waiting": waiting,
            "waiting_bytes": size,
            "oldest_s": None if since_us is None else max(0.0, time.time() - since_us / 1e6),
            "failures": self._failures,
            "disk_failures": self._inbox.failures if waiting is not None else max(1, self._inbox.failures),
        }

    # --- the thread

    def _run(self) -> None:
        is_last = False
        self._write_all()
        while not is_last:
            due = self._closing if self._failures else self._inbox.is_due  # a retry does not come early
            due.wait(self._every)
            self._inbox.is_due.clear()
            is_last = self._closing.is_set()
            self._write_all()

    def _write_all(self) -> None:
        """Write what waits, if no other receiver does so. After any error, it waits for the next try."""
        try:
            while self._inbox.take_turn() and (batch := self._inbox.oldest()):
                self._write(batch)
        except _FAILURES as why:
            self._failures += 1
            _LOG.warning("Deliveries could not be written to the store and wait: %s", why)
        except Exception:
            self._failures += 1
            _LOG.exception("Deliveries could not be written to the store and wait")
        else:
            self._failures = 0

    def _write(self, batch: Sequence[WaitingDelivery]) -> None:
        """Write a batch, or remove those of its deliveries that cannot be converted to rows."""
        try:
            result = self._store.receive([_event(delivery) for delivery in batch], **self._options)
        except (StoreFailed, OSError, sqlite3.Error):
            raise
        except Exception:
            invalid = [delivery for delivery in batch if not _is_valid(delivery)]
            if not invalid:
                raise
            _LOG.exception("%d deliveries were dropped. The next sync adds their builds", len(invalid))
            self._counts["lost"] += len(invalid)
            self._inbox.remove(invalid)
        else:
            self._counts.update(builds=result.builds, jobs=result.jobs, left_out=result.left_out)
            self._inbox.remove(batch)


def _is_valid(delivery: WaitingDelivery) -> bool:
    """Return whether a delivery can be converted to rows."""
    try:
        webhook_rows.rows([_event(delivery)], (), Moment.from_us(0))
    except Exception:
        return False
    return True


def _event(delivery: WaitingDelivery) -> Event:
    """Parse a delivery again, as it arrived."""
    at = Moment.from_us(delivery.received_us)
    return webhooks.parse(delivery.body, {HEADER_NAMES.event[0]: delivery.event}, received_at=at)
