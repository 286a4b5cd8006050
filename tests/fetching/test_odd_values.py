"""A value that does not fit its column becomes null, or text, and is named. It costs no row and no request."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buildframe as bf
from buildframe import spec
from buildframe.fetching.decoder import ColumnSelection, PageDecoder
from buildframe.http import json_bodies, protocol
from buildframe.http.json_bodies import TooLargeToRepair, decode_json, is_json, repair_json
from buildframe.http.response import Response, date_of
from buildframe.spec import TABLES, Build, Job, Resource, job_columns
from tests.conftest import Scripted, says
from tests.listing import NOW, TOKEN, evenly, listing
from tests.records import OTHERS, documents_of
from tests.refusals import wrong_refusals
from tests.store.scripted_service import Service

pytestmark = pytest.mark.filterwarnings("ignore:extra:UserWarning")
REQUEST = protocol.request_for(spec.list_builds, "acme")
HEADERS = {"date": "Sun, 01 Nov 2026 12:00:00 GMT"}
BUILD: dict[str, Any] = {
    "id": "b-1",
    "number": 7,
    "state": "passed",
    "created_at": "2026-10-01T00:00:00.000Z",
    "meta_data": {"team": "a"},
    "jobs": [{"id": "j-1", "type": "script", "state": "passed", "name": "test"}, {"id": "j-2", "type": "waiter"}],
}
Frames = tuple[pd.DataFrame, pd.DataFrame, list[dict[str, Any]]]


def read(body: bytes | list[Any], resource: type[Resource] = Build, table: str = "builds", **columns: Any) -> Frames:
    """Return builds and jobs (or another table) that a body is decoded to, and the odd values."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    jobs = ColumnSelection("jobs", extra={"size": "log.size"}, raw=True) if table == "builds" else None
    decoder = PageDecoder(resource, ColumnSelection(table, **columns), jobs)
    page = decoder.read(REQUEST, Response(200, HEADERS, body))
    frames = decoder.frames([decoder.tables(page)])
    return *frames, decoder.odd.entries(str)


NULL = None
OF_BUILD = [  # field, what is sent, the column, what it reads as, whether it counts as odd
    ("finished_at", "", "finished_at", NULL, True),
    ("finished_at", "soon", "finished_at", NULL, True),
    ("finished_at", 1790000000, "finished_at", NULL, True),
    ("finished_at", "2026-02-30T00:00:00Z", "finished_at", NULL, True),
    ("finished_at", "2026-10-01T00:00:00", "finished_at", NULL, True),  # no zone
    ("finished_at", "0001-01-01T00:00:00Z", "finished_at", NULL, True),
    ("finished_at", ["2026-10-01T00:00:00Z"], "finished_at", NULL, True),
    ("number", "7", "number", 7, False),
    ("number", "seven", "number", NULL, True),
    ("number", 7.5, "number", NULL, True),
    ("number", 2**63, "number", NULL, True),
    ("number", -(2**63), "number", -(2**63), False),
    ("number", 10**400, "number", NULL, True),
    ("number", True, "number", NULL, True),
    ("blocked", "true", "blocked", True, False),
    ("blocked", "perhaps", "blocked", NULL, True),
    ("blocked", {}, "blocked", NULL, True),
    ("branch", 5, "branch", "5", False),
    ("branch", 2**70, "branch", "1180591620717411303424", False),
    ("branch", True, "branch", "true", False),
    ("branch", ["a", "b"], "branch", '["a","b"]', True),
    ("branch", {"name": "main"}, "branch", '{"name":"main"}', True),
    ("creator", "bo", "creator", "bo", True),
    ("creator", [], "creator", NULL, True),
    ("author", 7, "author", "7", True),
    ("author", "bo", "author", "bo", False),
    ("pipeline", "web", "pipeline", "web", True),
    ("rebuilt_from", 5, "rebuilt_from", 5, True),
    ("pull_request", {"id": ["x"]}, "pull_request", '["x"]', True),
    ("meta_data", 5, "meta_data", "5", False),
    ("env", [1], "env", "[1]", False),
]
OF_JOB = [
    ("priority", 5, "priority", 5, True),
    ("priority", "5", "priority", 5, True),
    ("priority", "high", "priority", NULL, True),
    ("priority", [5], "priority", NULL, True),
    ("priority", {"number": []}, "priority", NULL, True),
    ("exit_status", "1", "exit_status", 1, False),
    ("exit_status", [], "exit_status", NULL, True),
    ("soft_failed", [{"exit_status": 1}], "soft_failed", NULL, True),
    ("agent", "a-1", "agent", "a-1", True),
    ("agent_query_rules", "queue=x", "agent_query_rules", '"queue=x"', False),
    ("agent_query_rules", {"queue": "x"}, "agent_query_rules", '{"queue":"x"}', False),
    ("step", "s", "step_id", NULL, True),
    ("matrix", [1], "matrix", "[1]", False),
    ("started_at", "", "started_at", NULL, True),
]


