"""Format snapshots of waiting and running builds as table cells and as HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from buildframe import spec
from buildframe.formatting import format_count, format_duration, format_name
from buildframe.widgets import html
from buildframe.widgets.build_actions import link_to
from buildframe.widgets.build_tracker import HISTORY_DAYS, FinishedBuild, MonitorSnapshot, Row, build_name
from buildframe.widgets.data_table import CellValue, TableColumn

TABLE_COLUMNS = (
    TableColumn("Number", "number", "78px"),
    TableColumn("State", "state", "94px"),
    TableColumn("Pipeline", width="minmax(72px, 0.7fr)"),
    TableColumn("Progress", "percent", "minmax(190px, 1.4fr)"),
    TableColumn("Ran", "seconds", "62px"),
    TableColumn("Waited", "seconds", "74px"),
    TableColumn("Branch", width="minmax(66px, 1fr)"),
    TableColumn("Message", width="minmax(72px, 1.6fr)"),
)
EXPLANATION = (
    "Progress: elapsed time ÷ expected run time, and the median remaining time of earlier builds. n is the number of "
    f"builds of the same pipeline in the last {HISTORY_DAYS} days that ran at least as long. Select a build for "
    "details."
)
_BARS = "▁▂▃▄▅▆▇█"
_MAX_PIPELINES = 8


def row_cells(row: Row) -> list[CellValue]:
    """Return a row of the table."""
    message = html.plain(row["message"]).splitlines() or [""]
    return [
        None if html.is_missing(row["number"]) else int(row["number"]),
        html.cell(row["state"]),
        html.cell(row["pipeline"]),
        progress_text(row),
        _rounded(run_seconds(row)),
        _rounded(wait_seconds(row)),
        html.cell(row["branch"]),
        html.cell(message[0]),
    ]


def queue_summary(snapshot: MonitorSnapshot) -> str:
    """Return how many builds run and wait, now and at earlier refreshes, as HTML."""
    waiting = Counter(row["pipeline"] for row in snapshot.rows if row["state"] == "scheduled")
    n = waiting.total()
    pipelines = ", ".join(f"{format_name(slug)} {count:,}" for slug, count in waiting.most_common(_MAX_PIPELINES))
    hidden = len(waiting) - _MAX_PIPELINES
    more = f" and {format_count(hidden, 'other pipeline')}" if hidden > 0 else ""
    text = (
        f"{format_count(len(snapshot.rows) - n, 'build')} running, {n:,} waiting{f': {pipelines}{more}' if n else ''}."
    )
    note = f"Counts builds; running builds may have queued jobs. {snapshot.note}".strip()
    lines = [f"<b>{html.text(text)}</b>", html.text(note), _depth_chart(snapshot.depths)]
    return html.hint("<br>".join(filter(None, lines)))


def _depth_chart(depths: Sequence[int]) -> str:
    """Return the number of waiting builds at each refresh as text and bars; nothing if none ever waited."""
    most = max(depths)
    if len(depths) < 2 or not most:
        return ""
    bars = "".join(_BARS[round(depth / most * (len(_BARS) - 1))] for depth in depths)
    text = f"Waiting at the last {len(depths)} refreshes: first {depths[0]:,}, maximum {most:,}, now {depths[-1]:,}"
    return f'{text} <span aria-hidden="true">{bars}</span>'


def finished_list(snapshot: MonitorSnapshot) -> str:
    """Return the finished builds as HTML, newest first; screen readers announce those of the last refresh."""
    if not snapshot.finished:
        return html.hint("No build has finished since this widget started.")
    lines = list(map(_finished_line, snapshot.finished))
    new, earlier = "".join(lines[: snapshot.n_new]), "".join(lines[snapshot.n_new :])
    announced = f'<b>Finished, newest first</b><div role="status">{new}</div>'
    return f'<div class="bf-status bf-finished">{announced}{earlier}</div>'


def _finished_line(finished: FinishedBuild) -> str:
    return f"<div>{html.link(None if finished.is_deleted else finished.build.web_url, finished.text)}</div>"


def open_build_properties(row: Row, build: spec.Build) -> str:
    """Return a waiting or running build as of its last refresh, as HTML."""
    waited, ran = wait_seconds(row), run_seconds(row)
    rows = [
        ("State", html.text(build.state)),
        ("Branch", html.text(row["branch"])),
        ("Message", html.lines(row["message"])),
        ("Waited", "" if waited is None else format_duration(waited)),
        ("Running for", "" if ran is None else format_duration(ran)),
        ("Expected", html.text(progress_sentence(row))),
        ("Page", link_to(build)),
    ]
    return html.property_table(rows, build_name(build))


def finished_build_properties(finished: FinishedBuild) -> str:
    """Return a finished build as HTML."""
    page = "" if finished.is_deleted else link_to(finished.build)
    return html.property_table([("Finished", html.text(finished.text)), ("Page", page)], build_name(finished.build))


def progress_text(row: Row) -> str:
    """Return the progress of a build as a short text that begins with a percentage if it is known."""
    if row["state"] == "scheduled":
        return "waiting to start"
    if row["state"] == "canceling":
        return "being canceled"
    if row["history"] is None:
        return "history not loaded yet"
    if row.get("n") is None:
        return "unknown"
    if row["n"] == 0 and row["n_sooner"]:
        return f"100 %, longer than all {row['n_sooner']:,} earlier builds"
    if html.is_missing(row["p50_s"]):
        return "too few earlier builds ran this long"
    share = row["elapsed_s"] / (row["elapsed_s"] + row["p50_s"])
    return f"{100 * share:.0f} %, {_approximate(row['p50_s'])} left (n = {row['n']:,})"


def progress_sentence(row: Row) -> str:
    """Return the progress of a build as a sentence, with the builds that it is based on."""
    text, history = progress_text(row), row["history"]
    if not text[0].isdigit():
        return f"{text[0].upper()}{text[1:]}{f', based on {history}' if history else ''}."
    if row["n"] == 0:
        return f"Longer than all {format_count(row['n_sooner'], 'build')} of this pipeline that finished in {history}."
    longer = f"{format_count(row['n'], 'build')} of this pipeline ran longer than {format_duration(row['elapsed_s'])}"
    median = f"half of them finished within another {_approximate(row['p50_s'])}"
    p90 = "" if html.is_missing(row["p90_s"]) else f", 90 % within {_approximate(row['p90_s'])}"
    return f"In {history}, {longer}: {median}{p90}."


def _approximate(seconds: float) -> str:
    """Return a duration rounded to 1 s, 10 s or 60 s, because it is an estimate."""
    unit = 1 if seconds < 60 else 10 if seconds < 600 else 60
    return format_duration(unit * round(seconds / unit))


def wait_seconds(row: Row) -> float | None:
    """Return the seconds from creation to start, or until it was fetched."""
    until = row["fetched_at"] if html.is_missing(row["started_at"]) else row["started_at"]
    return _seconds(until - row["created_at"])


def run_seconds(row: Row) -> float | None:
    """Return the seconds since the start; None if it has not started."""
    return _seconds(row["fetched_at"] - row["started_at"])


def _seconds(duration: Any) -> float | None:
    return None if html.is_missing(duration) else float(duration.total_seconds())


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)
