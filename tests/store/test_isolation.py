"""What a store refuses: another service of the same name, other files, passwords, other pipelines."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

import buildframe as bf
from buildframe import Store
from buildframe.errors import BadInput, StoreFailed
from buildframe.sandbox_server import SCOPES
from buildframe.workspace import Workspace
from tests import worlds
from tests.refusals import wrong_refusals


@pytest.fixture(scope="module")
def ci():
    with worlds.sandbox(builds=60, days=3) as ci:
        yield ci


@pytest.fixture(scope="module")
def synced(ci: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synced")
    Store(folder).sync(ci, since="2d", suites=["rspec"], progress=False)
    return folder


@pytest.fixture
def store(synced: Path, tmp_path: Path) -> Store:
    return Store(shutil.copytree(synced, tmp_path / "history"))


@pytest.mark.long
def test_another_service_with_an_organization_of_that_name_is_refused(ci: Workspace, store: Store) -> None:
    before = store.builds()
    with (
        bf.sandbox(builds=20, days=1, seed=2) as other,
        pytest.raises(BadInput, match="named 'acme'"),
    ):
        store.sync(other, progress=False)
    pd.testing.assert_frame_equal(store.builds(), before)
    assert store.builds(columns=["gone_at"])["gone_at"].isna().all()
    assert store.sync(ci, since="2d", progress=False).complete


@pytest.mark.long
def test_the_same_world_at_another_address_is_no_stranger(store: Store) -> None:
    with worlds.sandbox(builds=60, days=3) as again:
        assert store.sync(again, since="2d", progress=False).gone == 0


@pytest.mark.long
def test_a_pipeline_that_its_organizations_syncs_did_not_see_is_fetched_whole(
    ci: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the organization's token may not see it."""
    store, hidden = Store(tmp_path), "api"
    lists, history = Workspace.pipelines, Workspace.history

    def without(frame: pd.DataFrame, column: str) -> pd.DataFrame:
        return frame[frame[column] != hidden].reset_index(drop=True)

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "pipelines", lambda self, **options: without(lists(self, **options), "slug"))
        patch.setattr(
            Workspace,
            "history",
            lambda self, **options: bf.workspace.build_queries.History(
                *(without(f, "pipeline") for f in history(self, **options))
            ),
        )
        store.sync(ci, since="2d", progress=False)
    assert hidden not in set(store.builds()["pipeline"])
    store.sync(ci.pipeline(hidden), since="2d", progress=False)
    wanted = ci.pipeline(hidden).builds(created_from="2d", progress=False)
    assert len(wanted)
    assert set(wanted["id"]) <= set(store.builds(pipeline=hidden)["id"])


WRITING = ("{}", "EXPLAIN ANALYZE {}", "PREPARE p AS {}; EXECUTE p", "SELECT 1; {}")
"""Ways to run a statement that overwrites a file of the store, which DuckDB may read."""


