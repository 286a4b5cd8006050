"""Declare the pipelines of a team and its access level to each."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict, Unpack

from buildframe.spec.declare import KEY, PLAIN, Resource, derived, table
from buildframe.spec.operations import Name, Uuid, endpoint, keywords
from buildframe.spec.pipelines import AccessLevel, organization_of, pipeline_of
from buildframe.spec.times import Moment


@table("team_pipelines")
class TeamPipeline(Resource):
    """A pipeline to which a team has access."""

    pipeline_id: Annotated[str | None, "UUID of the pipeline", PLAIN, KEY] = None
    organization: Annotated[
        str | None, "organization slug, from `pipeline_url`", PLAIN, derived(organization_of, "pipeline_url")
    ] = None
    pipeline: Annotated[str | None, "slug, from `pipeline_url`", PLAIN, derived(pipeline_of, "pipeline_url")] = None
    access_level: Annotated[str | None, "`read_only`, `build_and_read` or `manage_build_and_read`", PLAIN] = None
    pipeline_url: Annotated[str | None, "API URL of the pipeline", PLAIN] = None
    created_at: Annotated[Moment | None, "when the team got access", PLAIN] = None


@keywords
class NewTeamPipeline(TypedDict):
    """Properties that give a team access to a pipeline."""

    pipeline_id: Required[Annotated[Uuid, "UUID of the pipeline"]]
    access_level: Required[Annotated[AccessLevel, "access level of the team"]]


@keywords
class TeamPipelineChanges(TypedDict):
    """Changes of the access of a team to a pipeline."""

    access_level: Required[Annotated[AccessLevel, "access level of the team"]]


_PIPELINES = "/organizations/{org}/teams/{team}/pipelines"
_PIPELINE = _PIPELINES + "/{pipeline_id}"


@endpoint(f"GET {_PIPELINES}", returns=TeamPipeline, scope="view_teams", paginated=True)
def list_team_pipelines(org: Name, team: Uuid, /) -> None:
    """Pipelines of a team."""


@endpoint(f"GET {_PIPELINE}", returns=TeamPipeline, scope="view_teams", key="pipeline_id")
def get_team_pipeline(org: Name, team: Uuid, pipeline_id: Uuid, /) -> None:
    """One pipeline of a team."""


@endpoint(f"POST {_PIPELINES}", returns=TeamPipeline, scope="write_teams", success=201)
def create_team_pipeline(org: Name, team: Uuid, /, **properties: Unpack[NewTeamPipeline]) -> None:
    """Give a team access to a pipeline."""


@endpoint(f"PATCH {_PIPELINE}", returns=TeamPipeline, scope="write_teams", key="pipeline_id")
def update_team_pipeline(
    org: Name, team: Uuid, pipeline_id: Uuid, /, **properties: Unpack[TeamPipelineChanges]
) -> None:
    """Change the access level of a team to a pipeline."""


@endpoint(f"DELETE {_PIPELINE}", returns=None, scope="write_teams", success=204)
def delete_team_pipeline(org: Name, team: Uuid, pipeline_id: Uuid, /) -> None:
    """Remove the access of a team to a pipeline."""
