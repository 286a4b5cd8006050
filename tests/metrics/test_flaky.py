from __future__ import annotations

import datetime as dt

import duckdb
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buildframe as bf
from buildframe.metrics.flaky import flaky_board
from tests.metrics.any_frame import connect_duckdb
from tests.metrics.metric_frames import UTC, at
from tests.refusals import columns_not_named, wrong_messages

Row = tuple[str, int | None, float | None, float | None]


def listed(*rows: Row, fetched: float | None = 100) -> pd.DataFrame:
    """A list of tests: id, instances, minute of the latest occurrence, minute of the last resolution."""
    ids, instances, seen, resolved = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pd.DataFrame(
        {
            "id": pd.Series(ids, dtype="str"),
            "scope": pd.Series([f"Scope of {id}" for id in ids], dtype="str"),
            "name": pd.Series([f"is {id}" for id in ids], dtype="str"),
            "location": pd.Series([f"./spec/{id}_spec.rb:3" for id in ids], dtype="str"),
            "instances": pd.Series(instances, dtype="Int64"),
            "latest_occurrence_at": at(*seen),
            "last_resolved_at": at(*resolved),
            "fetched_at": at(*[fetched] * len(rows)),
        }
    )


def of(board: pd.DataFrame, name: str) -> dict[str, object]:
    return dict(zip(board["id"], board[name].astype(object).where(board[name].notna(), None), strict=True))


def test_a_board_of_four_tests():
    board = flaky_board(listed(("a", 3, 90, None), ("b", 7, 40, 60), ("c", 3, 95, 80), ("d", None, None, 10)))
    assert board["id"].tolist() == ["b", "c", "a", "d"]
    assert of(board, "last_seen_s") == {"b": 3600, "c": 300, "a": 600, "d": None}
    assert of(board, "age_at_least_s") == {"b": 3600, "c": 1200, "a": 600, "d": 5400}
    assert of(board, "is_resolved") == {"b": True, "c": False, "a": False, "d": True}
    assert of(board, "recurred") == {"b": False, "c": True, "a": False, "d": False}
    assert {name: str(dtype) for name, dtype in board.dtypes.items()} == {
        "id": "str", "scope": "str", "name": "str", "location": "str", "instances": "Int64",
        "latest_occurrence_at": UTC, "last_resolved_at": UTC, "is_resolved": "boolean", "recurred": "boolean",
        "last_seen_s": "float64", "age_at_least_s": "float64",
    }  # fmt: skip


LIVES = [  # instances, seen and resolved: before and now; then the status and the new instances
    (None, (4, 150, None), "new", None),
    (None, (4, 150, 140), "came_back", None),  # resolved and forgotten, then seen again
    (None, (4, 150, 160), "resolved", None),
    ((3, 90, None), (5, 150, None), "still", 2),
    ((3, 90, None), (3, 90, None), "still", 0),
    ((3, 90, 50), (5, 150, 50), "still", 2),  # came back before the first list already
    ((3, 90, None), (2, 90, None), "still", -1),
    ((3, 90, None), (3, 90, 120), "resolved", 0),
    ((3, 90, 95), (3, 90, 95), "resolved", 0),
    ((3, 90, 90), (3, 90, 90), "resolved", 0),
    ((3, 90, 95), (4, 150, 95), "came_back", 1),
    ((3, 90, 95), (4, 150, None), "came_back", 1),  # reopened manually
    ((3, 90, None), (4, 150, 120), "came_back", 1),  # resolved between the lists
    ((3, 90, 50), (4, 150, 120), "came_back", 1),
    ((3, 90, 95), (4, 150, 170), "resolved", 1),
    ((3, 90, None), None, "quiet", None),
    ((3, 90, 95), None, "resolved", None),
]


def test_what_became_of_each_test():
    ids = [f"{number:02}" for number in range(len(LIVES))]
    before = listed(*((id, *then) for id, (then, *_) in zip(ids, LIVES, strict=True) if then))
    tests = listed(*((id, *now) for id, (_, now, *_) in zip(ids, LIVES, strict=True) if now), fetched=200)
    board = flaky_board(tests, before)
    assert of(board, "status") == {id: status for id, (*_, status, _) in zip(ids, LIVES, strict=True)}
    assert of(board, "new_instances") == {id: new for id, (*_, new) in zip(ids, LIVES, strict=True)}
    assert (str(board["status"].dtype), str(board["new_instances"].dtype)) == ("str", "Int64")
    first = [
        min(minute for minute in [*(then or ())[1:], *(now or ())[1:]] if minute is not None) for then, now, *_ in LIVES
    ]
    assert of(board, "age_at_least_s") == {id: 60 * (200 - at) for id, at in zip(ids, first, strict=True)}


def test_a_test_that_is_gone_keeps_what_was_known_of_it():
    board = flaky_board(listed(("a", 1, 190, None), fetched=200), listed(("gone", 5, 80, None)))
    assert board["id"].tolist() == ["gone", "a"]
    assert of(board, "name")["gone"] == "is gone"
    assert of(board, "last_seen_s") == {"gone": 7200, "a": 600}


