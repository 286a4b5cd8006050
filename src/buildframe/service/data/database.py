"""Where a sandbox keeps everything: one SQLite database, in a file or in memory.

Each row holds a record's state for the simulation, its body for answers, and beside them the columns that
filters need. Moments are integers of microseconds.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from buildframe.errors import BadInput, BuildframeError
from buildframe.service.data.access import Access
from buildframe.service.data.bodies import Bodies
from buildframe.service.data.outbox import SCHEMA as OUTBOX
from buildframe.service.data.outbox import Outbox
from buildframe.service.data.teams import first_teams
from buildframe.service.life.changes import Event, Notice
from buildframe.service.life.rules import ACTIVE_JOB, is_over
from buildframe.service.world.lines import Line, Lines, first_lines
from buildframe.service.world.model import World
from buildframe.service.world.records import Pipeline
from buildframe.service.world.runs import BuildRun, JobRun
from buildframe.service.world.steps import Plan, Step

_VERSION = 3
_SCHEMA = """
CREATE TABLE world (what TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE counters (what TEXT PRIMARY KEY, last INTEGER NOT NULL);
CREATE TABLE pipelines (
    key TEXT PRIMARY KEY, organization TEXT NOT NULL, slug TEXT NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL,
    record BLOB NOT NULL, UNIQUE (organization, slug), UNIQUE (organization, name)
);
CREATE TABLE plans (key TEXT PRIMARY KEY, steps BLOB NOT NULL);
CREATE TABLE tokens (hash TEXT PRIMARY KEY, access BLOB NOT NULL);
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
CREATE TABLE teams (
    id TEXT PRIMARY KEY, organization TEXT NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL,
    created INTEGER NOT NULL
);
CREATE TABLE team_pipelines (
    id TEXT PRIMARY KEY, team TEXT NOT NULL, pipeline TEXT NOT NULL, level TEXT NOT NULL, created INTEGER NOT NULL,
    UNIQUE (team, pipeline)
);
CREATE TRIGGER pipeline_gone AFTER DELETE ON pipelines
    BEGIN DELETE FROM team_pipelines WHERE pipeline = old.key; END;
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
        self.outbox: Outbox | None = None
        self._bodies: Bodies | None = None
        self._lines: Lines | None = None

    def _connect(self) -> sqlite3.Connection:
        name = ":memory:" if self._path is None else self._path
        try:
            return sqlite3.connect(name, check_same_thread=False, isolation_level=None, timeout=1)
        except (sqlite3.OperationalError, ValueError) as why:  # the latter of a NUL in the path
            raise BadInput(f"path={str(self._path)!r} cannot be opened ({why}). Does its folder exist?") from None

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
            self._db.executescript(f"BEGIN; {_SCHEMA} {OUTBOX} PRAGMA user_version = {_VERSION}; COMMIT;")
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
    def writing(self) -> Iterator[None]:
        """All that is written within, or nothing; one within another is part of it."""
        with self.lock:
            self._check_open()
            if self._db.in_transaction:
                yield
                return
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

    def write(self, sql: str, values: Sequence[Any]) -> None:
        """Run one statement that changes something."""
        with self.writing():
            self._db.execute(sql, values)

    # --- the world ---

    def load_world(self) -> World | None:
        """The world that the database holds, if it holds one."""
        value = self._value("world")
        if value is None:
            return None
        world = World.decode(value)
        self._lines = self._load_lines(world)
        self._bodies = Bodies(world, self._lines)
        return world

    def create_world(self, world: World) -> None:
        """Start with this world, whose clock stands at its beginning."""
        lines = first_lines(world)
        with self.writing():
            self._put("world", world.encode())
            self._put("now", msgspec.json.encode(world.start))
            for line in lines:
                self._put_line(line)
            teams, team_pipelines = first_teams(world)
            self._put_rows("teams", teams)
            self._put_rows("team_pipelines", team_pipelines)
        self._lines = Lines(lines)
        self._bodies = Bodies(world, self._lines)

    @property
    def lines(self) -> Lines:
        """The pipelines as they are now, shared with whoever needs them."""
        assert self._lines is not None
        return self._lines

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

    # --- pipelines ---

    def _load_lines(self, world: World) -> Lines:
        organizations = {organization.slug: organization for organization in world.organizations}
        found = self.rows("SELECT key, organization, record FROM pipelines ORDER BY position")
        plans = self.rows("SELECT steps FROM plans")
        return Lines(
            (Line(key, organizations[slug], msgspec.json.decode(record, type=Pipeline)) for key, slug, record in found),
            (Plan(msgspec.json.decode(steps, type=tuple[Step, ...])) for (steps,) in plans),
        )

    def put_pipeline(self, line: Line) -> None:
        """Add a pipeline or change it; what is told of its builds follows where its address changes.

        Raises `sqlite3.IntegrityError` where its organization has another of this slug or name.
        """
        with self.lock:
            before = self.lines.get(line.key)
            with self.lines.changing(), self.writing():
                self.lines.put(line)
                self._put_line(line)
                if before is not None and before.path != line.path:
                    self._tell_anew(line)

    def next_pipeline(self) -> int:
        """How many pipelines were created so far, this new one included."""
        with self.writing():
            sql = "INSERT INTO counters VALUES ('pipelines', 1) ON CONFLICT DO UPDATE SET last = last + 1"
            return int(self._db.execute(f"{sql} RETURNING last").fetchone()[0])

    def _put_line(self, line: Line) -> None:
        pipeline, record = line.pipeline, msgspec.json.encode(line.pipeline)
        self._db.execute(
            "INSERT INTO pipelines SELECT ?, ?, ?, ?, (SELECT 1 + coalesce(max(position), 0) FROM pipelines),"
            " ? WHERE true ON CONFLICT (key) DO UPDATE SET slug = excluded.slug, name = excluded.name,"
            " record = excluded.record",
            (line.key, line.organization.slug, pipeline.slug, pipeline.name, record),
        )
        steps = msgspec.json.encode(line.plan.steps)
        self._db.execute("INSERT OR IGNORE INTO plans VALUES (?, ?)", (line.plan.key, steps))

    def _tell_anew(self, line: Line) -> None:
        """Write again the bodies of a pipeline's builds, and of those elsewhere that tell of one of them."""
        named = msgspec.json.encode(line.key)  # only as a value: a message has its quotes escaped
        found = self._db.execute("SELECT run FROM builds WHERE instr(run, ?)", (named,))
        for (run,) in found.fetchall():
            self._put_builds([msgspec.json.decode(run, type=BuildRun)])

    # --- what the engine needs ---

    def load_now(self) -> int:
        """The moment up to which everything has happened."""
        value = self._value("now")
        assert value is not None
        return msgspec.json.decode(value, type=int)

    def load_build(self, id: str) -> BuildRun | None:
        """A build by its UUID, if it is there."""
        found = self.rows("SELECT run FROM builds WHERE id = ?", (id,))
        return msgspec.json.decode(found[0][0], type=BuildRun) if found else None

    def ids_of(self, line: str, numbers: Sequence[int] | None = None) -> set[str]:
        """The UUIDs of a pipeline's builds of these numbers, or of all."""
        found = self.rows("SELECT id, number FROM builds WHERE line = ?", (line,))
        return {id for id, number in found if numbers is None or number in numbers}

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
        counters: dict[str, int] = dict(self.rows("SELECT what, last FROM counters"))
        counters.pop("pipelines", None)
        return counters.pop("builds", 0), counters

    def listens(self, organization: str) -> bool:
        """Whether anyone wants to hear of what happens in an organization."""
        return self.outbox is not None and self.outbox.listens(organization)

    def notice(self, at: int, event: str, build: BuildRun, job: JobRun | None) -> Notice:
        """What is told of an event: the build, in a state that may be `blocked`, and the job, as they are now."""
        told = self.bodies.build(build) | ({"state": "blocked"} if build.blocked else {})
        body = {"build": told} | ({"job": self.bodies.job(build, job)} if job else {})
        organization = self.lines[build.line].organization.slug
        return Notice(at, event, organization, build.id, job.id if job else None, body)

    def save(
        self,
        builds: Iterable[BuildRun],
        events: Iterable[Event] | None,
        now: int,
        *,
        notices: Sequence[Notice] = (),
        forgotten: Collection[str] = (),
        dropped: Line | None = None,
    ) -> None:
        """Write changed builds, all pending events (unless `None`: as before) and the clock in one transaction.

        `notices` are to be delivered; the builds `forgotten` and the pipeline `dropped` are deleted.
        """
        changed = list(builds)
        with self.lock, self.lines.changing(), self.writing():
            if events is not None:
                self._put_events(events)
            self._put_builds(changed)
            self._count(changed)
            if self.outbox is not None:
                self.outbox.keep(notices)
            self._forget(forgotten)
            if dropped is not None:
                self._drop(dropped)
            self._put("now", msgspec.json.encode(now))

    def _put_events(self, events: Iterable[Event]) -> None:
        self._db.execute("DELETE FROM events")
        pending = [(at, seq, kind, msgspec.json.encode(about).decode()) for at, seq, kind, about in events]
        self._put_rows("events", pending)

    def _forget(self, ids: Collection[str]) -> None:
        for id in ids:
            ((seq,),) = self._db.execute("SELECT seq FROM builds WHERE id = ?", (id,))
            self._db.execute("DELETE FROM jobs WHERE build = ?", (seq,))
            self._db.execute("DELETE FROM meta_data WHERE build = ?", (seq,))
            self._db.execute("DELETE FROM builds WHERE seq = ?", (seq,))

    def _drop(self, line: Line) -> None:
        self._db.execute("DELETE FROM pipelines WHERE key = ?", (line.key,))
        self.lines.drop(line)
        self._tell_anew(line)

    def _put_builds(self, builds: Sequence[BuildRun]) -> None:
        self._put_rows("builds", [self._build_row(build) for build in builds])
        self._put_rows("jobs", [row for build in builds for row in self._job_rows(build)])
        meta = [(build.seq, *pair) for build in builds for pair in build.commit.meta_data.items()]
        self._put_rows("meta_data", meta)

    def _count(self, builds: Iterable[BuildRun]) -> None:
        """Keep the last numbers given out, also of builds that will be deleted."""
        last: dict[str, int] = {}
        for build in builds:
            for what, number in ((build.line, build.number), ("builds", build.seq)):
                last[what] = max(number, last.get(what, 0))
        self._db.executemany(
            "INSERT INTO counters VALUES (?, ?) ON CONFLICT DO UPDATE SET last = max(last, excluded.last)",
            list(last.items()),
        )

    def _put_rows(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._db.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)  # noqa: S608  our own names

    def _build_row(self, build: BuildRun) -> Row:
        line = self.bodies.lines[build.line]
        return (
            build.seq, build.id, line.organization.slug, build.line, build.number, build.state, build.blocked,
            build.commit.branch, build.commit.sha, self.bodies.creator_id(build), build.created, build.finished,
            is_over(build), msgspec.json.encode(build), msgspec.json.encode(self.bodies.build(build)),
        )  # fmt: skip

    def _job_rows(self, build: BuildRun) -> Iterator[Row]:
        for position, job in enumerate(build.jobs):
            active, retried = job.state in ACTIVE_JOB, job.retried_in is not None
            body = msgspec.json.encode(self.bodies.job(build, job))
            yield build.seq, position, build.line, job.state, retried, active, body

    # --- tokens ---

    def add_token(self, hashed: str, access: Access) -> None:
        """Keep a token's hash and what it may do."""
        with self.writing():
            self._db.execute("INSERT INTO tokens VALUES (?, ?)", (hashed, msgspec.json.encode(access)))

    def find_token(self, hashed: str) -> Access | None:
        """What a token may do, by its hash."""
        found = self.rows("SELECT access FROM tokens WHERE hash = ?", (hashed,))
        return msgspec.json.decode(found[0][0], type=Access) if found else None

    def count_tokens(self) -> int:
        """How many tokens there are."""
        ((count,),) = self.rows("SELECT count(*) FROM tokens")
        return int(count)