@pytest.mark.long
def test_sql_reads_and_does_nothing_else(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jobs, file, other = store.jobs(), store.files("jobs")[0], tmp_path / "other.parquet"
    bf.save(other, pd.DataFrame({"a": [1]}))
    pivot = "PIVOT (SELECT id, state FROM jobs) ON state USING count(*) GROUP BY id"
    queries = (
        f"COPY jobs TO '{file}'",
        f"COPY ({pivot}) TO '{file}' (FORMAT parquet)",
        f"/* /* */ SELECT */ COPY ({pivot}) TO '{file}' (FORMAT parquet)",
        f"EXPLAIN ANALYZE COPY ({pivot}) TO '{file}' (FORMAT parquet)",
        f"CREATE TABLE copied AS {pivot}",
        f"WITH written AS (COPY (SELECT id FROM jobs) TO '{file}' (FORMAT parquet)) FROM written",
        f"WITH counts AS ({pivot}), written AS (COPY (FROM jobs) TO '{file}') FROM written",
        "WITH written AS (COPY jobs TO '.tmp/new.csv') FROM written",
        f"FROM json_execute_serialized_sql(json_serialize_sql('WITH w AS (COPY jobs TO ''{file}'') FROM w'))",
        f"FROM query('WITH w AS (CO' || 'PY jobs TO ''{file}'') FROM w')",
        "FROM enable_logging('QueryLog', storage='file', storage_path='new'); SELECT 1",
        "UPDATE EXTENSIONS",
        f"WITH counts AS ({pivot}) INSERT INTO jobs SELECT * FROM counts",
        f"COPY (SELECT 1) TO '{tmp_path / 'new.csv'}'",
        *(each.format(f"COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)") for each in WRITING),
        f"SELECT * FROM read_parquet('{other}')",
        f"ATTACH '{tmp_path / 'new.db'}'",
        "SET enable_external_access = true",
    )
    assert wrong_refusals([(query, "DuckDB") for query in queries], store.sql, (BadInput, StoreFailed)) == {}
    assert not list(tmp_path.rglob("new*"))
    pd.testing.assert_frame_equal(store.jobs(), jobs)


@pytest.mark.long
@pytest.mark.skipif(duckdb.__version__ < "2", reason="DuckDB 1 creates a type for a PIVOT, which is refused")
def test_sql_runs_pivots(store: Store) -> None:
    counts = store.jobs()["state"].value_counts().to_dict()
    for query in (
        "PIVOT jobs ON state USING count(*) GROUP BY organization",
        "-- é\n/* COPY */ pivot jobs ON state USING count(*) GROUP BY organization",
        "WITH counts AS (PIVOT jobs ON state USING count(*) GROUP BY organization) SELECT * FROM counts",
        "(FROM (PIVOT jobs ON state USING count(*) GROUP BY organization))",
    ):
        (row,) = store.sql(query).drop(columns="organization").to_dict("records")
        assert row == counts


@pytest.mark.long
def test_sql_lists_all_tables(store: Store) -> None:
    for query in (
        "SELECT table_name AS name FROM information_schema.tables WHERE table_name <> 'jobs' ORDER BY ALL",
        "SELECT name FROM (SHOW TABLES) WHERE name NOT LIKE '%jobs%' ORDER BY ALL",
        "SELECT view_name AS name FROM duckdb_views() WHERE NOT internal AND view_name <> 'jobs' ORDER BY ALL",
    ):
        assert store.sql(query)["name"].tolist() == ["builds", "flaky_tests", "pipelines"]
    assert store.sql("FROM query_table('jo' || 'bs')").equals(store.sql("FROM jobs"))


@pytest.mark.long
def test_a_lost_file_affects_only_queries_of_its_table(store: Store) -> None:
    Path(store.files("jobs")[0]).unlink()
    assert store.sql("SELECT count(*) AS n FROM Builds")["n"].item() == len(store.builds())
    with pytest.raises(StoreFailed, match="No such file") as failed:
        store.sql("SELECT count(*) FROM jobs")
    assert "LINE 1" not in str(failed.value)


@pytest.mark.long
def test_sql_reads_any_folder_and_files_that_lack_columns(ci: Workspace, tmp_path: Path) -> None:
    store = Store(tmp_path / "it's a [b] c")
    store.sync(ci, since="2d", progress=False)
    before = store.sql("SELECT * FROM jobs")
    ci.sandbox.push("web")
    store.sync(ci, since="2d", personal=True, progress=False)
    rows = store.sql("SELECT * FROM jobs ORDER BY id")
    added = rows.columns.difference(before.columns)
    assert len(added)
    assert rows.loc[rows["id"].isin(before["id"]), added].isna().all(axis=None)
    pd.testing.assert_frame_equal(rows, store.jobs(columns=[*rows.columns]).sort_values("id", ignore_index=True))


@pytest.mark.long
def test_a_damaged_file_is_no_fault_of_the_query(store: Store) -> None:
    Path(store.files("jobs")[0]).write_bytes(b"PAR1, it says")
    with pytest.raises(StoreFailed):
        store.sql("SELECT count(name) FROM jobs")
    with pytest.raises(StoreFailed):
        store.jobs()


@pytest.mark.long
def test_a_slug_of_two_organizations_is_ambiguous(ci: Workspace, store: Store) -> None:
    globex = bf.connect("globex", base_url=ci.sandbox.url, token=ci.sandbox.token(SCOPES))
    globex.pipeline("site").update(slug="web")
    store.sync(globex, since="2d", progress=False)
    with pytest.raises(BadInput, match=r"'web' .* of acme, .* of globex"):
        store.builds(pipeline="web")
    named = store.pipelines().query("slug == 'web'")
    assert len(named) == 2
    for id, organization in named[["id", "organization"]].itertuples(index=False):
        assert set(store.builds(pipeline=id)["organization"]) <= {organization}


NO_BUCKETS = ("s3://", "gs://", "az://", "s3:///x", "az:// /x", "S3://", "://x")


NO_PLACES: list[tuple[Any, dict[str, Any], str]] = [
    ("s3://key:password@bucket/ci", {}, "not contain a password"),
    ("memory:///ci", {}, "no store at 'memory:///ci'"),
    ("HTTPS://example.com/ci", {}, "no store at 'HTTPS"),
    *((url, {}, f"'{url}' names no bucket .*'s3://bucket/ci'") for url in NO_BUCKETS),
    (3, {}, "a store location"),
    ("a\0b", {}, "a store location"),
    ("x", {"storage_options": "key"}, "storage_options must be"),
    ("x", {"storage_options": {"a": 1}}, "storage_options must be"),
]


def test_a_place_that_is_none() -> None:
    for place, options, words in NO_PLACES:
        with pytest.raises(BadInput, match=words) as refused:
            Store(place, **options)
        assert "key:password" not in str(refused.value)


@pytest.mark.long
def test_wrong_arguments(ci: Workspace, store: Store) -> None:
    for columns in (5, "id", [], (name for name in ["id"])):
        with pytest.raises(BadInput, match="columns="):
            store.builds(columns=columns)
    for suites in (None, 5, "rspec", [5]):
        with pytest.raises(BadInput, match="suites="):
            store.sync(ci, suites=suites)
    with pytest.raises(BadInput, match="as_of=True"):
        Store(store.url, as_of=True).builds()


def test_a_folder_below_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert repr(Store("~/history")) == f"<Store at {tmp_path}/history>"
