"""Pipelines created, changed, archived and deleted by request."""

from __future__ import annotations

from typing import Any

import httpx

from buildframe import spec
from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES

Body = dict[str, Any]

PIPELINES = "/organizations/acme/pipelines"
YAML = "env: {CI: 'true'}\nsteps:\n- label: ':npm: Test'\n  command: npm test\n- wait\n- command: npm publish\n"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
NEW: Body = {"cluster_id": None, "repository": "git@github.com:acme/shop.git", "configuration": YAML}


def create(http: httpx.Client, name: str, **properties: Any) -> Body:
    response = http.post(PIPELINES, json=NEW | {"name": name} | properties)
    assert response.status_code == 201, response.text
    body: Body = response.json()
    assert body["allow_rebuilds"] is True  # only in this response
    del body["allow_rebuilds"]
    assert http.get(body["url"]).json() == body
    return body


def update(http: httpx.Client, pipeline: Body, **properties: Any) -> Body:
    response = http.patch(pipeline["url"], json=properties)
    assert response.status_code == 200, response.text
    body: Body = response.json()
    assert http.get(body["url"]).json() == body
    return body


def wrong(response: httpx.Response) -> dict[str, str]:
    """What is wrong with each property, of a 422 that says so."""
    body = response.json()
    assert (response.status_code, body["message"]) == (422, "Validation Failed"), response.text
    return {error["field"]: error["code"] for error in body["errors"]}


# --- creating


def test_a_pipeline_of_yaml(http: httpx.Client) -> None:
    new = create(http, "Of YAML")
    assert (new["slug"], new["name"], new["configuration"]) == ("of-yaml", "Of YAML", YAML)
    assert [step["type"] for step in new["steps"]] == ["script", "waiter", "script"]
    assert new["steps"][0]["env"] == {"CI": "true"}
    assert (new["default_branch"], new["visibility"]) == ("main", "private")
    nothing = ("description", "tags", "branch_configuration", "archived_at", "cluster_id", "pipeline_template_uuid")
    assert {name: new[name] for name in nothing} == dict.fromkeys(nothing)
    assert new["provider"]["id"] == "github"
    assert new["provider"]["settings"]["repository"] == "acme/shop"
    assert set(new["provider"]["settings"]) == spec.provider_settings_of("github") | {"repository"}
    assert new["created_by"]["email"].endswith("@example.com")
    assert http.get(f"{PIPELINES}?per_page=100").json()[-1] == new


def test_a_pipeline_of_visual_steps(http: httpx.Client) -> None:
    steps = [
        {"type": "script", "name": "Test", "command": "make", "agent_query_rules": ["queue=docker"]},
        {"type": "waiter"},
        {"type": "manual", "label": "Go?"},
        {"type": "trigger", "label": "Next", "trigger_project_slug": "web", "trigger_async": True},
    ]
    body = {name: value for name, value in NEW.items() if name != "configuration"}
    response = http.post(PIPELINES, json=body | {"name": "Visual", "steps": steps, "env": {"A": "b"}})
    new = response.json()
    assert (response.status_code, new["env"]) == (201, {"A": "b"})
    assert [step["type"] for step in new["steps"]] == ["script", "waiter", "manual", "trigger"]
    assert new["steps"][3]["pipeline"] == "web"
    assert "block: Go?" in new["configuration"]


def test_every_property_is_kept(http: httpx.Client) -> None:
    web = http.get(f"{PIPELINES}/web").json()
    template = http.get(f"{PIPELINES}/data").json()["pipeline_template_uuid"]
    properties = {
        "branch_configuration": "main !dev",
        "cancel_running_branch_builds": True,
        "cancel_running_branch_builds_filter": "!main",
        "cluster_id": web["cluster_id"],
        "default_branch": "trunk",
        "description": "<b>for</b> 🚀",
        "env": {"A": "b"},
        "pipeline_template_uuid": template,
        "skip_queued_branch_builds": True,
        "skip_queued_branch_builds_filter": "dev/*",
        "slug": "Every-1",
        "tags": [":react:", "x"],
        "visibility": "public",
    }
    new = create(http, "Every property", **properties)
    assert {name: new[name] for name in properties} == properties
    cleared = update(http, new, cluster_id=None, pipeline_template_uuid=None, tags=[])
    assert (cleared["cluster_id"], cleared["pipeline_template_uuid"], cleared["tags"]) == (None, None, [])


