"""The pictures of a page: they can be seen on both grounds, and leave nothing behind."""

from __future__ import annotations

import base64
import io
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from PIL import Image, ImageColor

from buildframe.report import plots as made
from buildframe.report.content import Finding, Report
from buildframe.report.plots import DARK, HEIGHT, LIGHT, WIDTH, EmbeddedPlot, render_plots
from buildframe.workspace import Workspace
from tests.report.reports import kept, report_of
from tests.report.untrusted import UNTRUSTED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(ci: Workspace) -> Report:
    return report_of(ci, 3)


@pytest.fixture(scope="module")
def drawn(report: Report) -> list[EmbeddedPlot]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return render_plots(report)


def opened(address: str) -> Image.Image:
    head, data = address.split(",")
    assert head == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def test_each_is_drawn_for_both_grounds_at_twice_its_size(drawn: list[EmbeddedPlot]) -> None:
    assert len(drawn) == 4
    for picture in drawn:
        for address, ground in ((picture.light, LIGHT), (picture.dark, DARK)):
            image = opened(address)
            assert image.size == (2 * WIDTH, 2 * HEIGHT)
            pixels = image.convert("RGB")
            count, most = max(pixels.getcolors(maxcolors=256) or ())
            assert most == ImageColor.getrgb(ground)
            assert count < 0.99 * image.width * image.height
            assert len(address) < 80_000
        assert picture.alt.endswith(".")
        assert picture.caption


def test_nothing_is_left_behind(report: Report) -> None:
    figures, settings = plt.get_fignums(), dict(mpl.rcParams)
    render_plots(report)
    assert plt.get_fignums() == figures
    assert dict(mpl.rcParams) == settings


def test_two_reports_at_once_do_not_mix_their_looks(report: Report, drawn: list[EmbeddedPlot]) -> None:
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(render_plots, [report, report])) == [drawn, drawn]


def test_that_of_the_worst_news_is_shown_else_of_the_busiest(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "_draw_png", lambda *_: "")  # captions suffice
    busiest = report.builds["pipeline"].value_counts().idxmax()
    other = report.builds["pipeline"].value_counts().idxmin()
    better = Finding("speed", str(busiest), "It takes less.", bad=False)
    worse = Finding("speed", f"{other}: unit", "It takes longer.", bad=True)
    assert f"passed builds of {busiest} " in render_plots(replace(report, findings=()))[0].caption
    assert f"passed builds of {other} " in render_plots(replace(report, findings=(better, worse)))[0].caption


def test_blocked_builds_are_not_among_those_that_a_line_is_said_to_show(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "_draw_png", lambda *_: "")
    builds = report.builds[report.builds["pipeline"] == "release"]
    passed = report.period.history.of(builds[builds["state"] == "passed"], "created_at")
    assert passed["blocked"].any()
    alt = render_plots(replace(report, builds=builds, findings=()))[0].alt
    assert f"wall time of {(~passed['blocked']).sum()} passed builds of release." in alt


def test_without_builds_there_are_none(report: Report) -> None:
    assert render_plots(replace(report, builds=report.builds.iloc[:0], jobs=report.jobs.iloc[:0])) == []


def test_few_builds_and_jobs_are_enough(report: Report) -> None:
    for n in (1, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            few = replace(report, builds=report.builds.head(n), jobs=report.jobs.head(n))
            assert len(render_plots(few)) == 4


@pytest.mark.parametrize("at", range(0, len(UNTRUSTED), 8))
def test_any_name_is_drawn_as_it_is(report: Report, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pd.Series([kept(text) for text in UNTRUSTED[at : at + 8]], dtype="str")
    jobs = report.jobs.reset_index(drop=True)
    names = texts.reindex(jobs.index % len(texts)).set_axis(jobs.index)
    jobs = jobs.assign(name=names, queue=names, step_key=pd.Series(pd.NA, jobs.index, "str"), pipeline=texts[0])
    builds = report.builds.assign(pipeline=texts[0])
    monkeypatch.setattr(made, "_embed", lambda draw, *_: made._draw_png(draw, LIGHT))  # one background suffices
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(render_plots(replace(report, builds=builds, jobs=jobs, findings=()))) == 4
