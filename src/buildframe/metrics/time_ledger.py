"""Split the wall time of each build into the segments of its critical chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import check_unique_ids
from buildframe.metrics.critical_chain import BUILD, split_wall_time
from buildframe.metrics.durations import BLOCKED
from buildframe.metrics.engines import engine_of, expressions
from buildframe.metrics.engines.protocol import Engine
from buildframe.metrics.engines.rows import Frame, Rows
from buildframe.metrics.predecessors import NEEDS, WANTS, pipeline_keys
from buildframe.metrics.retries import check_have_kinds
from buildframe.metrics.validation import check_states
from buildframe.spec.builds import OPEN_STATES

_COLUMNS = [
    "build_number", "branch", "build_created_at", "position", "kind", "job_id", "step", "queue", "queue_id",
    "started_at", "finished_at", "duration_s",
]  # fmt: skip
_NEEDS = ["id", "number", "branch", "state", "created_at", "finished_at"]
_OTHERS = ["n_running", "n_blocked", "n_skipped", "n_not_run"]


@checked_names
def time_ledger(builds: Frame, jobs: Frame) -> pd.DataFrame:
    """
    Split the wall time of each build into the segments of its critical chain.

    The chain leads from the job that ended last back to the creation of the build, from each job to the one that it
    waited for. Every second of the wall time lies in one segment, so the durations of a build add up to
    `finished_at - created_at` exactly.

    Parameters
    ----------
    builds : DataFrame
        Builds of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `id`, `pipeline`, `number`,
        `branch`, `state`, `created_at` and `finished_at`. Uses `blocked`. Ids must be unique.
    jobs : DataFrame
        Jobs of the same engine, fetched with `include_retried_jobs=True` and with unique ids. Needs
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
        One row per segment, ordered by pipeline, creation of the build, and time. If both frames have `organization`,
        it is the column before `pipeline`, and comes first in the order:

        ================ =================== ===========================================================
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
        queue_id         str                 id of that queue; missing if the jobs have no such column
        started_at       datetime64[us, UTC] begin, which is the end of the segment before
        finished_at      datetime64[us, UTC] end
        duration_s       float64             seconds; negative if clocks disagree
        ================ =================== ===========================================================

        Its `attrs` count the builds in it (`n_builds`), and those without rows: `n_running`, `n_blocked`, `n_skipped`,
        `n_not_run` and `n_without_times`. `n_negative` counts negative segments. `open` lists the builds that had
        not ended, because they ran or were blocked: a dict of the lists `pipeline` and `build_created_at` (ISO 8601).

    Raises
    ------
    BadInput
        If the frames have different engines, a column is missing, a timestamp has no time zone, an id occurs twice, or
        `state` holds states in an unknown spelling.

    See Also
    --------
    step_graph : The dependencies between steps that the chains follow.
    active_time : Time in which at least one job ran.

    Notes
    -----
    Kinds of segments:

    - `setup`: from the build's creation until the first job was runnable.
    - `dependency`: from the predecessor's end, or the upload of the job, until the job was runnable; at most 5 s.
    - `concurrency`: the same if it took longer, and ended within 5 s after a job of the step in another build. Also a
      `setup` of more than 5 s that ended within 1 s after such a job.
    - `blocked`: from the predecessor's end until a block step was unblocked.
    - `manual_retry`: from the end of a failed attempt until somebody repeated it. `retry_rate`
      describes which columns say that a retry was manual.
    - `queue`: from runnable until started, or until canceled, expired or skipped before that.
    - `run`: the run of a job, or its part until it uploaded the next job of the chain.
    - `retry`: the run of an attempt that another one replaced.
    - `trigger`: from when a trigger step was runnable until it finished.
    - `unknown`: other gaps, missing timestamps, and the time after the last job.

    The last job is the one with the largest end, at most that of the build, among jobs that were runnable or unblocked.
    If several end then, it is the one that ran longest. This is the critical path method [1]_, applied backward to what
    happened. The predecessor of a job is the first that exists of these:

    1. The attempt that it repeats.
    2. The script job that ran when it was created, unless a possible predecessor was released since. If several ran, it
       is the one whose step most often runs when this step is added.
    3. The step that was released last, at most 5 s before the job was runnable, among the steps that `step_graph` does
       not refute; or else first, at most 1 s later, because clocks disagree (5 s if that step is often the last one).
    4. A job that had failed at most 5 s before.
    5. The step that was released last, however long before.

    A step is released when its last shard passed, failed softly or was unblocked. Jobs that were canceled or skipped
    are no predecessors.

    Empty segments are left out; a build of zero wall time has one `unknown` row. With few builds of a pipeline, chains
    can follow steps that happened to end when another started.

    References
    ----------
    .. [1] Kelley, J. E., and Walker, M. R. (1959). Critical-path planning and scheduling. Proceedings of the Eastern
       Joint Computer Conference, 160-173.

    Examples
    --------
    >>> ledger = metrics.time_ledger(builds, jobs)
    >>> ledger.loc[ledger["pipeline"] == "docs", ["build_number", "kind", "step", "duration_s"]].head(6)
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
    engine = engine_of(jobs)
    if engine_of(builds) is not engine:
        raise BadInput("builds and jobs are frames of different engines. Convert one of them.")
    check_states(builds, "state")
    check_states(jobs, "state")
    keys = pipeline_keys(builds, jobs)
    check_have_kinds(engine.column_names(jobs))
    of_builds, attrs = _select_builds(engine, builds, keys)
    of_jobs = engine.select_columns(engine.with_steps(jobs), [*keys, *NEEDS, "queue"], [*WANTS, "queue_id"])
    rows = engine.append(of_jobs, of_builds)
    names = [name for name in engine.column_names(rows) if name not in keys]
    groups = engine.group_rows(rows, names, keys)
    columns = [name for name in _COLUMNS if name != "queue_id" or name in names]
    result = engine.map_groups(groups, names, split_wall_time)[["build_id", *keys, *columns]]
    result.attrs |= attrs | {"n_negative": int((result["duration_s"] < 0).sum())}
    return result


