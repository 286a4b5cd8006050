"""Handler of flaky tests. Their history is derived from the seed and the time, never stored."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from buildframe.sandbox_server.data_files import data_file
from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject, format_time
from buildframe.sandbox_server.error_responses import invalid
from buildframe.sandbox_server.handlers import lookup
from buildframe.sandbox_server.handlers.registry import ApiRequest, ApiResponse, HandlerGroup, handles
from buildframe.sandbox_server.simulation.scenario import HOUR, MINUTE, Scenario
from buildframe.sandbox_server.world.ground_truth import UnstableTest
from buildframe.sandbox_server.world.model import DAY, SECOND, Suite
from buildframe.sandbox_server.world.pipelines import PipelineEntry, PipelineRegistry, initial_pipelines
from buildframe.sandbox_server.world.planting import flaky_test_id
from buildframe.sandbox_server.world.teams import team_id
from buildframe.spec import list_flaky_tests
from buildframe.spec.decoders import decoder_of
from buildframe.spec.flaky_tests import DEFAULT_PERIOD, PERIODS

_BEFORE = 75 * DAY  # by which the first tests are older than the world
_BIRTHS = 110 * DAY  # in which one test after the other becomes flaky


class _TestTexts(msgspec.Struct):
    """The words of generated tests, and the format of each text in each language."""

    subjects: list[str]
    names: list[str]
    odd_names: list[str]
    languages: dict[str, dict[str, str]]


_TEXTS = decoder_of(_TestTexts).decode(data_file("handlers/flaky_tests.json").read_bytes())


class Flake(NamedTuple):
    """One flake: its time, when it was recorded, and when the test was resolved after it, if at all."""

    at: int
    recorded: int
    resolved: int | None


class SimulatedTest:
    """A test and its flakes, which are generated up to the requested time."""

    def __init__(self, suite: Suite, entry: PipelineEntry, number: int, scenario: Scenario) -> None:
        self.suite, self.organization = suite, entry.organization.slug
        self._entry, self._scenario, self._random = entry, scenario, scenario.random
        self.id = flaky_test_id(self._random, self.organization, suite.slug, number)
        times, place = divmod(number, len(_TEXTS.subjects))
        names = _TEXTS.odd_names if scenario.world.is_odd else _TEXTS.names
        subject = _TEXTS.subjects[place]
        says = names[(times + place) % len(names)]
        words = {"subject": subject, "Subject": subject.title(), "says": says}
        row = 3 + int(self._random.uniform(self.id, "row") * 400)
        formats = _TEXTS.languages[suite.language]
        self.text = {name: text.format(**words, row=row) for name, text in formats.items()}
        born = scenario.world.start - _BEFORE + int(self._random.uniform(self.id, "born") * _BIRTHS)
        planted = [test for test in scenario.world.truth.flaky_tests if test.test_id == self.id]
        self.born = planted[0].since.us if planted else born
        self._upcoming = self._planted_history(planted[0]) if planted else self._history()
        self._next: Flake | None = next(self._upcoming)
        self._flakes: list[Flake] = []
        self._branches: list[str] = []

    def _history(self) -> Iterator[Flake]:
        """Yield the flakes in order. One in sixteen resolves the test, half of these for good."""
        random, at, n = self._random, self.born, 0
        mean = random.lognormal(40 * HOUR, 0.9, self.id, "gap")
        while True:
            recorded = at + int(random.uniform_between(5, 240, self.id, n, "recorded") * SECOND)
            resolved = None
            if random.happens(1 / 16, self.id, n, "resolved"):
                resolved = recorded + int(random.lognormal(9 * HOUR, 1.0, self.id, n, "resolved after"))
            yield Flake(at, recorded, resolved)
            if resolved is not None and random.happens(0.5, self.id, n, "for good"):
                return
            at = max(recorded, resolved or 0) + MINUTE + int(random.exponential(mean, self.id, n, "next"))
            n += 1

    def _planted_history(self, planted: UnstableTest) -> Iterator[Flake]:
        """Yield the flakes of a test that flakes often and is never resolved."""
        at, n = planted.since.us, 0
        while True:
            yield Flake(at, at + int(self._random.uniform_between(5, 240, self.id, n, "recorded") * SECOND), None)
            pause = max(0.0, DAY / planted.per_day - 5 * MINUTE)
            at += 5 * MINUTE + int(self._random.exponential(pause, self.id, n, "next"))
            n += 1

    def flakes(self, now: int) -> list[Flake]:
        """Return the flakes recorded until now. Times of calls must not decrease."""
        while self._next is not None and self._next.recorded <= now:
            self._flakes.append(self._next)
            self._next = next(self._upcoming, None)
        return self._flakes

    def branches(self, now: int) -> list[str]:
        """Return the branch of each flake: one that was active at the time."""
        for n, flake in enumerate(self.flakes(now)[len(self._branches) :], len(self._branches)):
            self._branches.append(self._scenario.commit(self._entry, f"{self.id} {n}", flake.at).branch)
        return self._branches

    def contains(self, search: str) -> bool:
        """Return whether the scope or the name contains a text; in Ruby, also whether the location does."""
        searched = ("scope", "name", "location") if self.suite.language == "ruby" else ("scope", "name")
        return any(search in self.text[key] for key in searched)

    def body(self, now: int) -> JsonObject:
        """Serialize the test in its current state."""
        flakes, team = self.flakes(now), self.suite.team
        resolved = [flake.resolved for flake in flakes if flake.resolved is not None and flake.resolved <= now]
        owners = self._random.choice(([], [team], [team], ["Everyone", team]), self.id, "owners")
        page = f"{ORIGIN}/organizations/{self.organization}/analytics/suites/{self.suite.slug}/tests/{self.id}"
        return {
            "id": self.id,
            "web_url": page,
            **self.text,
            "instances": len(flakes),
            "latest_occurrence_at": format_time(flakes[-1].at),
            "most_recent_instance_at": format_time(flakes[-1].recorded),
            "last_resolved_at": format_time(max(resolved, default=None)),
            "ownership_team_ids": [team_id(self._random, self.organization, owner) for owner in owners],
        }


class SuiteRegistry:
    """Test suites with their flaky tests at the current time."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._tests: dict[tuple[str, str], list[SimulatedTest]] = {}

    def list_tests(self, organization: str, slug: str) -> list[SimulatedTest]:
        """Return all tests of a suite that have flaked by now, by their first flake. Raises 404 without the suite."""
        now = self._db.load_now()
        return [test for test in self.list_all_tests(organization, slug) if test.flakes(now)]

    def list_all_tests(self, organization: str, slug: str) -> list[SimulatedTest]:
        """Return all tests of a suite. Raises 404 without the suite."""
        if (organization, slug) not in self._tests:
            world = self._db.serializer.world
            suite = lookup.find_suite(self._db, {"org": organization, "suite": slug})
            entries = PipelineRegistry(initial_pipelines(world))  # which later changes do not affect
            entry, scenario = entries[f"{organization}/{suite.pipeline}"], Scenario(world, entries)
            tests = [SimulatedTest(suite, entry, number, scenario) for number in range(suite.tests)]
            self._tests[organization, slug] = sorted(tests, key=lambda test: test.born)
        return self._tests[organization, slug]


class FlakyTestHandlers(HandlerGroup):
    """Handles the list of flaky tests."""

    @functools.cached_property
    def _suites(self) -> SuiteRegistry:
        return SuiteRegistry(self._db)

    @handles(list_flaky_tests)
    def _list(self, request: ApiRequest) -> ApiResponse:
        tests, now = self._suites.list_tests(request.path["org"], request.path["suite"]), self._db.load_now()
        search, branch = str(request.filters.get("search", "")), request.filters.get("branch")
        since = now - parse_period(str(request.filters.get("period", DEFAULT_PERIOD)))
        found = (test for test in tests if test.flakes(now)[-1].recorded >= since and test.contains(search))
        tests = [test for test in found if branch is None or branch in test.branches(now)]
        return ApiResponse([test.body(now) for test in request.page.slice(tests)], len(tests))


def parse_period(text: str) -> int:
    """Return the length of a period such as `7days` in microseconds. Raises 422 if it is none."""
    if text not in PERIODS:
        raise invalid([("period", f"must be one of {', '.join(PERIODS)}")])
    return PERIODS[text] // dt.timedelta(microseconds=1)
