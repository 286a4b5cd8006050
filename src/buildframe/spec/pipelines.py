"""Declare pipelines, their steps and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, Required, TypedDict, Unpack, get_type_hints

from buildframe.spec.declare import GAUGE, KEY, PLAIN, SECRET, Resource, derived, flat, note_in, table
from buildframe.spec.members import User
from buildframe.spec.operations import Check, Filled, Name, Slug, Uuid, endpoint, keywords
from buildframe.spec.times import Moment


def part_after(word: str, url: str | None) -> str | None:
    """Return the path segment that follows `word` in an API URL."""
    segments = (url or "").split("?")[0].split("/")
    return segments[segments.index(word) + 1] if word in segments[:-1] else None


organization_of, pipeline_of = partial(part_after, "organizations"), partial(part_after, "pipelines")


class Provider(Resource):
    """The host of a pipeline's repository."""

    id: Annotated[str | None, "kind of host, such as `github`", PLAIN] = None
    webhook_url: Annotated[str | None, "URL to which the host reports; empty without edit permission", SECRET] = None
    settings: Annotated[dict[str, Any] | None, "events that start builds, and statuses that are reported", PLAIN] = None


@table("pipelines")
class Pipeline(Resource):
    """A pipeline: a repository and the steps that build it."""

    id: Annotated[str | None, "UUID; stays when the slug changes", PLAIN, KEY] = None
    graphql_id: Annotated[str | None, "the same for GraphQL", PLAIN] = None
    organization: Annotated[str | None, "organization slug, from `url`", PLAIN, derived(organization_of, "url")] = None
    slug: Annotated[str | None, "name in URLs; can change", PLAIN] = None
    name: Annotated[str | None, "display name; may contain `:emoji:`", PLAIN] = None
    description: Annotated[str | None, "description", PLAIN] = None
    url: Annotated[str | None, "API URL", PLAIN] = None
    web_url: Annotated[str | None, "web page", PLAIN] = None
    builds_url: Annotated[str | None, "API URL of its builds", PLAIN] = None
    badge_url: Annotated[str | None, "URL of an image of its latest state", PLAIN] = None
    repository: Annotated[str | None, "URL of the repository", PLAIN, Check("filled")] = None
    default_branch: Annotated[str | None, "default branch of new builds", PLAIN] = None
    branch_configuration: Annotated[str | None, "pattern of the pushed branches that are built", PLAIN] = None
    provider: Annotated[Provider | None, "repository host", flat("id", "webhook_url", "settings")] = None
    cluster_id: Annotated[str | None, "UUID of the cluster that runs its jobs", PLAIN] = None
    pipeline_template_uuid: Annotated[str | None, "UUID of its template", PLAIN] = None
    skip_queued_branch_builds: Annotated[bool | None, "a new build skips waiting ones of its branch", PLAIN] = None
    skip_queued_branch_builds_filter: Annotated[str | None, "branches to which this applies", PLAIN] = None
    cancel_running_branch_builds: Annotated[bool | None, "a new build cancels running ones of its branch", PLAIN] = None
    cancel_running_branch_builds_filter: Annotated[str | None, "branches to which this applies", PLAIN] = None
    allow_rebuilds: Annotated[bool | None, "whether its builds can be rebuilt", PLAIN] = None
    created_by: Annotated[User | None, "user who created it", flat("name", "id", "email")] = None
    created_at: Annotated[Moment | None, "when it was created", PLAIN] = None
    archived_at: Annotated[Moment | None, "when it was archived; null while active", PLAIN] = None
    env: Annotated[dict[str, Any] | None, "environment variables of its builds", SECRET] = None
    tags: Annotated[list[str] | None, "labels; may contain `:emoji:`", PLAIN] = None
    configuration: Annotated[str | None, "its steps as YAML", SECRET] = None
    steps: Annotated[list[dict[str, Any]] | None, "its steps: script, waiter, manual, trigger", SECRET] = None
    scheduled_builds_count: Annotated[int | None, "builds waiting now", PLAIN, GAUGE] = None
    running_builds_count: Annotated[int | None, "builds running now", PLAIN, GAUGE] = None
    scheduled_jobs_count: Annotated[int | None, "jobs ready and waiting for an agent now", PLAIN, GAUGE] = None
    running_jobs_count: Annotated[int | None, "jobs running now", PLAIN, GAUGE] = None
    waiting_jobs_count: Annotated[int | None, "jobs waiting for other jobs now", PLAIN, GAUGE] = None
    visibility: Annotated[str | None, "`private` or `public`", PLAIN] = None


PIPELINE = "/organizations/{org}/pipelines/{pipeline}"  # path of a pipeline


