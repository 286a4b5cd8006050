"""Cancel many builds: those that are marked in a table, or all of a branch, after one question."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets
import pandas as pd

from buildframe import spec
from buildframe.formatting import format_count, format_name
from buildframe.spec.builds import CANCELABLE_STATES
from buildframe.widgets import components, html
from buildframe.widgets.background_tasks import BackgroundTask
from buildframe.widgets.data_table import DataTable, Row, TableColumn, to_cells, to_rows
from buildframe.workspace import PipelineWorkspace, Workspace
from buildframe.workspace.cancellation import CanceledBuild, cancel_each

_MAX_NAMES = 12
_COLUMNS = ["pipeline", "number", "branch", "state", "web_url"]
_OUTCOME_COLUMNS = (
    TableColumn("Build", lambda row: html.build_name(row["pipeline"], row["number"]), width="minmax(96px, 1fr)"),
    TableColumn("Outcome", "outcome", "state", "104px"),
    TableColumn("Branch", "branch", width="minmax(80px, 1fr)", rank=2),
    TableColumn("State before", "state", "state", "110px", rank=1),
    TableColumn("Reason", lambda row: html.first_line(row["reason"]), width="minmax(120px, 3fr)"),
)


class BulkCancel(components.WorkspaceWidget):
    """
    Cancels builds after one question that says how many they are, and shows the outcome of each.

    `find_marked` returns the marked builds, with the columns pipeline, number, branch, state and web_url. `on_done` is
    called after the last outcome.
    """

    def __init__(
        self, ws: Workspace | PipelineWorkspace, *, find_marked: Callable[[], pd.DataFrame], on_done: Callable[[], None]
    ) -> None:
        super().__init__(ws)
        self._find_marked, self._on_done = find_marked, on_done
        self._builds: list[CanceledBuild] = []
        self._outcomes: list[CanceledBuild] = []
        self._is_stopped = False
        self.pipeline = ipywidgets.Combobox(description="Pipeline to cancel in", placeholder="all")
        self.branch = ipywidgets.Text(description="Branch to cancel", placeholder="* matches any text: feature/*")
        button = self.status.create_button
        self.marked_button = button("", "Cancel them (asks first)", self._ask_marked, "bf-cancel-marked")
        self.branch_button = button(
            "Cancel all of this branch…", "Find its unfinished builds, and ask", self._press_branch, "bf-cancel-branch"
        )
        self.yes = button("Yes", "Cancel all of them", self._start, "bf-yes")
        self.yes.button_style = "danger"
        self.no = button("Keep all running", "Change nothing (Escape)", self._decline, "bf-no")
        self.stop = button("Stop", "Send no further cancellation", self._stop)
        self.question = ipywidgets.HTML()
        self.table = DataTable("Outcomes", _OUTCOME_COLUMNS)
        self.show_marked(0)
        self._show_parts(*self._create_parts())
        components.add_classes(self, "bf-accessible", "bf-bulk")
        for part in (self.confirmation, self.stop, self.table):
            components.set_visible(part, False)

    def _create_parts(self) -> list[ipywidgets.Widget]:
        hint = ipywidgets.HTML(html.hint("Mark builds in the table (click the box, or press Space), or name a branch."))
        inputs = [self.branch] if isinstance(self._ws, PipelineWorkspace) else [self.pipeline, self.branch]
        buttons = ipywidgets.HBox([self.marked_button, self.branch_button], layout={"flex_flow": "row wrap"})
        choices = ipywidgets.HBox([self.yes, self.no], layout={"flex_flow": "row wrap"})
        self.confirmation = components.add_classes(ipywidgets.VBox([self.question, choices]), "bf-confirmation")
        labels = {".bf-confirmation": "Confirmation", ".bf-bulk": "Cancel several builds"}
        attributes = {selector: {"role": "group", "aria-label": label} for selector, label in labels.items()}
        self._accessibility = components.AccessibilityHelper(escape=".bf-no", attributes=attributes)
        grid = components.input_grid(inputs)
        return [hint, grid, buttons, self.confirmation, self.status, self.stop, self.table, self._accessibility]

    def show_marked(self, count: int) -> None:
        """Show how many builds are marked."""
        self.marked_button.description = f"Cancel {format_count(count, 'marked build')}…"
        self._n_marked = count
        self._update_buttons()

    def _update_buttons(self) -> None:
        self.marked_button.disabled = self._tasks.is_busy or not self._n_marked
        self.branch_button.disabled = self._tasks.is_busy

    def _ask_marked(self) -> None:
        if self._is_canceling:
            return
        self._withdraw_search()
        builds = self._find_marked()
        self._ask(builds[builds["state"].isin(CANCELABLE_STATES)], f"of {format_count(len(builds), 'marked build')}")

    @property
    def _is_canceling(self) -> bool:
        return bool(self.stop.layout.display != "none")

    def _withdraw_search(self) -> None:
        """End a search of the builds of a branch, because another button was pressed."""
        if self._tasks.is_busy and not self._is_canceling:
            self._tasks.cancel()
            self.status.show("")
            self._update_buttons()

    def _press_branch(self) -> None:
        if self._tasks.is_busy:
            return
        components.set_visible(self.confirmation, False)
        self.status.show_action("Looking for unfinished builds …")
        self._start_with_inputs(self._ask_branch)
        self._update_buttons()

    def _ask_branch(self) -> None:
        """List the unfinished builds of the branch, and ask."""
        self._update_buttons()
        branch, slug = self.branch.value.strip(), self.pipeline.value.strip()
        if not branch:
            self.status.show_error("Enter the branch whose builds are to be canceled. * is all branches.")
            return
        source = self._ws.pipeline(slug) if slug and isinstance(self._ws, Workspace) else self._ws
        filters: dict[str, Any] = {} if branch == "*" else {"branch": branch}
        place = f"of branch {format_name(branch)}{f' of {format_name(slug)}' if slug else ''}"
        self.status.show_action(f"Looking for unfinished builds {place} …")
        self._tasks.restart(
            lambda _: source.builds(state=CANCELABLE_STATES, columns=_COLUMNS, progress=False, **filters),
            lambda builds: self._ask(builds, place),
            on_start=self._update_buttons,
        )

    def _ask(self, builds: pd.DataFrame, place: str) -> None:
        self._builds = [_to_cancel(row) for row in to_rows(builds)]
        self._update_buttons()
        components.set_visible(self.confirmation, bool(self._builds))
        if not self._builds:
            self.status.show(f"Nothing to cancel {place}: no build is scheduled, running or failing.")
            return
        self.status.show("")
        count = format_count(len(self._builds), "build")
        self.question.value = html.message(f"Cancel {count} {place}: {_names(self._builds)}? {_LOST}", is_error=True)
        self.yes.description = f"Yes, cancel {count}"
        self._accessibility.move_focus(".bf-no")

    def withdraw(self) -> None:
        """End a search, or a question that was not answered."""
        self._withdraw_search()
        components.set_visible(self.confirmation, False)

    def _decline(self) -> None:
        self.withdraw()
        self._accessibility.move_focus(".bf-cancel-branch")

    def _stop(self) -> None:
        self._is_stopped, self.stop.disabled = True, True

    def _start(self) -> None:
        if self.confirmation.layout.display == "none" or self._tasks.is_busy:
            return  # the second click of a double click
        builds, ws = self._builds, self._ws
        self._outcomes, self._is_stopped, self.stop.disabled = [], False, False
        components.set_visible(self.confirmation, False)
        components.set_visible(self.stop, True)
        components.set_visible(self.table, True)
        self.table.set_rows([])

        def cancel(build: CanceledBuild) -> spec.Build:
            return components.pipeline_of(ws, build.pipeline).cancel(build.number)

        def run(task: BackgroundTask) -> None:
            for outcome in cancel_each(cancel, builds, lambda: self._is_stopped or task.is_canceled):
                task.update(functools.partial(self._add, outcome))

        # Not `start`, which would be refused while a search that was withdrawn has yet to end.
        self._tasks.restart(run, lambda _: self._end(), on_start=self._show_start)
        self._accessibility.move_focus(".bf-bulk .bf-grid")

    def _show_start(self) -> None:
        self._update_buttons()
        self._show_progress()

    def _add(self, outcome: CanceledBuild) -> None:
        self._outcomes.append(outcome)
        self.table.set_rows([to_cells(each._asdict(), _OUTCOME_COLUMNS) for each in self._outcomes])
        self._show_progress()

    def _show_progress(self) -> None:
        share = len(self._outcomes) / len(self._builds)
        text = f"Canceling: {len(self._outcomes):,} of {format_count(len(self._builds), 'build')} …"
        self.status.show_action(text)
        self.status.show(text, extra=html.fragment("progress_bar", share, "Share of the builds handled"))

    def _end(self) -> None:
        components.set_visible(self.stop, False)
        self._update_buttons()
        counts = pd.Series([each.outcome for each in self._outcomes]).value_counts()
        text = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
        summary = f"{format_count(len(self._outcomes), 'build')}: {text}."
        if set(counts.index) - {"canceled"}:
            self.status.show_error(f"{summary} The table says why. Canceling again is safe.")
        else:
            self.status.show(summary)
        self._on_done()

    def _on_error(self, error: BaseException) -> None:
        components.set_visible(self.stop, False)
        self._update_buttons()
        self.status.show_error(error)


_LOST = "Their jobs stop and their work is lost."


def _to_cancel(row: Row) -> CanceledBuild:
    return CanceledBuild(row["pipeline"], int(row["number"]), row["branch"], row["state"], "", web_url=row["web_url"])


def _names(builds: Sequence[CanceledBuild]) -> str:
    """Return the names of the first builds, and how many others there are."""
    names = [html.build_name(build.pipeline, build.number) for build in builds[:_MAX_NAMES]]
    more = len(builds) - len(names)
    return ", ".join(names) + (f" and {format_count(more, 'other build')}" if more else "")
