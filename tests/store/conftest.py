"""Fixtures of tests that set the builds of a service one by one; tests of receivers have them too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import buildframe as bf
from buildframe.workspace import Workspace
from tests.store.scripted_service import Service


@pytest.fixture
def service() -> Iterator[Service]:
    """A service without builds."""
    found = Service()
    yield found
    found.stop()


@pytest.fixture
def ws(service: Service) -> Iterator[Workspace]:
    """A workspace on that service; `ci` is one on a sandbox."""
    with bf.connect("acme", base_url=service.url, token="an-invented-token") as workspace:
        yield workspace


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    """A store that nothing was written to."""
    return bf.Store(tmp_path / "history")
