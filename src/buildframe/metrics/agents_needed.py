"""Predict how long jobs of a queue wait with each number of agents.

Finds the smallest number that suffices.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import NAT, TIMESTAMP, Integers
from buildframe.metrics.durations import queue_time
from buildframe.metrics.numbered import peak
from buildframe.metrics.objective import objective
from buildframe.metrics.percentiles import percentiles
from buildframe.metrics.queues import find_queues
from buildframe.metrics.replaying.description import describe_replay, mean_number
from buildframe.metrics.replaying.event_loop import Changes, simulate
from buildframe.metrics.replaying.fleets import HOUR, UNLIMITED, Fleet
from buildframe.metrics.replaying.prepared import PreparedReplay, prepare
from buildframe.metrics.replaying.record import AGENT
from buildframe.spec.times import seconds_of
from buildframe.terminal import show

_COLUMNS = {
    "agents": "Int64", "started": "Int64", "canceled_waiting": "Int64", "undecided": "Int64", "wait_p50_s": "float64",
    "wait_p95_s": "float64", "share_within": "float64", "utilization": "float64", "agent_hours": "float64",
    "low": "float64", "high": "float64",
}  # fmt: skip

_FEW = 10
"""Numbers of agents that are all tried."""

_STEPS = 8
"""Numbers of agents that are tried of a longer range, besides those near today's."""


@checked_names
def agents_needed(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    queue: str,
    within: str | dt.timedelta = "5min",
    target: float = 0.95,
) -> pd.DataFrame:
    """
    Predict how long the jobs of a queue would wait with each number of agents.

    The recorded builds are replayed with fixed numbers of agents in this queue; all other queues
    keep theirs. So jobs that start earlier also end earlier, and let others start.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with the columns that `replay` needs.
    jobs : pandas.DataFrame
        All jobs of these builds, fetched with `include_retried_jobs=True`, with the columns that
        `replay` needs.
    queue : str
        Queue whose number of agents changes: its key, or its `queue_id`. A key that several
        clusters have is refused, and the error lists the ids.
    within : str or timedelta, default "5min"
        Longest wait that counts as in time.
    target : float, default 0.95
        Share of jobs that should start in time, a fraction in (0, 1).

    Returns
    -------
    pandas.DataFrame
        One row per number of agents that was tried, in ascending order. These include today's
        number, the numbers beside it, and the smallest that meets the target:

        ================ ======= ======================================================================
        agents           Int64   agents of the queue, at all times
        started          Int64   jobs that started
        canceled_waiting Int64   jobs that were canceled before they started; they missed the limit
        undecided        Int64   jobs that wait at the end of the record, for less than `within`;
                                 they do not count in `share_within`
        wait_p50_s       float64 median wait in seconds, from the curve of Kaplan and Meier if jobs did
                                 not start; NaN if it is unknown
        wait_p95_s       float64 the same for the 95th percentile
        share_within     float64 share of jobs that started within `within`
        utilization      float64 share of the agents' time in which they ran jobs
        agent_hours      float64 price: hours of all agents in the time of the record
        low, high        float64 95 % interval of `share_within`; NaN with jobs in fewer than five of
                                 eight spans of the time
        ================ ======= ======================================================================

        Its `attrs` have:

        - `smallest`: the smallest number of agents with `share_within >= target`, as all larger
          ones have; None if no number has it.
        - `smallest_with_margin`: the same for `low >= target`, so that the target is probably met
          in other weeks, too.
        - `today`: the same columns, as a dict, with the fleet that the record shows; `agents` is
          its mean number. None if no job of the queue was runnable.
        - `queue`, `within_s`, `target`; `days`, the length of the record.
        - `error`, `fleet` and `gap_share` of `replay`.

    Raises
    ------
    BadInput
        As for `replay`; if no job has this queue, or jobs of several organizations have it,
        `within` is not a duration above 0, or `target` lies outside (0, 1).

    See Also
    --------
    replay : The prediction behind each row, as frames.
    leverage : What faster steps would save instead.
    objective : The share of recorded jobs that started in time.
    buildframe.plots.agents_needed : Plot these numbers.

    Notes
    -----
    A wait that was canceled, or is open for longer than `within` at the end of the record, missed
    the limit. Nobody knows whether a shorter open one did. `objective`, which describes what
    happened, leaves canceled waits undecided, too. But here each number of agents has its own
    cancellations: with few agents, newer builds cancel more of the waiting jobs, and these would
    make the number look better than it is.

    Numbers between those that were tried are as good as their neighbors. At most as many agents are
    tried as jobs would run at once if no job had to wait. If even these do not meet the target,
    agents take longer than `within` to start a job.

    `agent_hours` are those of agents that stay. Agents that start on demand cost about `utilization
    * agent_hours`.

    All numbers come from one record. `attrs["error"]` says how far off such predictions are; `low`
    and `high` say how much the share varies between parts of the record.

    Examples
    --------
    >>> needed = metrics.agents_needed(builds, jobs, "macos", within="5min", target=0.9)
    >>> needed.attrs["today"]["agents"], needed.attrs["smallest"]
    (1, 9)
    >>> waits = ["wait_p50_s", "wait_p95_s"]
    >>> needed[["agents", *waits, "share_within", "low", "high", "utilization"]].head(3).round(2)
       agents  wait_p50_s  wait_p95_s  share_within   low  high  utilization
    0       1     2504.42     8746.54          0.18  0.10  0.30         0.21
    1       2      695.97     3860.44          0.35  0.24  0.48         0.10
    2       3      452.90     2411.02          0.47  0.32  0.62         0.07
    """
    limit = seconds_of(within, "within")
    if not isinstance(target, float) or not 0 < target < 1:
        hint = "Use one such as 0.95 for 95 %."
        raise BadInput(f"target={show(target)} is not a fraction between 0 and 1. {hint}")
    prepared = prepare(builds, jobs)
    known = prepared.record.queues
    positions = find_queues(queue, known, "queue")
    if known and not positions:
        names = sorted(entry.name for entry in known)
        choices = ", ".join(map(repr, names[:20]))
        raise BadInput(f"queue={show(queue)} has no job. Use one of {choices}.")
    if len(positions) > 1:
        raise BadInput(
            f"{len(positions)} organizations have the queue {queue!r}. Pass the frames of one"
            ' of them, such as jobs[jobs["organization"] == "acme"].'
        )
    rows, found = _try_fleets(prepared, positions[0], limit, target) if known else ({}, {})
    result = pd.DataFrame([rows[n] for n in sorted(rows)], columns=[*_COLUMNS]).astype(_COLUMNS)
    attrs = {
        "queue": known[positions[0]].name if known else queue,
        "within_s": limit,
        "target": target,
        "days": _hours(prepared) / 24,
    }
    attrs |= {"today": None, "smallest": None, "smallest_with_margin": None}
    result.attrs |= attrs | found | describe_replay(prepared)
    return result


