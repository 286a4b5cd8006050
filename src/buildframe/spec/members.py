"""Declare people: members of an organization, and users and authors as nested objects of builds and pipelines."""

from __future__ import annotations

from typing import Annotated

from buildframe.spec.declare import KEY, PERSONAL, PLAIN, Resource, table
from buildframe.spec.operations import Name, Uuid, endpoint
from buildframe.spec.times import Moment


class User(Resource):
    """A user of the service."""

    id: Annotated[str | None, "UUID of the user", PLAIN] = None
    graphql_id: Annotated[str | None, "the same for GraphQL", PLAIN] = None
    name: Annotated[str | None, "name of the user", PERSONAL] = None
    email: Annotated[str | None, "e-mail address (personal)", PERSONAL] = None
    avatar_url: Annotated[str | None, "URL of the avatar image", PERSONAL] = None
    created_at: Annotated[Moment | None, "when the user was created", PLAIN] = None


class Author(Resource):
    """Author of a commit, who may not be a user of the service."""

    name: Annotated[str | None, "name of the author", PERSONAL] = None
    email: Annotated[str | None, "e-mail address (personal)", PERSONAL] = None


@table("members")
class Member(Resource):
    """A member of an organization."""

    id: Annotated[str | None, "UUID of the user", PLAIN, KEY] = None
    name: Annotated[str | None, "name of the user", PERSONAL] = None
    email: Annotated[str | None, "e-mail address (personal)", PERSONAL] = None
    role: Annotated[str | None, "role in the organization", PLAIN] = None


@endpoint(
    "GET /organizations/{org}/members",
    returns=Member,
    scope="read_organizations",
    paginated=True,
    ends_without_link=True,
)
def list_members(org: Name, /) -> None:
    """Members of an organization."""


@endpoint("GET /organizations/{org}/members/{user}", returns=Member, scope="read_organizations", key="id")
def get_member(org: Name, user: Uuid, /) -> None:
    """One member by the UUID of the user."""
