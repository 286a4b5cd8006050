"""Pipelines that are synced one by one, and the coverage of their organization."""

from __future__ import annotations

from pathlib import Path

import pytest

import buildframe as bf
from buildframe.cli import main
from tests.store.scripted_service import BUILDS, PIPELINES, Service


@pytest.fixture
def service(service: Service) -> Service:
    service.pipelines["p-api"] = "api"
    return service


def synced(service: Service, folder: Path, *slugs: str, since: str = "9d") -> bf.Store:
    store = bf.Store(folder)
    with bf.connect("acme", base_url=service.url, token="invented") as ci:
        for slug in slugs:
            service.later(minutes=10)
            store.sync(ci.pipeline(slug) if slug else ci, since=since, progress=False)
    return store


@pytest.mark.long
def test_an_organization_begins_from_what_its_pipelines_know_together(service: Service, tmp_path: Path) -> None:
    service.add(1, "passed", days=3)
    service.add(2, "passed", days=3, pipeline_id="p-api")
    store = synced(service, tmp_path, "web", "api")
    ends = [end for _, end in store.covers.values()]
    begins = [begin for begin, _ in store.covers.values()]
    service.later(hours=1)
    new = service.add(3, "passed", pipeline_id="p-api")
    service.paths()
    synced(service, tmp_path, "")
    requests = service.requests
    assert set(store.builds()["id"]) == {"b1", "b2", new["id"]}
    assert store.covers["acme"] == (max(begins), service.now)
    created = [query["created_from"] for path, query in requests if path == BUILDS and "created_from" in query]
    assert len(created) == 1, "older builds are not requested"
    assert created[0] < min(ends).text()
    assert [path for path, _ in requests].count(PIPELINES) == 2


@pytest.mark.long
def test_a_pipeline_that_was_never_synced_requires_all_builds(service: Service, tmp_path: Path) -> None:
    service.add(1, "passed", days=3)
    service.add(2, "passed", days=3, pipeline_id="p-api")
    store = synced(service, tmp_path, "web", "")
    assert set(store.builds()["id"]) == {"b1", "b2"}


def test_two_coverages_without_a_common_time_require_all_builds(service: Service, tmp_path: Path) -> None:
    service.add(1, "passed", days=3)
    store = synced(service, tmp_path, "web", since="1h")
    service.later(days=4)
    service.add(2, "passed", days=3, pipeline_id="p-api")
    synced(service, tmp_path, "api", since="1h")
    synced(service, tmp_path, "", since="9d")
    assert set(store.builds()["id"]) == {"b1", "b2"}


def test_a_command_takes_several_pipelines(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("URL", service.url), ("ORG", "acme"), ("TOKEN", "invented")):
        monkeypatch.setenv(f"BUILDFRAME_{name}", value)
    service.add(1, "passed")
    service.add(2, "passed", pipeline_id="p-api")
    assert main(["sync", str(tmp_path), "--since", "1d", "--pipeline", "web", "--pipeline", "api"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].removeprefix(str(tmp_path)) for line in lines] == [", pipeline web", ", pipeline api"]
    assert set(bf.Store(tmp_path).covers) == {"acme/p-web", "acme/p-api"}


@pytest.mark.long
@pytest.mark.filterwarnings("error", "ignore::pytest.PytestUnraisableExceptionWarning")  # these are of earlier tests
def test_one_of_them_that_is_incomplete_is_status_3(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("URL", service.url), ("ORG", "acme"), ("TOKEN", "invented")):
        monkeypatch.setenv(f"BUILDFRAME_{name}", value)
    service.size, service.counted_too_many = 3, 5
    for number in range(10):
        service.add(number, "passed", days=number / 20)
    service.add(99, "passed", pipeline_id="p-api")
    assert main(["sync", str(tmp_path), "--since", "12h", "--pipeline", "web", "--pipeline", "api"]) == 3
    of_web, of_api = capsys.readouterr().out.splitlines()
    assert "INCOMPLETE" in of_web
    assert "complete from" in of_api
