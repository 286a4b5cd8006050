"""The invented teams and test suites of the two organizations."""

from __future__ import annotations

from typing import Literal

import msgspec

from buildframe.spec import AccessLevel


class Squad(msgspec.Struct, frozen=True):
    """A team that a world begins with, and its level at each pipeline by slug; `*` stands for all others."""

    name: str
    description: str
    levels: dict[str, AccessLevel]


class Suite(msgspec.Struct, frozen=True):
    """A test suite: the pipeline that runs it, the team that owns it, how many of its tests flake in the long run."""

    slug: str
    language: Literal["ruby", "javascript", "python", "go"]
    pipeline: str
    team: str
    tests: int


SQUADS: dict[str, tuple[Squad, ...]] = {
    "acme": (
        Squad("Everyone", "All people of Acme", {"*": "build_and_read"}),
        Squad("Frontend", "The shop and its pages", {"web": "manage_build_and_read", "docs": "build_and_read"}),
        Squad(
            "Backend",
            "Orders, payments and bills",
            {"api": "manage_build_and_read", "billing": "manage_build_and_read", "web": "read_only"},
        ),
        Squad("Mobile", "The apps for phones", {"mobile": "manage_build_and_read", "api": "read_only"}),
        Squad(
            "Platform",
            'Clusters, agents & "glue"',
            {"platform": "manage_build_and_read", "docs": "manage_build_and_read", "*": "read_only"},
        ),
        Squad("Data", "Tables and their checks", {"data": "manage_build_and_read", "platform": "build_and_read"}),
        Squad("Visitors", "Has no pipeline yet", {}),
    ),
    "globex": (
        Squad("Everyone", "All people of Globex", {"*": "build_and_read"}),
        Squad("Site", "The public pages", {"site": "manage_build_and_read", "widgets": "manage_build_and_read"}),
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
