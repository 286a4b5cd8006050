"""Measure outages of branches: how long recovery takes, and how much of the time a branch is red.

A branch turns red when a build on it ends `failed`, and green when one ends `passed`, in the order
of `finished_at`. Builds of pull requests from forks are on another branch, whatever its name.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.branch_histories import (
    BranchHistories,
    find_outages,
    get_build_numbers,
    select_branches,
    summarize_branches,
)
from buildframe.metrics.columns import NAT, TEXT, TIMESTAMP, Integers, microseconds
from buildframe.metrics.durations import is_script, wall_time
from buildframe.metrics.grouping import join_keys
from buildframe.metrics.input_frames import (
    Frame,
    column_names,
    is_spark,
    read_matching,
    read_rows,
)
from buildframe.metrics.percentiles import check_percentiles, percentiles
from buildframe.metrics.row_flags import has_failed_hard, is_set
from buildframe.metrics.steps import step
from buildframe.metrics.time_buckets import resolve_window
from buildframe.spec import Moment, When

_NEEDS_OF_JOBS = ("build_id", "type", "state", "soft_failed", "retried", "finished_at")

_FIRST_FAILED = "id of the first failed build"


@checked_names
def outages(
    builds: Frame,
    *,
    branch: str | None = None,
    pipelines: Frame | None = None,
    jobs: Frame | None = None,
) -> pd.DataFrame:
    """
    Find the times in which a branch was red: from a failed build until the next build that passed.

    Failures in a row are one outage. Canceled, running and blocked builds neither begin nor end
    one.

    Parameters
    ----------
    builds : DataFrame
        Builds of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `pipeline`,
        `branch`, `number`, `state`, `blocked`, `finished_at` and `fetched_at`. Uses `organization`,
        `pipeline_id` and `commit` if the frame has them, and the columns of `is_from_fork`. Ids
        must be unique.
    branch : str, optional
        Branch to examine in all pipelines. Pass either this or `pipelines`.
    pipelines : DataFrame, optional
        Result of `ws.pipelines()`, to examine the default branch of each pipeline. Pipelines match
        by id, or by organization and slug if a frame has no ids.
    jobs : DataFrame, optional
        Jobs of these builds, to name the step that failed first. Needs `build_id`, `type`, `state`,
        `soft_failed`, `retried`, `finished_at` and `step`, which pandas computes if it is missing;
        the builds then need `id`.

    Returns
    -------
    pandas.DataFrame
        One row per outage, ordered by pipeline, then time. No rows without builds or failures.
        `organization` is the first column if the builds have it.

        ================= =================== ======================================================
        pipeline          str                 slug in the newest build of the pipeline
        branch            str                 the branch
        failed_at         datetime64[us, UTC] end of the first failed build
        recovered_at      datetime64[us, UTC] end of the next passed build; NaT while the outage is
                                              open
        recovery_time_s   float64             seconds between these; NaN (censored) if the outage is
                                              open or its start is unknown
        seen_s            float64             seconds from `failed_at` to `recovered_at`, or to the
                                              latest timestamp of the frame if the outage is open
        open              boolean             no build has passed since
        start_unknown     boolean             the outage holds the first known outcome of the
                                              branch, so it may have begun earlier
        failed            Int64               failed builds in the outage
        first_number      Int64               number of its first failed build
        last_number       Int64               number of its last failed build
        fixed_by          Int64               number of the build that passed; null while there is
                                              none
        last_good_number  Int64               number of the last build before the first failed one
                                              that passed; null if none is known
        last_good_at      datetime64[us, UTC] its end; NaT if none is known
        last_good_commit  str                 its commit; null if unknown
        first_bad_commit  str                 commit of the first failed build; null if unknown
        first_failed_step str                 only with `jobs`: the step whose failure ended first
                                              in the first failed build; null if it has no failed
                                              job
        ================= =================== ======================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, not exactly one of `branch` and
        `pipelines` is given, or the branch of a pipeline is unknown.

    See Also
    --------
    recovery_time : Percentiles of the length of outages.
    red_share : Share of time and of commits that were red.

    Notes
    -----
    Builds of pull requests from forks do not count, although the branch of a fork can have the same
    name: see `is_from_fork`. If builds have no `pipeline_repository`, it is that of `pipelines`.

    Builds count in the order of `finished_at`, when their outcome became known. At the same
    microsecond the build with the higher number counts as later. A build that was created earlier
    can therefore end an outage: `fixed_by` is then below `first_number`.

    The commits after `last_good_commit` up to `first_bad_commit` are the suspects. Here builds
    count in the order of their numbers, in which commits were pushed. A hard failure counts as the
    first failed step only if no other attempt replaced it.

    This is the time to restore service [1]_, with a branch in place of a service.

    References
    ----------
    .. [1] Forsgren, N., Humble, J., and Kim, G. (2018). Accelerate, chapter 2. IT Revolution.

    Examples
    --------
    >>> outages = metrics.outages(builds, pipelines=pipelines)
    >>> outages[["pipeline", "branch", "recovery_time_s", "failed"]].head(3)
      pipeline branch  recovery_time_s  failed
    0      api   main       151702.203       1
    1      api   main       265664.535       1
    2     data   main        34938.486       1
    >>> suspects = metrics.outages(builds, branch="main", jobs=jobs)
    >>> suspects[["pipeline", "last_good_number", "first_number", "first_failed_step"]].head(3)
      pipeline  last_good_number  first_number first_failed_step
    0      api                 1             2         unit-jobs
    1      api                12            15              load
    2     data                11            13             spark
    """
    selection = select_branches(builds, branch, pipelines)
    more = [name for name in ("commit",) if name in column_names(builds)]
    if jobs is None:
        return summarize_branches(builds, selection, _outages, more)
    found = summarize_branches(builds, selection, _outages, [*more, "id"])
    return found.assign(first_failed_step=_find_first_failed_steps(jobs, found.pop(_FIRST_FAILED)))


def _outages(branches: BranchHistories) -> pd.DataFrame:
    outages = find_outages(branches)
    outcomes = branches.outcomes
    first_failed = outages.pop("first_failed").to_numpy(np.int64)
    last_good = _find_last_good(outcomes, first_failed)
    builds = branches.builds
    has_commits = "commit" in builds
    commits = builds["commit"].array if has_commits else pd.array([None] * len(builds), TEXT)
    # Where the builds of outcomes lie in `builds`; -1 if there is no last good one.
    places = outcomes["place"].to_numpy(np.int64)
    place_of_good = np.append(places, -1)[last_good]
    suspects = {
        "last_good_number": outcomes["number"].array.take(last_good, allow_fill=True),
        "last_good_at": outcomes["finished_at"].array.take(last_good, allow_fill=True),
        "last_good_commit": commits.take(place_of_good, allow_fill=True),
        "first_bad_commit": commits.take(places[first_failed]),
    }
    if "id" in builds:
        suspects[_FIRST_FAILED] = builds["id"].array.take(places[first_failed])
    names = branches.names.iloc[outages.pop("pipeline")].reset_index(drop=True)
    return join_keys(names, outages.assign(**suspects))


def _find_last_good(outcomes: pd.DataFrame, first_failed: Integers) -> Integers:
    """Return the last good build before each of the failed ones; -1 if there is none.

    It is the passed build of the pipeline with the highest number below that of the failed one.
    """
    pipeline = outcomes["pipeline"].to_numpy(np.int64)
    number = get_build_numbers(outcomes)
    # Orders builds by pipeline, then number.
    key = pipeline * (number.max(initial=0) + 2) + number
    passed = np.flatnonzero(~outcomes["failed"].to_numpy(bool) & (number >= 0))
    passed = passed[np.argsort(key[passed], kind="stable")]
    before = np.searchsorted(key[passed], key[first_failed]) - 1
    good: Integers = np.append(passed, -1)[before]
    if not len(first_failed):
        return good
    is_known = (good >= 0) & (number[first_failed] >= 0)
    is_same_pipeline = pipeline[good] == pipeline[first_failed]
    return np.where(is_known & is_same_pipeline, good, -1)


def _find_first_failed_steps(jobs: Frame, builds: pd.Series[str]) -> pd.Series[str]:
    """Return the step of each build whose failure ended first, null if there is none."""
    ids = pd.Index(builds.dropna().unique())
    if is_spark(jobs):
        jobs = read_matching(jobs, "build_id", ids.tolist(), [*_NEEDS_OF_JOBS, "step"])
    failures = read_rows(jobs, functools.partial(_select_failures, ids), _NEEDS_OF_JOBS, by=step)
    build = failures.columns["build"].to_numpy(np.int64)
    ended = failures.columns["finished_at"].to_numpy(np.int64)
    # Steps are numbered in the order of their names.
    order = np.lexsort((failures.codes, ended, ended == NAT, build))
    _, first = np.unique(build[order], return_index=True)
    steps = failures.keys.iloc[:, 0].array.take(failures.codes[order[first]])
    by_build = pd.Series(steps, ids[build[order[first]]], dtype=TEXT)
    return builds.map(by_build).astype(TEXT)


def _select_failures(ids: pd.Index, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return the failed jobs of these builds that no other attempt replaced.

    `build` is the place of their build among `ids`, `finished_at` in microseconds.
    """
    has_failed = is_script(jobs).to_numpy() & has_failed_hard(jobs) & ~is_set(jobs, "retried")
    failed = jobs[has_failed]
    failures = pd.DataFrame(
        {
            "build": ids.get_indexer(pd.Index(failed["build_id"])),
            "finished_at": microseconds(failed["finished_at"]),
        },
        index=failed.index,
    )
    return failures[failures["build"] >= 0]


