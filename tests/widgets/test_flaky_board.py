"""The board of flaky tests without a web browser: lists and refusals of the service."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import ipywidgets
import pandas as pd
import pytest

import buildframe as bf
from buildframe import metrics, widgets
from buildframe.formatting import format_duration
from buildframe.sandbox_server import SCOPES
from buildframe.widgets.flaky_board import TABLE_COLUMNS, FlakyBoard, _describe_price
from buildframe.workspace import Workspace
from tests.conftest import Scripted, says
from tests.report.untrusted import UNTRUSTED
from tests.widgets.widget_helpers import (
    displayed_rows,
    html_tags,
    press_enter,
    running_threads,
    set_views,
    visible_text,
    wait_for,
    wait_until,
    workspace_of,
)


@pytest.fixture
def board(ci: Workspace) -> Iterator[FlakyBoard]:
    made = widgets.FlakyBoard(ci, "rspec")
    wait_for(made)
    yield made
    made.close()


def ask(board: FlakyBoard, search: str = "", branch: str = "") -> None:
    board.search.value, board.branch.value = search, branch
    board.load_button.click()
    wait_for(board)


def scripted_board(server: Scripted) -> FlakyBoard:
    return FlakyBoard(workspace_of(server), "rspec")


def listed(*names: str, **more: object) -> bytes:
    one = {"scope": "Cart", "location": "a.rb:3", "instances": 3, "latest_occurrence_at": "2026-10-30T12:00:00Z"}
    return json.dumps([{"id": f"id-{n}", "name": name, **one, **more} for n, name in enumerate(names)]).encode()


def held_by(gate: threading.Event, *names: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return a handler that sends a list when the gate opens."""

    def late(handler: BaseHTTPRequestHandler) -> None:
        gate.wait(10)
        says(listed(*names))(handler)

    return late


def column(board: FlakyBoard, title: str) -> list[object]:
    place = [column.title for column in TABLE_COLUMNS].index(title)
    return [row[place] for row in board.table.rows]


def test_it_ranks_like_the_metric_with_active_tests_first(ci: Workspace, board: FlakyBoard) -> None:
    tests = ci.flaky_tests("rspec", period="28days", progress=False)
    ranked = metrics.flaky_board(tests)
    expected = pd.concat([ranked[~ranked["is_resolved"]], ranked[ranked["is_resolved"]]], ignore_index=True)
    assert expected["id"].tolist() != ranked["id"].tolist()
    assert board.board["id"].tolist() == expected["id"].tolist()
    assert column(board, "Rank") == list(range(1, len(tests) + 1))
    assert column(board, "Instances") == expected["instances"].tolist()
    assert column(board, "Location") == expected["location"].tolist()
    first = tests["fetched_at"].max() - pd.to_timedelta(expected["age_at_least_s"], unit="s")
    assert column(board, "First seen by (UTC)") == [f"{time:%Y-%m-%d %H:%M:%S.%f}" for time in first]
    flags = zip(expected["is_resolved"], expected["recurred"], strict=True)
    statuses = ["resolved" if resolved else "recurred" if recurred else "active" for resolved, recurred in flags]
    assert column(board, "Status") == statuses
    assert set(statuses) == {"active", "resolved", "recurred"}
    as_of = tests.attrs["as_of"].replace("T", " ").replace("Z", " UTC")
    resolved = statuses.count("resolved")
    assert visible_text(board.status).startswith(f"{len(tests)} flaky tests of the suite rspec, as of {as_of}")
    recurred = statuses.count("recurred")
    counts = f"{len(tests) - resolved} active ({recurred} recurred after being resolved), {resolved} resolved. "
    assert f"{counts}Ranked by instances: how often the service detected the test as flaky." in visible_text(
        board.status
    )


