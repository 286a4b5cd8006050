"""Read builds and jobs as arrays in one order that times decide. Knows columns of frames; does not know agents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics import failure_causes, retries
from buildframe.metrics.columns import (
    NAT,
    TIMESTAMP,
    Flags,
    Integers,
    check_is_pandas,
    check_unique_ids,
    column,
    timestamp_micros,
)
from buildframe.metrics.pipeline_jobs import GROUP, NEEDS, PipelineJobs, pipeline_keys, read_jobs, with_build_ends
from buildframe.metrics.queues import KnownQueue, name_queues
from buildframe.metrics.row_flags import equals
from buildframe.metrics.steps import step
from buildframe.metrics.validation import check_states
from buildframe.spec.builds import OPEN_STATES

AGENT, NO_QUEUE, TRIGGER, BLOCK = range(4)
"""What a job waits for: an agent of its queue, agents of an unknown queue, a build, or a person."""

ROW = "row of the frame"
_QUEUE = "organization and queue"

_NEEDS_OF_BUILDS = ("id", "state", "created_at", "finished_at")
_OPTIONAL_TEXTS = (
    "retried_in_job_id", *retries.COLUMNS, "agent_id", "triggered_build", "label", "signal", "signal_reason", "branch",
)  # fmt: skip
_OPTIONAL_FLAGS = ("soft_failed", "async")
_OPTIONAL_TIMES = ("unblocked_at", "expired_at", "build_finished_at", "fetched_at")
_UUID = re.compile(r'"id"\s*:\s*"([^"]+)"')
_UNKNOWN_OUTCOMES = ("canceled", "canceling", "running", "assigned", "accepted", "timing_out", "scheduled", "reserved",
                     "waiting", "pending", "limiting", "limited")  # fmt: skip


@dataclass(frozen=True)
class RecordedBuilds:
    """Builds in the order of their creation; times are microseconds. `branch` numbers pairs of pipeline and branch."""

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

    `step` numbers pairs of pipeline and step, `queue` and `agent` are -1 if unknown, and `child` is the build that a
    trigger job created. `is_known` marks outcomes that are known: passed, failed or timed out. `is_waiting` marks jobs
    that could have run if their build had not been canceled, or had more time. `from_pipeline` is the row among
    `PipelineJobs` from which a job was read.
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

    `table` has the columns of all jobs, and `build_of_row` the build of each of its rows, or -1. Labels have the
    organization before the name if several have the same.
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
    check_unique_ids(builds)
    keys = pipeline_keys(builds, jobs)
    full_names, codes = _number_pipelines(keys, builds, jobs)
    names = [_name_of(full) for full in full_names]
    of_builds = _read_builds(builds, codes[0])
    table = _table_of_jobs(jobs, keys, codes[1])
    pipelines = read_jobs(with_build_ends(table, builds))
    of_jobs, queues, agents = _read_jobs(pipelines, of_builds, builds)
    known_queues = _known_queues(pipelines.rows, queues)
    steps = [(names[group], text) for group, text in pipelines.step_keys]
    start, end = _limits(builds, jobs, of_builds)
    ids = pd.Index(builds["id"].iloc[of_builds.row])
    build_of_row = ids.get_indexer(pd.Index(table["build_id"]))
    return BuildRecord(
        of_builds, of_jobs, pipelines, table, build_of_row, known_queues, _labels(queues), agents, steps,
        _labels(full_names), start, end,
    )  # fmt: skip


def _number_pipelines(keys: list[str], *frames: pd.DataFrame) -> tuple[list[str], list[Integers]]:
    """Return the names of all pipelines, after organizations, and the number of that of each row."""
    texts = [_joined(frame, keys) for frame in frames]
    codes, names = pd.factorize(pd.concat(texts, ignore_index=True), use_na_sentinel=False)
    return [*map(str, names)], np.split(np.asarray(codes, np.int64), [len(texts[0])])


def _name_of(full: str) -> str:
    """Return the name without its organization."""
    return full.rsplit("\n", 1)[-1]


def _labels(full_names: list[str]) -> list[str]:
    names = [_name_of(full) for full in full_names]
    is_unique = len({*names}) == len(names)
    return names if is_unique else [full.replace("\n", "/") for full in full_names]


def _joined(frame: pd.DataFrame, keys: list[str]) -> pd.Series[Any]:
    text = column(frame, keys[-1]).astype("str").fillna("")
    return text if len(keys) == 1 else column(frame, keys[0]).astype("str").fillna("") + "\n" + text


def _read_builds(builds: pd.DataFrame, pipeline: Integers) -> RecordedBuilds:
    for name in _NEEDS_OF_BUILDS:
        column(builds, name)
    created, ended = (timestamp_micros(builds, name) for name in ("created_at", "finished_at"))
    number = _integers(builds, "number")
    order = np.lexsort((np.arange(len(builds)), number, created))
    order = order[(created[order] != NAT) & builds["id"].notna().to_numpy()[order]]
    ids = pd.Index(builds["id"].iloc[order])
    branch = _optional(builds, "branch", "str").iloc[order].fillna("").astype("str").reset_index(drop=True)
    codes, _ = pd.factorize(branch + "\n" + pd.Series(pipeline[order]).astype("str"))
    state = builds["state"].iloc[order].reset_index(drop=True)
    return RecordedBuilds(
        row=order,
        pipeline=pipeline[order],
        branch=np.asarray(codes, np.int64),
        created=created[order],
        ended=ended[order],
        is_canceled=state.isin(["canceled", "canceling"]).to_numpy(np.bool_),
        is_skipped=state.eq("skipped").fillna(False).to_numpy(np.bool_),
        is_open=state.isin(OPEN_STATES).to_numpy(np.bool_),
        rebuilt_from=ids.get_indexer(pd.Index(_optional(builds, "rebuilt_from_id", "str").iloc[order])),
        triggered_from=ids.get_indexer(pd.Index(_optional(builds, "triggered_from_build_id", "str").iloc[order])),
    )


def _table_of_jobs(jobs: pd.DataFrame, keys: list[str], pipeline: Integers) -> pd.DataFrame:
    """Return the columns of jobs that are used; optional ones that are missing are null."""
    steps = step(jobs)
    needed = [name for name in NEEDS if name not in ("step", *_OPTIONAL_TEXTS, *_OPTIONAL_FLAGS, *_OPTIONAL_TIMES)]
    columns: dict[str, Any] = {name: column(jobs, name) for name in [*keys, *needed, "queue"]}
    columns |= {name: _optional(jobs, name, "str") for name in _OPTIONAL_TEXTS}
    columns |= {name: _optional(jobs, name, "boolean").astype("boolean") for name in _OPTIONAL_FLAGS}
    columns |= {name: _optional(jobs, name, TIMESTAMP) for name in _OPTIONAL_TIMES}
    columns |= {"exit_status": _integers(jobs, "exit_status"), "priority": _integers(jobs, "priority")}
    columns |= {"step": steps, GROUP: pipeline, ROW: np.arange(len(jobs))}
    owner = columns[keys[0]].astype("str").fillna("") if len(keys) > 1 else pd.Series("", jobs.index)
    columns[_QUEUE] = owner + "\n" + name_queues(jobs).astype("str")
    columns["queue_id"] = _optional(jobs, "queue_id", "str").astype("str")
    return pd.DataFrame(columns).reset_index(drop=True)


def _optional(frame: pd.DataFrame, name: str, dtype: str) -> pd.Series[Any]:
    """Return a column, or nulls of this dtype if the frame does not have it."""
    return column(frame, name) if name in frame else pd.Series(None, frame.index, dtype=dtype)


def _integers(frame: pd.DataFrame, name: str) -> Integers:
    return np.asarray(_optional(frame, name, "Int64").astype("Int64").fillna(0), np.int64)


def _read_jobs(
    jobs: PipelineJobs, builds: RecordedBuilds, frame: pd.DataFrame
) -> tuple[RecordedJobs, list[str], list[str]]:
    rows = jobs.rows
    ids = pd.Index(frame["id"].iloc[builds.row])
    build = ids.get_indexer(pd.Index(jobs.build_ids))[jobs.build]
    if (build < 0).any():
        raise BadInput(
            f"{(build < 0).sum():,} jobs belong to builds that are not in builds, or have no created_at there, such as "
            f"{jobs.build_ids.iloc[jobs.build[build < 0][0]]!r}. Pass the builds of all jobs."
        )
    row = rows[ROW].to_numpy(np.int64)
    order = np.lexsort((row, build))
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    queue, queues = pd.factorize(rows[_QUEUE], sort=True)
    agent, agents = pd.factorize(rows["agent_id"], sort=True)
    state = rows["state"]
    is_over = (builds.is_canceled | builds.is_skipped | builds.is_open)[build]
    is_script, has_started = jobs.is_script, jobs.started != NAT
    has_outcome = state.isin(["passed", "failed", "timed_out"]).to_numpy(np.bool_)
    is_known = (has_outcome & (timestamp_micros(rows, "finished_at") != NAT)) | jobs.is_block
    # A job that ended at an unknown time counts for no time at all: it ran or waited at least until
    # it began.
    began = np.maximum(jobs.ready, jobs.started)
    ended = np.where(jobs.is_over & ~jobs.is_block & (jobs.finished == NAT), began, jobs.finished)
    is_skipped = equals(rows, "state", "skipped") & builds.is_skipped[build]
    waits = state.isin(_UNKNOWN_OUTCOMES).to_numpy(np.bool_) | is_skipped
    fields = {
        "row": row,
        "build": build,
        "step": jobs.step,
        "kind": np.select(
            [jobs.is_block, ~is_script, (queue < 0) | (is_known & ~has_started)], [BLOCK, TRIGGER, NO_QUEUE], AGENT
        ),
        "queue": np.where(is_script, queue, -1),
        "agent": np.where(is_script & has_started, agent, -1),
        "priority": rows["priority"].to_numpy(np.int64),
        "child": ids.get_indexer(pd.Index(_child_ids(rows))),
        "created": np.where(jobs.created != NAT, jobs.created, builds.created[build]),
        "ready": np.where(jobs.is_exact | has_started | (is_known & ~jobs.is_block), jobs.ready, NAT),
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
        "is_async": rows["async"].fillna(False).to_numpy(np.bool_),
    }
    replaces = np.where(jobs.replaces >= 0, inverse[jobs.replaces], -1)[order]
    taken: dict[str, Any] = {name: np.asarray(values)[order] for name, values in fields.items()}
    return RecordedJobs(from_pipeline=order, replaces=replaces, **taken), [*map(str, queues)], [*agents]


def _have_lost_agents(rows: pd.DataFrame) -> Flags:
    """Return which jobs failed because their agent was lost or stopped, and then was away."""
    typed = rows[[*failure_causes.NEEDS, *failure_causes.WANTS]]
    cause = failure_causes.number_cause(typed.columns)
    causes = nw.from_native(typed, eager_only=True).select(cause=cause).to_native()["cause"]
    is_gone = (rows["exit_status"] == failure_causes.LOST) | (rows["signal_reason"] == "agent_stop").fillna(False)
    is_lost: Flags = ((causes == failure_causes.INFRASTRUCTURE) & is_gone).to_numpy(np.bool_)
    return is_lost


def _known_queues(rows: pd.DataFrame, full_names: list[str]) -> list[KnownQueue]:
    """Return the name, key, id and organization of each queue."""
    first = rows.drop_duplicates(_QUEUE).set_index(_QUEUE).reindex(full_names)
    keys, ids = (first[name].astype(object).where(first[name].notna(), None) for name in ("queue", "queue_id"))
    return [
        KnownQueue(_name_of(full), key, id, full.rsplit("\n", 1)[0])
        for full, key, id in zip(full_names, keys, ids, strict=True)
    ]


def _child_ids(rows: pd.DataFrame) -> pd.Series[Any]:
    """Return the id of the build that each trigger job created, from its JSON."""
    texts = rows["triggered_build"]
    return texts.map(lambda text: found[1] if (found := _UUID.search(text)) else None, na_action="ignore")


def _limits(builds: pd.DataFrame, jobs: pd.DataFrame, of_builds: RecordedBuilds) -> tuple[int, int]:
    """Return when the first build was created, and when rows were last fetched, or else the last known time."""
    start = int(of_builds.created.min(initial=0)) if not len(of_builds.created) else int(of_builds.created.min())
    for names in (("fetched_at",), ("created_at", "runnable_at", "started_at", "finished_at", "unblocked_at")):
        times = [
            timestamp_micros(frame, name).max(initial=NAT)
            for frame in (builds, jobs)
            for name in names
            if name in frame
        ]
        if (last := max(times, default=NAT)) != NAT:
            return start, int(last)
    return start, start
