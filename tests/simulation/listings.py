"""Listings: no row lost or doubled while complete, a `left` that holds otherwise, no secret, and an end."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import random
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import httpx
import pandas as pd
import tenacity

from buildframe.errors import BuildframeError
from buildframe.fetching import source, workers
from buildframe.http import client as client_module
from buildframe.http import retry, sockets
from buildframe.http.client import Client
from buildframe.http.token import Token
from buildframe.spec import Moment
from buildframe.workspace import Workspace
from tests.simulation import loopback
from tests.simulation.network import AFTER, BEFORE, REFUSED, Adversary, SimulatedConnections, Weather
from tests.simulation.scheduler import Scheduler, now
from tests.simulation.service import ORDERS, ORGANIZATION, SECOND, Build, Query, Service

LONGEST = 12 * 3600.0
"""Simulated seconds within which a listing must have ended."""

TLS = httpx.create_ssl_context(trust_env=False)
BASE = "http://127.0.0.1:8123"
_ALWAYS = sorted({*AFTER, *BEFORE} - {"stale"})


class Broken(AssertionError):
    """A promise was broken."""


@dataclass
class Plan:
    """All that a seed decides about one listing."""

    seed: int
    chance: random.Random
    kind: str
    weather: Weather
    service: Service
    page_size: int
    options: dict[str, Any]
    life: float

    @classmethod
    def of(cls, seed: int) -> Plan:
        """The plan of a seed."""
        chance = random.Random(f"listing {seed}")
        kind = chance.choices(
            ["builds", "history", "jobs", "pipelines", "members", "flaky_tests"], [55, 15, 10, 7, 7, 6]
        )[0]
        service = new_service(chance)
        life = chance.choice([0.0, 0.0, 0.1, 0.5, 1.0])
        options: dict[str, Any] = {} if kind in _PLAIN else _random_options(chance, service)
        return cls(seed, chance, kind, weather(chance), service, chance.choice([3, 4, 5, 10, 25]), options, life)

    def __str__(self) -> str:
        service = self.service
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return (
            f"{self.kind}({options}) of {len(service.builds)} builds, {self.page_size} on a page, {service.order}, "
            f"stamps of {service.grain} us, out of order by {service.jitter} us, last link: {service.has_last}, "
            f"deepest page: {service.deepest}, changes for each request: {self.life}; {self.weather}"
        )


def weather(chance: random.Random) -> Weather:
    """None, one fault at times, one always, several, or all."""
    names = sorted({*AFTER, *BEFORE, REFUSED})
    sky = chance.choices(["clear", "one", "always", "several", "all"], [14, 34, 16, 31, 5])[0]
    if sky == "clear":
        return Weather()
    if sky == "always":
        return Weather(always=frozenset({chance.choice(_ALWAYS)}))
    if sky == "one":
        return Weather({chance.choice(names): chance.choice([0.02, 0.1, 0.3])})
    if sky == "all":
        return Weather(dict.fromkeys(names, 0.015))
    return Weather({name: chance.uniform(0.02, 0.12) for name in chance.sample(names, chance.randint(2, 6))})


def new_service(chance: random.Random, most: int = 120, most_jitter: int = 20 * SECOND) -> Service:
    """One with any ways and at most so many builds, out of order by at most so much."""
    jitter = min(most_jitter, chance.choice([0, 0, 0, SECOND // 2, SECOND, SECOND, 20 * SECOND]))
    service = Service(
        chance,
        now,
        order=chance.choice(ORDERS),
        grain=chance.choice([1, 1000, 1000, SECOND]),
        jitter=jitter,
        has_last=chance.random() < 0.85,
        deepest=chance.choice([10**9] * 9 + [2]),
        base=BASE,
    )
    service.members = [f"m{n}" for n in range(chance.choice([0, 1, 9, 10, 50, 57]))]
    service.pipelines = [f"pipe-{n}" for n in range(chance.choice([1, 2, 5, 10, 30, 61]))]
    populate(service, min(most, chance.choice([0, 1, 10, 30, 60, 120])), chance)
    return service


def populate(service: Service, count: int, chance: random.Random) -> None:
    """Builds of some days; often many of one stamp."""
    tied = chance.choice([0.0, 0.0, 0.5, 0.9])
    for _ in range(count):
        is_tied = chance.random() < tied and service.builds
        service.skipped += 0 if is_tied else chance.choice([0.001, 0.3, 1, 61, 3600])
        build = service.create(service.builds[-1].created if is_tied else None)
        if chance.random() < 0.9:
            service.change(build)
    service.skipped += chance.choice([0.0, 0.5, 60.0])


def _random_options(chance: random.Random, service: Service) -> dict[str, Any]:
    """Options and filters of a call."""
    options: dict[str, Any] = {"workers": chance.choice([1, 1, 2, 3, 4]), "partial": chance.random() < 0.6}
    stamps = [build.created for build in service.builds] or [service.now]
    newest, one = max(stamps), chance.choice(stamps)
    now_and_then = {
        "columns": (0.9, ["id", "state"]),
        "created_from": (0.5, Moment.from_us(one - chance.choice([0, 1, SECOND]))),
        "created_to": (0.2, Moment.from_us(max(newest + chance.choice([1, SECOND, -SECOND]), one + 1))),
        "state": (0.2, chance.choice(["finished", ["running", "scheduled"]])),
        "branch": (0.15, "main"),
        "finished_from": (0.07, Moment.from_us(chance.choice(stamps))),
        "max_requests": (0.08, chance.choice([1, 3, 10])),
        "deadline": (0.08, chance.choice(["1s", "10s", "5m"])),
        "overlap": (0.5 if service.jitter > SECOND else 0.0, "30s"),
    }
    return options | {name: value for name, (rate, value) in now_and_then.items() if chance.random() < rate}


@dataclass
class Ran:
    """What was run: how it ended, the digest of all that happened, and how the syncs in it ended."""

    outcome: str
    requests: int
    rows: int
    missing: int
    happened: Counter[str]
    digest: str
    syncs: Counter[str] = field(default_factory=Counter)


class Listing:
    """The run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._service = plan, plan.service
        self._token = "bkua_" + "".join(plan.chance.choices("abcdefghij0123456789", k=30))
        self._adversary = Adversary(plan.service, plan.weather, plan.chance, self._token)
        self._output = io.StringIO()
        self._quiet = False
        self._adversary.life = self._live

    @property
    def log(self) -> list[str]:
        """The requests, each with the faults that it met."""
        return self._adversary.log

    def run(self) -> Ran:
        """Ask, and hold what comes against what was there; Broken where a promise was."""
        with overheard(self._output), pages_of(self._plan.page_size):
            scheduler = Scheduler(self._plan.chance, longest=LONGEST)
            with SimulatedConnections(self._adversary).installed():
                return scheduler.run(lambda: self._ask_at(BASE))

    def run_on_loopback(self) -> Ran:
        """The same over real HTTP in real time, without the faults for which a client waits long."""
        weather = self._plan.weather
        rates = {name: rate for name, rate in weather.rates.items() if name not in _LONG}
        self._adversary.weather = Weather(rates, weather.always - _LONG)
        with (
            overheard(self._output),
            pages_of(self._plan.page_size),
            mock.patch.object(retry, "_backoff", tenacity.wait_random(0.0, 0.01)),
            loopback.served(self._adversary) as url,
        ):
            self._service.base = url
            return self._ask_at(url)

    def _ask_at(self, url: str) -> Ran:
        with closing(Client(url, Token(self._token), tls=TLS)) as client:
            ci = Workspace(client, ORGANIZATION)
            begin = self._service.now
            try:
                frame, jobs = self._ask(ci, self._plan.options)
            except BuildframeError as why:
                return self._raised(ci, why)
            missing = self._check(begin, frame, jobs, self._plan.options)
            outcome = "complete" if frame.attrs["complete"] else "incomplete"
            if outcome == "incomplete":
                self._ask_for_the_rest(ci, frame, missing)
            elif missing:
                outcome = "complete, known limit"
            self._check_secrets(f"{ci!r} {client!r} {frame.attrs}")
            return self._ran(outcome, frame["id"].tolist(), len(missing))

    def _ran(self, outcome: str, ids: Sequence[str], missing: int = 0) -> Ran:
        adversary = self._adversary
        text = "\n".join([*adversary.log, outcome, *map(str, ids)])
        digest = hashlib.sha256(text.replace(self._token, "").encode()).hexdigest()
        return Ran(outcome, adversary.requests, len(ids), missing, adversary.happened, digest)

    def _ask(self, ci: Workspace, options: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        """The frame of what is listed, and that of its jobs where they are."""
        kind = self._plan.kind
        self._adversary.begin()
        if kind == "flaky_tests":
            return ci.flaky_tests("rspec", progress=False), None
        if kind in _PLAIN:
            return getattr(ci, kind)(progress=False), None
        if kind == "builds":
            return ci.builds(progress=False, **options), None
        if kind == "history":
            return ci.history(progress=False, job_columns=_OF_JOBS, **options)
        jobs = ci.jobs(progress=False, **{**options, "columns": _OF_JOBS})
        builds = jobs.drop_duplicates("build_id")[["build_id", "build_state"]]
        frame = builds.set_axis(["id", "state"], axis=1).reset_index(drop=True)
        frame.attrs = jobs.attrs
        return frame, jobs

    # --- what must hold

    def _check(self, begin: int, frame: pd.DataFrame, jobs: pd.DataFrame | None, options: dict[str, Any]) -> set[str]:
        """Rows are there once, and are as they were at some moment; the ids of those that are missing."""
        demand(frame["id"].is_unique, "a row is doubled")
        found = set(frame["id"])
        if self._plan.kind in _PLAIN:
            missing = self._listed_plainly()
            demand(found <= missing, "a row that never was")
            missing -= found
        else:
            missing = self._check_builds(min(begin, self._adversary.oldest or begin), frame, jobs, options)
        if frame.attrs["complete"]:
            is_allowed = not missing or self._is_known_limit(begin, missing, frame.attrs["note"] or "")
            demand(is_allowed, f"{len(missing)} rows lost although complete: {sorted(missing)[:5]}")
        else:
            demand(bool(frame.attrs["why"]), "incomplete without a reason")
        return missing

    def _is_known_limit(self, begin: int, missing: set[str], note: str) -> bool:
        """Whether no response shows that rows are missing; docs/reliability.md states these cases."""
        service = self._service
        if self._plan.kind in _PLAIN:
            return False
        query, end = _query(self._plan.options), service.now
        have_left = any(
            not query.holds(build, build.at(end)) and any(query.holds(build, was) for was in build.during(begin, end))
            for build in service.builds
        )
        is_known = have_left or "did not report how many" in note
        lost = [build for build in service.builds if build.id in missing]
        newest = begin - self._overlap - SECOND  # later builds are not counted
        return all(self._is_hidden(build.id) and (is_known or build.created > newest) for build in lost)

    def _is_hidden(self, id: str) -> bool:
        """Whether a build is listed below one that is older by more than the overlap."""
        service = self._service
        build = next(build for build in service.builds if build.id == id)
        before = service.builds[build.number :] if service.order == "by arrival" else []
        return any(build.created - other.created > self._overlap for other in before)

    @property
    def _overlap(self) -> int:
        return 30 * SECOND if "overlap" in self._plan.options else SECOND

    def _listed_plainly(self) -> set[str]:
        is_pipelines = self._plan.kind == "pipelines"
        return {f"p{n}" for n in range(len(self._service.pipelines))} if is_pipelines else set(self._service.members)

    def _check_builds(
        self, begin: int, frame: pd.DataFrame, jobs: pd.DataFrame | None, options: dict[str, Any]
    ) -> set[str]:
        end, query = self._service.now, _query(options)
        # a build may be a second outside of the request: stamps may be cut to seconds
        loose = replace(query, low=query.low - SECOND, high=query.high + SECOND) if self._ignores_bounds else query
        known = {build.id: build.during(begin, end) for build in self._service.builds}
        builds = {build.id: build for build in self._service.builds}
        own: dict[str, set[str]] = {}
        for id, build in () if jobs is None else zip(jobs["id"], jobs["build_id"], strict=True):
            own.setdefault(build, set()).add(id)
        for id, state in zip(frame["id"], frame["state"], strict=True):
            was = [v for v in known[id] if v.state == state and loose.holds(builds[id], v)]
            demand(bool(was), f"{id} never was {state} and in the list")
            if jobs is not None:
                attempts = [{f"j{builds[id].number:07d}-{n}" for n in range(v.attempt + 1)} for v in was]
                demand(own.get(id) in attempts, f"{id} has jobs {own.get(id)} and not one of {attempts}")
        return {build.id for build in self._throughout(query, begin, end)} - set(frame["id"])

    @property
    def _ignores_bounds(self) -> bool:
        return self._adversary.happened["bounds_ignored"] > 0

    def _throughout(self, query: Query, begin: int, end: int) -> Iterator[Build]:
        """The builds that were in the list from one moment to another."""
        for build in self._service.builds:
            is_there = build.at(begin) is not None and build.at(end) is not None
            if is_there and all(query.holds(build, version) for version in build.during(begin, end)):
                yield build

    def _raised(self, ci: Workspace, why: BuildframeError) -> Ran:
        """An error must show no secret, and the same call must do in better weather."""
        self._check_secrets("".join(printed(why)))
        self._clear_up()
        begin = self._service.now
        self._adversary.oldest = None
        options = {
            name: value for name, value in self._plan.options.items() if name not in {"max_requests", "deadline"}
        }
        frame, jobs = self._ask(ci, options)
        self._check(begin, frame, jobs, options)
        return self._ran(f"raised {type(why).__name__}", [])

    def _ask_for_the_rest(self, ci: Workspace, frame: pd.DataFrame, missing: set[str]) -> None:
        """What is `left`, requested in better weather, brings what is missing and is still there.

        Unless the list is out of order by more than the overlap, which a listing that was stopped cannot know.
        """
        if self._plan.kind in _PLAIN or self._service.jitter > self._overlap:
            return
        self._clear_up()
        end, query, found = self._service.now, _query(self._plan.options), set(frame["id"])
        options = {name: value for name, value in self._plan.options.items() if name not in _LIMITS | _BOUNDS}
        for window in frame.attrs["left"]:
            found |= set(self._ask(ci, options | window | {"overlap": "10m", "partial": True})[0]["id"])
        there = {build.id for build in self._throughout(query, end, self._service.now)}
        lost = missing & there - found
        demand(not lost, f"{len(lost)} rows are missing and not within left={frame.attrs['left']}: {sorted(lost)[:5]}")

    def _check_secrets(self, text: str) -> None:
        demand(self._token not in text + self._output.getvalue(), "the token shows")

    # --- the world

    def _clear_up(self) -> None:
        """Fair weather, and a service as it should be."""
        self._adversary.weather, self._quiet = Weather(), True
        self._service.clear_up()

    def _live(self) -> None:
        """What happens at the service around a request."""
        if not self._quiet:
            live(self._service, self._plan.chance, self._plan.life)


def live(service: Service, chance: random.Random, rate: float) -> None:
    """What people do at the service meanwhile: a number of things, on average the rate."""
    while chance.random() < rate / (1 + rate) and len(service.builds) < _MOST_BUILDS:
        there = service.there()
        did = chance.choice(["create", "create", "tie", "delete", "change", "change"])
        if did == "create" or not there:
            service.create()
        elif did == "tie":
            service.create(there[-1].created)
        elif did == "delete":
            service.delete(chance.choice(there))
        else:
            service.change(chance.choice(there))


_LONG = frozenset({"limited", "odd_limits", "status_503", "hangs", "slow", "trickles", "endless", REFUSED})
_PLAIN = frozenset({"pipelines", "members", "flaky_tests"})
_BOUNDS = frozenset({"created_from", "created_to"})
_MOST_BUILDS = 300
_OF_JOBS = ["id", "build_id", "build_state"]
_LIMITS = frozenset({"max_requests", "deadline", "overlap"})


def _query(options: dict[str, Any]) -> Query:
    low, high, finished = (
        options[name].us if name in options else None for name in (*sorted(_BOUNDS), "finished_from")
    )
    states = options.get("state", ())
    return Query(
        -(10**18) if low is None else low,
        10**18 if high is None else high,
        finished,
        frozenset([states] if isinstance(states, str) else states),
        options.get("branch"),
    )


def demand(holds: bool, what: str) -> None:
    """Something that must hold."""
    if not holds:
        raise Broken(what)


def printed(why: BaseException) -> Iterator[str]:
    """All that a traceback may show of an error, with the variables of the library's frames."""
    yield from traceback.format_exception(why)
    with pd.option_context("display.max_rows", 4, "display.max_columns", 4):  # to print whole frames takes long
        for frame in traceback.TracebackException.from_exception(why, capture_locals=True).stack:
            if "/tests/" not in frame.filename:
                yield f"{frame.name} {frame.locals}\n"


@contextlib.contextmanager
def overheard(into: io.StringIO) -> Iterator[None]:
    """All that is logged or warned of meanwhile goes into a text."""
    handler, log = logging.StreamHandler(into), logging.getLogger("buildframe")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        into.write(f"{message}\n")

    try:
        with warnings.catch_warnings(), mock.patch.object(warnings, "showwarning", show):
            warnings.simplefilter("always")
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextlib.contextmanager
def pages_of(size: int) -> Iterator[None]:
    """Pages are small, so that few builds make many."""
    with (
        mock.patch.object(source, "PAGE_SIZE", size),
        mock.patch.object(client_module, "_RATE_LIMITERS", type(client_module._RATE_LIMITERS)()),
        mock.patch.object(workers, "_TICK", 5.0),  # who waits need not look often: time jumps
        mock.patch.object(sockets, "version", return_value="0"),  # which reads files
        _seeded(size),
    ):
        yield


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """What the library draws by chance, such as waits, is the same each time."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


def run(seed: int, show: Callable[[str], Any] | None = None) -> Ran:
    """The listing of a seed; `show` gets what happened, line by line."""
    return _shown(Listing(Plan.of(seed)), Listing.run, show)


def run_on_loopback(seed: int, show: Callable[[str], Any] | None = None) -> Ran:
    """The same over real HTTP, where threads and time are those of the machine."""
    return _shown(Listing(Plan.of(seed)), Listing.run_on_loopback, show)


def _shown(listing: Listing, how: Callable[[Listing], Ran], show: Callable[[str], Any] | None) -> Ran:
    try:
        return how(listing)
    finally:
        for line in listing.log if show else ():
            show(line)
