"""All routes of the service: those that clients call, the others of its document, and those that answers hand out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Required, TypedDict, Unpack

from buildframe.spec import ENDPOINTS, Endpoint, Resource, unblock_job
from buildframe.spec.declare import Uuid, endpoint, filters_of
from buildframe.spec.jobs import Agent

_JOB = "/organizations/{org}/pipelines/{pipeline}/builds/{number}/jobs/{job}"
_CLUSTER = "/organizations/{org}/clusters/{cluster}"


def address_of(route: Endpoint) -> str:
    """The path of a route from the service's root, with {names}: all but GraphQL lie below /v2."""
    return route.path if route.path == "/graphql" else f"/v2{route.path}"


# --- of the document ---


class WhichPipeline(TypedDict, total=False):
    """A pipeline of a team."""

    pipeline_id: Annotated[Uuid, "UUID of the pipeline; in the body or in the query"]


@endpoint("DELETE /organizations/{org}/teams/{team}/pipelines", returns=None, scope="write_teams", success=204)
def _delete_team_pipeline_named(org: str, team: Uuid, /, **properties: Unpack[WhichPipeline]) -> None:
    """Take the pipeline that `pipeline_id`, in the body or in the query, names from a team."""


delete_team_pipeline_named = replace(
    _delete_team_pipeline_named, name="delete_team_pipeline_named", filters=filters_of(WhichPipeline)
)


class Question(TypedDict, total=False):
    """A GraphQL document, and what it is asked with."""

    query: Required[Annotated[str, "a query or a mutation"]]
    variables: Annotated[Mapping[str, Any] | None, "values of its variables"]
    operationName: Annotated[str | None, "which of its operations, if it has several"]


class GraphQLAnswer(Resource):
    """What GraphQL answers; also errors come with the status 200."""

    data: Annotated[dict[str, Any] | None, "what was asked for"] = None
    errors: Annotated[list[dict[str, Any]] | None, "what went wrong, each with a `message`"] = None


@endpoint("POST /graphql", returns=GraphQLAnswer, scope="GraphQL")
def ask_graphql(**properties: Unpack[Question]) -> None:
    """A query or a mutation."""


# --- beyond the document ---


class Log(Resource):
    """What a job wrote."""

    url: Annotated[str | None, "API address"] = None
    content: Annotated[str | None, "the text"] = None
    size: Annotated[int | None, "its length in bytes"] = None
    header_times: Annotated[list[int] | None, "when each group of lines began, in nanoseconds since 1970"] = None


class Cluster(Resource):
    """Agents and their queues."""

    id: Annotated[str | None, "UUID of the cluster"] = None
    graphql_id: Annotated[str | None, "the same for GraphQL"] = None
    name: Annotated[str | None, "its name for people"] = None
    url: Annotated[str | None, "API address"] = None


class Queue(Resource):
    """Where jobs wait for agents."""

    id: Annotated[str | None, "UUID of the queue"] = None
    graphql_id: Annotated[str | None, "the same for GraphQL"] = None
    key: Annotated[str | None, "the name that jobs ask for"] = None
    url: Annotated[str | None, "API address"] = None
    cluster_url: Annotated[str | None, "API address of its cluster"] = None


@endpoint(f"GET {_JOB}/log", returns=Log, scope="read_builds")
def get_log(org: str, pipeline: str, number: int, job: str, /) -> None:
    """The log of a job: JSON, or plain text to who accepts that."""


@endpoint(f"GET {_JOB}/log.txt", returns=None, scope="read_builds")
def get_raw_log(org: str, pipeline: str, number: int, job: str, /) -> None:
    """The log of a job as plain text."""


@endpoint("GET /organizations/{org}/agents", returns=Agent, scope=None, paginated=True)
def list_agents(org: str, /) -> None:
    """Agents of an organization."""


@endpoint("GET /organizations/{org}/agents/{agent}", returns=Agent, scope=None)
def get_agent(org: str, agent: str, /) -> None:
    """An agent."""


@endpoint(f"GET {_CLUSTER}", returns=Cluster, scope=None)
def get_cluster(org: str, cluster: str, /) -> None:
    """The cluster of an organization."""


@endpoint(f"GET {_CLUSTER}/queues/{{queue}}", returns=Queue, scope=None)
def get_queue(org: str, cluster: str, queue: str, /) -> None:
    """A queue of a cluster."""


BEYOND = (unblock_job, get_log, get_raw_log, list_agents, get_agent, get_cluster, get_queue)
"""What answers hand out although the service's document does not list it."""

ROUTES = (*dict.fromkeys((*ENDPOINTS, delete_team_pipeline_named, ask_graphql, *BEYOND)),)