def cell(frame: pd.DataFrame, column: str) -> Any:
    value = frame[column][0]
    return None if pd.isna(value) else value


def test_an_odd_value_of_a_build() -> None:
    found = []
    for field, sent, column, *_ in OF_BUILD:
        body = json.dumps([BUILD | {field: sent}, BUILD | {"id": "b-2"}], separators=(",", ":")).encode()
        builds, jobs, odd = read(body)
        assert (builds["id"].to_list(), len(jobs)) == (["b-1", "b-2"], 4), (field, sent)
        assert builds["created_at"].notna().all()
        named = [(entry["build"], entry["job"], entry["field"].split(".")[0], entry["count"]) for entry in odd]
        assert named in ([], [("b-1", None, field, 1)]), (field, sent)
        found.append((field, sent, column, cell(builds, column), bool(named)))
    assert found == OF_BUILD


def test_an_odd_value_of_a_job() -> None:
    found, (first, second) = [], BUILD["jobs"]
    for field, sent, column, *_ in OF_JOB:
        body = json.dumps(
            [BUILD | {"jobs": [first | {field: sent, "log": {"size": 3}}, second]}], separators=(",", ":")
        )
        builds, jobs, odd = read(body.encode())
        assert (len(builds), jobs["id"].to_list(), jobs["size"][0]) == (1, ["j-1", "j-2"], "3"), (field, sent)
        assert json.loads(jobs["raw"][0])[field] == sent
        named = [(entry["build"], entry["number"], entry["job"], entry["field"].split(".")[0]) for entry in odd]
        assert named in ([], [("b-1", 7, "j-1", field)]), (field, sent)
        found.append((field, sent, column, cell(jobs, column), bool(named)))
    assert found == OF_JOB


def test_jobs_that_are_no_list_of_objects() -> None:
    forms: list[tuple[Any, int, int]] = [(None, 0, 0), ({}, 0, 1), ("no", 0, 1), ([None, {"id": "j"}, 5], 1, 2)]
    for sent, n, n_odd in forms:
        builds, jobs, odd = read([BUILD | {"jobs": sent}, BUILD | {"id": "b-2"}], raw=True)
        assert (len(builds), len(jobs), jobs["id"].to_list()) == (2, n + 2, ["j"] * n + ["j-1", "j-2"]), sent
        assert [(entry["field"], entry["count"]) for entry in odd] == [("jobs", 1)] * n_odd, sent
        assert json.loads(builds["raw"][0])["jobs"] == sent


def test_numbers_that_are_none() -> None:
    for text, number, branch in [
        (b"NaN", None, "NaN"),
        (b"-Infinity", None, "-Infinity"),
        (b"1e999", None, "1e999"),
        (b"5e1", 50, "50.0"),
    ]:
        body = b'[{"id": "b-1", "number": %s, "branch": %s, "message": "NaN \\"NaN 1e999", "x": %s}]' % ((text,) * 3)
        builds, _, odd = read(body, raw=True)
        assert (cell(builds, "number"), builds["branch"][0]) == (number, branch)
        assert builds["message"][0] == 'NaN "NaN 1e999'
        assert [entry["field"] for entry in odd][:1] == ([] if number else ["number"])


def test_a_long_number_beside_one_that_is_none_takes_linear_time() -> None:
    """Tried from each of its million digits, it would take hours. So would a cut text, from each of its quotes."""
    digits = b"1" * 1_000_000
    assert repair_json(b"[%s, NaN, 1e400]" % digits) == b'[%s, "NaN", "1e400"]' % digits
    cut = b'[NaN, "' + rb"{\"sha\":\"3e123\"} " * 50_000
    assert repair_json(cut) == cut.replace(b"NaN", b'"NaN"')


