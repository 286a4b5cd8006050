"""The members of an organization."""

from __future__ import annotations

import pytest

MEMBERS = "/organizations/acme/members"


def test_members_are_the_people_who_build(full, builds):
    members = {member["id"]: member for member in full.walk(MEMBERS)}
    creators = [build["creator"] for build in builds if build["creator"] and "/acme/" in build["url"]]
    assert len(creators) > 100
    for creator in creators:
        member = members[creator["id"]]
        assert (member["name"], member["email"]) == (creator["name"], creator["email"])


def test_a_member_is_told_alike_in_the_list_and_alone(full):
    for organization in ("acme", "globex"):
        for member in full.walk(f"/organizations/{organization}/members"):
            assert full(f"/organizations/{organization}/members/{member['id']}").json() == member
            assert member.keys() == {"id", "name", "email", "role"}


def test_the_list_is_paginated(full):
    first = full(MEMBERS, per_page=5)
    everyone = full(MEMBERS).json()
    assert first.json() == everyone[:5]
    assert full(MEMBERS, per_page=5, page=2).json() == everyone[5:10]
    assert first.links.keys() == {"next", "last"}
    assert [member["role"] for member in everyone] == ["admin", *["member"] * (len(everyone) - 1)]


@pytest.mark.parametrize("user", ["00000000-0000-4000-8000-000000000000", "ada", "%00"])
def test_an_unknown_user_is_not_found(full, user):
    response = full(f"{MEMBERS}/{user}")
    assert (response.status_code, response.json()) == (404, {"message": "No user found"})


def test_a_member_of_another_organization_is_not_found(full):
    (someone, *_) = full("/organizations/globex/members").json()
    assert full(f"{MEMBERS}/{someone['id']}").status_code == 404


@pytest.mark.parametrize("path", [MEMBERS, f"{MEMBERS}/00000000-0000-4000-8000-000000000000"])
def test_members_need_their_scope(small, asker, path):
    response = asker(small, small.token(["read_builds"]))(path)
    assert response.status_code == 403
    assert response.json() == {"message": "Your access token doesn't have the read_organizations scope"}
