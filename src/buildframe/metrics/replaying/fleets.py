"""Fleets of agents: how many there are in a queue, always or by hour of week; given, or inferred from a record."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from buildframe.metrics.columns import Flags, Floats, Integers
from buildframe.metrics.numbered import count_at_once, peak, weighted_quantiles
from buildframe.metrics.replaying.agents import AgentTimes, AgentUse, uses_of_queue
from buildframe.metrics.replaying.record import BuildRecord

HOUR = 3_600_000_000
HOURS_OF_WEEK = 168
_EPOCH_HOUR = 3 * 24  # 1970 began on a Thursday
_SEEN_LONG_ENOUGH = 60_000_000
_SHORT = 5e6
_TIE = 0.05
"""Candidates whose errors differ by less, of the sum of four relative ones, explain a record equally well."""

UNLIMITED = 2**40

DISTINCT, CONCURRENCY, BY_HOUR, GIVEN = (
    "distinct agents",
    "maximum concurrency",
    "busy agents by hour of week",
    "given",
)
"""How the number of agents of a queue was found."""


@dataclass(frozen=True)
class Fleet:
    """The agents of one queue: a number, or one for each hour of the week from Monday 0:00 UTC."""

    agents: int | tuple[int, ...]
    rule: str = GIVEN

    def at_hours(self, hours: Integers) -> Integers:
        """Return how many agents there are in each of these hours since 1970."""
        if isinstance(self.agents, int):
            return np.full(len(hours), self.agents)
        return np.array(self.agents)[hour_of_week(hours)]

    def describe(self) -> dict[str, Any]:
        """Return the fleet as a dict of simple values."""
        if isinstance(self.agents, int):
            return {
                "agents": math.inf if self.agents >= UNLIMITED else self.agents,
                "rule": self.rule,
            }
        return {"agents": [*self.agents], "rule": self.rule}


def hour_of_week(hours: Integers) -> Integers:
    """Return the hour of the week, from Monday 0:00 UTC, of hours since 1970."""
    return (hours + _EPOCH_HOUR) % HOURS_OF_WEEK


def infer_fleets(
    record: BuildRecord,
    times: AgentTimes,
    half: Integers | None,
) -> list[tuple[Fleet, list[Fleet]]]:
    """Return the fleet of each queue, and those that the builds of each half show alone.

    `half` is 0 or 1 for each build, or None if they cannot be divided. Of three candidates, the one
    wins whose waits agree best with those of the other half; if several do, the simplest. Without
    halves they are compared with the waits that they come from.
    """
    return [_infer_fleet(uses_of_queue(record, times, queue), half) for queue in range(len(record.queues))]


def _infer_fleet(use: AgentUse, half: Integers | None) -> tuple[Fleet, list[Fleet]]:
    if not len(use.ready):
        return Fleet(1, DISTINCT), [Fleet(1, DISTINCT)] * 2
    whole = _candidates(use, np.ones(len(use.ready), np.bool_))
    part = np.zeros(len(use.ready), np.int64) if half is None else half[use.build]
    is_blind = 0 < part.sum() < len(part)
    learned = [_candidates(use, part == own) if is_blind else whole for own in (0, 1)]
    errors = [_blind_error(use, part, (learned[1][i], learned[0][i])) for i in range(len(whole))]
    best = next(i for i, error in enumerate(errors) if error <= min(errors) + _TIE)
    return whole[best], [learned[0][best], learned[1][best]]


def _candidates(use: AgentUse, chosen: Flags) -> list[Fleet]:
    agents = use.agent[chosen]
    most = max(peak(use.assigned[chosen], use.freed[chosen]), 1)
    distinct = len(np.unique(agents)) if len(agents) and (agents >= 0).all() else most
    by_hour = _busy_by_hour(use, chosen, most)
    return [
        Fleet(max(distinct, 1), DISTINCT),
        Fleet(most, CONCURRENCY),
        Fleet(by_hour if len(set(by_hour)) > 1 else by_hour[0], BY_HOUR),
    ]


def _busy_by_hour(use: AgentUse, chosen: Flags, most: int) -> tuple[int, ...]:
    """Return how many agents were busy while jobs waited, by hour of week: the median over that time.

    Hours without a wait have the number of the same hour on other days, and at least as many as
    were busy at once.
    """
    begin, end, busy, waiting, is_chosen = _segments(use, chosen)
    week = hour_of_week(begin // HOUR)
    length = np.where((waiting > 0) & is_chosen, end - begin, 0)
    of_week, seen = weighted_quantiles(week, busy, length, HOURS_OF_WEEK, 2)
    of_day, seen_on_day = weighted_quantiles(week % 24, busy, length, 24, 2)
    highest = np.zeros(HOURS_OF_WEEK, np.int64)
    np.maximum.at(highest, week, np.where(is_chosen, busy, 0))
    hours = np.arange(HOURS_OF_WEEK)
    other = np.where(seen_on_day[hours % 24] >= _SEEN_LONG_ENOUGH, of_day[hours % 24], most)
    agents = np.where(seen >= _SEEN_LONG_ENOUGH, of_week, np.maximum(other, highest))
    return tuple(np.maximum(agents, 1).tolist())


def _segments(use: AgentUse, chosen: Flags) -> tuple[Integers, Integers, Integers, Integers, Flags]:
    """Return spans with constant numbers of busy agents and waiting jobs, split at hours, and those on chosen days."""
    first, last = int(use.ready.min()) // HOUR, int(use.freed.max()) // HOUR + 2
    times = np.unique(
        np.concatenate([use.ready, use.assigned, use.freed, np.arange(first, last) * HOUR]),
    )
    day = use.ready // (24 * HOUR)
    days = np.unique(day[chosen])
    is_chosen = np.isin(times[:-1] // (24 * HOUR), days)
    busy, waiting = (
        count_at_once(times, use.assigned, use.freed),
        count_at_once(times, use.ready, use.assigned),
    )
    return times[:-1], times[1:], busy, waiting, is_chosen


def _blind_error(use: AgentUse, part: Integers, fleets: Sequence[Fleet]) -> float:
    """Return how far the waits of each half are from those with the fleet that the other half shows."""
    recorded, predicted = use.assigned - use.ready, np.zeros(len(use.ready), np.int64)
    hold = use.freed - use.assigned
    for own, fleet in enumerate(fleets):
        predicted = np.where(part == own, wait_for_agents(use.ready, hold, fleet), predicted)
    summaries = (_summary(recorded), _summary(predicted))
    return float(np.sum(np.abs(summaries[1] - summaries[0]) / np.maximum(summaries[0], _SHORT)))


def _summary(waits: Integers) -> Floats:
    return np.append(np.quantile(waits, (0.5, 0.75, 0.95)), waits.mean())


def wait_for_agents(ready: Integers, hold: Integers, fleet: Fleet) -> Integers:
    """Return how long each job waits if a fleet serves jobs in the order in which they are ready.

    This is the recursion of Kiefer and Wolfowitz; `hold` is how long each job holds its agent.
    """
    if isinstance(fleet.agents, int):
        return _wait_for_constant(ready, hold, fleet.agents)
    return _wait_for_schedule(ready, hold, fleet.agents)


def _wait_for_constant(ready: Integers, hold: Integers, agents: int) -> Integers:
    if agents >= len(ready):
        return np.zeros(len(ready), np.int64)
    free, waits = [int(ready.min(initial=0))] * agents, []
    for at, own in zip(ready.tolist(), hold.tolist(), strict=True):
        begin = max(at, free[0])
        heapq.heapreplace(free, begin + own)
        waits.append(begin - at)
    return np.array(waits, np.int64)


def _wait_for_schedule(ready: Integers, hold: Integers, agents: Sequence[int]) -> Integers:
    busy: list[int] = []
    waits, now = [], 0
    for at, own in zip(ready.tolist(), hold.tolist(), strict=True):
        now = max(now, at)
        while True:
            while busy and busy[0] <= now:
                heapq.heappop(busy)
            hour = now // HOUR
            if len(busy) < agents[(hour + _EPOCH_HOUR) % HOURS_OF_WEEK]:
                break
            following = (hour + 1) * HOUR
            now = min(busy[0], following) if busy else following
        heapq.heappush(busy, now + own)
        waits.append(now - at)
    return np.array(waits, np.int64)
