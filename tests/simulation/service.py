"""A small model of the service in memory, which remembers all that ever was so, and so knows what a list must hold."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import format_datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from buildframe.spec import Moment

ORGANIZATION = "acme"
BRANCHES = ("main", "main", "fix")
SECOND = 1_000_000  # microseconds
ORDERS = ("by stamp", "ties shuffled", "by arrival")
_FINISHED = {"passed", "failed", "canceled", "blocked"}


class Version(NamedTuple):
    """A build from one moment on; `attempt` counts its retries. Moments are microseconds since 1970."""

    at: int
    state: str
    finished: int | None = None
    attempt: int = 0
    blocked: bool = False


@dataclass
class Build:
    """A build with all that it ever was. `arrived` is when lists first had it, `created` what its stamp says."""

    number: int
    pipeline: int
    created: int
    arrived: int
    branch: str
    versions: list[Version]
    deleted: int | None = None
    bodies: dict[tuple[int, bool, str], bytes] = field(default_factory=dict, repr=False)

    @property
    def id(self) -> str:
        return f"b{self.number:07d}"

    def at(self, moment: int) -> Version | None:
        """What it was then; None before it came, and once it was deleted."""
        if moment < self.arrived or (self.deleted is not None and self.deleted <= moment):
            return None
        return next(version for version in reversed(self.versions) if version.at <= moment)

    def during(self, begin: int, end: int) -> list[Version]:
        """All that it was in a time."""
        first = self.at(max(begin, self.arrived))
        later = [version for version in self.versions if begin < version.at <= end]
        return ([first] if first is not None else []) + later


@dataclass(frozen=True)
class Query:
    """The filters of a list of builds."""

    low: int = -(10**18)
    high: int = 10**18
    finished_from: int | None = None
    states: frozenset[str] = frozenset()
    branch: str | None = None
    pipeline: int | None = None

    def holds(self, build: Build, version: Version | None) -> bool:
        """Whether a build that is so is in the list."""
        if version is None or not self.low <= build.created < self.high:
            return False
        if self.pipeline is not None and build.pipeline != self.pipeline:
            return False
        if self.finished_from is not None and (version.finished or 0) < self.finished_from:
            return False
        matches_state = not self.states or version.state in self.states or self._is_finished(version)
        return matches_state and self.branch in (None, build.branch)

    def _is_finished(self, version: Version) -> bool:
        return ("finished" in self.states and version.state in _FINISHED) or (
            "blocked" in self.states and version.blocked
        )


Row = tuple[str, bytes]
"""The id of a row and its JSON."""


class Answer(NamedTuple):
    """What the service answers: a status, header fields and a body."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Service:
    """An organization's builds, pipelines, members and flaky tests; `clock` is the seconds that have passed.

    Lists are newest first: by stamp, by stamp with builds of one stamp in another order at each request, or by
    arrival; stamps lie up to `jitter` before the arrival. Stamps are cut to `grain`.
    `skipped` are seconds that pass beside the clock, and `sent` are the ids of the last answer.
    """

    chance: random.Random
    clock: Callable[[], float]
    epoch: Moment = field(default_factory=lambda: Moment(2026, 10, 1, tzinfo=dt.UTC))
    order: str = "by stamp"
    grain: int = 1000
    jitter: int = 0
    pipelines: list[str] = field(default_factory=lambda: ["web", "api"])
    has_last: bool = True
    deepest: int = 10**9
    base: str = "http://localhost"
    builds: list[Build] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    skipped: float = 0.0
    sent: set[str] = field(default_factory=set)
    _now: int = 0

    # --- time and life

    @property
    def now(self) -> int:
        """Its time; no two things happen at the same."""
        self._now = max(self._now + 1, self.epoch.us + round((self.clock() + self.skipped) * SECOND))
        return self._now

    def create(self, created: int | None = None) -> Build:
        """A new build; `created` is a stamp that others have, too."""
        now = self.now
        stamp = now - self.chance.randint(0, self.jitter) if created is None else created
        number, stamp = len(self.builds) + 1, stamp - stamp % self.grain
        pipeline = self.chance.randrange(len(self.pipelines))
        build = Build(number, pipeline, stamp, now, self.chance.choice(BRANCHES), [Version(now, "running")])
        self.builds.append(build)
        return build

    def change(self, build: Build) -> None:
        """A build that runs ends; one that has ended is retried, which reopens it, or is unblocked."""
        last, now = build.versions[-1], self.now
        if last.finished is None:
            state = self.chance.choice(["passed", "passed", "failed", "canceled"])
            is_blocked = state == "passed" and self.chance.random() < 0.1
            build.versions.append(Version(now, state, now, last.attempt, is_blocked))
        else:
            state = self.chance.choice(["running", "running", "scheduled"])
            build.versions.append(Version(now, state, None, last.attempt + 1))

    def delete(self, build: Build) -> None:
        """A build is no more."""
        build.deleted = self.now

    def there(self) -> list[Build]:
        """The builds that are there now."""
        return [build for build in self.builds if build.deleted is None]

    def clear_up(self) -> None:
        """Answer as a service should."""
        self.has_last, self.deepest, self.order = True, 10**9, "by stamp"

    # --- answering

    def answer(self, target: str, at: int | None = None) -> Answer:
        """What a GET gets, of now or as it was at a moment."""
        url = urlsplit(target)
        query = parse_qs(url.query)
        moment = self.now if at is None else at
        parts = url.path.removeprefix("/v2/").strip("/").split("/")
        date = format_datetime(Moment.from_us(moment), usegmt=True)
        headers = {"Content-Type": "application/json; charset=utf-8", "Date": date}
        if int(query.get("page", ["1"])[0]) > self.deepest:
            return Answer(400, headers, b'{"message": "Listing builds this deep is not supported."}')
        found = self._found(parts, query, moment)
        if found is None:
            return Answer(404, headers, b'{"message": "No build found"}')
        rows, links = found
        return Answer(200, headers | ({} if links is None else {"Link": links}), rows)

    def _found(self, parts: list[str], query: dict[str, list[str]], moment: int) -> tuple[bytes, str | None] | None:
        if parts[-1] == "members":  # a list without pages
            rows = self._others("members")
            self.sent = {id for id, _ in rows}
            return _array(rows), None
        if parts[0] == "analytics":
            return self._page(parts, query, self._others(parts[-1]))
        if parts[-1] == "pipelines":
            return self._page(parts, query, [(f"p{i}", self._pipeline(i)) for i in range(len(self.pipelines))])
        if parts[-1] == "builds":
            return self._page(parts, query, list(self._builds(parts, query, moment)))
        if parts[-2] == "builds":
            return self._one(int(parts[-1]), moment)
        return (self._pipeline(self.pipelines.index(parts[-1])), None) if parts[-1] in self.pipelines else None

    def _one(self, number: int, moment: int) -> tuple[bytes, None] | None:
        build = self.builds[number - 1] if number <= len(self.builds) else None
        version = build.at(moment) if build is not None else None
        return None if build is None or version is None else (self._body(build, version, True), None)

    def listed(self, query: Query, moment: int) -> list[tuple[Build, Version]]:
        """The builds of a list, as it was at a moment."""
        each = ((build, build.at(moment)) for build in reversed(self.builds))
        found = [(build, version) for build, version in each if version is not None and query.holds(build, version)]
        if self.order == "ties shuffled":
            self.chance.shuffle(found)
        if self.order != "by arrival":
            found.sort(key=lambda pair: -pair[0].created)
        return found

    def query(self, parts: list[str], query: dict[str, list[str]]) -> Query:
        """Return the filters of a request for builds."""
        times = {name: Moment.parse(values[0]).us for name, values in query.items() if name in _TIMES}
        states = frozenset(query.get("state[]", query.get("state", [])))
        pipeline = self.pipelines.index(parts[3]) if parts[2:3] == ["pipelines"] else None
        low, high = times.get("created_from", -(10**18)), times.get("created_to", 10**18)
        return Query(low, high, times.get("finished_from"), states, query.get("branch", [None])[0], pipeline)

    def _builds(self, parts: list[str], query: dict[str, list[str]], moment: int) -> Iterator[Row]:
        with_jobs = query.get("exclude_jobs") != ["true"]
        for build, version in self.listed(self.query(parts, query), moment):
            yield build.id, self._body(build, version, with_jobs)

    def _page(self, parts: list[str], query: dict[str, list[str]], rows: list[Row]) -> tuple[bytes, str]:
        size, number = int(query.get("per_page", ["30"])[0]), int(query.get("page", ["1"])[0])
        pages = max(1, -(-len(rows) // size))
        others = [(name, value) for name, values in query.items() if name != "page" for value in values]

        def to(page: int, rel: str) -> str:
            return f'<{self.base}/v2/{"/".join(parts)}?{urlencode([*others, ("page", page)])}>; rel="{rel}"'

        links = [to(1, "first"), to(number - 1, "prev")] if number > 1 else []
        links += [to(number + 1, "next")] if number < pages else []
        links += [to(pages, "last")] if number < pages and self.has_last else []
        chosen = rows[(number - 1) * size : number * size]
        self.sent = {id for id, _ in chosen}
        return _array(chosen), ", ".join(links)

    # --- bodies

    def _body(self, build: Build, version: Version, with_jobs: bool) -> bytes:
        slug = self.pipelines[build.pipeline]
        key = version.at, with_jobs, slug
        if key not in build.bodies:
            build.bodies[key] = json.dumps(self._document(build, version, with_jobs, slug)).encode()
        return build.bodies[key]

    def _document(self, build: Build, version: Version, with_jobs: bool, slug: str) -> dict[str, Any]:
        own = f"{self.base}/v2/organizations/{ORGANIZATION}/pipelines/{slug}"
        return {
            "id": build.id,
            "url": f"{own}/builds/{build.number}",
            "number": build.number,
            "state": version.state,
            "blocked": version.blocked,
            "branch": build.branch,
            "message": f"Build {build.number}",
            "created_at": _text(build.created),
            "started_at": _text(build.created),
            "finished_at": _text(version.finished),
            "pipeline": {"id": f"p{build.pipeline}", "slug": slug, "url": own},
            "jobs": [_job(build, version, attempt) for attempt in range(version.attempt + 1)] if with_jobs else [],
        }

    def _pipeline(self, index: int) -> bytes:
        slug = self.pipelines[index]
        url = f"{self.base}/v2/organizations/{ORGANIZATION}/pipelines/{slug}"
        return json.dumps(
            {"id": f"p{index}", "slug": slug, "name": slug, "url": url, "created_at": _text(self.epoch.us)}
        ).encode()

    def _others(self, kind: str) -> list[Row]:
        return [(name, json.dumps({"id": name, "name": f"{kind} {name}"}).encode()) for name in self.members]


def _array(rows: list[Row]) -> bytes:
    return b"[" + b",".join(body for _, body in rows) + b"]"


_TIMES = {"created_from", "created_to", "finished_from"}


def _text(moment: int | None) -> str | None:
    return None if moment is None else Moment.from_us(moment).text()


def _job(build: Build, version: Version, attempt: int) -> dict[str, Any]:
    """The job of an attempt: the last one is as its build is."""
    is_last = attempt == version.attempt
    return {
        "id": f"j{build.number:07d}-{attempt}",
        "type": "script",
        "name": "test",
        "step_key": "test",
        "state": version.state if is_last else "failed",
        "retried": not is_last,
        "agent_query_rules": ["queue=default"],
        "created_at": _text(build.created),
        "started_at": _text(build.created),
        "finished_at": _text(version.finished) if is_last else _text(build.created),
    }
