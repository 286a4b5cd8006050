"""Declare jobs: the parts of a build that agents run, and wait and block steps."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict, Unpack

import msgspec

from buildframe.spec.declare import KEY, PERSONAL, PLAIN, Resource, derived, flat, table
from buildframe.spec.members import User
from buildframe.spec.operations import ALWAYS_LIST, Check, Name, Slug, Uuid, endpoint, keywords
from buildframe.spec.times import Moment

DEFAULT_QUEUE = "default"

JobState = Literal[
    "pending", "waiting", "waiting_failed", "blocked", "blocked_failed", "unblocked", "unblocked_failed", "limiting",
    "limited", "scheduled", "reserved", "assigned", "accepted", "running", "passed", "failed", "canceling", "canceled",
    "expired", "timing_out", "timed_out", "skipped", "broken",
]  # fmt: skip
"""States of jobs, which are also the values of filters of jobs."""
OVER_STATES = (
    "passed", "failed", "canceled", "expired", "timed_out", "skipped", "broken", "unblocked", "waiting_failed",
    "blocked_failed", "unblocked_failed", "finished",
)  # fmt: skip
"""States of jobs that are over, also without `finished_at`. Webhooks send `finished`."""


@functools.lru_cache(maxsize=4096)
def queue_of(
    type: str | None, rules: str | None, agent_tags: str | None, cluster_queue_id: str | None = None
) -> str | None:
    """Return the key of a script job's queue.

    It is in the agent query rules, else in the tags of the agent, else it is `default`.

    A job with a `cluster_queue_id` whose rules and agent name no queue is in that queue, whose key
    is unknown: null. `rules` and `agent_tags` are JSON lists such as `["queue=macos", "os=mac"]`.
    """
    if type != "script":
        return None
    for text in (rules, agent_tags):
        for tag in _tags(text):
            name, _, key = tag.partition("=")
            if name.strip() == "queue" and key.strip():
                return key.strip()
    return None if cluster_queue_id else DEFAULT_QUEUE


@functools.lru_cache(maxsize=4096)
def queue_id_of(
    type: str | None,
    rules: str | None,
    agent_tags: str | None,
    cluster_queue_id: str | None,
    cluster_id: str | None,
) -> str | None:
    """Return what separates queues of one key: `cluster_queue_id`, else cluster and key."""
    if type != "script":
        return None
    if cluster_queue_id or not cluster_id:
        return cluster_queue_id or None
    return f"{cluster_id}/{queue_of(type, rules, agent_tags)}"


def _tags(text: str | None) -> list[str]:
    listed = msgspec.json.decode(text) if text else None
    return [str(tag) for tag in listed] if isinstance(listed, list) else []


class Signature(Resource):
    """The signature of a step."""

    value: Annotated[str | None, "the signature itself", PLAIN] = None
    algorithm: Annotated[str | None, "signing algorithm", PLAIN] = None
    signed_fields: Annotated[list[str] | None, "signed fields", PLAIN] = None


class Step(Resource):
    """The step that a job came from."""

    id: Annotated[str | None, "UUID of the step, the same for all attempts within a build", PLAIN] = None
    signature: Annotated[Signature | None, "signature of the step, where steps are signed", PLAIN] = None


class Agent(Resource):
    """The agent that ran a job. Lists contain `id`, `url` and `name`; single builds contain all fields."""

    id: Annotated[str | None, "UUID of the agent", PLAIN] = None
    graphql_id: Annotated[str | None, "the same for GraphQL", PLAIN] = None
    url: Annotated[str | None, "API URL", PLAIN] = None
    web_url: Annotated[str | None, "web page", PLAIN] = None
    name: Annotated[str | None, "name of the agent", PLAIN] = None
    connection_state: Annotated[str | None, "such as `connected` or `lost`", PLAIN] = None
    hostname: Annotated[str | None, "host name of its machine", PLAIN] = None
    ip_address: Annotated[str | None, "IP address of its connection", PLAIN] = None
    user_agent: Annotated[str | None, "version and platform", PLAIN] = None
    creator: Annotated[User | None, "who registered it", PERSONAL] = None
    created_at: Annotated[Moment | None, "when it first connected", PLAIN] = None
    version: Annotated[str | None, "version of the agent", PLAIN] = None
    priority: Annotated[int | None, "agents with higher numbers get jobs first", PLAIN] = None
    meta_data: Annotated[list[str] | None, 'its tags, such as `["queue=default"]`', PLAIN] = None


class Priority(Resource):
    """Scheduling priority of a job."""

    number: Annotated[int | None, "jobs with higher numbers are scheduled first", PLAIN] = None


@table("jobs")
class Job(Resource):
    """One attempt at one step of a build, or a wait or block step.

    `type` distinguishes them: `script` runs a command, `waiter` (only `id` and `type`) waits for all jobs before
    it, `manual` is a block step, and `trigger` starts a build of another pipeline.
    """

    id: Annotated[str, "UUID, unique across the whole service", PLAIN, KEY]
    graphql_id: Annotated[str | None, "the same for GraphQL", PLAIN] = None
    type: Annotated[str | None, "`script`, `waiter`, `manual` or `trigger`", PLAIN] = None
    name: Annotated[str | None, "label of the step; may contain `:emoji:`", PLAIN] = None
    label: Annotated[str | None, "of a block step: its label", PLAIN] = None
    step_key: Annotated[str | None, "the step's key in the pipeline's configuration", PLAIN] = None
    group_key: Annotated[str | None, "the key of the step's group", PLAIN] = None
    step: Annotated[Step | None, "step", flat(None, "id")] = None
    state: Annotated[str | None, "state of the job when it was fetched", PLAIN] = None
    queue: Annotated[
        str | None,
        "of a script job: queue from `agent_query_rules`, else from the agent, else `default`; null if only its "
        "`cluster_queue_id` is known",
        PLAIN,
        derived(queue_of, "type", "agent_query_rules", "agent_meta_data", "cluster_queue_id"),
    ] = None
    queue_id: Annotated[
        str | None,
        "of a script job in a cluster: `cluster_queue_id`, else cluster and queue; separates queues of one key",
        PLAIN,
        derived(queue_id_of, "type", "agent_query_rules", "agent_meta_data", "cluster_queue_id", "cluster_id"),
    ] = None
    command: Annotated[str | None, "command that the agent runs", PLAIN] = None
    exit_status: Annotated[int | None, "exit status of the command; -1 if the agent was lost or killed", PLAIN] = None
    signal: Annotated[str | None, "signal that ended the command", PLAIN] = None
    signal_reason: Annotated[str | None, "why the signal was sent", PLAIN] = None
    promised_exit_status: Annotated[
        int | None, "exit status that the running job announced, so that its build fails early", PLAIN
    ] = None
    promised_exit_status_at: Annotated[Moment | None, "when it announced this exit status", PLAIN] = None
    broken_reason: Annotated[str | None, "of a broken job: why it was not run", PLAIN] = None
    soft_failed: Annotated[bool | None, "failed, but the build may still pass", PLAIN] = None
    timeout_in_minutes: Annotated[int | None, "time limit of the command", PLAIN] = None
    priority: Annotated[Priority | None, "priority", flat("number")] = None
    agent_query_rules: Annotated[list[str] | None, 'tags an agent needs, such as `["queue=default"]`', PLAIN] = None
    agent: Annotated[Agent | None, "agent", flat("name", "id", "hostname", "meta_data")] = None
    created_at: Annotated[Moment | None, "when it was added to the build", PLAIN] = None
    scheduled_at: Annotated[
        Moment | None, "when it was scheduled; copied from the build's creation, so unsuitable for queue time", PLAIN
    ] = None
    runnable_at: Annotated[Moment | None, "when it became available to agents", PLAIN] = None
    started_at: Annotated[Moment | None, "when an agent started it", PLAIN] = None
    finished_at: Annotated[Moment | None, "when it ended", PLAIN] = None
    expired_at: Annotated[Moment | None, "when it expired because no agent accepted it", PLAIN] = None
    concurrency_wait_time_ms: Annotated[
        int | None,
        "milliseconds that it waited for others of its concurrency group; null without a group, or if not known",
        PLAIN,
    ] = None
    retried: Annotated[bool | None, "whether another attempt followed", PLAIN] = None
    retried_in_job_id: Annotated[str | None, "id of the attempt that followed", PLAIN] = None
    retries_count: Annotated[int | None, "number of attempts before this one", PLAIN] = None
    retry_type: Annotated[
        str | None, "kind of retry that replaced this attempt: `automatic` or `manual`; see `retry_of_type`", PLAIN
    ] = None
    retry_source: Annotated[
        dict[str, Any] | None, "the attempt that this one repeats, and the kind of retry", PLAIN
    ] = None
    retried_by: Annotated[User | None, "who retried this attempt manually", flat("name", "id")] = None
    parallel_group_index: Annotated[int | None, "index among the parallel jobs of its step, from 0", PLAIN] = None
    parallel_group_total: Annotated[int | None, "number of parallel jobs of its step", PLAIN] = None
    matrix: Annotated[dict[str, Any] | None, "value of each matrix dimension", PLAIN] = None
    artifact_paths: Annotated[str | None, "patterns of the files to upload as artifacts", PLAIN] = None
    cluster_id: Annotated[str | None, "UUID of the cluster", PLAIN] = None
    cluster_url: Annotated[str | None, "API URL of the cluster", PLAIN] = None
    cluster_queue_id: Annotated[str | None, "UUID of the cluster's queue", PLAIN] = None
    cluster_queue_url: Annotated[str | None, "API URL of the cluster's queue", PLAIN] = None
    unblockable: Annotated[bool | None, "of a block step: whether it can be unblocked now", PLAIN] = None
    unblock_url: Annotated[str | None, "of a block step: API URL that unblocks it", PLAIN] = None
    unblocked_by: Annotated[User | None, "of a block step: who unblocked it", flat("name", "id")] = None
    unblocked_at: Annotated[Moment | None, "of a block step: when it was unblocked (its only time)", PLAIN] = None
    async_: Annotated[bool | None, "of a trigger step: whether the build goes on without waiting", PLAIN] = (
        msgspec.field(default=None, name="async")
    )
    triggered_build: Annotated[dict[str, Any] | None, "of a trigger step: the build that it started", PLAIN] = None
    web_url: Annotated[str | None, "web page", PLAIN] = None
    build_url: Annotated[str | None, "API URL of its build", PLAIN] = None
    artifacts_url: Annotated[str | None, "API URL of its artifacts", PLAIN] = None
    log_url: Annotated[str | None, "API URL of the log", PLAIN] = None
    raw_log_url: Annotated[str | None, "API URL of the log as plain text", PLAIN] = None


@keywords
class Unblocking(TypedDict, total=False):
    """Properties of an unblock request."""

    fields: Annotated[Mapping[str, str], "values of the fields of the step by key; they become meta-data of the build"]
    unblocker: Annotated[str, "UUID of the user who unblocks; by default the token's user", Check("uuid")]


@keywords
class JobFilters(TypedDict, total=False):
    """Filters of the list of jobs of a build."""

    state: Annotated[JobState | Sequence[JobState], "in any of these states", ALWAYS_LIST]
    include_retried_jobs: Annotated[bool, "all attempts of retried jobs, not only the last"]


_JOBS = "/organizations/{org}/pipelines/{pipeline}/builds/{number}/jobs"
_JOB = _JOBS + "/{job}"


@endpoint(f"GET {_JOBS}", returns=Job, scope="read_builds", enveloped=True, documented=False)
def list_build_jobs(org: Name, pipeline: Slug, number: int, /, **filters: Unpack[JobFilters]) -> None:
    """Jobs of a build, in pages."""


@endpoint(f"GET {_JOB}", returns=Job, scope="read_builds", key="id", documented=False)
def get_job(org: Name, pipeline: Slug, number: int, job: Uuid, /) -> None:
    """One job of a build by its UUID."""


@endpoint(f"PUT {_JOB}/retry", returns=Job, scope="write_builds", documented=False)
def retry_job(org: Name, pipeline: Slug, number: int, job: Uuid, /) -> None:
    """Repeat a job that failed or timed out; returns the new attempt, which has another id."""


@endpoint(f"PUT {_JOB}/unblock", returns=Job, scope="write_builds", key="id", documented=False)
def unblock_job(org: Name, pipeline: Slug, number: int, job: Uuid, /, **properties: Unpack[Unblocking]) -> None:
    """Unblock a block step: the path is that of its job's `unblock_url`. Returns the job."""
