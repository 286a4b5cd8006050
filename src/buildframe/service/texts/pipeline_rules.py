"""What makes a pipeline: the rules for creating and changing one. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from buildframe.service.texts.configuration import Read, read, read_visual
from buildframe.service.world.records import Pipeline, default_settings, provider_of
from buildframe.service.world.runs import User
from buildframe.service.world.steps import UPLOAD, Step
from buildframe.spec import provider_settings_of

TAKEN = "already_exists"
LONGEST_SLUG = 100
TRIGGER_MODES = ("code", "deployment", "fork", "none")

Wrong = tuple[str, str]  # a property and what is wrong with it
_AS_SENT = frozenset({
    "branch_configuration", "cancel_running_branch_builds", "cancel_running_branch_builds_filter", "cluster_id",
    "default_branch", "description", "name", "pipeline_template_uuid", "repository", "skip_queued_branch_builds",
    "skip_queued_branch_builds_filter", "visibility",
})  # fmt: skip


class Invalid(Exception):
    """Properties that make no pipeline."""

    def __init__(self, wrong: Sequence[Wrong]) -> None:
        self.wrong = tuple(wrong)
        super().__init__(str(self.wrong))


class Around(NamedTuple):
    """What a pipeline must fit in with: others' names and slugs, and the clusters and templates that there are."""

    names: frozenset[str]
    slugs: frozenset[str]
    clusters: frozenset[str]
    templates: frozenset[str]


def slug_of(name: str) -> str:
    """The slug that follows from a name: runs of spaces become a hyphen, what a slug cannot hold is left out."""
    hyphened = re.sub(r"\s+", "-", name.lower())
    return re.sub(r"[^a-z0-9-]", "", hyphened).lstrip("-")[:LONGEST_SLUG]


def is_slug(text: str) -> bool:
    """Whether a text can be a slug."""
    return re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9-]*", text) is not None and len(text) <= LONGEST_SLUG


def new_pipeline(properties: Mapping[str, Any], around: Around, now: int, user: User) -> Pipeline:
    """The pipeline that these properties make. Raises `Invalid`."""
    found = _new_steps(properties)
    slug = properties.get("slug", slug_of(properties["name"]))
    kind = provider_of(properties["repository"])
    wrong = [*_wrong_steps(properties, found), *_wrong(properties, slug, kind, around)]
    if wrong:
        raise Invalid(wrong)
    return Pipeline(
        **_settled(properties),
        slug=slug,
        steps=found.steps,
        configuration=properties.get("configuration"),
        provider=kind,
        provider_settings=dict(properties.get("provider_settings", {})),
        created_at=now,
        created_by=user,
    )


def _new_steps(properties: Mapping[str, Any]) -> Read:
    if "steps" in properties:
        return read_visual(properties["steps"])
    return read(properties.get("configuration", ""))


def _wrong_steps(properties: Mapping[str, Any], found: Read) -> Iterator[Wrong]:
    given = [name for name in ("configuration", "steps") if name in properties]
    if not given:
        yield "configuration", "is missing; `steps` may take its place"
    elif len(given) > 1:
        yield "steps", "cannot be given together with `configuration`"
    elif found.problem is not None:
        yield given[0], found.problem


def changed(before: Pipeline, text: str, properties: Mapping[str, Any], around: Around) -> Pipeline:
    """A pipeline, whose YAML is `text`, with properties changed. Raises `Invalid`."""
    slug = properties.get("slug", before.slug)
    if properties.get("name", before.name) != before.name and "slug" not in properties:
        slug = slug_of(properties["name"])
    moved = properties.get("repository", before.repository) != before.repository
    kind = provider_of(properties["repository"]) if moved else before.provider
    found = read(properties["configuration"]) if "configuration" in properties else Read()
    wrong = [*_wrong_changes(before, text, properties, found), *_wrong(properties, slug, kind, around)]
    if wrong:
        raise Invalid(wrong)
    return msgspec.structs.replace(
        before,
        **_settled(properties),
        slug=slug,
        steps=_changed_steps(before.steps, found.steps) if "configuration" in properties else before.steps,
        configuration=properties.get("configuration", before.configuration),
        provider=kind,
        provider_settings=_kept_settings(before, kind) | properties.get("provider_settings", {}),
        has_webhook=before.has_webhook and not moved,
    )


