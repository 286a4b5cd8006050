"""Flaky tests: a history that is never stored, for it follows from the seed, the test and the time alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from buildframe.service import problems
from buildframe.service.answers.exchange import Answer, Operations, Request
from buildframe.service.answers.filters import Asked
from buildframe.service.data import stamps
from buildframe.service.data.bodies import ORIGIN, Body
from buildframe.service.data.database import Data
from buildframe.service.data.teams import team_id
from buildframe.service.life.story import HOUR, MINUTE, Story
from buildframe.service.world.lines import Line, Lines, first_lines
from buildframe.service.world.model import DAY, SECOND
from buildframe.service.world.roster import SUITES, Suite

_BEFORE = 75 * DAY  # by which the first tests are older than the world
_BIRTHS = 110 * DAY  # in which one test after the other becomes flaky

_PERIOD = re.compile(r"(\d{1,3})(hour|day|week)s?")
_UNITS = {"hour": HOUR, "day": DAY, "week": 7 * DAY}

_SUBJECTS = (
    "invoice", "tax", "refund", "export", "cart", "checkout", "search", "login", "import", "price", "stock", "mail",
)  # fmt: skip
_NAMES = (
    "rounds before tax", "keeps the order of lines", "waits for the lock", "retries once", "survives a lost connection",
    "sends <b>one</b> mail & no more", "escapes <script>alert('hi')</script>", "reads 日本語, Größe and 🚀",
    "=SUM(A1:A9) is no formula", "drops nobody's table'; DROP TABLE tests;--", "expires at midnight",
    "shows \"quoted\" names", "works around :boom:", "closes its socket", "sorts equal prices", "times out",
    "\u202eruns from right to left", "ends with a backslash \\",
)  # fmt: skip


class Flake(NamedTuple):
    """One time that a test flaked, when that was recorded, and when the test was resolved after it, if it was."""

    at: int
    recorded: int
    resolved: int | None


class FlakyTest:
    """One test of a suite and its flakes, which are worked out as far as they are asked for."""

    def __init__(self, suite: Suite, line: Line, number: int, story: Story) -> None:
        self._line, self._story, self._chance = line, story, story.chance
        self.id = self._chance.uuid("flaky test", line.organization.slug, suite.slug, number)
        self.text = _text(suite, number, 3 + int(self._chance.number(self.id, "row") * 400))
        self.born = story.world.start - _BEFORE + int(self._chance.number(self.id, "born") * _BIRTHS)
        self._coming = self._history()
        self._next: Flake | None = next(self._coming)
        self._flakes: list[Flake] = []
        self._branches: list[str] = []

    def _history(self) -> Iterator[Flake]:
        """Every flake in order; after one in sixteen the test is resolved, half the time for good."""
        chance, at, n = self._chance, self.born, 0
        mean = chance.around(40 * HOUR, 0.9, self.id, "gap")
        while True:
            recorded = at + int(chance.between(5, 240, self.id, n, "recorded") * SECOND)
            resolved = None
            if chance.happens(1 / 16, self.id, n, "resolved"):
                resolved = recorded + int(chance.around(9 * HOUR, 1.0, self.id, n, "resolved after"))
            yield Flake(at, recorded, resolved)
            if resolved is not None and chance.happens(0.5, self.id, n, "for good"):
                return
            at = max(recorded, resolved or 0) + MINUTE + int(chance.gap(mean, self.id, n, "next"))
            n += 1

    def flakes(self, now: int) -> list[Flake]:
        """What was recorded up to now, which never lies before the last time asked for."""
        while self._next is not None and self._next.recorded <= now:
            self._flakes.append(self._next)
            self._next = next(self._coming, None)
        return self._flakes

    def branches(self, now: int) -> list[str]:
        """The branch of each flake: one that was worked on at that time."""
        for n, flake in enumerate(self.flakes(now)[len(self._branches) :], len(self._branches)):
            self._branches.append(self._story.commit(self._line, f"{self.id} {n}", flake.at).branch)
        return self._branches

    def resolved(self, now: int) -> int | None:
        """When someone last marked it as resolved."""
        times = [flake.resolved for flake in self.flakes(now) if flake.resolved is not None]
        return max((time for time in times if time <= now), default=None)


class Suites:
    """Answers for the test suites of a world."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._tests: dict[tuple[str, str], list[FlakyTest]] = {}
        self.of: Operations = {"list_flaky_tests": self._list}

    def find(self, organization: str, slug: str) -> Suite:
        """A suite by its slug; 404 where the organization has none such."""
        for suite in SUITES.get(organization, ()):
            if suite.slug == slug:
                return suite
        raise problems.not_found("suite")

    def tests(self, organization: str, suite: Suite) -> list[FlakyTest]:
        """All tests of a suite that ever flake, in the order in which they begin."""
        key = organization, suite.slug
        if key not in self._tests:
            world = self._data.bodies.world
            lines = Lines(first_lines(world))  # as the world began, whatever became of the pipelines since
            line, story = lines[f"{organization}/{suite.pipeline}"], Story(world, lines)
            tests = [FlakyTest(suite, line, number, story) for number in range(suite.tests)]
            self._tests[key] = sorted(tests, key=lambda test: test.born)
        return self._tests[key]

    def test(self, organization: str, suite: Suite, id: str) -> FlakyTest:
        """A test that is known to be flaky by now; 404 if there is none such."""
        for test in self.tests(organization, suite):
            if test.id == id.lower() and test.flakes(self._data.load_now()):
                return test
        raise problems.not_found("flaky test")

    def body(self, organization: str, suite: Suite, test: FlakyTest) -> Body:
        """A flaky test as it is now."""
        now = self._data.load_now()
        flakes = test.flakes(now)
        return {
            "id": test.id,
            "web_url": f"{ORIGIN}/organizations/{organization}/analytics/suites/{suite.slug}/tests/{test.id}",
            **test.text,
            "instances": len(flakes),
            "latest_occurrence_at": stamps.modern(flakes[-1].at),
            "most_recent_instance_at": stamps.modern(flakes[-1].recorded),
            "last_resolved_at": stamps.modern(test.resolved(now)),
            "ownership_team_ids": self._owners(organization, suite, test),
        }

    def _owners(self, organization: str, suite: Suite, test: FlakyTest) -> list[str]:
        chance = self._data.bodies.chance
        teams = chance.pick(([], [suite.team], [suite.team], ["Everyone", suite.team]), test.id, "owners")
        return [team_id(chance, organization, team) for team in teams]

    def _list(self, request: Request) -> Answer:
        organization = request.path["org"]
        suite, now = self.find(organization, request.path["suite"]), self._data.load_now()
        wanted = _wanted(suite, request.filters, now)
        found = [test for test in self.tests(organization, suite) if test.flakes(now) and wanted(test)]
        page = found[request.page.offset : request.page.offset + request.page.size]
        return Answer(msgspec.json.encode([self.body(organization, suite, test) for test in page]), len(found))


