"""Split machine time into classes of waste and a useful rest."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import NAT, TEXT, Integers, timestamp_micros
from buildframe.metrics.durations import is_script
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, as_key_list, join_keys, number_groups, number_runs
from buildframe.metrics.input_frames import Frame, for_functions, read_rows
from buildframe.metrics.job_ends import COLUMNS as END_COLUMNS
from buildframe.metrics.job_ends import IS_OVER, with_ends
from buildframe.metrics.numbered import earliest_by, latest_by, sum_by
from buildframe.metrics.row_flags import equals, has_failed_hard, is_any_of, is_set
from buildframe.metrics.validation import check_states

CLASSES = ("retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s")
"""Classes of run time; a job is in the first that fits."""

_RETRIED, _CANCELED, _AFTER_FAILURE, _REPEATED, _USEFUL = range(len(CLASSES))

_SUMS = ["n", *CLASSES, "n_running", "n_no_end", "n_negative"]

_PIPELINE_BRANCH = ("organization", "pipeline", "branch")
"""Columns that are equal in all rows of a build; a commit can be HEAD at first."""

_LINE = [*_PIPELINE_BRANCH, "commit"]
"""Columns of builds that may repeat each other."""

_OF_BUILD = ("build_id", *_LINE, "build_state", "build_created_at", "build_number")
_OF_JOB = ("type", "state", "soft_failed", "retried", "started_at", "finished_at", "build_id")

_NEVER = np.iinfo(np.int64).max


@checked_names
def waste(jobs: Frame, by: By = None) -> pd.DataFrame:
    """
    Split machine time into four classes of waste and the useful rest.

    The five parts add up to the machine time exactly. Each second of a run belongs to the first
    class that fits.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark, fetched with
        `include_retried_jobs=True` and with unique ids. Needs the columns `organization`,
        `pipeline`, `branch`, `commit`, `build_id`, `build_number`, `build_state`,
        `build_created_at`, `type`, `state`, `soft_failed`, `retried`, `started_at` and
        `finished_at`. Uses `expired_at`, `build_finished_at` and `fetched_at` if the frame has
        them.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. Failures and repeats are those of the
        whole build, in every group. By default all rows form one group.

    Returns
    -------
    pandas.DataFrame
        One row per group, ordered by key. An empty frame gives no rows. After the keys:

        =============== ======= =======================================================================
        n               Int64   script jobs that ran and ended
        machine_s       float64 seconds of run time of every attempt
        retried_s       float64 seconds of attempts that a retry superseded
        canceled_s      float64 seconds of jobs that were canceled while they ran
        after_failure_s float64 seconds of other jobs after the first hard failure of their build ended
        repeated_s      float64 remaining seconds of builds that repeated the outcome of their commit
        useful_s        float64 all other seconds
        n_running       Int64   jobs that started and are not over; in none of the sums
        n_no_end        Int64   jobs that started and are over, but whose end is unknown; in none of
                                the sums
        n_negative      Int64   run times below zero, from clocks that disagree; included in `n` and sums
        =============== ======= =======================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or a column of states holds an unknown
        spelling.

    See Also
    --------
    machine_time : Run time per build.
    retry_rate : Share of executions that were retried.

    Notes
    -----
    Only script jobs use machines. They end as `run_time` describes.

    A hard failure is a job that failed or timed out, neither softly nor superseded. Only the part
    of a run that lies after it counts in `after_failure_s`.

    A build repeats if the build before it with the same organization, pipeline, branch and commit
    ended in the same state. Only builds of the frame that passed or failed are compared, ordered by
    creation. Builds without a commit, or at `HEAD`, never count as repeats. If rows report
    different states of one build, the rows fetched last count.

    Useful are the job that failed first, soft failures, timeouts and lost agents unless retried,
    jobs that ended before their build was canceled, the first build of a commit, and a rebuild with
    another outcome. A nightly build, a deployment or a check for flakiness may be a repeat that was
    wanted: the classes are an upper bound of what can be saved. Waiting and idle machines are not
    machine time.

    Examples
    --------
    >>> metrics.waste(jobs)[["machine_s", "retried_s", "after_failure_s", "useful_s"]].round(0)
       machine_s  retried_s  after_failure_s  useful_s
    0   411817.0     2749.0          15554.0  389173.0
    """
    check_states(jobs, "state", "build_state")
    by = spark_keys(jobs, by)
    of_group = functools.partial(_sum_run_time, by)
    summed = summarize_groups(jobs, of_group, _PIPELINE_BRANCH, combine=_add_equal_keys)
    summary = summed[_SUMS].astype(dict.fromkeys(CLASSES, "int64"))
    machine_time = summary[list(CLASSES)].sum(axis=1)
    summary.insert(1, "machine_s", machine_time / 1e6)
    for name in CLASSES:
        summary[name] = summary[name] / 1e6
    return join_keys(summed.drop(columns=_SUMS), summary)


def _add_equal_keys(summed: pd.DataFrame) -> pd.DataFrame:
    """Add rows with equal keys, whose jobs were summed apart."""
    codes, keys = number_groups(summed.drop(columns=_SUMS))
    sums = {name: sum_by(codes, summed[name].to_numpy(np.int64), len(keys)) for name in _SUMS}
    return join_keys(keys, pd.DataFrame(sums, dtype="Int64"))


def _sum_run_time(by: By, jobs: Frame) -> pd.DataFrame:
    """Sum the microseconds of each class, and count jobs.

    The frame has all jobs of its builds, and all builds of their commits.
    """
    jobs = for_functions(jobs, as_key_list(by))
    builds = _find_wasteful_builds(jobs)
    rows = read_rows(jobs, functools.partial(_classify, builds), _OF_JOB, END_COLUMNS, by)
    n_groups = len(rows.keys)
    late = rows.columns["late"].to_numpy(np.int64)
    n_cells = n_groups * len(CLASSES)
    cells = rows.codes * len(CLASSES)  # a cell for each group and class
    cells += rows.columns["class"].to_numpy(np.int8)
    times = sum_by(cells, rows.columns["run_time"].to_numpy(np.int64) - late, n_cells)
    late_rows = np.flatnonzero(late)
    late_cells = rows.codes[late_rows] * len(CLASSES) + _AFTER_FAILURE
    times += sum_by(late_cells, late[late_rows], n_cells)
    sums: dict[str, Integers] = dict(zip(CLASSES, times.reshape(-1, len(CLASSES)).T, strict=True))
    for name in ("n", "n_running", "n_no_end", "n_negative"):
        is_counted = rows.columns[name].to_numpy(np.bool_)
        sums[name] = np.bincount(rows.codes[is_counted], minlength=n_groups)
    return join_keys(rows.keys, pd.DataFrame(sums, dtype="Int64")[_SUMS])


def _classify(builds: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return the run time of each job, the number of its class, and flags that count it.

    The `late` part of the run time lies after the first failure of the build, and is of the class
    `after_failure_s` instead. Times are microseconds, and 0 unless the job ran and ended.
    """
    jobs = with_ends(jobs)
    begin = timestamp_micros(jobs, "started_at")
    finish = timestamp_micros(jobs, "finished_at")
    has_started = is_script(jobs).to_numpy() & (begin != NAT)
    has_ended = has_started & (finish != NAT)
    is_over = jobs[IS_OVER].to_numpy(np.bool_)

    number, ids = number_runs(jobs["build_id"])
    position = np.append(builds.index.get_indexer(ids), -1)[number]  # -1 for other builds
    failed_at = np.append(builds["failed_at"].to_numpy(), _NEVER)[position]
    is_repeated = np.append(builds["is_repeated"].to_numpy(), False)[position]

    class_of_rest = np.where(is_repeated, _REPEATED, _USEFUL).astype(np.int8)
    class_of_rest[equals(jobs, "state", "canceled")] = _CANCELED
    class_of_rest[is_set(jobs, "retried")] = _RETRIED
    is_late = has_ended & (finish > failed_at) & (class_of_rest > _CANCELED)
    run_time = np.where(has_ended, finish - begin, 0)
    columns = {
        "run_time": run_time,
        "late": np.where(is_late, finish - np.maximum(begin, failed_at), 0),
        "class": class_of_rest,
        "n": has_ended,
        "n_running": has_started & ~is_over,
        "n_no_end": has_started & is_over & ~has_ended,
        "n_negative": run_time < 0,
    }
    return pd.DataFrame(columns, jobs.index, copy=False)


