"""Serve lists of builds from memory in a process of its own, with a given latency."""

from __future__ import annotations

import asyncio
import bisect
import datetime as dt
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import msgspec

from tests.benchmarks.reporting import ROOT
from tests.benchmarks.world import PIPELINE_BODIES, World

DEFAULT_PAGE, LARGEST_PAGE = 30, 100


@dataclass(frozen=True)
class Settings:
    """What to serve, and how: `latency` and `window` are seconds; without a `quota` there is no limit."""

    world: World
    latency: float = 0.0
    quota: int | None = None
    window: float = 60.0
    rounds_up: bool = True  # the seconds until a window's end, a whole number


class Counts(NamedTuple):
    """What a server counted since `begin`: responses and refusals by window, and seconds of its CPU."""

    answered: list[int]
    refused: list[int]
    cpu: float


class Server:
    """Starts the server, and ends it with the `with` block."""

    def __init__(self, settings: Settings) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.server", json.dumps(asdict(settings))]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError("the server did not start; its error is above")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait()

    def begin(self) -> None:
        """Forget what was counted; the next request begins the first window."""
        with urlopen(f"{self.url}/begin") as answer:
            answer.read()

    def counts(self) -> Counts:
        """Return what it counted."""
        with urlopen(f"{self.url}/counts") as answer:
            return Counts(**json.load(answer))


@dataclass
class Quota:
    """So many requests a window; windows follow each other from the first request on."""

    limit: int
    window: float
    rounds_up: bool
    began: float | None = None
    taken: Counter[int] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)

    def take(self, now: float) -> tuple[bool, int, int]:
        """Whether a request is let in, how many are left, and the seconds until the window ends."""
        self.began = now if self.began is None else self.began
        at = int((now - self.began) // self.window)
        let_in = self.taken[at] < self.limit
        (self.taken if let_in else self.refused)[at] += 1
        left = self.began + (at + 1) * self.window - now
        return let_in, self.limit - self.taken[at], math.ceil(left) if self.rounds_up else math.floor(left)


class ListRequest(NamedTuple):
    """Path and query of a request."""

    path: str
    query: dict[str, list[str]]

    def number(self, name: str, otherwise: int) -> int:
        return int(self.query.get(name, [str(otherwise)])[-1])

    def stamp(self, name: str) -> float | None:
        """Milliseconds since 1970."""
        if name not in self.query:
            return None
        moment = dt.datetime.fromisoformat(self.query[name][-1].replace(" ", "+"))  # a plus that was not encoded
        return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp() * 1000


class Service:
    """Answers requests for lists of builds, newest first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._older = [-stamp for stamp in reversed(settings.world.created())]  # ascends, for bisect
        self._whole: list[bytes] = []
        self._alone: list[bytes] = []
        self._states: list[str] = []
        self._finished: list[str] = []
        for build in settings.world.newest_first():
            self._states.append(build["state"])
            self._finished.append(build["finished_at"] or "")
            self._whole.append(msgspec.json.encode(build))
            self._alone.append(msgspec.json.encode({key: build[key] for key in build if key != "jobs"}))
        self.url = ""
        self._begin()

    def _begin(self) -> None:
        limit = self._settings.quota or sys.maxsize
        self._quota = Quota(limit, self._settings.window, self._settings.rounds_up)
        self._cpu = time.process_time()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until the client closes it."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.writelines(await self._answer(head.split(b" ", 2)[1].decode()))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, target: str) -> list[bytes]:
        parts = urlsplit(target)
        request = ListRequest(parts.path, parse_qs(parts.query))
        if request.path == "/begin":
            self._begin()
            return _written(200, {}, [b"{}"])
        if request.path == "/counts":
            return _written(200, {}, [msgspec.json.encode(self._counts()._asdict())])
        let_in, left, reset = self._quota.take(time.monotonic())
        limits = self._limits(left, reset)
        if not let_in:
            body = {"message": "Too many requests", "scope": "rest_user", "limit": self._settings.quota, "reset": reset}
            return _written(429, limits, [msgspec.json.encode(body)])
        await asyncio.sleep(self._settings.latency)
        links, builds = self._page(request)
        return _written(200, limits | {"Link": links}, builds)

    def _limits(self, left: int, reset: int) -> dict[str, str]:
        if self._settings.quota is None:
            return {}
        result = {"Remaining": left, "Limit": self._settings.quota, "Reset": reset}
        return {f"RateLimit-User-{name}": str(value) for name, value in result.items()}

    def _counts(self) -> Counts:
        windows = range(max([*self._quota.taken, *self._quota.refused], default=-1) + 1)
        answered, refused = ([counted[n] for n in windows] for counted in (self._quota.taken, self._quota.refused))
        return Counts(answered, refused, time.process_time() - self._cpu)

    def _page(self, request: ListRequest) -> tuple[str, list[bytes]]:
        """The links of a page, and the pieces of its body."""
        start, end = self._between(request.stamp("created_from"), request.stamp("created_to"))
        page, size = max(1, request.number("page", 1)), min(LARGEST_PAGE, request.number("per_page", DEFAULT_PAGE))
        builds = self._alone if request.query.get("exclude_jobs") == ["true"] else self._whole
        if request.path.endswith("/pipelines"):
            return "", [b"[", b",".join(map(msgspec.json.encode, PIPELINE_BODIES)), b"]"]
        listed = self._filtered(request, range(start, end))
        chosen = [builds[n] for n in listed[(page - 1) * size : page * size]]
        last = max(1, math.ceil(len(listed) / size))
        return self._links(request, page, last), [b"[", b",".join(chosen), b"]"]

    def _filtered(self, request: ListRequest, listed: range) -> Sequence[int]:
        """Those of these builds that have one of the states, and finished late enough."""
        states, since = {*request.query.get("state[]", ())}, request.query.get("finished_from", [""])[-1]
        if not states and not since:
            return listed
        return [n for n in listed if (not states or self._states[n] in states) and self._finished[n] >= since]

    def _between(self, created_from: float | None, created_to: float | None) -> tuple[int, int]:
        """Where the builds created at `created_from` or later, and before `created_to`, begin and end."""
        start = 0 if created_to is None else bisect.bisect_right(self._older, -created_to)
        end = len(self._older) if created_from is None else bisect.bisect_right(self._older, -created_from)
        return start, max(start, end)

    def _links(self, request: ListRequest, page: int, last: int) -> str:
        if last == 1:
            return ""
        before = {"first": 1, "prev": page - 1} if page > 1 else {}
        after = {"next": page + 1, "last": last} if page < last else {}
        return ", ".join(f'<{self._address(request, n)}>; rel="{rel}"' for rel, n in (before | after).items())

    def _address(self, request: ListRequest, page: int) -> str:
        return f"{self.url}{request.path}?{urlencode(request.query | {'page': [page]}, doseq=True)}"


def _written(status: int, headers: dict[str, str], body: list[bytes]) -> list[bytes]:
    result = {
        "Date": formatdate(usegmt=True),
        "Content-Type": "application/json",
        "Content-Length": str(sum(map(len, body))),
        **headers,
    }
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in result.items()), "", ""]
    return ["\r\n".join(lines).encode(), *body]


async def _main(settings: Settings) -> None:
    service = Service(settings)
    server = await asyncio.start_server(service.serve, "127.0.0.1")
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    print(service.url, flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)  # whoever started it is gone
    await ended.wait()


def _read(settings: dict[str, Any]) -> Settings:
    return msgspec.convert(settings, Settings)


if __name__ == "__main__":
    asyncio.run(_main(_read(json.loads(sys.argv[1]))))
