"""What the service says of builds, jobs, agents, users and pipelines, as JSON-ready dictionaries.

Addresses start with `ORIGIN`, which is replaced when an answer is sent: the port is not known before.
"""

from __future__ import annotations

import base64
from typing import Any

from buildframe.service.data import stamps
from buildframe.service.life.fleet import queue_of_agent, tags_of
from buildframe.service.world.chance import Chance
from buildframe.service.world.lines import Line, Lines
from buildframe.service.world.model import DAY, Organization, Person, World
from buildframe.service.world.records import cluster_id
from buildframe.service.world.runs import BuildRun, JobRun, Link, User, Who
from buildframe.service.world.steps import ONLY_DIMENSION, Plan, Slot

Body = dict[str, Any]

ORIGIN = "http://buildframe.invalid"

_SCHEDULED_BEFORE = 90_000
_YEARS_BEFORE = 4 * 365 * DAY
_KEYS_OF_NEWER_BUILDS = ("author", "cluster_id", "failing_at", "graphql_id", "tag", "blocked_state")
_OF_CLUSTER = ("cluster_id", "cluster_url", "cluster_queue_id", "cluster_queue_url")
_KEYS_OF_NEWER_JOBS = (
    "graphql_id", "group_key", "priority", "signal", "signal_reason", "expired_at", "retry_source", "matrix",
    "parallel_group_index", "parallel_group_total", "cluster_id", "cluster_url", "cluster_queue_id",
    "cluster_queue_url", "step", "raw_log_url",
)  # fmt: skip


def graphql_id(kind: str, uuid: str) -> str:
    """An identifier as GraphQL has it."""
    return base64.b64encode(f"{kind}---{uuid}".encode()).decode()


