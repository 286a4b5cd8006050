"""Each plot against a baseline image that somebody has reviewed: little data, much data, and what is special.

Drawn into Axes of fixed size and place, and without words: fonts differ between machines, and move all else. What the
words say, and that they do not lie over each other, is tested beside. After a change that is meant, look at what comes
of `pytest tests/plots/test_images.py --mpl-generate-path=tests/plots/baseline`.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from buildframe import metrics, plots
from tests.plots.plot_frames import (
    agents_needed,
    at,
    builds,
    busy_jobs,
    chain_of_each_kind,
    chains,
    explain,
    flaky_tests,
    flipping,
    heading,
    jobs,
    leverage,
    objective,
    queued,
    segments,
    step_graph,
)

image = pytest.mark.mpl_image_compare(baseline_dir="baseline", style="default", savefig_kwargs={"dpi": 60}, tolerance=1)


def wordless(plot, frame: pd.DataFrame, height: float = 3.5, **options: object) -> plt.Figure:
    figure = plt.figure(figsize=(7, height))
    ax = figure.add_axes((0.125, 0.11, 0.775, 0.77))
    plot(frame, ax, **options)
    without_words(ax)
    return figure


def without_words(ax: plt.Axes) -> None:
    for text in [*ax.texts, heading(ax), ax.xaxis.label, ax.yaxis.label, ax.xaxis.offsetText]:
        text.set_visible(False)
    ax.tick_params(labelleft=False, labelbottom=False)
    if ax.get_legend():
        ax.get_legend().set_visible(False)


def month_of_builds(each: int = 24) -> pd.DataFrame:
    """30 days from a fixed seed: slower from day 18 on, failing in spells, the last day half over."""
    random = np.random.default_rng(5)
    created = np.sort(random.uniform(0, 29.5 * 1440, 30 * each))
    took = random.gamma(9, 1.6, len(created)) * np.where(created > 18 * 1440, 1.5, 1)
    spell = np.sin(created / 2200) > 0.75
    return builds(
        30, each, 29.5 * 1440,
        created_at=at(*created), finished_at=at(*(created + took)), pipeline=["api", "web"] * (15 * each),
        state=np.where(random.random(len(created)) < np.where(spell, 0.8, 0.05), "failed", "passed"),
    )  # fmt: skip


def day_of_jobs(n: int = 2000) -> pd.DataFrame:
    """Three queues over a day, busiest at noon."""
    random = np.random.default_rng(6)
    up = np.sort(random.normal(720, 200, n))
    queued, ran = random.exponential(6, n), random.gamma(3, 2, n)
    return jobs(
        n, name=[f"step {k}" for k in random.integers(0, 30, n)], queue=random.choice(["default", "gpu", "mac"], n),
        runnable_at=at(*up), started_at=at(*(up + queued)), finished_at=at(*(up + queued + ran)),
        build_created_at=at(*np.floor(up / 60) * 60), fetched_at=at(*[3000] * n),
    )  # fmt: skip


def build_of_all_kinds() -> pd.DataFrame:
    """Waits, a retry, a trigger, a block step, and every outcome."""
    return jobs(
        9, name=["upload", "lint", "unit", "unit", "e2e", "ship?", "deploy", "docs", "load"],
        type=["script"] * 5 + ["manual", "script", "trigger", "script"],
        state=["passed", "passed", "failed", "passed", "timed_out", "unblocked", "canceled", "passed", "running"],
        retried=[k == 2 for k in range(9)], unblocked_at=at(*[None] * 5, 30, *[None] * 3),
        runnable_at=at(0, 2, 2, 9, 9, None, 30, 30, 31), started_at=at(1, 3, 5, 10, 12, None, 31, None, 34),
        finished_at=at(2, 6, 9, 14, 20, None, 33, 38, None), fetched_at=at(*[42] * 9),
    )  # fmt: skip


def thousand_jobs() -> pd.DataFrame:
    random = np.random.default_rng(7)
    step = np.sort(random.integers(0, 25, 1000))
    up = step * 2 + random.uniform(0, 5, 1000)
    started = up + random.exponential(4, 1000)
    return jobs(
        1000, name=[f"unit {k}" for k in step], state=random.choice(["passed"] * 20 + ["failed", "timed_out"], 1000),
        runnable_at=at(*up), started_at=at(*started), finished_at=at(*(started + random.gamma(4, 2, 1000))),
        fetched_at=at(*[200] * 1000),
    )  # fmt: skip


@pytest.mark.long
@image
def test_image_agents_needed():
    return wordless(agents_needed, queued())


@pytest.mark.long
@image
def test_image_leverage():
    return wordless(leverage, queued())


@image
def test_image_duration_trend():
    return wordless(plots.duration_trend, month_of_builds())


@pytest.mark.long
@image
def test_image_duration_trend_of_little():
    return wordless(plots.duration_trend, builds(days=2, each=5))


@image
def test_image_distribution():
    return wordless(plots.distribution, month_of_builds(), split="2026-03-28")


@pytest.mark.long
@image
def test_image_distribution_logarithmic():
    frame = jobs(500, runnable_at=at(*[0] * 500), started_at=at(*np.exp(np.linspace(-4, 6, 500))))
    return wordless(plots.distribution, frame, of=metrics.queue_time)


@pytest.mark.long
@image
def test_image_survival():
    waits = day_of_jobs()["started_at"]
    frame = day_of_jobs().assign(started_at=waits.mask(waits.index % 9 == 0), fetched_at=waits)
    return wordless(plots.survival, frame, by="queue")


@image
def test_image_queue_times_by_hour():
    return wordless(plots.queue_times_by_hour, day_of_jobs(), tz="Europe/Berlin")


@pytest.mark.long
@image
def test_image_concurrency():
    return wordless(plots.concurrency, day_of_jobs())


@image
def test_image_queue_depth_of_20_queues():
    return wordless(plots.queue_depth, day_of_jobs().assign(queue=[f"queue {k % 20:02d}" for k in range(2000)]))


@pytest.mark.long
@image
def test_image_step_times():
    return wordless(plots.step_times, day_of_jobs())


@pytest.mark.long
@image
def test_image_time_spent():
    return wordless(plots.time_spent, day_of_jobs(), top=10)


@image
def test_image_success_trend():
    return wordless(plots.success_trend, month_of_builds(), branch="main")


@pytest.mark.long
@image
def test_image_flake_scores():
    return wordless(plots.flake_scores, flipping(8, 70), top=6)


@image
def test_image_flips():
    return wordless(plots.flips, flipping(8, 70))


@pytest.mark.long
@image
def test_image_timeline_of_clocks_that_disagree():
    frame = jobs(5, started_at=at(1, 5, 3, 9, 1), finished_at=at(3, -2, 7, 6, 8))
    return wordless(plots.timeline, frame)


@pytest.mark.long
@image
def test_image_queue_depth_of_a_month():
    random = np.random.default_rng(8)
    up = np.sort(np.repeat(random.uniform(0, 30 * 1440, 200), 12))
    frame = jobs(2400, queue=["default", "gpu", "mac"] * 800, runnable_at=at(*up),
                 started_at=at(*(up + random.exponential(8, 2400))), build_created_at=at(*up))  # fmt: skip
    return wordless(plots.queue_depth, frame)


@image
def test_image_flaky_board():
    now = flaky_tests(12, last_resolved_at=at(*[None, 9_000, 9_999, 1_000] * 3))
    then = at(*[0] * 12)
    before = now.assign(fetched_at=then, latest_occurrence_at=then, last_resolved_at=at(*[None] * 12))
    return wordless(plots.flaky_board, now, before=before.iloc[2:])


@image
def test_image_timeline_of_all_kinds():
    return wordless(plots.timeline, build_of_all_kinds())


@pytest.mark.long
@image
def test_image_timeline_of_a_chain():
    return wordless(plots.timeline, chain_of_each_kind())


@pytest.mark.long
@image
def test_image_timeline_of_a_thousand_jobs():
    return wordless(plots.timeline, thousand_jobs(), height=8)


@pytest.mark.long
@image
def test_image_on_a_dark_ground():
    with plt.style.context("dark_background"):
        figure = plt.figure(figsize=(12, 8))
        axes = [figure.add_axes((x, y, 0.35, 0.35)) for x in (0.1, 0.6) for y in (0.1, 0.6)]
        plots.duration_trend(month_of_builds(), axes[0])
        plots.timeline(chain_of_each_kind(), axes[1])
        plots.queue_times_by_hour(day_of_jobs(), axes[2])
        plots.flips(flipping(5, 20), axes[3])
    for ax in axes:
        without_words(ax)
    return figure


@image
def test_image_explain():
    random = np.random.default_rng(3)
    many = pd.concat([segments(60, step=f"step {k}", duration_s=random.gamma(9, 30, 120)) for k in range(16)])
    slower = (many["step"] == "step 3") & (many["build_id"].astype(int) % 2 == 1)
    return wordless(explain, many.assign(duration_s=many["duration_s"].where(~slower, 500.0)))


@image
def test_image_step_graph():
    return wordless(step_graph, chains())


@image
def test_image_contention():
    return wordless(plots.contention, busy_jobs(400, 9), top=5)


@pytest.mark.long
@image
def test_image_objective():
    return wordless(objective, month_of_builds())


@pytest.mark.long
@image
def test_image_contention_and_objective_on_a_dark_ground():
    with plt.style.context("dark_background"):
        figure = plt.figure(figsize=(12, 4))
        axes = [figure.add_axes((x, 0.1, 0.35, 0.7)) for x in (0.1, 0.6)]
        plots.contention(busy_jobs(400, 9), axes[0])
        objective(month_of_builds(), axes[1], within="20m", target=0.97, freq="W-MON")
    for ax in axes:
        without_words(ax)
    return figure


@pytest.mark.long
@image
def test_image_trend():
    jobs_of_a_day = day_of_jobs()
    return wordless(plots.trend, jobs_of_a_day, of=metrics.queue_time, by="queue", q=0.9, freq="1h")


@pytest.mark.long
@image
def test_image_calendar():
    return wordless(plots.calendar, month_of_builds(), tz="Europe/Berlin")


@pytest.mark.long
@image
def test_image_commit_grid():
    return wordless(plots.commit_grid, flipping(8, 70))


@pytest.mark.long
@image
def test_image_time_ledger():
    kinds = ["run", "queue", "blocked", "setup", "concurrency", "retry", "trigger", "dependency", "unknown"]
    many = [segments(9 * k, kind=kind, pipeline=f"pipeline {k % 4}") for k, kind in enumerate(kinds, 1)]
    return wordless(plots.time_ledger, pd.concat(many, ignore_index=True))


@pytest.mark.long
@pytest.mark.skipif(mpl.__version_info__ < (3, 11), reason="its texts are two pixels lower in an older matplotlib")
@image
def test_image_small_multiples():
    axes = plots.duration_trend(month_of_builds(), col="pipeline", changes=True)
    for ax in axes:
        without_words(ax)
    for text in [*axes[0].figure.texts, *axes[0].figure.legends]:
        text.set_visible(False)
    return axes[0].figure
