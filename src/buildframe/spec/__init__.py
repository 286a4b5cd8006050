"""Describe the service as data: resources, operations and tables. Does not know how requests are sent."""

from __future__ import annotations

import importlib
import pkgutil

from buildframe.spec.annotations import Annotation, list_annotations
from buildframe.spec.bodies import Violation, describe_type, find_violations
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
from buildframe.spec.declare import PLAIN, RESOURCES, Column, Privacy, Resource, columns_of, fields_of, key_of
from buildframe.spec.emojis import Emoji, list_emojis
from buildframe.spec.flaky_tests import FlakyTest, FlakyTestFilters, list_flaky_tests
from buildframe.spec.jobs import Job, JobFilters, JobState, Unblocking, get_job, list_build_jobs, retry_job, unblock_job
from buildframe.spec.members import Member, get_member, list_members
from buildframe.spec.operations import Check, Endpoint, Filter, Parameter, Property, endpoints_of, properties_of
from buildframe.spec.pipelines import (
    AccessLevel,
    NewPipeline,
    Pipeline,
    PipelineChanges,
    PipelineFilters,
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
from buildframe.spec.suite_tests import FailedExecution, SuiteTest, SuiteTestFilters, list_failed_executions, list_tests
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
    "BUILD_COLUMNS_OF_JOBS", "COMPUTED_COLUMNS_OF_JOBS", "ENDPOINTS", "FETCHED_AT", "RESOURCES", "TABLES",
    "AccessLevel", "Annotation", "Build", "BuildFilters", "BuildState", "Check", "Column", "Emoji", "Endpoint",
    "FailedExecution", "Filter", "FlakyTest", "FlakyTestFilters", "Job", "JobFilters", "JobState", "JobsOfBuild",
    "Member", "Moment", "NewBuild", "NewPipeline", "NewTeamPipeline", "Parameter", "Pipeline", "PipelineChanges",
    "PipelineFilters", "Privacy", "Property", "ProviderSettings", "Resource", "SuiteTest", "SuiteTestFilters",
    "TeamPipeline", "TeamPipelineChanges", "Unblocking", "Violation", "When", "add_webhook", "archive_pipeline",
    "cancel_build", "columns_of", "create_build", "create_pipeline", "create_team_pipeline", "delete_pipeline",
    "delete_team_pipeline", "describe_type", "fields_of", "find_violations", "get_build", "get_job", "get_member",
    "get_pipeline", "get_team_pipeline", "is_relative", "key_of", "list_all_builds", "list_annotations",
    "list_build_jobs", "list_builds", "list_emojis", "list_failed_executions", "list_flaky_tests", "list_members",
    "list_pipeline_builds", "list_pipelines", "list_team_pipelines", "list_tests", "properties_of",
    "provider_settings_of", "rebuild_build", "retry_job", "unarchive_pipeline", "unblock_job", "update_pipeline",
    "update_team_pipeline", "when",
]  # fmt: skip

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

ENDPOINTS: tuple[Endpoint, ...] = endpoints_of(__name__)
"""Every operation of the client, grouped by the module that declares it."""

FETCHED_AT = Column("fetched_at", (), "timestamp", "service time of the response that contained this row", None, PLAIN)

BUILD_COLUMNS_OF_JOBS = {
    "organization": "organization",
    "pipeline": "pipeline",
    "pipeline_id": "pipeline_id",
    "build_id": "id",
    "build_number": "number",
    "build_state": "state",
    "build_created_at": "created_at",
    "build_finished_at": "finished_at",
    "branch": "branch",
    "commit": "commit",
}
"""Columns that jobs copy from their builds: name in the table of jobs → name in the table of builds."""

_OF_BUILD = {column.name: column for column in columns_of(Build)}
_COPIED = [(name, _OF_BUILD[source]) for name, source in BUILD_COLUMNS_OF_JOBS.items()]
_LEADING = {"jobs": [Column(name, (), of.kind, f"of its build: {of.doc}", None, of.privacy) for name, of in _COPIED]}

COMPUTED_COLUMNS_OF_JOBS = (
    Column("step", (), "text", "step, the same in every build: see `metrics.step`", None, PLAIN),
    Column(
        "retry_of_job_id", (), "text", "id of the attempt that this one repeats; null if it is the first", None, PLAIN
    ),
    Column("retry_of_type", (), "text", "kind of retry that made this attempt: `automatic` or `manual`", None, PLAIN),
)
"""Columns of jobs that follow from the jobs of a build: see `buildframe.spec.job_columns`."""

_COMPUTED = {"jobs": COMPUTED_COLUMNS_OF_JOBS}

TABLES: dict[str, tuple[Column, ...]] = {
    name: (*_LEADING.get(name, ()), *columns_of(resource), *_COMPUTED.get(name, ()), FETCHED_AT)
    for name, resource in sorted(RESOURCES.items())
}
"""Every table that can be fetched, with its columns in order."""