def test_a_body_of_another_type_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its repair could take gigabytes, and would not change its type."""
    monkeypatch.setattr(json_bodies, "repair_json", lambda _: pytest.fail("it was repaired"))
    with pytest.raises(msgspec.ValidationError, match="got `str`"):
        decode_json(rb'["NaN", "\""]', msgspec.json.Decoder(list[dict[str, Any]]).decode)


def test_a_repair_takes_memory_only_for_the_body() -> None:
    """An object for each escape or string takes at least 33 bytes, so 100,000 of them 3 MB."""
    body = rb'["\ud83d", "%s", NaN, %s]' % (rb"\"" * 100_000, b'"a",' * 100_000)
    tracemalloc.start()
    try:
        repaired = repair_json(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert repaired == body.replace(b"d83d", b"fffd").replace(b"NaN", b'"NaN"')
    assert peak < 4 * len(body) == 2_400_084


def test_only_few_values_of_bodies_of_a_common_size_are_repaired(
    scripted: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted(says(b"[]"))
    ws = bf.connect("acme", base_url=server.url, token=TOKEN)
    with pytest.raises(TooLargeToRepair, match="33,554,432 bytes with up to 200,000 of"):
        repair_json(b"[%sNaN]" % (b"NaN," * 200_000))
    monkeypatch.setattr(json_bodies, "_MOST_REPAIRED", 1_000)
    monkeypatch.setattr(json_bodies, "LARGEST_REPAIRED", 50_000)
    bodies = {
        "many halves": rb'["%s"]' % (rb"\ud83d" * 1_001),
        "many NaN": b"[%sNaN]" % (b"NaN," * 1_000),
        "large, half": rb'["\ud83d%s"]' % (b" " * 50_000),
        "large, NaN": b"[NaN%s]" % (b" " * 50_000),
    }
    for name, body in bodies.items():
        with pytest.raises(TooLargeToRepair):
            repair_json(body)
        server.responses = [says(body)]
        server.requests.clear()
        with pytest.raises(bf.Malformed, match=r"Request less"):
            ws.pipeline("web").get()
        assert len(server.requests) == 1, name
        assert not is_json(b"[NaN, " + body[:-1])  # a cut one is requested again


def test_a_log_is_repaired_whatever_its_size(
    scripted: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_bodies, "LARGEST_REPAIRED", 10)
    server = scripted(says(rb'{"content":"cut \ud83d","size":NaN}', Content_Type="application/json"))
    ws = bf.connect("acme", base_url=server.url, token=TOKEN)
    assert ws.log(f"{server.url}/v2/log") == "cut \ufffd"


def test_half_of_an_emoji_changes_nothing_else() -> None:
    body = rb'[{"id": "b-1", "message": "\ud83d cut \\ud83d \ude00\ud83d\ude00", "env": {"a":  1.10}}]'
    builds, _, odd = read(body)
    assert builds["message"][0] == "\ufffd cut \\ud83d \ufffd\U0001f600"
    assert builds["env"][0] == '{"a":  1.10}'
    assert not odd


def test_named_values_are_few_short_and_plain() -> None:
    """Of 100 builds with 3 odd fields, and of personal values and secrets nothing is shown."""
    page = [
        BUILD | {"id": f"b-{n}", "finished_at": "x" * 999, "number": [n], "creator": ["Bo Example"], "jobs": None}
        for n in range(100)
    ]
    *_, odd = read(page)
    assert sum(entry["count"] for entry in odd) == 300
    assert [entry["field"] for entry in odd[:3]] == ["number", "creator", "finished_at"]
    assert odd[0] == {"build": "b-0", "number": None, "job": None, "field": "number", "value": "[0]", "count": 1}
    assert len(odd[2]["value"]) == 60
    assert "Example" not in repr(odd)
    assert odd[-1]["build"] == "b-2"
    assert odd[-1]["count"] == 98
    many = {field.name: {"n": 1} for field in spec.fields_of(Job) if field.kind == "text" and field.name != "id"}
    *_, odd = read([BUILD | {"jobs": [many | {"id": "j"}]}])
    assert [entry["field"] is None for entry in odd] == [False] * 20 + [True]
    assert sum(entry["count"] for entry in odd) == len([name for name in many if name not in ("queue", "queue_id")])


# --- any value in any field ------------------------------------------------------------------------------------------

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["", "5", "true", "2026-13-01T00:00:00Z", "2026-10-01T00:00:00Z"])
)  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "name", "number"]), inner),
    max_leaves=6,
)


def columns_from(table: str, field: str) -> set[str]:
    """Return the columns that follow from a field, directly or by a derivation."""
    columns = {column.name for column in TABLES[table] if column.path[:1] == (field,)}
    for _ in range(3):
        columns |= {c.name for c in TABLES[table] if c.derived and columns & set(c.derived.needs)}
    if table == "jobs":
        columns |= {name for name, sources in job_columns.SOURCES.items() if columns & set(sources)}
    return columns


def without_cells(frame: pd.DataFrame, rows: pd.Series, columns: set[str]) -> pd.DataFrame:
    """Return the frame without the values of some columns in some rows."""
    return frame.assign(**{name: frame[name].mask(rows) for name in columns & set(frame)})


BUILDS = st.lists(documents_of(Build, ("id",)), min_size=1, max_size=3, unique_by=lambda one: one["id"])


@given(st.data(), BUILDS)
@settings(max_examples=6)
def test_any_value_in_any_field_costs_nothing_but_itself(data: Any, clean: list[dict[str, Any]]) -> None:
    check_that_odd_values_cost_nothing_else(data, clean)


@pytest.mark.long
@given(st.data(), BUILDS)
def test_any_value_in_any_field_costs_nothing_but_itself_in_many_examples(
    data: Any, clean: list[dict[str, Any]]
) -> None:
    check_that_odd_values_cost_nothing_else(data, clean)


def check_that_odd_values_cost_nothing_else(data: Any, clean: list[dict[str, Any]]) -> None:
    """All other cells are those of the same page without the odd values, which the fast decoder reads."""
    for document in clean:
        document["jobs"] = data.draw(st.lists(documents_of(Job, ("id",)), max_size=3))
    dirty = json.loads(json.dumps(clean))
    fields = {"builds": [f.name for f in spec.fields_of(Build)], "jobs": [f.name for f in spec.fields_of(Job)]}
    changed = []
    for document in dirty:
        for table, record in [("builds", document), *(("jobs", job) for job in document["jobs"])]:
            for field in data.draw(st.lists(st.sampled_from(fields[table]), max_size=3)):
                if field not in ("id", "jobs"):
                    record[field] = data.draw(JSON)
                    changed.append((document["id"], table, field))
    frames, dirty_frames = read(clean)[:2], read(dirty)[:2]
    assert [len(frame) for frame in dirty_frames] == [len(clean), sum(len(one["jobs"]) for one in clean)]
    (builds, jobs), (odd_builds, odd_jobs) = frames, dirty_frames
    jobs, odd_jobs = jobs.drop(columns=["raw", "size"]), odd_jobs.drop(columns=["raw", "size"])
    for id, table, field in changed:
        columns = columns_from(table, field)
        if table == "builds":
            builds, odd_builds = (without_cells(one, one["id"] == id, columns) for one in (builds, odd_builds))
            columns = {job for job, of_build in spec.BUILD_COLUMNS_OF_JOBS.items() if of_build in columns}
        jobs, odd_jobs = (without_cells(one, one["build_id"] == id, columns) for one in (jobs, odd_jobs))
    pd.testing.assert_frame_equal(odd_builds, builds)
    pd.testing.assert_frame_equal(odd_jobs, jobs)


@given(data=st.data())
@settings(max_examples=30)
def test_any_value_in_any_field_of_another_table(data: Any) -> None:
    table = data.draw(st.sampled_from(sorted(OTHERS)))
    resource = OTHERS[table]
    clean = data.draw(documents_of(resource, spec.key_of(resource)))
    field = data.draw(
        st.sampled_from([f.name for f in spec.fields_of(resource) if f.name not in spec.key_of(resource)])
    )
    other = clean | {key: f"other {clean[key]}" for key in spec.key_of(resource)}
    frame, _, _ = read([clean, other], resource, table)
    odd_frame, _, odd = read([clean | {field: data.draw(JSON)}, other], resource, table)
    columns, rows = columns_from(table, field), pd.Series([True, False])
    pd.testing.assert_frame_equal(without_cells(odd_frame, rows, columns), without_cells(frame, rows, columns))
    keys = [clean[key] for key in spec.key_of(resource)]
    assert all(entry["id"] in keys for entry in odd)


# --- over HTTP -------------------------------------------------------------------------------------------------------


def odd_builds() -> list[dict[str, Any]]:
    """Return 250 builds, three of which have odd values, and one an odd job."""
    builds = evenly(250, jobs=1)
    builds[3]["finished_at"] = ""
    builds[120]["number"] = f"no {TOKEN}"
    builds[121]["jobs"] = [{"id": "j", "type": "script", "state": "passed", "priority": 5}]
    builds[249]["message"] = ["a", "list"]
    return builds


def test_a_listing_of_odd_values_costs_no_request_and_warns_once() -> None:
    with listing(evenly(250, jobs=1)) as plain:
        plain.connected().history(workers=1, progress=False)
    with listing(odd_builds()) as service:
        with pytest.warns(UserWarning, match="4 values do not fit") as warned:
            builds, jobs = service.connected().history(workers=1, progress=False)
        assert len(service.requests) == len(plain.requests)
    said = [str(warning.message) for warning in warned if warning.category is UserWarning]
    assert len(said) == 1, said
    assert len(builds) == 250
    assert builds.attrs["complete"]
    named = {(entry["build"], entry["job"], entry["field"], entry["count"]) for entry in builds.attrs["odd"]}
    assert named == {
        ("b247", None, "finished_at", 1), ("b130", None, "number", 1), ("b129", "j", "priority", 1),
        ("b1", None, "message", 1),
    }  # fmt: skip
    assert jobs.attrs["odd"] == builds.attrs["odd"]
    assert TOKEN not in f"{builds.attrs}{warned[0].message}"
    assert jobs.loc[jobs["id"] == "j", "priority"].to_list() == [5]


def test_a_clean_listing_names_nothing() -> None:
    with listing(evenly(3)) as service:
        assert service.connected().builds(progress=False).attrs["odd"] == []


def test_odd_values_survive_parquet(tmp_path: Path) -> None:
    with listing(odd_builds()) as service, pytest.warns(UserWarning, match="do not fit"):
        builds = service.connected().builds(progress=False)
    builds.to_parquet(tmp_path / "builds.parquet")
    assert pd.read_parquet(tmp_path / "builds.parquet").attrs["odd"] == builds.attrs["odd"]


@pytest.mark.filterwarnings("ignore:.*not fit the declared")
def test_a_build_without_readable_creation_keeps_its_place() -> None:
    builds, ids = evenly(250), {"b200", "b100", "b250"}
    values: list[Any] = ["", "soon", None, 5, ["x"], "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]
    with listing(builds) as service:
        for odd in values:
            service.override = lambda number, query, odd=odd: with_creation(builds, ids, odd, query)
            frame = service.connected().builds(workers=1, progress=False)
            assert frame["id"].to_list() == [one["id"] for one in builds], odd
            assert set(frame.loc[frame["created_at"].isna(), "id"]) == ids
            assert frame.attrs["complete"]


def with_creation(builds: list[dict[str, Any]], ids: set[str], created_at: Any, query: dict[str, str]) -> Any:
    """Return a response as of `Listing`, in which some builds have another `created_at`."""
    low, high = query.get("created_from", ""), query.get("created_to", "9")
    found = [one for one in builds if low <= one["created_at"] < high]
    size, number = int(query["per_page"]), int(query.get("page", "1"))
    page = found[(number - 1) * size : number * size]
    sent = [one | {"created_at": created_at} if one["id"] in ids else one for one in page]
    last = max(1, -(-len(found) // size))
    path = "/v2/organizations/acme/builds?" + "&".join(f"{name}={value}" for name, value in query.items())
    links = [f'<{path}&page={number + 1}>; rel="next"', f'<{path}&page={last}>; rel="last"'] if number < last else []
    return says(json.dumps(sent).encode(), date=format_datetime(NOW, usegmt=True), Link=", ".join(links))


@pytest.mark.filterwarnings("ignore:.*not fit the declared")
def test_a_page_without_any_readable_creation_cannot_be_continued() -> None:
    builds = evenly(150)
    ids = {one["id"] for one in builds}
    with listing(builds, lambda number, query: with_creation(builds, ids, "", query)) as service:
        with pytest.raises(bf.Incomplete, match="None of the 100"):
            service.connected().builds(workers=1, progress=False)
        assert service.pages == 1
    with listing(builds[:3], lambda number, query: with_creation(builds[:3], ids, "", query)) as service:
        assert len(service.connected().builds(workers=1, progress=False)) == 3


def test_a_body_that_is_json_is_never_requested_again(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b"[]"))
    ci = bf.connect("acme", base_url=server.url, token=TOKEN)
    bodies = [
        (b"[null]", "row 1 of 1 is null, not an object"),
        (b'[{"id":"b-1","created_at":"2026-10-01T00:00:00Z"},7]', "row 2 of 2 is a number, not an object"),
        (b'[{"created_at":"2026-10-01T00:00:00Z"}]', "without its `id`"),
        (b'[{"id":["b"],"created_at":"2026-10-01T00:00:00Z"}]', "without its `id`"),
        (b'[{"id":"","created_at":"2026-10-01T00:00:00Z"}]', "without its `id`"),
        (b'{"builds":[]}', "Expected `array`"),
        (b'[{"id":"b","x":' + b"[" * 9999 + b"]" * 9999 + b"}]", "recursion"),
    ]

    def read_twice(body: bytes) -> object:
        server.responses = [says(body)]
        with pytest.raises(bf.Malformed):
            ci.pipelines(progress=False)
        return ci.builds(progress=False)

    assert wrong_refusals(bodies, read_twice, bf.Malformed) == {}
    assert len(server.requests) == 2 * len(bodies)


def test_the_first_readable_date_counts() -> None:
    first, second = "Sun, 01 Nov 2026 12:00:00 GMT", "Sunday, 01-Nov-26 13:00:00 GMT"
    for header in (first, f"{first}, {second}", f"soon, {first}", f"{first},{first}"):
        assert date_of(Response(200, {"date": header}, b"")).text() == "2026-11-01T12:00:00Z"
    for headers, said in (({}, "A proxy may have removed it"), ({"date": "soon, later"}, ": 'soon, later'")):
        with pytest.raises(bf.Malformed, match=f"Date header.*{said}"):
            date_of(Response(200, headers, b""))


def test_a_record_loses_no_value(scripted: Callable[..., Scripted]) -> None:
    sent = {"id": "b7", "number": 7, "finished_at": "", "blocked": "perhaps", "creator": "bo", "jobs": [None]}
    server = scripted(says(json.dumps(sent).encode()))
    pipeline = bf.connect("acme", base_url=server.url, token=TOKEN).pipeline("web")
    with pytest.warns(UserWarning, match=r"4 values do not fit.*`unknown`"):
        found = pipeline.build(7)
    assert found.creator is not None
    assert (found.finished_at, found.blocked, found.creator.name, found.jobs) == (None, None, "bo", [])
    assert found.unknown == {"finished_at": "", "blocked": "perhaps", "jobs": [None]}
    assert len(server.requests) == 1


@pytest.mark.filterwarnings("ignore:.*not fit the declared")
def test_a_store_keeps_odd_rows_and_syncs_again(tmp_path: Path) -> None:
    service = Service()
    try:
        service.add(1, "passed", days=3)
        service.add(2, "passed", days=2)
        service.add(3, "running", days=1)
        service.add(4, "passed")["jobs"][0]["priority"] = 5
        service.sent_instead = {
            "b2": {"finished_at": "", "message": ["x"]},
            "b3": {"created_at": "soon", "jobs": [None]},
        }
        ci = bf.connect("acme", base_url=service.url, token=TOKEN)
        store = bf.Store(tmp_path / "store")
        done = store.sync(ci, since="7d", progress=False)
        assert done.complete
        assert (done.builds, done.jobs, done.odd) == (4, 3, 5)
        assert "5 odd values stored as null or text" in str(done)
        service.later(days=1)
        service.add(5, "passed")
        again = store.sync(ci, progress=False)
        assert again.complete
        stored = store.builds().sort_values("number")
        assert stored["number"].to_list() == [1, 2, 3, 4, 5]
        assert stored["message"].to_list()[1] == '["x"]'
        assert stored["finished_at"].isna().all()
        assert store.jobs().set_index("id")["priority"].dropna().to_dict() == {"j4": 5}
    finally:
        service.stop()
