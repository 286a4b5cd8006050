"""Synchronize a store with the service. Decides what to request and in which order; does not know Delta tables.

Open builds are requested first, and the store covers the time up to then. The next sync finds later changes. Long time
ranges are requested in several ranges with a commit each: first forward to now, then back.
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
from buildframe.formatting import span
from buildframe.http.service_time import ServiceTime
from buildframe.spec import Moment, When, when
from buildframe.store import merge, transactions
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location, store_errors
from buildframe.store.retained_columns import HAS_WEBHOOK_UPDATE, IS_OPEN, Retention, as_list_rows
from buildframe.store.sync_state import NEVER, Coverage, SyncState
from buildframe.store.transactions import CommitResult, ListSnapshot, SyncBatch
from buildframe.workspace import Pipeline, Workspace
from buildframe.workspace.build_queries import History

OPEN = ("scheduled", "running", "failing", "canceling")
"""States that are listed without a time limit. Blocked builds accumulate, so they are found when they continue."""

OVERLAP = dt.timedelta(minutes=5)
"""Overlap with the previous sync, because clocks of the service differ and its lists lag."""

_SLACK = dt.timedelta(hours=1)
"""Allowed difference between the service clock and the local clock over the time between two syncs."""

_GRAIN = dt.timedelta(seconds=1)
"""Resolution of the `Date` header."""

_PLACE = ("id", "pipeline_id", "pipeline", "number")

_FIRST = dt.timedelta(hours=30)
"""Length of the first time range: more than a day, so that a daily sync needs only one."""

_MANY = 100_000
"""Jobs in a time range above which the next range is shorter, to limit memory."""


@dataclass(frozen=True)
class SyncResult:
    """
    Result of `Store.sync`.

    Parameters
    ----------
    builds : int
        Builds that are new or were read again.
    jobs : int
        Jobs of these builds.
    gone : int
        Builds that the service no longer returns.
    bytes : int
        Size of the written files.
    requests : int
        Number of requests.
    version : int
        Version of the store after the sync.
    as_of : Moment
        Service time of the sync.
    since : Moment
        The store covers builds created from this time on.
    why : str, optional
        Why the sync is incomplete; None if it is complete.
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
        """
        Whether everything could be read.

        Returns
        -------
        bool
            False if `why` contains a reason.
        """
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
class SyncScope:
    """An organization or one of its pipelines, as the target of a sync."""

    ci: Workspace | Pipeline
    organization: str
    pipeline_id: str | None = None

    @classmethod
    def of(cls, ci: Workspace | Pipeline) -> SyncScope:
        """Return the scope of a workspace or a pipeline."""
        if isinstance(ci, Pipeline):
            return cls(ci, ci.organization, ci.get().id)
        if not isinstance(ci, Workspace):
            raise BadInput(f"ci is a {type(ci).__name__}. Pass a workspace or one of its pipelines.")
        if ci.organization is None:
            raise BadInput('A sync needs an organization: connect("acme"), or set BUILDFRAME_ORG.')
        return cls(ci, ci.organization)

    @property
    def name(self) -> str:
        """The key of the scope in the coverage of the store."""
        return self.organization if self.pipeline_id is None else f"{self.organization}/{self.pipeline_id}"


