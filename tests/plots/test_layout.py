"""Plots fit their figures: dashboards, small Axes, coarse files."""

from __future__ import annotations

import functools
import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from buildframe import metrics, plots
from tests.metrics.each_case import for_each
from tests.plots.plot_frames import (
    UGLY,
    agents_needed,
    at,
    boxes_of,
    builds,
    concurrency,
    flaky_tests,
    flipping,
    heading,
    jobs,
    labels,
    legend,
    leverage,
    note,
    objective,
    overlapping,
    queue_depth,
    queued,
    segments,
    ticks,
    title,
)

EACH_LAYOUT = ["constrained", "tight", None]


@functools.cache
def much_of_builds() -> pd.DataFrame:
    many = [builds(30, 6, 30 * 1440 + k, pipeline=f"pipeline with a name {k}") for k in range(12)]
    return pd.concat(many, ignore_index=True)


@functools.cache
def much_of_jobs() -> pd.DataFrame:
    """A month of 60 steps of two pipelines in eight queues, some of them slow."""
    random = np.random.default_rng(3)
    n = 1500
    up = np.sort(random.uniform(0, 30 * 1440, n))
    started = up + random.exponential(9, n)
    step = random.integers(0, 60, n)
    return jobs(
        n, name=[f"integration of component {k}" for k in step], pipeline=random.choice(["shop", "warehouse"], n),
        queue=[f"queue of kind {k}" for k in random.integers(0, 8, n)], runnable_at=at(*up), started_at=at(*started),
        finished_at=at(*(started + random.gamma(2, 1 + step))), fetched_at=at(*[50_000] * n),
        build_created_at=at(*up),
    )  # fmt: skip


@functools.cache
def much_of_segments() -> pd.DataFrame:
    kinds = ["run", "queue", "blocked", "setup"]
    each = [segments(60, pipeline=f"pipeline with a name {k}", kind=kinds[k % 4]) for k in range(12)]
    return pd.concat(each, ignore_index=True)


@functools.cache
def one_build() -> pd.DataFrame:
    return jobs(
        90, name=[f"unit tests of part {k // 2}" for k in range(90)], state=["passed", "failed", "canceled"] * 30
    )


@functools.cache
def flaky(n: int = 40) -> pd.DataFrame:
    return flaky_tests(n, name=[f"computes the sum of {k} things in a cart" for k in range(n)])


@functools.cache
def many_flips() -> pd.DataFrame:
    return flipping(30, 40)


DRAWN = {
    "time_spent": lambda ax: plots.time_spent(much_of_jobs(), ax),
    "flips": lambda ax: plots.flips(many_flips(), ax),
    "success_trend": lambda ax: plots.success_trend(much_of_builds(), ax, branch="main"),
    "concurrency": lambda ax: concurrency(much_of_jobs(), ax),
    "queue_depth": lambda ax: queue_depth(much_of_jobs(), ax),
    "timeline": lambda ax: plots.timeline(one_build(), ax),
    "step_times": lambda ax: plots.step_times(much_of_jobs(), ax),
    "queue_times_by_hour": lambda ax: plots.queue_times_by_hour(much_of_jobs(), ax, q=0.5),
    "distribution": lambda ax: plots.distribution(much_of_builds(), ax, split="2026-03-20"),
    "duration_trend": lambda ax: plots.duration_trend(much_of_builds(), ax),
    "survival": lambda ax: plots.survival(much_of_jobs(), ax, by="queue"),
    "contention": lambda ax: plots.contention(much_of_jobs(), ax, by="name"),
    "objective": lambda ax: objective(much_of_builds(), ax, within="20m"),
    "agents_needed": lambda ax: agents_needed(queued(), ax),
    "leverage": lambda ax: leverage(queued(), ax),
    "calendar": lambda ax: plots.calendar(much_of_builds(), ax),
    "commit_grid": lambda ax: plots.commit_grid(many_flips(), ax),
    "trend": lambda ax: plots.trend(much_of_builds(), ax, by="pipeline"),
    "time_ledger": lambda ax: plots.time_ledger(much_of_segments(), ax),
    "flaky_board": lambda ax: plots.flaky_board(flaky(), ax),
    "flaky_board of nothing": lambda ax: plots.flaky_board(flaky(0), ax),
}
HARDEST = ("time_spent", "timeline", "survival", "trend", "contention")
"""Those with long labels, many rows, or a long legend."""


def words(ax: plt.Axes) -> list[plt.Text]:
    """All that is written in and around the Axes, and in sight."""
    if not ax.axison:
        return list(ax.texts)
    legend = ax.get_legend().get_texts() if ax.get_legend() else []
    return [heading(ax), *ax.texts, *ticks(ax), ax.xaxis.label, ax.yaxis.label, ax.xaxis.offsetText, *legend]


