"""The plots of a page: they are readable on both backgrounds and leave no open figures or changed settings."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import matplotlib.figure
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import date2num
from matplotlib.text import Text
from PIL import Image, ImageColor

from buildframe.report import plots as made
from buildframe.report.content import Finding, Report
from buildframe.report.plots import DARK, HEIGHT, LIGHT, WIDTH, EmbeddedPlot, render_plots
from tests.report import reports
from tests.report.reports import kept
from tests.report.untrusted import UNTRUSTED

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def report(small_report: Report) -> Report:
    return small_report


@pytest.fixture(scope="module")
def rendering(report: Report) -> tuple[list[EmbeddedPlot], list[Any]]:
    """Return the plots, and open figures and settings before and after they were rendered."""
    states: list[Any] = [(plt.get_fignums(), dict(mpl.rcParams))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots = render_plots(report)
    return plots, [*states, (plt.get_fignums(), dict(mpl.rcParams))]


@pytest.fixture(scope="module")
def rendered_plots(rendering: tuple[list[EmbeddedPlot], list[Any]]) -> list[EmbeddedPlot]:
    return rendering[0]


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw each plot once and small, because backgrounds and images take most of the time."""

    def draw(function: Callable[[Any], object]) -> tuple[str, str]:
        figure = matplotlib.figure.Figure((WIDTH / 96, HEIGHT / 96), layout="constrained")
        function(figure.add_subplot())
        FigureCanvasAgg(figure).draw()
        return "", ""

    monkeypatch.setattr(made, "_draw_pngs", draw)


def opened(url: str) -> Image.Image:
    head, data = url.split(",")
    assert head == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def edges_of(image: Image.Image) -> set[Any]:
    """Return the colors of the outermost pixels."""
    right, below = image.width - 1, image.height - 1
    lines = [(0, 0, right, 1), (0, below, right, below + 1), (0, 0, 1, below), (right, 0, right + 1, below)]
    return {color for box in lines for _, color in image.crop(box).getcolors() or ()}


def test_each_plot_is_drawn_for_both_backgrounds_at_twice_its_size(rendered_plots: list[EmbeddedPlot]) -> None:
    assert len(rendered_plots) == 4
    for plot in rendered_plots:
        for url, background in ((plot.light, LIGHT), (plot.dark, DARK)):
            image = opened(url)
            assert image.size == (2 * WIDTH, 2 * HEIGHT)
            pixels = image.convert("RGB")
            count, most = max(pixels.getcolors(maxcolors=256) or ())
            assert most == ImageColor.getrgb(background)
            assert count < 0.99 * image.width * image.height
            assert edges_of(pixels) == {most}  # no text is cut
            assert len(url) < 80_000
        assert plot.alt.endswith(".")
        assert plot.caption


@pytest.mark.parametrize("n", [40, None], ids=["few jobs", "all jobs"])
def test_dark_plots_are_those_drawn_on_a_dark_background(
    report: Report, rendered_plots: list[EmbeddedPlot], n: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = replace(report, jobs=report.jobs.head(n)) if n else report
    recolored = [plot.dark for plot in (render_plots(report) if n else rendered_plots)]
    monkeypatch.setattr(made, "LIGHT", DARK)
    assert [plot.light for plot in render_plots(report)] == recolored


def test_plots_leave_no_open_figures_or_changed_settings(rendering: tuple[list[EmbeddedPlot], list[Any]]) -> None:
    before, after = rendering[1]
    assert after == before


def test_two_reports_at_once_do_not_mix_their_styles(report: Report, rendered_plots: list[EmbeddedPlot]) -> None:
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(render_plots, [report, report])) == [rendered_plots, rendered_plots]


def test_the_plot_shows_the_pipeline_of_the_worst_finding_or_the_busiest_pipeline(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "_draw_pngs", lambda _: ("", ""))  # captions suffice
    busiest = report.builds["pipeline"].value_counts().idxmax()
    other = report.builds["pipeline"].value_counts().idxmin()
    better = Finding("speed", str(busiest), "It takes less.", bad=False)
    worse = Finding("speed", f"{other}: unit", "It takes longer.", bad=True)
    assert f"passed builds of {busiest} " in render_plots(replace(report, findings=()))[0].caption
    assert f"passed builds of {other} " in render_plots(replace(report, findings=(better, worse)))[0].caption


def test_the_description_of_a_plot_does_not_count_blocked_builds(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "_draw_pngs", lambda _: ("", ""))
    builds = report.builds[report.builds["pipeline"] == "release"]
    passed = report.period.history.of(builds[builds["state"] == "passed"], "created_at")
    assert passed["blocked"].any()
    alt = render_plots(replace(report, builds=builds, findings=()))[0].alt
    assert f"wall time of {(~passed['blocked']).sum()} passed builds of release." in alt


