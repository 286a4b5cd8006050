"""What an organization and a pipeline have in common: lists of builds and jobs, logs, block steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, Unpack

import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput
from buildframe.fetching import builds, records
from buildframe.fetching.decoder import ColumnSelection
from buildframe.fetching.options import BuildListOptions, Extra
from buildframe.fetching.source import ListSource
from buildframe.guards.arguments import checked
from buildframe.guards.secrets import confined
from buildframe.http import protocol
from buildframe.http.budget import within_deadline
from buildframe.http.client import Client
from buildframe.http.retry import fetch
from buildframe.spec import BuildFilters, Endpoint, Resource, Unblocking
from buildframe.spec.operations import keywords
from buildframe.spec.times import Deadline
from buildframe.workspace.jobs import JobReference, Log, fetch_log, retry, unblock
from buildframe.workspace.signatures import accepts

R = TypeVar("R", bound=Resource)


class History(NamedTuple):
    """
    Builds and their jobs from one listing.

    Attributes
    ----------
    builds : pandas.DataFrame
        One row per build.
    jobs : pandas.DataFrame
        One row per job.
    """

    builds: pd.DataFrame
    jobs: pd.DataFrame


@keywords
class BuildQuery(BuildFilters, BuildListOptions, total=False):
    """Filters and options of a list of builds."""


@keywords
class HistoryQuery(BuildQuery, total=False):
    """Filters and options of a list of builds and their jobs; `columns` and `extra` are for the builds."""

    job_columns: Annotated[Sequence[str] | None, "columns of jobs to return"]
    job_extra: Annotated[Extra | None, "additional text columns of jobs by path"]


@checked
class BuildQueries:
    """
    Lists of builds, logs and block steps, which an organization and a pipeline have in common.

    Times in filters are datetimes with a zone, dates (midnight UTC), ISO texts, or ages such as "30d", which are
    counted back from the service's time. The `attrs` of a frame describe its listing:

    ============ ==================================================================================
    table        table of the columns, such as "builds"
    source       URL of the list
    as_of        time of the service at the first response, as ISO text
    complete     whether no row is missing
    why          reason, if it is not complete; else None
    left         time ranges to list again, each with the filters `created_from` and `created_to`
    note         what limits a complete result, or None
    requests     number of requests, with retries
    retries      number of repeated requests
    waits        number of waits for the rate limit or before a retry
    waited_s     seconds of all waits, summed over requests
    ============ ==================================================================================

    A listing that cannot be completed raises an error. With a limit or with `partial=True` it is returned and marked as
    incomplete. So is, with a warning, a time range that the service does not let be read with certainty.
    """

    _client: Client
    _list: Endpoint
    _place: tuple[str, ...]  # organization and pipeline in the path of requests

    @accepts(spec.list_builds, BuildQuery)
    def builds(self, **query: Unpack[BuildQuery]) -> pd.DataFrame:
        """
        List builds, newest first.

        Responses do not contain jobs, which makes this much cheaper than `history`.

        Parameters
        ----------
        **query
            Filters (`BuildFilters`) and options (`BuildListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row per build, with the columns of the table `builds`, also if there is no
            row. Its `attrs` describe the listing.

        Raises
        ------
        BadInput
            If an argument is invalid. Nothing was sent.
        Incomplete
            If the list cannot be read completely.
        DeadlineExceeded
            If the deadline passed, unless `partial`.
        ServiceError, Unreachable, Malformed
            If requests fail, also after retries.

        See Also
        --------
        history : Builds and their jobs.

        Examples
        --------
        >>> builds = ci.builds(created_from="7d", branch="main", columns=["number", "state", "created_at"])
        >>> list(builds.columns)
        ['number', 'state', 'created_at']
        >>> builds.attrs["complete"]
        True
        """
        filters, options = split_query(BuildQuery(**query), spec.list_builds)
        selection = ColumnSelection.of("builds", options)
        return builds.builds(self._source(), {"exclude_jobs": True, **filters}, selection, None, options)[0]

    @accepts(spec.list_builds, BuildQuery)
    def jobs(self, **query: Unpack[BuildQuery]) -> pd.DataFrame:
        """
        List the jobs of builds.

        Filters select builds. All attempts of retried jobs are included, unless `include_retried_jobs=False`. A path in
        `extra` that begins with "build." leads to the build of the job.

        Parameters
        ----------
        **query
            Filters (`BuildFilters`) and options (`BuildListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row per job, newest build first, with the columns of the table `jobs`, some
            of which are those of its build. Its `attrs` describe the listing.

        Raises
        ------
        BadInput, Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            See `builds`.

        See Also
        --------
        history : Builds and their jobs.

        Examples
        --------
        >>> jobs = ci.jobs(created_from="7d", columns=["build_number", "name", "state"])
        >>> list(jobs.columns)
        ['build_number', 'name', 'state']
        """
        filters, options = split_query(BuildQuery(**query), spec.list_builds)
        ids, selection = ColumnSelection("builds", ["id"]), ColumnSelection.of("jobs", options)
        return builds.builds(self._source(), _with_jobs(filters), ids, selection, options)[1]

    @accepts(spec.list_builds, HistoryQuery)
    def history(self, **query: Unpack[HistoryQuery]) -> History:
        """
        List builds and their jobs at once.

        Filters select builds. All attempts of retried jobs are included, unless `include_retried_jobs=False`.

        Parameters
        ----------
        **query
            Filters (`BuildFilters`), options (`BuildListOptions`), and `job_columns` and `job_extra` for the jobs.

        Returns
        -------
        History
            Two frames: `builds` with one row per build and the columns of the table `builds`, and `jobs` with one row
            per job and the columns of the table `jobs`. Their `attrs` describe the listing.

        Raises
        ------
        BadInput, Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            See `builds`.

        See Also
        --------
        builds : Builds only, which is cheaper.

        Examples
        --------
        >>> builds, jobs = ci.history(created_from="7d")
        >>> bool(jobs["build_id"].isin(builds["id"]).all())
        True
        """
        filters, options = split_query(HistoryQuery(**query), spec.list_builds)
        selection, jobs = ColumnSelection.of("builds", options), ColumnSelection.of("jobs", options, "job_")
        return History(*builds.builds(self._source(), _with_jobs(filters), selection, jobs, options))

    @accepts(spec.unblock_job, Unblocking)
    def unblock(self, job: JobReference, *, deadline: Deadline = None, **properties: Unpack[Unblocking]) -> spec.Job:
        """
        Unblock a block step, so that its build goes on.

        Parameters
        ----------
        job : Job, mapping, Series or str
            A job of the type `manual` as a record or as a row of a frame of jobs, or the URL in its `unblock_url`.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".
        **properties
            Values of the step's fields and the user who unblocks it (`Unblocking`).

        Returns
        -------
        Job
            The job, with the time in `unblocked_at`.

        Raises
        ------
        BadInput
            If the job has no `unblock_url`, or belongs to another organization or pipeline. Nothing was sent.
        Invalid
            If the job is not blocked.
        OutcomeUnknown
            If the response is lost. The message says how to check.

        Examples
        --------
        >>> jobs = ci.jobs(state="blocked")
        >>> blocked = jobs[jobs["state"] == "blocked"]
        >>> ci.unblock(blocked.iloc[0]).state
        'unblocked'
        """
        with within_deadline(deadline):
            return unblock(self._client, job, Unblocking(**properties), self._place)

    def retry_job(self, job: JobReference, *, deadline: Deadline = None) -> spec.Job:
        """
        Repeat a job that failed or timed out.

        Each attempt can be repeated once. To repeat the job again, pass the attempt that this
        method returned.

        Parameters
        ----------
        job : Job, mapping, Series or str
            Job as a record or as a row of a frame of jobs, or its API URL.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Job
            The new attempt, which has another id.

        Raises
        ------
        BadInput
            If the job does not say which build it belongs to, or belongs to another organization or
            pipeline. Nothing was sent.
        ServiceError
            If the job cannot be retried: `Invalid` if its build was canceled, for example.
        OutcomeUnknown
            If the response is lost. The message says how to check.

        Examples
        --------
        >>> jobs = ci.jobs(state="failed", created_from="14d")
        >>> failed = jobs[(jobs["state"] == "failed") & ~jobs["retried"].fillna(False)]
        >>> again = ci.retry_job(failed.iloc[0])
        >>> again.retry_source["retry_type"]
        'manual'
        """
        with within_deadline(deadline):
            return retry(self._client, job, self._place)

    @confined
    def log(self, job: JobReference, *, deadline: Deadline = None) -> Log:
        """
        Fetch the log of a job.

        The token is sent to the service only. A log on another host is fetched without it.

        Parameters
        ----------
        job : Job, mapping, Series or str
            Job as a record or as a row of a frame of jobs, or the URL of its log.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Log
            The text, which is safe to print in a terminal: escape sequences and control characters are visible. Its
            attribute `raw` is the text as the service sent it.

        Raises
        ------
        BadInput
            If the job has no log, or its URL is not encrypted.
        Malformed
            If the service redirects more than three times.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails.

        Examples
        --------
        >>> jobs = ci.jobs(created_from="7d")
        >>> ran = jobs[jobs["raw_log_url"].notna()]
        >>> isinstance(ci.log(ran.iloc[0]), str)
        True
        """
        with within_deadline(deadline):
            return fetch_log(self._client, job)

    def _require_place(self) -> tuple[str, ...]:
        if not self._place:
            raise BadInput('The workspace has no organization. Pass it, as in connect("acme"), or set BUILDFRAME_ORG.')
        return self._place

    def _record(
        self,
        kind: type[R],
        endpoint: Endpoint,
        *arguments: str | int,
        advice: str = "",
        deadline: Deadline = None,
        **keywords: Any,
    ) -> R:
        """Send a request and return the record in its response; `advice` says how to check an action that is lost."""
        request = protocol.request_for(endpoint, *self._require_place(), *arguments, **keywords)
        return records.record(self._client, request, kind, advice, deadline=deadline)

    def _act(self, endpoint: Endpoint, *arguments: str | int, advice: str, deadline: Deadline) -> None:
        """Send an action whose response contains no record."""
        request = protocol.request_for(endpoint, *self._require_place(), *arguments)
        with within_deadline(deadline):
            fetch(self._client, request, protocol.read_nothing, advice=advice)

    def _source(self) -> ListSource:
        return ListSource(self._client, self._list, self._place)


def split_query(query: Mapping[str, Any], endpoint: Endpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the filters of a query of an endpoint, and the options of its listing."""
    filters = {name: value for name, value in query.items() if name in endpoint.filter_names}
    return filters, {name: value for name, value in query.items() if name not in filters}


def _with_jobs(filters: Mapping[str, Any]) -> dict[str, Any]:
    if filters.get("exclude_jobs") is True:
        raise BadInput("exclude_jobs=True leaves no jobs to return. Use builds().")
    return {"include_retried_jobs": True, **filters}
