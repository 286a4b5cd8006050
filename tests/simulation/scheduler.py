"""Simulated time and threads: one thread runs at a time, a seed decides which, and waiting costs nothing.

The modules of the library get a `threading`, `time` and `queue` whose threads are real but take turns, and change
only where they block: at locks, conditions, events, queues, joins, sleeps and the network. When all of them wait, the
clock jumps to the first moment for which one waits. So a run is repeated exactly by its seed, whatever the machine
does meanwhile.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar
from unittest import mock

from buildframe.http.rate_limit import RateLimiter

T = TypeVar("T")

EPOCH = 1_790_000_000.0
"""The time of day, in seconds since 1970, at which a simulation begins."""

BEGIN = 1000.0
"""What the simulated clock, in seconds, begins with."""

_SIMULATED = ("buildframe.", "httpcore._sync.")
_REAL = ("buildframe.sandbox_server", "buildframe.widgets")
_SWITCHES = 0.2  # share of the locks that are free, at which another thread may come first


class Stuck(BaseException):
    """A run came to no end: nobody can go on, or it took too long. Nothing of the library catches it for good."""


class _Task:
    """A thread of the simulation: it runs once its gate opens, which is when it is ready or its time has come."""

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.ready: Callable[[], bool] = lambda: True
        self.until: float | None = None


class Scheduler:
    """Lets the threads of one run take turns. `now` is the simulated time in seconds."""

    running: Scheduler | None = None

    def __init__(self, chance: random.Random, *, longest: float, most_turns: int = 2_000_000) -> None:
        self.now = BEGIN
        self._end = self.now + longest
        self._turns_left = most_turns
        self._chance = chance
        self._main = _Task()
        self._current = self._main
        self._tasks = [self._main]
        self.broken: str | None = None

    def run(self, work: Callable[[], T]) -> T:
        """Do something in simulated time; all threads that it starts have ended afterwards."""
        with _patched(self), _no_collecting():
            try:
                found = work()
                self.block(lambda: len(self._tasks) == 1)
                return found
            finally:
                self.broken = self.broken or ("it is over" if len(self._tasks) > 1 else None)
                while len(self._tasks) > 1:
                    self._hand_on(self._tasks[-1])

    def block(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something is so, or for so many seconds; whether it is so."""
        if self.broken is None:
            me = self._current
            me.ready, me.until = ready, None if seconds is None else self.now + max(0.0, seconds)
            self._hand_on(self._next())
        if self.broken is not None:
            raise Stuck(self.broken)
        return ready()

    def skip(self, seconds: float) -> None:
        """Let time pass that does not count as taken."""
        self.now, self._end = self.now + seconds, self._end + seconds

    def may_switch(self) -> None:
        """Another thread may come first here."""
        if len(self._tasks) > 2 and self._chance.random() < _SWITCHES:
            self.block(lambda: True)

    def start(self, work: Callable[[], None]) -> _Task:
        """A further thread."""
        task = _Task()

        def body() -> None:
            task.gate.acquire()
            try:
                if self.broken is None:
                    work()
            except Stuck as why:
                self.broken = self.broken or str(why)
            finally:
                self._tasks.remove(task)
                self._current = self._next() if self.broken is None else self._main
                self._current.gate.release()

        self._tasks.append(task)
        threading.Thread(target=body, daemon=True).start()
        return task

    def has(self, task: _Task) -> bool:
        """Whether the thread has not ended."""
        return task in self._tasks

    def _hand_on(self, task: _Task) -> None:
        """Let another thread run, until this one's turn comes again."""
        me, self._current = self._current, task
        if task is not me:
            task.gate.release()
            me.gate.acquire()

    def _next(self) -> _Task:
        """Whose turn is next; the clock goes on where all wait."""
        self._turns_left -= 1
        while self.broken is None:
            able = [task for task in self._tasks if task.ready() or (task.until is not None and task.until <= self.now)]
            if able:
                return able[0] if len(able) == 1 else self._chance.choice(able)
            moments = [task.until for task in self._tasks if task.until is not None]
            if not moments:
                self.broken = "all threads wait for each other"
            elif min(moments) > self._end or self._turns_left < 0:
                self.broken = f"it took more than {self.now - BEGIN:,.0f} s and has no end"
            else:
                self.now = min(moments)
        return self._main


