"""Load builds page by page as rows of a table, and describe how complete they are."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pandas as pd

from buildframe.fetching.builds import reporting_rows
from buildframe.formatting import format_count
from buildframe.widgets import html
from buildframe.widgets.data_table import Row, TableColumn, to_cells, to_rows
from buildframe.workspace import PipelineWorkspace, Workspace

COLUMNS = [
    "id", "number", "pipeline", "state", "blocked", "branch", "commit", "message", "creator", "creator_id",
    "created_at", "started_at", "finished_at", "web_url", "fetched_at",
]  # fmt: skip

LoadingState = Literal["loading", "complete", "stopped", "failed"]

_UPDATE_INTERVAL = 0.5  # seconds; more frequent updates cost time, and nobody sees them


class BuildList:
    """
    Builds that match a query, in the order of arrival, each as it was last read. `query` describes the query in words.

    `builds` has the columns COLUMNS and `row`, its cells in the table. `error` says why loading failed.
    """

    def __init__(self, query: str) -> None:
        self.query = query
        self.builds = pd.DataFrame(columns=[*COLUMNS, "row"])
        self.state: LoadingState = "loading"
        self.error = ""
        self.share: float | None = 0.0
        self._metadata: Mapping[Any, Any] = {}
        self._updated: dict[str, None] = {}

    def add(self, builds: pd.DataFrame | None, share: float | None, metadata: Mapping[Any, Any]) -> None:
        """Add builds with their rows, if there are any; the share loaded so far; and the `attrs` of the listing."""
        self._metadata, self.share = metadata, share
        if builds is not None:
            self._merge(builds)

    def update(self, builds: pd.DataFrame) -> None:
        """Add builds that were loaded individually, so they may not match the query."""
        self._updated |= {f"{build.pipeline} #{build.number}": None for build in builds.itertuples()}
        self._merge(builds)

    def _merge(self, builds: pd.DataFrame) -> None:
        together = pd.concat([self.builds, builds]) if len(self.builds) else builds
        by_time = together.sort_values("fetched_at", kind="stable")
        latest = by_time.drop_duplicates("id", keep="last").set_index("id", drop=False)
        self.builds = latest.loc[together["id"].unique()].reset_index(drop=True)

    @property
    def status_text(self) -> str:
        """How many builds there are, and whether these are all."""
        if not self._updated:
            return self._state_text()
        pronoun = "they" if len(self._updated) > 1 else "it"
        return f"{self._state_text()} {', '.join(self._updated)} updated; {pronoun} may not match the filters."

    def _state_text(self) -> str:
        count = format_count(len(self.builds), "build")
        if self.state == "loading":
            share = f", {100 * self.share:.0f} % of the time range" if self.share is not None else ""
            return f"Loading … {count}{share}" if len(self.builds) else "Loading …"
        if self.state == "stopped":
            return f"Stopped: {count} loaded, others are missing. Press Load to start again."
        if self.state == "failed":
            return f"{self.error}\n{count} loaded before that; others are missing." if len(self.builds) else self.error
        if not self._metadata["complete"]:
            return f"{count}, incomplete: {self._metadata['why']}."
        note = f"; {self._metadata['note']}" if self._metadata.get("note") else ""
        none = f" No build matches: {self.query}. Widen the time range or remove a filter."
        return f"{count}, complete, as of {self.time}{note}.{none if self.builds.empty else ''}"

    @property
    def time(self) -> str:
        """The service's time of the first response."""
        return html.clock_time(self._metadata.get("as_of"))


def load_builds(
    source: Workspace | PipelineWorkspace,
    filters: Mapping[str, Any],
    on_batch: Callable[[pd.DataFrame | None, float | None, Mapping[Any, Any]], None],
) -> None:
    """Load the builds that match, and call `on_batch` (see `BuildList.add`) as they arrive and once at the end."""
    frames: list[pd.DataFrame] = []
    updated_at = -math.inf

    def on_rows(builds: pd.DataFrame, share: float | None) -> None:
        nonlocal updated_at
        frames.append(builds)
        if time.monotonic() - updated_at >= _UPDATE_INTERVAL:
            send(share, builds.attrs)
            updated_at = time.monotonic()

    def send(share: float | None, metadata: Mapping[Any, Any]) -> None:
        builds = [with_rows(frame) for frame in frames if len(frame)]
        frames.clear()
        on_batch(pd.concat(builds) if builds else None, share, metadata)

    with reporting_rows(on_rows):
        complete = source.builds(**filters, columns=COLUMNS, progress=False)
    send(1.0, complete.attrs)


def with_rows(builds: pd.DataFrame) -> pd.DataFrame:
    """Return the builds with their cells in the column `row`."""
    cells = [to_cells(build, TABLE_COLUMNS) for build in to_rows(builds)]
    return builds[COLUMNS].assign(row=pd.Series(cells, index=builds.index, dtype=object))


def _duration(build: Row) -> pd.Timedelta | None:
    is_over = build["finished_at"] is not None and not build["blocked"]  # a blocked build is not finished
    return build["finished_at"] - build["created_at"] if is_over else None


TABLE_COLUMNS = (
    TableColumn("Number", "number", "number", "80px"),
    TableColumn("State", lambda build: "blocked" if build["blocked"] else build["state"], "state", "94px"),
    TableColumn("Pipeline", "pipeline", width="minmax(74px, 7fr)", rank=2),
    TableColumn("Branch", "branch", "name", "minmax(110px, 13fr)", rank=1),
    TableColumn("Took", _duration, "seconds", "72px"),
    TableColumn("Created (UTC)", "created_at", "time", "minmax(98px, 142px)"),
    TableColumn("Message", lambda build: html.first_line(build["message"]), width="minmax(110px, 18fr)", rank=4),
    TableColumn("Creator", "creator", width="minmax(90px, 8fr)", rank=3),
    TableColumn("Commit", "commit", "commit", "84px", rank=5),
)
CREATED = 5  # index of the column


def columns_for(ws: Workspace | PipelineWorkspace) -> list[TableColumn]:
    """Return the columns of the table; the pipeline is optional if there is only one."""
    is_one = isinstance(ws, PipelineWorkspace)
    return [each._replace(optional=is_one and each.value == "pipeline") for each in TABLE_COLUMNS]
