"""One sync, one commit: the tables of a store changed together, whoever else writes to it.

The commit of the builds is the sync's. It comes last and names the versions of the other tables, so what a killed or
overtaken sync left in those is in no version of the store; the next one rolls it back.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe import metrics
from buildframe.errors import BadInput, StoreFailed
from buildframe.spec import Moment
from buildframe.store import changes, kept
from buildframe.store.kept import GONE_AT, IS_OPEN, Keeping
from buildframe.store.lake import Change, Overtaken, Place, Table, told_plainly
from buildframe.store.state import Mark, State

_NEVER = Moment.from_us(0)

GRACE_HOURS = 24
"""Files written or given up since are kept: a sync or a reader may be at them."""

_TIMES = 100
"""How often a sync begins its commit anew when others come first."""


@dataclass(frozen=True)
class Listed:
    """A list that was read whole: which table it is of, what tells it apart there, and its rows."""

    table: str
    whose: Mapping[str, str]
    frame: pd.DataFrame

    @property
    def at(self) -> Moment:
        """The service's time when it was read."""
        return Moment.parse(self.frame.attrs["as_of"])

    @property
    def name(self) -> str:
        """The list's name in a state."""
        return "/".join([self.table, *self.whose.values()])


@dataclass(frozen=True)
class Batch:
    """What a sync brings: builds with all their jobs, ids of builds that are gone, lists, and how far it reaches."""

    builds: pd.DataFrame
    jobs: pd.DataFrame
    as_of: Moment
    gone: pd.DataFrame = field(default_factory=lambda: pd.DataFrame({"id": [], "day": [], "fetched_at": []}))
    lists: tuple[Listed, ...] = ()
    scope: str | None = None
    mark: Mark | None = None
    basis: Mark | None = None


@dataclass(frozen=True)
class Committed:
    """What a commit did: the store's version, and bytes of files and rows that were written."""

    state: State
    builds: int
    jobs: int
    gone: int
    bytes: int


def commit(place: Place, keeping: Keeping, batch: Batch) -> Committed:
    """Make a batch part of the store. StoreFailed where the disk or the object store refuses."""
    return _until_first(place, lambda writing: writing.take(keeping, batch))


def compact(place: Place) -> Committed:
    """Make one file of each day that has several; the rows stay."""
    return _until_first(place, lambda writing: writing.merge())


def clean(place: Place, keep: dt.timedelta) -> int:
    """Delete the files that only versions older than this need, but none that were written within a day."""
    with told_plainly("cleaned", place.url):
        builds = Table.at(place, "builds")
        if builds is None:
            raise BadInput(f"There is no store at {place.url!r} yet; fill one with store.sync(ws).")
        states = list(State.all(builds))
        as_of = [state.as_of for state in states if state.as_of is not None]
        kept = [state for state, at in zip(states, as_of, strict=True) if at >= as_of[0] - keep]
        forgotten = builds.forget([state.version for state in kept], GRACE_HOURS)
        for name in states[0].versions:
            table = Table.at(place, name)
            versions = {state.versions[name] for state in kept if name in state.versions}
            forgotten += 0 if table is None else table.forget(sorted(versions), GRACE_HOURS)
        return forgotten


def _until_first(place: Place, write: Callable[[_Writing], Committed]) -> Committed:
    with told_plainly("written", place.url):
        for times in range(_TIMES):
            try:
                with _Writing(place) as writing:
                    return write(writing)
            except Overtaken:
                time.sleep(random.uniform(0, 0.05) * min(times, 20))  # noqa: S311
    raise StoreFailed(
        f"Others wrote to the store at {place.url} {_TIMES} times while this was to be written; try again."
    )