def _try_fleets(
    prepared: PreparedReplay, number: int, limit: float, target: float
) -> tuple[dict[int, dict[str, float]], dict[str, Any]]:
    """Return the rows of all numbers of agents that are worth trying, and what is found.

    There are no rows without waits.
    """
    unlimited = _simulate_waits(prepared, number, Fleet(UNLIMITED))
    if (unlimited.runnable == NAT).all():
        return {}, {}
    rows: dict[int, dict[str, float]] = {}

    def reaches(column: str, agents: int) -> bool:
        if agents not in rows:
            rows[agents] = _measure(prepared, number, Fleet(agents), limit, target)
        return rows[agents][column] >= target

    recorded = _measure(prepared, number, prepared.fleets[number], limit, target)
    today = max(round(recorded["agents"]), 1)
    least = max(min(math.ceil(busy_hours(unlimited) / _hours(prepared)), today), 1)
    tests = [functools.partial(reaches, column) for column in ("share_within", "low")]
    smallest, careful = try_numbers(least, max(most_at_once(unlimited), least), today, tests)
    return rows, {"today": recorded, "smallest": smallest, "smallest_with_margin": careful}


class QueueWaits(NamedTuple):
    """When the script jobs of one queue were runnable, started and finished.

    In microseconds, seen until `end`.
    """

    runnable: Integers
    started: Integers
    finished: Integers
    end: int

    def find_runs(self) -> tuple[Integers, Integers]:
        """Return when jobs started and stopped to hold an agent."""
        ran = (self.started != NAT) & (self.started <= self.end)
        until = np.where(self.finished == NAT, self.end, np.minimum(self.finished, self.end))
        return self.started[ran], np.maximum(until, self.started)[ran]


