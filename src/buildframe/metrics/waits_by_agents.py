"""Summarize the waits in one queue under each number of agents, and search for the numbers that are worth trying.

Knows waits as timestamps; does not know how they are predicted.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildframe.metrics.columns import NAT, TIMESTAMP, Integers
from buildframe.metrics.durations import queue_time
from buildframe.metrics.numbered import peak
from buildframe.metrics.objective import objective
from buildframe.metrics.percentiles import percentiles

_FEW = 10
"""Numbers of agents that are all tried."""

_STEPS = 8
"""Numbers of agents that are tried of a longer range, besides those around today's and those of the search."""


class Waits(NamedTuple):
    """When the script jobs of one queue were runnable, started and finished, in microseconds, seen until `end`."""

    runnable: Integers
    started: Integers
    finished: Integers
    end: int

    def find_runs(self) -> tuple[Integers, Integers]:
        """Return when jobs started and stopped to hold an agent."""
        ran = (self.started != NAT) & (self.started <= self.end)
        until = np.where(self.finished == NAT, self.end, np.minimum(self.finished, self.end))
        return self.started[ran], np.maximum(until, self.started)[ran]


def busy_hours(waits: Waits) -> float:
    """Return the hours in which agents ran these jobs."""
    started, ended = waits.find_runs()
    return float((ended - started).sum()) / 3.6e9


def most_at_once(waits: Waits) -> int:
    """Return the largest number of jobs that ran at once."""
    return peak(*waits.find_runs())


def summarize_waits(waits: Waits, limit: float, target: float) -> dict[str, float]:
    """Return counts, percentiles, and the share of jobs that started within `limit` seconds, with its interval.

    A wait that was canceled, or is open for longer than the limit, missed it. A shorter open one is undecided.
    """
    is_known = waits.runnable != NAT
    runnable, started, finished = (times[is_known] for times in waits[:3])
    has_started, was_canceled = started != NAT, (started == NAT) & (finished != NAT)
    seen = np.where(has_started, started, np.where(was_canceled, finished, waits.end)) - runnable
    is_undecided = ~has_started & ~was_canceled & (seen <= limit * 1e6)
    stamps = {"runnable_at": runnable, "started_at": started, "finished_at": finished,
              "fetched_at": np.full(len(runnable), waits.end)}  # fmt: skip
    rows = pd.DataFrame({name: pd.Series(values, dtype=TIMESTAMP) for name, values in stamps.items()})
    rows = rows.assign(type="script", wait_s=np.where(has_started, seen / 1e6, limit + 1))
    counts = {"started": has_started.sum(), "canceled_waiting": was_canceled.sum(), "undecided": is_undecided.sum()}
    share = objective(rows[~is_undecided], "wait_s", dt.timedelta(seconds=limit), target, at="runnable_at")
    return (
        {name: int(n) for name, n in counts.items()}
        | _first(percentiles(rows, of=queue_time), {"p50_s": "wait_p50_s", "p95_s": "wait_p95_s"})
        | _first(share, {"share": "share_within", "low": "low", "high": "high"})
    )


def _first(summary: pd.DataFrame, names: Mapping[str, str]) -> dict[str, float]:
    """Return values of the only row under other names; NaN if there is no row."""
    return {to: float(summary[name].iloc[0]) if len(summary) else math.nan for name, to in names.items()}


def try_numbers(least: int, most: int, today: int, tests: Sequence[Callable[[int], bool]]) -> list[int | None]:
    """Try numbers of agents from `least` to `most`, and return the smallest that passes each test.

    A number passes only if all larger ones that were tried pass, too. None if the largest one fails.
    """
    spread = (
        np.geomspace(least, most, _STEPS).round().astype(int) if most - least >= _FEW else np.arange(least, most + 1)
    )
    grid = {*spread.tolist(), *(n for n in range(today - 1, today + 3) if n > 0)}
    return [_find_smallest({n: test(n) for n in sorted(grid)}, test) for test in tests]


def _find_smallest(passes: dict[int, bool], test: Callable[[int], bool]) -> int | None:
    """Search between the largest number that fails and the next larger one that was tried."""
    low = max((n for n, passed in passes.items() if not passed), default=0)
    high = min((n for n in passes if n > low), default=None)
    while high is not None and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle, high)
    return high
