"""Store a sandbox in one SQLite database, in a file or in memory. Knows SQL; does not know HTTP or the simulation.

`schema.sql` declares the tables.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import msgspec

from buildframe.errors import BadInput, BuildframeError
from buildframe.sandbox_server.db.serializers import Serializer
from buildframe.sandbox_server.simulation.lifecycle import ScheduledEvent, WebhookEvent
from buildframe.sandbox_server.simulation.rules import ACTIVE_JOB, is_over
from buildframe.sandbox_server.world.build_state import BuildRun, JobRun
from buildframe.sandbox_server.world.model import World
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord
from buildframe.sandbox_server.world.pipelines import PipelineEntry, PipelineRegistry, initial_pipelines
from buildframe.sandbox_server.world.steps import PipelineStep, Plan
from buildframe.sandbox_server.world.teams import initial_teams

_VERSION = 4
_SCHEMA = resources.files("buildframe.sandbox_server.db").joinpath("schema.sql").read_text("utf-8")

Row = tuple[Any, ...]


class EventSink(Protocol):
    """Store webhook events in the transaction that stores what they report. The outbox does."""

    def has_webhooks(self, organization: str) -> bool: ...

    def store(self, notices: Iterable[WebhookEvent]) -> None: ...


class Database:
    """The database of a sandbox. A thread that holds `lock` sees one consistent state.

    `pipelines` and `serializer` exist after `load_world` or `create_world`; all parts of the sandbox share them.
    """

    pipelines: PipelineRegistry
    serializer: Serializer

    def __init__(self, path: Path | None) -> None:
        self.lock = threading.RLock()
        self._path = path
        self._closed = False
        self._connection = self._connect()
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise
        self.outbox: EventSink | None = None

    def _connect(self) -> sqlite3.Connection:
        name = ":memory:" if self._path is None else self._path
        try:
            return sqlite3.connect(name, check_same_thread=False, isolation_level=None, timeout=1)
        except (sqlite3.OperationalError, ValueError) as why:  # ValueError: a NUL in the path
            raise BadInput(f"path={str(self._path)!r} cannot be opened ({why}). Does its folder exist?") from None

    def _open(self) -> None:
        try:
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            ((version,),) = self._connection.execute("PRAGMA user_version")
            ((tables,),) = self._connection.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError as why:
            raise BadInput(f"{self._path} cannot be opened ({why}). Is another sandbox using it?") from None
        except sqlite3.DatabaseError:
            raise BadInput(f"{self._path} is not a sandbox file. Pass another path.") from None
        if not tables:
            self._connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version != _VERSION:
            raise BadInput(f"{self._path} is not a sandbox file of this version. Delete it, or pass another path.")

    def close(self) -> None:
        """Close the database. Committed changes stay in the file."""
        with self.lock:
            self._closed = True
            self._connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise BuildframeError("This sandbox is stopped.")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction. A nested block joins the transaction of the outer one."""
        with self.lock:
            self._check_open()
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a query."""
        with self.lock:
            self._check_open()
            return self._connection.execute(sql, values).fetchall()

    def execute(self, sql: str, values: Sequence[Any]) -> None:
        """Execute one statement that changes data."""
        with self.transaction():
            self._connection.execute(sql, values)

    def load_world(self) -> World | None:
        """Return the stored world; None if the database is new."""
        rows = self.query("SELECT value FROM world WHERE what = 'world'")
        if not rows:
            return None
        world = World.decode(rows[0][0])
        self.pipelines = self._load_pipelines(world)
        self.serializer = Serializer(world, self.pipelines)
        return world

    def create_world(self, world: World) -> None:
        """Store a new world and set the clock to its start."""
        entries = initial_pipelines(world)
        with self.transaction():
            self._put("world", world.encode())
            self._put("now", msgspec.json.encode(world.start))
            for entry in entries:
                self._put_entry(entry)
            teams, team_pipelines = initial_teams(world)
            self._put_rows("teams", teams)
            self._put_rows("team_pipelines", team_pipelines)
        self.pipelines = PipelineRegistry(entries)
        self.serializer = Serializer(world, self.pipelines)

    def _put(self, what: str, value: bytes) -> None:
        self._connection.execute("INSERT OR REPLACE INTO world VALUES (?, ?)", (what, value))

    def _load_pipelines(self, world: World) -> PipelineRegistry:
        organizations = {organization.slug: organization for organization in world.organizations}
        entries = [
            PipelineEntry(key, organizations[slug], msgspec.json.decode(record, type=PipelineRecord))
            for key, slug, record in self.query("SELECT key, organization, record FROM pipelines ORDER BY position")
        ]
        steps = msgspec.json.Decoder(tuple[PipelineStep, ...])
        return PipelineRegistry(entries, (Plan(steps.decode(row[0])) for row in self.query("SELECT steps FROM plans")))

    def put_pipeline(self, entry: PipelineEntry) -> None:
        """Insert or update a pipeline. If its slug changes, write the bodies of its builds again.

        Raises `sqlite3.IntegrityError` if another pipeline of the organization has this slug or name.
        """
        with self.lock:
            before = self.pipelines.get(entry.key)
            with self.pipelines.rollback_on_error(), self.transaction():
                self.pipelines.put(entry)
                self._put_entry(entry)
                if before is not None and before.path != entry.path:
                    self._rewrite_bodies(entry)

    def take_pipeline_number(self) -> int:
        """Count one more created pipeline and return the count."""
        with self.transaction():
            sql = "INSERT INTO counters VALUES ('pipelines', 1) ON CONFLICT DO UPDATE SET last = last + 1"
            return int(self._connection.execute(f"{sql} RETURNING last").fetchone()[0])

    def _put_entry(self, entry: PipelineEntry) -> None:
        pipeline, record = entry.pipeline, msgspec.json.encode(entry.pipeline)
        self._connection.execute(
            "INSERT INTO pipelines SELECT ?, ?, ?, ?, (SELECT 1 + coalesce(max(position), 0) FROM pipelines),"
            " ? WHERE true ON CONFLICT (key) DO UPDATE SET slug = excluded.slug, name = excluded.name,"
            " record = excluded.record",
            (entry.key, entry.organization.slug, pipeline.slug, pipeline.name, record),
        )
        steps = msgspec.json.encode(entry.plan.steps)
        self._connection.execute("INSERT OR IGNORE INTO plans VALUES (?, ?)", (entry.plan.key, steps))

    def _rewrite_bodies(self, entry: PipelineEntry) -> None:
        """Write again the bodies of a pipeline's builds, and of other builds that refer to one of them."""
        key = msgspec.json.encode(entry.key)  # matches values only: quotes inside a message are escaped
        runs = self._connection.execute("SELECT run FROM builds WHERE instr(run, ?)", (key,))
        for (run,) in runs.fetchall():
            self._put_builds([msgspec.json.decode(run, type=BuildRun)])

    def load_now(self) -> int:
        """Return the simulated time of the last commit."""
        ((value,),) = self.query("SELECT value FROM world WHERE what = 'now'")
        return msgspec.json.decode(value, type=int)

    def load_build(self, id: str) -> BuildRun | None:
        """Return a build by its UUID; None if it does not exist."""
        rows = self.query("SELECT run FROM builds WHERE id = ?", (id,))
        return msgspec.json.decode(rows[0][0], type=BuildRun) if rows else None

    def find_build_ids(self, pipeline_key: str, numbers: Sequence[int] | None = None) -> set[str]:
        """Return the UUIDs of a pipeline's builds with these numbers; None means all builds."""
        rows = self.query("SELECT id, number FROM builds WHERE pipeline_key = ?", (pipeline_key,))
        return {id for id, number in rows if numbers is None or number in numbers}

    def load_active(self) -> list[BuildRun]:
        """Return the builds that are not over."""
        rows = self.query("SELECT run FROM builds WHERE over = 0 ORDER BY seq")
        return [msgspec.json.decode(run, type=BuildRun) for (run,) in rows]

    def load_events(self) -> list[ScheduledEvent]:
        """Return the scheduled events."""
        about = msgspec.json.Decoder(tuple[str, ...])
        rows = self.query("SELECT at, seq, kind, about FROM events")
        return [ScheduledEvent(at, seq, kind, about.decode(text)) for at, seq, kind, text in rows]

    def load_counters(self) -> tuple[int, dict[str, int]]:
        """Return the count of all builds created so far, and the last build number of each pipeline."""
        counters: dict[str, int] = dict(self.query("SELECT what, last FROM counters"))
        counters.pop("pipelines", None)
        return counters.pop("builds", 0), counters

    def has_webhooks(self, organization: str) -> bool:
        """Whether a webhook receives events of an organization."""
        return self.outbox is not None and self.outbox.has_webhooks(organization)

    def serialize_event(self, at: int, event: str, build: BuildRun, job: JobRun | None) -> WebhookEvent:
        """Serialize an event for webhooks: the build and the job as they are now. The state may be `blocked`."""
        build_body = self.serializer.serialize_build(build) | ({"state": "blocked"} if build.blocked else {})
        body = {"build": build_body} | ({"job": self.serializer.serialize_job(build, job)} if job else {})
        organization = self.pipelines[build.pipeline_key].organization.slug
        return WebhookEvent(at, event, organization, build.id, job.id if job else None, body)

    def save(
        self,
        builds: Iterable[BuildRun],
        events: Iterable[ScheduledEvent] | None,
        now: int,
        *,
        notices: Sequence[WebhookEvent] = (),
        deleted: Collection[str] = (),
        deleted_pipeline: PipelineEntry | None = None,
    ) -> None:
        """Write changed builds, scheduled events (None: unchanged) and the clock in one transaction.

        `notices` go to the outbox. The builds `deleted` and the pipeline `deleted_pipeline` are deleted.
        """
        changed = list(builds)
        with self.lock, self.pipelines.rollback_on_error(), self.transaction():
            if events is not None:
                self._put_events(events)
            self._put_builds(changed)
            self._count(changed)
            if self.outbox is not None:
                self.outbox.store(notices)
            self._delete_builds(deleted)
            if deleted_pipeline is not None:
                self._delete_pipeline(deleted_pipeline)
            self._put("now", msgspec.json.encode(now))

    def _put_events(self, events: Iterable[ScheduledEvent]) -> None:
        self._connection.execute("DELETE FROM events")
        pending = [(at, seq, kind, msgspec.json.encode(about).decode()) for at, seq, kind, about in events]
        self._put_rows("events", pending)

    def _delete_builds(self, ids: Collection[str]) -> None:
        for id in ids:
            ((seq,),) = self._connection.execute("SELECT seq FROM builds WHERE id = ?", (id,))
            self._connection.execute("DELETE FROM jobs WHERE build = ?", (seq,))
            self._connection.execute("DELETE FROM meta_data WHERE build = ?", (seq,))
            self._connection.execute("DELETE FROM builds WHERE seq = ?", (seq,))

    def _delete_pipeline(self, entry: PipelineEntry) -> None:
        self._connection.execute("DELETE FROM pipelines WHERE key = ?", (entry.key,))
        self.pipelines.drop(entry)
        self._rewrite_bodies(entry)

    def _put_builds(self, builds: Sequence[BuildRun]) -> None:
        self._put_rows("builds", [self._build_row(build) for build in builds])
        self._put_rows("jobs", [row for build in builds for row in self._job_rows(build)])
        meta = [(build.seq, *pair) for build in builds for pair in build.commit.meta_data.items()]
        self._put_rows("meta_data", meta)

    def _count(self, builds: Iterable[BuildRun]) -> None:
        """Store the last numbers, so that numbers of deleted builds are not used again."""
        last: dict[str, int] = {}
        for build in builds:
            for what, number in ((build.pipeline_key, build.number), ("builds", build.seq)):
                last[what] = max(number, last.get(what, 0))
        self._connection.executemany(
            "INSERT INTO counters VALUES (?, ?) ON CONFLICT DO UPDATE SET last = max(last, excluded.last)",
            list(last.items()),
        )

    def _put_rows(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)  # noqa: S608

    def _build_row(self, build: BuildRun) -> Row:
        organization = self.pipelines[build.pipeline_key].organization.slug
        return (
            build.seq, build.id, organization, build.pipeline_key, build.number, build.state, build.blocked,
            build.commit.branch, build.commit.sha, self.serializer.creator_id(build), build.created, build.finished,
            is_over(build), msgspec.json.encode(build), msgspec.json.encode(self.serializer.serialize_build(build)),
        )  # fmt: skip

    def _job_rows(self, build: BuildRun) -> Iterator[Row]:
        for position, job in enumerate(build.jobs):
            active, retried = job.state in ACTIVE_JOB, job.retried_in is not None
            body = msgspec.json.encode(self.serializer.serialize_job(build, job))
            yield build.seq, position, build.pipeline_key, job.state, retried, active, body
