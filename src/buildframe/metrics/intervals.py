"""Numbers of builds from what their jobs did when.

Each takes a frame of jobs (pandas, Polars, DuckDB) and gives a pandas Series with one entry for each `build_id` in the
frame, indexed and ordered by it, so that `builds.assign(active=builds["id"].map(metrics.active_time(jobs)))` works.
Durations are `timedelta64[us]`, NaT where there is nothing to measure; rows without `build_id` belong to no build and
are left out; an empty frame gives an empty Series. Each row counts: drop duplicates by `id` first, and fetch with
`include_retried_jobs=True`, or all but the last attempts are missing.

Of a frame of PySpark it is one of PySpark, not computed yet, with the columns `build_id` and, say, `active_time_s`
(seconds, null for NaT), to be joined with builds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.errors import BadInput
from buildframe.metrics import spark
from buildframe.metrics.columns import NAT, microseconds, moments
from buildframe.metrics.engines import Frame, chosen, collected, is_pandas
from buildframe.metrics.outcomes import has_failed_hard, is_superseded
from buildframe.metrics.pieces import as_they_come, mapped
from buildframe.metrics.states import check_spellings

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@checked_names
def machine_time(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """The sum of the run times (finished_at - started_at) of all of a build's jobs, over every attempt.

    NaT where none has both stamps; a job that still runs has no run time and is left out
    (`jobs["started_at"].notna() & jobs["finished_at"].isna()` tells which). A negative run time (two clocks disagree)
    is kept in the sum. Needs `build_id`, `started_at`, `finished_at`.

    One entry a build, `timedelta64[us]`, indexed by `build_id`; an empty frame gives none.
    """
    return _of_builds(jobs, ("started_at", "finished_at"), _machine_time)


def _machine_time(builds: _Builds) -> pd.Series[pd.Timedelta]:
    start, end = builds.stamps("started_at"), builds.stamps("finished_at")
    ran = (start != NAT) & (end != NAT)
    return builds.sums(builds.codes[ran], (end - start)[ran], "machine_time")


@checked_names
def active_time(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """How long at least one of a build's jobs ran: the length of the union of its runs [started_at, finished_at).

    Runs of jobs that were retried are left out, since another attempt took their place: A (0, 2) retried as A' (2, 4),
    B (1, 3), C (6, 7) give (1, 4) and (6, 7), so 4. NaT where no run is left; a job that still runs is left out (see
    `machine_time`), and a run that ends before it starts (two clocks disagree) covers nothing.
    Needs `build_id`, `started_at`, `finished_at`, `retried`.

    One entry a build, `timedelta64[us]`, indexed by `build_id`; an empty frame gives none.
    """
    return _of_builds(jobs, ("started_at", "finished_at", "retried"), _active_time)


def _active_time(builds: _Builds) -> pd.Series[pd.Timedelta]:
    swept = _sweep(builds, _last_attempts(builds))
    return builds.sums(swept.codes, swept.covered, "active_time")


def _last_attempts(builds: _Builds) -> _Spans:
    """Return the runs that active time counts: those that have ended, without superseded attempts."""
    start, end = builds.stamps("started_at"), builds.stamps("finished_at")
    counted = (start != NAT) & (end != NAT) & ~builds.flags(is_superseded())
    return _Spans(builds.codes, start, end).those(counted)


@checked_names
def parallelism(jobs: Frame) -> pd.Series[float]:
    """How many jobs of a build ran at once while it was active, on average, float64.

    That is the run time of the attempts that `active_time` counts, divided by the active time: 1.0 for a build whose
    jobs ran one after the other, also if a job was retried. A superseded attempt and a run that ends before it starts
    (two clocks disagree) are in neither. NaN if the active time is 0 or there is none.
    Needs `build_id`, `started_at`, `finished_at`, `retried`.

    One entry a build, float64, indexed by `build_id`; an empty frame gives none.
    """
    return _of_builds(jobs, ("started_at", "finished_at", "retried"), _parallelism)


def _parallelism(builds: _Builds) -> pd.Series[float]:
    active, runs = _active_time(builds), _last_attempts(builds)
    run_time = builds.sums(runs.codes, np.maximum(runs.end - runs.start, 0), "run_time")
    return (run_time / active.where(active > pd.Timedelta(0))).rename("parallelism")


@checked_names
def idle_time(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """How long a build was there while none of its jobs ran and no block step held it: waits for agents, mostly.

    Over each build's span, from `build_created_at` to the last moment at which one of its jobs ended, was seen running
    or unblocked (still blocked and still running: `fetched_at`),

        idle_time + blocked_time + time in which at least one job ran = span.

    Here runs of every attempt count, also those still under way, from the build's creation on; one that ends before it
    starts covers nothing. A trigger step runs on no agent: while only it is waited for, the build is idle. So it is
    while a block step holds it that was never unblocked and no longer waits (its build was canceled): it has no stamp.
    NaT where the creation is not known or nothing has ended, run or been unblocked yet.
    Needs `build_id`, `build_created_at`, `type`, `state`, `started_at`, `finished_at`, `unblocked_at`, `fetched_at`.

    One entry a build, `timedelta64[us]`, indexed by `build_id`; an empty frame gives none.
    """
    return _of_builds(jobs, ("type", "state", *_STAMPS), functools.partial(_gaps, "idle_time", False))


@checked_names
def blocked_time(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """How long a build waited for somebody to unblock it, and none of its jobs ran.

    A block step has no other stamp than `unblocked_at`. So of each gap in which no job runs, the part up to the last
    `unblocked_at` in it counts (what remains is idle: see `idle_time`, which also says when it is NaT and what it
    needs); a block step that waits still counts up to `fetched_at`. Time in which other jobs ran is not in it.
    0 where a build was never blocked.

    One entry a build, `timedelta64[us]`, indexed by `build_id`; an empty frame gives none.
    """
    return _of_builds(jobs, ("type", "state", *_STAMPS), functools.partial(_gaps, "blocked_time", True))


@checked_names
def time_to_first_failure(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """From a build's creation until the first of its jobs failed hard: finished_at - build_created_at.

    A hard failure is a job in state `failed`, unless soft, or `timed_out`; attempts that were retried count as well, so
    a build that passed may have one. NaT where there is none; negative where clocks disagree.
    Needs `build_id`, `build_created_at`, `state`, `soft_failed`, `finished_at`.

    One entry a build, `timedelta64[us]`, indexed by `build_id`; an empty frame gives none.
    """
    return _of_builds(jobs, ("build_created_at", "state", "soft_failed", "finished_at"), _time_to_first_failure)


def _time_to_first_failure(builds: _Builds) -> pd.Series[pd.Timedelta]:
    check_spellings(builds.jobs["state"].dropna(), "state")
    failed = builds.flags(has_failed_hard())
    first = builds.earliest(builds.codes[failed], builds.stamps("finished_at")[failed])
    return builds.series(_difference(builds.created(), first), "time_to_first_failure")


@checked_names
def time_to_pass(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """From a build's creation until the last of its jobs ended, of builds that passed: finished_at - build_created_at.

    NaT for builds in other states, and for those that a block step holds, whose state is only the last that they had.
    A retry or an unblocked step reopens a build, so it may still grow; negative where clocks disagree.
    Needs `build_id`, `build_created_at`, `build_state`, `type`, `state`, `finished_at`.

    One entry a build, `timedelta64[us]`, indexed by `build_id`; an empty frame gives none.
    """
    return _of_builds(jobs, ("build_created_at", "build_state", "type", "state", "finished_at"), _time_to_pass)


def _time_to_pass(builds: _Builds) -> pd.Series[pd.Timedelta]:
    check_spellings(builds.jobs["build_state"].dropna(), "build_state")
    has_passed = builds.flags((nw.col("build_state") == "passed").fill_null(False))
    unsettled = ~has_passed | builds.flags(_holds())
    last = builds.latest(builds.codes, builds.stamps("finished_at"))
    last[builds.codes[unsettled]] = NAT
    return builds.series(_difference(builds.created(), last), "time_to_pass")


class _Builds(NamedTuple):
    """Jobs, and of each the number of its build in `ids`."""

    jobs: pd.DataFrame
    codes: Integers
    ids: pd.Index[Any]

    def stamps(self, name: str) -> Integers:
        return instants(self.jobs, name)

    def flags(self, of: nw.Expr) -> Flags:
        return nw.from_native(self.jobs, eager_only=True).select(flag=of)["flag"].to_numpy().astype(np.bool_)

    def earliest(self, codes: Integers, times: Integers) -> Integers:
        none = np.iinfo(np.int64).max
        found = np.full(len(self.ids), none)
        np.minimum.at(found, codes, np.where(times == NAT, none, times))
        return np.where(found == none, NAT, found)

    def latest(self, codes: Integers, times: Integers) -> Integers:
        found = np.full(len(self.ids), NAT)
        np.maximum.at(found, codes, times)
        return found

    def created(self) -> Integers:
        return self.earliest(self.codes, self.stamps("build_created_at"))

    def sums(self, codes: Integers, durations: Integers, name: str) -> pd.Series[pd.Timedelta]:
        """NaT for builds that are not among the codes."""
        found = np.full(len(self.ids), NAT)
        found[codes] = 0
        np.add.at(found, codes, durations)
        return self.series(found, name)

    def series(self, durations: Integers, name: str) -> pd.Series[pd.Timedelta]:
        return pd.Series(pd.TimedeltaIndex(durations.view("timedelta64[us]")), index=self.ids, name=name)


def _of_builds(jobs: Frame, needs: Sequence[str], of: Callable[[_Builds], pd.Series[Any]]) -> pd.Series[Any]:
    """A Series by build, of what `of` tells of some builds with all of their jobs; of Spark's a frame of Spark."""
    if is_pandas(jobs):
        return of(_builds(collected(jobs, ["build_id", *needs])))
    found = chosen(jobs, ["build_id", *needs])
    if spark.is_spark(found):
        lazily: pd.Series[Any] = mapped(found, ["build_id"], functools.partial(_in_seconds, of))
        return lazily
    told = as_they_come(found, "build_id", functools.partial(_side_by_side, of)).set_index("build_id")
    return told.iloc[:, 0].sort_index()


