"""Count in numpy how many intervals hold at once, as step functions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from buildframe.metrics.engines.protocol import Flags, Integers, TimeWindow


class StepFunction(NamedTuple):
    """Number of intervals (`level`) of a group that cover the time from `at` on; ordered by group and time."""

    group: Integers
    at: Integers
    level: Integers

    def filter(self, chosen: Flags) -> StepFunction:
        """Return the chosen changes."""
        return StepFunction(*(column[chosen] for column in self))


def within(window: TimeWindow, codes: Integers, begin: Integers, finish: Integers, n_groups: int) -> StepFunction:
    """Return the changes in each group within the window, and rows at its limits."""
    for edge in window:
        if edge is not None:
            nonempty = np.flatnonzero(np.bincount(codes, minlength=n_groups))
            codes = np.concatenate([codes, nonempty])
            begin, finish = (np.concatenate([one, np.full(len(nonempty), edge)]) for one in (begin, finish))
    steps = _count_intervals(codes, _clip(begin, window), _clip(finish, window), n_groups)
    is_first, is_change = (np.diff(one, prepend=-1) != 0 for one in (steps.group, steps.level))
    if window.end is None:
        return steps.filter(is_first | is_change)
    return steps.filter((is_first | is_change | (steps.at == window.end)) & (steps.at <= window.end))


def _clip(times: Integers, window: TimeWindow) -> Integers:
    """Clip times to the window; later ones become the microsecond after its end."""
    after = None if window.end is None else window.end + 1
    return times if window == (None, None) else np.clip(times, window.start, after)


def _count_intervals(codes: Integers, begin: Integers, finish: Integers, n_groups: int) -> StepFunction:
    """Count the intervals of each group that cover each time at which one starts or ends."""
    order = np.argsort(codes.astype(np.int16) if n_groups < 2**15 else codes, kind="stable")  # int16: radix sort
    begin, finish = 2 * begin[order] + 1, 2 * finish[order]  # the last bit says that one begins
    changes, sizes = np.empty(2 * len(codes), np.int64), np.bincount(codes, minlength=n_groups)
    for stop, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
        part = changes[2 * (stop - size) : 2 * stop]
        np.concatenate([begin[stop - size : stop], finish[stop - size : stop]], out=part)
        part.sort()
    group, at = np.repeat(np.arange(n_groups), 2 * sizes), changes >> 1
    is_last = np.append((at[1:] != at[:-1]) | (group[1:] != group[:-1]), True)[: len(at)]
    return StepFunction(group, at, np.cumsum(2 * (changes & 1) - 1)).filter(is_last)
