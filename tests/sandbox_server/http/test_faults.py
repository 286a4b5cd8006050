"""Faults on request: how a client sees each of them, and that the sandbox stays consistent."""

from __future__ import annotations

import itertools
import re
import time

import httpx
import pytest

from buildframe.sandbox_server import Fault, Sandbox
from buildframe.sandbox_server.handlers.routes import ROUTES, route_path
from tests.refusals import refusal

BUILDS = "/organizations/acme/builds"
SCOPES = ("read_builds", "write_builds", "read_pipelines", "write_pipelines", "GraphQL")
NEW = {"commit": "HEAD", "branch": "main"}


@pytest.fixture(scope="module")
def shaky():
    with Sandbox(builds=120, days=2, seed=11) as sandbox:
        yield sandbox


@pytest.fixture
def spoilt(shaky):
    yield shaky
    shaky.clear_faults()


@pytest.fixture
def http(shaky):
    headers = {"Authorization": f"Bearer {shaky.token(SCOPES)}"}
    with httpx.Client(base_url=f"{shaky.url}/v2", headers=headers, timeout=30) as client:
        yield client


def ids(response):
    assert response.status_code == 200
    return [build["id"] for build in response.json()]


def happened(sandbox):
    headers = {"Authorization": f"Bearer {sandbox.token(['sandbox'])}"}
    return [fault["happened"] for fault in httpx.get(f"{sandbox.url}/sandbox/faults", headers=headers).json()]


def test_pages_of_every_shape(spoilt, http):
    """Few rows, a whole list, no `Link` header or an empty one, and failures of large pages."""
    whole = ids(http.get(BUILDS, params={"per_page": 100}))
    spoilt.fault(Fault("clamped", n=7))
    clamped = http.get(BUILDS, params={"per_page": 50})
    assert ids(clamped) == whole[:7]
    assert ids(http.get(clamped.links["next"]["url"])) == whole[7:14]
    spoilt.fault(Fault("no_link"))
    second = http.get(BUILDS, params={"per_page": 50, "page": 2})
    assert ids(second) == whole[7:14]
    assert "Link" not in second.headers
    spoilt.clear_faults()
    spoilt.fault(Fault("empty_link"))
    assert http.get(BUILDS).headers["Link"] == ""
    assert len(ids(http.get(BUILDS))) == 30
    spoilt.clear_faults()
    spoilt.fault(Fault("whole", route="list_builds"))
    response = http.get(BUILDS, params={"per_page": 5, "page": 3})
    assert ids(response)[:100] == whole
    assert len(ids(response)) > 100
    assert "Link" not in response.headers
    spoilt.clear_faults()
    spoilt.fault(Fault("overloaded", n=40, status=504))
    assert [http.get(BUILDS, params={"per_page": rows}).status_code for rows in (40, 41, 100)] == [200, 504, 504]
    assert http.get(BUILDS).status_code == 200
    assert happened(spoilt) == [2]


@pytest.mark.long
def test_latency_delays_the_response_and_leaves_it_as_it_is(spoilt, http):
    before = ids(http.get(BUILDS))
    spoilt.fault(Fault("latency", seconds=1, times=2))
    with pytest.raises(httpx.ReadTimeout):
        http.get(BUILDS, timeout=0.2)
    assert ids(http.get(BUILDS)) == before


def test_limited_is_a_429_with_the_limits_headers_and_body(spoilt, http):
    spoilt.fault(Fault("limited", seconds=7))
    response = http.get(BUILDS)
    assert response.status_code == 429
    assert {"scope": "rest", "reset": 7, "limit": 200, "current": 201}.items() <= response.json().items()
    assert (response.headers["RateLimit-Remaining"], response.headers["RateLimit-Reset"]) == ("0", "7")
    assert int(response.headers["RateLimit-User-Remaining"]) > 0


