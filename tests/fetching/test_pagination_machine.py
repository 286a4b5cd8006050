"""A world that changes between any two requests, and walks by several readers at once that must not lose a build."""

from __future__ import annotations

import datetime as dt
import os

import pytest
from hypothesis import event, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from buildframe.errors import Invalid
from buildframe.fetching.range_reader import Reader
from buildframe.fetching.time_pagination import TimePagination
from buildframe.fetching.time_ranges import TimeRange
from buildframe.http.protocol import Page
from buildframe.spec import Moment
from tests.walked import SECOND, Build, World, at

pytestmark = pytest.mark.slow

GAPS = st.one_of(  # crowded instants, a steady trickle, and quiet times
    st.sampled_from([0, 0, 0, 0, 0, 1, 999, 61 * SECOND]),
    st.sampled_from([1, 999, 100_000, 400_000]),
    st.sampled_from([SECOND, 2 * SECOND, 61 * SECOND]),
)


class Walks(RuleBasedStateMachine):
    """One walk; its readers' requests are answered at one moment and arrive at a later one, in any order."""

    overlap = dt.timedelta(seconds=1)
    jitters = (0, 0, 300_000, SECOND)
    is_initialized = False

    @initialize(
        gaps=st.lists(st.tuples(GAPS, st.integers(0, 3 * SECOND)), max_size=50),
        size=st.integers(1, 7),
        grain=st.sampled_from([1, 1000, SECOND]),
        by_stamp=st.booleans(),
        tells=st.booleans(),
        readers=st.integers(1, 5),
        changing=st.booleans(),
        deepest=st.sampled_from([10**9, 10**9, 2]),
        bounds=st.tuples(st.none() | st.integers(990, 1100), st.none() | st.integers(1101, 1300)),
        data=st.data(),
    )
    def begin(self, gaps, size, grain, by_stamp, tells, readers, changing, deepest, bounds, data):
        jitter = data.draw(st.sampled_from(self.jitters), "jitter")
        self.world = World(size, grain, jitter, by_stamp, tells, deepest)
        for gap, early in gaps:
            self.world.create(gap, early)
        self.changing, self.readers = changing, readers
        start, end = (None if bound is None else at(bound * SECOND) for bound in bounds)
        self.window = TimeRange(start, end)
        self.pagination = TimePagination(self.window, overlap=self.overlap, is_steady=not changing)
        self.under_way: list[tuple[Reader, Page | Invalid]] = []
        self.idle: list[Reader] = []
        self.found: list[str] = []
        self.arrived: list[Build] = []
        self.begun = False
        self.deleted = 0
        self.is_initialized = True
        self.reader()

    # --- the world

    @rule(gap=GAPS, early=st.integers(0, 3 * SECOND))
    def create(self, gap, early):
        build = self.world.create(gap, early)
        if self.begun:
            build.lived = False
            self.arrived.append(build)

    @rule(data=st.data())
    def delete(self, data):
        if self.world.builds:
            gone = self.world.builds.pop(data.draw(st.integers(0, len(self.world.builds) - 1)))
            gone.lived = False
            self.deleted += self.begun

    @precondition(lambda self: self.changing)
    @rule(data=st.data())
    def finish_or_reopen(self, data):
        if self.world.builds:
            build = self.world.builds[data.draw(st.integers(0, len(self.world.builds) - 1))]
            build.matches = not build.matches
            build.lived = build.lived and (build.matches or not self.begun)

    # --- the readers

    @rule()
    def reader(self):
        reader = self.pagination.start(self.readers)
        if reader is not None:
            self.put_back(reader)

    @precondition(lambda self: self.idle)
    @rule(data=st.data())
    def ask(self, data):
        reader = self.idle.pop(data.draw(st.integers(0, len(self.idle) - 1)))
        if not self.begun:
            self.begun = True
            self.first = self.world.answer(reader.query)
            for build in self.world.builds:
                build.lived = build.matches
        self.under_way.append((reader, self.world.answer(reader.query)))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def arrive(self, data):
        reader, answer = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        if isinstance(answer, Invalid):
            reader.refuse(answer)
        else:
            self.found += [row.id for row in reader.take(answer).rows]
        self.put_back(reader)

    def put_back(self, reader: Reader) -> None:
        if reader.query is None:
            self.pagination.end(reader)
        else:
            self.idle.append(reader)

    # --- what must hold

    def teardown(self):
        if not self.is_initialized:
            return
        self.finish()
        lived = {build.id for build in self.world.builds if build.lived and self.within(build)}
        missing = lived - set(self.found)
        note(f"missing {sorted(missing)}; doubts {self.pagination.unverified}; first {self.first}")
        assert len(self.found) == len(set(self.found))
        assert set(self.found) <= {f"b{n}" for n in range(1, self.world.made + 1)}
        self.complete(missing)

        event(f"doubts: {len(self.pagination.unverified)}")

    def finish(self) -> None:
        requests = 0
        while not self.pagination.is_over or self.idle or self.under_way:
            requests += 1
            assert requests < 5000
            self.reader()
            if self.idle:
                self.ask(First())
            if self.under_way:
                self.arrive(First())
        assert self.pagination.remaining == []

    def within(self, build: Build) -> bool:
        return build in self.world.list(self.window)

    def complete(self, missing: set[str]) -> None:
        if self.world.refusals:
            event("pages were refused")
            assert self.pagination.unverified or not missing
        else:
            assert not missing
            assert not self.pagination.unverified
        self.nothing_of_later()

    def nothing_of_later(self) -> None:
        """Builds that came after the first answer are not listed, but for those of the newest timestamp."""
        if self.changing or not self.first.rows:
            return
        stamps = [Moment.parse(row.created_at) for row in self.first.rows]
        grain = dt.timedelta(microseconds=self.world.grain)
        reached_below = max(stamps) - min(stamps) >= self.overlap + 2 * dt.timedelta(seconds=1)
        for build in self.arrived:
            if build.id in self.found:
                shown = self.world.shown(build)
                assert shown < max(stamps) + self.overlap + dt.timedelta(seconds=1)
                assert not reached_below or shown < max(stamps), (build, grain)


class Disordered(Walks):
    """The list may be out of order by far more than the overlap, so a listing may say that it is incomplete."""

    jitters = (5 * SECOND, 100 * SECOND)

    def complete(self, missing):
        """Where a page showed the disorder, nothing is missing silently, if no change of the world made up for it."""
        changed = self.deleted or self.arrived or self.changing
        if self.world.disorder > SECOND and not self.pagination.unverified and not changed:
            created = {build.id: build.created for build in self.world.builds}
            assert not [id for id in missing if at(created[id]) < self.first.at]


class First:
    """Draws the first of what there is."""

    def draw(self, strategy):
        return 0


EXAMPLES = int(os.environ.get("WALKS", "300"))


class TestWalks(Walks.TestCase):
    settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)


class TestDisordered(Disordered.TestCase):
    settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