WRONG_PIPELINES: list[tuple[Body, dict[str, str]]] = [
    ({"name": ":globe_with_meridians: Web"}, {"name": "already_exists"}),
    ({"name": "Other", "slug": "web"}, {"slug": "already_exists"}),
    ({"name": "WEB"}, {"slug": "already_exists"}),
    ({"name": " "}, {"name": "must not be empty"}),
    ({"name": "日本"}, {"name": "cannot be converted to a slug; pass a `slug`"}),
    ({"repository": "two words"}, {"repository": "must be the address of a repository"}),
    ({"default_branch": ""}, {"default_branch": "must not be empty"}),
    ({"visibility": "secret"}, {"visibility": "must be `private` or `public`"}),
    ({"cluster_id": "x"}, {"cluster_id": "must be a UUID"}),
    ({"pipeline_template_uuid": "x"}, {"pipeline_template_uuid": "must be a UUID"}),
    ({"cluster_id": UNKNOWN}, {"cluster_id": "is not a cluster of this organization"}),
    (
        {"pipeline_template_uuid": UNKNOWN},
        {"pipeline_template_uuid": "is not a pipeline template of this organization"},
    ),
    ({"configuration": "- {command: a, parallelism: x}"}, {"configuration": "line 1: `parallelism` must be a"}),
    ({"steps": [{"type": "waiter"}]}, {"steps": "cannot be combined with `configuration`"}),
    ({"steps": [{"type": "magic"}]}, {"steps[0].type": "must be one of script, waiter, manual, trigger"}),
    ({"teams": [UNKNOWN]}, {"teams": "There is no team"}),
    ({"name": 5, "tags": "x"}, {"name": "must be text", "tags": "must be a list of text"}),
]


def test_a_pipeline_that_cannot_be(http: httpx.Client) -> None:
    before = http.get(PIPELINES, params={"per_page": 100}).json()
    for properties, expected in WRONG_PIPELINES:
        found = wrong(http.post(PIPELINES, json=NEW | {"name": "New"} | properties))
        assert {name: code[: len(expected.get(name, code))] for name, code in found.items()} == expected
    assert http.get(PIPELINES, params={"per_page": 100}).json() == before


def test_what_must_be_given(http: httpx.Client) -> None:
    missing = "is missing"
    assert wrong(http.post(PIPELINES)) == dict.fromkeys(("name", "cluster_id", "repository"), missing)
    body = {"name": "No steps", "cluster_id": None, "repository": "r"}
    assert list(wrong(http.post(PIPELINES, json=body))) == ["configuration"]


def test_slugs_that_cannot_be(http: httpx.Client) -> None:
    for slug in ("-a", "a b", "a_b", "", "ä", "a" * 101, "a/b"):
        assert list(wrong(http.post(PIPELINES, json=NEW | {"name": "Slug", "slug": slug}))) == ["slug"], slug
        assert list(wrong(http.patch(f"{PIPELINES}/docs", json={"slug": slug}))) == ["slug"], slug


def test_teams_get_a_new_pipeline(sandbox: Sandbox, http: httpx.Client) -> None:
    first, second = list(sandbox.teams().values())[:2]
    by_list, by_level = create(http, "Listed", teams=[first]), create(http, "Levels", teams={second: "read_only"})
    for team, pipeline, level in ((first, by_list, "manage_build_and_read"), (second, by_level, "read_only")):
        has = http.get(f"/organizations/acme/teams/{team}/pipelines/{pipeline['id']}").json()
        assert has["access_level"] == level


def test_two_organizations_may_have_pipelines_of_one_name(http: httpx.Client) -> None:
    response = http.post("/organizations/globex/pipelines", json=NEW | {"name": "Web"})
    assert (response.status_code, response.json()["slug"]) == (201, "web")


# --- provider settings


HOSTS = {
    "git@github.com:a/b.git": ("github", "a/b"),
    "https://github.example.com/a/b": ("github", "a/b"),
    "ssh://git@gitlab.example.com:22/group/sub/b.git": ("gitlab", "sub/b"),
    "https://user@bitbucket.org/a/b.git/": ("bitbucket", "a/b"),
    "git@git.example.com:a/b.git": ("private", "a/b"),
    "/srv/git/b": ("private", "git/b"),
    "file:///github.com/b": ("private", "github.com/b"),
    "x": ("private", "x"),
}


