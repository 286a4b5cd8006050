"""A report as one HTML page that needs nothing else, and as a summary in Markdown."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import re
from importlib import resources
from typing import Any

import pandas as pd

from buildframe.arguments import checked_call
from buildframe.errors import MissingExtra
from buildframe.report.answers import answers
from buildframe.report.content import Report, Verdict
from buildframe.report.facts import ended_builds
from buildframe.report.periods import Period
from buildframe.report.pictures import HEIGHT, WIDTH, pictures
from buildframe.report.printed import Row, records, tables
from buildframe.words import clipped, counted, day, minutes, named, percent, span, visible

_LONGEST = 2000
"""Signs of a sentence that are shown: its names are shortened already."""

_STATUSES = ("over", "perhaps", "unknown", "within")
_COUNTED = ("wall_time", "step_time", "queue_time")


@checked_call
def render(report: Report) -> str:
    """The page: facts, tables, pictures, what was counted, as of when, whether complete; it asks for nothing else.

    It holds no script, and whatever text the service or its people chose is shown, and does nothing. MissingExtra
    without the package jinja2.
    """
    template = _environment(html=True).get_template("page.html.j2")
    shown = {"pictures": pictures(report), "width": WIDTH, "height": HEIGHT, "tables": tables(report)}
    return str(template.render(**_told(report), **shown, style_hash=_style_hash()))


@checked_call
def summary(report: Report) -> str:
    """The head, the answers, what needs attention, and the tables of pipelines and queues, as Markdown.

    Names and sentences are escaped, so that they are text: no markup, link, mention or reference comes of them.
    MissingExtra without the package jinja2.
    """
    template = _environment(html=False).get_template("summary.md.j2")
    rows = {"pipelines": _pipelines(report), "queues": records(_largest(report.facts.queue_time))}
    return str(template.render(**_told(report), **rows))


def _pipelines(report: Report) -> list[Row]:
    """Success of each, and the wall time beside it."""
    success = report.facts.success[["pipeline", "rate", "rate_before", "n"]]
    times = report.facts.wall_time[["pipeline", "p50_s", "p50_before_s"]]
    return records(_largest(success.merge(times, how="left", on="pipeline")))


def _told(report: Report) -> dict[str, Any]:
    """What both say."""
    return {
        "report": report,
        "period": _days(report.period),
        "before": _days(report.period.before),
        "history": _days(Period(max(report.since, report.period.history.start), report.period.end)),
        "answers": answers(report),
        "verdicts": _in_order(report.verdicts),
        "limits": {status: sum(one.status == status for one in report.verdicts) for status in _STATUSES},
        "counts": _counts(report),
        "version": importlib.metadata.version("buildframe"),
    }


def _days(period: Period) -> str:
    """ "Mon 19 to Sun 25 Oct 2026"."""
    first, last = period.start, period.end - pd.Timedelta(1, "us")
    same = (first.year, first.month) == (last.year, last.month)
    begin = f"{first:%a} {first.day}" + ("" if same else f" {first:%b}")
    year = "" if first.year == last.year else f" {first.year}"
    return f"{begin}{year} to {last:%a} {last.day} {last:%b %Y}"


def _in_order(verdicts: tuple[Verdict, ...]) -> list[Verdict]:
    return sorted(verdicts, key=lambda one: _STATUSES.index(one.status))


def _counts(report: Report) -> dict[str, int]:
    """How much was measured, and what of it has no whole or no possible duration."""
    period = report.period
    measured = [getattr(report.facts, name) for name in _COUNTED]
    builds, jobs = (
        [len(p.of(frame, "finished_at")) for p in (period, period.before)]
        for frame in (ended_builds(report.builds), report.jobs)
    )
    return {
        "builds": builds[0],
        "builds_before": builds[1],
        "jobs": jobs[0],
        "jobs_before": jobs[1],
        "waiting": int(report.facts.queue_time["n_censored"].sum()),
        "negative": sum(int(table["n_negative"].sum()) for table in measured),
    }


def _largest(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values("n", ascending=False, kind="stable").head(10)


@functools.cache
def _environment(*, html: bool) -> Any:
    """Templates in which every value is shown as text: made visible, then escaped."""
    try:
        import jinja2
    except ImportError:
        raise MissingExtra("A report", "report") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("buildframe.report", ""),
        autoescape=html,  # noqa: S701 - Markdown is escaped by what is final
        undefined=jinja2.StrictUndefined,
        finalize=_shown if html else _escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    words = {"span": span, "minutes": minutes, "percent": percent, "day": day, "named": named, "counted": counted}
    environment.globals.update(words)
    return environment


def _shown(value: object) -> object:
    """A text as it can be seen; pictures are long, and made here."""
    if not isinstance(value, str) or value.startswith("data:image/png;base64,"):
        return value
    return visible(clipped(value, _LONGEST))


_MARKUP = re.compile(r"[\\`*_{}\[\]|^~$]|(?<=\S)\.(?=[^\W\d])|(?<=www)\.")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_JOINER = "\u2060"
_TAKEN_UP = re.compile(
    r"(?<=[@#!%])(?=\w)"  # mentions, and references by number
    r"|(?<!\d:)(?<=:)(?=[\w+-])"  # names of emoji
    r"|(?<=/)(?=/)"  # addresses
    r"|(?<=\bgh-)(?=\d)|(?<=[\da-f]{6})(?=[\da-f])",  # references to issues and commits
    re.IGNORECASE,
)
"""Where renderers make links of plain text, whatever is escaped: a joiner there, not to be seen, keeps them from it."""


def _escaped(value: object) -> object:
    """A text of which Markdown makes the same text."""
    if not isinstance(value, str):
        return value
    marked = _MARKUP.sub(r"\\\g<0>", str(_shown(value))).translate(_ENTITIES)
    return _TAKEN_UP.sub(_JOINER, marked)


@functools.cache
def _style_hash() -> str:
    """By it, and nothing else, a browser knows the style that it may apply."""
    page = resources.files("buildframe.report").joinpath("page.html.j2").read_text("utf-8")
    style = page.split("<style>")[1].split("</style>")[0]
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
