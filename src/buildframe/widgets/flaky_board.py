"""The board of flaky tests: those of a suite by rank, with owners, price, and the history that a store recorded."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, cast

import ipywidgets
import pandas as pd

from buildframe import metrics
from buildframe.errors import BadInput, NotFound
from buildframe.formatting import (
    format_count,
    format_duration,
    format_name,
    label_steps,
    suggest_names,
)
from buildframe.guards.arguments import checked_names
from buildframe.metrics.input_frames import Frame
from buildframe.spec.flaky_tests import FlakyTestFilters
from buildframe.store.store import Store
from buildframe.terminal import show
from buildframe.widgets import components, html
from buildframe.widgets.background_tasks import BackgroundTask
from buildframe.widgets.data_table import DataTable, Row, TableColumn, to_cells, to_rows
from buildframe.widgets.flaky_test_history import QUIET_AFTER_S, SuiteHistory, load_history, render_history
from buildframe.widgets.team_names import load_team_names, parse_ids
from buildframe.workspace import Workspace
from buildframe.workspace.flaky_windows import FlakyTestLists

_STATUS_CHOICES = ("all", "active", "resolved")
_MAX_INPUT_DELAY = 0.2  # seconds within which a value arrives that was typed before Enter or a click


_CLAUSES = {"search": "whose name or scope contains “{}”", "branch": "that flaked at least once on branch “{}”"}


class FlakyBoard(components.WorkspaceWidget):
    """
    Rank the flaky tests of a suite, active ones first: search, filter, sort and select them.

    The service searches by name or scope, and by branch. With a `store` that has synced the suite, each test also has a
    history of its instances. With `jobs` and `step`, the board reports what flaky failures of the suite's steps cost.

    Parameters
    ----------
    ws : Workspace
        Workspace of one organization.
    suite : str
        Slug of a test suite, such as `"rspec"`.
    store : Store, optional
        Store with the history of the suite, recorded by `store.sync(ws, suites=[suite])` or `buildframe sync`. By
        default the board shows only the current state of each test.
    jobs : DataFrame, optional
        Jobs of the builds that ran the suite, with all attempts, as returned by
        `ws.jobs(created_from="14d", include_retried_jobs=True)`. Needs the columns that `metrics.flake_score` needs.
    step : str or sequence of str, optional
        Names of the steps that run the suite, as in `metrics.step`. Needed with `jobs`.

    Attributes
    ----------
    board : pandas.DataFrame
        Result of `metrics.flaky_board` for the loaded tests, with active tests before resolved ones.

    Raises
    ------
    BadInput
        If `ws` is not a workspace of one organization, `suite` is not a slug, `store` is not a store, or only one of
        `jobs` and `step` is given.

    See Also
    --------
    buildframe.metrics.flaky_board : The ranking.
    buildframe.metrics.flaky_lifecycle : The status of each test in a stored history.
    buildframe.metrics.flake_score : What flaky failures of a step cost.

    Notes
    -----
    Tests and history load in a background thread, at once and at each search. Needs the scope `read_suites`. The names
    of owners need the scope of GraphQL; without it the board shows the UUIDs of teams. The service does not report
    which builds a flake failed, so only the price of a whole step is known, not that of a test.

    Examples
    --------
    >>> board = widgets.FlakyBoard(ci, "rspec")
    >>> [column["title"] for column in board.table.columns][:4]
    ['Rank', 'Test', 'Status', 'Instances']
    """

    @checked_names
    def __init__(
        self,
        ws: Workspace,
        suite: str,
        *,
        store: Store | None = None,
        jobs: Frame | None = None,
        step: str | Sequence[str] | None = None,
    ) -> None:
        if not isinstance(suite, str) or not suite.strip():
            raise BadInput(f"suite={show(suite)} is not a slug. Pass the slug of one test suite, such as 'rspec'.")
        if store is not None and not isinstance(store, Store):
            raise BadInput(f"store={show(store)} is not a store. Pass one, such as Store('ci-history'), or None.")
        if (jobs is None) != (step is None):
            raise BadInput("Pass both jobs= and step=, the names of the steps that run the suite, or neither.")
        super().__init__(ws, may_be_pipeline=False, _view_count=0)
        self.suite, self._store, self._organization = suite, store, ws
        self._lists = FlakyTestLists(ws)
        self._jobs, self._steps = jobs, [step] if isinstance(step, str) else list(step or [])
        self._teams: dict[str, str] | str = {}
        self._query: FlakyTestFilters = {}
        self._tests = self.board = pd.DataFrame()
        self._history: SuiteHistory | None = None
        self.store_status, self.price = components.StatusLine(), components.StatusLine()
        self.table = DataTable(f"Flaky tests of {html.label(suite)}", TABLE_COLUMNS)
        self.properties, self.history = ipywidgets.HTML(), ipywidgets.HTML()
        self.search = self._create_input("Name or scope contains", "Searched by the service")
        self.branch = self._create_input("Branch", "Tests that flaked at least once on this branch")
        self.shown = ipywidgets.Dropdown(description="Status", options=_STATUS_CHOICES)
        self.load_button = self.status.create_button("Search", "Search the service", self._load_soon)
        self.load_button.button_style = "primary"
        inputs = [components.input_grid([self.search, self.branch, self.shown]), ipywidgets.HBox([self.load_button])]
        columns = components.add_classes(ipywidgets.Box([self.properties, self.history]), "bf-two-columns")
        self._show_parts(*inputs, self.status, self.price, self.table, self.store_status, columns)
        self.layout.width = "100%"
        self.table.observe(self.status.guard(lambda _: self._on_select()), "selected")
        self.shown.observe(self.status.guard(lambda _: self._filter()), "value")
        self.observe(self.status.guard(lambda _: self._on_views_changed()), "_view_count")
        self.load()

    def _create_input(self, label: str, tooltip: str) -> ipywidgets.Text:
        layout = {"grid_column": "span 2"}
        text = ipywidgets.Text(description=label, placeholder="all", tooltip=tooltip, layout=layout)
        components.on_enter(text, self.status.guard(self._load_soon))
        return text

    def _load_soon(self) -> None:
        self._tasks.call_later(_MAX_INPUT_DELAY, self.load)

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

        def run(task: BackgroundTask) -> dict[str, str] | str:
            tests, _ = self._lists.list(self.suite, **query, progress=False)
            task.update(lambda: self.status.guard(self._show)(tests))
            history = self._load_history(tests)
            task.update(lambda: self.status.guard(self._show_history)(history))
            if self._jobs is not None and not self.price.value:
                costs = _describe_price(self._jobs, self._steps)
                task.update(lambda: self.price.show(costs))
            needs_names = not self._teams and tests["ownership_team_ids"].notna().any()
            return load_team_names(self._organization) if needs_names else self._teams

        self._tasks.restart(run, self._show_owners)

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

    def _show_owners(self, teams: dict[str, str] | str) -> None:
        if teams and teams != self._teams:
            self._teams = teams
            self._rank()
            self._on_select()

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
        """Rank the tests, active ones first; the first recorded states only make the first sign earlier."""
        before = self._history.first_states(self._tests) if self._history is not None else None
        ranked = metrics.flaky_board(self._tests, before)
        self.board = ranked.sort_values("is_resolved", kind="stable", ignore_index=True)
        tests = self._tests.set_index("id").reindex(self.board["id"])
        more = {
            "rank": range(1, len(self.board) + 1),
            "status": self._statuses(),
            "seen_by": tests["fetched_at"].array - pd.to_timedelta(self.board["age_at_least_s"], unit="s"),
            "owner": [self._owner(ids) for ids in tests["ownership_team_ids"]],
        }
        rows = to_rows(self.board.assign(**more))
        self.table.set_rows([to_cells(row, TABLE_COLUMNS) for row in rows], self._visible_rows())

    def _statuses(self) -> pd.Series[str]:
        """
        Return the status of each test: whether it is resolved now, and for others what the store knows.

        The list is newer than the store: a test that it shows as seen lately is not quiet.
        """
        board = self.board
        status = pd.Series("active", board.index).mask(board["recurred"], "recurred")
        status = status.mask(board["is_resolved"], "resolved")
        if self._history is None:
            return status
        known = board["id"].map(self._history.tests["status"]).replace("resolved", "quiet")  # it is not resolved now
        has_flaked_since = (known == "quiet") & ~(board["last_seen_s"] > QUIET_AFTER_S)
        return status.where(board["is_resolved"] | known.isna() | has_flaked_since, known)

    def _owner(self, ids: object) -> str:
        """Return the names of teams; the UUID of those without a known name."""
        names = self._teams if isinstance(self._teams, dict) else {}
        return ", ".join(names.get(id, id) for id in parse_ids(ids))

    def _visible_rows(self) -> list[int] | None:
        if self.shown.value == "all" or self.board.empty:
            return None
        matches = self.board["is_resolved"] == (self.shown.value == "resolved")
        return [int(index) for index in self.board.index[matches]]

    def _filter(self) -> None:
        self.table.visible_rows = self._visible_rows()

    def _caption(self) -> str:
        query, metadata = self._query, self._tests.attrs
        as_of = f"{html.plain(pd.Timestamp(metadata['as_of']))} UTC" if metadata["as_of"] else "an unknown time"
        if self._tests.empty:
            return f"The suite {format_name(self.suite)} has no flaky test{_clause(query)}, as of {as_of}."
        n_resolved = int(self.board["is_resolved"].sum())
        count = format_count(len(self._tests), "flaky test")
        n_recurred = int((self.board["recurred"] & ~self.board["is_resolved"]).sum())
        recurred = f" ({n_recurred:,} recurred after being resolved)" if n_recurred else ""
        note = f"; {metadata['note']}" if metadata["note"] else ""
        branches = ", on any branch." if "branch" in query else "."
        return (
            f"{count} of the suite {format_name(self.suite)}{_clause(query)}, as of {as_of}{note}.\n"
            f"{len(self.board) - n_resolved:,} active{recurred}, {n_resolved:,} resolved. "
            f"Ranked by instances: how often the service detected the test as flaky{branches}"
        )

    def _on_select(self) -> None:
        if not 0 <= self.table.selected < len(self.board):
            return
        (test,) = to_rows(self.board.iloc[[self.table.selected]])
        record = self._tests[self._tests["id"] == test["id"]].iloc[0]
        self.properties.value = html.render("flaky_test", **self._describe(test, record))
        if self._history is not None:
            self.history.value = render_history(self._history, test["id"], test["instances"])

    def _describe(self, test: Row, record: pd.Series[Any]) -> dict[str, Any]:
        own, all_instances = test["instances"], int(self.board["instances"].sum())
        share = None if own is None or not all_instances else own / all_instances
        missing_names = f" (names of teams are unknown: {self._teams})" if isinstance(self._teams, str) else ""
        owner = self._owner(record["ownership_team_ids"])
        return {
            "name": _test_name(test), "test": test, "file_name": record["file_name"], "web_url": record["web_url"],
            "owner": owner and owner + missing_names, "share": share,
            "has_price": self._jobs is not None,
        }  # fmt: skip


def _describe_price(jobs: Frame, steps: Sequence[str]) -> str:
    """Return what flaky failures of the steps cost, as text with a line for each step of each pipeline."""
    scores = metrics.flake_score(jobs)
    labels = label_steps(scores["step"], scores["pipeline"])
    found = to_rows(scores.assign(label=labels)[scores["step"].isin(steps)])
    missing = [name for name in steps if name not in set(scores["step"])]
    lines = [
        f"Flaky failures of the step {format_name(row['label'])} of {format_name(row['pipeline'])} in these jobs: "
        f"{format_count(row['red_builds'], 'red build')}, {format_duration(row['machine_s'])} of machine time, and "
        f"{format_duration(row['waiting_s'])} until the commits passed."
        for row in found
    ]
    known = sorted(set(scores["step"].dropna()))
    for name in missing:
        advice = suggest_names(name, known, "Steps of these jobs")
        lines.append(f"These jobs contain no step {format_name(name)}, so its price is unknown. {advice}")
    return "\n".join(lines)


def _clause(query: FlakyTestFilters) -> str:
    """Return the filters as a relative clause."""
    clauses = " and ".join(_CLAUSES[name].format(format_name(value)) for name, value in query.items())
    return f" {clauses}" if clauses else ""


def _test_name(test: Row) -> str:
    """Return scope and name; each is isolated if it is written from right to left."""
    name = format_name(test["name"])
    return f"{format_name(test['scope'])} · {name}" if test["scope"] else name


TABLE_COLUMNS = (
    TableColumn("Rank", "rank", "number", "74px", rank=2),
    TableColumn("Test", _test_name, "name", width="minmax(200px, 4fr)"),
    TableColumn("Status", "status", "state", "100px"),
    TableColumn("Instances", "instances", "number", "90px"),
    TableColumn("Last seen (UTC)", "latest_occurrence_at", "time", "142px"),
    TableColumn("First seen by (UTC)", "seen_by", "time", "154px", rank=1),
    TableColumn("Owner", "owner", width="minmax(90px, 1fr)", rank=3),
    TableColumn("Location", "location", "path", "minmax(140px, 2fr)", rank=4),
)
