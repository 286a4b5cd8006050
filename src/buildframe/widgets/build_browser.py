"""The build browser: filters, a table of builds, and the selected build with its jobs, logs and buttons."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import ipywidgets
import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput, BuildframeError
from buildframe.guards.arguments import checked_names
from buildframe.terminal import show
from buildframe.widgets import components, html
from buildframe.widgets.background_tasks import BackgroundTask, Callback, TaskRunner
from buildframe.widgets.build_details import BuildDetails
from buildframe.widgets.build_list import COLUMNS, CREATED, BuildList, LoadingState, columns_for, load_builds, with_rows
from buildframe.widgets.bulk_cancel import BulkCancel
from buildframe.widgets.create_build_form import CreateBuildForm
from buildframe.widgets.data_table import DataTable
from buildframe.widgets.filter_inputs import FilterInputs
from buildframe.workspace import PipelineWorkspace, Workspace

_MAX_INPUT_DELAY = 1.0  # seconds: a page may send a click or Enter before the value that was typed before it
_TYPING_PAUSE = 0.2  # seconds without a further character


class BuildBrowser(components.WorkspaceWidget):
    """
    List the builds of an organization or of one pipeline: filter, sort, select and act on them.

    The service filters by pipeline, branch, state, creator and time. The search below filters the loaded rows by any
    text in them. The selected build is shown with its properties, jobs, timeline and logs, and buttons that cancel and
    rebuild it. A form creates builds. The table's columns can be chosen, moved and resized, its cells and rows copied,
    and its rows downloaded as CSV.

    Parameters
    ----------
    ws : Workspace or PipelineWorkspace
        Workspace of one organization, or one of its pipelines.
    created_from : str, default "7d"
        Initial value of the filter "Created from": an age such as `"12h"` or `"7d"`, an ISO date or time such as
        `"2026-10-01"`, or `""` for all builds.

    Attributes
    ----------
    builds : pandas.DataFrame
        Builds in the table, newest first.

    Raises
    ------
    BadInput
        If `ws` is not a workspace of one organization or a pipeline, or `created_from` is not a string.

    See Also
    --------
    BuildMonitor : Follow waiting and running builds.
    actions : The buttons of one build, for a custom layout.

    Notes
    -----
    Loading starts at once in a background thread, and stops if the widget is no longer displayed. Needs the scopes
    `read_builds`, `read_build_logs` for logs, and `write_builds` for actions. `read_pipelines` and `read_organizations`
    add suggestions to the filters.

    Examples
    --------
    >>> browser = widgets.BuildBrowser(ci, created_from="2d")
    >>> [column["title"] for column in browser.table.columns][:4]
    ['Number', 'State', 'Pipeline', 'Branch']
    """

    @checked_names
    def __init__(self, ws: Workspace | PipelineWorkspace, *, created_from: str = "7d") -> None:
        if not isinstance(created_from, str):
            raise BadInput(f"created_from={show(created_from)} is not a string. Use one such as '7d' or '2026-10-01'.")
        super().__init__(ws, _view_count=0)
        self._requested = self._shown = BuildList("")  # of the last request, and of the rows in the table
        self._pressed_at, self._read_filters = -math.inf, self.load
        self._selected_id: str | None = None
        self._marked_ids: frozenset[str] = frozenset()
        self._outdated: dict[tuple[str, int], None] = {}  # pipeline and number of builds to load again
        self.table = DataTable("Builds", columns_for(ws), has_search=True)
        self.table.sort_order = [CREATED, True]
        self._update_tasks = TaskRunner(self._on_update_error)
        self.closables += (self._update_tasks,)
        self.filters = FilterInputs(ws, created_from, self.status.guard(self._press_load))
        self.details = BuildDetails(ws, on_change=self._on_build_changed, on_close=self._on_details_closed)
        self.form = CreateBuildForm(ws, on_change=self._on_build_changed)
        self.bulk = BulkCancel(ws, find_marked=self._find_marked, on_done=self._on_bulk_done)
        for panel in (self.form, self.bulk):
            components.set_visible(panel, False)
        self._create_inputs()
        self._accessibility = components.AccessibilityHelper()
        self._show_parts(*self._layout_parts())
        components.add_classes(self, "bf-browser", "bf-accessible")
        self._observe_inputs()
        self.load()

    @property
    def builds(self) -> pd.DataFrame:
        """
        Builds in the table, newest first.

        Returns
        -------
        pandas.DataFrame
            One row per build, with the columns `id`, `number`, `pipeline`, `state`, `blocked`, `branch`, `commit`,
            `message`, `creator`, `creator_id`, `created_at`, `started_at`, `finished_at`, `web_url` and `fetched_at` of
            `ws.builds()`.
        """
        newest_first = self._shown.builds.sort_values(["created_at", "id"], ascending=False, ignore_index=True)
        return newest_first[COLUMNS]

    def _create_inputs(self) -> None:
        button = self.status.create_button
        self.load_button = button("Load", "Load builds by these filters", self._press_load)
        self.load_button.button_style = "primary"
        self.stop_button = button("Stop", "Stop loading and keep the loaded rows", self.stop)
        self.create_button = button("Create build…", "Open or close the form", self._toggle_form)
        self.bulk_button = button("Cancel several…", "Cancel marked builds, or all of a branch", self._toggle_bulk)

    def _layout_parts(self) -> list[ipywidgets.Widget]:
        children = [self.load_button, self.stop_button, self.create_button, self.bulk_button]
        buttons = ipywidgets.HBox(children, layout={"flex_flow": "row wrap"})
        columns = components.add_classes(ipywidgets.Box([self.table, self.details]), "bf-browser-columns")
        return [self.filters, buttons, self.status, self.form, self.bulk, columns, self._accessibility]

    def _observe_inputs(self) -> None:
        guard = self.status.guard
        self.filters.on_change(guard(self._on_filter_change))
        self.table.observe(guard(lambda _: self._on_select()), "selected")
        self.table.observe(guard(lambda _: self._on_mark()), "marked")
        self.observe(guard(lambda change: self.stop() if change.new == 0 else None), "_view_count")

    def _press_load(self) -> None:
        self._press(self.load)

    def _press(self, read_filters: Callback) -> None:
        """Call a function that reads the filters, and again if one of them changes just after the click."""
        self._pressed_at, self._read_filters = time.monotonic(), read_filters
        read_filters()

    def _on_filter_change(self) -> None:
        if time.monotonic() - self._pressed_at < _MAX_INPUT_DELAY:
            self._tasks.call_later(_TYPING_PAUSE, self.status.guard(self._read_again))
        else:
            self._show_status()

    def _read_again(self) -> None:
        self._read_filters()
        self._show_status()

    def load(self) -> None:
        """Load the builds that match the filters. Previous rows stay, marked as such, until the first ones arrive."""
        self._tasks.cancel()  # first, because in a script its thread adds rows
        self._requested = BuildList(self.filters.description_text)
        try:
            source, filters = self.filters.read()
        except BadInput as error:
            self._on_error(error)
            return
        self._update_tasks.cancel()  # the new list contains these changes, if they match its filters
        self._outdated.clear()

        def run(task: BackgroundTask) -> None:
            load_builds(source, filters, lambda *batch: task.update(lambda: self._add(*batch)))

        self._tasks.restart(run, lambda _: self._end("complete"), on_start=self._show_status)

    def stop(self) -> None:
        """Stop loading and keep the loaded rows."""
        is_loading = self._tasks.is_busy
        self._pressed_at = -math.inf
        self._tasks.cancel()
        if is_loading:
            self._end("stopped")

    def _add(self, builds: pd.DataFrame | None, share: float | None, metadata: Mapping[Any, Any]) -> None:
        self._on_select()  # a selection among the previous rows may not have been processed yet
        self._requested.add(builds, share, metadata)
        self._shown = self._requested
        self._update_table()
        self._show_status()

    def _end(self, state: LoadingState, error: str = "") -> None:
        self._requested.state, self._requested.error = state, error
        self._show_status()

    def _on_error(self, error: BaseException) -> None:
        self._end("failed", html.error_text(error))

    def _on_wait(self, seconds: float, reason: str) -> None:
        self._show_status(html.wait_text(seconds, reason))

    def _show_status(self, note: str = "") -> None:
        is_stale, is_loading = self._shown is not self._requested, self._tasks.is_busy
        self.stop_button.disabled, self.table.is_stale = not is_loading, is_stale
        lines = [self._requested.status_text, note]
        if is_stale and len(self._shown.builds):
            lines.append(f"Showing previous results ({self._shown.query}), as of {self._shown.time}.")
        if self._requested.query != self.filters.description_text:
            lines.append("Filters changed. Press Load to apply them.")
        text = "\n".join(filter(None, lines))
        if self._requested.error:
            self.status.show_error(text)
        else:
            self.status.show(text, extra=html.fragment("progress_bar", self._requested.share) if is_loading else "")

    def _update_table(self) -> None:
        builds = self._shown.builds
        selected = builds.index[builds["id"] == self._selected_id]
        marked = [int(index) for index in builds.index[builds["id"].isin(self._marked_ids)]]
        self.table.set_rows(builds["row"].tolist(), selected=int(selected[0]) if len(selected) else -1, marked=marked)

    def _on_select(self) -> None:
        builds, index = self._shown.builds, self.table.selected
        if not 0 <= index < len(builds) or builds["id"].iloc[index] == self._selected_id:
            return
        build = builds.iloc[index]
        self._selected_id = str(build["id"])
        self.details.load(str(build["pipeline"]), int(build["number"]))

    def _on_mark(self) -> None:
        marked = self._find_marked()
        self._marked_ids = frozenset(marked["id"])
        self.bulk.show_marked(len(marked))

    def _find_marked(self) -> pd.DataFrame:
        builds = self._shown.builds
        return builds.iloc[[index for index in self.table.marked if 0 <= index < len(builds)]]

    def _on_details_closed(self) -> None:
        self._selected_id, self.table.selected = None, -1
        self._accessibility.move_focus(".bf-browser-columns .bf-grid")

    def _toggle_form(self) -> None:
        is_opening = self.form.layout.display == "none"
        if is_opening:
            self._press(self._fill_form)
        components.set_visible(self.form, is_opening)
        self.create_button.description = "Close the form" if is_opening else "Create build…"

    def _toggle_bulk(self) -> None:
        is_opening = self.bulk.layout.display == "none"
        if is_opening:
            self._press(self._fill_bulk)
        else:
            self.bulk.withdraw()
        components.set_visible(self.bulk, is_opening)
        self.table.has_marks = is_opening
        self.bulk_button.description = "Close cancellation" if is_opening else "Cancel several…"

    def _fill_form(self) -> None:
        self.form.prepare(self.filters.pipeline.options, self.filters.pipeline.value)

    def _fill_bulk(self) -> None:
        self.bulk.pipeline.options = self.filters.pipeline.options
        self.bulk.pipeline.value, self.bulk.branch.value = self.filters.pipeline.value, self.filters.branch.value

    def _on_bulk_done(self) -> None:
        """Load the list and the selected build again: any of them may have been canceled."""
        self.load()
        self.details.load_again()

    def _on_build_changed(self, build: spec.Build) -> None:
        """Update or add the row of a build that was canceled or created, without loading all builds again."""
        if build.pipeline is None or build.pipeline.slug is None or build.number is None:
            return
        self._outdated[build.pipeline.slug, build.number] = None
        builds = list(self._outdated)
        self._update_tasks.restart(lambda task: [self._load_row(*each) for each in builds], self._on_rows_updated)

    def _load_row(self, slug: str, number: int) -> pd.DataFrame | str:
        """Return a build with its row, or an error message."""
        try:
            return with_rows(components.pipeline_of(self._ws, slug).history_of(number).builds)
        except BuildframeError as error:
            return f"The row of {slug} #{number} could not be updated. {html.error_text(error)}"

    def _on_rows_updated(self, results: list[pd.DataFrame | str]) -> None:
        self._outdated.clear()
        self._on_select()  # as in `_add`
        if frames := [each for each in results if not isinstance(each, str)]:
            self._shown.update(pd.concat(frames))
            self._update_table()
        self._show_status("\n".join(each for each in results if isinstance(each, str)))

    def _on_update_error(self, error: BaseException) -> None:
        self._outdated.clear()
        self.status.show_error(error)
