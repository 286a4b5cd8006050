"""Sandboxes with small worlds, clients for them, and receivers of webhooks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES
from tests.sandbox_server.webhook_receiver import Receiver

Body = dict[str, Any]


class ApiClient:
    """Sends GET requests to a sandbox with one token."""

    def __init__(self, sandbox: Sandbox, token: str | None = None) -> None:
        self.sandbox = sandbox
        self.http = httpx.Client(
            base_url=f"{sandbox.url}/v2", headers={"Authorization": f"Bearer {token or sandbox.token()}"}, timeout=30
        )

    def __call__(self, path: str, **query: Any) -> httpx.Response:
        return self.http.get(path, params=query or None)

    def all_pages(self, path: str, **query: Any) -> list[Body]:
        response = self(path, per_page=100, **query)
        items: list[Body] = response.json()
        while "next" in response.links:
            response = self.http.get(response.links["next"]["url"])
            items += response.json()
        return items


@pytest.fixture(scope="session")
def small() -> Iterator[Sandbox]:
    """A week of some 400 builds in the odd world, whose clock stands still: tests that move time make their own."""
    with Sandbox(builds=400, days=7, seed=3, world="odd") as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def api(small: Sandbox) -> ApiClient:
    """Requests to the shared sandbox with the default scopes."""
    return ApiClient(small)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A few days of some 150 builds in the odd world, for one file of tests that change it."""
    with Sandbox(builds=150, days=3, world="odd") as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def sandbox_api(sandbox: Sandbox) -> ApiClient:
    """Requests to that sandbox with every scope."""
    return ApiClient(sandbox, sandbox.token(SCOPES))


@pytest.fixture(scope="module")
def http(sandbox: Sandbox) -> Iterator[httpx.Client]:
    """The same, for all methods."""
    headers = {"Authorization": f"Bearer {sandbox.token(SCOPES)}"}
    with httpx.Client(base_url=f"{sandbox.url}/v2", headers=headers, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def full_api(small: Sandbox) -> ApiClient:
    """Requests to the shared sandbox with every scope."""
    return ApiClient(small, small.token(SCOPES))


@pytest.fixture(scope="session")
def builds(api: ApiClient) -> list[Body]:
    """All builds with every attempt at their jobs, newest first."""
    return api.all_pages("/builds", include_retried_jobs="true")


@pytest.fixture(scope="session")
def jobs(builds: list[Body]) -> list[Body]:
    """All attempts at script jobs."""
    return [job for build in builds for job in build["jobs"] if job["type"] == "script"]


@pytest.fixture(scope="session")
def api_client() -> type[ApiClient]:
    return ApiClient


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Start receivers of webhooks."""
    started: list[Receiver] = []

    def start(*responses: int | threading.Event) -> Receiver:
        started.append(Receiver(*responses))
        return started[-1]

    yield start
    for receiver in started:
        receiver.stop()
