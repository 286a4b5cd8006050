"""The emojis of an organization, and their images."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import httpx

EMOJIS = "/organizations/acme/emojis"


def test_the_list_is_whole_and_not_paginated(full_api):
    response = full_api(EMOJIS, per_page=2)
    assert "link" not in response.headers
    assert len(response.json()) > 60
    assert len({emoji["name"] for emoji in response.json()}) == len(response.json())


def test_a_token_is_needed_but_no_scope(small, api_client):
    assert api_client(small, small.token([]))(EMOJIS).status_code == 200
    assert httpx.get(f"{small.url}/v2{EMOJIS}").status_code == 401
    assert api_client(small, small.token([], organizations=["globex"]))(EMOJIS).status_code == 404


def test_every_emoji_written_somewhere_is_there(full_api, builds):
    for organization in ("acme", "globex"):
        known = {emoji["name"] for emoji in full_api(f"/organizations/{organization}/emojis").json()}
        pipelines = full_api(f"/organizations/{organization}/pipelines").json()
        jobs = [job for build in builds if f"/{organization}/" in build["url"] for job in build["jobs"]]
        texts = [job.get("name") or job.get("label") or "" for job in jobs]
        texts += [text for pipeline in pipelines for text in (pipeline["name"], *(pipeline["tags"] or ()))]
        written = {name for text in texts for name in re.findall(r":([\w+-]+):", text)}
        assert len(written) >= 5
        assert written <= known


def test_only_some_have_aliases_and_custom_ones_are_there(full_api):
    emojis = full_api(EMOJIS).json()
    with_aliases = [emoji for emoji in emojis if "aliases" in emoji]
    assert 0 < len(with_aliases) < len(emojis)
    assert all(emoji["aliases"] for emoji in with_aliases)
    assert {emoji["name"] for emoji in emojis} >= {"acme", "react", "+1"}
    assert "acme" not in {emoji["name"] for emoji in full_api("/organizations/globex/emojis").json()}


def test_images_are_svg_that_anyone_may_see(full_api):
    emojis = full_api(EMOJIS).json()
    assert emojis
    with httpx.Client() as anyone:
        for emoji in emojis:
            image = anyone.get(emoji["url"])
            assert (image.status_code, image.headers["content-type"]) == (200, "image/svg+xml")
            assert ElementTree.fromstring(image.content).get("aria-label") == f":{emoji['name']}:"


def test_what_is_no_name_has_no_image(small):
    names = ["a%3Cb", "a b", "%22", "x" * 101]
    assert [httpx.get(f"{small.url}/emojis/{name}.svg").status_code for name in names] == [404] * len(names)
