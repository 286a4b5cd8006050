"""Request bodies: how properties are sent, and which are refused before anything is sent."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import spec
from buildframe.errors import BadInput
from buildframe.http import protocol
from tests.refusals import wrong_refusals

TEAM = "0190b3aa-0000-7000-8000-0000000000aa"
BUILD = {"commit": "HEAD", "branch": "main"}
PIPELINE = {"name": "Web", "cluster_id": None, "repository": "git@git.example.com:acme/web.git"}
texts = st.text()
filled = texts.filter(lambda text: bool(text.strip()) and "\0" not in text)
maps = st.dictionaries(filled, texts)
builds = st.fixed_dictionaries(
    {"commit": filled, "branch": filled},
    optional={
        "message": texts,
        "env": maps,
        "meta_data": maps,
        "author": st.fixed_dictionaries({}, optional={"name": texts, "email": texts}),
        "clean_checkout": st.booleans(),
        "pull_request_id": st.integers(),
    },
)
steps = st.one_of(
    st.fixed_dictionaries({"type": st.just("script"), "command": texts}, optional={"env": maps, "name": texts}),
    st.fixed_dictionaries({"type": st.just("waiter")}),
    st.fixed_dictionaries({"type": st.just("manual")}, optional={"label": texts}),
)


def body(endpoint: spec.Endpoint, *arguments: str | int, **properties: Any) -> Any:
    sent = protocol.request_for(endpoint, *arguments, **properties).body
    return None if sent is None else json.loads(sent)


@given(builds)
@settings(max_examples=15)
def test_any_build_is_sent_unchanged(properties: dict[str, Any]) -> None:
    assert body(spec.create_build, "acme", "web", **properties) == properties


@given(st.lists(steps, max_size=3), st.lists(texts, max_size=3), st.none() | st.uuids().map(str))
@settings(max_examples=25)
def test_any_pipeline_is_sent_unchanged(steps: list[Any], tags: list[str], template: str | None) -> None:
    properties = PIPELINE | {"steps": steps, "tags": tags, "pipeline_template_uuid": template}
    assert body(spec.create_pipeline, "acme", **properties) == properties


def test_the_bytes_are_plain_json() -> None:
    request = protocol.request_for(spec.create_build, "acme", "web", **BUILD, message='a "ü" \U0001f600')
    assert request.body == '{"commit":"HEAD","branch":"main","message":"a \\"ü\\" \U0001f600"}'.encode()
    assert not request.repeatable


def test_null_is_sent_only_if_it_is_passed() -> None:
    assert protocol.request_for(spec.update_pipeline, "acme", "web", cluster_id=None).body == b'{"cluster_id":null}'
    assert protocol.request_for(spec.update_pipeline, "acme", "web", description="").body == b'{"description":""}'


def test_other_mappings_and_sequences_become_objects_and_lists() -> None:
    sent = body(
        spec.create_pipeline, "acme", **PIPELINE, configuration="- wait", teams=(TEAM,), env=types.MappingProxyType({})
    )
    assert (sent["teams"], sent["env"]) == ([TEAM], {})
    levels = body(spec.create_pipeline, "acme", **PIPELINE, configuration="- wait", teams={TEAM: "read_only"})
    assert levels["teams"] == {TEAM: "read_only"}


def test_actions_without_properties_have_no_body() -> None:
    assert protocol.request_for(spec.cancel_build, "acme", "web", 7).body is None
    with pytest.raises(BadInput, match="property 'reason'"):
        protocol.request_for(spec.cancel_build, "acme", "web", 7, reason="x")


def test_builds_that_the_service_would_refuse_are_not_sent() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"commit": "HEAD"}, "create_build was not sent:\n- branch is missing"),
        (BUILD | {"mesage": "x"}, "there is no property 'mesage'. Did you mean 'message'"),
        (BUILD | {"zzz": "x"}, "there is no property 'zzz'. Valid names: commit, branch"),
        (BUILD | {"message": None}, "message=None: it cannot be null. Leave it out for the service's default"),
        (BUILD | {"commit": None}, "commit must be text"),
        (BUILD | {"author": {"nme": "Ada"}}, r"author\.nme is unknown. Use one of: name, email"),
        (BUILD | {"author": {"name": None}}, r"author\.name must be text"),
        (BUILD | {"author": "Ada"}, "author must be an object"),
        (BUILD | {"env": {"A": 1}}, r"env\.A must be text"),
        (BUILD | {"pull_request_id": "7"}, "pull_request_id must be a whole number"),
        (BUILD | {"pull_request_id": 7.0}, "pull_request_id must be a whole number"),
        (BUILD | {"clean_checkout": 1}, "clean_checkout must be true or false"),
        (BUILD | {"message": "cut \ud83d"}, "half of a surrogate pair"),
        (BUILD | {"env": {"cut \ud83d": "x"}}, "half of a surrogate pair"),
    ]
    assert wrong_refusals(cases, lambda sent: protocol.request_for(spec.create_build, "acme", "web", **sent)) == {}


def test_one_error_names_all_wrong_arguments() -> None:
    with pytest.raises(BadInput) as caught:
        protocol.request_for(spec.create_pipeline, "acme", nmae="Web", cluster_id=None, slug="-web", tags="x")
    for word in (
        "name is missing",
        "repository is missing",
        "nmae",
        "'name'",
        "tags must",
        "slug must",
        "'-web'",
        "either",
    ):
        assert word in str(caught.value)


def test_a_new_pipeline_is_either_yaml_or_steps() -> None:
    cases = [(given, r"either configuration \(YAML\) or steps") for given in ({}, {"configuration": "a", "steps": []})]
    create = spec.create_pipeline
    assert wrong_refusals(cases, lambda one: protocol.request_for(create, "acme", **PIPELINE, **one)) == {}


def test_broken_yaml_is_not_sent() -> None:
    """Lists nested 5,000 times, which take seconds, only for the update."""
    texts = [
        ("steps:\n  - command: [", "configuration must be valid YAML; line 2: "),
        ("a: b: c", "configuration must be valid YAML; line 1: mapping values are not allowed here"),
        ("- a: \x00", "configuration must be valid YAML; unacceptable character"),
        ("- a\n---\n- b", "configuration must be valid YAML; line 2: but found another document"),
        ("make test", "configuration must be a list of steps or a mapping in YAML"),
    ]

    def update(text: str) -> object:
        return protocol.request_for(spec.update_pipeline, "acme", "web", configuration=text)

    def create(text: str) -> object:
        return protocol.request_for(spec.create_pipeline, "acme", **PIPELINE, configuration=text)

    assert wrong_refusals([*texts, ("[" * 1_000, "nested less deeply")], update) == {}
    assert wrong_refusals(texts, create) == {}


def test_yaml_that_can_be_read_is_sent() -> None:
    texts = ["# nothing\n", "- wait", "steps: []", "- !custom {command: make}", "- &a {command: make}\n- *a"]
    sent = [body(spec.update_pipeline, "acme", "web", configuration=text) for text in texts]
    assert sent == [{"configuration": text} for text in texts]


def test_without_a_yaml_package_only_the_service_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert body(spec.update_pipeline, "acme", "web", configuration="a: b: c") == {"configuration": "a: b: c"}


def test_only_a_valid_slug_is_sent() -> None:
    cases = [(slug, "letters and digits") for slug in ("", "-web", "a b", "a_b", "wéb", "a" * 101, "web\n")]
    assert wrong_refusals(cases, lambda one: protocol.request_for(spec.update_pipeline, "acme", "web", slug=one)) == {}
    new = PIPELINE | {"configuration": ""}
    assert wrong_refusals(cases, lambda one: protocol.request_for(spec.create_pipeline, "acme", **new, slug=one)) == {}
    for slug in ("a", "0", "Web-2-", "a" * 100):
        assert body(spec.update_pipeline, "acme", "web", slug=slug) == {"slug": slug}


def test_an_update_says_how_teams_are_changed_and_that_null_is_no_value() -> None:
    with pytest.raises(BadInput, match=r"set_team\(\) and remove_team\(\)"):
        protocol.request_for(spec.update_pipeline, "acme", "web", teams=[TEAM])
    with pytest.raises(BadInput, match=r"description.*Leave it out"):
        protocol.request_for(spec.update_pipeline, "acme", "web", description=None)


def test_a_team_is_named_by_its_uuid() -> None:
    def create(team: Any) -> object:
        return protocol.request_for(spec.create_team_pipeline, "acme", TEAM, pipeline_id=team, access_level="read_only")

    teams = ("core", "", None, 7, TEAM + "x")
    listed = [(team, "the team's UUID") for team in teams]
    assert wrong_refusals(listed, lambda team: protocol.request_for(spec.list_team_pipelines, "acme", team)) == {}
    assert wrong_refusals([(team, "pipeline_id must be") for team in teams], create) == {}


def test_other_uuids_and_levels_are_checked_too() -> None:
    assert protocol.request_for(spec.get_team_pipeline, "acme", TEAM.upper(), TEAM).target.count(TEAM) == 2
    with pytest.raises(BadInput, match="pipeline's UUID"):
        protocol.request_for(spec.get_team_pipeline, "acme", TEAM, "web")
    with pytest.raises(BadInput, match="user's UUID"):
        protocol.request_for(spec.get_member, "acme", "ada")
    with pytest.raises(BadInput, match=r"access_level.*read_only, build_and_read"):
        protocol.request_for(spec.update_team_pipeline, "acme", TEAM, TEAM, access_level="admin")


def test_a_traceback_prints_no_body() -> None:
    request = protocol.request_for(spec.create_build, "acme", "web", **BUILD, env={"PASSWORD": "hunter2"})
    assert repr(request) == "<Request POST /v2/organizations/acme/pipelines/web/builds>"


def test_single_values_out_of_a_frame_are_taken() -> None:
    frame = pd.DataFrame({"pr": pd.array([12], "Int64"), "clean": pd.array([True], "boolean")})
    values = [(np.int64(12), np.bool_(True)), (frame["pr"].iloc[0], frame["clean"].iloc[0])]
    for number, clean in values:
        sent = body(spec.create_build, "acme", "web", **BUILD, pull_request_id=number, clean_checkout=clean)
        assert sent == {**BUILD, "pull_request_id": 12, "clean_checkout": True}
