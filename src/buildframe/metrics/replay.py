"""Run recorded builds again with other agents, run times or load: what a change would do."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.replaying.description import describe_replay
from buildframe.metrics.replaying.options import Agents, Step, check_options, read_fleets
from buildframe.metrics.replaying.prepared import prepare
from buildframe.metrics.replaying.scenarios import replay_prepared


@checked_names
def replay(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    agents: Agents | None = None,
    run_scale: Mapping[Step, float] | None = None,
    skip: Step | Collection[Step] | None = None,
    load: float = 1.0,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """
    Run recorded builds again with other agents, run times or load.

    Without changes, the result agrees with the record. With changes, jobs get their agents at other
    times, so that all that waits for them moves: later jobs, retries, triggered and rebuilt builds,
    cancellations by newer builds. The frames have the columns of those that you pass, so every
    metric, plot and ledger applies to them.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with the columns `id`, `pipeline`, `state`, `created_at` and `finished_at`. Uses
        `number`, `branch`, `blocked`, `rebuilt_from_id`, `triggered_from_build_id` and
        `fetched_at`. Ids must be unique.
    jobs : pandas.DataFrame
        All jobs of these builds, fetched with `include_retried_jobs=True` and with unique ids. Keep
        the order in which they were fetched: jobs of a build that are ready at once get agents in
        this order. Needs the columns `id`, `build_id`, `pipeline`, `type`, `state`, `queue`,
        `created_at`, `runnable_at`, `started_at`, `finished_at`, and `step` or `step_key` and
        `name`. Uses `agent_id`, `priority`, `soft_failed`, `retried_in_job_id`, `retry_of_job_id`,
        `retry_of_type`, `retry_source`, `retry_type`, `exit_status`, `signal`, `signal_reason`,
        `triggered_build`, `async`, `label`, `unblocked_at` and `fetched_at`; if one is missing, it
        counts as null. If both frames have `organization`, it identifies pipelines and queues, too.
    agents : int, sequence of int, dict, optional
        Agents of every queue: a whole number, `float("inf")`, or a schedule of 168 whole numbers
        for the hours of a week from Monday 0:00 UTC. A dict has these by key or `queue_id` of a
        queue; other queues keep their agents. A key that several clusters have is refused. By
        default, the number is inferred from the record, see Notes.
    run_scale : dict, optional
        Factors for run times, such as `{"e2e": 0.5}`. Keys are steps, or pairs of pipeline and
        step.
    skip : str, tuple or collection, optional
        Steps, or pairs of pipeline and step, whose script jobs neither wait for an agent nor run.
        Outcomes stay.
    load : float, default 1.0
        How many times as many builds there are: below 1 some are left out at random, above 1 some
        are copied, together with the builds that they triggered and those that rebuilt them. A copy
        is created within half an hour of its original, on a branch that no other build has.
    seed : int, default 0
        Seed of what is random: `load`, and the lags in `attrs["error"]`.

    Returns
    -------
    builds, jobs : pandas.DataFrame
        Frames with the columns, dtypes, order and index of those passed; new texts in a column of
        categories are new categories. What did not happen before the record ended is NaT, and
        states are those at that time; builds and jobs that were not created until then are left
        out. Copies of builds follow at the end, with `~1`, `~2` and so on after ids, and larger
        numbers; the index is then a new one. Their `attrs` have:

        - `fleet`: a dict by queue (`organization/queue` if several organizations have one of the
          name) of `agents` (a number or 168), `rule` (how it was found) and `single_use`;
        - `gap_share`: share of the jobs that were ready more than 2 s after all that they are known
          to wait for. Such gaps, which people or concurrency limits cause, stay as they were;
        - `n_no_queue`: script jobs without a known queue. They wait as recorded and take no agent;
        - `error`: a dict of the lists `of` (`queue` or `pipeline`), `name`, `n`, `recorded_p50_s`,
          `predicted_p50_s`, `recorded_p95_s` and `predicted_p95_s`, of queue times and of wall
          times. No p95 below 20 rows.

    Raises
    ------
    BadInput
        If a frame is not of pandas, a column is missing, a timestamp has no time zone, an id occurs
        twice, `state` holds states in an unknown spelling, a job's build is missing, or an option
        is invalid or names a queue or a step that the record does not have.

    See Also
    --------
    agents_needed : Waits in a queue with each number of agents.
    leverage : The steps whose speed-up saves most.
    step_graph : The dependencies between steps.
    percentiles : Summarize queue times and wall times of the result.
    time_ledger : Where each second of each build went.

    Notes
    -----
    The simulation processes events in the order of their times [1]_. It ends with the record: when
    rows were last fetched, or else at the last time in it.

    - A job is ready when it was created and the steps before it were released, plus its recorded
      gap. Only `binding` dependencies of `step_graph` count. A job that another one uploaded keeps
      its offset from that job's start, multiplied by `run_scale` of that job.
    - Free agents take jobs by priority, then by the time since which they are ready, then by the
      order of builds and rows. They hold them for their lag and their run. The lag is the time from
      when the job was ready and its agent free until it started. The first job on an agent may have
      waited for others, unless it found less than 80 % as many jobs in its queue as ever ran at
      once; the median of these lags, the time to boot, limits the others. An agent that was lost
      stays away as long as recorded.
    - Retries keep outcome and delay. A triggered build moves with its trigger job, and a trigger
      job that waited for its build ends with it. A rebuild moves with the end of its original.
    - A build that a person canceled ends as long after its creation as recorded. If on a branch at
      least 3 builds under way met a newer build, and at least 80 % of them were canceled (or
      skipped, if they had not started) within 2 s, newer builds do so in the replay, too. Short
      branches with fewer cases are decided together per pipeline.
    - What was canceled or did not end, and now ends, has passed. It runs as long as was seen, or as
      the median of its step, whichever is longer. Jobs that were canceled alone or expired do so as
      long after they were ready.

    The agents of a queue are inferred by three rules: `distinct agents`, `maximum concurrency` and
    `busy agents by hour of week`, the median of busy agents while jobs wait. The rule wins whose
    agents, inferred from half of the days, give the waits of the other half best.

    `error` says how well the unchanged record is predicted if agents, lags and dependencies are
    inferred from the other half of the days. It does not include the error of your assumption, such
    as a run time that is half as long.

    Predictions were compared with months of the sandbox that ran again with other agents or step
    speeds: 100 pairs of 20 months. The percentiles of queue and wall times that moved by more than
    10 % and 5 s, 1,026 in number, were predicted with a median error of 0.5 %, and 93.8 % of them
    within 10 % or 5 s. Time limits of steps are not known to a replay, so a much slower step may be
    predicted wrongly; `docs/performance.md` lists all misses.

    References
    ----------
    .. [1] Kiefer, J., and Wolfowitz, J. (1955). On the theory of queues with many servers.
       Transactions of the American
       Mathematical Society 78, 1-18.

    Examples
    --------
    >>> builds_then, jobs_then = metrics.replay(builds, jobs, agents={"macos": 4})
    >>> for frame in (jobs, jobs_then):
    ...     waits = frame.assign(queued=metrics.queue_time).groupby("queue")["queued"]
    ...     print(waits.quantile(0.95).dt.round("1s")["macos"])
    0 days 02:25:47
    0 days 00:27:05
    >>> {queue: fleet["agents"] for queue, fleet in builds_then.attrs["fleet"].items()}
    {'default': 5, 'deploy': 2, 'docker': 2, 'macos': 4}
    >>> error = pd.DataFrame(builds_then.attrs["error"]).round(1)
    >>> error.loc[error["name"] == "macos", ["n", "recorded_p95_s", "predicted_p95_s"]]
         n  recorded_p95_s  predicted_p95_s
    3  161          8746.5           8744.7
    """
    check_options(agents, run_scale, skip, load, seed)
    prepared = prepare(builds, jobs)
    frames = replay_prepared(prepared, builds, jobs, agents, run_scale, skip, load, seed)
    attrs = describe_replay(prepared, read_fleets(agents, prepared), seed)
    for frame in frames:
        frame.attrs |= attrs
    return frames
