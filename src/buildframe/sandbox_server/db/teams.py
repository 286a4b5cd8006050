"""Teams and their access to pipelines: rules and queries. Does not know REST or GraphQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.error_responses import HttpError, get_first_or_404, invalid
from buildframe.sandbox_server.world.pipelines import PipelineEntry
from buildframe.sandbox_server.world.teams import TeamGrant, TeamRecord

MANAGES = "manage_build_and_read"

_LAST_MANAGER = "It is the last team that manages this pipeline, and other teams have access to it."


class TeamDirectory:
    """Queries and changes teams. Hold the database lock while you change something."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def list_teams(self, organization: str) -> list[TeamRecord]:
        """Return the teams of an organization in order of creation."""
        rows = self._db.query("SELECT * FROM teams WHERE organization = ? ORDER BY rowid", (organization,))
        return [TeamRecord(*row) for row in rows]

    def get_team(self, organization: str, id: str) -> TeamRecord:
        """Return a team by its UUID. Raises 404 if the organization has no such team."""
        teams = self.list_teams(organization)
        return get_first_or_404((team for team in teams if team.id == id.lower()), "team")

    def list_grants(self, column: Literal["id", "team", "pipeline"], value: str) -> list[TeamGrant]:
        """Return the grants with a value in a column, in order of creation."""
        sql = f"SELECT * FROM team_pipelines WHERE {column} = ? ORDER BY rowid"  # noqa: S608  values are bound
        return [TeamGrant(*row) for row in self._db.query(sql, (value,))]

    def find_pipeline(self, organization: str, pipeline_id: str) -> PipelineEntry | None:
        """Return a pipeline by its UUID; None if it does not exist."""
        entries = self._db.pipelines.in_organization(organization)
        return next((entry for entry in entries if self._db.serializer.pipeline_id(entry) == pipeline_id.lower()), None)

    def get_grant(self, team: TeamRecord, pipeline_id: str) -> TeamGrant:
        """Return the grant of a team for a pipeline. Raises 404 if there is none."""
        entry, grants = self.find_pipeline(team.organization, pipeline_id), self.list_grants("team", team.id)
        return get_first_or_404((each for each in grants if entry and each.pipeline_key == entry.key), "team pipeline")

    def grant(self, team: TeamRecord, pipeline_id: str, level: str) -> TeamGrant:
        """Grant a team access to a pipeline. Raises 422 if the pipeline does not exist or the team has it already."""
        entry = self.find_pipeline(team.organization, pipeline_id)
        if entry is None:
            raise _invalid("Pipeline must exist")
        if any(grant.pipeline_key == entry.key for grant in self.list_grants("team", team.id)):
            raise _invalid("Pipeline has already been added to this team")
        return self.insert_grant(team.id, entry, level)

    def insert_grant(self, team: str, entry: PipelineEntry, level: str) -> TeamGrant:
        """Grant a team, by its UUID, access to a pipeline that it does not have yet."""
        now = self._db.load_now()
        id = self._db.serializer.random.uuid("team pipeline", team, entry.key, now)
        grant = TeamGrant(id, team, entry.key, level, now)
        self._db.execute("INSERT INTO team_pipelines VALUES (?, ?, ?, ?, ?)", grant)
        return grant

    def change_level(self, grant: TeamGrant, level: str) -> TeamGrant:
        """Change the level of a grant. Raises 422 if no team could manage the pipeline any more."""
        if level != MANAGES and self._is_last_manager(grant):
            raise _invalid(_LAST_MANAGER)
        self._db.execute("UPDATE team_pipelines SET level = ? WHERE id = ?", (level, grant.id))
        return grant._replace(level=level)

    def revoke(self, grant: TeamGrant) -> None:
        """Delete a grant. Raises 422 if no team could manage the pipeline any more."""
        if self._is_last_manager(grant):
            raise HttpError(422, f"Team pipeline could not be deleted. {_LAST_MANAGER}")
        self._db.execute("DELETE FROM team_pipelines WHERE id = ?", (grant.id,))

    def _is_last_manager(self, grant: TeamGrant) -> bool:
        others = [other.level for other in self.list_grants("pipeline", grant.pipeline_key) if other.id != grant.id]
        return grant.level == MANAGES and bool(others) and MANAGES not in others

    def parse_levels(self, organization: str, teams: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
        """Return the access level of each team of a new pipeline, by UUID. Raises 422 for unknown teams.

        Teams without a level get the right to manage the pipeline.
        """
        levels = dict(teams) if isinstance(teams, Mapping) else dict.fromkeys(teams, MANAGES)
        ids = {team.id for team in self.list_teams(organization)}
        unknown = [id for id in levels if id.lower() not in ids]
        if unknown:
            raise invalid(("teams", f"There is no team {id!r} in this organization") for id in unknown)
        return {id.lower(): level for id, level in levels.items()}


def _invalid(reason: str) -> HttpError:
    return HttpError(422, f"Validation failed: {reason}")
