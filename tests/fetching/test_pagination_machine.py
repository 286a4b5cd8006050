"""Several readers list builds that change between any two requests, and must not lose one."""

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
from tests.in_memory_service import SECOND, Build, InMemoryService, at

GAPS = st.one_of(  # many builds of one timestamp, a steady rate, and quiet times
    st.sampled_from([0, 0, 0, 0, 0, 1, 999, 61 * SECOND]),
    st.sampled_from([1, 999, 100_000, 400_000]),
    st.sampled_from([SECOND, 2 * SECOND, 61 * SECOND]),
)


class PaginationMachine(RuleBasedStateMachine):
    """One listing, whose responses are created at one time and arrive later, in any order."""

    overlap = dt.timedelta(seconds=1)
    jitters = (0, 0, 300_000, SECOND)
    is_initialized = False

    @initialize(
        gaps=st.lists(st.tuples(GAPS, st.integers(0, 3 * SECOND)), max_size=50),
        size=st.integers(1, 7),
        grain=st.sampled_from([1, 1000, SECOND]),
        by_stamp=st.booleans(),
        reports_pages=st.booleans(),
        readers=st.integers(1, 5),
        changing=st.booleans(),
        deepest=st.sampled_from([10**9, 10**9, 2]),
        bounds=st.tuples(st.none() | st.integers(990, 1100), st.none() | st.integers(1101, 1300)),
        data=st.data(),
    )
    def begin(self, gaps, size, grain, by_stamp, reports_pages, readers, changing, deepest, bounds, data):
        jitter = data.draw(st.sampled_from(self.jitters), "jitter")
        self.service = InMemoryService(size, grain, jitter, by_stamp, reports_pages, deepest)
        for gap, early in gaps:
            self.service.create(gap, early)
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
        self.start_reader()

    # --- the service

    @rule(gap=GAPS, early=st.integers(0, 3 * SECOND))
    def create(self, gap, early):
        build = self.service.create(gap, early)
        if self.begun:
            build.existed = False
            self.arrived.append(build)

    @rule(data=st.data())
    def delete(self, data):
        if self.service.builds:
            gone = self.service.builds.pop(data.draw(st.integers(0, len(self.service.builds) - 1)))
            gone.existed = False
            self.deleted += self.begun

    @precondition(lambda self: self.changing)
    @rule(data=st.data())
    def finish_or_reopen(self, data):
        if self.service.builds:
            build = self.service.builds[data.draw(st.integers(0, len(self.service.builds) - 1))]
            build.matches = not build.matches
            build.existed = build.existed and (build.matches or not self.begun)

    # --- the readers

    @rule()
    def start_reader(self):
        reader = self.pagination.start(self.readers)
        if reader is not None:
            self.put_back(reader)

    @precondition(lambda self: self.idle)
    @rule(data=st.data())
    def request(self, data):
        reader = self.idle.pop(data.draw(st.integers(0, len(self.idle) - 1)))
        if not self.begun:
            self.begun = True
            self.first = self.service.respond(reader.query)
            for build in self.service.builds:
                build.existed = build.matches
        self.under_way.append((reader, self.service.respond(reader.query)))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def arrive(self, data):
        reader, response = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        if isinstance(response, Invalid):
            reader.refuse(response)
        else:
            self.found += [row.id for row in reader.take(response).rows]
        self.put_back(reader)

    def put_back(self, reader: Reader) -> None:
        if reader.query is None:
            self.pagination.end(reader)
        else:
            self.idle.append(reader)

    # --- what is checked

    def teardown(self):
        if not self.is_initialized:
            return
        self.finish()
        existed = {build.id for build in self.service.builds if build.existed and self.within(build)}
        missing = existed - set(self.found)
        note(f"missing {sorted(missing)}; unverified {self.pagination.state.unverified}; first {self.first}")
        assert len(self.found) == len(set(self.found))
        assert set(self.found) <= {f"b{n}" for n in range(1, self.service.made + 1)}
        self.check_missing(missing)

        event(f"unverified: {len(self.pagination.state.unverified)}")

    def finish(self) -> None:
        requests = 0
        while not self.pagination.is_over or self.idle or self.under_way:
            requests += 1
            assert requests < 5000
            self.start_reader()
            if self.idle:
                self.request(First())
            if self.under_way:
                self.arrive(First())
        assert self.pagination.remaining == []

    def within(self, build: Build) -> bool:
        return build in self.service.list(self.window)

    def check_missing(self, missing: set[str]) -> None:
        if self.service.refusals:
            event("pages were refused")
            assert self.pagination.state.unverified or not missing
        else:
            assert not missing
            assert not self.pagination.state.unverified
        self.check_late_builds()

    def check_late_builds(self) -> None:
        """Check that builds created after the first response are listed only at the newest timestamp."""
        if self.changing or not self.first.rows:
            return
        stamps = [Moment.parse(row.created_at) for row in self.first.rows]
        grain = dt.timedelta(microseconds=self.service.grain)
        reached_below = max(stamps) - min(stamps) >= self.overlap + 2 * dt.timedelta(seconds=1)
        for build in self.arrived:
            if build.id in self.found:
                shown = self.service.shown(build)
                assert shown < max(stamps) + self.overlap + dt.timedelta(seconds=1)
                assert not reached_below or shown < max(stamps), (build, grain)


class DisorderedMachine(PaginationMachine):
    """The list may be out of order by far more than the overlap, so a listing may be reported as incomplete."""

    jitters = (5 * SECOND, 100 * SECOND)

    def check_missing(self, missing):
        """If a page showed the disorder, no build is missing silently, unless a change compensates for it."""
        changed = self.deleted or self.arrived or self.changing
        if self.service.disorder > SECOND and not self.pagination.state.unverified and not changed:
            created = {build.id: build.created for build in self.service.builds}
            assert not [id for id in missing if at(created[id]) < self.first.at]


class First:
    """Draws the first element of any list."""

    def draw(self, strategy):
        return 0


EXAMPLES = int(os.environ.get("MACHINE_EXAMPLES", "300"))
FEW = settings(max_examples=20, stateful_step_count=40, deadline=None)
"""Settings of the first lane."""
MANY = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)


class TestPagination(PaginationMachine.TestCase):
    settings = FEW


class TestDisordered(DisorderedMachine.TestCase):
    settings = FEW


@pytest.mark.long
class TestPaginationOften(PaginationMachine.TestCase):
    settings = MANY


@pytest.mark.long
class TestDisorderedOften(DisorderedMachine.TestCase):
    settings = MANY
