"""The service, described once as data: resources, operations, tables."""

from __future__ import annotations

from buildframe.spec.bodies import Misfit, misfits, words
from buildframe.spec.builds import (
    Build,
    BuildFilters,
    BuildState,
    JobsOfBuild,
    NewBuild,
    cancel_build,
    create_build,
    get_build,
    list_all_builds,
    list_builds,
    list_pipeline_builds,
    rebuild_build,
)
from buildframe.spec.declare import (
    Check,
    Column,
    Endpoint,
    Filter,
    Parameter,
    Property,
    Resource,
    columns_of,
    fields_of,
    properties_of,
)
from buildframe.spec.emojis import Emoji, list_emojis
from buildframe.spec.flaky_tests import FlakyTest, FlakyTestFilters, list_flaky_tests
from buildframe.spec.jobs import Job, Unblocking, unblock_job
from buildframe.spec.members import Member, get_member, list_members
from buildframe.spec.pipelines import (
    AccessLevel,
    NewPipeline,
    Pipeline,
    PipelineChanges,
    ProviderSettings,
    add_webhook,
    archive_pipeline,
    create_pipeline,
    delete_pipeline,
    get_pipeline,
    list_pipelines,
    provider_settings_of,
    unarchive_pipeline,
    update_pipeline,
)
from buildframe.spec.teams import (
    NewTeamPipeline,
    TeamPipeline,
    TeamPipelineChanges,
    create_team_pipeline,
    delete_team_pipeline,
    get_team_pipeline,
    list_team_pipelines,
    update_team_pipeline,
)
from buildframe.spec.times import Moment, When, is_relative, when

__all__ = [
    "BESIDE_A_JOB",
    "ENDPOINTS",
    "FETCHED_AT",
    "TABLES",
    "AccessLevel",
    "Build",
    "BuildFilters",
    "BuildState",
    "Check",
    "Column",
    "Emoji",
    "Endpoint",
    "Filter",
    "FlakyTest",
    "FlakyTestFilters",
    "Job",
    "JobsOfBuild",
    "Member",
    "Misfit",
    "Moment",
    "NewBuild",
    "NewPipeline",
    "NewTeamPipeline",
    "Parameter",
    "Pipeline",
    "PipelineChanges",
    "Property",
    "ProviderSettings",
    "Resource",
    "TeamPipeline",
    "TeamPipelineChanges",
    "Unblocking",
    "When",
    "add_webhook",
    "archive_pipeline",
    "cancel_build",
    "columns_of",
    "create_build",
    "create_pipeline",
    "create_team_pipeline",
    "delete_pipeline",
    "delete_team_pipeline",
    "fields_of",
    "get_build",
    "get_member",
    "get_pipeline",
    "get_team_pipeline",
    "is_relative",
    "list_all_builds",
    "list_builds",
    "list_emojis",
    "list_flaky_tests",
    "list_members",
    "list_pipeline_builds",
    "list_pipelines",
    "list_team_pipelines",
    "misfits",
    "properties_of",
    "provider_settings_of",
    "rebuild_build",
    "unarchive_pipeline",
    "unblock_job",
    "update_pipeline",
    "update_team_pipeline",
    "when",
    "words",
]

ENDPOINTS: tuple[Endpoint, ...] = (
    list_all_builds,
    list_builds,
    list_pipeline_builds,
    get_build,
    create_build,
    cancel_build,
    rebuild_build,
    unblock_job,
    list_pipelines,
    get_pipeline,
    create_pipeline,
    update_pipeline,
    archive_pipeline,
    unarchive_pipeline,
    delete_pipeline,
    add_webhook,
    list_team_pipelines,
    get_team_pipeline,
    create_team_pipeline,
    update_team_pipeline,
    delete_team_pipeline,
    list_members,
    get_member,
    list_flaky_tests,
    list_emojis,
)

FETCHED_AT = Column("fetched_at", (), "moment", "the service's time of the answer that this row came in")

BESIDE_A_JOB = {
    "organization": "organization",
    "pipeline": "pipeline",
    "pipeline_id": "pipeline_id",
    "build_id": "id",
    "build_number": "number",
    "build_state": "state",
    "build_created_at": "created_at",
    "branch": "branch",
    "commit": "commit",
}
"""Columns of a job that are its build's: the name in the table of jobs, and in the table of builds."""


def _beside_a_job() -> tuple[Column, ...]:
    of_build = {column.name: column for column in columns_of(Build)}
    chosen = ((name, of_build[source]) for name, source in BESIDE_A_JOB.items())
    return tuple(Column(name, (), column.kind, f"of its build: {column.doc}") for name, column in chosen)


TABLES: dict[str, tuple[Column, ...]] = {
    "builds": (*columns_of(Build), FETCHED_AT),
    "jobs": (*_beside_a_job(), *columns_of(Job), FETCHED_AT),
    "pipelines": (*columns_of(Pipeline), FETCHED_AT),
    "team_pipelines": (*columns_of(TeamPipeline), FETCHED_AT),
    "members": (*columns_of(Member), FETCHED_AT),
    "flaky_tests": (*columns_of(FlakyTest), FETCHED_AT),
    "emojis": (*columns_of(Emoji), FETCHED_AT),
}
"""Every table that can be fetched, with its columns in order."""
