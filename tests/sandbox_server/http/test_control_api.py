"""The control routes of a sandbox: its clock and faults, the permission, and invalid requests."""

from __future__ import annotations

import httpx
import pytest

BUILDS = "/organizations/acme/builds"
SCOPES = ("read_builds", "write_builds", "read_pipelines")


@pytest.fixture
def control(sandbox):
    headers = {"Authorization": f"Bearer {sandbox.token(['sandbox'])}"}
    with httpx.Client(base_url=f"{sandbox.url}/sandbox", headers=headers) as client:
        yield client
    sandbox.clear_faults()


def test_faults_over_http(control, http):
    response = control.post("/faults", json={"kind": "status", "status": 502, "route": "list_builds"})
    assert response.status_code == 201
    assert http.get(BUILDS).status_code == 502
    (armed,) = control.get("/faults").json()
    assert {"kind": "status", "status": 502, "route": "list_builds", "happened": 1}.items() <= armed.items()
    assert control.delete("/faults").status_code == 204
    assert control.get("/faults").json() == []
    assert http.get(BUILDS).status_code == 200


def test_the_clock_over_http(control, sandbox):
    before = sandbox.clock.now()
    after = control.post("/clock", json={"advance_s": 90.5}).json()["now"]
    assert after == control.get("/clock").json()["now"] == sandbox.clock.now().text()
    assert (sandbox.clock.now() - before).total_seconds() == 90.5


def test_what_makes_no_sense_is_a_422_with_a_message(control):
    for path, body in (
        ("/faults", b'{"kind": "nonsense"}'),
        ("/faults", b'{"kind": "reset", "rate": 2}'),
        ("/faults", b'{"kind": "reset", "often": true}'),
        ("/faults", b'{"kind": "finish", "seconds": 1e300}'),
        ("/faults", b'{"kind": "arrive", "n": 1e300}'),
        ("/faults", b"no json"),
        ("/clock", b'{"advance_s": -1}'),
        ("/clock", b'{"advance_s": 1e300}'),
        ("/webhooks", b'{"url": "http://example.com/", "token": "t"}'),
        ("/webhooks", b'{"url": "http://127.0.0.1:9/", "token": "t", "organization": "nobody"}'),
    ):
        response = control.post(path, content=body)
        assert (response.status_code, bool(response.json()["message"])) == (422, True), (path, body)


def test_controls_need_a_scope_of_their_own(sandbox):
    tokens = [sandbox.token(), sandbox.token(SCOPES), sandbox.token(())]
    for method, path in (("GET", "/faults"), ("POST", "/clock"), ("GET", "/deliveries")):
        url = f"{sandbox.url}/sandbox{path}"
        assert httpx.request(method, url).status_code == 401, path
        for token in tokens:
            response = httpx.request(method, url, headers={"Authorization": f"Bearer {token}"})
            assert (response.status_code, "sandbox" in response.json()["message"]) == (403, True), path


def test_controls_meet_no_faults(control):
    control.post("/faults", json={"kind": "reset"})
    assert control.delete("/faults").status_code == 204


def test_another_method_is_a_405_with_a_message(control):
    response = control.put("/faults")
    assert (response.status_code, response.json()) == (405, {"message": "Method Not Allowed"})
