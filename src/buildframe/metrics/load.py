"""How much ran and waited at each moment, exactly, from the intervals of jobs; and how busy agents were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.metrics import sweeps
from buildframe.metrics.columns import NAT
from buildframe.metrics.durations import is_script
from buildframe.metrics.engines import Frame, collected, is_pandas
from buildframe.metrics.groups import By, Groups, beside, groups_of
from buildframe.metrics.intervals import Flags, Integers, instants
from buildframe.metrics.sweeps import Window
from buildframe.spec.times import Moment, When


@checked_names
def concurrency(jobs: Frame, by: By = "queue", start: When | None = None, end: When | None = None) -> pd.DataFrame:
    """How many jobs ran at once, as a step function: one row for each change.

    Counted are the runs [started_at, finished_at) that cover a moment, of every attempt; a job without `finished_at`
    runs until its `fetched_at`. Exact from the intervals, not sampled, so that count times seconds adds up to machine
    time, and the parts of a window add up to the whole. `by` as in `percentiles`.

    Rows are ordered by key and time; columns: the keys, then
    `at` (`datetime64[us, UTC]`): from here to the group's next `at`, excluded,
    `running` (Int64) jobs ran; each row has another count than the one before it. A group begins with its first job and
    ends with a count of 0; a group in which nothing ran has no row;
    `whole` (boolean): whether jobs of builds from before or after the frame's can be ruled out at this time: it is
    False before the first `build_created_at` and for as long after it as the longest time seen from a build's creation
    to the end of a run, since a build older than the frame may still have run then; and after the last
    `build_created_at`, since the frame may end before the newest build. Null if no such time is known. It speaks of
    time only: a frame filtered by pipeline or branch gives the load of these jobs, and `whole` does not show that
    others are missing;
    `n_negative` (Int64, the same in each row of a group): runs that end before they start (two clocks disagree); they
    cover nothing and are in no count.

    `start` and `end` (as in `created_from`; ages count back from the latest `fetched_at`) cut the window: each group
    that ran at any time has a first row at `start` with the count at that moment, 0 included, and a last one at `end`.
    To have `whole` rows from `start` on, fetch builds from earlier than `start`.

    Needs `started_at`, `finished_at`, `fetched_at`, `build_created_at`. Each row counts: drop duplicates by `id` first.
    An empty frame gives these columns and no rows. BadInput: `end` not after `start`, times without a zone.
    """
    if not is_pandas(jobs):
        return sweeps.load(jobs, by, sweeps.RUNNING, start, end)
    table, groups = _grouped(jobs, ["started_at", "finished_at", "fetched_at", "build_created_at"], by)
    begun = instants(table, "started_at")
    over = _first_known(instants(table, "finished_at"), instants(table, "fetched_at"))
    return _load("running", table, groups, begun, over, _window(table, start, end))


@checked_names
def queue_depth(jobs: Frame, by: By = "queue", start: When | None = None, end: When | None = None) -> pd.DataFrame:
    """How many script jobs waited for an agent at once, as a step function: one row for each change.

    Counted are the waits [runnable_at, started_at) that cover a moment; a job that never started waited until its
    `finished_at`, and one that has neither until its `fetched_at`. Jobs of other types wait for no agent, and waiting
    for earlier steps is no queue. Count times seconds adds up to queue time, with that of jobs that never started.

    Columns, window and errors as in `concurrency`, with `waiting` (Int64) in place of `running`, and waits in place of
    runs in `whole` and `n_negative`.
    Needs `type`, `runnable_at`, `started_at`, `finished_at`, `fetched_at`, `build_created_at`.
    """
    if not is_pandas(jobs):
        return sweeps.load(jobs, by, sweeps.WAITING, start, end)
    stamps = ["runnable_at", "started_at", "finished_at", "fetched_at", "build_created_at"]
    table, groups = _grouped(jobs, ["type", *stamps], by)
    begun = np.where(is_script(table).to_numpy(), instants(table, "runnable_at"), NAT)
    over = _first_known(*(instants(table, name) for name in ("started_at", "finished_at", "fetched_at")))
    return _load("waiting", table, groups, begun, over, _window(table, start, end))


@checked_names
def utilisation(jobs: Frame, by: By = "queue") -> pd.DataFrame:
    """The share of agents' time that these jobs used: the time in which they ran, of the time the agents were in sight.

    An agent is in sight from its first `started_at` to its last `finished_at` in a group. What this share means depends
    on the frame. If it holds all jobs that these agents ran in that time, the share is an upper bound of how busy they
    were: an idle agent leaves no trace in jobs, before, after, or at all. If it holds only some of their jobs, such as
    those of one pipeline or branch, it is the share used by these jobs, and the agents may have been busier. It is near
    to 1 if each job has its own agent. `by` as in `percentiles`; an agent that is in several groups counts in each,
    with what it did there.

    One row a group in which a job started, ordered by key; columns: the keys, then
    `agents` (Int64): how many of them ended a run;
    `busy_s` (float64): seconds of runs (finished_at - started_at), every attempt;
    `seen_s` (float64): seconds in sight, both summed over the agents;
    `share_used` (float64): busy_s / seen_s, NaN if seen_s is not above 0; above 1 only if runs of one agent overlap;
    `n_running` (Int64): jobs of the group that started and have not finished; they are left out;
    `n_no_agent` (Int64): runs without `agent_id`; they are left out;
    `n_negative` (Int64): runs that end before they start (two clocks disagree); they are kept in the sums.

    Needs `agent_id`, `started_at`, `finished_at`. Each row counts: drop duplicates by `id` first. An empty frame gives
    these columns and no rows.
    """
    if not is_pandas(jobs):
        return sweeps.utilisation(jobs, by)
    table, groups = _grouped(jobs, ["agent_id", "started_at", "finished_at"], by)
    begun, over = instants(table, "started_at"), instants(table, "finished_at")
    agents, started = pd.factorize(table["agent_id"])[0], begun != NAT
    ended = started & (over != NAT)
    counted = ended & (agents >= 0)
    summary = _busy(groups, counted, agents, begun, over).assign(
        n_running=_tally(groups, started & ~ended),
        n_no_agent=_tally(groups, ended & ~counted),
        n_negative=_tally(groups, counted & (over < begun)),
    )
    present = np.flatnonzero(_tally(groups, started))
    return beside(groups.keys, summary).iloc[present].reset_index(drop=True)


def _busy(groups: Groups, counted: Flags, agents: Integers, begun: Integers, over: Integers) -> pd.DataFrame:
    """Sums over the agents of each group: how many, how long they ran jobs, how long they were in sight."""
    ran, begun, over = groups.codes[counted], begun[counted], over[counted]
    codes, pairs = pd.factorize(ran * (agents.max(initial=0) + 1) + agents[counted])
    first, last = np.full(len(pairs), np.iinfo(np.int64).max), np.full(len(pairs), NAT)
    np.minimum.at(first, codes, begun)
    np.maximum.at(last, codes, over)
    of = pairs // (agents.max(initial=0) + 1)
    n = len(groups.keys)
    busy, seen = np.bincount(ran, over - begun, n) / 1e6, np.bincount(of, last - first, n) / 1e6
    share_used = np.divide(busy, seen, out=np.full(n, np.nan), where=seen > 0)
    found = pd.DataFrame({"agents": pd.array(np.bincount(of, minlength=n), "Int64")})
    return found.assign(busy_s=busy, seen_s=seen, share_used=share_used)


def _tally(groups: Groups, those: Flags) -> pd.arrays.IntegerArray:
    return pd.array(np.bincount(groups.codes[those], minlength=len(groups.keys)), dtype="Int64")


def _grouped(frame: pd.DataFrame, needs: Sequence[str], by: By) -> tuple[pd.DataFrame, Groups]:
    """The columns needed, and the groups of their rows."""
    return collected(frame, needs), groups_of(frame, by)


def _first_known(first: Integers, *others: Integers) -> Integers:
    for other in others:
        first = np.where(first == NAT, other, first)
    return first


# Step functions


class _Steps(NamedTuple):
    """From a moment `at` on, `level` intervals of a group are under way; by group and time."""

    group: Integers
    at: Integers
    level: Integers

    def those(self, chosen: Flags) -> _Steps:
        return _Steps(*(column[chosen] for column in self))


def _window(table: pd.DataFrame, start: When | None, end: When | None) -> Window:
    latest = instants(table, "fetched_at").max(initial=NAT)
    return Window.of(start, end, None if latest == NAT else Moment.from_us(int(latest)))


def _load(
    name: str, table: pd.DataFrame, groups: Groups, begun: Integers, over: Integers, window: Window
) -> pd.DataFrame:
    known = (begun != NAT) & (over != NAT)
    codes, begun, ended = groups.codes[known], begun[known], over[known]
    created = instants(table, "build_created_at")
    negative = np.bincount(codes[ended < begun], minlength=len(groups.keys))
    steps = _within(window, codes, begun, np.maximum(begun, ended), len(groups.keys))
    columns = {
        "at": pd.DatetimeIndex(steps.at.view("datetime64[us]"), tz="UTC"),
        name: pd.array(steps.level, dtype="Int64"),
        "whole": _whole(steps.at, created, (over - created)[known & (created != NAT)]),
        "n_negative": pd.array(negative[steps.group], dtype="Int64"),
    }
    return beside(groups.keys.iloc[steps.group].reset_index(drop=True), pd.DataFrame(columns))


def _within(window: Window, codes: Integers, begun: Integers, over: Integers, n: int) -> _Steps:
    """The changes in each of the n groups within the window, and its first and last moment where they are given."""
    for edge in window:
        if edge is not None:
            present = np.flatnonzero(np.bincount(codes, minlength=n))
            codes = np.concatenate([codes, present])
            begun, over = (np.concatenate([one, np.full(len(present), edge)]) for one in (begun, over))
    steps = _steps(codes, _cut(begun, window), _cut(over, window), n)
    is_first, is_change = (np.diff(one, prepend=-1) != 0 for one in (steps.group, steps.level))
    if window.end is None:
        return steps.those(is_first | is_change)
    return steps.those((is_first | is_change | (steps.at == window.end)) & (steps.at <= window.end))


def _cut(times: Integers, window: Window) -> Integers:
    """What came before the window has its start; what comes after it, the microsecond after its end."""
    after = None if window.end is None else window.end + 1
    return times if window == (None, None) else np.clip(times, window.start, after)


def _steps(codes: Integers, begun: Integers, over: Integers, n: int) -> _Steps:
    """How many of a group's intervals are under way from each moment on at which one begins or is over."""
    order = np.argsort(codes.astype(np.int16) if n < 2**15 else codes, kind="stable")  # small ones need no comparisons
    begun, over = 2 * begun[order] + 1, 2 * over[order]  # the last bit says that one begins
    changes, sizes = np.empty(2 * len(codes), np.int64), np.bincount(codes, minlength=n)
    for stop, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
        part = changes[2 * (stop - size) : 2 * stop]
        np.concatenate([begun[stop - size : stop], over[stop - size : stop]], out=part)
        part.sort()
    group, at = np.repeat(np.arange(n), 2 * sizes), changes >> 1
    is_last = np.append((at[1:] != at[:-1]) | (group[1:] != group[:-1]), True)[: len(at)]
    return _Steps(group, at, np.cumsum(2 * (changes & 1) - 1)).those(is_last)


def _whole(at: Integers, created: Integers, lasting: Integers) -> pd.arrays.BooleanArray:
    """Whether neither a build before the frame's first nor one after its last can have had a job at that moment.

    `lasting`: how long after their builds' creation jobs were over.
    """
    known = created[created != NAT]
    if not len(known):
        return pd.arrays.BooleanArray(np.zeros(len(at), np.bool_), np.ones(len(at), np.bool_))
    is_whole = (at >= known.min() + lasting.max(initial=0)) & (at <= known.max())
    return pd.arrays.BooleanArray(is_whole, np.zeros(len(at), np.bool_))
