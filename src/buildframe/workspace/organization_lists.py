"""List what an organization has besides builds: pipelines, members, tests, emojis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import pandas as pd

from buildframe import spec
from buildframe.fetching import records
from buildframe.fetching.options import ListOptions
from buildframe.fetching.source import ListSource
from buildframe.guards.arguments import checked
from buildframe.spec import FlakyTestFilters, PipelineFilters, SuiteTestFilters
from buildframe.spec.operations import keywords
from buildframe.spec.times import Deadline
from buildframe.workspace.build_queries import BuildQueries, split_query
from buildframe.workspace.signatures import accepts


@keywords
class FlakyTestListing(FlakyTestFilters, ListOptions, total=False):
    """Filters and options of a list of flaky tests."""


@keywords
class PipelineListing(PipelineFilters, ListOptions, total=False):
    """Filters and options of a list of pipelines."""


@keywords
class TestListing(SuiteTestFilters, ListOptions, total=False):
    """Filters and options of a list of tests."""


@checked
class OrganizationLists(BuildQueries):
    """Lists of an organization, and one member of it."""

    @accepts(spec.list_pipelines, PipelineListing)
    def pipelines(self, **query: Unpack[PipelineListing]) -> pd.DataFrame:
        """
        List the pipelines of the organization.

        Parameters
        ----------
        **query
            Filters (`PipelineFilters`) and options (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `pipelines`, also if there is no row.
            Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If the list cannot be read completely, or requests fail.

        Examples
        --------
        >>> pipelines = ci.pipelines(columns=["slug", "name"])
        >>> "web" in set(pipelines["slug"])
        True
        """
        return self._fetch_list(spec.list_pipelines, "pipelines", PipelineListing(**query))

    @accepts(spec.list_members, ListOptions)
    def members(self, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """
        List the members of the organization.

        Parameters
        ----------
        **options
            Options of the list (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `members`, also if there is no row.
            Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If the list cannot be read completely, or requests fail.

        Examples
        --------
        >>> members = ci.members()
        >>> "email" in members
        True
        """
        return self._fetch_list(spec.list_members, "members", ListOptions(**options))

    def member(self, id: str, *, deadline: Deadline = None) -> spec.Member:
        """
        Fetch one member of the organization.

        Parameters
        ----------
        id : str
            UUID of the user.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Member
            The member as a typed record.

        Raises
        ------
        NotFound
            If the organization has no such member.
        BadInput, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If an argument is invalid, or the request fails.

        Examples
        --------
        >>> id = ci.members()["id"].iloc[0]
        >>> ci.member(id).id == id
        True
        """
        return self._record(spec.Member, spec.get_member, id, deadline=deadline)

    @accepts(spec.list_flaky_tests, FlakyTestListing)
    def flaky_tests(self, suite: str, **query: Unpack[FlakyTestListing]) -> pd.DataFrame:
        """
        List the flaky tests of a test suite.

        Parameters
        ----------
        suite : str
            Slug of the test suite.
        **query
            Filters (`FlakyTestFilters`) and options (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `flaky_tests`, also if there is no row.
            Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If the list cannot be read completely, or requests fail.

        Examples
        --------
        >>> tests = ci.flaky_tests("rspec")
        >>> "name" in tests
        True
        """
        return self._fetch_list(spec.list_flaky_tests, "flaky_tests", FlakyTestListing(**query), suite)

    @accepts(spec.list_tests, TestListing)
    def tests(self, suite: str, **query: Unpack[TestListing]) -> pd.DataFrame:
        """
        List the tests of a test suite, with metrics of their executions.

        The metrics refer to the `period`, by default that of the service. Tests without an
        execution in it are not in the list.

        Parameters
        ----------
        suite : str
            Slug of the test suite.
        **query
            Filters (`SuiteTestFilters`) and options (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `tests`, also if there is no row.
            Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If the list cannot be read completely, or requests fail.

        See Also
        --------
        flaky_tests : Flaky tests with the number of their flakes.

        Examples
        --------
        >>> tests = ci.tests("rspec", label="flaky", period="28days")
        >>> bool(tests["reliability"].between(0, 1).all())
        True
        """
        return self._fetch_list(spec.list_tests, "tests", TestListing(**query), suite)

    @accepts(spec.list_failed_executions, ListOptions)
    def failed_executions(self, suite: str, run: str, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """
        List the failed executions of tests in a run of a test suite.

        Parameters
        ----------
        suite : str
            Slug of the test suite.
        run : str
            UUID of the run. `ci.table` lists the runs of a suite, see the example.
        **options
            Options of the list (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `failed_executions`, also if there is no
            row. Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        NotFound
            If the suite has no such run.
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If the list cannot be read completely, or requests fail.

        Examples
        --------
        >>> runs = ci.table("/analytics/organizations/acme/suites/rspec/runs")
        >>> failed = runs[runs["result"] == "failed"]
        >>> len(ci.failed_executions("rspec", failed["id"].iloc[0])) > 0
        True
        """
        return self._fetch_list(spec.list_failed_executions, "failed_executions", ListOptions(**options), suite, run)

    @accepts(spec.list_emojis, ListOptions)
    def emojis(self, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """
        List the emojis of the organization, also custom ones.

        Parameters
        ----------
        **options
            Options of the list (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `emojis`, also if there is no row.
            Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If the list cannot be read completely, or requests fail.

        See Also
        --------
        buildframe.emojis.render : Render text with emojis as HTML.

        Examples
        --------
        >>> emojis = ci.emojis()
        >>> bool(emojis["url"].notna().any())
        True
        """
        return self._fetch_list(spec.list_emojis, "emojis", ListOptions(**options))

    def _fetch_list(
        self, endpoint: spec.Endpoint, table: str, query: Mapping[str, Any], *arguments: str
    ) -> pd.DataFrame:
        """Return the frame of a list.

        `query` has its filters and options, `arguments` end its path.

        Callers pass a TypedDict of their keywords: Jedi completes the keywords of the method by it.
        """
        filters, options = split_query(query, endpoint)
        source = ListSource(self._client, endpoint, (*self._require_place(), *arguments))
        return records.records(source, table, options, filters)
