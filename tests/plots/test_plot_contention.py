"""The matrix of which jobs wait for which."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from buildframe import metrics, plots
from tests.metrics.each_case import for_each
from tests.plots.plot_frames import UGLY, at, busy_jobs, jobs, labels, laid_out, note, title
from tests.refusals import refusal


def columns(ax: plt.Axes) -> list[str]:
    return [text.get_text() for text in ax.get_xticklabels()]


def cells(ax: plt.Axes) -> dict[tuple[str, str], str]:
    """The written values by the names of their row and column."""
    inside = [text for text in ax.texts if text.get_position() != (0, 1) and text.get_ha() == "center"]
    places = [(int(text.get_position()[1]), int(text.get_position()[0]), text.get_text()) for text in inside]
    return {(labels(ax)[row], columns(ax)[column]): text for row, column, text in places}


def test_cells_have_the_time_that_a_row_waited_while_a_column_held():
    frame = jobs(
        3, pipeline=["a", "b", "b"], runnable_at=at(0, 2, 2), started_at=at(0, 10, 30), finished_at=at(10, 30, 31)
    )
    ax = plots.contention(frame)
    assert (labels(ax), columns(ax)) == (["b"], ["b", "a"])
    assert cells(ax) == {("b", "a"): "16", ("b", "b"): "20"}  # both wait for a for 8 minutes
    assert title(ax) == "Which jobs 3 jobs waited for"
    assert note(ax) == "minutes of queue time, darker is longer; 36 min in all"


@for_each({"seconds": 1 / 60, "minutes": 1, "hours": 60})
def test_the_unit_suits_the_largest_cell(scale):
    frame = jobs(2, runnable_at=at(0, 0), started_at=at(0, 9 * scale), finished_at=at(9 * scale, 10 * scale),
                 fetched_at=at(9999, 9999))  # fmt: skip
    ax = plots.contention(frame)
    assert list(cells(ax).values()) == ["9.0"]
    unit = {1 / 60: "seconds", 1: "minutes", 60: "hours"}[scale]
    assert note(ax).startswith(f"{unit} of queue time")


def test_unexplained_time_is_the_last_column_and_others_are_said():
    ax = plots.contention(busy_jobs(200, 9), top=3)
    assert columns(ax)[0] == "pipeline 1"  # whose jobs are long
    assert columns(ax)[3:] == ["6 others"]
    assert labels(ax)[-1] == "6 others"
    idle = jobs(3, runnable_at=at(0, 0, 20), started_at=at(0, 9, 25), finished_at=at(9, 10, 26))
    assert columns(plots.contention(idle))[-1] == "(unexplained)"
    assert cells(plots.contention(idle))["web", "(unexplained)"] == "5.0"


def test_the_cells_add_up_to_the_queue_time_also_with_others():
    frame = busy_jobs(200, 9)
    expected = metrics.queue_time(frame).sum().total_seconds()
    for top in (1, 3, 20):
        (mesh,) = plots.contention(frame, top=top).collections
        assert mesh.get_array().sum() * 60 == pytest.approx(expected), top


def test_negative_waits_and_jobs_that_did_not_start_are_said():
    frame = jobs(3, runnable_at=at(0, 5, 5), started_at=at(0, 3, None), finished_at=at(30, 4, 9))
    ax = plots.contention(frame)
    assert note(ax).endswith("; 1 not started, 1 negative")
    assert "−2.0" in cells(ax).values()


def test_small_axes_have_fewer_groups():
    figure, ax = plt.subplots(figsize=(3, 2.2), layout="constrained")
    plots.contention(busy_jobs(200, 9), ax)
    assert len(labels(ax)) < 6
    assert "others" in labels(ax)[-1]
    laid_out(ax)
    assert figure.bbox.padded(1).contains(*ax.get_tightbbox().min)


def test_any_name_is_drawn():
    names = UGLY * 4
    n = len(names)
    frame = jobs(
        n, pipeline=names, started_at=at(*range(1, n + 1)), finished_at=at(*range(2, n + 2)), runnable_at=at(*[0] * n)
    )
    ax = plots.contention(frame, top=30)
    laid_out(ax)
    assert not any(text.get_parse_math() for text in [*ax.get_xticklabels(), *ax.get_yticklabels()])
    assert len(set(labels(ax))) == len(labels(ax)) == len({*names})


def test_values_are_readable_on_their_cells():
    frame = busy_jobs(400, 9)
    for style in ("default", "dark_background"):
        with plt.style.context(style):
            figure, ax = plt.subplots(figsize=(9, 6))
            plots.contention(frame, ax)
        (mesh,) = ax.collections
        colors = mesh.to_rgba(np.ma.getdata(mesh.get_array())).reshape(-1, 4)
        width = len(columns(ax))
        written = [text for text in ax.texts if text.get_ha() == "center"]
        assert written
        for text in written:
            cell = colors[int(text.get_position()[1]) * width + int(text.get_position()[0])]
            bright = plots.theme.luminance(cell)
            ink = plots.theme.luminance(text.get_color())
            assert (max(bright, ink) + 0.05) / (min(bright, ink) + 0.05) >= 4.5
        plt.close(figure)


def test_nobody_waited():
    ax = plots.contention(jobs(2, started_at=at(0, 1)))
    assert ax.texts[0].get_text() == "No job waited for an agent."


def test_invalid_arguments_are_refused():
    assert "top=0" in refusal(plots.contention, jobs(), top=0)
    assert "no column 'team'" in refusal(plots.contention, jobs(), by="team")
    assert labels(plots.contention(pd.concat([busy_jobs()]), by="queue")) == ["default"]
