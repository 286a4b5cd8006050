"""Store: an incremental, exact history of an organization's builds, on disk or in an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from buildframe.errors import BadInput
from buildframe.pipeline import Pipeline
from buildframe.spec import TABLES, Moment, When, when
from buildframe.spec.times import span
from buildframe.store import commits, frames
from buildframe.store.kept import Keeping
from buildframe.store.lake import Place, Table, package, told_plainly
from buildframe.store.state import State
from buildframe.store.syncing import Scope, Sync, Synced
from buildframe.workspace import Workspace

STORED = ("builds", "jobs", "pipelines", "members", "flaky_tests")


class Store:
    """Builds, jobs and more of a service, kept as Delta tables in a folder or an object store.

    `url` is a folder, or an address such as "s3://bucket/ci-history"; `storage_options` are those of the package
    `deltalake` for it, and are never shown. Nothing is read or made until it is needed.

    `as_of` reads the store as an earlier sync left it: the last one at or before this time of the service, an age such
    as "7d", counted back from the last sync, or the number of a version. Such a store cannot be synced.

    Needs the extra `store`. StoreFailed: what is there cannot be read or written; BadInput: there is no store yet.
    """

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
    ) -> Synced:
        """Bring the store up to date with the service, in one commit: what is new, what changed, what is gone.

        The first sync fetches builds created from `since`, in stretches, each a commit; later ones only what may have
        changed, and what lies before the store where `since` reaches further back. `ci` is a workspace of an
        organization, or one pipeline. `suites` are test suites (their slugs) whose flaky tests are kept as they change.

        `personal` keeps names and e-mail addresses, too, and the table of members; without it people are ids. `env`
        keeps what may hold secrets: variables of builds and pipelines, and the pipelines' steps and YAML.

        Killed at any instant, the store is as the last commit left it, and the next sync brings the rest. What could
        not be read completely is kept, and `why` says so; the next sync then asks for it again.
        """
        if self._as_of is not None:
            raise BadInput("A store of the past cannot be synced; leave out as_of=.")
        names = _suites(suites, ci)
        return Sync(self._place, Scope.of(ci), Keeping(personal, env), progress).run(since, names)

    def compact(self) -> None:
        """Make one file of each day that has several; older versions can still be read."""
        self._state()
        commits.compact(self._place)

    def clean(self, keep: str = "30d") -> int:
        """Delete files that only versions older than `keep` need; how many. What was written meanwhile stays.

        Those versions can then not be read any more; the newest always can. At least one day is kept, since a sync
        that is under way has files that no version names yet.
        """
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

        `pipeline` is a slug, or a pipeline's id; builds from before a renaming are those of the pipeline that has the
        slug now. Ages count back from the last sync. What the service has forgotten or deleted is there, too.
        Columns beyond those of a fetch are there by name: `wall_time_s`, `day`, `is_open`, `gone_at`.
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
        """The pipelines; with `history` also as they were, each row with `valid_from` and `valid_to`."""
        return self._listed("pipelines", history, {})

    def members(self, *, history: bool = False) -> pd.DataFrame:
        """The members of the organization, where syncs had `personal=True`; `history` as for `pipelines`."""
        return self._listed("members", history, {})

    def flaky_tests(self, suite: str | None = None, *, history: bool = False) -> pd.DataFrame:
        """The flaky tests of a suite (None: of all), as the service listed them; `history` as for `pipelines`.

        `fetched_at` is when the list was last read, so that `metrics.flaky_board` takes it as it is.
        """
        return self._listed("flaky_tests", history, {} if suite is None else {"suite": suite})

    def sql(self, query: str) -> pd.DataFrame:
        """What DuckDB answers to a query of the tables builds, jobs, pipelines, members and flaky_tests; in UTC."""
        state = self._state()
        with told_plainly("read", self._place.url):
            tables = {name: state.table(self._place, name) for name in STORED}
            return frames.asked({name: table for name, table in tables.items() if table is not None}, query)

    def files(self, table: str) -> list[str]:
        """The addresses of the Parquet files of a table, for programs that know no Delta; rows are in them once.

        The day of each is in its path only.
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

    # --- inside

    def _state(self) -> State:
        with told_plainly("read", self._place.url):
            builds = Table.at(self._place, "builds")
            states = iter(()) if builds is None else State.all(builds)
            newest = next(states, None)
            if newest is None:
                raise BadInput(f"There is no store at {self._place.url!r} yet; fill one with store.sync(ws).")
            if self._as_of is None:
                return newest
            return _as_of(self._as_of, [newest, *states])

    def _table(self, name: str, state: State) -> Table:
        if name not in STORED:
            raise BadInput(f"A store has no table {name!r}; it has {', '.join(STORED)}.")
        with told_plainly("read", self._place.url):
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
        chosen = [
            *frames.within(created, _moment(start, "created_from", state), _moment(end, "created_to", state)),
            *([] if pipeline is None else [self._is_of(pipeline, state)]),
        ]
        with told_plainly("read", self._place.url):
            found = frames.read(table, _declared(name), columns, chosen, created)
        return frames.told(found, name, self._place.url, state)

    def _is_of(self, pipeline: str, state: State) -> pc.Expression:
        """By id where the slug is known, since it may change."""
        if not isinstance(pipeline, str):
            raise BadInput(f"pipeline={pipeline!r}: pass a slug, or an id.")
        known = state.table(self._place, "pipelines")
        ids = (
            []
            if known is None
            else known.dataset().to_table(["id"], filter=_is_now("slug", pipeline))["id"].to_pylist()
        )
        by_slug = pc.field("pipeline_id").isin(ids) if ids else pc.field("pipeline") == pipeline
        return by_slug | (pc.field("pipeline_id") == pipeline)

    def _listed(self, name: str, history: bool, whose: Mapping[str, str]) -> pd.DataFrame:
        state = self._state()
        table = self._table(name, state)
        extra = [*(n for n in ("organization", "suite") if n not in _declared(name) and n in table.names)]
        columns = [*extra, *_declared(name), *(("valid_from", "valid_to") if history else ())]
        chosen = [pc.field(key) == value for key, value in whose.items()]
        chosen += [] if history else [pc.field("valid_to").is_null()]
        with told_plainly("read", self._place.url):
            found = frames.read(table, columns, None, chosen, None)
        if not history:
            found = frames.as_last_read(found, name, state.lists)
        return frames.told(found, name, self._place.url, state)


