"""What a sync asks the service for, in this order.

What may have changed without a sign in any list is asked for first, and the store reaches to the service's time then:
whatever changes later is found by the next sync.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from buildframe.errors import BadInput, NotFound
from buildframe.lists import History
from buildframe.pipeline import Pipeline
from buildframe.spec import Moment, When, when
from buildframe.store import changes, commits
from buildframe.store.commits import Batch, Committed, Listed
from buildframe.store.kept import IS_OPEN, Keeping
from buildframe.store.lake import Place, Table
from buildframe.store.state import Mark, State
from buildframe.workspace import Workspace

OPEN = ("scheduled", "running", "failing", "canceling")
"""States that are listed over all time. Blocked builds pile up; one that goes on shows by what it does next."""

OVERLAP = dt.timedelta(minutes=5)
"""How much of what was known before is asked for again: clocks of the service may differ, and its lists lag."""

_PLACE = ("id", "pipeline_id", "pipeline", "number")

_FIRST = dt.timedelta(days=1)
_MANY = 100_000
"""Jobs of a stretch of a long way back; with more the next stretch is shorter."""


@dataclass(frozen=True)
class Synced:
    """What a sync did.

    `builds` and `jobs` that are new or changed, and those `gone`; `bytes` of files written; `requests` sent; the
    store's `version`. It knows all builds created from `since` as they were at `as_of`, unless `why` says why not.
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
            f"{self.builds:,} builds and {self.jobs:,} jobs new or changed{gone}, by {self.requests} requests; "
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
        self._requests = 0
        self._why: list[str] = []
        self._done: list[Committed] = []

    def run(self, since: When, suites: Sequence[str]) -> Synced:
        """Ask, and commit; what lies further back than the store reaches comes last, in stretches."""
        builds = Table.at(self._place, "builds")
        state = State() if builds is None else State.newest(builds)
        basis = state.marks.get(self._scope.name)
        still_open = self._walk(state=list(OPEN))
        now = Moment.parse(still_open.builds.attrs["as_of"])
        start = min(when(since, "since", now), now)
        again = max(start, Moment.of(now - _FIRST)) if basis is None else Moment.of(basis.until - OVERLAP)
        walks = [still_open]
        if basis is not None:
            walks.append(self._walk(finished_from=again, created_to=again))
        walks.append(self._walk(created_from=again))
        lists = self._lists(suites)
        gone = self._look_by_number(state, walks, lists)
        mark = Mark(again if basis is None else basis.since, now)
        self._commit(walks, now, lists=lists, gone=gone, mark=mark, basis=basis)
        return self._told(now, self._fill(mark, start))

    def _fill(self, mark: Mark, start: Moment) -> Mark:
        """Fetch what lies before the mark, back to `start`, a commit for each stretch."""
        length = _FIRST
        while mark.since > start and not self._why:
            since = max(start, Moment.of(mark.since - length))
            walk = self._walk(created_from=since, created_to=mark.since)
            wider = Mark(since, mark.until)
            self._commit([walk], mark.until, mark=wider, basis=mark)
            mark, length = wider, length / 2 if len(walk.jobs) > _MANY else length * 2
        return mark

    def _commit(self, walks: Sequence[History], as_of: Moment, mark: Mark, **more: Any) -> None:
        builds, jobs = changes.latest_of(walks)
        batch = Batch(builds, jobs, as_of, scope=self._scope.name, mark=None if self._why else mark, **more)
        self._done.append(commits.commit(self._place, self._keeping, batch))

    def _told(self, now: Moment, mark: Mark) -> Synced:
        done = self._done
        return Synced(
            builds=sum(one.builds for one in done),
            jobs=sum(one.jobs for one in done),
            gone=sum(one.gone for one in done),
            bytes=sum(one.bytes for one in done),
            requests=self._requests,
            version=done[-1].state.version,
            as_of=now,
            since=mark.since,
            why="; ".join(self._why) or None,
        )

    # --- asking

    def _walk(self, **asked: Any) -> History:
        """Builds with their jobs; what cannot be read completely is kept, but the store then reaches no further."""
        found = self._scope.ci.history(**asked, progress=self._progress)
        self._requests += found.builds.attrs["requests"]
        if not found.builds.attrs["complete"]:
            self._why.append(found.builds.attrs["why"])
        return found

    def _lists(self, suites: Sequence[str]) -> tuple[Listed, ...]:
        """The lists of an organization; a pipeline has none."""
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
        self._requests += sum(listed.frame.attrs["requests"] for listed in found)
        return tuple(found)

    def _look_by_number(self, state: State, walks: list[History], lists: Sequence[Listed]) -> pd.DataFrame:
        """Builds that were open when last seen and that no walk brought, one by one; those that are gone."""
        missed = self._missed(state, walks)
        slugs = {
            id: slug for listed in lists[:1] for id, slug in zip(listed.frame["id"], listed.frame["slug"], strict=True)
        }
        is_gone = []
        for id, pipeline_id, slug, number in zip(*(missed[name] for name in _PLACE), strict=True):
            found = self._one(slugs.get(pipeline_id, slug), number)
            is_there = found is not None and found.builds["id"].iloc[0] == id  # a slug can come to name another one
            walks += [found] if found is not None and is_there else []
            is_gone.append(not is_there)
        return missed.loc[is_gone, ["id", "day", "fetched_at"]]

    def _missed(self, state: State, walks: Sequence[History]) -> pd.DataFrame:
        builds = state.table(self._place, "builds")
        columns = [*_PLACE, "day", "fetched_at"]
        if builds is None:
            return pd.DataFrame(columns=columns)
        own = pc.field("organization") == self._scope.organization
        if self._scope.pipeline_id is not None:
            own = own & (pc.field("pipeline_id") == self._scope.pipeline_id)
        found = builds.dataset().to_table(columns, filter=pc.field(IS_OPEN) & own).to_pandas()
        return found[~found["id"].isin(pd.concat([walk.builds["id"] for walk in walks]))]

    def _one(self, slug: str, number: int) -> History | None:
        ci = self._scope.ci
        pipeline = ci if isinstance(ci, Pipeline) else ci.pipeline(slug)
        self._requests += 1
        try:
            return pipeline.history_of(number)
        except NotFound:
            return None