def block(ready: Callable[[], bool], seconds: float | None = None) -> bool:
    """Wait in the present simulation; without one nothing is waited for."""
    return ready() if Scheduler.running is None else Scheduler.running.block(ready, seconds)


def now() -> float:
    """The simulated time in seconds; before and after a run that of its beginning."""
    return BEGIN if Scheduler.running is None else Scheduler.running.now


# --- what takes the place of the modules


class Lock:
    """`threading.Lock`."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if Scheduler.running is not None and blocking:
            Scheduler.running.may_switch()
            block(lambda: not self._held, None if timeout < 0 else timeout) if self._held else None
        taken, self._held = not self._held, True
        return taken

    def release(self) -> None:
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition(Lock):
    """`threading.Condition`."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[object] = []

    def wait(self, timeout: float | None = None) -> bool:
        ticket = object()
        self._waiting.append(ticket)
        self.release()
        try:
            return block(lambda: ticket not in self._waiting, timeout)
        finally:
            self._waiting = [other for other in self._waiting if other is not ticket]
            if Scheduler.running is None or Scheduler.running.broken is None:
                block(lambda: not self._held)
            self._held = True

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        end = None if timeout is None else now() + timeout
        while not (found := predicate()) and (end is None or now() < end):
            self.wait(None if end is None else end - now())
        return found or predicate()

    def notify(self, n: int = 1) -> None:
        self._waiting = self._waiting[n:]

    def notify_all(self) -> None:
        self._waiting = []


class Event:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return block(self.is_set, timeout)


class Thread:
    """`threading.Thread`."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] = lambda: None,
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name, self.daemon, self.ident = name, daemon, None
        self._work: Callable[[], object] = lambda: target(*args, **(kwargs or {}))
        self._task: _Task | None = None
        self._scheduler = Scheduler.running

    def run(self) -> None:
        self._work()

    def start(self) -> None:
        assert self._scheduler is not None
        self._task = self._scheduler.start(self.run)

    def is_alive(self) -> bool:
        return self._task is not None and self._scheduler is not None and self._scheduler.has(self._task)

    def join(self, timeout: float | None = None) -> None:
        block(lambda: not self.is_alive(), timeout)


class Timer(Thread):
    """`threading.Timer`."""

    def __init__(self, interval: float, function: Callable[..., object], args: Any = (), kwargs: Any = None) -> None:
        super().__init__(target=function, args=tuple(args), kwargs=kwargs)
        self.interval, self.finished = interval, Event()

    def cancel(self) -> None:
        self.finished.set()

    def run(self) -> None:
        if not self.finished.wait(self.interval):
            super().run()


class SimpleQueue:
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: collections.deque[Any] = collections.deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self, block_: bool = True, timeout: float | None = None) -> Any:
        if not block(lambda: bool(self._items), timeout if block_ else 0.0):
            raise queue.Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


class _Instead(ModuleType):
    """A module of which some names are other ones."""

    def __init__(self, module: ModuleType, **others: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(vars(module), **others)


def _sleep(seconds: float) -> None:
    block(lambda: False, seconds)


_MODULES = {
    "threading": _Instead(
        threading, Lock=Lock, RLock=threading.RLock, Condition=Condition, Event=Event, Thread=Thread, Timer=Timer
    ),
    "queue": _Instead(queue, SimpleQueue=SimpleQueue),
    "time": _Instead(time, monotonic=now, time=lambda: EPOCH + now() - BEGIN, sleep=_sleep),
}


@contextlib.contextmanager
def _patched(scheduler: Scheduler) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module, name in _users():
            stack.enter_context(mock.patch.object(module, name, _MODULES[name]))
        stack.enter_context(mock.patch.object(RateLimiter.__init__, "__defaults__", (now,)))
        stack.enter_context(mock.patch.object(Scheduler, "running", scheduler))
        yield


@contextlib.contextmanager
def _no_collecting() -> Iterator[None]:
    """Without the garbage collector, which would call finalizers at any moment."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _users() -> list[tuple[ModuleType, str]]:
    """The modules that block, and what they use for it."""
    chosen = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(_SIMULATED) and not name.startswith(_REAL)
    ]
    return [(module, name) for module in chosen for name in _MODULES if name in vars(module)]