def _builds(table: pd.DataFrame) -> _Builds:
    table = table.dropna(subset=["build_id"])
    codes, ids = pd.factorize(table["build_id"], sort=True)
    return _Builds(table, codes.astype(np.int64), pd.Index(ids, name="build_id"))


def _side_by_side(of: Callable[[_Builds], pd.Series[Any]], table: pd.DataFrame) -> pd.DataFrame:
    return of(_builds(table)).reset_index()


def _in_seconds(of: Callable[[_Builds], pd.Series[Any]], table: pd.DataFrame) -> pd.DataFrame:
    told = of(_builds(table))
    if pd.api.types.is_timedelta64_dtype(told.dtype):
        told = told.dt.total_seconds().rename(f"{told.name}_s")
    return told.reset_index().astype({"build_id": "str"})


def instants(table: pd.DataFrame, name: str) -> Integers:
    """The stamps of a column as whole microseconds since 1970, NAT where there is none."""
    return microseconds(moments(table, name))


def _difference(start: Integers, end: Integers) -> Integers:
    return np.where((start == NAT) | (end == NAT), NAT, end - start)


def _holds() -> nw.Expr:
    """Block steps that wait to be unblocked; other jobs behind one are in this state, too."""
    return ((nw.col("type") == "manual") & (nw.col("state") == "blocked")).fill_null(False)


