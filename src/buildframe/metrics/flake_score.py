"""Estimate how likely each step fails at random, whether its runs could have shown it, and what it costs.

Knows outcomes of attempts, not the tests inside a job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.attempts import (
    COMMIT,
    HAS_OUTCOME,
    VARIANT,
    VERDICTS,
    count_red_builds,
    select_attempts,
    sum_outcomes,
)
from buildframe.metrics.columns import Floats
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.dtypes import micros_column
from buildframe.metrics.engines.rows import Frame, GroupedRows, GroupSums
from buildframe.metrics.engines.storms import STORM
from buildframe.metrics.flake_rates import MAX_FAILURES, AttemptCounts, estimate_rates
from buildframe.metrics.grouping import join_keys
from buildframe.terminal import show

_CONFIDENCE = 0.9
_MAX_ATTEMPTS = 5
"""More attempts at one commit count as so many, because they say less than attempts at several commits."""

_PARTS = 100
"""Attempts are counted in hundredths."""

_NEVER = 2**60
"""A time later than all others, in microseconds."""

_VERDICTS = VERDICTS[:0:-1]
_FLAKY, _UNDECIDED = VERDICTS.index("flaky"), VERDICTS.index("undecided")


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
    Estimate the rate at which each step fails at random, with a credible interval, and what its failures cost.

    The rate is the chance that an attempt fails although its commit is good. Steps with few attempts are estimated from
    what all steps have in common.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns that `outcomes_by_commit` needs, and
        `retried`, `started_at` and `build_id`.
    threshold : float, default 0.01
        Rate above which a step counts as flaky, a fraction in (0, 1).
    retries : int, default 1
        How often a failure is tried again, for `power_retried`; at least 1.
    branch : str, optional
        Default branch of all pipelines, to count suspected flakes. Pass either this or `pipelines`, or none. Needs the
        columns `branch`, `build_created_at` and `build_number`.
    pipelines : DataFrame, optional
        Result of `ws.pipelines()`, with the default branch of each pipeline.

    Returns
    -------
    pandas.DataFrame
        One row per organization, pipeline and step, highest `low` first, then highest `rate`, then by key. An empty
        frame gives no rows.

        ================ ======= ====================================================================
        organization     str     organization of the jobs
        pipeline         str     pipeline of the jobs
        step             str     see `metrics.step`
        rate             float64 mean of the posterior: chance that an attempt fails at random; NaN
                                 if the step never passed, or nothing was tried again
        low, high        float64 shortest interval with 90 % of the posterior
        p_above          float64 probability that the rate exceeds `threshold`
        outcomes         Int64   rows of `outcomes_by_commit`: commits, each once for every matrix value
                                 and shard that has an outcome there
        flaky            Int64   rows of these with this verdict
        deterministic    Int64   rows of these with this verdict
        undecided        Int64   rows of these with this verdict
        killed           Int64   rows of these with this verdict
        infrastructure   Int64   rows of these with this verdict; all others passed
        suspected        Int64   undecided commits between two that passed; null without a branch
        power_planned    float64 chance that a step with the rate `threshold` would have shown both
                                 outcomes at one commit, in the attempts at the commits that passed
        power_retried    float64 the same if each failure had been tried again, `retries` times
        red_builds       Int64   builds that it turned red although the commit passed otherwise, each
                                 once for any number of attempts, matrix values and shards
        machine_s        float64 seconds of run time of its failures at commits that passed
        waiting_s        float64 seconds from such a failure to the commit's first pass, if that
                                 came later
        n_storm          Int64   attempts in a storm; left out
        n_without_commit Int64   attempts without a commit, or at `HEAD`; left out
        ================ ======= ====================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `state` holds states in an unknown spelling, `threshold`
        or `retries` is out of range, or both `branch` and `pipelines` are given.

    See Also
    --------
    flips : The commits at which a step both failed and passed.
    outcomes_by_commit : The evidence, with the definition of verdicts.
    detection_power : How many runs show a flaky step.

    Notes
    -----
    An attempt at a good commit fails with the rate p of its step, and at a broken commit always. A commit that passed
    was good; one that only failed was broken, or unlucky with chance p^k after k failures. The share of broken commits
    of a step is integrated with the prior of Jeffreys. Some steps never fail at random, and the rates of the others
    have a Beta distribution. That share of steps and both parameters are integrated over a grid, because plugging in
    the best ones would make intervals too short [1]_. Attempts of a matrix value or a shard are compared with its own
    only. More than 5 attempts at one commit count as 5.

    In simulations of steps with automatic or random retries, or planned runs, the intervals contain 87 to 96 % of the
    rates. Limits: random failures are taken to be independent, and failures to be tried again whatever their cause. If
    people try again only what they believe to be random, rates are too high where many commits are `undecided`: in
    simulations up to three times, and then as few as 29 % of the intervals contain the rate. If no commit was tried
    more than once, nothing separates random failures from broken commits, and rates are NaN. A step that is never tried
    again, among others that are, gets the rate that these make likely: see `power_retried` and `suspected`.

    A step that never passed has no rate, because a lasting failure is a regression and not a flake. For the same reason
    both powers count only commits that passed, which are good: one that only failed was probably broken.

    Attempts in a storm are left out, as in `outcomes_by_commit`. Storms can be missed: in simulations of a month, 13 of
    26 were found, some of them only in part. Failures of the others that were tried again count as random.

    A suspected flake failed once at a commit of the default branch, was not tried again, and passed at the commits
    before and after, in the order of their builds.

    The price counts commits with the verdict flaky. A build that two steps turned red counts for both. What a rebuild
    repeated for other steps is in `waste`.

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
    needs = [] if branch is None and pipelines is None else ["branch", "build_created_at", "build_number"]
    needs += [] if pipelines is None else ["organization", "pipeline"]
    attempts = select_attempts(jobs, "retried", "started_at", "build_id", *needs)
    counted = _sum_steps(_sum_commits(attempts))
    scores = _rates(counted.sums, threshold).join(_powers(counted.sums, threshold, retries)).join(_prices(counted.sums))
    scores["red_builds"] = counted.align(count_red_builds(attempts))["builds"]
    scores["suspected"] = pd.array([pd.NA] * len(scores), "Int64")
    if needs:
        suspected = counted.align(_count_suspected(_select_branch(attempts, branch, pipelines)))["suspected"]
        if pipelines is not None:
            suspected = suspected.where(counted.keys["pipeline"].isin(_list_branches(pipelines)["slug"]))
        scores["suspected"] = suspected
    counts = counted.sums[["outcomes", *_VERDICTS, "n_storm", "n_without_commit"]]
    result = join_keys(counted.keys, counts.join(scores))[[*counted.keys, *_COLUMNS]]
    result = result[result[["outcomes", "n_storm", "n_without_commit"]].sum(axis=1) > 0]
    ranks = result[["low", "rate"]].round(12)  # equal steps differ in the last digits, depending on the machine's sums
    order = ranks.sort_values(["low", "rate"], ascending=False, kind="stable").index
    return result.loc[order].reset_index(drop=True)


_COLUMNS = [
    "rate", "low", "high", "p_above", "outcomes", *_VERDICTS, "suspected", "power_planned", "power_retried",
    "red_builds", "machine_s", "waiting_s", "n_storm", "n_without_commit",
]  # fmt: skip


@checked_names
def detection_power(
    rate: npt.ArrayLike,
    runs: npt.ArrayLike | None = None,
    *,
    commits: npt.ArrayLike | None = None,
    retries: int | None = None,
) -> Floats:
    """
    Compute the chance that a step which fails at random shows both outcomes at one commit.

    Pass `runs` for a plan that runs each commit so many times, or `commits` if only failures are tried again.

    Parameters
    ----------
    rate : array_like of float
        Chance that an attempt at a good commit fails, from 0 to 1.
    runs : array_like of int, optional
        Number of runs at each commit: one number per commit, for all rates.
    commits : array_like of int, optional
        Number of good commits, one number or one for each rate.
    retries : int, optional
        How often a failure is tried again until it passes, at least 1; only with `commits`. The default is 1.

    Returns
    -------
    numpy.ndarray of float64
        Chance for each rate.

    Raises
    ------
    BadInput
        If a rate lies outside 0 to 1, `runs` or `commits` has a number that is negative or not whole, `rate` and
        `commits` have shapes that do not fit, `runs` is not one list, not exactly one of `runs` and `commits` is given,
        or `retries` is given beside `runs`.

    See Also
    --------
    flake_score : The power of the attempts in a frame.

    Notes
    -----
    For runs n_c at each commit c it is 1 − ∏ (p^n_c + (1 − p)^n_c). With r retries at C commits it is
    1 − (1 − p (1 − p^r))^C. Only runs at the same commit are compared, so the total number of runs does not decide: 50
    commits that run once show nothing.

    Examples
    --------
    >>> metrics.detection_power(0.02, runs=[1] * 50).item()
    0.0
    >>> round(metrics.detection_power(0.02, runs=[50]).item(), 2)
    0.64
    >>> metrics.detection_power([0.01, 0.05], commits=100).round(2).tolist()
    [0.63, 0.99]
    """
    p = _numbers("rate", rate)
    if not np.all((p >= 0) & (p <= 1)):
        raise BadInput(
            f"rate={show(rate)} is not between 0 and 1. Pass the chance that an attempt fails, such as 0.02."
        )
    if (runs is None) == (commits is None):
        raise BadInput("Pass either runs=[3, 3, 2], the runs at each commit, or commits=100 if failures are retried.")
    if commits is not None:
        return _power_of_retries(p, _whole_numbers("commits", commits), 1 if retries is None else retries)
    if retries is not None:
        raise BadInput(
            f"retries={show(retries)} has no meaning beside runs. Leave it out, or pass commits=100 for runs."
        )
    each = _whole_numbers("runs", runs)
    if each.ndim > 1:
        raise BadInput(f"runs={show(runs)} is not one list. Pass the number of runs at each commit, such as [3, 3, 2].")
    n, times = np.unique(each, return_counts=True)
    n, times = n[n > 0], times[n > 0]
    return np.asarray(1 - np.prod((p[..., None] ** n + (1 - p[..., None]) ** n) ** times, axis=-1))


def _power_of_retries(p: Floats, commits: Floats, retries: int) -> Floats:
    _check_retries(retries)
    if commits.ndim and p.ndim and commits.shape != p.shape:
        shapes = f"rate has the shape {p.shape}, and commits has {commits.shape}"
        raise BadInput(f"{shapes}. Pass one number of commits, or one for each rate.")
    return np.asarray(1 - (1 - p * (1 - p**retries)) ** commits)


def _numbers(name: str, values: Any) -> Floats:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{name}={show(values)} is not a number or a list of numbers.") from None


def _whole_numbers(name: str, values: Any) -> Floats:
    numbers = _numbers(name, values)
    if not np.all((numbers >= 0) & (numbers == np.floor(numbers)) & (numbers < np.inf)):
        raise BadInput(
            f"{name}={show(values)} has a value that is not a whole number of at least 0. Pass counts such as 3."
        )
    return numbers


def _check_retries(retries: int) -> None:
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 1:
        raise BadInput(f"retries={show(retries)} is not a whole number of at least 1.")


def _check_arguments(threshold: float, retries: int, branch: str | None, pipelines: Frame | None) -> None:
    if not isinstance(threshold, float) or not 0 < threshold < 1:
        raise BadInput(f"threshold={show(threshold)} is not a fraction between 0 and 1. Use one such as 0.01.")
    _check_retries(retries)
    if not isinstance(branch, str | None) or (branch is not None and pipelines is not None):
        raise BadInput(
            'Pass branch="main" for all pipelines, pipelines=ws.pipelines() for the default branch of each, or neither.'
        )


def _sum_commits(attempts: GroupedRows) -> GroupedRows:
    """Sum the outcomes of each step at each commit, of each matrix value and shard, and what failures cost."""
    passes, failures = nw.col("passes"), nw.col("failures")
    begin, end = (nw.col(micros_column(name)) for name in ("started_at", "finished_at"))
    ended = end.fill_null(_NEVER)
    timed = attempts.with_micros(["started_at", "finished_at"]).with_columns(
        machine=failures * (end - begin).fill_null(0),
        passed_at=ended + (1 - passes) * _NEVER,
        failed_at=ended + (1 - failures) * _NEVER,
    )
    sums = {name: nw.col(name).sum() for name in ("machine", "unknown")}
    return sum_outcomes(timed, **sums, **{name: nw.col(name).min() for name in ("passed_at", "failed_at")})


def _sum_steps(commits: GroupedRows) -> GroupSums:
    """Count the commits of each step, and sum what `estimate_rates` needs and what flaky commits cost."""
    passes, failures, verdict = nw.col("passes"), nw.col("failures"), nw.col("verdict")
    is_known = (nw.col("unknown") == 0) & HAS_OUTCOME
    flags = {"known": is_known, "passed": is_known & (passes > 0), "is_flaky": is_known & (verdict == _FLAKY)}
    commits = commits.with_columns(**flags, attempts=passes + failures)  # pandas would compute them for each sum
    known, passed, is_flaky, attempts = (nw.col(name) for name in (*flags, "attempts"))
    waited = nw.col("passed_at") - nw.col("failed_at")
    scaled = (_PARTS * _MAX_ATTEMPTS) / attempts.clip(_MAX_ATTEMPTS)
    late = is_flaky & (waited > 0) & (waited < _NEVER // 2)
    steps = commits.engine.without_level(commits.engine.without_level(commits, VARIANT), COMMIT)
    return commits.engine.group_sums(
        steps,
        outcomes=known,
        **{name: known & (verdict == VERDICTS.index(name)) for name in _VERDICTS},
        passed=passed,
        **{f"parts {name}": _if(passed, (nw.col(name) * scaled).floor()) for name in ("passes", "failures")},
        **{f"failed {k}": known & (passes == 0) & _is_or_more(failures, k, MAX_FAILURES) for k in _up_to(MAX_FAILURES)},
        tried_again=known & (attempts > 1),
        **{f"tried {k}": passed & _is_or_more(attempts, k, _MAX_ATTEMPTS) for k in _up_to(_MAX_ATTEMPTS)[1:]},
        machine=_if(is_flaky, nw.col("machine")),
        waited=_if(late, waited),
        n_storm=nw.col(STORM),
        n_without_commit=nw.col("unknown"),
    )


def _up_to(most: int) -> list[int]:
    return list(range(1, most + 1))


def _is_or_more(count: nw.Expr, k: int, most: int) -> nw.Expr:
    return count == k if k < most else count >= k


def _if(flag: nw.Expr, value: nw.Expr) -> nw.Expr:
    """Return the value where the flag is set, else 0; a product takes a fifth of the time of a condition in pandas."""
    return flag.cast(nw.Int64) * value.cast(nw.Int64)


def _rates(sums: pd.DataFrame, threshold: float) -> pd.DataFrame:
    passed = sums["passed"].to_numpy(np.int64)
    failed = sums[[f"failed {k}" for k in _up_to(MAX_FAILURES)]].to_numpy(np.int64) * (passed > 0)[:, None]
    parts = {name: sums[f"parts {name}"].to_numpy(np.float64) / _PARTS for name in ("failures", "passes")}
    posterior = estimate_rates(AttemptCounts(**parts, passed=passed, failed=failed))
    low, high = posterior.interval(_CONFIDENCE)
    rates = {"rate": posterior.mean(), "low": low, "high": high, "p_above": posterior.above(threshold)}
    is_known = (passed > 0) & bool(sums["tried_again"].any())
    return pd.DataFrame({name: np.where(is_known, own, np.nan) for name, own in rates.items()}, sums.index)


def _powers(sums: pd.DataFrame, threshold: float, retries: int) -> pd.DataFrame:
    runs = np.array(_up_to(_MAX_ATTEMPTS)[1:])
    missed = np.log(threshold**runs + (1 - threshold) ** runs)
    planned = -np.expm1(sums[[f"tried {k}" for k in runs]].to_numpy(np.float64) @ missed)
    retried = detection_power(threshold, commits=sums["passed"].to_numpy(np.float64), retries=retries)
    return pd.DataFrame({"power_planned": planned + 0.0, "power_retried": retried}, sums.index, dtype=np.float64)


def _prices(sums: pd.DataFrame) -> pd.DataFrame:
    machine_s, waiting_s = (sums[name].to_numpy(np.float64) / 1e6 for name in ("machine", "waited"))
    return pd.DataFrame({"machine_s": machine_s, "waiting_s": waiting_s}, sums.index)


def _select_branch(attempts: GroupedRows, branch: str | None, pipelines: Frame | None) -> GroupedRows:
    """Return the attempts on the default branch of their pipeline."""
    if pipelines is None:
        return replace(attempts, frame=attempts.frame.filter((nw.col("branch") == branch).fill_null(False)))
    listed = _list_branches(pipelines)
    engine, names = attempts.engine, {"pipeline": "slug", "branch": "default_branch"}
    names |= {"organization": "listed_organization"} if "listed_organization" in listed else {}
    return replace(attempts, frame=engine.join_nulls_equal(attempts.frame, engine.bring(attempts.frame, listed), names))


def _list_branches(pipelines: Frame) -> pd.DataFrame:
    listed = engine_of(pipelines).collect_columns(pipelines, ["slug", "default_branch"], ["organization"])
    return listed.rename(columns={"organization": "listed_organization"}).dropna().drop_duplicates()


def _count_suspected(attempts: GroupedRows) -> GroupSums:
    """Count the commits at which a step failed once, between two at which it passed."""
    engine, order = attempts.engine, {name: nw.col(name).min() for name in ("build_created_at", "build_number")}
    variants = sum_outcomes(attempts, unknown=nw.col("unknown").sum(), **order)
    commits = engine.without_level(variants, VARIANT)
    each = commits.frame.group_by(*commits.by).agg(nw.col("verdict", "passes", "unknown").max(), **order)
    known = each.filter((nw.col("unknown") == 0) & ((nw.col("passes") > 0) | (nw.col("verdict") >= _UNDECIDED)))
    known = known.with_columns(passed=(nw.col("passes") > 0) & ~nw.col("verdict").is_in([_UNDECIDED, _UNDECIDED + 1]))
    steps = engine.without_level(replace(commits, frame=known), COMMIT)
    passed, at = nw.col("passed").cast(nw.Int64), list(order)
    around = {name: passed.shift(by).over(*steps.by, order_by=at) for name, by in (("before", 1), ("after", -1))}
    is_between = (nw.col("verdict") == _UNDECIDED) & (nw.col("before") == 1) & (nw.col("after") == 1)
    return engine.group_sums(steps.with_columns(**around), suspected=is_between.fill_null(False))
