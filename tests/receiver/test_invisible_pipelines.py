"""Builds of pipelines that syncs do not see: webhooks store them, syncs do not request them, and they are not gone."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

import buildframe as bf
from buildframe.spec import Moment
from buildframe.webhooks import Event
from buildframe.workspace import Workspace
from tests.receiver.deliveries import URL, event
from tests.store.scripted_service import BUILDS, PIPELINES, Service


@pytest.fixture
def service(service: Service) -> Service:
    service.pipelines["p-docs"] = "docs"  # or the organization is another one, once p-web is gone
    return service


def started(service: Service, number: int, slug: str) -> Event:
    """Return the event of a build of this pipeline that starts now."""
    created = Moment.of(service.now - dt.timedelta(minutes=10)).text()
    return event(
        key=number,
        id=f"b{number}",
        url=URL.format("acme", slug, number),
        pipeline={"id": f"p-{slug}", "slug": slug},
        created_at=created,
        started_at=service.now.text(),
    )


@pytest.mark.long
def test_they_are_not_requested_and_stay(service: Service, ws: Workspace, tmp_path: Path) -> None:
    store = bf.Store(tmp_path)
    store.sync(ws, since="1d", progress=False)
    for _ in range(2):
        service.later(minutes=10)
        assert store.receive([started(service, number, "private") for number in range(1, 6)]).builds == 5
        service.later(minutes=10)
        service.paths()
        done = store.sync(ws, since="1d", progress=False)
        assert (done.gone, service.paths()) == (0, [BUILDS, BUILDS, BUILDS, PIPELINES])
    assert store.builds(columns=["gone_at"])["gone_at"].isna().tolist() == [True] * 5


@pytest.mark.long
def test_once_their_pipeline_is_seen_they_are_as_others(service: Service, ws: Workspace, tmp_path: Path) -> None:
    store = bf.Store(tmp_path)
    store.sync(ws, since="1d", progress=False)
    store.receive([started(service, 1, "private"), started(service, 2, "private")])
    service.pipelines["p-private"] = "private"
    service.later(minutes=10)
    service.add(1, "passed", pipeline_id="p-private")
    assert store.sync(ws, since="1d", progress=False).gone == 1  # of the second there is nothing
    found = store.builds(columns=["id", "state", "is_open", "gone_at"]).set_index("id")
    assert (found.loc["b1", "state"], found["gone_at"].notna().to_dict()) == ("passed", {"b1": False, "b2": True})
    assert not found["is_open"].any()


@pytest.mark.long
@pytest.mark.parametrize("was_synced_alone", [True, False])
def test_those_of_a_deleted_pipeline_are_gone(
    service: Service, ws: Workspace, tmp_path: Path, was_synced_alone: bool
) -> None:
    store = bf.Store(tmp_path)
    for slug in ("web", "docs") if was_synced_alone else ():
        store.sync(ws.pipeline(slug), since="1d", progress=False)
    if not was_synced_alone:
        store.sync(ws, since="1d", progress=False)
    service.later(minutes=10)
    store.receive([started(service, 1, "web")])
    del service.pipelines["p-web"]
    service.later(minutes=10)
    assert store.sync(ws, since="1d", progress=False).gone == 1
