"""Any REST path as records and as a table: paths, query parameters, pages, types and refused arguments."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import buildframe as bf
from buildframe.errors import BadInput, Forbidden, Incomplete, NotFound
from buildframe.workspace import Workspace
from buildframe.workspace.rest import frame_of
from tests.conftest import Scripted, says
from tests.http.test_client import connected
from tests.refusals import wrong_refusals

Start = Callable[..., Scripted]
Responder = Callable[[Any], None]
AGENTS = "/organizations/acme/agents"


def test_all_pages_of_a_list_are_read(ci: Workspace) -> None:
    agents = ci.get(AGENTS, per_page=3)
    assert len(agents) > 3
    assert agents == ci.get(f"/v2{AGENTS}") == ci.get(f"{ci.base_url}/v2{AGENTS}") == ci.get(f"{AGENTS}?per_page=5")
    assert len({agent["id"] for agent in agents}) == len(agents)
    assert {"name", "hostname", "meta_data"} <= agents[0].keys()


def test_one_object_is_one_record(ci: Workspace) -> None:
    pipeline = ci.get("/organizations/acme/pipelines/web")
    assert (pipeline["slug"], pipeline["builds_url"][-6:]) == ("web", "builds")
    assert list(ci.table("/organizations/acme/pipelines/web")["slug"]) == ["web"]


def test_parameters_filter_like_those_of_builds(ci: Workspace) -> None:
    since = dt.datetime(2026, 10, 22, tzinfo=dt.UTC)
    found = ci.table("/organizations/acme/builds", state=["passed", "failed"], branch="main", created_from=since)
    declared = ci.builds(state=["passed", "failed"], branch="main", created_from=since)
    assert list(found["id"]) == list(declared["id"])
    assert 0 < len(found) < 400


@pytest.mark.long
def test_a_table_has_the_types_of_its_values(ci: Workspace, tmp_path: Path) -> None:
    builds = ci.table("/organizations/acme/builds", state="passed")
    kinds = {name: str(dtype) for name, dtype in builds.dtypes.items()}
    assert kinds["number"] == "Int64"
    assert kinds["blocked"] == "boolean"
    assert kinds["branch"] == "str"
    assert kinds["created_at"] == kinds["finished_at"] == "datetime64[us, UTC]"
    assert builds["creator"].struct.field("email").str.endswith("@example.com").any()
    assert builds.attrs["complete"]
    assert builds.attrs["source"].endswith("/builds?state=passed")
    bf.save(tmp_path / "builds.parquet", builds)
    again = bf.load(tmp_path / "builds.parquet")
    pd.testing.assert_frame_equal(again, builds)
    assert again.attrs == builds.attrs


def test_records_of_every_shape_become_a_table() -> None:
    records: list[Any] = [
        {
            "n": 1,
            "x": 1,
            "odd": 1,
            "big": 2**70,
            "tags": ["a"],
            "none": None,
            "at": "2026-10-01T00:00:00Z",
            "hollow": {},
        },
        {"n": None, "x": 2.5, "odd": "two", "big": 3, "tags": [], "at": "2026-10-01 02:00:00+02:00", "hollow": {}},
        {"late": True, "when": "2026-13-01T00:00:00Z"},
    ]
    frame = frame_of(records)
    kinds = {name: str(dtype) for name, dtype in frame.dtypes.items()}
    assert kinds == {
        "n": "Int64", "x": "float64", "odd": "str", "big": "str", "tags": "list<item: string>[pyarrow]", "none": "str",
        "at": "datetime64[us, UTC]", "hollow": "str", "late": "boolean", "when": "str",
    }  # fmt: skip
    assert list(frame["odd"][:2]) == ["1", "two"]
    assert frame["big"][0] == str(2**70)
    assert frame["at"].nunique() == 1  # the same instant
    assert frame["at"].isna().tolist() == [False, False, True]
    assert list(frame_of(["a", "b"])["value"]) == ["a", "b"]
    assert frame_of([]).shape == (0, 0)


PAGE_OF_A_LIST = "looks like a page"
ELSEWHERE = [
    "https://example.com/v2/organizations",
    "//example.com/v2/organizations",
    "http://someone@127.0.0.1/v2/organizations",
    "ftp://127.0.0.1/v2/organizations",
    "organizations/acme",
    "/organizations/../../admin",
    "/organizations/%2e%2e/admin",
    "/organizations/..%2f..%2fadmin",
    "/organizations/%2E%2e%2Fadmin",
    "/organizations/a b",
    "/organizations\r\nX: y",
    "/organizations#x",
    "/organizations\\x",
    "/organizations/\ud83d",
    "",
    7,
    None,
]


def test_a_path_outside_the_api_is_refused(scripted: Start) -> None:
    server = scripted(says(b"[]"))
    ws: Any = connected(server)
    for read in (ws.get, ws.table):
        assert wrong_refusals([(path, "path=") for path in ELSEWHERE], read) == {}
        long = [(path + "x" * 70_000, "path is too long") for path in ("/", f"{server.url}/v2/")]
        assert wrong_refusals(long, read) == {}
    assert server.requests == []


def test_a_parameter_that_cannot_be_sent_is_refused(scripted: Start) -> None:
    server = scripted(says(b"[]"))
    ws: Any = connected(server)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"page": 3}, "all pages are read"),
        ({"x": object()}, "x=<object"),
        ({"since": dt.datetime(2026, 10, 1)}, "since="),
        ({"progress": 3}, "progress=3"),
        ({"columns": ["id"]}, "columns is not an option of get"),
        ({"workers": 3}, "workers is not an option of get"),
        ({"max_requests": 0}, "max_requests=0: pass a whole number"),
        ({"per_page": "many"}, "per_page='many': pass a whole number"),
        ({"per_page": 0}, "per_page='0': pass a whole number"),
        ({"per_page": "1" * 5000}, "per_page=.*pass a whole number"),
        ({"x": "\ud83d"}, "half of a surrogate pair"),
        ({"x": {"\ud83d": "y"}}, "half of a surrogate pair"),
        ({"x": float("nan")}, "x=nan: pass a str"),
        ({"x": 10**5000}, "x: pass a number of at most 300 digits"),
        ({"x": -(10**5000)}, "x: pass a number of at most 300 digits"),
        ({"x": "y" * 70_000}, "x is too long: the URL would have 70,0.. characters, and the limit is 60,000"),
        ({"x": []}, r"x=\[\]: an empty list"),
        ({"x": {}}, "x={}: an empty list or mapping"),
        ({"since": pd.NaT}, "since=NaT: pass a str"),
        ({"since": np.datetime64("2026-10-01", "ns")}, "since=.*pass a str"),
    ]
    assert wrong_refusals(cases, lambda parameters: ws.get(AGENTS, **parameters)) == {}
    assert server.requests == []


def test_the_query_is_encoded(scripted: Start) -> None:
    server = scripted(says(b"[]", Link=""))
    day = dt.date(2026, 10, 1)
    connected(server).get("/x?y=1&z", name="a&b=ü", yes=True, many=[1, None, 2.5], map={"k": "v"}, day=day, none=None)
    assert server.requests == [
        "/v2/x?y=1&z=&name=a%26b%3D%C3%BC&yes=true&many%5B%5D=1&many%5B%5D=2.5&map%5Bk%5D=v"
        "&day=2026-10-01T00%3A00%3A00Z&per_page=100"
    ]


def test_links_to_another_host_are_not_followed(scripted: Start) -> None:
    server = scripted(says(b'[{"id":"a"}]', Link='<https://example.com/v2/x?page=2>; rel="next"'))
    with pytest.raises(bf.Malformed, match=r"example\.com"):
        connected(server).get("/x")
    assert len(server.requests) == 1


def records(count: int) -> bytes:
    return json.dumps([{"id": number} for number in range(count)]).encode()


def test_a_list_longer_than_a_page_without_links_is_read_once_more(scripted: Start) -> None:
    server = scripted(says(records(150)))
    assert len(connected(server).get("/x")) == 150
    assert len(server.requests) == 2


def test_pages_without_links_are_read_whatever_their_size(scripted: Start) -> None:
    for size in (7, 50):
        rows = [{"id": number} for number in range(2 * size + 3)]
        pages = [rows[:size], rows[size : 2 * size], rows[2 * size :]]
        server = scripted(*(says(json.dumps(page).encode(), Link=None) for page in pages))
        assert connected(server).get("/x") == rows


def test_a_repeated_page_without_links_ends_the_list(scripted: Start) -> None:
    server = scripted(says(records(7), Link=None))
    assert len(connected(server).get("/x")) == 7
    assert len(server.requests) == 2


def test_a_full_page_without_links_is_not_the_last(scripted: Start) -> None:
    server = scripted(says(records(100)), says(b'[{"id":"last"}]'))
    assert len(connected(server).get("/x")) == 101
    with pytest.raises(Incomplete):
        connected(scripted(says(records(100)))).get("/x")


def test_records_without_an_id_are_compared_whole(scripted: Start) -> None:
    server = scripted(
        says(b'[{"name":"a"},{"name":"b"}]', Link='</v2/x?page=2>; rel="next", </v2/x?page=2>; rel="last"'),
        says(b'[{"name":"b"},{"name":"c"},4]', Link='</v2/x?page=1>; rel="prev"'),
    )
    assert connected(server).get("/x") == [{"name": "a"}, {"name": "b"}, {"name": "c"}, 4]


def test_pages_in_envelopes_are_read_along_their_links(scripted: Start) -> None:
    """The shape of the newer lists: items and links in an object, cursors, absolute URLs of the same host."""

    def page(ids: list[int], **links: str | None) -> Responder:
        document = {"items": [{"id": id, "state": "passed"} for id in ids], "links": links}
        return lambda handler: says(json.dumps(document).replace("HOST", server.url).encode())(handler)

    def pages() -> list[Responder]:
        path = "HOST/v2/organizations/acme/pipelines/web/builds/1/jobs?per_page=100"
        return [
            page([1, 2, 3], self=path, next=f"{path}&after=Mw", first=path),
            page([4, 5, 6], self=f"{path}&after=Mw", next=f"{path}&after=Ng", prev=f"{path}&before=NA"),
            page([7], self=f"{path}&after=Ng", next=None, prev=f"{path}&before=Nw"),
        ]

    path = "/organizations/acme/pipelines/web/builds/1/jobs"
    server = scripted(*pages(), *pages())
    frame = connected(server).table(path)
    assert list(frame["id"]) == [1, 2, 3, 4, 5, 6, 7]
    assert frame.attrs["complete"]
    assert frame.attrs["requests"] == 3
    assert server.requests == [f"/v2{path}?per_page=100{cursor}" for cursor in ("", "&after=Mw", "&after=Ng")]
    assert [record["id"] for record in connected(server).get(path)] == [1, 2, 3, 4, 5, 6, 7]


def test_the_only_list_of_an_object_is_read_along_its_links(scripted: Start) -> None:
    """Two pages, of which only the first has a next link, and one page whose next link is null."""
    shapes: list[tuple[str, str, dict[str, Any]]] = [
        ("invitations", "links", {"links": {"self": "/v2/x?after=2"}}),
        ("invitations", "_links", {"_links": {}}),
        ("invitations", "links", {}),
        ("items", "_links", {"_links": {"prev": "/v2/x"}}),
    ]
    for name, links, last_links in shapes:
        first = {"count": 3, name: [{"id": 1}, {"id": 2}], links: {"next": "/v2/x?after=2"}}
        last = {"count": 3, name: [{"id": 3}], **last_links}
        whole: dict[str, Any] = {name: [], links: {"next": None}}
        server = scripted(*(says(json.dumps(page).encode()) for page in (first, last, first, last, whole)))
        ws = connected(server)
        frame = ws.table("/x")
        assert list(frame["id"]) == [1, 2, 3], (name, last_links)
        assert frame.attrs["complete"]
        assert server.requests == ["/v2/x?per_page=100", "/v2/x?after=2"]
        assert ws.get("/x") == [{"id": 1}, {"id": 2}, {"id": 3}]
        assert ws.get("/x") == []


def test_a_link_header_leads_on_if_the_links_of_an_object_do_not(scripted: Start) -> None:
    first = b'{"items": [{"id": 1}], "links": {"self": "/v2/x"}}'
    last = b'{"items": [{"id": 2}], "links": {}}'
    server = scripted(says(first, link='</v2/x?after=1>; rel="next"'), says(last))
    frame = connected(server).table("/x")
    assert list(frame["id"]) == [1, 2]
    assert frame.attrs["complete"]


def test_an_object_with_a_list_and_pages_that_are_not_followed_is_not_complete(scripted: Start) -> None:
    pages: list[dict[str, Any]] = [
        {"invitations": [{"id": 1}], "links": {"next": "https://example.com/v2/x?after=1"}},  # another host
        {"invitations": [{"id": 1}], "_links": {"next": {"href": "/v2/x?after=1"}}},
        {"invitations": [{"id": 1}], "links": [{"rel": "next", "href": "/v2/x?after=1"}]},
        {"data": [{"id": 1}], "links": "next"},
        {"invitations": [{"id": 1}], "links": {"first": "/v2/x", "last": "/v2/x?page=2"}},
        {"invitations": [{"id": 1}], "included": [], "links": {"next": "/v2/x?after=1"}},  # which of them?
        {"id": "b", "jobs": [{"id": 1}], "links": {"next": "/v2/builds/2"}},  # a record with a list
        {"invitations": [{"id": 1}], "next_cursor": "b"},
        {"invitations": [{"id": 1}], "has_more": True},
    ]
    for page in pages:
        server = scripted(says(json.dumps(page).encode()))
        with pytest.warns(UserWarning, match=PAGE_OF_A_LIST):
            frame = connected(server).table("/x")
        assert (len(frame), frame.attrs["complete"], len(server.requests)) == (1, False, 1), page


def test_a_record_that_has_a_list_and_links_is_one_record(scripted: Start) -> None:
    server = scripted(says(b"{}"))
    ws = connected(server)
    links: list[dict[str, Any]] = [
        {},
        {"links": {"web": "/web", "next_build": "/v2/x/2"}},
        {"links": {"self": "/v2/x"}},
        {"_links": {"self": {"href": "/v2/x"}}},
        {"links": [{"rel": "self", "href": "/v2/x"}]},
        {"links": None},
        {"meta": {"owner": "a"}, "page": "a"},
    ]
    for each in links:
        document = {"id": "team", "tags": ["a", "b"], **each}
        server.responses = [says(json.dumps(document).encode())]
        assert ws.get("/x") == document
        frame = ws.table("/x")
        assert (list(frame["id"]), frame.attrs["complete"]) == (["team"], True), each


def test_a_page_of_another_shape_than_the_one_before_is_not_complete(scripted: Start) -> None:
    seconds: list[tuple[str, dict[str, Any]]] = [
        ("invitations", {"message": "try again"}),
        ("invitations", {"agents": [], "links": {"next": None}}),
        ("invitations", {"invitations": [{"id": 2}], "links": "/v2/x?after=2"}),
        ("invitations", {"invitations": [{"id": 2}], "links": {"after": "2"}}),
        ("items", {"items": [{"id": 2}]}),
    ]
    for name, second in seconds:
        first = {name: [{"id": 1}], "links": {"next": "/v2/x?after=1"}}
        server = scripted(*(says(json.dumps(page).encode()) for page in (first, second)))
        with pytest.warns(UserWarning, match=PAGE_OF_A_LIST):
            frame = connected(server).table("/x")
        assert frame.attrs["complete"] is False, second


def test_an_envelope_without_a_next_page_is_the_whole_list(scripted: Start) -> None:
    lists: list[list[Any]] = [[], [{"id": 1}], [1, 1, 2]]
    for items in lists:
        server = scripted(says(json.dumps({"items": items, "links": {"self": "/v2/x"}}).encode()))
        assert connected(server).get("/x") == items
        assert len(server.requests) == 1


def test_an_object_that_looks_like_a_page_of_a_list_is_not_complete(scripted: Start) -> None:
    for more in [
        {},
        {"links": None},
        {"links": "/v2/x?after=b"},
        {"links": [{"rel": "next", "href": "/v2/x?after=b"}]},
        {"links": {"next": {"href": "/v2/x?after=b"}}},
        {"links": {"after": "b"}},
        {"next_cursor": "b"},
        {"pagination": {"next": 2}},
    ]:
        document = {"items": [{"id": 1}], **more}
        server = scripted(says(json.dumps(document).encode()))
        with pytest.warns(UserWarning, match=PAGE_OF_A_LIST):
            frame = connected(server).table("/x")
        assert (len(frame), frame.attrs["complete"]) == (1, False), more
        assert PAGE_OF_A_LIST in frame.attrs["why"]
        with pytest.warns(UserWarning, match="Incomplete"):
            assert connected(server).get("/x") == document


def test_an_object_with_items_of_its_own_is_one_record(scripted: Start) -> None:
    server = scripted(says(b'{"id":"o","items":["a","b"],"links":3}'), says(b'{"id":"o","items":["a","b"]}'))
    ws = connected(server)
    with pytest.warns(UserWarning, match="looks like a page"):
        ws.table("/x")
    assert ws.table("/x").attrs["complete"]


def test_a_next_link_that_cannot_be_followed_is_an_error(scripted: Start) -> None:
    for following, error in [
        ("https://example.com/v2/x?after=b", bf.Malformed),
        ("//example.com/v2/x", bf.Malformed),
        ("/v2/x?per_page=100", Incomplete),
    ]:
        server = scripted(says(json.dumps({"items": [{"id": 1}], "links": {"next": following}}).encode()))
        for read in (connected(server).get, connected(server).table):
            with pytest.raises(error):
                read("/x")
        assert len(server.requests) <= 4


def test_numpy_values_are_encoded_like_python_values(scripted: Start) -> None:
    server = scripted(says(b"[]", Link=""))
    connected(server).get(
        "/x", per_page=np.int64(50), yes=np.bool_(True), many=np.array(["a", "b"]), few=pd.Series([1])
    )
    assert server.requests == ["/v2/x?per_page=50&yes=true&many%5B%5D=a&many%5B%5D=b&few%5B%5D=1"]


def test_equal_records_without_an_id_stay_on_one_page(scripted: Start) -> None:
    server = scripted(
        says(b'[1,1,{"a":1},{"a":1},{"id":null},{"id":null}]', Link='</v2/x?page=2>; rel="next"'),
        says(b'[1,{"a":1},{"id":true},{"id":1}]', Link=""),
    )
    assert connected(server).get("/x") == [1, 1, *[{"a": 1}] * 2, *[{"id": None}] * 2, {"id": True}, {"id": 1}]


def test_a_link_of_the_service_may_have_any_page_size(scripted: Start) -> None:
    following = '</v2/x?page=2&per_page=all>; rel="next"'
    server = scripted(says(b"[1]", Link=following), says(b"[2]", Link=""), says(b"[]", Link=""))
    assert connected(server).get("/x") == [1, 2]


def test_the_error_of_a_redirect_omits_the_signature(scripted: Start) -> None:
    server = scripted(says(b"", 302, Location="https://files.example.com/a?Signature=invented"))
    with pytest.raises(bf.ServiceError, match=r"redirected to 'https://files\.example\.com/a', ") as refused:
        connected(server).get("/x")
    assert "invented" not in str(refused.value)
    assert len(server.requests) == 1


def test_the_root_and_empty_names_are_not_found(ci: Workspace) -> None:
    for path in ("/v2", "/v2?x=1", "/", "/organizations/acme//agents", "/organizations/acme/s/x"):
        with pytest.raises(NotFound, match=r"Request: GET /v2(?!/v2)"):
            ci.get(path)


def test_a_table_is_saved_as_csv_with_json(ci: Workspace, tmp_path: Path) -> None:
    agents = ci.table(AGENTS)
    saved = pd.read_csv(bf.save(tmp_path / "agents.csv", agents))
    assert json.loads(saved["creator"][0]) == agents["creator"][0]
    assert json.loads(saved["meta_data"][0]) == list(agents["meta_data"][0])


def test_missing_paths_and_missing_scopes_raise_an_error(ci: Workspace) -> None:
    with pytest.raises(NotFound, match="/v2/organizations/acme/nothing"):
        ci.get("/organizations/acme/nothing")
    reader = ci.sandbox.token(scopes=["read_builds"])
    with bf.connect("acme", base_url=ci.base_url, token=reader) as limited, pytest.raises(Forbidden):
        limited.get("/organizations/acme/pipelines")


def test_a_plain_text_response_is_refused(scripted: Start) -> None:
    server = scripted(says(b"made", Content_Type="text/plain; charset=utf-8"))
    with pytest.raises(BadInput, match=r"ci\.log"):
        connected(server).get("/log.txt")
    assert len(server.requests) == 1


def test_objects_of_many_keys_become_json_text() -> None:
    frame = frame_of([{"few": {"a": number}, "many": {f"key {number}": number}} for number in range(300)])
    assert str(frame["few"].dtype) == "struct<a: int64>[pyarrow]"
    assert frame["many"][299] == '{"key 299":299}'


def test_a_deeply_nested_value_is_json_text_in_a_table(scripted: Start) -> None:
    for start, end in ((b'{"a":', b"}"), (b"[", b"]")):
        value = start * 900 + b"1" + end * 900
        server = scripted(says(b'[{"id":1,"a":%s}]' % value))
        frame = connected(server).table("/organizations/acme/agents", progress=False)
        assert frame["a"].tolist() == [value.decode()]
