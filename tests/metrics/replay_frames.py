"""Small records to replay: builds and jobs whose times are seconds after a Monday's midnight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

START = pd.Timestamp("2026-03-02", tz="UTC")
UTC = "datetime64[us, UTC]"
FLAGS = ("soft_failed", "async", "blocked")
NUMBERS = ("number", "priority", "exit_status", "build_number")
Row = dict[str, Any]


def build(id: str = "b", created: float = 0, finished: float | None = None, **other: Any) -> Row:
    usual: Row = {
        "id": id, "pipeline": "web", "number": 1, "branch": "main", "state": "passed", "blocked": False,
        "rebuilt_from_id": None, "triggered_from_build_id": None, "cancel_reason": None,
    }  # fmt: skip
    return usual | {"created_at": created, "finished_at": finished, "fetched_at": 100_000} | other


def job(
    step: str,
    runnable: float | None = None,
    started: float | None = None,
    finished: float | None = None,
    build: str = "b",
    **other: Any,
) -> Row:
    """A job that passed, on an agent of its own unless one is named, and created with its build."""
    id = f"{build}/{step}"
    usual: Row = {
        "id": id, "build_id": build, "pipeline": "web", "type": "script", "state": "passed", "step": step,
        "queue": "default", "agent_id": None if started is None else f"agent of {id}", "priority": 0,
        "soft_failed": False, "retried_in_job_id": None, "retry_type": None, "signal_reason": None,
        "exit_status": 0, "triggered_build": None, "async": None,
    }  # fmt: skip
    stamps = {"created_at": 0, "runnable_at": runnable, "started_at": started, "finished_at": finished}
    return usual | stamps | {"unblocked_at": None, "fetched_at": 100_000} | other


def at(seconds: pd.Series) -> pd.Series:
    return (START + pd.to_timedelta((seconds.astype("Float64") * 1e6).round().astype("Int64"), unit="us")).astype(UTC)


def to_frame(rows: list[Row], columns: list[str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=columns)
    for name in columns:
        if name.endswith("_at"):
            frame[name] = at(frame[name])
        else:
            dtype = "boolean" if name in FLAGS else "Int64" if name in NUMBERS else "str"
            frame[name] = frame[name].astype(dtype)
    return frame


def frames(builds: list[Row], jobs: list[Row]) -> tuple[pd.DataFrame, pd.DataFrame]:
    return to_frame(builds, list(build())), to_frame(jobs, list(job("a")))


def seconds(frame: pd.DataFrame, *names: str) -> dict[str, tuple[float | None, ...]]:
    """The times of each row by its id, in seconds after START; None for NaT."""
    columns = [((frame[f"{name}_at"] - START) / pd.Timedelta(1, "s")).round(3) for name in names]
    rows = zip(frame["id"], *columns, strict=True)
    return {id: tuple(None if pd.isna(one) else float(one) for one in times) for id, *times in rows}


def queue_record(
    arrivals: np.ndarray, runs: np.ndarray, starts: np.ndarray, agents: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A record of builds with one job each, from arrays of seconds and numbers of agents."""
    n = len(arrivals)
    ids = np.arange(n).astype(str)
    ready, started, ended = (
        START + pd.to_timedelta(np.rint(one * 1e6), unit="us") for one in (arrivals, starts, starts + runs)
    )
    builds = pd.DataFrame(
        {"id": ids, "pipeline": "web", "number": np.arange(n), "branch": ids, "state": "passed", "created_at": ready,
         "finished_at": ended}
    )  # fmt: skip
    jobs = pd.DataFrame(
        {"id": ids, "build_id": ids, "pipeline": "web", "type": "script", "state": "passed", "step": "a",
         "queue": "default", "agent_id": "agent " + pd.Series(agents).astype(str), "created_at": ready,
         "runnable_at": ready, "started_at": started, "finished_at": ended}
    )  # fmt: skip
    return builds, jobs
