"""Find steps that both failed and passed at one commit.

Knows outcomes of attempts, not the tests inside a job.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics import spark_frames
from buildframe.metrics.columns import NAT, TEXT, Flags, Integers, require_columns
from buildframe.metrics.group_summaries import summarize_groups, summarize_lazily
from buildframe.metrics.grouping import Key, join_keys, number_groups
from buildframe.metrics.input_frames import Frame, RowGroups, column_names, is_spark, read_rows
from buildframe.metrics.job_ends import COLUMNS as END_COLUMNS
from buildframe.metrics.job_ends import with_ends
from buildframe.metrics.measured_rows import to_numbers
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
from buildframe.metrics.row_flags import equals, has_failed_hard
from buildframe.metrics.span_sums import sum_by_span
from buildframe.metrics.steps import step
from buildframe.metrics.storms import HALF_HOUR, PLACES, find_storms, flag_storms
from buildframe.metrics.validation import check_states

STEP = ["organization", "pipeline", "step"]
"""Columns that identify a step."""

_VARIANT = ["matrix", "parallel_group_index"]
_NEEDS = ["commit", *_VARIANT, "type", *CAUSE_NEEDS, "soft_failed", "finished_at", *PLACES]
_WANTS = [*CAUSE_WANTS, *END_COLUMNS, "queue_id"]
_OUTCOMES = ["passes", "failures", "lost", "killed"]
_END_OF_ATTEMPT = ["finished_at", "expired_at", "build_finished_at"]
_HALF_HOUR_COLUMN = "half hour of the end"

VERDICTS = ("passed", "infrastructure", "killed", "undecided", "deterministic", "flaky")
"""Ordered from best to worst; the index is the number of a verdict."""

PASSED, LOST, WAS_KILLED, UNDECIDED, DETERMINISTIC, FLAKY = range(len(VERDICTS))


class Attempts(NamedTuple):
    """Attempts of steps: script jobs that passed or failed hard.

    `rows` has, beside further columns:

    - `step`, `commit`, `variant`: the number of a row of `steps`, `commits` and `variants`, whose
      columns are keys (a variant is a matrix value and an index among parallel jobs),
    - `is_known`: whether it has a commit,
    - `finished_at`: microseconds, `NAT` if missing,
    - `passes`, `failures`, `lost`, `killed`, `n_storm`: flags, of which one is set.
    """

    rows: pd.DataFrame
    steps: pd.DataFrame
    commits: pd.DataFrame
    variants: pd.DataFrame

    def group_by_variant(self) -> Runs:
        """Return the runs of attempts of one variant of a step at one commit, in order of keys."""
        step, commit, variant = (
            self.rows[name].to_numpy(np.int64) for name in ("step", "commit", "variant")
        )
        return find_runs((step * len(self.commits) + commit) * len(self.variants) + variant)


class Runs(NamedTuple):
    """Rows in order of their groups: `order` sorts them, each group begins at one of `starts`."""

    order: Integers
    starts: Integers

    def first(self, values: Any) -> Any:
        """Return the first value of each group, such as a key that its rows share."""
        return np.asarray(values)[self.order[self.starts]]

    def sum(self, values: Any) -> Integers:
        """Return the sum of flags or whole numbers of each group."""
        sums: Integers = np.add.reduceat(
            np.asarray(values)[self.order], self.starts, dtype=np.int64
        )
        return sums

    def spread(self, of_groups: Any) -> Any:
        """Return the value of its group for each row."""
        sizes = np.diff(self.starts, append=len(self.order))
        of_rows = np.empty(len(self.order), of_groups.dtype)
        of_rows[self.order] = np.repeat(of_groups, sizes)
        return of_rows

    def least(self, values: Any) -> Any:
        return np.minimum.reduceat(np.asarray(values)[self.order], self.starts)

    def greatest(self, values: Any) -> Any:
        return np.maximum.reduceat(np.asarray(values)[self.order], self.starts)

    def earliest(self, times: Any) -> Integers:
        """Return the first known time of each group, `NAT` if there is none."""
        never = np.iinfo(np.int64).max
        first = self.least(np.where(np.asarray(times) == NAT, never, times))
        return np.where(first == never, NAT, first)


def find_runs(codes: Integers) -> Runs:
    """Return the groups of rows with equal codes, in order of the codes."""
    order = np.argsort(codes)
    is_start = np.diff(codes[order], prepend=-1) != 0
    return Runs(order, np.flatnonzero(is_start))


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
        One row per combination of the first six columns with an outcome, ordered by them, nulls last. An empty frame
        gives no rows. For PySpark a lazy frame of PySpark without an order.

        ==================== =================== ==========================================================
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
        ==================== =================== ==========================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `state` holds states in an unknown spelling.

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

    Attempts in a storm are left out, too, because infrastructure failed; `flips` counts all of them. A storm is half an
    hour of the clock (in UTC) in which a queue or an agent finished attempts of at least 5 steps, more than 80 % of
    these only failed, at least half of the attempts did, and they failed at two or more commits. A storm that is
    shorter, or lies across a full or half hour, can be missed. So can one on agents that finish fewer steps in half an
    hour, unless the whole queue finishes as many. Even in a whole queue few steps finish if all builds fail at their
    first one. Attempts of a storm that is missed, or of the half hours that are, count as others do. On the other
    hand, two commits that break 5 steps within half an hour, on a queue with hardly anything else, count as a storm.

    The verdict is

    - `flaky`: at least one failure and one pass,
    - `deterministic`: at least two failures and no pass, because a lasting failure is a regression and not a flake,
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
    return summarize_lazily(jobs, summary, STEP) if is_spark(jobs) else summary(jobs)


def _outcomes_by_commit(storms: pd.DataFrame | None, jobs: Frame) -> pd.DataFrame:
    attempts = read_attempts(jobs, storms=storms)
    variants = attempts.group_by_variant()
    outcomes = sum_outcomes(attempts, variants)
    ended_at = attempts.rows["finished_at"].where(~attempts.rows["n_storm"], NAT)
    outcomes["first_at"] = _to_timestamps(variants.earliest(ended_at))
    outcomes["last_at"] = _to_timestamps(variants.greatest(ended_at))
    outcomes = outcomes[outcomes["is_known"] & (outcomes["n_outcomes"] > 0)]

    numbered_keys = [
        (attempts.steps, "step"),
        (attempts.commits, "commit"),
        (attempts.variants, "variant"),
    ]
    keys = [frame.take(outcomes[number]).reset_index(drop=True) for frame, number in numbered_keys]
    counts = outcomes[[*_OUTCOMES, "n_storm"]].astype("Int64")
    verdict = pd.array(VERDICTS, dtype=TEXT).take(outcomes["verdict"])
    summary = counts.join(outcomes[["first_at", "last_at"]]).assign(verdict=verdict)
    return pd.concat([*keys, summary.reset_index(drop=True)], axis=1)


def _to_timestamps(times: Integers) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(times.view("M8[us]"), tz="UTC")


@checked_names
def flips(jobs: Frame) -> pd.DataFrame:
    """
    Rank steps by flake rate: the share of commits at which a step both failed and passed.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns that `outcomes_by_commit` needs.

    Returns
    -------
    pandas.DataFrame
        One row per organization, pipeline and step, highest `low` first (0 if there is none), then highest
        `flake_rate`, then by key. An empty frame gives no rows.

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
        low, high        float64 95 % interval of `flake_rate`; NaN if too little is known, see `success_rate`
        n_effective      float64 number of independent commits with the same information; NaN as the interval
        ================ ======= ===============================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `state` holds states in an unknown spelling.

    See Also
    --------
    outcomes_by_commit : The outcomes behind the counts, with the definition of verdicts.
    retry_rate : Share of executions that were retried.

    Notes
    -----
    A commit counts once per step, with the worst verdict of its shards and matrix values, in the
    order flaky, deterministic, undecided, killed, infrastructure, passed. A failed shard beside a
    passed one is no flip.

    The rate is one of commits, not of attempts: failures at rate p that are retried once flip p / (1 + p) of the
    commits that passed. A step that is never tried again cannot flip.

    The interval is that of `success_rate`, with commits for builds: it allows for commits that flip together, as on
    days with an overloaded agent. A commit counts when its first attempt ended. In simulations with 15 commits a day,
    nominal 95 % intervals contain the true rate in 94 to 99 % of cases. The rate is that of flips, which depends on how
    often failures are tried again; `flake_score` estimates that of attempts.

    Examples
    --------
    >>> metrics.flips(jobs)[["pipeline", "step", "commits_passed", "flaky", "flake_rate", "low"]].head(2).round(3)
       pipeline       step  commits_passed  flaky  flake_rate    low
    0       web        e2e              36      5       0.139  0.050
    1  platform  test-http              19      1       0.053  0.007
    """
    check_states(jobs, "state")
    summary = functools.partial(_flips, prepare_storms(jobs))
    steps = summarize_groups(jobs, summary, STEP)
    ranks = steps.assign(low=steps["low"].fillna(0))
    order = ranks.sort_values(["low", "flake_rate"], ascending=False, kind="stable").index
    return steps.loc[order].reset_index(drop=True)


def _flips(storms: pd.DataFrame | None, jobs: Frame) -> pd.DataFrame:
    attempts = read_attempts(jobs, storms=storms)
    times = {"finished_at": attempts.rows["finished_at"].to_numpy(np.int64)}
    commits = find_worst_verdicts(attempts, times)
    verdict = commits["verdict"].to_numpy()
    has_passed = commits["passes"].to_numpy() > 0
    is_known = commits["is_known"].to_numpy() & (has_passed | (verdict > PASSED))
    numbers = range(len(VERDICTS))
    counts: dict[str, Flags | Integers] = {
        "commits": is_known,
        "commits_passed": is_known & has_passed,
        **{VERDICTS[i]: is_known & (verdict == i) for i in numbers[:PASSED:-1]},
        "n_storm": commits["n_storm"].to_numpy(),
        "n_without_commit": commits["n_without_commit"].to_numpy(),
    }
    commits_by_step = RowGroups(commits, commits["step"].to_numpy(), attempts.steps)
    sums = sum_by_span(commits_by_step, "finished_at", counts, ["commits_passed"])
    rates = rate_columns(sums, "flaky", ["commits_passed"]).rename(columns={"rate": "flake_rate"})
    steps = join_keys(attempts.steps, pd.concat([sums.sums, rates], axis=1))
    has_attempts = steps[["commits", "n_storm", "n_without_commit"]].sum(axis=1) > 0
    return steps[has_attempts].reset_index(drop=True)


def prepare_storms(jobs: Frame) -> pd.DataFrame | None:
    """Return the storms of a frame of PySpark, whose workers see only one step; else None.

    Whether there is a storm shows in the attempts of its half hour alone.
    """
    if not is_spark(jobs):
        return None
    available = column_names(jobs)
    require_columns(available, [*STEP, *_NEEDS])
    ends = [name for name in _END_OF_ATTEMPT if name in available]
    timed = spark_frames.with_periods(jobs, _HALF_HOUR_COLUMN, ends, HALF_HOUR)
    return summarize_groups(timed, _find_storms_of_jobs, [_HALF_HOUR_COLUMN])


def _find_storms_of_jobs(jobs: Frame) -> pd.DataFrame:
    return find_storms(_read_attempts(jobs).rows)


def read_attempts(
    jobs: Frame, needs: Sequence[str] = (), storms: pd.DataFrame | None = None
) -> Attempts:
    """Return the attempts of jobs, with the columns `needs`; those in storms have no other outcome.

    Timestamps in `needs` become microseconds. Pass `storms` if the jobs are only a part of a frame.
    """
    attempts = _read_attempts(jobs, needs)
    if storms is None:
        storms = find_storms(attempts.rows)
    is_stormy = flag_storms(attempts.rows, storms)
    outcomes = {name: attempts.rows[name] & ~is_stormy for name in _OUTCOMES}
    rows = attempts.rows.drop(columns=[*PLACES]).assign(**outcomes, n_storm=is_stormy)
    return attempts._replace(rows=rows)


def _read_attempts(jobs: Frame, needs: Sequence[str] = ()) -> Attempts:
    """Return attempts without `n_storm`, with the places of `find_storms`."""
    steps: list[Key] = [*STEP]
    if isinstance(jobs, pd.DataFrame):
        steps[-1] = step  # computes the step if the frame lacks it
    flag = functools.partial(_flag_attempts, needs)
    jobs_by_step = read_rows(jobs, flag, [*_NEEDS, *needs], _WANTS, steps)
    columns = jobs_by_step.columns
    commits = number_groups(columns[["commit"]])
    variants = number_groups(columns[_VARIANT])
    commit_names = commits.keys["commit"]
    is_known = (commit_names.notna() & (commit_names != "HEAD")).to_numpy(bool)

    is_attempt = columns["is_attempt"].to_numpy(bool)
    numbers = {
        "step": jobs_by_step.codes[is_attempt],
        "commit": commits.codes[is_attempt],
        "variant": variants.codes[is_attempt],
    }
    numbers["is_known"] = is_known[numbers["commit"]]
    others = columns.columns.difference(["is_attempt", "commit", *_VARIANT])
    selected = {name: columns[name].array[is_attempt] for name in others}
    rows = pd.DataFrame(numbers | selected, copy=False)
    return Attempts(rows, jobs_by_step.keys, commits.keys, variants.keys)


def _flag_attempts(needs: Sequence[str], jobs: pd.DataFrame) -> pd.DataFrame:
    """Return which jobs are attempts, their outcomes, and what `Attempts` needs of them."""
    causes = number_causes(jobs[[name for name in (*CAUSE_NEEDS, *CAUSE_WANTS) if name in jobs]])
    passes = equals(jobs, "state", "passed")
    has_ended = passes | (has_failed_hard(jobs) & (causes != PERSON))
    lost = causes == INFRASTRUCTURE
    killed = causes == KILLED
    rows = {
        "is_attempt": has_ended & equals(jobs, "type", "script"),
        "passes": passes,
        "failures": ~passes & ~lost & ~killed,
        "lost": lost,
        "killed": killed,
        "queue": (queue_identities(jobs) if "queue_id" in jobs else jobs["queue"]).array,
    }
    jobs = with_ends(jobs)
    names = ["commit", *_VARIANT, "agent_id", "finished_at", *needs]
    return pd.DataFrame(rows | {name: to_numbers(jobs[name]) for name in names}, jobs.index)


def sum_outcomes(attempts: Attempts, variants: Runs) -> pd.DataFrame:
    """Sum the outcomes of each variant of a step at a commit, and add the number of its verdict.

    Has the columns `step`, `commit`, `variant`, `is_known`, those of `Attempts`, `n_outcomes` (of
    attempts that are not in a storm) and `verdict`.
    """
    rows = attempts.rows
    keys = {name: variants.first(rows[name]) for name in ("step", "commit", "variant", "is_known")}
    sums = {name: variants.sum(rows[name]) for name in (*_OUTCOMES, "n_storm")}
    outcomes = pd.DataFrame(keys | sums, copy=False)
    outcomes["n_outcomes"] = outcomes[_OUTCOMES].sum(axis=1)
    outcomes["verdict"] = _decide(sums)
    return outcomes


def _decide(sums: dict[str, Integers]) -> Integers:
    """Return the number of the verdict on each sum of outcomes."""
    has_passed = sums["passes"] > 0
    has_failed = sums["failures"] > 0
    verdicts = [
        (has_failed & has_passed, FLAKY),
        (sums["failures"] > 1, DETERMINISTIC),
        (has_failed, UNDECIDED),
        (sums["killed"] > 0, WAS_KILLED),
        (sums["lost"] > 0, LOST),
    ]
    conditions, numbers = zip(*verdicts, strict=True)
    return np.select(conditions, numbers, PASSED)


def find_worst_verdicts(attempts: Attempts, times: Mapping[str, Integers]) -> pd.DataFrame:
    """Return a row for each step and commit, with the worst verdict of its variants.

    `passes` is the greatest number of one variant, and each of `times` is the earliest one of all
    attempts. `n_without_commit` and `n_storm` count attempts.
    """
    variants = attempts.group_by_variant()
    outcomes = sum_outcomes(attempts, variants)
    n_unknown = variants.sum(~attempts.rows["is_known"])
    commit_codes = outcomes["step"] * len(attempts.commits) + outcomes["commit"]
    commits = find_runs(commit_codes.to_numpy())
    columns = {
        "step": commits.first(outcomes["step"]),
        "is_known": commits.first(outcomes["is_known"]),
        "passes": commits.greatest(outcomes["passes"]),
        "verdict": commits.greatest(outcomes["verdict"]),
        "n_storm": commits.sum(outcomes["n_storm"]),
        "n_without_commit": commits.sum(n_unknown),
    }
    for name, of_attempts in times.items():
        columns[name] = commits.earliest(variants.earliest(of_attempts))
    return pd.DataFrame(columns, copy=False)
