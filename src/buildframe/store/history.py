"""Store: an incremental, exact history of an organization's builds, on disk or in an object store."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.compute as pc

from buildframe import wire
from buildframe.arguments import checked, checked_names
from buildframe.bodies import nearest
from buildframe.errors import BadInput, DeadlineExceeded
from buildframe.pace import until
from buildframe.pipeline import Pipeline
from buildframe.secret import confined
from buildframe.spec import TABLES, Moment, When, list_flaky_tests, when
from buildframe.spec.times import span
from buildframe.store import commits, frames, spark, told
from buildframe.store.kept import Keeping
from buildframe.store.lake import Table
from buildframe.store.place import Place, package, told_plainly
from buildframe.store.state import NEVER, State
from buildframe.store.syncing import Scope, Sync, Synced
from buildframe.store.told import Told
from buildframe.terms import Deadline
from buildframe.webhooks import Event
from buildframe.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORED = ("builds", "jobs", "pipelines", "members", "flaky_tests")


@checked
class Store:
    """Builds, jobs and more of a service, kept as Delta tables in a folder or an object store.

    `url` is a folder, or an address such as "s3://bucket/ci-history"; `storage_options` are those of the package
    `deltalake` for it, and are never shown. Nothing is read or made until it is needed.

    `as_of` reads the store as an earlier sync left it: the last one at or before this time of the service, an age such
    as "7d", counted back from the last sync, or the number of a version. Such a store cannot be changed.

    Frames are read with the dtypes of a fetch; their `attrs` tell the `source`, its `version`, `as_of` when it holds,
    and what it `covers`.

    Needs the extra `store`. StoreFailed: what is there cannot be read or written; BadInput: there is no store yet, or
    it has no such table, column, pipeline or suite.
    """

    @checked_names
    @confined
    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        as_of: When | int | None = None,
    ) -> None:
        package()
        self._place = Place.of(url, storage_options)
        self._as_of = as_of

    def __repr__(self) -> str:
        return f"<Store at {self._place.url}{'' if self._as_of is None else f' as of {self._as_of}'}>"

    @property
    def url(self) -> str:
        """Where the store is: an absolute path, or the address of an object store."""
        return self._place.url

    # --- writing

    def sync(
        self,
        ci: Workspace | Pipeline,
        *,
        since: When = "90d",
        suites: Sequence[str] = (),
        personal: bool = False,
        env: bool = False,
        progress: bool | None = None,
        deadline: Deadline = None,
    ) -> Synced:
        """Bring the store up to date with the service, in one commit: what is new, what changed, what is gone.

        The first sync fetches builds created from `since`, in stretches, each a commit; later ones only what may have
        changed, and what lies before the store where `since` reaches further back. `ci` is a workspace of an
        organization, or one pipeline. `suites` are test suites (their slugs) whose flaky tests are kept as they change.

        `personal` keeps names and e-mail addresses, too, and the table of members; without it people are ids. `env`
        keeps what may hold secrets: variables of builds and pipelines, and the pipelines' steps and YAML.

        Killed at any instant, the store is as the last commit left it, and the next sync brings the rest. What could
        not be read completely is kept, and `why` says so; the next sync then asks for it again.

        After `deadline`, such as "2h", it raises DeadlineExceeded; what was committed by then stays, and the next sync
        goes on from there. A commit that has begun is finished.
        """
        self._refuse_the_past("synced")
        names = _suites(suites, ci)
        with until(deadline):
            sync = Sync(self._place, Scope.of(ci), Keeping(personal, env), progress)
            try:
                return sync.run(since, names)
            except DeadlineExceeded as late:
                late.add_note(sync.how_far)
                raise

    def receive(self, events: Iterable[Event], *, personal: bool = False, env: bool = False) -> Told:
        """Bring what deliveries of webhooks told (see `webhooks.parse`) into the store, in one commit, if it is news.

        A sync must have been before, and builds are taken only of what syncs cover. Deliveries may be late, come twice
        or not at all, so the next sync asks for these builds, too, and what it reads counts. Until then they have
        `is_open`, and those jobs that were told of. `personal` and `env` as for `sync`.
        """
        self._refuse_the_past("told of events")
        known = _events(events)
        state = self._state()
        rows, left_out = told.rows(known, state.marks, state.as_of or NEVER)
        done = commits.tell(self._place, Keeping(personal, env), rows)
        return Told(done.builds, done.jobs, left_out, done.state.version)

    def compact(self) -> int:
        """Make few files of the many small ones that syncs have left; how many files fewer.

        Each sync writes a file for each day that it changes; many small files take longer to read. Older versions can
        still be read.
        """
        self._refuse_the_past("compacted")
        before = self._many_files()
        commits.compact(self._place)
        return before - self._many_files()

    def clean(self, keep: str | dt.timedelta = "30d") -> int:
        """Delete files that only versions older than `keep` need; how many. What was written meanwhile stays.

        Those versions can then not be read any more; the newest always can. At least one day is kept, since a sync
        that is under way has files that no version names yet.
        """
        self._refuse_the_past("cleaned")
        return commits.clean(self._place, span(keep, "keep"))

    # --- reading

    def builds(
        self,
        *,
        created_from: When | None = None,
        created_to: When | None = None,
        pipeline: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Builds created from `created_from` on and before `created_to`, newest first, as `ws.builds()` gives them.

        `pipeline` is a slug, or a pipeline's id: all builds of the pipeline that has the slug now, or else had it last,
        whatever it was called meanwhile. Ages count back from the last sync. What the service has forgotten or deleted
        is there, too. Columns beyond those of a fetch are there by name: `wall_time_s`, `day`, `is_open`, `gone_at`.
        """
        return self._of_builds("builds", created_from, created_to, pipeline, columns)

    def jobs(
        self,
        *,
        created_from: When | None = None,
        created_to: When | None = None,
        pipeline: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Jobs of those builds, as `ws.jobs()` gives them.

        By name besides: `queue_time_s`, `dependency_wait_s`, `run_time_s`, `turnaround_s`, `step`, `day`.
        """
        return self._of_builds("jobs", created_from, created_to, pipeline, columns)

    def pipelines(self, *, history: bool = False) -> pd.DataFrame:
        """The pipelines; with `history` also as they were, each row with `valid_from` and `valid_to`.

        A row held from the reading of the list that first had it (`valid_from`) to the first that had it no more
        (`valid_to`, null where it still holds); `fetched_at` is the last reading that is known to have had it.
        """
        return self._listed("pipelines", history, {})

    def members(self, *, history: bool = False) -> pd.DataFrame:
        """The members of the organization, where syncs had `personal=True`; `history` as for `pipelines`."""
        return self._listed("members", history, {})

    def flaky_tests(self, suite: str | None = None, *, history: bool = False) -> pd.DataFrame:
        """The flaky tests of a suite (None: of all), as the service listed them; `history` as for `pipelines`.

        `fetched_at` is when the list was last read, so that `metrics.flaky_board` takes it as it is.
        """
        if suite is not None:
            self._check_suite(suite)
        return self._listed("flaky_tests", history, {} if suite is None else {"suite": suite})

    def sql(self, query: str) -> pd.DataFrame:
        """What DuckDB answers to a query of the tables builds, jobs, pipelines, members and flaky_tests; in UTC.

        Columns are those that are stored: of lists each state with `valid_from` and `valid_to`, which is null in
        those that hold now. The frame has the dtypes of a fetch.
        """
        state = self._state()
        with told_plainly("read", self._place):
            tables = {name: state.table(self._place, name) for name in STORED}
            return frames.asked({name: table for name, table in tables.items() if table is not None}, query)

    def spark(self, session: SparkSession) -> dict[str, DataFrame]:
        """The tables as frames of PySpark, by name, all as one sync left them; Spark reads when it is asked for rows.

        Columns are those that are stored, as in `sql`: of lists each state with `valid_from` and `valid_to`. Spark
        reads the files of that version, or, where the session has Delta, that version of the Delta tables; later syncs
        do not change the frames. The session's time zone must be UTC.

        Needs the extra `spark`, and Java. BadInput: no session, or one with another time zone.
        """
        spark.check(session)
        state = self._state()
        with told_plainly("read", self._place):
            tables = {name: state.table(self._place, name) for name in STORED}
            return spark.frames({name: table for name, table in tables.items() if table is not None}, session)

    def files(self, table: str) -> list[str]:
        """The addresses of the Parquet files of a table, for programs that know no Delta; rows are in them once.

        The day of builds and jobs is in their files' paths only (`day=2026-10-30`). A folder may hold other files,
        too, so read these and never all.
        """
        return self._table(table, self._state()).uris()

    @property
    def version(self) -> int:
        """The number of the version that is read."""
        return self._state().version

    @property
    def as_of(self) -> Moment:
        """The service's time of the last sync."""
        as_of = self._state().as_of
        assert as_of is not None
        return as_of

    @property
    def covers(self) -> dict[str, tuple[Moment, Moment]]:
        """How far the store reaches: by organization, or "organization/pipeline's id", from when until when.

        Builds created since the first of the two times are known as they were at the second, or later.
        """
        return {scope: (mark.since, mark.until) for scope, mark in sorted(self._state().marks.items())}

    # --- inside

    def _refuse_the_past(self, what: str) -> None:
        if self._as_of is not None:
            raise BadInput(f"A store of the past cannot be {what}; leave out as_of=.")

    def _many_files(self) -> int:
        state = self._state()
        with told_plainly("read", self._place):
            tables = (state.table(self._place, name) for name in STORED)
            return sum(len(table.files()) for table in tables if table is not None)

    def _state(self) -> State:
        with told_plainly("read", self._place):
            builds = Table.at(self._place, "builds")
            newest = State() if builds is None else State.newest(builds)
            if builds is None or newest.as_of is None:
                raise BadInput(f"There is no store at {self._place.url!r} yet; fill one with store.sync(ws).")
            return newest if self._as_of is None else _as_of(self._as_of, builds, newest)

    def _table(self, name: str, state: State) -> Table:
        if name not in STORED:
            raise BadInput(f"A store has no table {name!r}; it has {', '.join(STORED)}.")
        with told_plainly("read", self._place):
            table = state.table(self._place, name)
        if table is None:
            raise BadInput(f"The store at {self._place.url!r} has no table {name!r}{_HOW.get(name, '')}.")
        return table

    def _of_builds(
        self, name: str, start: When | None, end: When | None, pipeline: str | None, columns: Sequence[str] | None
    ) -> pd.DataFrame:
        state = self._state()
        table = self._table(name, state)
        created = "created_at" if name == "builds" else "build_created_at"
        first, last = _moment(start, "created_from", state), _moment(end, "created_to", state)
        if first is not None and last is not None and first >= last:
            raise BadInput(f"No time lies between created_from {first.text()} and created_to {last.text()}.")
        with told_plainly("read", self._place):
            chosen = [] if pipeline is None else [self._is_of(pipeline, state)]
            found = frames.read(table, _declared(name), columns, chosen, created, first, last)
        return self._told(found, name, state)

    def _is_of(self, pipeline: str, state: State) -> pc.Expression:
        """By id, since slugs change; one that no pipeline has now means the one that had it last."""
        if not isinstance(pipeline, str):
            raise BadInput(f"pipeline={pipeline!r}: pass a slug, or an id.")
        known = self._pipelines_listed(state)
        named = [row for row in known if pipeline in (row["id"], row["slug"])]
        if not named:
            known = self._pipelines_of_builds(state)
            named = [row for row in known if pipeline in (row["id"], row["slug"])]
        if not named:
            slugs = sorted({row["slug"] for row in known if row["slug"] is not None})
            raise BadInput(f"pipeline={pipeline!r}: the store knows no such pipeline.{nearest(pipeline, slugs)}")
        now = [row for row in named if row["until"] is None]
        if len({row.get("organization") for row in now}) > 1:
            each = ", ".join(f"{row['id']} of {row['organization']}" for row in now)
            raise BadInput(f"pipeline={pipeline!r}: several organizations have it; pass its id: {each}.")
        ids = [row["id"] for row in now or [max(named, key=lambda row: row["until"])]]
        return pc.field("pipeline_id").isin(ids)

    def _pipelines_listed(self, state: State) -> list[dict[str, Any]]:
        """Ids and slugs of pipelines in lists, each with until when it was so; None where it still is."""
        table = state.table(self._place, "pipelines")
        if table is None:
            return []
        return table.dataset().to_table({name: pc.field(was) for name, was in _SLUGS.items()}).to_pylist()

    def _pipelines_of_builds(self, state: State) -> list[dict[str, Any]]:
        """The same of those that builds name, until the last that does: where no list was read, or none has them."""
        columns = {"id": pc.field("pipeline_id"), "slug": pc.field("pipeline"), "until": pc.field("created_at")}
        rows = self._table("builds", state).dataset().to_table(columns).group_by(["id", "slug"])
        return rows.aggregate([("until", "max")]).rename_columns(["id", "slug", "until"]).to_pylist()

    def _listed(self, name: str, history: bool, whose: Mapping[str, str]) -> pd.DataFrame:
        state = self._state()
        table = self._table(name, state)
        extra = [*(n for n in ("organization", "suite") if n not in _declared(name) and n in table.names)]
        chosen = [pc.field(key) == value for key, value in whose.items()]
        chosen += [] if history else [pc.field("valid_to").is_null()]
        with told_plainly("read", self._place):
            found = frames.read(table, [*extra, *_declared(name), *_VALID], None, chosen, None)
        read_again = frames.as_last_read(found, name, state.lists)["fetched_at"]
        found["fetched_at"] = read_again.where(found["valid_to"].isna(), found["fetched_at"])
        return self._told(found if history else found.drop(columns=_VALID), name, state)

    def _check_suite(self, suite: str) -> None:
        lists = (name.split("/") for name in self._state().lists)
        suites = sorted({name[-1] for name in lists if name[0] == "flaky_tests"})
        if suite not in suites:
            raise BadInput(f"The store keeps no flaky tests of a suite {suite!r}.{nearest(str(suite), suites)}")

    def _told(self, found: pd.DataFrame, name: str, state: State) -> pd.DataFrame:
        found.attrs["covers"] = {
            scope: [mark.since.text(), mark.until.text()] for scope, mark in sorted(state.marks.items())
        }
        return frames.told(found, name, self._place.url, state)


_VALID = ["valid_from", "valid_to"]
_SLUGS = {"id": "id", "slug": "slug", "organization": "organization", "until": "valid_to"}

_HOW = {
    "members": "; sync with personal=True to keep them",
    "flaky_tests": "; name suites: store.sync(ws, suites=[...])",
    "pipelines": "; sync a workspace, not only a pipeline",
}


def _declared(name: str) -> list[str]:
    return [column.name for column in TABLES[name]]


def _moment(value: When | None, name: str, state: State) -> Moment | None:
    return None if value is None else when(value, name, state.as_of)


def _as_of(wanted: When | int, builds: Table, newest: State) -> State:
    if isinstance(wanted, bool):
        raise BadInput(f"as_of={wanted!r}: pass a time, an age such as '7d', or the number of a version.")
    if isinstance(wanted, int) and wanted > newest.version:
        raise BadInput(f"as_of={wanted}: the newest version is {newest.version}.")
    found = State.at(builds, wanted if isinstance(wanted, int) else when(wanted, "as_of", newest.as_of))
    if found is None:
        oldest = State.oldest(builds)
        assert oldest.as_of is not None
        raise BadInput(
            f"as_of={wanted!r} lies before the first sync that can still be read: version {oldest.version}, "
            f"at {oldest.as_of.text()}."
        )
    return found


def _events(events: Iterable[Event]) -> Sequence[Event]:
    """The events in their order; BadInput for anything else."""
    known = list(events) if isinstance(events, Iterable) else [events]
    if wrong := [one for one in known if not isinstance(one, Event)]:
        raise BadInput(f"events={wrong[0]!r:.80}: pass a list of events, such as [webhooks.parse(...)].")
    return known


def _suites(suites: Sequence[str], ci: Any) -> list[str]:
    is_list = isinstance(suites, Sequence) and not isinstance(suites, str)
    if not is_list:
        raise BadInput(f"suites={suites!r}: pass a list of slugs, such as ['rspec'].")
    for suite in suites:
        wire.slug_segment(list_flaky_tests.parameters[-1], suite)  # refuses what is no slug
    if suites and isinstance(ci, Pipeline):
        raise BadInput("Test suites belong to the organization; sync a workspace to keep their flaky tests.")
    return list(dict.fromkeys(suites))
