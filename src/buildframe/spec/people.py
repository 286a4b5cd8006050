"""Declare users and authors as nested objects of builds and pipelines."""

from __future__ import annotations

from typing import Annotated

from buildframe.spec.declare import Resource
from buildframe.spec.times import Moment


class User(Resource):
    """A user of the service."""

    id: Annotated[str | None, "UUID of the user"] = None
    graphql_id: Annotated[str | None, "the same for GraphQL"] = None
    name: Annotated[str | None, "name of the user"] = None
    email: Annotated[str | None, "e-mail address (personal)"] = None
    avatar_url: Annotated[str | None, "URL of the avatar image"] = None
    created_at: Annotated[Moment | None, "when the user was created"] = None


class Author(Resource):
    """Author of a commit, who may not be a user of the service."""

    name: Annotated[str | None, "name of the author"] = None
    email: Annotated[str | None, "e-mail address (personal)"] = None
