"""Read builds and jobs as arrays in one order that times decide.

Knows columns of frames; does not know agents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics import retries
from buildframe.metrics.columns import (
    NAT,
    TEXT,
    TIMESTAMP,
    Flags,
    Integers,
    check_is_pandas,
    check_unique_ids,
    timestamp_micros,
)
from buildframe.metrics.input_frames import read_columns
from buildframe.metrics.outcomes import (
    CAUSE_NEEDS,
    CAUSE_WANTS,
    INFRASTRUCTURE,
    LOST,
    number_causes,
)
from buildframe.metrics.pipeline_jobs import (
    GROUP,
    NEEDS,
    PipelineJobs,
    pipeline_keys,
    read_jobs,
    with_build_ends,
)
from buildframe.metrics.queues import KnownQueue, name_queues
from buildframe.metrics.row_flags import equals, is_any_of, is_set
from buildframe.metrics.steps import step
from buildframe.metrics.validation import check_states
from buildframe.spec.builds import OPEN_STATES

AGENT, NO_QUEUE, TRIGGER, BLOCK = range(4)
"""What a job waits for: an agent of its queue, agents of an unknown queue, a build, or a person."""

ROW = "row of the frame"
_QUEUE = "organization and queue"

_NEEDS_OF_BUILDS = ("id", "state", "created_at", "finished_at")
_OPTIONAL_OF_BUILDS: dict[str, Any] = {
    "number": "Int64",
    "branch": TEXT,
    "rebuilt_from_id": TEXT,
    "triggered_from_build_id": TEXT,
    "fetched_at": TIMESTAMP,
}
_TEXTS = (
    "retried_in_job_id",
    *retries.COLUMNS,
    "agent_id",
    "triggered_build",
    "label",
    "signal",
    "signal_reason",
    "queue_id",
    "cluster_id",
)
_TIMES = ("unblocked_at", "expired_at", "build_finished_at", "fetched_at")
_OPTIONAL_OF_JOBS: dict[str, Any] = {
    **dict.fromkeys(_TEXTS, TEXT),
    **dict.fromkeys(_TIMES, TIMESTAMP),
    **dict.fromkeys(("soft_failed", "async"), "boolean"),
    **dict.fromkeys(("exit_status", "priority"), "Int64"),
}
_UUID = re.compile(r'"id"\s*:\s*"([^"]+)"')
_UNKNOWN_OUTCOMES = (
    "canceled",
    "canceling",
    "running",
    "assigned",
    "accepted",
    "timing_out",
    "scheduled",
    "reserved",
    "waiting",
    "pending",
    "limiting",
    "limited",
)


@dataclass(frozen=True)
class RecordedBuilds:
    """Builds in the order of their creation; times are microseconds.

    `branch` numbers pairs of pipeline and branch.
    """

    row: Integers
    pipeline: Integers
    branch: Integers
    created: Integers
    ended: Integers
    is_canceled: Flags
    is_skipped: Flags
    is_open: Flags
    rebuilt_from: Integers
    triggered_from: Integers


@dataclass(frozen=True)
class RecordedJobs:
    """Jobs in the order of their builds, and then of their rows; times are microseconds.

    `step` numbers pairs of pipeline and step, `queue` and `agent` are -1 if unknown, and `child` is
    the build that a trigger job created. `is_known` marks outcomes that are known: passed, failed
    or timed out. `is_waiting` marks jobs that could have run if their build had not been canceled,
    or had more time. `from_pipeline` is the row among `PipelineJobs` from which a job was read.
    """

    row: Integers
    from_pipeline: Integers
    build: Integers
    step: Integers
    kind: Integers
    queue: Integers
    agent: Integers
    priority: Integers
    child: Integers
    created: Integers
    ready: Integers
    started: Integers
    ended: Integers
    released: Integers
    failed: Integers
    replaces: Integers
    is_known: Flags
    is_waiting: Flags
    is_void: Flags
    is_expired: Flags
    is_lost: Flags
    is_manual_retry: Flags
    is_async: Flags


@dataclass(frozen=True)
class BuildRecord:
    """All that is read from both frames. `end` is when the record ends, in microseconds.

    `table` has the columns of all jobs, and `build_of_row` the build of each of its rows, or -1.
    Labels have the organization before the name if several have the same.
    """

    builds: RecordedBuilds
    jobs: RecordedJobs
    pipelines: PipelineJobs
    table: pd.DataFrame
    build_of_row: Integers
    queues: list[KnownQueue]
    queue_labels: list[str]
    agents: list[str]
    steps: list[tuple[str, str]]
    pipeline_labels: list[str]
    start: int
    end: int


def read_record(builds: pd.DataFrame, jobs: pd.DataFrame) -> BuildRecord:
    """Read both frames; raise BadInput if they cannot be replayed."""
    hint = "metrics.replay needs. Convert the frame, in Polars by .to_pandas(), in DuckDB by .df()."
    for frame in (builds, jobs):
        check_is_pandas(frame, hint)
    check_states(builds, "state")
    check_states(jobs, "state")
    keys = pipeline_keys(builds, jobs)
    needs_of_builds = [*keys, *_NEEDS_OF_BUILDS]
    build_table = _read_table(builds, needs_of_builds, _OPTIONAL_OF_BUILDS)
    check_unique_ids(build_table)
    job_table = _read_job_table(jobs, keys)
    full_names, codes = _number_pipelines(keys, build_table, job_table)
    codes_of_builds, codes_of_jobs = np.split(codes, [len(build_table)])
    job_table[GROUP] = codes_of_jobs
    recorded_builds = _read_builds(build_table, codes_of_builds)
    pipelines = read_jobs(with_build_ends(job_table, build_table))
    ids = pd.Index(build_table["id"].iloc[recorded_builds.row])
    recorded_jobs, queues, agents = _read_jobs(pipelines, recorded_builds, ids)
    names = [_name_of(full) for full in full_names]
    start, end = _limits(build_table, job_table, recorded_builds)
    return BuildRecord(
        builds=recorded_builds,
        jobs=recorded_jobs,
        pipelines=pipelines,
        table=job_table,
        build_of_row=ids.get_indexer(pd.Index(job_table["build_id"])),
        queues=_known_queues(pipelines.rows, queues),
        queue_labels=_labels(queues),
        agents=agents,
        steps=[(names[group], text) for group, text in pipelines.step_keys],
        pipeline_labels=_labels(full_names),
        start=start,
        end=end,
    )


def _number_pipelines(
    keys: list[str],
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
) -> tuple[list[str], Integers]:
    """Return the names of all pipelines, after organizations, and the number of that of each row.

    The rows of builds come first.
    """
    rows = pd.concat([builds[keys], jobs[keys]], ignore_index=True).fillna("")
    texts = rows[keys[0]] if len(keys) == 1 else rows[keys[0]] + "\n" + rows[keys[1]]
    codes, names = pd.factorize(texts, use_na_sentinel=False)
    return [*map(str, names)], np.asarray(codes, np.int64)


def _name_of(full: str) -> str:
    """Return the name without its organization."""
    return full.rsplit("\n", 1)[-1]


def _labels(full_names: list[str]) -> list[str]:
    names = [_name_of(full) for full in full_names]
    is_unique = len({*names}) == len(names)
    return names if is_unique else [full.replace("\n", "/") for full in full_names]


def _read_table(
    frame: pd.DataFrame,
    needs: Sequence[str],
    optional: Mapping[str, Any],
) -> pd.DataFrame:
    """Return typed columns; optional ones that are missing are null."""
    table = read_columns(frame, needs, optional)
    missing = {name: dtype for name, dtype in optional.items() if name not in table}
    nulls = {name: pd.Series(None, table.index, dtype=dtype) for name, dtype in missing.items()}
    return table.assign(**nulls)


def _read_builds(builds: pd.DataFrame, pipeline: Integers) -> RecordedBuilds:
    created = timestamp_micros(builds, "created_at")
    number = _integers(builds, "number")
    order = np.lexsort((np.arange(len(builds)), number, created))
    is_known = (created != NAT) & builds["id"].notna().to_numpy()
    order = order[is_known[order]]
    rows = builds.take(order).reset_index(drop=True)
    pipeline = pipeline[order]
    ids = pd.Index(rows["id"])
    branches = rows["branch"].fillna("") + "\n" + pd.Series(pipeline).astype(TEXT)
    branch, _ = pd.factorize(branches)
    return RecordedBuilds(
        row=order,
        pipeline=pipeline,
        branch=np.asarray(branch, np.int64),
        created=created[order],
        ended=timestamp_micros(rows, "finished_at"),
        is_canceled=is_any_of(rows, "state", "canceled", "canceling"),
        is_skipped=equals(rows, "state", "skipped"),
        is_open=is_any_of(rows, "state", *OPEN_STATES),
        rebuilt_from=ids.get_indexer(pd.Index(rows["rebuilt_from_id"])),
        triggered_from=ids.get_indexer(pd.Index(rows["triggered_from_build_id"])),
    )


def _read_job_table(jobs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the columns of jobs that are used."""
    needs = [name for name in NEEDS if name not in ("step", *_OPTIONAL_OF_JOBS)]
    table = _read_table(jobs, [*keys, *needs, "queue"], _OPTIONAL_OF_JOBS)
    owner = table[keys[0]].fillna("") if len(keys) > 1 else pd.Series("", table.index, dtype=TEXT)
    columns: dict[str, Any] = {
        "step": step(jobs).array,
        ROW: np.arange(len(jobs)),
        _QUEUE: owner + "\n" + name_queues(table),
        "exit_status": _integers(table, "exit_status"),
        "priority": _integers(table, "priority"),
    }
    return table.assign(**columns)


