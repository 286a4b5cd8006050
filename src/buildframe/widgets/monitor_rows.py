"""What looks at builds have seen, as cells of a table and as HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from buildframe import spec
from buildframe.formatting import clipped, counted, named, span, visible
from buildframe.widgets import html
from buildframe.widgets.build_tracker import DAYS, Ended, Row, Seen, name_of
from buildframe.widgets.buttons import link_to
from buildframe.widgets.tables import Cell, Column

COLUMNS = (
    Column("Number", "number", "78px"),
    Column("State", "state", "94px"),
    Column("Pipeline", width="minmax(72px, 0.7fr)"),
    Column("Progress", "share", "minmax(190px, 1.4fr)"),
    Column("Ran", "seconds", "62px"),
    Column("Waited", "seconds", "74px"),
    Column("Branch", width="minmax(66px, 1fr)"),
    Column("Message", width="minmax(72px, 1.6fr)"),
)
_BARS = "▁▂▃▄▅▆▇█"

MEANING = (
    "Progress: elapsed time ÷ expected run time, and the median remaining time of earlier builds. n is the number of "
    f"builds of the same pipeline in the last {DAYS} days that ran at least as long. Choose a build for details."
)


def cells(row: Row) -> list[Cell]:
    """A row of the table."""
    message = _plain(row["message"]).splitlines() or [""]
    return [
        None if _is_missing(row["number"]) else int(row["number"]),
        _cell(row["state"]),
        _cell(row["pipeline"]),
        expected(row),
        _whole(ran(row)),
        _whole(waited(row)),
        _cell(row["branch"]),
        visible(clipped(message[0])),
    ]


def _cell(value: Any) -> str:
    return visible(clipped(_plain(value)))


def _plain(value: Any) -> str:
    return "" if _is_missing(value) else html.plain(value)


def queue(seen: Seen) -> str:
    """How many run and wait, and how that went, as HTML."""
    waiting = Counter(row["pipeline"] for row in seen.rows if row["state"] == "scheduled")
    n = waiting.total()
    where = ", ".join(f"{named(slug)} {many:,}" for slug, many in waiting.most_common(8))
    more = f" and {counted(len(waiting) - 8, 'other pipeline')}" if len(waiting) > 8 else ""
    runs = counted(len(seen.rows) - n, "build runs", "builds run")
    words = f"{runs}; {counted(n, 'build waits', 'builds wait')} to be started{f': {where}{more}' if n else ''}."
    hint = "Counts builds; running builds may have queued jobs."
    lines = [f"<b>{html.text(words)}</b>", html.text(f"{hint} {seen.note}".strip()), _course(seen.depths)]
    return f'<div class="bf-hint">{"<br>".join(filter(None, lines))}</div>'


def _course(depths: Sequence[int]) -> str:
    """How many waited at each look, as bars and in words; nothing where none ever did."""
    most = max(depths)
    if len(depths) < 2 or not most:
        return ""
    bars = "".join(_BARS[round(depth / most * (len(_BARS) - 1))] for depth in depths)
    words = f"Waiting at the last {len(depths)} looks: {depths[0]:,} at first, {most:,} at most, {depths[-1]:,} now"
    return f'{words} <span aria-hidden="true">{bars}</span>'


def ended(seen: Seen) -> str:
    """How builds ended, as HTML, the last one first; a screen reader tells of those of the last look."""
    if not seen.ended:
        return '<div class="bf-hint">None of the builds seen here has ended yet.</div>'
    news, others = _lines(seen.ended[: seen.news]), _lines(seen.ended[seen.news :])
    lines = f'<b>Ended, the last one first</b><div role="status">{news}</div>{others}'
    return f'<div class="bf-told bf-ended">{lines}</div>'


def _lines(those: Sequence[Ended]) -> str:
    return "".join(f"<div>{html.link(one.build.web_url if one.is_there else None, one.words)}</div>" for one in those)


def facts(row: Row, build: spec.Build) -> str:
    """A build that waits or runs, as it was when last looked at, as HTML."""
    rows = [
        ("State", html.text(build.state)),
        ("Branch", html.text(_plain(row["branch"]))),
        ("Message", "<br>".join(map(html.text, _plain(row["message"]).splitlines()))),
        ("Waited", html.text(_length(waited(row)))),
        ("Has run", html.text(_length(ran(row)))),
        ("Expected", html.text(explained(row))),
        ("Page", link_to(build)),
    ]
    return html.facts(rows, name_of(build))


def facts_of_end(end: Ended) -> str:
    """A build that was seen to end, as HTML."""
    rows = [("Ended", html.text(end.words)), ("Page", link_to(end.build) if end.is_there else "")]
    return html.facts(rows, name_of(end.build))


def _length(seconds: float | None) -> str:
    return "" if seconds is None else span(seconds)


# --- numbers of a row


def expected(row: Row) -> str:
    """How much of its expected time a build that runs is through with, in few words; a share comes first."""
    if row["state"] == "scheduled":
        return "waits to be started"
    if row["state"] == "canceling":
        return "is being canceled"
    if row["since"] is None:
        return "history not read yet"
    if row.get("n") is None:
        return "unknown"
    if row["n"] == 0 and row["n_sooner"]:
        return f"100 %, longer than all {row['n_sooner']:,} before"
    if _is_missing(row["p50_s"]):
        return "too few before ran as long"
    share = row["elapsed_s"] / (row["elapsed_s"] + row["p50_s"])
    return f"{100 * share:.0f} %, {_about(row['p50_s'])} left (n = {row['n']:,})"


def explained(row: Row) -> str:
    """The same in sentences, with how many builds it goes by."""
    words = expected(row)
    if not words[0].isdigit():
        of = f", going by {row['since']}" if row["since"] else ""
        return f"{words[0].upper()}{words[1:]}{of}."
    if row["n"] == 0:
        return f"Longer than all {counted(row['n_sooner'], 'build')} of this pipeline that ended in {row['since']}."
    longer = f"{counted(row['n'], 'build')} of this pipeline ran longer than {span(row['elapsed_s'])}"
    half = f"half of them ended within another {_about(row['p50_s'])}"
    most = "" if _is_missing(row["p90_s"]) else f", 9 of 10 within {_about(row['p90_s'])}"
    return f"In {row['since']}, {longer}: {half}{most}."


def _about(seconds: float) -> str:
    """As exact as an expectation is."""
    grain = 1 if seconds < 60 else 10 if seconds < 600 else 60
    return span(grain * round(seconds / grain))


def waited(row: Row) -> float | None:
    """Seconds from its creation until it was started, or so far."""
    until: Any = row["fetched_at"] if _is_missing(row["started_at"]) else row["started_at"]
    return _seconds(until - row["created_at"])


def ran(row: Row) -> float | None:
    """Seconds since it was started."""
    return _seconds(row["fetched_at"] - row["started_at"])


def _seconds(length: Any) -> float | None:
    return None if _is_missing(length) else float(length.total_seconds())


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def _is_missing(value: Any) -> bool:
    return bool(pd.isna(value))
