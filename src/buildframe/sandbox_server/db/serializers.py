"""Serialize builds, jobs, agents and users to JSON-ready dictionaries, as the REST API shows them.

URLs begin with `ORIGIN`, which is replaced in each response, because the port is not known before. Does not know SQL.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
from collections import Counter
from typing import Any

from buildframe.sandbox_server.world.build_state import (
    AGENT_LOST,
    Actor,
    BuildRun,
    Commit,
    JobRun,
    TokenUser,
    TriggerCause,
)
from buildframe.sandbox_server.world.hashed_random import SeededRandom
from buildframe.sandbox_server.world.model import DAY, Organization, Suite, World, agent_tags, queue_of_agent
from buildframe.sandbox_server.world.pipeline_settings import cluster_id
from buildframe.sandbox_server.world.pipelines import PipelineEntry, PipelineRegistry
from buildframe.sandbox_server.world.steps import ONLY_DIMENSION, Plan, Slot

JsonObject = dict[str, Any]

ORIGIN = "http://buildframe.invalid"

_SCHEDULED_BEFORE = 90_000
_PROMISED = 0.1
"""Share of failed jobs that announce their exit status while they run."""

_BROKEN = "The branch filter of the step excludes the branch of the build."
_AGENT_VERSION = "3.2.1"
_YEARS_BEFORE = 4 * 365 * DAY
_NOT_IN_LEGACY_BUILDS = (
    "author", "cluster_id", "cluster_url", "failing_at", "graphql_id", "job_state_counts", "merge_queue", "tag",
    "blocked_state",
)  # fmt: skip
_CLUSTER_KEYS = ("cluster_id", "cluster_url", "cluster_queue_id", "cluster_queue_url")
_NOT_IN_LEGACY_JOBS = (
    "graphql_id", "group_key", "priority", "signal", "signal_reason", "expired_at", "retry_source", "matrix",
    "parallel_group_index", "parallel_group_total", "step", "raw_log_url", *_CLUSTER_KEYS, "artifacts_url",
    "broken_reason", "build_url", "concurrency_wait_time_ms", "promised_exit_status", "promised_exit_status_at",
    "retried_by", "timeout_in_minutes",
)  # fmt: skip

_UNUSUAL_SHARE = 0.3
_CRASHED = ((139, "SIGSEGV", None), (134, "SIGABRT", None), (137, "SIGKILL", None))
_LOST = ((-1, None, "agent_stop"), (1, None, "stack_error"), (1, None, "agent_refused"))
"""Exit status, signal and reason of failures in an odd world: of commands, and of lost agents."""


def graphql_id(kind: str, uuid: str) -> str:
    """Return the GraphQL ID of an object."""
    return base64.b64encode(f"{kind}---{uuid}".encode()).decode()


@functools.lru_cache(1000)  # jobs of a build have the same times
def format_time(timestamp: int | None, legacy: bool = False) -> str | None:
    """Format a timestamp such as `2026-10-01T09:30:00.123Z`, or `2013-09-03 13:24:38 UTC` of a legacy record."""
    if timestamp is None:
        return None
    minute, rest = divmod(timestamp // 1000, 60_000)
    seconds = f"{_format_minute(minute)}:{rest // 1000:02}"
    return f"{seconds.replace('T', ' ')} UTC" if legacy else f"{seconds}.{rest % 1000:03}Z"


@functools.lru_cache(10_000)
def _format_minute(minute: int) -> str:
    return dt.datetime.fromtimestamp(60 * minute, dt.UTC).isoformat()[:16]


class Serializer:
    """Serializes the records of a world."""

    def __init__(self, world: World, entries: PipelineRegistry) -> None:
        self.world, self.pipelines = world, entries
        self.random = SeededRandom(world.seed)
        self._slot_fields: dict[tuple[str, str], dict[str, JsonObject]] = {}

    def find_user(self, organization: Organization, who: Actor) -> TokenUser:
        """Return a member of an organization as a user; any other user is returned as it is."""
        if not isinstance(who, int):
            return who
        person = organization.people[who]
        id = self.random.uuid("user", organization.slug, person.email)
        return TokenUser(id, person.name, person.email, self._long_ago("user", id))

    def serialize_user(self, organization: Organization, who: Actor | None) -> JsonObject | None:
        """Serialize a user; None for nobody."""
        if who is None:
            return None
        user = self.find_user(organization, who)
        return {
            "id": user.id,
            "graphql_id": graphql_id("User", user.id),
            "name": user.name,
            "email": user.email,
            "avatar_url": f"{ORIGIN}/avatars/{user.id}.svg",
            "created_at": format_time(user.created),
        }

    def _long_ago(self, *key: str) -> int:
        return self.world.start - int(self.random.uniform_between(0.2, 1.0, *key, "created") * _YEARS_BEFORE)

    def serialize_agent(self, organization: Organization, name: str) -> JsonObject:
        """Serialize an agent in the short form of lists."""
        id = self.random.uuid("agent", organization.slug, name)
        return {"id": id, "url": f"{ORIGIN}/v2/organizations/{organization.slug}/agents/{id}", "name": name}

    def serialize_full_agent(self, organization: Organization, name: str, lost: bool = False) -> JsonObject:
        """Serialize an agent in the full form of single builds."""
        short = self.serialize_agent(organization, name)
        queue = queue_of_agent(name)
        tags = agent_tags(queue)
        system = "darwin; arm64" if "os=darwin" in tags else "linux; amd64"
        return short | {
            "graphql_id": graphql_id("Agent", short["id"]),
            "web_url": f"{ORIGIN}/organizations/{organization.slug}/agents/{short['id']}",
            "connection_state": "lost" if lost else "connected",
            "hostname": f"{name}.{organization.slug}.example.com",
            "ip_address": f"203.0.113.{1 + int(self.random.uniform('ip', short['id']) * 254)}",
            "user_agent": f"buildframe-agent/{_AGENT_VERSION} ({system})",
            "version": _AGENT_VERSION,
            "priority": 0,
            "creator": self.serialize_user(organization, 0),
            "created_at": format_time(self._long_ago("agent", short["id"])),
            "meta_data": tags,
        }

    def serialize_build(self, build: BuildRun) -> JsonObject:
        """Serialize a build without its jobs and its pipeline."""
        entry, commit = self.pipelines[build.pipeline_key], build.commit
        scheduled = build.created - int(self.random.uniform_between(0.02, 1, build.id, "earlier") * _SCHEDULED_BEFORE)
        legacy = self._is_legacy(entry)
        body = {
            "id": build.id,
            "graphql_id": graphql_id("Build", build.id),
            "url": self.build_url(entry, build.number),
            "web_url": self._web_url(entry, build.number),
            "number": build.number,
            "state": build.state,
            "cancel_reason": build.cancel_reason,
            "blocked": build.blocked,
            "blocked_state": build.state if build.blocked else "",
            "commit": commit.sha,
            "message": commit.message,
            "branch": commit.branch,
            "tag": commit.tag,
            "env": commit.env,
            "source": commit.source,
            "meta_data": commit.meta_data,
            "author": self._author(commit),
            "creator": self.serialize_user(entry.organization, commit.creator),
            "scheduled_at": format_time(scheduled, legacy),
            "created_at": format_time(build.created, legacy),
            "started_at": format_time(build.started, legacy),
            "failing_at": format_time(build.failing, legacy),
            "finished_at": format_time(build.finished, legacy),
            "pull_request": self._pull_request(entry, commit),
            "rebuilt_from": self._build_reference(entry, *build.rebuilt_from) if build.rebuilt_from else None,
            "triggered_from": self._triggered_from(build.triggered_from),
            "cluster_id": entry.pipeline.cluster_id,
            "cluster_url": self._cluster_url(entry),
            "merge_queue": None,
            "job_state_counts": self._count_jobs(build),
        }
        return drop_keys(body, _NOT_IN_LEGACY_BUILDS) if legacy else body

    def _is_legacy(self, entry: PipelineEntry) -> bool:
        """Return whether builds of a pipeline have the format of old records."""
        return entry.pipeline.legacy and self.world.is_odd

    def _author(self, commit: Commit) -> JsonObject | str | None:
        """Serialize the author of a commit: an object or null.

        In an odd world it may also be text, or an empty object.
        """
        if isinstance(commit.author, tuple):
            name, email = commit.author
            return {"name": name, "email": email}
        if self.world.is_odd and commit.author is None and commit.source == "ui":
            return {}
        return commit.author

    def _cluster_url(self, entry: PipelineEntry) -> str | None:
        if entry.pipeline.cluster_id is None:
            return None
        return f"{ORIGIN}/v2/organizations/{entry.organization.slug}/clusters/{entry.pipeline.cluster_id}"

    def _count_jobs(self, build: BuildRun) -> dict[str, int]:
        """Return the number of jobs in each state.

        Last attempts count. Wait steps have no state.
        """
        slots = self.pipelines.plans[build.plan].slots
        jobs = (job for job in build.jobs if job.retried_in is None)
        return dict(Counter(self.state_of_job(build, job) for job in jobs if slots[job.step].step.kind != "waiter"))

    def build_url(self, entry: PipelineEntry, number: int) -> str:
        """Return the API URL of a build."""
        return f"{self.pipeline_url(entry)}/builds/{number}"

    def pipeline_url(self, entry: PipelineEntry) -> str:
        """Return the API URL of a pipeline."""
        return f"{ORIGIN}/v2/organizations/{entry.organization.slug}/pipelines/{entry.pipeline.slug}"

    def pipeline_id(self, entry: PipelineEntry) -> str:
        """Return the UUID of a pipeline, which does not change when its slug does."""
        return self.random.uuid("pipeline", entry.key) if "/" in entry.key else entry.key

    def _web_url(self, entry: PipelineEntry, number: int) -> str:
        return f"{ORIGIN}/{entry.path}/builds/{number}"

    def _build_reference(self, entry: PipelineEntry, id: str, number: int) -> JsonObject:
        return {"id": id, "number": number, "url": self.build_url(entry, number)}

    def _triggered_from(self, cause: TriggerCause | None) -> JsonObject | None:
        entry = self.pipelines.get(cause.build.pipeline_key) if cause else None
        if cause is None or entry is None:
            return None
        build = {"build_id": cause.build.id, "build_number": cause.build.number}
        return build | {"build_pipeline_slug": entry.pipeline.slug}

    def _pull_request(self, entry: PipelineEntry, commit: Commit) -> JsonObject | None:
        pull_request = commit.pull_request
        if pull_request is None:
            return None if commit.branch == entry.pipeline.default_branch else {}
        own = pull_request.repository is None
        return {
            "id": str(pull_request.id),
            "base": pull_request.base,
            "repository": entry.pipeline.repository if own else pull_request.repository,
            "labels": list(pull_request.labels),
        }

    def serialize_job(self, build: BuildRun, job: JobRun) -> JsonObject:
        """Serialize a job; its fields depend on its type."""
        entry = self.pipelines[build.pipeline_key]
        fixed = self._fields_by_slot(entry.organization, self.pipelines.plans[build.plan])[job.step]
        if fixed["type"] == "waiter":
            return {"id": job.id, "type": "waiter"}
        serialize = {"script": self._script, "manual": self._manual, "trigger": self._trigger}[fixed["type"]]
        body = {
            **fixed,
            "id": job.id,
            "graphql_id": graphql_id("Job", job.id),
            "state": self.state_of_job(build, job),
            "web_url": f"{self._web_url(entry, build.number)}#{job.id}",
            "build_url": self.build_url(entry, build.number),
            **serialize(entry, build, job, fixed),
        }
        return drop_keys(body, _NOT_IN_LEGACY_JOBS) if self._is_legacy(entry) else body

    def _manual(self, entry: PipelineEntry, build: BuildRun, job: JobRun, _: JsonObject) -> JsonObject:
        return {
            "unblockable": job.state == "blocked",
            "unblock_url": f"{self.build_url(entry, build.number)}/jobs/{job.id}/unblock",
            "unblocked_by": self.serialize_user(entry.organization, job.unblocked_by),
            "unblocked_at": format_time(job.unblocked_at, self._is_legacy(entry)),
        }

    def _trigger(self, entry: PipelineEntry, build: BuildRun, job: JobRun, _: JsonObject) -> JsonObject:
        legacy = self._is_legacy(entry)
        link = job.triggered
        triggered = None
        target = self.pipelines.get(link.pipeline_key) if link else None
        if link and target:
            web_url = self._web_url(target, link.number)
            triggered = self._build_reference(target, link.id, link.number) | {"web_url": web_url}
        return {
            "triggered_build": triggered,
            "scheduled_at": format_time(build.created, legacy),
            "created_at": format_time(job.created, legacy),
            "runnable_at": format_time(job.runnable, legacy),
            "started_at": format_time(job.runnable if job.triggered else None, legacy),
            **self._end(build, job, legacy),
        }

    def state_of_job(self, build: BuildRun, job: JobRun) -> str:
        """Return the state of a job as responses have it: some canceled jobs have expired."""
        return "expired" if self._has_expired(build, job) else job.state

    def _end(self, build: BuildRun, job: JobRun, legacy: bool) -> JsonObject:
        """Return the times at which a job ended.

        For some canceled jobs only the state, or `expired_at`, says it.
        """
        end = format_time(job.finished, legacy)
        if not self._has_no_end(job):
            return {"finished_at": end}
        says_when = self._has_expired(build, job) and self.random.happens(0.5, job.id, "says when")
        return {"finished_at": None, "expired_at": end if says_when else None}

    def _has_no_end(self, job: JobRun) -> bool:
        share = self.world.no_end_share if job.state == "canceled" else 0.0
        return share > 0 and self.random.happens(share, job.id, "has no end")

    def _has_expired(self, build: BuildRun, job: JobRun) -> bool:
        """Whether a job waited for an agent until it expired. Other steps do not wait for one."""
        if not self._has_no_end(job) or job.runnable is None or job.started is not None:
            return False
        is_script = self.pipelines.plans[build.plan].slots[job.step].step.kind == "script"
        return is_script and self.random.happens(0.5, job.id, "has expired")

    def _script(self, entry: PipelineEntry, build: BuildRun, job: JobRun, fixed: JsonObject) -> JsonObject:
        url = f"{self.build_url(entry, build.number)}/jobs/{job.id}"
        legacy = self._is_legacy(entry)
        slot = self.pipelines.plans[build.plan].slots[job.step]
        step_id = self.random.uuid("step", build.id, slot.step.key)
        signature = None
        if "queue=deploy" in fixed["agent_query_rules"]:
            value = base64.urlsafe_b64encode(self.random.sha("signature", step_id).encode()).decode()
            signature = {"value": value, "algorithm": "EdDSA", "signed_fields": ["command", "env", "matrix", "plugins"]}
        return self._cluster_fields(entry, slot.step.queue) | {
            "step": {"id": step_id, "signature": signature},
            "log_url": f"{url}/log",
            "raw_log_url": f"{url}/log.txt",
            "artifacts_url": f"{url}/artifacts",
            "soft_failed": job.soft_failed,
            **self._end_of_command(job),
            "agent": self.serialize_agent(entry.organization, job.agent) if job.agent else None,
            "scheduled_at": format_time(build.created, legacy),
            "created_at": format_time(job.created, legacy),
            "runnable_at": format_time(job.runnable, legacy),
            "started_at": format_time(job.started, legacy),
            **self._end(build, job, legacy),
            "retried": job.retried_in is not None,
            "retried_in_job_id": job.retried_in,
            "retries_count": job.attempt or None,
            "retried_by": self.serialize_user(entry.organization, job.retried_by),
            "broken_reason": _BROKEN if job.state == "broken" else None,
            "concurrency_wait_time_ms": None,
            **self._promise(job, legacy),
            **self._retries(build, job, legacy),
        }

    def _promise(self, job: JobRun, legacy: bool) -> JsonObject:
        """Return the fields of the exit status that a job announced before it failed, if it did."""
        if job.state != "failed" or job.started is None or job.finished is None or not job.exit_status:
            return {}
        if job.exit_status < 0 or not self.random.happens(_PROMISED, job.id, "promises"):
            return {}
        share = self.random.uniform_between(0.5, 0.9, job.id, "promised")
        at = job.started + int(share * (job.finished - job.started))
        return {"promised_exit_status": job.exit_status, "promised_exit_status_at": format_time(at, legacy)}

    def _end_of_command(self, job: JobRun) -> JsonObject:
        """Serialize how a command ended.

        In an odd world some failures have a signal, or a reason without status -1.
        """
        reason = None if job.signal_reason == AGENT_LOST else job.signal_reason
        shape = (job.exit_status, "SIGTERM" if reason == "cancel" else None, reason)
        if self.world.is_odd and job.state == "failed" and reason is None:
            unusual = _LOST if job.signal_reason == AGENT_LOST else _CRASHED
            if self.random.happens(_UNUSUAL_SHARE, job.id, "ends unusually"):
                shape = self.random.choice(unusual, job.id, "how it ends")
        return dict(zip(("exit_status", "signal", "signal_reason"), shape, strict=True))

    def _retries(self, build: BuildRun, job: JobRun, legacy: bool) -> JsonObject:
        """Serialize the retry that made a job, and the one that replaced it.

        In an odd world one of them may be missing.

        `retry_type` is the kind of retry performed on this job. Earlier versions had there the kind
        that made it.
        """
        replaced_by = build.job(job.retried_in).retry_type if job.retried_in else None
        source = {"job_id": job.retry_of, "retry_type": job.retry_type} if job.retry_of else None
        shapes = {
            "documented": (replaced_by, source),
            "source": (None, source),
            "type": (replaced_by, None),
            "earlier": (job.retry_type, source),
        }
        name = "documented"
        if self.world.is_odd and not legacy:  # legacy jobs have no `retry_source`
            name = self.random.choice([*shapes], build.id, "shape of retries")
        return dict(zip(("retry_type", "retry_source"), shapes[name], strict=True))

    def queue_id(self, organization: Organization, cluster: str, queue: str) -> str:
        """Return the UUID of a queue in a cluster of an organization."""
        is_first = cluster == cluster_id(self.random, organization.slug)
        return self.random.uuid("queue", organization.slug if is_first else cluster, queue)

    def suite_id(self, organization: Organization, suite: Suite) -> str:
        """Return the UUID of a test suite."""
        return self.random.uuid("suite", organization.slug, suite.slug)

    def run_id(self, suite: Suite, build: BuildRun) -> str:
        """Return the UUID of the run of a test suite in a build."""
        return self.random.uuid("run", suite.slug, build.id)

    def _cluster_fields(self, entry: PipelineEntry, queue: str) -> JsonObject:
        """Return the fields of a job's cluster and queue, null if the pipeline is in no cluster."""
        cluster = entry.pipeline.cluster_id
        url = self._cluster_url(entry)
        if cluster is None:
            return dict.fromkeys(_CLUSTER_KEYS)
        id = self.queue_id(entry.organization, cluster, queue) if queue in entry.organization.agents else None
        queue_url = f"{url}/queues/{id}" if id else None
        return dict(zip(_CLUSTER_KEYS, (cluster, url, id, queue_url), strict=True))

    def _fields_by_slot(self, organization: Organization, plan: Plan) -> dict[str, JsonObject]:
        """Return the fields that all jobs of a slot share, by slot id."""
        key = organization.slug, plan.key
        if key not in self._slot_fields:
            self._slot_fields[key] = {slot.id: self._fields_of_slot(organization, slot) for slot in plan.slots.values()}
        return self._slot_fields[key]

    def _fields_of_slot(self, organization: Organization, slot: Slot) -> JsonObject:
        step = slot.step
        step_key = step.key if step.has_key else None
        if step.kind == "waiter":
            return {"type": "waiter"}
        if step.kind == "manual":
            return {"type": "manual", "label": step.label, "step_key": step_key}
        if step.kind == "trigger":
            is_async = step.trigger is not None and step.trigger.is_async
            return {"type": "trigger", "name": step.label or None, "step_key": step_key, "async": is_async}
        return {
            "type": "script",
            "name": _fill_placeholders(step.label, slot) or None,
            "step_key": step_key,
            **({"group_key": step.group} if step.group else {}),
            "agent_query_rules": _with_queue(step.rules),
            "priority": {"number": step.priority},
            "command": _fill_placeholders(step.command, slot),
            "artifact_paths": step.artifact_paths,
            "timeout_in_minutes": step.timeout_in_minutes,
            "expired_at": None,
            "parallel_group_index": slot.index,
            "parallel_group_total": slot.total,
            "matrix": slot.matrix,
        }


def _with_queue(rules: tuple[str, ...]) -> list[str]:
    """Return the agent query rules of a job, which name its queue, also if the step names none."""
    return [*rules] if any(rule.startswith("queue=") for rule in rules) else ["queue=default", *rules]


def _fill_placeholders(text: str, slot: Slot) -> str:
    """Replace the placeholders of a label or command with the values of a slot."""
    if slot.index is not None and slot.total is not None:
        text = text.replace("%n", str(slot.index + 1)).replace("%t", str(slot.total))
    for dimension, value in (slot.matrix or {}).items():
        whole = "matrix" if dimension == ONLY_DIMENSION else f"matrix.{dimension}"
        text = text.replace("{{" + whole + "}}", value)
    return text


def drop_keys(body: JsonObject, keys: tuple[str, ...]) -> JsonObject:
    """Return a copy of a body without some keys."""
    return {key: value for key, value in body.items() if key not in keys}
