"""The face of the board of flaky tests, without a browser: what the service lists, and what it refuses."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import ipywidgets
import pytest

import buildframe as bf
from buildframe import metrics, widgets
from buildframe.sandbox_server import SCOPES
from buildframe.widgets.flaky_board import COLUMNS, FlakyBoard
from buildframe.workspace import Workspace
from tests.conftest import Scripted, says
from tests.report.untrusted import UNTRUSTED
from tests.widgets.faces_read import settled, words
from tests.widgets.test_html import Seen


@pytest.fixture
def board(ci: Workspace) -> Iterator[FlakyBoard]:
    made = widgets.FlakyBoard(ci, "rspec")
    settled(made._lane)
    yield made
    made.close()


def ask(board: FlakyBoard, search: str = "", branch: str = "") -> None:
    board.search.value, board.branch.value = search, branch
    board.load_button.click()
    settled(board._lane)


def scripted_board(server: Scripted) -> FlakyBoard:
    return FlakyBoard(bf.connect("acme", base_url=server.url, token="t" * 20), "rspec")


def listed(*names: str, **more: object) -> bytes:
    one = {"scope": "Cart", "location": "a.rb:3", "instances": 3, "latest_occurrence_at": "2026-10-30T12:00:00Z"}
    return json.dumps([{"id": f"id-{n}", "name": name, **one, **more} for n, name in enumerate(names)]).encode()


def held_by(gate: threading.Event, *names: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """A list that is answered when the gate opens."""

    def late(handler: BaseHTTPRequestHandler) -> None:
        gate.wait(10)
        says(listed(*names))(handler)

    return late


def test_it_ranks_as_the_metric_does(ci: Workspace, board: FlakyBoard) -> None:
    tests = ci.flaky_tests("rspec", progress=False)
    expected = metrics.flaky_board(tests)
    assert [row[0] for row in board.table.rows] == list(range(1, len(tests) + 1))
    assert [row[2] for row in board.table.rows] == expected["instances"].tolist()
    assert [row[6] for row in board.table.rows] == expected["location"].tolist()
    ages = (expected["age_at_least_s"] / 86_400).round(1)
    assert [row[4] for row in board.table.rows] == ages.tolist()
    assert [row[5] == "resolved" for row in board.table.rows] == expected["is_resolved"].tolist()
    assert [row[5] == "recurred" for row in board.table.rows] == expected["recurred"].tolist()
    assert {row[5] for row in board.table.rows} == {"never", "resolved", "recurred"}
    as_of = tests.attrs["as_of"].replace("T", " ").replace("Z", " UTC")
    assert words(board.said).startswith(f"{len(tests)} flaky tests of the suite rspec, as of {as_of}")
    assert "Ranked by instances: how often the service found the test to be flaky." in words(board.said)


def test_without_a_store_it_says_how_to_get_one(board: FlakyBoard) -> None:
    assert [column["title"] for column in board.table.columns] == [column.title for column in COLUMNS]
    said = words(board.said_of_store)
    assert "buildframe sync ci-history --suite rspec" in said
    assert "store.sync(ws, suites=['rspec']), then FlakyBoard(ws, 'rspec', store=store)" in said
    board.table.chosen = 0
    assert board.history.value == ""


def test_the_chosen_one(ci: Workspace, board: FlakyBoard) -> None:
    assert "Choose a test" in words(board.facts)
    tests = ci.flaky_tests("rspec", progress=False).set_index("id")
    board.table.chosen = 5
    test = tests.loc[board.board["id"].iloc[5]]
    assert f"Instances{test['instances']}" in words(board.facts)
    assert f"Location{test['location']}" in words(board.facts)
    assert [
        attributes["href"] for tag, attributes in Seen(board.facts.value).tags if tag == "a"
    ] == [test["web_url"]]  # fmt: skip


def test_the_service_searches(ci: Workspace, board: FlakyBoard) -> None:
    branches = ci.builds(progress=False)["branch"].unique()
    lists = ((branch, ci.flaky_tests("rspec", branch=branch, progress=False)) for branch in branches)
    branch, of_branch = next((branch, tests) for branch, tests in lists if 1 < len(tests) < len(board.board) / 2)
    search = str(of_branch["scope"].iloc[0])
    expected = metrics.flaky_board(ci.flaky_tests("rspec", search=search, branch=branch, progress=False))
    assert 0 < len(expected) < len(of_branch)
    ask(board, search=search, branch=branch)
    assert board.board["id"].tolist() == expected["id"].tolist()
    assert len(board.table.rows) == len(expected)
    asked = f"whose name or scope contains “{search}” and that flaked at least once on branch “{branch}”"
    assert asked in words(board.said)
    assert "which may be on other branches, too" in words(board.said)


def test_enter_asks(ci: Workspace, board: FlakyBoard) -> None:
    board.search.value = "tax"
    board.search._handle_custom_msg({"event": "submit"}, [])
    settled(board._lane)
    assert len(board.table.rows) == len(ci.flaky_tests("rspec", search="tax", progress=False))


def test_nothing_found_says_what_was_searched(board: FlakyBoard) -> None:
    board.table.chosen = 0
    ask(board, search="<b>none such")
    said = "has no flaky test whose name or scope contains “<b>none such”, as of"
    assert said in words(board.said)
    assert (board.table.rows, board.table.chosen, board.facts.value) == ([], -1, "")


def under_way(server: Scripted) -> None:
    """Until it was asked; its first answer waits."""
    while not server.asked:
        time.sleep(0.01)


def test_a_click_twice_asks_once(scripted: Callable[..., Scripted]) -> None:
    gate = threading.Event()
    server = scripted(held_by(gate, "first"), says(listed("second")))
    board = scripted_board(server)
    under_way(server)
    board.load_button.click()
    gate.set()
    settled(board._lane)
    assert [row[1] for row in board.table.rows] == ["Cart · first"]
    assert len(server.asked) == 1
    board.close()


def test_a_later_search_replaces_the_earlier_one(scripted: Callable[..., Scripted]) -> None:
    gate = threading.Event()
    server = scripted(held_by(gate, "first"), says(listed("second", "third")))
    board = scripted_board(server)
    under_way(server)
    board.search.value = "x"
    board.load_button.click()
    gate.set()
    settled(board._lane)
    assert [row[1] for row in board.table.rows] == ["Cart · second", "Cart · third"]
    assert ["search=x" in path for path in server.asked] == [False, True]
    board.close()


def test_a_suite_that_there_is_not(ci: Workspace) -> None:
    board = FlakyBoard(ci, "rpsec")
    settled(board._lane)
    assert re.search(r"rpsec of acme could not be loaded\.\s*404: No suite found", words(board.said))
    assert "Is this the suite's slug" in words(board.said)
    assert 'role="alert"' in board.said.value
    board.close()


def test_a_token_that_lacks_the_scope(ci: Workspace) -> None:
    board = FlakyBoard(bf.connect("acme", base_url=ci.sandbox.url, token=ci.sandbox.token()), "rspec")
    settled(board._lane)
    assert "doesn't have the read_suites scope" in words(board.said)
    assert "Use a token that has the scope read_suites." in words(board.said)
    board.close()


def test_an_error_leaves_no_old_rows(scripted: Callable[..., Scripted]) -> None:
    board = scripted_board(scripted(says(listed("a")), says(b'{"message": "Not <b>now</b>"}', 401)))
    settled(board._lane)
    board.table.chosen = 0
    assert board.facts.value
    ask(board, search="tax")
    assert "401: Not <b>now</b>" in words(board.said)
    assert (board.table.rows, board.facts.value, words(board.said_of_store)) == ([], "", "")
    board.close()


def test_rows_that_cannot_be_ranked_are_told(scripted: Callable[..., Scripted]) -> None:
    board = scripted_board(scripted(says(listed("a", id=None))))
    settled(board._lane)
    assert "row without its `id`" in words(board.said)
    assert 'role="alert"' in board.said.value
    board.close()


def test_what_is_missing_is_no_number(scripted: Callable[..., Scripted]) -> None:
    body = listed("a", scope=None, location=None, instances=None, latest_occurrence_at=None)
    board = scripted_board(scripted(says(body)))
    settled(board._lane)
    assert board.table.rows == [[1, "a", None, "", None, "never", ""]]
    board.table.chosen = 0
    assert words(board.facts) == "aInstancesunknownLast seenunknownLast resolvedneverPageopen the test's page"
    board.close()


def test_text_of_the_service_stays_text(scripted: Callable[..., Scripted]) -> None:
    tests = [
        {
            "id": str(n),
            "name": text,
            "scope": text,
            "location": text,
            "file_name": text,
            "web_url": text,
            "instances": 1,
        }
        for n, text in enumerate(UNTRUSTED)
    ]
    body = json.dumps(tests).encode("utf-8", "surrogatepass")
    board = scripted_board(scripted(says(body)))
    settled(board._lane)
    assert len(board.table.rows) == len(UNTRUSTED), words(board.said)
    for place in range(len(UNTRUSTED)):
        board.table.chosen = place
        tags = Seen(board.facts.value).tags
        assert {tag for tag, _ in tags} <= {"div", "table", "caption", "tr", "th", "td", "a"}
        links = [attributes for tag, attributes in tags if tag == "a"]
        assert all(str(attributes["href"]).startswith(("http://", "https://")) for attributes in links)
    board.close()


def test_what_one_searches_for_and_the_suite_stay_text(ci: Workspace) -> None:
    board = FlakyBoard(ci, "<img src=x onerror=alert(1)>")
    settled(board._lane)
    ask(board, search="<img src=x>", branch="<script>")
    for message in (board.said, board.said_of_store):
        assert {tag for tag, _ in Seen(message.value).tags} <= {"div", "br"}
    board.close()


def test_when_nobody_looks_it_stops(scripted: Callable[..., Scripted]) -> None:
    gate = threading.Event()
    board = scripted_board(scripted(held_by(gate, "a")))
    board._view_count = 1
    board._view_count = 0
    assert "nobody looked" in words(board.said)
    gate.set()
    settled(board._lane)
    assert board.table.rows == []
    board.load_button.click()
    settled(board._lane)
    assert len(board.table.rows) == 1
    board.close()
    board.load_button.click()
    assert not [thread for thread in threading.enumerate() if thread.name == "buildframe-widget"]


def test_no_state_holds_the_token(ci: Workspace) -> None:
    token = ci.sandbox.token(SCOPES)
    board = FlakyBoard(bf.connect("acme", base_url=ci.sandbox.url, token=token), "rspec")
    settled(board._lane)
    board.table.chosen = 0
    assert board.facts.value
    assert token not in json.dumps(ipywidgets.Widget.get_manager_state(), default=str)
    board.close()


@pytest.mark.parametrize(
    ("arguments", "more", "said"),
    [
        (("acme", "rspec"), {}, "ws='acme': pass a workspace"),
        ((None, ""), {}, "suite='': pass the slug"),
        ((None, 5), {}, "suite=5: pass the slug"),
        ((None, ["rspec", "jest"]), {}, "pass the slug of one test suite"),
        ((None, "rspec"), {"store": "ci-history"}, "store='ci-history': pass a store"),
    ],
)
def test_what_is_no_argument_is_refused_by_name(
    ci: Workspace, arguments: tuple[object, object], more: dict[str, object], said: str
) -> None:
    with pytest.raises(bf.BadInput, match=re.escape(said)):
        FlakyBoard(arguments[0] or ci, arguments[1], **more)


def test_unknown_names_and_no_organization(ci: Workspace) -> None:
    with pytest.raises(bf.BadInput, match=r"FlakyBoard\(\) has no option 'brnach'. Options"):
        FlakyBoard(ci, "rspec", brnach="main")
    with pytest.raises(bf.BadInput, match="belong to an organization"):
        FlakyBoard(bf.connect(base_url=ci.sandbox.url, token="t" * 20), "rspec")