def _simulate_waits(prepared: PreparedReplay, number: int, fleet: Fleet) -> QueueWaits:
    """Return the waits in a queue if it has this fleet, and all others theirs."""
    fleets = [*prepared.fleets]
    fleets[number] = fleet
    model = prepared.model
    times = simulate(model, Changes(fleets))
    is_in_queue = (model.jobs.queue == number) & (model.jobs.kind == AGENT)
    runnable = times.ready[is_in_queue]
    started = times.started[is_in_queue]
    finished = times.ended[is_in_queue]
    return QueueWaits(runnable, started, finished, model.end)


def _measure(
    prepared: PreparedReplay,
    number: int,
    fleet: Fleet,
    limit: float,
    target: float,
) -> dict[str, float]:
    """Return the row of a fleet."""
    waits = _simulate_waits(prepared, number, fleet)
    agents = mean_number(prepared, fleet)
    agent_hours = agents * _hours(prepared)
    used = busy_hours(waits) / agent_hours if agent_hours else math.nan
    row = {"agents": agents, "utilization": used, "agent_hours": agent_hours}
    return row | summarize_waits(waits, limit, target)


def _hours(prepared: PreparedReplay) -> float:
    return (prepared.model.end - prepared.model.start) / HOUR


def busy_hours(waits: QueueWaits) -> float:
    """Return the hours in which agents ran these jobs."""
    started, ended = waits.find_runs()
    return float((ended - started).sum()) / 3.6e9


def most_at_once(waits: QueueWaits) -> int:
    """Return the largest number of jobs that ran at once."""
    return peak(*waits.find_runs())


def summarize_waits(waits: QueueWaits, limit: float, target: float) -> dict[str, float]:
    """Return counts, percentiles, and the share of jobs that started within `limit` seconds.

    A wait that was canceled, or is open for longer than the limit, missed it. A shorter open one is
    undecided.
    """
    is_known = waits.runnable != NAT
    runnable = waits.runnable[is_known]
    started = waits.started[is_known]
    finished = waits.finished[is_known]
    has_started = started != NAT
    was_canceled = ~has_started & (finished != NAT)
    seen_until = np.where(has_started, started, np.where(was_canceled, finished, waits.end))
    seen = seen_until - runnable
    is_undecided = ~has_started & ~was_canceled & (seen <= limit * 1e6)
    times = {
        "runnable_at": runnable,
        "started_at": started,
        "finished_at": finished,
        "fetched_at": np.full(len(runnable), waits.end),
    }
    rows = pd.DataFrame({name: pd.Series(us, dtype=TIMESTAMP) for name, us in times.items()})
    rows = rows.assign(type="script", wait_s=np.where(has_started, seen / 1e6, limit + 1))
    within = dt.timedelta(seconds=limit)
    share = objective(rows[~is_undecided], "wait_s", within, target, at="runnable_at")
    summary: dict[str, float] = {
        "started": int(has_started.sum()),
        "canceled_waiting": int(was_canceled.sum()),
        "undecided": int(is_undecided.sum()),
    }
    names = {"p50_s": "wait_p50_s", "p95_s": "wait_p95_s"}
    summary |= _first_row(percentiles(rows, of=queue_time), names)
    return summary | _first_row(share, {"share": "share_within", "low": "low", "high": "high"})


def _first_row(summary: pd.DataFrame, names: Mapping[str, str]) -> dict[str, float]:
    """Return values of the only row under other names; NaN if there is no row."""
    if summary.empty:
        return dict.fromkeys(names.values(), math.nan)
    return {name: float(summary[column].iloc[0]) for column, name in names.items()}


def try_numbers(
    least: int,
    most: int,
    today: int,
    tests: Sequence[Callable[[int], bool]],
) -> list[int | None]:
    """Try numbers of agents from `least` to `most`, and return the smallest that passes each test.

    A number passes only if all larger ones that were tried pass, too. None if the largest one
    fails.
    """
    if most - least >= _FEW:
        spread = np.geomspace(least, most, _STEPS).round().astype(int)
    else:
        spread = np.arange(least, most + 1)
    around_today = [n for n in range(today - 1, today + 3) if n > 0]
    numbers = sorted({*spread.tolist(), *around_today})
    return [_find_smallest({n: test(n) for n in numbers}, test) for test in tests]


def _find_smallest(passes: dict[int, bool], test: Callable[[int], bool]) -> int | None:
    """Search between the largest number that fails and the next larger one that was tried."""
    low = max((n for n, passed in passes.items() if not passed), default=0)
    high = min((n for n in passes if n > low), default=None)
    while high is not None and high - low > 1:
        middle = (low + high) // 2
        if test(middle):
            high = middle
        else:
            low = middle
    return high
