"""Rows to frames: dtypes never depend on the values."""

from __future__ import annotations

import json
from types import GenericAlias
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe.errors import Malformed
from buildframe.fetching import arrow
from buildframe.spec import (
    TABLES,
    Build,
    Job,
    Moment,
)
from buildframe.spec.jobs import queue_of
from buildframe.spec.rows import row_type
from tests.records import AT, OTHERS, documents_of, expected, visible
from tests.refusals import wrong_refusals

DTYPES = {
    "text": "str",
    "integer": "Int64",
    "number": "float64",
    "flag": "boolean",
    "timestamp": "datetime64[us, UTC]",
    "json": "str",
}


def rows(documents: list[dict[str, Any]], resource: type = Build) -> list[Any]:
    decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(GenericAlias(list, (row_type(resource),)))
    return decoder.decode(json.dumps(documents))


def frames(documents: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    read = rows(documents)
    builds = arrow.from_rows("builds", read, AT)
    return arrow.to_frame("builds", [builds]), arrow.to_frame("jobs", [arrow.jobs_of(builds, read)])


def assert_declared(frame: pd.DataFrame, table: str) -> None:
    assert dict(frame.dtypes.astype(str)) == {column.name: DTYPES[column.kind] for column in TABLES[table]}


def test_no_rows_have_all_columns_with_their_dtypes() -> None:
    for table in TABLES:
        assert_declared(arrow.to_frame(table, []), table)


def assert_equal(frame: pd.DataFrame, table: str, documents: list[dict[str, Any]]) -> None:
    for column in TABLES[table]:
        for got, document in zip(frame[column.name], documents, strict=True):
            wanted = expected(column, document) if column.path else None
            if wanted is None:
                assert column.derived or not column.path or pd.isna(got)
            elif column.kind == "json":
                assert json.loads(got) == wanted, column.name  # JSON has escapes of its own
            else:
                assert got == (visible(wanted) if isinstance(wanted, str) else wanted), column.name


def test_a_column_may_mix_all_formats_of_timestamps() -> None:
    rare = ["2013-09-03 13:24:38 UTC", "20130903T13:24:38.1+02:00"]
    for rarer in ([], rare[:1], rare):
        texts = ["2026-11-01T09:30:00.123Z", None, "2026-11-01T09:30:00Z", *rarer]
        assert arrow.timestamps(texts).to_pylist() == [text and Moment.parse(text) for text in texts]


def test_a_text_that_is_no_timestamp_is_an_error() -> None:
    wrong = ["2013-09-03", "2013-09-03 UTC", "2013-13-03 13:24:38 UTC", "2013 UTC-09-03", " UTC", ""]
    cases = [(text, "instead of a timestamp") for text in wrong]
    assert wrong_refusals(cases, lambda text: arrow.timestamps(["2026-11-01T09:30:00.123Z", text]), Malformed) == {}


@given(st.lists(documents_of(Build, ("id",)), max_size=3), st.data())
@settings(max_examples=6)
def test_whatever_arrives_has_the_declared_dtypes_and_its_values(builds: list[dict[str, Any]], data: Any) -> None:
    check_values_and_dtypes(builds, data)


@pytest.mark.long
@given(st.lists(documents_of(Build, ("id",)), max_size=4), st.data())
def test_whatever_arrives_has_the_declared_dtypes_and_its_values_in_many_examples(
    builds: list[dict[str, Any]], data: Any
) -> None:
    check_values_and_dtypes(builds, data)


def check_values_and_dtypes(builds: list[dict[str, Any]], data: Any) -> None:
    jobs = documents_of(Job, ("id",))
    for build in builds:
        build["jobs"] = data.draw(st.none() | st.lists(jobs, max_size=3))
    build_frame, job_frame = frames(builds)
    assert_declared(build_frame, "builds")
    assert_declared(job_frame, "jobs")
    assert_equal(build_frame, "builds", builds)
    assert_equal(job_frame, "jobs", [job for build in builds for job in build["jobs"] or ()])
    ids = [build["id"] for build in builds for _ in build["jobs"] or ()]
    assert list(job_frame["build_id"]) == ids
    assert (job_frame["fetched_at"] == AT).all()


@given(data=st.data())
@settings(max_examples=25)
def test_frames_of_other_tables_contain_the_values_sent(data: Any) -> None:
    table = data.draw(st.sampled_from(sorted(OTHERS)))
    documents = data.draw(st.lists(documents_of(OTHERS[table], ()), max_size=3))
    frame = arrow.to_frame(table, [arrow.from_rows(table, rows(documents, OTHERS[table]), AT)])
    assert_declared(frame, table)
    assert_equal(frame, table, documents)


def test_no_table_is_left_out() -> None:
    assert {"builds", "jobs", *OTHERS} == set(TABLES)


def test_all_forms_of_an_author_alone_and_in_one_page() -> None:
    authors: dict[str, tuple[Any, str, str]] = {
        "none": (None, "-", "-"),
        "empty": ({}, "-", "-"),
        "text": ("Ada Example", "Ada Example", "-"),
        "object": ({"name": "Bo Example", "email": "bo@example.com"}, "Bo Example", "bo@example.com"),
        "only an address": ({"email": "c@example.com"}, "-", "c@example.com"),
        "empty text": ("", "", "-"),
    }
    together, _ = frames([{"id": name, "author": author} for name, (author, *_) in authors.items()])
    alone = pd.concat([frames([{"id": name, "author": author}])[0] for name, (author, *_) in authors.items()])
    for frame in (together, alone):
        found = frame[["author", "author_email"]].fillna("-").to_numpy().tolist()
        assert dict(zip(authors, found, strict=True)) == {name: list(wanted) for name, (_, *wanted) in authors.items()}


tags = st.none() | st.lists(st.sampled_from(["queue=a", "queue=b", "os=mac"]), max_size=2)


@given(st.lists(st.tuples(st.sampled_from(["script", "waiter", None]), tags, tags), max_size=20))
@settings(max_examples=25)
def test_the_queue_is_derived_for_each_row(jobs: list[tuple[Any, Any, Any]]) -> None:
    sent = [{"id": "j", "type": t, "agent_query_rules": rules, "agent": {"meta_data": meta}} for t, rules, meta in jobs]
    _, frame = frames([{"id": "b", "jobs": sent}])
    texts = ([None if value is None else json.dumps(value) for value in job[1:]] for job in jobs)
    wanted = [queue_of(job[0], *both) for job, both in zip(jobs, texts, strict=True)]
    assert [None if pd.isna(queue) else queue for queue in frame["queue"]] == wanted


def test_the_queue_is_that_of_the_agent_query_rules_or_of_the_agent() -> None:
    queues: list[tuple[str | None, str | None, str | None, str | None]] = [
        ("script", '["queue=macos","os=mac"]', '["queue=other"]', "macos"),
        ("script", '["os=mac"]', '["queue=other"]', "other"),
        ("script", None, None, "default"),
        ("script", "[]", '["docker=1"]', "default"),
        ("script", '["queue=a=b"]', None, "a=b"),
        ("waiter", None, None, None),
        ("manual", '["queue=x"]', None, None),
        (None, None, None, None),
    ]
    assert [(*job, queue_of(*job)) for *job, _ in queues] == queues


def test_missing_organization_and_pipeline_are_read_from_the_url() -> None:
    url = "https://api.example.com/v2/organizations/acme/pipelines/web/builds/7"
    builds, jobs = frames([{"id": "b", "url": url, "jobs": [{"id": "j", "type": "waiter"}]}])
    assert list(builds[["organization", "pipeline"]].iloc[0]) == ["acme", "web"]
    assert list(jobs[["organization", "pipeline", "build_id"]].iloc[0]) == ["acme", "web", "b"]


def test_a_number_in_a_text_column_becomes_text() -> None:
    builds, jobs = frames([{"id": "b", "pull_request": {"id": 123}, "jobs": [{"id": "j", "signal": 9}, {"id": "k"}]}])
    assert builds["pull_request"][0] == "123"
    assert jobs["signal"][0] == "9"
    assert pd.isna(jobs["signal"][1])


def test_values_by_path() -> None:
    document = {"meta_data": {"team": "a", "a.b": 1}, "list": [{"x": None}, {"x": [1, "ü"]}]}
    assert arrow.value_at(document, ("meta_data", "team")) == "a"
    assert arrow.value_at(document, ("meta_data", "a.b")) == "1"
    assert arrow.value_at(document, ("list", "1", "x")) == '[1,"ü"]'
    assert arrow.value_at(document, ("list", "0", "x")) is None
    assert arrow.value_at(document, ("list", "9")) is None
    assert arrow.value_at(document, ("meta_data", "team", "deeper")) is None
    assert arrow.split_paths({"a": "x.y", "b": ["x.y", "z"]}) == {"a": ("x", "y"), "b": ("x.y", "z")}
