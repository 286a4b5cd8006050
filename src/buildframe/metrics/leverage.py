"""Predict how much time builds would save if one step took less time, for the steps where that matters most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import DAY_LENGTH, NAT, Flags, Floats, Integers
from buildframe.metrics.paired_savings import estimate_saving
from buildframe.metrics.replaying.description import describe_replay
from buildframe.metrics.replaying.event_loop import Changes, simulate
from buildframe.metrics.replaying.fleets import HOUR, UNLIMITED, Fleet
from buildframe.metrics.replaying.model import ReplayModel
from buildframe.metrics.replaying.prepared import PreparedReplay, prepare
from buildframe.metrics.replaying.record import AGENT, NO_QUEUE
from buildframe.terminal import show

_COLUMNS = {
    "pipeline": "str", "step": "str", "machine_h": "float64", "mean_saved_s_unlimited": "float64",
    "mean_saved_s": "float64", "hours_saved": "float64", "clear": "boolean", "low_s_unlimited": "float64",
    "high_s_unlimited": "float64", "low_s": "float64", "high_s": "float64", "low_h": "float64", "high_h": "float64",
    "hours_saved_unlimited": "float64", "low_h_unlimited": "float64", "high_h_unlimited": "float64",
}  # fmt: skip


@checked_names
def leverage(
    builds: pd.DataFrame, jobs: pd.DataFrame, faster: float = 0.1, pipeline: str | None = None, top: int = 20
) -> pd.DataFrame:
    """
    Predict how much wall time builds would save if one step took less time, and rank steps by it.

    The recorded builds are replayed once per step with shorter run times of this step, and compared with a replay
    without changes: a virtual speed-up [1]_. This is done with enough agents for all jobs, so that only the critical
    path counts, and with the recorded agents, which a faster step leaves to other jobs sooner.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with the columns that `replay` needs.
    jobs : pandas.DataFrame
        All jobs of these builds, fetched with `include_retried_jobs=True`, with the columns that `replay` needs.
    faster : float, default 0.1
        Share of its run time that a step saves, in (0, 1].
    pipeline : str, optional
        Slug of the pipeline whose steps are tried. By default those of all pipelines. All builds are replayed in any
        case, because pipelines share agents.
    top : int, default 20
        Number of steps to try, at least 1: those that take most time on critical chains, or of the agents that these
        chains wait for.

    Returns
    -------
    pandas.DataFrame
        One row per step that was tried, ordered by `hours_saved`, the largest first:

        =============================== ======= ===============================================================
        pipeline, step                  str     step that takes less time
        machine_h                       float64 hours that its jobs ran
        mean_saved_s_unlimited          float64 mean seconds saved per build of the pipeline, with enough
                                                agents for all jobs
        mean_saved_s                    float64 the same with the recorded agents
        hours_saved                     float64 hours saved in all builds of all pipelines, with the recorded
                                                agents; negative if others wait longer
        clear                           boolean the interval of `hours_saved` lies above 0
        low_s_unlimited,                float64 95 % interval of `mean_saved_s_unlimited`; NaN with builds of
        high_s_unlimited                        fewer than three days, as all intervals
        low_s, high_s                   float64 95 % interval of `mean_saved_s`
        low_h, high_h                   float64 95 % interval of `hours_saved`
        hours_saved_unlimited           float64 hours saved in all builds of all pipelines, with enough agents
        low_h_unlimited,                float64 95 % interval of `hours_saved_unlimited`
        high_h_unlimited
        =============================== ======= ===============================================================

        Its `attrs` have `faster`, the number of builds that ended in both replays (`n_builds`), and `error`, `fleet`
        and `gap_share` of `replay`.

    Raises
    ------
    BadInput
        As for `replay`; if no job is of `pipeline`, `faster` lies outside (0, 1], or `top` is below 1.

    See Also
    --------
    replay : The prediction behind each row, as frames.
    agents_needed : What more agents would save instead.
    time_ledger : Which steps are on the critical chains.
    buildframe.plots.leverage : Plot these numbers.

    Notes
    -----
    The two savings differ. With enough agents, only steps on the critical path count, and a step saves at most what its
    own path gains over the next longest one. With the recorded agents, a faster step also gives its agents to others
    sooner, so a step off every critical path can save time. A step before a busy queue can save less, because builds
    wait there for what they saved.

    Savings are differences of wall time between two replays of the same builds. The variance between days gives the
    interval: builds of a day share its queues. It says how much another month could differ, not how far off the replay
    is; for that see `attrs["error"]`.

    There is no saving of a p95: few builds decide it, and its interval is usually wider than the saving.

    References
    ----------
    .. [1] Curtsinger, C., and Berger, E. D. (2015). Coz: finding code that counts with causal profiling. Proceedings of
       the 25th Symposium on Operating Systems Principles, 184-197.

    Examples
    --------
    >>> saved = metrics.leverage(builds, jobs, faster=0.5, top=5)
    >>> saved[["pipeline", "step", "mean_saved_s_unlimited", "mean_saved_s", "hours_saved", "clear"]].round(1)
      pipeline          step  mean_saved_s_unlimited  mean_saved_s  hours_saved  clear
    0   mobile  ios-payments                   260.9        1054.1          7.0   True
    1   mobile   ios-widgets                    19.0         849.0          5.7   True
    2   mobile     ios-build                   375.9         812.8          5.4   True
    3   mobile     ios-watch                     3.3         776.1          5.2   True
    4   mobile  ios-snapshot                     0.0         743.1          5.0   True
    """
    _check_arguments(faster, top)
    prepared = prepare(builds, jobs)
    model, of_step = prepared.model, _pipelines_of_steps(prepared)
    unlimited = [Fleet(UNLIMITED)] * model.n_queues
    pairs = {"_unlimited": _Comparison(model, unlimited), "": _Comparison(model, prepared.fleets)}
    rows = []
    for number, machine_h in _choose_steps(prepared, pipeline, top):
        scale, own = prepared.rows_of({number: 1 - faster}), model.builds.pipeline == of_step[number]
        name, step = prepared.record.steps[number]
        row = {"pipeline": name, "step": step, "machine_h": machine_h}
        rows.append(row | {key: value for end, pair in pairs.items() for key, value in pair.savings(scale, own, end)})
    result = pd.DataFrame(rows, columns=[name for name in _COLUMNS if name != "clear"])
    result = result.assign(clear=result["low_h"] > 0)[[*_COLUMNS]].astype(_COLUMNS)
    result = result.sort_values("hours_saved", ascending=False, kind="stable", ignore_index=True)
    result.attrs |= {"faster": faster, "n_builds": pairs[""].n_ended} | describe_replay(prepared)
    return result


def _pipelines_of_steps(prepared: PreparedReplay) -> Integers:
    """Return the number of the pipeline of each step."""
    jobs, of_step = prepared.record.jobs, np.full(len(prepared.record.steps), -1)
    of_step[jobs.step] = prepared.record.builds.pipeline[jobs.build]
    return of_step


def _choose_steps(prepared: PreparedReplay, pipeline: str | None, top: int) -> list[tuple[int, float]]:
    """Return the numbers of the steps that can save most, and the hours of machine time of each."""
    names = [name for name, _ in prepared.record.steps]
    if pipeline is not None and names and pipeline not in names:
        raise BadInput(
            f"pipeline={show(pipeline)} has no job. Use one of {', '.join(map(repr, sorted({*names})[:20]))}."
        )
    machine, possible = _step_hours(prepared)
    is_own = np.array([pipeline in (None, name) for name in names], np.bool_)
    order = np.argsort(-np.where(is_own, possible, 0), kind="stable").tolist()
    chosen = [number for number in order if is_own[number] and machine[number] > 0]
    return [(number, float(machine[number])) for number in chosen[:top]]


def _step_hours(prepared: PreparedReplay) -> tuple[Floats, Floats]:
    """Return the machine time of each step in hours, and a rough estimate of the wall time that builds owe to it.

    That is its own time on critical chains, and its share of the time that these wait for agents: of the waits in a
    queue, as much as of its machine time.
    """
    jobs, n_queues = prepared.record.jobs, max(prepared.model.n_queues, 1)
    ran = np.isin(jobs.kind, [AGENT, NO_QUEUE]) & (jobs.started != NAT)
    until = np.where(jobs.ended == NAT, prepared.record.end, jobs.ended)
    hours = np.where(ran, np.maximum(until - jobs.started, 0), 0) / HOUR
    waits = np.where(ran & (jobs.ready != NAT), np.maximum(jobs.started - jobs.ready, 0), 0) / HOUR
    n_steps, is_critical, queue = len(prepared.record.steps), _find_critical(prepared), np.maximum(jobs.queue, 0)
    busy = np.bincount(queue, hours, n_queues)
    delay = np.bincount(queue, waits * is_critical, n_queues) / np.maximum(busy, 1e-9)
    owed = hours * is_critical + hours * delay[queue]
    machine, possible = (np.bincount(jobs.step, one, n_steps).astype(np.float64) for one in (hours, owed))
    return machine, possible


def _find_critical(prepared: PreparedReplay) -> Flags:
    """Return which jobs are on the critical chain of their build: the last one, its predecessor, and so on."""
    jobs, known = prepared.record.jobs, prepared.record.pipelines
    ended = np.where(known.started == NAT, NAT, known.finished)
    order = np.lexsort((ended, known.build))
    row = order[np.flatnonzero(np.diff(known.build[order], append=-1))]
    is_critical = np.zeros(len(known.build), np.bool_)
    while len(row):
        is_critical[row] = True
        row = prepared.found.row[row]
        row = row[(row >= 0) & ~is_critical[row]]
    return is_critical[jobs.from_pipeline]


def _check_arguments(faster: float, top: int) -> None:
    if isinstance(faster, bool) or not isinstance(faster, int | float) or not 0 < faster <= 1:
        raise BadInput(f"faster={show(faster)} is not a fraction in (0, 1]. Use one such as 0.1 for 10 % less time.")
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise BadInput(f"top={show(top)}: pass a whole number of at least 1.")


class _Comparison:
    """Wall times of all builds on given fleets without changes, and what is saved relative to these."""

    def __init__(self, model: ReplayModel, fleets: Sequence[Fleet]) -> None:
        self._model, self._fleets = model, fleets
        times = simulate(model, Changes(fleets))
        self._walls = times.wall_s
        self._day = times.build_created // DAY_LENGTH

    @property
    def n_ended(self) -> int:
        return int((~np.isnan(self._walls)).sum())

    def savings(self, scale: Floats, own: Flags, suffix: str) -> list[tuple[str, float]]:
        """Return columns and savings per build of the pipeline, and of all builds, if run times are scaled."""
        saved = self._walls - simulate(self._model, Changes(self._fleets, scale=scale)).wall_s
        per_build, overall = estimate_saving(saved[own], self._day[own]), estimate_saving(saved, self._day)
        hours = overall.hours()
        values = [per_build.mean, per_build.low, per_build.high, *hours]
        names = ("mean_saved_s", "low_s", "high_s", "hours_saved", "low_h", "high_h")
        return [(name + suffix, value) for name, value in zip(names, values, strict=True)]