def test_the_filter_shows_active_or_resolved_tests(board: FlakyBoard) -> None:
    shown = {}
    for status in ("active", "resolved", "all"):
        board.shown.value = status
        shown[status] = displayed_rows(board.table)
    assert shown["active"] + shown["resolved"] == shown["all"]
    assert {row[2] for row in shown["active"]} == {"active", "recurred"}
    assert {row[2] for row in shown["resolved"]} == {"resolved"}


def test_owners_have_the_names_of_teams(ci: Workspace, board: FlakyBoard) -> None:
    names = {id: name for name, id in ci.sandbox.teams().items()}
    tests = ci.flaky_tests("rspec", period="28days", progress=False).set_index("id").loc[board.board["id"]]
    expected = [", ".join(names[id] for id in json.loads(ids)) for ids in tests["ownership_team_ids"]]
    assert column(board, "Owner") == expected
    assert len(set(expected)) > 1


def test_owners_without_names(ci: Workspace) -> None:
    token = ci.sandbox.token(["read_suites"])
    board = FlakyBoard(bf.connect("acme", base_url=ci.sandbox.url, token=token), "rspec")
    wait_for(board)
    owned = next(place for place, owner in enumerate(column(board, "Owner")) if owner)
    assert set(str(column(board, "Owner")[owned]).split(", ")) <= set(ci.sandbox.teams().values())
    board.table.selected = owned
    assert "names of teams are unknown: 403" in visible_text(board.properties)
    assert 'role="alert"' not in board.status.value
    board.close()


@pytest.mark.long
def test_the_documented_steps_have_a_price(ci: Workspace) -> None:
    (steps,) = re.findall(r"step=(\[.*?\])\)", (Path(__file__).parents[2] / "docs" / "widgets.md").read_text())
    jobs = ci.jobs(created_from="30d", include_retried_jobs=True, progress=False)
    price = _describe_price(jobs, json.loads(steps))
    assert "is unknown" not in price
    assert price.count("of machine time") == len(json.loads(steps))
    assert price in _describe_price(jobs, [*json.loads(steps), "Specs taxes"])
    assert _describe_price(jobs, ["Specs taxes"]).endswith("so its price is unknown. Did you mean specs-taxes?")


@pytest.mark.long
def test_the_price_of_a_step(ci: Workspace) -> None:
    jobs = ci.jobs(created_from="30d", include_retried_jobs=True, progress=False)
    scores = metrics.flake_score(jobs)
    step = str(scores.loc[scores["machine_s"].idxmax(), "step"])
    (score,) = scores[scores["step"] == step].to_dict("records")
    board = FlakyBoard(ci, "rspec", jobs=jobs, step=[step, "no such"])
    wait_for(board)
    price = visible_text(board.price)
    assert f"the step {step} of {score['pipeline']} in these jobs: {score['red_builds']} red builds" in price
    assert f"{format_duration(score['machine_s'])} of machine time" in price
    assert "contain no step no such, so its price is unknown. Steps of these jobs: " in price
    board.table.selected = 0
    assert "the price of the whole step is above the table" in visible_text(board.properties)
    board.close()


def test_without_a_store_it_says_how_to_record_history(board: FlakyBoard) -> None:
    assert [column["title"] for column in board.table.columns] == [column.title for column in TABLE_COLUMNS]
    message = visible_text(board.store_status)
    assert "buildframe sync ci-history --suite rspec" in message
    assert "store.sync(ws, suites=['rspec']), then FlakyBoard(ws, 'rspec', store=store)" in message
    board.table.selected = 0
    assert board.history.value == ""


def test_the_selected_test(ci: Workspace, board: FlakyBoard) -> None:
    assert "Select a test" in visible_text(board.properties)
    tests = ci.flaky_tests("rspec", period="28days", progress=False).set_index("id")
    board.table.selected = 5
    test = tests.loc[board.board["id"].iloc[5]]
    share = test["instances"] / tests["instances"].sum()
    instances = f"Instances{test['instances']}, {100 * share:.1f} % of all instances in this list"
    assert instances in visible_text(board.properties)
    assert "Priceunknown for one test" in visible_text(board.properties)
    assert f"Location{test['location']}" in visible_text(board.properties)
    assert [
        attributes["href"] for tag, attributes in html_tags(board.properties.value) if tag == "a"
    ] == [test["web_url"]]  # fmt: skip


