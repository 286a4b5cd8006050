"""The members of an organization."""

from __future__ import annotations

MEMBERS = "/organizations/acme/members"
NOBODY = "00000000-0000-4000-8000-000000000000"


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


def test_an_unknown_user_is_not_found(full_api):
    (someone, *_) = full_api("/organizations/globex/members").json()
    for user in (NOBODY, "ada", "%00", someone["id"]):
        response = full_api(f"{MEMBERS}/{user}")
        assert (response.status_code, response.json()) == (404, {"message": "No user found"}), user


def test_members_need_their_scope(small, api_client):
    api = api_client(small, small.token(["read_builds"]))
    for path in (MEMBERS, f"{MEMBERS}/{NOBODY}"):
        message = "Your access token doesn't have the read_organizations scope"
        assert (api(path).status_code, api(path).json()) == (403, {"message": message}), path
