"""Look up resources by the identifiers in a URL. Raises 404 if they do not exist."""

from __future__ import annotations

import msgspec

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.error_responses import not_found
from buildframe.sandbox_server.simulation.agents import agent_names as names_in_queue
from buildframe.sandbox_server.world.build_state import BuildRun, JobRun
from buildframe.sandbox_server.world.model import Organization
from buildframe.sandbox_server.world.pipelines import PipelineEntry


def find_organization(db: Database, slug: str) -> Organization:
    """Return an organization by its slug."""
    for one in db.serializer.world.organizations:
        if one.slug == slug:
            return one
    raise not_found("organization")


def find_pipeline(db: Database, slug: str, pipeline: str) -> PipelineEntry:
    """Return a pipeline by its current slug."""
    entry = db.pipelines.find(slug, pipeline)
    if entry is None:
        raise not_found("pipeline")
    return entry


def find_build(db: Database, entry: PipelineEntry, number: str) -> BuildRun:
    """Return a build by its number, which may be any text."""
    if number.isascii() and number.isdigit() and len(number) <= 18:
        rows = db.rows("SELECT run FROM builds WHERE pipeline_key = ? AND number = ?", (entry.key, int(number)))
        if rows:
            return msgspec.json.decode(rows[0][0], type=BuildRun)
    raise not_found("build")


def find_job(build: BuildRun, id: str) -> JobRun:
    """Return a job of a build."""
    match = next((job for job in build.jobs if job.id == id), None)
    if match is None:
        raise not_found("job")
    return match


def find_agent(db: Database, organization: Organization, id: str) -> str:
    """Return the name of an agent by its UUID."""
    for name in agent_names(organization):
        if db.serializer.agent(organization, name)["id"] == id.lower():
            return name
    raise not_found("agent")


def agent_names(organization: Organization) -> list[str]:
    """Return the names of all agents of an organization."""
    return [name for queue, count in organization.agents.items() for name in names_in_queue(queue, count)]
