"""Look up resources by the parameters of a path. Raises 404 if they do not exist."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.error_responses import get_first_or_404
from buildframe.sandbox_server.pagination import parse_number
from buildframe.sandbox_server.world.build_state import BuildRun, JobRun
from buildframe.sandbox_server.world.model import Organization, Suite, agent_names, queue_of_agent
from buildframe.sandbox_server.world.pipelines import PipelineEntry

PathParameters = Mapping[str, str]


def find_organization(db: Database, path: PathParameters) -> Organization:
    """Return the organization `org`."""
    organizations = db.serializer.world.organizations
    return get_first_or_404((each for each in organizations if each.slug == path["org"]), "organization")


def find_suite(db: Database, path: PathParameters) -> Suite:
    """Return the test suite `suite`."""
    suites = find_organization(db, path).suites
    return get_first_or_404((each for each in suites if each.slug == path["suite"]), "suite")


def find_pipeline(db: Database, path: PathParameters) -> PipelineEntry:
    """Return the pipeline with the current slug `pipeline`."""
    entries = db.pipelines.in_organization(path["org"])
    return get_first_or_404((each for each in entries if each.pipeline.slug == path["pipeline"]), "pipeline")


def find_build(db: Database, path: PathParameters) -> BuildRun:
    """Return the build with the number `number`, which may be any text."""
    key, number = find_pipeline(db, path).key, parse_number(path["number"])
    return get_first_or_404(db.load_builds("pipeline_key = ? AND number = ?", key, number), "build")


def find_job(db: Database, path: PathParameters) -> tuple[BuildRun, JobRun]:
    """Return the job `job` with its build."""
    build = find_build(db, path)
    return build, get_first_or_404((job for job in build.jobs if job.id == path["job"]), "job")


def find_agent(db: Database, path: PathParameters) -> tuple[Organization, str]:
    """Return the name of the agent with the UUID `agent`, with its organization."""
    organization, id = find_organization(db, path), path["agent"].lower()
    lasting = (name for queue in organization.agents for name in agent_names(queue, organization.agents[queue]))
    names = itertools.chain(lasting, db.find_agents(organization.slug, only_active=False))
    found = (name for name in names if db.serializer.serialize_agent(organization, name)["id"] == id)
    return organization, get_first_or_404(found, "agent")


def list_agent_names(db: Database, organization: Organization) -> list[str]:
    """Return the names of the agents that an organization has now."""
    return [name for queue in organization.agents for name in _agents_now(db, organization, queue)]


def _agents_now(db: Database, organization: Organization, queue: str) -> list[str]:
    fleet = organization.get_fleet(queue)
    if fleet.boot_s is None:
        return agent_names(queue, fleet.count_at(db.load_now()))
    return [name for name in db.find_agents(organization.slug, only_active=True) if queue_of_agent(name) == queue]
