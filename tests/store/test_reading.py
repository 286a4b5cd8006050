"""Reading a store: frames equal those of a fetch; earlier versions; errors when there is nothing to read."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

import buildframe as bf
from buildframe import metrics
from buildframe.metrics import input_frames
from buildframe.workspace import Workspace
from tests import preloaded, worlds
from tests.refusals import wrong_messages, wrong_refusals

LEFT_OUT = {
    "builds": {"creator", "creator_email", "author", "author_email", "env"},
    "jobs": {"retried_by", "unblocked_by"},
}


class Filled(NamedTuple):
    """A store that was synced, then `docs` was renamed, and two days later it was synced again."""

    folder: Path
    ci: Workspace
    between: int
    flaky_then: pd.DataFrame

    @property
    def store(self) -> bf.Store:
        return bf.Store(self.folder)

    @property
    def earlier(self) -> bf.Store:
        return bf.Store(self.folder, as_of="1d")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    folder = tmp_path_factory.mktemp("stores") / "ci-history"
    with worlds.sandbox(builds=200, days=4) as ci:
        suites = ci.sandbox.suites()
        first = bf.Store(folder).sync(ci, suites=suites, progress=False)
        flaky = ci.flaky_tests("rspec", period="28days", progress=False)
        ci.pipeline("docs").update(name="Handbook")
        ci.sandbox.push("handbook")
        ci.sandbox.clock.advance(dt.timedelta(days=2))
        bf.Store(folder).sync(ci, suites=suites, progress=False)
        yield Filled(folder, ci, first.version, flaky)


def fetched(ci: Workspace) -> dict[str, pd.DataFrame]:
    tables = ci.history(progress=False)
    return {name: getattr(tables, name).drop(columns=left_out) for name, left_out in LEFT_OUT.items()}


def own_fields(frame: pd.DataFrame) -> pd.DataFrame:
    """What the store has as the service has it: slug and addresses are as last seen."""
    if "triggered_build" in frame:  # JSON, with an address
        frame = frame.assign(triggered_build=frame["triggered_build"].str.replace("/docs/", "/handbook/"))
    seen = [name for name in frame if name in ("fetched_at", "pipeline") or name.endswith("url")]
    return frame.drop(columns=seen).sort_values("id", ignore_index=True)


# --- the same as a fetch


def test_all_that_is_stored_is_what_a_fetch_gives(filled: Filled) -> None:
    for name, there in fetched(filled.ci).items():
        stored = getattr(filled.store, name)()
        assert_frame_equal(stored.dtypes.to_frame(), there.dtypes.to_frame())
        assert_frame_equal(own_fields(stored), own_fields(there))
        assert len(stored) > 150


def test_the_order_is_newest_first(filled: Filled) -> None:
    assert filled.store.builds()["created_at"].is_monotonic_decreasing
    assert filled.store.jobs()["build_created_at"].is_monotonic_decreasing


@pytest.mark.long
@given(hours=st.tuples(st.integers(0, 150), st.integers(0, 150)).filter(lambda ends: ends[0] != ends[1]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_time_range_equals_the_listing_of_the_service(filled: Filled, hours: tuple[int, int]) -> None:
    filters = {"created_from": f"{max(hours)}h", "created_to": f"{min(hours)}h"}
    whole, now = filled.store.builds(), filled.store.as_of
    start, end = (now - dt.timedelta(hours=one) for one in (max(hours), min(hours)))
    inside = whole["created_at"].between(start, end, inclusive="left")
    assert_frame_equal(filled.store.builds(**filters), whole[inside].reset_index(drop=True))
    assert set(filled.store.jobs(**filters)["build_id"]) <= set(whole[inside]["id"])


def test_a_time_range_without_builds_has_the_columns_and_dtypes_of_all(filled: Filled) -> None:
    for read in (filled.store.builds, filled.store.jobs):
        empty = read(created_to="2020-01-01")
        assert len(empty) == 0
        assert_frame_equal(empty.dtypes.to_frame(), read().dtypes.to_frame())


def test_columns_beyond_a_fetch_are_those_of_the_metrics(filled: Filled) -> None:
    beside = ["queue_time_s", "dependency_wait_s", "run_time_s", "turnaround_s", "step", "day"]
    assert_frame_equal(filled.store.jobs(columns=beside), metrics.with_seconds(filled.store.jobs())[beside])
    builds = filled.store.builds(columns=["id", "state", "wall_time_s", "day", "is_open", "gone_at"])
    assert builds["wall_time_s"].equals(metrics.with_seconds(filled.store.builds())["wall_time_s"])
    assert set(builds[builds["is_open"]]["state"]) <= {"scheduled", "creating", "running", "failing", "canceling"}
    assert builds["gone_at"].isna().all()


SUMMARIES: dict[str, Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]] = {
    "percentiles": lambda builds, jobs: metrics.percentiles(jobs, of=metrics.queue_time, by="queue"),
    "waste": lambda builds, jobs: metrics.waste(jobs, by="pipeline_id"),
    "flips": lambda builds, jobs: metrics.flips(jobs),
    "trend": lambda builds, jobs: metrics.trend(builds, of=metrics.wall_time),
    "success_rate": lambda builds, jobs: metrics.success_rate(builds, by="pipeline_id"),
}


@pytest.mark.long
def test_numbers_from_the_store_are_those_of_a_fetch(filled: Filled) -> None:
    builds, jobs = filled.ci.history(progress=False)
    now = builds["fetched_at"].max()  # rows that were over when last seen are not requested again
    slugs = {"pipeline": "name"}
    stored = [frame.assign(fetched_at=now, **slugs) for frame in (filled.store.builds(), filled.store.jobs())]
    served = builds.assign(**slugs), jobs.assign(fetched_at=now, **slugs)
    for summary in SUMMARIES.values():
        assert_frame_equal(summary(*stored), summary(*served))


# --- one pipeline


def test_a_pipeline_has_its_builds_from_before_a_renaming(filled: Filled) -> None:
    id = filled.ci.pipeline("handbook").get().id
    whole = filled.store.builds()
    assert set(whole[whole["pipeline_id"] == id]["pipeline"]) == {"docs", "handbook"}
    own = whole[whole["pipeline_id"] == id].reset_index(drop=True)
    for name in ("handbook", "docs", id):
        assert_frame_equal(filled.store.builds(pipeline=name), own)
    assert set(filled.earlier.builds(pipeline="docs")["pipeline"]) == {"docs"}


def test_a_pipeline_that_was_never_seen_is_an_error_that_helps(filled: Filled) -> None:
    with pytest.raises(bf.BadInput, match="mean 'handbook'"):
        filled.store.jobs(pipeline="handbok")
    with pytest.raises(bf.BadInput, match="not in the store"):
        filled.earlier.builds(pipeline="handbook")


@pytest.mark.long
def test_a_store_of_one_pipeline_knows_its_names_from_its_builds(filled: Filled, tmp_path: Path) -> None:
    with worlds.sandbox(builds=60, days=2) as ci:
        store = bf.Store(tmp_path)
        store.sync(ci.pipeline("web"), progress=False)
        ci.pipeline("web").update(name="Front")
        ci.sandbox.clock.advance(dt.timedelta(days=1))
        ci.pipeline("front").create_build(commit="HEAD", branch="main")
        store.sync(ci.pipeline("front"), progress=False)
        builds = ci.pipeline("front").builds(progress=False)
    assert set(store.builds()["pipeline"]) == {"web", "front"}
    for name in ("web", "front"):
        assert set(store.builds(pipeline=name)["id"]) == set(builds["id"])
    with pytest.raises(bf.BadInput, match="not in the store"):
        store.builds(pipeline="api")
    with pytest.raises(bf.BadInput, match="Sync a workspace"):
        store.pipelines()


# --- what was then


def test_an_earlier_version_is_what_it_was(filled: Filled) -> None:
    then = filled.earlier
    assert then.version == filled.between
    assert then.as_of < filled.store.as_of
    assert_frame_equal(then.builds(), bf.Store(filled.folder, as_of=filled.between).builds())
    assert_frame_equal(then.builds(), bf.Store(filled.folder, as_of=then.as_of).builds())
    assert then.builds()["created_at"].max() < filled.store.builds()["created_at"].max()
    went_on = then.builds().merge(filled.store.builds(), on="id", suffixes=("_then", "_now"))
    assert (went_on["state_then"] != went_on["state_now"]).any()
    assert then.sql("SELECT count(*) AS n FROM builds")["n"].item() == len(then.builds())
    assert set(then.files("jobs")) != set(filled.store.files("jobs"))


def test_a_time_that_cannot_be_read_is_an_error(filled: Filled) -> None:
    wrong = [
        ("30d", r"first readable sync: version \d+ at 2026-10-30T15:00:00Z"),
        (-1, "first readable sync"),
        (10_000, "newest version is"),
        ("yesterday", "valid time"),
    ]
    assert wrong_refusals(wrong, lambda as_of: bf.Store(filled.folder, as_of=as_of).builds()) == {}


def test_the_past_is_not_written(filled: Filled) -> None:
    for write in (lambda: filled.earlier.sync(filled.ci), filled.earlier.compact, filled.earlier.clean):
        with pytest.raises(bf.BadInput, match="earlier state"):
            write()


def test_attrs_contain_the_coverage(filled: Filled, tmp_path: Path) -> None:
    assert filled.store.covers == {"acme": (bf.Store(filled.folder).as_of - dt.timedelta(days=92), filled.store.as_of)}
    builds = filled.store.builds()
    assert builds.attrs == {
        "table": "builds",
        "source": str(filled.folder),
        "as_of": "2026-11-01T15:00:00Z",
        "version": filled.store.version,
        "covers": {"acme": ["2026-08-01T15:00:00Z", "2026-11-01T15:00:00Z"]},
    }
    bf.save(tmp_path / "builds.parquet", builds)
    assert_frame_equal(bf.load(tmp_path / "builds.parquet"), builds)


# --- lists


def test_a_board_then_and_now_is_that_of_two_fetches(filled: Filled) -> None:
    board = metrics.flaky_board(filled.store.flaky_tests("rspec"), before=filled.earlier.flaky_tests("rspec"))
    now = filled.ci.flaky_tests("rspec", period="28days", progress=False)
    assert_frame_equal(board, metrics.flaky_board(now, before=filled.flaky_then))
    assert board["status"].nunique() > 2


def test_the_history_of_a_list_has_each_state_from_when_to_when(filled: Filled) -> None:
    kept = filled.store.flaky_tests("rspec", history=True)
    first, last = filled.earlier.as_of, filled.store.as_of
    then = kept[(kept["valid_from"] <= first) & ~(kept["valid_to"] <= first)]
    now = kept[kept["valid_to"].isna()]
    assert set(then["id"]) == set(filled.flaky_then["id"])
    assert set(now["id"]) == set(filled.store.flaky_tests("rspec")["id"])
    assert set(now["fetched_at"]) == {last}  # also of those that are as they were
    assert set(kept[kept["valid_to"].notna()]["fetched_at"]) == {first}
    names = filled.store.pipelines(history=True).set_index("slug")
    assert names.loc["docs", "valid_to"] == names.loc["handbook", "valid_from"] == last


def test_members_suites_and_tables_that_were_not_kept_are_named(filled: Filled) -> None:
    with pytest.raises(bf.BadInput, match=r"'members'.*personal=True"):
        filled.store.members()
    with pytest.raises(bf.BadInput, match=r"suite='rspc'.*'rspec'"):
        filled.store.flaky_tests("rspc")
    with pytest.raises(bf.BadInput, match=r"'nope'.*builds, jobs"):
        filled.store.files("nope")


# --- SQL


def test_sql_sees_the_rows_and_the_dtypes_of_the_store(filled: Filled) -> None:
    whole = filled.store.builds()
    names = ", ".join(f'"{name}"' for name in whole)
    answer = filled.store.sql(f"SELECT {names} FROM builds ORDER BY id")
    assert_frame_equal(answer, whole.sort_values("id", ignore_index=True))
    by_state = filled.store.sql("SELECT state, count(*) AS n FROM builds GROUP BY state ORDER BY state")
    assert by_state.set_index("state")["n"].to_dict() == whole["state"].value_counts().to_dict()


def test_a_relation_has_the_rows_of_its_version(filled: Filled) -> None:
    connection = duckdb.connect()
    for store in (filled.store, filled.earlier):
        jobs = store.relation("jobs", connection)
        assert jobs.columns == list(store.jobs())
        found = input_frames.read_columns(jobs.order("id"), ["id", "state", "started_at", "exit_status"])
        assert_frame_equal(found, store.jobs()[list(found)].sort_values("id", ignore_index=True))
    assert filled.store.relation("builds", connection, columns=["day", "id"]).columns == ["day", "id"]
    calls = [
        ("connection=None is not a DuckDB connection", lambda: filled.store.relation("jobs", None)),
        ("'logs' is not a table of the store", lambda: filled.store.relation("logs", connection)),
        (
            "'nonsense' is not a stored column of jobs",
            lambda: filled.store.relation("jobs", connection, columns=["nonsense"]),
        ),
    ]
    assert wrong_messages(calls) == {}


def test_sql_joins_tables_and_counts_days_in_utc(filled: Filled) -> None:
    wrong = filled.store.sql(
        """SELECT count(*) AS n FROM jobs JOIN builds ON builds.id = jobs.build_id
        WHERE jobs.day <> builds.created_at::DATE OR builds.day <> date_trunc('day', builds.created_at)::DATE"""
    )
    assert wrong["n"].item() == 0


def test_errors_of_duckdb_are_shown(filled: Filled) -> None:
    unknown, of_type, of_range = "nothing FROM nowhere", "state::INT FROM jobs", "(number + 1000)::TINYINT FROM builds"
    pattern = r"DuckDB rejects(?s:.*)Tables of this store: builds, jobs"
    cases = [(f"SELECT {query}", pattern) for query in (unknown, of_type, of_range)]
    assert wrong_refusals(cases, filled.store.sql) == {}


INTERRUPTED = """
import builtins, itertools, signal, sys
import buildframe as bf

