"""The service, described once as data: resources, operations, tables."""

from __future__ import annotations

from buildframe.spec.builds import (
    Build,
    BuildFilters,
    BuildState,
    JobsOfBuild,
    get_build,
    list_all_builds,
    list_builds,
    list_pipeline_builds,
)
from buildframe.spec.declare import Column, Endpoint, Filter, Resource, columns_of, fields_of
from buildframe.spec.jobs import Job
from buildframe.spec.pipelines import Pipeline, get_pipeline, list_pipelines
from buildframe.spec.times import Moment, When, is_relative, when

__all__ = [
    "BESIDE_A_JOB",
    "ENDPOINTS",
    "FETCHED_AT",
    "TABLES",
    "Build",
    "BuildFilters",
    "BuildState",
    "Column",
    "Endpoint",
    "Filter",
    "Job",
    "JobsOfBuild",
    "Moment",
    "Pipeline",
    "Resource",
    "When",
    "columns_of",
    "fields_of",
    "get_build",
    "get_pipeline",
    "is_relative",
    "list_all_builds",
    "list_builds",
    "list_pipeline_builds",
    "list_pipelines",
    "when",
]

ENDPOINTS: tuple[Endpoint, ...] = (
    list_all_builds,
    list_builds,
    list_pipeline_builds,
    get_build,
    list_pipelines,
    get_pipeline,
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
}
"""Every table that can be fetched, with its columns in order."""
