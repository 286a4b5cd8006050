"""The pipelines of a running sandbox: each under a key that stays, whatever its slug becomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from buildframe.service.world.chance import Chance
from buildframe.service.world.model import Organization, World
from buildframe.service.world.records import Pipeline, founded
from buildframe.service.world.steps import Plan


class Line:
    """A pipeline in its organization, as it is now; a change to a pipeline is a new line of the same key.

    `key` is "organization/pipeline" for those that a world begins with, the UUID for those created later.
    """

    def __init__(self, key: str, organization: Organization, pipeline: Pipeline) -> None:
        self.key, self.organization, self.pipeline = key, organization, pipeline
        self.plan = Plan(pipeline.steps)

    def changed(self, pipeline: Pipeline) -> Line:
        """The same line with another record."""
        return Line(self.key, self.organization, pipeline)

    @property
    def path(self) -> str:
        """Where it is now: `organization/slug`."""
        return f"{self.organization.slug}/{self.pipeline.slug}"


class Lines:
    """All lines in order, and every plan that some build was created with."""

    def __init__(self, lines: Iterable[Line] = (), plans: Iterable[Plan] = ()) -> None:
        self._lines: dict[str, Line] = {}
        self._plans = {plan.key: plan for plan in plans}
        for line in lines:
            self.put(line)

    def __getitem__(self, key: str) -> Line:
        return self._lines[key]

    def __iter__(self) -> Iterator[Line]:
        return iter(list(self._lines.values()))

    def get(self, key: str) -> Line | None:
        """The line of this key, if there is one."""
        return self._lines.get(key)

    def find(self, organization: str, slug: str) -> Line | None:
        """The line whose pipeline has this slug now."""
        return next((line for line in self.of(organization) if line.pipeline.slug == slug), None)

    def of(self, organization: str) -> list[Line]:
        """The lines of an organization, in order of creation."""
        return [line for line in self if line.organization.slug == organization]

    def put(self, line: Line) -> None:
        """Add a line, or replace the one of its key."""
        self._lines[line.key] = line
        self._plans[line.plan.key] = line.plan

    @contextmanager
    def changing(self) -> Iterator[None]:
        """What is put or dropped within holds only if nothing fails."""
        before = dict(self._lines)
        try:
            yield
        except BaseException:
            self._lines = before
            raise

    def drop(self, line: Line) -> None:
        """Forget a line; the plans stay."""
        del self._lines[line.key]

    def plan(self, key: str) -> Plan:
        """A plan by its key."""
        return self._plans[key]


def first_lines(world: World) -> list[Line]:
    """The lines that a world begins with."""
    chance = Chance(world.seed)
    return [
        Line(
            f"{organization.slug}/{pipeline.slug}",
            organization,
            founded(pipeline, organization.slug, organization.has_cluster, chance, world.start),
        )
        for organization in world.organizations
        for pipeline in organization.pipelines
    ]
