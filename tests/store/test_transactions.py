"""Compare commits with a plain model: after kills and concurrent commits, each version is as a sync left it."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from buildframe.errors import BadInput
from buildframe.store import transactions
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.store import Store
from buildframe.store.sync_state import SyncState
from buildframe.store.transactions import SyncBatch
from tests.store.batches import PLAIN, Build, StoredContent, at_instant, batch, dies_at, expected, flaky, stored_content

pytestmark = pytest.mark.long

RETENTIONS = st.sampled_from([PLAIN, Retention(personal=True), Retention(env=True)])
INSTANTS = st.tuples(st.integers(0, 40), st.just("")) | st.tuples(st.integers(0, 7), st.just("commit"))

builds = st.lists(
    st.builds(
        Build,
        key=st.integers(0, 9),
        at=st.integers(0, 8),
        day=st.just(0),
        state=st.sampled_from(["passed", "running"]),
        jobs=st.sets(st.integers(0, 3), max_size=3).map(lambda jobs: tuple(sorted(jobs))),
    ),
    max_size=6,
    unique_by=lambda build: build.key,
).map(lambda found: [Build(one.key, one.at, _day_of(one.key), one.state, one.jobs) for one in found])
lists = st.none() | st.tuples(st.integers(0, 8), st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)))


def _day_of(key: int) -> int | None:
    return None if key == 9 else key % 4


@dataclass
class Model:
    """The content of a store, by plain rules."""

    builds: dict[int, Build] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    tests: dict[str, int] | None = None
    read_at: int = -1

    def take(self, new: list[Build], gone: list[Build], listed: tuple[int, dict[str, int]] | None) -> None:
        for one in new:
            if one.key not in self.builds or one.at >= self.builds[one.key].at:
                self.builds[one.key] = one
                self.gone.discard(one.id)
        self.gone |= {one.id for one in gone if one.key in self.builds and self.builds[one.key].at == one.at}
        if listed is not None and listed[0] > self.read_at:
            self.read_at, self.tests = listed

    def content(self) -> tuple[StoredContent, dict[str, int] | None]:
        return expected(self.builds.values(), self.gone), None if self.tests is None else dict(self.tests)


def content_of(store: Store) -> tuple[StoredContent, dict[str, int] | None]:
    builds = stored_content(store)
    try:
        listed = store.flaky_tests("rspec")
    except BadInput:
        return builds, None  # no such list was ever read
    return builds, dict(zip(listed["id"], listed["instances"], strict=True))


class Commits(RuleBasedStateMachine):
    """Syncs, also killed and concurrent ones, `compact` and `clean`."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.place = Location.of(self.folder, None)
        self.model, self.now = Model(), 100
        self.versions: dict[int, Any] = {}

    def teardown(self) -> None:
        for version, was in self.versions.items():
            assert content_of(Store(self.folder, as_of=version)) == was
        shutil.rmtree(self.folder)

    def _batch(self, new: list[Build], listed: tuple[int, dict[str, int]] | None) -> tuple[SyncBatch, list[Build]]:
        gone = [one for one in self.model.builds.values() if one.is_open and one.key % 3 == 0]
        gone = [one for one in gone if one.key not in {other.key for other in new}]
        self.now += 1
        found = () if listed is None else (flaky(listed[1], listed[0]), flaky({"z": 1}, listed[0], suite="jest"))
        return batch(new, self.now, gone, lists=found), gone

    def _committed(self, done: transactions.CommitResult) -> None:
        self.versions[done.state.version] = self.model.content()

    @rule(new=builds, listed=lists, retention=RETENTIONS)
    def sync(self, new: list[Build], listed: Any, retention: Retention) -> None:
        made, gone = self._batch(new, listed)
        self.model.take(new, gone, listed)
        self._committed(transactions.commit(self.place, retention, made))

    @rule(new=builds, listed=lists, retention=RETENTIONS, instant=INSTANTS)
    def killed(self, new: list[Build], listed: Any, retention: Retention, instant: tuple[int, str]) -> None:
        made, gone = self._batch(new, listed)
        before = self._newest()
        with dies_at(*instant):
            transactions.commit(self.place, retention, made)
        if (after := self._newest()) > before:
            self.model.take(new, gone, listed)
            self.versions[after] = self.model.content()

    @rule(one=builds, other=builds, listed=lists, also=lists, instant=INSTANTS, retention=RETENTIONS)
    def concurrent(
        self,
        one: list[Build],
        other: list[Build],
        listed: Any,
        also: Any,
        instant: tuple[int, str],
        retention: Retention,
    ) -> None:
        """Commit another sync while one is running."""
        made, gone = self._batch(one, listed)
        between, also_gone = self._batch(other, also)
        before, order = self._newest(), []

        def take_one() -> None:
            order.append("one")
            self.model.take(one, gone, listed)

        def come_between() -> None:
            if (done_already := self._newest()) > before:
                take_one()
                self.versions[done_already] = self.model.content()
            order.append("other")
            self.model.take(other, also_gone, also)
            self._committed(transactions.commit(self.place, PLAIN, between))

        with at_instant(instant[0], come_between, instant[1]):
            done = transactions.commit(self.place, retention, made)
        if "one" not in order:
            take_one()
            self._committed(done)

    def _newest(self) -> int:
        table = TableVersion.at(self.place, "builds")
        return -1 if table is None else SyncState.newest(table).version

    @rule()
    def compact(self) -> None:
        if self.versions:
            self._committed(transactions.compact(self.place))

    @rule(keep=st.integers(0, 5))
    def clean(self, keep: int) -> None:
        if self.versions:
            long_ago = mock.patch.object(
                TableVersion, "committed_at", return_value=dt.datetime.fromtimestamp(0, dt.UTC)
            )
            with mock.patch.object(transactions, "GRACE", dt.timedelta(0)), long_ago:
                transactions.clean(self.place, dt.timedelta(seconds=keep))
            first = SyncState.newest(TableVersion.open_or_create(self.place, "builds", PLAIN.schema("builds"))).first
            self.versions = {version: was for version, was in self.versions.items() if version >= first}

    @invariant()
    def the_newest_is_the_model(self) -> None:
        if self.versions:
            assert content_of(Store(self.folder)) == self.model.content()

    @invariant()
    def others_read_whole_tables(self) -> None:
        for name in ("builds", "jobs") if self.versions else ():
            table = deltalake.DeltaTable(self.folder / name).to_pyarrow_table()
            assert len(set(table["id"].to_pylist())) == table.num_rows


TestCommits = Commits.TestCase
TestCommits.settings = settings(
    max_examples=int(os.environ.get("COMMITS", "8")),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
