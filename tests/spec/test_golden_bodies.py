"""Compare the request bodies of the spec with the golden files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, get_args

from buildframe import spec
from buildframe.spec.builds import CommitAuthor
from buildframe.spec.pipelines import AnyStep, ProviderSettings
from tests import golden
from tests.golden.declared_types import type_names

ENDPOINTS = {endpoint.name: endpoint for endpoint in spec.ENDPOINTS}
WITH_BODY = {name: documented["body"] for name, documented in golden.OPERATIONS.items() if "body" in documented}
BEYOND_THE_DOCUMENT = {("create_pipeline", "teams"): {"object"}}  # access levels by team: SERVICE's "list or object"
UUIDS_BEYOND_THE_DOCUMENT = {"cluster_id", "pipeline_template_uuid"}  # the document shows only such values

Documented = dict[str, set[str]]


def words_of(documented: str) -> set[str]:
    """Return types of the golden files as the less exact types of declarations."""
    return {re.sub("uuid", "string", re.sub("map|Author", "object", word)) for word in documented.split(" or ")}


def documented_properties(operation: str) -> tuple[Documented, set[str]]:
    """Every property with its types, and the names of the required ones."""
    documented = golden.BODIES[WITH_BODY[operation]]
    groups = (
        documented["required"],
        documented["optional"],
        documented.get("one_of", {}),
        documented.get("only_with_steps", {}),
    )
    types: Documented = {}
    for group in groups:
        for name, type in group.items():
            types[name] = types.get(name, set()) | words_of(type)
    for (where, name), more in BEYOND_THE_DOCUMENT.items():
        if where == operation:
            types[name] |= more
    return types, set(documented["required"])


def declared_properties(properties: Sequence[spec.Property]) -> tuple[Documented, set[str]]:
    types = {entry.name: type_names(entry.type) | allows_null(entry.type) for entry in properties}
    return types, {entry.name for entry in properties if entry.required}


def allows_null(hint: Any) -> set[str]:
    return {"null"} if NoneType in get_args(hint) else set()


def test_properties_are_declared_as_documented() -> None:
    documented = {operation: ({}, set()) for operation in golden.OPERATIONS}
    documented |= {operation: documented_properties(operation) for operation in WITH_BODY}
    assert {name: declared_properties(ENDPOINTS[name].properties) for name in documented} == documented


def test_uuids_of_bodies_are_checked() -> None:
    for operation, body in WITH_BODY.items():
        groups = [golden.BODIES[body][group] for group in ("required", "optional")]
        uuids = {name for group in groups for name, type in group.items() if type == "uuid"}
        checked = {entry.name for entry in ENDPOINTS[operation].properties if entry.check == spec.Check("uuid")}
        assert checked == uuids | (UUIDS_BEYOND_THE_DOCUMENT & set(ENDPOINTS[operation].property_names)), operation


# --- objects inside bodies


def names_and_types(declared: type) -> Documented:
    return declared_properties(spec.properties_of(declared))[0]


def documented_types(documented: Mapping[str, str]) -> Documented:
    return {name: words_of(type) for name, type in documented.items()}


def test_authors_are_declared_as_documented() -> None:
    assert names_and_types(CommitAuthor) == documented_types(golden.BODIES["Author"])


def test_every_kind_of_step_is_declared_as_documented() -> None:
    steps = {get_args(spec.properties_of(step)[0].type)[0]: names_and_types(step) for step in get_args(AnyStep)}
    accepted = golden.BODIES["steps_accepted"]
    assert steps == {kind: {"type": {"string"}} | documented_types(documented) for kind, documented in accepted.items()}


def test_provider_settings_are_declared_as_documented() -> None:
    only_in_responses = set(golden.PIPELINES["settings_apply"]["only_in_responses"])
    documented = {name: type for name, type in golden.PIPELINES["settings"].items() if name not in only_in_responses}
    assert names_and_types(ProviderSettings) == documented_types(documented)


def test_settings_apply_to_the_documented_kinds_of_hosts() -> None:
    groups = {
        "private": ["every_provider"],
        "gitlab": ["every_provider", "not_self_hosted"],
        "bitbucket": ["every_provider", "not_self_hosted"],
        "github": ["every_provider", "not_self_hosted", "one_hosted_kind"],
    }
    settings = golden.PIPELINES["settings_apply"]
    assert {provider: spec.provider_settings_of(provider) for provider in groups} == {
        provider: {name for group in own for name in settings[group]} for provider, own in groups.items()
    }


def test_access_levels_are_the_documented_ones() -> None:
    assert list(get_args(spec.AccessLevel)) == golden.STATES["access_level"]


# --- whether a body is as declared


TEAM = "0190f3a1-0000-4000-8000-000000000001"
GOOD = {
    "create_build": {"commit": "HEAD", "branch": "main", "author": {"name": "Ada"}, "env": {}, "pull_request_id": 3},
    "create_pipeline": {
        "name": "A",
        "cluster_id": None,
        "repository": "git@git.example.com:a/a.git",
        "steps": [{"type": "script", "command": "true"}, {"type": "waiter"}, {"type": "manual", "label": "Go?"}],
        "teams": [TEAM],
        "provider_settings": {"build_tags": True, "filter_condition": "true"},
    },
    "update_pipeline": {"pipeline_template_uuid": None, "tags": [], "skip_queued_branch_builds": False},
    "create_team_pipeline": {"pipeline_id": "0190F3A1-0000-4000-8000-000000000001", "access_level": "read_only"},
    "update_team_pipeline": {"access_level": "build_and_read"},
}


def misfits(operation: str, body: dict[Any, Any]) -> list[tuple[str, str]]:
    """Return the field and the problem of each violation."""
    return [(one.field, one.problem) for one in spec.find_violations(ENDPOINTS[operation].properties, body)]


def test_bodies_as_declared_have_no_misfits() -> None:
    assert [(operation, misfit) for operation, body in GOOD.items() for misfit in misfits(operation, body)] == []


MISFITS = [
    ("create_build", {"commit": None}, "commit", "must be text"),
    ("create_build", {"author": "Ada"}, "author", "must be an object"),
    ("create_build", {"author": {"name": 1}}, "author.name", "must be text"),
    ("create_build", {"author": {"mail": "a"}}, "author.mail", "is unknown. Use one of: name, email"),
    ("create_build", {"env": {"A": 1}}, "env.A", "must be text"),
    ("create_build", {"env": {1: "a"}}, "env", "must be an object of text"),
    ("create_build", {"pull_request_id": True}, "pull_request_id", "must be a whole number"),
    ("create_build", {"clean_checkout": "yes"}, "clean_checkout", "must be true or false"),
    ("create_pipeline", {"cluster_id": 1}, "cluster_id", "must be text or null"),
    ("create_pipeline", {"tags": "a"}, "tags", "must be a list of text"),
    ("create_pipeline", {"tags": ["a", 1]}, "tags[1]", "must be text"),
    ("create_pipeline", {"steps": [{"command": "true"}]}, "steps[0].type",
     "must be one of script, waiter, manual, trigger"),
    ("create_pipeline", {"steps": ["wait"]}, "steps[0]", "must be an object"),
    ("create_pipeline", {"steps": [{"type": "script", "timeout_in_minutes": 1.5}]}, "steps[0].timeout_in_minutes",
     "must be a whole number"),
    ("create_pipeline", {"teams": {TEAM: "owner"}}, f"teams.{TEAM}",
     "must be one of read_only, build_and_read, manage_build_and_read"),
    ("create_pipeline", {"provider_settings": {"build_tags": 1}}, "provider_settings.build_tags",
     "must be true or false"),
    ("create_team_pipeline", {"pipeline_id": "web"}, "pipeline_id", "must be a UUID, not 'web'"),
    ("create_pipeline", {"teams": ["core"]}, "teams[0]", "must be a UUID, not 'core'"),
    ("create_pipeline", {"teams": {"core": "read_only"}}, "teams.core", "must be a UUID, not 'core'"),
    ("create_pipeline", {"cluster_id": "default"}, "cluster_id", "must be a UUID, not 'default'"),
    ("update_pipeline", {"pipeline_template_uuid": "x"}, "pipeline_template_uuid", "must be a UUID, not 'x'"),
    ("create_pipeline", {"steps": [{"type": "trigger", "trigger_project_slug": "acme/web"}]},
     "steps[0].trigger_project_slug",
     "must be letters and digits, after the first also hyphens, 100 characters at most, not 'acme/web'"),
    ("create_build", {"commit": ""}, "commit", "must not be empty"),
    ("create_build", {"branch": " "}, "branch", "must not be empty"),
    ("update_team_pipeline", {"access_level": "admin"}, "access_level",
     "must be one of read_only, build_and_read, manage_build_and_read"),
]  # fmt: skip


def test_what_is_not_as_declared_is_named() -> None:
    found = [(operation, change, misfits(operation, GOOD[operation] | change)) for operation, change, *_ in MISFITS]
    assert found == [(operation, change, [(field, problem)]) for operation, change, field, problem in MISFITS]


def test_required_properties_that_are_missing_are_named() -> None:
    missing = {operation: sorted(field for field, _ in misfits(operation, {})) for operation in WITH_BODY}
    assert missing == {operation: sorted(golden.BODIES[body]["required"]) for operation, body in WITH_BODY.items()}