# Sweeps


class _Spans(NamedTuple):
    """Intervals [start, end), each with the number of its build."""

    codes: Integers
    start: Integers
    end: Integers

    def those(self, chosen: Flags) -> _Spans:
        return _Spans(*(column[chosen] for column in self))


class _Swept(NamedTuple):
    """Intervals by build and start: what each adds to the union of those before it, and the gap between that and it.

    `order` says which of the intervals given each is. The gap before a build's first is 0.
    """

    order: npt.NDArray[np.intp]
    codes: Integers
    covered: Integers
    gap: Integers


def _sweep(builds: _Builds, spans: _Spans) -> _Swept:
    """Intervals of one start stay in the order given; one that ends before it starts covers nothing."""
    codes, start, end = spans.codes, spans.start, np.maximum(spans.start, spans.end)
    shift = _end_to_end(builds, codes, start, end)[codes]
    order = np.argsort(start + shift, kind="stable")
    codes, start, end = codes[order], (start + shift)[order], (end + shift)[order]
    reached = np.concatenate([start[:1], np.maximum.accumulate(end)[:-1]])
    gap = np.where(np.diff(codes, prepend=-1) > 0, 0, np.maximum(start - reached, 0))
    return _Swept(order, codes, np.maximum(end - np.maximum(start, reached), 0), gap)


