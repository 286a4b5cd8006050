"""Asking the sandbox as a stranger would: plain HTTP, and the document's paths."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import httpx

from buildframe.service import Sandbox
from tests import golden

Body = dict[str, Any]
ALL_SCOPES = tuple(golden.STATES["scopes"])


class Service:
    """The sandbox as a stranger sees it: an address and tokens."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.url = sandbox.url + golden.SHAPES["transport"]["prefix"]
        self.token = sandbox.token(scopes=ALL_SCOPES)

    def ask(self, path: str, token: str | None = None, **query: Any) -> httpx.Response:
        return self.fetch(self.url + path, token, query)

    def fetch(self, url: str, token: str | None = None, query: Body | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.get(url, params=query or None, headers=headers, timeout=30)

    def walk(self, path: str, **query: Any) -> list[Body]:
        """Every item of a list, by its links."""
        answer = self.ask(path, per_page=100, **query)
        items = answer.json()
        while "next" in answer.links:
            answer = self.fetch(answer.links["next"]["url"])
            items += answer.json()
        return list(items)


def path_of(operation: str) -> str:
    """The path as the document writes it."""
    path: str = golden.OPERATIONS[operation]["route"].split(" ")[1]
    return path


class Place(NamedTuple):
    """What the parameters of paths stand for."""

    org: str
    pipeline: str
    number: int

    def path(self, operation: str) -> str:
        path = path_of(operation)
        values = {"org.slug": self.org, "pipeline.slug": self.pipeline, "slug": self.pipeline, "number": self.number}
        return re.sub(r"\{([^}]*)\}", lambda name: str(values[name[1]]), path)


def place_of(build: Body) -> Place:
    found = re.search(r"/organizations/([^/]+)/pipelines/([^/]+)/builds/", build["url"])
    assert found is not None, build["url"]
    return Place(found[1], found[2], build["number"])
