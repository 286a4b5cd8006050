"""Changes by users without the permission, and changes of archived pipelines."""

from __future__ import annotations

import datetime as dt

import httpx
import pytest

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES
from tests.sandbox_server.planted_pipelines import SOMEONE, Planted, block, job_of, step

ORGANIZATION = "/organizations/acme"
NEW = {"cluster_id": None, "repository": "git@github.com:acme/x.git", "configuration": "steps: [{command: make}]"}
FORBIDDEN = (403, {"message": "Forbidden"})


@pytest.fixture(scope="module")
def viewer(sandbox: Sandbox):
    """Someone with every scope who may not edit."""
    headers = {"Authorization": f"Bearer {sandbox.token(SCOPES, may_edit=False)}"}
    with httpx.Client(base_url=f"{sandbox.url}/v2", headers=headers, timeout=30) as client:
        yield client


def outcome(response):
    return response.status_code, response.json()


def test_who_may_not_edit_creates_no_pipeline(http, viewer):
    for body in (NEW | {"name": "Not mine"}, {}):
        assert outcome(viewer.post(f"{ORGANIZATION}/pipelines", json=body)) == FORBIDDEN
    assert http.get(f"{ORGANIZATION}/pipelines/not-mine").status_code == 404
    assert http.post(f"{ORGANIZATION}/pipelines", json=NEW | {"name": "Mine"}).status_code == 201
    assert viewer.post("/organizations/nowhere/pipelines", json={}).status_code == 404


def test_who_may_not_edit_leaves_the_pipelines_of_teams_as_they_are(sandbox, http, viewer):
    web = http.get(f"{ORGANIZATION}/pipelines/web").json()["id"]
    teams = f"{ORGANIZATION}/teams"
    having, other = (f"{teams}/{sandbox.teams()[name]}/pipelines" for name in ("Everyone", "Visitors"))
    before = http.get(having).json(), http.get(other).json()
    assert web in [has["pipeline_id"] for has in before[0]]
    requests = [
        ("POST", other, {"pipeline_id": web, "access_level": "read_only"}),
        ("POST", other, {}),
        ("PATCH", f"{having}/{web}", {"access_level": "read_only"}),
        ("DELETE", f"{having}/{web}", None),
        ("DELETE", having, {"pipeline_id": web}),
        ("DELETE", having, {}),
    ]
    for method, path, body in requests:
        assert outcome(viewer.request(method, path, json=body)) == FORBIDDEN
    assert (http.get(having).json(), http.get(other).json()) == before
    assert viewer.get(having).json() == before[0]
    assert viewer.delete(f"{other}/{web}").status_code == 404


def test_who_may_not_edit_may_build(viewer):
    build = viewer.post(f"{ORGANIZATION}/pipelines/web/builds", json={"commit": "HEAD", "branch": "main"})
    assert build.status_code == 201
    assert viewer.put(f"{build.json()['url']}/cancel").json()["state"] == "canceled"


def test_builds_of_an_archived_pipeline_can_be_canceled_and_unblocked(sandbox_api, http):
    pipeline = Planted(sandbox_api, block("a"), step("b", seconds=3000.0))
    held, other = pipeline.create(), pipeline.create()
    sandbox_api.sandbox.clock.advance(dt.timedelta(minutes=1))
    pipeline.simulator.unblock(other.id, job_of(pipeline.get(other), "a")["id"], SOMEONE)
    assert http.post(f"{ORGANIZATION}/pipelines/planted/archive").status_code == 200
    assert http.put(job_of(pipeline.get(held), "a")["unblock_url"]).status_code == 200
    assert pipeline.after(held, minutes=1)["state"] == "running"
    for run in (held, other):
        assert http.put(f"{pipeline.path}/{run.number}/cancel").json()["state"] == "canceled"
    assert http.put(f"{pipeline.path}/{held.number}/rebuild").status_code == 422


def test_uuids_are_kept_in_lower_case(http):
    web = http.get(f"{ORGANIZATION}/pipelines/web").json()
    pages = http.get(f"{ORGANIZATION}/pipelines", params={"per_page": 100}).json()
    template = next(each["pipeline_template_uuid"] for each in pages if each["pipeline_template_uuid"])
    uuids = {"cluster_id": web["cluster_id"], "pipeline_template_uuid": template}
    sent = {name: uuid.upper() for name, uuid in uuids.items()}
    assert sent != uuids
    made = http.post(f"{ORGANIZATION}/pipelines", json=NEW | sent | {"name": "Capitals"}).json()
    assert {name: made[name] for name in uuids} == uuids
    http.patch(made["url"], json=dict.fromkeys(uuids)).raise_for_status()
    changed = http.patch(made["url"], json=sent).json()
    assert {name: changed[name] for name in uuids} == uuids


# --- YAML that holds half a character

HALVES = [
    r'steps: [{command: "\ud800"}]',
    r'steps: [{command: make, "\udfff": x}]',
    r'steps: [{command: make, env: {A: "a\ud83d\ude00"}}]',
    r'"\ud800": 1',
    r'"\ud800"',
    r'steps: ["\udc00"]',
    r'{steps: [{command: &x "\ud800"}, {label: *x, command: y}]}',
]


def test_half_a_character_in_yaml_is_refused(http):
    for text in HALVES:
        responses = [
            http.post(f"{ORGANIZATION}/pipelines", json=NEW | {"name": "Half", "configuration": text}),
            http.patch(f"{ORGANIZATION}/pipelines/web", json={"configuration": text}),
        ]
        for response in responses:
            assert (response.status_code, response.json()["message"]) == (422, "Validation Failed"), text
            assert [error["field"] for error in response.json()["errors"]] == ["configuration"]


def test_whole_characters_in_yaml_may_be_escaped(http):
    text = r'steps: [{command: "\U0001f600 \ud7ff"}]'
    made = http.post(f"{ORGANIZATION}/pipelines", json=NEW | {"name": "Whole", "configuration": text})
    assert made.status_code == 201
    assert made.json()["steps"][0]["command"] == "\U0001f600 \ud7ff"
