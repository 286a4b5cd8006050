"""Intervals of the handwritten peers, in numpy for all groups at once: of percentiles, and of rates.

The formulas are those of the notes of `percentiles` and `success_rate`. No group of the data is so short that its time
needs cells of its own, so groups in fewer than a quarter of all cells are not allowed for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, ndtri, stdtrit

Integers = npt.NDArray[np.int64]

Q = (0.5, 0.95)
SPANS, CELLS, CELLS_OF_GROUP = 8, 128, 32
LEVEL = 0.975
MS = 1000


def _used(n: Any) -> Any:
    return (n > 0).sum(-1)


def _effect(n: Any, sums: Any, variance: Any) -> Any:
    """How many times the variance of a mean is that of independent rows, from spans (last axis)."""
    total, used = n.sum(-1), _used(n)
    with np.errstate(invalid="ignore", divide="ignore"):
        residuals = sums - (sums.sum(-1) / total)[..., None] * n
        effect = used / (used - 1) * (residuals**2).sum(-1) / (total * variance)
    return np.where(used < 5, np.nan, np.where(variance > 0, np.maximum(effect, 1), 1))


def _size(n_effective: Any, n: Any) -> Any:
    return n_effective * (ndtri(LEVEL) / stdtrit(np.maximum(_used(n), 2) - 1, LEVEL)) ** 2


# Rates


def shift_of(first: int, last: int, cells: int = CELLS) -> int:
    """By how many bits times are shifted to be numbers of cells."""
    shift = 0
    while (last >> shift + 1) - (first >> shift + 1) + 1 >= cells:
        shift += 1
    return shift


def rated(cells: dict[str, Any], hits: str, trials: Sequence[str], x: Any, n: Any) -> dict[str, Any]:
    """The rates of groups with x hits in n trials, with intervals; `cells` has counts by group and cell of time."""
    tried = sum(cells[name] for name in trials)
    many, size = tried.shape
    cell = np.arange(size)
    first = np.where(tried > 0, cell, size).min(axis=1)
    last = np.where(tried > 0, cell, -1).max(axis=1)
    shift = np.zeros(many, np.int64)
    while (fits := (last >> shift + 1) - (first >> shift + 1) + 1 >= CELLS_OF_GROUP).any():
        shift[fits] += 1
    start = first >> shift
    span = ((cell >> shift[:, None]) - start[:, None]) * SPANS // np.maximum((last >> shift) - start + 1, 1)[:, None]
    place = np.where(tried > 0, np.arange(many)[:, None] * SPANS + span, many * SPANS).ravel()
    hit, tried = (
        np.bincount(place, one.ravel(), many * SPANS + 1)[:-1].reshape(many, SPANS) for one in (cells[hits], tried)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.asarray(x, float) / np.asarray(n, float)
        n_effective = n / _effect(tried, hit, rate * (1 - rate))
        size, z = _size(n_effective, tried), ndtri(LEVEL)
        middle, half = rate + z**2 / 2 / size, z * np.sqrt(rate * (1 - rate) / size + (z / 2 / size) ** 2)
        low, high = (middle - half) / (1 + z**2 / size), (middle + half) / (1 + z**2 / size)
    return {"rate": rate, "low": low, "high": high, "n_effective": n_effective}


# Percentiles


class Durations(NamedTuple):
    """Of each group: milliseconds and times in any order, and of rows that were not seen to end by when they left."""

    values: Sequence[Any]
    times: Sequence[Any]
    left: Sequence[Any]
    left_times: Sequence[Any]


class _Curves:
    """Kaplan and Meier's curves: a line per group, and a segment from the start and from each row that leaves."""

    def __init__(self, n: Integers, before: Sequence[Any]) -> None:
        m = np.array([len(one) for one in before])
        self.n, self.total = n, n + m
        self.row, self.segment = np.repeat(np.arange(len(n)), m), _numbers(m) + 1
        begins = np.repeat(n[:, None], m.max(initial=0) + 2, axis=1)
        begins[:, 0] = 0
        begins[self.row, self.segment] = np.concatenate([*before, np.zeros(0, np.int64)])
        self.begins, self.ends = begins[:, :-1], begins[:, 1:]
        left = np.minimum(np.arange(begins.shape[1] - 1), m[:, None])
        self.at_risk = self.total[:, None] - self.begins - left
        rest = self.at_risk - (self.ends - self.begins)
        with np.errstate(invalid="ignore", divide="ignore"):
            lasting = np.cumprod(np.where(self.at_risk > 0, rest / self.at_risk, 1), axis=1)
            sums = np.cumsum(np.where(rest > 0, 1 / rest - 1 / self.at_risk, 0), axis=1)
        self.share = np.concatenate([np.ones((len(n), 1)), lasting[:, :-1]], axis=1)
        self.greenwood = np.concatenate([np.zeros((len(n), 1)), sums[:, :-1]], axis=1)
        self.share_at_end = lasting

    def ranks(self, shares: Any) -> Integers:
        """The first rank of each group by which these shares have ended; 0 if there is none."""
        return np.stack(
            [self._ranks(share) for share in np.moveaxis(np.broadcast_to(shares, (len(self.n), 2)), 1, 0)], 1
        )

    def _ranks(self, share: Any) -> Integers:
        passed = (self.share_at_end > (1 - share)[:, None] + 1e-12).sum(axis=1)
        at = np.arange(len(self.n)), np.minimum(passed, self.share.shape[1] - 1)
        begin, end = self.begins[at], self.ends[at]
        with np.errstate(invalid="ignore", divide="ignore"):
            needed = np.ceil(self.at_risk[at] * (1 - (1 - share) / self.share[at]) - 1e-6)
        ranks = begin + np.clip(np.nan_to_num(needed), 1, end - begin)
        return np.where((passed < self.share.shape[1]) & ~np.isnan(share), ranks, 0).astype(np.int64)

    def at(self, ranks: Integers) -> tuple[Any, Any]:
        """The shares that last after these ranks, and Greenwood's sums."""
        segment = np.minimum((self.ends[:, None] < ranks[..., None]).sum(-1), self.ends.shape[1] - 1)
        at = np.arange(len(self.n))[:, None], segment
        rest = self.at_risk[at] - (ranks - self.begins[at])
        with np.errstate(invalid="ignore", divide="ignore"):
            share, sums = self.share[at] * rest / self.at_risk[at], self.greenwood[at] + 1 / rest - 1 / self.at_risk[at]
        return np.where(ranks > 0, share, np.nan), np.where(ranks > 0, sums, np.nan)


