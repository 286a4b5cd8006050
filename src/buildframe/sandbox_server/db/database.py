"""Store a sandbox in one SQLite database, in a file or in memory. Knows SQL; does not know HTTP or the simulation.

`schema.sql` declares the tables.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from buildframe.errors import BadInput, BuildframeError
from buildframe.sandbox_server.data_files import data_file
from buildframe.sandbox_server.db.serializers import Serializer
from buildframe.sandbox_server.world.build_state import BuildRun, ScheduledEvent
from buildframe.sandbox_server.world.model import World
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord
from buildframe.sandbox_server.world.pipelines import PipelineEntry, PipelineRegistry, initial_pipelines
from buildframe.sandbox_server.world.steps import PipelineStep, Plan
from buildframe.sandbox_server.world.teams import initial_teams
from buildframe.spec.decoders import decoder_of

_VERSION = 9
_SCHEMA = data_file("db/schema.sql").read_text("utf-8")

_BODIES = msgspec.msgpack.Decoder(list[bytes])

Row = tuple[Any, ...]


class Database:
    """The database of a sandbox. A thread that holds `lock` sees one consistent state.

    `serializer` exists after `load_world` or `create_world`; all parts of the sandbox share it, and `pipelines`.
    """

    serializer: Serializer

    def __init__(self, path: Path | None) -> None:
        self.lock = threading.RLock()
        self.pipelines = PipelineRegistry()
        self._path, self._closed = path, False
        try:
            self._connection = sqlite3.connect(
                path or ":memory:", check_same_thread=False, isolation_level=None, timeout=1
            )
        except (sqlite3.OperationalError, ValueError) as why:  # ValueError: a NUL in the path
            raise BadInput(f"path={str(path)!r} cannot be opened ({why}). Does its folder exist?") from None
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    def _open(self) -> None:
        try:
            for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
                self._connection.execute(f"PRAGMA {setting}")
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
        """Run the block in a transaction. A nested block joins the transaction of the outer one.

        If the block fails, `pipelines` is restored, too.
        """
        with self.lock:
            self._check_open()
            if self._connection.in_transaction:
                yield
                return
            with self.pipelines.rollback_on_error(), self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                yield

    def query(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Return the rows of a query."""
        with self.lock:
            self._check_open()
            return self._connection.execute(sql, values).fetchall()

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any]) -> None:
        """Execute one statement that changes data."""
        with self.transaction():
            self._connection.execute(sql, values)

    def load_world(self) -> World | None:
        """Return the stored world; None if the database is new."""
        rows = self.query("SELECT value FROM world WHERE what = 'world'")
        if not rows:
            return None
        world = World.decode(rows[0][0])
        steps = decoder_of(tuple[PipelineStep, ...])
        entries = [
            PipelineEntry(key, world.get_organization(slug), decoder_of(PipelineRecord).decode(record))
            for key, slug, record in self.query("SELECT key, organization, record FROM pipelines ORDER BY position")
        ]
        plans = (Plan(steps.decode(row[0])) for row in self.query("SELECT steps FROM plans"))
        self.pipelines = PipelineRegistry(entries, plans)
        self.serializer = Serializer(world, self.pipelines)
        return world

    def create_world(self, world: World) -> None:
        """Store a new world and set the clock to its start."""
        teams, team_pipelines = initial_teams(world)
        with self.transaction():
            self._put("world", world.encode())
            self._put("now", msgspec.json.encode(world.start))
            for entry in initial_pipelines(world):
                self.put_pipeline(entry)
            self._put_rows("teams", teams)
            self._put_rows("team_pipelines", team_pipelines)
        self.serializer = Serializer(world, self.pipelines)

    def _put(self, what: str, value: bytes) -> None:
        self._connection.execute("INSERT OR REPLACE INTO world VALUES (?, ?)", (what, value))

    def put_pipeline(self, entry: PipelineEntry) -> None:
        """Insert or update a pipeline. If its slug changes, write the bodies of its builds again.

        Raises `sqlite3.IntegrityError` if another pipeline of the organization has this slug or name.
        """
        with self.transaction():
            before = self.pipelines.get(entry.key)
            self.pipelines.put(entry)
            record = msgspec.json.encode(entry.pipeline)
            self._connection.execute(
                "INSERT INTO pipelines SELECT ?, ?, ?, ?, (SELECT 1 + coalesce(max(position), 0) FROM pipelines),"
                " ? WHERE true ON CONFLICT (key) DO UPDATE SET slug = excluded.slug, name = excluded.name,"
                " record = excluded.record",
                (entry.key, entry.organization.slug, entry.pipeline.slug, entry.pipeline.name, record),
            )
            steps = msgspec.json.encode(entry.plan.steps)
            self._connection.execute("INSERT OR IGNORE INTO plans VALUES (?, ?)", (entry.plan.key, steps))
            if before is not None and before.path != entry.path:
                self._rewrite_bodies(entry)

    def take_pipeline_number(self) -> int:
        """Count one more created pipeline and return the count."""
        with self.transaction():
            sql = "INSERT INTO counters VALUES ('pipelines', 1) ON CONFLICT DO UPDATE SET last = last + 1"
            return int(self._connection.execute(f"{sql} RETURNING last").fetchone()[0])

    def _rewrite_bodies(self, entry: PipelineEntry) -> None:
        """Write again the bodies of a pipeline's builds, and of other builds that refer to one of them."""
        key = msgspec.json.encode(entry.key)  # matches values only: quotes inside a message are escaped
        for build in self.load_builds("instr(run, ?)", key):
            self._put_builds([build])

    def load_now(self) -> int:
        """Return the simulated time of the last commit."""
        ((value,),) = self.query("SELECT value FROM world WHERE what = 'now'")
        return msgspec.json.decode(value, type=int)

    def load_builds(self, condition: str, *values: Any) -> Iterator[BuildRun]:
        """Yield the builds that meet an SQL condition, oldest first."""
        rows = self.query(f"SELECT run FROM builds WHERE {condition} ORDER BY seq", values)  # noqa: S608  values are bound
        return (decoder_of(BuildRun).decode(run) for (run,) in rows)

    def find_commits_around(
        self, pipeline_key: str, timestamp: int, branch: str | None
    ) -> tuple[str | None, str | None]:
        """Return the commits of the last build created before a timestamp and of the first since; None: no such build.

        Counts the builds of a branch; None: of all branches.
        """
        sql = "SELECT sha FROM builds WHERE pipeline_key = ? AND (branch = ? OR ? IS NULL) AND created"
        values = pipeline_key, branch, branch, timestamp
        before = self.query(f"{sql} < ? ORDER BY created DESC, seq DESC LIMIT 1", values)
        after = self.query(f"{sql} >= ? ORDER BY created, seq LIMIT 1", values)
        return before[0][0] if before else None, after[0][0] if after else None

    def find_build_ids(self, pipeline_key: str, numbers: Sequence[int] | None = None) -> set[str]:
        """Return the UUIDs of a pipeline's builds with these numbers; None means all builds."""
        rows = self.query("SELECT id, number FROM builds WHERE pipeline_key = ?", (pipeline_key,))
        return {id for id, number in rows if numbers is None or number in numbers}

    def load_job_bodies(self, builds: Sequence[int], include_retried: bool = True) -> list[tuple[int, bytes]]:
        """Return the number of the build and the body of each job of some builds, by build and position."""
        marks = ", ".join("?" * len(builds))
        unread = f"seq IN ({marks}) AND NOT EXISTS (SELECT 1 FROM job_bodies WHERE build = seq)"  # noqa: S608
        with self.transaction():
            for build in self.load_builds(unread, *builds):
                bodies = [msgspec.json.encode(self.serializer.serialize_job(build, job)) for job in build.jobs]
                self.execute("INSERT INTO job_bodies VALUES (?, ?)", (build.seq, msgspec.msgpack.encode(bodies)))
            rows = self.query(f"SELECT build, bodies FROM job_bodies WHERE build IN ({marks}) ORDER BY build", builds)  # noqa: S608
            retried = f"SELECT build, position FROM jobs WHERE build IN ({marks}) AND retried"  # noqa: S608
            omitted = set() if include_retried else set(self.query(retried, builds))
        return [
            (build, body)
            for build, packed in rows
            for position, body in enumerate(_BODIES.decode(packed))
            if (build, position) not in omitted
        ]

    def find_agents(self, organization: str, only_active: bool) -> list[str]:
        """Return the names of agents by the jobs that they ran, or that they are running."""
        sql = (
            "SELECT DISTINCT agent FROM jobs JOIN builds ON jobs.build = builds.seq"
            " WHERE builds.organization = ? AND agent IS NOT NULL AND active >= ? ORDER BY 1"
        )
        return [name for (name,) in self.query(sql, (organization, only_active))]

    def load_events(self) -> list[ScheduledEvent]:
        """Return the scheduled events."""
        about = msgspec.json.Decoder(tuple[str, ...])
        rows = self.query("SELECT at, seq, kind, about FROM events")
        return [ScheduledEvent(at, seq, kind, about.decode(text)) for at, seq, kind, text in rows]

    def load_counters(self) -> tuple[int, int, dict[str, int]]:
        """Return the count of all builds created so far, that of requests, and the last number of each pipeline."""
        counters: dict[str, int] = dict(self.query("SELECT what, last FROM counters WHERE what <> 'pipelines'"))
        return counters.pop("builds", 0), counters.pop("requests", 0), counters

    def save(
        self,
        builds: Sequence[BuildRun],
        events: Iterable[ScheduledEvent] | None,
        now: int,
        requests: int,
        deleted: Collection[str],
        deleted_pipeline: PipelineEntry | None,
    ) -> None:
        """Write changed builds, scheduled events (None: unchanged), clock and requests, and delete a part."""
        with self.transaction():
            if events is not None:
                self._connection.execute("DELETE FROM events")
                pending = [(one.at, one.seq, one.kind, msgspec.json.encode(one.about).decode()) for one in events]
                self._put_rows("events", pending)
            self._put_builds(builds)
            self._count(builds, requests)
            self._connection.executemany("DELETE FROM builds WHERE id = ?", [(id,) for id in deleted])
            if deleted_pipeline is not None:
                self._connection.execute("DELETE FROM pipelines WHERE key = ?", (deleted_pipeline.key,))
                del self.pipelines[deleted_pipeline.key]  # its plans stay
                self._rewrite_bodies(deleted_pipeline)
            self._put("now", msgspec.json.encode(now))

    def _put_builds(self, builds: Sequence[BuildRun]) -> None:
        self._put_rows("builds", [self._build_row(build) for build in builds])
        self._put_rows("jobs", [row for build in builds for row in self._job_rows(build)])
        self._connection.executemany("DELETE FROM job_bodies WHERE build = ?", [(build.seq,) for build in builds])
        meta = [(build.seq, *pair) for build in builds for pair in build.commit.meta_data.items()]
        self._put_rows("meta_data", meta)

    def _count(self, builds: Iterable[BuildRun], requests: int) -> None:
        """Store the last numbers, so that numbers of deleted builds are not used again."""
        numbers = [pair for build in builds for pair in ((build.pipeline_key, build.number), ("builds", build.seq))]
        numbers.append(("requests", requests))
        self._connection.executemany(
            "INSERT INTO counters VALUES (?, ?) ON CONFLICT DO UPDATE SET last = max(last, excluded.last)", numbers
        )

    def _put_rows(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)  # noqa: S608

    def _build_row(self, build: BuildRun) -> Row:
        organization, creator = self.pipelines[build.pipeline_key].organization, build.commit.creator
        return (
            build.seq, build.id, organization.slug, build.pipeline_key, build.number, build.state, build.blocked,
            build.commit.branch, build.commit.sha,
            None if creator is None else self.serializer.find_user(organization, creator).id,
            build.created, build.finished, build.is_over, msgspec.json.encode(build),
            msgspec.json.encode(self.serializer.serialize_build(build)),
        )  # fmt: skip

    def _job_rows(self, build: BuildRun) -> Iterator[Row]:
        for position, job in enumerate(build.jobs):
            is_retried = job.retried_in is not None
            yield build.seq, position, build.pipeline_key, job.state, is_retried, job.is_active, job.agent