@checked_names
def recovery_time(
    builds: Frame,
    *,
    branch: str | None = None,
    pipelines: Frame | None = None,
    q: float | Sequence[float] = (0.5, 0.95),
) -> pd.DataFrame:
    """
    Compute percentiles of the time that a branch takes to recover, over its outages.

    Parameters
    ----------
    builds : DataFrame
        Builds with the columns that `outages` needs. Ids must be unique.
    branch : str, optional
        Branch to examine in all pipelines. Pass either this or `pipelines`.
    pipelines : DataFrame, optional
        Result of `ws.pipelines()`, to examine the default branch of each pipeline.
    q : float or sequence of float, default (0.5, 0.95)
        Percentiles as fractions in (0, 1).

    Returns
    -------
    pandas.DataFrame
        One row per pipeline, ordered by name. No builds give no rows. `organization` is the first
        column if the builds have it.

        =================== ======= ================================================================
        pipeline            str     slug in the newest build of the pipeline
        branch              str     the branch
        n                   Int64   outages that are over and whose start is known
        n_censored          Int64   outages that are open or whose start is unknown: they lasted
                                    longer than seen
        p50_s, ...          float64 percentile of the recovery time in seconds; NaN with too few
                                    outages, or if too many are censored
        p50_low_s, ...      float64 lower end of its 95 % interval; NaN if too little is known
        p50_high_s, ...     float64 upper end of its 95 % interval; NaN if too little is known
        p50_at_least_s, ... float64 lower bound of the percentile if too many outages are censored:
        the percentile if           these had ended when they were last seen; NaN otherwise
        p50_n_effective,    float64 number of independent outages with the same information, at most
        ...                         `n`; NaN as the interval
        =================== ======= ================================================================

    Raises
    ------
    BadInput
        As for `outages`, and if `q` lies outside (0, 1).

    See Also
    --------
    outages : The outages themselves.
    percentiles : How intervals are computed.

    Notes
    -----
    As soon as one outage of a pipeline is censored, its percentiles come from the curve of Kaplan
    and Meier [1]_. An outage that has been open for a week moves them up, although nobody knows
    when it will end.

    The intervals are those of `percentiles`, with an outage for a row. They allow for outages in a
    row that all take longer or shorter. In simulations, nominal 95 % intervals of p50 and p90
    contain the true value in 98 to 99 % of cases. With some 25 outages p90 has no interval, and
    with fewer than five p50 has none either. It is assumed that an open outage will last as long as
    others that lasted as long, and that outages do not change with time.

    References
    ----------
    .. [1] Kaplan, E. L., and Meier, P. (1958). Journal of the American Statistical Association 53,
       457-481.

    Examples
    --------
    >>> recovery = metrics.recovery_time(builds, pipelines=pipelines, q=0.5)
    >>> recovery[["pipeline", "n", "n_censored", "p50_s"]].round(0)
       pipeline  n  n_censored     p50_s
    0       api  2           0  208683.0
    1   billing  0           0       NaN
    2      data  1           1   34938.0
    3      docs  1           0       NaN
    4    mobile  0           1       NaN
    5  platform  1           0       NaN
    6   release  0           0       NaN
    7       web  4           0   16555.0
    """
    selection = select_branches(builds, branch, pipelines)
    summarize = functools.partial(_recovery_time, check_percentiles(q))
    return summarize_branches(builds, selection, summarize)


