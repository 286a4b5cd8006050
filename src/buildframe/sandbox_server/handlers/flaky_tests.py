"""Handler of flaky tests. Their history is derived from the seed and the time, never stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import NamedTuple

import msgspec

from buildframe.sandbox_server import error_responses
from buildframe.sandbox_server.db import timestamps
from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject
from buildframe.sandbox_server.handlers.messages import ApiRequest, ApiResponse
from buildframe.sandbox_server.handlers.registry import HandlerContext, HandlerGroup, handles
from buildframe.sandbox_server.handlers.sql_filters import FilterValue
from buildframe.sandbox_server.simulation.scenario import HOUR, MINUTE, Scenario
from buildframe.sandbox_server.world.model import DAY, SECOND
from buildframe.sandbox_server.world.pipelines import PipelineEntry, PipelineRegistry, initial_pipelines
from buildframe.sandbox_server.world.roster import SUITES, Suite
from buildframe.sandbox_server.world.teams import team_id
from buildframe.spec import list_flaky_tests

_BEFORE = 75 * DAY  # by which the first tests are older than the world
_BIRTHS = 110 * DAY  # in which one test after the other becomes flaky

_PERIOD = re.compile(r"(\d{1,3})(hour|day|week)s?")
_UNITS = {"hour": HOUR, "day": DAY, "week": 7 * DAY}

_TEXTS: dict[str, list[str]] = msgspec.json.decode(
    resources.files("buildframe.sandbox_server.handlers").joinpath("flaky_tests.json").read_bytes()
)


class Flake(NamedTuple):
    """One flake: its time, when it was recorded, and when the test was resolved after it, if at all."""

    at: int
    recorded: int
    resolved: int | None


class SimulatedTest:
    """A test and its flakes, which are generated up to the requested time."""

    def __init__(self, suite: Suite, entry: PipelineEntry, number: int, scenario: Scenario) -> None:
        self._entry, self._scenario, self._random = entry, scenario, scenario.random
        self.id = self._random.uuid("flaky test", entry.organization.slug, suite.slug, number)
        self.text = _text(suite, number, 3 + int(self._random.uniform(self.id, "row") * 400))
        self.born = scenario.world.start - _BEFORE + int(self._random.uniform(self.id, "born") * _BIRTHS)
        self._upcoming = self._history()
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

    def resolved(self, now: int) -> int | None:
        """Return when the test was last resolved; None if never."""
        times = [flake.resolved for flake in self.flakes(now) if flake.resolved is not None]
        return max((time for time in times if time <= now), default=None)


class SuiteRegistry:
    """Test suites with their flaky tests at the current time."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._tests: dict[tuple[str, str], list[SimulatedTest]] = {}

    def find(self, organization: str, slug: str) -> Suite:
        """Return a suite by its slug. Raises 404 if the organization has none."""
        for suite in SUITES.get(organization, ()):
            if suite.slug == slug:
                return suite
        raise error_responses.not_found("suite")

    def tests(self, organization: str, suite: Suite) -> list[SimulatedTest]:
        """Return all tests of a suite that ever flake, by their first flake."""
        key = organization, suite.slug
        if key not in self._tests:
            world = self._db.serializer.world
            entries = PipelineRegistry(initial_pipelines(world))  # which later changes do not affect
            entry, scenario = entries[f"{organization}/{suite.pipeline}"], Scenario(world, entries)
            tests = [SimulatedTest(suite, entry, number, scenario) for number in range(suite.tests)]
            self._tests[key] = sorted(tests, key=lambda test: test.born)
        return self._tests[key]

    def test(self, organization: str, suite: Suite, id: str) -> SimulatedTest:
        """Return a test that has flaked by now. Raises 404 if there is none."""
        for test in self.tests(organization, suite):
            if test.id == id.lower() and test.flakes(self._db.load_now()):
                return test
        raise error_responses.not_found("flaky test")

    def body(self, organization: str, suite: Suite, test: SimulatedTest) -> JsonObject:
        """Serialize a flaky test in its current state."""
        now = self._db.load_now()
        flakes = test.flakes(now)
        return {
            "id": test.id,
            "web_url": f"{ORIGIN}/organizations/{organization}/analytics/suites/{suite.slug}/tests/{test.id}",
            **test.text,
            "instances": len(flakes),
            "latest_occurrence_at": timestamps.format_time(flakes[-1].at),
            "most_recent_instance_at": timestamps.format_time(flakes[-1].recorded),
            "last_resolved_at": timestamps.format_time(test.resolved(now)),
            "ownership_team_ids": self._owners(organization, suite, test),
        }

    def _owners(self, organization: str, suite: Suite, test: SimulatedTest) -> list[str]:
        random = self._db.serializer.random
        teams = random.choice(([], [suite.team], [suite.team], ["Everyone", suite.team]), test.id, "owners")
        return [team_id(random, organization, team) for team in teams]


class FlakyTestHandlers(HandlerGroup):
    """Handles the list of flaky tests."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._suites = SuiteRegistry(context.db)

    @handles(list_flaky_tests)
    def _list(self, request: ApiRequest) -> ApiResponse:
        organization = request.path["org"]
        suite, now = self._suites.find(organization, request.path["suite"]), self._db.load_now()
        matches = _filter_predicate(suite, request.filters, now)
        tests = [test for test in self._suites.tests(organization, suite) if test.flakes(now) and matches(test)]
        bodies = [self._suites.body(organization, suite, test) for test in request.page.slice(tests)]
        return ApiResponse(bodies, len(tests))


def _filter_predicate(suite: Suite, filters: Mapping[str, FilterValue], now: int) -> Callable[[SimulatedTest], bool]:
    """Return the predicate of the filters."""
    search, branch = str(filters.get("search", "")), filters.get("branch")
    since = now - _parse_period(str(filters["period"])) if "period" in filters else 0
    searched = ("scope", "name", "location") if suite.language == "ruby" else ("scope", "name")

    def matches(test: SimulatedTest) -> bool:
        if test.flakes(now)[-1].recorded < since or not any(search in test.text[key] for key in searched):
            return False
        return branch is None or branch in test.branches(now)

    return matches


def _parse_period(text: str) -> int:
    match = _PERIOD.fullmatch(text)
    if match is None:
        raise error_responses.invalid([("period", "must be a period such as 1hour, 7days or 4weeks")])
    return int(match[1]) * _UNITS[match[2]]


def _text(suite: Suite, number: int, row: int) -> dict[str, str]:
    """Return the texts of a test: scope, name, location and file."""
    subjects, names = _TEXTS["subjects"], _TEXTS["names"]
    times, place = divmod(number, len(subjects))
    subject, says = subjects[place], names[(times + place) % len(names)]
    scope, name, file, location = {
        "ruby": (f"{subject.title()} of a customer", says, f"./spec/{subject}_spec.rb", "{}:{}"),
        "javascript": (f"{subject} › totals", says, f"src/{subject}/{subject}.test.ts", "{}:{}:7"),
        "python": (f"tests.{subject}.Test{subject.title()}", f"test_it[{says}]", f"tests/test_{subject}.py", "{}:{}"),
        "go": (f"example.com/{subject}", f"Test{subject.title()}/{says}", f"{subject}/{subject}_test.go", "{}:{}"),
    }[suite.language]
    return {"scope": scope, "name": name, "location": location.format(file, row), "file_name": file}