def test_the_service_searches(ci: Workspace, board: FlakyBoard) -> None:
    branches = ci.builds(progress=False)["branch"].unique()
    lists = ((branch, ci.flaky_tests("rspec", period="28days", branch=branch, progress=False)) for branch in branches)
    branch, of_branch = next((branch, tests) for branch, tests in lists if 1 < len(tests) < len(board.board) / 2)
    search = str(of_branch["scope"].iloc[0])
    expected = metrics.flaky_board(
        ci.flaky_tests("rspec", period="28days", search=search, branch=branch, progress=False)
    )
    assert 0 < len(expected) < len(of_branch)
    ask(board, search=search, branch=branch)
    assert board.board["id"].tolist() == expected["id"].tolist()
    assert len(board.table.rows) == len(expected)
    description = f"whose name or scope contains “{search}” and that flaked at least once on branch “{branch}”"
    assert description in visible_text(board.status)
    assert "detected the test as flaky, on any branch." in visible_text(board.status)


def test_enter_searches(ci: Workspace, board: FlakyBoard) -> None:
    board.search.value = "tax"
    press_enter(board.search)
    wait_for(board)
    assert len(board.table.rows) == len(ci.flaky_tests("rspec", period="28days", search="tax", progress=False))


def test_an_empty_result_names_the_search(board: FlakyBoard) -> None:
    board.table.selected = 0
    ask(board, search="<b>none such")
    message = "has no flaky test whose name or scope contains “<b>none such”, as of"
    assert message in visible_text(board.status)
    assert (board.table.rows, board.table.selected, board.properties.value) == ([], -1, "")


def test_a_double_click_searches_once(scripted: Callable[..., Scripted]) -> None:
    gate = threading.Event()
    server = scripted(held_by(gate, "first"), says(listed("second")))
    board = scripted_board(server)
    wait_until(lambda: bool(server.requests))
    board.load_button.click()
    gate.set()
    wait_for(board)
    assert [row[1] for row in board.table.rows] == ["Cart · first"]
    assert len(server.requests) == 1
    board.close()


def test_a_later_search_replaces_the_earlier_one(scripted: Callable[..., Scripted]) -> None:
    gate = threading.Event()
    server = scripted(held_by(gate, "first"), says(listed("second", "third")))
    board = scripted_board(server)
    wait_until(lambda: bool(server.requests))
    board.search.value = "x"
    board.load_button.click()
    gate.set()
    wait_for(board)
    assert [row[1] for row in board.table.rows] == ["Cart · second", "Cart · third"]
    assert ["search=x" in path for path in server.requests] == [False, True]
    board.close()


def test_an_unknown_suite(ci: Workspace) -> None:
    board = FlakyBoard(ci, "rpsec")
    wait_for(board)
    assert re.search(r"rpsec of acme could not be loaded\.\s*404: No suite found", visible_text(board.status))
    assert "Check that this is the suite's slug" in visible_text(board.status)
    assert 'role="alert"' in board.status.value
    board.close()


def test_a_token_without_the_scope(ci: Workspace) -> None:
    board = FlakyBoard(bf.connect("acme", base_url=ci.sandbox.url, token=ci.sandbox.token()), "rspec")
    wait_for(board)
    assert "doesn't have the read_suites scope" in visible_text(board.status)
    assert "Use a token that has the scope read_suites." in visible_text(board.status)
    board.close()


def test_an_error_removes_previous_rows(scripted: Callable[..., Scripted]) -> None:
    board = scripted_board(scripted(says(listed("a")), says(b'{"message": "Not <b>now</b>"}', 401)))
    wait_for(board)
    board.table.selected = 0
    assert board.properties.value
    ask(board, search="tax")
    assert "401: Not <b>now</b>" in visible_text(board.status)
    assert (board.table.rows, board.properties.value, visible_text(board.store_status)) == ([], "", "")
    board.close()


