"""The operations on builds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from buildframe.service import problems
from buildframe.service.answers import finding
from buildframe.service.answers.exchange import Answer, Operations, Request, list_of
from buildframe.service.answers.filters import Condition, any_of, where
from buildframe.service.answers.told_pipelines import Pipelines
from buildframe.service.data.database import Data
from buildframe.service.life.engine import Engine
from buildframe.service.life.rules import Refusal
from buildframe.service.problems import Refused
from buildframe.service.world.lines import Line
from buildframe.service.world.model import Organization
from buildframe.service.world.runs import BuildRun, Commit, PullRequest, User, Who

_MOST_PULL_REQUESTS = 2**31 - 1


class BuildAnswers:
    """Answers the operations on builds."""

    def __init__(self, data: Data, engine: Engine, pipelines: Pipelines, deepest: int) -> None:
        self._data, self._engine, self._pipelines, self._deepest = data, engine, pipelines, deepest
        self._lines = data.lines
        self.of: Operations = {
            "list_all_builds": self._list_all,
            "list_builds": self._list,
            "list_pipeline_builds": self._list_of_pipeline,
            "get_build": self._get,
            "create_build": self._create,
            "cancel_build": self._cancel,
            "rebuild_build": self._rebuild,
            "unblock_job": self._unblock,
        }

    # --- lists ---

    def _list_all(self, request: Request) -> Answer:
        return self._builds(request, any_of("organization", request.access.organizations))

    def _list(self, request: Request) -> Answer:
        return self._builds(request, Condition("organization = ?", (request.path["org"],)))

    def _list_of_pipeline(self, request: Request) -> Answer:
        return self._builds(request, Condition("line = ?", (self._line(request).key,)))

    def _builds(self, request: Request, place: Condition) -> Answer:
        conditions = [place, *where(request.filters)]
        sql = " AND ".join(condition.sql for condition in conditions)
        values = [value for condition in conditions for value in condition.values]
        ((total,),) = self._data.rows(f"SELECT count(*) FROM builds WHERE {sql}", values)  # noqa: S608  values are bound
        if self._deepest <= request.page.offset < total:
            raise problems.too_deep()
        heads = self._data.rows(
            f"SELECT seq, line, body FROM builds WHERE {sql} ORDER BY created DESC, seq DESC LIMIT ? OFFSET ?",  # noqa: S608
            [*values, request.page.size, request.page.offset],
        )
        pipelines = self._embedded(request, {line for _, line, _ in heads})
        bodies = [_whole(head, jobs, pipelines.get(line)) for line, head, jobs in self._with_jobs(request, heads)]
        return Answer(list_of(bodies), total)

    def _embedded(self, request: Request, lines: set[str]) -> dict[str, bytes]:
        """What builds of these lines say of their pipelines; nothing if that is not wanted."""
        if request.filters.get("exclude_pipeline"):
            return {}
        return {line: self._pipelines.embedded(self._lines[line], request.access) for line in lines}

    def _with_jobs(
        self, request: Request, heads: Sequence[tuple[Any, ...]]
    ) -> list[tuple[str, bytes, list[bytes] | None]]:
        """Line, body and, if wanted, jobs of each build."""
        if request.filters.get("exclude_jobs"):
            return [(line, head, None) for _, line, head in heads]
        jobs: dict[int, list[bytes]] = {head[0]: [] for head in heads}
        chosen = any_of("build", tuple(jobs))
        every = bool(request.filters.get("include_retried_jobs"))
        sql = f"SELECT build, body FROM jobs WHERE {chosen.sql} AND retried <= ? ORDER BY build, position"  # noqa: S608
        for seq, body in self._data.rows(sql, [*chosen.values, every]):
            jobs[seq].append(body)
        return [(line, head, jobs[seq]) for seq, line, head in heads]

    # --- single builds ---

    def _get(self, request: Request) -> Answer:
        return self._build(request, self._named(request))

    def _create(self, request: Request) -> Answer:
        line, properties = self._line(request), request.properties()
        wrong = list(_wrong(properties))
        if wrong:
            raise problems.invalid(wrong)
        commit = _commit(properties, line, request.access.user)
        ignores = properties.get("ignore_pipeline_branch_filters", False)
        with _refusals():
            return self._build(request, self._engine.create_build(line, commit, ignore_branch_filters=ignores))

    def _cancel(self, request: Request) -> Answer:
        with _refusals():
            return self._build(request, self._engine.cancel(self._named(request).id))

    def _rebuild(self, request: Request) -> Answer:
        with _refusals():
            return self._build(request, self._engine.rebuild(self._named(request).id, request.access.user))

    def _unblock(self, request: Request) -> Answer:
        build = self._named(request)
        job = finding.job(build, request.path["job"])
        properties = request.properties()
        who = self._unblocker(request, properties.get("unblocker"))
        with _refusals():
            self._engine.unblock(build.id, job.id, who, properties.get("fields", {}))
        build = self._named(request)
        return Answer(msgspec.json.encode(self._data.bodies.job(build, build.job(job.id))))

    def _unblocker(self, request: Request, id: str | None) -> Who:
        """The member of a UUID, by the place among the people; without one the token's user."""
        if id is None:
            return request.access.user
        organization = finding.organization(self._data, request.path["org"])
        members = [self._data.bodies.user_id(organization, person) for person in organization.people]
        if id.lower() not in members:
            raise problems.invalid([("unblocker", "is not a member of the organization")])
        return members.index(id.lower())

    def _line(self, request: Request) -> Line:
        return finding.line(self._data, request.path["org"], request.path["pipeline"])

    def _named(self, request: Request) -> BuildRun:
        """The build that a request's path names."""
        return finding.build(self._data, self._line(request), request.path["number"])

    def _build(self, request: Request, build: BuildRun) -> Answer:
        """A build whose agents are told whole."""
        line = self._lines[build.line]
        heads = self._data.rows("SELECT seq, line, body FROM builds WHERE id = ?", (build.id,))
        ((_, head, jobs),) = self._with_jobs(request, heads)
        told = [self._with_whole_agent(line.organization, job) for job in jobs or ()]
        return Answer(_whole(head, told, self._pipelines.embedded(line, request.access)))

    def _with_whole_agent(self, organization: Organization, body: bytes) -> bytes:
        job = msgspec.json.decode(body)
        if job.get("agent"):
            lost = job.get("signal_reason") == "agent_lost"
            job["agent"] = self._data.bodies.whole_agent(organization, job["agent"]["name"], lost)
        return msgspec.json.encode(job)


