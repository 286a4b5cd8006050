"""The teams and test suites of the two organizations, from `roster.json`."""

from __future__ import annotations

from importlib import resources
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


class Roster(msgspec.Struct, frozen=True):
    """Teams and test suites by the slug of their organization."""

    teams: dict[str, tuple[TeamBlueprint, ...]]
    suites: dict[str, tuple[Suite, ...]]


_ROSTER = msgspec.json.decode(
    resources.files("buildframe.sandbox_server.world").joinpath("roster.json").read_bytes(), type=Roster
)
TEAMS, SUITES = _ROSTER.teams, _ROSTER.suites
