"""Find steps that both failed and passed at one commit.

Knows outcomes of attempts, not the tests inside a job.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics import spark_frames
from buildframe.metrics.columns import TEXT, Flags, Integers, require_columns
from buildframe.metrics.group_summaries import FrameSummary, summarize_groups, summarize_lazily
from buildframe.metrics.grouping import Key, join_keys, number_groups
from buildframe.metrics.input_frames import Frame, RowGroups, column_names, is_spark, read_rows
from buildframe.metrics.job_ends import COLUMNS as END_COLUMNS
from buildframe.metrics.job_ends import with_ends
from buildframe.metrics.measured_rows import to_numbers
from buildframe.metrics.numbered import earliest_by, latest_by
from buildframe.metrics.outcomes import (
    CAUSE_NEEDS,
    CAUSE_WANTS,
    INFRASTRUCTURE,
    KILLED,
    PERSON,
    number_causes,
)
from buildframe.metrics.queues import queue_identities
from buildframe.metrics.rates import rate_columns
from buildframe.metrics.row_flags import equals, has_failed_hard, is_any_of
from buildframe.metrics.span_sums import sum_by_span
from buildframe.metrics.steps import step
from buildframe.metrics.storms import PLACES, find_storms, flag_storms
from buildframe.metrics.validation import check_states

STEP = ["organization", "pipeline", "step"]
"""Columns that identify a step."""

_VARIANT = ["matrix", "parallel_group_index"]
_NEEDS = ["commit", *_VARIANT, "type", *CAUSE_NEEDS, "soft_failed", "finished_at", *PLACES]
_WANTS = [*CAUSE_WANTS, *END_COLUMNS, "queue_id"]
_END_OF_ATTEMPT = ["finished_at", "expired_at", "build_finished_at"]
_NUMBERS = ["step", "commit", "variant"]
_DAY = "day of the end"
_SHARD = "steps that are counted together"

VERDICTS = ("passed", "infrastructure", "killed", "undecided", "deterministic", "flaky")
"""Ordered from best to worst; the index is the number of a verdict."""

PASSED, LOST, WAS_KILLED, UNDECIDED, DETERMINISTIC, FLAKY = range(len(VERDICTS))

OUTCOMES = ("passes", "failures", "lost", "killed", "n_storm")
"""What an attempt counts as; the index is the number of an outcome."""

PASS, FAILURE, LOSS, KILL, STORM = range(len(OUTCOMES))


class AttemptKeys(NamedTuple):
    """The keys of steps, of commits and of variants: matrix values and indices of parallel jobs."""

    steps: pd.DataFrame
    commits: pd.DataFrame
    variants: pd.DataFrame


class StepAttempts(NamedTuple):
    """Attempts of steps: script jobs that passed or failed hard.

    `rows` has a row per attempt: the number of its `group` and of its `outcome`, `finished_at` in
    microseconds (`NAT` if missing), and further columns.

    `groups` has a row per variant of a step at a commit, in order of keys: `step`, `commit` and
    `variant` are the numbers of rows of `keys`, and `is_known` is whether it has a commit.
    """

    rows: pd.DataFrame
    groups: pd.DataFrame
    keys: AttemptKeys


@checked_names
def outcomes_by_commit(jobs: Frame) -> Any:
    """
    Summarize all attempts of each step at each commit, over retries, rebuilds and branches.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark, fetched with
        `include_retried_jobs=True` and with unique ids. Needs the columns `organization`,
        `pipeline`, `step`, `commit`, `matrix`, `parallel_group_index`, `type`, `state`,
        `soft_failed`, `exit_status`, `signal`, `finished_at`, `queue` and `agent_id`. Uses
        `signal_reason` if the frame has it. In pandas, `metrics.step` computes a missing `step`.

    Returns
    -------
    pandas.DataFrame
        One row per combination of the first six columns with an outcome, ordered by them, nulls
        last. An empty frame gives no rows. For PySpark a lazy frame of PySpark without an order.

        ==================== =================== ================================================
        organization         str                 organization of the job
        pipeline             str                 pipeline of the job
        step                 str                 see `metrics.step`
        commit               str                 commit of the build
        matrix               str                 values of the matrix as JSON; null if there is none
        parallel_group_index Int64               index among parallel jobs; null if there is none
        passes               Int64               attempts that passed
        failures             Int64               hard failures of the step itself
        lost                 Int64               hard failures by infrastructure
        killed               Int64               hard failures by SIGKILL without a reason
        n_storm              Int64               further attempts, which were in a storm; left out
        first_at             datetime64[us, UTC] end of the first attempt that is not left out
        last_at              datetime64[us, UTC] end of the last attempt that is not left out
        verdict              str                 see Notes
        ==================== =================== ================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `state` holds states in an unknown
        spelling.

    See Also
    --------
    flips : Steps ranked by flake rate.

    Notes
    -----
    Script jobs that passed or failed hard (failed or timed out, not softly) count. Soft failures,
    canceled, skipped and unfinished jobs do not, nor does a failed job that a person canceled.
    `outcome` describes which failures are by infrastructure and which were killed; a crash, such as
    SIGSEGV, is a failure of the step. Attempts without a commit, or at `HEAD`, are left out;
    `flips` counts them.

    Attempts in a storm are left out, too, because infrastructure failed; `flips` counts all of
    them. A storm is half an hour of the clock (in UTC) in which a queue or an agent finished
    attempts of at least 5 steps, more than 80 % of these only failed, at least half of the attempts
    did, and they failed at two or more commits. A storm that is shorter, or lies across a full or
    half hour, can be missed. So can one on agents that finish fewer steps in half an hour, unless
    the whole queue finishes as many. Even in a whole queue few steps finish if all builds fail at
    their first one. Attempts of a storm that is missed, or of the half hours that are, count as
    others do. On the other hand, two commits that break 5 steps within half an hour, on a queue
    with hardly anything else, count as a storm.

    The verdict is

    - `flaky`: at least one failure and one pass,
    - `deterministic`: at least two failures and no pass, because a lasting failure is a regression
      and not a flake,
    - `undecided`: one failure that was not tried again,
    - `killed`: killed at least once, and otherwise passed, lost or nothing. Nobody knows whether
      the step used too much memory or a person killed it, so it is no evidence of a flake,
    - `infrastructure`: lost at least once, and otherwise passed or nothing,
    - `passed`: only passes.

    A step that fails at random but never showed both outcomes is not recognized as flaky.

    Examples
    --------
    >>> outcomes = metrics.outcomes_by_commit(jobs)
    >>> outcomes["verdict"].value_counts()
    verdict
    passed            2503
    undecided           21
    infrastructure      16
    flaky                6
    deterministic        4
    Name: count, dtype: int64
    """
    check_states(jobs, "state")
    storms = prepare_storms(jobs)
    summary = functools.partial(_outcomes_by_commit, storms)
    if not is_spark(jobs):
        return summary(jobs)
    return summarize_lazily(spark_frames.with_shards(jobs, _SHARD, STEP), summary, [_SHARD])


def _outcomes_by_commit(storms: pd.DataFrame | None, jobs: Frame) -> pd.DataFrame:
    attempts = read_attempts(jobs, storms=storms)
    outcomes = sum_outcomes(attempts)
    counted = attempts.rows[attempts.rows["outcome"] != STORM]
    group = counted["group"].to_numpy()
    ended_at = counted["finished_at"].to_numpy()
    outcomes["first_at"] = _to_timestamps(earliest_by(group, ended_at, len(outcomes)))
    outcomes["last_at"] = _to_timestamps(latest_by(group, ended_at, len(outcomes)))
    outcomes = outcomes[outcomes["is_known"] & outcomes["has_outcome"]]

    keys = [
        attempts.keys.steps.take(outcomes["step"].to_numpy()),
        attempts.keys.commits.take(outcomes["commit"].to_numpy()),
        attempts.keys.variants.take(outcomes["variant"].to_numpy()),
    ]
    summary = outcomes[[*OUTCOMES]].astype("Int64")
    summary[["first_at", "last_at"]] = outcomes[["first_at", "last_at"]]
    summary["verdict"] = pd.array(VERDICTS, dtype=TEXT).take(outcomes["verdict"].to_numpy())
    return pd.concat([part.reset_index(drop=True) for part in (*keys, summary)], axis=1)


def _to_timestamps(times: Integers) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(times.view("M8[us]"), tz="UTC")


@checked_names
def flips(jobs: Frame) -> pd.DataFrame:
    """
    Rank steps by flake rate: the share of commits at which a step both failed and passed.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns that
        `outcomes_by_commit` needs.

    Returns
    -------
    pandas.DataFrame
        One row per organization, pipeline and step, highest `low` first (0 if there is none), then
        highest `flake_rate`, then by key. An empty frame gives no rows.

        ================ ======= ===============================================================
        organization     str     organization of the jobs
        pipeline         str     pipeline of the jobs
        step             str     see `metrics.step`
        commits          Int64   commits with an outcome
        commits_passed   Int64   commits of these with at least one pass
        flaky            Int64   commits with this verdict
        deterministic    Int64   commits with this verdict
        undecided        Int64   commits with this verdict
        killed           Int64   commits with this verdict
        infrastructure   Int64   commits with this verdict; all others passed
        n_storm          Int64   attempts in a storm, see `outcomes_by_commit`; left out
        n_without_commit Int64   attempts without a commit, or at `HEAD`; left out
        flake_rate       float64 `flaky / commits_passed`; NaN if no commit passed
        low, high        float64 95 % interval of `flake_rate`, see `success_rate`; NaN if too
                                 little is known
        n_effective      float64 number of independent commits with the same information; NaN
                                 as the interval
        ================ ======= ===============================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `state` holds states in an unknown
        spelling.

    See Also
    --------
    outcomes_by_commit : The outcomes behind the counts, with the definition of verdicts.
    retry_rate : Share of executions that were retried.

    Notes
    -----
    A commit counts once per step, with the worst verdict of its shards and matrix values, in the
    order flaky, deterministic, undecided, killed, infrastructure, passed. A failed shard beside a
    passed one is no flip.

    The rate is one of commits, not of attempts: failures at rate p that are retried once flip p /
    (1 + p) of the commits that passed. A step that is never tried again cannot flip.

    The interval is that of `success_rate`, with commits for builds: it allows for commits that flip
    together, as on days with an overloaded agent. A commit counts when its first attempt ended. In
    simulations with 15 commits a day, nominal 95 % intervals contain the true rate in 94 to 99 % of
    cases. The rate is that of flips, which depends on how often failures are tried again;
    `flake_score` estimates that of attempts.

    Examples
    --------
    >>> columns = ["pipeline", "step", "commits_passed", "flaky", "flake_rate", "low"]
    >>> metrics.flips(jobs)[columns].head(2).round(3)
       pipeline       step  commits_passed  flaky  flake_rate    low
    0       web        e2e              36      5       0.139  0.050
    1  platform  test-http              19      1       0.053  0.007
    """
    check_states(jobs, "state")
    summary = functools.partial(_flips, prepare_storms(jobs))
    steps = summarize_steps(jobs, summary)
    ranks = steps.assign(low=steps["low"].fillna(0))
    order = ranks.sort_values(["low", "flake_rate"], ascending=False, kind="stable").index
    return steps.loc[order].reset_index(drop=True)


def _flips(storms: pd.DataFrame | None, jobs: Frame) -> pd.DataFrame:
    attempts = read_attempts(jobs, storms=storms)
    times = {"finished_at": attempts.rows["finished_at"].to_numpy()}
    commits = find_worst_verdicts(attempts, times)
    verdict = commits["verdict"].to_numpy()
    has_passed = commits["has_passed"].to_numpy()
    is_known = commits["is_known"].to_numpy() & (has_passed | (verdict > PASSED))
    counts = {"commits": is_known, "commits_passed": is_known & has_passed}
    for name in VERDICTS[:PASSED:-1]:
        counts[name] = is_known & (verdict == VERDICTS.index(name))
    commits_by_step = RowGroups(commits, commits["step"].to_numpy(), attempts.keys.steps)
    sums = sum_by_span(commits_by_step, "finished_at", counts, ["commits_passed"])
    rates = rate_columns(sums, "flaky", ["commits_passed"]).rename(columns={"rate": "flake_rate"})

    summary = pd.concat([sums.sums, count_left_out(attempts), rates], axis=1)
    steps = join_keys(attempts.keys.steps, summary)
    has_attempts = steps[["commits", "n_storm", "n_without_commit"]].sum(axis=1) > 0
    return steps[has_attempts].reset_index(drop=True)


def prepare_storms(jobs: Frame) -> pd.DataFrame | None:
    """Return the storms of a frame of PySpark, whose workers see only some steps; else None.

    Whether there is a storm shows in the attempts of its half hour alone, and so of its day.
    """
    if not is_spark(jobs):
        return None
    available = column_names(jobs)
    require_columns(available, [*STEP, *_NEEDS])
    ends = [name for name in _END_OF_ATTEMPT if name in available]
    by_day = spark_frames.with_days(jobs, _DAY, ends)
    return summarize_groups(by_day, _find_storms_of_jobs, [_DAY])


def summarize_steps(jobs: Frame, of: FrameSummary) -> pd.DataFrame:
    """Apply a function whose result has a row per step; on Spark to all jobs of some steps."""
    if not is_spark(jobs):
        return of(jobs)
    sharded = spark_frames.with_shards(jobs, _SHARD, STEP)
    return summarize_groups(sharded, of, [_SHARD]).sort_values(STEP, ignore_index=True)


def _find_storms_of_jobs(jobs: Frame) -> pd.DataFrame:
    rows, _ = _number_attempts(jobs)
    return find_storms(rows)


def read_attempts(
    jobs: Frame,
    needs: Sequence[str] = (),
    storms: pd.DataFrame | None = None,
) -> StepAttempts:
    """Return the attempts of jobs, with the columns `needs`; timestamps become microseconds.

    Pass the `storms` of a whole frame if the jobs are only a part of it.
    """
    rows, keys = _number_attempts(jobs, needs)
    is_stormy = flag_storms(rows, find_storms(rows) if storms is None else storms)
    outcome = rows["outcome"].mask(is_stormy, STORM)
    rows = rows.drop(columns=[*PLACES, "is_known"]).assign(outcome=outcome)
    sizes = [max(len(key), 1) for key in keys]
    # one code for each combination of the three numbers, in their order
    codes = np.ravel_multi_index([rows.pop(name) for name in _NUMBERS], sizes)
    codes, rows["group"] = np.unique(codes, return_inverse=True)
    numbers = dict(zip(_NUMBERS, np.unravel_index(codes, sizes), strict=True))
    is_known = _are_known(keys.commits)[numbers["commit"]]
    groups = pd.DataFrame(numbers | {"is_known": is_known}, copy=False)
    return StepAttempts(rows, groups, keys)


def _number_attempts(jobs: Frame, needs: Sequence[str] = ()) -> tuple[pd.DataFrame, AttemptKeys]:
    """Return attempts for `find_storms`, with the numbers of their steps, commits and variants."""
    steps: list[Key] = [*STEP]
    if isinstance(jobs, pd.DataFrame):
        steps[-1] = step  # computes the step if the frame lacks it
    select = functools.partial(_select_attempts, needs)
    attempts_by_step = read_rows(jobs, select, [*_NEEDS, *needs], _WANTS, steps)
    rows = attempts_by_step.columns
    commits = number_groups(rows[["commit"]])
    variants = number_groups(rows[_VARIANT].astype({"parallel_group_index": "Int64"}))
    numbered = rows.drop(columns=["commit", *_VARIANT]).assign(
        step=attempts_by_step.codes,
        commit=commits.codes,
        variant=variants.codes,
        is_known=_are_known(commits.keys)[commits.codes],
    )
    return numbered, AttemptKeys(attempts_by_step.keys, commits.keys, variants.keys)


def _are_known(commits: pd.DataFrame) -> Flags:
    return ~is_any_of(commits, "commit", "HEAD") & commits["commit"].notna().to_numpy(bool)


def _select_attempts(needs: Sequence[str], jobs: pd.DataFrame) -> pd.DataFrame:
    """Return the attempts among jobs, with their outcomes."""
    causes = number_causes(jobs[[name for name in (*CAUSE_NEEDS, *CAUSE_WANTS) if name in jobs]])
    has_failed = has_failed_hard(jobs) & (causes != PERSON)
    has_passed = equals(jobs, "state", "passed")
    outcome = np.full(len(jobs), PASS, np.int8)
    outcome[has_failed] = FAILURE
    outcome[has_failed & (causes == INFRASTRUCTURE)] = LOSS
    outcome[has_failed & (causes == KILLED)] = KILL
    is_attempt = equals(jobs, "type", "script") & (has_passed | has_failed)

    jobs = with_ends(jobs)
    queue = queue_identities(jobs) if "queue_id" in jobs else jobs["queue"]
    columns = {"outcome": outcome, "queue": queue.array}
    for name in ("agent_id", "commit", *_VARIANT, "finished_at", *needs):
        columns[name] = to_numbers(jobs[name])
    rows = np.flatnonzero(is_attempt)  # arrays are sooner taken by these than a frame by flags
    taken = {name: values.take(rows) for name, values in columns.items()}
    return pd.DataFrame(taken, jobs.index[rows], copy=False)


def sum_outcomes(attempts: StepAttempts) -> pd.DataFrame:
    """Return the groups of attempts with their sums of each of `OUTCOMES`, and their verdicts.

    `has_outcome` is whether there are attempts outside of storms, and `verdict` is a number.
    """
    n_groups = len(attempts.groups)
    outcome = attempts.rows["outcome"].to_numpy(np.int64)
    cells = outcome * n_groups + attempts.rows["group"].to_numpy()
    sums = np.bincount(cells, minlength=len(OUTCOMES) * n_groups).reshape(len(OUTCOMES), n_groups)
    outcomes = attempts.groups.assign(**dict(zip(OUTCOMES, sums, strict=True)))
    outcomes["has_outcome"] = sums[:STORM].sum(axis=0) > 0
    outcomes["verdict"] = _decide(outcomes)
    return outcomes


def _decide(outcomes: pd.DataFrame) -> npt.NDArray[np.int8]:
    """Return the numbers of the verdicts, from the weakest to the strongest rule."""
    failures = outcomes["failures"].to_numpy()
    verdict = np.full(len(outcomes), PASSED, np.int8)
    verdict[outcomes["lost"] > 0] = LOST
    verdict[outcomes["killed"] > 0] = WAS_KILLED
    verdict[failures > 0] = UNDECIDED
    verdict[failures > 1] = DETERMINISTIC
    verdict[(failures > 0) & (outcomes["passes"] > 0)] = FLAKY
    return verdict


def find_worst_verdicts(attempts: StepAttempts, times: Mapping[str, Integers]) -> pd.DataFrame:
    """Return a row for each step and commit, with the worst verdict of its groups.

    Also whether the step `has_passed` and the commit `is_known`, and the earliest of `times`, which
    are those of attempts.
    """
    outcomes = sum_outcomes(attempts)
    verdict = outcomes["verdict"].to_numpy()
    # groups of one step and commit follow each other
    step_and_commit = outcomes["step"] * len(attempts.keys.commits) + outcomes["commit"]
    is_first = np.diff(step_and_commit, prepend=-1) != 0
    commit_of_group = np.cumsum(is_first) - 1
    commits: pd.DataFrame = outcomes.loc[is_first, ["step", "is_known"]].reset_index(drop=True)

    has_passed = np.zeros(len(commits), bool)
    has_passed[commit_of_group[outcomes["passes"] > 0]] = True
    worst = np.full(len(commits), PASSED, np.int8)
    is_worse = verdict > PASSED  # few are
    np.maximum.at(worst, commit_of_group[is_worse], verdict[is_worse])
    commit_of_attempt = commit_of_group[attempts.rows["group"]]
    for name, of_attempts in times.items():
        commits[name] = earliest_by(commit_of_attempt, of_attempts, len(commits))
    return commits.assign(verdict=worst, has_passed=has_passed)


def count_left_out(attempts: StepAttempts) -> pd.DataFrame:
    """Count the attempts of each step in a storm (`n_storm`), and those `n_without_commit`."""
    n_steps = len(attempts.keys.steps)
    step = attempts.groups["step"].to_numpy()[attempts.rows["group"]]
    is_known = attempts.groups["is_known"].to_numpy()[attempts.rows["group"]]
    counts = {
        "n_storm": np.bincount(step[attempts.rows["outcome"] == STORM], minlength=n_steps),
        "n_without_commit": np.bincount(step[~is_known], minlength=n_steps),
    }
    return pd.DataFrame(counts, dtype="Int64")