def _recovery_time(q: Sequence[float], branches: BranchHistories) -> pd.DataFrame:
    outages = find_outages(branches)
    is_censored = outages["recovery_time_s"].isna()
    # An outage is measured as if it were a build, which may not have been seen to end.
    as_builds = pd.DataFrame(
        {
            "position": outages["pipeline"],
            "created_at": outages["failed_at"],
            "finished_at": outages["recovered_at"].mask(is_censored),
            "fetched_at": outages["recovered_at"].fillna(branches.until),
        }
    )
    summary = percentiles(as_builds, wall_time, "position", q).drop(columns="n_negative")
    summary = summary.set_index("position").reindex(range(len(branches.names)))
    summary = summary.fillna({"n": 0, "n_censored": 0})
    return join_keys(branches.names, summary.reset_index(drop=True))


@checked_names
def red_share(
    builds: Frame,
    *,
    branch: str | None = None,
    pipelines: Frame | None = None,
    start: When | None = None,
    end: When | None = None,
) -> pd.DataFrame:
    """
    Compute the share of time in which a branch was red, and the share of its commits that were red.

    Parameters
    ----------
    builds : DataFrame
        Builds with the columns that `outages` needs, and `commit`. Ids must be unique. Include
        builds from before `start`, so that the color at `start` is known.
    branch : str, optional
        Branch to examine in all pipelines. Pass either this or `pipelines`.
    pipelines : DataFrame, optional
        Result of `ws.pipelines()`, to examine the default branch of each pipeline.
    start : datetime, date or str, optional
        Start of the time window, with a time zone. An age such as "7d" counts back from the latest
        timestamp of the frame. By default the first known outcome of each pipeline.
    end : datetime, date or str, optional
        End of the time window, excluded. By default the latest timestamp of the frame.

    Returns
    -------
    pandas.DataFrame
        One row per pipeline, ordered by name. No builds give no rows. `organization` is the first
        column if the builds have it.

        ==================== ======= ===============================================================
        pipeline             str     slug in the newest build of the pipeline
        branch               str     the branch
        red_s                float64 seconds of the window in which the branch was red
        known_s              float64 seconds of the window in which its color is known
        red_share_of_time    float64 `red_s / known_s`; NaN if nothing is known
        builds               Int64   builds that passed or failed in the window, on which this share
                                     rests
        commits              Int64   commits whose last outcome lies in the window
        red_commits          Int64   commits of these whose last outcome is `failed`
        red_share_of_commits float64 `red_commits / commits`; NaN without commits
        ==================== ======= ===============================================================

    Raises
    ------
    BadInput
        As for `outages`, and if `end` is not after `start`.

    See Also
    --------
    outages : The outages themselves.

    Notes
    -----
    The two shares measure different things: the first is weighted by time. Time before the first
    known outcome and after the latest timestamp counts in neither part of the share. Slices of the
    window add up to the whole in `red_s`, `known_s`, `builds`, `commits` and `red_commits`.

    Examples
    --------
    >>> red = metrics.red_share(builds, branch="main")
    >>> red[["pipeline", "red_share_of_time", "builds", "commits", "red_commits"]].head(3).round(2)
      pipeline  red_share_of_time  builds  commits  red_commits
    0      api               0.74       5        5            2
    1  billing               0.00       6        6            0
    2     data               0.19      12       12            2
    """
    selection = select_branches(builds, branch, pipelines)
    now = None if pd.isna(selection.until) else Moment.of(selection.until)
    since, until = resolve_window(start, end, now)
    summarize = functools.partial(_red_share, since, until)
    return summarize_branches(builds, selection, summarize, ["commit"])


