"""Measure outages of branches: how long recovery takes, and how much of the time a branch is red.

A branch turns red when a build on it ends `failed`, and green when one ends `passed`, in the order of `finished_at`.
Builds of pull requests from forks are on another branch, whatever its name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import TIMESTAMP, Integers, check_are_builds
from buildframe.metrics.durations import wall_time
from buildframe.metrics.engines import engine_of, expressions
from buildframe.metrics.engines.rows import Frame
from buildframe.metrics.forks import COLUMNS as FORK_COLUMNS
from buildframe.metrics.forks import is_from_fork
from buildframe.metrics.grouping import compact_codes, find_groups, join_keys
from buildframe.metrics.percentiles import check_percentiles, percentiles
from buildframe.metrics.steps import step
from buildframe.metrics.time_buckets import resolve_window
from buildframe.metrics.validation import check_states
from buildframe.spec import Moment, When

_NEEDS = ("pipeline", "branch", "number", "state", "blocked", "finished_at", "fetched_at")
_WANTS = ("organization", "pipeline_id")
_REPOSITORY = "pipeline_repository"

_ID, _BUILD = "id of pipeline", "id of the first failed build"


@checked_names
def outages(
    builds: Frame, *, branch: str | None = None, pipelines: Frame | None = None, jobs: Frame | None = None
) -> pd.DataFrame:
    """
    Find the times in which a branch was red: from a failed build until the next build that passed.

    Failures in a row are one outage. Canceled, running and blocked builds neither begin nor end one.

    Parameters
    ----------
    builds : DataFrame
        Builds of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `pipeline`, `branch`, `number`,
        `state`, `blocked`, `finished_at` and `fetched_at`. Uses `organization`, `pipeline_id` and `commit` if the frame
        has them, and the columns of `is_from_fork`. Ids must be unique.
    branch : str, optional
        Branch to examine in all pipelines. Pass either this or `pipelines`.
    pipelines : DataFrame, optional
        Result of `ws.pipelines()`, to examine the default branch of each pipeline. Pipelines match by id, or by
        organization and slug if a frame has no ids.
    jobs : DataFrame, optional
        Jobs of these builds, to name the step that failed first. Needs `build_id`, `type`, `state`,
        `soft_failed`, `retried`, `finished_at` and `step`, which pandas computes if it is missing;
        the builds then need `id`.

    Returns
    -------
    pandas.DataFrame
        One row per outage, ordered by pipeline, then time. No rows without builds or failures. `organization` is the
        first column if the builds have it.

        ================= =================== ==================================================================
        pipeline          str                 slug in the newest build of the pipeline
        branch            str                 the branch
        failed_at         datetime64[us, UTC] end of the first failed build
        recovered_at      datetime64[us, UTC] end of the next passed build; NaT while the outage is open
        recovery_time_s   float64             seconds between these; NaN (censored) if the outage is open or its
                                              start is unknown
        seen_s            float64             seconds from `failed_at` to `recovered_at`, or to the latest
                                              timestamp of the frame if the outage is open
        open              boolean             no build has passed since
        start_unknown     boolean             the outage holds the first known outcome of the branch, so it may
                                              have begun earlier
        failed            Int64               failed builds in the outage
        first_number      Int64               number of its first failed build
        last_number       Int64               number of its last failed build
        fixed_by          Int64               number of the build that passed; null while there is none
        last_good_number  Int64               number of the last build before the first failed one that passed;
                                              null if none is known
        last_good_at      datetime64[us, UTC] its end; NaT if none is known
        last_good_commit  str                 its commit; null if unknown
        first_bad_commit  str                 commit of the first failed build; null if unknown
        first_failed_step str                 only with `jobs`: the step whose failure ended first in the first
                                              failed build; null if it has no failed job
        ================= =================== ==================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, not exactly one of `branch` and `pipelines` is given, or
        the branch of a pipeline is unknown.

    See Also
    --------
    recovery_time : Percentiles of the length of outages.
    red_share : Share of time and of commits that were red.

    Notes
    -----
    Builds of pull requests from forks do not count, although the branch of a fork can have the same
    name: see `is_from_fork`. If builds have no `pipeline_repository`, it is that of `pipelines`.

    Builds count in the order of `finished_at`, when their outcome became known. At the same microsecond the build with
    the higher number counts as later. A build that was created earlier can therefore end an outage: `fixed_by` is then
    below `first_number`.

    The commits after `last_good_commit` up to `first_bad_commit` are the suspects. Here builds count in the order of
    their numbers, in which commits were pushed. A hard failure counts as the first failed step only if no other attempt
    replaced it.

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
    more = _existing_columns(engine_of(builds).column_names(builds), "commit")
    if jobs is None:
        return _summarize_branches(builds, branch, pipelines, _outages, *more)
    found = _summarize_branches(builds, branch, pipelines, _outages, *more, "id")
    return found.assign(first_failed_step=_find_first_failed_steps(jobs, found.pop(_BUILD)))


