"""Workspace: the methods for an organization. Does not know HTTP or pagination."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput
from buildframe.guards.arguments import checked
from buildframe.guards.secrets import confined
from buildframe.http import protocol
from buildframe.http.budget import within_deadline
from buildframe.http.client import Client
from buildframe.http.urls import check_url
from buildframe.spec import NewPipeline
from buildframe.spec.times import Deadline
from buildframe.workspace import rest
from buildframe.workspace.pipeline import PipelineWorkspace
from buildframe.workspace.signatures import accepts
from buildframe.workspace.teams import TeamAccess

if TYPE_CHECKING:
    from buildframe.sandbox_server import Sandbox


@checked
class Workspace(TeamAccess):
    """
    An organization, or without one everything that the token can read. `buildframe.connect` returns it.

    An action whose response is lost raises `OutcomeUnknown`. It is never repeated automatically. As a context manager,
    a workspace closes its connections at the end.

    Parameters
    ----------
    client : Client
        Client with the URL of the service and the token.
    organization : str, optional
        Slug of the organization. By default all organizations.
    sandbox : Sandbox, optional
        Sandbox that the workspace stops when it is closed.
    graphql_url : str, optional
        URL for GraphQL requests. By default `/graphql` at the URL of the service.

    Attributes
    ----------
    organization : str or None
        Slug of the organization; None for all organizations.

    Examples
    --------
    >>> ci.organization
    'acme'
    >>> builds = ci.builds(created_from="7d")
    """

    def __init__(
        self,
        client: Client,
        organization: str | None = None,
        sandbox: Sandbox | None = None,
        graphql_url: str | None = None,
    ) -> None:
        if organization is not None:
            protocol.request_for(spec.list_builds, organization)  # raises BadInput for invalid slugs
        self.organization = organization
        self._client = client
        self._sandbox = sandbox
        self._graphql_url = check_url(f"{client.base_url}/graphql" if graphql_url is None else graphql_url)
        self._list = spec.list_builds if organization else spec.list_all_builds
        self._place = (organization,) if organization else ()

    def __repr__(self) -> str:
        return f"<Workspace {self.organization or 'of all organizations'} at {self._client.base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """
        Close the connections, and stop the sandbox of this workspace.

        Examples
        --------
        >>> other = bf.connect("acme", base_url=ci.base_url, token="an-invented-token")
        >>> other.close()
        """
        self._client.close()
        if self._sandbox is not None:
            self._sandbox.stop()

    @property
    def base_url(self) -> str:
        """URL of the service's API without `/v2`."""
        return self._client.base_url

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of a workspace that `buildframe.sandbox` returned; BadInput for any other workspace."""
        if self._sandbox is None:
            raise BadInput("This workspace is not connected to a sandbox. Start one with buildframe.sandbox().")
        return self._sandbox

    # --- pipelines

    def pipeline(self, slug: str) -> PipelineWorkspace:
        """
        Return a pipeline, to list its builds, fetch it or change it. Sends no request.

        Parameters
        ----------
        slug : str
            Slug of the pipeline, as in its URL.

        Returns
        -------
        PipelineWorkspace
            The pipeline, whether it exists or not.

        Raises
        ------
        BadInput
            If the slug is invalid, or the workspace has no organization.

        Examples
        --------
        >>> ci.pipeline("web").slug
        'web'
        """
        return PipelineWorkspace(self._client, self._require_place()[0], slug)

    @accepts(spec.create_pipeline, NewPipeline)
    def create_pipeline(self, *, deadline: Deadline = None, **properties: Unpack[NewPipeline]) -> spec.Pipeline:
        """
        Create a pipeline from YAML (`configuration`) or from steps as objects (`steps`).

        Parameters
        ----------
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".
        **properties
            Properties of the pipeline (`NewPipeline`): `name`, `cluster_id`, `repository`, and `configuration` or
            `steps`.

        Returns
        -------
        Pipeline
            The new pipeline as a typed record.

        Raises
        ------
        BadInput
            If a property is invalid, or both or none of `configuration` and `steps` are passed. Nothing was sent.
        Invalid
            If the service rejects the pipeline, such as for a name that exists.
        OutcomeUnknown
            If the response is lost. The message says how to check.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> steps = [{"type": "script", "command": "make test"}]
        >>> repository = "git@github.com:example/new-site.git"
        >>> ci.create_pipeline(name="New Site", cluster_id=None, repository=repository, steps=steps).slug
        'new-site'
        """
        new, advice = NewPipeline(**properties), "Check whether .pipelines() contains it."
        return self._record(spec.Pipeline, spec.create_pipeline, advice=advice, deadline=deadline, **new)

    # --- any path

    @confined
    def get(
        self,
        path: str,
        *,
        version: str | dt.date | None = None,
        progress: bool | None = None,
        max_requests: int | None = None,
        deadline: Deadline = None,
        **params: Any,
    ) -> Any:
        """
        Fetch the records of any REST path that the token may read, declared or not.

        Lists are read to their end along the links to next pages, with the same retries and limits as all listings.

        Parameters
        ----------
        path : str
            Path below `/v2`, such as `/organizations/acme/agents`, with or without a query, or a URL of this
            service, such as `build.url`. URLs of other hosts raise BadInput.
        version : str or date, optional
            Version of the API, such as "2026-08-01", for paths that respond with more in a newer
            one. It is sent as the header `Buildkite-Version`.
        progress : bool, optional
            Show a progress bar. By default only when interactive.
        max_requests : int, optional
            Stop after so many requests and return what was read, with a warning. By default a list of
            more than 5,000 pages raises Incomplete.
        deadline : str or timedelta, optional
            Raise DeadlineExceeded after this time, such as "90s". By default there is no deadline.
        **params
            Query parameters: text, numbers, True or False, times. Lists are sent as `name[]`, mappings as `name[key]`.
            Leave out `page`; `per_page` is 100 by default.

        Returns
        -------
        list or dict
            The records of a list, as decoded from JSON, or the object at the path. Records that the service sends twice
            appear once. They are compared by `id`, or as a whole if they have none.

        Raises
        ------
        BadInput
            If the path leads to another host, or a parameter cannot be sent.
        NotFound, Forbidden
            If the service has no such path, or the token may not read it.
        Incomplete
            If the list cannot be read to its end.

        See Also
        --------
        table : The same as a DataFrame.

        Examples
        --------
        >>> ci.get("/organizations/acme/pipelines/web")["slug"]
        'web'
        """
        options = {"progress": progress, "max_requests": max_requests}
        with within_deadline(deadline):
            return rest.get(self._client, path, params, options, version)

    @confined
    def table(
        self,
        path: str,
        *,
        version: str | dt.date | None = None,
        progress: bool | None = None,
        max_requests: int | None = None,
        deadline: Deadline = None,
        **params: Any,
    ) -> pd.DataFrame:
        """
        Fetch the records of any REST path as a DataFrame, with types inferred by Arrow.

        Parameters
        ----------
        path : str
            See `get`.
        version : str or date, optional
            See `get`.
        progress : bool, optional
            See `get`.
        max_requests : int, optional
            See `get`.
        deadline : str or timedelta, optional
            See `get`.
        **params
            See `get`.

        Returns
        -------
        pandas.DataFrame
            One row per record, in the order of the service, with a column for each key that any record has: `str`,
            `Int64`, `float64`, `boolean`, `datetime64[us, UTC]` if all values are times, and Arrow's own types for
            lists and objects. Keys whose values have no type in common become `str` columns of JSON.
            `attrs` are those of other listings.

        Raises
        ------
        BadInput, NotFound, Forbidden, Incomplete
            See `get`.

        See Also
        --------
        get : The same as plain records.

        Examples
        --------
        >>> pipelines = ci.table("/organizations/acme/pipelines")
        >>> pipelines.dtypes["created_at"]
        datetime64[us, UTC]
        """
        options = {"progress": progress, "max_requests": max_requests}
        with within_deadline(deadline):
            return rest.table(self._client, path, params, options, version)

    # --- GraphQL

    @confined
    def graphql(
        self,
        query: str,
        variables: Mapping[str, Any] | None = None,
        *,
        url: str | None = None,
        deadline: Deadline = None,
    ) -> dict[str, Any]:
        """
        Send a GraphQL query or mutation.

        A text that contains the word `mutation` is not repeated if its response is lost.

        Parameters
        ----------
        query : str
            Text of the query.
        variables : mapping, optional
            Values of its variables by name.
        url : str, optional
            URL to send it to, with the token. By default `graphql_url` of `connect`.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        dict
            The `data` of the response.

        Raises
        ------
        BadInput
            If an argument is invalid.
        GraphQLError
            If the response contains errors.
        OutcomeUnknown
            If the response to a mutation is lost.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If the request fails.

        Examples
        --------
        >>> ci.graphql('{ pipeline(slug: "acme/web") { slug } }')
        {'pipeline': {'slug': 'web'}}
        """
        with within_deadline(deadline):
            return self._graphql(url).execute(query, variables)
