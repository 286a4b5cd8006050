"""Predict how much time builds would save if one step took less time.

This is done for the steps where it matters most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import DAY_LENGTH, NAT, TEXT, Flags, Floats, Integers
from buildframe.metrics.replaying.description import describe_replay
from buildframe.metrics.replaying.event_loop import Changes, simulate
from buildframe.metrics.replaying.fleets import HOUR, UNLIMITED, Fleet
from buildframe.metrics.replaying.model import ReplayModel
from buildframe.metrics.replaying.prepared import PreparedReplay, prepare
from buildframe.metrics.replaying.record import AGENT, NO_QUEUE
from buildframe.terminal import show

_COLUMNS: dict[str, Any] = {
    "pipeline": TEXT,
    "step": TEXT,
    "machine_h": "float64",
    "mean_saved_s_unlimited": "float64",
    "mean_saved_s": "float64",
    "hours_saved": "float64",
    "clear": "boolean",
    "low_s_unlimited": "float64",
    "high_s_unlimited": "float64",
    "low_s": "float64",
    "high_s": "float64",
    "low_h": "float64",
    "high_h": "float64",
    "hours_saved_unlimited": "float64",
    "low_h_unlimited": "float64",
    "high_h_unlimited": "float64",
}

_MIN_DAYS = 3
"""With fewer days, how these vary says nothing."""


@checked_names
def leverage(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    faster: float = 0.1,
    pipeline: str | None = None,
    top: int = 20,
) -> pd.DataFrame:
    """
    Predict how much wall time builds would save if one step took less time, and rank steps by it.

    The recorded builds are replayed once per step with shorter run times of this step, and compared
    with a replay without changes: a virtual speed-up [1]_. This is done with enough agents for all
    jobs, so that only the critical path counts, and with the recorded agents, which a faster step
    leaves to other jobs sooner.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with the columns that `replay` needs.
    jobs : pandas.DataFrame
        All jobs of these builds, fetched with `include_retried_jobs=True`, with the columns that
        `replay` needs.
    faster : float, default 0.1
        Share of its run time that a step saves, in (0, 1].
    pipeline : str, optional
        Slug of the pipeline whose steps are tried. By default those of all pipelines. All builds
        are replayed in any case, because pipelines share agents.
    top : int, default 20
        Number of steps to try, at least 1: those that take most time on critical chains, or of the
        agents that these chains wait for.

    Returns
    -------
    pandas.DataFrame
        One row per step that was tried, ordered by `hours_saved`, the largest first:

        =============================== ======= ====================================================
        pipeline, step                  str     step that takes less time
        machine_h                       float64 hours that its jobs ran
        mean_saved_s_unlimited          float64 mean seconds saved per build of the pipeline, with
                                                enough agents for all jobs
        mean_saved_s                    float64 the same with the recorded agents
        hours_saved                     float64 hours saved in all builds of all pipelines, with the
                                                recorded agents; negative if others wait longer
        clear                           boolean the interval of `hours_saved` lies above 0
        low_s_unlimited,                float64 95 % interval of `mean_saved_s_unlimited`; NaN with
        high_s_unlimited                        builds of fewer than three days, as all intervals
        low_s, high_s                   float64 95 % interval of `mean_saved_s`
        low_h, high_h                   float64 95 % interval of `hours_saved`
        hours_saved_unlimited           float64 hours saved in all builds of all pipelines, with
                                                enough agents
        low_h_unlimited,                float64 95 % interval of `hours_saved_unlimited`
        high_h_unlimited
        =============================== ======= ====================================================

        Its `attrs` have `faster`, the number of builds that ended in both replays (`n_builds`), and
        `error`, `fleet` and `gap_share` of `replay`.

    Raises
    ------
    BadInput
        As for `replay`; if no job is of `pipeline`, `faster` lies outside (0, 1], or `top` is below
        1.

    See Also
    --------
    replay : The prediction behind each row, as frames.
    agents_needed : What more agents would save instead.
    time_ledger : Which steps are on the critical chains.
    buildframe.plots.leverage : Plot these numbers.

    Notes
    -----
    The two savings differ. With enough agents, only steps on the critical path count, and a step
    saves at most what its own path gains over the next longest one. With the recorded agents, a
    faster step also gives its agents to others sooner, so a step off every critical path can save
    time. A step before a busy queue can save less, because builds wait there for what they saved.

    Savings are differences of wall time between two replays of the same builds. The variance
    between days gives the interval: builds of a day share its queues. It says how much another
    month could differ, not how far off the replay is; for that see `attrs["error"]`.

    There is no saving of a p95: few builds decide it, and its interval is usually wider than the
    saving.

    References
    ----------
    .. [1] Curtsinger, C., and Berger, E. D. (2015). Coz: finding code that counts with causal
       profiling. Proceedings of
       the 25th Symposium on Operating Systems Principles, 184-197.

    Examples
    --------
    >>> saved = metrics.leverage(builds, jobs, faster=0.5, top=5)
    >>> columns = ["pipeline", "step", "mean_saved_s_unlimited", "mean_saved_s", "hours_saved", "clear"]
    >>> saved[columns].round(1)
      pipeline          step  mean_saved_s_unlimited  mean_saved_s  hours_saved  clear
    0   mobile  ios-payments                   260.9        1054.1          7.0   True
    1   mobile   ios-widgets                    19.0         849.0          5.7   True
    2   mobile     ios-build                   375.9         812.8          5.4   True
    3   mobile     ios-watch                     3.3         776.1          5.2   True
    4   mobile  ios-snapshot                     0.0         743.1          5.0   True
    """
    _check_arguments(faster, top)
    prepared = prepare(builds, jobs)
    model = prepared.model
    pipeline_of_step = _find_pipelines_of_steps(prepared)
    with_recorded = _Comparison(model, prepared.fleets)
    with_unlimited = _Comparison(model, [Fleet(UNLIMITED)] * model.n_queues)
    rows = []
    for number, machine_h in _choose_steps(prepared, pipeline, top):
        scale = prepared.rows_of({number: 1 - faster})
        is_of_pipeline = model.builds.pipeline == pipeline_of_step[number]
        name, step = prepared.record.steps[number]
        row: dict[str, Any] = {"pipeline": name, "step": step, "machine_h": machine_h}
        row |= with_unlimited.savings(scale, is_of_pipeline, "_unlimited")
        row |= with_recorded.savings(scale, is_of_pipeline, "")
        rows.append(row)
    result = pd.DataFrame(rows, columns=[name for name in _COLUMNS if name != "clear"])
    result = result.assign(clear=result["low_h"] > 0)[[*_COLUMNS]].astype(_COLUMNS)
    result = result.sort_values("hours_saved", ascending=False, kind="stable", ignore_index=True)
    n_builds = with_recorded.n_ended
    result.attrs |= {"faster": faster, "n_builds": n_builds} | describe_replay(prepared)
    return result


def _find_pipelines_of_steps(prepared: PreparedReplay) -> Integers:
    """Return the number of the pipeline of each step."""
    jobs = prepared.record.jobs
    pipeline = np.full(len(prepared.record.steps), -1)
    pipeline[jobs.step] = prepared.record.builds.pipeline[jobs.build]
    return pipeline


def _choose_steps(
    prepared: PreparedReplay,
    pipeline: str | None,
    top: int,
) -> list[tuple[int, float]]:
    """Return the numbers of the steps that can save most, and the hours of machine time of each."""
    names = [name for name, _ in prepared.record.steps]
    if pipeline is not None and names and pipeline not in names:
        known = ", ".join(map(repr, sorted({*names})[:20]))
        raise BadInput(f"pipeline={show(pipeline)} has no job. Use one of {known}.")
    machine_h, possible_h = _step_hours(prepared)
    is_of_pipeline = np.array([pipeline in (None, name) for name in names], np.bool_)
    is_candidate = is_of_pipeline & (machine_h > 0)
    largest_first = np.argsort(-np.where(is_of_pipeline, possible_h, 0), kind="stable")
    chosen = largest_first[is_candidate[largest_first]][:top].tolist()
    return [(number, float(machine_h[number])) for number in chosen]


def _step_hours(prepared: PreparedReplay) -> tuple[Floats, Floats]:
    """Return the machine hours of each step, and roughly the wall time that builds owe to it.

    That is its own time on critical chains, and its share of the time that these wait for agents:
    of the waits in a queue, as much as of its machine time.
    """
    jobs = prepared.record.jobs
    n_queues = max(prepared.model.n_queues, 1)
    n_steps = len(prepared.record.steps)
    has_run = np.isin(jobs.kind, [AGENT, NO_QUEUE]) & (jobs.started != NAT)
    until = np.where(jobs.ended == NAT, prepared.record.end, jobs.ended)
    run_h = np.where(has_run, np.maximum(until - jobs.started, 0), 0) / HOUR
    has_waited = has_run & (jobs.ready != NAT)
    wait_h = np.where(has_waited, np.maximum(jobs.started - jobs.ready, 0), 0) / HOUR
    is_critical = _find_critical(prepared)
    queue = np.maximum(jobs.queue, 0)
    busy_h = np.bincount(queue, run_h, n_queues)
    # Hours that critical chains wait in a queue per hour of machine time in it.
    delay = np.bincount(queue, wait_h * is_critical, n_queues) / np.maximum(busy_h, 1e-9)
    owed_h = run_h * is_critical + run_h * delay[queue]
    machine_h = np.bincount(jobs.step, run_h, n_steps).astype(np.float64)
    possible_h = np.bincount(jobs.step, owed_h, n_steps).astype(np.float64)
    return machine_h, possible_h


def _find_critical(prepared: PreparedReplay) -> Flags:
    """Return which jobs are on the critical chain of their build.

    These are the last one, its predecessor, and so on.
    """
    jobs = prepared.record.jobs
    pipeline_jobs = prepared.record.pipelines
    ended = np.where(pipeline_jobs.started == NAT, NAT, pipeline_jobs.finished)
    by_build = np.lexsort((ended, pipeline_jobs.build))
    is_last = np.diff(pipeline_jobs.build[by_build], append=-1) != 0
    row = by_build[is_last]
    is_critical = np.zeros(len(pipeline_jobs.build), np.bool_)
    while len(row):
        is_critical[row] = True
        row = prepared.found.row[row]
        row = row[(row >= 0) & ~is_critical[row]]
    return is_critical[jobs.from_pipeline]


def _check_arguments(faster: float, top: int) -> None:
    if isinstance(faster, bool) or not isinstance(faster, int | float) or not 0 < faster <= 1:
        advice = "Use one such as 0.1 for 10 % less time."
        raise BadInput(f"faster={show(faster)} is not a fraction in (0, 1]. {advice}")
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise BadInput(f"top={show(top)}: pass a whole number of at least 1.")


class _Comparison:
    """Wall times of all builds on given fleets, and what is saved relative to these."""

    def __init__(self, model: ReplayModel, fleets: Sequence[Fleet]) -> None:
        self._model = model
        self._fleets = fleets
        times = simulate(model, Changes(fleets))
        self._walls = times.wall_s
        self._day = times.build_created // DAY_LENGTH

    @property
    def n_ended(self) -> int:
        return int((~np.isnan(self._walls)).sum())

    def savings(self, scale: Floats, is_of_pipeline: Flags, suffix: str) -> dict[str, float]:
        """Return what is saved if run times are scaled: columns with a suffix.

        Seconds are those per build of the pipeline, and hours those of all builds.
        """
        saved_s = self._walls - simulate(self._model, Changes(self._fleets, scale=scale)).wall_s
        per_build = estimate_saving(saved_s[is_of_pipeline], self._day[is_of_pipeline])
        hours, low_h, high_h = estimate_saving(saved_s, self._day).hours()
        savings = {
            "mean_saved_s": per_build.mean,
            "low_s": per_build.low,
            "high_s": per_build.high,
            "hours_saved": hours,
            "low_h": low_h,
            "high_h": high_h,
        }
        return {name + suffix: value for name, value in savings.items()}


class Saving(NamedTuple):
    """Mean seconds saved per build, its 95 % interval (NaN if unknown), and number of builds."""

    mean: float
    low: float
    high: float
    builds: int

    def hours(self) -> tuple[float, float, float]:
        """Return the hours saved in all builds, with their interval."""
        mean, low, high = (value * self.builds / 3600 for value in self[:3])
        return mean, low, high


def estimate_saving(saved: Floats, day: Integers) -> Saving:
    """Estimate the mean of paired differences.

    Builds of a day depend on each other, so days are the sample. Builds with an unknown difference
    (NaN) are left out. The mean is a ratio of sums over days: its variance follows from the
    residuals of days (Cochran 1977, Sampling Techniques, chapter 6).
    """
    from scipy.special import stdtrit

    is_known = ~np.isnan(saved)
    n = int(is_known.sum())
    if not n:
        return Saving(math.nan, math.nan, math.nan, 0)
    mean = float(saved[is_known].mean())
    _, number = np.unique(day[is_known], return_inverse=True)
    residuals = np.bincount(number, saved[is_known] - mean)
    days = len(residuals)
    if days < _MIN_DAYS:
        return Saving(mean, math.nan, math.nan, n)
    error = math.sqrt(days / (days - 1) * float((residuals**2).sum())) / n
    width = float(stdtrit(days - 1, 0.975)) * error
    return Saving(mean, mean - width, mean + width, n)
