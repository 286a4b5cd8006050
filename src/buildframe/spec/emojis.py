"""Declare emojis of an organization: images that replace `:name:` in labels."""

from __future__ import annotations

from typing import Annotated

from buildframe.spec.declare import KEY, PLAIN, Resource, table
from buildframe.spec.operations import Name, endpoint


@table("emojis")
class Emoji(Resource):
    """An image that replaces `:name:`."""

    name: Annotated[str | None, "name without colons", PLAIN, KEY] = None
    url: Annotated[str | None, "URL of the image", PLAIN, KEY] = None
    aliases: Annotated[list[str] | None, "other names; null if there are none", PLAIN] = None


@endpoint("GET /organizations/{org}/emojis", returns=Emoji, scope=None, lists=True)
def list_emojis(org: Name, /) -> None:
    """All emojis of an organization, including custom ones, in one response."""