class Bodies:
    """Writes a world's records the way the service sends them."""

    def __init__(self, world: World, lines: Lines) -> None:
        self.world, self.lines = world, lines
        self.chance = Chance(world.seed)
        self._of_plans: dict[tuple[str, str], dict[str, Body]] = {}

    # --- people and agents ---

    def user_id(self, organization: Organization, person: Person) -> str:
        """UUID of a person."""
        return self.chance.uuid("user", organization.slug, person.email)

    def user(self, organization: Organization, person: Person) -> Body:
        """A person as a user of the service."""
        id = self.user_id(organization, person)
        return {
            "id": id,
            "graphql_id": graphql_id("User", id),
            "name": person.name,
            "email": person.email,
            "avatar_url": f"{ORIGIN}/avatars/{id}.svg",
            "created_at": stamps.modern(self._long_ago("user", id)),
        }

    def whoever(self, organization: Organization, who: Who | None) -> Body | None:
        """Someone as a user of the service; nothing for nobody."""
        if who is None:
            return None
        return self._stranger(who) if isinstance(who, User) else self.user(organization, organization.people[who])

    def _stranger(self, user: User) -> Body:
        return {
            "id": user.id,
            "graphql_id": graphql_id("User", user.id),
            "name": user.name,
            "email": user.email,
            "avatar_url": f"{ORIGIN}/avatars/{user.id}.svg",
            "created_at": stamps.modern(user.created),
        }

    def _long_ago(self, *key: str) -> int:
        return self.world.start - int(self.chance.between(0.2, 1.0, *key, "created") * _YEARS_BEFORE)

    def agent(self, organization: Organization, name: str) -> Body:
        """An agent as lists name it."""
        id = self.chance.uuid("agent", organization.slug, name)
        return {"id": id, "url": f"{ORIGIN}/v2/organizations/{organization.slug}/agents/{id}", "name": name}

    def whole_agent(self, organization: Organization, name: str, lost: bool) -> Body:
        """An agent as a single build tells of it."""
        short = self.agent(organization, name)
        queue = queue_of_agent(name)
        tags = tags_of(queue)
        system = "darwin; arm64" if "os=darwin" in tags else "linux; amd64"
        return short | {
            "graphql_id": graphql_id("Agent", short["id"]),
            "web_url": f"{ORIGIN}/organizations/{organization.slug}/agents/{short['id']}",
            "connection_state": "lost" if lost else "connected",
            "hostname": f"{name}.{organization.slug}.example.com",
            "ip_address": f"203.0.113.{1 + int(self.chance.number('ip', short['id']) * 254)}",
            "user_agent": f"buildframe-agent/3.2.1 ({system})",
            "creator": self.user(organization, organization.people[0]),
            "created_at": stamps.modern(self._long_ago("agent", short["id"])),
            "meta_data": tags,
        }

    # --- builds ---

    def build(self, build: BuildRun) -> Body:
        """A build without its jobs and its pipeline."""
        line, commit = self.lines[build.line], build.commit
        stamp = stamps.old if line.pipeline.old else stamps.modern
        scheduled = build.created - int(self.chance.between(0.02, 1, build.id, "earlier") * _SCHEDULED_BEFORE)
        body = {
            "id": build.id,
            "graphql_id": graphql_id("Build", build.id),
            "url": self.build_url(line, build.number),
            "web_url": self._web_url(line, build.number),
            "number": build.number,
            "state": build.state,
            "cancel_reason": build.cancel_reason,
            "blocked": build.blocked,
            "blocked_state": build.state if build.blocked else "",
            "message": commit.message,
            "commit": commit.sha,
            "branch": commit.branch,
            "tag": commit.tag,
            "env": commit.env,
            "source": commit.source,
            "author": _author(build),
            "creator": self.whoever(line.organization, commit.creator),
            "created_at": stamp(build.created),
            "scheduled_at": stamp(scheduled),
            "started_at": stamp(build.started),
            "failing_at": stamp(build.failing),
            "finished_at": stamp(build.finished),
            "meta_data": commit.meta_data,
            "pull_request": self._pull_request(line, build),
            "rebuilt_from": self._rebuilt_from(line, build),
            "triggered_from": self._triggered_from(build),
            "cluster_id": line.pipeline.cluster_id,
        }
        return without(body, _KEYS_OF_NEWER_BUILDS) if line.pipeline.old else body

    def build_url(self, line: Line, number: int) -> str:
        """API address of a build."""
        return f"{self.pipeline_url(line)}/builds/{number}"

    def pipeline_url(self, line: Line) -> str:
        """API address of a pipeline."""
        return f"{ORIGIN}/v2/organizations/{line.organization.slug}/pipelines/{line.pipeline.slug}"

    def pipeline_id(self, line: Line) -> str:
        """UUID of a pipeline, which later changes leave as it is."""
        return self.chance.uuid("pipeline", line.key) if "/" in line.key else line.key

    def _web_url(self, line: Line, number: int) -> str:
        return f"{ORIGIN}/{line.path}/builds/{number}"

    def _on_main(self, line: Line, build: BuildRun) -> bool:
        return build.commit.branch == line.pipeline.default_branch

    def creator_id(self, build: BuildRun) -> str | None:
        """UUID of the user who started a build, if it was one."""
        organization, who = self.lines[build.line].organization, build.commit.creator
        if who is None:
            return None
        return who.id if isinstance(who, User) else self.user_id(organization, organization.people[who])

    def _pull_request(self, line: Line, build: BuildRun) -> Body | None:
        of = build.commit.pull_request
        if of is None:
            return None if self._on_main(line, build) else {}
        own = of.repository is None
        return {
            "id": str(of.id),
            "base": of.base,
            "repository": line.pipeline.repository if own else of.repository,
            "labels": list(of.labels),
        }

    def _triggered_from(self, build: BuildRun) -> Body | None:
        cause = build.triggered_from
        line = cause and self.lines.get(cause.build.line)
        if cause is None or not line:
            return None
        return {
            "build_id": cause.build.id,
            "build_number": cause.build.number,
            "build_pipeline_slug": line.pipeline.slug,
        }

    def _rebuilt_from(self, line: Line, build: BuildRun) -> Body | None:
        if build.rebuilt_from is None:
            return None
        id, number = build.rebuilt_from
        return {"id": id, "number": number, "url": self.build_url(line, number)}

    # --- jobs ---

    def job(self, build: BuildRun, job: JobRun) -> Body:
        """A job as lists have it; what it tells depends on its type."""
        line = self.lines[build.line]
        fixed = self._of_plan(line.organization, self.lines.plan(build.plan))[job.step]
        if fixed["type"] == "waiter":
            return {"id": job.id, "type": "waiter"}
        common = fixed | {
            "id": job.id,
            "graphql_id": graphql_id("Job", job.id),
            "state": job.state,
            "web_url": f"{self._web_url(line, build.number)}#{job.id}",
        }
        tell = {"script": self._script, "manual": self._manual, "trigger": self._trigger}[fixed["type"]]
        body = common | tell(line, build, job, fixed)
        return without(body, _KEYS_OF_NEWER_JOBS) if line.pipeline.old else body

    def _manual(self, line: Line, build: BuildRun, job: JobRun, _: Body) -> Body:
        stamp = stamps.old if line.pipeline.old else stamps.modern
        return {
            "unblockable": job.state == "blocked",
            "unblock_url": f"{self.build_url(line, build.number)}/jobs/{job.id}/unblock",
            "unblocked_by": self.whoever(line.organization, job.unblocked_by),
            "unblocked_at": stamp(job.unblocked_at),
        }

    def _trigger(self, line: Line, build: BuildRun, job: JobRun, _: Body) -> Body:
        stamp = stamps.old if line.pipeline.old else stamps.modern
        return {
            "triggered_build": self._triggered_build(job.triggered),
            "created_at": stamp(job.created),
            "scheduled_at": stamp(build.created),
            "runnable_at": stamp(job.runnable),
            "finished_at": stamp(job.finished),
        }

    def _triggered_build(self, link: Link | None) -> Body | None:
        line = link and self.lines.get(link.line)
        if link is None or not line:
            return None
        return {
            "id": link.id,
            "number": link.number,
            "url": self.build_url(line, link.number),
            "web_url": self._web_url(line, link.number),
        }

    def _script(self, line: Line, build: BuildRun, job: JobRun, fixed: Body) -> Body:
        stamp = stamps.old if line.pipeline.old else stamps.modern
        log = f"{self.build_url(line, build.number)}/jobs/{job.id}/log"
        step_id = self.chance.uuid("step", build.id, job.step)
        nowhere = dict.fromkeys(_OF_CLUSTER) if line.pipeline.cluster_id is None else {}
        return nowhere | {
            "step": {"id": step_id, "signature": self._signature(fixed, step_id)},
            "log_url": log,
            "raw_log_url": f"{log}.txt",
            "soft_failed": job.soft_failed,
            "exit_status": job.exit_status,
            "signal": "SIGTERM" if job.signal_reason == "cancel" else None,
            "signal_reason": job.signal_reason,
            "agent": self.agent(line.organization, job.agent) if job.agent else None,
            "created_at": stamp(job.created),
            "scheduled_at": stamp(build.created),
            "runnable_at": stamp(job.runnable),
            "started_at": stamp(job.started),
            "finished_at": stamp(job.finished),
            "retried": job.retried_in is not None,
            "retried_in_job_id": job.retried_in,
            "retries_count": job.attempt or None,
            "retry_type": job.retry_type,
            "retry_source": {"job_id": job.retry_of, "retry_type": job.retry_type} if job.retry_of else None,
        }

    def _signature(self, fixed: Body, step_id: str) -> Body | None:
        if "queue=deploy" not in fixed["agent_query_rules"]:
            return None
        value = base64.urlsafe_b64encode(self.chance.sha("signature", step_id).encode()).decode()
        return {"value": value, "algorithm": "EdDSA", "signed_fields": ["command", "env", "matrix", "plugins"]}

    def cluster_id(self, organization: Organization) -> str:
        """UUID of an organization's only cluster."""
        return cluster_id(self.chance, organization.slug)

    def queue_id(self, organization: Organization, queue: str) -> str:
        """UUID of a queue of that cluster."""
        return self.chance.uuid("queue", organization.slug, queue)

    def _of_plan(self, organization: Organization, plan: Plan) -> dict[str, Body]:
        """What all jobs of each slot of a plan have in common."""
        key = organization.slug, plan.key
        if key not in self._of_plans:
            self._of_plans[key] = {slot.id: self._of_slot(organization, slot) for slot in plan.slots.values()}
        return self._of_plans[key]

    def _of_slot(self, organization: Organization, slot: Slot) -> Body:
        """What all jobs of a slot have in common."""
        step = slot.step
        if step.kind == "script":
            return self._of_script(organization, slot)
        if step.kind == "manual":
            return {"type": "manual", "label": step.label, "step_key": step.key}
        if step.kind == "trigger":
            is_async = step.trigger is not None and step.trigger.is_async
            return {"type": "trigger", "name": step.label or None, "step_key": step.key, "async": is_async}
        return {"type": "waiter"}

    def _of_script(self, organization: Organization, slot: Slot) -> Body:
        step = slot.step
        cluster = self.cluster_id(organization)
        queue = self.queue_id(organization, step.queue) if step.queue in organization.agents else None
        cluster_url = f"{ORIGIN}/v2/organizations/{organization.slug}/clusters/{cluster}"
        asked = [] if step.queue == "default" else [f"queue={step.queue}"]
        body = {
            "type": "script",
            "name": _filled(step.label, slot) or None,
            "step_key": step.key,
            "group_key": step.group,
            "agent_query_rules": [*asked, *step.agent_query_rules],
            "priority": {"number": step.priority},
            "command": _filled(step.command, slot),
            "artifact_paths": step.artifact_paths,
            "expired_at": None,
            "parallel_group_index": slot.index,
            "parallel_group_total": slot.total,
            "matrix": slot.matrix,
            "cluster_id": cluster,
            "cluster_url": cluster_url,
            "cluster_queue_id": queue,
            "cluster_queue_url": f"{cluster_url}/queues/{queue}" if queue else None,
        }
        return body if step.group else without(body, ("group_key",))


def _filled(text: str, slot: Slot) -> str:
    """A label or command with the values of its slot in place of their names."""
    if slot.index is not None and slot.total is not None:
        text = text.replace("%n", str(slot.index + 1)).replace("%t", str(slot.total))
    for dimension, value in (slot.matrix or {}).items():
        whole = "matrix" if dimension == ONLY_DIMENSION else f"matrix.{dimension}"
        text = text.replace("{{" + whole + "}}", value)
    return text


def _author(build: BuildRun) -> Body | str | None:
    author = build.commit.author
    if isinstance(author, tuple):
        return {"name": author[0], "email": author[1]}
    return {} if author is None and build.commit.source == "ui" else author


def without(body: Body, keys: tuple[str, ...]) -> Body:
    """A body less some keys."""
    return {key: value for key, value in body.items() if key not in keys}
