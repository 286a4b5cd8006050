"""Split the waits of jobs in a queue over the jobs that hold its agents. Knows intervals, not columns of frames.

A sweep over the sorted times of all intervals: between two of them, the numbers of jobs of each group that wait and
that hold agents are constant. The time of such a segment, divided by the number of holders, is summed over pairs of
groups by a product of matrices, for many segments at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.metrics.columns import DAY_LENGTH, NAT, Flags, Floats, Integers
from buildframe.metrics.engines.rows import GROUP
from buildframe.metrics.numbered import count_at_once, sum_by, weighted_quantiles

KEY, HAS_QUEUE, UNEXPLAINED = "key of the job", "has a queue", "unexplained"
ENDS = ("wait_from", "wait_to", "held_from", "held_to")
"""Columns of microseconds: when a job waited, and when it held an agent."""

_COLUMNS = ["waiting", "holding", "explained", "wait_s", GROUP]
_PART = 10
"""A tenth of the time that jobs wait on a day passes while at least so many agents are busy as there are."""

_SEGMENTS = 1024
"""Segments at a time. Few groups have jobs in them, so matrices stay small."""

_ROUNDING = 6


class Intervals(NamedTuple):
    """Intervals of positive length by the number of their group, in microseconds."""

    group: Integers
    begin: Integers
    end: Integers


class Pairs(NamedTuple):
    """Time of pairs of groups, ordered by both. The group after all others stands for unexplained time."""

    waiting: Integers
    holding: Integers
    time: Any


def divide_waits(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each queue (`GROUP` of rows) how long the jobs of each group waited beside those of each other."""
    group, texts = _number_texts(table[KEY])
    code, ends = table[GROUP].to_numpy(np.int64), [table[name].to_numpy(np.int64, na_value=NAT) for name in ENDS]
    order = np.argsort(code, kind="stable")
    has_queue, pairs, of = table[HAS_QUEUE].to_numpy(bool), [Pairs(*np.zeros((3, 0), np.int64))], [code[:0]]
    for rows in np.split(order, np.flatnonzero(np.diff(code[order])) + 1) if len(order) else []:
        begin, end, held_from, held_to = (one[rows] for one in ends)
        holds = _select(group[rows], held_from, held_to, (held_from != NAT) & bool(has_queue[rows[0]]))
        is_wait = (begin != NAT) & (end != NAT)
        pairs.append(_divide_queue(Intervals(group[rows][is_wait], begin[is_wait], end[is_wait]), holds, len(texts)))
        of.append(np.full(len(pairs[-1].time), code[rows[0]]))
    waiting, holding, time = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    columns = {
        "waiting": pd.Series(texts[waiting], dtype="str"),
        "holding": pd.Series(np.append(texts, UNEXPLAINED)[holding], dtype="str"),
        "explained": pd.array(holding < len(texts), "boolean"),
        "wait_s": time / 1e6,
        GROUP: np.concatenate(of),
    }
    return pd.DataFrame(columns)[_COLUMNS]


def _number_texts(key: pd.Series[Any]) -> tuple[Integers, Any]:
    """Return the number of each value's text, and the ordered texts with that of null, None, at the end."""
    codes, values = pd.factorize(key)
    texts, numbers = np.unique(np.array([*map(str, values)], object), return_inverse=True)
    return np.append(numbers, len(texts)).astype(np.int64)[codes], np.append(texts, np.array([None]))


def _select(group: Integers, begin: Integers, end: Integers, chosen: Flags) -> Intervals:
    chosen = chosen & (end > begin)
    return Intervals(group[chosen], begin[chosen], end[chosen])


def _divide_queue(waits: Intervals, holds: Intervals, n_groups: int) -> Pairs:
    """Return the time of pairs; for each waiting group it adds up to its waits, of which some may be negative."""
    total = sum_by(waits.group, waits.end - waits.begin, n_groups)
    waits = _select(*waits, np.ones(len(waits.group), bool))
    times = _segment_ends(waits, holds)
    length, begin, end = np.diff(times), np.searchsorted(times, waits.begin), np.searchsorted(times, waits.end)
    waiting, holding = (count_at_once(times, own.begin, own.end) for own in (waits, holds))
    is_explained = (holding > 0) & (holding >= _known_agents(times[:-1], length * waiting, holding))
    explained_until = np.append(0, np.cumsum(np.where(is_explained, length, 0)))
    explained = sum_by(waits.group, explained_until[end] - explained_until[begin], n_groups)
    each = np.where(is_explained & (waiting > 0), length / np.maximum(holding, 1), 0.0)
    shared = _round_to(explained, _share(each, times, waits, holds, n_groups))
    rest = np.flatnonzero(total != explained)
    columns = [
        np.concatenate([shared.waiting, rest]),
        np.concatenate([shared.holding, np.full(len(rest), n_groups)]),
        np.concatenate([shared.time, (total - explained)[rest]]),
    ]
    order = np.lexsort(columns[1::-1])
    return Pairs(*(one[order] for one in columns))


