"""Records from responses with other types than declared: cast or None, never refused."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import spec
from buildframe.spec.reading import convert_record

ODD = [
    ("pull_request.id", {"pull_request": {"id": 12}}, "12"),
    ("pull_request.labels", {"pull_request": {"labels": [{"name": "bug"}]}}, [{"name": "bug"}]),
    ("env", {"env": []}, []),
    ("meta_data", {"meta_data": "none"}, "none"),
    ("creator.name", {"creator": "bob"}, "bob"),
    ("branch", {"branch": {"name": "main"}}, '{"name":"main"}'),
    ("number", {"number": "seven"}, None),
    ("finished_at", {"finished_at": "never"}, None),
    ("started_at", {"started_at": "9999-12-31T00:00:00Z"}, None),
    ("unknown", {"number": "seven", "finished_at": "", "x": 1}, {"number": "seven", "finished_at": "", "x": 1}),
    ("jobs.0.matrix", {"jobs": [{"id": "j", "matrix": "linux"}]}, "linux"),
    ("jobs.0.agent_query_rules", {"jobs": [{"id": "j", "agent_query_rules": "queue=x"}]}, "queue=x"),
    ("jobs.0.agent.meta_data", {"jobs": [{"id": "j", "agent": {"meta_data": "queue=x"}}]}, "queue=x"),
    ("jobs.0.type", {"jobs": [{"type": "waiter"}]}, "waiter"),
    ("jobs.0.id", {"jobs": [{"type": "waiter"}]}, None),
    ("jobs", {"jobs": ["odd"]}, []),
    ("jobs", {"jobs": {"id": "j"}}, None),
    ("jobs.0.priority.number", {"jobs": [{"id": "j", "priority": 5}]}, 5),
    ("author.name", {"author": 7}, "7"),
]


def build_of(body: bytes) -> spec.Build:
    return convert_record(spec.Build, msgspec.json.decode(body))


def at(record: Any, path: str) -> Any:
    for key in path.split("."):
        record = record[int(key)] if key.isdecimal() else getattr(record, key)
    return record


def test_an_odd_value_costs_nothing_but_itself() -> None:
    read = []
    for path, document, _ in ODD:
        sent = {"id": "b1", "message": "Fine", "created_at": "2026-10-01T09:30:00Z", **document}
        build = build_of(msgspec.json.encode(sent))
        read.append((path, document, at(build, path)))
        assert (build.id, build.message, build.created_at) == ("b1", "Fine", spec.when("2026-10-01T09:30:00Z", "at"))
        assert repr(build).startswith("Build(id='b1'")
    assert read == ODD


def test_what_is_no_such_record_is_refused() -> None:
    for body in (b"[]", b'"text"', b"null", b"{}", b'{"message": "Hello"}', b'{"id": null}'):
        with pytest.raises(msgspec.ValidationError):
            build_of(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [field.name for field in spec.fields_of(spec.Build) if field.name != "id"]


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6))
def test_any_json_in_any_field_is_read(document: dict[str, Any]) -> None:
    build = build_of(msgspec.json.encode({"id": "b1", **document}))
    assert build.id == "b1"
    assert repr(build)


def test_a_repr_stays_short_whatever_a_record_holds() -> None:
    document = {
        "id": "b1",
        "message": "m" * 5000,
        "env": {"KEY": "v" * 5000},
        "meta_data": {str(key): "x" for key in range(50)},
        "jobs": [{"id": str(number), "name": "n" * 300} for number in range(30)],
    }
    result = repr(build_of(msgspec.json.encode(document)))
    assert len(result) < 600
    assert "jobs=<30 items>" in result
    assert "meta_data=<50 keys>" in result


def test_fields_that_no_declaration_names_are_in_unknown() -> None:
    sent = {
        "id": "b1",
        "number": 7,
        "canary": {"share": 0.5},
        "pipeline": {"slug": "web", "color": "teal"},
        "jobs": [{"id": "j1", "type": "script", "gpu": True}, {"id": "j2"}],
        "unknown": "a field of that name",
    }
    build = build_of(msgspec.json.encode(sent))
    assert build.pipeline is not None
    assert build.jobs is not None
    assert build.unknown == {"canary": {"share": 0.5}, "unknown": "a field of that name"}
    assert build.pipeline.unknown == {"color": "teal"}
    assert [job.unknown for job in build.jobs] == [{"gpu": True}, {}]
    assert repr(build).endswith("unknown={'canary': {'share': 0.5}, 'unknown': 'a field of that name'})")
    assert "unknown" not in repr(build.jobs[1])
    assert pickle.loads(pickle.dumps(build)) == build
    assert "unknown" not in {column.name for column in spec.TABLES["builds"]}


def test_unknown_fields_stay_beside_a_value_that_was_cast() -> None:
    build = build_of(b'{"id": "b1", "branch": {"name": "main"}, "canary": 1}')
    assert (build.branch, build.unknown) == ('{"name":"main"}', {"canary": 1})