def _find_wasteful_builds(jobs: Frame) -> pd.DataFrame:
    """Return the builds in which a job failed or that repeat an outcome, by id.

    `failed_at` is when the first failure ended (microseconds, `_NEVER` without one). `is_repeated`
    says whether the build before it at its commit ended in the same state.
    """
    needs = (*_OF_BUILD, "state", "soft_failed", "retried", "finished_at")
    reports = _select_latest(read_rows(jobs, _report_builds, needs, END_COLUMNS).columns)
    builds = reports.drop_duplicates("build_id")

    has_outcome = is_any_of(builds, "build_state", "passed", "failed")
    has_commit = (builds["commit"].notna() & (builds["commit"] != "HEAD")).to_numpy(np.bool_)
    is_dated = builds["created"].to_numpy() != NAT
    compared = builds[has_outcome & has_commit & is_dated]
    compared = compared[compared.duplicated(_LINE, keep=False)]  # others have nothing to repeat
    compared = compared.sort_values(["created", "number", "build_id"])
    before = compared.groupby(_LINE, dropna=False, sort=False, observed=True)["build_state"].shift()
    repeats = compared.index[(before == compared["build_state"]).to_numpy(np.bool_)]

    failed_at = builds["failed_at"].to_numpy()
    failed_at = np.where(failed_at == NAT, _NEVER, failed_at)
    is_repeated = builds.index.isin(repeats)
    ids = pd.Index(builds["build_id"].astype(TEXT))
    found = pd.DataFrame({"failed_at": failed_at, "is_repeated": is_repeated}, index=ids)
    wasteful: pd.DataFrame = found[is_repeated | (failed_at != _NEVER)]
    return wasteful


