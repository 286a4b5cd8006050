"""A report as a store tells it: which rows are measured, and whether they are all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pandas as pd

from buildframe.arguments import checked_call
from buildframe.errors import BadInput
from buildframe.report.content import Report
from buildframe.report.facts import measure
from buildframe.report.findings import broken, findings
from buildframe.report.periods import Period
from buildframe.report.thresholds import Thresholds, judged
from buildframe.spec import Moment
from buildframe.store.history import Store

Reach = tuple[Moment, Moment] | None
"""Builds created since the first time are known as they were at the second; None: that is known of none."""

_BUILDS = (
    "id", "number", "organization", "pipeline", "pipeline_id", "state", "blocked", "branch", "commit", "source",
    "created_at", "scheduled_at", "started_at", "finished_at", "web_url", "fetched_at",
)  # fmt: skip
_JOBS = (
    "id", "organization", "pipeline", "pipeline_id", "build_id", "build_number", "build_state", "build_created_at",
    "branch", "commit", "type", "name", "label", "step_key", "group_key", "state", "queue", "exit_status", "signal",
    "signal_reason", "soft_failed", "created_at", "scheduled_at", "runnable_at", "started_at", "finished_at",
    "expired_at", "retried", "retried_in_job_id", "retries_count", "retry_type", "parallel_group_index",
    "parallel_group_total", "matrix", "unblocked_at", "async", "web_url", "fetched_at",
)  # fmt: skip
_PIPELINES = ("id", "organization", "slug", "default_branch")


@checked_call
def read(
    store: str | os.PathLike[str],
    days: int = 7,
    tz: str = "UTC",
    *,
    organization: str | None = None,
    pipeline: str | None = None,
    thresholds: Thresholds | str | os.PathLike[str] | None = None,
    why: Sequence[str] = (),
) -> Report:
    """What a report tells of a store, which is a folder or an address: the last `days` days against as many before.

    Days are those of the zone `tz` that are over. None as `organization`: the only one that the store has; as
    `pipeline` (a slug or an id): all. `thresholds` is a file of limits. `why` are reasons known already for which data
    is incomplete, a sentence each.

    BadInput: there is no store yet, no such zone, organization or pipeline, no whole day, or a file that sets no
    limits. StoreFailed: the store cannot be read.
    """
    limits = Thresholds.read(thresholds) if isinstance(thresholds, (str, os.PathLike)) else thresholds
    frozen = Store(store, as_of=Store(store).version)  # all tables of one sync, whoever syncs meanwhile
    as_of = pd.Timestamp(frozen.as_of)
    period = Period.last(as_of, days, tz)
    name = _organization(organization, frozen)
    reach = _reach(frozen, name, pipeline)
    since, pipelines = _first(period, reach), _of(name, _pipelines(frozen))
    builds, jobs = (_of(name, rows) for rows in _rows(frozen, pipeline, since))
    flaky, compares = _flaky_tests(frozen, name), since <= period.before.start
    facts = measure(builds, jobs, pipelines, flaky, period, compares=compares)
    return Report(
        organization=name,
        source=os.fspath(store),
        as_of=as_of,
        period=period,
        why=(*why, *_lacking(period, reach)),
        facts=facts,
        findings=tuple(findings(facts, period.before.start)),
        verdicts=() if limits is None else tuple(judged(limits, facts)),
        builds=builds,
        jobs=jobs,
        since=since,
        pipeline=pipeline,
        broken=tuple(broken(facts)),
        notes=tuple(_notes(period, reach, has_list=builds.empty or not pipelines.empty)),
    )


def _organization(wanted: str | None, store: Store) -> str:
    """The one that is asked for, or the only one that there is."""
    known = sorted({scope.split("/")[0] for scope in store.covers})
    known = known or sorted(store.builds(columns=["organization"])["organization"].unique())
    if wanted is not None and wanted in known:
        return wanted
    if wanted is None and len(known) == 1:
        return known[0]
    there = ", ".join(known) or "none"
    raise BadInput(f"Name the report's organization (BUILDFRAME_ORG, or organization=); the store has {there}.")


def _reach(store: Store, organization: str, pipeline: str | None) -> Reach:
    """How far the store reaches: by syncs of the organization, or by those of the pipeline where they are later."""
    scopes = {organization}
    if pipeline is not None:
        ids = store.builds(pipeline=pipeline, columns=["pipeline_id"])["pipeline_id"].unique()
        scopes |= {f"{organization}/{id}" for id in ids}
    reaches = [reach for scope, reach in store.covers.items() if scope in scopes]
    return max(reaches, key=lambda reach: reach[1], default=None)


def _first(period: Period, reach: Reach) -> pd.Timestamp:
    """The time of creation from which on builds are measured: of the history as much as is known."""
    return period.start if reach is None else max(period.history.start, pd.Timestamp(reach[0]))


def _lacking(period: Period, reach: Reach) -> Iterator[str]:
    """Why not all of the period is known."""
    if reach is None:
        yield "No sync of the store was complete yet."
    elif reach[0] > period.start:
        yield f"The store knows all builds since {reach[0].text()} only, and the period begins before."
    elif reach[1] < period.end:
        yield f"The store knows builds as they were at {reach[1].text()}, and the period ends after that."


def _notes(period: Period, reach: Reach, *, has_list: bool) -> Iterator[str]:
    """What is not told, and why."""
    if reach is not None and reach[0] > period.before.start:
        yield f"The store knows all builds since {reach[0].text()} only, so there is no period before to compare with."
    if not has_list:
        yield "The store has no list of pipelines, so broken default branches are not told."


def _rows(store: Store, pipeline: str | None, since: pd.Timestamp) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Builds since a time of creation, and their jobs."""
    start = since.to_pydatetime()
    builds = store.builds(created_from=start, pipeline=pipeline, columns=_BUILDS)
    return builds, store.jobs(created_from=start, pipeline=pipeline, columns=_JOBS)


def _pipelines(store: Store) -> pd.DataFrame:
    """As they were last listed; also those that were deleted, as their builds are still there."""
    try:
        listed = store.pipelines(history=True)
    except BadInput:  # it keeps none
        return pd.DataFrame(columns=list(_PIPELINES), dtype="str")
    return listed.sort_values("valid_from").drop_duplicates("id", keep="last")[list(_PIPELINES)]


def _flaky_tests(store: Store, organization: str) -> pd.DataFrame | None:
    try:
        return _of(organization, store.flaky_tests(history=True))
    except BadInput:  # it keeps none
        return None


def _of(organization: str, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["organization"] == organization].reset_index(drop=True)
