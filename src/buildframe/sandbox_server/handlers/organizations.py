"""Handlers of what an organization has besides pipelines: emojis, agents, its cluster and its queues."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from buildframe.sandbox_server.data_files import data_file
from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject, graphql_id
from buildframe.sandbox_server.error_responses import get_first_or_404
from buildframe.sandbox_server.handlers import lookup, routes
from buildframe.sandbox_server.handlers.registry import ApiRequest, ApiResponse, HandlerGroup, handles
from buildframe.sandbox_server.world.pipelines import organization_clusters
from buildframe.spec import list_emojis

IN_TEXT = re.compile(r":([\w+-]+):", re.ASCII)

_EMOJIS: dict[str, dict[str, list[str]]] = msgspec.json.decode(data_file("handlers/emojis.json").read_bytes())
"""Names with aliases: common emojis, and those of each organization."""


class OrganizationHandlers(HandlerGroup):
    """Handles emojis, agents, clusters and queues."""

    @handles(list_emojis)
    def _list_emojis(self, request: ApiRequest) -> ApiResponse:
        """List the emojis in texts of the organization, common ones and custom ones."""
        organization = lookup.find_organization(self._db, request.path)
        used = IN_TEXT.findall(msgspec.json.encode(organization.pipelines).decode())
        common: dict[str, list[str]] = {name: [] for name in used} | _EMOJIS["common"]
        files = [
            *((name, name, aliases) for name, aliases in sorted(common.items())),
            *((name, f"{organization.slug}/{name}", more) for name, more in _EMOJIS.get(organization.slug, {}).items()),
        ]
        emojis = [
            {"name": name, "url": f"{ORIGIN}/emojis/{quote(file)}.svg"} | ({"aliases": aliases} if aliases else {})
            for name, file, aliases in files
        ]
        return ApiResponse(emojis)

    @handles(routes.list_agents)
    def _list_agents(self, request: ApiRequest) -> ApiResponse:
        organization = lookup.find_organization(self._db, request.path)
        names = lookup.list_agent_names(self._db, organization)
        serialize = self._db.serializer.serialize_full_agent
        return ApiResponse([serialize(organization, name) for name in request.page.slice(names)], len(names))

    @handles(routes.get_agent)
    def _get_agent(self, request: ApiRequest) -> ApiResponse:
        organization, name = lookup.find_agent(self._db, request.path)
        return ApiResponse(self._db.serializer.serialize_full_agent(organization, name))

    @handles(routes.list_clusters)
    def _list_clusters(self, request: ApiRequest) -> ApiResponse:
        clusters = self._clusters(request)
        return ApiResponse(request.page.slice(clusters), len(clusters))

    @handles(routes.get_cluster)
    def _get_cluster(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._find_cluster(request))

    @handles(routes.list_queues)
    def _list_queues(self, request: ApiRequest) -> ApiResponse:
        queues = self._queues(request, self._find_cluster(request))
        return ApiResponse(request.page.slice(queues), len(queues))

    @handles(routes.get_queue)
    def _get_queue(self, request: ApiRequest) -> ApiResponse:
        queues = self._queues(request, self._find_cluster(request))
        id = request.path["queue"].lower()
        return ApiResponse(get_first_or_404((queue for queue in queues if queue["id"] == id), "queue"))

    def _clusters(self, request: ApiRequest) -> list[JsonObject]:
        """Serialize the clusters of an organization."""
        organization = lookup.find_organization(self._db, request.path)
        names = f"{organization.name}'s agents", f"{organization.name}'s other agents"
        return [
            {
                "id": id,
                "graphql_id": graphql_id("Cluster", id),
                "name": name,
                "url": f"{ORIGIN}/v2/organizations/{organization.slug}/clusters/{id}",
            }
            for id, name in zip(organization_clusters(self._db.serializer.world, organization), names, strict=False)
        ]

    def _find_cluster(self, request: ApiRequest) -> JsonObject:
        id = request.path["cluster"].lower()
        return get_first_or_404((cluster for cluster in self._clusters(request) if cluster["id"] == id), "cluster")

    def _queues(self, request: ApiRequest, cluster: JsonObject) -> list[JsonObject]:
        """Serialize the queues of a cluster."""
        organization = lookup.find_organization(self._db, request.path)
        serializer = self._db.serializer
        keys = organization.agents
        ids = {key: serializer.queue_id(organization, cluster["id"], key) for key in keys}
        return [
            {
                "id": id,
                "graphql_id": graphql_id("ClusterQueue", id),
                "key": key,
                "url": f"{cluster['url']}/queues/{id}",
                "cluster_url": cluster["url"],
            }
            for key, id in ids.items()
        ]
