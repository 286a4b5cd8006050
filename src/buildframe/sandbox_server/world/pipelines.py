"""The current pipelines of a sandbox, by a key that does not change when the slug does."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from buildframe.sandbox_server.world.hashed_random import SeededRandom
from buildframe.sandbox_server.world.model import Organization, World
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord, cluster_ids, initial_record
from buildframe.sandbox_server.world.steps import Plan


class PipelineEntry:
    """The current version of a pipeline in its organization. Immutable: a change creates a new entry with the same key.

    `key` is "organization/pipeline" for pipelines of the catalog and a UUID for those created later.
    """

    def __init__(self, key: str, organization: Organization, pipeline: PipelineRecord) -> None:
        self.key, self.organization, self.pipeline = key, organization, pipeline
        self.plan = Plan(pipeline.steps)

    def changed(self, pipeline: PipelineRecord) -> PipelineEntry:
        """Return an entry with the same key and another record."""
        return PipelineEntry(self.key, self.organization, pipeline)

    @property
    def can_be_built(self) -> bool:
        """Whether the pipeline is not archived and has steps."""
        return self.pipeline.archived_at is None and bool(self.plan.slots)

    @property
    def path(self) -> str:
        """The current path: `organization/slug`."""
        return f"{self.organization.slug}/{self.pipeline.slug}"


class PipelineRegistry(UserDict[str, PipelineEntry]):
    """All pipelines by key, in order of creation, and `plans`: every plan that some build was created with."""

    def __init__(self, entries: Iterable[PipelineEntry] = (), plans: Iterable[Plan] = ()) -> None:
        super().__init__()
        self.plans = {plan.key: plan for plan in plans}
        for entry in entries:
            self.put(entry)

    def find(self, organization: str, slug: str) -> PipelineEntry | None:
        """Return the pipeline that currently has a slug; None if none has it."""
        return next((entry for entry in self.in_organization(organization) if entry.pipeline.slug == slug), None)

    def in_organization(self, organization: str) -> list[PipelineEntry]:
        """Return the pipelines of an organization in order of creation."""
        return [entry for entry in list(self.data.values()) if entry.organization.slug == organization]

    def put(self, entry: PipelineEntry) -> None:
        """Add a pipeline, or replace the entry of its key."""
        self[entry.key] = entry
        self.plans[entry.plan.key] = entry.plan

    @contextmanager
    def rollback_on_error(self) -> Iterator[None]:
        """Undo changes of the block if it fails."""
        before = dict(self.data)
        try:
            yield
        except BaseException:
            self.data = before
            raise


def organization_clusters(world: World, organization: Organization) -> tuple[str, ...]:
    """Return the UUIDs of the clusters of an organization."""
    random = SeededRandom(world.seed)
    has_cluster = organization.has_cluster
    return cluster_ids(organization.slug, random, has_cluster=has_cluster, is_odd=world.is_odd)


def initial_pipelines(world: World) -> Iterator[PipelineEntry]:
    """Yield the pipelines of a new world."""
    random = SeededRandom(world.seed)
    for organization in world.organizations:
        clusters = organization_clusters(world, organization)
        for pipeline in organization.pipelines:
            record = initial_record(pipeline, organization.slug, clusters, random, world.start)
            yield PipelineEntry(f"{organization.slug}/{pipeline.slug}", organization, record)
