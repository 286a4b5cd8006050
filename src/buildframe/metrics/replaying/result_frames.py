"""Write simulated times, states and agents to copies of the recorded frames. Does not know how they were simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from buildframe.metrics.columns import (
    NAT,
    TEXT,
    Flags,
    Integers,
    kind_of,
    timestamp_micros,
    typed_column,
)
from buildframe.metrics.numbered import earliest_by
from buildframe.metrics.replaying.dependencies import AT_BUILD, AT_END
from buildframe.metrics.replaying.event_loop import SKIPPED, ReplayTimes
from buildframe.metrics.replaying.model import ReplayModel
from buildframe.metrics.replaying.prepared import PreparedReplay
from buildframe.metrics.replaying.record import AGENT, BLOCK, NO_QUEUE, TRIGGER, BuildRecord
from buildframe.spec.builds import OPEN_STATES

_BUILD_IDS = ("id", "rebuilt_from_id", "triggered_from_build_id")
_JOB_IDS = ("id", "build_id", "retried_in_job_id", "retry_of_job_id")
_JSON_IDS = {"triggered_build": "id", "retry_source": "job_id"}
_JOB_TIMES = ("created_at", "runnable_at", "started_at", "finished_at", "unblocked_at")
_OF_AGENTS = ("agent", "agent_hostname", "agent_meta_data")
_NEVER_RAN = ("exit_status", "signal", "signal_reason")


def write_frames(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    prepared: PreparedReplay,
    model: ReplayModel,
    times: ReplayTimes,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return copies of both frames with what was simulated, in their order, without what was not created.

    Copied builds follow at the end.
    """
    writer = _Writer(_with_plain_texts(builds), _with_plain_texts(jobs), prepared, model, times)
    copies = np.unique(model.builds.copy).tolist() or [0]
    written = [writer.write(copy) for copy in copies]
    written_builds, written_jobs = written[0]
    if len(written) > 1:
        written_builds = pd.concat([frame for frame, _ in written], ignore_index=True)
        written_jobs = pd.concat([frame for _, frame in written], ignore_index=True)
    return _with_text_dtypes(written_builds, builds), _with_text_dtypes(written_jobs, jobs)


def _with_plain_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose known columns of texts are `str`, not categories or objects."""
    plain: dict[str, Any] = {}
    for name, dtype in frame.dtypes.items():
        if dtype != TEXT and kind_of(str(name)) in ("text", "json"):
            plain[str(name)] = typed_column(frame, str(name))
    return frame.assign(**plain)


def _with_text_dtypes(written: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose texts have the dtypes of another; new values are new categories."""
    restored: dict[str, Any] = {}
    for name, dtype in frame.dtypes.items():
        texts = written[name]
        if texts.dtype != TEXT or dtype == TEXT:
            continue
        if isinstance(dtype, pd.CategoricalDtype):
            known = dtype.categories
            new = pd.Index(texts.dropna().unique()).difference(known)
            dtype = pd.CategoricalDtype(known.append(new), dtype.ordered)
        restored[str(name)] = texts.astype(dtype)
    return written.assign(**restored)


class _Columns:
    """Rows of a frame whose columns are replaced, with their dtypes, if they exist."""

    def __init__(self, frame: pd.DataFrame, rows: Integers) -> None:
        self.frame = frame.iloc[rows].copy()

    def micros(self, name: str) -> Integers:
        return timestamp_micros(self.frame, name) if name in self.frame else np.full(len(self.frame), NAT)

    def texts(self, name: str) -> Any:
        return self.frame[name].astype(TEXT).fillna("").to_numpy(object)

    def set_times(self, name: str, micros: Integers) -> None:
        if name in self.frame:
            dtype: Any = self.frame[name].dtype
            times = pd.Series(
                pd.DatetimeIndex(micros.view("datetime64[us]"), tz="UTC"),
                self.frame.index,
            )
            self.frame[name] = times.astype(dtype)

    def shift(self, name: str, by: Integers, end: int) -> None:
        if name in self.frame:
            self.set_times(name, _shifted(self.micros(name), by, end))

    def set_where(self, name: str, chosen: Flags, values: Any) -> None:
        """Set the values of the chosen rows; None is null."""
        if name in self.frame and chosen.any():
            new = self.frame[name].astype(object).to_numpy(copy=True)
            new[chosen] = values[chosen] if isinstance(values, np.ndarray) else values
            self.frame[name] = pd.Series(new, self.frame.index).astype(self.frame[name].dtype)


