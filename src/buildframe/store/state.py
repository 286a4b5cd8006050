"""What a sync's commit carries: how far the store reaches, and which versions of its tables belong together."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from buildframe.errors import StoreFailed
from buildframe.spec import Moment
from buildframe.store.lake import Table
from buildframe.store.place import Place

FORMAT = 1

NEVER = Moment.from_us(0)
"""Before all that a service tells of."""


@dataclass(frozen=True)
class Mark:
    """Of an organization or a pipeline: builds created since `since` are known as they were at `until`, or later."""

    since: Moment
    until: Moment

    def joined(self, other: Mark) -> Mark:
        """What two that were made at the same time know together."""
        return Mark(min(self.since, other.since), min(self.until, other.until))


@dataclass(frozen=True)
class State:
    """What the newest sync tells of the store.

    `version` is that of the builds, `versions` those of the other tables; `marks` are by scope (an organization, or
    it and a pipeline's id), `lists` are the service's times when each list was last read. Versions before `first` may
    lack files, as a cleaning deleted what only they needed. `heard`: deliveries have told more since that sync.
    """

    version: int = -1
    as_of: Moment | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    lists: Mapping[str, Moment] = field(default_factory=dict)
    first: int = 0
    heard: bool = False

    @classmethod
    def newest(cls, builds: Table) -> Self:
        """That of a version of the table of builds; nothing known where no sync was."""
        return next(cls.all(builds), cls())

    @classmethod
    def all(cls, builds: Table, down_from: int | None = None) -> Iterator[Self]:
        """Those of all versions up to it, or to an earlier one, the newest first."""
        for version in range(builds.version if down_from is None else down_from, -1, -1):
            told = builds.told(version)
            if told is not None:
                yield cls._read(version, told)

    @classmethod
    def at(cls, builds: Table, wanted: Moment | int) -> Self | None:
        """The last at or before a time or a version; None where there is none that can still be read.

        At a time that is as a sync left it, without what deliveries told until the next one.
        """
        newest = cls.newest(builds)
        version = wanted if isinstance(wanted, int) else cls._version_at(builds, newest, wanted)
        found = (state for state in cls.all(builds, min(version, newest.version)) if state.version >= newest.first)
        return next((state for state in found if isinstance(wanted, int) or not state.heard), None)

    @classmethod
    def oldest(cls, builds: Table) -> Self:
        """The first that can still be read."""
        newest = cls.newest(builds)
        told = ((version, builds.told(version)) for version in range(newest.first, newest.version + 1))
        return next(cls._read(version, what) for version, what in told if what is not None)

    @classmethod
    def _version_at(cls, builds: Table, newest: Self, wanted: Moment) -> int:
        """The last that is not later than a time; by halves, since the times of versions never go back."""

        def as_of(version: int) -> Moment:
            state = next(cls.all(builds, version), None)
            return NEVER if state is None or state.as_of is None else state.as_of

        versions = range(newest.first, newest.version + 1)
        return newest.first + bisect.bisect_right(versions, wanted, key=as_of) - 1

    @classmethod
    def _read(cls, version: int, told: Mapping[str, Any]) -> Self:
        if told.get("format") != FORMAT:
            raise StoreFailed(
                f"The store was written by a later version of buildframe (format {told.get('format')}); "
                'install that: pip install --upgrade "buildframe[store]"'
            )
        return cls(
            version,
            Moment.parse(told["as_of"]),
            told["versions"],
            {scope: Mark(*map(Moment.parse, ends)) for scope, ends in told["marks"].items()},
            {name: Moment.parse(at) for name, at in told["lists"].items()},
            told.get("first", 0),
            told.get("heard", False),
        )

    def told(self) -> dict[str, Any]:
        """The same as plain JSON."""
        assert self.as_of is not None
        return {
            "format": FORMAT,
            "as_of": self.as_of.text(),
            "versions": dict(self.versions),
            "marks": {scope: [mark.since.text(), mark.until.text()] for scope, mark in self.marks.items()},
            "lists": {name: at.text() for name, at in self.lists.items()},
            "first": self.first,
            "heard": self.heard,
        }

    def table(self, place: Place, name: str) -> Table | None:
        """A table as it was at this sync; None where the store had none."""
        version = self.version if name == "builds" else self.versions.get(name)
        return None if version is None or version < 0 else Table.at(place, name, version)

    def marked(self, scope: str, mark: Mark, basis: Mark | None) -> Self:
        """With a mark that was worked out from `basis`; another sync may have come between."""
        now = self.marks.get(scope)
        return replace(self, marks={**self.marks, scope: mark if now in (None, basis) else now.joined(mark)})