def draw_on_axes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Draw plots without images, and return a list to which the Axes of each are added."""
    axes: list[Any] = []

    def draw(function: Callable[[Any], object]) -> tuple[str, str]:
        axes.append(matplotlib.figure.Figure((WIDTH / 96, HEIGHT / 96), layout="constrained").add_subplot())
        function(axes[-1])
        return "", ""

    monkeypatch.setattr(made, "_draw_pngs", draw)
    return axes


def test_success_shows_the_outages_of_default_branches_if_these_are_known(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = draw_on_axes(monkeypatch)
    success = render_plots(report)[2]
    labels = {text.get_text() for text in axes[2].get_legend().get_texts()}
    assert {"success rate", "branch failing"} <= labels
    outages = report.measurements.outages
    lanes = {label.get_text() for label in axes[2].get_yticklabels()}
    assert set(outages["pipeline"][outages["open"]]) <= lanes
    assert success.caption.startswith("Success rate and outages of default branches by day")
    known = report.pipelines.set_index("slug")["default_branch"]
    builds = report.builds[report.builds["created_at"] >= report.period.history.start]
    n = (builds["branch"] == builds["pipeline"].map(known)).sum()
    assert f"daily success rate of {n:,} builds of default branches" in success.alt
    unlisted = render_plots(replace(report, pipelines=report.pipelines.iloc[:0]))[2]
    assert unlisted.caption.startswith("Success rate of all pipelines by day")


@pytest.mark.parametrize(
    ("states", "is_broken"),
    [
        ({50: "passed", 30: "failed", 2: "passed"}, False),  # hours before the report, whose day has fifteen
        ({50: "passed", 30: "failed", 2: "failed"}, True),
        ({700: "passed", 690: "failed"}, True),  # before the history
    ],
)
def test_outages_of_the_plot_are_those_that_are_broken_now(
    report: Report, monkeypatch: pytest.MonkeyPatch, states: dict[int, str], is_broken: bool
) -> None:
    builds, known = report.builds, report.pipelines.set_index("slug")["default_branch"]
    own = builds[(builds["branch"] == builds["pipeline"].map(known)) & ~builds["blocked"]]
    other, row = own[own["pipeline"] == "api"].head(1), own[own["pipeline"] == "web"].head(1)
    ends = [report.as_of - pd.Timedelta(hours, "h") for hours in states]
    rows = pd.concat([row.assign(number=n, id=str(n), state=s) for n, s in enumerate(states.values(), 1)])
    rows = rows.assign(created_at=ends, finished_at=ends).assign(fetched_at=report.as_of)
    other = other.assign(created_at=report.period.start, finished_at=report.period.start, state="passed")
    few = reports.made(pd.concat([rows, other], ignore_index=True), report.jobs.head(0), report.pipelines, None, 3)
    axes = draw_on_axes(monkeypatch)
    render_plots(few)
    assert bool(few.broken) == is_broken
    texts = [text.get_text() for text in axes[2].get_figure().findobj(Text)]
    assert any("1 still open" in text for text in texts) == is_broken
    assert ("still failing" in texts) == is_broken
    boxes = [each for each in axes[2].collections if each.get_label() == "branch failing"]
    begun = [path.get_extents().x0 for each in boxes for path in each.get_paths()]
    first = next(end for end, state in zip(ends, states.values(), strict=True) if state == "failed")
    assert begun == [date2num(first.tz_localize(None))]


def test_without_builds_of_the_history_there_are_no_plots(report: Report) -> None:
    created = report.builds["created_at"]
    for own in (created < created.min(), created >= report.period.end):
        assert render_plots(replace(report, builds=report.builds[own])) == []


@pytest.mark.usefixtures("drawn_once")
def test_few_builds_and_jobs_are_enough(report: Report) -> None:
    for n in (1, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            own = report.period.of(report.builds, "created_at").head(n)
            few = replace(report, builds=own, jobs=report.jobs[report.jobs["build_id"].isin(own["id"])])
            assert len(render_plots(few)) == 4


HARD_TO_DRAW = [text for text in UNTRUSTED if not text.isascii() or len(text) > 100 or set(text) & set("$\\^{%\n\0")]
"""Formulas, invisible and foreign characters, and long names: matplotlib draws markup of HTML as any text."""


@pytest.mark.usefixtures("drawn_once")
def test_any_name_is_drawn_as_it_is(report: Report) -> None:
    for at in range(0, len(HARD_TO_DRAW), 8):
        texts = pd.Series([kept(text) for text in HARD_TO_DRAW[at : at + 8]], dtype="str")
        jobs = report.jobs.head(800).reset_index(drop=True)
        names = texts.reindex(jobs.index % len(texts)).set_axis(jobs.index)
        jobs = jobs.assign(name=names, queue=names, step_key=pd.Series(pd.NA, jobs.index, "str"), pipeline=texts[0])
        builds = report.builds.assign(pipeline=texts[0])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(render_plots(replace(report, builds=builds, jobs=jobs, findings=()))) == 4


def test_a_day_on_which_too_many_jobs_did_not_start_has_a_mark_at_the_lower_bound() -> None:
    runnable = pd.Timestamp("2026-10-26T08:00", tz="UTC")
    minutes = [1.0] * 100 + [float("nan")] * 30
    jobs = pd.DataFrame({"queue": "macos", "type": "script", "runnable_at": runnable}, index=range(len(minutes)))
    started = runnable + pd.to_timedelta(pd.Series(minutes), unit="min")
    jobs = jobs.assign(started_at=started, fetched_at=started.fillna(runnable + pd.Timedelta("2h")))
    ax = plt.figure().add_subplot()
    made.plot_waits(pd.concat([jobs, jobs[:100].assign(queue="default")]), ax, "UTC")
    lines = {line.get_label(): line.get_ydata().tolist() for line in ax.lines}
    assert lines["default"] == [60.0]
    assert lines["macos"] == []
    assert "at least" in [text.get_text() for text in ax.get_legend().get_texts()]
    plt.close("all")
