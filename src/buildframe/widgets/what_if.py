"""What if: change agents, load and steps, and see what a replay of the recorded builds predicts."""

from __future__ import annotations

import math
import threading

import ipywidgets
import pandas as pd

from buildframe.formatting import (
    format_change,
    format_count,
    format_duration,
    format_name,
    short_labels,
)
from buildframe.guards.arguments import checked_names
from buildframe.http.budget import Canceled
from buildframe.metrics.columns import check_is_pandas
from buildframe.widgets import components, html
from buildframe.widgets.background_tasks import BackgroundTask
from buildframe.widgets.data_table import DataTable
from buildframe.widgets.scenario import (
    ALL,
    TABLE_COLUMNS,
    UNCHANGED,
    WALL,
    Prediction,
    PreparedRecord,
    ReplayScenario,
    compare,
    list_builds,
    minutes_of,
    render_build,
)

_DELAY = 0.3  # seconds in which further changes of inputs belong to the same scenario
_MOST_BUILDS = 200
_MOST_AGENTS = 3  # times today's number
_LABELS = {"description_width": "150px"}


class WhatIf(components.TaskWidget):
    """
    Predict wall times and queue times with other agents, another load, or faster steps.

    Sliders change the agents of each queue and the load. Lists select steps that run faster or are skipped. A table
    compares p50 and p95 before and after, beside the error of the replay, and two timelines show a build before and
    after.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds of one organization, with the columns that `metrics.replay` needs.
    jobs : pandas.DataFrame
        All jobs of these builds, fetched with `include_retried_jobs=True`.

    Raises
    ------
    BadInput
        If `builds` or `jobs` is not a pandas DataFrame. The widget shows other errors.

    See Also
    --------
    buildframe.metrics.replay : The predictions of this widget, as frames.
    buildframe.metrics.agents_needed : Waits with each number of agents.
    buildframe.metrics.leverage : The steps whose speed-up saves most.

    Notes
    -----
    Predictions are computed in a background thread. A change cancels the computation that runs, and removes its
    results. "Before" is a replay without changes, so that both sides have the same errors. The last two columns say how
    far off a blind replay was, which knew only the other half of the days: +10 % is 10 % too long.

    A queue whose slider stands at today's number keeps its recorded fleet, also if that changes by hour.

    Examples
    --------
    >>> builds, jobs = ci.history(created_from="2d", include_retried_jobs=True)
    >>> what_if = widgets.WhatIf(builds, jobs)
    >>> [column["title"] for column in what_if.table.columns][:4]
    ['Duration', 'Of', 'p50 before', 'p50 after']
    """

    @checked_names
    def __init__(self, builds: pd.DataFrame, jobs: pd.DataFrame) -> None:
        for frame in (builds, jobs):
            check_is_pandas(
                frame, "this widget needs. Convert the frame, in Polars by .to_pandas(), in DuckDB by .df()."
            )
        super().__init__()
        self._lock = threading.Lock()  # several simulations at once would delay each other, and the kernel
        self._record: PreparedRecord | None = None
        self._before: Prediction | None = None
        self._after: Prediction | None = None
        self.agents: dict[str, ipywidgets.IntSlider] = {}
        self._create_inputs()
        self.table = components.add_classes(DataTable("Predictions", TABLE_COLUMNS), "bf-predictions")
        self.timelines = ipywidgets.HTML()
        self._accessibility = components.AccessibilityHelper()
        self.body = ipywidgets.VBox(layout={"width": "100%"})
        self._show_parts(self.body, self.status, self.table, self.build, self.timelines, self._accessibility)
        self.add_class("bf-accessible")
        self._show_results(False)
        self.status.show_action("Learning fleets and dependencies from the record …")
        self._tasks.restart(lambda task: self._prepare(task, builds, jobs), lambda ready: self._open(*ready))

    @property
    def scenario(self) -> ReplayScenario:
        """
        The change that the inputs describe.

        Returns
        -------
        ReplayScenario
            Agents per queue (only queues whose number differs from today's), load, run times of steps as factors, and
            steps to skip.
        """
        today = {} if self._record is None else self._record.agents
        agents = {queue: slider.value for queue, slider in self.agents.items() if slider.value != today[queue]}
        faster = self.faster.value if self.run_time.value != 100 else ()
        scale = {step: self.run_time.value / 100 for step in faster if step not in self.skipped.value}
        return ReplayScenario(agents, self.load.value / 100, scale, self.skipped.value)

    def _create_inputs(self) -> None:
        self.load = _slider("Load, % of recorded", 100, 50, 200, 5)
        self.run_time = _slider("Their run time, %", 50, 5, 200, 5)
        self.faster = ipywidgets.SelectMultiple(description="Steps to speed up", rows=6, style=_LABELS)
        self.skipped = ipywidgets.SelectMultiple(description="Steps to skip", rows=6, style=_LABELS)
        self.build = ipywidgets.Dropdown(description="Timeline of", style={"description_width": "initial"})
        self.reset = self.status.create_button("Reset", "Set all inputs to what was recorded", self._reset)
        self.reset.layout.align_self = "flex-start"

    def _prepare(
        self, task: BackgroundTask, builds: pd.DataFrame, jobs: pd.DataFrame
    ) -> tuple[PreparedRecord, Prediction]:
        record = PreparedRecord(builds, jobs)
        return record, self._predict(task, record, UNCHANGED)

    def _predict(self, task: BackgroundTask, record: PreparedRecord, scenario: ReplayScenario) -> Prediction:
        with self._lock:
            if task.is_canceled:
                raise Canceled("A later change replaced this one.")
            return record.replay(scenario)

    def _open(self, record: PreparedRecord, before: Prediction) -> None:
        """Show the inputs, and the predictions without changes."""
        self._record, self._before = record, before
        self.agents = {
            queue: _slider(f"Agents of {html.label(format_name(queue))}", today, 1, max(_MOST_AGENTS * today, 10))
            for queue, today in record.agents.items()
        }
        labels = short_labels(map(format_step, record.steps))
        steps = [(html.label(labels[format_step(step)]), step) for step in record.steps]
        self.faster.options = self.skipped.options = steps
        self.build.options = list_builds(before.builds, _MOST_BUILDS)
        self.build.value = self.build.options[0][1] if self.build.options else None
        self._show_inputs(record.by_hour)
        for each in (*self.agents.values(), self.load, self.run_time, self.faster, self.skipped):
            each.observe(self.status.guard(lambda _: self._on_change()), "value")
        self.build.observe(self.status.guard(lambda _: self._draw_timelines()), "value")
        self._show(before)

    def _show_inputs(self, by_hour: list[str]) -> None:
        sliders = {**{f"bf-agents-{k}": each for k, each in enumerate(self.agents.values())},
                   "bf-load": self.load, "bf-run-time": self.run_time}  # fmt: skip
        for name, slider in sliders.items():
            slider.add_class(name)
        self._accessibility.attributes = {
            f".{name} :is(.noUi-handle, .widget-readout)": {"aria-label": slider.description}
            for name, slider in sliders.items()
        }
        numbers = components.add_classes(ipywidgets.Box([*self.agents.values(), self.load]), "bf-sliders")
        steps = ipywidgets.Box([ipywidgets.VBox([self.faster, self.run_time]), self.skipped])
        names = ", ".join(map(format_name, by_hour))
        hint = f"The number of agents in {names} changes by hour of the week; the slider begins at its mean."
        hint_line = ipywidgets.HTML(html.hint(hint) if names else "")
        self.body.children = (numbers, hint_line, components.add_classes(steps, "bf-sliders"), self.reset)

    def _reset(self) -> None:
        with self.hold_trait_notifications():
            for queue, slider in self.agents.items():
                slider.value = self._record.agents[queue] if self._record else slider.value
            self.load.value, self.faster.value, self.skipped.value = 100, (), ()

    def _on_change(self) -> None:
        """Remove the results of the previous scenario, and compute the new one once inputs rest."""
        self._tasks.cancel()
        self._after = None
        self._draw()
        self.status.show_action(f"Computing: {describe(self.scenario)} …")
        self._tasks.call_later(_DELAY, self._compute)

    def _compute(self) -> None:
        record, scenario = self._record, self.scenario
        if scenario == UNCHANGED and self._before is not None:
            self._show(self._before)
        elif record is not None:
            self._tasks.restart(lambda task: self._predict(task, record, scenario), self._show)

    def _show(self, after: Prediction) -> None:
        self._after = after
        self._draw()
        self.status.show(self._caption())

    def _draw(self) -> None:
        if self._before is not None and self._record is not None:
            after = None if self._after is None else self._after.summary
            self.table.set_rows(compare(self._before.summary, after, self._record.errors))
            self._draw_timelines()
            self._show_results(True)

    def _draw_timelines(self) -> None:
        """Show the chosen build before and after; a prediction that is being computed has no timeline."""
        if self._before is None or self.build.value is None:
            self.timelines.value = ""
            return
        predictions = {"before": self._before} | ({} if self._after is None else {"after": self._after})
        minutes = minutes_of(self.build.value, *predictions.values())
        pages = (render_build(one, self.build.value, when, minutes) for when, one in predictions.items())
        self.timelines.value = "".join(pages)

    def _show_results(self, is_visible: bool) -> None:
        for part in (self.body, self.table, self.build, self.timelines):
            components.set_visible(part, is_visible)

    def _caption(self) -> str:
        if self._before is None or self._after is None:
            return ""
        what = describe(self.scenario)
        lines = [f"{what[0].upper()}{what[1:]}."]
        for p in ("p50", "p95"):
            walls = (one.summary[f"{p}_s"].get((WALL, ALL), math.nan) for one in (self._before, self._after))
            before, after = map(float, walls)
            change = "" if math.isnan(after - before) else f" ({format_change(after - before)})"
            lines.append(
                f"{p} of wall times: {format_duration(before)} before, {format_duration(after)} after{change}."
            )
        return "\n".join(lines)

    def _on_error(self, error: BaseException) -> None:
        self.status.show_error(f"There is no prediction.\n{html.error_text(error)}")


def describe(scenario: ReplayScenario) -> str:
    """Return what a scenario changes, in words."""
    parts = [f"{format_count(n, 'agent')} in {format_name(queue)}" for queue, n in scenario.agents.items()]
    parts += [f"load {100 * scenario.load:.0f} %"] if scenario.load != 1 else []
    labels = short_labels(map(format_step, [*scenario.run_scale, *scenario.skip]))
    parts += [f"{labels[format_step(step)]} takes {100 * factor:.0f} %" for step, factor in scenario.run_scale.items()]
    parts += [f"without {labels[format_step(step)]}" for step in scenario.skip]
    return ", ".join(parts) or "no change"


def format_step(step: tuple[str, str]) -> str:
    """Return "pipeline / step"."""
    return " / ".join(map(format_name, step))


def _slider(label: str, value: int, low: int, high: int, step: int = 1) -> ipywidgets.IntSlider:
    """Return a slider whose value changes while it moves."""
    return ipywidgets.IntSlider(
        value, low, high, step, description=label, tooltip=label, style=_LABELS, layout={"width": "100%"}
    )
