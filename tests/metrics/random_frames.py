"""Create random jobs and builds with unusual values; the same each time."""

from __future__ import annotations

import numpy as np
import pandas as pd

UTC = "datetime64[us, UTC]"
BEGIN = pd.Timestamp("2026-10-20", tz="UTC")  # the clocks of Berlin change on the 25th
FETCHED = BEGIN + pd.Timedelta(days=14, hours=7)
_SIZES = {"many": 3_000, "few": 9, "one": 1, "none": 0, "all null": 5, "only waiters": 6, "only running": 6}


def _texts(random: np.random.Generator, n: int, *texts: str | None) -> pd.Series:
    return pd.Series(random.choice(np.array(texts, object), n), dtype="str")


def _flags(random: np.random.Generator, n: int, *flags: bool | None) -> pd.Series:
    return pd.Series(random.choice(np.array(flags, object), n), dtype="boolean")


def _after(random: np.random.Generator, stamps: pd.Series, scale: float, known: float) -> pd.Series:
    """Stamps later than these by some seconds, seldom earlier, and null where they are, or at random."""
    seconds = random.exponential(scale, len(stamps)) - (random.random(len(stamps)) < 0.02) * 2 * scale
    later = stamps + pd.to_timedelta((seconds * 1e6).astype("int64"), unit="us")
    return later.where(random.random(len(stamps)) < known).astype(UTC)


def _created(random: np.random.Generator, n: int) -> pd.Series:
    return pd.Series(BEGIN + pd.to_timedelta(random.integers(0, 14 * 86_400_000_000, n), unit="us"), dtype=UTC)


def builds_of(kind: str) -> pd.DataFrame:
    n, random = _SIZES[kind], np.random.default_rng(1)
    created = _created(random, n)
    frame = pd.DataFrame(
        {
            "id": [f"build-{i}" for i in range(n)],
            "number": pd.Series(range(n), dtype="Int64"),
            "organization": pd.Series("acme", index=range(n), dtype="str"),
            "pipeline": _texts(random, n, "web", "api"),
            "branch": _texts(random, n, "main", "main", "topic", None),
            "commit": _texts(random, n, *[f"{i:040x}" for i in range(max(n // 3, 1))], None),
            "state": _texts(random, n, "passed", "passed", "failed", "canceled", "running", "skipped", None),
            "blocked": _flags(random, n, False, False, True, None),
            "created_at": created,
            "started_at": _after(np.random.default_rng(3), created, 30, 0.9),
            "finished_at": _after(random, created, 900, 0.8),
            "fetched_at": pd.Series(FETCHED, index=range(n), dtype=UTC),
        }
    ).astype({"id": "str"})
    return _made(frame, kind, "finished_at")


def jobs_of(kind: str) -> pd.DataFrame:
    n, random = _SIZES[kind], np.random.default_rng(2)
    builds = builds_of("many").iloc[random.integers(0, 400, n)].reset_index(drop=True)
    created = _after(random, builds["created_at"], 60, 0.97)
    runnable = _after(random, created, 100, 0.9)
    started = _after(random, runnable, 40, 0.9)
    frame = pd.DataFrame(
        {
            "organization": builds["organization"],
            "pipeline": builds["pipeline"],
            "build_id": builds["id"],
            "build_number": builds["number"],
            "build_state": builds["state"],
            "build_created_at": builds["created_at"],
            "branch": builds["branch"],
            "commit": builds["commit"],
            "id": pd.Series([f"job-{i}" for i in range(n)], dtype="str"),
            "type": _texts(random, n, "script", "script", "script", "script", "trigger", "manual", "waiter"),
            "name": _texts(random, n, ":rspec: RSpec 1/3", "RSpec 2/3", "lint", "deploy", None),
            "step_key": _texts(random, n, None, None, "unit", "e2e"),
            "queue": _texts(random, n, "default", "macos", None),
            "state": _texts(
                random, n, "passed", "passed", "running", "failed", "timed_out", "canceled", "broken", None
            ),
            "exit_status": pd.Series(random.choice(np.array([0, 0, 1, -1, None], object), n), dtype="Int64"),
            "signal": _texts(random, n, None, None, None, "SIGKILL"),
            "soft_failed": _flags(random, n, False, False, True, None),
            "agent_id": _texts(random, n, *[f"agent-{i}" for i in range(7)], None),
            "created_at": created,
            "runnable_at": runnable,
            "started_at": started,
            "finished_at": _after(random, started, 300, 0.9),
            "unblocked_at": _after(random, created, 500, 0.1),
            "retried": _flags(random, n, False, False, False, True, None),
            "retry_type": _texts(random, n, None, None, None, "automatic", "manual"),
            "retried_in_job_id": _texts(random, n, *[f"job-{i}" for i in range(max(n, 1))], None),
            "parallel_group_index": pd.Series(random.choice(np.array([None, 0, 1], object), n), dtype="Int64"),
            "matrix": _texts(random, n, None, None, '{"os":"linux"}', '{"os":"macos"}'),
            "signal_reason": _texts(random, n, *[None] * 5, "agent_refused", "cancel", "signature_rejected"),
            "retry_source": _texts(random, n, *[None] * 3, *(_source(f"job-{i % max(n, 1)}") for i in range(3))),
            "expired_at": _after(np.random.default_rng(4), runnable, 500, 0.05),
            "build_finished_at": builds["finished_at"],
            "fetched_at": builds["fetched_at"],
        }
    )
    if kind == "only waiters":
        frame = frame.assign(type="waiter", state=None).astype({"type": "str", "state": "str"})
        return _null(frame, [name for name in frame if frame[name].dtype == UTC and name != "build_created_at"])
    return _made(frame, kind, "started_at", "finished_at")


def _source(job: str) -> str:
    return f'{{"job_id":"{job}","retry_type":"manual"}}'


def _made(frame: pd.DataFrame, kind: str, *ends: str) -> pd.DataFrame:
    if kind == "all null":
        return _null(frame, list(frame))
    if kind == "only running":
        running = frame.assign(state="running").astype({"state": "str"})
        return _null(running, [ends[-1], *(name for name in ("expired_at",) if name in frame)])
    return frame


def _null(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    return frame.assign(**{name: pd.Series(None, index=frame.index, dtype=frame[name].dtype) for name in names})
