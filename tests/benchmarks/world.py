"""An invented organization's builds as the service sends them; the same seed gives the same bytes."""

from __future__ import annotations

import base64
import datetime as dt
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

Body = dict[str, Any]
Rhythm = Literal["weekly", "even"]

API = "https://api.example.com/v2/organizations/acme"
WEB = "https://ci.example.com/acme"
DAYS = 30
END = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
PAGE = 100

PIPELINES = ("web", "api", "ios", "android", "billing", "search", "docs-site", "infra", "data-jobs", "design-kit")
OLD_PIPELINE = PIPELINES[-1]
PEOPLE = ("Ada Moreau", "Bo Lindqvist", "Chidi Okoye", "Dana Novák", "Eun-ji Park", "Farid Haddad", "Gus O'Neill")
STEPS = ("rspec", "lint", "Type check", "build image", "integration", "system", "e2e :chromium:", "deploy preview")
EMOJIS = (":rspec: ", ":docker: ", ":rocket: ", "🚀 ", "", "", "", "")
QUEUES = ("default", "default", "default", "large", "macos")
MESSAGES = (
    "Fix the lift\n\nThe lift left before the last guest was in; say \"mind the gap\" first.",
    "Merge pull request from someone/short-branch",
    "Retry the upload when the store answers 503 🙈",
    "Größere Puffer für Läufe",
    "Bump the lock file",
)  # fmt: skip
ENDS = {"passed": 72, "failed": 16, "canceled": 6, "blocked": 3, "running": 2, "scheduled": 1}
_JOB_STATES = {"passed": "passed", "failed": "passed", "blocked": "passed", "canceled": "canceled"}
_SIGNED = ["command", "env::TIER", "matrix", "plugins", "repository_url"]


@dataclass(frozen=True)
class World:
    """So many builds with so many jobs each, spread over 30 days."""

    builds: int
    jobs: int
    rhythm: Rhythm = "weekly"
    seed: int = 1

    def created(self) -> list[int]:
        """When each build was created, oldest first, in milliseconds since 1970."""
        chance = random.Random(self.seed)
        begin = int(END.timestamp() * 1000) - DAYS * 86_400_000
        stamps: set[int] = set()
        while len(stamps) < self.builds:
            stamp = begin + chance.randrange(DAYS * 86_400_000)
            if self.rhythm == "even" or chance.random() < _busy(stamp):
                stamps.add(stamp)
        return sorted(stamps)

    def newest_first(self) -> Iterator[Body]:
        """Each build, as it stands in a list."""
        stamps = self.created()
        chance = random.Random(self.seed)
        pipelines = [_skewed(chance, PIPELINES) for _ in stamps]
        left = Counter(pipelines)
        for n in reversed(range(self.builds)):
            build = _build(random.Random(f"{self.seed} {n}"), pipelines[n], left[pipelines[n]], stamps[n], self.jobs)
            yield _as_old(build) if pipelines[n] == OLD_PIPELINE else build
            left[pipelines[n]] -= 1

    def write(self, folder: Path) -> list[Path]:
        """The pages of the whole list, one file each, newest first."""
        paths: list[Path] = []
        page: list[Body] = []
        for n, build in enumerate(self.newest_first(), 1):
            page.append(build)
            if len(page) == PAGE or n == self.builds:
                paths.append(folder / f"page-{len(paths):04}.json")
                paths[-1].write_bytes(msgspec.json.encode(page))
                page.clear()
        return paths


def _busy(stamp: int) -> float:
    """How busy an hour is, 0 to 1: working days, most before and after lunch, a nightly run at three."""
    moment = dt.datetime.fromtimestamp(stamp / 1000, dt.UTC)
    weekday = 1.0 if moment.weekday() < 5 else 0.1
    hour = {3: 0.6, 9: 0.7, 10: 1.0, 11: 0.9, 12: 0.5, 13: 0.7, 14: 1.0, 15: 1.0, 16: 0.8, 17: 0.5}
    return weekday * hour.get(moment.hour, 0.06)


def _skewed(chance: random.Random, choices: tuple[str, ...]) -> str:
    """Rather one of the first."""
    return choices[int(len(choices) * chance.random() ** 2)]


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _named_uuid(*name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(name)))


def _graphql(kind: str, id: str) -> str:
    return base64.b64encode(f"{kind}---{id}".encode()).decode()


