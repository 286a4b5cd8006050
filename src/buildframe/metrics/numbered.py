"""Compute with whole numbers in numpy: sums and first, last and middle values of numbered groups, intervals, chains.

Times are in microseconds. Does not know jobs, agents or frames.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from buildframe.metrics.columns import NAT, Flags, Integers


def sum_by(group: Integers, values: Integers, n_groups: int) -> Integers:
    """Return the sum of the values of each group, exactly."""
    sums = np.zeros(n_groups, np.int64)
    np.add.at(sums, group, values)
    return sums


def earliest_by(group: Integers, times: Integers, n_groups: int) -> Integers:
    """Return the earliest of the known times of each group; `NAT` if there is none."""
    never, is_missing = np.iinfo(np.int64).max, times == NAT
    first = np.full(n_groups, never)
    np.minimum.at(first, group, np.where(is_missing, never, times) if is_missing.any() else times)
    return np.where(first == never, NAT, first)


def latest_by(group: Integers, times: Integers, n_groups: int) -> Integers:
    """Return the latest of the known times of each group; `NAT` if there is none."""
    last = np.full(n_groups, NAT)
    np.maximum.at(last, group, times)
    return last


def count_at_once(times: Integers, begin: Integers, end: Integers) -> Integers:
    """Return how many intervals [begin, end) hold between these ordered times, which contain all of their ends."""
    begins, ends = (np.bincount(np.searchsorted(times, at), minlength=len(times)) for at in (begin, end))
    return np.cumsum(begins - ends)[:-1]


def peak(begin: Integers, end: Integers) -> int:
    """Return the highest number of intervals [begin, end) at once; those without an end are open."""
    begun, ended = np.sort(begin), np.sort(end[end != NAT])
    busy = np.arange(1, len(begun) + 1) - np.searchsorted(ended, begun, "right")
    return int(busy.max(initial=0))


def weighted_quantiles(
    group: Integers, values: Integers, weights: Integers, n_groups: int, part: int
) -> tuple[Integers, Integers]:
    """Return a weighted quantile of the values of each group, and the total weight of the group.

    The quantile is the least value with at least 1 / `part` of the weight at or below it; 0 without weight.
    """
    total, order = sum_by(group, weights, n_groups), np.lexsort((values, group))
    group, values, weights = group[order], values[order], weights[order]
    reached = np.cumsum(weights) - np.append(0, np.cumsum(total))[group]
    rows = np.flatnonzero((reached >= -(-total // part)[group]) & (weights > 0))[::-1]
    quantiles = np.zeros(n_groups, np.int64)
    quantiles[group[rows]] = values[rows]  # the last one written stays, which is the least
    return quantiles, total


def first_of_chain(before: Integers) -> Integers:
    """Return where the chain of each place begins, if each follows another one, or none: -1."""
    first = np.where(before >= 0, before, np.arange(len(before)))
    for _ in range(len(first).bit_length()):  # each round doubles the places that it goes back
        first = first[first]
    return first


def find_latest(
    items: Integers,
    groups: Integers,
    times: Integers,
    query_groups: Integers,
    until: Integers,
    fits: Callable[[Integers, Integers], Flags],
) -> Integers:
    """Return for each query the latest fitting item of its group up to a time, or -1.

    `fits` receives items, and the positions of the queries that they may answer.
    """
    order = np.lexsort((items, times, groups))
    items = items[order]
    groups = groups[order]
    times = times[order]
    n_items = len(items)
    n_queries = len(until)
    # Sort items and queries together: the items up to a query are then those before it.
    positions = np.arange(n_items + n_queries)
    all_times = np.append(times, until)
    together = np.lexsort((positions, all_times, np.append(groups, query_groups)))
    is_item = together < n_items
    place = np.empty(n_queries, np.int64)
    place[together[~is_item] - n_items] = np.cumsum(is_item)[~is_item] - 1
    found = np.full(n_queries, -1)
    queries = np.arange(n_queries)
    while len(queries):
        queries = queries[place[queries] >= 0]
        queries = queries[groups[place[queries]] == query_groups[queries]]
        candidates = items[place[queries]]
        is_found = fits(candidates, queries)
        found[queries[is_found]] = candidates[is_found]
        queries = queries[~is_found]
        place[queries] -= 1
    return found