def _outages(branches: _Branches) -> pd.DataFrame:
    red = _find_outages(branches)
    first = red.pop("first").to_numpy(np.int64)
    outcomes = branches.outcomes
    rows, good = branches.rows, _find_last_good(outcomes, first)
    commits = rows["commit"].array if "commit" in rows else pd.array([None] * len(rows), dtype="str")
    row, row_of_good = outcomes.index.to_numpy()[first], np.append(outcomes.index, -1)[good]
    suspects = {
        "last_good_number": outcomes["number"].array.take(good, allow_fill=True),
        "last_good_at": outcomes["finished_at"].array.take(good, allow_fill=True),
        "last_good_commit": commits.take(row_of_good, allow_fill=True),
        "first_bad_commit": commits.take(row),
    }
    if "id" in rows:
        suspects[_BUILD] = rows["id"].array.take(row)
    keys = branches.keys.iloc[red.pop("position")].reset_index(drop=True)
    return join_keys(keys, red.assign(**suspects))


def _find_last_good(outcomes: pd.DataFrame, first: Integers) -> Integers:
    """Return the places of the passed builds with the highest number below those at `first`; -1 if there is none."""
    position, number = outcomes["position"].to_numpy(np.int64), _build_numbers(outcomes)
    order = position * (number.max(initial=0) + 2) + number
    passed = np.flatnonzero(~outcomes["failed"].to_numpy(bool) & (number >= 0))
    passed = passed[np.argsort(order[passed], kind="stable")]
    before = np.searchsorted(order[passed], order[first]) - 1
    good = np.append(passed, -1)[before]
    is_known = (good >= 0) & (number[first] >= 0)
    return np.where(is_known & (position[good] == position[first]) if len(first) else is_known, good, -1)