def _text(stamp: int | None) -> str | None:
    if stamp is None:
        return None
    return dt.datetime.fromtimestamp(stamp // 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{stamp % 1000:03}Z"


def _as_old(build: Body) -> Body:
    """Write the times of a build and its jobs as in old records: `2013-09-03 13:24:38 UTC`."""
    for record in (build, *build["jobs"]):
        times = {key: value for key, value in record.items() if key.endswith("_at") and value}
        record |= {key: f"{value[:19].replace('T', ' ')} UTC" for key, value in times.items()}
    return build


def _user(name: str) -> Body:
    id = _named_uuid("user", name)
    return {
        "id": id,
        "graphql_id": _graphql("User", id),
        "name": name,
        "email": f"{name.split()[0].lower()}@example.com",
        "avatar_url": f"https://images.example.com/avatar/{id.replace('-', '')}",
        "created_at": "2023-02-14T09:30:11.482Z",
    }


_USERS = {name: _user(name) for name in PEOPLE}


def _pipeline(slug: str) -> Body:
    id = _named_uuid("pipeline", slug)
    settings = ("build_branches", "build_pull_requests", "publish_commit_status", "build_tags", "filter_enabled")
    return {
        "id": id,
        "graphql_id": _graphql("Pipeline", id),
        "url": f"{API}/pipelines/{slug}",
        "web_url": f"{WEB}/{slug}",
        "name": slug.replace("-", " ").title(),
        "slug": slug,
        "repository": f"git@git.example.com:acme/{slug}.git",
        "cluster_id": _named_uuid("cluster"),
        "pipeline_template_uuid": None,
        "branch_configuration": None,
        "default_branch": "main",
        "skip_queued_branch_builds": True,
        "skip_queued_branch_builds_filter": "!main",
        "cancel_running_branch_builds": False,
        "cancel_running_branch_builds_filter": None,
        "provider": {
            "id": "github",
            "webhook_url": "",
            "settings": dict.fromkeys(settings, True) | {"trigger_mode": "code", "repository": f"acme/{slug}"},
        },
        "builds_url": f"{API}/pipelines/{slug}/builds",
        "badge_url": f"https://badges.example.com/{id.replace('-', '')}.svg",
        "created_by": _USERS[PEOPLE[0]],
        "created_at": "2023-03-01 08:00:00 UTC",
        "archived_at": None,
        "env": {"TIER": "ci"},
        "scheduled_builds_count": 0,
        "running_builds_count": 1,
        "scheduled_jobs_count": 0,
        "running_jobs_count": 12,
        "waiting_jobs_count": 3,
        "visibility": "private",
    }


_PIPELINES = {slug: _pipeline(slug) for slug in PIPELINES}
PIPELINE_BODIES = [*_PIPELINES.values()]


def _build(chance: random.Random, pipeline: str, number: int, created: int, jobs: int) -> Body:
    id, state = _uuid(chance), chance.choices([*ENDS], [*ENDS.values()])[0]
    url = f"{API}/pipelines/{pipeline}/builds/{number}"
    started = None if state == "scheduled" else created + chance.randrange(800, 90_000)
    over = started is not None and state != "running"
    finished = started + chance.randrange(60_000, 1_500_000) if started is not None and over else None
    wrote = chance.choice(PEOPLE)
    pull = chance.random() < 0.5
    branch = f"{wrote.split()[0].lower()}/fix-{chance.randrange(9999)}" if pull else "main"
    body = {
        "id": id,
        "graphql_id": _graphql("Build", id),
        "url": url,
        "web_url": f"{WEB}/{pipeline}/builds/{number}",
        "number": number,
        "state": "passed" if state == "blocked" else state,
        "cancel_reason": "canceled by a newer build" if state == "canceled" else None,
        "blocked": state == "blocked",
        "blocked_state": "passed" if state == "blocked" else None,
        "message": chance.choice(MESSAGES),
        "commit": f"{chance.getrandbits(160):040x}",
        "branch": branch,
        "tag": f"v{number}.0" if branch == "main" and chance.random() < 0.05 else None,
        "env": {"TIER": "ci", "SHARD": str(chance.randrange(8))} if chance.random() < 0.3 else {},
        "source": chance.choice(("webhook", "webhook", "api", "ui", "schedule")),
        "author": chance.choice(({"name": wrote, "email": _USERS[wrote]["email"]}, wrote, None)),
        "creator": _USERS[wrote] if chance.random() < 0.9 else None,
        "created_at": _text(created),
        "scheduled_at": _text(created - chance.randrange(90)),
        "started_at": _text(started),
        "failing_at": _text(started + 50_000) if started is not None and state == "failed" else None,
        "finished_at": _text(finished),
        "meta_data": {"release": f"2026.{chance.randrange(40)}", "kind": "nightly"} if chance.random() < 0.4 else {},
        "pull_request": _pull_request(chance, pipeline) if pull else {},
        "rebuilt_from": _rebuilt(chance, url) if chance.random() < 0.04 else None,
        "triggered_from": _triggered(chance) if chance.random() < 0.06 else None,
        "cluster_id": _named_uuid("cluster"),
        "cluster_url": f"{API}/clusters/{_named_uuid('cluster')}",
        "merge_queue": {"base_branch": "main"} if number % 10 == 1 else None,
        "pipeline": _PIPELINES[pipeline],
        "jobs": _jobs(chance, pipeline, number, state, created, jobs),
    }
    return body | {"job_state_counts": Counter(job["state"] for job in body["jobs"] if "state" in job)}


def _pull_request(chance: random.Random, pipeline: str) -> Body:
    repository = f"git://git.example.com/acme/{pipeline}.git"
    return {"id": str(chance.randrange(1, 9999)), "base": "main", "repository": repository, "labels": ["ready"]}


def _rebuilt(chance: random.Random, url: str) -> Body:
    number = chance.randrange(1, 500)
    return {"id": _uuid(chance), "number": number, "url": f"{url.rsplit('/', 1)[0]}/{number}"}


def _triggered(chance: random.Random) -> Body:
    slug = _skewed(chance, PIPELINES)
    return {"build_id": _uuid(chance), "build_number": chance.randrange(1, 500), "build_pipeline_slug": slug}


def _jobs(chance: random.Random, pipeline: str, number: int, end: str, created: int, count: int) -> list[Body]:
    """Mostly script jobs, some of them the second attempt of the one before."""
    where = f"{pipeline}/builds/{number}"
    jobs: list[Body] = []
    for n in range(count):
        kind = {9: "waiter", 17: "manual", 18: "waiter", 29: "trigger"}.get(n % 30, "script")
        job = {"id": _uuid(chance), "type": kind}
        if kind == "manual":
            job |= _block_step(chance, where, job["id"], created)
        elif kind == "trigger":
            job |= _trigger_step(chance, where, created)
        elif kind == "script":
            job |= _script(chance, pipeline, where, job["id"], n, end, created)
        if jobs and kind == jobs[-1]["type"] == "script" and jobs[-1]["state"] == "failed" and chance.random() < 0.5:
            _repeat(jobs[-1], job)
        jobs.append(job)
    return jobs


def _repeat(first: Body, second: Body) -> None:
    """Make a job the second attempt of another one."""
    kind = "manual" if first["soft_failed"] else "automatic"
    who = _USERS[PEOPLE[0]] if kind == "manual" else None
    first |= {"retried": True, "retried_in_job_id": second["id"], "retry_type": kind, "retried_by": who}
    second |= {key: first[key] for key in ("name", "step_key", "step", "command", "agent_query_rules", "matrix")}
    second |= {"retries_count": 1}
    second["retry_source"] = {"job_id": first["id"], "retry_type": kind}


def _block_step(chance: random.Random, where: str, id: str, created: int) -> Body:
    unblocked = chance.random() < 0.7
    who = _USERS[chance.choice(PEOPLE)] if unblocked else None
    return {
        "graphql_id": _graphql("Job", id),
        "label": ":rocket: Release?",
        "state": "unblocked" if unblocked else "blocked",
        "step_key": "release",
        "web_url": f"{WEB}/{where}#{id}",
        "unblockable": not unblocked,
        "unblock_url": f"{API}/pipelines/{where}/jobs/{id}/unblock",
        "unblocked_by": who,
        "unblocked_at": _text(created + chance.randrange(600_000)) if unblocked else None,
    }


def _trigger_step(chance: random.Random, where: str, created: int) -> Body:
    began, id, number = created + chance.randrange(60_000), _uuid(chance), chance.randrange(1, 900)
    place = f"pipelines/infra/builds/{number}"
    return {
        "name": ":truck: Roll out",
        "state": "passed",
        "async": True,
        "web_url": f"{WEB}/{where}",
        "triggered_build": {"id": id, "number": number, "url": f"{API}/{place}", "web_url": f"{WEB}/{place}"},
        "created_at": _text(created),
        "scheduled_at": _text(created),
        "runnable_at": _text(began),
        "finished_at": _text(began + chance.randrange(5_000)),
    }


def _script(chance: random.Random, pipeline: str, where: str, id: str, n: int, end: str, created: int) -> Body:
    name, queue = STEPS[n % len(STEPS)], QUEUES[n % len(QUEUES)]
    state = "failed" if end != "scheduled" and chance.random() < 0.05 else _JOB_STATES.get(end, end)
    state = "broken" if state == "canceled" and n % 4 == 3 else state
    ran = state in {"passed", "failed", "running"}
    runnable = created + chance.randrange(200, 5_000)
    started = runnable + chance.randrange(500, 120_000) if ran else None
    finished = started + chance.randrange(2_000, 900_000) if started is not None and state != "running" else None
    job = f"{API}/pipelines/{where}/jobs/{id}"
    is_early = state == "failed" and not n % 2
    parallel, lost = n % 6 == 0, state == "failed" and chance.random() < 0.1
    return {
        "graphql_id": _graphql("Job", id),
        "name": f"{EMOJIS[n % len(EMOJIS)]}{name} {n}",
        "step_key": f"{name.split()[0].lower()}-{n}" if n % 3 else None,
        "group_key": "checks" if n % 5 == 0 else None,
        "step": {"id": _named_uuid(where, str(n)), "signature": _signature(chance)},
        "priority": {"number": n % 2},
        "agent_query_rules": [f"queue={queue}"] if n % 4 else [],
        "state": state,
        "web_url": f"{WEB}/{where}#{id}",
        "build_url": f"{API}/pipelines/{where}",
        "log_url": f"{job}/log",
        "artifacts_url": f"{job}/artifacts",
        "raw_log_url": f"{job}/log.txt",
        "command": f'bin/ci run --suite "{name}" --shard {n}\nbin/ci report > tmp/report-{n}.json',
        "soft_failed": state == "failed" and n % 7 == 0,
        "broken_reason": "conditional" if state == "broken" else None,
        "timeout_in_minutes": 30 if n % 5 == 0 else None,
        "concurrency_wait_time_ms": 1_500 if n % 11 == 5 else None,
        "promised_exit_status": 1 if is_early else None,
        "promised_exit_status_at": _text(finished) if is_early else None,
        "exit_status": None if finished is None else -1 if lost else int(state == "failed"),
        "signal": "SIGKILL" if lost else None,
        "signal_reason": "agent_stop" if lost else None,
        "artifact_paths": "tmp/screenshots/**/*;log/*.log" if n % 2 else "",
        "agent": _agent(queue, chance.randrange(40)) if ran else None,
        "created_at": _text(created + chance.randrange(100)),
        "scheduled_at": _text(created),
        "runnable_at": _text(runnable),
        "started_at": _text(started),
        "finished_at": _text(finished),
        "expired_at": _text(created + 3_600_000) if state == "scheduled" and n % 9 == 0 else None,
        "retried": False,
        "retried_in_job_id": None,
        "retries_count": None,
        "retry_type": None,
        "parallel_group_index": n // 6 if parallel else None,
        "parallel_group_total": 5 if parallel else None,
        "matrix": {"os": "linux", "ruby": f"3.{n // 10}"} if n % 10 == 1 else None,
        "cluster_id": _named_uuid("cluster"),
        "cluster_url": f"{API}/clusters/{_named_uuid('cluster')}",
        "cluster_queue_id": _named_uuid("queue", queue),
        "cluster_queue_url": f"{API}/clusters/{_named_uuid('cluster')}/queues/{_named_uuid('queue', queue)}",
    }


def _signature(chance: random.Random) -> Body:
    value = base64.urlsafe_b64encode(chance.randbytes(64)).decode().rstrip("=")
    return {
        "value": f"eyJhbGciOiJFZERTQSIsImtpZCI6ImV4YW1wbGUifQ..{value}",
        "algorithm": "EdDSA",
        "signed_fields": _SIGNED,
    }


def _agent(queue: str, n: int) -> Body:
    id = _named_uuid("agent", queue, str(n))
    return {
        "id": id,
        "url": f"{API}/agents/{id}",
        "web_url": f"{WEB}/agents/{id}",
        "name": f"{queue}-{n}",
        "connection_state": "connected",
        "hostname": f"{queue}-{n}.agents.example.com",
        "ip_address": f"203.0.113.{n + 1}",
        "user_agent": "agent/3.98.0 (linux; amd64)",
        "creator": None,
        "created_at": "2026-09-30T22:01:44.019Z",
        "meta_data": [f"queue={queue}", "os=linux", "docker=true"],
    }
