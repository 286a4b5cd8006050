"""Pipelines."""

from __future__ import annotations

from typing import Annotated, Any

from buildframe.spec.declare import Resource, derived, endpoint, flat
from buildframe.spec.people import User
from buildframe.spec.times import Moment


def part_after(word: str, url: str | None) -> str | None:
    """The path segment that follows `word` in an API address: its organization or its pipeline."""
    segments = (url or "").split("?")[0].split("/")
    return segments[segments.index(word) + 1] if word in segments[:-1] else None


def organization_of(url: str | None) -> str | None:
    """The organization's slug in an API address."""
    return part_after("organizations", url)


def pipeline_of(url: str | None) -> str | None:
    """The pipeline's slug in an API address."""
    return part_after("pipelines", url)


class Provider(Resource):
    """The host of a pipeline's repository."""

    id: Annotated[str | None, "kind of host, such as `github`"] = None
    webhook_url: Annotated[str | None, "where the host reports pushes; empty without edit permission"] = None
    settings: Annotated[dict[str, Any] | None, "what starts builds and what is reported back"] = None


class Pipeline(Resource):
    """A pipeline: what is built, from which repository, by which steps."""

    id: Annotated[str | None, "UUID; stays when the slug changes"] = None
    graphql_id: Annotated[str | None, "the same for GraphQL"] = None
    organization: Annotated[
        str | None, "slug of the organization, read from `url`", derived(organization_of, "url")
    ] = None
    slug: Annotated[str | None, "its name in addresses; can be changed"] = None
    name: Annotated[str | None, "its name for people; may hold `:emoji:`"] = None
    description: Annotated[str | None, "what it is for"] = None
    url: Annotated[str | None, "API address"] = None
    web_url: Annotated[str | None, "page for people"] = None
    builds_url: Annotated[str | None, "API address of its builds"] = None
    badge_url: Annotated[str | None, "picture of its latest state"] = None
    repository: Annotated[str | None, "address of the repository"] = None
    default_branch: Annotated[str | None, "branch that new builds are on unless told otherwise"] = None
    branch_configuration: Annotated[str | None, "pattern of the pushed branches that are built"] = None
    provider: Annotated[Provider | None, "repository host", flat("id", "webhook_url", "settings")] = None
    cluster_id: Annotated[str | None, "UUID of the cluster that its jobs run in"] = None
    pipeline_template_uuid: Annotated[str | None, "UUID of the template that it follows"] = None
    skip_queued_branch_builds: Annotated[bool | None, "a new build skips waiting ones of its branch"] = None
    skip_queued_branch_builds_filter: Annotated[str | None, "branches for which that holds"] = None
    cancel_running_branch_builds: Annotated[bool | None, "a new build cancels running ones of its branch"] = None
    cancel_running_branch_builds_filter: Annotated[str | None, "branches for which that holds"] = None
    allow_rebuilds: Annotated[bool | None, "whether its builds can be rebuilt"] = None
    created_by: Annotated[User | None, "who made it", flat("name", "id", "email")] = None
    created_at: Annotated[Moment | None, "when it was made"] = None
    archived_at: Annotated[Moment | None, "when it was archived; null while active"] = None
    env: Annotated[dict[str, Any] | None, "environment variables of its builds"] = None
    tags: Annotated[list[str] | None, "labels; may hold `:emoji:`"] = None
    configuration: Annotated[str | None, "its steps as YAML"] = None
    steps: Annotated[list[dict[str, Any]] | None, "its steps: script, waiter, manual, trigger"] = None
    scheduled_builds_count: Annotated[int | None, "builds waiting now"] = None
    running_builds_count: Annotated[int | None, "builds running now"] = None
    scheduled_jobs_count: Annotated[int | None, "jobs ready and waiting for an agent now"] = None
    running_jobs_count: Annotated[int | None, "jobs running now"] = None
    waiting_jobs_count: Annotated[int | None, "jobs waiting for other jobs now"] = None
    visibility: Annotated[str | None, "`private` or `public`"] = None


@endpoint("GET /organizations/{org}/pipelines", returns=Pipeline, scope="read_pipelines", paginated=True)
def list_pipelines(org: str, /) -> None:
    """Pipelines of an organization."""


@endpoint("GET /organizations/{org}/pipelines/{pipeline}", returns=Pipeline, scope="read_pipelines")
def get_pipeline(org: str, pipeline: str, /) -> None:
    """One pipeline by its slug."""
