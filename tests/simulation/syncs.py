"""Histories of syncs of one store: after two in fair weather the store equals the service, whatever was before.

Days pass between syncs, which are killed at any instant, meet any weather and a failing disk, and at times run two at
once.
"""

from __future__ import annotations

import errno
import hashlib
import io
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from buildframe.errors import BuildframeError
from buildframe.http.client import Client
from buildframe.http.token import Token
from buildframe.store.store import Store
from buildframe.workspace import Workspace
from buildframe.workspace.build_queries import History as Listed
from tests.simulation import listings
from tests.simulation.disk import Died, Disk
from tests.simulation.listings import BASE, TLS, Ran, demand, live, overheard, pages_of
from tests.simulation.network import DAY, Adversary, SimulatedConnections, Weather
from tests.simulation.scheduler import Scheduler, Thread, now
from tests.simulation.service import ORGANIZATION, SECOND, Service
from tests.store import store_comparison
from tests.store.batches import Killed, at_each_instant

LONGEST = 10 * DAY
"""Simulated seconds for one history, without the days between syncs."""

_MOST_REQUESTS = 20_000
_SINCE = "2d"
_MEMORY = Path("/dev/shm")  # where a commit costs no wait for a disk


@dataclass
class Step:
    """One sync of a history: how long after the one before, and what is in its way."""

    after: float
    changes: float
    weather: Weather
    dies_at: int | None
    at_once: int
    disk_at: int | None
    error: int | None


@dataclass
class Plan:
    """All that a seed decides about one history."""

    seed: int
    chance: random.Random
    service: Service
    page_size: int
    life: float
    steps: list[Step]

    @classmethod
    def of(cls, seed: int) -> Plan:
        """The plan of a seed."""
        chance = random.Random(f"syncs {seed}")
        service = listings.new_service(chance, most=60, most_jitter=SECOND)  # what a sync requests again
        count = chance.choice([4] * 6 + [5] * 6 + [8, 12])
        return cls(
            seed,
            chance,
            service,
            chance.choice([5, 10, 25]),
            chance.choice([0.0, 0.1, 0.3]),
            [_step(chance) for _ in range(count - 2)],
        )

    def __str__(self) -> str:
        service = self.service
        steps = "\n".join(
            f"  {step.after:.0f} s later, {step.changes:.0f} changes, {step.at_once} at once, "
            f"killed at instant {step.dies_at}, "
            f"disk call {step.disk_at} ends with {step.error or 'death'}; {step.weather}"
            for step in self.steps
        )
        return (
            f"{len(service.builds)} builds, {self.page_size} on a page, {service.order}, stamps of {service.grain} us, "
            f"changes for each request: {self.life}\n{steps}"
        )


def _step(chance: random.Random) -> Step:
    sky = chance.choices(["clear", "clock", "any"], [4, 3, 3])[0]
    weather = Weather() if sky == "clear" else listings.weather(chance)
    if sky == "clock":
        skew = chance.choice([-2 * DAY, -3600, -90, 90, 3600, 2 * DAY])
        date = chance.choice(["date_ahead", "date_behind", "stale", "lagging"])
        weather = chance.choice([Weather(skew=skew), Weather({date: chance.choice([0.05, 0.3])})])
    return Step(
        chance.choice([60.0, 3600.0, 6 * 3600.0, 20 * 3600.0, 2 * DAY]),
        chance.choice([0.0, 3.0, 10.0]),
        weather,
        chance.randrange(40) if chance.random() < 0.2 else None,
        2 if chance.random() < 0.15 else 1,
        chance.randrange(80) if chance.random() < 0.25 else None,
        chance.choice([None, errno.ENOSPC, errno.EIO]),
    )


