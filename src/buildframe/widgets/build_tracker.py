"""Track waiting and running builds from refresh to refresh until they finish. Does not know how they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from buildframe import metrics, spec
from buildframe.errors import Incomplete, NotFound
from buildframe.formatting import escape_invisible, format_count, format_duration, truncate_middle
from buildframe.spec.builds import FINISHED_STATES, OPEN_STATES
from buildframe.widgets.build_actions import build_name
from buildframe.widgets.components import pipeline_of
from buildframe.widgets.data_table import Row, to_rows
from buildframe.workspace import PipelineWorkspace, Workspace

DELETED = "deleted"
HISTORY_DAYS = 14

_COLUMNS = [
    "id", "number", "pipeline", "state", "blocked", "branch", "message",
    "created_at", "started_at", "finished_at", "web_url", "fetched_at",
]  # fmt: skip
_HISTORY_COLUMNS = ["id", "pipeline", "state", "blocked", "created_at", "started_at", "finished_at", "fetched_at"]
_MAX_REQUESTS = 10
_MAX_HISTORY_REQUESTS = 4  # the first one reads the service's time
_MAX_LOOKUPS = 10  # of builds that left the list, per refresh
_MAX_FINISHED = 20
_MAX_DEPTHS = 30
_DEADLINE = "30s"


class FinishedBuild(NamedTuple):
    """A build that left the list of open builds, and how it ended as text."""

    build: spec.Build
    text: str

    @property
    def is_deleted(self) -> bool:
        """Whether the service no longer has it."""
        return self.build.state == DELETED


class MonitorSnapshot(NamedTuple):
    """
    The open builds at one refresh.

    `rows` are builds, newest first, with the columns of `metrics.remaining_time`, and `history`, which describes the
    builds that the expectation is based on (None: not loaded yet). `finished` are the builds that finished so far,
    newest first, and `n_new` how many of these did since the refresh before. `depths` are the numbers of waiting builds
    at each refresh.
    """

    rows: list[Row]
    as_of: Any
    note: str
    finished: list[FinishedBuild]
    n_new: int
    depths: list[int]


class BuildTracker:
    """
    Tracks the builds of an organization or a pipeline; one thread at a time.

    A refresh takes one request per 100 open builds, at most 10, and one for each build that left the list, at most 10.
    The history of a pipeline is loaded once, on request: the last 14 days, and at most 300 builds.
    """

    def __init__(self, source: Workspace | PipelineWorkspace) -> None:
        self._source = source
        self._builds = pd.DataFrame()
        self._open: dict[str, Row] = {}
        self._histories: dict[str, pd.DataFrame] = {}
        self._finished: list[FinishedBuild] = []
        self._n_new = 0
        self._depths: list[int] = []
        self._note = ""
        self._as_of: Any = pd.NaT

    def refresh(self) -> None:
        """Load the open builds, and look up those that are no longer open."""
        builds = self._source.builds(
            state=OPEN_STATES, columns=_COLUMNS,
            max_requests=_MAX_REQUESTS, deadline=_DEADLINE, partial=True, workers=1, progress=False,
        )  # fmt: skip
        metadata = builds.attrs
        if not (metadata["complete"] or len(builds)):
            raise Incomplete(f"No builds could be loaded: {metadata['why']}.")
        self._look_up_finished(builds)
        self._builds, self._as_of = builds, pd.Timestamp(metadata["as_of"]) if metadata["as_of"] else pd.NaT
        self._note = "" if metadata["complete"] else f"Only the newest {len(builds):,} are shown: {metadata['why']}."
        self._depths = [*self._depths, int((builds["state"] == "scheduled").sum())][-_MAX_DEPTHS:]

    def pipelines_without_history(self) -> list[str]:
        """Return pipelines of running builds whose history is not loaded, those with most builds first."""
        running = self._builds.loc[self._builds["started_at"].notna(), "pipeline"].dropna()
        return [str(slug) for slug in running.value_counts().index if slug not in self._histories]

    def load_history(self, slug: str) -> None:
        """Load the history of a pipeline, newest builds first."""
        self._histories[slug] = pipeline_of(self._source, slug).builds(
            created_from=f"{HISTORY_DAYS}d", state=FINISHED_STATES, columns=_HISTORY_COLUMNS,
            max_requests=_MAX_HISTORY_REQUESTS, deadline=_DEADLINE, partial=True, workers=1, progress=False,
        )  # fmt: skip

    def snapshot(self) -> MonitorSnapshot:
        """Return the state after the last refresh, with the histories loaded so far."""
        rows = to_rows(self._builds)
        running = self._builds[self._builds["pipeline"].isin(list(self._histories))]
        together = pd.concat([*self._histories.values(), running[_HISTORY_COLUMNS]])
        remaining_times = metrics.remaining_time(metrics.latest(together)).drop(columns="pipeline")
        remaining = {row["id"]: row for row in to_rows(remaining_times)}
        for row in rows:
            row |= {**remaining.get(row["id"], {}), "history": self._describe_history(row["pipeline"])}
        finished = self._finished[::-1]
        return MonitorSnapshot(rows, self._as_of, self._note, finished, self._n_new, list(self._depths))

    def _describe_history(self, slug: Any) -> str | None:
        history = self._histories.get(slug)
        if history is None:
            return None
        if history.attrs["complete"] or history.empty:
            return f"the last {HISTORY_DAYS} days"
        reach = format_duration((history["fetched_at"].max() - history["created_at"].min()).total_seconds())
        return f"the last {reach} (only the newest {format_count(len(history), 'build')} were loaded)"

    def _look_up_finished(self, builds: pd.DataFrame) -> None:
        """Look up builds that left the list; the next refresh tries again those that cannot be looked up now."""
        self._n_new = 0
        reach, present = None if builds.attrs["complete"] else builds["created_at"].min(), set(builds["id"])
        oldest_first = sorted(self._open.values(), key=lambda row: row["created_at"])
        left = [
            each for each in oldest_first if each["id"] not in present and (not reach or each["created_at"] >= reach)
        ]
        for row in left[:_MAX_LOOKUPS]:
            pipeline = pipeline_of(self._source, row["pipeline"])
            try:
                build = pipeline.build(int(row["number"]), include_retried_jobs=False)
            except NotFound:
                build = to_record({**row, "state": DELETED})
            if build.state not in OPEN_STATES:
                self._finished = [*self._finished, FinishedBuild(build, finish_text(build))][-_MAX_FINISHED:]
                self._n_new += 1
                del self._open[row["id"]]
        self._open |= {row["id"]: row for row in to_rows(builds)}


def to_record(row: Mapping[Any, Any]) -> spec.Build:
    """Return as much of a build as its buttons need."""
    return spec.Build(
        id=row["id"],
        number=int(row["number"]),
        state=row["state"],
        pipeline=spec.Pipeline(slug=row["pipeline"]),
        web_url=row["web_url"],
    )


def finish_text(build: spec.Build) -> str:
    """Return how a build ended: "web #12 passed after 4 min 10 s"."""
    name = build_name(build)
    if build.blocked:
        return f"{name} is blocked; {build.state} so far"
    outcome = _OUTCOMES.get(str(build.state), f"is {escape_invisible(truncate_middle(str(build.state)))}")
    if build.started_at is None or build.finished_at is None:
        return f"{name} {outcome}"
    return f"{name} {outcome} after {format_duration((build.finished_at - build.started_at).total_seconds())}"


_OUTCOMES = {
    **{state: state for state in ("passed", "failed")},
    **{state: f"was {state.replace('_', ' ')}" for state in ("canceled", "skipped", "not_run", DELETED)},
}