def test_rows_that_cannot_be_ranked_are_reported(scripted: Callable[..., Scripted]) -> None:
    board = scripted_board(scripted(says(listed("a", id=None))))
    wait_for(board)
    assert "row without its `id`" in visible_text(board.status)
    assert 'role="alert"' in board.status.value
    board.close()


def test_missing_values_are_shown_as_such(scripted: Callable[..., Scripted]) -> None:
    body = listed("a", scope=None, location=None, instances=None, latest_occurrence_at=None)
    board = scripted_board(scripted(says(body)))
    wait_for(board)
    assert board.table.rows == [[1, "a", "active", None, None, None, "", ""]]
    board.table.selected = 0
    lines = [line for line in visible_text(board.properties).split("\n") if not line.startswith("Price")]
    assert [line for line in lines if line] == [
        "a", "Instancesunknown", "Last seenunknown", "Last resolvednever", "Pageopen the test's page",
    ]  # fmt: skip
    board.close()


def test_text_of_the_service_is_escaped(scripted: Callable[..., Scripted]) -> None:
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
    wait_for(board)
    assert len(board.table.rows) == len(UNTRUSTED), visible_text(board.status)
    for place in range(len(UNTRUSTED)):
        board.table.selected = place
        tags = html_tags(board.properties.value)
        assert {tag for tag, _ in tags} <= {"div", "table", "caption", "tr", "th", "td", "a"}
        links = [attributes for tag, attributes in tags if tag == "a"]
        assert all(str(attributes["href"]).startswith(("http://", "https://")) for attributes in links)
    board.close()


def test_search_and_suite_are_escaped(ci: Workspace) -> None:
    board = FlakyBoard(ci, "<img src=x onerror=alert(1)>")
    wait_for(board)
    ask(board, search="<img src=x>", branch="<script>")
    for message in (board.status, board.store_status):
        assert {tag for tag, _ in html_tags(message.value)} <= {"div", "br"}
    board.close()


def test_it_stops_without_a_view(scripted: Callable[..., Scripted]) -> None:
    gate = threading.Event()
    board = scripted_board(scripted(held_by(gate, "a")))
    set_views(board, 1)
    set_views(board, 0)
    assert "was not displayed" in visible_text(board.status)
    gate.set()
    wait_for(board)
    assert board.table.rows == []
    board.load_button.click()
    wait_for(board)
    assert len(board.table.rows) == 1
    board.close()
    board.load_button.click()
    assert running_threads() == []


def test_the_state_contains_no_token(ci: Workspace) -> None:
    token = ci.sandbox.token(SCOPES)
    board = FlakyBoard(bf.connect("acme", base_url=ci.sandbox.url, token=token), "rspec")
    wait_for(board)
    board.table.selected = 0
    assert board.properties.value
    assert token not in json.dumps(ipywidgets.Widget.get_manager_state(), default=str)
    board.close()


def test_invalid_arguments_are_named(ci: Workspace) -> None:
    everywhere = bf.connect(base_url=ci.sandbox.url, token="a-test-token" * 20)
    for ws, suite, more, message in (
        ("acme", "rspec", {}, "ws='acme'"),
        (ci, "", {}, "suite=''"),
        (ci, 5, {}, "suite=5"),
        (ci, ["rspec", "jest"], {}, "one test suite"),
        (ci, "rspec", {"store": "ci-history"}, "store='ci-history'"),
        (ci, "rspec", {"step": "rspec"}, "both jobs= and step="),
        (ci, "rspec", {"brnach": "main"}, "'brnach'"),
        (everywhere, "rspec", {}, "a widget shows one"),
    ):
        with pytest.raises(bf.BadInput, match=re.escape(message)):
            FlakyBoard(ws, suite, **more)
