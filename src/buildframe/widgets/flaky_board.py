"""The board of flaky tests: the tests of a suite by rank, and their history if a store has recorded it."""

from __future__ import annotations

import shlex
from typing import cast

import ipywidgets
import pandas as pd

from buildframe import metrics
from buildframe.errors import BadInput, NotFound
from buildframe.formatting import format_count, format_name
from buildframe.guards.arguments import checked_names
from buildframe.spec.flaky_tests import FlakyTestFilters
from buildframe.store.store import Store
from buildframe.widgets import components, html
from buildframe.widgets.background_tasks import BackgroundTask
from buildframe.widgets.data_table import DataTable, Row, TableColumn, to_cells, to_rows
from buildframe.widgets.flaky_test_history import SuiteHistory, load_history, render_history
from buildframe.workspace import Workspace

_DAY = 86_400
_MAX_INPUT_DELAY = 0.2  # seconds within which a value arrives that was typed before Enter


_CLAUSES = {
    "search": "whose name or scope contains “{}”",
    "branch": "that flaked at least once on branch “{}”",
}


class FlakyBoard(components.WorkspaceWidget):
    """
    Rank the flaky tests of a suite by instances: search, sort and select them.

    The service searches by name or scope, and by branch. With a `store` that has synced the suite, each test also has a
    status and a history of its instances.

    Parameters
    ----------
    ws : Workspace
        Workspace of one organization.
    suite : str
        Slug of a test suite, such as `"rspec"`.
    store : Store, optional
        Store with the history of the suite, recorded by `store.sync(ws, suites=[suite])` or `buildframe sync`. By
        default the board shows only the current state of each test.

    Attributes
    ----------
    board : pandas.DataFrame
        Result of `metrics.flaky_board` for the loaded tests.

    Raises
    ------
    BadInput
        If `ws` is not a workspace of one organization, `suite` is not a slug, or `store` is not a store.

    See Also
    --------
    buildframe.metrics.flaky_board : The ranking.
    buildframe.metrics.flaky_lifecycle : The status of each test.

    Notes
    -----
    Tests and history load in a background thread, at once and at each search. Needs the scope `read_suites`.

    Examples
    --------
    >>> board = widgets.FlakyBoard(ci, "rspec")
    >>> [column["title"] for column in board.table.columns][:4]
    ['Rank', 'Test', 'Instances', 'Last seen (UTC)']
    """

    @checked_names
    def __init__(self, ws: Workspace, suite: str, *, store: Store | None = None) -> None:
        if not isinstance(suite, str) or not suite.strip():
            raise BadInput(f"suite={suite!r} is not a slug. Pass the slug of one test suite, such as 'rspec'.")
        if store is not None and not isinstance(store, Store):
            raise BadInput(f"store={store!r} is not a store. Pass one, such as Store('ci-history'), or None.")
        super().__init__(ws, may_be_pipeline=False, _view_count=0)
        self.suite, self._store, self._list_tests = suite, store, ws.flaky_tests
        self._query: FlakyTestFilters = {}
        self._tests = self.board = pd.DataFrame()
        self._history: SuiteHistory | None = None
        self.store_status = components.StatusLine()
        self.table = DataTable(f"Flaky tests of {html.label(suite)}", TABLE_COLUMNS)
        self.properties, self.history = ipywidgets.HTML(), ipywidgets.HTML()
        self.search = self._create_input("Name or scope contains", "Searched by the service")
        self.branch = self._create_input("Branch", "Tests that flaked at least once on this branch")
        self.load_button = self.status.create_button("Search", "Search the service", self.load)
        self.load_button.button_style = "primary"
        inputs = [components.input_grid([self.search, self.branch]), ipywidgets.HBox([self.load_button])]
        columns = components.add_classes(ipywidgets.Box([self.properties, self.history]), "bf-two-columns")
        self._show_parts(*inputs, self.status, self.table, self.store_status, columns)
        self.layout.width = "100%"
        self.table.observe(self.status.guard(lambda _: self._on_select()), "selected")
        self.observe(self.status.guard(lambda _: self._on_views_changed()), "_view_count")
        self.load()

    def _create_input(self, label: str, tooltip: str) -> ipywidgets.Text:
        layout = {"grid_column": "span 2"}
        text = ipywidgets.Text(description=label, placeholder="all", tooltip=tooltip, layout=layout)
        components.on_enter(text, self.status.guard(lambda: self._tasks.call_later(_MAX_INPUT_DELAY, self.load)))
        return text

    def load(self) -> None:
        """Load the tests that match search and branch. Previous rows are removed."""
        values = {"search": self.search.value.strip(), "branch": self.branch.value.strip()}
        query = cast("FlakyTestFilters", {name: value for name, value in values.items() if value})
        if self._tasks.is_busy and query == self._query:
            return  # the second click of a double click
        self._query = query
        self._tests = self.board = pd.DataFrame()
        self.table.set_rows([])
        self.properties.value = self.history.value = ""
        self.store_status.show("")
        self.status.show_action(f"Loading the flaky tests of {format_name(self.suite)}{_clause(query)} …")

        def run(task: BackgroundTask) -> SuiteHistory | Exception | None:
            tests = self._list_tests(self.suite, **query, progress=False)
            task.update(lambda: self.status.guard(self._show)(tests))
            return self._load_history(tests)

        self._tasks.restart(run, self._show_history)

    def _load_history(self, tests: pd.DataFrame) -> SuiteHistory | Exception | None:
        """Return the history, None without a store, or the error: the list is useful without history."""
        if self._store is None:
            return None
        try:
            return load_history(self._store, str(self._ws.organization), self.suite, tests)
        except Exception as error:
            return error

    def _show(self, tests: pd.DataFrame) -> None:
        self._tests = tests
        self._rank()
        self.status.show(self._caption())
        if self._store is not None:
            self.store_status.show("Reading the store …")
        if len(tests):
            self.properties.value = html.hint("Select a test in the table with the arrow keys or a click.")

    def _show_history(self, result: SuiteHistory | Exception | None) -> None:
        self._history = result if isinstance(result, SuiteHistory) else None
        if isinstance(result, SuiteHistory):
            times = f"from {html.plain(result.first)} to {html.plain(result.last)} UTC"
            self.store_status.show(f"History from the store at {result.store_url}: snapshots {times}.")
        elif result is None:
            text = "Test history needs a store: the service reports only the current state of a test."
            self.store_status.show(f"{text}\n{self._instructions()}")
        else:
            self.store_status.show_error(f"No test history. {html.error_text(result)}\n{self._instructions()}")
        self._rank()
        self._on_select()

    def _instructions(self) -> str:
        folder = "ci-history" if self._store is None else self._store._location.url
        create = 'store = bf.Store("ci-history"); ' if self._store is None else ""
        board = f"FlakyBoard(ws, {self.suite!r}, store=store)"
        return (
            f"To record it on a schedule: buildframe sync {shlex.quote(folder)} --suite {shlex.quote(self.suite)}\n"
            f"Or from Python: {create}store.sync(ws, suites=[{self.suite!r}]), then {board}"
        )

    def _on_error(self, error: BaseException) -> None:
        suite, organization = format_name(self.suite), format_name(self._ws.organization)
        failure = f"Flaky tests of the suite {suite} of {organization} could not be loaded."
        advice = (
            "\nCheck that this is the suite's slug, as in the service's URLs." if isinstance(error, NotFound) else ""
        )
        self.status.show_error(f"{failure}\n{html.error_text(error)}{advice}")

    def _on_views_changed(self) -> None:
        """Cancel loading if nothing displays the widget, for example because its cell ran again."""
        if self._view_count == 0 and self._tasks.is_busy:
            self._tasks.cancel()
            self.status.show("Stopped because the widget was not displayed. Press Search to load again.")

    def _rank(self) -> None:
        """Rank the tests; the first recorded states only make ages longer."""
        before = self._history.first_states(self._tests) if self._history is not None else None
        self.board = metrics.flaky_board(self._tests, before)
        columns = TABLE_COLUMNS if self._history is None else TABLE_COLUMNS_WITH_HISTORY
        known = None if self._history is None else self._history.tests["status"]
        status = None if known is None else self.board["id"].map(known).fillna("not stored")
        age_in_days = (self.board["age_at_least_s"] / _DAY).round(1)
        rows = to_rows(self.board.assign(rank=range(1, len(self.board) + 1), status=status, age_in_days=age_in_days))
        with self.table.hold_sync():
            self.table.set_columns(columns)
            self.table.set_rows([to_cells(row, columns) for row in rows])

    def _caption(self) -> str:
        query, metadata = self._query, self._tests.attrs
        as_of = f"{html.plain(pd.Timestamp(metadata['as_of']))} UTC" if metadata["as_of"] else "an unknown time"
        if self._tests.empty:
            return f"The suite {format_name(self.suite)} has no flaky test{_clause(query)}, as of {as_of}."
        count = format_count(len(self._tests), "flaky test")
        note = f"; {metadata['note']}" if metadata["note"] else ""
        branches = ", on any branch." if "branch" in query else "."
        return (
            f"{count} of the suite {format_name(self.suite)}{_clause(query)}, as of {as_of}{note}.\n"
            f"Ranked by instances: how often the service detected the test as flaky{branches}"
        )

    def _on_select(self) -> None:
        if not 0 <= self.table.selected < len(self.board):
            return
        (test,) = to_rows(self.board.iloc[[self.table.selected]])
        record = self._tests[self._tests["id"] == test["id"]].iloc[0]
        self.properties.value = html.render(
            "flaky_test", name=_test_name(test), test=test, file_name=record["file_name"], web_url=record["web_url"]
        )
        if self._history is not None:
            self.history.value = render_history(self._history, test["id"], test["instances"])


