"""Split the wall time of each build into the segments of its critical chain.

The chain is followed from the end of the build back to its creation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics import spark_frames
from buildframe.metrics.columns import (
    NAT,
    TEXT,
    Flags,
    Integers,
    check_unique_ids,
    timestamp_micros,
)
from buildframe.metrics.durations import BLOCKED, is_blocked
from buildframe.metrics.group_summaries import concat_results, summarize_pairs
from buildframe.metrics.grouping import find_groups
from buildframe.metrics.input_frames import (
    Frame,
    column_names,
    is_relation,
    is_spark,
    read_columns,
    read_whole_groups,
    to_typed_pandas,
)
from buildframe.metrics.numbered import find_latest
from buildframe.metrics.pipeline_jobs import (
    GROUP,
    NEEDS,
    WANTS,
    PipelineJobs,
    pipeline_keys,
    read_jobs,
    with_build_ends,
    with_steps,
)
from buildframe.metrics.retries import check_have_kinds
from buildframe.metrics.row_flags import equals, is_any_of
from buildframe.metrics.step_graph import (
    NEAR,
    NONE,
    REPEAT,
    SKEW,
    Predecessors,
    find_predecessors,
)
from buildframe.metrics.validation import check_states
from buildframe.spec.builds import OPEN_STATES

KINDS = (
    "setup",
    "dependency",
    "concurrency",
    "blocked",
    "manual_retry",
    "queue",
    "run",
    "retry",
    "trigger",
    "unknown",
)
"""Kinds of segments, in the order of the documentation."""

(
    SETUP,
    DEPENDENCY,
    CONCURRENCY,
    BLOCKED_STEP,
    MANUAL_RETRY,
    QUEUE,
    RUN,
    RETRY,
    TRIGGER,
    UNKNOWN,
) = range(len(KINDS))

NEEDS_OF_BUILDS = ("id", "number", "branch", "state", "created_at", "finished_at")
NEEDS_OF_JOBS = (*NEEDS, "queue")
WANTS_OF_JOBS = (*WANTS, "queue_id")
"""Columns of both frames that a ledger needs, besides those that identify pipelines."""

_ENDED_UNSTARTED = ("canceled", "canceling", "expired", "skipped", "broken")


@checked_names
def time_ledger(builds: Frame, jobs: Frame) -> pd.DataFrame:
    """
    Split the wall time of each build into the segments of its critical chain.

    The chain leads from the job that ended last back to the creation of the build, from each job to
    the one that it waited for. Every second of the wall time lies in one segment, so the durations
    of a build add up to `finished_at - created_at` exactly.

    Parameters
    ----------
    builds : DataFrame
        Builds of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `id`,
        `pipeline`, `number`, `branch`, `state`, `created_at` and `finished_at`. Uses `blocked`. Ids
        must be unique.
    jobs : DataFrame
        Jobs, fetched with `include_retried_jobs=True` and with unique ids. Both frames or none are
        of PySpark. Needs
        the columns `id`, `build_id`, `pipeline`, `type`, `state`, `soft_failed`,
        `retried_in_job_id`, `queue`, `created_at`, `runnable_at`, `started_at`, `finished_at`,
        `unblocked_at`, at least one of `retry_of_type`, `retry_source` and `retry_type`, and
        `step`, which pandas computes from `step_key` and `name` if it is missing. Uses
        `retry_of_job_id`, and `label` for block steps. Pass all jobs of a pipeline: those of other
        builds show which steps depend on each other. If both frames have `organization`, it
        identifies pipelines, too.

    Returns
    -------
    pandas.DataFrame
        One row per segment, ordered by pipeline, creation of the build, and time. If both frames
        have `organization`, it is the column before `pipeline`, and comes first in the order:

        ================ =================== =======================================================
        build_id         str                 id of the build
        pipeline         str                 slug of its pipeline
        build_number     Int64               number of the build
        branch           str                 branch of the build
        build_created_at datetime64[us, UTC] when the build was created
        position         Int64               place in the chain, from 0
        kind             str                 what the time was spent on, see Notes
        job_id           str                 job that waited or ran; null after the last job
        step             str                 step of that job
        queue            str                 queue of that job; null for trigger and block steps
        queue_id         str                 id of that queue; missing if the jobs have none
        started_at       datetime64[us, UTC] begin, which is the end of the segment before
        finished_at      datetime64[us, UTC] end
        duration_s       float64             seconds; negative if clocks disagree
        ================ =================== =======================================================

        Its `attrs` count the builds in it (`n_builds`), and those without rows: `n_running`,
        `n_blocked`, `n_skipped`, `n_not_run` and `n_without_times`. `n_negative` counts negative
        segments. `open` lists the builds that had not ended, because they ran or were blocked: a
        dict of the lists `pipeline` and `build_created_at` (ISO 8601).

    Raises
    ------
    BadInput
        If only one frame is of PySpark, a column is missing, a timestamp has no time zone, an id
        occurs twice, or `state` holds states in an unknown spelling.

    See Also
    --------
    step_graph : The dependencies between steps that the chains follow.
    active_time : Time in which at least one job ran.

    Notes
    -----
    Kinds of segments:

    - `setup`: from the build's creation until the first job was runnable.
    - `dependency`: from the predecessor's end, or the upload of the job, until the job was
      runnable; at most 5 s.
    - `concurrency`: the same if it took longer, and ended within 5 s after a job of the step in
      another build. Also a `setup` of more than 5 s that ended within 1 s after such a job.
    - `blocked`: from the predecessor's end until a block step was unblocked.
    - `manual_retry`: from the end of a failed attempt until somebody repeated it. `retry_rate`
      describes which columns say that a retry was manual.
    - `queue`: from runnable until started, or until canceled, expired or skipped before that.
    - `run`: the run of a job, or its part until it uploaded the next job of the chain.
    - `retry`: the run of an attempt that another one replaced.
    - `trigger`: from when a trigger step was runnable until it finished.
    - `unknown`: other gaps, missing timestamps, and the time after the last job.

    The last job is the one with the largest end, at most that of the build, among jobs that were
    runnable or unblocked. If several end then, it is the one that ran longest. This is the critical
    path method [1]_, applied backward to what happened. The predecessor of a job is the first that
    exists of these:

    1. The attempt that it repeats.
    2. The script job that ran when it was created, unless a possible predecessor was released
       since. If several ran, it is the one whose step most often runs when this step is added.
    3. The step that was released last, at most 5 s before the job was runnable, among the steps
       that `step_graph` does not refute; or else first, at most 1 s later, because clocks disagree
       (5 s if that step is often the last one).
    4. A job that had failed at most 5 s before.
    5. The step that was released last, however long before.

    A step is released when its last shard passed, failed softly or was unblocked. Jobs that were
    canceled or skipped are no predecessors.

    Empty segments are left out; a build of zero wall time has one `unknown` row. With few builds of
    a pipeline, chains can follow steps that happened to end when another started.

    References
    ----------
    .. [1] Kelley, J. E., and Walker, M. R. (1959). Critical-path planning and scheduling.
       Proceedings of the Eastern
       Joint Computer Conference, 160-173.

    Examples
    --------
    >>> ledger = metrics.time_ledger(builds, jobs)
    >>> docs = ledger[ledger["pipeline"] == "docs"]
    >>> docs[["build_number", "kind", "step", "duration_s"]].head(6)
         build_number   kind    step  duration_s
    714             1  queue  upload       0.701
    715             1    run  upload       4.952
    716             1  queue   prose       1.607
    717             1    run   prose      40.196
    718             1  queue    site       1.762
    719             1    run    site      52.055
    >>> ledger.groupby("kind")["duration_s"].sum().round().nlargest(3)
    kind
    queue           180606.0
    run             129809.0
    manual_retry      4461.0
    Name: duration_s, dtype: float64
    >>> spent = builds["id"].map(ledger.groupby("build_id")["duration_s"].sum())
    >>> wall = metrics.wall_time(builds).dt.total_seconds()
    >>> ((spent - wall).abs().max() < 1e-6).item()
    True
    """
    check_states(builds, "state")
    check_states(jobs, "state")
    keys = pipeline_keys(builds, jobs)
    check_have_kinds(column_names(jobs))
    jobs = with_steps(jobs)
    if is_spark(builds):  # a worker sees the ids of one pipeline only
        repeated = to_typed_pandas(spark_frames.read_repeated(builds, "id"))
        check_unique_ids(pd.concat([repeated, repeated]))
    of_builds = (*NEEDS_OF_BUILDS, *BLOCKED)
    of_jobs = (*NEEDS_OF_JOBS, *WANTS_OF_JOBS)
    summarize = functools.partial(_time_ledger, keys)
    ledger = summarize_pairs(builds, jobs, summarize, keys, [of_builds, of_jobs])
    ledger.attrs["open"] = _sort_open(ledger.attrs["open"], keys)
    return ledger


def _time_ledger(keys: list[str], builds: Frame, jobs: Frame) -> pd.DataFrame:
    """Return the ledger of whole pipelines."""
    recorded = read_columns(builds, [*keys, *NEEDS_OF_BUILDS], BLOCKED)
    check_unique_ids(recorded)
    reasons = _find_reasons_to_omit(recorded)
    ended = recorded[reasons["n_builds"]].reset_index(drop=True)
    ledgers = [_split_wall_times(keys, *pair) for pair in _pair_pipelines(keys, ended, jobs)]
    ledger = concat_results(ledgers, keys)
    counts = {name: int(flags.sum()) for name, flags in reasons.items()}
    opened = recorded[reasons["n_running"] | reasons["n_blocked"]]
    n_negative = int((ledger["duration_s"] < 0).sum())
    ledger.attrs |= counts | {"open": _list_open(opened, keys), "n_negative": n_negative}
    return ledger


def _find_reasons_to_omit(builds: pd.DataFrame) -> dict[str, Flags]:
    """Return which builds are in the ledger (`n_builds`), and why each of the others is not."""
    blocked = is_blocked(builds).to_numpy()
    is_timed = builds[["created_at", "finished_at"]].notna().all(axis=1).to_numpy()
    reasons = {
        "n_running": ~blocked & is_any_of(builds, "state", *OPEN_STATES),
        "n_blocked": blocked,
        "n_skipped": ~blocked & equals(builds, "state", "skipped"),
        "n_not_run": ~blocked & equals(builds, "state", "not_run"),
    }
    is_over = ~np.logical_or.reduce([*reasons.values()])
    return {
        "n_builds": is_over & is_timed,
        **reasons,
        "n_without_times": is_over & ~is_timed,
    }


def _list_open(builds: pd.DataFrame, keys: list[str]) -> dict[Any, list[Any]]:
    """Return where and when these builds were created, in values that JSON has.

    Lists of columns, because pandas copies `attrs` with each operation.
    """
    created = builds["created_at"].map(pd.Timestamp.isoformat, na_action="ignore")
    listed = builds[keys].assign(build_created_at=created).astype(object)
    return listed.where(listed.notna(), None).to_dict("list")


def _sort_open(listed: dict[Any, list[Any]], keys: list[str]) -> dict[Any, list[Any]]:
    """Return the builds that had not ended in the order of their creation."""
    builds = pd.DataFrame(listed, dtype=TEXT).sort_values(["build_created_at", *keys])
    builds = builds.astype(object)
    return builds.where(builds.notna(), None).to_dict("list")


def _pair_pipelines(
    keys: list[str],
    builds: pd.DataFrame,
    jobs: Frame,
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield the builds and jobs of whole pipelines: of all, or of some if jobs are streamed."""
    groups = read_whole_groups(jobs, keys, NEEDS_OF_JOBS, WANTS_OF_JOBS)
    if not is_relation(jobs):
        yield builds, next(groups)
        return
    rows = pd.DataFrame()
    for rows in groups:
        n_builds = len(builds)
        pipelines = find_groups(pd.concat([builds[keys], rows[keys]], ignore_index=True), keys)
        is_here = np.isin(pipelines.codes[:n_builds], pipelines.codes[n_builds:])
        yield builds[is_here], rows
        builds = builds[~is_here]
    yield builds, rows.iloc[:0]  # builds of pipelines without jobs