def _select_builds(engine: Engine, builds: Frame, keys: Sequence[str]) -> tuple[Rows, dict[str, Any]]:
    """Select the builds that ended, as rows like those of jobs, and describe all others, as `attrs` of a ledger."""
    rows = engine.select_columns(builds, [*keys, *_NEEDS], wants=BLOCKED)
    state, is_blocked = nw.col("state"), expressions.is_blocked(rows.collect_schema().names())
    is_timed = ~nw.any_horizontal(nw.col("created_at", "finished_at").is_null(), ignore_nulls=False)
    rows = rows.with_columns(
        n_blocked=is_blocked,
        n_skipped=~is_blocked & (state == "skipped").fill_null(False),
        n_not_run=~is_blocked & (state == "not_run").fill_null(False),
        n_running=~is_blocked & state.is_in(OPEN_STATES).fill_null(False),
    )
    others = nw.any_horizontal(nw.col(*_OTHERS), ignore_nulls=False)
    rows = rows.with_columns(n_without_times=~others & ~is_timed).with_columns(n_builds=~others & is_timed)
    names, id = ["n_builds", *_OTHERS, "n_without_times"], nw.col("id")
    n_repeated = id.count() + id.is_null().any().cast(nw.Int64) - id.n_unique()
    sums = engine.to_arrow(rows.select(nw.col(*names).cast(nw.Int64).sum(), n_repeated=n_repeated)).to_pylist()[0]
    if sums["n_repeated"]:
        check_unique_ids(engine.collect(rows.select("id")))
    ended = rows.filter(nw.col("n_builds")).select(*keys, *_NEEDS, type=nw.lit(BUILD))
    attrs: dict[str, Any] = {name: int(sums[name] or 0) for name in names}
    is_open = nw.col("n_running") | nw.col("n_blocked")
    attrs["open"] = _list_open(engine.collect(rows.filter(is_open).select(*keys, "created_at")), keys)
    return ended.rename({"number": "build_number"}).drop("state"), attrs


def _list_open(builds: pd.DataFrame, keys: Sequence[str]) -> dict[Any, list[Any]]:
    """Return where and when these builds were created, in values that JSON has, ordered by time.

    Lists of columns, because pandas copies `attrs` with each operation.
    """
    created = builds["created_at"].map(pd.Timestamp.isoformat, na_action="ignore")
    listed = builds[[*keys]].assign(build_created_at=created).sort_values(["build_created_at", *keys]).astype(object)
    return listed.where(listed.notna(), None).to_dict("list")