def _segment_ends(waits: Intervals, holds: Intervals) -> Integers:
    """Return all times at which something changes, and the midnights (UTC) around each of them, ordered."""
    times = np.unique(np.concatenate([waits.begin, waits.end, holds.begin, holds.end]))
    days = np.unique(times // DAY_LENGTH)
    return np.union1d(times, np.concatenate([days, days + 1]) * DAY_LENGTH)


def _known_agents(at: Integers, weight: Integers, holding: Integers) -> Integers:
    """Return how many agents the queue has for certain on the day of each segment.

    This is the largest number that are busy during at least a tenth of the weight, which is time times waiting jobs.
    """
    day, days = pd.factorize(at // DAY_LENGTH)
    most, _ = weighted_quantiles(day, -holding, weight, len(days), _PART)
    return -most[day]


def _share(each: Floats, times: Integers, waits: Intervals, holds: Intervals, n_groups: int) -> Pairs:
    """Return the sum over segments of `each` times the jobs that wait times those that hold agents, by groups."""
    starts = np.arange(0, len(each), _SEGMENTS)
    needed = np.logical_or.reduceat(each > 0, starts) if len(starts) else starts.astype(bool)
    codes, values = [np.zeros(0, np.int64)], [np.zeros(0)]
    blocks = zip(*(_levels(times, own, n_groups, needed) for own in (waits, holds)), strict=True)
    for start, ((waiting, n_waiting), (holding, n_holding)) in zip(starts[needed], blocks, strict=True):
        shared = (n_waiting * each[start : start + _SEGMENTS, None]).T @ n_holding
        own, other = np.nonzero(shared)
        codes.append(waiting[own] * n_groups + holding[other])
        values.append(shared[own, other])
    pairs, place = np.unique(np.concatenate(codes), return_inverse=True)
    sums = np.bincount(place, np.concatenate(values), len(pairs))
    return Pairs(*np.divmod(pairs, max(n_groups, 1)), sums)


def _levels(times: Integers, of: Intervals, n_groups: int, needed: Flags) -> Iterator[tuple[Integers, Floats]]:
    """Yield, for each needed block of segments, the groups in it and how many of their jobs (segments x groups)."""
    segment = np.searchsorted(times, np.concatenate([of.begin, of.end]))
    change = np.repeat([1.0, -1.0], len(of.group))
    order = np.argsort(segment, kind="stable")
    segment, change, group = segment[order], change[order], np.tile(of.group, 2)[order]
    limits = np.searchsorted(segment, np.arange(len(needed) + 1) * _SEGMENTS)
    level = np.zeros(n_groups)
    for block, is_needed in enumerate(needed):
        own = slice(*limits[block : block + 2])
        if is_needed:
            size = min(_SEGMENTS, len(times) - 1 - block * _SEGMENTS)
            groups = np.union1d(np.flatnonzero(level), group[own])
            inside = segment[own] < block * _SEGMENTS + size  # the last time of all begins no segment
            cell = (segment[own] - block * _SEGMENTS) * len(groups) + np.searchsorted(groups, group[own])
            changes = np.zeros(size * len(groups))
            np.add.at(changes, cell[inside], change[own][inside])
            changes[: len(groups)] += level[groups]
            yield groups, np.cumsum(changes.reshape(size, -1), axis=0)
        level += np.bincount(group[own], change[own], n_groups)


def _round_to(totals: Integers, pairs: Pairs) -> Pairs:
    """Round times to whole numbers with these totals by waiting group: the largest remainders are rounded up.

    Remainders are compared as far as sums of floats are exact, so that the result does not depend on their order.
    """
    whole = np.floor(pairs.time + 10.0**-_ROUNDING).astype(np.int64)
    remainder = np.round(pairs.time - whole, _ROUNDING)
    missing, count = totals - sum_by(pairs.waiting, whole, len(totals)), np.bincount(pairs.waiting, None, len(totals))
    all_get, some_get = np.divmod(missing, np.maximum(count, 1))
    order = np.lexsort((-remainder, pairs.waiting))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.append(0, np.cumsum(count))[pairs.waiting[order]]
    time = whole + all_get[pairs.waiting] + (rank < some_get[pairs.waiting])
    is_there = time != 0
    return Pairs(pairs.waiting[is_there], pairs.holding[is_there], time[is_there])
