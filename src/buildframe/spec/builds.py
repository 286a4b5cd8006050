"""Declare builds: runs of pipelines, with their jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Required, TypedDict, Unpack

from buildframe.spec.declare import KEY, PLAIN, SECRET, Resource, derived, flat, table
from buildframe.spec.jobs import Job, JobState
from buildframe.spec.members import Author, User
from buildframe.spec.operations import ALWAYS_LIST, Check, Filled, Name, Slug, Texts, endpoint, keywords
from buildframe.spec.pipelines import PIPELINE, Pipeline, organization_of, pipeline_of
from buildframe.spec.times import Moment, When

BuildState = Literal[
    "creating", "scheduled", "running", "passed", "failing", "failed", "blocked", "canceled", "canceling",
    "skipped", "not_run", "waiting", "waiting_failed", "finished",
]  # fmt: skip
"""Values of the filter `state`. `finished` means passed, failed, blocked or canceled."""

RUNNING_STATES: tuple[BuildState, ...] = ("running", "failing")
CANCELABLE_STATES: tuple[BuildState, ...] = ("scheduled", *RUNNING_STATES)
OPEN_STATES: tuple[BuildState, ...] = (*CANCELABLE_STATES, "canceling")
"""States that a build leaves without an action of a user."""

FINISHED_STATES: tuple[BuildState, ...] = ("passed", "failed", "canceled")
ENDED_STATES: tuple[BuildState, ...] = (*FINISHED_STATES, "skipped", "not_run")
"""States in which a build stays, unless somebody retries one of its jobs."""

AGENT_STATES = frozenset({"assigned", "accepted", "running", "canceling", "timing_out"})
"""States of jobs that an agent holds."""


class PullRequest(Resource):
    """The pull request that a build is for."""

    id: Annotated[str | None, "its number, as text", PLAIN] = None
    base: Annotated[str | None, "branch into which it is to be merged", PLAIN] = None
    repository: Annotated[str | None, "repository that it comes from", PLAIN] = None
    labels: Annotated[list[str] | None, "its labels", PLAIN] = None


class RebuiltFrom(Resource):
    """The build that a rebuild repeats."""

    id: Annotated[str | None, "UUID of that build", PLAIN] = None
    number: Annotated[int | None, "number of that build", PLAIN] = None
    url: Annotated[str | None, "API URL of that build", PLAIN] = None


class TriggeredFrom(Resource):
    """The build whose trigger step started this one."""

    build_id: Annotated[str | None, "UUID of that build", PLAIN] = None
    build_number: Annotated[int | None, "number of that build", PLAIN] = None
    build_pipeline_slug: Annotated[str | None, "pipeline of that build", PLAIN] = None


@table("builds")
class Build(Resource):
    """One run of a pipeline."""

    id: Annotated[str, "UUID, unique across the whole service", PLAIN, KEY]
    graphql_id: Annotated[str | None, "the same for GraphQL", PLAIN] = None
    number: Annotated[int | None, "unique within its pipeline; increases; may have gaps", PLAIN] = None
    organization: Annotated[str | None, "organization slug, from `url`", PLAIN, derived(organization_of, "url")] = None
    pipeline: Annotated[Pipeline | None, "pipeline", flat("slug", "id", "repository"), derived(pipeline_of, "url")] = (
        None
    )
    state: Annotated[str | None, "state when it was fetched; a blocked build keeps its last one", PLAIN] = None
    blocked: Annotated[bool | None, "waits at a block step", PLAIN] = None
    blocked_state: Annotated[str | None, "state in which it is blocked", PLAIN] = None
    cancel_reason: Annotated[str | None, "why it was canceled", PLAIN] = None
    branch: Annotated[str | None, "branch of the commit", PLAIN] = None
    tag: Annotated[str | None, "tag of the commit", PLAIN] = None
    commit: Annotated[str | None, "full SHA, or the requested ref, such as `HEAD`", PLAIN] = None
    message: Annotated[str | None, "message of the commit or of the user who started it (untrusted text)", PLAIN] = None
    source: Annotated[str | None, "what started it: `webhook`, `api`, `ui`, `trigger_job`, `schedule`", PLAIN] = None
    creator: Annotated[User | None, "user who started it", flat("name", "id", "email")] = None
    author: Annotated[Author | str | None, "author of the commit", flat("name", "email")] = None
    created_at: Annotated[Moment | None, "when it was created; lists are ordered by it", PLAIN] = None
    scheduled_at: Annotated[Moment | None, "when it was created, often some milliseconds earlier", PLAIN] = None
    started_at: Annotated[Moment | None, "when its first job started; moves when a job is retried", PLAIN] = None
    failing_at: Annotated[Moment | None, "when its first job failed", PLAIN] = None
    finished_at: Annotated[Moment | None, "when it ended; moves when a retry or an unblock reopens it", PLAIN] = None
    pull_request: Annotated[PullRequest | None, "pull request", flat("id", "base", "repository", "labels")] = None
    rebuilt_from: Annotated[RebuiltFrom | None, "build that it repeats", flat("number", "id", "url")] = None
    triggered_from: Annotated[
        TriggeredFrom | None, "build that triggered it", flat("build_number", "build_id", "build_pipeline_slug")
    ] = None
    cluster_id: Annotated[str | None, "UUID of the cluster", PLAIN] = None
    cluster_url: Annotated[str | None, "API URL of the cluster", PLAIN] = None
    merge_queue: Annotated[dict[str, Any] | None, "merge queue that it is for, as the service describes it", PLAIN] = (
        None
    )
    job_state_counts: Annotated[dict[str, Any] | None, "number of its jobs in each state", PLAIN] = None
    env: Annotated[dict[str, Any] | None, "environment variables", SECRET] = None
    meta_data: Annotated[dict[str, Any] | None, "values that steps stored on the build", PLAIN] = None
    url: Annotated[str | None, "API URL", PLAIN] = None
    web_url: Annotated[str | None, "web page", PLAIN] = None
    jobs: Annotated[list[Job] | None, "its jobs"] = None


@keywords
class BuildFilters(TypedDict, total=False):
    """Filters of lists of builds; a filter that is left out does not restrict the list."""

    branch: Annotated[Texts, "on this branch, or on any of several; `*` matches any characters"]
    commit: Annotated[Texts, "of this commit, or of any of several: full SHAs", Check("sha")]
    created_from: Annotated[When, "created at or after"]
    created_to: Annotated[When, "created before"]
    creator: Annotated[str, "started by the user of this UUID", Check("uuid")]
    finished_from: Annotated[When, "finished at or after"]
    include_retried_jobs: Annotated[bool, "all attempts of retried jobs, not only the last"]
    meta_data: Annotated[Mapping[str, str], "meta-data contains these values"]
    state: Annotated[
        BuildState | Sequence[BuildState], "in any of these states; `blocked` selects by the flag `blocked`"
    ]
    exclude_jobs: Annotated[bool, "omit the jobs from the response"]
    exclude_pipeline: Annotated[bool, "omit the pipeline from the response"]
    include_paused: Annotated[bool, "False omits builds whose jobs are all in paused queues, and jobs in these queues"]


@keywords
class JobsOfBuild(TypedDict, total=False):
    """Options of a single build, most of them for its jobs."""

    include_retried_jobs: Annotated[bool, "all attempts of retried jobs, not only the last"]
    job_states: Annotated[JobState | Sequence[JobState], "only jobs in any of these states", ALWAYS_LIST]
    exclude_jobs: Annotated[bool, "omit the jobs from the response"]
    exclude_pipeline: Annotated[bool, "omit the pipeline from the response"]
    include_test_engine: Annotated[bool, "add what Test Engine knows of the build, in `unknown` of a typed record"]


class CommitAuthor(TypedDict, total=False):
    """Author of a commit."""

    name: Annotated[str, "name of the author"]
    email: Annotated[str, "e-mail address of the author"]


@keywords
class NewBuild(TypedDict, total=False):
    """Properties of a new build."""

    commit: Required[Annotated[str, "ref, SHA or tag to build; `HEAD` is the newest of the branch", Check("filled")]]
    branch: Required[Annotated[str, "branch of the commit, to which branch filters apply", Check("filled")]]
    author: Annotated[CommitAuthor, "author of the commit; by default the user of the token"]
    clean_checkout: Annotated[bool, "remove the build directory before the checkout (False)"]
    env: Annotated[Mapping[Filled, str], "environment variables"]
    ignore_pipeline_branch_filters: Annotated[bool, "ignore the pipeline's branch filter; steps keep theirs (False)"]
    message: Annotated[str, "message of the build"]
    meta_data: Annotated[Mapping[Filled, str], "values to store on the build"]
    pull_request_base_branch: Annotated[str, "of a pull request: branch into which it is to be merged"]
    pull_request_id: Annotated[int, "of a pull request: its number"]
    pull_request_repository: Annotated[str, "of a pull request: repository that it comes from"]


_BUILD = PIPELINE + "/builds/{number}"


@endpoint("GET /builds", returns=Build, scope="read_builds", paginated=True)
def list_all_builds(**filters: Unpack[BuildFilters]) -> None:
    """Builds of all organizations that the token may see, newest first."""


@endpoint("GET /organizations/{org}/builds", returns=Build, scope="read_builds", paginated=True)
def list_builds(org: Name, /, **filters: Unpack[BuildFilters]) -> None:
    """Builds of an organization, newest first."""


@endpoint(f"GET {PIPELINE}/builds", returns=Build, scope="read_builds", paginated=True)
def list_pipeline_builds(org: Name, pipeline: Slug, /, **filters: Unpack[BuildFilters]) -> None:
    """Builds of a pipeline, newest first."""


@endpoint(f"GET {_BUILD}", returns=Build, scope="read_builds", key="number")
def get_build(org: Name, pipeline: Slug, number: int, /, **filters: Unpack[JobsOfBuild]) -> None:
    """One build by its number."""


@endpoint(f"POST {PIPELINE}/builds", returns=Build, scope="write_builds", success=201)
def create_build(org: Name, pipeline: Slug, /, **properties: Unpack[NewBuild]) -> None:
    """Create a build; it gets the next number of its pipeline."""


@endpoint(f"PUT {_BUILD}/cancel", returns=Build, scope="write_builds", key="number")
def cancel_build(org: Name, pipeline: Slug, number: int, /) -> None:
    """Cancel a build that is scheduled, running or failing."""


@endpoint(f"PUT {_BUILD}/rebuild", returns=Build, scope="write_builds")
def rebuild_build(org: Name, pipeline: Slug, number: int, /) -> None:
    """Repeat a build; returns the new build, whose `rebuilt_from` refers to this one."""
