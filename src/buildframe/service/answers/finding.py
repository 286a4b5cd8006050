"""Finding what an address names; 404 where there is no such thing."""

from __future__ import annotations

import msgspec

from buildframe.service.data.database import Data
from buildframe.service.life.fleet import agent_names
from buildframe.service.problems import not_found
from buildframe.service.world.lines import Line
from buildframe.service.world.model import Organization
from buildframe.service.world.runs import BuildRun, JobRun


def organization(data: Data, slug: str) -> Organization:
    """The organization of a slug."""
    for one in data.bodies.world.organizations:
        if one.slug == slug:
            return one
    raise not_found("organization")


def line(data: Data, slug: str, pipeline: str) -> Line:
    """The pipeline that has a slug now."""
    found = data.lines.find(slug, pipeline)
    if found is None:
        raise not_found("pipeline")
    return found


def build(data: Data, line: Line, number: str) -> BuildRun:
    """The build of a number, which need not be one."""
    if number.isascii() and number.isdigit() and len(number) <= 18:
        found = data.rows("SELECT run FROM builds WHERE line = ? AND number = ?", (line.key, int(number)))
        if found:
            return msgspec.json.decode(found[0][0], type=BuildRun)
    raise not_found("build")


def job(build: BuildRun, id: str) -> JobRun:
    """A job of a build."""
    found = next((job for job in build.jobs if job.id == id), None)
    if found is None:
        raise not_found("job")
    return found


def agent(data: Data, organization: Organization, id: str) -> str:
    """The name of the agent of a UUID."""
    for name in agents(organization):
        if data.bodies.agent(organization, name)["id"] == id.lower():
            return name
    raise not_found("agent")


def agents(organization: Organization) -> list[str]:
    """The names of all agents of an organization."""
    return [name for queue, count in organization.agents.items() for name in agent_names(queue, count)]
