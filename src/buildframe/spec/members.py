"""Declare members of an organization."""

from __future__ import annotations

from typing import Annotated

from buildframe.spec.declare import KEY, PERSONAL, PLAIN, Resource, table
from buildframe.spec.operations import Name, Uuid, endpoint


@table("members")
class Member(Resource):
    """A member of an organization."""

    id: Annotated[str | None, "UUID of the user", PLAIN, KEY] = None
    name: Annotated[str | None, "name of the user", PERSONAL] = None
    email: Annotated[str | None, "e-mail address (personal)", PERSONAL] = None
    role: Annotated[str | None, "role in the organization", PLAIN] = None


@endpoint("GET /organizations/{org}/members", returns=Member, scope="read_organizations", paginated=True)
def list_members(org: Name, /) -> None:
    """Members of an organization."""


@endpoint("GET /organizations/{org}/members/{user}", returns=Member, scope="read_organizations", key="id")
def get_member(org: Name, user: Uuid, /) -> None:
    """One member by the UUID of the user."""
