"""A page's bytes to frames: which columns, which rows, and the same values as those of pandas' JSON reader."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import spec
from buildframe.fetching.decoder import ColumnSelection, PageDecoder
from buildframe.http import protocol, response
from buildframe.spec import TABLES, Build, Job, Moment, Resource
from tests.records import AT, OTHERS, documents_of, visible
from tests.refusals import wrong_refusals

REQUEST = protocol.request_for(spec.list_builds, "acme")
HEADERS = {"date": "Sun, 01 Nov 2026 12:00:00 GMT"}
RESOURCES: dict[str, type[Resource]] = {"builds": Build, **OTHERS}
PAGES = st.lists(st.lists(documents_of(Build, ("id",)), max_size=3), max_size=3)
JOBS = st.none() | st.lists(documents_of(Job, ("id",)), max_size=3)


def names_of(table: str) -> list[str]:
    return [column.name for column in TABLES[table]]


def some(table: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names_of(table)), min_size=1, unique=True)


FEW = settings(max_examples=6)
"""Examples of the first lane; the second one has as many as Hypothesis takes."""


def page_of(decoding: PageDecoder, documents: list[dict[str, Any]]) -> protocol.Page:
    return decoding.read(REQUEST, response.Response(200, HEADERS, json.dumps(documents).encode()))


def read(
    selected: ColumnSelection,
    jobs: ColumnSelection | None,
    *pages: list[dict[str, Any]],
    resource: type[Resource] = Build,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    decoding = PageDecoder(resource, selected, jobs)
    return decoding.frames([decoding.tables(page_of(decoding, page)) for page in pages])


@FEW
@given(PAGES, some("builds"), some("jobs"), st.data())
def test_selected_columns_equal_those_of_a_full_read(
    pages: list[list[dict[str, Any]]], columns: list[str], job_columns: list[str], data: Any
) -> None:
    check_selected_columns(pages, columns, job_columns, data)


@pytest.mark.long
@given(PAGES, some("builds"), some("jobs"), st.data())
def test_selected_columns_equal_those_of_a_full_read_in_many_examples(
    pages: list[list[dict[str, Any]]], columns: list[str], job_columns: list[str], data: Any
) -> None:
    check_selected_columns(pages, columns, job_columns, data)


def check_selected_columns(
    pages: list[list[dict[str, Any]]], columns: list[str], job_columns: list[str], data: Any
) -> None:
    for page in pages:
        for build in page:
            build["jobs"] = data.draw(JOBS)
    builds, jobs = read(ColumnSelection("builds"), ColumnSelection("jobs"), *pages)
    few, few_jobs = read(ColumnSelection("builds", columns), ColumnSelection("jobs", job_columns), *pages)
    pd.testing.assert_frame_equal(few, builds[columns])
    pd.testing.assert_frame_equal(few_jobs, jobs[job_columns])
    alone, none = read(ColumnSelection("builds", columns), None, *pages)
    pd.testing.assert_frame_equal(alone, few)
    assert len(none) == 0


@settings(max_examples=25)
@given(data=st.data())
def test_selected_columns_of_other_tables_equal_those_of_a_full_read(data: Any) -> None:
    table = data.draw(st.sampled_from(sorted(OTHERS)))
    documents, columns = data.draw(st.lists(documents_of(OTHERS[table], ()), max_size=3)), data.draw(some(table))
    whole, _ = read(ColumnSelection(table), None, documents, resource=OTHERS[table])
    few, _ = read(ColumnSelection(table, columns), None, documents, resource=OTHERS[table])
    pd.testing.assert_frame_equal(few, whole[columns])


def assert_like_normalized(frame: pd.DataFrame, table: str, normalized: pd.DataFrame) -> None:
    """Compare all sent values that are not maps or lists with those that pandas reads from the same records."""
    for column in TABLES[table]:
        if column.path and column.kind != "json" and column.derived is None:
            path = ".".join(column.path)
            theirs = normalized[path].tolist() if path in normalized else [None] * len(frame)
            for ours, value in zip(frame[column.name].tolist(), theirs, strict=True):
                if pd.isna(value):
                    assert pd.isna(ours), column.name
                elif column.kind == "integer":  # pandas makes floats of integers beside nulls
                    assert float(ours) == float(value), column.name
                else:
                    assert ours == (Moment.parse(value) if column.kind == "timestamp" else value), column.name


@FEW
@given(st.lists(documents_of(Build, ("id",)), min_size=1, max_size=4), st.data())
def test_the_values_are_those_of_json_normalize(documents: list[dict[str, Any]], data: Any) -> None:
    check_against_json_normalize(documents, data)


@pytest.mark.long
@given(st.lists(documents_of(Build, ("id",)), min_size=1, max_size=4), st.data())
def test_the_values_are_those_of_json_normalize_in_many_examples(documents: list[dict[str, Any]], data: Any) -> None:
    check_against_json_normalize(documents, data)


def check_against_json_normalize(documents: list[dict[str, Any]], data: Any) -> None:
    for build in documents:
        build["jobs"] = data.draw(st.lists(documents_of(Job, ("id",)), max_size=3))
    builds, jobs = read(ColumnSelection("builds"), ColumnSelection("jobs"), documents)
    assert_like_normalized(builds, "builds", with_visible_texts(pd.json_normalize(documents)))
    theirs = with_visible_texts(pd.json_normalize(documents, record_path="jobs", meta=["id"], meta_prefix="build_"))
    assert_like_normalized(jobs, "jobs", theirs)
    assert jobs["build_id"].to_list() == list(theirs.get("build_id", []))


def with_visible_texts(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.map(lambda value: visible(value) if isinstance(value, str) else value)


BUILD: dict[str, Any] = {
    "id": "b-1",
    "number": 7,
    "url": "https://api.example.com/v2/organizations/acme/pipelines/web/builds/7",
    "state": "passed",
    "blocked": False,
    "created_at": "2026-10-01T00:00:00.000Z",
    "meta_data": {"team": "a"},
    "pipeline": {"id": "p-1", "slug": "web", "name": "Web"},
    "jobs": [{"id": "j-1", "type": "script", "exit_status": 1, "log": {"size": 3}}, {"id": "j-2", "type": "waiter"}],
}


def test_columns_are_ordered_as_selected_then_extra_then_raw() -> None:
    selected = ColumnSelection("builds", ["state", "id"], {"team": "meta_data.team"}, raw=True)
    jobs = ColumnSelection(
        "jobs", ["build_number", "type"], {"size": "log.size", "label_of_all": "build.pipeline.name"}
    )
    builds, inner = read(selected, jobs, [BUILD])
    assert list(builds) == ["state", "id", "team", "raw"]
    assert builds.iloc[0, :3].to_list() == ["passed", "b-1", "a"]
    assert json.loads(builds["raw"][0]) == BUILD
    assert list(inner) == ["build_number", "type", "size", "label_of_all"]
    assert inner.iloc[0].to_list() == [7, "script", "3", "Web"]


def test_columns_keep_their_documentation() -> None:
    decoding = PageDecoder(Build, ColumnSelection("builds", ["state"]), ColumnSelection("jobs", ["queue"]))
    rows, jobs = decoding.tables(page_of(decoding, [BUILD]))
    assert jobs is not None
    fields = rows.schema.field("state"), jobs.schema.field("queue")
    docs = [(field.metadata or {})[b"doc"].decode() for field in fields]
    assert "state when it was fetched" in docs[0]
    assert "queue from" in docs[1]


def test_invalid_columns_are_refused() -> None:
    cases: list[tuple[Any, str]] = [
        ("state", "pass a list of column names"),
        ([], "pass a list of column names"),
        (7, "pass a list of column names"),
        ({"state"}, "pass a list of column names"),
        (["state", "state"], "Pass each name once"),
        (["stat"], r"no column 'stat'. Did you mean 'state'\?"),
        (["state", 7], "no column 7. Valid names: id,"),
        ([["state"]], "no column"),
        (["raw"], "no column 'raw'"),
    ]
    assert wrong_refusals(cases, lambda columns: ColumnSelection("builds", columns)) == {}


KEYS = {
    "builds": ("id", "created_at"),
    "team_pipelines": ("pipeline_id",),
    "failed_executions": ("execution_id",),
    "emojis": ("name", "url"),
}


def test_rows_contain_their_keys_whatever_columns_are_selected() -> None:
    for table, resource in RESOURCES.items():
        keys = KEYS.get(table, ("id",))
        decoding = PageDecoder(resource, ColumnSelection(table, ["fetched_at"]))
        page = page_of(decoding, [{key: f"the {key}" for key in keys}])
        assert [getattr(page.rows[0], key) for key in keys] == [f"the {key}" for key in keys], table
        assert decoding.tables(page)[0].column_names == ["fetched_at"]


def test_fetched_at_is_a_column_like_others() -> None:
    builds, jobs = read(ColumnSelection("builds", ["id"]), ColumnSelection("jobs", ["fetched_at", "id"]), [BUILD])
    assert list(builds) == ["id"]
    assert jobs["fetched_at"].to_list() == [AT, AT]


def test_columns_that_are_not_selected_are_not_decoded() -> None:
    odd = BUILD | {"number": 2**63, "finished_at": "soon", "state": {"odd": 1}}
    assert read(ColumnSelection("builds", ["id"]), None, [odd])[0]["id"].to_list() == ["b-1"]
    values = {"number": None, "finished_at": None, "state": '{"odd":1}'}
    for column, value in values.items():
        found = read(ColumnSelection("builds", [column]), None, [odd])[0][column][0]
        assert found == value or (value is None and pd.isna(found))


def test_rows_may_be_left_out_before_they_become_tables() -> None:
    decoding = PageDecoder(
        Build, ColumnSelection("builds", extra={"team": "meta_data.team"}), ColumnSelection("jobs", ["build_id", "id"])
    )
    page = page_of(decoding, [BUILD, BUILD | {"id": "b-2", "meta_data": {"team": "b"}, "jobs": [{"id": "j-3"}]}])
    rows, jobs = decoding.tables(dataclasses.replace(page, rows=page.rows[1:]))
    assert jobs is not None
    assert rows.select(["id", "team"]).to_pylist() == [{"id": "b-2", "team": "b"}]
    assert jobs.to_pylist() == [{"build_id": "b-2", "id": "j-3"}]


@pytest.mark.filterwarnings("ignore:extra")
def test_pipelines_can_be_excluded_if_no_column_needs_them() -> None:
    alone = ColumnSelection("builds", ["id"])
    selections: list[tuple[ColumnSelection, ColumnSelection | None, bool]] = [
        (ColumnSelection("builds"), None, False),
        (ColumnSelection("builds", ["id", "state", "pipeline"]), None, True),
        (ColumnSelection("builds", ["pipeline_id"]), None, False),
        (ColumnSelection("builds", ["id"], raw=True), None, False),
        (ColumnSelection("builds", ["id"], {"x": "meta_data.pipeline"}), None, True),
        (ColumnSelection("builds", ["id"], {"x": "pipeline.name"}), None, False),
        (ColumnSelection("builds", ["id"], {"x": ["pipeline"]}), None, False),
        (alone, ColumnSelection("jobs"), False),
        (alone, ColumnSelection("jobs", ["pipeline", "queue"]), True),
        (alone, ColumnSelection("jobs", ["pipeline_id"]), False),
        (alone, ColumnSelection("jobs", ["id"], {"x": "pipeline.name"}), True),
        (alone, ColumnSelection("jobs", ["id"], {"x": "build.pipeline.name"}), False),
        (alone, ColumnSelection("jobs", ["id"], {"x": "build"}), False),
        (alone, ColumnSelection("jobs", ["id"], raw=True), True),
    ]
    without_pipeline = {key: value for key, value in BUILD.items() if key != "pipeline"}
    for number, (builds, jobs, without) in enumerate(selections):
        assert PageDecoder(Build, builds, jobs).can_exclude_pipeline is without, number
        if without:
            for bare, full in zip(read(builds, jobs, [without_pipeline]), read(builds, jobs, [BUILD]), strict=True):
                pd.testing.assert_frame_equal(bare, full)


@pytest.mark.parametrize("pages", [1, 3])
def test_frames_can_be_written_to(pages: int) -> None:
    builds, _ = read(ColumnSelection("builds"), None, *[[BUILD | {"id": f"b-{page}"}] for page in range(pages)])
    new: dict[str, Any] = {
        "state": "failed",
        "number": 8,
        "blocked": True,
        "created_at": pd.Timestamp("2026-10-02", tz="UTC"),
    }
    for name, value in new.items():
        dtype = builds[name].dtype
        builds.loc[pages - 1, name] = value
        builds[f"{name}_twice"] = builds[name]
        assert builds[name].iloc[-1] == value
        assert builds[name].dtype == builds[f"{name}_twice"].dtype == dtype
        assert (builds[name].iloc[:-1] != value).all()
    assert list(builds.index) == list(range(pages))


@pytest.mark.parametrize("pages", [(), ([],)])
def test_no_rows_have_the_same_columns_and_a_frame_of_their_own(pages: Any) -> None:
    selected = ColumnSelection("builds", ["state", "id"], {"team": "meta_data.team"}, raw=True)
    for _ in range(2):
        builds, _jobs = read(selected, None, *pages)
        assert list(builds) == ["state", "id", "team", "raw"]
        assert [str(dtype) for dtype in builds.dtypes] == ["str"] * 4
        assert not builds.attrs
        builds["another"] = builds.attrs["other"] = 1
        builds.loc[0, "state"] = "passed"


def test_an_extra_path_without_values_warns() -> None:
    with pytest.warns(UserWarning, match=r"nope\.x"):
        read(ColumnSelection("builds", ["id"], {"x": "nope.x"}), None, [BUILD])


@pytest.mark.long
@settings(max_examples=30)
@given(PAGES, st.data())
def test_the_order_of_keys_does_not_change_frames(pages: list[list[dict[str, Any]]], data: Any) -> None:
    for page in pages:
        for build in page:
            build["jobs"] = data.draw(JOBS)
    turned = [[dict(reversed(build.items())) for build in page] for page in pages]
    for frame, other in zip(
        *(read(ColumnSelection("builds"), ColumnSelection("jobs"), *each) for each in (pages, turned)), strict=True
    ):
        pd.testing.assert_frame_equal(frame, other)


def test_fields_of_rows_have_the_order_of_the_longest_record() -> None:
    decoding = PageDecoder(
        Build, ColumnSelection("builds", ["id", "state", "creator_id"]), ColumnSelection("jobs", ["type", "name"])
    )
    job = {"name": "tests", "x": 1, "id": "j-1", "type": "script"}
    page = [{"id": "b-1"}, {"jobs": [{"type": "waiter"}, job], "state": "passed", "creator": None, "id": "b-2"}]
    page_of(decoding, [])
    page_of(decoding, page)
    row = page_of(decoding, page).rows[1]
    sent = ("jobs", "state", "creator", "id")
    assert tuple(name for name in row.__struct_fields__ if name in sent) == sent
    assert row.jobs[1].__struct_fields__[:3] == ("name", "id", "type")