error = getattr(builtins, sys.argv[2])
store = bf.Store(sys.argv[1])
store.sql("SELECT 1")  # an import that is interrupted can leave half a module

def interrupt(*_):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    raise error

def in_query(frame, event, _):
    return at_line if (frame.f_code.co_filename[-9:], frame.f_code.co_name) == ("frames.py", "query") else None

def at_line(frame, event, _):
    if event == "line":
        signal.setitimer(signal.ITIMER_REAL, next(delays))
    return at_line

for n_lines in range(30):
    delays = itertools.chain(n_lines * [0.1], [5e-5], itertools.repeat(0.1))
    signal.signal(signal.SIGALRM, interrupt)
    sys.settrace(in_query)
    try:
        store.sql("SELECT a.range FROM range(3000000) a, range(1000000) b WHERE a.range + b.range = 7")
    except error:
        sys.settrace(None)
        print("interrupted")
"""


@pytest.mark.long
def test_an_interrupt_ends_a_query_at_any_time(filled: Filled) -> None:
    """DuckDB turns one into a RuntimeError in some statements, so it comes at each line."""
    for error in ("KeyboardInterrupt", "SystemExit"):
        ended = preloaded.run(INTERRUPTED, [str(filled.folder), error], os.environ, 60)
        assert (ended.stdout, ended.stderr) == (30 * "interrupted\n", "")


# --- what is said


UNREADABLE: list[tuple[dict[str, Any], str]] = [
    ({"columns": ["creator"]}, "'creator' .*'creator_id'"),
    ({"columns": []}, "is not a list"),
    ({"columns": "id"}, "list of text"),
    ({"columns": ["id", "id"]}, "a name twice"),
    ({"created_from": "1d", "created_to": "2d"}, "range is empty"),
    ({"created_from": dt.datetime(2026, 10, 1)}, "no time zone"),
    ({"pipeline": 3}, "pipeline=3: pass text"),
]


def test_what_cannot_be_read_is_refused(filled: Filled) -> None:
    assert wrong_refusals(UNREADABLE, lambda filters: filled.store.builds(**filters)) == {}


def test_where_there_is_no_store_nothing_is_made(tmp_path: Path) -> None:
    store = bf.Store(tmp_path / "none")
    for read in (store.builds, store.pipelines, store.compact, store.clean, lambda: store.sql("SELECT 1")):
        with pytest.raises(bf.BadInput, match="no store at"):
            read()
    assert not (tmp_path / "none").exists()
    for read in (bf.Store(tmp_path).builds, bf.Store(tmp_path).compact, bf.Store(tmp_path).clean):
        with pytest.raises(bf.BadInput, match="no store at"):
            read()
    assert list(tmp_path.iterdir()) == []


def test_options_of_an_object_store_are_not_shown() -> None:
    store = bf.Store("s3://bucket/ci", storage_options={"AWS_SECRET_ACCESS_KEY": "hush"}, as_of="7d")
    assert repr(store) == "<Store at s3://bucket/ci as of 7d>"
    assert "hush" not in f"{vars(store)}"


@pytest.mark.long
def test_compacted_it_reads_the_same_from_fewer_files_and_cleaned_of_what_nobody_names(
    filled: Filled, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(filled.folder, folder)
    store = bf.Store(folder)
    before, many = store.jobs(), sum(len(store.files(name)) for name in ("builds", "jobs"))
    fewer = store.compact()
    assert fewer > 0
    assert sum(len(store.files(name)) for name in ("builds", "jobs")) == many - fewer
    assert_frame_equal(own_fields(store.jobs()), own_fields(before))
    assert store.compact() == 0
    day = next((folder / "jobs").glob("day=*"))
    shutil.copy(next(day.glob("*.parquet")), day / "left-over.parquet")
    os.utime(day / "left-over.parquet", (0, 0))
    assert store.clean("1d") == 1
    assert not (day / "left-over.parquet").exists()
    assert_frame_equal(bf.Store(folder, as_of=filled.between).jobs(), filled.earlier.jobs(), check_like=True)


def loaded_by(statement: str) -> str:
    run = [sys.executable, "-c", f"import sys; import buildframe as bf; {statement}"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.long
def test_packages_of_the_store_are_loaded_at_first_use() -> None:
    loaded = "print(sorted({'deltalake', 'duckdb'} & set(sys.modules)))"
    assert loaded_by(f"bf.connect('a', token='a-test-token'); bf.Store; {loaded}") == "[]\n"
    assert loaded_by(f"bf.Store('none'); {loaded}") == "['deltalake']\n"


@pytest.mark.long
@pytest.mark.parametrize("package", ["deltalake", "duckdb"])
def test_without_the_extra_it_is_named(filled: Filled, package: str) -> None:
    said = loaded_by(f"sys.modules[{package!r}] = None; bf.Store({str(filled.folder)!r}).sql('SELECT 1')")
    assert 'pip install "buildframe[store]"' in said.splitlines()[-1]
    assert "MissingExtra" in said.splitlines()[-1]