def _split_wall_times(keys: list[str], builds: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return the segments of builds that ended; the jobs are those of their pipelines."""
    pipelines = find_groups(pd.concat([builds[keys], jobs[keys]], ignore_index=True), keys)
    codes_of_builds, codes_of_jobs = np.split(pipelines.codes, [len(builds)])
    builds = builds.assign(**{GROUP: codes_of_builds})
    builds = builds.sort_values([GROUP, "created_at", "id"], ignore_index=True)
    jobs = jobs.assign(**{GROUP: codes_of_jobs})
    pipeline_jobs = read_jobs(with_build_ends(jobs, builds))
    segments = _Chains(pipeline_jobs, builds).segments()
    return _to_frame(keys, segments, builds, pipeline_jobs)


class _ChainSegments(NamedTuple):
    """Segments of chains, and where each is.

    Their builds, places from the end of the build, kinds, jobs (-1: none) and times.
    """

    build: Integers
    place: Integers
    kind: Integers
    job: Integers
    start: Integers
    stop: Integers

    def take(self, rows: Integers | Flags) -> _ChainSegments:
        return _ChainSegments(*(values[rows] for values in self))


def _concat_segments(pieces: list[_ChainSegments]) -> _ChainSegments:
    return _ChainSegments(*map(np.concatenate, zip(*pieces, strict=True)))


def _to_frame(
    keys: list[str],
    segments: _ChainSegments,
    builds: pd.DataFrame,
    jobs: PipelineJobs,
) -> pd.DataFrame:
    build = segments.build
    job = segments.job
    build_columns = {
        "build_id": "id",
        **{key: key for key in keys},
        "build_number": "number",
        "branch": "branch",
        "build_created_at": "created_at",
    }
    columns: dict[str, Any] = {}
    for name, source in build_columns.items():
        columns[name] = builds[source].array.take(build)
    # Rows of a build follow each other, so the position counts from its first row.
    first = np.flatnonzero(np.diff(build, prepend=-1))
    n_segments = np.diff(first, append=len(build))
    columns["position"] = pd.array(np.arange(len(build)) - np.repeat(first, n_segments), "Int64")
    columns["kind"] = pd.array(KINDS, TEXT).take(segments.kind)
    columns["job_id"] = jobs.rows["id"].array.take(job, allow_fill=True)
    step = np.where(job >= 0, jobs.step[job], -1) if len(jobs.rows) else job
    columns["step"] = jobs.steps.array.take(step, allow_fill=True)
    for name in ("queue", "queue_id"):
        if name in jobs.rows:
            columns[name] = jobs.rows[name].array.take(job, allow_fill=True)
    columns["started_at"] = _to_times(segments.start)
    columns["finished_at"] = _to_times(segments.stop)
    columns["duration_s"] = (segments.stop - segments.start) / 1e6
    return pd.DataFrame(columns)


def _to_times(micros: Integers) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(micros.view("datetime64[us]"), tz="UTC")


def _find_builds(jobs: PipelineJobs, builds: pd.DataFrame) -> Integers:
    """Return the place of each job's build in its pipeline, or -1."""
    known = np.flatnonzero(builds["id"].notna())
    found = pd.Index(builds["id"].iloc[known]).get_indexer(pd.Index(jobs.build_ids))
    place = np.append(known, -1)[found][jobs.build]
    group = np.append(builds[GROUP].to_numpy(np.int64), -1)
    return np.where(group[place] == jobs.group, place, -1)


class _Chains:
    """The critical chains of builds with a creation and an end."""

    def __init__(self, jobs: PipelineJobs, builds: pd.DataFrame) -> None:
        self._jobs = jobs
        self._predecessors, _ = find_predecessors(jobs)
        self._created = timestamp_micros(builds, "created_at")
        self._ended = timestamp_micros(builds, "finished_at")
        self._build = _find_builds(jobs, builds)
        self._ended_unstarted = is_any_of(jobs.rows, "state", *_ENDED_UNSTARTED)

    def segments(self) -> _ChainSegments:
        """Return the segments in the order of builds and times.

        Each starts where the one before ended.
        """
        job, end = self._find_last_jobs()
        pieces = [self._unknown(self._build[job], end)]  # after the last job
        is_visited = np.zeros(len(self._jobs.rows), np.bool_)
        while len(job):
            is_visited[job] = True
            before = Predecessors(*(values[job] for values in self._predecessors))
            is_loop = (before.row >= 0) & is_visited[before.row]
            before = Predecessors(
                np.where(is_loop, -1, before.row),
                np.where(is_loop, NAT, before.at),
                np.where(is_loop, -1, before.rule),
            )
            pieces.extend(self._segments_of(job, end, before, len(pieces)))
            goes_on = before.row >= 0
            job = before.row[goes_on]
            end = before.at[goes_on]
        chains = _concat_segments(pieces)
        chains = chains.take(chains.start != chains.stop)
        empty = np.setdiff1d(np.arange(len(self._ended)), chains.build)
        chains = _concat_segments([chains, self._unknown(empty, self._created[empty])])
        order = np.lexsort((-chains.place, chains.build))
        return self._with_concurrency(chains.take(order))

    def _find_last_jobs(self) -> tuple[Integers, Integers]:
        """Return the job that ended last in each build that has one, and when.

        It ends at most with the build.
        """
        jobs = self._jobs
        is_timed = (jobs.finished != NAT) & (jobs.is_exact | (jobs.started != NAT))
        row = np.flatnonzero((self._build >= 0) & is_timed)
        build = self._build[row]
        limit = self._ended[build]
        end = np.minimum(jobs.finished[row], limit)
        has_run = jobs.started[row] != NAT
        run = np.where(has_run, end - np.minimum(jobs.started[row], limit), 0)
        order = np.lexsort((row, -run, ~has_run, -end, build))
        _, first = np.unique(build[order], return_index=True)
        return row[order][first], end[order][first]

    def _unknown(self, build: Integers, start: Integers) -> _ChainSegments:
        """Return the time from a start to the end of each of these builds, unexplained."""
        n = len(build)
        place = np.zeros(n, np.int64)
        kind = np.full(n, UNKNOWN)
        job = np.full(n, -1)
        return _ChainSegments(build, place, kind, job, start, self._ended[build])

    def _segments_of(
        self,
        job: Integers,
        end: Integers,
        before: Predecessors,
        place: int,
    ) -> list[_ChainSegments]:
        """Return the run, the queue and the gap of a job of each build, up to `end`."""
        jobs = self._jobs
        build = self._build[job]
        ready = jobs.ready[job]
        started = jobs.started[job]
        if place == 1:  # the last job, which may go on after its build
            ready = np.minimum(ready, self._ended[build])
            started = np.minimum(started, self._ended[build])
        is_script = jobs.is_script[job]
        has_run = is_script & (jobs.started[job] != NAT)
        run_from = np.select([has_run, is_script], [started, end], ready)
        since = np.where(before.row >= 0, before.at, self._created[build])
        run_kind = np.where(is_script, np.where(jobs.is_superseded[job], RETRY, RUN), TRIGGER)
        queue_kind = np.where(has_run | self._ended_unstarted[job], QUEUE, UNKNOWN)
        gap_kind = self._kinds_of_gaps(job, ready - since, before.rule)
        ready = np.where(jobs.is_block[job], end, ready)
        spans = ((run_kind, run_from, end), (queue_kind, ready, run_from), (gap_kind, since, ready))
        return [
            _ChainSegments(build, np.full(len(job), place + i), kind, job, start, stop)
            for i, (kind, start, stop) in enumerate(spans)
        ]

    def _kinds_of_gaps(self, job: Integers, gap: Integers, rule: Integers) -> Integers:
        """Return the kind of the time from the predecessor's release to each job.

        It is `CONCURRENCY` only until `_with_concurrency` separates others.
        """
        is_repeat = (rule == REPEAT) & self._jobs.is_manual_retry[job]
        kinds = (
            (self._jobs.is_block[job], BLOCKED_STEP),
            (~self._jobs.is_exact[job] | (rule < 0), UNKNOWN),
            (rule == NONE, SETUP),
            (is_repeat, MANUAL_RETRY),
            (gap <= NEAR, DEPENDENCY),
        )
        return np.select([holds for holds, _ in kinds], [kind for _, kind in kinds], CONCURRENCY)

    def _with_concurrency(self, segments: _ChainSegments) -> _ChainSegments:
        """Separate waits for a limit of concurrency from other gaps.

        A job of the step in another build had just ended. A first step can start at any time, so
        that more of these jobs end just before it by chance.
        """
        jobs = self._jobs
        is_long_setup = (segments.kind == SETUP) & (segments.stop - segments.start > NEAR)
        held = np.flatnonzero((segments.kind == CONCURRENCY) | is_long_setup)
        is_setup = is_long_setup[held]
        row = segments.job[held]
        until = segments.stop[held]
        near = np.where(is_setup, SKEW, NEAR)
        is_same_step = np.isin(jobs.step, jobs.step[row])
        ended = np.flatnonzero((jobs.finished != NAT) & is_same_step)

        def is_holder(candidates: Integers, queries: Integers) -> Flags:
            in_other_build: Flags = jobs.build[candidates] != jobs.build[row[queries]]
            is_early: Flags = jobs.finished[candidates] < (until - near)[queries]
            return in_other_build | is_early  # all before an early one are early, too

        holder = find_latest(
            ended,
            jobs.step[ended],
            jobs.finished[ended],
            jobs.step[row],
            until,
            is_holder,
        )
        is_free = (holder < 0) | (jobs.finished[holder] < until - near)
        kind = segments.kind.copy()
        kind[held] = np.select([~is_free, is_setup], [CONCURRENCY, SETUP], UNKNOWN)
        return segments._replace(kind=kind)