def _integers(table: pd.DataFrame, name: str) -> Integers:
    return np.asarray(table[name].fillna(0), np.int64)


def _read_jobs(
    jobs: PipelineJobs,
    builds: RecordedBuilds,
    ids: pd.Index,
) -> tuple[RecordedJobs, list[str], list[str]]:
    """Return the jobs of builds with these ids, and the names of queues and agents."""
    rows = jobs.rows
    build = ids.get_indexer(pd.Index(jobs.build_ids))[jobs.build]
    if (build < 0).any():
        example = jobs.build_ids.iloc[jobs.build[build < 0][0]]
        raise BadInput(
            f"{(build < 0).sum():,} jobs belong to builds that are not in builds, or have no "
            f"created_at there, such as {example!r}. Pass the builds of all jobs."
        )
    row = rows[ROW].to_numpy(np.int64)
    order = np.lexsort((row, build))
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    queue, queues = pd.factorize(rows[_QUEUE], sort=True)
    agent, agents = pd.factorize(rows["agent_id"], sort=True)
    is_over = (builds.is_canceled | builds.is_skipped | builds.is_open)[build]
    is_script = jobs.is_script
    has_started = jobs.started != NAT
    has_outcome = is_any_of(rows, "state", "passed", "failed", "timed_out")
    is_known = (has_outcome & (timestamp_micros(rows, "finished_at") != NAT)) | jobs.is_block
    # A job that ended at an unknown time counts for no time at all: it ran or waited at least until
    # it began.
    began = np.maximum(jobs.ready, jobs.started)
    ended = np.where(jobs.is_over & ~jobs.is_block & (jobs.finished == NAT), began, jobs.finished)
    is_skipped = equals(rows, "state", "skipped") & builds.is_skipped[build]
    waits = is_any_of(rows, "state", *_UNKNOWN_OUTCOMES) | is_skipped
    needs_no_agent = (queue < 0) | (is_known & ~has_started)
    fields = {
        "row": row,
        "build": build,
        "step": jobs.step,
        "kind": np.select(
            [jobs.is_block, ~is_script, needs_no_agent],
            [BLOCK, TRIGGER, NO_QUEUE],
            AGENT,
        ),
        "queue": np.where(is_script, queue, -1),
        "agent": np.where(is_script & has_started, agent, -1),
        "priority": rows["priority"].to_numpy(np.int64),
        "child": ids.get_indexer(pd.Index(_child_ids(rows))),
        "created": np.where(jobs.created != NAT, jobs.created, builds.created[build]),
        "ready": np.where(
            jobs.is_exact | has_started | (is_known & ~jobs.is_block),
            jobs.ready,
            NAT,
        ),
        "started": np.where(is_script, jobs.started, NAT),
        "ended": ended,
        "released": jobs.released,
        "failed": jobs.failed,
        "is_known": is_known,
        "is_waiting": waits & is_over & ~jobs.is_block,
        "is_void": jobs.is_void,
        "is_expired": equals(rows, "state", "expired"),
        "is_lost": _have_lost_agents(rows),
        "is_manual_retry": jobs.is_manual_retry,
        "is_async": is_set(rows, "async"),
    }
    replaces = np.where(jobs.replaces >= 0, inverse[jobs.replaces], -1)[order]
    taken: dict[str, Any] = {name: np.asarray(values)[order] for name, values in fields.items()}
    return (
        RecordedJobs(from_pipeline=order, replaces=replaces, **taken),
        [*map(str, queues)],
        [*agents],
    )