def _report_builds(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return what the jobs fetched last say of builds, and when builds failed first."""
    jobs = with_ends(jobs)
    fails_build = has_failed_hard(jobs) & ~is_set(jobs, "retried")
    n_jobs = len(jobs)
    seen = timestamp_micros(jobs, "fetched_at") if "fetched_at" in jobs else np.zeros(n_jobs, int)
    columns = {
        "created": timestamp_micros(jobs, "build_created_at"),
        "number": jobs["build_number"].to_numpy(np.int64, na_value=NAT),
        "seen": seen,
        "failed_at": np.where(fails_build, timestamp_micros(jobs, "finished_at"), NAT),
    }
    texts = {name: jobs[name].array for name in ("build_id", *_LINE, "build_state")}
    return _select_latest(pd.DataFrame(texts | columns, jobs.index, copy=False))


def _select_latest(reports: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each state in which a build was fetched last, and the build's first failure.

    The states of a build are in order.
    """
    build, ids = number_runs(reports["build_id"])
    state, states = number_runs(reports["build_state"], sort=True)
    n_builds = len(ids) + 1  # null is -1, the last element
    seen = reports["seen"].to_numpy(np.int64)
    is_latest = seen == latest_by(build, seen, n_builds)[build]
    rows = np.flatnonzero(is_latest & (build >= 0))
    row_of_state = np.full((n_builds, len(states) + 1), -1)
    row_of_state[build[rows], state[rows]] = rows
    chosen = row_of_state[row_of_state >= 0]

    failed_at = reports["failed_at"].to_numpy(np.int64)
    failed = np.flatnonzero(failed_at != NAT)
    first_failure = earliest_by(build[failed], failed_at[failed], n_builds)
    return reports.take(chosen).assign(failed_at=first_failure[build[chosen]])
