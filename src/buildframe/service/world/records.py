"""What is kept of a pipeline: all that can be set, and what the simulation needs beside."""

from __future__ import annotations

import re

import msgspec

from buildframe.service.world.chance import Chance
from buildframe.service.world.runs import Who
from buildframe.service.world.steps import Step
from buildframe.spec import provider_settings_of

Setting = bool | str

_DEFAULTS: dict[str, Setting] = {
    "filter_enabled": False,
    "filter_condition": "",
    "build_branches": True,
    "build_pull_requests": True,
    "build_tags": False,
    "trigger_mode": "code",
    "cancel_deleted_branch_builds": False,
    "publish_commit_status": True,
    "publish_commit_status_per_step": False,
    "pull_request_branch_filter_enabled": False,
    "pull_request_branch_filter_configuration": "",
    "skip_builds_for_existing_commits": False,
    "skip_pull_request_builds_for_existing_commits": True,
    "build_pull_request_forks": False,
    "build_pull_request_labels_changed": False,
    "build_pull_request_ready_for_review": False,
    "prefix_pull_request_fork_branch_names": True,
    "publish_blocked_as_pending": False,
    "separate_pull_request_statuses": False,
}
_HOSTS = ("github", "gitlab", "bitbucket")


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pipeline. Moments are in microseconds; filters are branch filters.

    `share`, `main_share`, `nightly_hour` and `pushes_per_hour` say how often and how it is built by itself; `old` ones
    are told in the service's older ways. `configuration` is the YAML as it was sent: None where it follows from the
    steps. `provider` is the kind of the repository's host, `provider_settings` what is set of what that kind has,
    `has_webhook` whether the host reports pushes.
    """

    slug: str
    name: str
    steps: tuple[Step, ...]
    share: float = 0.0
    main_share: float = 0.5
    nightly_hour: int | None = None
    pushes_per_hour: float = 0.0
    old: bool = False
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
    created_by: Who = 0

    @property
    def settings(self) -> dict[str, Setting]:
        """All settings that the kind of host has."""
        return default_settings(self.provider) | self.provider_settings


def default_settings(provider: str) -> dict[str, Setting]:
    """What the settings are at a kind of repository host unless told otherwise."""
    there = provider_settings_of(provider)
    return {name: value for name, value in _DEFAULTS.items() if name in there}


def provider_of(repository: str) -> str:
    """The kind of host that a repository's address names; `private` for one that is nobody's but one's own."""
    host = re.match(r"(?:[a-z+]+://)?(?:[^@/]*@)?([^/:]*)", repository.lower())
    first = host[1].split(".")[0] if host else ""
    return first if first in _HOSTS else "private"


def repository_name(repository: str) -> str:
    """The last two parts of a repository's address: `acme/web`."""
    parts = [part for part in re.split(r"[:/]", repository.removesuffix("/").removesuffix(".git")) if part]
    return "/".join(parts[-2:])


_DAY = 86_400 * 1_000_000
_OLD_MADE = 1_378_214_678 * 1_000_000  # 2013-09-03


def founded(pipeline: Pipeline, organization: str, has_cluster: bool, chance: Chance, start: int) -> Pipeline:
    """A pipeline of the catalogue with all that is not told there, in a world that starts at `start`."""
    id = chance.uuid("pipeline", f"{organization}/{pipeline.slug}")
    made = start - int(chance.between(100, 900, id, "made") * _DAY)
    return msgspec.structs.replace(
        pipeline,
        repository=f"git@git.example.com:{organization}/{pipeline.slug}.git",
        provider="private" if pipeline.old else "github",
        has_webhook=not pipeline.old,
        cluster_id=cluster_id(chance, organization) if has_cluster else None,
        pipeline_template_uuid=template_uuid(chance, organization) if pipeline.nightly_hour is not None else None,
        created_at=_OLD_MADE if pipeline.old else made,
    )


def cluster_id(chance: Chance, organization: str) -> str:
    """UUID of an organization's only cluster, where it has one."""
    return chance.uuid("cluster", organization)


def template_uuid(chance: Chance, organization: str) -> str:
    """UUID of an organization's only pipeline template."""
    return chance.uuid("template", organization)
