"""Compute the jobs of one build as bars over time, and its critical chain. Does not know how they are drawn."""

from __future__ import annotations

from typing import Any

import pandas as pd

from buildframe.formatting import format_name
from buildframe.metrics.columns import TEXT, column, require_columns, timestamps
from buildframe.metrics.job_ends import IS_OVER, SEEN_UNTIL, end_times, with_ends
from buildframe.metrics.steps import step
from buildframe.metrics.time_ledger import KINDS, time_ledger

_KIND_NAMES = {
    "concurrency": "waiting for a concurrency limit", "blocked": "waiting for a person to unblock",
    "manual_retry": "waiting for a person to retry", "queue": "waiting for an agent", "run": "running",
    "retry": "attempts that were retried", "trigger": "triggered builds",
}  # fmt: skip
KIND_NAMES = {kind: _KIND_NAMES.get(kind, kind) for kind in KINDS}
"""Names of the kinds of segments for people, in the order of the documentation."""

_LEDGER_COLUMNS = ("build_id", "position", "kind", "job_id", "started_at", "finished_at")


def compute_bars(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per job that became runnable, in the order of drawing; times in minutes since build creation.

    A job waits from `first` to `wait_to` and runs from `run_from` to `end` (float64, NaN if it did not). `kind` is
    `ran`, `failed`, `timed out`, `canceled`, `triggered build` or `blocked`. `open` is true if it has not ended, and
    `retried` if another attempt followed. Further columns are `id`, `step`, `name` and
    `step_begins`, the step's least `first`.
    """
    stamps = _find_times(jobs)
    zero = timestamps(jobs, "build_created_at").min()
    minutes = {name: (stamp - zero).dt.total_seconds() / 60 for name, stamp in stamps.items()}
    bars = pd.DataFrame({"id": column(jobs, "id"), **minutes, "kind": _classify(jobs), "step": step(jobs)})
    is_unblocked = _has_type(jobs, "manual") & (column(jobs, "state") != "blocked")
    bars["open"] = ~with_ends(jobs)[IS_OVER] & ~is_unblocked
    bars["name"] = _name_bars(jobs, bars["step"])
    bars["retried"] = column(jobs, "retried").astype("boolean").fillna(False).astype(bool)
    return _order_bars(bars[bars["first"].notna()])


def infer_ledger(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return the ledger of the build of these jobs, as if it had ended with the last of them."""
    names = {"build_id": "id", "build_number": "number", "build_created_at": "created_at", "pipeline": "pipeline"}
    require_columns(jobs.columns, names)
    ends = pd.concat([end_times(jobs), timestamps(jobs, "unblocked_at")])
    build = jobs[[*names]].head(1).rename(columns=names)
    return time_ledger(build.assign(branch=None, state="passed", finished_at=ends.max()), jobs)


def compute_chain(jobs: pd.DataFrame, bars: pd.DataFrame, ledger: pd.DataFrame | None) -> pd.DataFrame:
    """Return the segments of the build's critical chain in order; `start` and `end` in minutes since its creation.

    `row` is that of the job among the bars, or of the segment before if it has no job; `kind` and `seconds` are those
    of the ledger. A build without segments in the ledger has no rows.
    """
    ledger = pd.DataFrame(columns=_LEDGER_COLUMNS) if ledger is None else ledger
    require_columns(ledger.columns, _LEDGER_COLUMNS)
    own = ledger[ledger["build_id"] == column(jobs, "build_id").iloc[0]].sort_values("position")
    zero, rows = timestamps(jobs, "build_created_at").min(), dict(zip(bars["id"], bars.index, strict=True))
    of_job = own["job_id"].map(rows).astype("float64")
    chain = pd.DataFrame({"kind": own["kind"], "row": of_job.ffill().bfill()})
    for name, stamp in (("start", "started_at"), ("end", "finished_at")):
        chain[name] = (timestamps(own, stamp) - zero).dt.total_seconds() / 60
    chain = chain.dropna(subset=["row"]).reset_index(drop=True)
    return chain.assign(seconds=60 * (chain["end"] - chain["start"])).astype({"row": "int64"})


def sum_kinds(chain: pd.DataFrame) -> pd.Series[float]:
    """Return the seconds of each kind of segment that is present, in the order of the documentation."""
    sums = chain.groupby("kind")["seconds"].sum()
    return sums.reindex([kind for kind in KINDS if kind in sums.index])


def is_negative(bars: pd.DataFrame) -> pd.Series[bool]:
    """Return which bars end before they run, because clocks disagree."""
    return bars["end"] < bars["run_from"]


def _find_times(jobs: pd.DataFrame) -> dict[str, pd.Series[Any]]:
    """Return when each bar begins (`first`), stops waiting, starts to run, and ends.

    A bar whose job ended at an unknown time ends as it begins.
    """
    column(jobs, "finished_at")
    runnable, started, fetched = (timestamps(jobs, name) for name in ("runnable_at", "started_at", "fetched_at"))
    runs_at_once = _has_type(jobs, "trigger") & runnable.notna()
    run_from = started.mask(runs_at_once, runnable)
    seen_until = timestamps(with_ends(jobs), SEEN_UNTIL).fillna(run_from).fillna(runnable)
    end = seen_until
    manual = _has_type(jobs, "manual")
    if manual.any():
        unblocked = timestamps(jobs, "unblocked_at").mask(column(jobs, "state").eq("blocked"), fetched)
        end = end.mask(manual, unblocked)
        run_from = run_from.mask(manual, _find_gaps(unblocked.where(manual), jobs, run_from, end))
    first = runnable.fillna(run_from)
    return {"first": first, "wait_to": run_from.fillna(seen_until), "run_from": run_from, "end": end}


def _find_gaps(
    until: pd.Series[Any], jobs: pd.DataFrame, run_from: pd.Series[Any], end: pd.Series[Any]
) -> pd.Series[Any]:
    """Return when the gap before each block step's end begins: at the last end of jobs that had begun by then."""
    created = timestamps(jobs, "build_created_at")

    def gap(row: Any, moment: pd.Timestamp) -> Any:
        ends = end[(run_from < moment) | (end < moment)].max()
        return min(moment, max(created[row], ends) if pd.notna(ends) else created[row])

    begins = {row: gap(row, moment) for row, moment in until.dropna().items()}
    return pd.Series(begins, index=until.index, dtype=until.dtype)


def _has_type(jobs: pd.DataFrame, kind: str) -> pd.Series[bool]:
    return column(jobs, "type").eq(kind).fillna(False).astype(bool)


def _name_bars(jobs: pd.DataFrame, steps: pd.Series[Any]) -> pd.Series[str]:
    known = column(jobs, "name")
    if "label" in jobs:
        known = known.fillna(jobs["label"])  # block steps have no name, but a label
    return known.fillna(steps).fillna(format_name(None))


def _order_bars(bars: pd.DataFrame) -> pd.DataFrame:
    """Order steps by their first job, and the jobs of a step by time."""
    steps = bars["step"].fillna(bars["name"])
    step_begins = bars.groupby(steps)["first"].transform("min")
    bars = bars.assign(step=steps, step_begins=step_begins)
    return bars.sort_values(["step_begins", "step", "first", "end", "name"], ignore_index=True)


_STATES = {
    **dict.fromkeys(["failed", "expired", "broken"], "failed"),
    "timed_out": "timed out",
    **dict.fromkeys(["canceled", "canceling"], "canceled"),
}


def _classify(jobs: pd.DataFrame) -> pd.Series[str]:
    done = pd.Series("ran", index=jobs.index, dtype=TEXT).mask(_has_type(jobs, "trigger"), "triggered build")
    by_state = column(jobs, "state").map(_STATES).astype(TEXT)
    return by_state.fillna(done).mask(_has_type(jobs, "manual"), "blocked")
