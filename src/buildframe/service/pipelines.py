"""Pipelines as the service tells of them: whole, and smaller inside builds."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]  # its stubs are not among our tools

from buildframe.service import stamps
from buildframe.service.access import Access
from buildframe.service.bodies import ORIGIN, Body, graphql_id, repository
from buildframe.service.data import Data
from buildframe.service.world import DAY, Line, Step

_OLD_PIPELINE_MADE = 1_378_214_678 * 1_000_000  # 2013-09-03
_ONLY_WHOLE = ("description", "tags", "steps")
_RUNNING_BUILDS = ("running", "failing", "canceling")
_RUNNING_JOBS = ("assigned", "running", "canceling")


class Pipelines:
    """Tells of the pipelines of the data."""

    def __init__(self, data: Data) -> None:
        self._data, self._bodies = data, data.bodies
        self._fixed = {line.key: self._of_line(line) for line in self._bodies.lines.values()}

    def whole(self, line: Line, access: Access) -> bytes:
        """A pipeline as its own answer."""
        return msgspec.json.encode(self._seen_by(line, access))

    def embedded(self, line: Line, access: Access) -> bytes:
        """A pipeline as builds carry it."""
        seen = self._seen_by(line, access)
        return msgspec.json.encode({key: value for key, value in seen.items() if key not in _ONLY_WHOLE})

    def _seen_by(self, line: Line, access: Access) -> Body:
        body: Body = self._fixed[line.key] | self._counts(line)
        if "write_pipelines" in access.scopes:
            return body
        return body | {"provider": body["provider"] | {"webhook_url": ""}}

    def _counts(self, line: Line) -> Body:
        of_builds = "SELECT state, count(*) FROM builds WHERE over = 0 AND line = ? GROUP BY state"
        of_jobs = "SELECT state, count(*) FROM jobs WHERE active = 1 AND line = ? GROUP BY state"
        builds: dict[str, int] = dict(self._data.rows(of_builds, (line.key,)))
        jobs: dict[str, int] = dict(self._data.rows(of_jobs, (line.key,)))
        return {
            "scheduled_builds_count": builds.get("scheduled", 0),
            "running_builds_count": sum(builds.get(state, 0) for state in _RUNNING_BUILDS),
            "scheduled_jobs_count": jobs.get("scheduled", 0),
            "running_jobs_count": sum(jobs.get(state, 0) for state in _RUNNING_JOBS),
            "waiting_jobs_count": jobs.get("waiting", 0),
        }

    def _of_line(self, line: Line) -> Body:
        pipeline, slug, chance = line.pipeline, line.organization.slug, self._bodies.chance
        id = chance.uuid("pipeline", line.key)
        url = self._bodies.pipeline_url(line)
        made = self._bodies.world.start - int(chance.between(100, 900, id, "made") * DAY)
        return {
            "id": id,
            "graphql_id": graphql_id("Pipeline", id),
            "url": url,
            "web_url": f"{ORIGIN}/{line.key}",
            "builds_url": f"{url}/builds",
            "badge_url": f"{ORIGIN}/badges/{chance.sha('badge', id)}.svg",
            "name": pipeline.name,
            "slug": pipeline.slug,
            "description": pipeline.description,
            "repository": repository(line),
            "cluster_id": self._bodies.cluster_id(line.organization),
            "pipeline_template_uuid": chance.uuid("template", slug) if pipeline.nightly_hour is not None else None,
            "branch_configuration": "main feature/* fix/* dev/*" if pipeline.cancels_running else None,
            "default_branch": pipeline.default_branch,
            "provider": _provider(line, chance.sha("webhook", id)),
            "skip_queued_branch_builds": False,
            "skip_queued_branch_builds_filter": f"!{pipeline.default_branch}" if pipeline.old else None,
            "cancel_running_branch_builds": pipeline.cancels_running,
            "cancel_running_branch_builds_filter": f"!{pipeline.default_branch}" if pipeline.cancels_running else None,
            "allow_rebuilds": True,
            "created_by": self._bodies.user(line.organization, line.organization.people[0]),
            "created_at": stamps.old(_OLD_PIPELINE_MADE) if pipeline.old else stamps.modern(made),
            "archived_at": None,
            "env": {"TZ": "UTC"} if pipeline.old else {},
            "tags": None if pipeline.tags is None else list(pipeline.tags),
            "configuration": configuration(line),
            "steps": [_step(step) for step in pipeline.steps],
            "visibility": pipeline.visibility,
        }


def _provider(line: Line, secret: str) -> Body:
    own_host = line.pipeline.old
    return {
        "id": "private" if own_host else "github",
        "webhook_url": f"{ORIGIN}/deliver/{secret}",
        "settings": {"repository": line.key} | _EVERY_HOST | ({} if own_host else _HOSTED),
    }


_EVERY_HOST: Body = {
    "filter_enabled": False,
    "filter_condition": "",
    "build_branches": True,
    "build_pull_requests": True,
    "build_tags": False,
}
_HOSTED: Body = {
    "trigger_mode": "code",
    "cancel_deleted_branch_builds": False,
    "publish_commit_status": True,
    "publish_commit_status_per_step": False,
    "pull_request_branch_filter_enabled": False,
    "pull_request_branch_filter_configuration": "",
    "skip_builds_for_existing_commits": False,
    "skip_pull_request_builds_for_existing_commits": True,
    "build_pull_request_forks": False,
    "build_pull_request_labels_changed": False,
    "build_pull_request_ready_for_review": False,
    "prefix_pull_request_fork_branch_names": True,
    "publish_blocked_as_pending": False,
    "separate_pull_request_statuses": False,
}


def _step(step: Step) -> Body:
    if step.kind == "waiter":
        return {"type": "waiter"}
    return {
        "type": "script",
        "name": step.label or None,
        "command": step.command,
        "artifact_paths": "reports/**/*" if step.group else "",
        "branch_configuration": step.only_branch or "",
        "env": {},
        "timeout_in_minutes": None,
        "agent_query_rules": [] if step.queue == "default" else [f"queue={step.queue}"],
        "concurrency": None,
        "parallelism": None,
    }


def configuration(line: Line) -> str:
    """The steps that the first job uploads, as YAML."""
    steps = ["wait" if step.kind == "waiter" else _configured(step) for step in line.pipeline.steps[1:]]
    text: str = yaml.safe_dump({"steps": steps}, sort_keys=False, allow_unicode=True)
    return text


def _configured(step: Step) -> dict[str, Any]:
    keys: dict[str, Any] = {"key": step.key, "label": step.label, "command": step.command}
    keys["depends_on"] = list(step.needs)
    keys["agents"] = {"queue": step.queue} if step.queue != "default" else None
    keys["branches"], keys["priority"] = step.only_branch, step.priority
    keys["retry"] = {"automatic": {"limit": step.retries}} if step.retries else None
    return {key: value for key, value in keys.items() if value}
