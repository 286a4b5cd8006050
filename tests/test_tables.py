"""Rows to frames: dtypes never depend on what arrives."""

from __future__ import annotations

import datetime as dt
import json
from types import GenericAlias
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe import tables
from buildframe.errors import Malformed
from buildframe.spec import (
    TABLES,
    Build,
    Column,
    Emoji,
    FlakyTest,
    Job,
    Member,
    Moment,
    Pipeline,
    TeamPipeline,
    columns_of,
)
from buildframe.spec.jobs import queue_of
from buildframe.spec.rows import row_type

AT = Moment(2026, 11, 1, 12, tzinfo=dt.UTC)
DTYPES = {"text": "str", "integer": "Int64", "flag": "boolean", "moment": "datetime64[us, UTC]", "json": "str"}


def rows(documents: list[dict[str, Any]], resource: type = Build) -> list[Any]:
    decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(GenericAlias(list, (row_type(resource),)))
    return decoder.decode(json.dumps(documents))


def frames(documents: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    read = rows(documents)
    builds = tables.from_rows("builds", read, AT)
    return tables.to_frame("builds", [builds]), tables.to_frame("jobs", [tables.jobs_of(builds, read)])


def assert_declared(frame: pd.DataFrame, table: str) -> None:
    assert dict(frame.dtypes.astype(str)) == {column.name: DTYPES[column.kind] for column in TABLES[table]}


@pytest.mark.parametrize("table", TABLES)
def test_no_rows_have_all_columns_with_their_dtypes(table: str) -> None:
    assert_declared(tables.to_frame(table, []), table)


moments = st.datetimes(min_value=dt.datetime(2000, 1, 1), max_value=dt.datetime(2100, 1, 1))
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
forms = st.one_of(
    moments.map(lambda at: at.isoformat(timespec="milliseconds") + "Z"),
    moments.map(lambda at: at.isoformat(timespec="seconds") + "Z"),
    moments.map(lambda at: f"{at:%Y-%m-%d %H:%M:%S} UTC"),
    st.builds(lambda at, zone: at.replace(tzinfo=zone).isoformat(timespec="microseconds"), moments, zones),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "flag": st.booleans(),
    "moment": forms,
    "json": st.one_of(st.dictionaries(st.text(), st.text()), st.lists(st.text())),
}


def documents_of(resource: type, required: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Records with any keys missing, null, or there, in any form that the service uses."""
    optional: dict[str, st.SearchStrategy[Any]] = {}
    nested: dict[str, dict[str, st.SearchStrategy[Any]]] = {}
    for column in columns_of(resource):
        if len(column.path) == 1:
            optional[column.path[0]] = st.none() | VALUES[column.kind]
        elif column.path:
            nested.setdefault(column.path[0], {})[column.path[1]] = st.none() | VALUES[column.kind]
    for name, keys in nested.items():
        optional[name] = st.none() | st.fixed_dictionaries({}, optional=keys)
    fixed = {name: st.uuids().map(str) for name in required}
    return st.fixed_dictionaries(fixed, optional={k: v for k, v in optional.items() if k not in fixed})


def expected(column: Column, document: Any) -> Any:
    for key in column.path:
        document = document.get(key) if isinstance(document, dict) else None
    if document is None:
        return None
    return Moment.parse(document) if column.kind == "moment" else document


def assert_equal(frame: pd.DataFrame, table: str, documents: list[dict[str, Any]]) -> None:
    for column in TABLES[table]:
        for got, document in zip(frame[column.name], documents, strict=True):
            wanted = expected(column, document) if column.path else None
            if wanted is None:
                assert column.derived or not column.path or pd.isna(got)
            else:
                assert (json.loads(got) if column.kind == "json" else got) == wanted, column.name


@given(st.lists(documents_of(Build, ("id",)), max_size=4), st.data())
def test_whatever_arrives_has_the_declared_dtypes_and_its_values(builds: list[dict[str, Any]], data: Any) -> None:
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


OTHERS = {
    "pipelines": Pipeline, "team_pipelines": TeamPipeline, "members": Member, "flaky_tests": FlakyTest, "emojis": Emoji,
}  # fmt: skip


@pytest.mark.parametrize("table", OTHERS)
@given(data=st.data())
def test_other_tables_too(table: str, data: Any) -> None:
    documents = data.draw(st.lists(documents_of(OTHERS[table], ()), max_size=3))
    frame = tables.to_frame(table, [tables.from_rows(table, rows(documents, OTHERS[table]), AT)])
    assert_declared(frame, table)
    assert_equal(frame, table, documents)


def test_no_table_is_left_out() -> None:
    assert {"builds", "jobs", *OTHERS} == set(TABLES)


@pytest.mark.parametrize(
    ("author", "name", "email"),
    [
        (None, None, None),
        ({}, None, None),
        ("Ada Example", "Ada Example", None),
        ({"name": "Ada Example", "email": "ada@example.com"}, "Ada Example", "ada@example.com"),
    ],
)
def test_every_form_of_an_author(author: object, name: str | None, email: str | None) -> None:
    frame, _ = frames([{"id": "b", "author": author}])
    got = [None if pd.isna(value) else value for value in (frame["author"][0], frame["author_email"][0])]
    assert got == [name, email or None]


@pytest.mark.parametrize(
    ("kind", "rules", "tags", "queue"),
    [
        ("script", '["queue=macos","os=mac"]', '["queue=other"]', "macos"),
        ("script", '["os=mac"]', '["queue=other"]', "other"),
        ("script", None, None, "default"),
        ("script", "[]", '["docker=1"]', "default"),
        ("script", '["queue=a=b"]', None, "a=b"),
        ("waiter", None, None, None),
        ("manual", '["queue=x"]', None, None),
        (None, None, None, None),
    ],
)
def test_the_queue_is_the_one_asked_for_else_the_agents(
    kind: str | None, rules: str | None, tags: str | None, queue: str | None
) -> None:
    assert queue_of(kind, rules, tags) == queue


def test_organization_and_pipeline_are_read_from_the_address_where_they_are_left_out() -> None:
    url = "https://api.example.com/v2/organizations/acme/pipelines/web/builds/7"
    builds, jobs = frames([{"id": "b", "url": url, "jobs": [{"id": "j", "type": "waiter"}]}])
    assert list(builds[["organization", "pipeline"]].iloc[0]) == ["acme", "web"]
    assert list(jobs[["organization", "pipeline", "build_id"]].iloc[0]) == ["acme", "web", "b"]


@pytest.mark.parametrize(
    "build",
    [
        {"id": "b", "created_at": "2026-10-01T00:00:00"},
        {"id": "b", "finished_at": "soon"},
        {"id": "b", "number": 2**63},
    ],
)
def test_a_value_that_does_not_fit_is_told_and_never_bent(build: dict[str, Any]) -> None:
    with pytest.raises((Malformed, msgspec.ValidationError)):
        frames([build])


def test_a_number_where_a_text_is_declared_becomes_one() -> None:
    builds, jobs = frames([{"id": "b", "pull_request": {"id": 123}, "jobs": [{"id": "j", "signal": 9}, {"id": "k"}]}])
    assert builds["pull_request"][0] == "123"
    assert jobs["signal"][0] == "9"
    assert pd.isna(jobs["signal"][1])


def test_values_by_path() -> None:
    document = {"meta_data": {"team": "a", "a.b": 1}, "list": [{"x": None}, {"x": [1, "ü"]}]}
    assert tables.at_path(document, ("meta_data", "team")) == "a"
    assert tables.at_path(document, ("meta_data", "a.b")) == "1"
    assert tables.at_path(document, ("list", "1", "x")) == '[1,"ü"]'
    assert tables.at_path(document, ("list", "0", "x")) is None
    assert tables.at_path(document, ("list", "9")) is None
    assert tables.at_path(document, ("meta_data", "team", "deeper")) is None
    assert tables.paths_of({"a": "x.y", "b": ["x.y", "z"]}) == {"a": ("x", "y"), "b": ("x.y", "z")}
