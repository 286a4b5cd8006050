"""Describe one state of the store: its coverage, and the table versions that belong together. Stored in the metadata of
each commit of the builds table. Does not know the service."""

from __future__ import annotations

import bisect
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec

from buildframe.errors import Malformed, StoreFailed
from buildframe.spec import Moment
from buildframe.spec.decoders import convert
from buildframe.spec.times import VALID_YEARS
from buildframe.store import STORED_TABLES
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location
from buildframe.store.table_contents import TableContents
from buildframe.terminal import show

_MAX_DAYS = 5  # in a message

FORMAT = 2

_REQUIRED = (
    *("as_of", "versions", "coverage", "lists", "first"),
    *("has_webhook_updates", "local_time", "confirmed", "ordered_from"),
)
"""Fields that every commit of this format has. Later versions of the package added others."""

_CHECKSUM = "checksum"
"""Key of the CRC-32 of the other metadata. Commits that record the columns of tables have it."""

_MAX_VERSION = 2**63
_YEARS = range(1900, VALID_YEARS.stop)  # of the clock of a service, which may be wrong

NEVER = Moment.from_us(0)
"""A time before all records of a service."""


def _parse(_: type, text: Any) -> Moment:
    """Return a time of stored metadata; raise ValueError for another value."""
    try:
        return Moment.parse(text)
    except (Malformed, AttributeError, TypeError):
        raise ValueError(f"{show(text)} is not a time") from None


@dataclass(frozen=True)
class Coverage:
    """Time range of an organization or a pipeline for which the store is up to date.

    The store contains the builds created from `since` on, in their state at `until` or later. `until` is the time that
    the service reported, and may be ahead. `confirmed` is a time that the service had certainly reached (see
    `SyncState.confirmed`). After an incomplete first sync the range is empty.
    """

    since: Moment
    until: Moment
    confirmed: Moment

    @property
    def resync_from(self) -> Moment:
        """The time from which the next sync must read again."""
        return max(self.since, self.confirmed)

    def capped(self, confirmed: Moment) -> Coverage:
        """Return a copy whose confirmed time is no later than `confirmed`."""
        return replace(self, confirmed=min(self.confirmed, confirmed))

    def combine(self, other: Coverage) -> Coverage:
        """Combine two coverages that concurrent syncs computed, keeping what both guarantee."""
        return Coverage(
            min(self.since, other.since), min(self.until, other.until), min(self.confirmed, other.confirmed)
        )


