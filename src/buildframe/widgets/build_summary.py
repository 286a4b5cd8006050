"""Format a build, its jobs and their logs as HTML and as cells of a table."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pandas as pd

from buildframe.errors import Forbidden, ServiceError
from buildframe.formatting import escape_invisible, format_count, format_duration, format_name, truncate_middle
from buildframe.metrics.steps import without_emoji
from buildframe.spec.states import OPEN_STATES
from buildframe.widgets import html
from buildframe.widgets.data_table import CellValue, TableColumn

Row = dict[Any, Any]  # of a frame of builds or jobs; missing values are None

JOB_COLUMNS = (
    TableColumn("State", "state", "92px"),
    TableColumn("Job", width="minmax(120px, 3fr)"),
    TableColumn("Waited", "seconds", "72px"),
    TableColumn("Ran", "seconds", "54px"),
    TableColumn("Exit", "number", "44px"),
    TableColumn("Agent (queue)", width="minmax(110px, 2fr)"),
)
_ESCAPE_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colors and cursor movements
    r"|\x1b[\]_PX^][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=\n)|$)"  # links, titles, timestamps of agents
    r"|\x1b[ -/]*[0-~]?"
)
_MAX_LOG_LENGTH = 60_000
_MAX_MESSAGE_LINES = 12
_UNFINISHED_STATES = {"creating", *OPEN_STATES}


def to_rows(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of a frame with None for missing values."""
    return [
        {name: None if html.is_missing(value) else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]


def render_log(job: Row, log: str) -> str:
    """Return the end of a log as HTML that contains only text."""
    name = html.text(f"Log of {job_name(job)}")
    raw = log[-4 * _MAX_LOG_LENGTH :]  # much of it may be escape sequences
    end = _ESCAPE_SEQUENCES.sub("", raw.replace("\r\n", "\n"))[-_MAX_LOG_LENGTH:]
    lines = "\n".join(html.text(line.rpartition("\r")[2], 2000) for line in end.split("\n"))
    cut = f" (last {len(end):,} of {format_count(len(log), 'character')})" if len(log) > _MAX_LOG_LENGTH else ""
    link = html.link(job["web_url"], "open the job's page")
    return (
        f'<div class="bf-log-panel"><b>{name}</b>{cut} {link if link.startswith("<a") else ""}'
        f'<div class="bf-log" role="region" tabindex="0" aria-label="{name}"><pre>{lines}</pre></div></div>'
    )


def log_error_text(error: BaseException) -> str:
    """Return why a log could not be loaded, and what to do."""
    if isinstance(error, Forbidden):
        advice = "Use a token that can read logs. On some services this is the scope read_build_logs."
        return f"{error.status}: {error.message}\n{advice}"
    if isinstance(error, ServiceError) and error.status in {404, 410}:
        return f"{error.status}: {error.message}\nThe log was deleted, or the job has not written one yet."
    return html.error_text(error)


def job_name(job: Row, max_length: int = 80) -> str:
    """Return the name of a job, without emoji."""
    name = next((job[key] for key in ("name", "label", "step_key", "type") if job.get(key)), "job")
    return escape_invisible(truncate_middle(without_emoji(name), max_length))


def job_cells(job: Row) -> list[CellValue]:
    """Return a row of the table of jobs, with `JOB_COLUMNS`."""
    return [
        html.cell(job["state"]),
        _job_title(job),
        _seconds(job["runnable_at"], job["started_at"]),
        _seconds(job["started_at"], job["finished_at"]),
        job["exit_status"],
        html.cell(" ".join(filter(None, (job["agent"], job["queue"] and f"({job['queue']})")))),
    ]


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


def _seconds(start: pd.Timestamp | None, end: pd.Timestamp | None) -> int | None:
    return None if start is None or end is None else round((end - start).total_seconds())


def build_properties(build: Row) -> str:
    """Return a build as a table of names and values, as HTML."""
    rebuilt_from, triggered_from = build["rebuilt_from"], build["triggered_from"]
    slug, from_slug = build["pipeline"], build["triggered_from_build_pipeline_slug"]
    state = html.text(f"{build['state']}{', blocked' if build['blocked'] else ''}")
    rebuilt = html.link(_build_url(build, slug, rebuilt_from), f"#{rebuilt_from}")
    triggered = html.link(_build_url(build, from_slug, triggered_from), f"{format_name(from_slug)} #{triggered_from}")
    rows = [
        ("State", f'<span class="bf-state" data-state="{html.text(build["state"])}">{state}</span>'),
        ("Message", _message(build["message"])),
        ("Branch", html.text(build["branch"])),
        ("Commit", html.text(build["commit"])),
        ("Pull request", _pull_request(build)),
        ("Creator", html.text(build["creator"])),
        ("Author", html.text(build["author"]) if build["author"] != build["creator"] else ""),
        ("Source", html.text(build["source"])),
        ("Created", html.timestamp(build["created_at"])),
        ("Started", html.timestamp(build["started_at"])),
        ("Finished", html.timestamp(build["finished_at"])),
        ("Time", html.text(_durations(build))),
        ("Rebuilt from", rebuilt if rebuilt_from is not None else ""),
        ("Triggered from", triggered if triggered_from else ""),
        ("Canceled", html.text(build["cancel_reason"])),
        ("Page", html.link(build["web_url"], f"open build {build['number']}") if build["web_url"] else ""),
        ("As of", html.timestamp(build["fetched_at"])),
    ]
    return html.property_table(rows, f"{slug} #{build['number']}")


def _message(message: str | None) -> str:
    lines = (message or "").splitlines()
    hidden = len(lines) - _MAX_MESSAGE_LINES
    more = [f"… and {format_count(hidden, 'more line')}"] if hidden > 0 else []
    return html.lines("\n".join([*lines[:_MAX_MESSAGE_LINES], *more]))


def _pull_request(build: Row) -> str:
    if build["pull_request"] is None:
        return ""
    base = f" into {format_name(build['pull_request_base'])}" if build["pull_request_base"] else ""
    repository = build["pull_request_repository"]
    source = f" of {html.link(repository, repository)}" if repository else ""
    return html.text(f"{build['pull_request']}{base}") + source


def _build_url(build: Row, slug: str | None, number: int | None) -> str | None:
    """Return the page of another build, if pages have addresses by pipeline and number."""
    own_path = f"/{build['pipeline']}/builds/{build['number']}"
    url = build["web_url"] or ""
    return f"{url.removesuffix(own_path)}/{slug}/builds/{number}" if slug and url.endswith(own_path) else None


def _durations(build: Row) -> str:
    """Return how long it waited, ran and took; for an unfinished build until it was fetched."""
    created, started, finished, fetched = (
        build[name] for name in ("created_at", "started_at", "finished_at", "fetched_at")
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


def _duration(start: pd.Timestamp | None, end: pd.Timestamp | None) -> str:
    return "" if start is None or end is None else format_duration((end - start).total_seconds())