def _wrong_changes(before: Pipeline, text: str, properties: Mapping[str, Any], found: Read) -> Iterator[Wrong]:
    if before.archived_at is not None:
        yield "archived_at", "the pipeline is archived and cannot be changed"
    if found.problem is not None:
        yield "configuration", found.problem
    elif "configuration" in properties:
        more = sorted(found.attributes - read(text).attributes)
        if more:
            yield "configuration", f"can only change what the pipeline's YAML has already, not add {', '.join(more)}"


def _kept_settings(before: Pipeline, kind: str) -> dict[str, bool | str]:
    there = provider_settings_of(kind)
    return {name: value for name, value in before.provider_settings.items() if name in there}


def _changed_steps(before: Sequence[Step], after: Sequence[Step]) -> tuple[Step, ...]:
    """The steps of a changed configuration; what uploads them stays, and those that keep their key run as long."""
    uploads = [step for step in before[:1] if step.key == UPLOAD]
    known = {step.key: step.seconds for step in before}
    return (*uploads, *(msgspec.structs.replace(step, seconds=known.get(step.key, step.seconds)) for step in after))


# --- properties of any pipeline ---


def _settled(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties that are kept as they were sent."""
    kept = {name: value for name, value in properties.items() if name in _AS_SENT}
    for name in ("cluster_id", "pipeline_template_uuid"):
        if kept.get(name):
            kept[name] = kept[name].lower()
    if "tags" in properties:
        kept["tags"] = tuple(properties["tags"])
    if "env" in properties:
        kept["env"] = dict(properties["env"])
    return kept


def _wrong(properties: Mapping[str, Any], slug: str, kind: str, around: Around) -> Iterator[Wrong]:
    for name, check in _CHECKS.items():
        if name in properties:
            problem = check(properties[name], around)
            if problem is not None:
                yield name, problem
    yield from _wrong_slug(properties, slug, around)
    yield from _wrong_settings(properties.get("provider_settings", {}), kind)


def _wrong_slug(properties: Mapping[str, Any], slug: str, around: Around) -> Iterator[Wrong]:
    if not is_slug(slug) and "slug" in properties:
        yield "slug", "must begin with a letter or digit, then letters, digits and hyphens, 100 at most"
    elif not is_slug(slug) and properties["name"].strip():
        yield "name", "holds nothing that a slug can be made of; pass a `slug`"
    elif slug in around.slugs and ("slug" in properties or properties.get("name") not in around.names):
        yield "slug", TAKEN


def _wrong_settings(settings: Mapping[str, Any], kind: str) -> Iterator[Wrong]:
    there = default_settings(kind)
    for name in settings:
        if name not in there:
            yield f"provider_settings.{name}", f"is no setting of repositories at a host of the kind `{kind}`"
    if "trigger_mode" in there and settings.get("trigger_mode", "code") not in TRIGGER_MODES:
        yield "provider_settings.trigger_mode", f"must be one of {', '.join(TRIGGER_MODES)}"


def _name(name: str, around: Around) -> str | None:
    if name in around.names:
        return TAKEN
    return None if name.strip() else "must not be empty"


def _repository(address: str, _: Around) -> str | None:
    return None if re.fullmatch(r"\S+", address) else "must be the address of a repository"


def _default_branch(branch: str, _: Around) -> str | None:
    return None if branch.strip() else "must not be empty"


def _visibility(visibility: str, _: Around) -> str | None:
    return None if visibility in ("private", "public") else "must be `private` or `public`"


def _cluster_id(id: str | None, around: Around) -> str | None:
    return None if id is None or id.lower() in around.clusters else "is no cluster of this organization"


def _template(id: str | None, around: Around) -> str | None:
    return None if id is None or id.lower() in around.templates else "is no pipeline template of this organization"


_CHECKS: dict[str, Callable[[Any, Around], str | None]] = {
    "name": _name,
    "repository": _repository,
    "default_branch": _default_branch,
    "visibility": _visibility,
    "cluster_id": _cluster_id,
    "pipeline_template_uuid": _template,
}