@pytest.mark.long
def test_exhausted_responds_once_and_then_refuses_until_the_reset(spoilt, http):
    spoilt.fault(Fault("exhausted", seconds=1.5, times=1))
    last = http.get(BUILDS)
    assert (last.status_code, last.headers["RateLimit-Reset"]) == (200, "2")
    assert last.headers.get_list("RateLimit-Remaining") == ["0"]
    refused = http.get("/organizations/acme/emojis")
    assert refused.status_code == 429
    time.sleep(refused.json()["reset"])
    assert http.get(BUILDS).status_code == 200


def test_clearing_also_ends_what_is_exhausted(spoilt, http):
    spoilt.fault(Fault("exhausted", seconds=60))
    http.get(BUILDS)
    assert http.get(BUILDS).status_code == 429
    spoilt.clear_faults()
    assert http.get(BUILDS).status_code == 200


def test_a_status_comes_with_json_or_a_page(spoilt, http):
    for status, html in ((500, False), (502, True), (503, False), (503, True)):
        spoilt.clear_faults()
        spoilt.fault(Fault("status", status=status, html=html))
        response = http.get(BUILDS)
        assert response.status_code == status
        if html:
            assert response.headers["Content-Type"].startswith("text/html")
            assert str(status) in response.text
        else:
            assert response.json()["message"]


def test_reset_closes_without_a_response(spoilt, http):
    spoilt.fault(Fault("reset", times=1))
    with pytest.raises(httpx.RemoteProtocolError, match="without sending"):
        http.get(BUILDS)
    assert http.get(BUILDS).status_code == 200


def test_cut_ends_within_the_body(spoilt, http):
    whole = len(http.get(BUILDS, headers={"Accept-Encoding": "identity"}).content)
    spoilt.fault(Fault("cut", times=1))
    with pytest.raises(httpx.RemoteProtocolError, match=f"received {whole // 2} bytes, expected {whole}"):
        http.get(BUILDS)


def test_garbage_is_a_200_that_is_no_json(spoilt, http):
    spoilt.fault(Fault("garbage"))
    response = http.get(BUILDS)
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    with pytest.raises(ValueError, match="Unterminated string"):
        response.json()


def test_too_deep_is_the_400_of_far_pages(spoilt, http):
    spoilt.fault(Fault("too_deep"))
    response = http.get(BUILDS)
    assert response.status_code == 400
    assert "this deep is not supported" in response.json()["message"]


# --- worlds that change between pages ---


def test_arrivals_stand_before_what_was_there(spoilt, http):
    before = ids(http.get(BUILDS))
    spoilt.fault(Fault("arrive", n=3, times=1))
    after = ids(http.get(BUILDS))
    assert after[3:] == before[:-3]


def test_arrivals_are_of_the_requested_pipeline(spoilt, http):
    spoilt.fault(Fault("arrive", n=2, times=1))
    ids(http.get("/organizations/acme/pipelines/web/builds"))
    newest = http.get("/builds").json()[:2]
    assert {build["pipeline"]["slug"] for build in newest} == {"web"}


def test_a_page_that_is_shifted_repeats_rows(spoilt, http):
    first = ids(http.get(BUILDS, params={"per_page": 10}))
    spoilt.fault(Fault("arrive", n=4, times=1))
    second = ids(http.get(BUILDS, params={"per_page": 10, "page": 2}))
    assert second[:4] == first[-4:]


def test_the_newest_that_are_over_vanish(spoilt, http):
    path = "/organizations/acme/pipelines/web/builds"
    over = ("passed", "failed", "canceled", "skipped", "not_run")
    before = [build for build in http.get(path, params={"per_page": 50}).json() if not build["blocked"]]
    going = [build["id"] for build in before if build["state"] in over][:5]
    spoilt.fault(Fault("vanish", n=5, times=1))
    after = ids(http.get(path, params={"per_page": 50}))
    assert not set(going) & set(after)
    assert len({build["id"] for build in before} - set(after)) == 5


def test_finish_moves_the_clock_by_its_seconds(spoilt, http):
    (number,) = spoilt.push("web")
    spoilt.fault(Fault("finish", seconds=6 * 3600, route="get_build", times=1))
    now = spoilt.clock.now()
    build = http.get(f"/organizations/acme/pipelines/web/builds/{number}").json()
    assert build["finished_at"] is not None or build["blocked"]
    assert (spoilt.clock.now() - now).total_seconds() == 6 * 3600


