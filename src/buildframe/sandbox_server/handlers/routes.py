"""All endpoints of the sandbox: those of the client, the others of the API document, and undocumented ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Required, TypedDict, Unpack

from buildframe.spec import ENDPOINTS, Endpoint, Resource
from buildframe.spec.declare import PLAIN
from buildframe.spec.jobs import Agent
from buildframe.spec.operations import Uuid, endpoint, endpoints_of
from buildframe.spec.suite_tests import SuiteTest
from buildframe.spec.times import Moment

_JOB = "/organizations/{org}/pipelines/{pipeline}/builds/{number}/jobs/{job}"
_CLUSTERS = "/organizations/{org}/clusters"
_CLUSTER = _CLUSTERS + "/{cluster}"
_SUITES = "/analytics/organizations/{org}/suites"


def route_path(route: Endpoint) -> str:
    """Return the URL path template of an endpoint. All except GraphQL are below /v2."""
    return route.path if route.path == "/graphql" else f"/v2{route.path}"


class TeamPipelineQuery(TypedDict, total=False):
    """The pipeline to remove from a team."""

    pipeline_id: Annotated[Uuid, "UUID of the pipeline; in the body or in the query"]


@endpoint(
    "DELETE /organizations/{org}/teams/{team}/pipelines",
    returns=None,
    scope="write_teams",
    success=204,
    also_in_query=True,
    tag="teams",
)
def delete_team_pipeline_named(org: str, team: Uuid, /, **properties: Unpack[TeamPipelineQuery]) -> None:
    """Remove a pipeline from a team; `pipeline_id` is in the body or in the query."""


class GraphQLQuery(TypedDict, total=False):
    """A GraphQL document with its variables."""

    query: Required[Annotated[str, "a query or a mutation"]]
    variables: Annotated[Mapping[str, Any] | None, "values of its variables"]
    operationName: Annotated[str | None, "name of the operation to execute, if there are several"]


class GraphQLResponse(Resource):
    """A GraphQL response. Errors have status 200, too."""

    data: Annotated[dict[str, Any] | None, "the result", PLAIN] = None
    errors: Annotated[list[dict[str, Any]] | None, "the errors, each with a `message`", PLAIN] = None


@endpoint("POST /graphql", returns=GraphQLResponse, scope="GraphQL", tag="graphql")
def query_graphql(**properties: Unpack[GraphQLQuery]) -> None:
    """Execute a query or a mutation."""


class JobLog(Resource):
    """The log of a job."""

    url: Annotated[str | None, "API URL", PLAIN] = None
    content: Annotated[str | None, "the text", PLAIN] = None
    size: Annotated[int | None, "its length in bytes", PLAIN] = None
    header_times: Annotated[list[int] | None, "when each group of lines began, in nanoseconds since 1970", PLAIN] = None


class Cluster(Resource):
    """A cluster of agents and queues."""

    id: Annotated[str | None, "UUID of the cluster", PLAIN] = None
    graphql_id: Annotated[str | None, "the same for GraphQL", PLAIN] = None
    name: Annotated[str | None, "its name for people", PLAIN] = None
    url: Annotated[str | None, "API URL", PLAIN] = None


class ClusterQueue(Resource):
    """A queue of a cluster."""

    id: Annotated[str | None, "UUID of the queue", PLAIN] = None
    graphql_id: Annotated[str | None, "the same for GraphQL", PLAIN] = None
    key: Annotated[str | None, "the name that steps use", PLAIN] = None
    url: Annotated[str | None, "API URL", PLAIN] = None
    cluster_url: Annotated[str | None, "API URL of its cluster", PLAIN] = None


class Artifact(Resource):
    """A file that a job uploaded."""

    id: Annotated[str | None, "UUID of the artifact", PLAIN] = None
    job_id: Annotated[str | None, "UUID of the job", PLAIN] = None
    path: Annotated[str | None, "path at the agent", PLAIN] = None
    file_size: Annotated[int | None, "size in bytes", PLAIN] = None


class TestSuite(Resource):
    """A test suite."""

    id: Annotated[str | None, "UUID of the suite", PLAIN] = None
    graphql_id: Annotated[str | None, "the same for GraphQL", PLAIN] = None
    slug: Annotated[str | None, "name in URLs", PLAIN] = None
    name: Annotated[str | None, "its name for people", PLAIN] = None
    default_branch: Annotated[str | None, "branch whose trends it shows", PLAIN] = None
    url: Annotated[str | None, "API URL", PLAIN] = None
    web_url: Annotated[str | None, "web page", PLAIN] = None


class TestRun(Resource):
    """A run of a test suite, by a build."""

    id: Annotated[str | None, "UUID of the run", PLAIN] = None
    branch: Annotated[str | None, "branch of the build", PLAIN] = None
    commit_sha: Annotated[str | None, "commit of the build", PLAIN] = None
    state: Annotated[str | None, "`running` or `finished`", PLAIN] = None
    result: Annotated[str | None, "`passed` or `failed`", PLAIN] = None
    build_id: Annotated[str | None, "UUID of the build", PLAIN] = None
    created_at: Annotated[Moment | None, "when it was created", PLAIN] = None
    url: Annotated[str | None, "API URL", PLAIN] = None
    web_url: Annotated[str | None, "web page", PLAIN] = None


@endpoint(f"GET {_JOB}/artifacts", returns=Artifact, scope=None, paginated=True, documented=False)
def list_artifacts(org: str, pipeline: str, number: int, job: str, /) -> None:
    """List the artifacts of a job. The sandbox has none."""


@endpoint(f"GET {_SUITES}", returns=TestSuite, scope="read_suites", paginated=True, documented=False)
def list_suites(org: str, /) -> None:
    """List the test suites of an organization."""


@endpoint(f"GET {_SUITES}/{{suite}}", returns=TestSuite, scope="read_suites", documented=False)
def get_suite(org: str, suite: str, /) -> None:
    """Return a test suite."""


@endpoint(f"GET {_SUITES}/{{suite}}/runs", returns=TestRun, scope="read_suites", paginated=True, documented=False)
def list_runs(org: str, suite: str, /) -> None:
    """List the runs of a test suite, newest first."""


@endpoint(f"GET {_SUITES}/{{suite}}/runs/{{run}}", returns=TestRun, scope="read_suites", documented=False)
def get_run(org: str, suite: str, run: str, /) -> None:
    """Return a run of a test suite."""


@endpoint(f"GET {_SUITES}/{{suite}}/tests/{{test}}", returns=SuiteTest, scope="read_suites", documented=False)
def get_test(org: str, suite: str, test: str, /) -> None:
    """Return a test of a suite, without metrics."""


@endpoint(f"GET {_JOB}/log", returns=JobLog, scope="read_builds", documented=False)
def get_log(org: str, pipeline: str, number: int, job: str, /) -> None:
    """Return the log of a job: JSON, or plain text or HTML if the request accepts it."""


@endpoint(f"GET {_JOB}/log.txt", returns=None, scope="read_builds", documented=False)
def get_raw_log(org: str, pipeline: str, number: int, job: str, /) -> None:
    """Return the log of a job as plain text."""


@endpoint("GET /organizations/{org}/agents", returns=Agent, scope=None, paginated=True, documented=False)
def list_agents(org: str, /) -> None:
    """List the agents of an organization."""


@endpoint("GET /organizations/{org}/agents/{agent}", returns=Agent, scope=None, documented=False)
def get_agent(org: str, agent: str, /) -> None:
    """Return an agent."""


@endpoint(f"GET {_CLUSTERS}", returns=Cluster, scope=None, paginated=True, documented=False)
def list_clusters(org: str, /) -> None:
    """List the clusters of an organization."""


@endpoint(f"GET {_CLUSTER}/queues", returns=ClusterQueue, scope=None, paginated=True, documented=False)
def list_queues(org: str, cluster: str, /) -> None:
    """List the queues of a cluster."""


@endpoint(f"GET {_CLUSTER}", returns=Cluster, scope=None, documented=False)
def get_cluster(org: str, cluster: str, /) -> None:
    """Return the cluster of an organization."""


@endpoint(f"GET {_CLUSTER}/queues/{{queue}}", returns=ClusterQueue, scope=None, documented=False)
def get_queue(org: str, cluster: str, queue: str, /) -> None:
    """A queue of a cluster."""


ROUTES = (*ENDPOINTS, *endpoints_of("buildframe.sandbox_server"))
"""All endpoints of the sandbox."""
