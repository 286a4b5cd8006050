"""Deliveries dated in the future, by a wrong clock here or of an agent: what a sync reads takes precedence."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import buildframe as bf
from buildframe import webhooks
from buildframe.store import transactions
from buildframe.workspace import Workspace
from tests.receiver.deliveries import of_job, synced
from tests.receiver.running_receiver import SECRET, equal, receiver
from tests.receiver.test_agent_clocks import delivery
from tests.store.scripted_service import Body, Service

AHEAD = dt.timedelta(days=2)


def from_the_future(service: Service, build: Body) -> webhooks.Event:
    """Not signed, of an agent whose clock is ahead, and received by a clock that is ahead, too."""
    return webhooks.parse(delivery(service, build, AHEAD), received_at=service.now + AHEAD)


@pytest.mark.long
def test_it_holds_up_no_sync_and_moves_no_mark(service: Service, ws: Workspace, tmp_path: Path) -> None:
    build, store = service.add(1, "running", jobs="running"), bf.Store(tmp_path)
    store.sync(ws, since="1d", progress=False)
    before = store.covers, store.as_of
    assert store.receive([from_the_future(service, build)]).jobs == 1
    assert set(store.builds()["fetched_at"]) == {service.now + AHEAD}
    assert (store.covers, store.as_of) == before
    service.later(minutes=1)
    build.update(state="passed", finished_at=service.now.text())
    build["jobs"][0]["state"] = "passed"
    assert store.sync(ws, since="1d", progress=False).complete
    equal(ws, store)


@pytest.mark.long
def test_later_deliveries_count_after_that_sync(service: Service, ws: Workspace, tmp_path: Path) -> None:
    build, store = service.add(1, "running", jobs="running"), bf.Store(tmp_path)
    store.sync(ws, since="1d", progress=False)
    store.receive([from_the_future(service, build)])
    service.later(minutes=1)
    store.sync(ws, since="1d", progress=False)
    service.later(minutes=1)
    true = webhooks.parse(delivery(service, build, dt.timedelta(0)), received_at=service.now)
    assert store.receive([true]).jobs == 1
    assert store.jobs()["fetched_at"].tolist() == [service.now]


@pytest.mark.long
def test_one_that_comes_while_a_sync_reads_stays_until_the_next(
    service: Service, ws: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, store = service.add(1, "running", jobs="running"), bf.Store(tmp_path)
    store.sync(ws, since="1d", progress=False)
    service.later(minutes=1)
    commit = transactions.commit

    def late(*arguments: Any) -> transactions.CommitResult:
        store.receive([from_the_future(service, build)])
        return commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "commit", late)
        assert store.sync(ws, since="1d", progress=False).complete
    assert store.jobs()["state"].tolist() == ["failed"]
    service.later(minutes=1)
    assert store.sync(ws, since="1d", progress=False).complete
    equal(ws, store)


def test_signatures_that_are_far_from_the_time_here_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    synced(tmp_path)
    for hours, side in ((-50, "before"), (50, "after")):
        at, body = str(int(time.time()) + hours * 3600), of_job(5).body
        made = hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        caplog.clear()
        with receiver(tmp_path) as served:
            forged = {"X-Buildkite-Signature": f"timestamp=1,signature={'0' * 64}"}
            assert httpx.post(served.url, content=b"{}", headers=forged).status_code == 401
            assert caplog.text == "", "a forged one says nothing of the clock"
            for signature in (made, made, "0" * 64):
                headers = {"X-Buildkite-Signature": f"timestamp={at},signature={signature}"}
                assert httpx.post(served.url, content=body, headers=headers).status_code == 401
        assert caplog.text.count("50 hours") == 1
        assert f"{side} the time of this machine" in caplog.text
        assert SECRET not in caplog.text