def under_way(http, path):
    return {build["number"] for build in http.get(path).json() if build["state"] in ("running", "scheduled", "failing")}


@pytest.mark.long
def test_finish_lets_some_of_the_requested_builds_end():
    path = "/organizations/acme/pipelines/web/builds"
    with Sandbox(builds=120, days=2, seed=11) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.token()}"}
        with httpx.Client(base_url=f"{sandbox.url}/v2", headers=headers) as http:
            for n in (1, 2):
                sandbox.push("web", 4)
                before, now = under_way(http, path), sandbox.clock.now()
                sandbox.fault(Fault("finish", n=n, route="list_pipeline_builds", times=1))
                ended = before - under_way(http, path)
                assert n <= len(ended) < len(before)
                assert 0 < (sandbox.clock.now() - now).total_seconds() <= 12 * 3600
            last = max(under_way(http, path))
            sandbox.fault(Fault("finish", route="get_build", times=1))
            build = http.get(f"{path}/{last}").json()
            assert build["state"] not in ("running", "scheduled", "failing")


def test_what_cannot_happen_did_not(spoilt, http):
    now = spoilt.clock.now()
    for kind in ("arrive", "vanish", "finish"):
        spoilt.fault(Fault(kind, times=1))
    assert http.get("/organizations/acme/pipelines/nowhere/builds").status_code == 404
    assert happened(spoilt) == [0, 0, 0]
    assert spoilt.clock.now() == now


def test_arrivals_are_built_whatever_the_branch_filter(spoilt, http):
    path = "/organizations/acme/pipelines/docs"
    for wanted, fits in (
        ("release/*", lambda branch: branch.startswith("release/")),
        ("stable", lambda branch: branch == "stable"),
        ("!main !fix/* !feature/* !dev/*", lambda branch: branch == "topic"),
        ("", lambda branch: branch),
    ):
        assert http.patch(path, json={"branch_configuration": wanted}).status_code == 200
        before = ids(http.get(f"{path}/builds"))
        spoilt.fault(Fault("arrive", n=3, times=1))
        after = http.get(f"{path}/builds").json()
        assert [build["id"] for build in after[3:]] == before[: len(after) - 3]
        assert [build["branch"] for build in after[:3] if not fits(build["branch"])] == []
        assert len({build["commit"] for build in after[:3]}) == 3


def test_nothing_arrives_where_no_branch_is_built(spoilt, http):
    path = "/organizations/acme/pipelines/docs"
    http.patch(path, json={"branch_configuration": "release/* !release/*"})
    before = ids(http.get(f"{path}/builds"))
    spoilt.fault(Fault("arrive", times=1))
    assert ids(http.get(f"{path}/builds")) == before
    assert happened(spoilt) == [0]
    http.patch(path, json={"branch_configuration": ""})
    assert len(ids(http.get(f"{path}/builds"))) == len(before) + 1


# --- actions whose response or request is lost ---


def test_an_action_is_done_unless_the_request_is_lost(spoilt, http):
    outcomes, made = {}, {}
    path = "/organizations/acme/pipelines/web/builds"
    for kind, before in itertools.product(("reset", "cut", "garbage", "status"), (False, True)):
        seen = set(ids(http.get(path)))
        spoilt.fault(Fault(kind, route="create_build", times=1, before=before))
        try:
            outcomes[kind, before] = http.post(path, json=NEW).status_code
        except httpx.RemoteProtocolError:
            outcomes[kind, before] = "broken"
        made[kind, before] = len(set(ids(http.get(path))) - seen)
    ends = {"reset": "broken", "cut": "broken", "garbage": 200, "status": 503}
    assert outcomes == {(kind, before): ends[kind] for kind, before in made}
    assert made == {(kind, before): 0 if before else 1 for kind, before in made}


