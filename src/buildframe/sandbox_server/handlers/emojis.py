"""Handler of emojis: those used in texts of an organization, common ones and custom ones."""

from __future__ import annotations

import re
from importlib import resources
from urllib.parse import quote

import msgspec

from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject
from buildframe.sandbox_server.handlers.messages import ApiRequest, ApiResponse
from buildframe.sandbox_server.handlers.registry import HandlerContext, HandlerGroup, handles
from buildframe.spec import list_emojis

IN_TEXT = re.compile(r":([\w+-]+):", re.ASCII)

_EMOJIS: dict[str, dict[str, list[str]]] = msgspec.json.decode(
    resources.files("buildframe.sandbox_server.handlers").joinpath("emojis.json").read_bytes()
)
"""Names with aliases: common emojis, and those of each organization."""


class EmojiHandlers(HandlerGroup):
    """Handles the list of emojis."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._used = {
            organization.slug: set(IN_TEXT.findall(msgspec.json.encode(organization.pipelines).decode()))
            for organization in context.db.serializer.world.organizations
        }

    @handles(list_emojis)
    def _list(self, request: ApiRequest) -> ApiResponse:
        organization = request.path["org"]
        common: dict[str, list[str]] = {name: [] for name in self._used[organization]} | _EMOJIS["common"]
        custom = _EMOJIS.get(organization, {})
        return ApiResponse(
            [
                *(_body(name, name, aliases) for name, aliases in sorted(common.items())),
                *(_body(name, f"{organization}/{name}", aliases) for name, aliases in custom.items()),
            ]
        )


def _body(name: str, file: str, aliases: list[str]) -> JsonObject:
    body: JsonObject = {"name": name, "url": f"{ORIGIN}/emojis/{quote(file)}.svg"}
    return body | {"aliases": aliases} if aliases else body
