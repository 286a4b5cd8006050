"""Flaky tests: their fields, and how they change with time."""

from __future__ import annotations

import datetime as dt
import itertools
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.tokens import SCOPES
from buildframe.sandbox_server.handlers.flaky_tests import SuiteRegistry
from buildframe.sandbox_server.sandbox import UNTIL
from buildframe.sandbox_server.world.creation import make_world
from buildframe.sandbox_server.world.model import DAY

RSPEC = "/analytics/organizations/acme/suites/rspec/flaky-tests"
JEST = RSPEC.replace("rspec", "jest")


@pytest.fixture(scope="module")
def tests(sandbox_api):
    return sandbox_api.all_pages(RSPEC, period="28days")


def stamp(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


# --- the list


def test_every_suite_has_flaky_tests_and_one_has_several_pages(sandbox, sandbox_api, tests):
    assert len(tests) > 30
    for organization in ("acme", "globex"):
        for suite in sandbox.suites(organization):
            found = sandbox_api.all_pages(f"/analytics/organizations/{organization}/suites/{suite}/flaky-tests")
            assert len(found) > 5
            assert len({test["id"] for test in found}) == len(found)
            assert len({(test["scope"], test["name"]) for test in found}) == len(found)


def test_times_are_in_order_and_past(sandbox, tests):
    now = sandbox.clock.now()
    for test in tests:
        assert test["instances"] >= 1
        assert stamp(test["latest_occurrence_at"]) < stamp(test["most_recent_instance_at"]) <= now
        assert test["last_resolved_at"] is None or stamp(test["last_resolved_at"]) <= now


def test_some_were_resolved_and_some_of_these_came_back(tests):
    resolved = [test for test in tests if test["last_resolved_at"]]
    back = [test for test in resolved if stamp(test["last_resolved_at"]) < stamp(test["latest_occurrence_at"])]
    assert 0 < len(back) < len(resolved) < len(tests)


def test_owners_are_teams(sandbox, tests):
    owners = {owner for test in tests for owner in test["ownership_team_ids"]}
    assert owners == {sandbox.teams()["Backend"], sandbox.teams()["Everyone"]}
    assert {len(test["ownership_team_ids"]) for test in tests} == {0, 1, 2}


def test_names_may_hold_anything(tests):
    names = "\n".join(test["name"] for test in tests)
    for part in ("<script>", "DROP TABLE", "=SUM(", "日本語", "\u202e", "\\"):
        assert part in names


# --- filters


def narrowed(sandbox_api, path, **query):
    return [test["id"] for test in sandbox_api.all_pages(path, **{"period": "28days"} | query)]


def test_a_search_looks_at_names_scopes_and_in_ruby_at_locations(sandbox_api, tests):
    for text in ("order", "Invoice", "of a customer", "<script>", "ORDER", "%", "_", "_spec.rb:1"):
        wanted = [test["id"] for test in tests if any(text in test[key] for key in ("name", "scope", "location"))]
        assert narrowed(sandbox_api, RSPEC, search=text) == wanted, text


def test_a_search_elsewhere_does_not_look_at_locations(sandbox_api):
    jest = sandbox_api.all_pages(JEST, period="28days")
    assert any(".test.ts" in test["location"] for test in jest)
    assert narrowed(sandbox_api, JEST, search=".test.ts") == []
    assert narrowed(sandbox_api, JEST, search="cart") == [test["id"] for test in jest if "cart" in test["scope"]] != []


def test_a_branch_is_one_on_which_a_test_flaked(sandbox_api, tests):
    on_main = narrowed(sandbox_api, RSPEC, branch="main")
    assert 0 < len(on_main) < len(tests)
    assert on_main == [test["id"] for test in tests if test["id"] in set(on_main)]
    assert narrowed(sandbox_api, RSPEC, branch="mai") == []


def test_branches_are_those_that_were_worked_on(sandbox_api, sandbox):
    built = {build["branch"] for build in sandbox_api.all_pages("/organizations/acme/pipelines/web/builds")} - {"main"}
    assert any(narrowed(sandbox_api, JEST, branch=branch) for branch in built)


def test_a_test_that_did_not_flake_within_the_period_is_not_listed(sandbox_api, sandbox, tests):
    for period, hours in {"1hour": 1, "4hours": 4, "1day": 24, None: 168, "7days": 168, "14days": 336}.items():
        since = sandbox.clock.now() - dt.timedelta(hours=hours)
        expected = [test["id"] for test in tests if stamp(test["most_recent_instance_at"]) >= since]
        assert len(expected) < len(tests)
        query = {"period": period} if period else {}
        assert [test["id"] for test in sandbox_api.all_pages(RSPEC, **query)] == expected, period


def test_filters_narrow_together(sandbox_api):
    both = set(narrowed(sandbox_api, RSPEC, period="14days")) & set(
        narrowed(sandbox_api, RSPEC, search="Invoice", branch="main")
    )
    assert narrowed(sandbox_api, RSPEC, period="14days", search="Invoice", branch="main") == [
        id for id in narrowed(sandbox_api, RSPEC) if id in both
    ]


def test_a_period_that_is_none_is_refused(sandbox_api):
    for period in ("", "week", "7", "-1day", "2weeks", "7days ago"):
        response = sandbox_api(RSPEC, period=period)
        assert response.status_code == 422, period
        assert response.json()["errors"][0]["field"] == "period"


def test_what_is_not_there_or_not_allowed(sandbox_api, sandbox, api_client):
    for path in (RSPEC.replace("rspec", "none"), RSPEC.replace("rspec", "vitest")):
        assert (sandbox_api(path).status_code, sandbox_api(path).json()) == (404, {"message": "No suite found"})
    assert api_client(sandbox, sandbox.token(["view_teams"]))(RSPEC).status_code == 403


# --- time


def test_the_history_goes_on_with_the_clock(api_client):
    with Sandbox(builds=20, days=2) as sandbox:
        sandbox_api = api_client(sandbox, sandbox.token(SCOPES))
        before = {test["id"]: test for test in sandbox_api.all_pages(RSPEC, period="28days")}
        for _ in range(3):
            sandbox.clock.advance(dt.timedelta(days=2))
            after = {test["id"]: test for test in sandbox_api.all_pages(RSPEC, period="28days")}
            both = [id for id in before if id in after]
            assert [id for id in after if id in before] == both  # the order stays
            assert all(after[id]["instances"] >= before[id]["instances"] for id in both)
            assert any(after[id]["instances"] > before[id]["instances"] for id in both)
            before = after
        assert sum(test["last_resolved_at"] is not None for test in before.values()) > 0


def test_the_same_time_has_the_same_history_however_it_was_reached(api_client):
    histories = []
    for steps in (1, 12):
        with Sandbox(builds=20, days=2, seed=8) as sandbox:
            sandbox_api = api_client(sandbox, sandbox.token(SCOPES))
            for _ in range(steps):
                sandbox_api(RSPEC, branch="main")
                sandbox.clock.advance(dt.timedelta(hours=36) / steps)
            histories.append(sandbox_api(RSPEC, per_page=100, branch="main").text.replace(sandbox.url, ""))
    assert histories[0] == histories[1]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_flakes_are_recorded_after_they_happened_and_resolved_before_the_next(seed):
    with closing(Database(None)) as db:
        db.create_world(make_world(seed, 20, 2, UNTIL))
        histories = [test.flakes(UNTIL.us + 40 * DAY) for test in SuiteRegistry(db).list_all_tests("globex", "vitest")]
    assert len(histories) > 10
    for flakes in histories:
        assert all(flake.at < flake.recorded < (flake.resolved or UNTIL.us * 2) for flake in flakes)
        assert all((one.resolved or one.recorded) < other.at for one, other in itertools.pairwise(flakes))
