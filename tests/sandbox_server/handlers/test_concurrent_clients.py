"""Several clients at once, while the clock runs: the result is one that the document allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import buildframe as bf
from buildframe import spec
from buildframe.sandbox_server import SCOPES, Sandbox
from buildframe.workspace import PipelineWorkspace

OVER = {"passed", "failed", "canceled"}
CLIENTS = 4


@pytest.fixture(scope="module")
def clients() -> Iterator[list[PipelineWorkspace]]:
    """The same pipeline, seen by several users, in a sandbox in which a build takes minutes."""
    with Sandbox(builds=100, days=5, speed=1) as sandbox:
        yield from connected(sandbox)


@pytest.fixture(scope="module")
def hurried_clients() -> Iterator[list[PipelineWorkspace]]:
    """The same in a sandbox in which some minutes pass each second, so that builds end meanwhile."""
    with Sandbox(builds=100, days=5, speed=300) as sandbox:
        yield from connected(sandbox)


def connected(sandbox: Sandbox) -> Iterator[list[PipelineWorkspace]]:
    workspaces = [bf.connect("acme", base_url=sandbox.url, token=sandbox.token(SCOPES)) for _ in range(CLIENTS)]
    yield [workspace.pipeline("docs") for workspace in workspaces]
    for workspace in workspaces:
        workspace.close()


def at_once(clients: list[PipelineWorkspace], act: Callable[[PipelineWorkspace], Any]) -> list[Any]:
    """What each client gets, or the refusal that it meets."""

    def tried(client: PipelineWorkspace) -> Any:
        try:
            return act(client)
        except bf.ServiceError as refused:
            return refused

    with ThreadPoolExecutor(len(clients)) as together:
        return list(together.map(tried, clients))


def test_one_of_many_cancels_and_the_others_get_the_reason(clients: list[PipelineWorkspace]) -> None:
    for _ in range(5):
        number = clients[0].create_build(commit="HEAD", branch="race/cancel").number
        results = at_once(clients, lambda client, number=number: client.cancel(number))
        done = [result for result in results if isinstance(result, spec.Build)]
        refused = [result for result in results if isinstance(result, bf.Invalid)]
        assert (len(done), len(refused)) == (1, CLIENTS - 1)
        assert {error.message for error in refused} == {"Build can't be canceled because it's already canceled."}
        assert clients[0].build(number).state == "canceled"


def test_builds_that_are_created_at_once_each_have_a_number(clients: list[PipelineWorkspace]) -> None:
    made = [build for _ in range(5) for build in at_once(clients, create)]
    assert all(isinstance(build, spec.Build) for build in made)
    assert len({build.number for build in made}) == len({build.id for build in made}) == 5 * CLIENTS
    listed = clients[0].builds(branch="race/create")
    assert sorted(listed["number"]) == sorted(build.number for build in made)


def create(client: PipelineWorkspace) -> Any:
    return client.create_build(commit="HEAD", branch="race/create")


def test_cancel_and_rebuild_at_once_leave_a_canceled_build_and_a_new_one(clients: list[PipelineWorkspace]) -> None:
    first, second = clients[:2]
    for _ in range(5):
        number = first.create_build(commit="HEAD", branch="race/both").number
        with ThreadPoolExecutor(2) as together:
            canceled = together.submit(first.cancel, number)
            rebuilt = together.submit(second.rebuild, number)
        assert canceled.result().state == "canceled"
        assert rebuilt.result().rebuilt_from.number == number
        assert rebuilt.result().number > number


def test_canceled_amid_its_life_a_build_is_whole(hurried_clients: list[PipelineWorkspace]) -> None:
    """Either it was canceled, once, or it was over and each refusal names its end."""
    first = hurried_clients[0]
    for seconds in (0.0, 0.05, 0.1, 0.2, 0.4):
        number = first.create_build(commit="HEAD", branch="race/end").number
        time.sleep(seconds)
        responses = at_once(hurried_clients, lambda client, number=number: client.cancel(number))
        build = first.build(number)
        assert build.state in OVER
        assert build.finished_at is not None
        assert {job.state for job in build.jobs or ()} <= {*OVER, "broken", "timed_out", "waiting_failed", None}
        canceled = [response for response in responses if isinstance(response, spec.Build)]
        refused = [response.message for response in responses if isinstance(response, bf.Invalid)]
        assert len(canceled) + len(refused) == CLIENTS
        assert len(canceled) == (1 if build.state == "canceled" else 0)
        assert set(refused) == {f"Build can't be canceled because it's already {build.state}."}
