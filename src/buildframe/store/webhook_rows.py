"""Convert webhook events to rows of builds and jobs, in the form in which a sync stores them. Does not know tables.

A row is dated by the latest time in its event, regardless of when the delivery arrives. Some of these times come from
the clocks of agents, which may be ahead. No row is therefore dated later than its delivery.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from buildframe import webhooks
from buildframe.spec import Moment
from buildframe.spec.times import VALID_YEARS
from buildframe.store import merge, retained_columns
from buildframe.store.merge import EVENT_TIMES
from buildframe.webhooks import Event, WebhookFrames


@dataclass(frozen=True)
class ReceiveResult:
    """
    Result of `Store.receive`.

    An event that was received twice or too late changes nothing and is counted nowhere.

    Parameters
    ----------
    builds : int
        Builds that the events added or changed.
    jobs : int
        Jobs that the events added or changed.
    left_out : int
        Events that were not stored: no sync covers their pipeline, or they lack what identifies a
        build.
    version : int
        Version of the store after the commit.

    See Also
    --------
    Store.receive : Store webhook events.
    """

    builds: int
    jobs: int
    left_out: int
    version: int


def rows(events: Sequence[Event], scopes: Collection[str], synced_at: Moment) -> tuple[WebhookFrames, int]:
    """Return the latest rows of builds and jobs in these scopes, and the number of events left out.

    `synced_at` is the service time of the last sync. It bounds times if the local clock is behind.
    """
    dated = [(event, at) for event in events if (at := _dated(event, synced_at)) is not None]
    received = webhooks.frames_per_event([event for event, _ in dated], [at for _, at in dated])
    is_covered = _is_covered(received.builds, scopes)
    builds, jobs = received.builds[is_covered], received.jobs[_is_covered(received.jobs, scopes)]
    listed_jobs = retained_columns.as_list_rows(_job_states(jobs))
    latest = WebhookFrames(_latest("builds", _build_states(builds)), _latest("jobs", listed_jobs))
    return latest, len(events) - int(is_covered.sum())


def _dated(event: Event, synced_at: Moment) -> Moment | None:
    """Return the latest time in an event, capped by its arrival; None if it has no build or no time."""
    if event.build is None:
        return None
    records = {"builds": event.build, "jobs": event.job}
    times = (getattr(records[table], name, None) for table, names in EVENT_TIMES.items() for name in names)
    latest = max((time for time in times if isinstance(time, Moment)), default=None)
    return None if latest is None else min(latest, max(event.received_at, synced_at))


def _is_covered(frame: pd.DataFrame, scopes: Collection[str]) -> pd.Series[bool]:
    """Whether a sync covers the build, and the row has a valid time and all fields that identify it."""
    created = "build_created_at" if "build_id" in frame else "created_at"
    required = ["id", created, *(["build_id"] if "build_id" in frame else ["number", "state"])]
    is_valid = frame[created].dt.year.isin(VALID_YEARS)
    organization, pipeline = frame["organization"], frame["pipeline_id"]
    in_scope = organization.isin(scopes) | (organization + "/" + pipeline).isin(scopes)
    is_whole = frame[[*required, "organization", "pipeline", "pipeline_id"]].notna().all(axis=1)
    covered: pd.Series[bool] = in_scope & is_valid & is_whole
    return covered


def _build_states(builds: pd.DataFrame) -> pd.DataFrame:
    """Translate build states to those of lists; drop builds whose state has no equivalent there."""
    is_blocked = builds["state"] == "blocked"
    state = builds["state"].mask(is_blocked, builds["blocked_state"]).replace("started", "running")
    translated = builds.assign(state=state, blocked=builds["blocked"].mask(is_blocked, True))
    return translated[state.notna() & ~state.isin(["", "blocked", "finished"])]


def _job_states(jobs: pd.DataFrame) -> pd.DataFrame:
    """Translate job states to those of lists; `finished` becomes `passed` on exit status 0, else the job is dropped."""
    has_passed = (jobs["state"] == "finished") & (jobs["exit_status"] == 0).fillna(False)
    state = jobs["state"].mask(has_passed, "passed").replace("started", "running")
    return jobs.assign(state=state)[state.notna() & (state != "finished")]


def _latest(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the latest row of each id, with `fetched_at` in whole seconds as in responses."""
    ages = pa.Table.from_pandas(frame[["id", "fetched_at", *EVENT_TIMES[table]]], preserve_index=False)
    latest = frame.loc[merge.newest_mask(ages, ages.slice(0, 0), EVENT_TIMES[table]).to_numpy(zero_copy_only=False)]
    return latest.assign(fetched_at=latest["fetched_at"].dt.floor("s"))
