"""Handler of emojis: those used in texts of an organization, common ones and custom ones."""

from __future__ import annotations

import re
from importlib import resources
from urllib.parse import quote

import msgspec

from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject
from buildframe.sandbox_server.handlers import lookup
from buildframe.sandbox_server.handlers.messages import ApiRequest, ApiResponse
from buildframe.sandbox_server.handlers.registry import HandlerGroup, handles
from buildframe.spec import list_emojis

IN_TEXT = re.compile(r":([\w+-]+):", re.ASCII)

_EMOJIS: dict[str, dict[str, list[str]]] = msgspec.json.decode(
    resources.files("buildframe.sandbox_server.handlers").joinpath("emojis.json").read_bytes()
)
"""Names with aliases: common emojis, and those of each organization."""


class EmojiHandlers(HandlerGroup):
    """Handles the list of emojis."""

    @handles(list_emojis)
    def _list(self, request: ApiRequest) -> ApiResponse:
        organization = lookup.find_organization(self._db, request.path)
        used = IN_TEXT.findall(msgspec.json.encode(organization.pipelines).decode())
        common: dict[str, list[str]] = {name: [] for name in used} | _EMOJIS["common"]
        custom = _EMOJIS.get(organization.slug, {})
        return ApiResponse(
            [
                *(_body(name, name, aliases) for name, aliases in sorted(common.items())),
                *(_body(name, f"{organization.slug}/{name}", aliases) for name, aliases in custom.items()),
            ]
        )


def _body(name: str, file: str, aliases: list[str]) -> JsonObject:
    body: JsonObject = {"name": name, "url": f"{ORIGIN}/emojis/{quote(file)}.svg"}
    return body | {"aliases": aliases} if aliases else body
