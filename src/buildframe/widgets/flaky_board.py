"""The board of flaky tests: those of a suite by rank, and what became of each as far as a store has kept it."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

import ipywidgets
import pandas as pd

from buildframe import metrics
from buildframe.errors import BadInput, NotFound
from buildframe.formatting import clipped, counted, named, span, visible
from buildframe.guards.arguments import checked_names
from buildframe.spec.flaky_tests import FlakyTestFilters
from buildframe.store.store import Store
from buildframe.widgets import html, test_history
from buildframe.widgets.background_tasks import Lane, Piece
from buildframe.widgets.tables import Cell, Column, Table
from buildframe.workspace import Workspace

COLUMNS = (
    Column("Rank", "number", "70px"),
    Column("Test", width="minmax(200px, 4fr)"),
    Column("Instances", "number", "94px"),
    Column("Last seen (UTC)", width="142px"),
    Column("Age ≥ (days)", "number", "108px"),
    Column("Resolved", width="84px"),
    Column("Location", width="minmax(110px, 2fr)"),
)
KEPT_COLUMNS = (*COLUMNS[:-1], Column("Status", width="84px"), COLUMNS[-1])
"""With what a store tells."""

_DAY = 86_400
_ENTER = "submit"  # the event that ipywidgets sends
_BEHIND = 0.2  # seconds in which a value arrives that was sent after the Enter that ended it
_TESTS = {"one": "flaky test", "many": "flaky tests"}


class Asked(NamedTuple):
    """What the service was asked for: nothing means all."""

    search: str = ""
    branch: str = ""

    def filters(self) -> FlakyTestFilters:
        """The filters of the service that it needs."""
        filters: FlakyTestFilters = {}
        if self.search:
            filters["search"] = self.search
        if self.branch:
            filters["branch"] = self.branch
        return filters

    def words(self) -> str:
        """The filters in a sentence."""
        searched = f" whose name or scope contains “{named(self.search)}”" if self.search else ""
        of_branch = f" that flaked at least once on branch “{named(self.branch)}”" if self.branch else ""
        return searched + (" and" if searched and of_branch else "") + of_branch


class FlakyBoard(html.Face):
    """The flaky tests of a suite (its slug): those with most instances first, to search, sort and look at.

    Text and branch are looked for by the service. With a `store` that has synced the suite, each test shows what became
    of it (as `metrics.flaky_lifecycle` tells) and how its instances rose from reading to reading. Tests are loaded, and
    the store is read, off the kernel's thread, at once and with each search. `board` is what `metrics.flaky_board`
    makes of the tests. BadInput: an argument that is none.
    """

    @checked_names
    def __init__(self, ws: Workspace, suite: str, *, store: Store | None = None) -> None:
        _check(ws, suite, store)
        self._ws, self.suite, self._store = ws, suite, store
        self._asked = Asked()
        self._tests = self.board = pd.DataFrame()
        self._past: test_history.Past | None = None
        self.said, self.said_of_store = html.Message(), html.Message()
        self.table = Table(f"Flaky tests of {html.label(suite)}", COLUMNS)
        self.facts, self.history = ipywidgets.HTML(), ipywidgets.HTML()
        self._lane = Lane(self._fail, self._wait)
        self.holds = (self._lane,)
        self._make_inputs()
        super().__init__([ipywidgets.HTML(html.STYLE + test_history.STYLE), *self._parts()], _view_count=0)
        self.layout.width = "100%"
        self.table.observe(html.guarded(self.said, lambda _: self._choose()), "chosen")
        self.observe(html.guarded(self.said, lambda _: self._look()), "_view_count")
        self.load()

    # --- its parts

    def _make_inputs(self) -> None:
        def text(name: str, tip: str) -> ipywidgets.Text:
            made = ipywidgets.Text(description=name, placeholder="all", tooltip=tip, layout={"grid_column": "span 2"})
            made.on_msg(self._heard)
            return made

        self.search = text("Name or scope contains", "As the service searches")
        self.branch = text("Branch", "Tests that flaked at least once on it")
        self.load_button = html.button("Search", "Ask the service", self.load, self.said, "primary")

    def _parts(self) -> list[ipywidgets.Widget]:
        detail = ipywidgets.Box([self.facts, self.history])
        detail.add_class("bf-halves")
        return [
            html.fields([self.search, self.branch]),
            ipywidgets.HBox([self.load_button]),
            self.said,
            self.table,
            self.said_of_store,
            detail,
        ]

    def _heard(self, widget: Any, content: Any, buffers: Any) -> None:
        if content.get("event") == _ENTER:
            self._lane.later(_BEHIND, html.guarded(self.said, self.load))

    # --- loading

    def load(self) -> None:
        """Ask the service with search and branch as they are; what was there before goes."""
        asked = Asked(self.search.value.strip(), self.branch.value.strip())
        if self._lane.busy and asked == self._asked:
            return  # a second click
        self._asked = asked
        self._empty()
        self.said.tell(self._loading())

        def run(piece: Piece) -> test_history.Past | Exception | None:
            tests = self._ws.flaky_tests(self.suite, **asked.filters(), progress=False)
            piece.show(lambda: html.guarded(self.said, self._show)(tests))
            return self._read_store()

        self._lane.instead(run, self._remember)

    def _loading(self) -> str:
        return f"Loading the flaky tests of {named(self.suite)}{self._asked.words()} …"

    def _wait(self, seconds: float, why: str) -> None:
        self.said.tell(html.waiting(self._loading(), seconds, why))

    def _read_store(self) -> test_history.Past | Exception | None:
        """What the store has; what it said where it could not be read, as the list is of use without it."""
        if self._store is None:
            return None
        try:
            return test_history.read(self._store, str(self._ws.organization), self.suite)
        except Exception as why:
            return why

    def _empty(self) -> None:
        """Rows of another question are no answer to this one."""
        self._tests = self.board = pd.DataFrame()
        self.table.fill([])
        self.facts.value = self.history.value = ""
        self.said_of_store.clear()

    def _show(self, tests: pd.DataFrame) -> None:
        self._tests = tests
        self._rank()
        self.said.tell(self._caption())
        if self._store is not None:
            self.said_of_store.tell("Reading the store …")
        if len(tests):
            words = "Choose a test in the table: with the arrow keys, or by a click."
            self.facts.value = f'<div class="bf-hint">{words}</div>'

    def _remember(self, found: test_history.Past | Exception | None) -> None:
        """The store was read, or there is none."""
        strange = self._strange(found) if isinstance(found, test_history.Past) else ""
        self._past = found if isinstance(found, test_history.Past) and not strange else None
        if self._past is not None:
            self.said_of_store.tell(_reach(self._past))
        elif found is None:
            words = "Test history needs a store: the service reports only the current state of a test."
            self.said_of_store.tell(f"{words}\n{self._how()}")
        else:
            why = html.reason(found) if isinstance(found, Exception) else strange
            self.said_of_store.fail(f"No history. {why}\n{self._how()}")
        self._rank()
        self._choose()

    def _strange(self, found: test_history.Past) -> str:
        """What speaks against it: ids are unique, so a store that knows none of them tells nothing of these tests."""
        if self._tests.empty or self._tests["id"].isin(found.tests.index).any():
            return ""
        return (
            f"The store at {found.place} knows none of these tests: it is of another service, which needs a store of "
            f"its own, or they flaked only after its last reading ({html.plain(found.last)} UTC)."
        )

    def _how(self) -> str:
        place = "ci-history" if self._store is None else self._store._location.url
        made = 'store = bf.Store("ci-history"); ' if self._store is None else ""
        again = f"FlakyBoard(ws, {self.suite!r}, store=store)"
        return (
            f"To keep it, by a timer: buildframe sync {shlex.quote(place)} --suite {shlex.quote(self.suite)}\n"
            f"or from here: {made}store.sync(ws, suites=[{self.suite!r}]), then {again}"
        )

    def _fail(self, why: BaseException) -> None:
        asked = f"Flaky tests of the suite {named(self.suite)} of {named(self._ws.organization)} could not be loaded."
        slug = "\nIs this the suite's slug, as in the service's web addresses?" if isinstance(why, NotFound) else ""
        self.said.fail(f"{asked}\n{html.reason(why)}{slug}")

    def _look(self) -> None:
        """Nobody looks any more, as when its cell ran again: what is under way is dropped."""
        if self._view_count == 0 and self._lane.busy:
            self._lane.stop()
            self.said.tell("Stopped, as nobody looked. Search asks again.")

    # --- the table

    def _rank(self) -> None:
        """Rows as `metrics.flaky_board` ranks them; the store's first states make the ages longer, and nothing else."""
        before = self._past.first_states(self._tests) if self._past is not None else None
        self.board = metrics.flaky_board(self._tests, before)
        columns = [column._asdict() for column in (COLUMNS if self._past is None else KEPT_COLUMNS)]
        with self.table.hold_sync():
            if columns != self.table.columns:
                self.table.columns, self.table.order = columns, []
            self.table.fill([self._row(rank, test) for rank, test in enumerate(self.board.to_dict("records"), 1)])

    def _row(self, rank: int, test: dict[Any, Any]) -> list[Cell]:
        age = test["age_at_least_s"]
        return [
            rank,
            _name(test),
            None if pd.isna(test["instances"]) else int(test["instances"]),
            "" if pd.isna(test["latest_occurrence_at"]) else f"{test['latest_occurrence_at']:%Y-%m-%d %H:%M}",
            None if pd.isna(age) else round(age / _DAY, 1),
            _resolved(test),
            *([] if self._past is None else [self._past.status(test["id"])]),
            visible(clipped(html.plain(_known(test["location"])))),
        ]

    def _caption(self) -> str:
        asked = self._asked
        as_of, note = self._tests.attrs["as_of"], self._tests.attrs["note"]
        when = f"as of {html.plain(pd.Timestamp(as_of))} UTC" if as_of else "as of an unknown time"
        if self._tests.empty:
            return f"The suite {named(self.suite)} has no flaky test{asked.words()}, {when}."
        count = counted(len(self._tests), **_TESTS)
        lines = [
            f"{count} of the suite {named(self.suite)}{asked.words()}, {when}{f'; {note}' if note else ''}.",
            "Ranked by instances: how often the service found the test to be flaky"
            + (", which may be on other branches, too." if asked.branch else "."),
        ]
        return "\n".join(lines)

    # --- the chosen test

    def _choose(self) -> None:
        if not 0 <= self.table.chosen < len(self.board):
            return
        test = self.board.iloc[self.table.chosen].to_dict()
        told = self._tests[self._tests["id"] == test["id"]].iloc[0]
        self.facts.value = _facts(test, told)
        if self._past is not None:
            now = None if pd.isna(test["instances"]) else int(test["instances"])
            self.history.value = test_history.told(self._past, str(test["id"]), now)


