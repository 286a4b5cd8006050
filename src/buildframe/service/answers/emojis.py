"""Emojis: those that are written somewhere in an organization, some common ones, and custom ones."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from buildframe.service.answers.exchange import Answer, Operations, Request
from buildframe.service.data.bodies import ORIGIN, Body
from buildframe.service.data.database import Data

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


class Emojis:
    """Answers which emojis an organization has."""

    def __init__(self, data: Data) -> None:
        self._written = {
            organization.slug: set(IN_TEXT.findall(msgspec.json.encode(organization.pipelines).decode()))
            for organization in data.bodies.world.organizations
        }
        self.of: Operations = {"list_emojis": self._list}

    def _list(self, request: Request) -> Answer:
        organization = request.path["org"]
        common = dict.fromkeys(self._written[organization], ()) | _COMMON
        bodies = [
            *(_body(name, f"{name}.svg", aliases) for name, aliases in sorted(common.items())),
            *(
                _body(name, f"{organization}/{name}.svg", aliases)
                for name, aliases in _CUSTOM.get(organization, {}).items()
            ),
        ]
        return Answer(msgspec.json.encode(bodies), len(bodies))


def _body(name: str, file: str, aliases: tuple[str, ...]) -> Body:
    body: Body = {"name": name, "url": f"{ORIGIN}/emojis/{quote(file)}"}
    return body | {"aliases": list(aliases)} if aliases else body