def _numbers(sizes: Integers) -> Integers:
    """The number of each row within its group."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def percentile_columns(rows: Durations) -> dict[str, Any]:
    """p50 and p95 of groups with their intervals, lower bounds and effective numbers."""
    n = np.array([len(one) for one in rows.values])
    ordered = [np.sort(one) for one in rows.values]
    flat, starts = np.concatenate([*ordered, np.zeros(0, np.int32)]), np.cumsum(n) - n
    order = [np.argsort(one, kind="stable") for one in rows.left]
    left, left_times = ([one[own] for one, own in zip(of, order, strict=True)] for of in (rows.left, rows.left_times))
    curves = _Curves(n, [np.searchsorted(one, own * MS) for one, own in zip(ordered, left, strict=True)])

    def at(ranks: Integers) -> Any:
        is_there = ranks > 0
        values = np.full(ranks.shape, np.nan)
        values[is_there] = flat[(starts[:, None] + ranks - 1)[is_there]] / MS
        return values

    shares, tail = np.array(Q), np.minimum(Q, 1 - np.array(Q))
    ranks, is_complete = curves.ranks(shares), (curves.total == n)[:, None]
    place = np.where(n[:, None] > 0, 1 + (n[:, None] - 1) * shares, 0)
    below, above = (np.where(is_complete, one, ranks).astype(np.int64) for one in (np.floor(place), np.ceil(place)))
    enough = curves.total[:, None] * tail >= 1 - 1e-9
    part = np.where(is_complete, place - np.floor(place), 0)
    value = np.where(enough & (ranks > 0), at(below) + (at(above) - at(below)) * part, np.nan)
    at_least = np.full(value.shape, np.nan)
    for group, i in np.argwhere(enough & (ranks == 0)):
        both = np.sort(np.concatenate([ordered[group] / MS, left[group] - 1]))
        at_least[group, i] = both[int(np.ceil(curves.total[group] * Q[i] - 1e-12)) - 1]
    n_effective, size = _effective(curves, ranks, rows, left_times, at(ranks))
    low, high = _ends(curves, at, size, tail, np.isnan(value))
    shown = np.where(np.isnan(low), np.nan, np.minimum(n_effective, n[:, None]))
    each = {"": value, "_low": low, "_high": high, "_at_least": at_least}
    columns: dict[str, Any] = {}
    for i, name in enumerate(("p50", "p95")):
        columns |= {f"{name}{end}_s": own[:, i] for end, own in each.items()} | {f"{name}_n_effective": shown[:, i]}
    return columns


def _effective(curves: _Curves, ranks: Integers, rows: Durations, left_times: Sequence[Any], limits: Any) -> Any:
    """The effective numbers of rows, and those for an interval, from rows and hits by span."""
    many = len(curves.n)
    counts, gone = np.zeros((many, SPANS, 3)), np.zeros((many, SPANS))
    of_left = np.zeros(len(curves.row), np.int64)
    first_left = np.cumsum(curves.total - curves.n) - (curves.total - curves.n)
    milliseconds = np.nan_to_num(np.rint(limits * MS), nan=np.iinfo(np.int32).max).astype(rows.values[0].dtype)
    for group, (values, times, left) in enumerate(zip(rows.values, rows.times, left_times, strict=True)):
        ends = [one(of) for of in (times, left) if len(of) for one in (np.min, np.max)]
        if not ends:
            continue
        scale = SPANS / (max(ends) - min(ends) + 1)
        cell = ((times - min(ends)) * scale).astype(np.int64) * 3
        cell += values > milliseconds[group, 0]
        cell += values > milliseconds[group, 1]
        counts[group] = np.bincount(cell, minlength=SPANS * 3).reshape(SPANS, 3)
        of_left[first_left[group] : first_left[group] + len(left)] = ((left - min(ends)) * scale).astype(np.int64)
    hits = counts.cumsum(axis=2)[:, :, :2].transpose(0, 2, 1) * (ranks > 0)[..., None]
    ended, n_hits = counts.sum(axis=2), hits.sum(-1)
    np.add.at(gone, (curves.row, of_left), 1)
    share, greenwood = curves.at(ranks)
    at_leaving = curves.row, curves.segment
    has_left = curves.begins[at_leaving][:, None] < ranks[curves.row]
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(has_left, 1 - share[curves.row] / curves.share[at_leaving][:, None], 0.0)
        np.add.at(hits.transpose(0, 2, 1), (curves.row, of_left), part)
        n = ended + gone
        mean = hits.sum(-1) / n.sum(-1)[:, None]
        squares = n_hits * (1 - mean) ** 2 + (ended.sum(-1)[:, None] - n_hits) * mean**2
        np.add.at(squares, curves.row, (part - mean[curves.row]) ** 2)
        effect = _effect(n[:, None], hits, squares / n.sum(-1)[:, None])
        spread = np.array([p * (1 - p) for p in Q])
        n_effective = np.minimum(spread / (share**2 * greenwood * effect), n.sum(-1)[:, None])
    return n_effective, _size(n_effective, n[:, None])


def _ends(curves: _Curves, at: Any, size: Any, tail: Any, is_unknown: Any) -> tuple[Any, Any]:
    """Clopper and Pearson's interval of the share, as the durations of the rows around it."""
    middle = np.where(np.isnan(size[:, :1]), np.inf, size[:, :1])
    shares = np.array(Q)
    with np.errstate(invalid="ignore"):
        has_ends = ~is_unknown & (np.minimum(size, middle) * tail >= 1)
        below = np.where(has_ends, betaincinv(size * shares, size * (1 - shares) + 1, 1 - LEVEL), np.nan)
        above = np.where(has_ends, betaincinv(size * shares + 1, size * (1 - shares), LEVEL), np.nan)
    low, high = curves.ranks(below), curves.ranks(above)
    with np.errstate(invalid="ignore"):
        low -= (low > 0) & (curves.at(low)[0] < 1 - below - 1e-12)
    high = np.where((high > 0) & (high < curves.n[:, None]), high + 1, 0)
    is_inside = (low > 0) & (high > 0)
    return np.where(is_inside, at(low), np.nan), np.where(is_inside, at(high), np.nan)