@keywords
class PipelineFilters(TypedDict, total=False):
    """Filters of lists of pipelines."""

    name: Annotated[str, "with this name"]
    repository: Annotated[str, "with this repository URL"]


@endpoint("GET /organizations/{org}/pipelines", returns=Pipeline, scope="read_pipelines", paginated=True)
def list_pipelines(org: Name, /, **filters: Unpack[PipelineFilters]) -> None:
    """Pipelines of an organization."""


@endpoint(f"GET {PIPELINE}", returns=Pipeline, scope="read_pipelines", key="slug")
def get_pipeline(org: Name, pipeline: Slug, /) -> None:
    """One pipeline by its slug."""


SELF_HOSTED = "private"
ONE_HOSTED_KIND = "github"


class Applies(Enum):
    """Kinds of repository hosts (`provider.id`) that have a setting."""

    ALL = "all"
    HOSTED = "all but self-hosted"
    ONE = "one hosted kind"


_ALL, _HOSTED, _ONE = Applies.ALL, Applies.HOSTED, Applies.ONE


class ProviderSettings(TypedDict, total=False):
    """Events of the repository host that start builds, and statuses that are reported to it."""

    filter_enabled: Annotated[bool, "whether `filter_condition` is used", _ALL]
    filter_condition: Annotated[str, "condition under which a build is started", _ALL]
    build_branches: Annotated[bool, "build when branches are pushed", _ALL]
    build_pull_requests: Annotated[bool, "build commits that are part of a pull request", _ALL]
    build_tags: Annotated[bool, "build when tags are pushed", _ALL]
    cancel_deleted_branch_builds: Annotated[bool, "cancel running builds of deleted branches", _HOSTED]
    publish_commit_status: Annotated[bool, "report the state of builds to the host", _HOSTED]
    publish_commit_status_per_step: Annotated[bool, "report the state of each job, too", _HOSTED]
    pull_request_branch_filter_enabled: Annotated[bool, "build pull requests of certain branches only", _HOSTED]
    pull_request_branch_filter_configuration: Annotated[str, "pattern of these branches", _HOSTED]
    skip_builds_for_existing_commits: Annotated[bool, "do not build the same commit and branch again", _HOSTED]
    skip_pull_request_builds_for_existing_commits: Annotated[bool, "the same for pull requests", _HOSTED]
    build_pull_request_forks: Annotated[bool, "build pull requests from forks", _ONE]
    build_pull_request_labels_changed: Annotated[bool, "build when labels are added or removed", _ONE]
    build_pull_request_ready_for_review: Annotated[bool, "build when a draft becomes ready for review", _ONE]
    prefix_pull_request_fork_branch_names: Annotated[bool, "write `owner:branch` for branches of forks", _ONE]
    publish_blocked_as_pending: Annotated[bool, "report blocked builds as pending", _ONE]
    separate_pull_request_statuses: Annotated[bool, "report builds of pull requests separately", _ONE]
    trigger_mode: Annotated[str, "what starts builds: `code`, `deployment`, `fork` or `none`", _ONE]


def provider_settings_of(provider: str) -> frozenset[str]:
    """
    Return the names of the settings of a kind of repository host.

    Parameters
    ----------
    provider : str
        Kind of the host: `github`, `private` (self-hosted) or another hosted one.

    Returns
    -------
    frozenset of str
        Names of properties of `ProviderSettings`.

    Examples
    --------
    >>> from buildframe.spec import provider_settings_of
    >>> "build_pull_request_forks" in provider_settings_of("github"), len(provider_settings_of("private"))
    (True, 5)
    """
    hints = get_type_hints(ProviderSettings, include_extras=True)
    absent = {SELF_HOSTED: {_HOSTED, _ONE}, ONE_HOSTED_KIND: set[Applies]()}.get(provider, {_ONE})
    return frozenset(name for name, hint in hints.items() if note_in(hint, Applies) not in absent)


class ScriptStep(TypedDict, total=False):
    """A step that runs a command."""

    type: Required[Annotated[Literal["script"], "`script`"]]
    name: Annotated[str, "label of the step"]
    command: Annotated[str, "command that the agent runs"]
    artifact_paths: Annotated[str, "patterns of the files to upload as artifacts"]
    branch_configuration: Annotated[str, "branches for which it runs"]
    env: Annotated[Mapping[Filled, str], "environment variables"]
    timeout_in_minutes: Annotated[int, "time limit in minutes"]
    agent_query_rules: Annotated[Sequence[str], 'tags that the agent must have, such as `["queue=default"]`']


class WaiterStep(TypedDict):
    """A step that waits for all steps before it."""

    type: Required[Annotated[Literal["waiter"], "`waiter`"]]


class ManualStep(TypedDict, total=False):
    """A step that blocks the build until someone unblocks it."""

    type: Required[Annotated[Literal["manual"], "`manual`"]]
    label: Annotated[str, "label of the step"]