class _Writing:
    """One attempt at a commit; files that no commit came to name are deleted when it ends."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._state = State()
        self._versions: dict[str, int] = {}
        self._stack = ExitStack()
        self._bytes = 0

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def take(self, keeping: Keeping, batch: Batch) -> Committed:
        builds = self._builds(keeping.schema("builds"))
        rows = self._rows(builds, kept.builds(batch.builds, batch.jobs), keeping)
        rows = changes.later(rows, _stored(builds, _days(rows), ["id", "fetched_at"]))
        gone = self._gone(builds, batch)
        later = [one for one in batch.lists if one.at > self._state.lists.get(one.name, _NEVER)]
        for listed in later:
            self._keep(listed, keeping)
        jobs = self._replace_jobs(batch.jobs, rows, keeping)
        lists = {**self._state.lists, **{listed.name: listed.at for listed in later}}
        change = self._change(builds)
        both = pa.concat_tables([rows, gone])
        change.replace(both, "id", both["id"].combine_chunks(), _days(both))
        state = replace(self._state, lists=lists, as_of=_last(self._state.as_of, batch.as_of))
        if batch.scope is not None and batch.mark is not None:
            state = state.marked(batch.scope, batch.mark, batch.basis)
        return self._finish(change, state, rows.num_rows, jobs, gone.num_rows)

    def merge(self) -> Committed:
        builds = Table.at(self._place, "builds")
        assert builds is not None
        self._begin_with(builds)
        if (jobs := self._pinned("jobs")) is not None:
            of_jobs = self._change(jobs)
            of_jobs.merge_days()
            self._commit(of_jobs)
        change = self._change(builds)
        change.merge_days()
        return self._finish(change, self._state, 0, 0, 0)

    # --- the builds

    def _builds(self, schema: pa.Schema) -> Table:
        builds = Table.made(self._place, "builds", schema)
        self._begin_with(builds)
        return builds.widened(schema)

    def _begin_with(self, builds: Table) -> None:
        self._state = State.newest(builds)
        self._versions = dict(self._state.versions)

    def _rows(self, table: Table, frame: pd.DataFrame, keeping: Keeping) -> pa.Table:
        return kept.as_table(frame, table.schema, keeping.leaves_out(table.name))

    def _gone(self, builds: Table, batch: Batch) -> pa.Table:
        """The rows of builds that are gone, unless a later sync has found them again."""
        days = sorted({str(day) for day in batch.gone["day"]})
        stored = _stored(builds, days, builds.names)
        seen = dict(zip(batch.gone["id"], batch.gone["fetched_at"], strict=True))
        same = [
            seen.get(id) == at
            for id, at in zip(stored["id"].to_pylist(), stored["fetched_at"].to_pylist(), strict=True)
        ]
        rows = stored.filter(pa.array(same, pa.bool_()))
        for name, value in ((GONE_AT, batch.as_of), (IS_OPEN, False)):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(
                place,
                rows.schema.field(place),
                pa.repeat(pa.scalar(value, rows.schema.field(place).type), rows.num_rows),
            )
        return rows

    # --- the other tables

    def _pinned(self, name: str, schema: pa.Schema | None = None) -> Table | None:
        """A table as the newest sync names it, at its newest version."""
        table = Table.at(self._place, name) if schema is None else Table.made(self._place, name, schema)
        if table is None:
            return None
        named = self._versions.get(name, 0)
        if table.version != named:
            table = table.rolled_back_to(named)
        return table if schema is None else table.widened(schema)

    def _replace_jobs(self, jobs: pd.DataFrame, builds: pa.Table, keeping: Keeping) -> int:
        """Put the jobs of these builds in the place of those that the store has of them; how many these are."""
        table = self._pinned("jobs", keeping.schema("jobs"))
        assert table is not None
        ids = builds["id"].combine_chunks()
        chosen = jobs[jobs["build_id"].isin(ids.to_pylist())]
        rows = self._rows(table, metrics.with_seconds(chosen), keeping)
        change = self._change(table)
        change.replace(rows, "build_id", ids, _days(builds))
        self._commit(change)
        return rows.num_rows

    def _keep(self, listed: Listed, keeping: Keeping) -> None:
        table = self._pinned(listed.table, keeping.schema(listed.table))
        assert table is not None
        stored = table.dataset().to_table()
        frame = listed.frame.assign(**listed.whose, valid_from=pd.Timestamp(listed.at))
        rows = changes.changed(stored, self._rows(table, frame, keeping), listed.whose, listed.at)
        change = self._change(table)
        if rows is not None:
            change.write(rows)
            change.removed.extend(table.files())
        self._commit(change)

    # --- committing

    def _change(self, table: Table) -> Change:
        change = Change(table)
        self._stack.callback(change.discard)
        return change

    def _commit(self, change: Change) -> None:
        self._versions[change.table.name] = change.table.version if change.is_none else self._committed(change)

    def _committed(self, change: Change, told: Mapping[str, Any] | None = None) -> int:
        version = change.table.commit(change, told)
        self._bytes += change.bytes_written
        change.added = []  # a commit names them now
        return version

    def _finish(self, change: Change, state: State, builds: int, jobs: int, gone: int) -> Committed:
        state = replace(state, versions=self._versions)
        version = self._committed(change, state.told())
        return Committed(replace(state, version=version), builds, jobs, gone, self._bytes)


def _stored(table: Table, days: list[str], columns: list[str]) -> pa.Table:
    """These columns of the rows of some days."""
    day = pa.array(days, pa.string()).cast(pa.date32())
    return table.dataset().to_table(columns, filter=pc.field("day").isin(day))


def _with(rows: pa.Table, name: str, value: Any) -> pa.Table:
    field = rows.schema.field(name)
    return rows.set_column(rows.column_names.index(name), field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))


def _days(rows: pa.Table) -> list[str]:
    return sorted(str(day) for day in pc.unique(rows["day"]))


def _last(one: Moment | None, other: Moment) -> Moment:
    return other if one is None else max(one, other)