def test_the_kind_of_host_follows_from_the_repository(http: httpx.Client) -> None:
    found, moving = {}, create(http, "Moves from host to host", repository="git@git.example.com:a/first.git")
    for repository in HOSTS:
        provider = update(http, moving, repository=repository)["provider"]
        found[repository] = (provider["id"], provider["settings"]["repository"])
        assert set(provider["settings"]) == spec.provider_settings_of(provider["id"]) | {"repository"}
    assert found == HOSTS


def test_settings_are_kept_as_far_as_the_host_has_them(http: httpx.Client) -> None:
    properties = {"build_tags": True, "trigger_mode": "fork", "publish_commit_status": False}
    new = create(http, "Settings", provider_settings=properties)
    assert properties.items() <= new["provider"]["settings"].items()
    more = update(http, new, provider_settings={"build_branches": False})["provider"]["settings"]
    assert (properties | {"build_branches": False}).items() <= more.items()
    moved = update(http, new, repository="git@gitlab.com:a/b.git")["provider"]["settings"]
    assert (moved["build_tags"], moved["publish_commit_status"]) == (True, False)
    assert "trigger_mode" not in moved


def test_settings_that_the_host_does_not_have(http: httpx.Client) -> None:
    for repository, settings in (
        ("git@github.com:a/b.git", {"build_tags": "yes"}),
        ("git@github.com:a/b.git", {"nonsense": True}),
        ("git@github.com:a/b.git", {"trigger_mode": "magic"}),
        ("git@gitlab.com:a/b.git", {"trigger_mode": "code"}),
        ("git@git.example.com:a/b.git", {"publish_commit_status": True}),
    ):
        body = NEW | {"name": "Unset", "repository": repository, "provider_settings": settings}
        assert list(wrong(http.post(PIPELINES, json=body))) == [f"provider_settings.{name}" for name in settings]


# --- changing


def test_a_new_name_changes_the_slug_unless_one_is_given(http: httpx.Client) -> None:
    new = create(http, "First name")
    renamed = update(http, new, name="Second   Name")
    assert (renamed["slug"], renamed["id"]) == ("second-name", new["id"])
    assert http.get(new["url"]).status_code == 404
    kept = update(http, renamed, name="Third", slug="second-name")
    assert (kept["name"], kept["slug"]) == ("Third", "second-name")
    assert update(http, kept, name="Third", description="x")["slug"] == "second-name"
    assert wrong(http.patch(kept["url"], json={"name": "Web"})) == {"slug": "already_exists"}
    assert wrong(http.patch(kept["url"], json={"name": "Billing"})) == {"name": "already_exists"}


def test_builds_follow_a_renamed_pipeline(http: httpx.Client) -> None:
    old = http.get(f"{PIPELINES}/billing/builds", params={"per_page": 1}).json()[0]
    moved = update(http, http.get(f"{PIPELINES}/billing").json(), slug="invoices")
    new = http.get(f"{moved['builds_url']}/{old['number']}").json()
    assert new["id"] == old["id"]
    addresses = [new["url"], new["web_url"], *(job["web_url"] for job in new["jobs"] if "web_url" in job)]
    assert all("/invoices/" in address and "/billing/" not in address for address in addresses)
    made = http.post(f"{moved['url']}/builds", json={"commit": "HEAD", "branch": "main"}).json()
    assert made["number"] > old["number"]
    update(http, moved, slug="billing")


def test_the_yaml_can_change_what_it_has_already(http: httpx.Client) -> None:
    new = create(http, "Changes its YAML")
    text = "env: {CI: 'false'}\nsteps:\n- wait\n- {label: More, command: 'true'}\n- {command: ls, label: ls}\n"
    changed = update(http, new, configuration=text)
    assert (changed["configuration"], len(changed["steps"])) == (text, 3)
    more = "agents: {queue: x}\nsteps:\n- {command: a, priority: 1}\n"
    assert wrong(http.patch(new["url"], json={"configuration": more})) == {
        "configuration": "cannot add attributes that the YAML does not have yet: agents, steps.priority"
    }
    assert "line 1" in wrong(http.patch(new["url"], json={"configuration": "["}))["configuration"]
    assert http.get(new["url"]).json() == changed