def _find_first_failed_steps(jobs: Frame, builds: pd.Series[str]) -> pd.Series[str]:
    """Return the step of each build whose failure ended first, null if there is none."""
    engine = engine_of(jobs)
    needs = ("build_id", "type", "state", "soft_failed", "retried", "finished_at")
    rows = engine.group_rows(jobs, needs, step)
    failed = expressions.IS_SCRIPT & expressions.HAS_FAILED_HARD & ~expressions.IS_SUPERSEDED
    if builds.dropna().empty:
        return builds.astype("str").mask(builds.notna())
    bad = engine.bring(rows.frame, pd.DataFrame({_BUILD: builds.dropna().unique()}))
    in_bad = engine.join_nulls_equal(rows.frame.filter(failed), bad, {"build_id": _BUILD})
    failures = engine.collect(in_bad.select(*rows.by, "build_id", "finished_at")).reset_index(drop=True)
    failures = failures.assign(step=rows.name_keys(failures)["step"]).sort_values(["finished_at", "step"])
    first = failures.drop_duplicates("build_id").set_index("build_id")["step"]
    return builds.map(first).astype("str")


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
        One row per pipeline, ordered by name. No builds give no rows. `organization` is the first column if the builds
        have it.

        =================== ======= ==========================================================================
        pipeline            str     slug in the newest build of the pipeline
        branch              str     the branch
        n                   Int64   outages that are over and whose start is known
        n_censored          Int64   outages that are open or whose start is unknown: they lasted longer than seen
        p50_s, ...          float64 percentile of the recovery time in seconds; NaN with too few outages, or if too
                                    many are censored
        p50_low_s, ...      float64 lower end of its 95 % interval; NaN if too little is known
        p50_high_s, ...     float64 upper end of its 95 % interval; NaN if too little is known
        p50_at_least_s, ... float64 lower bound of the percentile if too many outages are censored: the percentile if
                                    these had ended when they were last seen; NaN otherwise
        p50_n_effective,    float64 number of independent outages with the same information, at most `n`;
        ...                         NaN as the interval
        =================== ======= ==========================================================================

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
    As soon as one outage of a pipeline is censored, its percentiles come from the curve of Kaplan and Meier [1]_. An
    outage that has been open for a week moves them up, although nobody knows when it will end.

    The intervals are those of `percentiles`, with an outage for a row. They allow for outages in a row that all take
    longer or shorter. In simulations, nominal 95 % intervals of p50 and p90 contain the true value in 98 to 99 % of
    cases. With some 25 outages p90 has no interval, and with fewer than five p50 has none either. It is assumed that an
    open outage will last as long as others that lasted as long, and that outages do not change with time.

    References
    ----------
    .. [1] Kaplan, E. L., and Meier, P. (1958). Journal of the American Statistical Association 53, 457-481.

    Examples
    --------
    >>> metrics.recovery_time(builds, pipelines=pipelines, q=0.5)[["pipeline", "n", "n_censored", "p50_s"]].round(0)
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
    summarize = functools.partial(_recovery_time, check_percentiles(q))
    return _summarize_branches(builds, branch, pipelines, summarize)


