"""The rules for slugs and records of pipelines, and pipelines that outlive the process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES
from buildframe.sandbox_server.pipeline_yaml.pipeline_rules import MAX_SLUG_LENGTH, is_slug, slug_of
from buildframe.sandbox_server.world.pipeline_settings import provider_of, repository_name

WORDS = st.from_regex(r"[a-zA-Z0-9]{1,12}", fullmatch=True)


@given(st.text())
def test_a_slug_from_a_name_is_one_or_nothing(name: str) -> None:
    slug = slug_of(name)
    assert slug == "" or (is_slug(slug) and slug == slug.lower())


@given(st.lists(WORDS, min_size=1, max_size=5), st.integers(1, 4))
def test_runs_of_spaces_become_one_hyphen(words: list[str], spaces: int) -> None:
    assert slug_of((" " * spaces).join(words)) == "-".join(words).lower()[:MAX_SLUG_LENGTH]


@given(st.text(alphabet="aZ0-_ é\n", max_size=103))
def test_slugs_are_of_the_documented_form(text: str) -> None:
    documented = re.compile("[a-zA-Z0-9]+[a-zA-Z0-9-]*").fullmatch(text)
    assert is_slug(text) == (documented is not None and len(text) <= 100)


def test_slugs_of_names() -> None:
    slugs = {"Acme Web": "acme-web", ":iphone: Mobile": "iphone-mobile", "a" * 150: "a" * 100, "--- x": "x"}
    assert {name: slug_of(name) for name in slugs} == slugs


@given(st.text())
def test_any_repository_has_a_kind_of_host_and_a_name(address: str) -> None:
    assert provider_of(address) in ("github", "gitlab", "bitbucket", "private")
    assert repository_name(address).count("/") <= 1


# --- staying


SCRIPT = """
import sys, httpx
from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES
sandbox = Sandbox(sys.argv[1], builds=20, days=1)
http = httpx.Client(base_url=f"{sandbox.url}/v2", headers={"Authorization": f"Bearer {sandbox.token(SCOPES)}"})
new = {"name": "First", "cluster_id": None, "repository": "r", "configuration": "- {label: Test, command: make}"}
path = "/organizations/acme/pipelines"
assert http.post(path, json=new).status_code == 201
assert http.post(f"{path}/first/builds", json={"commit": "HEAD", "branch": "main"}).status_code == 201
assert http.patch(f"{path}/first", json={"name": "Second", "configuration": "- {label: T, command: m}"}).is_success
assert http.post(f"{path}/second/archive").is_success
assert http.post(path, json=new).status_code == 201
assert http.delete(f"{path}/docs").status_code == 204
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "world.sqlite"
    command = [sys.executable, "-c", SCRIPT, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
    with Sandbox(path) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.token(SCOPES)}"}
        with httpx.Client(base_url=f"{sandbox.url}/v2/organizations/acme", headers=headers) as http:
            slugs = [one["slug"] for one in http.get("/pipelines").json()]
            assert slugs[-2:] == ["second", "first"]
            assert "docs" not in slugs
            second = http.get("/pipelines/second").json()
            assert second["archived_at"]
            assert second["configuration"] == "- {label: T, command: m}"
            build = http.get("/pipelines/second/builds/1").json()
            assert build["url"] == f"{second['url']}/builds/1"
            assert (build["creator"]["name"], build["jobs"][0]["command"]) == ("Token user 1", "make")
            first = http.get("/pipelines/first").json()
            assert first["id"] != second["id"]
            assert http.get(first["builds_url"]).json() == []


def test_the_same_actions_give_the_same_answers() -> None:
    responses = []
    for _ in range(2):
        with Sandbox(builds=5, days=1) as sandbox:
            headers = {"Authorization": f"Bearer {sandbox.token(SCOPES)}"}
            with httpx.Client(base_url=f"{sandbox.url}/v2/organizations/acme", headers=headers) as http:
                new = {"name": "Same", "cluster_id": None, "repository": "r", "configuration": "- command: make"}
                texts = [
                    http.post("/pipelines", json=new).text,
                    http.post("/pipelines/same/builds", json={"commit": "HEAD", "branch": "main"}).text,
                ]
                responses.append([text.replace(sandbox.url, "") for text in texts])
    assert responses[0] == responses[1]
