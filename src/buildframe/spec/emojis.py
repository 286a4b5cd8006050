"""Emojis of an organization: `:name:` in labels stands for a picture."""

from __future__ import annotations

from typing import Annotated

from buildframe.spec.declare import Name, Resource, endpoint


class Emoji(Resource):
    """A picture that `:name:` stands for."""

    name: Annotated[str | None, "its name, without colons"] = None
    url: Annotated[str | None, "address of the picture"] = None
    aliases: Annotated[list[str] | None, "other names; left out where there are none"] = None


@endpoint("GET /organizations/{org}/emojis", returns=Emoji, scope=None, lists=True)
def list_emojis(org: Name, /) -> None:
    """All emojis of an organization, custom ones too, in one answer."""
