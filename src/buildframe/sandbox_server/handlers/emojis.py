"""Handler of emojis: those used in texts of an organization, common ones and custom ones."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject
from buildframe.sandbox_server.handlers.messages import ApiRequest, ApiResponse
from buildframe.sandbox_server.handlers.registry import HandlerContext, HandlerGroup, handles
from buildframe.spec import list_emojis

IN_TEXT = re.compile(r":([\w+-]+):", re.ASCII)

_COMMON: dict[str, tuple[str, ...]] = {
    "+1": ("thumbsup",),
    "-1": ("thumbsdown",),
    "boom": ("collision",),
    "bar_chart": (),
    "bug": (),
    "eyes": (),
    "hankey": ("poop",),
    "heart": (),
    "iphone": ("mobile",),
    "pencil": ("memo",),
    "smoking": ("no-fire",),
    "tada": ("party_popper",),
    "white_check_mark": (),
    "zap": ("lightning", "high_voltage"),
}
_CUSTOM: dict[str, dict[str, tuple[str, ...]]] = {
    "acme": {"acme": ("anvil", "the-logo"), "party-anvil": (), "rubber_stamp": ()},
    "globex": {"globex": ()},
}


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
        common = dict.fromkeys(self._used[organization], ()) | _COMMON
        bodies = [
            *(_body(name, f"{name}.svg", aliases) for name, aliases in sorted(common.items())),
            *(
                _body(name, f"{organization}/{name}.svg", aliases)
                for name, aliases in _CUSTOM.get(organization, {}).items()
            ),
        ]
        return ApiResponse(bodies)


def _body(name: str, file: str, aliases: tuple[str, ...]) -> JsonObject:
    body: JsonObject = {"name": name, "url": f"{ORIGIN}/emojis/{quote(file)}"}
    return body | {"aliases": list(aliases)} if aliases else body