class _Writer:
    def __init__(
        self,
        builds: pd.DataFrame,
        jobs: pd.DataFrame,
        prepared: PreparedReplay,
        model: ReplayModel,
        times: ReplayTimes,
    ) -> None:
        record, self._single_use = prepared.record, prepared.agents.is_single_use
        self._builds, self._jobs, self._record, self._model, self._times = (
            builds,
            jobs,
            record,
            model,
            times,
        )
        self._created = _creations(record, model, times)
        self._states = _states_of_builds(builds, record, model, times)
        self._agents = _AgentNames(record, jobs)

    def write(self, copy: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return both frames of one copy of the builds."""
        own = np.flatnonzero((self._model.builds.copy == copy) & (self._times.build_created != NAT))
        own = own[np.argsort(self._record.builds.row[self._model.builds.origin[own]])]
        of_builds, of_jobs = self._write_builds(own, copy), self._write_jobs(own, copy)
        if copy:
            return of_builds, of_jobs
        is_replayed = np.zeros(len(self._builds), np.bool_)
        is_replayed[self._record.builds.row] = True
        rows = self._record.builds.row[self._model.builds.origin[own]]
        of_builds = _with_others(of_builds, self._builds, rows, ~is_replayed)
        return of_builds, _with_others(
            of_jobs,
            self._jobs,
            self._rows_of_jobs,
            self._record.build_of_row < 0,
        )

    def _write_builds(self, own: Integers, copy: int) -> pd.DataFrame:
        record, times, origin = self._record, self._times, self._model.builds.origin[own]
        columns = _Columns(self._builds, record.builds.row[origin])
        state, was = self._states[own], columns.texts("state")
        created, ended = times.build_created[own], times.build_ended[own]
        moved = created - record.builds.created[origin]
        columns.shift("scheduled_at", moved, self._model.end)
        for name, first in (("started_at", _first_starts), ("failing_at", _first_failures)):
            recorded, simulated = (one[own] for one in first(record, self._model, times))
            columns.set_times(
                name,
                _moved_with(columns.micros(name), recorded, simulated, self._model.end),
            )
        columns.set_times("created_at", created)
        no_end = (state == "skipped") & (record.builds.ended[origin] == NAT)
        columns.set_times("finished_at", np.where(no_end, NAT, ended))
        columns.set_where("state", state != was, state)
        columns.set_where("blocked", times.is_open[own] | (times.canceled[own] > 0), False)
        columns.set_where(
            "cancel_reason",
            (times.canceled[own] == 0) & np.isin(was, ["canceled", "canceling"]),
            None,
        )
        self._mark_copy(columns, copy, _BUILD_IDS, "number")
        return columns.frame

    def _write_jobs(self, own: Integers, copy: int) -> pd.DataFrame:
        record, model, times = self._record, self._model, self._times
        build = np.full(len(record.builds.row) + 1, -1)
        build[model.builds.origin[own]] = own
        of_row = build[record.build_of_row]
        if not len(model.jobs.origin):  # nothing ran, so nothing moved
            self._rows_of_jobs = np.flatnonzero(of_row >= 0)
            return self._jobs.iloc[self._rows_of_jobs]
        job = np.full(len(self._jobs), -1)
        chosen = np.flatnonzero(model.builds.copy[model.jobs.build] == copy)
        job[record.jobs.row[model.jobs.origin[chosen]]] = chosen
        rows = np.flatnonzero((of_row >= 0) & ((job < 0) | (self._created[job] != NAT)))
        self._rows_of_jobs = rows
        of_row, job = of_row[rows], job[rows]
        columns = _Columns(self._jobs, rows)
        moved = times.build_created[of_row] - record.builds.created[model.builds.origin[of_row]]
        is_own = job >= 0
        by = np.where(
            is_own,
            self._created[job] - record.jobs.created[model.jobs.origin[job]],
            moved,
        )
        for name in ("scheduled_at", "expired_at"):
            columns.shift(name, by, model.end)
        states = self._states_of_jobs(columns, job, of_row)
        self._set_job_times(columns, job, of_row, moved, states)
        columns.shift("build_created_at", moved, model.end)
        self._set_other_ends(columns, of_row, job, states)
        columns.set_where("build_state", np.ones(len(rows), np.bool_), self._states[of_row])
        self._set_results(columns, job, states)
        self._set_agents(columns, job, copy)
        self._mark_copy(columns, copy, _JOB_IDS, "build_number")
        return columns.frame

    def _states_of_jobs(self, columns: _Columns, job: Integers, build: Integers) -> Any:
        """Return the state of each job after the replay."""
        model, times, was = self._model, self._times, columns.texts("state")
        of_jobs, is_live = model.jobs, (job >= 0) & model.jobs.is_live[job]
        has_ended, is_canceled = times.ended[job] != NAT, times.is_canceled[job]
        is_known = self._record.jobs.is_known[of_jobs.origin[job]]
        by_build = times.canceled[build]
        passed = np.where(of_jobs.kind[job] == BLOCK, "unblocked", "passed")
        is_running = (times.started[job] != NAT) | ((of_jobs.kind[job] == TRIGGER) & (times.ready[job] != NAT))
        stopped = np.select(
            [by_build == SKIPPED, (by_build == 0) & of_jobs.expires[job]],
            ["skipped", "expired"],
            "canceled",
        )
        is_stoppable = np.isin(
            was,
            ["waiting", "blocked", "limiting", "limited", "pending", "scheduled"],
        )
        was_stopped = np.isin(was, ["canceled", "canceling"])
        of_dead = np.select(
            [
                (by_build > 0) & (is_stoppable | was_stopped),
                was_stopped & self._was_canceled(build),
            ],
            [np.where(by_build == SKIPPED, "skipped", "canceled"), "waiting"],
            was,
        )
        of_live = np.select(
            [
                has_ended & is_canceled,
                has_ended & is_known,
                has_ended,
                is_canceled & is_running,
                is_canceled,
            ],
            [stopped, was, passed, "canceling", stopped],
            np.select([is_running, times.ready[job] != NAT], ["running", "scheduled"], "waiting"),
        )
        is_same = is_live & ~has_ended & (times.ready[job] == NAT) & np.isin(was, ["waiting", "limited", "limiting"])
        return np.where(is_live & ~is_same, of_live, np.where(job >= 0, of_dead, was)).astype(
            object,
        )

    def _was_canceled(self, build: Integers) -> Flags:
        builds, origin = self._record.builds, self._model.builds.origin[build]
        return builds.is_canceled[origin] | builds.is_skipped[origin]

    def _set_job_times(
        self,
        columns: _Columns,
        job: Integers,
        build: Integers,
        moved: Integers,
        states: Any,
    ) -> None:
        times, model, record = self._times, self._model, self._record
        is_own, origin = job >= 0, model.jobs.origin[job]
        is_live = is_own & model.jobs.is_live[job]
        is_script = is_live & (columns.texts("type") == "script")
        is_block = is_own & (model.jobs.kind[job] == BLOCK)
        kept = {name: _shifted(columns.micros(name), moved, model.end) for name in _JOB_TIMES}
        created = np.where(columns.micros("created_at") != NAT, self._created[job], NAT)
        columns.set_times("created_at", np.where(is_own, created, kept["created_at"]))
        is_ready = is_live & ~is_block
        no_ready = is_ready & record.jobs.is_known[origin] & (columns.micros("runnable_at") == NAT)
        columns.set_times(
            "runnable_at",
            np.where(is_ready & ~no_ready, times.ready[job], kept["runnable_at"]),
        )
        no_start = is_script & record.jobs.is_known[origin] & (columns.micros("started_at") == NAT)
        started = np.where(no_start, NAT, times.started[job])
        columns.set_times("started_at", np.where(is_script, started, kept["started_at"]))
        ended = np.where(is_ready, times.ended[job], kept["finished_at"])
        dead_and_stopped = is_own & ~is_live & np.isin(states, ["canceled", "skipped"]) & (times.canceled[build] > 0)
        ended = np.where(dead_and_stopped & (states == "canceled"), times.canceled_at[build], ended)
        columns.set_times(
            "finished_at",
            np.where(is_own & np.isin(states, ["waiting", "canceling"]), NAT, ended),
        )
        is_unblocked = is_block & is_live & ~times.is_canceled[job]
        unblocked = np.where(
            is_unblocked,
            times.ended[job],
            np.where(is_block & is_live, NAT, kept["unblocked_at"]),
        )
        columns.set_times("unblocked_at", unblocked)

    def _set_other_ends(
        self,
        columns: _Columns,
        build: Integers,
        job: Integers,
        states: Any,
    ) -> None:
        """Set the ends of builds. Remove `expired_at` of jobs that no longer expire."""
        if "build_finished_at" in columns.frame:
            columns.set_times("build_finished_at", self._times.build_ended[build])
        if "expired_at" in columns.frame:
            not_expired = (job >= 0) & (states != "expired")
            columns.set_times(
                "expired_at",
                np.where(not_expired, NAT, columns.micros("expired_at")),
            )

    def _set_results(self, columns: _Columns, job: Integers, states: Any) -> None:
        was, times = columns.texts("state"), self._times
        is_changed = (job >= 0) & (states != was)
        newly_passed = is_changed & (states == "passed")
        for name, value in (
            ("exit_status", 0),
            ("signal", None),
            ("signal_reason", None),
            ("soft_failed", False),
        ):
            columns.set_where(name, newly_passed, value)
        has_started = times.started[job] != NAT
        killed = is_changed & (states == "canceled") & has_started
        columns.set_where("exit_status", killed, -1)
        columns.set_where("signal_reason", killed, "cancel")
        is_script = (job >= 0) & np.isin(self._model.jobs.kind[job], [AGENT, NO_QUEUE])
        without = is_script & ~(has_started & (times.ended[job] != NAT)) & self._model.jobs.is_live[job]
        for name in _NEVER_RAN:
            columns.set_where(name, without, None)
        is_open = (job >= 0) & self._model.jobs.is_live[job] & (times.ended[job] == NAT)
        columns.set_where("retried_in_job_id", is_open, None)
        columns.set_where("retry_type", is_open, None)  # the kind of the retry that replaced it
        columns.set_where("retried", is_open, False)
        columns.set_where("state", is_changed, states)

    def _set_agents(self, columns: _Columns, job: Integers, copy: int) -> None:
        model, times = self._model, self._times
        if "agent_id" not in columns.frame:
            return
        has_agent = (job >= 0) & (model.jobs.kind[job] == AGENT) & (times.agent[job] >= 0)
        names = self._agents.of_jobs(model, times, job, columns.texts("id"), self._single_use, copy)
        is_changed = (job >= 0) & (model.jobs.kind[job] == AGENT)
        names[~has_agent] = None
        columns.set_where("agent_id", is_changed, names)
        for name in _OF_AGENTS:
            if name in columns.frame:
                columns.set_where(name, is_changed, self._agents.describe(name, names))

    def _mark_copy(self, columns: _Columns, copy: int, ids: Sequence[str], number: str) -> None:
        """Give a copy ids and numbers of its own."""
        if not copy:
            return
        for name in ids:
            if name in columns.frame:
                columns.frame[name] = columns.frame[name] + f"~{copy}"
        if number in columns.frame:
            step = int(self._builds["number"].max()) if "number" in self._builds else 0
            columns.frame[number] = columns.frame[number] + step * copy
        for name, key in _JSON_IDS.items():
            if name in columns.frame:
                texts = columns.frame[name].str.replace(
                    rf'("{key}"\s*:\s*"[^"]+)"',
                    rf'\1~{copy}"',
                    regex=True,
                )
                columns.frame[name] = texts.astype(columns.frame[name].dtype)


class _AgentNames:
    """Ids of agents: those of the record first, and new ones if there are more."""

    def __init__(self, record: BuildRecord, jobs: pd.DataFrame) -> None:
        self._record, self._jobs = record, jobs
        own = record.jobs
        rows = np.flatnonzero((own.agent >= 0) & (own.kind == AGENT))
        pairs = np.unique(own.queue[rows] * max(len(record.agents), 1) + own.agent[rows])
        queue, agent = np.divmod(pairs, max(len(record.agents), 1))
        self._of_queue = [agent[queue == one].tolist() for one in range(len(record.queues))]

    def of_jobs(
        self,
        model: ReplayModel,
        times: ReplayTimes,
        job: Integers,
        ids: Any,
        single_use: Flags,
        copy: int,
    ) -> Any:
        """Return the id of the agent of each job; a queue of agents that run one job has one for each."""
        record, names = self._record, np.full(len(job), None, object)
        queues, own = model.jobs.queue[job], record.jobs.agent[model.jobs.origin[job]]
        for queue, text in enumerate(entry.name for entry in record.queues):
            chosen = np.flatnonzero((queues == queue) & (job >= 0))
            if single_use[queue]:
                fresh = [f"{text}-{id}" for id in ids[chosen]]
                known = [record.agents[one] if one >= 0 else None for one in own[chosen].tolist()]
                names[chosen] = [old if old and not copy else new for old, new in zip(known, fresh, strict=True)]
                continue
            highest = int(times.agent[job[chosen]].max(initial=-1)) + 1
            known = [record.agents[one] for one in self._of_queue[queue][:highest]]
            listed = [
                *known,
                *(f"{text}-{number}" for number in range(len(known) + 1, highest + 1)),
            ]
            names[chosen] = np.array([*listed, None], object)[times.agent[job[chosen]]]
        return names

    def describe(self, name: str, ids: Any) -> Any:
        """Return another column of the agents of these ids; a new agent is named by its id."""
        known = self._jobs[["agent_id", name]].drop_duplicates("agent_id").dropna(subset="agent_id")
        found = known.set_index("agent_id")[name].reindex(pd.Index(ids)).astype(object).to_numpy(copy=True)
        missing = pd.isna(found)
        found[missing] = ids[missing] if name == "agent" else None
        return found


def _with_others(
    written: pd.DataFrame,
    frame: pd.DataFrame,
    rows: Integers,
    is_other: Flags,
) -> pd.DataFrame:
    """Add the rows that cannot be replayed, because they have no id or creation, as they are and where they were."""
    others = np.flatnonzero(is_other)
    if not len(others):
        return written
    return pd.concat([written, frame.iloc[others]]).iloc[np.argsort(np.append(rows, others), kind="stable")]


def _creations(record: BuildRecord, model: ReplayModel, times: ReplayTimes) -> Integers:
    """Return when each job was created, also those that could not run; `NAT` if not within the record."""
    jobs = model.jobs
    base = np.where(jobs.since == AT_END, times.ended[jobs.source], times.started[jobs.source])
    base = np.where(jobs.since == AT_BUILD, times.build_created[jobs.build], base)
    created = np.where(jobs.is_live, times.created, np.where(base == NAT, NAT, base + jobs.offset))
    stopped = times.canceled_at[jobs.build]
    is_late = (created > model.end) | ((stopped != NAT) & (created > stopped))
    return np.where(is_late, NAT, created)


def _states_of_builds(
    frame: pd.DataFrame,
    record: BuildRecord,
    model: ReplayModel,
    times: ReplayTimes,
) -> Any:
    """Return the state of each build after the replay."""
    origin = model.builds.origin
    was = frame["state"].astype(TEXT).fillna("").to_numpy(object)[record.builds.row[origin]]
    is_changed = np.isin(was, ["canceled", "canceling", "skipped", *OPEN_STATES])
    is_over = times.build_ended != NAT
    last = np.ones(len(record.jobs.row), np.bool_)
    last[record.jobs.replaces[record.jobs.replaces >= 0]] = False
    jobs = model.jobs
    is_failure = (record.jobs.failed[jobs.origin] != NAT) & (times.ended != NAT) & ~times.is_canceled
    has_failed, has_started = np.zeros(len(origin), np.bool_), np.zeros(len(origin), np.bool_)
    has_failed[jobs.build[is_failure & last[jobs.origin]]] = True
    has_started[jobs.build[times.started != NAT]] = True
    return np.select(
        [
            is_over & (times.canceled == SKIPPED),
            times.canceled > 0,
            times.is_open,
            is_over & is_changed,
        ],
        [
            "skipped",
            np.where(is_over, "canceled", "canceling"),
            np.select([has_failed, has_started], ["failing", "running"], "scheduled"),
            np.where(has_failed, "failed", "passed"),
        ],
        was,
    ).astype(object)


def _earliest(
    model: ReplayModel,
    recorded: Integers,
    simulated: Integers,
) -> tuple[Integers, Integers]:
    """Return the earliest of these times of the jobs of each build, recorded and simulated."""
    build, n = model.jobs.build, len(model.builds.origin)
    return earliest_by(build, recorded, n), earliest_by(build, simulated, n)


def _first_starts(
    record: BuildRecord,
    model: ReplayModel,
    times: ReplayTimes,
) -> tuple[Integers, Integers]:
    origin = model.jobs.origin
    is_trigger = model.jobs.kind == TRIGGER
    recorded = np.where(is_trigger, record.jobs.ready[origin], record.jobs.started[origin])
    return _earliest(model, recorded, np.where(is_trigger, times.ready, times.started))


def _first_failures(
    record: BuildRecord,
    model: ReplayModel,
    times: ReplayTimes,
) -> tuple[Integers, Integers]:
    failed = record.jobs.failed[model.jobs.origin]
    return _earliest(
        model,
        failed,
        np.where((failed != NAT) & ~times.is_canceled, times.ended, NAT),
    )


def _moved_with(old: Integers, recorded: Integers, simulated: Integers, end: int) -> Integers:
    """Return times that keep their distance to a recorded time that was simulated; that itself if they are unknown."""
    distance = np.where((old == NAT) | (recorded == NAT), 0, old - recorded)
    new = np.where(simulated == NAT, NAT, simulated + distance)
    return np.where(new > end, NAT, new)


def _shifted(old: Integers, by: Integers, end: int) -> Integers:
    new = np.where((old == NAT) | (by == NAT), NAT, old + by)
    return np.where(new > end, NAT, new)
