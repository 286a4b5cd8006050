"""Tokens and their permissions. Tokens are stored as hashes only. Does not know endpoints."""

from __future__ import annotations

from dataclasses import dataclass

from buildframe.sandbox_server.world.build_state import TokenUser

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