def _clause(query: FlakyTestFilters) -> str:
    """Return the filters as a relative clause."""
    clauses = " and ".join(_CLAUSES[name].format(format_name(value)) for name, value in query.items())
    return f" {clauses}" if clauses else ""


def _test_name(test: Row) -> str:
    """Return scope and name; each is isolated if it is written from right to left."""
    name = format_name(test["name"])
    return f"{format_name(test['scope'])} · {name}" if test["scope"] else name


def _resolution(test: Row) -> str:
    return "never" if test["last_resolved_at"] is None else "recurred" if test["recurred"] else "resolved"


TABLE_COLUMNS = (
    TableColumn("Rank", "rank", "number", "70px"),
    TableColumn("Test", _test_name, width="minmax(200px, 4fr)"),
    TableColumn("Instances", "instances", "number", "94px"),
    TableColumn("Last seen (UTC)", lambda test: html.plain(test["latest_occurrence_at"])[:16], width="142px"),
    TableColumn("Age ≥ (days)", "age_in_days", "number", "108px"),
    TableColumn("Resolved", _resolution, width="84px"),
    TableColumn("Location", "location", width="minmax(110px, 2fr)"),
)
TABLE_COLUMNS_WITH_HISTORY = (*TABLE_COLUMNS[:-1], TableColumn("Status", "status", width="84px"), TABLE_COLUMNS[-1])
