"""Stored settings of pipelines, and their defaults. Does not know how pipelines run."""

from __future__ import annotations

import re

import msgspec

from buildframe.sandbox_server.data_files import data_file
from buildframe.sandbox_server.world.build_state import Actor
from buildframe.sandbox_server.world.hashed_random import SeededRandom
from buildframe.sandbox_server.world.steps import PipelineStep
from buildframe.spec import provider_settings_of

Setting = bool | str

_DEFAULTS: dict[str, Setting] = msgspec.json.decode(data_file("world/provider_settings.json").read_bytes())
_HOSTS = ("github", "gitlab", "bitbucket")


class PipelineRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a pipeline. Timestamps are in microseconds; filters are branch filters.

    `share`, `main_share`, `nightly_hour` and `pushes_per_hour` control its random builds. Responses show `legacy`
    pipelines in an older format. `configuration` is the YAML as it was sent; None if it is derived from the steps.
    `provider` is the kind of the repository host, `provider_settings` its changed settings, and `has_webhook`
    is whether the host reports pushes.
    """

    slug: str
    name: str
    steps: tuple[PipelineStep, ...]
    share: float = 0.0
    main_share: float = 0.5
    nightly_hour: int | None = None
    pushes_per_hour: float = 0.0
    legacy: bool = False
    description: str | None = None
    tags: tuple[str, ...] | None = None
    default_branch: str = "main"
    visibility: str = "private"
    branch_configuration: str | None = None
    skip_queued_branch_builds: bool = False
    skip_queued_branch_builds_filter: str | None = None
    cancel_running_branch_builds: bool = False
    cancel_running_branch_builds_filter: str | None = None
    allow_rebuilds: bool = True
    archived_at: int | None = None
    env: dict[str, str] = {}
    repository: str = ""
    cluster_id: str | None = None
    pipeline_template_uuid: str | None = None
    provider: str = ""
    provider_settings: dict[str, Setting] = {}
    has_webhook: bool = False
    configuration: str | None = None
    created_at: int = 0
    created_by: Actor = 0

    @property
    def settings(self) -> dict[str, Setting]:
        """All provider settings, with their defaults."""
        return default_settings(self.provider) | self.provider_settings


def default_settings(provider: str) -> dict[str, Setting]:
    """Return the default settings of a kind of repository host."""
    there = provider_settings_of(provider)
    return {name: value for name, value in _DEFAULTS.items() if name in there}


def provider_of(repository: str) -> str:
    """Return the kind of host in a repository URL; `private` for a self-hosted one."""
    host = re.match(r"(?:[a-z+]+://)?(?:[^@/]*@)?([^/:]*)", repository.lower())
    first = host[1].split(".")[0] if host else ""
    return first if first in _HOSTS else "private"


def repository_name(repository: str) -> str:
    """Return the last two parts of a repository URL, such as `acme/web`."""
    parts = [part for part in re.split(r"[:/]", repository.removesuffix("/").removesuffix(".git")) if part]
    return "/".join(parts[-2:])


_DAY = 86_400 * 1_000_000
_LEGACY_CREATED = 1_378_214_678 * 1_000_000  # 2013-09-03


def initial_record(
    pipeline: PipelineRecord, organization: str, clusters: tuple[str, ...], random: SeededRandom, start: int
) -> PipelineRecord:
    """Complete a pipeline of the catalog, in one of these clusters; the world starts at `start`."""
    position = -1 if pipeline.slug in _IN_SECOND_CLUSTER else 0
    cluster = clusters[position] if clusters else None
    id = random.uuid("pipeline", f"{organization}/{pipeline.slug}")
    created = start - int(random.uniform_between(100, 900, id, "made") * _DAY)
    return msgspec.structs.replace(
        pipeline,
        repository=f"git@git.example.com:{organization}/{pipeline.slug}.git",
        provider="private" if pipeline.legacy else "github",
        has_webhook=not pipeline.legacy,
        cluster_id=cluster,
        pipeline_template_uuid=template_uuid(random, organization) if pipeline.nightly_hour is not None else None,
        created_at=_LEGACY_CREATED if pipeline.legacy else created,
    )


_IN_SECOND_CLUSTER = ("data", "docs")


def cluster_ids(organization: str, random: SeededRandom, *, has_cluster: bool, is_odd: bool) -> tuple[str, ...]:
    """Return the UUIDs of an organization's clusters: none, one, or in an odd world two."""
    second = (random.uuid("second cluster", organization),) if is_odd else ()
    return (cluster_id(random, organization), *second) if has_cluster else ()


def cluster_id(random: SeededRandom, organization: str) -> str:
    """Return the UUID of an organization's first cluster."""
    return random.uuid("cluster", organization)


def template_uuid(random: SeededRandom, organization: str) -> str:
    """Return the UUID of an organization's only pipeline template."""
    return random.uuid("template", organization)
