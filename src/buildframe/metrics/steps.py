"""Assign jobs to steps across builds. Knows keys and names of jobs, not their outcomes."""

from __future__ import annotations

import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import column, has_column, typed_column
from buildframe.spec import job_columns


@checked_names
def step(jobs: pd.DataFrame) -> pd.Series[str]:
    """
    Return the step of each job: the column `step` of fetched jobs.

    A step is the same in every build, and two jobs of a build that are not parallel jobs, matrix
    jobs or attempts of one step never share it. It follows from the job and its build alone, so you
    can filter and sort the frame before.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the column `step`. For other frames, such as files of older versions, the step is
        computed from `step_key` and `name`, and from `group_key`, `command`,
        `parallel_group_index`, `parallel_group_total`, `matrix`, `build_id`, `step_id`, `id`,
        `retried_in_job_id` and `retry_source` if the frame has them. Pass whole builds then.

    Returns
    -------
    pandas.Series
        str on the index of the frame; null for a job without key, name and command, such as a wait
        step.

    Raises
    ------
    BadInput
        If the frame has no `step`, and `step_key` or `name` is missing.

    Notes
    -----
    The step is

    - the `step_key`,
    - or else the `name` with its emoji, and with the `group_key` in parentheses if there is one,
    - or else the first 60 characters of the `command`.

    The name of a parallel job loses its own shard number: with `parallel_group_total` 2, "RSpec
    1/2" and "RSpec (2 of 2)" belong to "RSpec". So do both without this column, if they are all
    jobs of one `step_id` in their build. "iOS 17/18" of any other job stays as it is. In the name
    of a matrix job, `{{matrix.os}}` stands for the value of the dimension "os".

    If several steps of a build would be the same by these rules, `step_id` separates them, or,
    without it, which jobs are parallel jobs, matrix jobs or attempts of each other. Their commands
    are added in parentheses if these differ, or else their order in the build: "Test #1", "Test
    #2". Give steps keys to keep them apart whatever else changes.

    Plots and reports show steps without emoji where that is clear.

    Names repeat between pipelines: group by `["pipeline", metrics.step]` if a frame holds several.

    Examples
    --------
    >>> jobs.assign(step=metrics.step).groupby("pipeline")["step"].nunique()
    pipeline
    api         21
    billing      8
    data        14
    docs         4
    mobile      15
    platform    30
    release      4
    web         21
    Name: step, dtype: int64
    >>> metrics.percentiles(jobs, by=["pipeline", metrics.step], q=0.5)[["pipeline", "step", "n", "p50_s"]].tail(3)
        pipeline         step    n     p50_s
    111      web  unit-shared   38  106.5765
    112      web       upload   39    1.3660
    113      web       visual  115    1.3560
    """
    if has_column(jobs, "step"):
        return typed_column(jobs, "step")
    for name in ("step_key", "name"):
        column(jobs, name)  # raises BadInput if it is missing
    return job_columns.compute_in_frame(jobs, ["step"])["step"]