def test_the_yaml_of_a_pipeline_that_uploads_its_steps_can_change(http: httpx.Client) -> None:
    docs = http.get(f"{PIPELINES}/docs").json()
    changed = update(http, docs, configuration="steps:\n- {key: prose, label: Prose, command: read}\n")
    assert [step["command"] for step in changed["steps"]] == ["buildframe-agent pipeline upload", "read"]


def test_teams_are_not_changed_here(http: httpx.Client) -> None:
    assert "GraphQL" in wrong(http.patch(f"{PIPELINES}/web", json={"teams": []}))["teams"]


# --- archiving, deleting, webhooks


def test_an_archived_pipeline_can_only_be_read_and_unarchived(http: httpx.Client) -> None:
    new = create(http, "To the archive")
    archived = http.post(f"{new['url']}/archive")
    assert (archived.status_code, bool(archived.json()["archived_at"])) == (200, True)
    assert http.get(new["url"]).json() == archived.json()
    again = http.post(f"{new['url']}/archive")
    assert (again.status_code, again.json()) == (422, {"message": "Pipeline could not be archived."})
    assert list(wrong(http.patch(new["url"], json={"description": "x"}))) == ["archived_at"]
    assert http.post(f"{new['url']}/unarchive").json() == new
    again = http.post(f"{new['url']}/unarchive")
    assert (again.status_code, again.json()) == (422, {"message": "Pipeline could not be unarchived."})


def test_a_deleted_pipeline_takes_its_builds_along(sandbox: Sandbox, http: httpx.Client) -> None:
    team = next(iter(sandbox.teams().values()))
    teams = f"/organizations/acme/teams/{team}/pipelines?per_page=100"
    before = http.get(teams).json()
    new = create(http, "Delete me", teams=[team])
    assert len(http.get(teams).json()) == len(before) + 1
    build = http.post(f"{new['url']}/builds", json={"commit": "HEAD", "branch": "main"}).json()
    assert http.delete(new["url"]).status_code == 204
    for url in (new["url"], build["url"], new["builds_url"]):
        assert http.get(url).json() == {"message": "No pipeline found"}
    assert http.get(teams).json() == before
    assert build["id"] not in [one["id"] for one in http.get("/builds", params={"per_page": 100}).json()]
    again = create(http, "Delete me")
    assert again["id"] != new["id"]


def test_a_webhook_is_made_once_and_not_for_every_host(http: httpx.Client) -> None:
    new = create(http, "Hooked")
    first, second = (http.post(f"{new['url']}/webhook") for _ in range(2))
    assert (first.status_code, first.json()) == (201, new)
    message = "Webhooks could not be created for your repository."
    assert (second.status_code, second.json()) == (422, {"message": message})
    own = create(http, "Own host", repository="git@git.example.com:a/b.git")
    response = http.post(f"{own['url']}/webhook")
    message = "Auto-creating webhooks is not supported for your repository."
    assert (response.status_code, response.json()) == (422, {"message": message})
    moved = update(http, new, repository="git@github.com:acme/other.git")
    assert http.post(f"{moved['url']}/webhook").status_code == 201


CHANGES = [("POST", "/archive"), ("POST", "/unarchive"), ("POST", "/webhook"), ("PATCH", ""), ("DELETE", "")]


def test_without_edit_permission_a_pipeline_stays_as_it_is(sandbox: Sandbox, http: httpx.Client) -> None:
    viewer = {"Authorization": f"Bearer {sandbox.token(SCOPES, may_edit=False)}"}
    before = http.get(f"{PIPELINES}/web").json()
    for method, path in CHANGES:
        response = http.request(method, f"{PIPELINES}/web{path}", headers=viewer)
        assert (response.status_code, response.json()) == (403, {"message": "Forbidden"}), (method, path)
    assert http.get(f"{PIPELINES}/web").json() == before
    seen = http.get(f"{PIPELINES}/web", headers=viewer).json()
    assert (bool(before["provider"]["webhook_url"]), seen["provider"]["webhook_url"]) == (True, "")
