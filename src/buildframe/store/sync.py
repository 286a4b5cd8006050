"""Synchronize a store with the service. Decides what to request and in which order; does not know Delta tables.

Open builds are requested first, and the store covers the time up to then. The next sync finds later changes. Long time
ranges are requested in several ranges with a commit each: first forward to now, then back.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.errors import BadInput, Incomplete
from buildframe.http.budget import RequestBudget
from buildframe.spec import Moment, When, when
from buildframe.spec.builds import OPEN_STATES
from buildframe.spec.odd_values import OddCount
from buildframe.store import merge, transactions
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location, store_errors
from buildframe.store.retained_columns import HAS_WEBHOOK_UPDATE, IS_OPEN, Retention
from buildframe.store.sync_clock import CLOCK_TOLERANCE, OVERLAP, SyncClock
from buildframe.store.sync_state import Coverage, SyncState
from buildframe.store.transactions import CommitResult, ListSnapshot, SyncBatch
from buildframe.workspace import PipelineWorkspace, Workspace
from buildframe.workspace.build_queries import History
from buildframe.workspace.flaky_windows import FlakyTestLists

_MISSED_COLUMNS = ["id", "pipeline_id", "created_at", "day", "fetched_at"]
_IS_CURRENT = pc.field("valid_to").is_null()

_AROUND, _MARGIN = dt.timedelta(minutes=10), dt.timedelta(minutes=1)
"""Length of the time ranges in which missed builds are looked for, and how far each extends on both sides."""

_FIRST_RANGE = dt.timedelta(hours=30)  # more than a day, so that a daily sync needs only one time range
_MANY_JOBS = 25_000
"""Jobs that a time range should have, to limit memory. A listing of more than twice as many is given up."""

_SHORTEST_RANGE = dt.timedelta(minutes=10)  # is listed completely, however many jobs it has
_PAGE, _FEWEST_REQUESTS = 100, 10  # builds of a response; requests after which no listing is given up


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
    odd : int
        Values that did not fit their columns and are stored as null, or as text. Warnings name the
        first of them.
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
    odd: int = 0

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
        odd = f", {self.odd:,} odd values stored as null or text" if self.odd else ""
        span = f"from {self.since.text()} to {self.as_of.text()}"
        reach = f"complete {span}" if self.complete else f"INCOMPLETE: {self.why}"
        return (
            f"{self.builds:,} builds and {self.jobs:,} jobs new or read again{gone}{odd}, by {self.requests} requests; "
            f"{reach} (version {self.version})"
        )


_POOL_LOCK = threading.Lock()
_POOLS_BEFORE: list[pa.MemoryPool] = []
"""Arrow's default memory pools when each running sync began."""


@contextmanager
def _memory_of_the_system() -> Iterator[None]:
    """Let Arrow use the allocator of the system until no sync runs. Mimalloc keeps the memory of ended threads."""
    with _POOL_LOCK:
        _POOLS_BEFORE.append(pa.default_memory_pool())
        pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        with _POOL_LOCK:
            before = _POOLS_BEFORE.pop()
            if not _POOLS_BEFORE:
                pa.set_memory_pool(before)


