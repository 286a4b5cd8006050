"""What a face tells of one build, of its jobs and of their logs: rows of frames as cells of tables and as HTML."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pandas as pd

from buildframe.errors import Forbidden, ServiceError
from buildframe.formatting import clipped, counted, named, span, visible
from buildframe.metrics.steps import without_emoji
from buildframe.widgets import html
from buildframe.widgets.tables import Cell, Column

Row = dict[Any, Any]
"""A row of a frame of builds or jobs; what is missing is None."""

COLUMNS = (
    Column("State", "state", "92px"),
    Column("Job", width="minmax(120px, 3fr)"),
    Column("Waited", "seconds", "72px"),
    Column("Ran", "seconds", "54px"),
    Column("Exit", "number", "44px"),
    Column("Agent (queue)", width="minmax(110px, 2fr)"),
)
_STEERING = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and moves
    r"|\x1b[\]_PX^][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=\n)|$)"  # links, titles, an agent's time stamps
    r"|\x1b[ -/]*[0-~]?"
)
_END_OF_LOG = 60_000
_LINES_OF_MESSAGE = 12


def rows_of(frame: pd.DataFrame) -> list[Row]:
    """The rows of a frame."""
    return [
        {name: None if pd.isna(value) else value for name, value in row.items()} for row in frame.to_dict("records")
    ]


def log_text(job: Row, log: str) -> str:
    """The end of a log as HTML that is only text."""
    name = f"Log of {name_of(job)}"
    raw = log[-4 * _END_OF_LOG :]  # much of it may be what steers
    end = _STEERING.sub("", raw.replace("\r\n", "\n"))[-_END_OF_LOG:]
    lines = "\n".join(html.text(line.rpartition("\r")[2], 2000) for line in end.split("\n"))
    left = f" (its last {len(end):,} of {counted(len(log), 'sign')})" if len(log) > _END_OF_LOG else ""
    page = html.link(job["web_url"], "open its page")
    return (
        f'<div class="bf-of-log"><b>{html.text(name)}</b>{left} {page if page.startswith("<a") else ""}'
        f'<div class="bf-log" role="region" tabindex="0" aria-label="{html.text(name)}"><pre>{lines}</pre></div></div>'
    )


def why_no_log(why: BaseException) -> str:
    """Why a log could not be read, and what to do."""
    if isinstance(why, Forbidden):
        scope = "It needs a token that may read logs, too; some services have a scope for that: read_build_logs."
        return f"{why.status}: {why.message}\n{scope}"
    if isinstance(why, ServiceError) and why.status in {404, 410}:
        gone = "The service has no such log: it was deleted, or the job has not written any yet."
        return f"{why.status}: {why.message}\n{gone}"
    return html.reason(why)


def name_of(job: Row, most: int = 80) -> str:
    """What a job is called, without emoji."""
    found = next((job[key] for key in ("name", "label", "step_key", "type") if job.get(key)), "job")
    return visible(clipped(without_emoji(found), most))


def job_cells(job: Row) -> list[Cell]:
    """A row of the table of jobs, as `COLUMNS`."""
    return [
        visible(clipped(job["state"] or "")),
        _told(job),
        _seconds(job["runnable_at"], job["started_at"]),
        _seconds(job["started_at"], job["finished_at"]),
        job["exit_status"],
        visible(clipped(" ".join(filter(None, (job["agent"], job["queue"] and f"({job['queue']})"))))),
    ]


def _told(job: Row) -> str:
    """A job by its name, and what it is where it is no plain one."""
    kind = {"manual": "block step: ", "trigger": "trigger: "}.get(job["type"] or "", "")
    notes = ["retried"] if job["retried"] else []
    notes += [f"attempt {job['retries_count'] + 1}"] if job["retries_count"] else []
    notes += ["may fail"] if job["soft_failed"] else []
    notes += [f"unblocked by {named(job['unblocked_by'])}"] if job["unblocked_by"] else []
    notes += _triggered(job["triggered_build"])
    return f"{kind}{name_of(job)}" + (f" ({', '.join(notes)})" if notes else "")


def _triggered(build: str | None) -> list[str]:
    """The build that a trigger step started, of which only the number is sure to be there."""
    told = msgspec.json.decode(build) if build else None
    number = told.get("number") if isinstance(told, dict) else None
    return [f"started build {visible(clipped(str(number), 40))}"] if number is not None else []


def _seconds(start: pd.Timestamp | None, end: pd.Timestamp | None) -> int | None:
    return None if start is None or end is None else round((end - start).total_seconds())


def facts_of(build: Row) -> str:
    """A build as a table of names and values, as HTML."""
    again, cause = build["rebuilt_from"], build["triggered_from"]
    of, from_slug = build["pipeline"], build["triggered_from_build_pipeline_slug"]
    rows: list[tuple[str, Any]] = [
        ("State", _state(build)),
        ("Message", _message(build["message"])),
        ("Branch", html.text(build["branch"])),
        ("Commit", html.text(build["commit"])),
        ("Pull request", _pull_request(build)),
        ("Creator", html.text(build["creator"])),
        ("Author", html.text(build["author"]) if build["author"] != build["creator"] else ""),
        ("Source", html.text(build["source"])),
        ("Created", _moment(build["created_at"])),
        ("Started", _moment(build["started_at"])),
        ("Finished", _moment(build["finished_at"])),
        ("Time", html.text(_durations(build))),
        ("Rebuilt from", html.link(_page(build, of, again), f"#{again}") if again is not None else ""),
        ("Triggered from", html.link(_page(build, from_slug, cause), f"{named(from_slug)} #{cause}") if cause else ""),
        ("Canceled", html.text(build["cancel_reason"])),
        ("Page", html.link(build["web_url"], f"open build {build['number']}") if build["web_url"] else ""),
        ("As of", _moment(build["fetched_at"])),
    ]
    return html.facts(rows, f"{of} #{build['number']}")


def _state(build: Row) -> str:
    """In words, and in a colour and with a sign where the table's style is there, too."""
    state = html.text(f"{build['state']}{', blocked' if build['blocked'] else ''}")
    return f'<span class="bf-state" data-state="{html.text(build["state"])}">{state}</span>'


