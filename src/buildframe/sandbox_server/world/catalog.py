"""The two organizations: their pipelines, steps and people from `catalog.json`, teams and suites from `roster.json`."""

from __future__ import annotations

from importlib import resources
from typing import Any, Literal

import msgspec

from buildframe.sandbox_server.world.model import Organization
from buildframe.spec import AccessLevel

_FOLDER = resources.files("buildframe.sandbox_server.world")


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


def _load_organizations() -> tuple[Organization, ...]:
    organizations = msgspec.json.decode(_FOLDER.joinpath("catalog.json").read_bytes())
    for organization in organizations:
        for pipeline in organization["pipelines"]:
            pipeline["steps"] = [step for row in pipeline["steps"] for step in _expand_group(row)]
    return msgspec.convert(organizations, tuple[Organization, ...])


def _expand_group(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the step of a row, or one step per part of a group, with somewhat different run times."""
    if "parts" not in row:
        is_script = row.get("kind", "script") == "script"
        return [({"command": f"scripts/ci {row['key']}"} if is_script else {}) | row]
    keys = [f"{row['group']}-{part}" for part in row["parts"]]
    return [
        {name: value for name, value in row.items() if name != "parts"}
        | {
            "key": key,
            "label": f"{row['label']} {part}",
            "command": f"scripts/ci {key}",
            "artifact_paths": "reports/**/*",
        }
        | {"seconds": row["seconds"] * (0.7 + 0.12 * place)}
        for place, (key, part) in enumerate(zip(keys, row["parts"], strict=True))
    ]


ORGANIZATIONS = _load_organizations()
_ROSTER = msgspec.json.decode(_FOLDER.joinpath("roster.json").read_bytes(), type=Roster)
TEAMS, SUITES = _ROSTER.teams, _ROSTER.suites
