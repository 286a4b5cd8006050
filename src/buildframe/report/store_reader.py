"""Read the rows of a report from a store, and check whether they are complete. Does not know pages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_location
from buildframe.metrics.job_ends import end_times
from buildframe.report.content import Report
from buildframe.report.findings import describe_outages, findings
from buildframe.report.measurements import measure
from buildframe.report.periods import Period
from buildframe.report.thresholds import Thresholds, check_limits
from buildframe.spec import Moment
from buildframe.store.reader import StoreReader
from buildframe.terminal import show

Coverage = tuple[Moment, Moment] | None
"""The store has all builds created since the first time, as of the second. None: no sync was complete."""

_BUILDS = (
    "id", "number", "organization", "pipeline", "pipeline_id", "state", "blocked", "branch", "commit", "source",
    "created_at", "scheduled_at", "started_at", "finished_at", "web_url", "pull_request", "pull_request_base",
    "pull_request_repository", "pipeline_repository", "fetched_at",
)  # fmt: skip
_JOBS = (
    "id", "organization", "pipeline", "pipeline_id", "build_id", "build_number", "build_state", "build_created_at",
    "branch", "commit", "type", "label", "step", "state", "queue", "queue_id", "cluster_id", "agent_id",
    "exit_status", "signal", "signal_reason", "soft_failed", "created_at", "runnable_at", "started_at", "finished_at",
    "retried", "retried_in_job_id", "retries_count", "retry_type", "retry_source", "retry_of_job_id", "retry_of_type",
    "parallel_group_index", "matrix", "unblocked_at", "async", "expired_at", "build_finished_at", "fetched_at",
)  # fmt: skip
_PIPELINES = ("id", "organization", "slug", "default_branch", "repository", "web_url")


@checked_location
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
    """
    Measure the last days of a store, compared with as many days before.

    Parameters
    ----------
    store : str or path-like
        Path or URL of the store.
    days : int, default 7
        Length of the period in days. The current day is not part of it.
    tz : str, default "UTC"
        Time zone that defines the days.
    organization : str, optional
        Slug of the organization. By default the only one in the store.
    pipeline : str, optional
        Slug or id of the pipeline to report on. By default all pipelines.
    thresholds : Thresholds, str or path-like, optional
        Limits to check, or the path of a TOML file of limits.
    why : sequence of str, optional
        Reasons why the data is incomplete, such as an interrupted sync. One sentence each.

    Returns
    -------
    Report
        Tables, significant changes, results of the limits, and completeness.

    Raises
    ------
    BadInput
        If the store, the organization or the pipeline does not exist, or an argument or the file of limits is invalid.
    StoreFailed
        If the store cannot be read.

    See Also
    --------
    render : Render the report as an HTML page.
    summary : Render the report as Markdown.

    Examples
    --------
    >>> from buildframe import report
    >>> content = report.read("ci-history", days=7, tz="Europe/Berlin")  # doctest: +SKIP
    >>> content.complete  # doctest: +SKIP
    True
    """
    limits = Thresholds.read(thresholds) if isinstance(thresholds, (str, os.PathLike)) else thresholds
    limits = limits or Thresholds({}, {}, {})
    snapshot, name, coverage = open_snapshot(store, organization, pipeline)
    as_of = pd.Timestamp(snapshot.as_of)
    period = Period.last(as_of, days, tz)
    since = period.start if coverage is None else max(period.history.before.start, pd.Timestamp(coverage[0]))
    pipelines = _select_organization(name, _pipelines(snapshot))
    builds, jobs = read_rows(snapshot, name, pipeline, since)
    flaky = _flaky_tests(snapshot, name)
    measurements = measure(
        builds, jobs, pipelines, flaky, period, since=since, objectives=limits.objectives, rates=limits.rates
    )
    return Report(
        organization=name,
        source=os.fspath(store),
        as_of=as_of,
        period=period,
        why=(*why, *_missing(period, coverage)),
        measurements=measurements,
        findings=tuple(findings(measurements, period)),
        verdicts=tuple(check_limits(limits, measurements)),
        builds=builds,
        jobs=jobs,
        since=since,
        pipeline=pipeline,
        broken=tuple(describe_outages(measurements)),
        notes=tuple(_notes(period, coverage, has_list=builds.empty or not pipelines.empty)),
        pipelines=pipelines,
    )


def open_snapshot(
    store: str | os.PathLike[str], organization: str | None, pipeline: str | None
) -> tuple[StoreReader, str, Coverage]:
    """Return one version of a store, the requested organization or the only one, and what the store has of it."""
    snapshot = StoreReader(store, as_of=StoreReader(store).version)  # one version for all tables, even during a sync
    name = _organization(organization, snapshot)
    return snapshot, name, _coverage(snapshot, name, pipeline)


def read_rows(
    snapshot: StoreReader, organization: str, pipeline: str | None, start: pd.Timestamp, end: pd.Timestamp | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the builds that were created in a time range, and their jobs."""
    created_from, created_to = start.to_pydatetime(), None if end is None else end.to_pydatetime()
    builds = snapshot.builds(created_from=created_from, created_to=created_to, pipeline=pipeline, columns=_BUILDS)
    jobs = snapshot.jobs(created_from=created_from, created_to=created_to, pipeline=pipeline, columns=_JOBS)
    return _select_organization(organization, builds), _with_ends(_select_organization(organization, jobs))


