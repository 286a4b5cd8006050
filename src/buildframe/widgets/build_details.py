"""Show one build: its properties, buttons, jobs, timeline, and the log of a selected job."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import ipywidgets

from buildframe import spec
from buildframe.widgets import components, html
from buildframe.widgets.background_tasks import TaskRunner
from buildframe.widgets.build_actions import BuildActions, OnBuildChanged
from buildframe.widgets.build_summary import (
    JOB_COLUMNS,
    build_properties,
    is_unfinished,
    job_name,
    log_error_text,
    with_shown_names,
)
from buildframe.widgets.build_tracker import to_record
from buildframe.widgets.data_table import DataTable, Row, to_cells, to_rows
from buildframe.widgets.log_page import render_log
from buildframe.widgets.timeline import compute_ledger, render_timeline
from buildframe.widgets.unblock_form import UnblockForm
from buildframe.workspace import PipelineWorkspace, Workspace

_FAILED_STATES = ("failed", "timed_out", "expired")


class LoadedBuild(NamedTuple):
    """A build, its jobs in the order shown, and its properties and timeline as HTML."""

    build: Row
    jobs: list[Row]
    properties: str
    timeline: str


class BuildDetails(components.WorkspaceWidget):
    """
    One build; `load` replaces it.

    `on_change` is called with each build that its buttons canceled or created. With `on_close` there is a button that
    hides the build.
    """

    def __init__(
        self,
        ws: Workspace | PipelineWorkspace,
        *,
        on_change: OnBuildChanged | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(ws)
        self._on_change, self._on_close = on_change, on_close
        self.loaded: LoadedBuild | None = None
        self._requested: tuple[str, int] | None = None  # pipeline and number
        self._shown: tuple[str, int] | None = None
        self.status.layout = {"flex": "1 1 200px", "min_height": "34px"}
        self.log_view, self.log_tools = components.StatusLine(), components.LogTools()
        log = components.add_classes(ipywidgets.VBox([self.log_tools, self.log_view]), "bf-log-view")
        self._log_tasks = TaskRunner(
            lambda error: self.log_view.show_error(log_error_text(error)), self.log_view.show_wait
        )
        self.closables += (self._log_tasks,)
        self.properties, self.timeline = ipywidgets.HTML(), ipywidgets.HTML()
        self.actions = BuildActions(ws, on_change=self._on_build_changed)
        self.unblock = UnblockForm(ws, on_change=lambda _: self._on_unblocked())
        self.jobs = components.add_classes(DataTable("Jobs", JOB_COLUMNS), "bf-jobs")
        self.reload = self.status.create_button("Refresh", "Load this build again", self.load_again)
        self.close_button = self.status.create_button("Close", "Hide this build", self._on_close_click)
        self.log_button = self.status.create_button("Show log", "", self._load_log)
        self.log_button.layout.align_self = "flex-start"
        parts = [self.properties, self.actions, self.unblock, self.jobs, self.log_button, log, self.timeline]
        self.body = ipywidgets.VBox(parts, layout={"width": "100%"})
        self._show_parts(ipywidgets.HBox([self.reload, self.close_button, self.status]), self.body)
        self.jobs.observe(self.status.guard(lambda _: self._update_log_button()), "selected")
        self._hide()

    def load(self, slug: str, number: int) -> None:
        """Load and show a build. What is shown stays until then; a request for another build is canceled."""
        pipeline = components.pipeline_of(self._ws, slug)
        self._requested = (pipeline.slug, number)
        if self._requested != self._shown:
            self.actions.show(None)  # otherwise they would act on a build that is no longer selected
            self.unblock.show(None, [])
        self.add_class("bf-has-build")
        components.set_visible(self.close_button, self._on_close is not None)
        self.status.show_action(f"Loading build #{number} …")
        self._tasks.restart(lambda task: _load(pipeline, number), self._show)

    def _hide(self) -> None:
        """Show no build, so that a table beside it has the whole width."""
        self._tasks.cancel()
        self._log_tasks.cancel()
        self.loaded = self._requested = self._shown = None
        for part in (self.body, self.reload, self.close_button):
            components.set_visible(part, False)
        self.remove_class("bf-has-build")
        self.status.show("Select a build in the table with the arrow keys or a click.")

    def _on_close_click(self) -> None:
        self._hide()
        if self._on_close is not None:
            self._on_close()

    def load_again(self) -> None:
        """Load the build again, if one is shown."""
        if self._requested is not None:
            self.load(*self._requested)

    def _show(self, loaded: LoadedBuild) -> None:
        before, job = self.loaded, self._selected_job()
        is_same = before is not None and before.build["id"] == loaded.build["id"]
        self.loaded, self._shown = loaded, self._requested
        self.status.show("")
        self.properties.value, self.timeline.value = loaded.properties, loaded.timeline
        self.actions.show(to_record(loaded.build))
        self.unblock.show(loaded.build["pipeline"], loaded.jobs)
        if not is_same:
            self.log_view.show("")
            self._log_tasks.cancel()
        ids = [each["id"] for each in loaded.jobs]
        selected = ids.index(job["id"]) if is_same and job and job["id"] in ids else min(0, len(ids) - 1)
        self.jobs.label = html.label(f"Jobs of {loaded.build['pipeline']} #{loaded.build['number']}")
        self.jobs.set_rows([to_cells(each, JOB_COLUMNS) for each in loaded.jobs], selected=selected)
        self._update_log_button()
        components.set_visible(self.body, True)
        components.set_visible(self.reload, True)

    def _on_error(self, error: BaseException) -> None:
        components.set_visible(self.body, self._requested == self._shown)
        components.set_visible(self.reload, True)
        self.status.show_error(error)

    def _on_build_changed(self, build: spec.Build) -> None:
        """Load the build again if the buttons changed it; a new build is shown only when it is selected."""
        if self.loaded is not None and build.id == self.loaded.build["id"] and self._requested == self._shown:
            self.load_again()
        if self._on_change is not None:
            self._on_change(build)

    def _on_unblocked(self) -> None:
        if self._requested == self._shown:  # otherwise another build is about to be shown
            self.load_again()

    def _selected_job(self) -> Row | None:
        jobs = self.loaded.jobs if self.loaded else []
        return jobs[self.jobs.selected] if 0 <= self.jobs.selected < len(jobs) else None

    def _update_log_button(self) -> None:
        job = self._selected_job()
        has_log = job is not None and job["started_at"] is not None and (job["raw_log_url"] or job["log_url"])
        self.log_button.disabled = not has_log
        self.log_button.description = html.label(f"Show log: {job_name(job, 40)}") if job else "Show log"
        reason = "Only jobs that ran on an agent have a log" if job else "Select a job in the table"
        self.log_button.tooltip = "Show the log of the selected job" if has_log else reason

    def _load_log(self) -> None:
        job, ws = self._selected_job(), self._ws
        if job is None or self.log_button.disabled:
            return
        self.log_view.show_action(f"Loading the log of {job_name(job)} …")
        self._log_tasks.restart(
            lambda task: render_log(job, job_name(job), ws.log(job).raw),
            lambda page: self.log_view.set_trait("value", page),
        )


def _load(pipeline: PipelineWorkspace, number: int) -> LoadedBuild:
    builds, jobs = pipeline.history_of(number)
    build, name = {**to_rows(builds)[0], "pipeline": pipeline.slug}, f"{pipeline.slug} #{number}"
    shown = with_shown_names([job for job in to_rows(jobs) if job["type"] != "waiter"])
    ledger = compute_ledger(*(frame.assign(pipeline=pipeline.slug) for frame in (builds, jobs)))
    timeline = render_timeline(jobs, name, ledger, is_unfinished=is_unfinished(build) or bool(build["blocked"]))
    return LoadedBuild(build, sorted(shown, key=_severity_rank), build_properties(build), timeline)


def _severity_rank(job: Row) -> int:
    """Return 0 for failures that failed the build, 1 for failures that were retried or soft, 2 for other jobs."""
    return 2 if job["state"] not in _FAILED_STATES else 1 if job["retried"] or job["soft_failed"] else 0
