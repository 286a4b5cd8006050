"""Steps whose outcome changed while the code did not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.metrics import spark
from buildframe.metrics.engines import GROUP, Frame, Rows, as_pandas, collected, is_pandas, lazy, rows, tally
from buildframe.metrics.groups import Key, beside, groups_of
from buildframe.metrics.outcomes import OUTCOME, has_failed_hard, has_passed, is_script, was_lost
from buildframe.metrics.rates import shares
from buildframe.metrics.states import check_states
from buildframe.metrics.steps import step

_STEP: list[Key] = ["organization", "pipeline", step]
_LIKE = ["matrix", "parallel_group_index"]
_NAMES = ["organization", "pipeline", "step", "commit", *_LIKE]
_NEEDS = ("commit", "type", *OUTCOME, "finished_at")
_COUNTS = ["passes", "failures", "lost"]

_VERDICTS = np.array(["passed", "infrastructure", "undecided", "deterministic", "flaky"], object)
"""From the best to the worst; as a number, the place in here."""


@checked_names
def outcomes_by_commit(jobs: Frame) -> Any:
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
    A pandas frame; of a frame of PySpark one of PySpark, in no order, which is computed when rows are asked for.
    An empty frame gives these columns and no rows. BadInput: a missing column.
    """
    found = _attempts(jobs, only_known=True)
    ends = {"first_at": nw.col("finished_at").min(), "last_at": nw.col("finished_at").max()}
    told = _summed(found.rows, found.variant, **ends).with_columns(verdict=_verdict())
    if spark.is_spark(told):
        named = {name: nw.col(variant) for name, variant in zip(_NAMES, found.variant, strict=True)}
        return told.select(**named, **{name: nw.col(name) for name in (*_COUNTS, *ends)}, verdict=_words()).to_native()
    variants = as_pandas(told.sort(found.variant, nulls_last=True)).reset_index(drop=True)
    verdict = pd.Series(_VERDICTS[variants["verdict"].to_numpy(np.intp)], variants.index, dtype="str")
    summary = variants[[*_COUNTS, *ends]].astype(dict.fromkeys(_COUNTS, "Int64"))
    return beside(found.texts(variants), summary.assign(verdict=verdict))


@checked_names
def flips(jobs: Frame) -> pd.DataFrame:
    """Steps ranked by how surely they flip: commits at which a step both failed and passed, infrastructure apart.

    A commit counts once for a step, however many retries, rebuilds, shards and values of the matrix it had there. Of
    these its verdict is the worst, in the order flaky, deterministic, undecided, infrastructure, passed (as
    `outcomes_by_commit` tells them, which also says what is counted, what is left out and which columns are needed);
    so a failed shard beside a passed one is no flip. The rate is one of commits, and not that of attempts: failures
    at a rate p, retried once, flip p / (1 + p) of the commits that passed.
    A step that is never tried again cannot be seen to flip.

    One row for each organization, pipeline and step, the highest `low` first, then by key; columns: these, then
    `commits` (Int64): commits with an outcome; `commits_passed` (Int64): of these, with at least one pass;
    `flaky`, `deterministic`, `undecided`, `infrastructure` (Int64): `commits` by verdict, the rest passed;
    `n_without_commit` (Int64): attempts (not commits) left out, since their commit is null or `HEAD`;
    `flake_rate` (float64 between 0 and 1): `flaky` / `commits_passed`, with `low` and `high`, its Wilson 95 %
    interval; NaN where no commit passed.
    An empty frame gives these columns and no rows. BadInput: a missing column.
    """
    found = _attempts(jobs, only_known=False)
    unknown = nw.col("unknown").sum()
    variants = _summed(found.rows, found.variant, unknown=unknown)
    variants = variants.with_columns(verdict=_verdict(), **found.numbers)
    worst = {name: nw.col(name).max() for name in ("verdict", "passes", *found.step) if name not in found.commit}
    commits = variants.group_by(*found.commit).agg(**worst, unknown=unknown)
    known = nw.col("unknown") == 0
    counted = tally(
        Rows(commits, found.step, _NAMES[:3], found.keys[0] if found.keys else None),
        commits=known,
        commits_passed=known & (nw.col("passes") > 0),
        **{name: known & (nw.col("verdict") == i) for i, name in reversed([*enumerate(_VERDICTS)][1:])},
        n_without_commit=nw.col("unknown"),
    )
    rates = shares(counted.sums["flaky"], counted.sums["commits_passed"]).rename(columns={"rate": "flake_rate"})
    ranked = beside(counted.keys, pd.concat([counted.sums, rates], axis=1))
    ranked = ranked[ranked["commits"] + ranked["n_without_commit"] > 0]
    return ranked.sort_values("low", ascending=False, kind="stable", ignore_index=True)