class History:
    """The run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._service, self._chance = plan, plan.service, plan.chance
        self._token = "bkua_" + "".join(plan.chance.choices("abcdefghij0123456789", k=30))
        self._adversary = Adversary(plan.service, Weather(), plan.chance, self._token)
        self._adversary.most_in_vain = self._adversary.most_requests = _MOST_REQUESTS  # syncs read again what is known
        self._output = io.StringIO()
        self._ended: Counter[str] = Counter()
        self._rate = plan.life
        self._scheduler = Scheduler(plan.chance, longest=LONGEST)
        self._adversary.life = lambda: live(self._service, self._chance, self._rate)

    @property
    def log(self) -> list[str]:
        """The requests, each with the faults that it met, and the syncs."""
        return self._adversary.log

    def run(self) -> Ran:
        """Sync as planned, twice more in fair weather, and compare; Broken where a promise was."""
        parent = str(_MEMORY) if _MEMORY.is_dir() else None
        folder = Path(tempfile.mkdtemp(prefix="simulated-", dir=parent))
        try:
            with overheard(self._output), pages_of(self._plan.page_size):
                return self._scheduler.run(lambda: self._in_time(folder / "store"))
        finally:
            shutil.rmtree(folder)

    def _in_time(self, folder: Path) -> Ran:
        with SimulatedConnections(self._adversary).installed():
            for step in self._plan.steps:
                self._pass(step.after, step.changes)
                self._adversary.weather = step.weather
                self._step(folder, step)
            self._adversary.weather = Weather()
            self._service.clear_up()
            for _ in range(2):
                self._pass(self._chance.choice([60.0, 3600.0]), 3.0)
                self._rate = 0.0
                demand(self._sync(folder) == "complete", f"a sync in fair weather is not: {self.log[-1]}")
            self._compare(folder)
        demand(self._token not in self._output.getvalue(), "the token shows in what was logged or warned of")
        demand(not any(self._token.encode() in file.read_bytes() for file in _files(folder)), "the store has the token")
        ids = [f"{build.id} {build.versions[-1].state}" for build in self._service.there()]
        digest = hashlib.sha256("\n".join([*self.log, *ids]).encode()).hexdigest()
        return Ran("equal", self._adversary.requests, len(ids), 0, self._adversary.happened, digest, self._ended)

    # --- one sync

    def _pass(self, seconds: float, changes: float) -> None:
        for _ in range(4):
            self._scheduler.skip(seconds / 4)
            live(self._service, self._chance, changes / 4)

    def _step(self, folder: Path, step: Step) -> None:
        threads = [Thread(target=self._sync, args=(folder,)) for _ in range(step.at_once - 1)]
        disk = Disk(folder, step.disk_at, step.error)
        with self._instants(step.dies_at), disk.installed() if step.disk_at is not None else nullcontext():
            for thread in threads:
                thread.start()
            self._sync(folder)
            for thread in threads:
                thread.join()

    @contextmanager
    def _instants(self, dies_at: int | None) -> Iterator[None]:
        """At each instant of writing another sync may go on, and at one this one is killed."""
        count = 0

        def between(name: str) -> None:
            nonlocal count
            count += 1
            self._scheduler.may_switch()
            if count - 1 == dies_at:
                raise Killed

        with at_each_instant(between):
            yield

    def _sync(self, folder: Path) -> str:
        ended = self._how_it_ends(folder)
        self._ended[ended.partition(":")[0]] += 1
        self.log.append(f"{now():10.2f} sync: {ended}")
        return ended.partition(":")[0]

    def _how_it_ends(self, folder: Path) -> str:
        try:
            with closing(Client(BASE, Token(self._token), tls=TLS)) as client:
                done = Store(folder).sync(Workspace(client, ORGANIZATION), since=_SINCE, progress=False)
        except (Killed, Died):
            return "killed"
        except BuildframeError as why:
            demand(self._token not in "".join(listings.printed(why)), "the token shows in an error")
            return f"raised {type(why).__name__}"
        demand(self._token not in f"{done} {done!r}", "the token shows in what a sync returns")
        return "complete" if done.complete else f"incomplete: {done.why}"

    # --- what must hold

    def _compare(self, folder: Path) -> None:
        store = Store(folder)
        store_comparison.whole(store)
        with closing(Client(BASE, Token(self._token), tls=TLS)) as client:
            served = Workspace(client, ORGANIZATION).history(progress=False)
        demand(set(served.builds["id"]) == {build.id for build in self._service.there()}, "a listing lost rows")
        kept = store.builds(columns=None), store.jobs()
        try:
            store_comparison.same_as_served(_covered(served, store, kept[0]), kept, store)
        except AssertionError as why:
            raise listings.Broken(f"the store differs: {str(why)[:600]}") from None
        ever = {build.id for build in self._service.builds}
        demand(set(kept[0]["id"]) <= ever, "a build that never was")


def _covered(served: Listed, store: Store, kept: pd.DataFrame) -> Listed:
    """What the store must have of what is served: builds created since it begins, and those that it has besides."""
    since, _ = store.covers[ORGANIZATION]
    builds = served.builds[(served.builds["created_at"] >= since) | served.builds["id"].isin(kept["id"])]
    return Listed(builds, served.jobs[served.jobs["build_id"].isin(builds["id"])])


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def run(seed: int, show: Callable[[str], Any] | None = None) -> Ran:
    """The history of a seed; `show` gets what happened, line by line."""
    history = History(Plan.of(seed))
    try:
        return history.run()
    finally:
        for line in history.log if show else ():
            show(line)
