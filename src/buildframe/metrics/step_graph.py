"""Infer which steps of a pipeline depend on which, from the times of their jobs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.rows import GROUP, Frame
from buildframe.metrics.predecessors import NEEDS, WANTS, find_predecessors, is_refuted, pipeline_keys, read_jobs
from buildframe.metrics.validation import check_states


@checked_names
def step_graph(jobs: Frame) -> pd.DataFrame:
    """
    Infer which steps of each pipeline depend on which.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns that `time_ledger` needs of jobs,
        except `queue`. Pass whole builds, at least 20 of each pipeline.

    Returns
    -------
    pandas.DataFrame
        One row per pair of steps of a pipeline that some build has, ordered by pipeline and steps. `organization` is
        the first column if the jobs have it:

        ======== ===== ==============================================================================
        pipeline str   slug of the pipeline
        before   str   step that may have to end first
        after    str   step that may depend on it
        builds   Int64 builds in which `before` was released and `after` was runnable
        refuted  Int64 builds of these that contradict the dependency by more than 1 s
        binding  Int64 builds in which `after` was runnable within 5 s after `before` was released,
                       the last step to be
        status   str   `refuted`, `binding` or `possible`
        ======== ===== ==============================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, an id occurs twice, or `state` holds states in an unknown
        spelling.

    See Also
    --------
    time_ledger : Where each second of each build went, along this graph.

    Notes
    -----
    A build contradicts a dependency if `after` was runnable more than 1 s before `before` was released: before its last
    shard passed, failed softly or was unblocked. A pair is `refuted` if more than 5 % of its builds contradict it. One
    contradiction does not refute, because clocks disagree. Other pairs are `binding` if they were in at least one
    build. A `possible` dependency may exist or not: in each build another step ended later.

    If `before` was not released, as when it failed, a build shows nothing about the pair. The job that uploads steps is
    not one that they depend on. A dependency on a step that never ends last stays `possible`.

    Examples
    --------
    >>> graph = metrics.step_graph(jobs)
    >>> docs = graph[(graph["pipeline"] == "docs") & (graph["status"] != "refuted")]
    >>> docs.drop(columns="organization")
        pipeline  before after  builds  refuted  binding    status
    636     docs   prose  site      11        0       11   binding
    643     docs  upload  site      11        0        0  possible
    """
    check_states(jobs, "state")
    engine = engine_of(jobs)
    keys = pipeline_keys(jobs)
    rows = engine.with_steps(jobs)
    names = [*NEEDS, *(name for name in WANTS if name in engine.column_names(rows))]
    return engine.map_groups(engine.group_rows(rows, names, keys), names, _find_pairs)


def _find_pairs(table: pd.DataFrame) -> pd.DataFrame:
    jobs = read_jobs(table)
    _, pairs = find_predecessors(jobs)
    status = np.where(pairs.binding > 0, "binding", "possible")
    found = {
        GROUP: jobs.group_of_step[pairs.before],
        "before": jobs.steps.array.take(pairs.before),
        "after": jobs.steps.array.take(pairs.after),
        "builds": pd.array(pairs.builds, "Int64"),
        "refuted": pd.array(pairs.contradicted, "Int64"),
        "binding": pd.array(pairs.binding, "Int64"),
        "status": pd.array(np.where(is_refuted(pairs.builds, pairs.contradicted), "refuted", status), "str"),
    }
    return pd.DataFrame(found).iloc[np.lexsort((pairs.after, pairs.before))].reset_index(drop=True)