@dataclass(frozen=True)
class SyncState:
    """State of the store after one commit.

    `version` is the version of the builds table, and `versions` are those of the other tables. `coverage` is keyed by
    scope: an organization, or an organization and the id of a pipeline. `lists` holds the service time at which each
    list was last read. Versions before `first` cannot be read, because `Store.clean` deleted their files.
    `has_webhook_updates` is true if webhook deliveries or exported builds were stored after the last sync.

    `as_of` is the service time of the last sync, or `NEVER`. `local_time` is the local clock at `as_of`. `confirmed` is
    a time that the service had certainly reached by then. From version `ordered_from` on, `as_of` never decreases.

    `unique_ids` is true if each build is stored once. Earlier versions of the package stored a
    build once for each day on which it was said to be created, and did not write this field.

    `contents` describes the files of each table, to notice a lost log entry. Earlier versions did not write it.

    `is_simulated` is true if no clock need agree with `as_of`: it is that of a sandbox or of exported builds, or an
    earlier version of the package did not write this field.

    `store_id` is the first id of the builds table, which gets another one if its first log entry is
    lost. It is empty in commits of earlier versions.
    """

    version: int = -1
    as_of: Moment = NEVER
    versions: Mapping[str, int] = field(default_factory=dict)
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    lists: Mapping[str, Moment] = field(default_factory=dict)
    first: int = 0
    has_webhook_updates: bool = False
    local_time: Moment | None = None
    confirmed: Moment = NEVER
    ordered_from: int = 0
    unique_ids: bool = False
    contents: Mapping[str, TableContents] = field(default_factory=dict)
    is_simulated: bool = True
    store_id: str = ""

    @classmethod
    def newest(cls, builds: TableVersion) -> Self:
        """Return the state of a version of the builds table; an empty state if there was no sync."""
        return next(cls.all(builds), cls())

    @classmethod
    def all(cls, builds: TableVersion, down_from: int | None = None) -> Iterator[Self]:
        """Yield the states of all versions up to this or an earlier one, newest first."""
        for version in range(builds.version if down_from is None else down_from, -1, -1):
            metadata = builds.metadata(version)
            if metadata is not None:
                yield cls._from_json(version, metadata)

    @classmethod
    def at(cls, builds: TableVersion, as_of: Moment | int) -> Self | None:
        """Return the last readable state at or before a time or a version; None if there is none.

        For a time, states that only webhook deliveries or imports created are skipped.
        """
        newest = cls.newest(builds)
        version = as_of if isinstance(as_of, int) else cls._version_at(builds, newest, as_of)
        readable = (state for state in cls.all(builds, min(version, newest.version)) if state.version >= newest.first)
        return next((state for state in readable if isinstance(as_of, int) or not state.has_webhook_updates), None)

    @classmethod
    def oldest(cls, builds: TableVersion) -> Self:
        """Return the oldest state that can still be read."""
        newest = cls.newest(builds)
        metadata = ((version, builds.metadata(version)) for version in range(newest.first, newest.version + 1))
        return next(cls._from_json(version, entry) for version, entry in metadata if entry is not None)

    @classmethod
    def lost_version(cls, builds: TableVersion, after: int) -> int | None:
        """Return the first version after this one and before the next sync whose log entry is lost, or None."""
        for version in range(after + 1, builds.version + 1):
            metadata = builds.metadata(version)
            if metadata is not None and not cls._from_json(version, metadata).has_webhook_updates:
                return None
            if metadata is None and not builds.log_entry(version):
                return version
        return None

    @classmethod
    def _version_at(cls, builds: TableVersion, newest: Self, at: Moment) -> int:
        """Find the last version at or before a time by bisecting the ranges of versions whose times are ordered."""

        def time_of(version: int) -> Moment:
            state = next(cls.all(builds, version), None)
            return NEVER if state is None else state.as_of

        last, ordered = newest.version, newest.ordered_from
        while True:
            begin = max(newest.first, ordered)
            version = begin + bisect.bisect_right(range(begin, last + 1), at, key=time_of) - 1
            if version >= begin or begin == newest.first:
                return version
            last, ordered = begin - 1, next(cls.all(builds, begin - 1), newest).ordered_from

    @classmethod
    def _from_json(cls, version: int, metadata: Mapping[str, Any]) -> Self:
        if metadata.get("format") != FORMAT:
            raise StoreFailed(
                f"The store has format {metadata.get('format')}, and this version of buildframe reads format {FORMAT}. "
                'Upgrade with pip install --upgrade "buildframe[store]", or sync to another folder.'
            )
        try:
            missing = next((name for name in _REQUIRED if name not in metadata), None)
            if missing is not None:
                raise ValueError(f"it has no {missing}")
            if metadata.get(_CHECKSUM, checksum := _checksum(metadata)) != checksum:
                raise ValueError("its checksum does not fit")
            state = convert({**metadata, "version": version}, cls, dec_hook=_parse)
            state._check_ranges()
            if _CHECKSUM not in metadata and any(table.columns for table in state.contents.values()):
                raise ValueError("it has no checksum")
        except (ValueError, RecursionError) as why:
            raise StoreFailed(
                f"The store is damaged: the metadata of version {version} has another shape: {why}. "
                "Restore the folder from a backup, or sync to another."
            ) from None
        return state

    def _check_ranges(self) -> None:
        """Raise ValueError for names and numbers that no commit writes."""
        wrong = next((name for name in self.versions if name not in STORED_TABLES), None)
        if wrong is not None:
            raise ValueError(f"{show(wrong)} is not a table of a store")
        if not all(0 <= version < _MAX_VERSION for version in self.versions.values()):
            raise ValueError("a version of a table is out of range")
        if not (0 <= self.first <= self.version and 0 <= self.ordered_from <= self.version):
            raise ValueError("first or ordered_from is out of range")
        for contents in self.contents.values():
            contents.check_ranges()
        times = [self.as_of, self.confirmed, self.local_time or NEVER, *self.lists.values()]
        for coverage in self.coverage.values():
            times += [coverage.until, coverage.confirmed]
        if not all(at.year in _YEARS for at in times):
            raise ValueError("a time is out of range")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON representation without the version; the names of the fields are the stored format."""
        fields = msgspec.to_builtins(self, enc_hook=Moment.text)
        metadata = {"format": FORMAT, **{name: value for name, value in fields.items() if name != "version"}}
        return {**metadata, _CHECKSUM: _checksum(metadata)}

    @property
    def covers(self) -> dict[str, tuple[Moment, Moment]]:
        """The time range of each scope that has one."""
        ranges = sorted(self.coverage.items())
        return {scope: (one.since, one.until) for scope, one in ranges if one.since != one.until}

    def table(self, location: Location, name: str, newest: TableVersion | None = None) -> TableVersion | None:
        """Open a table as it was in this state, unless it is `newest`; return None if the store had no such table."""
        version = self.version if name == "builds" else self.versions.get(name)
        if newest is not None and (newest.name, newest.version) == (name, version):
            return self.checked(newest)
        table = None if version is None or version < 0 else TableVersion.at(location, name, version)
        if table is None and name in self.contents:
            raise StoreFailed(
                f"The store at {location.url} is damaged: {name}/_delta_log is missing. "
                "Copy the store again, or sync it: a sync restores the newest version."
            )
        return None if table is None else self.checked(table)

    def checked(self, table: TableVersion) -> TableVersion:
        """Return a table of this state; raise StoreFailed if its log has other files or columns than were committed."""
        self.check_columns(table)
        recorded = self.contents.get(table.name)
        if recorded is None:
            return table
        found = TableContents.of(table.files())
        if recorded == found and recorded.has_columns(table.columns):
            return table
        days = recorded.differing_days(found) if "day" in table.schema.names else []
        raise StoreFailed(
            f"The store at {table.location.url} is damaged: version {self.version} was committed with "
            f"{recorded.rows:,} rows of {table.name} in {recorded.files:,} files, but {table.name}/_delta_log lists "
            f"other files, with {found.rows:,} rows in {found.files:,}. A log entry is empty or missing, as after a "
            f"partial copy.{_days_to_read(days)} "
            "Copy the store again, or sync it: a sync restores the newest version."
        )

    def check_columns(self, table: TableVersion) -> None:
        """Raise StoreFailed if columns of a table have other names or types than were committed.

        A table with fewer columns lost the log entry that added them, which a sync restores.
        """
        recorded = self.contents.get(table.name)
        if recorded is None or recorded.columns is None or len(table.columns) < recorded.columns[0]:
            return
        if not recorded.has_columns(table.columns):
            raise StoreFailed(
                f"The store at {table.location.url} is damaged: {table.name}/_delta_log has other names or types of "
                "columns than were committed. Restore that folder from a backup, or sync to another."
            )

    def read_again_from(self, day: str) -> Self:
        """Return the state that claims to cover only the time before a day, so that the next sync requests the rest."""
        start = Moment.parse(f"{day}T00:00:00Z")
        coverage = {
            scope: replace(covered.capped(start), until=max(covered.since, min(covered.until, start)))
            for scope, covered in self.coverage.items()
        }
        return replace(self, coverage=coverage)

    def with_coverage(self, scope: str, coverage: Coverage, base: Coverage | None) -> Self:
        """Set the coverage of a scope, computed from `base`; combine it with that of a concurrent sync."""
        current = self.coverage.get(scope)
        merged = coverage if current is None or current == base else current.combine(coverage)
        return replace(self, coverage={**self.coverage, scope: merged})

    def with_overlap(self, scope: str, confirmed: Moment, start_state: SyncState) -> Self:
        """Lower the confirmed times of overlapping scopes to that of a sync, since its rows can be of an older state.

        Of a build that two syncs read at once, the row with the later `fetched_at` is stored. If the dates of one
        response are ahead, that row can be the older one. So a concurrent sync lowers the time of this scope, too.
        """
        others = {name: other for name, other in self.coverage.items() if _overlap(scope, name)}
        coverage = {**self.coverage, **{name: other.capped(confirmed) for name, other in others.items()}}
        concurrent = [other.confirmed for name, other in others.items() if other != start_state.coverage.get(name)]
        if scope in coverage and concurrent:
            coverage[scope] = coverage[scope].capped(min(concurrent))
        return replace(self, coverage=coverage)


def _checksum(metadata: Mapping[str, Any]) -> int:
    """Return the CRC-32 of metadata without its checksum."""
    others = {name: value for name, value in metadata.items() if name != _CHECKSUM}
    return zlib.crc32(json.dumps(others, sort_keys=True, separators=(",", ":")).encode())


def _days_to_read(days: Sequence[str | None]) -> str:
    """Return a sentence that names the first days; an empty text if there are none."""
    if not days:
        return ""
    names = ", ".join(day or "without created_at" for day in days[:_MAX_DAYS])
    more = f" and {len(days) - _MAX_DAYS} more" if len(days) > _MAX_DAYS else ""
    return f" Days to read again: {names}{more}."


def _overlap(scope: str, other: str) -> bool:
    """Whether one scope is an organization and the other a pipeline of it."""
    return scope.startswith(f"{other}/") or other.startswith(f"{scope}/")
