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
    """Of an organization or a pipeline: builds created since `since` are known as they were at `until`, or later.

    `until` is the service's time as it reported it, and may be too late. `seen` is a time that it had reached for sure
    (see `State.sure`); None, in marks of earlier versions, means `until`.
    """

    since: Moment
    until: Moment
    seen: Moment | None = None

    @property
    def sure(self) -> Moment:
        """The time that the service had reached for sure."""
        return self.until if self.seen is None else self.seen

    @property
    def again(self) -> Moment:
        """From when on the next sync has to read again."""
        return max(self.since, self.sure)

    def told(self) -> list[str]:
        """The same as plain JSON."""
        return [at.text() for at in (self.since, self.until, self.seen) if at is not None]

    def no_surer(self, sure: Moment) -> Mark:
        """The same, of which no later time is sure."""
        return replace(self, seen=min(self.sure, sure))

    def joined(self, other: Mark) -> Mark:
        """What two that were made at the same time know together."""
        is_plain = self.seen is None and other.seen is None
        sure = None if is_plain else min(self.sure, other.sure)
        return Mark(min(self.since, other.since), min(self.until, other.until), sure)


@dataclass(frozen=True)
class State:
    """What the newest sync tells of the store.

    `version` is that of the builds, `versions` those of the other tables; `marks` are by scope (an organization, or
    it and a pipeline's id), `lists` are the service's times when each list was last read. Versions before `first` may
    lack files, as a cleaning deleted what only they needed. `heard`: deliveries have told more since that sync.

    `here` is what the clock of the syncing machine showed at `as_of`, and `sure` is a time that the service had reached
    then for sure. From version `ordered` on, `as_of` never goes back.
    """

    version: int = -1
    as_of: Moment | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    lists: Mapping[str, Moment] = field(default_factory=dict)
    first: int = 0
    heard: bool = False
    here: Moment | None = None
    sure: Moment = NEVER
    ordered: int = 0

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
        """The last that is not later than a time; by halves, among versions whose times never go back."""

        def as_of(version: int) -> Moment:
            state = next(cls.all(builds, version), None)
            return NEVER if state is None or state.as_of is None else state.as_of

        last, ordered = newest.version, newest.ordered
        while True:
            begin = max(newest.first, ordered)
            found = begin + bisect.bisect_right(range(begin, last + 1), wanted, key=as_of) - 1
            if found >= begin or begin == newest.first:
                return found
            last, ordered = begin - 1, next(cls.all(builds, begin - 1), newest).ordered

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
            Moment.parse(told["here"]) if told.get("here") else None,
            Moment.parse(told["sure"]) if told.get("sure") else NEVER,
            told.get("ordered", 0),
        )

    def told(self) -> dict[str, Any]:
        """The same as plain JSON."""
        assert self.as_of is not None
        return {
            "format": FORMAT,
            "as_of": self.as_of.text(),
            "versions": dict(self.versions),
            "marks": {scope: mark.told() for scope, mark in self.marks.items()},
            "lists": {name: at.text() for name, at in self.lists.items()},
            "first": self.first,
            "heard": self.heard,
            "here": self.here.text() if self.here else None,
            "sure": self.sure.text(),
            "ordered": self.ordered,
        }

    def table(self, place: Place, name: str) -> Table | None:
        """A table as it was at this sync; None where the store had none."""
        version = self.version if name == "builds" else self.versions.get(name)
        return None if version is None or version < 0 else Table.at(place, name, version)

    def marked(self, scope: str, mark: Mark, basis: Mark | None) -> Self:
        """With a mark that was worked out from `basis`; another sync may have come between."""
        now = self.marks.get(scope)
        return replace(self, marks={**self.marks, scope: mark if now in (None, basis) else now.joined(mark)})

    def overlapped(self, scope: str, sure: Moment, began: State) -> Self:
        """With marks that allow for syncs of overlapping scopes, while one of `scope` ran from `began` on.

        Of a build that two syncs read at once the row with the later `fetched_at` stays. If the dates of one are
        ahead, that row may be the older one, so both must read again from the earlier time that is sure.
        """
        beside = {
            name: mark for name, mark in self.marks.items() if _overlap(scope, name) and mark != began.marks.get(name)
        }
        marks = {**self.marks, **{name: mark.no_surer(sure) for name, mark in beside.items()}}
        if scope in marks and beside:
            marks[scope] = marks[scope].no_surer(min(mark.sure for mark in beside.values()))
        return replace(self, marks=marks)


def _overlap(scope: str, other: str) -> bool:
    """Whether one scope is an organization and the other one of its pipelines."""
    return scope.startswith(f"{other}/") or other.startswith(f"{scope}/")
