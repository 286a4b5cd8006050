"""What a sync asks the service for, in this order.

What is under way is asked for first, and the store reaches to the service's time then: whatever changes later is found
by the next sync. A long time is asked for in stretches, each a commit: first on to now, then back.
"""

from __future__ import annotations

import datetime as dt
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from buildframe.errors import BadInput, Forbidden, NotFound
from buildframe.lists import History
from buildframe.pipeline import Pipeline
from buildframe.service_time import ServiceTime
from buildframe.spec import Moment, When, when
from buildframe.store import changes, commits
from buildframe.store.commits import Batch, Committed, Listed
from buildframe.store.kept import IS_OPEN, IS_TOLD, Keeping, as_listed
from buildframe.store.lake import Table
from buildframe.store.place import Place, told_plainly
from buildframe.store.state import NEVER, Mark, State
from buildframe.words import span
from buildframe.workspace import Workspace

OPEN = ("scheduled", "running", "failing", "canceling")
"""States that are listed over all time. Blocked builds pile up; one that goes on shows by what it does next."""

OVERLAP = dt.timedelta(minutes=5)
"""How much of what was known before is asked for again: clocks of the service may differ, and its lists lag."""

_SLACK = dt.timedelta(hours=1)
"""By how much the service's clock and that of this machine may differ in what they count between two syncs."""

_GRAIN = dt.timedelta(seconds=1)
"""What a `Date` is cut to."""

_PLACE = ("id", "pipeline_id", "pipeline", "number")

_FIRST = dt.timedelta(hours=30)
"""Of a long time the first stretch that is asked for: more than a day, so that a daily sync has no other."""

_MANY = 100_000
"""Jobs of a stretch; with more the next one is shorter, so that memory holds it."""


@dataclass(frozen=True)
class Synced:
    """What a sync did.

    `builds` and `jobs` that are new, or were read again, and builds that are `gone`; `bytes` of files written;
    `requests` sent; the store's `version`. It knows all builds created from `since` as they were at `as_of`, unless
    `why` says why not.
    """

    builds: int
    jobs: int
    gone: int
    bytes: int
    requests: int
    version: int
    as_of: Moment
    since: Moment
    why: str | None = None

    @property
    def complete(self) -> bool:
        """Whether all could be read that the service has."""
        return self.why is None

    def __str__(self) -> str:
        gone = f", {self.gone} gone" if self.gone else ""
        reach = (
            f"complete from {self.since.text()} to {self.as_of.text()}" if self.complete else f"INCOMPLETE: {self.why}"
        )
        return (
            f"{self.builds:,} builds and {self.jobs:,} jobs new or read again{gone}, by {self.requests} requests; "
            f"{reach} (version {self.version})"
        )


@dataclass(frozen=True)
class Scope:
    """Builds of an organization, or of one pipeline of it."""

    ci: Workspace | Pipeline
    organization: str
    pipeline_id: str | None = None

    @classmethod
    def of(cls, ci: Workspace | Pipeline) -> Scope:
        """That of a workspace or a pipeline."""
        if isinstance(ci, Pipeline):
            return cls(ci, ci.organization, ci.get().id)
        if not isinstance(ci, Workspace):
            raise BadInput(f"A {type(ci).__name__} cannot be synced; pass a workspace, or a pipeline of one.")
        if ci.organization is None:
            raise BadInput('A store is filled from an organization: connect("acme"), or set BUILDFRAME_ORG.')
        return cls(ci, ci.organization)

    @property
    def name(self) -> str:
        """By which the store knows it."""
        return self.organization if self.pipeline_id is None else f"{self.organization}/{self.pipeline_id}"


