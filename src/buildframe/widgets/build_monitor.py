"""The build monitor: waiting and running builds, their expected remaining time, and how they ended."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from typing import Any

import ipywidgets

from buildframe import spec
from buildframe.errors import BadInput
from buildframe.formatting import format_duration
from buildframe.guards.arguments import checked_names
from buildframe.spec.builds import CANCELABLE_STATES
from buildframe.spec.times import parse_duration
from buildframe.terminal import show
from buildframe.widgets import components, html, monitor_formatting
from buildframe.widgets.background_tasks import BackgroundTask
from buildframe.widgets.build_actions import BuildActions
from buildframe.widgets.build_tracker import DELETED, BuildTracker, MonitorSnapshot, to_record
from buildframe.widgets.data_table import DataTable, to_cells
from buildframe.workspace import PipelineWorkspace, Workspace

_MIN_INTERVAL = 10.0  # seconds
_MAX_UNANSWERED_PINGS = 2  # a page may miss one while a cell of the user runs


class BuildMonitor(components.WorkspaceWidget):
    """
    Follow the waiting and running builds of an organization or of one pipeline until they finish.

    The table shows the progress of each build. The selected build has buttons that cancel and rebuild it. Below the
    table are the builds that finished.

    Parameters
    ----------
    ws : Workspace or PipelineWorkspace
        Workspace of one organization, or one of its pipelines.
    every : str or datetime.timedelta, default 10 seconds
        Interval of refreshes, such as `"30s"`; at least 10 seconds.
    for_at_most : str or datetime.timedelta, default "1h"
        Time after which refreshing stops, at least `every`. The button "Resume" starts it again.

    Raises
    ------
    BadInput
        If `ws` is not a workspace of one organization or a pipeline, or a duration is invalid or too short.

    See Also
    --------
    buildframe.metrics.remaining_time : The expectation behind the progress.
    BuildBrowser : Find builds of any time.

    Notes
    -----
    Progress compares a build with builds of its pipeline in the last 14 days that ran at least as long. That history is
    loaded once per pipeline. A refresh takes one request per 100 open builds and loads no jobs.

    Refreshing stops when the widget is no longer displayed. Without an event loop, as in a script, the widget refreshes
    once, and then whenever you call `refresh`. Needs the scopes `read_builds`, and `write_builds` for actions.

    Examples
    --------
    >>> monitor = widgets.BuildMonitor(ci, every="30s")
    >>> [column["title"] for column in monitor.table.columns][:4]
    ['Number', 'State', 'Pipeline', 'Progress']
    >>> monitor.close()
    """

    @checked_names
    def __init__(
        self,
        ws: Workspace | PipelineWorkspace,
        *,
        every: str | dt.timedelta = dt.timedelta(seconds=10),
        for_at_most: str | dt.timedelta = "1h",
    ) -> None:
        self._interval = _check_duration("every", every, _MIN_INTERVAL, "because all clients share the request limit")
        self._max_age = _check_duration("for_at_most", for_at_most, self._interval, "the interval of refreshes")
        super().__init__(ws, _view_count=0)
        self.snapshot: MonitorSnapshot | None = None
        self._tracker = BuildTracker(ws)
        self._build: spec.Build | None = None
        self._pause_text = ""
        self._is_outdated = False
        self._action_key: tuple[str, str] | None = None
        self.is_refreshing, self._is_hidden = False, False
        self._unanswered_pings = 0
        self.table = DataTable("Waiting and running builds", monitor_formatting.TABLE_COLUMNS)
        self.actions = BuildActions(ws, on_change=lambda build: self._on_build_changed())
        components.set_visible(self.actions, False)
        self._show_parts(*self._create_parts())
        self.layout.width = "100%"
        self.table.observe(self.status.guard(lambda _: self._on_select()), "selected")
        self.observe(self.status.guard(lambda change: self._on_views_changed(bool(change.new))), "_view_count")
        self.table.observe(self.status.guard(lambda _: self._on_views_changed(True)), "pong")
        self.resume()

    def _create_parts(self) -> list[ipywidgets.Widget]:
        self.toggle = self.status.create_button(
            "Pause", "Pause or resume refreshing", lambda: self.pause() if self.is_refreshing else self.resume()
        )
        self.refresh_button = self.status.create_button("Refresh now", "Load the open builds now", self.refresh)
        self.schedule = ipywidgets.HTML()
        layout: dict[str, Any] = {"flex_flow": "row wrap", "align_items": "center"}
        buttons = ipywidgets.HBox([self.toggle, self.refresh_button, self.schedule], layout=layout)
        self.queue, self.properties, self.finished = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
        explanation = ipywidgets.HTML(html.hint(monitor_formatting.EXPLANATION))
        below_table = [explanation, self.properties, self.actions, self.finished]
        return [buttons, self.status, self.queue, self.table, *below_table]

    def refresh(self) -> None:
        """Refresh once in a background thread, unless a refresh is in progress."""
        started = self._tasks.start(self._refresh, lambda _: self._schedule_next(), on_start=self._show_loading)
        if not started and self.is_refreshing and self._tasks.has_loop:
            self._tasks.call_later(self._interval, self._on_timer)

    def _show_loading(self) -> None:
        self._is_outdated = False
        self._show_schedule("loading …")

    def resume(self) -> None:
        """Refresh now and at intervals, for at most `for_at_most`."""
        self.is_refreshing, self._is_hidden = True, False
        self._unanswered_pings = 0
        self._resumed_at = time.monotonic()
        self.toggle.description = "Pause"
        self._pause_text = ""
        self.status.show("")
        self.refresh()

    def pause(self, reason: str = "Paused") -> None:
        """
        Stop refreshing, and cancel a refresh in progress.

        Parameters
        ----------
        reason : str, default "Paused"
            Text that the status line shows.
        """
        self.is_refreshing = False
        self._tasks.cancel()
        self.toggle.description = "Resume"
        self._pause_text = f"{reason}. Press Resume to refresh again."
        self._show_schedule("not refreshing")
        self.status.show(self._pause_text)

    def _on_timer(self) -> None:
        """Refresh if a page still shows the widget: the view count does not change when a page is closed."""
        is_answered = self.table.pong == self.table.ping
        self._unanswered_pings = 0 if is_answered else self._unanswered_pings + 1
        self.table.ping += 1
        if not self._view_count or self._unanswered_pings >= _MAX_UNANSWERED_PINGS:
            self._on_views_changed(False)
        elif time.monotonic() - self._resumed_at >= self._max_age:
            self.pause(f"Stopped after {format_duration(self._max_age)}")
        else:
            self.refresh()

    def _on_views_changed(self, is_displayed: bool) -> None:
        """Pause if nothing displays the widget, for example because its cell ran again; resume if something does."""
        if not is_displayed and self.is_refreshing:
            self.pause("Stopped because the widget was not displayed")
            self._is_hidden = True
        elif is_displayed and self._is_hidden:
            self.resume()

    def _schedule_next(self) -> None:
        if self._tasks.has_loop and (self.is_refreshing or self._is_outdated):
            self._tasks.call_later(0.0 if self._is_outdated else self._interval, self._on_timer)
        will_refresh = self.is_refreshing and self._tasks.has_loop
        self._show_schedule(f"refreshes every {format_duration(self._interval)}" if will_refresh else "not refreshing")

    def _on_build_changed(self) -> None:
        """Refresh after an action; a refresh in progress may have started before it."""
        self._is_outdated = True
        self.refresh()

    def _refresh(self, task: BackgroundTask) -> None:
        """Refresh, in a thread."""
        for snapshot in self._tracker.refresh():
            task.update(self.status.guard(lambda snapshot=snapshot: self._show(snapshot)))
            if task.is_canceled:
                return

    def _on_error(self, error: BaseException) -> None:
        self.status.show_error(error)
        self._schedule_next()
        self.table.is_stale = self.snapshot is not None

    def _on_wait(self, seconds: float, reason: str) -> None:
        self._show_schedule(f"waiting {format_duration(seconds)}: {reason}")

    def _show(self, snapshot: MonitorSnapshot) -> None:
        self._on_select()  # a selection among the previous rows may not have been processed yet
        self.snapshot = snapshot
        self.status.show(self._pause_text)
        self.table.is_stale = False
        waiting = Counter(row["pipeline"] for row in snapshot.rows if row["state"] == "scheduled")
        self.queue.value = html.render("build_queue", snapshot=snapshot, waiting=waiting)
        self.finished.value = html.render("finished_builds", snapshot=snapshot, formatting=monitor_formatting)
        indexes = {row["id"]: index for index, row in enumerate(snapshot.rows)}
        selected = indexes.get(self._build.id, -1) if self._build else -1
        cells = [to_cells(row, monitor_formatting.TABLE_COLUMNS) for row in snapshot.rows]
        self.table.set_rows(cells, selected=selected)
        self._show_selected()
        self._show_schedule("loading …")

    def _show_schedule(self, text: str) -> None:
        """Show when the rows were loaded and what is next; not announced, because it changes all the time."""
        as_of = "Nothing loaded yet" if self.snapshot is None else f"As of {self.snapshot.as_of}"
        self.schedule.value = html.hint(f"{as_of}, {text}")

    def _on_select(self) -> None:
        if self.snapshot is not None and 0 <= self.table.selected < len(self.snapshot.rows):
            self._build = to_record(self.snapshot.rows[self.table.selected])
            self._show_selected()

    def _show_selected(self) -> None:
        """Show the current state of the selected build, also after it left the table."""
        if self._build is None or self.snapshot is None:
            return
        id = self._build.id
        row = next((row for row in self.snapshot.rows if row["id"] == id), None)
        finished = next((build for build in self.snapshot.finished if build.id == id), None)
        build = to_record(row) if row is not None else finished
        if build is not None:
            self._build = build
            self.properties.value = html.render("monitored_build", build=build, row=row, formatting=monitor_formatting)
        self._update_actions(self._build)
        components.set_visible(self.actions, self._build.state != DELETED)

    def _update_actions(self, build: spec.Build) -> None:
        """Update the buttons; an open confirmation stays as long as it can be answered."""
        key = build.id, "cancelable" if build.state in CANCELABLE_STATES else str(build.state)
        if key != self._action_key:
            self._action_key = key
            self.actions.show(build)


def _check_duration(name: str, value: str | dt.timedelta, minimum: float, reason: str) -> float:
    """Return a duration in seconds; raise BadInput if it is below the minimum."""
    seconds = parse_duration(value, name).total_seconds()
    if seconds < minimum:
        raise BadInput(f"{name}={show(value)} is too short. Use at least {minimum:.0f} s, {reason}.")
    return seconds
