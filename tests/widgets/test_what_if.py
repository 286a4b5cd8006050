"""The what-if widget without a web browser: what it predicts, and which results it shows while inputs change."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import ipywidgets
import numpy as np
import pandas as pd
import pytest

from buildframe import metrics, widgets
from buildframe.errors import BadInput
from buildframe.metrics.replaying.fleets import Fleet
from buildframe.widgets import scenario, what_if
from buildframe.widgets.scenario import Prediction, ReplayScenario
from buildframe.widgets.what_if import WhatIf
from tests.widgets.widget_helpers import (
    HOSTILE_TEXTS,
    accessibility,
    css_classes,
    html_tags,
    is_busy,
    is_shown,
    visible_text,
    wait_for,
)

START = pd.Timestamp("2026-03-02", tz="UTC")
COLUMNS = ["p50 before", "p50 after", "p95 before", "p95 after"]


def at(seconds: np.ndarray) -> pd.Series:
    return pd.Series(START + pd.to_timedelta(seconds, unit="s")).astype("datetime64[us, UTC]")


def record(n: int = 60, queue: str = "default", step: str = "test") -> tuple[pd.DataFrame, pd.DataFrame]:
    """Builds on two days: an upload of a minute on one agent each, then ten minutes on the only agent of a queue."""
    created = np.arange(n) * 300.0 + 86_400 * (np.arange(n) >= n / 2)
    first, up = created + 60, np.zeros(n)
    free = 0.0
    for k in range(n):
        up[k] = max(first[k], free)
        free = up[k] + 600
    ids = pd.Series([f"b{k}" for k in range(n)], dtype="str")
    builds = pd.DataFrame(
        {"id": ids, "organization": "acme", "pipeline": "web", "number": pd.array(range(n), "Int64"), "branch": ids,
         "state": "passed", "blocked": False, "created_at": at(created), "finished_at": at(up + 600),
         "fetched_at": at(np.full(n, 4e5))}
    )  # fmt: skip
    parts = [("upload", "upload", created, created, first, "u" + ids), (step, queue, first, up, up + 600, "one")]
    frames = [
        pd.DataFrame(
            {"id": f"{name} of " + ids, "build_id": ids, "organization": "acme", "pipeline": "web", "type": "script",
             "build_number": pd.array(range(n), "Int64"), "build_created_at": at(created), "name": name, "label": None,
             "step_key": None, "state": "passed", "soft_failed": False, "queue": on, "agent_id": agent,
             "created_at": at(created), "runnable_at": at(ready), "started_at": at(began), "finished_at": at(ended),
             "unblocked_at": at(np.full(n, np.nan)), "fetched_at": at(np.full(n, 4e5)), "retried": False,
             "retried_in_job_id": None, "retry_type": None}
        )
        for name, on, ready, began, ended, agent in parts
    ]  # fmt: skip
    return builds, pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="module")
def unchanged() -> WhatIf:
    """The widget as it opens, for tests that only read."""
    widget = widgets.WhatIf(*record())
    wait_for(widget)
    return widget


@pytest.fixture
def shown() -> Iterator[WhatIf]:
    widget = widgets.WhatIf(*record())
    wait_for(widget)
    yield widget
    widget.close()


def row(widget: WhatIf, name: str) -> dict[str, float | None]:
    titles = [column["title"] for column in widget.table.columns]
    found = next(one for one in widget.table.rows if one[1] == name)
    return dict(zip(titles, found, strict=True))


def test_inputs_begin_at_what_was_recorded_and_change_nothing(unchanged: WhatIf) -> None:
    assert {queue: slider.value for queue, slider in unchanged.agents.items()} == {"default": 1, "upload": 60}
    assert unchanged.scenario == ReplayScenario({}, 1, {}, ())
    values = row(unchanged, "default")
    recorded = metrics.percentiles(record()[1], by="queue").set_index("queue")
    assert values["p50 before"] == values["p50 after"] == round(recorded["p50_s"]["default"])
    assert values["p95 before"] == values["p95 after"] == round(recorded["p95_s"]["default"])
    assert visible_text(unchanged.status).startswith("No change.")
    assert [one[1] for one in unchanged.table.rows] == ["all builds", "web", "default", "upload"]


@pytest.mark.long
def test_predictions_are_those_of_a_replay(shown: WhatIf) -> None:
    shown.agents["default"].value = 2
    wait_for(shown)
    shown.faster.value = (("web", "test"),)
    wait_for(shown)
    shown.run_time.value, shown.load.value = 80, 120
    wait_for(shown)
    builds, jobs = metrics.replay(*record(), agents={"default": 2}, run_scale={("web", "test"): 0.8}, load=1.2)
    walls, waits = metrics.percentiles(builds, of=metrics.wall_time), metrics.percentiles(jobs, by="queue")
    assert row(shown, "all builds")["p50 after"] == round(walls["p50_s"].iloc[0])
    assert row(shown, "default")["p95 after"] == round(waits.set_index("queue")["p95_s"]["default"])
    assert visible_text(shown.status).startswith("2 agents in default, load 120 %, web / test takes 80 %.")


@pytest.mark.long
def test_skipped_steps_and_reset(shown: WhatIf) -> None:
    shown.skipped.value = (("web", "test"),)
    wait_for(shown)
    assert row(shown, "all builds")["p95 after"] == 60
    assert "Without web / test" in visible_text(shown.status)
    shown.agents["default"].value = 5
    shown.reset.click()
    wait_for(shown)
    assert shown.scenario == scenario.UNCHANGED
    assert visible_text(shown.status).startswith("No change.")


def test_the_error_of_the_replay_is_beside_each_group(unchanged: WhatIf) -> None:
    errors = pd.DataFrame(metrics.replay(*record())[0].attrs["error"])
    (own,) = errors[errors["name"] == "web"].to_dict("records")
    share = own["predicted_p95_s"] / own["recorded_p95_s"] - 1
    text = "0 %" if abs(share) < 0.005 else f"{100 * share:+.0f} %".replace("-", "−")
    assert row(unchanged, "web")["Replay off, p95"] == text
    assert row(unchanged, "all builds")["Replay off, p95"] == ""
    table = scenario.compare(
        unchanged._before.summary,
        None,
        {"of": ["queue"], "name": ["default"], "recorded_p50_s": [100.0], "predicted_p50_s": [90.0],
         "recorded_p95_s": [0.0], "predicted_p95_s": [1.0]},
    )  # fmt: skip
    assert [one[6:] for one in table if one[1] == "default"] == [["−10 %", ""]]


@pytest.mark.long
def test_the_chosen_build_is_drawn_before_and_after_on_one_scale(shown: WhatIf) -> None:
    assert shown.build.options[0][0] == "web #59"
    shown.build.value = "b20"
    shown.agents["default"].value = 9
    wait_for(shown)
    titles = [attributes["aria-label"] for _, attributes in html_tags(shown.timelines.value)
              if str(attributes.get("aria-label")).startswith("Timeline")]  # fmt: skip
    assert [title.split(":")[0] for title in titles[::2]] == [
        "Timeline of web #20 (before)", "Timeline of web #20 (after)",
    ]  # fmt: skip
    assert "2 jobs in 11 min" in titles[2]
    ticks = [part.split("<")[0] for part in shown.timelines.value.split('bf-timeline-tick" style="')[1:]]
    half = len(ticks) // 2
    assert ticks[:half] == ticks[half:]
    shown.load.value = 50
    wait_for(shown)
    loaded = metrics.replay(*record(), load=0.5, agents={"default": 9})[0]
    shown.build.value = next(id for id in record()[0]["id"] if id not in {*loaded["id"]})
    assert "after: the build is not among those of this load." in visible_text(shown.timelines)


@pytest.mark.long
def test_the_last_request_wins_and_no_stale_result_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """One change is replaced before it starts, one while it runs, and one while it waits for that."""
    monkeypatch.setattr(what_if, "_DELAY", 0.01)
    replayed: list[dict[str, int]] = []
    begun, gate = threading.Event(), threading.Event()
    original = scenario.PreparedRecord.replay

    def replay(self: scenario.PreparedRecord, one: ReplayScenario) -> Prediction:
        replayed.append(dict(one.agents))
        if one.agents == {"default": 3}:
            begun.set()
            gate.wait(30)
        return original(self, one)

    monkeypatch.setattr(scenario.PreparedRecord, "replay", replay)

    async def until(condition: Callable[[], bool]) -> None:
        for _ in range(6000):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("the widget did not get there")

    def is_computing(widget: WhatIf, agents: int) -> bool:
        has_result = row(widget, "default")["p50 after"] is not None or "(after)" in widget.timelines.value
        return visible_text(widget.status).startswith(f"Computing: {agents} agents in default") and not has_result

    async def kernel() -> None:
        widget = widgets.WhatIf(*record())
        await until(lambda: not is_busy(widget) and bool(widget.agents))
        widget.agents["default"].value = 2
        widget.agents["default"].value = 3
        assert is_computing(widget, 3)
        await until(begun.is_set)
        widget.agents["default"].value = 4
        await until(lambda: len(widget._tasks._started) == 2)
        monkeypatch.setattr(what_if, "_DELAY", 600)
        widget.agents["default"].value = 5
        gate.set()
        await until(lambda: not widget._tasks._started)
        assert is_computing(widget, 5)
        widget._tasks.call_later(0, widget._compute)
        await until(lambda: visible_text(widget.status).startswith("5 agents in default."))
        after = metrics.percentiles(metrics.replay(*record(), agents={"default": 5})[1], by="queue")
        assert row(widget, "default")["p95 after"] == round(after.set_index("queue")["p95_s"]["default"])
        widget.close()

    asyncio.run(kernel())
    assert replayed == [{}, {"default": 3}, {"default": 5}]


def test_errors_are_shown_in_words() -> None:
    builds, jobs = record()
    widget = widgets.WhatIf(builds, jobs.drop(columns="started_at"))
    wait_for(widget)
    assert visible_text(widget.status).startswith("There is no prediction.")
    assert "no column 'started_at'" in visible_text(widget.status)
    assert not is_shown(widget.table)
    with pytest.raises(BadInput, match="pandas DataFrame"):
        widgets.WhatIf(builds, "jobs")


def test_an_empty_record_says_so() -> None:
    builds, jobs = record()
    widget = widgets.WhatIf(builds.iloc[:0], jobs.iloc[:0])
    wait_for(widget)
    assert "unknown" in visible_text(widget.status)
    assert widget.agents == {}


def test_every_input_has_a_label_that_screen_readers_read(unchanged: WhatIf) -> None:
    labels = {each["aria-label"] for each in accessibility(unchanged).values()}
    assert labels == {"Agents of default", "Agents of upload", "Load, % of recorded", "Their run time, %"}
    classes = [css_classes(slider) for slider in (*unchanged.agents.values(), unchanged.load, unchanged.run_time)]
    for selector in accessibility(unchanged):
        assert [selector.split()[0].removeprefix(".") in names for names in classes].count(True) == 1
    inputs = (unchanged.faster, unchanged.skipped, unchanged.build)
    assert all(isinstance(each, ipywidgets.Widget) and each.description for each in inputs)


@pytest.mark.long
def test_a_fleet_that_changes_by_hour_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    original = scenario.prepare

    def prepare(builds: pd.DataFrame, jobs: pd.DataFrame) -> object:
        ready = original(builds, jobs)
        ready.fleets[0] = Fleet((1,) * 160 + (9,) * 8)
        return ready

    monkeypatch.setattr(scenario, "prepare", prepare)
    widget = widgets.WhatIf(*record())
    wait_for(widget)
    assert "in default changes by hour of the week" in visible_text(widget.body.children[1])
    assert widget.scenario == scenario.UNCHANGED


@pytest.mark.long
def test_names_are_shown_as_text() -> None:
    name = HOSTILE_TEXTS[-1]
    widget = widgets.WhatIf(*record(10, name, name))
    wait_for(widget)
    widget.skipped.value = (("web", name),)
    wait_for(widget)
    tags = {tag for page in (widget.status.value, widget.timelines.value) for tag, _ in html_tags(page)}
    assert not tags & {"img", "script", "svg", "iframe"}
    assert not any("<" in text for text, _ in widget.skipped.options)
    widget.close()
