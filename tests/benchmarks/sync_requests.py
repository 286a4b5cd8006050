"""Count the requests of syncs with a simulated service of an organization with 500,000 builds a day.

Builds and pages have full size, so that requests need no scaling. Only jobs are scaled down: one a build instead of 20.
Each request advances the service's clock by the time that the rate limit allows for it, so builds start and end during
a sync as they would.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import numpy.typing as npt

import buildframe as bf
from buildframe.store.sync import SyncResult
from tests.benchmarks import reporting
from tests.conftest import Scripted, says

BEGIN = dt.datetime(2026, 10, 1, tzinfo=dt.UTC)
API = "/v2/organizations/acme"
PAGE, PIPELINES = 100, 250
MINUTE, HOUR = 60.0, 3_600.0
LIMIT = 50  # requests a minute of a user
LONGEST_S = 3_000  # of a build; the shortest takes 600 s, so the mean is half an hour
OPEN = {"scheduled", "running", "failing", "canceling"}


@dataclass
class BusyService:
    """Builds start at a constant rate, and run for 10 to 50 minutes. `now` and `history` are in seconds."""

    a_minute: float
    history: float
    limit: int = LIMIT

    def __post_init__(self) -> None:
        self.now, self.requests = self.history, 0
        random = np.random.default_rng(1)
        created = np.arange(0, 3 * self.history + 4 * HOUR, MINUTE / self.a_minute)
        self.created = np.round(created * 1_000).astype(np.int64)  # in milliseconds, as `ended`
        self.ended = self.created + random.integers(600_000, LONGEST_S * 1_000, len(created))
        self._server = Scripted(self._respond)
        self.url = self._server.url

    def stop(self) -> None:
        self._server.stop()

    def count_open(self) -> int:
        """Number of builds that run now."""
        return int(((self.created <= self.now_ms) & (self.ended > self.now_ms)).sum())

    @property
    def now_ms(self) -> int:
        return int(self.now * 1_000)

    def _respond(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests += 1
        self.now += MINUTE / self.limit
        parts = urlsplit(handler.path)
        query = parse_qs(parts.query)
        body, links = self._pipelines(query) if parts.path.endswith("/pipelines") else self._builds(query)
        now = BEGIN + dt.timedelta(seconds=self.now)
        one_at_a_time = {f"RateLimit_User_{name}": value for name, value in
                         {"Remaining": "1", "Limit": str(self.limit), "Reset": "1"}.items()}  # fmt: skip
        says(body, date=format_datetime(now, usegmt=True), Link=links, X_Simulated_Time="true", **one_at_a_time)(
            handler
        )

    def _pipelines(self, query: dict[str, list[str]]) -> tuple[bytes, str]:
        rows = [{"id": f"p{n}", "slug": f"p{n}", "url": f"{self.url}{API}/pipelines/p{n}", "created_at": _text(0)}
                for n in range(PIPELINES)]  # fmt: skip
        chosen, links = self._page(range(PIPELINES), query, "pipelines")
        return json.dumps([rows[n] for n in chosen]).encode(), links

    def _builds(self, query: dict[str, list[str]]) -> tuple[bytes, str]:
        numbers = np.flatnonzero(self._matches(query))[::-1]
        chosen, links = self._page(numbers, query, "builds")
        return json.dumps([self._build(int(n)) for n in chosen]).encode(), links

    def _matches(self, query: dict[str, list[str]]) -> npt.NDArray[np.bool_]:
        bounds = {
            name: _ms(query[name][0]) for name in ("created_from", "created_to", "finished_from") if name in query
        }
        found = (self.created <= self.now_ms) & (self.created >= bounds.get("created_from", -np.inf))
        found &= self.created < bounds.get("created_to", np.inf)
        if "finished_from" in bounds:
            found &= (self.ended <= self.now_ms) & (self.ended >= bounds["finished_from"])
        if states := set(query.get("state[]", [])):
            assert states == OPEN, states
            found &= self.ended > self.now_ms
        return found

    def _page(
        self, rows: Sequence[int] | npt.NDArray[np.intp], query: dict[str, list[str]], name: str
    ) -> tuple[Any, str]:
        size, number = int(query["per_page"][0]), int(query.get("page", ["1"])[0])
        pages = -(-len(rows) // size)
        here = f"{self.url}{API}/{name}?per_page={size}&page="
        links = f'<{here}{number + 1}>; rel="next", <{here}{pages}>; rel="last"' if number < pages else ""
        return rows[(number - 1) * size : number * size], links

    def _build(self, n: int) -> dict[str, Any]:
        is_open, slug = self.ended[n] > self.now_ms, f"p{n % PIPELINES}"
        state = "running" if is_open else "passed"
        return {
            "id": f"b{n}", "number": n, "state": state, "blocked": False, "created_at": _text(self.created[n]),
            "finished_at": None if is_open else _text(self.ended[n]),
            "url": f"{self.url}{API}/pipelines/{slug}/builds/{n}", "pipeline": {"id": slug, "slug": slug},
            "jobs": [{"id": f"j{n}", "type": "script", "state": state}],
        }  # fmt: skip


def _text(ms: int) -> str:
    return (BEGIN + dt.timedelta(milliseconds=int(ms))).isoformat(timespec="milliseconds")


def _ms(text: str) -> float:
    return (dt.datetime.fromisoformat(text.replace(" ", "+")) - BEGIN) / dt.timedelta(milliseconds=1)


@contextmanager
def synced(service: BusyService, since: str = "10m") -> Iterator[functools.partial[SyncResult]]:
    """Call the result for a sync of the service into one store, the first of which is done."""
    with tempfile.TemporaryDirectory() as folder, bf.connect("acme", base_url=service.url, token="invented") as ci:
        sync = functools.partial(bf.Store(folder).sync, ci, since=since, progress=False)
        yield sync
    service.stop()


def repeated(a_minute: float, interval: float, limit: int, times: int = 3) -> list[tuple[SyncResult, float]]:
    """Sync at each interval, and return the last results, each with the seconds that it took by the limit."""
    service, results = BusyService(a_minute, 2 * HOUR, limit), []
    with synced(service) as sync:
        sync()
        for _ in range(times):
            service.now += interval - service.now % interval
            began = service.now
            done = sync()
            assert done.complete, done.why
            results.append((done, service.now - began))
    return results


def computed(a_minute: float, interval: float, took: float = 0.0) -> float:
    """Return the requests of a sync that takes so long: 99 new builds a page, as pages overlap by one, and counts."""
    again = interval + took + 5 * MINUTE
    times = np.linspace(600, LONGEST_S, 10_000)  # a build's duration
    open_s, ended_s = times.mean(), np.minimum(times, again).mean()
    return sum(a_minute * seconds / MINUTE / 99 + 1 for seconds in (open_s, ended_s, again)) + -(-PIPELINES // PAGE)


def first(a_minute: float, hours: int, limit: int) -> None:
    """Print what a first sync of some hours takes, to compare with a page for each 99 builds."""
    service = BusyService(a_minute, hours * HOUR, limit)
    with synced(service, f"{hours}h") as sync:
        began = service.now
        done = sync()
    assert done.complete, done.why
    print(f"first sync of {hours} h: {done.builds:,} builds, {done.requests:,} requests, "
          f"{done.builds / done.requests:.1f} builds a request, {(service.now - began) / MINUTE:.1f} minutes at "
          f"{limit} a minute", flush=True)  # fmt: skip


CASES = (
    *((350, LIMIT, minutes) for minutes in (60, 15, 5)),
    *((1_050, LIMIT, minutes) for minutes in (60, 30)),
    (350, 4 * LIMIT, 1),
    *((1_050, 4 * LIMIT, minutes) for minutes in (15, 5)),
)
"""Builds a minute, requests a minute, and minutes between syncs."""


def main(quick: bool) -> None:
    cases = ((35, LIMIT, 15),) if quick else CASES
    for a_minute, limit, minutes in cases:
        done, took = repeated(a_minute, minutes * MINUTE, limit, 1 if quick else 2)[-1]
        late = "LATE" if took > minutes * MINUTE else ""
        print(f"{a_minute} builds a minute, every {minutes} min, {limit} requests a minute: "
              f"{done.requests} requests (computed {computed(a_minute, minutes * MINUTE, took):.0f}), "
              f"{done.builds:,} builds, {took / MINUTE:.1f} min {late}", flush=True)  # fmt: skip
    first(cases[0][0], 1 if quick else 4, LIMIT)


if __name__ == "__main__":
    reporting.run(main)
