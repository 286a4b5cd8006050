"""Title, note and legend: where they begin, what they leave out, and how they scale."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from buildframe import plots
from buildframe.plots import theme
from tests.metrics.each_case import for_each
from tests.plots.plot_frames import (
    agents_needed,
    at,
    builds,
    busy_jobs,
    heading,
    jobs,
    laid_out,
    legend,
    note,
    queued,
    ticks,
)

PAPER = {"figure.figsize": (3.5, 2.6)}


def of_pipelines(n: int) -> pd.DataFrame:
    many = [builds(2, 4, pipeline=f"a pipeline with a long name {k}") for k in range(n)]
    return pd.concat(many, ignore_index=True)


def is_inside(ax: plt.Axes) -> bool:
    """Whether title and legend are in the figure."""
    boxes = [heading(ax).get_window_extent(), ax.get_legend().get_window_extent()]
    return all(box.x0 >= 0 and box.x1 <= ax.figure.bbox.x1 and box.y1 <= ax.figure.bbox.y1 for box in boxes)


@pytest.mark.long
def test_the_legend_of_many_groups_counts_those_for_which_it_has_no_room():
    ax = laid_out(plots.trend(of_pipelines(50), by="pipeline", top=50))
    assert is_inside(ax)
    *names, last = legend(ax)
    assert last == f"and {50 - len(names)} more"
    assert len(names) > 20


def test_labels_of_a_legend_become_short_before_they_are_left_out():
    frame = of_pipelines(4)
    with mpl.rc_context(PAPER):
        ax = laid_out(plots.trend(frame, by="pipeline"))
    assert is_inside(ax)
    assert len(legend(ax)) == 4
    assert max(map(len, legend(ax))) < len(frame["pipeline"].iloc[0])
    assert len(set(legend(ax))) == 4


@for_each({"narrow": 3.5, "wide": 6})
def test_no_line_of_a_title_begins_or_ends_with_a_separator(width):
    frame = builds(pipeline=["api", "web"] * 30, branch=["main", "topic", "fix"] * 20)
    with mpl.rc_context({"figure.figsize": (width, 4)}):
        title = plots.duration_trend(frame).get_title(loc="left")
        cells = plots.trend(frame, col="pipeline")[0].figure.texts[0].get_text()
    assert title.startswith("Wall time of 60 builds\n2\N{NO-BREAK SPACE}pipelines")
    for line in [*title.split("\n"), *cells.split("\n")]:
        assert line == line.strip(" \N{MIDDLE DOT}")


def test_a_header_begins_at_the_left_end_of_the_labels():
    ax = laid_out(plots.time_spent(jobs(name="a step with a long name")))
    assert heading(ax).get_window_extent().x0 < ax.get_window_extent().x0 - 50
    _, axes = plt.subplots(1, 2, layout="constrained", figsize=(12, 4))
    ax = laid_out(plots.time_spent(jobs(name="a step with a long name"), axes[1]))
    left = heading(ax).get_window_extent().x0
    assert axes[0].get_window_extent().x1 < left < ax.get_window_extent().x0 - 50


def test_a_note_keeps_the_parts_that_fit():
    frame = jobs(40, name=[f"step {k}" for k in range(40)], finished_at=at(*[None] * 20, *range(41, 61)))
    frame["state"] = ["running"] * 20 + ["passed"] * 20
    assert note(plots.time_spent(frame, top=5)).count(";") == 2
    with mpl.rc_context({"figure.figsize": (2.4, 1.8)}):
        kept = note(plots.time_spent(frame, top=5))
    assert kept.startswith("20 runs of 20 steps, all attempts")
    assert kept.count(";") < 2  # none in matplotlib 3.11; texts of older ones are narrower


def test_sizes_of_texts_are_relative_to_the_font_size_unless_they_are_set():
    with mpl.rc_context({"font.size": 14, "ytick.labelsize": 13}):
        ax = plots.time_spent(jobs(5, name=[f"step {k}" for k in range(5)]))
    assert heading(ax).get_fontsize() == pytest.approx(16.1)
    assert ax.get_xticklabels()[0].get_fontsize() == pytest.approx(12.6)
    assert ax.get_yticklabels()[0].get_fontsize() == 13
    assert {round(text.get_fontsize(), 6) for text in ax.texts} == {12.6}  # note and shares
    with mpl.rc_context({"font.size": 14}):
        axes = plots.time_spent(jobs(), col="queue")
    assert [text.get_fontsize() for text in axes[0].figure.texts] == pytest.approx([16.1])
    assert heading(axes[0]).get_fontsize() == 14


@for_each({
    "time_spent": lambda: plots.time_spent(jobs(12, name=[f"step {k}" for k in range(12)])),
    "contention": lambda: plots.contention(busy_jobs(60, 9)),
})  # fmt: skip
def test_rows_keep_apart_in_a_large_font(draw):
    with mpl.rc_context({"font.size": 18}):
        ax = laid_out(draw())
    places = sorted(text.get_window_extent().y0 for text in ticks(ax) if text in ax.get_yticklabels())
    height = max(text.get_window_extent().height for text in ax.get_yticklabels())
    assert len(places) > 5
    assert min(b - a for a, b in itertools.pairwise(places)) >= height - 2


@for_each({"narrow": 3.5, "wide": 9})
def test_a_legend_never_cuts_a_number(width):
    frame = of_pipelines(6)
    _, axes = plt.subplots(1, 2, figsize=(width, 3.5), layout="constrained")
    plots.distribution(frame, axes[0], by="pipeline")
    plots.distribution(frame, axes[1], split="2026-03-11")
    for text in [*legend(axes[0]), *legend(axes[1])]:
        line = text.replace("\n", " ")
        assert "median" not in line or line.split("…")[-1].endswith("median 2 min 30 s"), text
        assert line.endswith(("2 min 30 s", *map(str, range(6)), "more", "not seen to end")), text


@pytest.mark.long
def test_words_of_a_plot_are_not_shortened_in_its_legend():
    with mpl.rc_context(PAPER):
        ax = laid_out(agents_needed(queued()))
    assert not any("…" in text for text in legend(ax))
    assert {"in time", "wait, p95"} <= {*legend(ax)}


def test_a_right_to_left_name_in_a_short_legend_has_no_replacement_characters():
    name = "שירות התשלומים של החברה"
    once = theme.drawable(name, 40)
    assert theme.drawable(once, 40) == once
    assert theme.unique_labels([once], 12) == {once: theme.drawable(name, 12)}
