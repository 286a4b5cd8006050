"""Keep deliveries in a SQLite database until the store has them. Does not know events, stores or HTTP.

Several receivers of one store share the database. One at a time writes to the store: the one that has locked a second
file.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from buildframe.errors import StoreFailed

MAX_BYTES = 256 * 2**20  # of the database; further deliveries are refused
BATCH_SIZE = 5_000  # deliveries
BATCH_BYTES = 32 * 2**20  # of bodies; converting them to rows needs several times as much memory

_PAGE_BYTES = 4096
_SCHEMA = [
    "CREATE TABLE deliveries (id INTEGER PRIMARY KEY, received_us INTEGER NOT NULL, event TEXT NOT NULL,"
    " body BLOB NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE store (id TEXT NOT NULL)",
]
_SELECT = "SELECT id, received_us, event, body, checksum FROM deliveries"
_INSERT = "INSERT INTO deliveries (received_us, event, body, checksum) VALUES (?, ?, ?, ?)"
_SETTINGS = (
    "journal_mode = TRUNCATE",  # SQLite's write-ahead log would lose all that follows a damaged byte, silently
    "synchronous = FULL",
    "fullfsync = ON",  # without it, macOS does not flush the cache of the disk
    "trusted_schema = OFF",
)
_SETTINGS_OF_NEW = (f"page_size = {_PAGE_BYTES}", "auto_vacuum = INCREMENTAL")
_PROBE = ""  # event of a row that only tests whether the file can be written
_LOG = logging.getLogger("buildframe")


class WaitingDelivery(NamedTuple):
    """Hold a delivery: its place, time of receipt (microseconds since 1970), name of the event, body, and checksum."""

    id: int
    received_us: int
    event: str
    body: bytes
    checksum: int

    @property
    def is_intact(self) -> bool:
        """Whether the checksum fits."""
        has_types = isinstance(self.event, str) and isinstance(self.body, bytes)
        return has_types and self.checksum == _checksum(self.received_us, self.event, self.body)


class Inbox:
    """
    Store deliveries in a database. Methods can be called from any thread.

    A damaged database is renamed, never deleted, and what can be read of it is copied into a new one.

    Parameters
    ----------
    path : Path
        Database, which is created if needed.
    store_id : str
        Identity of the store.

    Raises
    ------
    StoreFailed
        If the database cannot be written, or holds deliveries for another store.
    """

    def __init__(self, path: Path, store_id: str) -> None:
        self.path, self._store_id = path, store_id
        self.received = self.failures = 0
        self.is_due = threading.Event()  # when a whole batch has arrived
        self._unread = self._unread_bytes = 0
        self._is_stopped = False
        self._arrived: list[tuple[WaitingDelivery, Future[str | None]]] = []
        self._arrivals, self._database = threading.Lock(), threading.RLock()
        self._committer = ThreadPoolExecutor(1, "buildframe inbox")
        self.open()
        self.close()

    def open(self) -> None:
        """Open the database, and check all of it."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._turn = _connect(self.path.with_suffix(".lock"), timeout=0)
            self._open()
        except (OSError, sqlite3.Error) as why:
            raise StoreFailed(
                f"The database {str(self.path)!r} of waiting deliveries cannot be opened: {why}. "
                "Choose another local folder with --write-ahead (write_ahead= in Python)."
            ) from None

    def put(self, received_us: int, event: str, body: bytes) -> Future[str | None]:
        """Store a delivery. The result is None when it is on disk, or the reason of a refusal.

        Deliveries that arrive at the same time share a transaction.
        """
        stored: Future[str | None] = Future()
        stored.set_running_or_notify_cancel()  # a canceled request must not cancel it
        delivery = WaitingDelivery(0, received_us, event, body, _checksum(received_us, event, body))
        with self._arrivals:
            if self._is_stopped:
                stored.set_result("The receiver is stopping. Send the delivery again.")
            else:
                self._arrived.append((delivery, stored))
                self._committer.submit(self._commit_arrived)
        return stored

    def take_turn(self) -> bool:
        """Return whether this receiver writes to the store: from now on until it is closed or its process ends."""
        with suppress(sqlite3.OperationalError):  # another receiver writes
            if not self._turn.in_transaction:
                self._turn.execute("BEGIN EXCLUSIVE")
        return self._turn.in_transaction

    def oldest(self) -> list[WaitingDelivery]:
        """Return the oldest deliveries, as many as one batch may contain."""
        with self._database:
            self._reopen_if_moved()
            try:
                return list(self._oldest())
            except sqlite3.DatabaseError as why:
                if not _is_damage(why, self.path):
                    raise
                self._replace_damaged(why)
                return list(self._oldest())

    def remove(self, deliveries: Sequence[WaitingDelivery]) -> None:
        """Remove deliveries that are in the store.

        A replaced database has other ids. Then they stay, and are written again, which changes nothing.
        """
        delete = "DELETE FROM deliveries WHERE id = ? AND received_us = ? AND checksum = ?"
        with self._database:
            with self._transaction() as database:
                database.executemany(delete, [(one.id, one.received_us, one.checksum) for one in deliveries])
            if not self.waiting()[0]:
                self._connection.executescript("PRAGMA incremental_vacuum")  # `execute` releases one page only

    def waiting(self) -> tuple[int, int, int | None]:
        """Return the number of waiting deliveries, bytes of their bodies, and when the oldest was received."""
        with self._database:
            self._reopen_if_moved()
            query = "SELECT count(*), total(length(body)), min(received_us) FROM deliveries WHERE event <> ?"
            deliveries, size, since_us = self._connection.execute(query, [_PROBE]).fetchone()
        return deliveries, int(size), since_us

    def recover(self) -> None:
        """After a failure, write a row and delete it, so that the end of the failure shows without a delivery."""
        failures = self.failures
        if not failures:
            return
        with self._database:
            if self._insert([WaitingDelivery(0, 0, _PROBE, bytes(_PAGE_BYTES), 0)]) is None:
                with self._transaction() as database:
                    database.execute("DELETE FROM deliveries WHERE event = ?", [_PROBE])
            else:
                self.failures = failures

    def stop(self) -> None:
        """Store what has arrived, and refuse what comes later."""
        with self._arrivals:
            self._is_stopped = True
        self._committer.shutdown()

    def close(self) -> None:
        """Close the database. What is in it stays."""
        self._connection.close()
        self._turn.close()

    # --- the database

    def _commit_arrived(self) -> None:
        with self._arrivals:
            group, self._arrived = self._arrived, []
        if not group:
            return
        refusal = self._insert([delivery for delivery, _ in group])
        if refusal is None:
            self.received += len(group)
            self._count_unread([delivery for delivery, _ in group])
        for _, stored in group:
            stored.set_result(refusal)

    def _count_unread(self, deliveries: Sequence[WaitingDelivery]) -> None:
        self._unread += len(deliveries)
        self._unread_bytes += sum(len(delivery.body) for delivery in deliveries)
        if self._unread >= BATCH_SIZE or self._unread_bytes >= BATCH_BYTES:
            self._unread = self._unread_bytes = 0
            self.is_due.set()

    def _insert(self, deliveries: Sequence[WaitingDelivery]) -> str | None:
        """Insert deliveries durably. Return None, or the reason of a refusal."""
        try:
            try:
                self._write(deliveries)
            except sqlite3.DatabaseError as why:
                if not _is_damage(why, self.path):
                    raise
                self._replace_damaged(why)
                self._write(deliveries)
        except Exception as why:  # each delivery gets a response
            if not self.failures:
                limit = f" (up to {MAX_BYTES >> 20} MiB may wait)" if _name(why) == "SQLITE_FULL" else ""
                _LOG.error("Deliveries are refused because %s cannot be written: %s%s", self.path, why, limit)
            self.failures += 1
            return "The delivery cannot be written to disk now. Send it again later."
        if self.failures:
            _LOG.warning("Deliveries are accepted again: %s can be written", self.path)
            self.failures = 0
        return None

    def _write(self, deliveries: Sequence[WaitingDelivery]) -> None:
        with self._transaction() as database:
            database.executemany(_INSERT, [delivery[1:] for delivery in deliveries])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._database:
            self._connection.execute("BEGIN IMMEDIATE")
            if self._reopen_if_moved():
                self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def _reopen_if_moved(self) -> bool:
        if self._is_at_path():
            return False
        moved = self._connection
        self._open()
        moved.close()
        return True

    def _is_at_path(self) -> bool:
        """Return whether the open file is still the one at the path. Another receiver or a person may have moved it."""
        with suppress(OSError):
            return os.path.samestat(os.stat(self.path), self._status)
        return False

    def _oldest(self) -> Iterator[WaitingDelivery]:
        query = f"{_SELECT} WHERE event <> ? ORDER BY id LIMIT {BATCH_SIZE}"
        size = 0
        for delivery in map(WaitingDelivery._make, self._connection.execute(query, [_PROBE])):
            if not delivery.is_intact:
                raise sqlite3.DatabaseError(f"delivery {delivery.id} is damaged")
            if size and size + len(delivery.body) > BATCH_BYTES:
                break
            size += len(delivery.body)
            yield delivery

    def _open(self) -> None:
        """Open the database, or replace it if it is damaged."""
        try:
            self._connection = self._checked()
        except sqlite3.DatabaseError as why:
            if not _is_damage(why, self.path):
                raise
            self._replace_damaged(why)

    def _checked(self) -> sqlite3.Connection:
        """Open the database, and check all of it."""
        connection = _connect(self.path, timeout=30)
        try:
            self._status = os.stat(self.path)
            _prepare(connection)
            (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise sqlite3.DatabaseError(state)
            connection.execute("BEGIN IMMEDIATE")
            self._check_owner(connection)
            connection.execute("COMMIT")
            connection.execute(f"PRAGMA max_page_count = {MAX_BYTES // _PAGE_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        """Create the tables in a new database; check that an existing one is of this version and store."""
        tables = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master ORDER BY rowid")]
        if not tables:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO store VALUES (?)", [self._store_id])
        elif tables != _SCHEMA or connection.execute("SELECT id FROM store").fetchall() != [(self._store_id,)]:
            raise StoreFailed(
                f"{str(self.path)!r} holds deliveries for another store, which was at this address before, or is of "
                "another version, or damaged. Move the file to another folder, and sync: a sync adds what deliveries "
                "report."
            )

    def _replace_damaged(self, why: Exception) -> None:
        """Rename the damaged database, and copy its intact deliveries into a new one."""
        with self._database:
            if not self._is_at_path():  # another receiver has replaced it
                self._connection = self._checked()
                return
            aside = self.path.with_name(f"{self.path.stem}-damaged-{time.time_ns()}{self.path.suffix}")
            journal = Path(f"{self.path}-journal")
            if journal.exists():  # SQLite would apply it to the new database
                journal.rename(f"{aside}-journal")
            self.path.rename(aside)
            self._connection = self._checked()
            intact = _intact_deliveries(aside)
            self._write(intact)
        message = "%s was damaged (%s), and is now %s. %d of its deliveries wait. The next sync adds lost ones"
        _LOG.error(message, self.path, why, aside.name, len(intact))


def _is_damage(why: Exception, path: Path) -> bool:
    """Return whether an error means that the database is damaged, not that something is in the way."""
    is_version = _name(why) == "SQLITE_READONLY" and os.access(path, os.W_OK)  # a damaged number of the file format
    return type(why) is sqlite3.DatabaseError or is_version or _name(why) == "SQLITE_ERROR"


def _name(why: Exception) -> str:
    return getattr(why, "sqlite_errorname", "")


def _connect(path: Path, timeout: float) -> sqlite3.Connection:
    """Connect to a database that only its owner can read; create it if needed."""
    if path.is_symlink():
        raise OSError(f"{path.name} is a link")
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda text: text.decode(errors="replace")  # a damaged text is no error of its own
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Set how a database is written. What the file itself records is set in a new one only."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    for setting in _SETTINGS if pages else (*_SETTINGS, *_SETTINGS_OF_NEW):
        connection.execute(f"PRAGMA {setting}").fetchall()


def _checksum(received_us: int, event: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(f"{received_us} {event}".encode()))


def _intact_deliveries(path: Path) -> list[WaitingDelivery]:
    """Read a damaged database, one delivery after the other."""
    found: list[WaitingDelivery] = []
    with suppress(sqlite3.DatabaseError), closing(_connect(path, timeout=30)) as connection:
        first, last = connection.execute("SELECT min(id), max(id) FROM deliveries").fetchone()
        for id in range(first or 0, min(last or 0, (first or 0) + MAX_BYTES // 100) + 1):
            with suppress(sqlite3.Error):
                found += map(WaitingDelivery._make, connection.execute(f"{_SELECT} WHERE id = ?", [id]))
    return [delivery for delivery in found if delivery.is_intact]
