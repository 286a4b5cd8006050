"""Estimate how likely each step fails at random, whether runs could have shown it, and its price.

Knows outcomes of attempts, not the tests inside a job.
"""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics import spark_frames
from buildframe.metrics.attempts import (
    DETERMINISTIC,
    FAILURE,
    FLAKY,
    PASS,
    STEP,
    UNDECIDED,
    VERDICTS,
    StepAttempts,
    count_left_out,
    find_worst_verdicts,
    prepare_storms,
    read_attempts,
    sum_outcomes,
    summarize_steps,
)
from buildframe.metrics.columns import NAT, TEXT, Flags, Floats, Integers
from buildframe.metrics.flake_rates import MAX_FAILURES, AttemptCounts, estimate_rates
from buildframe.metrics.grouping import join_keys
from buildframe.metrics.input_frames import Frame, is_spark, read_columns
from buildframe.metrics.numbered import earliest_by, sum_by
from buildframe.metrics.row_flags import equals, is_set
from buildframe.metrics.span_sums import sum_flags
from buildframe.metrics.validation import check_states
from buildframe.terminal import show

_CONFIDENCE = 0.9
_MAX_ATTEMPTS = 5
"""More attempts at one commit count as so many: they say less than attempts at several commits."""

_PARTS = 100
"""Attempts are counted in hundredths."""

_SHOWN_VERDICTS = VERDICTS[:0:-1]
_FAILURE_COUNTS = range(1, MAX_FAILURES + 1)
_ATTEMPT_COUNTS = range(2, _MAX_ATTEMPTS + 1)
_NEEDS = ["retried", "started_at", "build_id"]
_NEEDS_OF_BRANCHES = ["branch", "build_created_at", "build_number"]
_COLUMNS = [
    "rate", "low", "high", "p_above", "outcomes", *_SHOWN_VERDICTS, "suspected", "power_planned",
    "power_retried", "red_builds", "machine_s", "waiting_s", "n_storm", "n_without_commit",
]  # fmt: skip


