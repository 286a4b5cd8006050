"""Floors of the summaries that search or simulate: the bare computation in numpy, or a bare loop.

No engineer would write these summaries as one query, so each floor does the part that no version can leave out.
"""

from __future__ import annotations

import heapq

import numpy as np
import pandas as pd
from scipy.special import ndtri

from tests.benchmarks.handwritten import DAY, NAT, factorized, us
from tests.benchmarks.handwritten_intervals import Integers

SHUFFLES, AT_ONCE, MIN_DAYS = 1999, 100, 2


def change_points(jobs: pd.DataFrame) -> list[float]:
    """How often the days of a queue in random order have as clear a split or inner segment: normal scores of ranks.

    A single search for each queue; without correlations, further changes, medians, intervals and suspects.
    """
    codes, queues = factorized(jobs["queue"])
    begun, over = us(jobs, "started_at"), us(jobs, "finished_at")
    ran = np.flatnonzero((begun != NAT) & (over != NAT))
    codes, values, day = codes[ran], (over - begun)[ran], us(jobs, "created_at")[ran] // DAY
    order = np.argsort(codes.astype(np.int16), kind="stable")
    stops = np.cumsum(np.bincount(codes, minlength=len(queues)))
    random = np.random.default_rng(0)
    return [_p_of_change(values[own], day[own], random) for own in np.split(order, stops[:-1])]


def _p_of_change(values: Integers, day: Integers, random: np.random.Generator) -> float:
    order = np.argsort(values)
    begins = np.flatnonzero(np.diff(values[order], prepend=values[order[0]] - 1))
    sizes = np.diff(begins, append=len(order))
    scores = np.empty(len(order))
    scores[order] = np.repeat(ndtri((begins + (sizes + 1) / 2) / (len(order) + 1)), sizes)
    days, number = np.unique(day, return_inverse=True)
    mean = np.bincount(number, scores) / np.bincount(number)
    centered = mean - mean.mean()
    first, stop = np.triu_indices(len(days) + 1, MIN_DAYS)
    inside = stop - first
    is_cut = (inside <= len(days) - MIN_DAYS) & (first != 1) & (stop != len(days) - 1)
    first, stop, spread = first[is_cut], stop[is_cut], (inside * (len(days) - inside))[is_cut]
    found, n_clear = _clearest(centered[None], first, stop, spread)[0], 0
    for _ in range(-(-SHUFFLES // AT_ONCE)):
        shuffled = random.permuted(np.tile(centered, (AT_ONCE, 1)), axis=1)
        n_clear += int((_clearest(shuffled, first, stop, spread) >= found).sum())
    return (n_clear + 1) / (SHUFFLES + 1)


def _clearest(days: np.ndarray, first: Integers, stop: Integers, spread: Integers) -> np.ndarray:
    sums = np.concatenate([np.zeros((len(days), 1)), np.cumsum(days, axis=1)], axis=1)
    return ((sums[:, stop] - sums[:, first]) ** 2 / spread).max(axis=1)


def time_ledger(jobs: pd.DataFrame) -> pd.DataFrame:
    """Seconds of each build's chain that waited for a predecessor, for an agent, and ran.

    The predecessor is the job of the build that ended last before the job was runnable: no retries, uploads, triggers,
    shards and steps that are known to be independent.
    """
    builds, ids = pd.factorize(jobs["build_id"])
    ready, begun, over = (us(jobs, name) for name in ("runnable_at", "started_at", "finished_at"))
    own = np.flatnonzero((ready != NAT) & (begun != NAT) & (over != NAT))
    builds, ready, begun, over = builds[own], ready[own], begun[own], over[own]
    order = np.lexsort((over, builds))
    builds, ready, begun, over = builds[order], ready[order], begun[order], over[order]
    start, reach = min(ready.min(), begun.min()), over.max() - ready.min() + 1
    before = np.searchsorted(builds * reach + over - start, builds * reach + ready - start, side="right") - 1
    before = np.where((before >= 0) & (builds[before] == builds), before, -1)
    last = np.flatnonzero(np.append(builds[1:] != builds[:-1], True))
    sums = np.zeros((3, len(ids)), np.int64)
    while len(last):
        build, previous = builds[last], before[last]
        has_one = previous >= 0
        sums[0, build] += np.where(has_one, ready[last] - over[previous], 0)
        sums[1, build] += begun[last] - ready[last]
        sums[2, build] += over[last] - begun[last]
        last = previous[has_one & (previous != last)]
    columns = {name: one / 1e6 for name, one in zip(("dependency_s", "queue_s", "run_s"), sums, strict=True)}
    return pd.DataFrame({"build_id": ids, **columns})


def replay(jobs: pd.DataFrame) -> list[int]:
    """When each job starts if the agents of its queue take jobs in order; a job is runnable as in the record."""
    ready, begun, over = (us(jobs, name) for name in ("runnable_at", "started_at", "finished_at"))
    queues, names = pd.factorize(jobs["queue"])
    own = np.flatnonzero((ready != NAT) & (begun != NAT) & (over != NAT) & (queues >= 0))
    own = own[np.argsort(ready[own], kind="stable")]
    agents = jobs["agent_id"].groupby(queues).nunique().to_dict()
    free = [[0] * max(agents.get(queue, 1), 1) for queue in range(len(names))]
    starts = []
    rows = zip(queues[own].tolist(), ready[own].tolist(), (over - begun)[own].tolist(), strict=True)
    for queue, at, lasting in rows:
        start = max(at, free[queue][0])
        heapq.heapreplace(free[queue], start + lasting)
        starts.append(start)
    return starts


def explain(before: pd.DataFrame, after: pd.DataFrame) -> pd.Series:
    """Differences of the seconds a build of each kind and step: without intervals, branches of builds and mixes."""
    each = (
        ledger.groupby(["kind", "pipeline", "step"], dropna=False)["duration_s"].sum() / ledger["build_id"].nunique()
        for ledger in (before, after)
    )
    old, new = each
    return new.sub(old, fill_value=0).sort_values(key=abs, ascending=False)
