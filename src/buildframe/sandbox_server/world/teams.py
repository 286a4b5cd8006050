"""Teams, the pipelines of each, and those that a world begins with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from buildframe.sandbox_server.world.hashed_random import SeededRandom
from buildframe.sandbox_server.world.model import DAY, TeamBlueprint, World
from buildframe.sandbox_server.world.pipelines import PipelineEntry, initial_pipelines

_AGE_OF_TEAMS = 700 * DAY
_AGE_OF_LEVELS = 90 * DAY


class TeamRecord(NamedTuple):
    """A row of table `teams`; `created` in microseconds."""

    id: str
    organization: str
    name: str
    description: str
    created: int


class TeamGrant(NamedTuple):
    """A row of table `team_pipelines`: the access level of a team to a pipeline; `created` in microseconds."""

    id: str
    team: str
    pipeline_key: str
    level: str
    created: int


def initial_teams(world: World) -> tuple[list[TeamRecord], list[TeamGrant]]:
    """Return the teams of a new world, and their access to pipelines."""
    random, entries = SeededRandom(world.seed), list(initial_pipelines(world))
    teams: list[TeamRecord] = []
    grants: list[TeamGrant] = []
    for organization in world.organizations:
        for blueprint in organization.teams:
            id = team_id(random, organization.slug, blueprint.name)
            created = world.start - _AGE_OF_TEAMS - int(random.uniform("team", id, "created") * _AGE_OF_TEAMS)
            teams.append(TeamRecord(id, organization.slug, blueprint.name, blueprint.description, created))
            grants += _initial_grants(random, teams[-1], blueprint, entries)
    return teams, grants


def team_id(random: SeededRandom, organization: str, name: str) -> str:
    """Return the UUID of a team of the catalog."""
    return random.uuid("team", organization, name)


def _initial_grants(
    random: SeededRandom, team: TeamRecord, blueprint: TeamBlueprint, entries: Sequence[PipelineEntry]
) -> Iterator[TeamGrant]:
    for entry in entries:
        level = blueprint.levels.get(entry.pipeline.slug, blueprint.levels.get("*"))
        if level is not None and entry.organization.slug == team.organization:
            age = int(random.uniform("team pipeline", team.id, entry.key, "age") * _AGE_OF_LEVELS)
            created = team.created + _AGE_OF_TEAMS - age
            id = random.uuid("team pipeline", team.id, entry.key, created)
            yield TeamGrant(id, team.id, entry.key, level, created)
