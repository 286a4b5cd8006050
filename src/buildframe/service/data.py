"""Where a sandbox keeps everything: one SQLite database, in a file or in memory.

Each row holds a record's state for the simulation, its body for answers, and beside them the columns that
filters need. Moments are integers of microseconds.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from buildframe.errors import BadInput, BuildframeError
from buildframe.service.bodies import Bodies
from buildframe.service.engine import Event
from buildframe.service.rules import ACTIVE_JOB, OVER
from buildframe.service.runs import BuildRun
from buildframe.service.world import World

_VERSION = 1
_SCHEMA = """
CREATE TABLE world (what TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE tokens (hash TEXT PRIMARY KEY, user TEXT NOT NULL, scopes TEXT NOT NULL, organizations TEXT NOT NULL);
CREATE TABLE events (at INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, about TEXT NOT NULL);
CREATE TABLE builds (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, organization TEXT NOT NULL, line TEXT NOT NULL,
    number INTEGER NOT NULL, state TEXT NOT NULL, blocked INTEGER NOT NULL, branch TEXT NOT NULL,
    sha TEXT NOT NULL, creator TEXT, created INTEGER NOT NULL, finished INTEGER, over INTEGER NOT NULL,
    run BLOB NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX builds_by_number ON builds (line, number);
CREATE INDEX builds_by_creation ON builds (organization, created, seq);
CREATE INDEX builds_of_line_by_creation ON builds (line, created, seq);
CREATE INDEX active_builds ON builds (seq) WHERE over = 0;
CREATE TABLE meta_data (build INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (build, key));
CREATE TABLE jobs (
    build INTEGER NOT NULL, position INTEGER NOT NULL, line TEXT NOT NULL, state TEXT NOT NULL,
    retried INTEGER NOT NULL, active INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (build, position)
);
CREATE INDEX active_jobs ON jobs (line, state) WHERE active = 1;
"""

Row = tuple[Any, ...]


class Data:
    """The database. Whoever holds `lock` sees one consistent state."""

    def __init__(self, path: Path | None) -> None:
        self.lock = threading.RLock()
        self._path = path
        self._closed = False
        self._db = self._connect()
        try:
            self._open()
        except BaseException:
            self._db.close()
            raise
        self._bodies: Bodies | None = None

    def _connect(self) -> sqlite3.Connection:
        name = ":memory:" if self._path is None else self._path
        try:
            return sqlite3.connect(name, check_same_thread=False, isolation_level=None, timeout=1)
        except sqlite3.OperationalError as why:
            raise BadInput(f"{self._path} cannot be opened ({why}). Does its folder exist?") from None

    def _open(self) -> None:
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except sqlite3.OperationalError as why:
            raise BadInput(f"{self._path} cannot be opened ({why}). Is another sandbox using it?") from None
        except sqlite3.DatabaseError:
            raise BadInput(f"{self._path} is not a sandbox's file.") from None
        if not tables:
            self._db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version != _VERSION:
            raise BadInput(f"{self._path} is not a sandbox's file of this version; delete it or name another.")

    def close(self) -> None:
        """Close the database; what was committed stays in the file."""
        with self.lock:
            self._closed = True
            self._db.close()

    def _check_open(self) -> None:
        if self._closed:
            raise BuildframeError("This sandbox is stopped.")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self.lock:
            self._check_open()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows that a query gives."""
        with self.lock:
            self._check_open()
            return self._db.execute(sql, values).fetchall()

    # --- the world ---

    def load_world(self) -> World | None:
        """The world that the database holds, if it holds one."""
        value = self._value("world")
        if value is None:
            return None
        world = World.decode(value)
        self._bodies = Bodies(world)
        return world

    def create_world(self, world: World) -> None:
        """Start with this world, whose clock stands at its beginning."""
        with self._writing():
            self._put("world", world.encode())
            self._put("now", msgspec.json.encode(world.start))
        self._bodies = Bodies(world)

    @property
    def bodies(self) -> Bodies:
        """How this world's records are written."""
        assert self._bodies is not None
        return self._bodies

    def _value(self, what: str) -> bytes | None:
        found = self.rows("SELECT value FROM world WHERE what = ?", (what,))
        return found[0][0] if found else None

    def _put(self, what: str, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO world VALUES (?, ?)", (what, value))

    # --- what the engine needs ---

    def load_now(self) -> int:
        """The moment up to which everything has happened."""
        value = self._value("now")
        assert value is not None
        return msgspec.json.decode(value, type=int)

    def load_build(self, id: str) -> BuildRun:
        """A build by its UUID."""
        ((run,),) = self.rows("SELECT run FROM builds WHERE id = ?", (id,))
        return msgspec.json.decode(run, type=BuildRun)

    def load_active(self) -> list[BuildRun]:
        """The builds that are not over."""
        found = self.rows("SELECT run FROM builds WHERE over = 0 ORDER BY seq")
        return [msgspec.json.decode(run, type=BuildRun) for (run,) in found]

    def load_events(self) -> list[Event]:
        """What is pending."""
        about = msgspec.json.Decoder(tuple[str, ...])
        found = self.rows("SELECT at, seq, kind, about FROM events")
        return [Event(at, seq, kind, about.decode(text)) for at, seq, kind, text in found]

    def load_counters(self) -> tuple[int, dict[str, int]]:
        """How many builds there are, and the last number of each pipeline."""
        numbers: dict[str, int] = dict(self.rows("SELECT line, max(number) FROM builds GROUP BY line"))
        return self.rows("SELECT coalesce(max(seq), 0) FROM builds")[0][0], numbers

    def save(self, builds: Iterable[BuildRun], events: Iterable[Event], now: int) -> None:
        """Write changed builds, all pending events and the clock in one transaction."""
        changed = list(builds)
        of_builds = [self._build_row(build) for build in changed]
        of_jobs = [row for build in changed for row in self._job_rows(build)]
        meta = [(build.seq, *pair) for build in changed for pair in self.bodies.meta_data(build).items()]
        pending = [(at, seq, kind, msgspec.json.encode(about).decode()) for at, seq, kind, about in events]
        with self._writing():
            self._db.execute("DELETE FROM events")
            for table, rows in (("builds", of_builds), ("jobs", of_jobs), ("meta_data", meta), ("events", pending)):
                self._put_rows(table, rows)
            self._put("now", msgspec.json.encode(now))

    def _put_rows(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._db.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)  # noqa: S608  our own names

    def _build_row(self, build: BuildRun) -> Row:
        line = self.bodies.lines[build.line]
        return (
            build.seq, build.id, line.organization.slug, build.line, build.number, build.state, 0,
            build.commit.branch, build.commit.sha, self.bodies.creator_id(build), build.created, build.finished,
            build.state in OVER, msgspec.json.encode(build), msgspec.json.encode(self.bodies.build(build)),
        )  # fmt: skip

    def _job_rows(self, build: BuildRun) -> Iterator[Row]:
        for position, job in enumerate(build.jobs):
            active, retried = job.state in ACTIVE_JOB, job.retried_in is not None
            body = msgspec.json.encode(self.bodies.job(build, job))
            yield build.seq, position, build.line, job.state, retried, active, body

    # --- tokens ---

    def add_token(self, hashed: str, user: str, scopes: Sequence[str], organizations: Sequence[str]) -> None:
        """Keep a token's hash and what it may do."""
        with self._writing():
            values = (hashed, user, " ".join(scopes), " ".join(organizations))
            self._db.execute("INSERT INTO tokens VALUES (?, ?, ?, ?)", values)

    def find_token(self, hashed: str) -> tuple[str, list[str], list[str]] | None:
        """User, scopes and organizations of a token by its hash."""
        found = self.rows("SELECT user, scopes, organizations FROM tokens WHERE hash = ?", (hashed,))
        return (found[0][0], found[0][1].split(), found[0][2].split()) if found else None