@checked_names
def flake_score(
    jobs: Frame,
    *,
    threshold: float = 0.01,
    retries: int = 1,
    branch: str | None = None,
    pipelines: Frame | None = None,
) -> pd.DataFrame:
    """
    Estimate the rate at which each step fails at random, and what its failures cost.

    The rate is the chance that an attempt fails although its commit is good. Steps with few
    attempts are estimated from what all steps have in common.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns that
        `outcomes_by_commit` needs, and `retried`, `started_at` and `build_id`.
    threshold : float, default 0.01
        Rate above which a step counts as flaky, a fraction in (0, 1).
    retries : int, default 1
        How often a failure is tried again, for `power_retried`; at least 1.
    branch : str, optional
        Default branch of all pipelines, to count suspected flakes. Pass either this or `pipelines`,
        or none. Needs the columns `branch`, `build_created_at` and `build_number`.
    pipelines : DataFrame, optional
        Result of `ws.pipelines()`, with the default branch of each pipeline.

    Returns
    -------
    pandas.DataFrame
        One row per organization, pipeline and step, highest `low` first, then highest `rate`, then
        by key. An empty frame gives no rows.

        ================ ======= ==================================================================
        organization     str     organization of the jobs
        pipeline         str     pipeline of the jobs
        step             str     see `metrics.step`
        rate             float64 mean of the posterior: chance that an attempt fails at random; NaN
                                 if the step never passed, or nothing was tried again
        low, high        float64 shortest interval with 90 % of the posterior
        p_above          float64 probability that the rate exceeds `threshold`
        outcomes         Int64   rows of `outcomes_by_commit`: commits, each once for every matrix
                                 value and shard that has an outcome there
        flaky            Int64   rows of these with this verdict
        deterministic    Int64   rows of these with this verdict
        undecided        Int64   rows of these with this verdict
        killed           Int64   rows of these with this verdict
        infrastructure   Int64   rows of these with this verdict; all others passed
        suspected        Int64   undecided commits between two that passed; null without a branch
        power_planned    float64 chance that a step with the rate `threshold` would have shown both
                                 outcomes at one commit, in the attempts at the commits that passed
        power_retried    float64 the same if each failure had been tried again, `retries` times
        red_builds       Int64   builds that it turned red although the commit passed otherwise,
                                 each once for any number of attempts, matrix values and shards
        machine_s        float64 seconds of run time of its failures at commits that passed
        waiting_s        float64 seconds from such a failure to the commit's first pass, if that
                                 came later
        n_storm          Int64   attempts in a storm; left out
        n_without_commit Int64   attempts without a commit, or at `HEAD`; left out
        ================ ======= ==================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `state` holds states in an unknown
        spelling, `threshold` or `retries` is out of range, or both `branch` and `pipelines` are
        given.

    See Also
    --------
    flips : The commits at which a step both failed and passed.
    outcomes_by_commit : The evidence, with the definition of verdicts.

    Notes
    -----
    An attempt at a good commit fails with the rate p of its step, and at a broken commit always.
    A commit that passed was good; one that only failed was broken, or unlucky with
    chance p^k after k failures. The share of broken commits of a step is integrated with the prior
    of Jeffreys. Some steps never fail at random, and the rates of the others have a Beta
    distribution. That share of steps and both parameters are integrated over a grid, because
    plugging in the best ones would make intervals too short [1]_. Attempts of a matrix value or a
    shard are compared with its own only. More than 5 attempts at one commit count as 5.

    In simulations of steps with automatic or random retries, or planned runs, the intervals contain
    87 to 96 % of the rates. Limits: random failures are taken to be independent, and failures to be
    tried again whatever their cause. If people try again only what they believe to be random, rates
    are too high where many commits are `undecided`: in simulations up to three times, and then as
    few as 29 % of the intervals contain the rate. If no commit was tried more than once, nothing
    separates random failures from broken commits, and rates are NaN. A step that is never tried
    again, among others that are, gets the rate that these make likely: see `power_retried` and
    `suspected`.

    A step that never passed has no rate, because a lasting failure is a regression and not a flake.
    For the same reason both powers count only commits that passed, which are good: one that only
    failed was probably broken.

    Attempts in a storm are left out, as in `outcomes_by_commit`. Storms can be missed: in
    simulations of a month, 13 of 26 were found, some of them only in part. Failures of the others
    that were tried again count as random.

    A suspected flake failed once at a commit of the default branch, was not tried again, and passed
    at the commits before and after, in the order of their builds.

    The price counts commits with the verdict flaky. A build that two steps turned red counts for
    both. What a rebuild repeated for other steps is in `waste`.

    References
    ----------
    .. [1] Gelman, A., et al. (2013). Bayesian Data Analysis, 3rd edition, section 5.3. CRC Press.

    Examples
    --------
    >>> scores = metrics.flake_score(jobs, branch="main")
    >>> scores[["pipeline", "step", "rate", "low", "high", "p_above", "suspected"]].head(3).round(3)
       pipeline           step   rate    low   high  p_above  suspected
    0       web            e2e  0.141  0.054  0.225    1.000          0
    1  platform      test-http  0.044  0.000  0.127    0.563          0
    2       web  unit-checkout  0.002  0.000  0.002    0.025          1
    """
    _check_arguments(threshold, retries, branch, pipelines)
    check_states(jobs, "state")
    branches = None if pipelines is None else _list_branches(pipelines)
    storms = prepare_storms(jobs)
    summary = functools.partial(_sum_steps, branch, branches, storms)
    steps = summarize_steps(jobs, summary)
    rates = _rates(steps, threshold)
    powers = _powers(steps, threshold, retries)
    scores = pd.concat([steps, rates, powers], axis=1)
    scores["machine_s"] = steps["machine_us"].to_numpy(np.float64) / 1e6
    scores["waiting_s"] = steps["waiting_us"].to_numpy(np.float64) / 1e6
    scores = scores[[*STEP, *_COLUMNS]]
    scores = scores[scores[["outcomes", "n_storm", "n_without_commit"]].sum(axis=1) > 0]
    ranks = scores[["low", "rate"]].round(12)  # the last digits depend on the machine's sums
    order = ranks.sort_values(["low", "rate"], ascending=False, kind="stable").index
    return scores.loc[order].reset_index(drop=True)


def _sum_steps(
    branch: str | None,
    branches: pd.DataFrame | None,
    storms: pd.DataFrame | None,
    jobs: Frame,
) -> pd.DataFrame:
    """Return what the score of each step is computed from: counts, and times in microseconds."""
    has_branches = branch is not None or branches is not None
    needs = [*_NEEDS, *_NEEDS_OF_BRANCHES] if has_branches else _NEEDS
    attempts = read_attempts(jobs, needs, storms)
    outcomes = sum_outcomes(attempts)
    is_flaky = (outcomes["is_known"] & (outcomes["verdict"] == FLAKY)).to_numpy()
    counts = _count_commits(outcomes) | _sum_prices(attempts, is_flaky)

    n_steps = len(attempts.keys.steps)
    step = outcomes["step"].to_numpy()
    sums = {name: sum_flags(step, values, n_steps) for name, values in counts.items()}
    sums["red_builds"] = _count_red_builds(attempts, is_flaky)
    summary = pd.concat([pd.DataFrame(sums, dtype="Int64"), count_left_out(attempts)], axis=1)
    summary["suspected"] = pd.array([pd.NA] * n_steps, "Int64")
    if branches is not None:
        suspected = _count_suspected(attempts, _are_on_default_branch(attempts, branches))
        is_listed = attempts.keys.steps["pipeline"].isin(branches["slug"])
        summary["suspected"] = pd.Series(suspected, dtype="Int64").where(is_listed)
    elif branch is not None:
        suspected = _count_suspected(attempts, equals(attempts.rows, "branch", branch))
        summary["suspected"] = pd.array(suspected, "Int64")
    return join_keys(attempts.keys.steps, summary)


