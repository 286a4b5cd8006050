"""Addresses below /v2 that answers hand out although the service's document does not list them."""

from __future__ import annotations

import msgspec

from buildframe.service import problems
from buildframe.service.answers import finding, logs
from buildframe.service.answers.exchange import Answer, Operations, Request
from buildframe.service.data.bodies import ORIGIN, Body, graphql_id
from buildframe.service.data.database import Data

TEXT = "text/plain; charset=utf-8"
_JOB = "/organizations/{org}/pipelines/{pipeline}/builds/{number}/jobs/{job}"


class Beyond:
    """Answers them."""

    def __init__(self, data: Data) -> None:
        self._data, self._bodies = data, data.bodies
        self.of: Operations = {
            "get_log": self._log,
            "get_raw_log": self._raw_log,
            "list_agents": self._agents,
            "get_agent": self._agent,
            "get_cluster": self._cluster,
            "get_queue": self._queue,
        }

    # --- logs ---

    def _log(self, request: Request) -> Answer:
        if request.accept.startswith("text/plain"):
            return self._raw_log(request)
        lines = self._lines(request)
        content = logs.text(lines)
        body = {
            "url": ORIGIN + "/v2" + _JOB.format_map(request.path) + "/log",
            "content": content,
            "size": len(content.encode()),
            "header_times": [line.at * 1000 for line in lines if line.is_header],  # nanoseconds
        }
        return Answer(msgspec.json.encode(body))

    def _raw_log(self, request: Request) -> Answer:
        return Answer(logs.text(self._lines(request)).encode(), kind=TEXT)

    def _lines(self, request: Request) -> list[logs.Written]:
        path = request.path
        build = finding.build(self._data, finding.line(self._data, path["org"], path["pipeline"]), path["number"])
        job = finding.job(build, path["job"])
        step = self._data.lines.plan(build.plan).slots[job.step].step
        if step.kind != "script":
            raise problems.not_found("log")
        return logs.written(build, job, step, self._bodies.chance, self._data.load_now())

    # --- agents and clusters ---

    def _agents(self, request: Request) -> Answer:
        organization, first = finding.organization(self._data, request.path["org"]), request.page.offset
        names = finding.agents(organization)
        listed = names[first : first + request.page.size]
        bodies = [self._bodies.whole_agent(organization, name, lost=False) for name in listed]
        return Answer(msgspec.json.encode(bodies), len(names))

    def _agent(self, request: Request) -> Answer:
        organization = finding.organization(self._data, request.path["org"])
        name = finding.agent(self._data, organization, request.path["agent"])
        return Answer(msgspec.json.encode(self._bodies.whole_agent(organization, name, lost=False)))

    def _cluster(self, request: Request) -> Answer:
        return Answer(msgspec.json.encode(self._cluster_body(request)))

    def _cluster_body(self, request: Request) -> Body:
        organization = finding.organization(self._data, request.path["org"])
        id = self._bodies.cluster_id(organization)
        if not organization.has_cluster or request.path["cluster"].lower() != id:
            raise problems.not_found("cluster")
        url = f"{ORIGIN}/v2/organizations/{organization.slug}/clusters/{id}"
        return {"id": id, "graphql_id": graphql_id("Cluster", id), "name": f"{organization.name}'s agents", "url": url}

    def _queue(self, request: Request) -> Answer:
        cluster = self._cluster_body(request)
        organization = finding.organization(self._data, request.path["org"])
        for queue in organization.agents:
            id = self._bodies.queue_id(organization, queue)
            if id == request.path["queue"].lower():
                url = f"{cluster['url']}/queues/{id}"
                body = {"id": id, "graphql_id": graphql_id("ClusterQueue", id), "key": queue, "url": url}
                return Answer(msgspec.json.encode(body | {"cluster_url": cluster["url"]}))
        raise problems.not_found("queue")
