"""The teams and test suites of the two organizations."""

from __future__ import annotations

from typing import Literal

import msgspec

from buildframe.spec import AccessLevel


class TeamBlueprint(msgspec.Struct, frozen=True):
    """A team of a new world, and its access level to each pipeline by slug; `*` means all others."""

    name: str
    description: str
    levels: dict[str, AccessLevel]


class Suite(msgspec.Struct, frozen=True):
    """A test suite: its pipeline, the team that owns it, and how many of its tests ever flake."""

    slug: str
    language: Literal["ruby", "javascript", "python", "go"]
    pipeline: str
    team: str
    tests: int


TEAMS: dict[str, tuple[TeamBlueprint, ...]] = {
    "acme": (
        TeamBlueprint("Everyone", "All people of Acme", {"*": "build_and_read"}),
        TeamBlueprint("Frontend", "The shop and its pages", {"web": "manage_build_and_read", "docs": "build_and_read"}),
        TeamBlueprint(
            "Backend",
            "Orders, payments and bills",
            {"api": "manage_build_and_read", "billing": "manage_build_and_read", "web": "read_only"},
        ),
        TeamBlueprint("Mobile", "The apps for phones", {"mobile": "manage_build_and_read", "api": "read_only"}),
        TeamBlueprint(
            "Platform",
            'Clusters, agents & "glue"',
            {"platform": "manage_build_and_read", "docs": "manage_build_and_read", "*": "read_only"},
        ),
        TeamBlueprint(
            "Data", "Tables and their checks", {"data": "manage_build_and_read", "platform": "build_and_read"}
        ),
        TeamBlueprint("Visitors", "Has no pipeline yet", {}),
    ),
    "globex": (
        TeamBlueprint("Everyone", "All people of Globex", {"*": "build_and_read"}),
        TeamBlueprint(
            "Site", "The public pages", {"site": "manage_build_and_read", "widgets": "manage_build_and_read"}
        ),
    ),
}

SUITES: dict[str, tuple[Suite, ...]] = {
    "acme": (
        Suite("rspec", "ruby", "billing", "Backend", 170),
        Suite("jest", "javascript", "web", "Frontend", 64),
        Suite("pytest", "python", "api", "Backend", 48),
        Suite("go-test", "go", "platform", "Platform", 25),
    ),
    "globex": (Suite("vitest", "javascript", "site", "Site", 22),),
}