def _end_to_end(builds: _Builds, codes: Integers, start: Integers, end: Integers) -> Integers:
    """How far to shift each build's times so that builds follow one another: one sort and one maximum do for all."""
    first, last = builds.earliest(codes, start), builds.latest(codes, end)
    lengths = np.where(last == NAT, 0, last - first + 1)  # 1 more, so that no two builds touch
    if lengths.sum(dtype=np.float64) > 2**62:
        worst, years = builds.ids[int(lengths.argmax())], lengths.max() / 31_557_600e6
        raise BadInput(f"Stamps of build {worst} are {years:.0f} years apart; correct them.")
    return np.cumsum(lengths) - lengths - np.where(last == NAT, 0, first)


_STAMPS = ("build_created_at", "started_at", "finished_at", "unblocked_at", "fetched_at")


def _gaps(name: str, blocked: bool, builds: _Builds) -> pd.Series[pd.Timedelta]:
    """The gaps between a build's runs that a release ends (`blocked`), or those that a run or its last stamp ends."""
    finished, created = builds.stamps("finished_at"), builds.created()
    runs, releases = _runs(builds, finished), _releases(builds)
    ends = (_Spans(builds.codes, finished, finished), releases, runs)
    last = np.maximum.reduce([builds.latest(one.codes, one.end) for one in ends])
    known = np.flatnonzero((created != NAT) & (last != NAT))
    # of one start, the creation comes first, then a release, a run, and the last stamp
    parts = [_Spans(known, created[known], created[known]), releases, runs, _Spans(known, last[known], last[known])]
    parts = [_since(created, one) for one in parts]
    swept = _sweep(builds, _Spans(*map(np.concatenate, zip(*parts, strict=True))))
    is_release = np.repeat([False, True, False, False], [len(one.codes) for one in parts])
    return builds.sums(swept.codes, np.where(is_release[swept.order] == blocked, swept.gap, 0), name)


def _runs(builds: _Builds, finished: Integers) -> _Spans:
    """What ran, every attempt, until it ended or was last seen; without what covers nothing and would split a gap."""
    start = builds.stamps("started_at")
    end = np.where(finished == NAT, builds.stamps("fetched_at"), finished)
    return _Spans(builds.codes, start, end).those((start != NAT) & (end > start))


def _releases(builds: _Builds) -> _Spans:
    """When somebody unblocked a build, and when a build that nobody has unblocked was last seen."""
    unblocked = builds.stamps("unblocked_at")
    held = builds.flags(_holds()) & (unblocked == NAT)
    at = np.where(held, builds.stamps("fetched_at"), unblocked)
    return _Spans(builds.codes, at, at).those(at != NAT)


def _since(created: Integers, spans: _Spans) -> _Spans:
    """What of the spans lies after their builds' creation; without builds whose creation is not known."""
    since = created[spans.codes]
    cut = _Spans(spans.codes, np.maximum(spans.start, since), np.maximum(spans.end, since))
    return cut.those(since != NAT)