def _count_commits(outcomes: pd.DataFrame) -> dict[str, Flags | Integers]:
    """Return what counts of each variant of a step at a commit."""
    passes = outcomes["passes"].to_numpy()
    failures = outcomes["failures"].to_numpy()
    verdict = outcomes["verdict"].to_numpy()
    attempts = passes + failures
    is_known = (outcomes["is_known"] & outcomes["has_outcome"]).to_numpy()
    passed = is_known & (passes > 0)
    never_passed = is_known & (passes == 0)
    weight = _PARTS * _MAX_ATTEMPTS / np.maximum(attempts, _MAX_ATTEMPTS)
    counts = {"outcomes": is_known}
    for name in _SHOWN_VERDICTS:
        counts[name] = is_known & (verdict == VERDICTS.index(name))
    counts["passed"] = passed
    for k in _FAILURE_COUNTS:
        counts[f"failed_{k}"] = never_passed & _is_or_more(failures, k, MAX_FAILURES)
    counts["tried_again"] = is_known & (attempts > 1)
    for k in _ATTEMPT_COUNTS:
        counts[f"tried_{k}"] = passed & _is_or_more(attempts, k, _MAX_ATTEMPTS)
    weighted = {
        "passes": np.where(passed, np.floor(passes * weight), 0).astype(np.int64),
        "failures": np.where(passed, np.floor(failures * weight), 0).astype(np.int64),
    }
    return counts | weighted


def _is_or_more(count: Integers, k: int, most: int) -> Flags:
    return count == k if k < most else count >= k


def _sum_prices(attempts: StepAttempts, is_flaky: Flags) -> dict[str, Integers]:
    """Return the run time of failures, and the time from the first failure to the first pass.

    In microseconds, of each variant of a step at a commit; 0 unless it is flaky.
    """
    n_groups = len(attempts.groups)
    group = attempts.rows["group"].to_numpy()
    outcome = attempts.rows["outcome"].to_numpy()
    started = attempts.rows["started_at"].to_numpy(np.int64)
    ended = attempts.rows["finished_at"].to_numpy(np.int64)
    has_failed = np.flatnonzero((outcome == FAILURE) & is_flaky[group])
    has_passed = np.flatnonzero((outcome == PASS) & is_flaky[group])
    has_run = has_failed[(started[has_failed] != NAT) & (ended[has_failed] != NAT)]
    run_time = sum_by(group[has_run], (ended - started)[has_run], n_groups)

    first_failure = earliest_by(group[has_failed], ended[has_failed], n_groups)
    first_pass = earliest_by(group[has_passed], ended[has_passed], n_groups)
    has_waited = (first_failure != NAT) & (first_pass > first_failure)
    return {
        "machine_us": run_time,
        "waiting_us": np.where(has_waited, first_pass - first_failure, 0),
    }


def _count_red_builds(attempts: StepAttempts, is_flaky: Flags) -> Integers:
    """Count the builds with a failure of each step that was not retried, if its commit passed."""
    rows = attempts.rows
    turns_red = (rows["outcome"] == FAILURE).to_numpy() & is_flaky[rows["group"]]
    turns_red &= ~is_set(rows, "retried")
    red = rows.loc[turns_red, ["group", "build_id"]].dropna()
    red["step"] = attempts.groups["step"].to_numpy()[red["group"]]
    red = red[["step", "build_id"]].drop_duplicates()
    return np.bincount(red["step"], minlength=len(attempts.keys.steps))


def _are_on_default_branch(attempts: StepAttempts, branches: pd.DataFrame) -> Flags:
    """Return which attempts are on the default branch of their pipeline."""
    keys = {"pipeline": "slug"}
    if "organization" in branches:
        keys["organization"] = "organization"
    steps = attempts.keys.steps[[*keys]].assign(number=range(len(attempts.keys.steps)))
    of_steps = steps.merge(branches, left_on=[*keys], right_on=[*keys.values()])
    codes, names = pd.factorize(attempts.rows["branch"].astype(TEXT))
    chosen = pd.Index(names).get_indexer(pd.Index(of_steps["default_branch"]))
    # one number for each step and branch; -1 is a null branch, and one without attempts
    n_codes = len(names) + 1
    step = attempts.groups["step"].to_numpy()[attempts.rows["group"]]
    is_chosen = np.isin(step * n_codes + codes, of_steps["number"] * n_codes + chosen)
    return is_chosen & (codes >= 0)


