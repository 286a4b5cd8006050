"""What waits and runs, look by look; how those ended that did; and what those that run may still take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from buildframe import metrics, spec
from buildframe.errors import Incomplete, NotFound
from buildframe.formatting import clipped, counted, named, span, visible
from buildframe.spec.builds import BuildState
from buildframe.workspace import Pipeline, Workspace

OPEN: tuple[BuildState, ...] = ("scheduled", "running", "failing", "canceling")
"""States of builds that were not seen to end, as the service lists them."""

DELETED = "deleted"

DAYS = 14

_COLUMNS = [
    "id", "number", "pipeline", "state", "blocked", "branch", "message",
    "created_at", "started_at", "finished_at", "web_url", "fetched_at",
]  # fmt: skip
_PAST = ["id", "pipeline", "state", "blocked", "created_at", "started_at", "finished_at", "fetched_at"]
_ENDS: tuple[BuildState, ...] = ("passed", "failed", "canceled")
_MOST_PAGES = 10
_PAGES_OF_PAST = 4  # one of them asks for the time
_MOST_READ = 10
_MOST_TOLD = 20
_MOST_LOOKS = 30
_PATIENCE = "30s"

Row = dict[Any, Any]


class Ended(NamedTuple):
    """A build that was seen to leave the list, and what is to be said of it."""

    build: spec.Build
    words: str

    @property
    def is_there(self) -> bool:
        """Whether the service still has it."""
        return self.build.state != DELETED


class Seen(NamedTuple):
    """What a look has shown.

    `rows` are builds, newest first, with the columns of `metrics.remaining_time`, and `since`: of how many days their
    pipeline's history is, and of how many builds where it was cut. `ended` are those that ended so far, the last one
    first, `news` how many of them at the last look, and `depths` how many waited at each.
    """

    rows: list[Row]
    as_of: Any
    note: str
    ended: list[Ended]
    news: int
    depths: list[int]


class Watch:
    """Looks at the builds of an organization or of a pipeline; one thread at a time.

    A look takes a request for each 100 builds, at most 10, and one for each build that left the list, at most 10. The
    history of a pipeline is read once, when told to: of the last 14 days, and of 300 builds at most.
    """

    def __init__(self, of: Workspace | Pipeline) -> None:
        self._of = of
        self._builds = pd.DataFrame()
        self._open: dict[str, Row] = {}
        self._past: dict[str, pd.DataFrame] = {}
        self._ended: list[Ended] = []
        self._news = 0
        self._depths: list[int] = []
        self._note = ""
        self._as_of: Any = pd.NaT

    def look(self) -> None:
        """See what waits and runs now, and how those ended that do so no more."""
        found = self._of.builds(
            state=OPEN,
            columns=_COLUMNS,
            max_requests=_MOST_PAGES,
            deadline=_PATIENCE,
            partial=True,
            workers=1,
            progress=False,
        )
        told = found.attrs
        if not (told["complete"] or len(found)):
            raise Incomplete(f"Nothing could be read: {told['why']}.")
        self._follow(found)
        self._builds, self._as_of = found, pd.Timestamp(told["as_of"]) if told["as_of"] else pd.NaT
        self._note = "" if told["complete"] else f"Only the newest {len(found):,} are shown: {told['why']}."
        self._depths = [*self._depths, int((found["state"] == "scheduled").sum())][-_MOST_LOOKS:]

    def unknown(self) -> list[str]:
        """Pipelines of builds that run, whose history was not read yet; those with most builds first."""
        running = self._builds.loc[self._builds["started_at"].notna(), "pipeline"].dropna()
        return [str(slug) for slug in running.value_counts().index if slug not in self._past]

    def learn(self, slug: str) -> None:
        """Read the history of a pipeline, the newest first."""
        self._past[slug] = self._pipeline(slug).builds(
            created_from=f"{DAYS}d", state=_ENDS, columns=_PAST,
            max_requests=_PAGES_OF_PAST, deadline=_PATIENCE, partial=True, workers=1, progress=False,
        )  # fmt: skip

    def seen(self) -> Seen:
        """What is known by now."""
        rows = self._builds.to_dict("records")
        left = {row["id"]: row for row in self._remaining().to_dict("records")}
        for row in rows:
            row |= {**left.get(row["id"], {}), "since": self._since(row["pipeline"])}
        return Seen(rows, self._as_of, self._note, self._ended[::-1], self._news, list(self._depths))

    def _remaining(self) -> pd.DataFrame:
        running = self._builds[self._builds["pipeline"].isin(list(self._past))]
        together = pd.concat([*self._past.values(), running[_PAST]])
        return metrics.remaining_time(metrics.latest(together)).drop(columns="pipeline")

    def _since(self, slug: Any) -> str | None:
        past = self._past.get(slug)
        if past is None:
            return None
        if past.attrs["complete"] or past.empty:
            return f"the last {DAYS} days"
        reach = span((past["fetched_at"].max() - past["created_at"].min()).total_seconds())
        return f"the last {reach}, as only its newest {counted(len(past), 'build')} were read"

    def _pipeline(self, slug: str) -> Pipeline:
        return self._of if isinstance(self._of, Pipeline) else self._of.pipeline(slug)

    # --- what became of them

    def _follow(self, found: pd.DataFrame) -> None:
        """Read those that are in the list no more; what cannot be read now is read by the next look."""
        self._news = 0
        reach = None if found.attrs["complete"] else found["created_at"].min()
        for row in _gone(self._open.values(), set(found["id"]), reach)[:_MOST_READ]:
            build = self._read(row)
            if build.state not in OPEN:
                self._ended = [*self._ended, Ended(build, told(build))][-_MOST_TOLD:]
                self._news += 1
                del self._open[row["id"]]
        self._open |= {row["id"]: row for row in found.to_dict("records")}

    def _read(self, row: Row) -> spec.Build:
        try:
            return self._pipeline(str(row["pipeline"])).build(int(row["number"]), include_retried_jobs=False)
        except NotFound:
            return build_of({**row, "state": DELETED})


def _gone(before: Iterable[Row], there: set[str], reach: pd.Timestamp | None) -> list[Row]:
    """Those that the list would hold, which was read back to `reach`, if they were still open; the oldest first."""
    gone = [row for row in before if row["id"] not in there and (reach is None or row["created_at"] >= reach)]
    return sorted(gone, key=lambda row: row["created_at"])


def build_of(row: Mapping[Any, Any]) -> spec.Build:
    """A row as a record, with what is needed to act on the build."""
    return spec.Build(
        id=row["id"],
        number=int(row["number"]),
        state=row["state"],
        pipeline=spec.Pipeline(slug=row["pipeline"]),
        web_url=_known(row["web_url"]),
    )


def told(build: spec.Build) -> str:
    """How a build ended: "web #12 passed after 4 min 10 s"."""
    name = name_of(build)
    if build.blocked:
        return f"{name} waits at a block step, {build.state} so far"
    how = _HOW.get(str(build.state), f"is {visible(clipped(str(build.state)))}")
    if build.started_at is None or build.finished_at is None:
        return f"{name} {how}"
    return f"{name} {how} after {span((build.finished_at - build.started_at).total_seconds())}"


_HOW = {
    "passed": "passed",
    "failed": "failed",
    "canceled": "was canceled",
    "skipped": "was skipped",
    "not_run": "was not run",
    DELETED: "was deleted",
}


def name_of(build: spec.Build) -> str:
    """Its pipeline and number, for a sentence."""
    return f"{named(build.pipeline.slug if build.pipeline else None)} #{build.number}"


def _known(value: Any) -> Any:
    return None if pd.isna(value) else value
