"""Who may ask what: tokens, kept as hashes only."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from buildframe.errors import BadInput
from buildframe.secret import confined
from buildframe.service import problems
from buildframe.service.world.runs import User

if TYPE_CHECKING:
    from buildframe.service.data.database import Data

CONTROL = "sandbox"
"""The scope that lets a token tell the sandbox itself what to do; no scope of the service."""

SCOPES = (
    "read_builds", "write_builds", "read_pipelines", "write_pipelines", "view_teams", "write_teams",
    "read_organizations", "read_suites", "GraphQL",
)  # fmt: skip


@dataclass(frozen=True)
class Access:
    """What a token allows, and whose it is; only some users may edit pipelines."""

    user: User
    scopes: tuple[str, ...]
    organizations: tuple[str, ...]
    may_edit: bool = False


@confined
def new_token(data: Data, scopes: Sequence[str], organizations: Sequence[str], may_edit: bool) -> str:
    """A new token, of a user of its own."""
    known = [organization.slug for organization in data.bodies.world.organizations]
    _refuse_unknown("scope", scopes, (*SCOPES, CONTROL))
    _refuse_unknown("organization", organizations, known)
    token = f"bfs_{secrets.token_hex(20)}"
    with data.lock:
        data.add_token(_hash(token), Access(_new_user(data), tuple(scopes), tuple(organizations), may_edit))
    return token


def _new_user(data: Data) -> User:
    """The next user: the same one in every sandbox of the same seed, whatever its token is."""
    number = 1 + data.count_tokens()
    return User(
        id=data.bodies.chance.uuid("user of token", number),
        name=f"Token user {number}",
        email=f"user{number}@example.com",
        created=data.load_now(),
    )


def _refuse_unknown(what: str, asked: Sequence[str], known: Sequence[str]) -> None:
    if isinstance(asked, str):
        raise BadInput(f"Pass a list of {what}s, such as [{asked!r}].")
    for name in asked:
        if name not in known:
            raise BadInput(f"There is no {what} {name!r} here; there are {', '.join(known)}.")


def access_by(data: Data, authorization: str | None) -> Access:
    """What the token in an `Authorization` header allows."""
    kind, _, token = (authorization or "").partition(" ")
    found = data.find_token(_hash(token.strip())) if kind.lower() == "bearer" else None
    if found is None:
        raise problems.unauthenticated()
    return found


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
