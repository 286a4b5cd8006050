"""What deliveries of webhooks tell, as rows that a sync might have brought.

A row is as old as the latest time that its delivery names, however late that comes. Some of these times are by agents'
clocks, which may be ahead, so no row is later than when its delivery came.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe import webhooks
from buildframe.errors import Malformed
from buildframe.spec import Moment
from buildframe.store import changes, kept
from buildframe.store.changes import STAMPS
from buildframe.webhooks import Event, Received


@dataclass(frozen=True)
class Told:
    """What became of events: `builds` and `jobs` that were news to the store, and its `version`.

    Events `left_out` are of what no sync covers, tell of no build, or cannot be stored. An event that is no news (it
    came twice, or late) is neither.
    """

    builds: int
    jobs: int
    left_out: int
    version: int


def rows(events: Sequence[Event], scopes: Collection[str], synced_at: Moment) -> tuple[Received, int]:
    """Builds and jobs of these scopes, each as it was told last, and how many events are left out.

    `synced_at` is the service's time at the last sync, which is past even where the clock here is behind.
    """
    dated = [(event, at) for event in events if (at := _at(event, synced_at)) is not None]
    told = _each([event for event, _ in dated], [at for _, at in dated])
    is_covered = _is_covered(told.builds, scopes)
    builds, jobs = told.builds[is_covered], told.jobs[_is_covered(told.jobs, scopes)]
    found = Received(_last("builds", _build_states(builds)), _last("jobs", kept.as_listed(_job_states(jobs))))
    return found, len(events) - int(is_covered.sum())


def _at(event: Event, synced_at: Moment) -> Moment | None:
    """When what it tells was so: the latest time in it, but none to come; None where it tells of no build or time."""
    if event.build is None:
        return None
    records = {"builds": event.build, "jobs": event.job}
    stamps = (getattr(records[table], name, None) for table, names in STAMPS.items() for name in names)
    latest = max((stamp for stamp in stamps if isinstance(stamp, Moment)), default=None)
    return None if latest is None else min(latest, max(event.received_at, synced_at))


def _each(events: Sequence[Event], at: Sequence[Moment]) -> Received:
    """Their rows; without those events of which some value fits no column."""
    try:
        return webhooks.each(events, at)
    except Malformed:
        if len(events) == 1:
            return webhooks.each([], [])
    half = len(events) // 2
    parts = (_each(events[:half], at[:half]), _each(events[half:], at[half:]))
    builds, jobs = (pd.concat(frames, ignore_index=True) for frames in zip(*parts, strict=True))
    return Received(builds, jobs)


def _is_covered(frame: pd.DataFrame, scopes: Collection[str]) -> pd.Series[bool]:
    """Whether some sync asks for the build, and all is there by which the store finds it again."""
    is_job = "build_id" in frame
    needed = ["id", "build_id", "build_created_at"] if is_job else ["id", "number", "created_at", "state"]
    organization, pipeline = frame["organization"], frame["pipeline_id"]
    is_of = organization.isin(scopes) | (organization + "/" + pipeline).isin(scopes)
    return is_of & frame[[*needed, "organization", "pipeline", "pipeline_id"]].notna().all(axis=1)


def _build_states(builds: pd.DataFrame) -> pd.DataFrame:
    """Builds with states as lists have them; without those of which a notification's own word is all that is told."""
    is_blocked = builds["state"] == "blocked"
    state = builds["state"].mask(is_blocked, builds["blocked_state"]).replace("started", "running")
    told = builds.assign(state=state, blocked=builds["blocked"].mask(is_blocked, True))
    return told[state.notna() & ~state.isin(["", "blocked", "finished"])]


def _job_states(jobs: pd.DataFrame) -> pd.DataFrame:
    """The same of jobs: one that is `finished` has passed if its command did; else it ended in some other way."""
    has_passed = (jobs["state"] == "finished") & (jobs["exit_status"] == 0).fillna(False)
    state = jobs["state"].mask(has_passed, "passed").replace("started", "running")
    return jobs.assign(state=state)[state.notna() & (state != "finished")]


def _last(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Each id once, as it was told last; times are whole seconds from here on, as those of answers are."""
    ages = pa.Table.from_pandas(frame[["id", "fetched_at", *STAMPS[table]]], preserve_index=False)
    latest = frame.loc[np.array(changes.is_news(ages, ages.slice(0, 0), STAMPS[table]), bool)]
    return latest.assign(fetched_at=latest["fetched_at"].dt.floor("s"))
