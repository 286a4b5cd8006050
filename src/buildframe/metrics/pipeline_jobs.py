"""Read jobs of whole pipelines as arrays. Does not know what they waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from buildframe.metrics import retries
from buildframe.metrics.columns import (
    NAT,
    TEXT,
    TIMESTAMP,
    Flags,
    Integers,
    check_unique_ids,
    require_columns,
    timestamp_micros,
    timestamps,
)
from buildframe.metrics.input_frames import Frame, column_names
from buildframe.metrics.job_ends import IS_OVER, with_ends
from buildframe.metrics.row_flags import equals, is_any_of, is_set
from buildframe.metrics.steps import step

GROUP = "number of the pipeline"
"""Column that distinguishes pipelines in the tables of this module."""

NEEDS = (
    "id", "build_id", "type", "state", "step", "soft_failed", "retried_in_job_id",
    "created_at", "runnable_at", "started_at", "finished_at", "unblocked_at",
)  # fmt: skip
"""Columns of jobs that are needed, besides those that identify their pipeline."""

WANTS = ("label", "expired_at", "build_finished_at", "fetched_at", *retries.COLUMNS)
"""Optional columns.

Block steps have a label for a name, some jobs end without `finished_at`, and the others say how
jobs were retried.
"""


@dataclass(frozen=True)
class PipelineJobs:
    """Jobs ordered by pipeline and id, as arrays.

    Times are microseconds; builds and steps have numbers.

    `ready` is when a job became runnable or was unblocked; if that is unknown (`is_exact` is
    false), the first other time that is known. Only script jobs have `started`. `finished` is `NAT`
    if a job is under way or, as `is_over` then shows, ended at an unknown time. `released` is when
    it let other jobs start, and `failed` when it failed hard, both by its own `finished_at` only.
    `is_void` marks jobs that no other waits for. `replaces` is the row of the attempt that a job
    repeats, or -1. `is_superseded` marks attempts that were repeated, also by a job that is not
    among these.
    """

    rows: pd.DataFrame
    group: Integers
    build: Integers
    step: Integers
    build_ids: pd.Series[str]
    steps: pd.Series[str]
    created: Integers
    ready: Integers
    started: Integers
    finished: Integers
    released: Integers
    failed: Integers
    is_script: Flags
    is_block: Flags
    is_exact: Flags
    is_over: Flags
    is_void: Flags
    replaces: Integers
    is_superseded: Flags
    is_manual_retry: Flags

    @property
    def group_of_step(self) -> Integers:
        """Number of the pipeline of each step."""
        group = np.zeros(len(self.steps), np.int64)
        group[self.step] = self.group
        return group

    @property
    def step_keys(self) -> list[tuple[int, str]]:
        """Pipeline and name of each step."""
        return [*zip(self.group_of_step.tolist(), self.steps.astype(object), strict=True)]


def pipeline_keys(*frames: Frame) -> list[str]:
    """Return the columns that identify a pipeline; the organization if all frames have it."""
    is_known = all("organization" in column_names(frame) for frame in frames)
    return ["organization", "pipeline"] if is_known else ["pipeline"]


def with_steps(jobs: Frame) -> Frame:
    """Add the column `step` if it is missing; only pandas can, since it takes whole builds."""
    names = column_names(jobs)
    if isinstance(jobs, pd.DataFrame) and "step" not in names:
        return jobs.assign(step=step(jobs))
    require_columns(names, ["step"])
    return jobs


def read_jobs(table: pd.DataFrame) -> PipelineJobs:
    """Read typed rows of whole pipelines, whose numbers are in `GROUP`.

    Leaves out waiters and rows without ids.
    """
    is_step = is_any_of(table, "type", "script", "trigger", "manual")
    table = table[is_step].dropna(subset=["id", "build_id"])
    check_unique_ids(table)
    by_id = table["id"].array.argsort()
    by_group = np.argsort(table[GROUP].to_numpy(np.int64)[by_id], kind="stable")
    table = retries.with_retries(table.iloc[by_id[by_group]].reset_index(drop=True))
    group = table[GROUP].to_numpy(np.int64)
    build, build_ids = _number_within(group, table["build_id"])
    # Block steps have a label for a name.
    names = table["step"].fillna(table["label"]) if "label" in table else table["step"]
    step_number, steps = _number_within(group, names)
    runnable = timestamp_micros(table, "runnable_at")
    started = timestamp_micros(table, "started_at")
    finished = timestamp_micros(table, "finished_at")
    unblocked = timestamp_micros(table, "unblocked_at")
    is_script = equals(table, "type", "script")
    is_block = equals(table, "type", "manual")
    is_soft = is_set(table, "soft_failed")
    has_failed = ~is_block & is_any_of(table, "state", "failed", "timed_out")
    has_passed = ~is_block & equals(table, "state", "passed") | (has_failed & is_soft)
    never_ran = is_any_of(table, "state", "broken", "skipped")
    exact = np.where(is_block, unblocked, runnable)
    ended = np.where(is_block, unblocked, finished)
    replaces = _find_replaced(table, build)
    with_known_ends = with_ends(table)
    known_end = timestamp_micros(with_known_ends, "finished_at")
    return PipelineJobs(
        rows=table,
        group=group,
        build=build,
        step=step_number,
        build_ids=build_ids,
        steps=steps,
        created=timestamp_micros(table, "created_at"),
        ready=np.select([exact != NAT, started != NAT], [exact, started], ended),
        started=np.where(is_script, started, NAT),
        finished=np.where(is_block | never_ran, ended, known_end),
        released=np.where(is_block | has_passed, ended, NAT),
        failed=np.where(has_failed & ~is_soft, ended, NAT),
        is_script=is_script,
        is_block=is_block,
        is_exact=exact != NAT,
        is_over=with_known_ends[IS_OVER].to_numpy(np.bool_),
        is_void=never_ran | (has_passed & (ended == NAT)),
        replaces=replaces,
        is_superseded=_find_superseded(table, replaces),
        is_manual_retry=equals(table, retries.KIND, "manual"),
    )


def with_build_ends(jobs: pd.DataFrame, builds: pd.DataFrame) -> pd.DataFrame:
    """Return jobs with `build_finished_at`, from the builds if a job does not have it."""
    by_id: pd.Series[Any] = timestamps(builds, "finished_at").set_axis(pd.Index(builds["id"]))
    by_id = by_id[by_id.index.notna() & ~by_id.index.duplicated()]
    found: Any = by_id.reindex(jobs["build_id"]).set_axis(jobs.index)
    build_ends: pd.Series[Any] = found.astype(TIMESTAMP)
    if "build_finished_at" in jobs:
        build_ends = timestamps(jobs, "build_finished_at").fillna(build_ends)
    return jobs.assign(build_finished_at=build_ends)


def _number_within(group: Integers, values: pd.Series[str]) -> tuple[Integers, pd.Series[str]]:
    """Number the values of each group, in their order, and return the value of each number."""
    codes, distinct = pd.factorize(values, sort=True, use_na_sentinel=False)
    n_values = max(len(distinct), 1)
    keys, numbers = np.unique(group * n_values + codes, return_inverse=True)
    texts = pd.Series(distinct, dtype=TEXT).take(keys % n_values).reset_index(drop=True)
    return numbers, texts


def _find_replaced(table: pd.DataFrame, build: Integers) -> Integers:
    """Return the row of the attempt that each job repeats, or -1.

    An attempt names the job that repeats it. If it does not, that job may name the attempt.
    """
    ids = pd.Index(table["id"])
    replaces = np.full(len(table), -1)
    # Backward, so that the first of several attempts that name one job stays.
    attempts = np.flatnonzero(table["retried_in_job_id"].notna())[::-1]
    repeats = ids.get_indexer(pd.Index(table["retried_in_job_id"].iloc[attempts]))
    _set_replaced(replaces, build, repeats, attempts)
    repeats = np.flatnonzero(table[retries.ATTEMPT].notna() & (replaces < 0))
    attempts = ids.get_indexer(pd.Index(table[retries.ATTEMPT].iloc[repeats]))
    _set_replaced(replaces, build, repeats, attempts)
    return replaces


def _set_replaced(
    replaces: Integers,
    build: Integers,
    repeats: Integers,
    attempts: Integers,
) -> None:
    """Set which attempts these jobs repeat, if both are known, and are two jobs of one build."""
    is_known = (repeats >= 0) & (attempts >= 0) & (repeats != attempts)
    is_known &= build[repeats] == build[attempts]
    replaces[repeats[is_known]] = attempts[is_known]


def _find_superseded(table: pd.DataFrame, replaces: Integers) -> Flags:
    is_superseded = table["retried_in_job_id"].notna().to_numpy(np.bool_, copy=True)
    is_superseded[replaces[replaces >= 0]] = True
    return is_superseded