def _count_suspected(attempts: StepAttempts, is_on_branch: Flags) -> Integers:
    """Count the commits at which each step failed once, between two at which it passed."""
    rows = attempts.rows[is_on_branch]
    order = {
        "created_at": rows["build_created_at"].to_numpy(np.int64),
        "build_number": rows["build_number"].to_numpy(np.int64, na_value=NAT),
    }
    commits = find_worst_verdicts(attempts._replace(rows=rows), order)
    has_verdict = commits["has_passed"] | (commits["verdict"] >= UNDECIDED)
    commits = commits[commits["is_known"] & has_verdict]
    commits = commits.sort_values(["step", *order], kind="stable")

    is_suspected = commits["verdict"] == UNDECIDED
    has_passed = commits["has_passed"] & ~commits["verdict"].isin([UNDECIDED, DETERMINISTIC])
    by_step = has_passed.groupby(commits["step"])
    is_suspected &= by_step.shift(1, fill_value=False) & by_step.shift(-1, fill_value=False)
    return np.bincount(commits["step"][is_suspected], minlength=len(attempts.keys.steps))


def _rates(steps: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """Estimate the rates of all steps together."""
    passed = steps["passed"].to_numpy(np.int64)
    failed = steps[[f"failed_{k}" for k in _FAILURE_COUNTS]].to_numpy(np.int64)
    failed = failed * (passed > 0)[:, None]
    counts = AttemptCounts(
        failures=steps["failures"].to_numpy(np.float64) / _PARTS,
        passes=steps["passes"].to_numpy(np.float64) / _PARTS,
        passed=passed,
        failed=failed,
    )
    posterior = estimate_rates(counts)
    low, high = posterior.interval(_CONFIDENCE)
    rates = {
        "rate": posterior.mean(),
        "low": low,
        "high": high,
        "p_above": posterior.above(threshold),
    }
    is_known = (passed > 0) & bool(steps["tried_again"].any())
    return pd.DataFrame(rates, steps.index).where(pd.Series(is_known, steps.index), axis=0)


def _powers(steps: pd.DataFrame, threshold: float, retries: int) -> pd.DataFrame:
    """Return the chance that a step with the rate `threshold` shows both outcomes at one commit.

    With n attempts at a commit that is 1 - p^n - (1 - p)^n.
    """
    n_attempts = np.array(_ATTEMPT_COUNTS)
    missed = np.log(threshold**n_attempts + (1 - threshold) ** n_attempts)
    n_commits = steps[[f"tried_{k}" for k in _ATTEMPT_COUNTS]].to_numpy(np.float64)
    planned = -np.expm1(n_commits @ missed) + 0.0  # not -0.0
    retried = _power_of_retries(threshold, steps["passed"].to_numpy(np.float64), retries)
    powers = {"power_planned": planned, "power_retried": retried}
    return pd.DataFrame(powers, steps.index, dtype=np.float64)


def _power_of_retries(rate: float, n_commits: Floats, retries: int) -> Floats:
    """Return the chance that a step shows both outcomes at one of n good commits.

    Each failure is tried again, so many times.
    """
    power: Floats = 1 - (1 - rate * (1 - rate**retries)) ** n_commits
    return power


def _list_branches(pipelines: Frame) -> pd.DataFrame:
    """Return the default branches of pipelines, with their organization if it is known."""
    if is_spark(pipelines):
        pipelines = spark_frames.collect_table(pipelines)
    listed = read_columns(pipelines, ["slug", "default_branch"], ["organization"])
    return listed.dropna().drop_duplicates()


def _check_arguments(
    threshold: float,
    retries: int,
    branch: str | None,
    pipelines: Frame | None,
) -> None:
    if not isinstance(threshold, float) or not 0 < threshold < 1:
        problem = f"threshold={show(threshold)} is not a fraction between 0 and 1."
        raise BadInput(f"{problem} Use one such as 0.01.")
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 1:
        raise BadInput(f"retries={show(retries)} is not a whole number of at least 1.")
    if not isinstance(branch, str | None) or (branch is not None and pipelines is not None):
        choices = 'branch="main" for all pipelines, pipelines=ws.pipelines() for the default branch'
        raise BadInput(f"Pass {choices} of each, or neither.")