@contextmanager
def _refusals() -> Iterator[None]:
    """What the engine does not do is answered with 422 and the reason."""
    try:
        yield
    except Refusal as why:
        raise Refused(422, str(why)) from None


def _wrong(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is as declared, yet cannot be built."""
    if not 0 < properties.get("pull_request_id", 1) <= _MOST_PULL_REQUESTS:
        yield "pull_request_id", f"must be from 1 to {_MOST_PULL_REQUESTS}"


def _commit(properties: Mapping[str, Any], line: Line, user: User) -> Commit:
    author = properties.get("author", {"name": user.name, "email": user.email})
    return Commit(
        sha=properties["commit"],
        branch=properties["branch"],
        message=properties.get("message", ""),
        source="api",
        creator=user,
        author=(author.get("name", ""), author.get("email", "")),
        env=dict(properties.get("env", {})),
        meta_data=dict(properties.get("meta_data", {})),
        clean_checkout=properties.get("clean_checkout", False),
        pull_request=_pull_request(properties, line),
    )


def _pull_request(properties: Mapping[str, Any], line: Line) -> PullRequest | None:
    if "pull_request_id" not in properties:
        return None
    return PullRequest(
        properties["pull_request_id"],
        properties.get("pull_request_base_branch", line.pipeline.default_branch),
        properties.get("pull_request_repository"),
    )


def _whole(head: bytes, jobs: Sequence[bytes] | None, pipeline: bytes | None) -> bytes:
    """A build with its jobs and its pipeline put into its body."""
    parts = [head[:-1]]
    if jobs is not None:
        parts += [b',"jobs":', list_of(jobs)]
    if pipeline is not None:
        parts += [b',"pipeline":', pipeline]
    return b"".join([*parts, b"}"])
