"""Render the plots of a report page as embedded PNG images, each for a light and a dark theme.

PNG images show names as pixels, so names cannot become markup. A small palette keeps the page small.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from buildframe.formatting import format_count, format_name, format_percent, format_timestamp
from buildframe.metrics.durations import is_script
from buildframe.metrics.forks import without_forks
from buildframe.report.content import Report
from buildframe.report.measurements import ended_builds, with_default_branches
from buildframe.report.objectives import DURATIONS, OF_BUILDS, select_promised

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg

LIGHT, DARK = "#ffffff", "#15191d"
"""Background colors of the page."""

WIDTH, HEIGHT = 520, 340
"""Size of a plot in CSS pixels (96 per inch)."""

_PALETTE_SIZE = 64
_LOCK = threading.Lock()  # a plot changes matplotlib's global settings while it is drawn


@dataclass(frozen=True)
class EmbeddedPlot:
    """Hold a plot as `data:` URLs for the light and the dark theme, with its caption and text alternative."""

    light: str
    dark: str
    caption: str
    alt: str


def render_plots(report: Report) -> list[EmbeddedPlot]:
    """Return the plots of wall time and step times of one pipeline, of success rates, queue times and objectives."""
    period, history = report.period, report.period.history
    if history.of(report.builds, "created_at").empty:
        return []
    from buildframe import plots

    pipeline = _most_changed_pipeline(report)
    builds, jobs = (frame[frame["pipeline"] == pipeline] for frame in (report.builds, report.jobs))
    passed = history.of(builds[builds["state"] == "passed"], "created_at")
    ran = period.of(jobs, "finished_at")
    waited = report.jobs[is_script(report.jobs) & history.contains(report.jobs["runnable_at"])]
    changes = _select_changes(report.level_changes, pipeline)
    name, days = format_name(pipeline), format_count(report.history_days, "day")
    return [
        _embed(
            lambda ax: plots.duration_trend(passed, ax, tz=period.tz, changes=changes),
            f"Wall time of passed builds of {name} over {days}",
            f"Points: wall time of {format_count(len(ended_builds(passed)), 'passed build')} of {name}. Line: their "
            "median, with its 95 % interval as a band. Dashed line: the 95th percentile."
            f"{' Vertical line: the day of a change, with its size.' if len(changes) else ''}",
        ),
        _embed(
            lambda ax: plots.step_times(ran, ax, top=8),
            f"Queue time and run time of the steps of {name}",
            f"Slowest steps of {name} in the period, {format_count(len(ran), 'job')}. "
            "Dots: median queue time and run time. Bars: up to the 95th percentile.",
        ),
        _embed_success(report),
        _embed(
            lambda ax: plot_waits(waited, ax, period.tz),
            f"Queue time by queue and day, {days}",
            f"Lines: daily 95th percentile of the queue time, for the queues with most jobs. "
            f"{format_count(len(waited), 'job')} became runnable.",
        ),
        *_embed_objectives(report),
    ]


def _select_changes(changes: pd.DataFrame, pipeline: str) -> pd.DataFrame:
    """Return the changes of the wall time of a pipeline whose day is known, with the columns that the plot needs."""
    own = changes[(changes["what"] == "wall time") & (changes["pipeline"] == pipeline) & changes["since"].notna()]
    times = {"since": "at", "since_low": "at_low", "since_high": "at_high"}
    return own.rename(columns=times | {"change": "p50_change_s", "before": "p50_before_s"})


def _embed_success(report: Report) -> EmbeddedPlot:
    """Plot the success rate and the outages of default branches, or the rate of all builds if none is known.

    Unlike other plots, it ends when the report was written, because its outages are those that are broken now.
    """
    from buildframe import plots

    pipelines, tz, start = with_default_branches(report.pipelines), report.period.tz, _find_start(report)
    builds = report.builds[report.builds["created_at"] >= start]
    until = f"up to {format_timestamp(report.as_of)}"
    listed = pd.MultiIndex.from_frame(pipelines[["id", "slug", "default_branch"]])
    on_default = builds[pd.MultiIndex.from_frame(builds[["pipeline_id", "pipeline", "branch"]]).isin(listed)]
    on_default = without_forks(on_default, pipelines)
    if on_default.empty:
        return _embed(
            lambda ax: plots.success_trend(builds, ax, tz=tz, title="Success rate"),
            f"Success rate of all pipelines by day, {until}",
            f"Line: daily success rate of {format_count(len(builds), 'build')}. Band: its 95 % interval.",
        )
    title = "Success rate of default branches"
    return _embed(
        lambda ax: plots.success_trend(on_default, ax, tz=tz, pipelines=pipelines, title=title),
        f"Success rate and outages of default branches by day, {until}",
        f"Line: daily success rate of {format_count(len(on_default), 'build')} of default branches. Band: its 95 % "
        "interval. Bars below: when the default branch of a pipeline was failing.",
    )


def _find_start(report: Report) -> pd.Timestamp:
    """Return the start of the history, or of an outage that is open, if that is earlier."""
    outages = report.measurements.outages
    first = outages.loc[outages["open"].astype(bool), ["pipeline", "first_number"]]
    begun = report.builds.merge(first.set_axis(["pipeline", "number"], axis=1), on=["pipeline", "number"])["created_at"]
    start: pd.Timestamp = min([report.period.history.start, *begun])
    return start


def _embed_objectives(report: Report) -> Iterator[EmbeddedPlot]:
    """Plot the error budget of each objective; of one with groups, that of the group that used most."""
    objectives = report.measurements.objectives
    if objectives.empty:
        return
    named = objectives[["queue", "pipeline"]].notna().sum(axis=1)  # rows without a queue are no group of their own here
    ranked = objectives.assign(named=named).sort_values(["named", "budget_used"], ascending=False, kind="stable")
    for row in ranked.drop_duplicates("objective").sort_index().to_dict("records"):
        if row["n"]:
            yield _embed_objective(report, row)


def _embed_objective(report: Report, row: Mapping[Any, Any]) -> EmbeddedPlot:
    from buildframe import plots

    of, period = DURATIONS[row["of"]], report.period
    chosen = {key: None if pd.isna(row[key]) else str(row[key]) for key in ("queue", "pipeline")}
    rows = select_promised(of, report.builds, report.jobs, period, chosen)
    within, freq = dt.timedelta(seconds=row["within_s"]), "1h" if period.days <= 2 else "1D"
    kind = "build" if row["of"] in OF_BUILDS else "job"
    names = "".join(f", {key} {format_name(value)}" for key, value in chosen.items() if value is not None)
    return _embed(
        lambda ax: plots.objective(rows, ax, of=of, within=within, target=row["target"], freq=freq, tz=period.tz),
        f"Objective {format_name(row['objective'])}{names}",
        f"Above: share of {format_count(int(row['n']), kind)} that met the objective, and its target. "
        f"Below: the error budget that remains; {format_percent(row['budget_used'])} is used.",
    )


def _most_changed_pipeline(report: Report) -> str:
    """Return the pipeline with most findings about speed, deteriorations first, or else with most builds."""
    count = report.builds["pipeline"].value_counts()
    findings = [one for one in report.findings if one.question == "speed"]

    def weight(pipeline: str) -> tuple[int, int, int]:
        about = [one for one in findings if one.subject.split(": ")[0] == format_name(pipeline)]
        return sum(one.bad for one in about), len(about), int(count[pipeline])

    return str(max(count.index, key=weight))


def plot_waits(jobs: pd.DataFrame, ax: Axes, tz: str) -> None:
    """Plot the daily 95th percentile of the queue time of the queues with most jobs."""
    from buildframe import metrics, plots

    what = f"Queue time of {format_count(len(jobs), 'job')}, 95th percentile"
    plots.trend(jobs, ax, of=metrics.queue_time, by="queue", q=0.95, freq="1D", tz=tz, title=what, top=4)


def _embed(draw: Callable[[Any], object], caption: str, alt: str) -> EmbeddedPlot:
    return EmbeddedPlot(*_draw_pngs(draw), caption, alt)


def _draw_pngs(draw: Callable[[Any], object]) -> tuple[str, str]:
    """Draw on a figure that pyplot does not manage, and return it with a light and a dark background.

    The plot is computed and laid out once, and recolored for the dark background.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from buildframe.plots.layout import apply_layout
    from buildframe.plots.theme import darken

    with _LOCK:
        figure = Figure(figsize=(WIDTH / 96, HEIGHT / 96), dpi=192, layout="constrained", facecolor=LIGHT)
        canvas = FigureCanvasAgg(figure)
        ax = figure.add_subplot()
        draw(ax)
        apply_layout(ax)
        figure.set_layout_engine("none")  # drawing would compute the layout again
        light = _encode_png(canvas)
        darken(figure, DARK)
        return light, _encode_png(canvas)


def _encode_png(canvas: FigureCanvasAgg) -> str:
    """Return the figure as a `data:` URL."""
    from PIL import Image

    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]  # type: ignore[no-untyped-call]
    # Octrees take a quarter of the time of the default, and a color for each, so that the background is not exact.
    image = Image.fromarray(pixels).quantize(_PALETTE_SIZE, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    palette, background = image.getpalette() or [], 3 * int(np.asarray(image)[0, 0])
    palette[background : background + 3] = pixels[0, 0].tolist()
    image.putpalette(palette)
    file = io.BytesIO()
    image.save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