def _with_ends(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return jobs with their ends as `finished_at`, because a job belongs to the day on which it ended.

    Jobs that never became runnable and did not expire did no work. They keep what the service sent:
    null for most jobs that were broken or skipped, whose only end is that of their build.
    """
    has_begun = jobs[["runnable_at", "started_at", "expired_at"]].notna().any(axis=1)
    return jobs.assign(finished_at=end_times(jobs).where(has_begun, jobs["finished_at"]))


def _organization(requested: str | None, store: StoreReader) -> str:
    """Return the requested organization, or the only one in the store."""
    organizations = sorted({scope.split("/")[0] for scope in store.covers})
    organizations = organizations or sorted(store.builds(columns=["organization"])["organization"].unique())
    if requested is not None and requested in organizations:
        return requested
    if requested is None and len(organizations) == 1:
        return organizations[0]
    names = ", ".join(organizations) or "none"
    raise BadInput(
        f"organization={show(requested)} does not select an organization of the store. "
        f"Set BUILDFRAME_ORG or organization= to one of: {names}."
    )


def _coverage(store: StoreReader, organization: str, pipeline: str | None) -> Coverage:
    """Return the coverage by syncs of the organization, or of the pipeline if those are later."""
    scopes = {organization}
    if pipeline is not None:
        ids = store.builds(pipeline=pipeline, columns=["pipeline_id"])["pipeline_id"].unique()
        scopes |= {f"{organization}/{id}" for id in ids}
    coverages = [coverage for scope, coverage in store.covers.items() if scope in scopes]
    return max(coverages, key=lambda coverage: coverage[1], default=None)


def _missing(period: Period, coverage: Coverage) -> Iterator[str]:
    """Return why the period is not covered completely."""
    if coverage is None:
        yield "No sync of the store has been complete so far."
    elif coverage[0] > period.start:
        yield f"The store has all builds since {coverage[0].text()} only, and the period begins earlier."
    elif coverage[1] < period.end:
        yield f"The last sync was at {coverage[1].text()}, and the period ends later."


def _notes(period: Period, coverage: Coverage, *, has_list: bool) -> Iterator[str]:
    """Return which parts the report lacks, and why."""
    if coverage is not None and coverage[0] > period.before.start:
        yield f"The store has all builds since {coverage[0].text()} only, so the report compares with no period before."
    if not has_list:
        yield "The store has no list of pipelines, so the report does not contain broken default branches."


def _pipelines(store: StoreReader) -> pd.DataFrame:
    """Return the last version of each pipeline, including deleted ones, which still have builds."""
    try:
        listed = store.pipelines(history=True)
    except BadInput:  # not stored
        return pd.DataFrame(columns=list(_PIPELINES), dtype="str")
    return listed.sort_values("valid_from").drop_duplicates("id", keep="last")[list(_PIPELINES)]


def _flaky_tests(store: StoreReader, organization: str) -> pd.DataFrame | None:
    try:
        return _select_organization(organization, store.flaky_tests(history=True))
    except BadInput:  # not stored
        return None


def _select_organization(organization: str, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["organization"] == organization].reset_index(drop=True)
