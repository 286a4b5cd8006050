"""Steps whose outcome changed while the code did not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics.engines import Frame, Rows, as_pandas, is_pandas, rows, tally
from buildframe.metrics.groups import beside
from buildframe.metrics.outcomes import OUTCOME, has_failed_hard, has_passed, is_script, was_lost
from buildframe.metrics.rates import shares
from buildframe.metrics.steps import step

_STEP = ["organization", "pipeline", "step"]
_VARIANT = ["commit", "matrix", "parallel_group_index"]
_NEEDS = ("organization", "pipeline", *_VARIANT, "type", *OUTCOME, "finished_at")
_COUNTS = ("passes", "failures", "lost")

_VERDICTS = np.array(["passed", "infrastructure", "undecided", "deterministic", "flaky"], object)
"""From the best to the worst; as a number, the place in here."""


def outcomes_by_commit(jobs: Frame) -> pd.DataFrame:
    """What all attempts of a step at one commit tell, over retries, rebuilds and branches.

    Only like is compared with like: the same organization, pipeline, step (as `metrics.step`), commit, value of the
    matrix and parallel index. Counted are script jobs that passed or failed hard; soft failures, canceled, skipped and
    unfinished jobs tell nothing. Attempts without a commit, or at `HEAD` (a build whose commit was not yet resolved),
    are left out; `flips` counts them. Fetch with `include_retried_jobs=True`, or all but the last attempts are missing.
    Each row counts: drop duplicates by `id` first. Needs these columns with `name` and `step_key` (in engines other
    than pandas `step`, as `with_seconds` adds it), `type`, `state`, `soft_failed`, `exit_status`, `signal`,
    `finished_at`.

    One row for each of these that has an outcome, ordered by them, nulls last; columns: the six, then
    `passes` (Int64);
    `failures` (Int64): hard failures (failed or timed out, not softly) that are not
    `lost` (Int64): lost to infrastructure (failed with exit status -1, or a signal);
    `first_at`, `last_at` (datetime64[us, UTC]): when the first and the last of these ended;
    `verdict` (str): `flaky`: at least one failure and one pass; `deterministic`: at least two failures and no pass (a
    lasting failure is a regression, not a flake); `undecided`: one failure that was not tried again;
    `infrastructure`: lost at least once, and else passed or nothing else; `passed`: nothing but passes.
    A verdict is of what was seen: a flake that always struck, or never yet, is not told from the rest.
    An empty frame gives these columns and no rows. BadInput: a missing column.
    """
    keys = [*_STEP, *_VARIANT]
    ends = {"first_at": nw.col("finished_at").min(), "last_at": nw.col("finished_at").max()}
    told = _verdicts(_attempts(jobs).filter(~nw.col("commit").is_null()), keys, **ends)
    found = as_pandas(told.sort(keys, nulls_last=True)).reset_index(drop=True)
    verdict = pd.Series(_VERDICTS[found.pop("verdict").to_numpy(np.intp)], index=found.index, dtype="str")
    return found.astype(dict.fromkeys(_COUNTS, "Int64")).assign(verdict=verdict)


def flips(jobs: Frame) -> pd.DataFrame:
    """Steps ranked by how surely they flip: commits at which a step both failed and passed, infrastructure apart.

    A commit counts once for a step, however many retries, rebuilds, shards and values of the matrix it had there. Of
    these its verdict is the worst, in the order flaky, deterministic, undecided, infrastructure, passed (as
    `outcomes_by_commit` tells them, which also says what is counted, what is left out and which columns are needed);
    so a failed shard beside a passed one is no flip. The rate is one of commits, and higher than that of attempts.
    A step that is never tried again cannot be seen to flip.

    One row for each organization, pipeline and step, the highest `low` first, then by key; columns: these, then
    `commits` (Int64): commits with an outcome; `commits_passed` (Int64): of these, with at least one pass;
    `flaky`, `deterministic`, `undecided`, `infrastructure` (Int64): `commits` by verdict, the rest passed;
    `n_without_commit` (Int64): attempts (not commits) left out, since their commit is null or `HEAD`;
    `flake_rate` (float64 between 0 and 1): `flaky` / `commits_passed`, with `low` and `high`, its Wilson 95 %
    interval; NaN where no commit passed.
    An empty frame gives these columns and no rows. BadInput: a missing column.
    """
    found = _in_steps(_attempts(jobs).to_native())
    variants = _verdicts(found.frame, [*found.by, *_VARIANT])
    variants = variants.with_columns(attempts=nw.sum_horizontal(*_COUNTS), passed=_flag(nw.col("passes") > 0))
    highest = [nw.col(name).max() for name in ("verdict", "passed")]
    commits = variants.group_by(*found.by, "commit").agg(*highest, nw.col("attempts").sum())
    known = ~nw.col("commit").is_null()
    counted = tally(
        replace(found, frame=commits),
        commits=known,
        commits_passed=known & (nw.col("passed") > 0),
        **{name: known & (nw.col("verdict") == i) for i, name in reversed([*enumerate(_VERDICTS)][1:])},
        n_without_commit=nw.when(~known).then(nw.col("attempts")).otherwise(nw.lit(0)),
    )
    rates = shares(counted.sums["flaky"], counted.sums["commits_passed"]).rename(columns={"rate": "flake_rate"})
    ranked = beside(counted.keys, pd.concat([counted.sums, rates], axis=1))
    return ranked.sort_values("low", ascending=False, kind="stable", ignore_index=True)


def _attempts(jobs: Frame) -> nw.LazyFrame[Any]:
    """The script jobs with an outcome (0 or 1 in _COUNTS) and what tells them apart; an unknown commit is null."""
    named = jobs.assign(step=step(jobs)) if is_pandas(jobs) else jobs
    failed = has_failed_hard()
    told = {"passes": has_passed(), "failures": failed & ~was_lost(), "lost": was_lost()}
    flags = {name: _flag(outcome) for name, outcome in told.items()}
    commit = nw.when(nw.col("commit") != "HEAD").then(nw.col("commit"))
    attempts = rows(named, (*_NEEDS, "step")).frame.filter(is_script() & (has_passed() | failed))
    return attempts.select(*_STEP, *_VARIANT[1:], "finished_at", commit=commit, **flags)


def _in_steps(attempts: Frame) -> Rows:
    """The attempts in groups of a step; in pandas the texts of a variant become numbers, which group much faster."""
    numbers: dict[str, Any] = {}
    if is_pandas(attempts):
        codes = {name: pd.factorize(attempts[name])[0] for name in _VARIANT}
        numbers = {name: np.where(code < 0, np.nan, code) for name, code in codes.items()}
    return rows(attempts, (*_VARIANT, *_COUNTS), _STEP, **numbers)


def _verdicts(attempts: nw.LazyFrame[Any], keys: list[str], **ends: nw.Expr) -> nw.LazyFrame[Any]:
    """The outcomes of what is alike, added up, and the number of the verdict."""
    added = attempts.group_by(*keys).agg(*(nw.col(name).sum() for name in _COUNTS), **ends)
    return added.with_columns(verdict=_verdict())


def _verdict() -> nw.Expr:
    """The place of the verdict in _VERDICTS."""
    passes, failures, lost = (nw.col(name) for name in _COUNTS)
    unlike = nw.when(passes > 0).then(nw.lit(4)).otherwise(nw.when(failures > 1).then(nw.lit(3)).otherwise(nw.lit(2)))
    return nw.when(failures > 0).then(unlike).otherwise(_flag(lost > 0))


def _flag(flag: nw.Expr) -> nw.Expr:
    return flag.cast(nw.Int64)
