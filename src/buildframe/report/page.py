"""Render a report as a self-contained HTML page and as a Markdown summary. Measures nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import math
import re
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from typing import Any

import pandas as pd

from buildframe.formatting import escape_invisible, truncate_middle
from buildframe.guards.arguments import checked_call
from buildframe.report.content import STATUSES, Report
from buildframe.report.overview import Conclusion, draw_conclusions, format_relative
from buildframe.report.periods import Period
from buildframe.report.plots import HEIGHT, WIDTH, render_plots
from buildframe.report.tables import select_broken, select_cost, select_objectives, select_rows
from buildframe.templates import load_templates

_MAX_SENTENCE = 2000
"""Characters of a sentence that are shown. Names in it are shortened separately."""


_FIRST_VERDICTS = 4
"""Limits that are not met on the first screen."""


@checked_call
def render(report: Report) -> str:
    """
    Render a report as an HTML page.

    The page loads no other resources and contains no script. All names and texts of the service are escaped.

    Parameters
    ----------
    report : Report
        Content, as returned by `read`.

    Returns
    -------
    str
        HTML document with embedded style and plots.

    Raises
    ------
    MissingExtra
        If the extra `report` is not installed.

    See Also
    --------
    summary : The same as Markdown, without plots.

    Examples
    --------
    >>> from buildframe import report
    >>> content = report.read("ci-history", days=7)  # doctest: +SKIP
    >>> Path("report.html").write_text(report.render(content), encoding="utf-8")  # doctest: +SKIP
    """
    template = _environment(html=True).get_template("page.html.j2")
    content = {"plots": render_plots(report), "width": WIDTH, "height": HEIGHT, "tables": select_rows(report)}
    links = {"broken": select_broken(report), "pipeline_urls": _pipeline_urls(report.pipelines)}
    return str(template.render(**_variables(report), **content, **links, style_hash=_style_hash()))


@checked_call
def summary(report: Report) -> str:
    """
    Render a report as a Markdown summary.

    The summary contains the conclusions, exceeded limits, the tables of pipelines, queues and objectives, and the cost.
    Names are escaped, so that they form no markup, link, mention or reference.

    Parameters
    ----------
    report : Report
        Content, as returned by `read`.

    Returns
    -------
    str
        Markdown text.

    Raises
    ------
    MissingExtra
        If the extra `report` is not installed.

    See Also
    --------
    render : The whole report as an HTML page.

    Examples
    --------
    >>> from buildframe import report
    >>> print(report.summary(report.read("ci-history", days=7)))  # doctest: +SKIP
    """
    template = _environment(html=False).get_template("summary.md.j2")
    measured = report.measurements
    success = measured.success[["pipeline", "rate", "rate_before", "n"]]
    wall_time = measured.wall_time[["pipeline", "p50_s", "p50_before_s"]]
    rows: dict[str, Any] = {
        "pipelines": _largest(success.merge(wall_time, "left", "pipeline")),
        "queues": _largest(measured.queue_time),
        "objectives": select_objectives(measured.objectives)["rows"],
        "cost": select_cost(measured.cost),
    }
    return str(template.render(**_variables(report), **rows))


def _variables(report: Report) -> dict[str, Any]:
    """Return the template variables of page and summary."""
    verdicts = sorted(report.verdicts, key=lambda one: STATUSES.index(one.status))
    *conclusions, load = draw_conclusions(report)
    unmet = [one for one in verdicts if one.status != "within"]
    return {
        "report": report,
        "period": _days(report.period),
        "before": _days(report.period.before),
        "history": _days(Period(max(report.since, report.period.history.start), report.period.end)),
        "conclusions": conclusions,
        "load": load,
        "headings": _head_conclusions(conclusions),
        "verdicts": verdicts,
        "first_verdicts": unmet[:_FIRST_VERDICTS],
        "more_verdicts": unmet[_FIRST_VERDICTS:],
        "limits": Counter(one.status for one in report.verdicts),
        "counts": _counts(report),
        "version": importlib.metadata.version("buildframe"),
    }


def _head_conclusions(conclusions: Sequence[Conclusion]) -> dict[str, str]:
    """Return the headings of the conclusions with and without a change."""
    is_compared = any(one.mood == "calm" for one in conclusions)
    nothing = "Nothing changed significantly" if is_compared else "Nothing could be compared"
    return {
        "changed": "What changed" if any(one.findings for one in conclusions) else nothing,
        "unchanged": "What did not change" if is_compared else "What could not be compared",
    }


def _days(period: Period) -> str:
    """ "Mon 19 to Sun 25 Oct 2026"."""
    first, last = period.start, period.end - pd.Timedelta(1, "us")
    same = (first.year, first.month) == (last.year, last.month)
    begin = f"{first:%a} {first.day}" + ("" if same else f" {first:%b}")
    year = "" if first.year == last.year else f" {first.year}"
    return f"{begin}{year} to {last:%a} {last.day} {last:%b %Y}"


def _counts(report: Report) -> dict[str, int]:
    """Return the numbers of rows, and of censored and negative durations."""
    measured = report.measurements
    load = {row["what"]: row for row in measured.load.fillna(0).to_dict("records")}
    with_durations = (measured.wall_time, measured.step_time, measured.queue_time)
    return {
        **{name: int(load[f"{name} finished"]["now"]) for name in ("builds", "jobs")},
        **{f"{name}_before": int(load[f"{name} finished"]["before"]) for name in ("builds", "jobs")},
        "waiting": int(measured.queue_time["n_censored"].sum()),
        "negative": sum(int(table["n_negative"].sum()) for table in with_durations),
    }


def _format_probability(p: float) -> str:
    """ "92 %", at most "> 99 %" and at least "< 1 %"; "unknown" for NaN."""
    if math.isnan(p):
        return "unknown"
    return "> 99 %" if p > 0.99 else "< 1 %" if p < 0.01 else f"{100 * p:.0f} %"


def _format_p(p: float) -> str:
    """ "0.012", "< 0.001"; "unknown" for NaN."""
    return "unknown" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _pipeline_urls(pipelines: pd.DataFrame) -> dict[str, str]:
    """Return the pages of pipelines by slug."""
    return dict(zip(pipelines["slug"], pipelines["web_url"], strict=True)) if "web_url" in pipelines else {}


def _largest(table: pd.DataFrame) -> list[dict[Any, Any]]:
    return table.sort_values("n", ascending=False, kind="stable").head(8).to_dict("records")


@functools.cache
def _environment(*, html: bool) -> Any:
    """Return an environment of templates that makes control characters visible and escapes every value."""
    templates = load_templates("buildframe.report", "A report", _shown if html else _escaped, html=html)
    templates.globals |= {"format_relative": format_relative, "format_probability": _format_probability}
    templates.globals |= {"format_p": _format_p}
    return templates


def _shown(value: object) -> object:
    """Return a text with control characters made visible. Leave embedded plots unchanged."""
    if not isinstance(value, str) or value.startswith("data:image/png;base64,"):
        return value
    return escape_invisible(truncate_middle(value, _MAX_SENTENCE))


_MARKUP = re.compile(r"[\\`*_{}\[\]|^~$]|(?<=\S)\.(?=[^\W\d])|(?<=www)\.")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_JOINER = "\u2060"
_AUTOLINKS = re.compile(
    r"(?<=[@#!%])(?=\w)"  # mentions and numbers of issues
    r"|(?<!\d:)(?<=:)(?=[\w+-])"  # names of emoji
    r"|(?<=/)(?=/)"  # URLs
    r"|(?<=\bgh-)(?=\d)|(?<=[\da-f]{6})(?=[\da-f])",  # issues and commits
    re.IGNORECASE,
)
"""Positions at which renderers turn plain text into links. An invisible joiner at each prevents that."""


def _escaped(value: object) -> object:
    """Return a text with all Markdown syntax escaped."""
    if not isinstance(value, str):
        return value
    marked = _MARKUP.sub(r"\\\g<0>", str(_shown(value))).translate(_ENTITIES)
    return _AUTOLINKS.sub(_JOINER, marked)


@functools.cache
def _style_hash() -> str:
    """Return the hash of the style, which the content security policy of the page allows."""
    page = resources.files("buildframe.report").joinpath("page.html.j2").read_text("utf-8")
    style = page.split("<style>")[1].split("</style>")[0]
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
