"""The answers to each operation: bytes of JSON, put together from stored bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from buildframe.service import problems
from buildframe.service.access import Access
from buildframe.service.data import Data
from buildframe.service.filters import Asked, Condition, any_of, where
from buildframe.service.paging import Page
from buildframe.service.pipelines import Pipelines
from buildframe.service.world import Line, Organization


@dataclass(frozen=True)
class Request:
    """What is asked: the path's names, the filters, the page, and by whom."""

    path: Mapping[str, str]
    filters: Mapping[str, Asked]
    page: Page
    access: Access


@dataclass(frozen=True)
class Answer:
    """A body, and for lists how many records there are on all pages."""

    body: bytes
    total: int = 0


class Answers:
    """Answers every declared operation from the data."""

    def __init__(self, data: Data, deepest: int) -> None:
        self._data, self._deepest = data, deepest
        self._lines = data.bodies.lines
        self._pipelines = Pipelines(data)
        self.of: dict[str, Callable[[Request], Answer]] = {
            "list_all_builds": self._list_all_builds,
            "list_builds": self._list_builds,
            "list_pipeline_builds": self._list_pipeline_builds,
            "get_build": self._get_build,
            "list_pipelines": self._list_pipelines,
            "get_pipeline": self._get_pipeline,
        }

    # --- finding what the path names ---

    def organization(self, slug: str) -> Organization:
        """The organization of this slug."""
        for organization in self._data.bodies.world.organizations:
            if organization.slug == slug:
                return organization
        raise problems.not_found("organization")

    def _line(self, request: Request) -> Line:
        try:
            return self._lines[f"{request.path['org']}/{request.path['pipeline']}"]
        except KeyError:
            raise problems.not_found("pipeline") from None

    # --- builds ---

    def _list_all_builds(self, request: Request) -> Answer:
        return self._builds(request, any_of("organization", request.access.organizations))

    def _list_builds(self, request: Request) -> Answer:
        return self._builds(request, Condition("organization = ?", (request.path["org"],)))

    def _list_pipeline_builds(self, request: Request) -> Answer:
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
        return Answer(_list(bodies), total)

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

    def _get_build(self, request: Request) -> Answer:
        line, number = self._line(request), request.path["number"]
        known = number.isascii() and number.isdigit() and len(number) <= 18
        heads = known and self._data.rows(
            "SELECT seq, line, body FROM builds WHERE line = ? AND number = ?", (line.key, int(number))
        )
        if not heads:
            raise problems.not_found("build")
        ((_, head, jobs),) = self._with_jobs(request, heads)
        told = [self._with_whole_agent(line.organization, job) for job in jobs or ()]
        return Answer(_whole(head, told, self._pipelines.embedded(line, request.access)))

    def _with_whole_agent(self, organization: Organization, body: bytes) -> bytes:
        job = msgspec.json.decode(body)
        if job.get("agent"):
            lost = job.get("signal_reason") == "agent_lost"
            job["agent"] = self._data.bodies.whole_agent(organization, job["agent"]["name"], lost)
        return msgspec.json.encode(job)

    # --- pipelines ---

    def _list_pipelines(self, request: Request) -> Answer:
        lines = [line for line in self._lines.values() if line.organization.slug == request.path["org"]]
        page = lines[request.page.offset : request.page.offset + request.page.size]
        return Answer(_list([self._pipelines.whole(line, request.access) for line in page]), len(lines))

    def _get_pipeline(self, request: Request) -> Answer:
        return Answer(self._pipelines.whole(self._line(request), request.access))


def _whole(head: bytes, jobs: Sequence[bytes] | None, pipeline: bytes | None) -> bytes:
    """A build with its jobs and its pipeline put into its body."""
    parts = [head[:-1]]
    if jobs is not None:
        parts += [b',"jobs":', _list(jobs)]
    if pipeline is not None:
        parts += [b',"pipeline":', pipeline]
    return b"".join([*parts, b"}"])


def _list(bodies: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(bodies) + b"]"
