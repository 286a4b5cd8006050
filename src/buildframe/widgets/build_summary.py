"""Format a build, its jobs and their logs as HTML and as cells of a table."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pandas as pd

from buildframe.errors import Forbidden, ServiceError
from buildframe.formatting import (
    escape_invisible,
    format_count,
    format_duration,
    format_name,
    label_jobs,
    truncate_middle,
    without_emoji,
)
from buildframe.metrics.queues import shorten_id
from buildframe.spec.builds import OPEN_STATES
from buildframe.widgets import html
from buildframe.widgets.data_table import Row, TableColumn

SHOWN_NAME = "shown name"
"""Name of a job among those of its build, in rows that `with_shown_names` returns."""

_MAX_MESSAGE_LINES = 12
_UNFINISHED_STATES = {"creating", *OPEN_STATES}


def log_error_text(error: BaseException) -> str:
    """Return why a log could not be loaded, and what to do."""
    if isinstance(error, Forbidden):
        advice = "Use a token that can read logs. On some services this is the scope read_build_logs."
        return f"{error.status}: {error.message}\n{advice}"
    if isinstance(error, ServiceError) and error.status in {404, 410}:
        return f"{error.status}: {error.message}\nThe log was deleted, or the job has not written one yet."
    return html.error_text(error)


def job_name(job: Row, max_length: int = 80) -> str:
    """Return the name of a job: its `SHOWN_NAME` if it has one, else without emoji."""
    label = job.get(SHOWN_NAME) or without_emoji(_own_name(job))
    return escape_invisible(truncate_middle(label, max_length))


def with_shown_names(jobs: Sequence[Row]) -> list[Row]:
    """Add `SHOWN_NAME` to the jobs of a build: a short name that no other step of the build has."""
    names = pd.Series([_own_name(job) for job in jobs], dtype="str")
    steps = pd.Series([job["step"] or _own_name(job) for job in jobs], dtype="str")
    return [{**job, SHOWN_NAME: label} for job, label in zip(jobs, label_jobs(names, steps), strict=True)]


def _own_name(job: Row) -> str:
    return str(next((job[key] for key in ("name", "label", "step_key", "type") if job.get(key)), "job"))


def _job_title(job: Row) -> str:
    """Return the name of a job with its kind and notes."""
    kind = {"manual": "block step: ", "trigger": "trigger: "}.get(job["type"] or "", "")
    notes = ["retried"] if job["retried"] else []
    notes += [f"attempt {job['retries_count'] + 1}"] if job["retries_count"] else []
    notes += ["soft-failed"] if job["soft_failed"] else []
    notes += [f"unblocked by {format_name(job['unblocked_by'])}"] if job["unblocked_by"] else []
    triggered = msgspec.json.decode(job["triggered_build"]) if job["triggered_build"] else None
    number = triggered.get("number") if isinstance(triggered, dict) else None
    notes += [f"started build {escape_invisible(truncate_middle(str(number), 40))}"] if number is not None else []
    return f"{kind}{job_name(job)}" + (f" ({', '.join(notes)})" if notes else "")


def _agent_with_queue(job: Row) -> str:
    queue = job["queue"]  # enough, because all jobs of a build are in the cluster of its pipeline
    if not queue and job.get("queue_id"):
        queue = shorten_id(job["queue_id"])
    return " ".join(filter(None, (job["agent"], queue and f"({queue})")))


JOB_COLUMNS = (
    TableColumn("State", "state", "state", "106px"),
    TableColumn("Job", _job_title, width="minmax(120px, 3fr)"),
    TableColumn("Waited", lambda job: _between(job["runnable_at"], job["started_at"]), "seconds", "76px"),
    TableColumn("Ran", lambda job: _between(job["started_at"], job["finished_at"]), "seconds", "72px"),
    TableColumn("Exit", "exit_status", "number", "50px", rank=1),
    TableColumn("Agent (queue)", _agent_with_queue, width="minmax(110px, 2fr)", rank=2),
)


def build_properties(build: Row) -> str:
    """Return a build as a table of names and values, as HTML."""
    lines = (build["message"] or "").splitlines()
    hidden = len(lines) - _MAX_MESSAGE_LINES
    more = [f"… and {format_count(hidden, 'more line')}"] if hidden > 0 else []
    message = "\n".join([*lines[:_MAX_MESSAGE_LINES], *more])
    return html.render("build_details", build=build, message=message, durations=_durations(build))


def _durations(build: Row) -> str:
    """Return how long it waited, ran and took; for an unfinished build until it was fetched."""
    created, started, finished, fetched = (
        build[f"{name}_at"] for name in ("created", "started", "finished", "fetched")
    )
    if build["blocked"]:  # `finished_at` is the end before it was blocked
        return f"took {_duration(created, fetched)} so far, blocked"
    end = finished if finished is not None else fetched if is_unfinished(build) else None
    durations = {
        "waited": _duration(created, started if started is not None else end),
        "ran": _duration(started, end),
        "took": _duration(created, end),
    }
    text = ", ".join(f"{verb} {duration}" for verb, duration in durations.items() if duration)
    return f"{text} so far" if text and is_unfinished(build) else text


def is_unfinished(build: Row) -> bool:
    """Return whether a build is waiting, running or being canceled."""
    return build["finished_at"] is None and build["state"] in _UNFINISHED_STATES


def _between(start: pd.Timestamp | None, end: pd.Timestamp | None) -> pd.Timedelta | None:
    return None if start is None or end is None else end - start


def _duration(start: pd.Timestamp | None, end: pd.Timestamp | None) -> str:
    between = _between(start, end)
    return "" if between is None else format_duration(between.total_seconds())
