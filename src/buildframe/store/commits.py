"""One sync, one commit: the tables of a store changed together, whoever else writes to it.

The commit of the builds is the sync's. It comes last and names the versions of the other tables, so what a killed or
overtaken sync left in those is in no version of the store; the next one rolls it back.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
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
from buildframe.store.changes import STAMPS
from buildframe.store.kept import GONE_AT, IS_OPEN, IS_TOLD, Keeping
from buildframe.store.lake import Change, Overtaken, Table, days_of
from buildframe.store.place import Place, told_plainly
from buildframe.store.state import NEVER, Mark, State
from buildframe.webhooks import Received

GRACE = dt.timedelta(days=1)
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
    """What a sync brings: builds with all their jobs, ids of builds that are gone, lists, and how far it reaches.

    `known` is the state that the sync began from: it read everything later than what was stored then. `here` and `sure`
    are those of a state. `began` is the state before the first commit of the sync.
    """

    builds: pd.DataFrame
    jobs: pd.DataFrame
    as_of: Moment
    gone: pd.DataFrame = field(default_factory=lambda: pd.DataFrame({"id": [], "day": [], "fetched_at": []}))
    lists: tuple[Listed, ...] = ()
    scope: str | None = None
    mark: Mark | None = None
    basis: Mark | None = None
    known: State = field(default_factory=State)
    here: Moment | None = None
    sure: Moment = NEVER
    began: State | None = None


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


def tell(place: Place, keeping: Keeping, told: Received) -> Committed:
    """Make what deliveries told part of the store: each build and each job for itself, if it is news."""
    return _until_first(place, lambda writing: writing.tell(keeping, told))


def compact(place: Place) -> Committed:
    """Make as few files of each day as its rows need; the rows stay."""
    return _until_first(place, lambda writing: writing.merge())


def clean(place: Place, keep: dt.timedelta) -> int:
    """Delete the files that only versions older than this need, but none written or given up within a day; how many.

    The store is told first that those versions are not to be read.
    """
    with told_plainly("cleaned", place):
        builds = Table.at(place, "builds")
        if builds is None:
            raise BadInput(f"There is no store at {place.url!r} yet; fill one with store.sync(ws).")
        oldest = _oldest_kept(builds, keep)
        before = dt.datetime.now(dt.UTC) - GRACE
        state = _until_first(place, lambda writing: writing.forget(oldest.version)).state
        versions = {**dict.fromkeys(state.versions, 0), **oldest.versions, "builds": oldest.version}
        tables = ((Table.at(place, name), version) for name, version in versions.items())
        return sum(table.delete_unneeded(version, before) for table, version in tables if table is not None)


def _oldest_kept(builds: Table, keep: dt.timedelta) -> State:
    """The oldest state within `keep` of the newest, or that was the newest within a day.

    Either clock may have been wrong, so a state is older than `keep` only by both: that of the service and that of the
    machine that committed it. A time of the service that is later than both clocks now says nothing. Before `ordered`
    there may be younger ones.
    """
    now = Moment.of(dt.datetime.now(dt.UTC))
    newest = kept = State.newest(builds)
    assert newest.as_of is not None
    first = (newest.as_of if newest.sure == NEVER else newest.sure) - keep
    last, version = max(newest.as_of, now), newest.version - 1
    while (state := next(State.all(builds, version), None)) is not None and state.version >= newest.first:
        assert state.as_of is not None
        is_young = first <= state.as_of <= last or builds.committed_at(state.version) >= now - keep
        if is_young or builds.committed_at(kept.version) >= now - GRACE:
            kept = state
        version = state.ordered - 1 if state.as_of < first and kept is not state else state.version - 1
    return kept


def _until_first(place: Place, write: Callable[[_Writing], Committed]) -> Committed:
    with told_plainly("written", place):
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
        self._changes: list[Change] = []

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def take(self, keeping: Keeping, batch: Batch) -> Committed:
        builds = self._builds(keeping.schema("builds"))
        rows = self._rows(builds, kept.builds(batch.builds, batch.jobs), keeping)
        marker = [IS_TOLD] if IS_TOLD in builds.names else []
        stored = self._stored_since(builds, batch.known, days_of(rows), ["id", "fetched_at", *marker])
        rows, overtaken = changes.later(rows, stored), changes.overtaken(rows, stored)
        gone = self._gone(builds, batch)
        later = [one for one in batch.lists if self._is_later(one, batch.known)]
        for name in dict.fromkeys(one.table for one in later):
            self._keep(name, [one for one in later if one.table == name], keeping)
        jobs = self._replace_jobs(batch.jobs, rows, keeping, overtaken, builds)
        lists = {**self._state.lists, **{listed.name: listed.at for listed in later}}
        change = self._change(builds)
        both = pa.concat_tables([rows, gone])
        change.replace(both, "id", both["id"].combine_chunks(), days_of(both))
        state = replace(self._dated(batch, builds.version + 1), lists=lists, heard=False)
        if batch.scope is not None and batch.mark is not None:
            state = state.marked(batch.scope, batch.mark, batch.basis)
        if batch.scope is not None and batch.began is not None:
            state = state.overlapped(batch.scope, batch.sure, batch.began)
        return self._finish(state, rows.num_rows, jobs, gone.num_rows)

    def tell(self, keeping: Keeping, told: Received) -> Committed:
        """What is no news is left out; where nothing is news, nothing is committed."""
        builds = self._builds(keeping.told)
        days = _days_told(told)
        stored = _rows_of(builds, "id", _ids(told.builds["id"], told.jobs["build_id"]), days)
        rows = self._rows(builds, kept.told(told.builds), keeping)
        rows = rows.filter(_mask(changes.is_news(rows, changes.until_gone(stored), STAMPS["builds"])))
        there = changes.put_in(rows, stored.filter(pc.is_null(stored[GONE_AT])))
        jobs = self._tell_jobs(told.jobs, there, rows["id"].to_pylist(), days, keeping)
        if not rows.num_rows + jobs.num_rows:
            return Committed(self._state, 0, 0, 0, 0)
        both = changes.told_of(there, rows, jobs)
        self._change(builds).replace(both, "id", both["id"].combine_chunks(), days_of(both))
        return self._finish(replace(self._state, heard=True), rows.num_rows, jobs.num_rows, 0)

    def merge(self) -> Committed:
        builds = Table.at(self._place, "builds")
        assert builds is not None
        self._begin_with(builds)
        if (jobs := self._pinned("jobs")) is not None:
            self._change(jobs).merge_days()
        self._change(builds).merge_days()
        if all(change.is_none for change in self._changes):
            return Committed(self._state, 0, 0, 0, 0)
        return self._finish(self._state, 0, 0, 0)

    def forget(self, first: int) -> Committed:
        """Tell that versions before this one are not to be read any more."""
        builds = Table.at(self._place, "builds")
        assert builds is not None
        self._begin_with(builds)
        state = replace(self._state, first=max(first, self._state.first))
        self._change(builds)
        return self._finish(state, 0, 0, 0)

    # --- the builds

    def _builds(self, schema: pa.Schema) -> Table:
        builds = Table.made(self._place, "builds", schema)
        self._begin_with(builds)
        return builds.widened(schema)

    def _begin_with(self, builds: Table) -> None:
        self._state = State.newest(builds)
        self._versions = dict(self._state.versions)

    def _stored_since(self, builds: Table, known: State, days: Collection[str | None], columns: list[str]) -> pa.Table:
        """The stored rows of some days that were not there yet when the sync began."""
        if known.version == self._state.version:
            return _stored(builds, [], columns)
        rows = _stored(builds, days, columns)
        if known.version < 0:
            return rows
        then = Table.at(self._place, "builds", known.version)
        assert then is not None
        before = set(map(tuple, _stored(then, days, ["id", "fetched_at"]).to_pandas().to_numpy()))
        now = rows.select(["id", "fetched_at"]).to_pandas().to_numpy()
        return rows.filter(_mask([tuple(one) not in before for one in now]))

    def _is_later(self, listed: Listed, known: State) -> bool:
        """Whether a list was read later than the stored one: surely if that was there when the sync began."""
        stored = self._state.lists.get(listed.name, NEVER)
        return stored == known.lists.get(listed.name, NEVER) or listed.at > stored

    def _dated(self, batch: Batch, version: int) -> State:
        """The state with the sync's time, unless another sync that came between is later."""
        stored = self._state.as_of
        if stored is None:
            return replace(self._state, as_of=batch.as_of, here=batch.here, sure=batch.sure)
        if batch.as_of < stored != batch.known.as_of:
            return self._state
        ordered = version if batch.as_of < stored else self._state.ordered
        return replace(self._state, as_of=batch.as_of, here=batch.here, sure=batch.sure, ordered=ordered)

    def _rows(self, table: Table, frame: pd.DataFrame, keeping: Keeping) -> pa.Table:
        return kept.as_table(frame, table.schema, keeping.leaves_out(table.name))

    def _gone(self, builds: Table, batch: Batch) -> pa.Table:
        """The rows of builds that are gone, unless a later sync has found them again."""
        days = {None if pd.isna(day) else str(day) for day in batch.gone["day"]}
        stored = _stored(builds, days, builds.names)
        seen = dict(zip(batch.gone["id"], batch.gone["fetched_at"], strict=True))
        same = [
            seen.get(id) == at
            for id, at in zip(stored["id"].to_pylist(), stored["fetched_at"].to_pylist(), strict=True)
        ]
        rows = stored.filter(pa.array(same, pa.bool_()))
        return _with(_with(rows, GONE_AT, batch.as_of), IS_OPEN, False)

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

    def _replace_jobs(
        self, jobs: pd.DataFrame, builds: pa.Table, keeping: Keeping, overtaken: pa.Table, of: Table
    ) -> int:
        """Put the jobs of these builds in the place of those that the store has of them; how many these are.

        Of builds that a delivery has overtaken, jobs that were told of since stay as they are.
        """
        table = self._pinned("jobs", keeping.schema("jobs"))
        assert table is not None
        both = pa.concat_tables([builds, overtaken])
        ids = both["id"].combine_chunks()
        chosen = jobs[jobs["build_id"].isin(ids.to_pylist())]
        rows = self._rows(table, metrics.with_seconds(chosen), keeping)
        if overtaken.num_rows:
            days, theirs = days_of(overtaken), overtaken["id"].combine_chunks()
            since = changes.told_since(_rows_of(table, "build_id", theirs, days), overtaken)
            rows = changes.beside(changes.put_in(since, rows), _rows_of(of, "id", theirs, days))
        self._change(table).replace(rows, "build_id", ids, days_of(both))
        return rows.num_rows

    def _tell_jobs(
        self, told: pd.DataFrame, builds: pa.Table, changed: Sequence[Any], days: list[str | None], keeping: Keeping
    ) -> pa.Table:
        """Bring news of jobs of these builds, of which some changed; which jobs these are."""
        table = self._pinned("jobs", keeping.schema("jobs"))
        assert table is not None
        ids = builds["id"].combine_chunks()
        stored = _rows_of(table, "build_id", ids, days)
        rows = self._rows(table, metrics.with_seconds(told[told["build_id"].isin(ids.to_pylist())]), keeping)
        rows = rows.filter(_mask(changes.is_news(rows, stored, STAMPS["jobs"])))
        touched = pa.array({*changed, *rows["build_id"].to_pylist()}, pa.string())
        whole = changes.beside(changes.put_in(rows, stored), builds)
        theirs = whole.filter(pc.is_in(whole["build_id"], value_set=touched))
        self._change(table).replace(theirs, "build_id", touched, days if len(touched) else [])
        return rows

    def _keep(self, name: str, lists: Sequence[Listed], keeping: Keeping) -> None:
        """Bring lists of one table up to date."""
        table = self._pinned(name, keeping.schema(name))
        assert table is not None
        stored = rows = table.dataset().to_table()
        for listed in lists:
            frame = listed.frame.assign(**listed.whose, valid_from=pd.Timestamp(listed.at))
            rows = changes.changed(rows, self._rows(table, frame, keeping), listed.whose, listed.at)
        change = self._change(table)
        if rows is not stored:
            change.write(rows)
            change.removed.extend(table.files())

    # --- committing

    def _change(self, table: Table) -> Change:
        change = Change(table)
        self._stack.callback(change.discard)
        self._changes.append(change)
        return change

    def _finish(self, state: State, builds: int, jobs: int, gone: int) -> Committed:
        """Commit all changes, now that all files are written; that of the builds, made last, comes last."""
        *others, of_builds = self._changes
        for change in others:
            table = change.table
            self._versions[table.name] = table.version if change.is_none else table.commit(change)
        state = replace(state, versions=self._versions)
        version = of_builds.table.commit(of_builds, state.told())
        written = sum(change.bytes_written for change in self._changes)
        return Committed(replace(state, version=version), builds, jobs, gone, written)


