"""Rules for creating and changing pipelines. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from buildframe.sandbox_server.error_responses import invalid
from buildframe.sandbox_server.pipeline_yaml.parser import ParsedSteps, parse_configuration, parse_visual_steps
from buildframe.sandbox_server.world.build_state import TokenUser
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord, default_settings, provider_of
from buildframe.sandbox_server.world.steps import UPLOAD, PipelineStep
from buildframe.spec import provider_settings_of

TAKEN = "already_exists"
MAX_SLUG_LENGTH = 100
TRIGGER_MODES = ("code", "deployment", "fork", "none")
_FOREIGN = "is not a {} of this organization"

Problem = tuple[str, str]  # a property and what is wrong with it


class PipelineContext(NamedTuple):
    """What a pipeline must be consistent with: names and slugs of others, existing clusters and templates."""

    names: frozenset[str]
    slugs: frozenset[str]
    clusters: frozenset[str]
    templates: frozenset[str]


def slug_of(name: str) -> str:
    """Derive a slug from a name: spaces become hyphens, other characters are removed."""
    hyphened = re.sub(r"\s+", "-", name.lower())
    return re.sub(r"[^a-z0-9-]", "", hyphened).lstrip("-")[:MAX_SLUG_LENGTH]


def is_slug(text: str) -> bool:
    """Return whether a text is a valid slug."""
    return re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9-]*", text) is not None and len(text) <= MAX_SLUG_LENGTH


def new_pipeline(properties: Mapping[str, Any], context: PipelineContext, now: int, user: TokenUser) -> PipelineRecord:
    """Create a pipeline from properties. Raises 422."""
    if "steps" in properties:
        parsed = parse_visual_steps(properties["steps"])
    else:
        parsed = parse_configuration(properties.get("configuration", ""))
    slug = properties.get("slug", slug_of(properties["name"]))
    kind = provider_of(properties["repository"])
    problems = [*_step_problems(properties, parsed), *_problems(properties, slug, kind, context)]
    if problems:
        raise invalid(problems)
    return PipelineRecord(
        **_stored_properties(properties)
        | {"slug": slug, "steps": parsed.steps, "provider": kind, "created_at": now, "created_by": user}
    )


def _step_problems(properties: Mapping[str, Any], parsed: ParsedSteps) -> Iterator[Problem]:
    names = [name for name in ("configuration", "steps") if name in properties]
    if not names:
        yield "configuration", "is missing; pass it or `steps`"
    elif len(names) > 1:
        yield "steps", "cannot be combined with `configuration`"
    elif parsed.problem is not None:
        yield names[0], parsed.problem


def change_pipeline(
    before: PipelineRecord, text: str, properties: Mapping[str, Any], context: PipelineContext
) -> PipelineRecord:
    """Change properties of a pipeline whose YAML is `text`. Raises 422."""
    slug = properties.get("slug", before.slug)
    if properties.get("name", before.name) != before.name and "slug" not in properties:
        slug = slug_of(properties["name"])
    moved = properties.get("repository", before.repository) != before.repository
    kind = provider_of(properties["repository"]) if moved else before.provider
    parsed = parse_configuration(properties["configuration"]) if "configuration" in properties else ParsedSteps()
    problems = [*_change_problems(before, text, properties, parsed), *_problems(properties, slug, kind, context)]
    if problems:
        raise invalid(problems)
    there = provider_settings_of(kind)
    settings = {name: value for name, value in before.provider_settings.items() if name in there}
    computed = {
        "slug": slug,
        "steps": _changed_steps(before.steps, parsed.steps) if "configuration" in properties else before.steps,
        "provider": kind,
        "provider_settings": settings | properties.get("provider_settings", {}),
        "has_webhook": before.has_webhook and not moved,
    }
    return msgspec.structs.replace(before, **_stored_properties(properties) | computed)


def _change_problems(
    before: PipelineRecord, text: str, properties: Mapping[str, Any], parsed: ParsedSteps
) -> Iterator[Problem]:
    if before.archived_at is not None:
        yield "archived_at", "the pipeline is archived and cannot be changed"
    if parsed.problem is not None:
        yield "configuration", parsed.problem
    elif "configuration" in properties:
        more = sorted(parsed.attributes - parse_configuration(text).attributes)
        if more:
            yield "configuration", f"cannot add attributes that the YAML does not have yet: {', '.join(more)}"


def _changed_steps(before: Sequence[PipelineStep], after: Sequence[PipelineStep]) -> tuple[PipelineStep, ...]:
    """Return the changed steps: keep the upload step, and the run times of steps whose key stays."""
    uploads = [step for step in before[:1] if step.key == UPLOAD]
    run_times = {step.key: step.seconds for step in before}
    return (*uploads, *(msgspec.structs.replace(step, seconds=run_times.get(step.key, step.seconds)) for step in after))


# --- properties of any pipeline ---


def _stored_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties that are stored."""
    stored = {name: value for name, value in properties.items() if name != "teams"}
    for name in ("cluster_id", "pipeline_template_uuid"):
        if stored.get(name):
            stored[name] = stored[name].lower()
    if "tags" in properties:
        stored["tags"] = tuple(properties["tags"])
    return stored


def _problems(properties: Mapping[str, Any], slug: str, kind: str, context: PipelineContext) -> Iterator[Problem]:
    for name, is_valid, problem in _RULES:
        if name in properties and not is_valid(properties[name], context):
            yield name, problem
    yield from _slug_problems(properties, slug, context)
    yield from _setting_problems(properties.get("provider_settings", {}), kind)


def _slug_problems(properties: Mapping[str, Any], slug: str, context: PipelineContext) -> Iterator[Problem]:
    if not is_slug(slug) and "slug" in properties:
        yield "slug", "must begin with a letter or digit, then letters, digits and hyphens, 100 at most"
    elif not is_slug(slug) and properties["name"].strip():
        yield "name", "cannot be converted to a slug; pass a `slug`"
    elif slug in context.slugs and ("slug" in properties or properties.get("name") not in context.names):
        yield "slug", TAKEN


def _setting_problems(settings: Mapping[str, Any], kind: str) -> Iterator[Problem]:
    there = default_settings(kind)
    for name in settings:
        if name not in there:
            yield f"provider_settings.{name}", f"is not a setting of repositories on hosts of the kind `{kind}`"
    if "trigger_mode" in there and settings.get("trigger_mode", "code") not in TRIGGER_MODES:
        yield "provider_settings.trigger_mode", f"must be one of {', '.join(TRIGGER_MODES)}"


_RULES: tuple[tuple[str, Callable[[Any, PipelineContext], bool], str], ...] = (
    ("name", lambda name, context: name not in context.names, TAKEN),
    ("name", lambda name, _: bool(name.strip()), "must not be empty"),
    ("repository", lambda address, _: bool(re.fullmatch(r"\S+", address)), "must be the address of a repository"),
    ("default_branch", lambda branch, _: bool(branch.strip()), "must not be empty"),
    ("visibility", lambda value, _: value in ("private", "public"), "must be `private` or `public`"),
    ("cluster_id", lambda uuid, at: uuid is None or uuid.lower() in at.clusters, _FOREIGN.format("cluster")),
    (
        "pipeline_template_uuid",
        lambda uuid, context: uuid is None or uuid.lower() in context.templates,
        _FOREIGN.format("pipeline template"),
    ),
)
"""Property, whether its value is valid, and the problem if it is not."""
