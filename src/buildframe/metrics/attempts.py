"""Find steps that both failed and passed at one commit.

Knows outcomes of attempts, not the tests inside a job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics import failure_causes
from buildframe.metrics.engines import engine_of, expressions
from buildframe.metrics.engines.rows import Frame, GroupedRows, GroupSums, Rows
from buildframe.metrics.engines.storms import PLACES, STORM
from buildframe.metrics.grouping import Key, join_keys
from buildframe.metrics.rates import rate_columns
from buildframe.metrics.span_sums import SpanSums
from buildframe.metrics.steps import step
from buildframe.metrics.time_spans import sum_by_span
from buildframe.metrics.validation import check_states

STEP: list[Key] = ["organization", "pipeline", step]
COMMIT: list[Key] = ["commit"]
VARIANT: list[Key] = ["matrix", "parallel_group_index"]
_NEEDS = ("commit", "type", *failure_causes.NEEDS, "soft_failed", "finished_at", *PLACES)
_OUTCOMES = ["passes", "failures", "lost", "killed"]
_COUNTS = [*_OUTCOMES, STORM]

HAS_OUTCOME = nw.col("passes") + nw.col("failures") + nw.col("lost") + nw.col("killed") > 0
"""Whether sums of outcomes contain attempts that are not left out."""

VERDICTS = ("passed", "infrastructure", "killed", "undecided", "deterministic", "flaky")
"""Ordered from best to worst; the index is the number of a verdict."""


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
    attempts = select_attempts(jobs)
    known = attempts.frame.filter(nw.col("unknown") == 0)
    counted = known.with_columns(finished_at=nw.when(nw.col(STORM) == 0).then(nw.col("finished_at")))
    ends = {"first_at": nw.col("finished_at").min(), "last_at": nw.col("finished_at").max()}
    outcomes = sum_outcomes(replace(attempts, frame=counted), **ends)
    outcomes = replace(outcomes, frame=outcomes.frame.filter(HAS_OUTCOME))
    return outcomes.engine.deliver(outcomes, [*_COUNTS, *ends, "verdict"], {"verdict": VERDICTS})


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
    attempts = select_attempts(jobs)
    attempts = attempts.engine.gather(attempts.engine.encode_keys(attempts), len([*STEP, *COMMIT]))
    first = nw.col("finished_at").min()
    variants = sum_outcomes(attempts, unknown=nw.col("unknown").sum(), finished_at=first)
    engine = variants.engine
    commits = engine.without_level(variants, VARIANT)
    each = _with_floats(commits.frame, STORM, "unknown")
    worst = each.group_by(*commits.by).agg(nw.col("verdict", "passes").max(), nw.col(STORM, "unknown").sum(), first)
    is_known = (nw.col("unknown") == 0) & ((nw.col("verdict") > 0) | (nw.col("passes") > 0))
    counts = {
        "commits": is_known,
        "commits_passed": is_known & (nw.col("passes") > 0),
        **{name: is_known & (nw.col("verdict") == i) for i, name in reversed([*enumerate(VERDICTS)][1:])},
        "n_storm": nw.col(STORM),
        "n_without_commit": nw.col("unknown"),
    }
    steps = engine.without_level(replace(commits, frame=worst), COMMIT)
    source = engine.select_columns(jobs, ["finished_at"])
    counted = sum_by_span(steps, "finished_at", counts, ["commits_passed"], source)
    of_spans = SpanSums(counted.groups.sums, counted.spans)
    rates = rate_columns(of_spans, "flaky", ["commits_passed"]).rename(columns={"rate": "flake_rate"})
    ranked = join_keys(counted.groups.keys, pd.concat([counted.groups.sums, rates], axis=1))
    ranked = ranked[ranked[["commits", "n_storm", "n_without_commit"]].sum(axis=1) > 0]
    known = ranked.assign(low=ranked["low"].fillna(0))
    order = known.sort_values(["low", "flake_rate"], ascending=False, kind="stable").index
    return ranked.loc[order].reset_index(drop=True)


def select_attempts(jobs: Frame, *needs: str) -> GroupedRows:
    """Return script jobs with an outcome (1 or 0 in _COUNTS; `unknown` is 1 without a commit).

    Attempts in storms have no other outcome. `needs` are further columns of the result. Computes flags first, because
    texts are slow to filter.
    """
    engine = engine_of(jobs)
    jobs = engine.with_queue_identities(engine.with_ends(jobs))
    check_states(jobs, "state")
    wants = [name for name in failure_causes.WANTS if name in engine.column_names(jobs)]
    groups = engine.nested_groups(jobs, [*_NEEDS, *wants, *needs], [STEP, COMMIT, VARIANT])
    groups = engine.with_causes(groups)
    cause = nw.col(failure_causes.CAUSE)
    flags = {
        "is_attempt": expressions.IS_ATTEMPT & (cause != failure_causes.PERSON),
        "passes": nw.col("state") == "passed",  # of attempts it is known
        "lost": cause == failure_causes.INFRASTRUCTURE,
        "killed": cause == failure_causes.KILLED,
        "unknown": nw.col("commit").is_null() | (nw.col("commit") == "HEAD"),
    }
    rows = groups.frame.select(*groups.by, "finished_at", *PLACES, *needs, **flags).filter(nw.col("is_attempt"))
    outcomes = {name: nw.col(name) for name in ("passes", "lost", "killed", "unknown")}
    outcomes["failures"] = ~nw.col("passes") & ~nw.col("lost") & ~nw.col("killed")
    rows = rows.with_columns(**{name: flag.cast(nw.Int64) for name, flag in outcomes.items()})
    return _without_storms(replace(groups, frame=rows))


def _without_storms(attempts: GroupedRows) -> GroupedRows:
    """Return the attempts with the flag `STORM`, and without other outcomes in storms."""
    marked = attempts.engine.mark_storms(attempts, len(STEP))
    if marked is None:
        return attempts.with_columns(**{STORM: nw.lit(0)})
    return marked.with_columns(**{name: nw.col(name) * (1 - nw.col(STORM)) for name in _OUTCOMES})


def sum_outcomes(attempts: GroupedRows, **more: nw.Expr) -> GroupedRows:
    """Sum the outcomes of each group, and add its verdict."""
    counted = _with_floats(attempts.frame, *_COUNTS, "unknown")
    sums = counted.group_by(*attempts.by).agg(nw.col(*_COUNTS).sum(), **more)
    whole = sums.with_columns(nw.col(*_COUNTS).cast(nw.Int64))
    return replace(attempts, frame=whole.with_columns(verdict=_express_verdict()))


def count_red_builds(attempts: GroupedRows) -> GroupSums:
    """Count the builds of each step with a failure that was not retried, at a commit that passed otherwise."""
    engine, is_known = attempts.engine, nw.col("unknown") == 0
    failed = attempts.frame.filter(is_known & (nw.col("failures") > 0) & ~expressions.IS_SUPERSEDED)
    passed = attempts.frame.filter(is_known & (nw.col("passes") > 0)).select(*attempts.by)
    names = {name: f"{name} that passed" for name in attempts.by}
    red = engine.join_nulls_equal(failed.select(*attempts.by, "build_id").unique(), passed.rename(names), names)
    steps = engine.without_level(engine.without_level(replace(attempts, frame=red), VARIANT), COMMIT)
    builds = replace(steps, frame=steps.select("build_id").frame.unique())
    return engine.group_sums(builds, builds=~nw.col("build_id").is_null())


def _with_floats(rows: Rows, *counts: str) -> Rows:
    """Return counts as floats, whose sums take DuckDB half the time of those of integers."""
    return rows.with_columns(nw.col(*counts).cast(nw.Float64))


def _express_verdict() -> nw.Expr:
    """Return the index of the verdict in VERDICTS."""
    passes, failures, lost, killed = (nw.col(name) for name in _OUTCOMES)
    numbers = {name: nw.lit(number) for number, name in enumerate(VERDICTS)}
    failed = nw.when(failures > 1).then(numbers["deterministic"]).otherwise(numbers["undecided"])
    failed = nw.when(passes > 0).then(numbers["flaky"]).otherwise(failed)
    others = nw.when(lost > 0).then(numbers["infrastructure"]).otherwise(numbers["passed"])
    others = nw.when(killed > 0).then(numbers["killed"]).otherwise(others)
    return nw.when(failures > 0).then(failed).otherwise(others)
