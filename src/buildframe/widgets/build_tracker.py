"""Track waiting and running builds from refresh to refresh until they finish. Does not know how they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from buildframe import metrics, spec
from buildframe.errors import Incomplete, NotFound
from buildframe.formatting import format_count, format_duration
from buildframe.spec.builds import FINISHED_STATES, OPEN_STATES
from buildframe.widgets import html
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
_MAX_HISTORIES = 2  # loaded per refresh, so that rows are not outdated when they appear
_MAX_HISTORY_REQUESTS = 4  # the first one reads the service's time
_MAX_LOOKUPS = 10  # of builds that left the list, per refresh
_MAX_FINISHED = 20
_MAX_DEPTHS = 30
_LIMITS: dict[str, Any] = {"deadline": "30s", "partial": True, "workers": 1, "progress": False}


class MonitorSnapshot(NamedTuple):
    """
    The open builds at one refresh, and its time as text.

    `rows` are builds, newest first, with the columns of `metrics.remaining_time`, and `history`, which describes the
    builds that the expectation is based on (None: not loaded yet). `finished` are the builds that finished so far,
    newest first, and `n_new` how many of these did since the refresh before. `depths` are the numbers of waiting builds
    at each refresh.
    """

    rows: list[Row]
    as_of: str
    note: str
    finished: list[spec.Build]
    n_new: int
    depths: list[int]


class BuildTracker:
    """
    Tracks the builds of an organization or a pipeline; one thread at a time.

    A refresh takes one request per 100 open builds, at most 10, and one for each build that left the list, at most 10.
    The history of a pipeline is loaded once: the last 14 days, and at most 300 builds.
    """

    def __init__(self, source: Workspace | PipelineWorkspace) -> None:
        self._source = source
        self._open: dict[str, Row] = {}
        self._histories: dict[str, pd.DataFrame] = {}
        self._finished: list[spec.Build] = []
        self._n_new = 0
        self._depths: list[int] = []

    def refresh(self) -> Iterator[MonitorSnapshot]:
        """Load the open builds, then histories of running ones, which take longer; yield the state after each."""
        builds = self._source.builds(state=OPEN_STATES, columns=_COLUMNS, max_requests=_MAX_REQUESTS, **_LIMITS)
        if not (builds.attrs["complete"] or len(builds)):
            raise Incomplete(f"No builds could be loaded: {builds.attrs['why']}.")
        self._look_up_finished(builds)
        self._depths = [*self._depths, int((builds["state"] == "scheduled").sum())][-_MAX_DEPTHS:]
        yield self._snapshot(builds)
        running = builds.loc[builds["started_at"].notna(), "pipeline"].dropna()
        new = [str(slug) for slug in running.value_counts().index if slug not in self._histories]
        for slug in new[:_MAX_HISTORIES]:
            self._histories[slug] = pipeline_of(self._source, slug).builds(
                created_from=f"{HISTORY_DAYS}d", state=FINISHED_STATES, columns=_HISTORY_COLUMNS,
                max_requests=_MAX_HISTORY_REQUESTS, **_LIMITS,
            )  # fmt: skip
            yield self._snapshot(builds)

    def _snapshot(self, builds: pd.DataFrame) -> MonitorSnapshot:
        running = builds[builds["pipeline"].isin(list(self._histories))]
        together = pd.concat([*self._histories.values(), running[_HISTORY_COLUMNS]])
        remaining = metrics.remaining_time(metrics.latest(together)).drop(columns="pipeline")
        rows = to_rows(builds.merge(remaining, "left", "id"))
        for row in rows:
            row["history"] = self._describe_history(row["pipeline"])
        metadata, finished = builds.attrs, self._finished[::-1]
        note = "" if metadata["complete"] else f"Only the newest {len(builds):,} are shown: {metadata['why']}."
        return MonitorSnapshot(rows, html.clock_time(metadata["as_of"]), note, finished, self._n_new, self._depths)

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
        left = [row for row in oldest_first if row["id"] not in present and (not reach or row["created_at"] >= reach)]
        for row in left[:_MAX_LOOKUPS]:
            pipeline = pipeline_of(self._source, row["pipeline"])
            try:
                build = pipeline.build(int(row["number"]), include_retried_jobs=False)
            except NotFound:
                build = to_record({**row, "state": DELETED})
            if build.state not in OPEN_STATES:
                self._finished = [*self._finished, build][-_MAX_FINISHED:]
                self._n_new += 1
                del self._open[row["id"]]
        self._open |= {row["id"]: row for row in to_rows(builds)}


def to_record(row: Mapping[Any, Any]) -> spec.Build:
    """Return as much of a build as its buttons need."""
    same = {name: row[name] for name in ("id", "state", "web_url")}
    return spec.Build(**same, number=int(row["number"]), pipeline=spec.Pipeline(slug=row["pipeline"]))
