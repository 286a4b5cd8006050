"""Send requests to the sandbox over plain HTTP, by the paths of the service's document. Does not use the client."""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple

import httpx

from buildframe.sandbox_server import Sandbox
from tests import golden

Body = dict[str, Any]
ALL_SCOPES = (*golden.STATES["scopes"], golden.STATES["graphql_scope"])


NEWEST_VERSION = max(row["version"] for row in golden.OPERATIONS.values() if "version" in row)


class Place(NamedTuple):
    """Values of the parameters in paths."""

    org: str
    pipeline: str = ""
    number: int = 0
    pipeline_id: str = ""
    team: str = ""
    user: str = ""
    suite: str = ""
    run: str = ""
    job: str = ""

    def at(self, **changed: Any) -> Place:
        """Return the place with other values."""
        return self._replace(**changed)

    def path(self, operation: str, *, hosted: bool = False) -> str:
        values = {
            "org.slug": self.org,
            "pipeline.slug": self.pipeline,
            "slug": self.pipeline,
            "number": self.number,
            "pipeline.uuid": self.pipeline_id,
            "team.uuid": self.team,
            "user.uuid": self.user,
            "suite.slug": self.suite,
            "run.uuid": self.run,
            "job.uuid": self.job,
        }
        return re.sub(r"\{([^}]*)\}", lambda name: str(values[name[1]]), path_of(operation, hosted=hosted))


class Service:
    """A sandbox that is known only by its URL and tokens."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.origin = sandbox.url
        self.url = sandbox.url + golden.SHAPES["transport"]["prefix"]
        self.token = sandbox.token(scopes=ALL_SCOPES)
        self.http = httpx.Client(timeout=30)

    def get(self, path: str, token: str | None = None, **query: Any) -> httpx.Response:
        return self.fetch(self.url + path, token, query)

    def fetch(self, url: str, token: str | None = None, query: Body | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self.token}", "Buildkite-Version": NEWEST_VERSION}
        return self.http.get(url, params=query or None, headers=headers)

    def do(self, operation: str, place: Place, body: Any = None, token: str | None = None) -> httpx.Response:
        """Request an operation at the document's path, or at the hosted one if the document's lacks a parameter."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        url = self.url + place.path(operation, hosted="hosted_route" in golden.OPERATIONS[operation])
        return self.http.request(method_of(operation), url, json=body, headers=headers)

    def list_all(self, path: str, **query: Any) -> list[Body]:
        """Return every item of a list, following its links."""
        response = self.get(path, per_page=100, **query)
        items = items_of(response)
        while (link := next_of(response)) is not None:
            response = self.fetch(link)
            items += items_of(response)
        return list(items)

    def graphql(self, query: str) -> Body:
        headers = {"Authorization": f"Bearer {self.token}"}
        result = self.http.post(f"{self.origin}/graphql", json={"query": query}, headers=headers).json()
        assert "errors" not in result, result
        data: Body = result["data"]
        return data

    def team_of(self, org: str, pipeline: str) -> str:
        """UUID of a team that has a pipeline; only GraphQL returns teams."""
        query = '{ pipeline(slug: "%s/%s") { teams(first: 1) { edges { node { team { id } } } } } }'
        (edge,) = self.graphql(query % (org, pipeline))["pipeline"]["teams"]["edges"]
        return base64.b64decode(edge["node"]["team"]["id"]).decode().removeprefix("Team---")


def items_of(response: httpx.Response) -> list[Body]:
    """Return the items on a page of a list, also of a list in an envelope."""
    body = response.json()
    items: list[Body] = body["items"] if isinstance(body, dict) else body
    return items


def next_of(response: httpx.Response) -> str | None:
    """Return the URL of the next page; None on the last one."""
    body = response.json()
    links = body["links"] if isinstance(body, dict) else {name: link["url"] for name, link in response.links.items()}
    link: str | None = links.get("next")
    return link


def method_of(operation: str) -> str:
    method: str = golden.OPERATIONS[operation]["route"].split(" ")[0]
    return method


def path_of(operation: str, *, hosted: bool = False) -> str:
    """Return the path in the document, or that of the hosted service if it differs."""
    result = golden.OPERATIONS[operation]
    path: str = result["hosted_route" if hosted else "route"].split(" ")[1]
    return path


def place_of(build: Body) -> Place:
    """Return the place of a build, from its URL alone."""
    found = re.search(r"/organizations/([^/]+)/pipelines/([^/]+)/builds/", build["url"])
    assert found is not None, build["url"]
    return Place(found[1], found[2], build["number"])