def _have_lost_agents(rows: pd.DataFrame) -> Flags:
    """Return which jobs failed because their agent was lost or stopped, and then was away."""
    causes = number_causes(rows[[*CAUSE_NEEDS, *CAUSE_WANTS]])
    is_gone = (rows["exit_status"] == LOST).to_numpy() | equals(rows, "signal_reason", "agent_stop")
    is_lost: Flags = (causes == INFRASTRUCTURE) & is_gone
    return is_lost


def _known_queues(rows: pd.DataFrame, full_names: list[str]) -> list[KnownQueue]:
    """Return the name, key, id and organization of each queue."""
    first = rows.drop_duplicates(_QUEUE).set_index(_QUEUE).reindex(full_names)
    first = first[["queue", "queue_id"]].astype(object)
    first = first.where(first.notna(), None)
    return [
        KnownQueue(_name_of(full), key, id, organization=full.rsplit("\n", 1)[0])
        for full, key, id in first.itertuples()
    ]


def _child_ids(rows: pd.DataFrame) -> pd.Series[Any]:
    """Return the id of the build that each trigger job created, from its JSON."""
    texts = rows["triggered_build"]
    return texts.map(
        lambda text: found[1] if (found := _UUID.search(text)) else None,
        na_action="ignore",
    )


def _limits(builds: pd.DataFrame, jobs: pd.DataFrame, recorded: RecordedBuilds) -> tuple[int, int]:
    """Return when the first build was created, and when the record ends.

    That is when rows were last fetched, or else the last known time.
    """
    start = int(recorded.created.min()) if len(recorded.created) else 0
    stamps = ("created_at", "runnable_at", "started_at", "finished_at", "unblocked_at")
    for names in (("fetched_at",), stamps):
        times = [
            int(timestamp_micros(frame, name).max(initial=NAT))
            for frame in (builds, jobs)
            for name in names
            if name in frame
        ]
        last = max(times)
        if last != NAT:
            return start, last
    return start, start