def _recovery_time(q: Sequence[float], branches: _Branches) -> pd.DataFrame:
    red = _find_outages(branches)
    is_censored = red["recovery_time_s"].isna()
    builds = pd.DataFrame(  # an outage is measured as if it were a build, which may not have been seen to end
        {
            "position": red["position"],
            "created_at": red["failed_at"],
            "finished_at": red["recovered_at"].mask(is_censored),
            "fetched_at": red["recovered_at"].fillna(branches.until),
        }
    )
    summary = percentiles(builds, wall_time, "position", q).drop(columns="n_negative").set_index("position")
    summary = summary.reindex(range(len(branches.keys)))
    counts = {name: summary[name].fillna(0) for name in ("n", "n_censored")}
    return join_keys(branches.keys, summary.assign(**counts).reset_index(drop=True))


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
        Builds with the columns that `outages` needs, and `commit`. Ids must be unique. Include builds from before
        `start`, so that the color at `start` is known.
    branch : str, optional
        Branch to examine in all pipelines. Pass either this or `pipelines`.
    pipelines : DataFrame, optional
        Result of `ws.pipelines()`, to examine the default branch of each pipeline.
    start : datetime, date or str, optional
        Start of the time window, with a time zone. An age such as "7d" counts back from the latest timestamp of the
        frame. By default the first known outcome of each pipeline.
    end : datetime, date or str, optional
        End of the time window, excluded. By default the latest timestamp of the frame.

    Returns
    -------
    pandas.DataFrame
        One row per pipeline, ordered by name. No builds give no rows. `organization` is the first column if the builds
        have it.

        ==================== ======= ====================================================================
        pipeline             str     slug in the newest build of the pipeline
        branch               str     the branch
        red_s                float64 seconds of the window in which the branch was red
        known_s              float64 seconds of the window in which its color is known
        red_share_of_time    float64 `red_s / known_s`; NaN if nothing is known
        builds               Int64   builds that passed or failed in the window, on which this share rests
        commits              Int64   commits whose last outcome lies in the window
        red_commits          Int64   commits of these whose last outcome is `failed`
        red_share_of_commits float64 `red_commits / commits`; NaN without commits
        ==================== ======= ====================================================================

    Raises
    ------
    BadInput
        As for `outages`, and if `end` is not after `start`.

    See Also
    --------
    outages : The outages themselves.

    Notes
    -----
    The two shares measure different things: the first is weighted by time. Time before the first known outcome and
    after the latest timestamp counts in neither part of the share. Slices of the window add up to the whole in `red_s`,
    `known_s`, `builds`, `commits` and `red_commits`.

    Examples
    --------
    >>> red = metrics.red_share(builds, branch="main")
    >>> red[["pipeline", "red_share_of_time", "builds", "commits", "red_commits"]].head(3).round(2)
      pipeline  red_share_of_time  builds  commits  red_commits
    0      api               0.74       5        5            2
    1  billing               0.00       6        6            0
    2     data               0.19      12       12            2
    """
    return _summarize_branches(builds, branch, pipelines, functools.partial(_red_share, start, end), "commit")


def _red_share(start: When | None, end: When | None, branches: _Branches) -> pd.DataFrame:
    since, until = resolve_window(start, end, None if pd.isna(branches.until) else Moment.of(branches.until))
    outcomes, pipelines = branches.outcomes, branches.keys.index
    first = pd.Series(outcomes.groupby("position")["finished_at"].first(), pipelines, dtype=TIMESTAMP)
    begin = first if since is None else first.mask(first < since, since)
    stop: Any = branches.until if until is None else min(until, branches.until)
    red, known_s = _find_outages(branches), _seconds_between(begin, stop)
    red_since = red["failed_at"].clip(lower=begin.loc[red["position"]].array)
    seconds = _seconds_between(red_since, red["recovered_at"].fillna(stop).clip(upper=stop))
    red_s = seconds.groupby(red["position"]).sum().reindex(pipelines, fill_value=0.0)
    commits = outcomes.assign(commit=branches.rows["commit"].array.take(outcomes.index))
    last = commits.dropna(subset="commit").drop_duplicates(["position", "commit"], keep="last")
    last = _filter_by_time(last, since, until)
    counted = {"builds": _filter_by_time(outcomes, since, until), "commits": last, "red_commits": last[last["failed"]]}
    n = len(pipelines)
    counts = {name: pd.Series(np.bincount(rows["position"], minlength=n)) for name, rows in counted.items()}
    return branches.keys.assign(
        red_s=red_s,
        known_s=known_s,
        red_share_of_time=red_s / known_s,
        **{name: count.astype("Int64") for name, count in counts.items()},
        red_share_of_commits=counts["red_commits"] / counts["commits"],
    )


class _Branches(NamedTuple):
    """Branch of each pipeline: `keys` (one row each) and `outcomes` in order, whose `position` is the row of `keys`.

    The index of `outcomes` has the places of their builds in `rows`; `until` is the latest timestamp of the frame.
    """

    keys: pd.DataFrame
    outcomes: pd.DataFrame
    rows: pd.DataFrame
    until: Any


def _summarize_branches(
    builds: Frame, branch: str | None, pipelines: Frame | None, of: Callable[[_Branches], pd.DataFrame], *more: str
) -> pd.DataFrame:
    """Apply `of` to each pipeline's branch, in order of names."""
    if not isinstance(branch, str | None) or (branch is None) == (pipelines is None):
        raise BadInput(
            'Pass either branch="main" for all pipelines, or pipelines=ws.pipelines() for the default branch of each.'
        )
    listed = None
    if pipelines is not None:
        listed = engine_of(pipelines).collect_columns(
            pipelines, ["slug", "default_branch"], ["id", "organization", "repository"]
        )
    check_states(builds, "state")
    engine = engine_of(builds)
    check_are_builds(engine.column_names(builds), "The history of a branch")
    rows = engine.select_columns(builds, [*_NEEDS, *more], (*_WANTS, *FORK_COLUMNS))
    names = engine.combinations(rows, _existing_columns(rows.collect_schema(), "pipeline", *_WANTS))
    by = ["pipeline_id"] if _is_complete(names, "pipeline_id") else _existing_columns(names, "organization", "pipeline")
    defaults = None if listed is None else _find_default_branches(names.drop_duplicates(by), listed)
    branches: list[str] = [str(branch)] if defaults is None else defaults["default_branch"].dropna().unique().tolist()
    ends = [last for _, last in engine.time_ranges(rows, ["finished_at", "fetched_at"])]
    until = pd.Series(ends, dtype=TIMESTAMP).max()  # of all builds, on any branch
    summarize = functools.partial(_summarize_builds, of, by, defaults, until)
    result = engine.map_whole_groups(rows.filter(expressions.is_any_of("branch", *branches)), by, summarize)
    order = [*_existing_columns(result, "organization"), "pipeline", _ID]
    return result.sort_values(order, kind="stable", ignore_index=True).drop(columns=_ID)


