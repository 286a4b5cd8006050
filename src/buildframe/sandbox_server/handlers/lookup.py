"""Look up resources by the parameters of a path. Raises 404 if they do not exist."""

from __future__ import annotations

from collections.abc import Mapping

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.error_responses import not_found
from buildframe.sandbox_server.world.build_state import BuildRun, JobRun
from buildframe.sandbox_server.world.model import Organization, agent_names
from buildframe.sandbox_server.world.pipelines import PipelineEntry

PathParameters = Mapping[str, str]


def find_organization(db: Database, path: PathParameters) -> Organization:
    """Return the organization `org`."""
    for organization in db.serializer.world.organizations:
        if organization.slug == path["org"]:
            return organization
    raise not_found("organization")


def find_pipeline(db: Database, path: PathParameters) -> PipelineEntry:
    """Return the pipeline with the current slug `pipeline`."""
    entry = db.pipelines.find(path["org"], path["pipeline"])
    if entry is None:
        raise not_found("pipeline")
    return entry


def find_build(db: Database, path: PathParameters) -> BuildRun:
    """Return the build with the number `number`, which may be any text."""
    entry, number = find_pipeline(db, path), path["number"]
    if number.isascii() and number.isdigit() and len(number) <= 18:
        for build in db.load_builds("pipeline_key = ? AND number = ?", entry.key, int(number)):
            return build
    raise not_found("build")


def find_job(db: Database, path: PathParameters) -> tuple[BuildRun, JobRun]:
    """Return the job `job` with its build."""
    build = find_build(db, path)
    for job in build.jobs:
        if job.id == path["job"]:
            return build, job
    raise not_found("job")


def find_agent(db: Database, path: PathParameters) -> tuple[Organization, str]:
    """Return the name of the agent with the UUID `agent`, with its organization."""
    organization = find_organization(db, path)
    for name in list_agent_names(organization):
        if db.serializer.serialize_agent(organization, name)["id"] == path["agent"].lower():
            return organization, name
    raise not_found("agent")


def list_agent_names(organization: Organization) -> list[str]:
    """Return the names of all agents of an organization."""
    return [name for queue, count in organization.agents.items() for name in agent_names(queue, count)]