def test_what_is_refused_is_not_done(spoilt, http):
    path = "/organizations/acme/pipelines/web/builds"
    for kind, status in (("limited", 429), ("too_deep", 400)):
        spoilt.clear_faults()
        seen = ids(http.get(path))
        spoilt.fault(Fault(kind, route="create_build"))
        assert http.post(path, json=NEW).status_code == status
        assert ids(http.get(path)) == seen


# --- which requests ---


def test_only_the_named_operation_is_met(spoilt, http):
    spoilt.fault(Fault("status", route="list_builds"))
    assert http.get(BUILDS).status_code == 503
    assert http.get(BUILDS + "/").status_code == 503
    assert http.get("/builds").status_code == 200
    assert http.get("/organizations/acme/pipelines/web/builds").status_code == 200


def test_every_route_can_be_met(spoilt, http):
    for route in ROUTES:
        spoilt.clear_faults()
        spoilt.fault(Fault("status", route=route.name, before=True))
        path = route_path(route)
        url = spoilt.url + path.format_map(dict.fromkeys(re.findall(r"{(\w+)}", path), "x"))
        methods = ["GET", "HEAD"] if route.method == "GET" else [route.method]
        requests = [(method, address) for method in methods for address in (url, f"{url}/")]
        assert [http.request(*request).status_code for request in requests] == [503] * len(requests), route.name
        assert happened(spoilt) == [len(requests)], route.name
        assert http.get("/organizations/acme/nothing").status_code == 404


@pytest.mark.long
def test_the_share_and_the_order_are_the_same_every_time():
    drawn = []
    for _ in range(2):
        with Sandbox(builds=5, days=1, seed=4, faults=[Fault("status", rate=0.3)]) as sandbox:
            headers = {"Authorization": f"Bearer {sandbox.token()}"}
            with httpx.Client(headers=headers) as client:
                drawn.append([client.get(f"{sandbox.url}/v2/organizations").status_code for _ in range(100)])
    assert drawn[0] == drawn[1]
    assert 15 <= drawn[0].count(503) <= 45
    assert len({len(list(group)) for _, group in itertools.groupby(drawn[0])}) > 2


def test_a_fault_happens_at_most_so_often(spoilt, http):
    spoilt.fault(Fault("status", times=2))
    assert [http.get(BUILDS).status_code for _ in range(4)] == [503, 503, 200, 200]


def test_faults_add_up_and_the_first_that_spoils_counts(spoilt, http):
    before = ids(http.get(BUILDS))
    for fault in (Fault("arrive", times=1), Fault("status", status=500, times=1), Fault("garbage", times=1)):
        spoilt.fault(fault)
    assert http.get(BUILDS).status_code == 500
    assert ids(http.get(BUILDS))[1:] == before[:-1]


def test_the_sandbox_stays_whole_under_all_of_them(spoilt, http):
    for kind in ("arrive", "vanish", "reset", "cut", "garbage", "status"):
        spoilt.fault(Fault(kind, rate=0.5))
    for _ in range(40):
        try:
            http.get("/organizations/globex/builds")
        except httpx.RemoteProtocolError:
            continue
    spoilt.clear_faults()
    found = http.get("/organizations/globex/builds", params={"per_page": 100}).json()
    assert len({(build["pipeline"]["slug"], build["number"]) for build in found}) == len(found)


def test_a_fault_that_makes_no_sense_is_refused():
    wrong = [
        {"kind": "nonsense"},
        {"kind": "reset", "route": "nowhere"},
        {"kind": "reset", "rate": 1.5},
        {"kind": "reset", "times": 0},
        {"kind": "arrive", "n": 0},
        {"kind": "latency", "seconds": -1},
        {"kind": "latency", "seconds": 1e308},
        {"kind": "finish", "seconds": 86_401},
        {"kind": "limited", "seconds": float("nan")},
        {"kind": "reset", "rate": float("nan")},
        {"kind": "arrive", "n": 10**9},
        {"kind": "reset", "times": 10**30},
        {"kind": "status", "status": 404},
    ]
    assert [each for each in wrong if not refusal(Fault, **each)] == []