def test_an_empty_list_has_no_time():
    board = flaky_board(listed(), listed(("a", 1, 50, None)))
    assert board["status"].tolist() == ["quiet"]
    assert board[["last_seen_s", "age_at_least_s"]].isna().all(axis=None)


def test_the_columns_are_the_same_whatever_the_rows():
    full = listed(("b", 1, 50, 70))
    board, compared = flaky_board(full).dtypes, flaky_board(full, full).dtypes
    for rows in ([], [("a", 1, 50, None)], [("a", None, None, None)]):
        assert flaky_board(listed(*rows)).dtypes.equals(board), rows
        assert flaky_board(listed(*rows), full).dtypes.equals(compared), rows
        assert flaky_board(full, listed(*rows)).dtypes.equals(compared), rows
        untyped = listed(*rows).astype(object).where(lambda cell: cell.notna(), None)
        untyped = untyped.assign(fetched_at=at(*[100] * len(rows)), latest_occurrence_at=at(*[50] * len(rows)))
        assert flaky_board(untyped).dtypes.equals(board), rows


ONE = listed(("a", 1, 50, None))


def test_what_makes_no_board():
    late, naive = listed(("a", 1, 50, None), fetched=101), ONE.assign(fetched_at=pd.Timestamp("2026-01-01"))
    assert wrong_messages([
        ("fetched after", lambda: flaky_board(ONE, late)),
        ("tests= contains the test 'a' twice", lambda: flaky_board(pd.concat([ONE, ONE]))),
        ("before= contains the test 'a' twice", lambda: flaky_board(ONE, pd.concat([ONE, ONE]))),
        ("without an id", lambda: flaky_board(ONE.assign(id=None))),
        ("no time zone", lambda: flaky_board(naive)),
        ("not a frame", lambda: flaky_board([1])),
    ]) == {}  # fmt: skip


def test_missing_columns_are_named():
    for to in (pd.DataFrame, pl.from_pandas):
        assert columns_not_named(lambda before, to=to: flaky_board(ONE, to(before)), ONE, ONE) == set(), to


def in_duckdb(frame: pd.DataFrame) -> duckdb.DuckDBPyRelation:
    connection = connect_duckdb("Asia/Kathmandu")
    connection.execute("CREATE TABLE tests AS SELECT * FROM frame")
    return connection.table("tests")


minute = st.integers(0, 99)
lists = st.lists(
    st.tuples(st.sampled_from("abcdefg"), minute, minute | st.none(), minute | st.none()), unique_by=lambda row: row[0]
)


@pytest.mark.long
@given(lists, lists, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_each_test_is_there_once_whatever_the_order(now, then, random):
    tests, before = listed(*now), listed(*then, fetched=99)
    board = flaky_board(tests, before)
    assert sorted(board["id"]) == sorted({row[0] for row in [*now, *then]})
    assert board["instances"].is_monotonic_decreasing
    assert (board["last_seen_s"].dropna() <= board["age_at_least_s"].reindex(board["last_seen_s"].dropna().index)).all()
    shuffled = tests.iloc[random.sample(range(len(tests)), len(tests))]
    pd.testing.assert_frame_equal(flaky_board(shuffled, before.iloc[::-1]), board)
    gone = set(before["id"]) - set(tests["id"])
    assert {of(board, "status")[id] for id in gone} <= {"resolved", "quiet"}
    absent = board[~board["id"].isin(before["id"]) | ~board["id"].isin(tests["id"])]
    assert absent["new_instances"].isna().all()


def test_frames_of_other_libraries():
    tests = listed(("a", 3, 90, None), ("b", 7, 40, 60), fetched=200)
    before = listed(("b", 7, 40, None), ("c", 1, 70, 80))
    expected = flaky_board(tests, before)
    pd.testing.assert_frame_equal(flaky_board(pl.from_pandas(tests), in_duckdb(before)), expected)
    pd.testing.assert_frame_equal(flaky_board(in_duckdb(tests), pl.from_pandas(before).lazy()), expected)


def test_two_lists_of_the_service():
    with bf.sandbox(builds=1, days=1) as ci:
        before = ci.flaky_tests(suite="rspec")
        ci.sandbox.clock.advance(dt.timedelta(days=5))
        tests = ci.flaky_tests(suite="rspec")
    board = flaky_board(tests, before)
    assert set(board["status"]) == {"new", "still", "quiet", "resolved", "came_back"}
    assert len(board) == len(set(tests["id"]) | set(before["id"]))
    assert (board.loc[board["status"] == "came_back", "latest_occurrence_at"] > before["fetched_at"].max()).all()
    assert not board.loc[board["status"].isin(["new", "still", "came_back"]), "is_resolved"].any()
    assert flaky_board(tests, tests)["status"].isin(["still", "resolved"]).all()
