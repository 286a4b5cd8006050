"""Syncs ask for the longest period of flaky tests, and the store remembers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

import buildframe as bf
from buildframe.errors import Forbidden, Invalid
from buildframe.store import retained_columns, transactions
from buildframe.store.location import Location
from buildframe.workspace import Workspace
from tests import worlds
from tests.store.batches import PLAIN, batch, flaky


@pytest.fixture(scope="module")
def ci() -> Iterator[Workspace]:
    with worlds.sandbox(builds=20, days=1) as found:
        yield found


def test_a_sync_asks_for_the_longest_period(ci: Workspace, tmp_path: Path) -> None:
    store = bf.Store(tmp_path)
    store.sync(ci, since="1d", suites=["rspec"])
    tests = store.flaky_tests("rspec")
    assert set(tests["period"]) == {"28days"}
    assert sorted(tests["id"]) == sorted(ci.flaky_tests("rspec", period="28days")["id"])
    assert len(tests) > len(ci.flaky_tests("rspec")) == len(ci.flaky_tests("rspec", period="7days"))


def test_a_service_that_refuses_the_period_is_requested_without_it_from_then_on(ci: Workspace, tmp_path: Path) -> None:
    listed, periods = Workspace.flaky_tests, []

    def refuse(self: Workspace, suite: str, **query: object) -> object:
        periods.append(query.get("period"))
        if "period" in query:
            raise Invalid(422, "Validation Failed")
        return listed(self, suite, **query)  # type: ignore[arg-type]

    store = bf.Store(tmp_path)
    with mock.patch.object(Workspace, "flaky_tests", refuse):
        assert store.sync(ci, since="1d", suites=["rspec", "jest"]).complete
    assert periods == ["28days", None, None]
    assert set(store.flaky_tests()["period"]) == {"7days"}


def test_a_missing_scope_is_no_refusal_of_the_period(ci: Workspace, tmp_path: Path) -> None:
    refused = mock.Mock(side_effect=Forbidden(403, "Forbidden"))
    with mock.patch.object(Workspace, "flaky_tests", refused), pytest.raises(Forbidden):
        bf.Store(tmp_path).sync(ci, since="1d", suites=["rspec"])
    assert refused.call_count == 1


def test_a_store_without_periods_is_read_as_that_of_seven_days(tmp_path: Path) -> None:
    store, location = bf.Store(tmp_path), Location.of(tmp_path, None)
    before = {**retained_columns._COMPUTED, "flaky_tests": retained_columns._VALIDITY}
    with mock.patch.object(retained_columns, "_COMPUTED", before):
        transactions.commit(location, PLAIN, batch([], 1, lists=(flaky({"a": 1}, 1),)))
    assert store.flaky_tests()["period"].tolist() == ["7days"]
    listed = flaky({"a": 1}, 2)
    listed.frame["period"] = "7days"
    transactions.commit(location, PLAIN, batch([], 2, lists=(listed,)))
    assert len(store.flaky_tests(history=True)) == 1, "the same state"
