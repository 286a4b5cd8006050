"""The public methods that take options, and a call of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb

import buildframe as bf
from buildframe.workspace import PipelineWorkspace, Workspace
from tests.conftest import Scripted

Start = Callable[..., Scripted]
ID = "01234567-89ab-cdef-0123-456789abcdef"
ARGUMENTS = {
    "team": ID,
    "id": ID,
    "pipeline_id": ID,
    "suite": "rspec",
    "run": ID,
    "number": 1,
    "pipeline": "web",
    "access_level": "read_only",
    "job": "https://example.com/log",
    "path": "/organizations/acme/agents",
    "query": "{ viewer { id } }",
    "events": [],
    "table": "jobs",
    "connection": duckdb.connect(),
}
"""A value for each positional parameter of a public method, except `ci` of `Store.sync`."""


def options_of(method: Callable[..., Any]) -> list[str]:
    return [p.name for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY]


def with_options() -> Iterator[tuple[type, str]]:
    """All public methods that take options, by the class that a user has in hand."""
    for owner in (Workspace, PipelineWorkspace, bf.Store):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_") and options_of(method):
                yield owner, name


OPEN = {"get", "table"}  # what they do not know is a parameter of the path's query
METHODS = sorted(with_options(), key=lambda one: (one[0].__name__, one[1]))


def called(server: Scripted, folder: Path, owner: type, name: str, /, **options: Any) -> Any:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    given = {Workspace: ws, PipelineWorkspace: ws.pipeline("web"), bf.Store: bf.Store(folder / "store")}[owner]
    method = getattr(given, name)
    parameters = inspect.signature(method).parameters.values()
    needed = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    return method(*(ws if each == "ci" else ARGUMENTS[each] for each in needed), **options)