def _summarize_builds(
    of: Callable[[_Branches], pd.DataFrame],
    by: list[str],
    defaults: pd.DataFrame | None,
    until: Any,
    rows: pd.DataFrame,
) -> pd.DataFrame:
    """Apply `of` to builds of whole pipelines: to all of them, or those on the default branch of their pipeline."""
    rows = rows[~is_from_fork(_with_repositories(rows, defaults, by, by)).to_numpy()]
    codes, pipelines = find_groups(rows, by)
    if defaults is not None:
        branch = pipelines.merge(defaults, how="left", on=by)["default_branch"].take(codes)
        is_selected = (rows["branch"] == branch.set_axis(rows.index)).to_numpy(bool)
        rows, codes = rows[is_selected], compact_codes(codes[is_selected], len(pipelines))[0]
    rows = rows.reset_index(drop=True)
    return of(_Branches(_name_pipelines(rows, codes), _select_outcomes(rows, codes), rows, until))


def without_forks(builds: pd.DataFrame, pipelines: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the builds that are not from forks.

    Repositories that they lack are those of the listed pipelines.
    """
    keys = ([], []) if pipelines is None else _find_shared_keys(builds, pipelines)
    return builds[~is_from_fork(_with_repositories(builds, pipelines, *keys)).to_numpy()]


def _with_repositories(
    builds: pd.DataFrame, listed: pd.DataFrame | None, left: list[str], right: list[str]
) -> pd.DataFrame:
    # Without rows, pandas cannot join columns of text.
    if builds.empty or listed is None or "repository" not in listed:
        return builds
    repositories = listed.drop_duplicates(right).set_index(right)["repository"]
    found = builds[left].join(repositories, on=left)["repository"]
    if _REPOSITORY in builds:
        found = builds[_REPOSITORY].fillna(found)
    return builds.assign(**{_REPOSITORY: found})


def _is_complete(frame: pd.DataFrame, name: str) -> bool:
    return name in frame and bool(frame[name].notna().all())


def _existing_columns(columns: Container[str], *names: str) -> list[str]:
    return [name for name in names if name in columns]


def _find_default_branches(unique_rows: pd.DataFrame, listed: pd.DataFrame) -> pd.DataFrame:
    """Return the pipelines with their default branch."""
    left, right = _find_shared_keys(unique_rows, listed)
    if (twice := listed.duplicated(right)).any():
        raise BadInput(f"pipelines= contains {_show_first_name(listed.loc[twice, 'slug'])} twice. Keep one row of it.")
    matched = unique_rows.merge(
        listed, how="left", left_on=left, right_on=right, indicator=True, suffixes=("", "_listed")
    )
    if (absent := matched["_merge"].ne("both")).any():
        name = _show_first_name(matched.loc[absent, "pipeline"])
        raise BadInput(f"pipelines= does not contain {name}, which has builds. Pass all pipelines.")
    if (unknown := matched["default_branch"].fillna("").eq("")).any():
        name = _show_first_name(matched.loc[unknown, "pipeline"])
        raise BadInput(f'The pipeline {name} has no known default branch. Pass its builds alone, with branch="main".')
    return matched


def _find_shared_keys(builds: pd.DataFrame, listed: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the columns by which builds and pipelines match."""
    if _is_complete(builds, "pipeline_id") and _is_complete(listed, "id"):
        return ["pipeline_id"], ["id"]
    if _is_complete(builds, "organization") and _is_complete(listed, "organization"):
        return ["organization", "pipeline"], ["organization", "slug"]
    return ["pipeline"], ["slug"]


def _show_first_name(names: pd.Series[str]) -> str:
    return repr(names.min()) if names.notna().any() else "a pipeline that is null"


def _name_pipelines(rows: pd.DataFrame, codes: Integers) -> pd.DataFrame:
    """Return the names of each pipeline in its newest build; `_ID` distinguishes pipelines of one name."""
    newest = pd.Series(_build_numbers(rows)).groupby(codes).idxmax()
    ids = rows["pipeline_id"] if "pipeline_id" in rows else rows["pipeline"]
    names = rows[[*_existing_columns(rows, "organization"), "pipeline", "branch"]]
    return names.assign(**{_ID: ids}).iloc[newest].reset_index(drop=True)


def _build_numbers(rows: pd.DataFrame) -> Integers:
    return rows["number"].fillna(-1).to_numpy(np.int64)


def _select_outcomes(rows: pd.DataFrame, codes: Integers) -> pd.DataFrame:
    """Return settled builds that passed or failed, ordered by pipeline and time."""
    failed, is_blocked = rows["state"].eq("failed").to_numpy(), rows["blocked"].fillna(False).to_numpy(bool)
    settled = (failed | rows["state"].eq("passed")) & ~is_blocked & rows["finished_at"].notna()
    places = np.flatnonzero(settled)
    at = rows["finished_at"].astype("int64").to_numpy()
    later = 2 * _build_numbers(rows)[places] + failed[places]  # combines two sort keys
    places = places[np.lexsort((later, at[places], codes[places]))]
    outcomes = rows[["number", "finished_at"]].take(places)
    return outcomes.assign(position=codes[places], failed=failed[places])


def _find_outages(branches: _Branches) -> pd.DataFrame:
    """Compute the columns of `outages` without the names, and the pipeline's position in `keys`."""
    outcomes = branches.outcomes
    position, failed = outcomes["position"].to_numpy(), outcomes["failed"].to_numpy()
    begins = np.diff(position, prepend=-1) > 0
    turns = np.flatnonzero(begins | np.diff(failed, prepend=False))
    after = np.append(turns[1:], len(outcomes))[failed[turns]]
    turns = turns[failed[turns]]
    is_open = np.append(begins, True)[after]
    fix = np.where(is_open, -1, after)
    at, number = outcomes["finished_at"].array, outcomes["number"].array
    failed_at, recovered_at = pd.Series(at[turns]), pd.Series(at.take(fix, allow_fill=True))
    return pd.DataFrame(
        {
            "position": position[turns],
            "first": turns,
            "failed_at": failed_at,
            "recovered_at": recovered_at,
            "recovery_time_s": (recovered_at - failed_at).dt.total_seconds().mask(begins[turns]),
            "seen_s": (recovered_at.fillna(branches.until) - failed_at).dt.total_seconds(),
            "open": pd.array(is_open, "boolean"),
            "start_unknown": pd.array(begins[turns], "boolean"),
            "failed": pd.array(after - turns, "Int64"),
            "first_number": number[turns],
            "last_number": number[after - 1],
            "fixed_by": number.take(fix, allow_fill=True),
        }
    )


def _seconds_between(since: pd.Series[pd.Timestamp], until: Any) -> pd.Series[float]:
    """Return the seconds from one time to another, 0 if unknown or negative."""
    seconds: pd.Series[float] = (until - since).dt.total_seconds().clip(lower=0).fillna(0.0)
    return seconds


def _filter_by_time(outcomes: pd.DataFrame, since: Moment | None, until: Moment | None) -> pd.DataFrame:
    """Return the outcomes from `since` on and before `until`."""
    outcomes = outcomes if since is None else outcomes[outcomes["finished_at"] >= since]
    return outcomes if until is None else outcomes[outcomes["finished_at"] < until]