class Sync:
    """One sync of a store."""

    def __init__(self, location: Location, scope: SyncScope, keeping: Retention, progress: bool | None) -> None:
        self._location, self._scope, self._keeping, self._progress = location, scope, keeping, progress
        self._requests = 0 if scope.pipeline_id is None else 1
        self._why: list[str] = []
        self._done: list[CommitResult] = []
        self._time = ServiceTime()
        self._here, self._began = local_clock(), time.monotonic()
        self._stamp = self._earliest = NEVER
        self._is_simulated = False

    @property
    def progress_summary(self) -> str:
        """Describe what a sync that could not finish has committed."""
        if not self._done:
            return "Nothing was committed; the store is unchanged."
        return (
            f"Committed data stays ({len(self._done)} commits, version {self._done[-1].state.version}); "
            "the next sync continues from there."
        )

    def run(self, since: When, suites: Sequence[str]) -> SyncResult:
        """Request and commit data; the time before the coverage of the store comes last."""
        with store_errors("read", self._location):
            builds = TableVersion.at(self._location, "builds")
            self._before = self._known = state = SyncState() if builds is None else SyncState.newest(builds)
        basis = self._basis(state)
        self._earliest = NEVER if basis is None or basis.confirmed is None else basis.confirmed
        still_open = self._walk(state=list(OPEN))
        now = self._now
        basis = None if basis is not None and basis.since > now else basis
        start = min(_not_ahead(when(since, "since", now), now), now)
        again = max(start, Moment.of(now - _FIRST)) if basis is None else Moment.of(basis.resync_from - OVERLAP)
        until = _end(again, _FIRST, now)
        walks = [still_open]
        if basis is not None:
            walks.append(self._walk(finished_from=again, created_to=again))
        walks.append(self._created(again, until, now))
        lists = self._lists(suites)
        self._refuse_another_service(state, lists)
        gone = self._fetch_missed_builds(state, walks, lists)
        if basis is not None:
            lists = self._fetch_newly_visible_pipelines(state, walks, lists, Coverage(basis.since, again))
        mark = self._mark(min(again, self._now) if basis is None else basis.since, until, basis)
        self._commit(walks, lists=lists, gone=gone, mark=mark, base=basis)
        start = min(start, when(since, "since", self._now))
        mark = self._fill(self._catch_up(mark), start)
        self._compare_clocks()
        return self._result(mark)

    def _basis(self, state: SyncState) -> Coverage | None:
        """Return the coverage of the scope; for a pipeline also that of its organization if it lists the pipeline."""
        own = state.coverage.get(self._scope.name)
        if own is not None:
            return own
        if self._scope.pipeline_id is None:
            return self._of_its_pipelines(state)
        is_known = self._scope.pipeline_id in self._known_pipelines(state)
        return state.coverage.get(self._scope.organization) if is_known else None

    def _of_its_pipelines(self, state: SyncState) -> Coverage | None:
        """Combine the coverage of single pipelines; None if an equally old pipeline has none."""
        begin = f"{self._scope.organization}/"
        by_id = {scope.removeprefix(begin): mark for scope, mark in state.coverage.items() if scope.startswith(begin)}
        if not by_id or isinstance(self._scope.ci, Pipeline):
            return None
        listed = self._scope.ci.pipelines(columns=["id", "created_at"], progress=self._progress)
        self._requests += listed.attrs["requests"]
        marks = [by_id[id] for id in listed["id"] if id in by_id]
        if not marks:
            return None
        together = Coverage(
            max(mark.since for mark in marks),
            min(mark.until for mark in marks),
            min(mark.confirmed_until for mark in marks),
        )
        is_new = listed["created_at"] >= pd.Timestamp(together.resync_from)
        return together if together.since < together.until and (is_new | listed["id"].isin(by_id)).all() else None

    def _known_pipelines(self, state: SyncState) -> set[str | None]:
        """Return the ids of pipelines in the last stored list."""
        return self._pipelines(state, pc.field("valid_to").is_null())

    def _pipelines_ever_seen(self, state: SyncState) -> set[str | None]:
        """Return the ids of pipelines in any stored list or with their own coverage."""
        begin = f"{self._scope.organization}/"
        alone = {scope.removeprefix(begin) for scope in state.coverage if scope.startswith(begin)}
        return self._pipelines(state, pc.scalar(True)) | alone

    def _pipelines(self, state: SyncState, chosen: pc.Expression) -> set[str | None]:
        own = chosen & (pc.field("organization") == self._scope.organization)
        with store_errors("read", self._location):
            table = state.table(self._location, "pipelines")
            if table is None:
                return set()
            rows = table.dataset().to_table(["id"], filter=own)
        return set(rows["id"].to_pylist())

    def _refuse_another_service(self, state: SyncState, lists: Sequence[ListSnapshot]) -> None:
        """Refuse another organization with the same name, whose sync would mark all stored builds as gone.

        A single pipeline proves nothing: it may have been deleted and created again.
        """
        known = self._known_pipelines(state) if lists else set()
        if len(known) > 1 and len(lists[0].frame) and known.isdisjoint(lists[0].frame["id"]):
            raise BadInput(
                f"The store at {self._location.url} is of another organization named {self._scope.organization!r}: "
                "this service lists none of its pipelines. Use another folder. Nothing was stored."
            )

    def _catch_up(self, mark: Coverage) -> Coverage:
        """Fetch builds created after the coverage up to now, with a commit for each time range."""
        length = _FIRST
        while mark.until < self._now and not self._why:
            until = _end(mark.until, length, self._now)
            walk = self._created(mark.until, until, self._now)
            further = self._mark(mark.since, until, mark)
            self._commit([walk], mark=further, base=mark)
            mark, length = further, _next(length, walk)
        return mark

    def _fill(self, mark: Coverage, start: Moment) -> Coverage:
        """Fetch builds created before the coverage back to `start`, with a commit for each time range."""
        length = _FIRST
        while mark.since > start and not self._why:
            since = max(start, Moment.of(mark.since - length))
            walk = self._walk(created_from=since, created_to=mark.since)
            wider = self._mark(since, mark.until, mark)
            self._commit([walk], mark=wider, base=mark)
            mark, length = wider, _next(length, walk)
        return mark

    def _commit(self, walks: Sequence[History], mark: Coverage, **more: Any) -> None:
        builds, jobs = (self._not_ahead(frame) for frame in merge.latest_builds(walks))
        batch = SyncBatch(
            builds,
            jobs,
            self._now,
            scope=self._scope.name,
            coverage=None if self._why else mark,
            base_state=self._known,
            local_time=self._here,
            confirmed=self._sure,
            start_state=self._before,
            **more,
        )
        done = transactions.commit(self._location, self._keeping, batch)
        self._done.append(done)
        self._known = done.state

    def _result(self, mark: Coverage) -> SyncResult:
        done = self._done
        return SyncResult(
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
        """The service time of the first response, by all responses so far.

        Never before the confirmed time, because dates far in the past would start a long history.
        """
        assert self._time.at is not None
        return self._time.at if self._is_simulated else max(self._time.at, self._earliest)

    @property
    def _sure(self) -> Moment:
        """A time that the service had certainly reached at its first response, whatever the dates of its responses.

        It had reached the times in its records. If both clocks agree on the time since the last sync, that time has
        passed. The time of a sandbox is exact.
        """
        if self._is_simulated:
            return self._now
        there, here = self._moved
        passed = min(there, here) if abs(there - here) <= OVERLAP else dt.timedelta(0)
        return min(self._now, max(self._stamp, Moment.of(self._before.confirmed + passed)).replace(microsecond=0))

    @property
    def _moved(self) -> tuple[dt.timedelta, dt.timedelta]:
        """Return how far the service clock and the local clock have advanced since the last sync."""
        before = self._before
        if before.as_of is None or before.local_time is None or self._time.at is None:
            return dt.timedelta(0), dt.timedelta(0)
        return self._time.at - before.as_of, self._here - before.local_time

    def _mark(self, since: Moment, until: Moment, before: Coverage | None) -> Coverage:
        """Return the coverage of a commit of this sync."""
        until = min(until, self._now)
        if self._is_simulated:
            return Coverage(since, until)
        return Coverage(since, until, max(min(until, self._sure), NEVER if before is None else before.confirmed_until))

    def _update_service_time(self, builds: pd.DataFrame) -> None:
        """Update the service time from a list of builds."""
        self._time.see(Moment.parse(builds.attrs["as_of"]))
        self._is_simulated = self._is_simulated or builds.attrs.get("simulated", False)
        newest = pd.concat([builds["created_at"], builds["finished_at"]]).max()
        if not pd.isna(newest):
            self._stamp = max(self._stamp, Moment.of(newest.to_pydatetime() - self._passed))

    @property
    def _passed(self) -> dt.timedelta:
        return dt.timedelta(seconds=time.monotonic() - self._began)

    def _not_ahead(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Limit `fetched_at` to the current service time, because the `Date` of a response can be ahead."""
        if self._is_simulated:
            return frame
        latest, at = pd.Timestamp(self._now + self._passed + _GRAIN).floor("s"), frame["fetched_at"]
        return frame.assign(fetched_at=at.where(at <= latest, latest))

    def _compare_clocks(self) -> None:
        there, here = self._moved
        if not self._is_simulated and abs(there - here) > _SLACK:
            warnings.warn(
                f"Since the last sync the service clock has advanced by {span(there.total_seconds())}, "
                f"and the local clock by {span(here.total_seconds())}. No build is lost, because syncs read again from "
                "the last confirmed time. Check the local clock, and whether a proxy changes the Date header.",
                stacklevel=4,
            )

    # --- lists

    def _created(self, since: Moment, until: Moment, now: Moment) -> History:
        """Fetch builds created from `since` to `until`, without an upper bound if `until` is now."""
        return self._walk(created_from=since, created_to=until if until < now else None)

    def _walk(self, of: Workspace | Pipeline | None = None, **filters: Any) -> History:
        """Fetch builds with their jobs. Incomplete results are stored, but do not extend the coverage."""
        found = (of or self._scope.ci).history(**filters, progress=self._progress)
        self._requests += found.builds.attrs["requests"]
        self._update_service_time(found.builds)
        if not found.builds.attrs["complete"]:
            self._why.append(found.builds.attrs["why"])
        return found

    def _lists(self, suites: Sequence[str]) -> tuple[ListSnapshot, ...]:
        """Fetch the lists of an organization, pipelines first; a single pipeline has none."""
        ci = self._scope.ci
        if isinstance(ci, Pipeline):
            return ()
        whose = {"organization": self._scope.organization}
        found = [ListSnapshot("pipelines", whose, ci.pipelines(progress=self._progress))]
        if self._keeping.personal:
            found.append(ListSnapshot("members", whose, ci.members(progress=self._progress)))
        for suite in suites:
            tests = ci.flaky_tests(suite, progress=self._progress)
            found.append(ListSnapshot("flaky_tests", {**whose, "suite": suite}, tests))
        for listed in found:
            self._requests += listed.frame.attrs["requests"]
            self._time.see(listed.at)
        return tuple(found)

    def _fetch_newly_visible_pipelines(
        self, state: SyncState, walks: list[History], lists: tuple[ListSnapshot, ...], known: Coverage
    ) -> tuple[ListSnapshot, ...]:
        """Fetch older builds of pipelines that the token could not see before.

        If these cannot be read completely, the list is not stored, so that the next sync tries again.
        """
        ci, seen = self._scope.ci, self._known_pipelines(state)
        if isinstance(ci, Pipeline) or not seen:
            return lists
        listed, before = lists[0].frame, len(self._why)
        is_new = ~listed["id"].isin(seen) & ~(listed["created_at"] >= pd.Timestamp(known.until))
        for slug in listed.loc[is_new, "slug"]:
            walks.append(self._walk(ci.pipeline(slug), created_from=known.since, created_to=known.until))
        return lists if len(self._why) == before else lists[1:]

    # --- single builds

    def _fetch_missed_builds(
        self, state: SyncState, walks: list[History], lists: Sequence[ListSnapshot]
    ) -> pd.DataFrame:
        """Fetch open builds that no listing contained one by one, and return those that are gone."""
        slugs = _by_id(lists[0].frame) if lists else {}
        missed = self._missed(state, walks, slugs)
        is_gone = []
        for id, pipeline_id, slug, number in missed[list(_PLACE)].itertuples(index=False):
            found = self._one(slugs.get(pipeline_id) or slug, number)
            is_there = (
                found is not None and found.builds["id"].iloc[0] == id
            )  # the slug may now belong to another pipeline
            walks += [found] if found is not None and is_there else []
            is_gone.append(not is_there)
        gone = missed.loc[is_gone, [*_PLACE, "day", "fetched_at"]]
        return gone[~gone["pipeline_id"].isin(self._renamed_since(slugs) if len(gone) else ())]

    def _renamed_since(self, slugs: Mapping[str, str]) -> set[str]:
        """Return pipelines whose slug has changed meanwhile; the next sync looks for their builds."""
        ci = self._scope.ci
        if isinstance(ci, Pipeline):
            return set()
        listed = ci.pipelines(columns=["id", "slug"], progress=self._progress)
        self._requests += listed.attrs["requests"]
        return {id for id, slug in _by_id(listed).items() if slugs.get(id) != slug}

    def _missed(self, state: SyncState, walks: Sequence[History], listed: Collection[str]) -> pd.DataFrame:
        """Return open builds that no listing contained, except webhook-only builds of unseen pipelines."""
        columns = [*_PLACE, "day", "fetched_at"]
        own = pc.field("organization") == self._scope.organization
        if self._scope.pipeline_id is not None:
            own = own & (pc.field("pipeline_id") == self._scope.pipeline_id)
        with store_errors("read", self._location):
            builds = state.table(self._location, "builds")
            if builds is None:
                return pd.DataFrame(columns=columns)
            has_updates = [HAS_WEBHOOK_UPDATE] if HAS_WEBHOOK_UPDATE in builds.column_names else []
            found = builds.dataset().to_table([*columns, *has_updates], filter=pc.field(IS_OPEN) & own).to_pandas()
        missed = found[~found["id"].isin(pd.concat([walk.builds["id"] for walk in walks]))]
        if not has_updates or self._scope.pipeline_id is not None:
            return missed
        is_seen = missed["pipeline_id"].isin([*listed, *self._pipelines_ever_seen(state)])
        return missed[is_seen | ~missed[HAS_WEBHOOK_UPDATE].eq(True)]

    def _one(self, slug: str, number: int) -> History | None:
        """Fetch one build in the form of lists; None if it does not exist or the token may not see it."""
        ci = self._scope.ci
        pipeline = ci if isinstance(ci, Pipeline) else ci.pipeline(slug)
        try:
            found = pipeline.history_of(number)
        except (NotFound, Forbidden):
            self._requests += 1
            return None
        self._requests += found.builds.attrs["requests"]
        return History(found.builds, as_list_rows(found.jobs))


def local_clock() -> Moment:
    """Return the time of the local clock."""
    return Moment.of(dt.datetime.now(dt.UTC))


def _not_ahead(since: Moment, now: Moment) -> Moment:
    """Raise BadInput if a time is ahead of both the service clock and the local clock."""
    if since > max(now, Moment.from_us(int(time.time() * 1e6))) + _SLACK:
        raise BadInput(f"since={since.text()} is in the future. Use a date before now, or an age such as '90d'.")
    return since


def _end(since: Moment, length: dt.timedelta, now: Moment) -> Moment:
    """Return the end of a time range."""
    return now if now - since <= length else Moment.of(since + length)


def _next(length: dt.timedelta, walk: History) -> dt.timedelta:
    """Return the length of the next time range."""
    return length / 2 if len(walk.jobs) > _MANY else length * 2


def _by_id(pipelines: pd.DataFrame) -> dict[str, str]:
    return dict(zip(pipelines["id"], pipelines["slug"], strict=True))
