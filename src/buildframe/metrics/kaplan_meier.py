"""Estimate how long rows last if some were not seen to end: Kaplan and Meier's curve, from counts and ranks.

A censored row counts as seen until the end of its last second.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from buildframe.metrics.columns import Floats, Integers


class Leaving(NamedTuple):
    """Censored rows that leave their group at one time, ordered by group and time.

    `group` is their group, `rows` their number, and `events` the number of rows of the group that ended before.
    """

    group: Integers
    rows: Integers
    events: Integers


class Curves:
    """The share of rows that last longer, by the rank of each row that ended, group by group.

    The share changes only by events, and by how much depends only on how many rows are left. So a group is a series of
    segments: one from the start, and one from each time at which censored rows leave.
    """

    def __init__(self, n: Integers, leaving: Leaving) -> None:
        self._n, self._before = n, np.cumsum(n) - n
        own = np.concatenate([np.arange(len(n)), leaving.group])
        order = np.argsort(own, kind="stable")
        self._group = own[order]
        self._first = np.searchsorted(self._group, np.arange(len(n)))
        self._events = np.concatenate([np.zeros(len(n), np.int64), leaving.events])[order]
        self.position = np.argsort(order, kind="stable")[len(n) :]
        """Of each leaving, its segment."""
        left = np.concatenate([np.zeros(len(n), np.int64), leaving.rows])[order]
        total = n + np.bincount(leaving.group, leaving.rows, len(n)).astype(np.int64)
        self._at_risk = total[self._group] - self._events - self._sum_before(left, including=True)
        is_last = np.append(self._group[1:] != self._group[:-1], True)
        self._end = np.where(is_last, n[self._group], np.append(self._events[1:], 0))
        within = self._end - self._events
        rest = self._at_risk - within
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = rest <= 0  # nothing comes after
            self.share = np.exp(self._sum_before(np.where(ends, 0.0, np.log(rest / self._at_risk))))
            self._greenwood = self._sum_before(np.where(ends, 0.0, 1 / rest - 1 / self._at_risk))
            self._share_at_end = self.share * np.where(self._at_risk > 0, rest / self._at_risk, 1.0)

    def first_ranks(self, share: Floats) -> Integers:
        """Return the first rank at which the share is at most this (groups x any); 0 if it stays above."""
        ranks = np.zeros(share.shape, np.int64)
        for i, level in enumerate(share.T):
            above = self._share_at_end > level[self._group] + 1e-12
            passed = np.bincount(self._group[above], minlength=len(self._n))
            segment = np.minimum(self._first + passed, len(self._group) - 1)
            is_reached = self._first + passed < np.append(self._first[1:], len(self._group))
            needed = np.ceil(self._at_risk[segment] * (1 - level / self.share[segment]) - 1e-6)
            within = self._end[segment] - self._events[segment]
            ranks[:, i] = np.where(is_reached, self._events[segment] + np.clip(needed, 1, within), 0)
        return ranks

    def at_ranks(self, ranks: Integers) -> tuple[Floats, Floats]:
        """Return the share after the row of each rank (groups x any), and Greenwood's sum; NaN for the rank 0."""
        segment = np.searchsorted(self._end + self._before[self._group], ranks + self._before[:, None])
        segment = np.minimum(segment, len(self._group) - 1)
        at_risk = self._at_risk[segment]
        rest = at_risk - (ranks - self._events[segment])
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self.share[segment] * rest / at_risk
            greenwood = self._greenwood[segment] + 1 / rest - 1 / at_risk
        return np.where(ranks > 0, share, np.nan), np.where(ranks > 0, greenwood, np.nan)

    def _sum_before(self, values: Any, *, including: bool = False) -> Any:
        """Return the sum of the segments before each, within its group."""
        sums = np.cumsum(values)
        before = sums - values
        return (sums if including else before) - before[self._first][self._group]
