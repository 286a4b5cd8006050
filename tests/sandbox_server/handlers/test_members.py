"""The members of an organization."""

from __future__ import annotations

import pytest

MEMBERS = "/organizations/acme/members"


def test_members_are_the_people_who_build(full_api, builds):
    members = {member["id"]: member for member in full_api.all_pages(MEMBERS)}
    creators = [build["creator"] for build in builds if build["creator"] and "/acme/" in build["url"]]
    assert len(creators) > 100
    for creator in creators:
        member = members[creator["id"]]
        assert (member["name"], member["email"]) == (creator["name"], creator["email"])


def test_a_member_is_the_same_in_the_list_and_alone(full_api):
    for organization in ("acme", "globex"):
        for member in full_api.all_pages(f"/organizations/{organization}/members"):
            assert full_api(f"/organizations/{organization}/members/{member['id']}").json() == member


def test_the_list_is_paginated(full_api):
    first = full_api(MEMBERS, per_page=5)
    everyone = full_api(MEMBERS).json()
    assert first.json() == everyone[:5]
    assert full_api(MEMBERS, per_page=5, page=2).json() == everyone[5:10]
    assert first.links.keys() == {"next", "last"}
    assert [member["role"] for member in everyone] == ["admin", *["member"] * (len(everyone) - 1)]


@pytest.mark.parametrize("user", ["00000000-0000-4000-8000-000000000000", "ada", "%00"])
def test_an_unknown_user_is_not_found(full_api, user):
    response = full_api(f"{MEMBERS}/{user}")
    assert (response.status_code, response.json()) == (404, {"message": "No user found"})


def test_a_member_of_another_organization_is_not_found(full_api):
    (someone, *_) = full_api("/organizations/globex/members").json()
    assert full_api(f"{MEMBERS}/{someone['id']}").status_code == 404


@pytest.mark.parametrize("path", [MEMBERS, f"{MEMBERS}/00000000-0000-4000-8000-000000000000"])
def test_members_need_their_scope(small, api_client, path):
    response = api_client(small, small.token(["read_builds"]))(path)
    assert response.status_code == 403
    assert response.json() == {"message": "Your access token doesn't have the read_organizations scope"}
