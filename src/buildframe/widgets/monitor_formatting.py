"""Format snapshots of waiting and running builds as table cells and as HTML."""

from __future__ import annotations

from buildframe import spec
from buildframe.formatting import escape_invisible, format_count, format_duration, truncate_middle
from buildframe.widgets import html
from buildframe.widgets.build_actions import build_name
from buildframe.widgets.build_tracker import DELETED, HISTORY_DAYS
from buildframe.widgets.data_table import Row, TableColumn

EXPLANATION = (
    "Progress: elapsed time ÷ expected run time, and the median remaining time of earlier builds. n is the number of "
    f"builds of the same pipeline in the last {HISTORY_DAYS} days that ran at least as long. Select a build for "
    "details."
)


def progress_text(row: Row) -> str:
    """Return the progress of a build as a text that fits its column, and begins with a percentage if it is known."""
    if row["state"] == "scheduled":
        return "waiting to start"
    if row["state"] == "canceling":
        return "being canceled"
    if row["history"] is None:
        return "history not loaded yet"
    if row["n"] is None:
        return "unknown"
    if row["n"] == 0 and row["n_sooner"]:
        return "100 %, longest so far"
    if row["p50_s"] is None:
        return "too few earlier builds"
    share = row["elapsed_s"] / (row["elapsed_s"] + row["p50_s"])
    return f"{100 * share:.0f} %, {_approximate(row['p50_s'])} left"


def progress_sentence(row: Row) -> str:
    """Return the progress of a build as a sentence, with the builds that it is based on."""
    text, history = progress_text(row), row["history"]
    if not text[0].isdigit():
        text = f"{text} ran this long" if text.startswith("too few") else text
        return f"{text[0].upper()}{text[1:]}{f', based on {history}' if history else ''}."
    if row["n"] == 0:
        return f"Longer than all {format_count(row['n_sooner'], 'build')} of this pipeline that finished in {history}."
    longer = f"{format_count(row['n'], 'build')} of this pipeline ran longer than {format_duration(row['elapsed_s'])}"
    median = f"half of them finished within another {_approximate(row['p50_s'])}"
    p90 = "" if row["p90_s"] is None else f", 90 % within {_approximate(row['p90_s'])}"
    return f"In {history}, {longer}: {median}{p90}."


def _approximate(seconds: float) -> str:
    """Return a duration rounded to 1 s, 10 s or 60 s, because it is an estimate."""
    unit = 1 if seconds < 60 else 10 if seconds < 600 else 60
    return format_duration(unit * round(seconds / unit))


def wait_seconds(row: Row) -> float:
    """Return the seconds from creation to start, or until it was fetched."""
    until = row["fetched_at"] if row["started_at"] is None else row["started_at"]
    return float((until - row["created_at"]).total_seconds())


def run_seconds(row: Row) -> float | None:
    """Return the seconds since the start; None if it has not started."""
    return None if row["started_at"] is None else float((row["fetched_at"] - row["started_at"]).total_seconds())


def finish_text(build: spec.Build) -> str:
    """Return how a build ended: "web #12 passed after 4 min 10 s"."""
    name = build_name(build)
    if build.blocked:
        return f"{name} is blocked; {build.state} so far"
    outcome = _OUTCOMES.get(str(build.state), f"is {escape_invisible(truncate_middle(str(build.state)))}")
    if build.started_at is None or build.finished_at is None:
        return f"{name} {outcome}"
    return f"{name} {outcome} after {format_duration((build.finished_at - build.started_at).total_seconds())}"


_OUTCOMES = {
    **{state: state for state in ("passed", "failed")},
    **{state: f"was {state.replace('_', ' ')}" for state in ("canceled", "skipped", "not_run", DELETED)},
}

TABLE_COLUMNS = (
    TableColumn("Number", "number", "number", "78px"),
    TableColumn("State", "state", "state", "94px"),
    TableColumn("Pipeline", "pipeline", width="minmax(72px, 7fr)"),
    TableColumn("Progress", progress_text, "percent", "minmax(190px, 14fr)"),
    TableColumn("n", "n", "number", "52px", rank=3),
    TableColumn("Ran", run_seconds, "seconds", "74px"),
    TableColumn("Waited", wait_seconds, "seconds", "76px"),
    TableColumn("Branch", "branch", width="minmax(80px, 10fr)", rank=1),
    TableColumn("Message", lambda row: html.first_line(row["message"]), width="minmax(100px, 16fr)", rank=2),
)
