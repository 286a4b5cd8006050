"""Split machine time into classes of waste and a useful rest."""

from __future__ import annotations

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.attribution import CLASSES
from buildframe.metrics.engines.rows import Frame
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.validation import check_states


@checked_names
def waste(jobs: Frame, by: By = None) -> pd.DataFrame:
    """
    Split machine time into four classes of waste and the useful rest.

    The five parts add up to the machine time exactly. Each second of a run belongs to the first class that fits.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark, fetched with
        `include_retried_jobs=True` and with unique ids. Needs the columns `organization`,
        `pipeline`, `branch`, `commit`, `build_id`, `build_number`, `build_state`,
        `build_created_at`, `type`, `state`, `soft_failed`, `retried`, `started_at` and
        `finished_at`. Uses `expired_at`, `build_finished_at` and `fetched_at` if the frame has
        them.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. Failures and repeats are those of the whole build, in every
        group. By default all rows form one group.

    Returns
    -------
    pandas.DataFrame
        One row per group, ordered by key. An empty frame gives no rows. After the keys:

        =============== ======= =======================================================================
        n               Int64   script jobs that ran and ended
        machine_s       float64 seconds of run time of every attempt
        retried_s       float64 seconds of attempts that a retry superseded
        canceled_s      float64 seconds of jobs that were canceled while they ran
        after_failure_s float64 seconds of other jobs after the first hard failure of their build ended
        repeated_s      float64 remaining seconds of builds that repeated the outcome of their commit
        useful_s        float64 all other seconds
        n_running       Int64   jobs that started and are not over; in none of the sums
        n_no_end        Int64   jobs that started and are over, but whose end is unknown; in none of
                                the sums
        n_negative      Int64   run times below zero, from clocks that disagree; included in `n` and sums
        =============== ======= =======================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or a column of states holds an unknown spelling.

    See Also
    --------
    machine_time : Run time per build.
    retry_rate : Share of executions that were retried.

    Notes
    -----
    Only script jobs use machines. They end as `run_time` describes.

    A hard failure is a job that failed or timed out, neither softly nor superseded. Only the part of a run that lies
    after it counts in `after_failure_s`.

    A build repeats if the build before it with the same organization, pipeline, branch and commit ended in the same
    state. Only builds of the frame that passed or failed are compared, ordered by creation. Builds without a commit, or
    at `HEAD`, never count as repeats. If rows report different states of one build, the rows fetched last count.

    Useful are the job that failed first, soft failures, timeouts and lost agents unless retried, jobs that ended before
    their build was canceled, the first build of a commit, and a rebuild with another outcome. A nightly build, a
    deployment or a check for flakiness may be a repeat that was wanted: the classes are an upper bound of what can be
    saved. Waiting and idle machines are not machine time.

    Examples
    --------
    >>> metrics.waste(jobs)[["machine_s", "retried_s", "after_failure_s", "useful_s"]].round(0)
       machine_s  retried_s  after_failure_s  useful_s
    0   411817.0     2749.0          15554.0  389173.0
    """
    check_states(jobs, "state", "build_state")
    counted = engine_of(jobs).sum_run_time(jobs, by)
    sums = counted.sums
    seconds = {name: sums[name].to_numpy(np.float64) / 1e6 for name in CLASSES}
    result = sums.assign(**seconds)
    result.insert(1, "machine_s", sums[list(CLASSES)].sum(axis=1).to_numpy(np.float64) / 1e6)
    return join_keys(counted.keys, result)