_HOW = {
    "members": "; sync with personal=True to keep them",
    "flaky_tests": "; name suites: store.sync(ws, suites=[...])",
    "pipelines": "; sync a workspace, not only a pipeline",
}


def _declared(name: str) -> list[str]:
    return [column.name for column in TABLES[name]]


def _is_now(column: str, value: str) -> pc.Expression:
    return (pc.field(column) == value) & pc.field("valid_to").is_null()


def _moment(value: When | None, name: str, state: State) -> Moment | None:
    return None if value is None else when(value, name, state.as_of)


def _as_of(wanted: When | int, states: Sequence[State]) -> State:
    if isinstance(wanted, int):
        found = [state for state in states if state.version <= wanted]
    else:
        at = when(wanted, "as_of", states[0].as_of)
        found = [state for state in states if state.as_of is not None and state.as_of <= at]
    if not found:
        raise BadInput(
            f"as_of={wanted!r} lies before the first sync that can still be read, version {states[-1].version}."
        )
    return found[0]


def _suites(suites: Sequence[str], ci: Any) -> list[str]:
    if isinstance(suites, str) or not all(isinstance(suite, str) and suite for suite in suites):
        raise BadInput(f"suites={suites!r}: pass a list of slugs, such as ['rspec'].")
    if suites and isinstance(ci, Pipeline):
        raise BadInput("Test suites belong to the organization; sync a workspace to keep their flaky tests.")
    return list(dict.fromkeys(suites))