class TriggerStep(TypedDict, total=False):
    """A step that starts a build of another pipeline."""

    type: Required[Annotated[Literal["trigger"], "`trigger`"]]
    label: Annotated[str, "label of the step"]
    trigger_project_slug: Annotated[str, "pipeline to build", Check("slug")]
    trigger_commit: Annotated[str, "commit to build"]
    trigger_branch: Annotated[str, "branch to build"]
    trigger_async: Annotated[bool, "continue without waiting for that build"]


AnyStep = ScriptStep | WaiterStep | ManualStep | TriggerStep
AccessLevel = Literal["read_only", "build_and_read", "manage_build_and_read"]


@keywords
class _Changeable(TypedDict, total=False):
    branch_configuration: Annotated[str, "pattern of the pushed branches that are built"]
    cancel_running_branch_builds: Annotated[bool, "a new build cancels earlier running ones of its branch"]
    cancel_running_branch_builds_filter: Annotated[str, "branches to which this applies"]
    default_branch: Annotated[str, "default branch of new builds"]
    description: Annotated[str, "description of the pipeline"]
    env: Annotated[Mapping[Filled, str], "environment variables of its builds"]
    pipeline_template_uuid: Annotated[str | None, "UUID of the template; None for no template", Check("uuid")]
    provider_settings: Annotated[ProviderSettings, "events that start builds, and statuses that are reported"]
    skip_queued_branch_builds: Annotated[bool, "a new build skips earlier waiting ones of its branch"]
    skip_queued_branch_builds_filter: Annotated[str, "branches to which this applies"]
    slug: Annotated[str, "name in URLs; by default derived from the name; at most 100 characters", Check("slug")]
    tags: Annotated[Sequence[str], "labels; may contain `:emoji:`"]
    visibility: Annotated[str, "`private`, or `public`: visible to everyone, also outside the organization"]


@keywords
class NewPipeline(_Changeable, total=False):
    """A new pipeline: its steps are either YAML (`configuration`) or visual (`steps`)."""

    name: Required[Annotated[str, "display name; must be unique", Check("filled")]]
    cluster_id: Required[Annotated[str | None, "UUID of the cluster for its jobs; None for no cluster", Check("uuid")]]
    repository: Required[Annotated[str, "URL of the repository", Check("filled")]]
    configuration: Annotated[str, "its steps as YAML", Check("yaml")]
    steps: Annotated[Sequence[AnyStep], "its steps as objects instead of YAML"]
    teams: Annotated[Sequence[Uuid] | Mapping[Uuid, AccessLevel], "UUIDs of teams with access, or access level by UUID"]


@keywords
class PipelineChanges(_Changeable, total=False):
    """Changes of a pipeline; properties that are left out do not change."""

    cluster_id: Annotated[str | None, "UUID of the cluster that runs its jobs; None for no cluster", Check("uuid")]
    configuration: Annotated[str, "its steps as YAML; changes what the pipeline's YAML has already", Check("yaml")]
    name: Annotated[str, "display name; without `slug`, the slug changes, too", Check("filled")]
    repository: Annotated[str, "URL of the repository", Check("filled")]


@endpoint("POST /organizations/{org}/pipelines", returns=Pipeline, scope="write_pipelines", success=201)
def create_pipeline(org: Name, /, **properties: Unpack[NewPipeline]) -> None:
    """Create a pipeline from YAML (`configuration`) or from visual steps (`steps`)."""


@endpoint(f"PATCH {PIPELINE}", returns=Pipeline, scope="write_pipelines")
def update_pipeline(org: Name, pipeline: Slug, /, **properties: Unpack[PipelineChanges]) -> None:
    """Change properties of a pipeline; its teams are changed through GraphQL only."""


@endpoint(f"POST {PIPELINE}/archive", returns=Pipeline, scope="write_pipelines", key="slug")
def archive_pipeline(org: Name, pipeline: Slug, /) -> None:
    """Make a pipeline read-only and hide it; its builds stay."""


@endpoint(f"POST {PIPELINE}/unarchive", returns=Pipeline, scope="write_pipelines", key="slug")
def unarchive_pipeline(org: Name, pipeline: Slug, /) -> None:
    """Make an archived pipeline active again."""


@endpoint(f"DELETE {PIPELINE}", returns=None, scope="write_pipelines", success=204)
def delete_pipeline(org: Name, pipeline: Slug, /) -> None:
    """Delete a pipeline with all its builds."""


@endpoint(f"POST {PIPELINE}/webhook", returns=None, scope="write_pipelines", success=201)
def add_webhook(org: Name, pipeline: Slug, /) -> None:
    """Create a webhook at the repository host, so that pushes start builds."""
