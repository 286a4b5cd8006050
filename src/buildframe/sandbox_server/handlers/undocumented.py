"""Handlers of endpoints that responses link to although the API document does not list them."""

from __future__ import annotations

from buildframe.sandbox_server import error_responses
from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject, graphql_id
from buildframe.sandbox_server.handlers import logs, lookup, routes
from buildframe.sandbox_server.handlers.messages import ApiRequest, ApiResponse
from buildframe.sandbox_server.handlers.registry import HandlerGroup, handles
from buildframe.sandbox_server.world.pipeline_settings import cluster_id

TEXT = "text/plain; charset=utf-8"


class UndocumentedHandlers(HandlerGroup):
    """Handles logs, agents, clusters and queues."""

    @handles(routes.get_log)
    def _get_log(self, request: ApiRequest) -> ApiResponse:
        if request.accept.startswith("text/plain"):
            return self._get_raw_log(request)
        entries = self._log_lines(request)
        content = logs.format_log(entries)
        body = {
            "url": f"{ORIGIN}{routes.route_path(routes.get_log).format_map(request.path)}",
            "content": content,
            "size": len(content.encode()),
            "header_times": [entry.at * 1000 for entry in entries if entry.is_header],  # nanoseconds
        }
        return ApiResponse(body)

    @handles(routes.get_raw_log)
    def _get_raw_log(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(logs.format_log(self._log_lines(request)).encode(), kind=TEXT)

    def _log_lines(self, request: ApiRequest) -> list[logs.LogLine]:
        build = lookup.find_build(self._db, request.path)
        job = lookup.find_job(build, request.path)
        step = self._db.pipelines.plan(build.plan).slots[job.step].step
        if step.kind != "script":
            raise error_responses.not_found("log")
        return logs.generate_lines(build, job, step, self._db.serializer.random, self._db.load_now())

    @handles(routes.list_agents)
    def _list_agents(self, request: ApiRequest) -> ApiResponse:
        organization = lookup.find_organization(self._db, request.path)
        names = lookup.list_agent_names(organization)
        serialize = self._db.serializer.serialize_full_agent
        bodies = [serialize(organization, name, lost=False) for name in request.page.slice(names)]
        return ApiResponse(bodies, len(names))

    @handles(routes.get_agent)
    def _get_agent(self, request: ApiRequest) -> ApiResponse:
        organization = lookup.find_organization(self._db, request.path)
        name = lookup.find_agent(self._db, request.path)
        return ApiResponse(self._db.serializer.serialize_full_agent(organization, name, lost=False))

    @handles(routes.get_cluster)
    def _get_cluster(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._cluster_body(request))

    def _cluster_body(self, request: ApiRequest) -> JsonObject:
        organization = lookup.find_organization(self._db, request.path)
        id = cluster_id(self._db.serializer.random, organization.slug)
        if not organization.has_cluster or request.path["cluster"].lower() != id:
            raise error_responses.not_found("cluster")
        url = f"{ORIGIN}/v2/organizations/{organization.slug}/clusters/{id}"
        return {"id": id, "graphql_id": graphql_id("Cluster", id), "name": f"{organization.name}'s agents", "url": url}

    @handles(routes.get_queue)
    def _get_queue(self, request: ApiRequest) -> ApiResponse:
        cluster = self._cluster_body(request)
        organization = lookup.find_organization(self._db, request.path)
        for queue in organization.agents:
            id = self._db.serializer.queue_id(organization, queue)
            if id == request.path["queue"].lower():
                url = f"{cluster['url']}/queues/{id}"
                body = {"id": id, "graphql_id": graphql_id("ClusterQueue", id), "key": queue, "url": url}
                return ApiResponse(body | {"cluster_url": cluster["url"]})
        raise error_responses.not_found("queue")