def _wanted(suite: Suite, filters: Mapping[str, Asked], now: int) -> Callable[[FlakyTest], bool]:
    """Whether a test is among those asked for."""
    search, branch = str(filters.get("search", "")), filters.get("branch")
    since = now - _period(str(filters["period"])) if "period" in filters else 0
    searched = ("scope", "name", "location") if suite.language == "ruby" else ("scope", "name")

    def wanted(test: FlakyTest) -> bool:
        if test.flakes(now)[-1].recorded < since or not any(search in test.text[key] for key in searched):
            return False
        return branch is None or branch in test.branches(now)

    return wanted


def _period(text: str) -> int:
    read = _PERIOD.fullmatch(text)
    if read is None:
        raise problems.invalid([("period", "must be such as 1hour, 7days or 4weeks")])
    return int(read[1]) * _UNITS[read[2]]


def _text(suite: Suite, number: int, row: int) -> dict[str, str]:
    """What is written of a test: scope, name, location and file."""
    times, place = divmod(number, len(_SUBJECTS))
    subject, says = _SUBJECTS[place], _NAMES[(times + place) % len(_NAMES)]
    scope, name, file, location = {
        "ruby": (f"{subject.title()} of a customer", says, f"./spec/{subject}_spec.rb", "{}:{}"),
        "javascript": (f"{subject} › totals", says, f"src/{subject}/{subject}.test.ts", "{}:{}:7"),
        "python": (f"tests.{subject}.Test{subject.title()}", f"test_it[{says}]", f"tests/test_{subject}.py", "{}:{}"),
        "go": (f"example.com/{subject}", f"Test{subject.title()}/{says}", f"{subject}/{subject}_test.go", "{}:{}"),
    }[suite.language]
    return {"scope": scope, "name": name, "location": location.format(file, row), "file_name": file}
