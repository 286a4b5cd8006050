"""Success, flips, and flaky tests."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from buildframe import metrics, plots
from buildframe.errors import BadInput
from tests.plots.plot_frames import (
    DAY,
    START,
    at,
    builds,
    flaky_tests,
    flipping,
    jobs,
    kinds,
    labels,
    legend,
    marks,
    note,
    title,
)


def test_success_is_a_rate_with_its_interval():
    ax = plots.success_trend(builds(each=20))
    assert [rate for _, rate in marks(ax, "success rate")] == pytest.approx([90, 90, 90])
    (band,) = (one for one in ax.collections if one.get_label() == "95 % interval")
    trend = metrics.success_trend(builds(each=20))
    box = band.get_datalim(ax.transData)
    assert (box.y0, box.y1) == pytest.approx((100 * trend["low"].min(), 100 * trend["high"].max()))
    assert title(ax) == "Success rate of 60 builds"
    assert note(ax) == "54 passed, 6 failed"
    assert "branch failing" not in legend(ax)


def test_success_on_a_branch_counts_its_builds_only_and_shows_its_outages():
    main = builds(days=2, each=20)
    other = builds(days=2, each=20, branch="topic", state="failed", number=pd.array(range(100, 140), "Int64"))
    ax = plots.success_trend(pd.concat([main, other], ignore_index=True), branch="main")
    assert title(ax) == "Success rate of 40 builds on main"
    assert note(ax) == "36 passed, 4 failed; 2 outages of 1 pipeline, 1 still open"
    boxes = [path.get_extents() for path in kinds(ax)["branch failing"].get_paths()]
    spans = [(box.x0 - DAY, box.x1 - DAY) for box in boxes]
    ends = [(18 + 19) / 1440, 1 + 1 / 1440, 1 + (18 + 19) / 1440, 2]  # the 19th build takes 19 minutes
    assert np.ravel(spans) == pytest.approx(ends, abs=1e-6)
    (suspects,) = (one for one in ax.collections if one.get_label() == "last good build to first failed one")
    times = [x - DAY for line in suspects.get_segments() for x, _ in line]
    assert times == pytest.approx([35 / 1440, 37 / 1440, 1 + 35 / 1440, 1 + 37 / 1440], abs=1e-6)
    assert labels(ax)[-1] == "web"
    assert [round(x - DAY, 6) for x, _ in marks(ax, "still failing")] == [2]


@pytest.mark.long
def test_success_on_default_branches():
    two = pd.concat([builds(pipeline="web"), builds(pipeline="api", branch="trunk")], ignore_index=True)
    pipelines = pd.DataFrame({"slug": ["api", "web"], "default_branch": ["trunk", "main"], "organization": "acme"})
    ax = plots.success_trend(two, pipelines=pipelines)
    assert title(ax) == "Success rate of 120 builds on default branches"
    assert sorted(labels(ax)[-2:]) == ["api", "web"]
    with pytest.raises(BadInput, match="branch"):
        plots.success_trend(two, pipelines=pipelines, branch="main")
    green = plots.success_trend(builds(state="passed"), branch="main")
    assert note(green) == "60 passed, 0 failed; no outage"


def test_the_ten_pipelines_broken_for_longest_have_a_lane():
    many = pd.concat([builds(days=1, pipeline=f"p{k:02d}", fetched=2000 + k) for k in range(12)], ignore_index=True)
    ax = plots.success_trend(many, branch="main")
    assert len(labels(ax)) == 6 + 10
    assert "2 pipelines not shown" in note(ax)


@pytest.mark.long
def test_days_of_success_begin_in_the_zone():
    late = builds(days=1, created_at=at(*[1430] * 20), finished_at=at(*[1435] * 20))
    ax = plots.success_trend(late, freq="1D", tz="Europe/Berlin", branch="main")
    assert [x - DAY for x, _ in marks(ax, "success rate")] == [1.5]
    assert "Europe/Berlin" in ax.get_xlabel()


def cells(ax) -> list[list[int | None]]:
    (mesh,) = (one for one in ax.collections if isinstance(one, mpl.collections.QuadMesh))
    return [[None if np.ma.is_masked(one) else int(one) for one in row] for row in mesh.get_array()]


def test_flips_are_cells_of_steps_and_commits():
    ax = plots.flips(flipping(3, 6))
    assert labels(ax) == ["step 0  (6 / 6)", "step 1  (3 / 6)", "step 2  (2 / 6)"]
    assert cells(ax) == [[5] * 6, [0, 5, 0, 5, 0, 5], [0, 0, 5, 0, 0, 5]]
    assert [text.get_text() for text in ax.get_xticklabels()] == [f"{k:07x}" for k in reversed(range(6))]
    assert ax.get_xlabel() == plots.commit_grid(flipping(3, 6)).get_xlabel() == "commit, newest first"
    assert title(ax) == "11 flips of 3 steps"
    assert legend(ax) == ["passed", "passed and failed (flip)"]
    crosses = next(line for line in ax.lines if line.get_marker() == "x")
    assert len(crosses.get_xdata()) == 11


def test_flips_distinguish_infrastructure_and_lasting_failures():
    frame = jobs(
        9,
        name="a",
        build_id=[f"b{k}" for k in range(9)],
        commit=["c0", "c0", "c1", "c1", "c2", "c2", "c3", "c4", "c4"],
        state=["failed", "passed", "failed", "failed", "failed", "passed", "failed", "passed", "passed"],
        exit_status=[1, 0, 1, 1, -1, 0, 1, 0, 0],
    )
    ax = plots.flips(frame)
    assert cells(ax) == [[3, 1, 4, 5]]
    assert legend(ax) == ["infrastructure", "failed, not retried", "failed every time", "passed and failed (flip)"]


def test_flips_show_the_worst_shard_and_leave_empty_what_did_not_run():
    shards = jobs(4, name="a", build_id=["b", "c", "b", "c"], commit="c0", parallel_group_index=[0, 0, 1, 1],
                  state=["failed", "passed", "passed", "passed"], exit_status=[1, 0, 0, 0])  # fmt: skip
    other = jobs(
        2,
        name="b",
        build_id=["d", "e"],
        commit="c1",
        state=["failed", "passed"],
        exit_status=[1, 0],
        finished_at=at(50, 51),
    )
    ax = plots.flips(pd.concat([shards, other], ignore_index=True))
    assert cells(ax) == [[None, 5], [5, None]]


@pytest.mark.long
def test_flips_show_the_latest_commits_and_count_the_others():
    ax = plots.flips(flipping(1, 70))
    assert ax.get_xlim() == (0, 60)
    assert len(ax.get_xticklabels()) == 30  # every second
    assert ax.get_xticklabels()[0].get_text() == f"{69:07x}"
    assert "10 earlier ones not shown" in note(ax)
    assert "1 step not shown" in note(plots.flips(flipping(2, 4), top=1))


def test_no_flips_are_said():
    assert plots.flips(jobs(3)).texts[0].get_text() == "No step both passed and failed on the same commit."


def widths(ax) -> list[float]:
    return [bar.get_width() for bar in sorted(ax.patches, key=lambda bar: -bar.get_y())]


def ages(ax) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text().endswith(("ago", "unknown"))][::-1]


def test_the_board_has_bars_of_instances_with_when_each_was_seen_last():
    ax = plots.flaky_board(flaky_tests(3, latest_occurrence_at=at(9_999, 4_000, None)))
    assert widths(ax) == [3, 2, 1]
    assert ages(ax) == ["1 minute ago", "4 days ago", "unknown"]
    assert labels(ax)[::-1] == ["adds 0 items", "adds 1 items", "adds 2 items"]
    assert title(ax) == "3 flaky tests, 6 instances"
    assert legend(ax) == ["still flaky"]


def test_the_board_marks_new_reopened_and_resolved_tests():
    now = flaky_tests(4, last_resolved_at=at(None, 9_000, 9_999, None))
    before = now.iloc[1:].assign(fetched_at=START, latest_occurrence_at=START, last_resolved_at=pd.NaT)
    gone = flaky_tests(1, id="gone", fetched_at=START, latest_occurrence_at=START, instances=pd.array([9], "Int64"))
    ax = plots.flaky_board(now, before=pd.concat([before, gone]).astype(now.dtypes))
    assert legend(ax) == ["new", "came back", "still flaky", "quiet", "resolved"]
    assert widths(ax) == [4, 3, 1, 9, 2]
    assert title(ax) == "3 flaky tests, 8 instances"
    assert note(ax) == "label: time since last flake; 1 new, 1 came back, 1 still flaky, 1 quiet, 1 resolved"
    assert legend(plots.flaky_board(now)) == ["still flaky", "resolved"]


def test_the_board_shows_the_worst_and_counts_all():
    ax = plots.flaky_board(flaky_tests(50), top=5)
    assert widths(ax) == [50, 49, 48, 47, 46]
    assert title(ax) == "50 flaky tests, 1,275 instances"
    assert note(ax).endswith("; 5 of 50 shown")


def earlier(now: pd.DataFrame, **columns: object) -> pd.DataFrame:
    return now.assign(fetched_at=START, latest_occurrence_at=START - pd.Timedelta(9, "h"), **columns)


def test_tests_resolved_before_the_earlier_list_are_not_drawn():
    now = flaky_tests(4, latest_occurrence_at=at(*[-600] * 3, 500), last_resolved_at=at(-60, 600, None, 600))
    before = earlier(now, last_resolved_at=at(-60, None, None, -60))
    ax = plots.flaky_board(now, before=before)
    assert widths(ax) == [2, 3, 1]
    assert title(ax) == "1 flaky test, 2 instances"
    assert "1 still flaky, 2 resolved; 1 test resolved before the earlier list not shown" in note(ax)
    long_gone = now.iloc[:1]
    said = plots.flaky_board(long_gone, before=before.iloc[:1]).texts[0].get_text()
    assert " ".join(said.split()) == "The service lists no flaky test. 1 test already resolved."


def test_resolved_tests_are_not_called_flaky():
    ax = plots.flaky_board(flaky_tests(4, last_resolved_at=at(*[9_999] * 4)))
    assert title(ax) == "No flaky test, 4 resolved"
    some = plots.flaky_board(flaky_tests(4, last_resolved_at=at(9_999, None, 9_999, None)), top=3)
    assert title(some) == "2 flaky tests, 4 instances"
    assert widths(some) == [3, 1, 4]  # what flakes still comes first
    assert note(some).endswith("; 2 still flaky, 2 resolved; 3 of 4 shown")


def test_many_tests_of_one_kind_do_not_hide_the_others():
    now = flaky_tests(40, last_resolved_at=at(*[None] * 40))
    before = earlier(now, last_resolved_at=at(*[None] * 38, -60, None)).iloc[:39]
    ax = plots.flaky_board(now, before=before, top=5)
    assert widths(ax) == [1, 2, 40, 39, 38]
    assert legend(ax) == ["new", "came back", "still flaky"]


def test_tests_of_one_name_are_distinguished_by_scope_then_location():
    same = flaky_tests(3, name="works", scope=["Cart", "Shop", "Shop"])
    shown = labels(plots.flaky_board(same))[::-1]
    assert shown == ["works · Cart", "works · Shop · spec/cart_spec.rb:1", "works · Shop · spec/cart_spec.rb:2"]


def test_buckets_of_few_builds_are_points_beside_the_line_of_the_success_rate():
    counts = [8, 8, 1, 5, 4]
    frame = pd.concat([builds(1, n, 9999).assign(created_at=at(*[1440 * day] * n)) for day, n in enumerate(counts)])
    ax = plots.success_trend(frame.assign(state="failed"), freq="1D")
    (line,) = [one for one in ax.lines if one.get_label() == "success rate"]
    assert len(line.get_xdata()) == 3
    points = [len(one.get_xdata()) for one in ax.lines if one.get_markersize() < 5]
    assert sorted(points) == [0, 2]
    assert "fewer than 5 builds" in legend(ax)
    assert "fewer than 5 builds" not in legend(plots.success_trend(builds()))