def _message(message: str | None) -> str:
    lines = (message or "").splitlines()
    more = [f"… and {counted(len(lines) - _LINES_OF_MESSAGE, 'more line')}"] if len(lines) > _LINES_OF_MESSAGE else []
    return "<br>".join(map(html.text, [*lines[:_LINES_OF_MESSAGE], *more]))


def _pull_request(build: Row) -> str:
    if build["pull_request"] is None:
        return ""
    into = f" into {named(build['pull_request_base'])}" if build["pull_request_base"] else ""
    repository = build["pull_request_repository"]
    of = f" of {html.link(repository, repository)}" if repository else ""
    return html.text(f"{build['pull_request']}{into}") + of


def _page(build: Row, slug: str | None, number: int | None) -> str | None:
    """The page of another build beside this one's, where addresses go by pipeline and number."""
    end = f"/{build['pipeline']}/builds/{build['number']}"
    address = build["web_url"] or ""
    return f"{address.removesuffix(end)}/{slug}/builds/{number}" if slug and address.endswith(end) else None


def _moment(moment: pd.Timestamp | None) -> str:
    return f"{html.text(moment)} UTC" if moment is not None else ""


def _durations(build: Row) -> str:
    """How long it waited, ran and took; of one that is not over, as of when it was read."""
    if build["blocked"]:  # which keeps the end that it had before it was blocked
        return f"took {_length(build['created_at'], build['fetched_at'])} so far, blocked"
    created, started, finished, now = (
        build[name] for name in ("created_at", "started_at", "finished_at", "fetched_at")
    )
    end = finished if finished is not None else now if goes_on(build) else None
    spans = {
        "waited": _length(created, started if started is not None else end),
        "ran": _length(started, end),
        "took": _length(created, end),
    }
    told = ", ".join(f"{word} {length}" for word, length in spans.items() if length)
    return f"{told} so far" if told and goes_on(build) else told


def goes_on(build: Row) -> bool:
    """Whether it is not over: it waits to be started, runs or is being canceled."""
    states = {"creating", "scheduled", "running", "failing", "canceling"}
    return build["finished_at"] is None and build["state"] in states


def _length(start: pd.Timestamp | None, end: pd.Timestamp | None) -> str:
    return "" if start is None or end is None else span((end - start).total_seconds())
