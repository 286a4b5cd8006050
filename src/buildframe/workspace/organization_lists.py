"""List what an organization has besides builds: pipelines, members, flaky tests, emojis."""

from __future__ import annotations

from typing import Unpack

import pandas as pd

from buildframe import spec
from buildframe.fetching import records
from buildframe.fetching.options import ListOptions
from buildframe.fetching.source import ListSource
from buildframe.guards.arguments import checked
from buildframe.spec import FlakyTestFilters
from buildframe.spec.operations import keywords
from buildframe.spec.times import Deadline
from buildframe.workspace.build_queries import BuildQueries, split_query
from buildframe.workspace.signatures import accepts


@keywords
class FlakyTestListing(FlakyTestFilters, ListOptions, total=False):
    """Filters and options of a list of flaky tests."""


@checked
class OrganizationLists(BuildQueries):
    """Lists of an organization, and one member of it."""

    @accepts(spec.list_pipelines, ListOptions)
    def pipelines(self, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """
        List the pipelines of the organization.

        Parameters
        ----------
        **options
            Options of the list (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `pipelines`, also if
            there is no row. Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete
            If the list cannot be read completely.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If requests fail, also after retries.

        Examples
        --------
        >>> pipelines = ci.pipelines(columns=["slug", "name"])
        >>> "web" in set(pipelines["slug"])
        True
        """
        return records.records(self._list_of(spec.list_pipelines), "pipelines", ListOptions(**options))

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
            One row each, with the columns of the table `members`, also if
            there is no row. Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete
            If the list cannot be read completely.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If requests fail, also after retries.

        Examples
        --------
        >>> members = ci.members()
        >>> "email" in members
        True
        """
        return records.records(self._list_of(spec.list_members), "members", ListOptions(**options))

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
            One row each, with the columns of the table `flaky_tests`, also if
            there is no row. Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete
            If the list cannot be read completely.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If requests fail, also after retries.

        Examples
        --------
        >>> tests = ci.flaky_tests("rspec")
        >>> "name" in tests
        True
        """
        filters, options = split_query(FlakyTestListing(**query), spec.list_flaky_tests)
        return records.records(self._list_of(spec.list_flaky_tests, suite), "flaky_tests", options, filters)

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
            One row each, with the columns of the table `emojis`, also if
            there is no row. Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete
            If the list cannot be read completely.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If requests fail, also after retries.

        See Also
        --------
        buildframe.emojis.render : Render text with emojis as HTML.

        Examples
        --------
        >>> emojis = ci.emojis()
        >>> bool(emojis["url"].notna().any())
        True
        """
        return records.records(self._list_of(spec.list_emojis), "emojis", ListOptions(**options))

    def _list_of(self, list: spec.Endpoint, *arguments: str) -> ListSource:
        return ListSource(self._client, list, (*self._require_place(), *arguments))