def _red_share(
    since: Moment | None,
    until: Moment | None,
    branches: BranchHistories,
) -> pd.DataFrame:
    outcomes = branches.outcomes
    pipelines = branches.names.index
    first_outcome = outcomes.groupby("pipeline")["finished_at"].first()
    begin = pd.Series(first_outcome, pipelines, dtype=TIMESTAMP)
    begin = begin if since is None else begin.mask(begin < since, since)
    stop: Any = branches.until if until is None else min(until, branches.until)
    known_s = _seconds_between(begin, stop)
    outages = find_outages(branches)
    red_since = outages["failed_at"].clip(lower=begin.loc[outages["pipeline"]].array)
    red_until = outages["recovered_at"].fillna(stop).clip(upper=stop)
    seconds = _seconds_between(red_since, red_until)
    red_s = seconds.groupby(outages["pipeline"]).sum().reindex(pipelines, fill_value=0.0)
    commit = branches.builds["commit"].array.take(outcomes["place"])
    of_commits = outcomes.assign(commit=commit).dropna(subset="commit")
    last = of_commits.drop_duplicates(["pipeline", "commit"], keep="last")
    last = _filter_by_time(last, since, until)
    counts = {
        "builds": _count_by_pipeline(_filter_by_time(outcomes, since, until), len(pipelines)),
        "commits": _count_by_pipeline(last, len(pipelines)),
        "red_commits": _count_by_pipeline(last[last["failed"]], len(pipelines)),
    }
    return branches.names.assign(
        red_s=red_s,
        known_s=known_s,
        red_share_of_time=red_s / known_s,
        **{name: count.astype("Int64") for name, count in counts.items()},
        red_share_of_commits=counts["red_commits"] / counts["commits"],
    )


def _seconds_between(since: pd.Series[pd.Timestamp], until: Any) -> pd.Series[float]:
    """Return the seconds from one time to another, 0 if unknown or negative."""
    seconds: pd.Series[float] = (until - since).dt.total_seconds().clip(lower=0).fillna(0.0)
    return seconds


def _filter_by_time(
    outcomes: pd.DataFrame,
    since: Moment | None,
    until: Moment | None,
) -> pd.DataFrame:
    """Return the outcomes from `since` on and before `until`."""
    outcomes = outcomes if since is None else outcomes[outcomes["finished_at"] >= since]
    return outcomes if until is None else outcomes[outcomes["finished_at"] < until]


def _count_by_pipeline(outcomes: pd.DataFrame, n_pipelines: int) -> pd.Series[int]:
    return pd.Series(np.bincount(outcomes["pipeline"], minlength=n_pipelines))
