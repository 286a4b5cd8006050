"""The receiver against its disk and its store: each acknowledged delivery reaches the store.

One thread does what those of the receiver do. `python -m tests.simulation.test_receiver 7` repeats the run of a seed.
"""

from __future__ import annotations

import errno
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from buildframe.errors import StoreFailed
from buildframe.receiver import write_ahead
from buildframe.receiver.inbox import Inbox
from buildframe.spec import Moment
from buildframe.webhooks import Event
from tests.receiver.deliveries import of_job

HIDDEN = [b"hunter2", b"ada@example.com", b"Ada Example"]


class Killed(BaseException):
    """The process ends here."""


class Disk:
    """The module `os` of a process that may be killed at any call, on a disk that may be full or broken."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self.bad, self.deadly = chance, 0.0, 0.0
        self._open: dict[int, tuple[str, int]] = {}

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name)
        return (lambda *given: self._do(name, call, given)) if name in _CALLS else call

    def _do(self, name: str, call: Any, given: tuple[Any, ...]) -> Any:
        if self._chance.random() < self.deadly:
            self._half_done(name, given)
            raise Killed
        if self._chance.random() < self.bad:
            self._half_done(name, given)
            raise OSError(code := self._chance.choice([errno.ENOSPC, errno.EIO]), os.strerror(code))
        done = call(*given)
        if name == "open":
            self._open[done] = str(given[0]), os.fstat(done).st_size
        elif name == "close":
            del self._open[given[0]]
        elif name in ("fsync", "ftruncate"):
            self._open[given[0]] = self._open[given[0]][0], os.fstat(given[0]).st_size
        return done

    def _half_done(self, name: str, given: tuple[Any, ...]) -> None:
        if name == "write":
            os.write(given[0], bytes(given[1])[: self._chance.randrange(len(given[1]) + 1)])
        elif name == "close":
            os.close(given[0])
            del self._open[given[0]]

    def end(self) -> None:
        """What the kernel does with the files of a killed process; a power cut also takes what was not flushed."""
        is_power_cut = self._chance.random() < 0.5
        for file, (path, flushed) in self._open.items():
            os.close(file)
            if is_power_cut and os.path.exists(path) and os.path.getsize(path) > flushed:
                os.truncate(path, self._chance.randint(flushed, os.path.getsize(path)))
        self._open.clear()


_CALLS = {"open", "write", "fsync", "ftruncate", "close"}


class Kept:
    """What a store does with deliveries, as far as it matters here; commits fail, or the process ends after one."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self.url, self.covers = url, {"acme": None}
        self.jobs: dict[str, int] = {}
        self._chance = chance
        self.bad = 0.0

    def receive(self, events: Sequence[Event], **_: bool) -> Any:
        if self._chance.random() < self.bad:
            raise StoreFailed("The store is out of reach.")
        for event in events:
            assert event.job is not None
            self.jobs[str(event.job.id)] = self.jobs.get(str(event.job.id), 0) + 1
        if self._chance.random() < self.bad:
            raise Killed  # after the commit
        return SimpleNamespace(builds=0, jobs=len(events), left_out=0)


class Run:
    """One history of a receiver that is killed and started again and again."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.disk, self.store = Disk(self.chance), Kept(str(folder), self.chance)
        self.answered: set[str] = set()
        self.sent: list[Event] = []
        self.folder, self.kills = folder / "_deliveries", 0
        self.inbox: Any = None

    def go(self) -> int:
        with (
            mock.patch.object(write_ahead, "os", self.disk),
            mock.patch.object(write_ahead, "MAX_SEGMENT_BYTES", 3_000),
        ):
            for _ in range(60):
                self.disk.bad, self.disk.deadly = self.chance.choice([0, 0, 0.2]), self.chance.choice([0, 0.02])
                self.store.bad = self.chance.choice([0, 0.3])
                self._survive(self.chance.choice([self._deliver, self._deliver, self._write]))
            self.disk.bad = self.disk.deadly = self.store.bad = 0
            self._kill()
            self._start()
            while self.inbox._queue:
                self._write()
            self.inbox._log.close()
        assert self.answered <= set(self.store.jobs), f"lost: {sorted(self.answered - set(self.store.jobs))}"
        assert not list(self.folder.iterdir())
        return self.kills

    def _survive(self, act: Any) -> None:
        try:
            if self.inbox is None:
                self._start()
            act()
        except Killed:
            self._kill()
        except StoreFailed:  # there is no folder to begin with
            self.disk.end()
            self.inbox = None

    def _start(self) -> None:
        self.inbox = Inbox(self.store)  # type: ignore[arg-type]
        self.inbox._enqueue(list(self.inbox._log.recover()), 0.0)

    def _kill(self) -> None:
        self.disk.end()
        self.inbox, self.kills = None, self.kills + 1

    def _deliver(self) -> None:
        """Some at once: new ones, copies, late ones, with skewed times."""
        group = [self._event() for _ in range(self.chance.randint(1, 5))]
        taken = [(event, self.inbox.put(event)) for event in group]
        self.inbox._closing = True  # so that it returns when it has written these
        self.inbox._run_disk()
        self.inbox._closing = False
        for event, why in taken:
            if why.result(0) is None:
                assert event.job is not None
                self.answered.add(str(event.job.id))
        content = b"".join(path.read_bytes() for path in self.folder.iterdir())
        assert not [word for word in HIDDEN if word in content]

    def _event(self) -> Event:
        if self.sent and self.chance.random() < 0.2:
            return self.chance.choice(self.sent)
        skew = Moment.from_us(int(self.chance.uniform(0, 4e15)))
        self.sent.append(of_job(self.chance.uniform(0, 1e6), len(self.sent), received_at=skew))
        return self.sent[-1]

    def _write(self) -> None:
        if batch := self.inbox._oldest():
            self.inbox._write(batch)


def run(seed: int) -> int:
    """One history; how often the receiver was killed in it."""
    with tempfile.TemporaryDirectory() as folder:
        return Run(seed, Path(folder)).go()


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(0, 60, 20))
def test_each_answered_delivery_comes_into_the_store(begin: int) -> None:
    kills = 0
    for seed in range(begin, begin + 20):
        try:
            kills += run(seed)
        except BaseException as why:
            raise AssertionError(f"seed {seed}: {why!r}; python -m tests.simulation.test_receiver {seed}") from why
    assert kills > 20


def test_a_receiver_that_does_not_flush_is_found() -> None:
    with mock.patch.object(Disk, "__getattr__", _unflushed), pytest.raises(AssertionError, match="lost"):
        all(map(run, range(40)))


def _unflushed(disk: Disk, name: str) -> Any:
    call = getattr(os, name)
    if name == "fsync":
        return lambda _: None
    return (lambda *given: disk._do(name, call, given)) if name in _CALLS else call


if __name__ == "__main__":
    for text in sys.argv[1:]:
        print(f"seed {text}: killed {run(int(text))} times")