def _check(ws: object, suite: object, store: object) -> None:
    if not isinstance(ws, Workspace):
        raise BadInput(f"ws={ws!r}: pass a workspace, such as of connect().")
    if ws.organization is None:
        raise BadInput('ws: test suites belong to an organization: connect("acme"), or set BUILDFRAME_ORG.')
    if not isinstance(suite, str) or not suite.strip():
        raise BadInput(f"suite={suite!r}: pass the slug of one test suite, such as 'rspec'.")
    if store is not None and not isinstance(store, Store):
        raise BadInput(f"store={store!r}: pass a store, such as Store('ci-history'), or leave it out.")


def _facts(test: dict[Any, Any], told: Any) -> str:
    seen, resolved = test_history.moment(test["latest_occurrence_at"]), test_history.moment(test["last_resolved_at"])
    number, age = test["instances"], test["age_at_least_s"]
    rows = [
        ("Location", html.text(_known(test["location"]))),
        ("File", html.text(_known(told["file_name"]))),
        ("Instances", "unknown" if pd.isna(number) else f"{number:,}"),
        ("Last seen", f"{seen}, {span(test['last_seen_s'])} before this list" if seen else "unknown"),
        ("Last resolved", f"{resolved}{'; it recurred since' if test['recurred'] else ''}" if resolved else "never"),
        ("Age", "" if pd.isna(age) else f"at least {span(age)}; the service does not tell when it first flaked"),
        ("Page", html.link(_known(told["web_url"]), "open the test's page")),
    ]
    return html.facts(rows, _name(test))


def _reach(kept: test_history.Past) -> str:
    return (
        f"History from the store at {kept.place}: from the reading of {html.plain(kept.first)} UTC, the first that "
        f"listed a test, to that of {html.plain(kept.last)} UTC. Status is as of the last one."
    )


def _name(test: dict[Any, Any]) -> str:
    """Scope and name; each isolated where it is written from the right."""
    scope = _known(test["scope"])
    return f"{named(scope)} · {named(_known(test['name']))}" if scope else named(_known(test["name"]))


def _resolved(test: dict[Any, Any]) -> str:
    if pd.isna(test["last_resolved_at"]):
        return "never"
    return "recurred" if test["recurred"] else "resolved"


def _known(value: Any) -> Any:
    return None if pd.isna(value) else value
