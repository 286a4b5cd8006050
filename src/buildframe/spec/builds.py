"""Builds: runs of pipelines, with their jobs inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Required, TypedDict, Unpack

from buildframe.spec.declare import Check, Name, Resource, Slug, Texts, derived, endpoint, flat
from buildframe.spec.jobs import Job
from buildframe.spec.people import Author, User
from buildframe.spec.pipelines import Pipeline, organization_of, pipeline_of
from buildframe.spec.times import Moment, When

BuildState = Literal[
    "creating", "scheduled", "running", "passed", "failing", "failed", "blocked", "canceled", "canceling",
    "skipped", "not_run", "waiting", "waiting_failed", "finished",
]  # fmt: skip
"""What the filter `state` takes; `finished` means passed, failed, blocked or canceled."""


class PullRequest(Resource):
    """The pull request that a build is for."""

    id: Annotated[str | None, "its number, as text"] = None
    base: Annotated[str | None, "branch that it is to be merged into"] = None
    repository: Annotated[str | None, "repository that it comes from"] = None
    labels: Annotated[list[str] | None, "its labels"] = None


class RebuiltFrom(Resource):
    """The build that a rebuild repeats."""

    id: Annotated[str | None, "UUID of that build"] = None
    number: Annotated[int | None, "number of that build"] = None
    url: Annotated[str | None, "API address of that build"] = None


class TriggeredFrom(Resource):
    """The build whose trigger step started this one."""

    build_id: Annotated[str | None, "UUID of that build"] = None
    build_number: Annotated[int | None, "number of that build"] = None
    build_pipeline_slug: Annotated[str | None, "pipeline of that build"] = None


class Build(Resource):
    """One run of a pipeline."""

    id: Annotated[str, "UUID, unique across the whole service"]
    graphql_id: Annotated[str | None, "the same for GraphQL"] = None
    number: Annotated[int | None, "unique within its pipeline; increases; may have gaps"] = None
    organization: Annotated[
        str | None, "slug of the organization, read from `url`", derived(organization_of, "url")
    ] = None
    pipeline: Annotated[Pipeline | None, "pipeline", flat("slug", "id"), derived(pipeline_of, "url")] = None
    state: Annotated[str | None, "state when it was fetched; a blocked build keeps its last one"] = None
    blocked: Annotated[bool | None, "waits at a block step"] = None
    blocked_state: Annotated[str | None, "state that it is blocked in"] = None
    cancel_reason: Annotated[str | None, "why it was canceled"] = None
    branch: Annotated[str | None, "branch that it is on"] = None
    tag: Annotated[str | None, "tag that it is of"] = None
    commit: Annotated[str | None, "full SHA, or the ref it was asked for, such as `HEAD`"] = None
    message: Annotated[str | None, "message of the commit, or of who started it (untrusted text)"] = None
    source: Annotated[str | None, "what started it: `webhook`, `api`, `ui`, `trigger_job`, `schedule`"] = None
    creator: Annotated[User | None, "user who started it", flat("name", "id", "email")] = None
    author: Annotated[Author | str | None, "author of the commit", flat("name", "email")] = None
    created_at: Annotated[Moment | None, "when it was created; lists are in this order"] = None
    scheduled_at: Annotated[Moment | None, "when it was created, often some milliseconds earlier"] = None
    started_at: Annotated[Moment | None, "when an agent started its first job; moves when a job is retried"] = None
    failing_at: Annotated[Moment | None, "when its first job failed"] = None
    finished_at: Annotated[Moment | None, "when it ended; moves when a retry or an unblock reopens it"] = None
    pull_request: Annotated[PullRequest | None, "pull request", flat("id", "base", "repository", "labels")] = None
    rebuilt_from: Annotated[RebuiltFrom | None, "build that it repeats", flat("number", "id", "url")] = None
    triggered_from: Annotated[
        TriggeredFrom | None, "build that triggered it", flat("build_number", "build_id", "build_pipeline_slug")
    ] = None
    cluster_id: Annotated[str | None, "UUID of the cluster"] = None
    env: Annotated[dict[str, Any] | None, "environment variables"] = None
    meta_data: Annotated[dict[str, Any] | None, "values that steps left on the build"] = None
    url: Annotated[str | None, "API address"] = None
    web_url: Annotated[str | None, "page for people"] = None
    jobs: Annotated[list[Job] | None, "its jobs"] = None


class BuildFilters(TypedDict, total=False):
    """Which builds to list; what is left out does not narrow."""

    branch: Annotated[Texts, "on this branch, or any of these; `*` matches any characters"]
    commit: Annotated[Texts, "of this commit, or any of these: full SHAs", Check("sha")]
    created_from: Annotated[When, "created at or after"]
    created_to: Annotated[When, "created before"]
    creator: Annotated[str, "started by the user of this UUID", Check("uuid")]
    finished_from: Annotated[When, "finished at or after"]
    include_retried_jobs: Annotated[bool, "all attempts of retried jobs, not only the last"]
    meta_data: Annotated[Mapping[str, str], "whose meta-data has these values"]
    state: Annotated[
        BuildState | Sequence[BuildState], "in this state, or any of these; `blocked` goes by the flag `blocked`"
    ]
    exclude_jobs: Annotated[bool, "leave the jobs out of the answer"]
    exclude_pipeline: Annotated[bool, "leave the pipeline out of the answer"]


class JobsOfBuild(TypedDict, total=False):
    """Which jobs a single build carries."""

    include_retried_jobs: Annotated[bool, "all attempts of retried jobs, not only the last"]


class CommitAuthor(TypedDict, total=False):
    """Who wrote a commit."""

    name: Annotated[str, "name of the author"]
    email: Annotated[str, "e-mail address of the author"]


class NewBuild(TypedDict, total=False):
    """What to build, and how."""

    commit: Required[Annotated[str, "ref, SHA or tag to build; `HEAD` is the newest of the branch", Check("filled")]]
    branch: Required[Annotated[str, "branch that the commit belongs to; branch filters go by it", Check("filled")]]
    author: Annotated[CommitAuthor, "author of the commit; the user who asks, where it is left out"]
    clean_checkout: Annotated[bool, "remove the build directory and check out afresh (False)"]
    env: Annotated[Mapping[str, str], "environment variables"]
    ignore_pipeline_branch_filters: Annotated[
        bool, "build also what the pipeline's branch filter excludes; those of steps still apply (False)"
    ]
    message: Annotated[str, "message of the build"]
    meta_data: Annotated[Mapping[str, str], "values to leave on the build"]
    pull_request_base_branch: Annotated[str, "of a pull request: branch that it is to be merged into"]
    pull_request_id: Annotated[int, "of a pull request: its number"]
    pull_request_repository: Annotated[str, "of a pull request: repository that it comes from"]


@endpoint("GET /builds", returns=Build, scope="read_builds", paginated=True)
def list_all_builds(**filters: Unpack[BuildFilters]) -> None:
    """Builds of all organizations that the token may see, newest first."""


@endpoint("GET /organizations/{org}/builds", returns=Build, scope="read_builds", paginated=True)
def list_builds(org: Name, /, **filters: Unpack[BuildFilters]) -> None:
    """Builds of an organization, newest first."""


@endpoint("GET /organizations/{org}/pipelines/{pipeline}/builds", returns=Build, scope="read_builds", paginated=True)
def list_pipeline_builds(org: Name, pipeline: Slug, /, **filters: Unpack[BuildFilters]) -> None:
    """Builds of a pipeline, newest first."""


@endpoint("GET /organizations/{org}/pipelines/{pipeline}/builds/{number}", returns=Build, scope="read_builds")
def get_build(org: Name, pipeline: Slug, number: int, /, **filters: Unpack[JobsOfBuild]) -> None:
    """One build by its number."""


@endpoint("POST /organizations/{org}/pipelines/{pipeline}/builds", returns=Build, scope="write_builds", success=201)
def create_build(org: Name, pipeline: Slug, /, **properties: Unpack[NewBuild]) -> None:
    """Create a build; it gets the next number of its pipeline."""


@endpoint("PUT /organizations/{org}/pipelines/{pipeline}/builds/{number}/cancel", returns=Build, scope="write_builds")
def cancel_build(org: Name, pipeline: Slug, number: int, /) -> None:
    """Cancel a build that is scheduled, running or failing."""


@endpoint("PUT /organizations/{org}/pipelines/{pipeline}/builds/{number}/rebuild", returns=Build, scope="write_builds")
def rebuild_build(org: Name, pipeline: Slug, number: int, /) -> None:
    """Build the same again; answers with the new build, whose `rebuilt_from` tells of this one."""
