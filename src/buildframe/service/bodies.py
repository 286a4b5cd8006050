"""What the service says of builds, jobs, agents, users and pipelines, as JSON-ready dictionaries.

Addresses start with `ORIGIN`, which is replaced when an answer is sent: the port is not known before.
"""

from __future__ import annotations

import base64
from typing import Any

from buildframe.service import stamps
from buildframe.service.chance import Chance
from buildframe.service.fleet import queue_of_agent
from buildframe.service.runs import BuildRun, JobRun
from buildframe.service.world import DAY, Line, Organization, Person, Step, World, lines_of

Body = dict[str, Any]

ORIGIN = "http://buildframe.invalid"

_SCHEDULED_BEFORE = 90_000
_YEARS_BEFORE = 4 * 365 * DAY
_KEYS_OF_NEWER_BUILDS = ("author", "cluster_id", "failing_at", "graphql_id", "tag", "blocked_state")
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

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = Chance(world.seed)
        self.lines = lines_of(world)
        self._of_steps = {
            (line.key, step.key): self._of_step(line, step)
            for line in self.lines.values()
            for step in line.steps.values()
        }

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
            "avatar_url": f"https://avatars.example.com/{id}",
            "created_at": stamps.modern(self._long_ago("user", id)),
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
        system = "darwin; arm64" if queue == "macos" else "linux; amd64"
        return short | {
            "graphql_id": graphql_id("Agent", short["id"]),
            "web_url": f"{ORIGIN}/organizations/{organization.slug}/agents/{short['id']}",
            "connection_state": "lost" if lost else "connected",
            "hostname": f"{name}.{organization.slug}.example.com",
            "ip_address": f"203.0.113.{1 + int(self.chance.number('ip', short['id']) * 254)}",
            "user_agent": f"buildframe-agent/3.2.1 ({system})",
            "creator": self.user(organization, organization.people[0]),
            "created_at": stamps.modern(self._long_ago("agent", short["id"])),
            "meta_data": [f"queue={queue}", f"os={system.split(';')[0]}"],
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
            "blocked": False,
            "blocked_state": "",
            "message": commit.message,
            "commit": commit.sha,
            "branch": commit.branch,
            "tag": f"v2.{build.number}.0" if commit.source == "api" and self._on_main(line, build) else None,
            "env": {"STARTED_BY": "release-bot"} if commit.source == "api" else {},
            "source": commit.source,
            "author": self._author(line, build),
            "creator": self._creator(line, build),
            "created_at": stamp(build.created),
            "scheduled_at": stamp(scheduled),
            "started_at": stamp(build.started),
            "failing_at": stamp(build.failing),
            "finished_at": stamp(build.finished),
            "meta_data": self.meta_data(build),
            "pull_request": self._pull_request(line, build),
            "rebuilt_from": self._rebuilt_from(line, build),
            "triggered_from": None,
            "cluster_id": self.cluster_id(line.organization),
        }
        return _without(body, _KEYS_OF_NEWER_BUILDS) if line.pipeline.old else body

    def build_url(self, line: Line, number: int) -> str:
        """API address of a build."""
        return f"{self.pipeline_url(line)}/builds/{number}"

    def pipeline_url(self, line: Line) -> str:
        """API address of a pipeline."""
        return f"{ORIGIN}/v2/organizations/{line.organization.slug}/pipelines/{line.pipeline.slug}"

    def _web_url(self, line: Line, number: int) -> str:
        return f"{ORIGIN}/{line.key}/builds/{number}"

    def _on_main(self, line: Line, build: BuildRun) -> bool:
        return build.commit.branch == line.pipeline.default_branch

    def meta_data(self, build: BuildRun) -> dict[str, str]:
        """What the steps of a build left on it."""
        if self._on_main(self.lines[build.line], build):
            return {"release": f"2026.{build.number}", "channel": "stable" if build.number % 5 == 0 else "edge"}
        return {"preview": build.commit.branch} if build.commit.pull_request else {}

    def creator_id(self, build: BuildRun) -> str | None:
        """UUID of the user who started a build, if it was one."""
        organization = self.lines[build.line].organization
        commit = build.commit
        return self.user_id(organization, organization.people[commit.person]) if commit.is_member else None

    def _creator(self, line: Line, build: BuildRun) -> Body | None:
        commit, organization = build.commit, line.organization
        return self.user(organization, organization.people[commit.person]) if commit.is_member else None

    def _author(self, line: Line, build: BuildRun) -> Body | str | None:
        person = line.organization.people[build.commit.person]
        shapes: dict[str, Body | str | None] = {
            "webhook": {"name": person.name, "email": person.email},
            "api": person.name,
            "ui": {},
        }
        return shapes.get(build.commit.source)

    def _pull_request(self, line: Line, build: BuildRun) -> Body | None:
        if self._on_main(line, build):
            return None
        if build.commit.pull_request is None:
            return {}
        return {
            "id": str(build.commit.pull_request),
            "base": line.pipeline.default_branch,
            "repository": repository(line),
            "labels": ["preview"] if build.commit.pull_request % 4 == 0 else [],
        }

    def _rebuilt_from(self, line: Line, build: BuildRun) -> Body | None:
        if build.rebuilt_from is None:
            return None
        id, number = build.rebuilt_from
        return {"id": id, "number": number, "url": self.build_url(line, number)}

    # --- jobs ---

    def job(self, build: BuildRun, job: JobRun) -> Body:
        """A job with its agent as lists have it."""
        line = self.lines[build.line]
        fixed = self._of_steps[build.line, job.step]
        if not fixed:
            return {"id": job.id, "type": "waiter"}
        stamp = stamps.old if line.pipeline.old else stamps.modern
        page = self._web_url(line, build.number)
        log = f"{self.build_url(line, build.number)}/jobs/{job.id}/log"
        step_id = self.chance.uuid("step", build.id, job.step)
        body = fixed | {
            "id": job.id,
            "graphql_id": graphql_id("Job", job.id),
            "step": {"id": step_id, "signature": self._signature(line, job.step, step_id)},
            "state": job.state,
            "web_url": f"{page}#{job.id}",
            "log_url": log,
            "raw_log_url": f"{log}.txt",
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
        return _without(body, _KEYS_OF_NEWER_JOBS) if line.pipeline.old else body

    def _signature(self, line: Line, step: str, step_id: str) -> Body | None:
        if line.steps[step].queue != "deploy":
            return None
        value = base64.urlsafe_b64encode(self.chance.sha("signature", step_id).encode()).decode()
        return {"value": value, "algorithm": "EdDSA", "signed_fields": ["command", "env", "matrix", "plugins"]}

    def cluster_id(self, organization: Organization) -> str:
        """UUID of an organization's only cluster."""
        return self.chance.uuid("cluster", organization.slug)

    def _of_step(self, line: Line, step: Step) -> Body:
        """What all jobs of a step have in common; empty for a wait step."""
        if step.kind == "waiter":
            return {}
        cluster, queue = self.cluster_id(line.organization), self.chance.uuid("queue", line.key, step.queue)
        cluster_url = f"{ORIGIN}/v2/organizations/{line.organization.slug}/clusters/{cluster}"
        body = {
            "type": "script",
            "name": step.label or None,
            "step_key": step.key,
            "group_key": step.group,
            "agent_query_rules": [] if step.queue == "default" else [f"queue={step.queue}"],
            "priority": {"number": step.priority},
            "command": step.command,
            "soft_failed": False,
            "artifact_paths": "reports/**/*" if step.group else "",
            "expired_at": None,
            "parallel_group_index": None,
            "parallel_group_total": None,
            "matrix": None,
            "cluster_id": cluster,
            "cluster_url": cluster_url,
            "cluster_queue_id": queue,
            "cluster_queue_url": f"{cluster_url}/queues/{queue}",
        }
        return body if step.group else _without(body, ("group_key",))


def repository(line: Line) -> str:
    """Address of a pipeline's repository."""
    return f"git@git.example.com:{line.organization.slug}/{line.pipeline.slug}.git"


def _without(body: Body, keys: tuple[str, ...]) -> Body:
    return {key: value for key, value in body.items() if key not in keys}