@dataclass(frozen=True)
class _Attempts:
    """Script jobs with an outcome (1 or 0 in _COUNTS; `unknown` is 1 where the commit is), and what tells them apart.

    `variant`, `commit` and `step` are columns. In pandas it is one each, a number, since those group much faster than
    texts; then `numbers` makes the latter two from the first, and `keys` are what the numbers stand for that make it.
    """

    rows: nw.LazyFrame[Any]
    variant: list[str]
    commit: list[str]
    step: list[str]
    numbers: dict[str, nw.Expr]
    keys: list[pd.DataFrame]

    def texts(self, variants: pd.DataFrame) -> pd.DataFrame:
        """The six columns that users know variants by."""
        if not self.keys:
            return variants[self.variant].set_axis(_NAMES, axis=1)
        _, commits, likes = self.keys
        left, like = np.divmod(variants["variant"].to_numpy(), len(likes))
        numbers = (*np.divmod(left, len(commits)), like)
        found = [keys.take(one).reset_index(drop=True) for keys, one in zip(self.keys, numbers, strict=True)]
        return pd.concat(found, axis=1)


def _attempts(jobs: Frame, *, only_known: bool) -> _Attempts:
    """Those of all jobs, or only those at a known commit."""
    check_states(jobs, "state")
    found = _numbered(jobs) if is_pandas(jobs) else _named(jobs)
    return replace(found, rows=_ended(found, only_known=only_known))


def _named(jobs: Frame) -> _Attempts:
    """All jobs and whether the commit is `unknown`."""
    found = rows(jobs, _NEEDS, [*_STEP, "commit", *_LIKE])
    unknown = ~(nw.col("commit") != "HEAD").fill_null(False)
    return _Attempts(found.frame.with_columns(unknown=unknown), found.by, found.by[:4], found.by[:3], {}, [])


def _numbered(jobs: pd.DataFrame) -> _Attempts:
    """The same with numbers."""
    groups = [groups_of(jobs, _STEP), groups_of(jobs, "commit"), groups_of(jobs, _LIKE)]
    keys = [one.keys for one in groups]
    step, commit, like = (one.codes for one in groups)
    is_unknown = keys[1]["commit"].isin(["HEAD", None]).to_numpy()
    variant = (step * len(keys[1]) + commit) * len(keys[2]) + like
    frame = lazy(collected(jobs, _NEEDS).assign(variant=variant, unknown=is_unknown[commit]))
    at_commit = nw.col("variant") // max(len(keys[2]), 1)
    numbers = {"at commit": at_commit, GROUP: at_commit // max(len(keys[1]), 1)}
    return _Attempts(frame, ["variant"], ["at commit"], [GROUP], numbers, keys)


def _ended(found: _Attempts, *, only_known: bool) -> nw.LazyFrame[Any]:
    """The script jobs with an outcome; flags first, since texts are dear to filter."""
    hard, lost = nw.col("hard"), nw.col("lost")
    flags = {"script": is_script(), "passes": has_passed(), "hard": has_failed_hard(), "lost": was_lost()}
    told = found.rows.select(*found.variant, "finished_at", "unknown", **flags)
    counted = nw.col("script") & (nw.col("passes") | hard)
    told = told.filter(counted & ~nw.col("unknown") if only_known else counted)
    outcomes = {"passes": nw.col("passes"), "failures": hard & ~lost, "lost": lost, "unknown": nw.col("unknown")}
    return told.with_columns(**{name: flag.cast(nw.Int64) for name, flag in outcomes.items()})


def _summed(attempts: nw.LazyFrame[Any], by: list[str], **more: nw.Expr) -> nw.LazyFrame[Any]:
    """The outcomes of what is alike, added up."""
    return attempts.group_by(*by).agg(*(nw.col(name).sum() for name in _COUNTS), **more)


def _words() -> nw.Expr:
    """The verdict whose place is known."""
    place = nw.col("verdict")
    words = nw.lit(str(_VERDICTS[0]))
    for i, word in enumerate(_VERDICTS[1:], 1):
        words = nw.when(place == i).then(nw.lit(str(word))).otherwise(words)
    return words


def _verdict() -> nw.Expr:
    """The place of the verdict in _VERDICTS."""
    passes, failures, lost = (nw.col(name) for name in _COUNTS)
    unlike = nw.when(passes > 0).then(nw.lit(4)).otherwise(nw.when(failures > 1).then(nw.lit(3)).otherwise(nw.lit(2)))
    return nw.when(failures > 0).then(unlike).otherwise((lost > 0).cast(nw.Int64))