def check(figure: plt.Figure) -> None:
    figure.draw_without_rendering()
    boxes = {ax: boxes_of(words(ax)) for ax in figure.axes}
    assert overlapping([*itertools.chain(*boxes.values())]) == []
    areas = {ax: ax.get_window_extent() for ax in figure.axes}
    for ax, own in boxes.items():
        for _, box in own:
            assert min(box.x0, box.y0) >= -1
            assert box.x1 <= figure.bbox.x1 + 1
            assert box.y1 <= figure.bbox.y1 + 1
            assert not any(box.overlaps(area) for other, area in areas.items() if other is not ax)


@pytest.mark.long
def test_dashboards_have_room_for_all():
    """The first four have long labels."""
    names = ["time_spent", "flips", "timeline", "survival"]
    names += [name for name in DRAWN if name not in names][:16]
    for layout, first in zip(["constrained", "tight", None, "tight", None], range(0, 20, 4), strict=True):
        figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout=layout)
        for name, ax in zip(names[first : first + 4], axes.flat, strict=True):
            DRAWN[name](ax)
        check(figure)
        plt.close(figure)


@functools.cache
def ugly_jobs() -> pd.DataFrame:
    """Steps and queues with names that are long, alike, of many scripts, or no names."""
    names = [
        *UGLY[:8],
        "a-step-of-a-pipeline-with-a-long-name-shard-1-of-2",
        "a-step-of-a-pipeline-with-a-long-name-shard-2-of-2",
    ]
    frames = [flipping(1, 3).assign(name=name, queue=name, build_id=f"b{k}") for k, name in enumerate(names * 2)]
    return pd.concat(frames, ignore_index=True)


@pytest.mark.long
@for_each({
    "step_times": lambda ax: plots.step_times(ugly_jobs(), ax),
    "time_spent": lambda ax: plots.time_spent(ugly_jobs(), ax, by="queue"),
    "flips": lambda ax: plots.flips(ugly_jobs(), ax),
})  # fmt: skip
def test_rows_with_ugly_names_keep_apart_in_other_plots(draw):
    ugly_rows_keep_apart(draw)


def test_rows_with_ugly_names_keep_apart():
    ugly_rows_keep_apart(lambda ax: plots.flake_scores(ugly_jobs(), ax))


def ugly_rows_keep_apart(draw):
    figure, ax = plt.subplots(figsize=(3.5, 2.6), layout="constrained")
    draw(ax)
    check(figure)
    assert len(labels(ax)) > 2


def has_room_in_a_column_of_a_paper_also_in_files_of_few_dots(draw):
    figure, ax = plt.subplots(figsize=(3.5, 2.6), layout="constrained")
    draw(ax)
    check(figure)
    if ax.axison:
        assert ax.get_position().height > 0.22
    figure.set_dpi(70)
    check(figure)


@pytest.mark.parametrize("name", HARDEST)
def test_a_column_of_a_paper_has_room_for_the_plot_and_its_texts(name):
    has_room_in_a_column_of_a_paper_also_in_files_of_few_dots(DRAWN[name])


@pytest.mark.long
@pytest.mark.parametrize(("layout", "name"), [*zip(itertools.cycle(EACH_LAYOUT), DRAWN)])
def test_each_size_has_room_and_very_small_axes_are_drawn_without_a_warning(name, layout):
    if name not in HARDEST:
        has_room_in_a_column_of_a_paper_also_in_files_of_few_dots(DRAWN[name])
    figure, ax = plt.subplots(figsize=(6, 4), layout=layout)
    DRAWN[name](ax)
    check(figure)
    other = EACH_LAYOUT[EACH_LAYOUT.index(layout) - 1]
    figure, ax = plt.subplots(figsize=(3, 2), layout=other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DRAWN[name](ax)
        figure.draw_without_rendering()
    assert title(ax) or ax.texts


@pytest.mark.long
def test_axes_in_a_part_of_a_figure_stay_in_it():
    figure = plt.figure(figsize=(12, 8))
    left, right = figure.subfigures(1, 2)
    axes = left.subplots(), right.subplots(2, 1)[1]
    plots.time_spent(much_of_jobs(), axes[0])
    plots.flips(flipping(9, 30), axes[1])
    check(figure)


def test_axes_that_somebody_placed_stay_there():
    figure = plt.figure(figsize=(12, 8))
    ax = figure.add_axes((0.3, 0.2, 0.5, 0.5))
    plots.time_spent(much_of_jobs(), ax)
    assert ax.get_position().bounds == pytest.approx((0.3, 0.2, 0.5, 0.5))


def test_the_note_counts_rows_that_are_not_shown():
    _, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    plots.time_spent(much_of_jobs(), ax)
    assert 3 < len(labels(ax)) < 20
    assert f"the {120 - len(labels(ax))} steps not shown" in note(ax).replace("\n", " ")


@pytest.mark.long
def test_names_from_right_to_left_leave_the_words_beside_them_in_place():
    name = "\u05e9\u05dc\u05d5\u05dd"
    frame = flipping(1).assign(name=name, queue=name)
    assert labels(plots.flips(frame)) == [f"\u2068{name}\u2069  (6 / 6)"]
    (label,) = legend(plots.distribution(frame, of=metrics.queue_time, by="queue"))
    assert label.startswith(f"\u2068{name}\u2069: 12 rows")
