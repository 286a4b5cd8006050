"""Keep deliveries in a SQLite database until the store has them. Does not know events, stores or HTTP.

Several receivers of one store share the database. One at a time writes to the store: the one that has locked a second
file.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
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
_MIN_ROW_BYTES = 100
# Messages of damage that SQLite reports with the code of all other errors
_DAMAGED_SCHEMA = ("no such table", "no such column", "unsupported file format")
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

    A damaged database gets another name, and what can be read of it is copied into a new one.

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
            self._turn = _PrivateDatabase(self.path.with_suffix(".lock"), timeout=0)
            self._open()
        except (OSError, sqlite3.Error) as why:
            raise StoreFailed(
                f"The database {str(self.path)!r} of waiting deliveries cannot be opened: {why}. "
                "Choose another local folder with --write-ahead (write_ahead= in Python). "
                "The receiver creates it, for its own user only."
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
        try:
            if not self._turn.in_transaction:
                self._turn.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as why:
            if _name(why) != "SQLITE_BUSY":  # which means that another receiver writes
                lock = str(self.path.with_suffix(".lock"))
                raise StoreFailed(
                    f"{lock!r} cannot be locked: {why}. Stop the receivers of this store, "
                    "delete the file, and start them again."
                ) from None
        return self._turn.in_transaction

    def oldest(self) -> list[WaitingDelivery]:
        """Return the oldest deliveries, as many as one batch may contain."""
        with self._database:
            self._reopen_if_moved()
            try:
                return list(self._oldest())
            except sqlite3.DatabaseError as why:
                self._replace_damaged(self._connection, why)
                self._reopen_if_moved()
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
                self._replace_damaged(self._connection, why)
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
            _insert_rows(database, deliveries)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._database:
            self._begin()
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def _begin(self) -> None:
        """Begin a transaction in the file at the path, which another receiver may just replace."""
        while not self._connection.in_transaction:
            self._reopen_if_moved()
            self._connection.execute("BEGIN IMMEDIATE")
            if self._connection.is_moved():
                self._connection.execute("ROLLBACK")

    def _reopen_if_moved(self) -> None:
        moved = self._connection
        if moved.is_moved():
            self._open()
            moved.close()

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

    def _open(self, *, may_replace: bool = True) -> None:
        """Open the database, and replace it if it is damaged."""
        database = _PrivateDatabase(self.path, timeout=30)
        try:
            self._prepare(database)
        except BaseException as why:
            with closing(database):
                if not may_replace:
                    raise
                self._replace_damaged(database, why)
            self._open(may_replace=False)
        else:
            self._connection = database

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Set how a database is written, check all of it, and create its tables if it is new."""
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        for setting in _SETTINGS if pages else (*_SETTINGS, *_SETTINGS_OF_NEW):
            database.execute(f"PRAGMA {setting}").fetchall()
        (state,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise sqlite3.DatabaseError(state)
        database.execute("BEGIN IMMEDIATE")
        self._check_owner(database)
        database.execute("COMMIT")
        database.execute(f"PRAGMA max_page_count = {MAX_BYTES // _PAGE_BYTES}")

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

    def _replace_damaged(self, damaged: _PrivateDatabase, why: BaseException) -> None:
        """Put a copy with the intact deliveries in place of a damaged database, if `why` is damage.

        Otherwise raise `why`. Open connections to the damaged file notice that it has moved.
        """
        if not _is_damage(why, self.path):
            raise why
        with self._database:
            try:
                _lock(damaged, self.path)
                if not damaged.is_moved():  # otherwise another receiver has replaced it
                    self._replace_by_copy(damaged, why)
            finally:
                with suppress(sqlite3.Error):
                    damaged.execute("ROLLBACK")

    def _replace_by_copy(self, damaged: sqlite3.Connection, why: BaseException) -> None:
        aside = self.path.with_name(f"{self.path.stem}-damaged-{time.time_ns()}{self.path.suffix}")
        intact = _intact_deliveries(damaged, self.path.stat().st_size // _MIN_ROW_BYTES)
        with TemporaryDirectory(prefix=f"{self.path.stem}-", dir=self.path.parent) as folder:
            copy = Path(folder, self.path.name)
            with closing(_PrivateDatabase(copy, timeout=30)) as database:
                self._prepare(database)
                database.execute("BEGIN IMMEDIATE")
                _insert_rows(database, intact)
                database.execute("COMMIT")
            if os.name == "nt":  # replaces no open file; each receiver has its own folder there
                damaged.close()
            journal = Path(f"{self.path}-journal")
            if journal.exists():  # SQLite would apply it to the copy
                journal.rename(f"{aside}-journal")
            try:
                os.link(self.path, aside)  # so that there is a database at the path at any time
            except OSError:  # the file system has no hard links
                self.path.rename(aside)
            copy.replace(self.path)
        message = "%s was damaged (%s), and is now %s. %d of its deliveries wait. The next sync adds lost ones"
        _LOG.error(message, self.path, why, aside.name, len(intact))


class _PrivateDatabase(sqlite3.Connection):
    """Connection to a database to which no other user can write. It is created if needed."""

    def __init__(self, path: Path, timeout: float) -> None:
        _check_private(path.parent)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _check_private(path)
        with suppress(FileNotFoundError):
            _check_private(Path(f"{path}-journal"))
        self._path = path
        self._status = path.stat()  # if the file is replaced before SQLite opens it, it counts as moved
        super().__init__(path, timeout=timeout, isolation_level=None, check_same_thread=False)
        # A damaged text is no error of its own
        self.text_factory = lambda text: text.decode(errors="replace")

    def is_moved(self) -> bool:
        """Return whether the file is no longer at the path: a receiver or a person has moved it."""
        try:
            return not os.path.samestat(self._path.stat(), self._status)
        except OSError:
            return True


def _check_private(path: Path) -> None:
    """Refuse what another user can write: SQLite deletes any file that a forged journal names."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise OSError(f"{str(path)!r} is a link")
    if os.name != "posix":
        return
    if status.st_uid != os.geteuid():
        raise OSError(f"{str(path)!r} belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"other users can write to {str(path)!r}, until you run `chmod go-w`")


def _lock(damaged: sqlite3.Connection, path: Path) -> None:
    """Wait for transactions of other receivers, and allow no more."""
    if damaged.in_transaction:
        damaged.execute("ROLLBACK")
    try:
        damaged.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as why:
        if not _is_damage(why, path):  # damage that prevents this prevents their transactions, too
            raise


def _is_damage(why: BaseException, path: Path) -> bool:
    """Return whether an error means that the database is damaged, not that something is in the way."""
    is_version = _name(why) == "SQLITE_READONLY" and os.access(path, os.W_OK)  # a damaged number of the file format
    return type(why) is sqlite3.DatabaseError or is_version or str(why).startswith(_DAMAGED_SCHEMA)


def _name(why: BaseException) -> str:
    return getattr(why, "sqlite_errorname", "")


def _insert_rows(database: sqlite3.Connection, deliveries: Sequence[WaitingDelivery]) -> None:
    database.executemany(_INSERT, [delivery[1:] for delivery in deliveries])


def _checksum(received_us: int, event: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(f"{received_us} {event}".encode()))


def _intact_deliveries(damaged: sqlite3.Connection, most: int) -> list[WaitingDelivery]:
    """Read a database of at most so many deliveries: from both ends, and between damage by id."""
    head = _readable(damaged, f"{_SELECT} ORDER BY id")
    before = head[-1].id if head else 0
    tail = _readable(damaged, f"{_SELECT} WHERE id > ? ORDER BY id DESC", before)[::-1]
    after = tail[0].id if tail else before + most
    between: list[WaitingDelivery] = []
    for id in range(max(before + 1, after - most), after):
        between += _readable(damaged, f"{_SELECT} WHERE id = ?", id)
    unique = dict.fromkeys((*head, *between, *tail))  # damaged ids can make the ranges overlap
    return [delivery for delivery in unique if delivery.is_intact]


def _readable(damaged: sqlite3.Connection, query: str, *parameters: int) -> list[WaitingDelivery]:
    """Return the rows of a query, up to the first one that cannot be read."""
    rows: list[WaitingDelivery] = []
    with suppress(sqlite3.Error, OverflowError):  # a damaged id may be the largest one
        rows += map(WaitingDelivery._make, damaged.execute(query, parameters))
    return rows