class Sync:
    """One sync of a store."""

    def __init__(self, place: Place, scope: Scope, keeping: Keeping, progress: bool | None) -> None:
        self._place, self._scope, self._keeping, self._progress = place, scope, keeping, progress
        self._requests = 0 if scope.pipeline_id is None else 1
        self._why: list[str] = []
        self._done: list[Committed] = []
        self._time = ServiceTime()
        self._here, self._began = clock_here(), time.monotonic()
        self._stamp = self._earliest = NEVER
        self._is_simulated = False

    @property
    def how_far(self) -> str:
        """A sentence on what stays of a sync that could not go on."""
        if not self._done:
            return "Nothing was committed yet; the store is as it was."
        return (
            f"What was committed stays ({len(self._done)} commits, version {self._done[-1].state.version}); "
            "the next sync goes on from there."
        )

    def run(self, since: When, suites: Sequence[str]) -> Synced:
        """Ask, and commit; what lies further back than the store reaches comes last."""
        with told_plainly("read", self._place):
            builds = Table.at(self._place, "builds")
            self._before = self._known = state = State() if builds is None else State.newest(builds)
        basis = self._basis(state)
        self._earliest = NEVER if basis is None or basis.seen is None else basis.seen
        still_open = self._walk(state=list(OPEN))
        now = self._now
        basis = None if basis is not None and basis.since > now else basis
        start = min(_not_ahead(when(since, "since", now), now), now)
        again = max(start, Moment.of(now - _FIRST)) if basis is None else Moment.of(basis.again - OVERLAP)
        until = _end(again, _FIRST, now)
        walks = [still_open]
        if basis is not None:
            walks.append(self._walk(finished_from=again, created_to=again))
        walks.append(self._created(again, until, now))
        lists = self._lists(suites)
        self._refuse_another_service(state, lists)
        gone = self._look_by_number(state, walks, lists)
        if basis is not None:
            lists = self._look_at_new_pipelines(state, walks, lists, Mark(basis.since, again))
        mark = self._mark(min(again, self._now) if basis is None else basis.since, until, basis)
        self._commit(walks, lists=lists, gone=gone, mark=mark, basis=basis)
        start = min(start, when(since, "since", self._now))
        mark = self._fill(self._catch_up(mark), start)
        self._compare_clocks()
        return self._told(mark)

    def _basis(self, state: State) -> Mark | None:
        """What is known of the scope; of a pipeline also what its organization's syncs know, if they see it."""
        own = state.marks.get(self._scope.name)
        if own is not None:
            return own
        if self._scope.pipeline_id is None:
            return self._of_its_pipelines(state)
        is_known = self._scope.pipeline_id in self._known_pipelines(state)
        return state.marks.get(self._scope.organization) if is_known else None

    def _of_its_pipelines(self, state: State) -> Mark | None:
        """What syncs of single pipelines know together; nothing where one that is as old as that had none."""
        begin = f"{self._scope.organization}/"
        by_id = {scope.removeprefix(begin): mark for scope, mark in state.marks.items() if scope.startswith(begin)}
        if not by_id or isinstance(self._scope.ci, Pipeline):
            return None
        listed = self._scope.ci.pipelines(columns=["id", "created_at"], progress=self._progress)
        self._requests += listed.attrs["requests"]
        marks = [by_id[id] for id in listed["id"] if id in by_id]
        if not marks:
            return None
        together = Mark(
            max(mark.since for mark in marks), min(mark.until for mark in marks), min(mark.sure for mark in marks)
        )
        is_new = listed["created_at"] >= pd.Timestamp(together.again)
        return together if together.since < together.until and (is_new | listed["id"].isin(by_id)).all() else None

    def _known_pipelines(self, state: State) -> set[str | None]:
        """The ids of the organization's pipelines, as the last list that the store has told them."""
        return self._pipelines(state, pc.field("valid_to").is_null())

    def _pipelines_ever_seen(self, state: State) -> set[str | None]:
        """Those that any list told, and those that were synced for themselves."""
        begin = f"{self._scope.organization}/"
        alone = {scope.removeprefix(begin) for scope in state.marks if scope.startswith(begin)}
        return self._pipelines(state, pc.scalar(True)) | alone

    def _pipelines(self, state: State, chosen: pc.Expression) -> set[str | None]:
        own = chosen & (pc.field("organization") == self._scope.organization)
        with told_plainly("read", self._place):
            table = state.table(self._place, "pipelines")
            if table is None:
                return set()
            rows = table.dataset().to_table(["id"], filter=own)
        return set(rows["id"].to_pylist())

    def _refuse_another_service(self, state: State, lists: Sequence[Listed]) -> None:
        """Two organizations of one name would take each other's builds for gone.

        A single pipeline may as well have been deleted, and another one made.
        """
        known = self._known_pipelines(state) if lists else set()
        if len(known) > 1 and len(lists[0].frame) and known.isdisjoint(lists[0].frame["id"]):
            raise BadInput(
                f"The store at {self._place.url} is of another organization named {self._scope.organization!r}: "
                "none of its pipelines is listed by this service. Take another folder; nothing was stored."
            )

    def _catch_up(self, mark: Mark) -> Mark:
        """Fetch what was created after the mark, on to now, a commit for each stretch."""
        length = _FIRST
        while mark.until < self._now and not self._why:
            until = _end(mark.until, length, self._now)
            walk = self._created(mark.until, until, self._now)
            further = self._mark(mark.since, until, mark)
            self._commit([walk], mark=further, basis=mark)
            mark, length = further, _next(length, walk)
        return mark

    def _fill(self, mark: Mark, start: Moment) -> Mark:
        """Fetch what was created before the mark, back to `start`, a commit for each stretch."""
        length = _FIRST
        while mark.since > start and not self._why:
            since = max(start, Moment.of(mark.since - length))
            walk = self._walk(created_from=since, created_to=mark.since)
            wider = self._mark(since, mark.until, mark)
            self._commit([walk], mark=wider, basis=mark)
            mark, length = wider, _next(length, walk)
        return mark

    def _commit(self, walks: Sequence[History], mark: Mark, **more: Any) -> None:
        builds, jobs = (self._not_ahead(frame) for frame in changes.latest_of(walks))
        batch = Batch(
            builds,
            jobs,
            self._now,
            scope=self._scope.name,
            mark=None if self._why else mark,
            known=self._known,
            here=self._here,
            sure=self._sure,
            began=self._before,
            **more,
        )
        done = commits.commit(self._place, self._keeping, batch)
        self._done.append(done)
        self._known = done.state

    def _told(self, mark: Mark) -> Synced:
        done = self._done
        return Synced(
            builds=sum(one.builds for one in done),
            jobs=sum(one.jobs for one in done),
            gone=sum(one.gone for one in done),
            bytes=sum(one.bytes for one in done),
            requests=self._requests,
            version=done[-1].state.version,
            as_of=self._now,
            since=mark.since,
            why="; ".join(dict.fromkeys(self._why)) or None,
        )

    # --- the service's time

    @property
    def _now(self) -> Moment:
        """The service's time when it gave its first response, by all responses until now.

        Not before a time that it had reached for sure: dates far behind would begin a long history.
        """
        assert self._time.at is not None
        return self._time.at if self._is_simulated else max(self._time.at, self._earliest)

    @property
    def _sure(self) -> Moment:
        """A time that the service had reached for sure when it gave its first response, whatever its responses say.

        It had reached the times of its records; and where both clocks agree on how much time has passed since the last
        sync, that has passed. A sandbox's time is what it says.
        """
        if self._is_simulated:
            return self._now
        there, here = self._moved
        passed = min(there, here) if abs(there - here) <= OVERLAP else dt.timedelta(0)
        return min(self._now, max(self._stamp, Moment.of(self._before.sure + passed)).replace(microsecond=0))

    @property
    def _moved(self) -> tuple[dt.timedelta, dt.timedelta]:
        """By how much the service's clock and that of this machine have moved since the last sync."""
        before = self._before
        if before.as_of is None or before.here is None or self._time.at is None:
            return dt.timedelta(0), dt.timedelta(0)
        return self._time.at - before.as_of, self._here - before.here

    def _mark(self, since: Moment, until: Moment, before: Mark | None) -> Mark:
        """The mark of a commit of this sync."""
        until = min(until, self._now)
        if self._is_simulated:
            return Mark(since, until)
        return Mark(since, until, max(min(until, self._sure), NEVER if before is None else before.sure))

    def _hear(self, builds: pd.DataFrame) -> None:
        """Learn from a list of builds what time it is for the service."""
        self._time.see(Moment.parse(builds.attrs["as_of"]))
        self._is_simulated = self._is_simulated or builds.attrs.get("simulated", False)
        newest = pd.concat([builds["created_at"], builds["finished_at"]]).max()
        if not pd.isna(newest):
            self._stamp = max(self._stamp, Moment.of(newest.to_pydatetime() - self._passed))

    @property
    def _passed(self) -> dt.timedelta:
        return dt.timedelta(seconds=time.monotonic() - self._began)

    def _not_ahead(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows with no `fetched_at` to come: the `Date` of a response may have been ahead."""
        if self._is_simulated:
            return frame
        latest, at = pd.Timestamp(self._now + self._passed + _GRAIN).floor("s"), frame["fetched_at"]
        return frame.assign(fetched_at=at.where(at <= latest, latest))

    def _compare_clocks(self) -> None:
        there, here = self._moved
        if not self._is_simulated and abs(there - here) > _SLACK:
            warnings.warn(
                f"Since the last sync the service's clock has moved by {span(there.total_seconds())}, and the clock of "
                f"this machine by {span(here.total_seconds())}. No build is lost: syncs read again from the last time "
                "that is sure. Check the clock of this machine, and whether a proxy changes the Date header.",
                stacklevel=4,
            )

    # --- asking for lists

    def _created(self, since: Moment, until: Moment, now: Moment) -> History:
        """Builds created from `since` to `until`; where that is now, also those created meanwhile."""
        return self._walk(created_from=since, created_to=until if until < now else None)

    def _walk(self, of: Workspace | Pipeline | None = None, **asked: Any) -> History:
        """Builds with their jobs; what cannot be read completely is kept, but the store then reaches no further."""
        found = (of or self._scope.ci).history(**asked, progress=self._progress)
        self._requests += found.builds.attrs["requests"]
        self._hear(found.builds)
        if not found.builds.attrs["complete"]:
            self._why.append(found.builds.attrs["why"])
        return found

    def _lists(self, suites: Sequence[str]) -> tuple[Listed, ...]:
        """The lists of an organization, the pipelines first; a pipeline has none."""
        ci = self._scope.ci
        if isinstance(ci, Pipeline):
            return ()
        whose = {"organization": self._scope.organization}
        found = [Listed("pipelines", whose, ci.pipelines(progress=self._progress))]
        if self._keeping.personal:
            found.append(Listed("members", whose, ci.members(progress=self._progress)))
        for suite in suites:
            tests = ci.flaky_tests(suite, progress=self._progress)
            found.append(Listed("flaky_tests", {**whose, "suite": suite}, tests))
        for listed in found:
            self._requests += listed.frame.attrs["requests"]
            self._time.see(listed.at)
        return tuple(found)

    def _look_at_new_pipelines(
        self, state: State, walks: list[History], lists: tuple[Listed, ...], known: Mark
    ) -> tuple[Listed, ...]:
        """Add the builds of pipelines that are older than what is known, yet were not to be seen: a token may come to
        see more. Where these cannot be read completely, the pipelines stay new for the next sync.
        """
        ci, seen = self._scope.ci, self._known_pipelines(state)
        if isinstance(ci, Pipeline) or not seen:
            return lists
        listed, before = lists[0].frame, len(self._why)
        is_new = ~listed["id"].isin(seen) & ~(listed["created_at"] >= pd.Timestamp(known.until))
        for slug in listed.loc[is_new, "slug"]:
            walks.append(self._walk(ci.pipeline(slug), created_from=known.since, created_to=known.until))
        return lists if len(self._why) == before else lists[1:]

    # --- asking by number

    def _look_by_number(self, state: State, walks: list[History], lists: Sequence[Listed]) -> pd.DataFrame:
        """Builds that were open when last seen and that no walk brought, one by one; those that are gone."""
        slugs = _by_id(lists[0].frame) if lists else {}
        missed = self._missed(state, walks, slugs)
        is_gone = []
        for id, pipeline_id, slug, number in missed[list(_PLACE)].itertuples(index=False):
            found = self._one(slugs.get(pipeline_id) or slug, number)
            is_there = found is not None and found.builds["id"].iloc[0] == id  # a slug can come to name another one
            walks += [found] if found is not None and is_there else []
            is_gone.append(not is_there)
        gone = missed.loc[is_gone, [*_PLACE, "day", "fetched_at"]]
        return gone[~gone["pipeline_id"].isin(self._renamed_since(slugs) if len(gone) else ())]

    def _renamed_since(self, slugs: Mapping[str, str]) -> set[str]:
        """Pipelines that have other slugs by now, by which their builds are to be looked for the next time."""
        ci = self._scope.ci
        if isinstance(ci, Pipeline):
            return set()
        listed = ci.pipelines(columns=["id", "slug"], progress=self._progress)
        self._requests += listed.attrs["requests"]
        return {id for id, slug in _by_id(listed).items() if slugs.get(id) != slug}

    def _missed(self, state: State, walks: Sequence[History], listed: Collection[str]) -> pd.DataFrame:
        """Open builds that no walk brought, but those that only deliveries told of, of pipelines that no sync saw."""
        columns = [*_PLACE, "day", "fetched_at"]
        own = pc.field("organization") == self._scope.organization
        if self._scope.pipeline_id is not None:
            own = own & (pc.field("pipeline_id") == self._scope.pipeline_id)
        with told_plainly("read", self._place):
            builds = state.table(self._place, "builds")
            if builds is None:
                return pd.DataFrame(columns=columns)
            told = [IS_TOLD] if IS_TOLD in builds.names else []
            found = builds.dataset().to_table([*columns, *told], filter=pc.field(IS_OPEN) & own).to_pandas()
        missed = found[~found["id"].isin(pd.concat([walk.builds["id"] for walk in walks]))]
        if not told or self._scope.pipeline_id is not None:
            return missed
        is_seen = missed["pipeline_id"].isin([*listed, *self._pipelines_ever_seen(state)])
        return missed[is_seen | ~missed[IS_TOLD].eq(True)]

    def _one(self, slug: str, number: int) -> History | None:
        """A build as lists tell it; None where there is none, or none for this token."""
        ci = self._scope.ci
        pipeline = ci if isinstance(ci, Pipeline) else ci.pipeline(slug)
        try:
            found = pipeline.history_of(number)
        except (NotFound, Forbidden):
            self._requests += 1
            return None
        self._requests += found.builds.attrs["requests"]
        return History(found.builds, as_listed(found.jobs))


def clock_here() -> Moment:
    """What the clock of this machine shows."""
    return Moment.of(dt.datetime.now(dt.UTC))


def _not_ahead(since: Moment, now: Moment) -> Moment:
    """BadInput for a time that is ahead of the service's clock and of this machine's: no build was created since."""
    if since > max(now, Moment.from_us(int(time.time() * 1e6))) + _SLACK:
        raise BadInput(f"since={since.text()} is in the future. Use a date before now, or an age such as '90d'.")
    return since


def _end(since: Moment, length: dt.timedelta, now: Moment) -> Moment:
    """Where a stretch ends."""
    return now if now - since <= length else Moment.of(since + length)


def _next(length: dt.timedelta, walk: History) -> dt.timedelta:
    """How long the next stretch is to be."""
    return length / 2 if len(walk.jobs) > _MANY else length * 2


def _by_id(pipelines: pd.DataFrame) -> dict[str, str]:
    return dict(zip(pipelines["id"], pipelines["slug"], strict=True))
