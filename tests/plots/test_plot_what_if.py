"""Waits by number of agents, and what faster steps would save."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from buildframe import metrics, plots
from tests.plots.plot_frames import (
    UGLY,
    agents_needed,
    builds_of,
    drawn,
    heading,
    jobs,
    labels,
    laid_out,
    legend,
    leverage,
    marks,
    note,
    queued,
    title,
)
from tests.refusals import wrong_messages


@pytest.mark.long
def test_the_upper_part_has_shares_and_the_lower_one_waits():
    rows = queued()
    needed = metrics.agents_needed(builds_of(rows), rows, "default", target=0.9)
    ax = drawn(agents_needed, queued).ax
    shares = np.array(marks(ax, "in time"))
    assert shares[:, 0].tolist() == needed["agents"].tolist()
    assert (shares[:, 1] - 0.56) / 0.44 == pytest.approx(needed["share_within"].to_numpy())
    waits = np.array(marks(ax, "wait, p95"))[:, 1] / 0.44
    most = needed["wait_p95_s"].max() / 60
    assert np.expm1(waits * np.log1p(most)) == pytest.approx(needed["wait_p95_s"].to_numpy() / 60)
    assert {"today: 2", "smallest: 3", "target 90 %"} <= {*legend(ax)}
    assert title(ax) == "default: 3 agents start 90 % of jobs within 5 min"


def test_the_price_is_below_each_number():
    ax = drawn(agents_needed, queued).ax
    texts = [text.get_text() for text in ax.get_xticklabels()]
    assert texts[:3] == ["1\n24 h", "2\n48 h", "3\n72 h"]


@pytest.mark.long
def test_notes_say_how_far_off_the_replay_is():
    rows = queued()
    assert note(drawn(agents_needed, queued).ax).endswith(
        "p95 with today's agents 9 min 44 s, a blind replay says 9 min 44 s"
    )
    assert "blind replay off by at most 0.0 % at p50" in note(drawn(leverage, queued).ax).replace("\n", " ")
    one_day = rows[rows["created_at"] < "2026-03-11"]
    for draw in (agents_needed, leverage):
        assert note(draw(one_day)).replace("\n", " ").endswith("error of the replay unknown: it needs two days")


@pytest.mark.long
def test_a_target_that_no_number_meets_is_said():
    ax = agents_needed(queued().assign(runnable_at=lambda rows: rows["runnable_at"] - pd.Timedelta(9, "min")))
    assert title(ax) == "default: no number of agents starts 90 % of jobs within 5 min"


def test_bars_are_the_savings_of_the_metric():
    rows = queued()
    saved = metrics.leverage(builds_of(rows), rows).iloc[::-1]
    ax = drawn(leverage, queued).ax
    assert labels(ax) == saved["step"].tolist()
    widths = [[bar.get_width() for bar in container] for container in ax.containers if len(container) > 1]
    assert widths[0] == pytest.approx((3600 * saved["hours_saved"]).tolist())
    assert widths[1] == pytest.approx((3600 * saved["hours_saved_unlimited"]).tolist())
    assert legend(ax) == ["agents as recorded", "enough agents for all"]


def test_savings_that_may_be_chance_are_pale():
    ax = leverage(queued().assign(build_created_at=pd.Timestamp("2026-03-10", tz="UTC")))  # one day: no interval
    assert {bar.get_alpha() for container in ax.containers if len(container) > 1 for bar in container} == {0.45}
    assert "pale: may be chance" in note(ax).replace("\n", " ")


def test_steps_that_save_nothing_are_said(monkeypatch):
    rows = queued(8)
    saved = metrics.leverage(builds_of(rows), rows)
    none = saved.assign(**{name: 0.0 for name in saved if "hours_saved" in name})
    monkeypatch.setattr(metrics, "leverage", lambda *_: none)
    assert leverage(rows).texts[0].get_text() == "No step would save time."


def test_small_axes_have_fewer_steps():
    rows = queued()
    rows["name"] = [f"step {k % 20}" for k in range(len(rows))]
    figure, ax = plt.subplots(figsize=(4, 2.6), layout="constrained")
    leverage(rows, ax)
    assert len(labels(ax)) < 10
    figure.draw_without_rendering()


@pytest.mark.long
def test_any_name_is_drawn():
    rows = queued(3 * len(UGLY))
    rows = rows.assign(name=UGLY * 3, queue="$\\frac{<script>" * 9)
    laid_out(leverage(rows, top=30))
    ax = agents_needed(rows, queue=rows["queue"].iloc[0])
    laid_out(ax)
    assert not heading(ax).get_parse_math()


def test_invalid_arguments_are_refused():
    rows = queued()
    assert wrong_messages([
        ("top=0", lambda: leverage(rows, top=0)),
        ("queue='mac' has no job", lambda: agents_needed(rows, queue="mac")),
        ("queue", lambda: plots.agents_needed(builds_of(rows), rows, queue=3)),
        ("by", lambda: leverage(rows, by=0.5)),
    ]) == {}  # fmt: skip
    assert leverage(jobs(0)).texts[0].get_text() == "No step ran in a build that ended."


def test_the_share_that_a_step_saves_is_not_called_by_which_is_a_key():
    assert "takes 50 % less time" in title(leverage(queued(), faster=0.5))
