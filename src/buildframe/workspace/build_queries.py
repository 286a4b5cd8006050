"""List the builds and jobs of an organization or a pipeline. Does not know single builds or actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput
from buildframe.fetching import builds
from buildframe.fetching.decoder import ColumnSelection
from buildframe.fetching.options import BuildListOptions, Extra
from buildframe.fetching.source import ListSource
from buildframe.guards.arguments import checked
from buildframe.http.client import Client
from buildframe.spec import BuildFilters, Endpoint
from buildframe.spec.operations import keywords
from buildframe.workspace.signatures import accepts


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


@checked
class BuildQueries:
    """
    Lists of builds, which an organization and a pipeline have in common.

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
    _place: tuple[str, ...]

    @accepts(spec.list_builds, BuildQuery)
    def builds(
        self,
        *,
        columns: Sequence[str] | None = None,
        extra: Extra | None = None,
        raw: bool = False,
        **query: Unpack[BuildQuery],
    ) -> pd.DataFrame:
        """
        List builds, newest first.

        Responses do not contain jobs, which makes this much cheaper than `history`.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns to return, in this order; only they are decoded. By default all.
        extra : mapping, optional
            Additional text columns by path, such as `{"team": "meta_data.team"}`. A path may be a sequence of keys.
        raw : bool, default False
            Add a column `raw` with each record as JSON text.
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
        filters, options = split_query(BuildQuery(**query), BuildListOptions)
        selection = ColumnSelection("builds", columns, extra or {}, raw)
        return self._fetch({"exclude_jobs": True, **filters}, selection, None, options).builds

    @accepts(spec.list_builds, BuildQuery)
    def jobs(
        self,
        *,
        columns: Sequence[str] | None = None,
        extra: Extra | None = None,
        raw: bool = False,
        **query: Unpack[BuildQuery],
    ) -> pd.DataFrame:
        """
        List the jobs of builds.

        Filters select builds. All attempts of retried jobs are included, unless `include_retried_jobs=False`.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns to return, in this order; only they are decoded. By default all.
        extra : mapping, optional
            Additional text columns by path, such as `{"size": "log.size"}`. A path that begins with "build." leads to
            the build of the job.
        raw : bool, default False
            Add a column `raw` with each record as JSON text.
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
        filters, options = split_query(BuildQuery(**query), BuildListOptions)
        selection = ColumnSelection("jobs", columns, extra or {}, raw)
        return self._fetch(_with_jobs(filters), ColumnSelection("builds", ["id"]), selection, options).jobs

    @accepts(spec.list_builds, BuildQuery)
    def history(
        self,
        *,
        columns: Sequence[str] | None = None,
        job_columns: Sequence[str] | None = None,
        extra: Extra | None = None,
        job_extra: Extra | None = None,
        raw: bool = False,
        **query: Unpack[BuildQuery],
    ) -> History:
        """
        List builds and their jobs at once.

        Filters select builds. All attempts of retried jobs are included, unless `include_retried_jobs=False`.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns of builds to return, in this order; only they are decoded. By default all.
        job_columns : sequence of str, optional
            Columns of jobs to return.
        extra : mapping, optional
            Additional text columns of builds by path, such as `{"team": "meta_data.team"}`.
        job_extra : mapping, optional
            Additional text columns of jobs by path.
        raw : bool, default False
            Add a column `raw` with each record as JSON text.
        **query
            Filters (`BuildFilters`) and options (`BuildListOptions`).

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
        filters, options = split_query(BuildQuery(**query), BuildListOptions)
        selection = ColumnSelection("builds", columns, extra or {}, raw)
        jobs = ColumnSelection("jobs", job_columns, job_extra or {}, raw)
        return self._fetch(_with_jobs(filters), selection, jobs, options)

    def _fetch(
        self,
        filters: Mapping[str, Any],
        selection: ColumnSelection,
        jobs: ColumnSelection | None,
        options: Mapping[str, Any],
    ) -> History:
        return History(*builds.builds(self._source(), filters, selection, jobs, options))

    def _source(self) -> ListSource:
        return ListSource(self._client, self._list, self._place)


def split_query(query: Mapping[str, Any], options: type[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the filters of a query, and its options, which a TypedDict names."""
    named = {name: value for name, value in query.items() if name in options.__annotations__}
    return {name: value for name, value in query.items() if name not in named}, named


def _with_jobs(filters: Mapping[str, Any]) -> dict[str, Any]:
    if filters.get("exclude_jobs") is True:
        raise BadInput("exclude_jobs=True leaves no jobs to return. Use builds().")
    return {"include_retried_jobs": True, **filters}
