"""Clocks of agents that are ahead: no row is dated later than its delivery, so the next sync takes precedence."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import buildframe as bf
from buildframe.spec import Moment
from tests.receiver.deliveries import event, of_job, stamp, states, synced
from tests.receiver.running_receiver import SECRET, equal, receiver
from tests.store.batches import Build, moment
from tests.store.scripted_service import Body, Service


@pytest.fixture
def service(service: Service) -> Service:
    service.now = Moment.of(dt.datetime.now(dt.UTC).replace(microsecond=0))
    return service


def delivery(service: Service, build: Body, ahead: dt.timedelta) -> bytes:
    """Of a job that ended by an agent's clock."""
    url = f"{service.url}/v2/organizations/acme/pipelines/web/builds/{build['number']}"
    head = {name: build[name] for name in ("id", "number", "state", "created_at")}
    job = {"id": f"j{build['number']}", "type": "script", "state": "failed"}
    return json.dumps(
        {
            "event": "job.finished",
            "build": head | {"url": url},
            "job": job | {"finished_at": Moment.of(service.now + ahead).text()},
            "pipeline": {"id": build["pipeline_id"], "slug": "web"},
        }
    ).encode()


def signed(body: bytes, at: int) -> dict[str, str]:
    made = hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Buildkite-Signature": f"timestamp={at},signature={made}"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("ahead", "is_signed"),
    [(dt.timedelta(hours=3), True), (dt.timedelta(days=4000), True), (dt.timedelta(days=4000), False)],
    ids=["hours", "years", "years, unsigned"],
)
def test_the_next_sync_counts(service: Service, tmp_path: Path, ahead: dt.timedelta, is_signed: bool) -> None:
    build, store = service.add(1, "running", jobs="running"), bf.Store(tmp_path)
    with bf.connect("acme", base_url=service.url, token="an-invented-token") as ci:
        store.sync(ci, since="1d", progress=False)
        with receiver(tmp_path) as served:
            service.later(seconds=1)  # else the event is of the second in which the build was fetched
            while dt.datetime.now(dt.UTC) < service.now:
                time.sleep(0.05)
            body = delivery(service, build, ahead)
            headers = signed(body, int(time.time())) if is_signed else {"X-Service-Token": SECRET}
            assert httpx.post(served.url, content=body, headers=headers).status_code == 204
            served.until(waiting=0, jobs=1)
        assert store.jobs()["state"].tolist() == ["failed"]
        service.later(minutes=1)
        build.update(state="passed", finished_at=service.now.text())
        build["jobs"][0]["state"] = "passed"
        assert store.sync(ci, since="1d", progress=False).complete
        equal(ci, store)
        assert store.builds()["state"].tolist() == ["passed"]


@pytest.mark.long
def test_when_it_was_signed_counts_rather_than_the_clock_here(tmp_path: Path) -> None:
    store, at = synced(tmp_path), int(time.time()) - 100
    body = event(job={"id": "j-1", "finished_at": "2100-01-01T00:00:00Z"}).body
    with receiver(tmp_path) as served:
        assert httpx.post(served.url, content=body, headers=signed(body, at)).status_code == 204
    assert store.jobs()["fetched_at"].tolist() == [Moment.from_us(at * 1_000_000)]


@pytest.mark.long
def test_a_clock_here_that_is_behind_drops_nothing(tmp_path: Path) -> None:
    store = synced(tmp_path, Build(1, at=50, state="running"), at=50)
    result = store.receive([of_job(55, received_at=moment(-9000), state="failed")])
    assert result.jobs == 1
    assert states(store)["build-1/0"] == "failed"
    assert set(store.builds()["fetched_at"]) == {moment(50)}, "of the last sync, which is past by the service's clock"


@pytest.mark.long
def test_times_that_may_be_to_come_date_nothing(tmp_path: Path) -> None:
    store = synced(tmp_path)
    later: Any = [{"scheduled_at": stamp(100)}, {"expired_at": stamp(100)}]
    store.receive([of_job(5, key=key, **times) for key, times in enumerate(later)])
    assert set(store.jobs()["fetched_at"]) | set(store.builds()["fetched_at"]) == {moment(5)}