class Sync:
    """One sync of a store with an organization, or with one of its pipelines."""

    def __init__(
        self,
        location: Location,
        ci: Workspace | PipelineWorkspace,
        retention: Retention,
        progress: bool | None,
        page_size: int | None = None,
    ) -> None:
        if not isinstance(ci, Workspace | PipelineWorkspace):
            raise BadInput(f"ci is a {type(ci).__name__}. Pass a workspace or one of its pipelines.")
        if ci.organization is None:
            raise BadInput('A sync needs an organization: connect("acme"), or set BUILDFRAME_ORG.')
        self._location, self._retention, self._progress = location, retention, progress
        self._page_size = page_size
        self._ci, self._organization = ci, ci.organization
        self._workspace = ci if isinstance(ci, Workspace) else None
        self._pipeline_id = ci.get().id if isinstance(ci, PipelineWorkspace) else None
        self._scope = ci.organization if self._pipeline_id is None else f"{ci.organization}/{self._pipeline_id}"
        self._requests = 0 if self._pipeline_id is None else 1
        self._why: list[str] = []
        self._done: list[CommitResult] = []
        self._odd = OddCount()
        self._jobs_per_build = 1.0  # of the last listing that had builds

    @property
    def progress_summary(self) -> str:
        """Describe what a sync that could not finish has committed."""
        if not self._done:
            return "Nothing was committed; the store is unchanged."
        return (
            f"Committed data stays ({len(self._done)} commits, version {self._done[-1].state.version}); "
            "the next sync continues from there."
        )

    @_memory_of_the_system()
    def run(self, since: When, suites: Sequence[str]) -> SyncResult:
        """Request and commit data; the time before the coverage of the store comes last."""
        self._restore()
        with store_errors("read", self._location):
            builds = TableVersion.at(self._location, "builds")
            self._start_state = SyncState() if builds is None else SyncState.newest(builds)
            if builds is not None and not self._start_state.unique_ids:
                transactions.repair(self._location)
                builds = TableVersion(self._location, "builds")
                self._start_state = SyncState.newest(builds)
            self._known = self._start_state
            self._tables: dict[str, TableVersion | None] = {}
            if builds is not None and builds.version == self._known.version:
                self._tables["builds"] = builds
        basis = self._last_coverage()
        self._clock = SyncClock(self._start_state, earliest=basis.confirmed if basis else None)
        # Blocked builds accumulate, so they are not listed here but found when they continue.
        still_open = self._fetch(state=list(OPEN_STATES))
        now = self._clock.now
        basis = None if basis is not None and basis.since > now else basis
        start = min(_require_past(when(since, "since", now), now), now)
        again = max(start, Moment.of(now - _FIRST_RANGE)) if basis is None else Moment.of(basis.resync_from - OVERLAP)
        until = _end(again, _FIRST_RANGE, now)
        ended = [] if basis is None else [self._fetch(finished_from=again, created_to=again)]
        newest, again, until = self._fetch_bounded(again, until, now, at_end=basis is None)
        histories = [still_open, *ended, newest]
        lists = self._fetch_lists(suites)
        self._refuse_another_service(lists)
        gone = self._fetch_missed_builds(histories, lists)
        if basis is not None:
            lists = self._fetch_newly_visible_pipelines(histories, lists, basis.since, again)
        begin = min(again, self._clock.now) if basis is None else basis.since
        coverage = self._clock.coverage(begin, until, basis)
        self._commit(histories, lists=lists, gone=gone, coverage=coverage, base=basis)
        start = min(start, when(since, "since", self._clock.now))
        coverage = self._fetch_earlier(self._catch_up(coverage), start)
        self._recompute()
        self._clock.warn_if_clocks_differ()
        return self._result(coverage)

    def _restore(self) -> None:
        """Restore tables whose log lost an entry, so that this sync requests what is lost."""
        lost = transactions.restore(self._location)
        if lost:
            names = ", ".join(name or "builds without created_at" for name in lost)
            warnings.warn(
                f"The store at {self._location.url} lost files of {names}. This sync reads the lists "
                "again, and all builds created since the first lost day, within what the store "
                "covers. Repeat imports that are lost. Earlier states of lists, and builds that the "
                "service no longer has, can only come from a backup, such builds also from an export.",
                stacklevel=6,
            )

    def _recompute(self) -> None:
        """Rewrite files of older computed columns, so that other programs read the current ones."""
        while not RequestBudget().is_expired:
            done = transactions.recompute(self._location)
            if done is None:
                return
            self._done.append(done)
            self._known = done.state

    def _last_coverage(self) -> Coverage | None:
        """Return the coverage of the scope; for a pipeline also that of its organization if it lists the pipeline."""
        coverage = self._start_state.coverage
        if self._scope in coverage:
            return coverage[self._scope]
        if self._workspace is not None:
            return self._combined_coverage(self._workspace)
        is_known = self._pipeline_id in self._current_pipelines
        return coverage.get(self._organization) if is_known else None

    def _combined_coverage(self, ws: Workspace) -> Coverage | None:
        """Combine the coverage of single pipelines; None if an equally old pipeline has none."""
        by_id = self._coverage_by_pipeline()
        if not by_id:
            return None
        listed = self._count_requests(ws.pipelines(columns=["id", "created_at"], progress=self._progress))
        single = [by_id[id] for id in listed["id"] if id in by_id]
        if not single:
            return None
        together = Coverage(
            max(coverage.since for coverage in single),
            min(coverage.until for coverage in single),
            min(coverage.confirmed for coverage in single),
        )
        is_new = listed["created_at"] >= pd.Timestamp(together.resync_from)
        return together if together.since < together.until and (is_new | listed["id"].isin(by_id)).all() else None

    def _coverage_by_pipeline(self) -> dict[str, Coverage]:
        """Return the coverage of pipelines that were synced alone, by id."""
        begin, coverages = f"{self._organization}/", self._start_state.coverage.items()
        return {scope.removeprefix(begin): coverage for scope, coverage in coverages if scope.startswith(begin)}

    def _stored_table(self, name: str) -> TableVersion | None:
        """Return a table as it was when the sync began; opened once, because it then has to read the log."""
        if name not in self._tables:
            self._tables[name] = self._start_state.table(self._location, name)
        return self._tables[name]

    @cached_property
    def _current_pipelines(self) -> set[str | None]:
        """The ids of pipelines in the newest stored list of the organization."""
        return self._stored_pipelines(_IS_CURRENT)

    def _stored_pipelines(self, condition: pc.Expression) -> set[str | None]:
        """Return the ids of pipelines in stored lists of the organization."""
        own = condition & (pc.field("organization") == self._organization)
        with store_errors("read", self._location):
            table = self._stored_table("pipelines")
            return set() if table is None else set(table.dataset().to_table(["id"], filter=own)["id"].to_pylist())

    def _refuse_another_service(self, lists: Sequence[ListSnapshot]) -> None:
        """Refuse another organization with the same name, whose sync would mark all stored builds as gone.

        A single pipeline proves nothing: it may have been deleted and created again.
        """
        known = self._current_pipelines if lists else set()
        if len(known) > 1 and len(lists[0].frame) and known.isdisjoint(lists[0].frame["id"]):
            raise BadInput(
                f"The store at {self._location.url} is of another organization named {self._organization!r}: "
                "this service lists none of its pipelines. Use another folder. Nothing was stored."
            )

    def _catch_up(self, coverage: Coverage) -> Coverage:
        """Fetch builds created after the coverage up to now, with a commit for each time range."""
        length = _FIRST_RANGE
        while coverage.until < self._clock.now and not self._why:
            until = _end(coverage.until, length, self._clock.now)
            history, since, until = self._fetch_bounded(coverage.until, until, self._clock.now, at_end=False)
            longer = self._clock.coverage(coverage.since, until, coverage)
            self._commit([history], coverage=longer, base=coverage)
            coverage, length = longer, _next_length(until - since, history)
            del history  # memory for the next
        return coverage

    def _fetch_earlier(self, coverage: Coverage, start: Moment) -> Coverage:
        """Fetch builds created before the coverage back to `start`, with a commit for each time range."""
        length = _FIRST_RANGE
        while coverage.since > start and not self._why:
            since = start if coverage.since - start <= length else Moment.of(coverage.since - length)
            history, since, until = self._fetch_bounded(since, coverage.since, self._clock.now, at_end=True)
            if not self._check_current(history, Moment.of(coverage.resync_from - OVERLAP)):
                break
            longer = self._clock.coverage(since, coverage.until, coverage)
            self._commit([history], coverage=longer, base=coverage)
            coverage, length = coverage if self._why else longer, _next_length(until - since, history)
            del history  # memory for the next
        return coverage

    def _check_current(self, history: History, at: Moment) -> bool:
        """Return whether a listing shows the state at a time or later; if not, the sync is incomplete.

        Dates that agree in a whole sync are trusted.
        """
        date = Moment.parse(history.builds.attrs["as_of"])
        if date >= min(at, self._clock.latest - OVERLAP):
            return True
        self._why.append(f"a list of builds was of {date.text()}, an older state in a cache; sync again")
        return False

    def _commit(self, histories: Sequence[History], coverage: Coverage, base: Coverage | None, **more: Any) -> None:
        """Commit rows with the new coverage of the scope.

        An incomplete sync does not extend the coverage. The first one leaves an empty coverage, so that the next sync
        finds the changes of all stored builds.
        """
        if isinstance(self._ci, PipelineWorkspace):
            self._check_slug(self._ci, self._pipeline_id)
        builds, jobs = (self._clock.limit_fetched_at(frame) for frame in merge.latest_builds(histories))
        if self._why and base is None:
            coverage = Coverage(self._clock.confirmed, self._clock.confirmed, self._clock.confirmed)
        batch = SyncBatch(
            builds,
            jobs,
            self._clock.now,
            scope=self._scope,
            coverage=None if self._why and base is not None else coverage,
            base_state=self._known,
            local_time=self._clock.local_time,
            confirmed=self._clock.confirmed,
            is_simulated=self._clock.is_simulated,
            start_state=self._start_state,
            base=base,
            **more,
        )
        _release_memory()
        done = transactions.commit(self._location, self._retention, batch)
        self._done.append(done)
        self._known = done.state

    def _result(self, coverage: Coverage) -> SyncResult:
        counts = {name: sum(getattr(one, name) for one in self._done) for name in ("builds", "jobs", "gone", "bytes")}
        return SyncResult(
            **counts,
            requests=self._requests,
            version=self._known.version,
            as_of=self._clock.now,
            since=coverage.since,
            why="; ".join(dict.fromkeys(self._why)) or None,
            odd=self._odd.total,
        )

    def _check_slug(self, pipeline: PipelineWorkspace, id: str | None) -> None:
        """Raise Incomplete if another pipeline has the slug now, so that lists may contain its builds."""
        self._requests += 1
        if pipeline.get().id != id:
            raise Incomplete(f"Another pipeline got the slug {pipeline.slug!r} during the sync. Sync again.")

    # --- lists

    def _fetch_bounded(
        self, since: Moment, until: Moment, now: Moment, *, at_end: bool
    ) -> tuple[History, Moment, Moment]:
        """Fetch builds created in a time range, or in a part at its start or end if the range has too many jobs.

        There is no upper bound if `until` is now. A stopped listing is not stored, because its builds are
        compared with the service's count only at its end.
        """
        while True:
            _release_memory()
            pages = int(2 * _MANY_JOBS / (_PAGE * max(1.0, self._jobs_per_build)))
            limit = None if until - since <= _SHORTEST_RANGE else max(_FEWEST_REQUESTS, pages)
            created_to = until if until < now else None
            history = self._fetch(created_from=since, created_to=created_to, max_requests=limit)
            if not _is_stopped(history, limit):
                return history, since, until
            length = (until - since) / 4
            since, until = (Moment.of(until - length), until) if at_end else (since, Moment.of(since + length))

    def _fetch(
        self,
        of: Workspace | PipelineWorkspace | None = None,
        *,
        is_quiet: bool = False,
        max_requests: int | None = None,
        **filters: Any,
    ) -> History:
        """Fetch builds with their jobs. Incomplete results are stored, but do not extend the coverage."""
        progress = False if is_quiet else self._progress
        began = self._clock.elapsed
        found = (of or self._ci).history(
            progress=progress, max_requests=max_requests, page_size=self._page_size, **filters
        )
        self._clock.read_listing(self._count_requests(found.builds), began)
        if len(found.builds):
            self._jobs_per_build = len(found.jobs) / len(found.builds)
        if not found.builds.attrs["complete"] and not _is_stopped(found, max_requests):
            self._why.append(found.builds.attrs["why"])
        return found

    def _fetch_lists(self, suites: Sequence[str]) -> tuple[ListSnapshot, ...]:
        """Fetch the lists of an organization, pipelines first; a single pipeline has none."""
        ws = self._workspace
        if ws is None:
            return ()
        whose, began = {"organization": self._organization}, self._clock.elapsed
        found = [ListSnapshot("pipelines", whose, ws.pipelines(progress=self._progress))]
        if self._retention.personal:
            found.append(ListSnapshot("members", whose, ws.members(progress=self._progress)))
        flaky_tests = FlakyTestLists(ws)
        for suite in suites:
            tests, period = flaky_tests.list(suite, progress=self._progress)
            found.append(ListSnapshot("flaky_tests", {**whose, "suite": suite}, tests.assign(period=period)))
        for listed in found:
            self._count_requests(listed.frame)
            self._clock.read(listed.at, began)
        return tuple(found)

    def _count_requests(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add the requests of a listing to those of the sync, and return the listing."""
        self._requests += frame.attrs["requests"]
        self._odd.add(frame.attrs["odd"])
        return frame

    def _fetch_newly_visible_pipelines(
        self, histories: list[History], lists: tuple[ListSnapshot, ...], since: Moment, until: Moment
    ) -> tuple[ListSnapshot, ...]:
        """Fetch older builds of pipelines that the token could not see before.

        If these cannot be read completely, or a cache returned an older state, the list is not stored, so that the next
        sync tries again.
        """
        ws, seen = self._workspace, self._current_pipelines
        if ws is None or not seen or since >= until:
            return lists
        listed, reasons = lists[0].frame, len(self._why)
        is_new = ~listed["id"].isin(seen) & ~(listed["created_at"] >= pd.Timestamp(until))
        for id, slug in listed.loc[is_new, ["id", "slug"]].itertuples(index=False):
            older = self._fetch(ws.pipeline(slug), created_from=since, created_to=until)
            self._check_slug(ws.pipeline(slug), id)
            histories += [older] if self._check_current(older, until) else []
        return lists if len(self._why) == reasons else lists[1:]

    # --- builds that no list contained

    def _fetch_missed_builds(self, histories: list[History], lists: Sequence[ListSnapshot]) -> pd.DataFrame:
        """List the times in which missed builds were created, and return those builds that are gone.

        Requests by number prove less: a 404 may be of a proxy, or of the former slug of the pipeline. A service may
        round times, so the ranges overlap.
        """
        missed = self._missed_builds(histories, lists[0].frame["id"] if lists else ())
        gone = [missed[:0]]
        for start, builds in missed.groupby(pd.to_datetime(missed["created_at"]).dt.floor(_AROUND)):
            since, until = Moment.of(start - _MARGIN), Moment.of(start + _AROUND + _MARGIN)
            found = self._fetch(created_from=since, created_to=until, is_quiet=True)
            if self._check_current(found, Moment.of(builds["fetched_at"].max())):
                histories.append(found)
                gone.append(builds[~builds["id"].isin(found.builds["id"]) & found.builds.attrs["complete"]])
        return pd.concat(gone)

    def _missed_builds(self, histories: Sequence[History], listed: Collection[str]) -> pd.DataFrame:
        """Return open builds that no listing contained, except webhook-only builds of unseen pipelines."""
        own = pc.field("organization") == self._organization
        if self._pipeline_id is not None:
            own = own & (pc.field("pipeline_id") == self._pipeline_id)
        with store_errors("read", self._location):
            builds = self._stored_table("builds")
            if builds is None:
                return pd.DataFrame(columns=_MISSED_COLUMNS)
            has_updates = [HAS_WEBHOOK_UPDATE] if HAS_WEBHOOK_UPDATE in builds.schema.names else []
            rows = builds.dataset().to_table([*_MISSED_COLUMNS, *has_updates], filter=pc.field(IS_OPEN) & own)
        found = rows.to_pandas()
        missed = found[~found["id"].isin(pd.concat([history.builds["id"] for history in histories]))]
        if not has_updates or self._pipeline_id is not None:
            return missed
        known = {*listed, *self._stored_pipelines(pc.scalar(True)), *self._coverage_by_pipeline()}
        is_seen = missed["pipeline_id"].isin(known)
        return missed[is_seen | ~missed[HAS_WEBHOOK_UPDATE].eq(True)]


def _require_past(since: Moment, now: Moment) -> Moment:
    """Raise BadInput if a time is ahead of both the service clock and the local clock."""
    if since > max(now, Moment.from_us(int(time.time() * 1e6))) + CLOCK_TOLERANCE:
        raise BadInput(f"since={since.text()} is in the future. Use a date before now, or an age such as '90d'.")
    return since


def _end(since: Moment, length: dt.timedelta, now: Moment) -> Moment:
    """Return the end of a time range."""
    return now if now - since <= length else Moment.of(since + length)


def _release_memory() -> None:
    """Return freed memory to the system."""
    pa.system_memory_pool().release_unused()


def _is_stopped(history: History, max_requests: int | None) -> bool:
    """Whether a listing ended because of its number of requests."""
    metadata = history.builds.attrs
    return max_requests is not None and not metadata["complete"] and metadata["requests"] >= max_requests


def _next_length(length: dt.timedelta, history: History) -> dt.timedelta:
    """Return the length of the next time range."""
    return length * min(2.0, _MANY_JOBS / max(1, len(history.jobs)))
