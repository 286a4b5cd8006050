"""The timeline of a build."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib import colors
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from buildframe import metrics, plots
from buildframe.errors import BadInput
from tests.metrics.each_case import for_each
from tests.plots.plot_frames import (
    at,
    bars,
    chain_of_each_kind,
    jobs,
    kinds,
    labels,
    laid_out,
    legend,
    marks,
    note,
    scope,
    title,
)
from tests.refusals import refusal


def minutes(ax: plt.Axes, label: str) -> list[tuple[float, float]]:
    """The marks with this label, with their times in minutes."""
    return [(x / 60, y) for x, y in marks(ax, label)]


def test_timeline_distinguishes_waiting_and_running():
    ax = plots.timeline(jobs(2))
    assert bars(ax, "waiting for an agent") == [(0, 1, 0), (1, 2, 1)]
    assert bars(ax, "ran") == [(1, 3, 0), (2, 4, 1)]
    assert labels(ax) == ["job 0", "job 1"]
    assert ax.yaxis_inverted()
    assert title(ax) == "web #41: 2 jobs"
    assert legend(ax) == ["waiting for an agent", "ran", "setup", "critical chain"]


def test_timeline_shows_failed_canceled_retried_and_open_jobs():
    frame = jobs(
        6,
        state=["failed", "timed_out", "canceled", "running", "scheduled", "waiting"],
        retried=[True, None, False, False, False, False],
        runnable_at=at(0, 1, 2, 3, 4, None),
        started_at=at(1, 2, None, 4, None, None),
        finished_at=at(3, 4, 9, None, None, None),
    )
    ax = plots.timeline(frame)
    assert bars(ax, "failed") == [(1, 3, 0)]
    assert bars(ax, "timed out") == [(2, 4, 1)]
    assert bars(ax, "canceled") == []
    assert bars(ax, "ran") == [(4, 16, 3)]  # up to fetched_at
    assert bars(ax, "waiting for an agent")[2:] == [(2, 9, 2), (3, 4, 3), (4, 16, 4)]
    assert minutes(ax, "retried") == [(3, 0)]
    assert minutes(ax, "not over yet") == [(16, 3), (16, 4)]
    assert legend(ax) == ["waiting for an agent", "ran", "failed", "timed out", "retried", "not over yet"]
    assert title(ax) == "web #41: 5 jobs"
    assert note(ax) == "1 more job was never runnable"
    hatches = {label: one.get_hatch() for label, one in kinds(ax).items()}
    assert hatches["failed"] != hatches["timed out"]
    assert not hatches["ran"]
    assert bars(plots.timeline(jobs(1, state="canceled")), "canceled") == [(1, 3, 0)]


def test_timeline_keeps_the_attempts_of_a_step_together():
    shards = {"parallel_group_index": [0, None, 1, None], "parallel_group_total": [2, None, 2, None]}
    frame = jobs(4, name=["a 1/2", "b", "a 2/2", "c"], step_id=["a", "b", "a", "c"], **shards)
    assert labels(plots.timeline(frame)) == ["a 1/2", "a 2/2", "b", "c"]


def test_timeline_leaves_out_jobs_that_no_agent_runs_and_waits_that_end_before_they_begin():
    frame = jobs(3, type=["script", "waiter", "script"], started_at=at(-2, 2, 3))
    ax = plots.timeline(frame)
    assert labels(ax) == ["job 0", "job 2"]
    assert bars(ax, "waiting for an agent") == [(2, 3, 1)]
    assert bars(ax, "ran") == [(-2, 3, 0), (3, 5, 1)]
    assert ax.get_xlim()[0] <= -120


def test_one_job_does_not_fill_the_plot():
    ax = plots.timeline(jobs(1))
    (bar,) = kinds(ax)["ran"].get_paths()
    assert bar.get_extents().height < 0.3 * abs(np.subtract(*ax.get_ylim()))


def test_timeline_refuses_several_builds():
    frame = jobs(2, build_id=["b", "c"], build_number=[41, 42])
    assert "2 builds" in refusal(plots.timeline, frame)
    assert 'jobs[jobs["build_number"] == 41]' in refusal(plots.timeline, frame)


@pytest.mark.long
@for_each({"few steps": 5, "many steps": 400})
def test_timeline_of_many_jobs_is_labeled_by_step_without_overlap(steps):
    shards = {
        "name": [f"step {k % steps} #{k // steps + 1}" for k in range(400)],
        "step_id": [f"s{k % steps}" for k in range(400)],
        "parallel_group_index": [k // steps for k in range(400)],
        "parallel_group_total": [400 // steps] * 400,
    }
    ax = plots.timeline(jobs(400, **shards))
    laid_out(ax)
    extents = [text.get_window_extent() for text in ax.get_yticklabels()]
    assert all(below.y1 <= above.y0 for above, below in itertools.pairwise(extents))
    assert ("without a label" in ax.get_ylabel()) == (steps == 400)
    assert len(labels(ax)) == 5 or steps == 400
    assert ax.figure.get_figheight() <= 12
    assert labels(ax)[0] == f"step 0  ({400 // steps})"


def test_numbers_on_the_axis_are_plain():
    ax = plots.timeline(jobs(1, finished_at=at(200_000)))
    laid_out(ax)
    ticks = [text.get_text() for text in ax.get_xticklabels()]
    assert "100 d" in ticks
    assert np.all([("e" not in tick) for tick in ticks])


def test_timeline_shows_triggers_from_runnable_to_the_end_of_their_build():
    frame = jobs(3, type=["script", "trigger", "trigger"], state=["passed", "passed", "failed"],
                 runnable_at=at(0, 3, 3), started_at=at(1, None, None), finished_at=at(3, 9, 7))  # fmt: skip
    ax = plots.timeline(frame)
    assert bars(ax, "triggered build") == [(3, 9, 1)]
    assert bars(ax, "failed") == [(3, 7, 2)]
    assert bars(ax, "waiting for an agent") == [(0, 1, 0)]


def blocked(states: list[str], unblocked: list[float | None], **columns: object) -> pd.DataFrame:
    """A script job from 1 to 3, block steps, and a script job from 20 to 22."""
    n, none = len(states), [None] * len(states)
    stamps = {"runnable_at": at(0, *none, 20), "started_at": at(1, *none, 20), "finished_at": at(3, *none, 22)}
    kinds = ["script", *["manual"] * n, "script"]
    return jobs(n + 2, type=kinds, state=["passed", *states, "passed"], unblocked_at=at(None, *unblocked, None),
                **stamps | columns)  # fmt: skip


@pytest.mark.long
def test_timeline_shows_a_block_step_over_the_gap_in_which_nothing_ran():
    ax = plots.timeline(blocked(["unblocked"], [19]))
    assert bars(ax, "blocked") == [(3, 19, 1)]
    assert minutes(ax, "unblocked") == [(19, 1)]
    assert labels(ax) == ["job 0", "job 1", "job 2"]
    two = plots.timeline(blocked(["unblocked", "unblocked"], [10, 19]))
    assert bars(two, "blocked") == [(3, 10, 1), (10, 19, 2)]


def test_timeline_of_a_block_step_that_came_while_something_ran_has_a_diamond_only():
    ax = plots.timeline(blocked(["unblocked"], [2]))
    assert bars(ax, "blocked") == [(2, 2, 1)]
    assert minutes(ax, "unblocked") == [(2, 1)]


def test_timeline_of_a_build_that_is_still_blocked_lasts_until_it_was_fetched():
    frame = blocked(["blocked", "broken"], [None, None]).iloc[:3]
    ax = plots.timeline(frame)
    assert bars(ax, "blocked") == [(3, 14, 1)]
    assert minutes(ax, "not over yet") == [(14, 1)]
    assert "unblocked" not in legend(ax)
    assert note(ax) == "1 more job was never runnable"
    with pytest.raises(BadInput, match="unblocked_at"):
        plots.timeline(frame.drop(columns="unblocked_at"))


def test_timeline_calls_a_block_step_by_its_label():
    frame = blocked(["unblocked"], [9], name=["a", None, "b"], label=["x", ":ship: Ship it?", "y"])
    assert labels(plots.timeline(frame)) == ["a", "Ship it?", "b"]


def test_timeline_distinguishes_names_that_differ_only_in_their_emoji():
    assert labels(plots.timeline(jobs(2, name=[":fire: test", ":boom: test"]))) == ["test · fire", "test · boom"]


@pytest.mark.long
def test_the_title_has_the_time_of_creation_in_the_zone():
    assert scope(plots.timeline(jobs(2))) == ["10 Mar 2026 00:00 (UTC)"]
    assert scope(plots.timeline(jobs(2), tz="Asia/Tokyo")) == ["10 Mar 2026 09:00 (Asia/Tokyo)"]
    assert plots.timeline(jobs(2), title="Mine").get_title(loc="left") == "Mine"
    for own in (None, "Mine"):
        with pytest.raises(BadInput, match="Mars/Phobos"):
            plots.timeline(jobs(2), title=own, tz="Mars/Phobos")


@pytest.mark.long
def test_timeline_of_a_thousand_jobs_is_not_hatched():
    frame = jobs(1000, state=["failed", "passed"] * 500, name=[f"step {k % 30}" for k in range(1000)])
    ax = plots.timeline(frame)
    assert {one.get_hatch() for one in kinds(ax).values()} == {None}
    assert title(ax) == "web #41: 1,000 jobs"


def test_timeline_marks_runs_that_end_before_they_start_and_cuts_nothing():
    ax = plots.timeline(jobs(3, finished_at=at(-2, 4, 1), started_at=at(1, 2, 3), runnable_at=at(0, 3, 4)))
    assert bars(ax, "ran") == [(2, 4, 1)]
    assert minutes(ax, "its start") == [(1, 0), (3, 2)]
    assert minutes(ax, "its end") == [(-2, 0), (1, 2)]
    assert " ".join(note(ax).split()).startswith(
        "2 negative runs (clocks disagree); 2 negative waits not drawn; critical chain"
    )
    assert ax.get_xlim()[0] <= -120
    assert ax.get_xlim()[1] >= 240


def path(ax: Axes) -> list[tuple[float, int]]:
    """Times and rows of the critical chain."""
    return [(round(x, 9), round(y)) for x, y in minutes(ax, "critical chain")]


def test_the_critical_chain_leads_through_a_retry_by_a_person_a_block_step_and_a_trigger():
    ax = plots.timeline(chain_of_each_kind())
    assert labels(ax) == ["upload", "lint", "unit", "unit", "ship?", "deploy", "smoke"]
    assert bars(ax, "setup") == [(0, 1, 0)]
    assert bars(ax, "waiting for a person to retry") == [(9, 14, 3)]
    assert bars(ax, "_nolegend_") == [(20, 30, 4)]
    corners = [(0, 0), (3, 0), (3, 2), (9, 2), (9, 3), (20, 3), (20, 4), (30, 4), (30, 5), (40, 5), (40, 6), (50, 6)]
    assert [point for point in dict.fromkeys(path(ax)) if point in corners] == corners
    assert {row for _, row in path(ax)} == {0, 2, 3, 4, 5, 6}
    assert " ".join(note(ax).split()) == (
        "critical chain, inferred from this build alone: 32 % running, 20 % waiting for a person to unblock, "
        "20 % triggered builds, 10 % waiting for a person to retry, 8 % waiting for an agent, "
        "8 % attempts that were retried, 2 % setup"
    )


@pytest.mark.long
def test_the_chain_is_that_of_the_ledger():
    frame = chain_of_each_kind()
    builds = pd.DataFrame({"id": ["b"], "pipeline": "web", "number": [41], "branch": "main", "state": "passed",
                           "created_at": at(0), "finished_at": at(51)})  # fmt: skip
    builds = pd.concat([builds, builds.assign(id="c")], ignore_index=True)
    both = metrics.time_ledger(builds, pd.concat([frame, frame.assign(id=frame["id"] + "c", build_id="c")]))
    ledger, other = both[both["build_id"] == "b"], both[both["build_id"] == "c"]
    ax = plots.timeline(frame, ledger=both.iloc[::-1])
    assert path(ax)[-2:] == [(50, 6), (51, 6)]  # the build ended later than its last job
    assert bars(ax, "unknown") == [(50, 51, 6)]
    assert "alone" not in note(ax)
    assert "critical chain: " in note(ax)
    assert "alone" not in note(plots.timeline(frame, ledger=ledger))  # selected rows of the ledger of all builds
    alone = metrics.time_ledger(builds[builds["id"] == "b"], frame)
    assert "inferred from this build alone" in note(plots.timeline(frame, ledger=alone))
    without = plots.timeline(frame, ledger=other)
    assert note(without) == "no chain: the ledger does not have this build"
    assert "critical chain" not in [*legend(without), note(without)]
    with pytest.raises(BadInput, match="position"):
        plots.timeline(frame, ledger=ledger.drop(columns="position"))


def test_a_build_that_has_not_ended_has_no_chain():
    assert "critical chain" not in legend(plots.timeline(jobs(2, finished_at=at(3, None), state=["passed", "running"])))


@pytest.mark.long
def test_a_gap_behind_a_limit_of_concurrency_needs_the_ledger_of_other_builds():
    first = jobs(2, id=["p", "q"], name=["a", "b"], build_id="a", created_at=at(-9, -9), build_created_at=at(-9, -9),
                 runnable_at=at(-8, -4), started_at=at(-8, -4), finished_at=at(-4, 10))  # fmt: skip
    second = jobs(2, name=["a", "b"], runnable_at=at(1, 10), started_at=at(1, 10), finished_at=at(3, 12))
    both = pd.concat([first, second], ignore_index=True)
    builds = pd.DataFrame({"id": ["a", "b"], "pipeline": "web", "number": [40, 41], "branch": "main",
                           "state": "passed", "created_at": at(-9, 0), "finished_at": at(10, 12)})  # fmt: skip
    ax = plots.timeline(second, ledger=metrics.time_ledger(builds, both))
    assert bars(ax, "waiting for a concurrency limit") == [(3, 10, 1)]
    assert bars(plots.timeline(second), "unknown") == [(3, 10, 1)]


def brightness(color: object) -> float:
    return float(255 * np.dot(colors.to_rgb(color), (0.299, 0.587, 0.114)))


def test_thin_bars_differ_in_a_print_without_color():
    states = ["passed", "failed", "canceled", "timed_out"] * 20
    frame = jobs(80, state=states, type=["script"] * 72 + ["trigger"] * 8)
    frame.loc[frame["type"] == "trigger", "state"] = "passed"
    found = {label: one.get_facecolor()[0] for label, one in kinds(plots.timeline(frame)).items()}
    found = {label: color for label, color in found.items() if label not in ("setup", "unknown")}  # only outlines
    assert len(found) == 6
    shades = sorted(brightness(np.multiply(c[:3], c[3]) + 1 - c[3]) for c in found.values())
    assert min(np.diff(shades)) > 20
