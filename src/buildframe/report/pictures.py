"""The pictures of a report's page: each drawn for a bright page and for a dark one.

They are PNG, so that names in them are but dots, and what is drawn looks the same everywhere; with few colours, and
two dots for each of a screen, so small enough to be in the page and sharp enough on paper.
"""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from buildframe.report.content import Report
from buildframe.report.facts import ended_builds
from buildframe.words import counted, named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BRIGHT, DARK = "#ffffff", "#15191d"
"""The grounds of the page."""

WIDTH, HEIGHT = 520, 340
"""Dots of a screen, at 96 an inch."""

_MARKS = {"#0072B2": "o", "#E69F00": "s", "#009E73": "^", "#CC79A7": "D"}
"""Colours of queues that colour-blind readers tell apart; the marks do so in a print without colour."""

_COLOURS = 64
_ONE_AT_A_TIME = threading.Lock()  # while one is drawn, its look is that of all of matplotlib


@dataclass(frozen=True)
class Picture:
    """A picture as `data:` addresses for a bright ground and for a dark one; `caption` and `alt` are plain text."""

    bright: str
    dark: str
    caption: str
    alt: str


def pictures(report: Report) -> list[Picture]:
    """How long builds of a pipeline take, where its time goes, how often builds pass, and how many jobs wait."""
    if report.builds.empty:
        return []
    from buildframe import plots

    period, history = report.period, report.period.history
    pipeline = _most_news(report)
    builds, jobs = (frame[frame["pipeline"] == pipeline] for frame in (report.builds, report.jobs))
    passed = history.of(builds[builds["state"] == "passed"], "created_at")
    ran, waited = period.of(jobs, "finished_at"), history.of(report.jobs, "runnable_at")
    finished = history.of(report.builds, "created_at")
    name, days = named(pipeline), counted(report.history_days, "day")
    return [
        _picture(
            lambda ax: plots.duration_trend(passed, ax, tz=period.tz),
            f"How long passed builds of {name} took, by day, over {days}",
            f"A line at each day's median wall time of {counted(len(ended_builds(passed)), 'passed build')} of {name}, "
            "and a band above it up to the 95th percentile.",
        ),
        _picture(
            lambda ax: plots.step_times(ran, ax, top=8),
            f"Where the steps of {name} wait and run",
            f"The slowest steps of {name} in the period, {counted(len(ran), 'job')}: a dot at the median of queue time "
            "and of run time, a bar up to the 95th percentile.",
        ),
        _picture(
            lambda ax: plots.success_trend(finished, ax, tz=period.tz),
            f"How many builds passed, of all pipelines, by day, over {days}",
            f"A line at each day's success rate of {counted(len(finished), 'build')}, and a band, its 95 % interval.",
        ),
        _picture(
            lambda ax: waits(waited, ax, period.tz),
            f"How long jobs waited for an agent, by queue and day, over {days}",
            f"A line for each of the queues with the longest waits: each day's 95th percentile of queue time; "
            f"{counted(len(waited), 'job')} became runnable.",
        ),
    ]


def _most_news(report: Report) -> str:
    """The pipeline of most news about speed, the bad first; else the one of most builds."""
    count = report.builds["pipeline"].value_counts()
    news = [one for one in report.findings if one.question == "speed"]

    def weight(pipeline: str) -> tuple[int, int, int]:
        about = [one for one in news if one.subject.split(": ")[0] == named(pipeline)]
        return sum(one.bad for one in about), len(about), int(count[pipeline])

    return str(max(count.index, key=weight))


def waits(jobs: pd.DataFrame, ax: Axes, tz: str) -> None:
    """The 95th percentile of each day's queue times, a line for each of the queues where they are longest."""
    from buildframe.plots.look import NO_NAME, around_one, canvas, dates, dress, labels, say

    found = {str(queue): _waits_by_day(own, tz) for queue, own in jobs.groupby(jobs["queue"].fillna(NO_NAME))}
    told = {queue: days for queue, days in found.items() if days.notna().any()}
    shown = sorted(told, key=lambda queue: -told[queue].max())[: len(_MARKS)]
    names = labels(shown, 24)
    with canvas(ax, 9, 4.2):
        if not shown:
            say(ax, "A 95th percentile needs 20 jobs of a queue in a day; none has as many.")
            return
        for queue, (colour, mark) in zip(sorted(shown), _MARKS.items(), strict=False):
            days = told[queue] / 60  # a label that begins with a low line would be left out of the legend
            ax.plot(days.index, days, mark, linestyle="-", color=colour, markersize=4, label=f" {names[queue]}")
        around_one(ax, pd.concat([told[queue] for queue in shown]).index.to_series().drop_duplicates(), "1D")
        dates(ax)
        ax.set_ylim(bottom=min(0, ax.get_ylim()[0]) if min(told[queue].min() for queue in shown) < 0 else 0)
        ax.set_xlabel(f"became runnable ({tz}), by day")
        ax.set_ylabel("queue time, p95 (minutes)")
        dress(ax, f"Queue time of {counted(len(jobs), 'job')}", _hidden(len(found) - len(shown)), grid="y")


def _waits_by_day(jobs: pd.DataFrame, tz: str) -> pd.Series[float]:
    from buildframe import metrics

    days = metrics.trend(jobs, metrics.queue_time, 0.95, tz=tz, at="runnable_at")
    return days.set_index(days["bucket"].dt.tz_localize(None))["p95_s"]


def _hidden(n: int) -> str:
    return f"{counted(n, 'queue')} not shown: too few jobs a day, or shorter waits" if n else ""


def _picture(draw: Callable[[Any], object], caption: str, alt: str) -> Picture:
    return Picture(_drawn(draw, BRIGHT), _drawn(draw, DARK), caption, alt)


def _drawn(draw: Callable[[Any], object], ground: str) -> str:
    """On a figure of its own, which pyplot does not know of."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    with _ONE_AT_A_TIME:
        figure = Figure(figsize=(WIDTH / 96, HEIGHT / 96), dpi=192, layout="constrained", facecolor=ground)
        canvas = FigureCanvasAgg(figure)
        draw(figure.add_subplot())
        canvas.draw()  # type: ignore[no-untyped-call]
    drawn = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
    whole = Image.frombuffer("RGBA", canvas.get_width_height(physical=True), bytes(drawn)).convert("RGB")
    file = io.BytesIO()
    whole.quantize(_COLOURS, dither=Image.Dither.NONE).save(file, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
