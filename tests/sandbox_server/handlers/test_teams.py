"""Teams and their pipelines over REST."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import buildframe as bf
from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES

NOWHERE = "00000000-0000-4000-8000-000000000000"
LEVELS = ("read_only", "build_and_read", "manage_build_and_read")


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(builds=20, days=2) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox_api(sandbox, api_client):
    return api_client(sandbox, sandbox.token(SCOPES))


def of(sandbox, team, organization="acme"):
    return f"/organizations/{organization}/teams/{sandbox.teams(organization)[team]}/pipelines"


def id_of(sandbox_api, slug, organization="acme"):
    return sandbox_api(f"/organizations/{organization}/pipelines/{slug}").json()["id"]


def give(sandbox_api, path, pipeline_id, level="read_only"):
    return sandbox_api.http.post(f"{path}/", json={"pipeline_id": pipeline_id, "access_level": level})


def refusal(response):
    return response.status_code, response.json()["message"]


# --- reading


def test_the_first_teams_have_pipelines_of_their_organization(sandbox, sandbox_api):
    for organization in ("acme", "globex"):
        addresses = {
            each["id"]: each["url"] for each in sandbox_api.all_pages(f"/organizations/{organization}/pipelines")
        }
        every = [
            has
            for team in sandbox.teams(organization)
            for has in sandbox_api.all_pages(of(sandbox, team, organization))
        ]
        assert {has["pipeline_id"] for has in every} == addresses.keys()
        assert all(has["pipeline_url"] == addresses[has["pipeline_id"]] for has in every)
        assert {has["access_level"] for has in every} <= set(LEVELS)
        assert all(has["created_at"] < sandbox.clock.now().text() for has in every)


def test_the_list_is_paginated_in_the_order_of_giving(sandbox, sandbox_api):
    path = of(sandbox, "Everyone")
    everything = sandbox_api(path).json()
    assert sandbox_api(path, per_page=2, page=2).json() == everything[2:4]
    assert sandbox_api(path, per_page=2).links["next"]["url"].endswith("page=2")
    assert sandbox_api(of(sandbox, "Visitors")).json() == []


def test_a_team_pipeline_is_the_same_in_the_list_and_alone(sandbox, sandbox_api):
    listed = sandbox_api(of(sandbox, "Everyone")).json()
    assert listed
    for has in listed:
        assert sandbox_api(f"{of(sandbox, 'Everyone')}/{has['pipeline_id']}").json() == has
        assert has.keys() == {"pipeline_id", "access_level", "pipeline_url", "created_at"}


def test_what_is_not_there_is_named(sandbox, sandbox_api):
    web, foreign = id_of(sandbox_api, "web"), id_of(sandbox_api, "site", "globex")
    visitors, everyone = of(sandbox, "Visitors"), of(sandbox, "Everyone")
    elsewhere = of(sandbox, "Everyone", "globex").replace("globex", "acme")
    for path in (f"/organizations/acme/teams/{NOWHERE}/pipelines", elsewhere, f"{elsewhere}/{web}"):
        assert refusal(sandbox_api(path)) == (404, "No team found")
    for path in (f"{visitors}/{web}", f"{everyone}/{NOWHERE}", f"{everyone}/{foreign}", f"{everyone}/web"):
        assert refusal(sandbox_api(path)) == (404, "No team pipeline found")
        assert refusal(sandbox_api.http.patch(path, json={"access_level": "read_only"})) == (
            404,
            "No team pipeline found",
        )
        assert refusal(sandbox_api.http.delete(path)) == (404, "No team pipeline found")


def test_each_operation_needs_its_scope(sandbox, api_client):
    for method, scope in {"GET": "view_teams", "POST": "write_teams", "DELETE": "write_teams"}.items():
        others = [each for each in SCOPES if each != scope]
        response = api_client(sandbox, sandbox.token(others)).http.request(method, of(sandbox, "Everyone"))
        assert refusal(response) == (403, f"Your access token doesn't have the {scope} scope"), method


def test_an_unknown_organization_has_no_teams(sandbox):
    with pytest.raises(bf.BadInput, match="acme, globex"):
        sandbox.teams("initech")


# --- changing


def test_a_pipeline_is_given_changed_and_taken(sandbox, sandbox_api):
    path, web = of(sandbox, "Visitors"), id_of(sandbox_api, "web")
    given = give(sandbox_api, path, web)
    assert given.status_code == 201
    assert sandbox_api(path).json() == [given.json()]
    assert given.json()["created_at"][:19] == sandbox.clock.now().text()[:19]
    changed = sandbox_api.http.patch(f"{path}/{web}", json={"access_level": "build_and_read"})
    assert changed.status_code == 200
    assert changed.json() == given.json() | {"access_level": "build_and_read"} == sandbox_api(f"{path}/{web}").json()
    taken = sandbox_api.http.delete(f"{path}/{web}")
    assert (taken.status_code, taken.content) == (204, b"")
    assert sandbox_api(path).json() == []


def test_the_documents_way_to_take_one_names_it_beside_the_path(sandbox, sandbox_api):
    path, web = of(sandbox, "Visitors"), id_of(sandbox_api, "web")
    for how in ("json", "params"):
        give(sandbox_api, path, web)
        assert sandbox_api.http.request("DELETE", f"{path}/", **{how: {"pipeline_id": web}}).status_code == 204
        assert sandbox_api(path).json() == []


def test_taking_none_in_particular_is_refused(sandbox, sandbox_api):
    before = sandbox_api(of(sandbox, "Everyone")).json()
    for sent in ({}, {"json": {"pipeline_id": 7}}, {"params": {"pipeline": "web"}}):
        response = sandbox_api.http.request("DELETE", of(sandbox, "Everyone"), **sent)
        assert refusal(response) == (422, "Team pipeline could not be deleted. Pass pipeline_id."), sent
    assert sandbox_api(of(sandbox, "Everyone")).json() == before


def test_what_cannot_be_given_is_refused_with_a_reason(sandbox, sandbox_api):
    for body, reason in (
        ({"access_level": "read_only"}, "pipeline_id is missing"),
        ({"pipeline_id": NOWHERE}, "access_level is missing"),
        ({"pipeline_id": "web", "access_level": "read_only"}, "pipeline_id must be a UUID, not 'web'"),
        ({"pipeline_id": NOWHERE, "access_level": "owner"}, f"access_level must be one of {', '.join(LEVELS)}"),
        ({"pipeline_id": NOWHERE, "access_level": "read_only"}, "Pipeline must exist"),
    ):
        response = sandbox_api.http.post(of(sandbox, "Visitors"), json=body)
        assert (response.status_code, response.json()) == (422, {"message": f"Validation failed: {reason}"})
    assert sandbox_api(of(sandbox, "Visitors")).json() == []


def test_a_pipeline_of_another_organization_or_given_already_is_refused(sandbox, sandbox_api):
    path = of(sandbox, "Frontend")
    assert refusal(give(sandbox_api, path, id_of(sandbox_api, "site", "globex"))) == (
        422,
        "Validation failed: Pipeline must exist",
    )
    again = give(sandbox_api, path, id_of(sandbox_api, "web"))
    assert refusal(again) == (422, "Validation failed: Pipeline has already been added to this team")


def test_a_level_that_is_none_is_refused(sandbox, sandbox_api):
    path = f"{of(sandbox, 'Frontend')}/{id_of(sandbox_api, 'web')}"
    for body in ({}, {"access_level": None}, {"access_level": "MANAGE_BUILD_AND_READ"}):
        status, message = refusal(sandbox_api.http.patch(path, json=body))
        assert status == 422
        assert message.startswith("Validation failed: access_level ")


def test_somebody_keeps_managing_a_pipeline_that_several_teams_have(sandbox, sandbox_api):
    path, web = of(sandbox, "Frontend"), id_of(sandbox_api, "web")
    status, message = refusal(sandbox_api.http.delete(f"{path}/{web}"))
    assert status == 422
    assert "last team that manages" in message
    assert refusal(sandbox_api.http.patch(f"{path}/{web}", json={"access_level": "read_only"}))[0] == 422
    assert sandbox_api.http.patch(f"{path}/{web}", json={"access_level": LEVELS[2]}).status_code == 200
    give(sandbox_api, of(sandbox, "Visitors"), web, LEVELS[2])
    assert sandbox_api.http.delete(f"{path}/{web}").status_code == 204


def test_a_pipelines_only_team_may_leave_it(sandbox, sandbox_api):
    site = id_of(sandbox_api, "site", "globex")
    everyone, manager = of(sandbox, "Everyone", "globex"), of(sandbox, "Site", "globex")
    assert sandbox_api.http.delete(f"{everyone}/{site}").status_code == 204
    assert sandbox_api.http.delete(f"{manager}/{site}").status_code == 204


# --- pipelines that come and go


NEW = {"name": "Fresh", "repository": "git@github.com:acme/fresh.git", "cluster_id": None, "configuration": "- wait"}


def test_a_new_pipeline_has_the_requested_teams(sandbox, sandbox_api):
    team = sandbox.teams()["Visitors"]
    for level in (None, *LEVELS):
        teams = [team.upper()] if level is None else {team: level}
        made = sandbox_api.http.post("/organizations/acme/pipelines", json=NEW | {"name": f"{level}", "teams": teams})
        assert made.status_code == 201
        has = sandbox_api(of(sandbox, "Visitors")).json()[-1]
        assert (has["pipeline_id"], has["access_level"]) == (made.json()["id"], level or "manage_build_and_read")


def test_a_new_pipeline_for_a_team_that_is_not_there_is_refused_whole(sandbox, sandbox_api):
    teams = [sandbox.teams()["Visitors"], sandbox.teams("globex")["Site"]]
    response = sandbox_api.http.post("/organizations/acme/pipelines", json=NEW | {"teams": teams})
    assert refusal(response) == (422, "Validation Failed")
    assert [error["field"] for error in response.json()["errors"]] == ["teams"]
    assert sandbox_api("/organizations/acme/pipelines/fresh").status_code == 404
    assert sandbox_api(of(sandbox, "Visitors")).json() == []


def test_a_deleted_pipeline_is_no_teams_any_more(sandbox, sandbox_api):
    before = sandbox_api(of(sandbox, "Everyone")).json()
    web = id_of(sandbox_api, "web")
    assert sandbox_api.http.delete("/organizations/acme/pipelines/web").status_code == 204
    assert sandbox_api(of(sandbox, "Everyone")).json() == [has for has in before if has["pipeline_id"] != web]
    assert sandbox_api(f"{of(sandbox, 'Frontend')}/{web}").status_code == 404


def test_a_renamed_pipeline_is_the_teams_still(sandbox, sandbox_api):
    web = id_of(sandbox_api, "web")
    sandbox_api.http.patch("/organizations/acme/pipelines/web", json={"name": "Shop", "slug": "shop"})
    has = sandbox_api(f"{of(sandbox, 'Frontend')}/{web}").json()
    assert has["pipeline_url"].endswith("/v2/organizations/acme/pipelines/shop")
    assert sandbox_api.http.get(has["pipeline_url"]).json()["id"] == web


# --- keeping


def test_what_was_changed_is_there_after_reopening(tmp_path: Path, api_client):
    where = tmp_path / "sandbox.db"
    with Sandbox(where, builds=20, days=2) as sandbox:
        token = sandbox.token(SCOPES)
        sandbox_api = api_client(sandbox, token)
        visitors, everyone, web = of(sandbox, "Visitors"), of(sandbox, "Everyone"), id_of(sandbox_api, "web")
        given = give(sandbox_api, visitors, web).json()
        sandbox_api.http.delete(f"{everyone}/{web}")
        left = sandbox_api(everyone).json()
    with Sandbox(where) as sandbox:
        sandbox_api = api_client(sandbox, token)
        assert [has["pipeline_id"] for has in sandbox_api(visitors).json()] == [given["pipeline_id"]]
        assert sandbox_api(visitors).json()[0]["created_at"] == given["created_at"]
        assert [has["pipeline_id"] for has in sandbox_api(everyone).json()] == [has["pipeline_id"] for has in left]


def test_the_same_seed_has_the_same_teams(api_client):
    outcomes = []
    for _ in range(2):
        with Sandbox(builds=20, days=2, seed=5) as sandbox:
            sandbox_api = api_client(sandbox, sandbox.token(SCOPES))
            has = [sandbox_api(of(sandbox, team)).text.replace(sandbox.url, "") for team in sandbox.teams()]
            outcomes.append((sandbox.teams(), has))
    assert outcomes[0] == outcomes[1]
