"""Describe changes of agents, load and steps, replay a record with them, and compare predictions. Knows no widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.metrics.queues import with_queue_names
from buildframe.metrics.replaying.blind_error import blind_error
from buildframe.metrics.replaying.description import list_steps, mean_number
from buildframe.metrics.replaying.prepared import prepare
from buildframe.metrics.replaying.scenarios import replay_prepared
from buildframe.widgets import html
from buildframe.widgets.data_table import CellValue, TableColumn, to_cells, to_rows
from buildframe.widgets.timeline import compute_ledger, render_timeline

ALL = "all builds"
WALL, QUEUE = "wall time", "queue time"


Step = tuple[str, str]
"""Pipeline and step."""


class ReplayScenario(NamedTuple):
    """What to change: agents per queue, the load, run times of steps as factors, and steps to skip."""

    agents: Mapping[str, int]
    load: float
    run_scale: Mapping[Step, float]
    skip: tuple[Step, ...]


UNCHANGED = ReplayScenario({}, 1.0, {}, ())


class Prediction(NamedTuple):
    """Builds and jobs of a replay, and their percentiles as `summarize` returns them."""

    builds: pd.DataFrame
    jobs: pd.DataFrame
    summary: pd.DataFrame


class PreparedRecord:
    """A record that is prepared once and replayed many times, in any thread.

    `agents` is today's number by queue, the mean if it changes by hour (`by_hour`). `steps` are those with script jobs,
    and `errors` is the table of a blind replay.
    """

    def __init__(self, builds: pd.DataFrame, jobs: pd.DataFrame) -> None:
        self._builds, self._jobs, self._prepared = builds, jobs, prepare(builds, jobs)
        self.errors = blind_error(self._prepared)
        fleets = dict(zip((queue.name for queue in self._prepared.record.queues), self._prepared.fleets, strict=True))
        self.agents = {queue: max(round(mean_number(self._prepared, fleet)), 1) for queue, fleet in fleets.items()}
        self.by_hour = [queue for queue, fleet in fleets.items() if not isinstance(fleet.agents, int)]
        self.steps = list_steps(self._prepared)

    def replay(self, scenario: ReplayScenario) -> Prediction:
        """Predict builds and jobs under a scenario."""
        builds, jobs = replay_prepared(self._prepared, self._builds, self._jobs, **scenario._asdict())
        return Prediction(builds, jobs, summarize(builds, jobs))


def summarize(builds: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return p50 and p95 by duration and group: wall time of all builds and by pipeline, queue time by queue."""
    parts = [
        metrics.percentiles(builds, of=metrics.wall_time).assign(duration=WALL, group=ALL),
        metrics.percentiles(builds, of=metrics.wall_time, by="pipeline").assign(duration=WALL),
        metrics.percentiles(with_queue_names(jobs), of=metrics.queue_time, by="queue").assign(duration=QUEUE),
    ]
    named = [part.rename(columns={"pipeline": "group", "queue": "group"}) for part in parts]
    rows = pd.concat([part[["duration", "group", "p50_s", "p95_s"]] for part in named])
    return rows.dropna(subset="group").set_index(["duration", "group"])


def compare(
    before: pd.DataFrame, after: pd.DataFrame | None, errors: Mapping[str, Sequence[Any]]
) -> list[list[CellValue]]:
    """Return the rows of the table of predictions; without values for `after` if it is None.

    `errors` is the table of a blind replay.
    """
    table = pd.DataFrame(index=before.index)
    for p in ("p50", "p95"):
        table[f"{p}_before"] = before[f"{p}_s"]
        table[f"{p}_after"] = np.nan if after is None else after[f"{p}_s"].reindex(before.index)
    known = pd.DataFrame(errors)
    known.index = pd.MultiIndex.from_arrays([known["of"].map({"pipeline": WALL, "queue": QUEUE}), known["name"]])
    for p in ("p50", "p95"):
        off = (known[f"predicted_{p}_s"] / known[f"recorded_{p}_s"] - 1).reindex(table.index)
        table[f"{p}_off"] = off.map(_format_off)
    return [to_cells(row, TABLE_COLUMNS) for row in to_rows(table.reset_index())]


def _format_off(share: float) -> str:
    if not np.isfinite(share):
        return ""
    return "0 %" if abs(share) < 0.005 else f"{100 * share:+.0f} %".replace("-", "\N{MINUS SIGN}")


TABLE_COLUMNS = (
    TableColumn("Duration", "duration", width="90px"),
    TableColumn("Of", "group", width="minmax(110px, 2fr)"),
    TableColumn("p50 before", "p50_before", "seconds", "94px"),
    TableColumn("p50 after", "p50_after", "seconds", "94px"),
    TableColumn("p95 before", "p95_before", "seconds", "94px"),
    TableColumn("p95 after", "p95_after", "seconds", "94px"),
    TableColumn("Replay off, p50", "p50_off", width="126px", rank=1),
    TableColumn("Replay off, p95", "p95_off", width="126px", rank=1),
)


def list_builds(builds: pd.DataFrame, most: int) -> list[tuple[str, str]]:
    """Return label and id of the latest builds that ended, newest first."""
    ended = builds[metrics.wall_time(builds).notna() & builds["id"].notna()]
    latest = ended.sort_values(["created_at", "id"], ascending=False).head(most)
    return [(html.build_name(build["pipeline"], build["number"]), str(build["id"])) for build in to_rows(latest)]


def render_build(prediction: Prediction, id: str, when: str, minutes: float) -> str:
    """Return the timeline of a build in a prediction as HTML, at least so many minutes wide."""
    builds = prediction.builds[prediction.builds["id"] == id]
    jobs = prediction.jobs[prediction.jobs["build_id"] == id]
    if builds.empty:
        return html.hint(f"{when}: the build is not among those of this load.")
    (build,) = to_rows(builds)
    is_unfinished = build["finished_at"] is None
    name = f"{html.build_name(build['pipeline'], build['number'])} ({when})"
    return render_timeline(jobs, name, compute_ledger(builds, jobs), is_unfinished=is_unfinished, minutes=minutes)


def minutes_of(id: str, *predictions: Prediction) -> float:
    """Return the longest wall time of a build in these predictions; 0 if it did not end."""
    walls = [metrics.wall_time(one.builds[one.builds["id"] == id]).dt.total_seconds().max() for one in predictions]
    return float(np.nanmax([0.0, *walls])) / 60