def _stored(table: Table, days: Collection[str | None], columns: list[str]) -> pa.Table:
    """These columns of the rows of some days."""
    day = pa.array([day for day in days if day is not None], pa.string()).cast(pa.date32())
    is_theirs = pc.field("day").isin(day)
    return table.dataset().to_table(
        columns, filter=is_theirs | pc.field("day").is_null() if None in days else is_theirs
    )


def _rows_of(table: Table, key: str, ids: pa.Array[Any], days: Collection[str | None]) -> pa.Table:
    """The rows of these days whose `key` is among `ids`."""
    return table.rows_in(table.holding(key, ids, days), key, ids)


def _days_told(told: Received) -> list[str | None]:
    """The days of all builds that are told of."""
    created = pd.concat([told.builds["created_at"], told.jobs["build_created_at"]])
    return [str(day) for day in sorted(set(created.dt.date))]


def _ids(*columns: pd.Series[str]) -> pa.Array[Any]:
    return pa.array(pd.concat(columns).unique(), pa.string())


def _mask(chosen: Sequence[bool]) -> pa.Array[Any]:
    return pa.array(chosen, pa.bool_())


def _with(rows: pa.Table, name: str, value: Any) -> pa.Table:
    field = rows.schema.field(name)
    return rows.set_column(rows.column_names.index(name), field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
