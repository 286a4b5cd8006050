"""Tokens and their permissions. Stores hashes of tokens only. Does not know endpoints."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from buildframe.errors import BadInput
from buildframe.guards.secrets import confined
from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.world.build_state import TokenUser
from buildframe.spec.decoders import decoder_of

CONTROL = "sandbox"
"""The scope for the control routes of the sandbox itself; not a scope of the service."""

SCOPES = (
    "read_builds", "write_builds", "read_pipelines", "write_pipelines", "view_teams", "write_teams",
    "read_organizations", "read_suites", "GraphQL",
)  # fmt: skip


@dataclass(frozen=True)
class Access:
    """The permissions of a token, and its user. `may_edit`: whether the user can change pipelines."""

    user: TokenUser
    scopes: tuple[str, ...]
    organizations: tuple[str, ...]
    may_edit: bool = False


@confined
def create_token(db: Database, scopes: Sequence[str], organizations: Sequence[str], may_edit: bool) -> str:
    """Create a token for a new user. Raises `BadInput` for unknown scopes or organizations."""
    allowed = [organization.slug for organization in db.serializer.world.organizations]
    _check_names("scope", scopes, (*SCOPES, CONTROL))
    _check_names("organization", organizations, allowed)
    token = f"bfs_{secrets.token_hex(20)}"
    with db.lock:
        ((number,),) = db.query("SELECT 1 + count(*) FROM tokens")
        id = db.serializer.random.uuid("user of token", number)  # the same in every sandbox of the same seed
        user = TokenUser(id, f"Token user {number}", f"user{number}@example.com", db.load_now())
        access = Access(user, tuple(scopes), tuple(organizations), may_edit)
        db.execute("INSERT INTO tokens VALUES (?, ?)", (_hash(token), msgspec.json.encode(access)))
    return token


def authenticate(db: Database, authorization: str | None) -> Access:
    """Return the permissions of the token in an `Authorization` header. Raises 401 without a valid one."""
    kind, _, token = (authorization or "").partition(" ")
    rows = db.query("SELECT access FROM tokens WHERE hash = ?", (_hash(token.strip()),))
    if kind.lower() != "bearer" or not rows:
        raise HttpError(401, "Authentication required. Please supply a valid API Access Token")
    return decoder_of(Access).decode(rows[0][0])


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _check_names(what: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    if isinstance(names, str):
        raise BadInput(f"{what}s={names!r} is a string. Pass a list: [{names!r}].")
    for name in names:
        if name not in allowed:
            raise BadInput(f"There is no {what} {name!r}. Use one of: {', '.join(allowed)}.")
