"""Keys of plots: which groups are shown, what they are called, and which keys are refused."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from cycler import cycler
from matplotlib.collections import PolyCollection

from buildframe import plots
from tests.metrics.each_case import for_each
from tests.plots.plot_frames import agents_needed, builds, jobs, leverage, note, queued, scope, segments, title
from tests.refusals import refusal, wrong_messages


def of_pipelines(n: int) -> pd.DataFrame:
    return pd.concat([builds(2, 6, pipeline=f"p{k}") for k in range(n)], ignore_index=True)


GROUPED = {plot.__name__: plot for plot in (plots.trend, plots.duration_trend, plots.success_trend, plots.distribution)}


def test_a_column_that_a_frame_does_not_have_is_refused_with_the_nearest_one():
    for argument in ("by", "col", "row"):
        message = f"{argument}='pipelin': The frame has no column 'pipelin'. Did you mean 'pipeline'?"
        for plot in (plots.trend, plots.duration_trend, plots.success_trend):
            assert refusal(plot, builds(), **{argument: "pipelin"}) == message, plot
        message = f"{argument}='queu': The frame has no column 'queu'. Did you mean 'queue'?"
        assert refusal(plots.contention, jobs(), **{argument: "queu"}) == message
    assert wrong_messages([
        ("by='queue': The frame has no column 'queue'; it comes with ws.jobs()",
         lambda: plots.trend(builds(), by="queue")),
        ("Did you mean 'pipeline'", lambda: plots.explain(segments(), segments(build_id="x"), by=["pipelin"])),
        ("both are the same key. Pass one of them", lambda: plots.trend(builds(), row="pipeline", col="pipeline")),
        ("row='pipeline', col='pipeline'", lambda: plots.calendar(builds(), row="pipeline", col="pipeline")),
    ]) == {}  # fmt: skip


def test_a_lambda_is_called_a_group():
    ax = plots.trend(builds(), by=lambda frame: frame["pipeline"])
    assert title(ax) == "Median of wall time of 60 builds by group"
    axes = plots.trend(builds(), col=lambda frame: frame["pipeline"], by=lambda frame: frame["pipeline"])
    assert axes[0].figure.texts[0].get_text().startswith("Median of wall time by group, by group")
    hidden = plots.trend(of_pipelines(3), by=lambda frame: frame["pipeline"], top=2)
    assert "1 group value with fewer rows not shown" in note(hidden)


@for_each(GROUPED)
def test_groups_that_are_cells_are_all_shown(plot):
    axes = plot(of_pipelines(2), by="pipeline", col="pipeline", top=1)
    assert [ax.get_title(loc="left") for ax in axes] == ["p0", "p1"]
    assert all(ax.axison for ax in axes)
    assert not any("not shown" in text.get_text() for text in axes[0].figure.texts)


@pytest.mark.long
@for_each({name: plot for name, plot in GROUPED.items() if plot != plots.distribution})
def test_up_to_three_groups_have_a_band(plot):
    each = [pd.concat([builds(2, 40, pipeline=f"p{k}") for k in range(n)], ignore_index=True) for n in (3, 4)]
    drawn = [plot(frame, by="pipeline", freq="1D") for frame in each]
    assert [sum(isinstance(one, PolyCollection) for one in ax.collections) for ax in drawn] == [3, 0]
    assert ["band" in note(ax) for ax in drawn] == [True, False]


@pytest.mark.long
def test_groups_have_the_colors_and_the_line_width_that_the_user_chose():
    chosen = {"axes.prop_cycle": cycler(color=["#111111", "#222222"]), "lines.linewidth": 5}
    for plot in (plots.trend, plots.duration_trend, plots.success_trend, plots.distribution):
        with mpl.rc_context(chosen):
            ax = plot(of_pipelines(3), by="pipeline")
        drawn = [line for line in ax.lines if line.get_label()[0] == "p" and len(line.get_xdata())]
        drawn = drawn or [
            line for line in ax.lines if line.get_linewidth() == 5
        ]  # survival labels the ends of its lines
        assert {line.get_color() for line in drawn} == {"#111111", "#222222"}, plot
        assert {line.get_linewidth() for line in drawn} == {5}, plot


def test_states_keep_their_colors_whatever_the_user_chose():
    usual = {line.get_color() for line in plots.duration_trend(builds()).lines}
    with mpl.rc_context({"axes.prop_cycle": cycler(color=["#111111"])}):
        assert {line.get_color() for line in plots.duration_trend(builds()).lines} == usual


def test_the_page_on_plots_lists_which_arguments_a_plot_does_not_have():
    arguments = {"by", "col", "row", "tz"}
    missing = {
        (name, argument)
        for name in set(plots.__all__) - {"shortened", "explore"}
        for argument in arguments - {*inspect.signature(getattr(plots, name)).parameters}
    }
    page = (Path(__file__).parents[2] / "docs" / "plots.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)
    listed = {(name, argument) for names, gone in rows for name in _quoted(names) for argument in _quoted(gone)}
    assert listed == missing


def _quoted(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


@pytest.mark.long
@for_each({"agents_needed": agents_needed, "leverage": leverage})
def test_days_of_predictions_have_the_time_zone(plot):
    frame = queued()
    assert scope(plot(frame))[-1] != scope(plot(frame, tz="Pacific/Honolulu"))[-1]
