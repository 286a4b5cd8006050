from __future__ import annotations

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe.metrics.flaky import flaky_board, flaky_lifecycle
from tests.metrics.any_frame import LIBRARIES
from tests.metrics.metric_frames import UTC, at
from tests.refusals import columns_not_named, refusal, wrong_messages

DAY = 24 * 60
READ = 40 * DAY  # when the list was last read, in minutes

State = tuple[str, float, float | None, int, float | None, float | None]


def kept(*states: State) -> pd.DataFrame:
    """A list as it changed: id, days from and until which a state was listed, instances, days of the latest
    occurrence and of the last resolution."""
    ids, first, until, instances, seen, resolved = zip(*states, strict=True) if states else ((),) * 6

    def days(values: tuple[float | None, ...]) -> pd.Series:
        return at(*[None if value is None else value * DAY for value in values])

    return pd.DataFrame(
        {
            "suite": pd.Series(["rspec"] * len(ids), dtype="str"),
            "id": pd.Series(ids, dtype="str"),
            "scope": pd.Series([f"Scope of {id}" for id in ids], dtype="str"),
            "name": pd.Series([f"is {id}" for id in ids], dtype="str"),
            "location": pd.Series([f"./spec/{id}_spec.rb:3" for id in ids], dtype="str"),
            "instances": pd.Series(instances, dtype="Int64"),
            "latest_occurrence_at": days(seen),
            "last_resolved_at": days(resolved),
            "fetched_at": days(
                tuple(READ / DAY if end is None else start for start, end in zip(first, until, strict=True))
            ),
            "valid_from": days(first),
            "valid_to": days(until),
        }
    )


OLD: State = ("old", 0, None, 9, 39, None)


LIVES = [  # states, then the last status, since which day, and how often it was reopened
    ([(0, None, 3, 38, None)], "active", 0, 0),  # may be older than what was kept, so it is not new
    ([(35, None, 3, 38, None)], "new", 35, 0),
    ([(33, None, 3, 38, None)], "new", 33, 0),
    ([(32, None, 3, 38, None)], "active", 32, 0),
    ([(0, None, 3, 25, None)], "quiet", 25, 0),
    ([(0, None, 3, 26, None)], "active", 0, 0),
    ([(35, None, 3, None, None)], "new", 35, 0),
    ([(0, None, 3, 20, 21)], "resolved", 21, 0),
    ([(0, 30, 3, 20, None)], "quiet", 20, 0),  # no longer listed
    ([(0, 30, 3, 20, None), (30, None, 3, 20, 29)], "resolved", 29, 0),
    ([(0, 30, 3, 20, 21), (30, None, 4, 29.5, 21)], "reopened", 29.5, 1),
    ([(0, 30, 3, 20, 21), (36, None, 4, 35.5, 21)], "reopened", 35.5, 1),
    ([(0, 30, 3, 29, None), (36, None, 4, 35.5, None)], "active", 0, 0),  # it was missing for six days
    ([(0, 30, 3, 29, None), (30, None, 4, 30, 29.5)], "reopened", 30, 1),  # resolved between two readings
    ([(0, 30, 3, 29, None), (36, None, 4, 29, None)], "active", 0, 0),  # without an occurrence since
    ([(0, 30, 3, None, None)], "quiet", 30, 0),  # it was seen before this reading
    ([(35, None, 4, 38, 34)], "reopened", 35, 1),  # resolved before it was known
    ([(0, 30, 3, 29, None), (30, None, 4, 30, None)], "active", 0, 0),
    ([(0, 10, 3, 9, 9.5), (10, 20, 4, 10, 9.5), (20, 30, 4, 10, 19), (30, None, 5, 29, 19)], "reopened", 29, 2),
    ([(0, 30, 3, 20, 21), (30, 36, 4, 20.5, 21), (36, None, 5, 37.5, 21)], "reopened", 36, 1),  # once
    ([(0, 10, 3, 9, 9.5), (10, None, 4, 10, 9.5)], "quiet", 10, 1),
    ([(0, 10, 3, 9, 9.5), (10, 30, 4, 10, 9.5), (30, None, 4, 10, 29)], "resolved", 29, 1),
]


def lives(cases: list[tuple], **options: str) -> pd.DataFrame:
    """What became of tests with these states, which are the first of each case, by their number."""
    states = [(f"{number:02}", *state) for number, (listed, *_) in enumerate(cases) for state in listed]
    return flaky_lifecycle(kept(OLD, *states), **options).set_index("id").drop(index="old").sort_index()


def test_what_became_of_each_test():
    result = lives(LIVES)
    found = [*zip(result["status"], result["since"], result["n_reopened"], strict=True)]
    assert found == [(status, at(since * DAY)[0], reopened) for _, status, since, reopened in LIVES]


def test_a_status_that_may_be_older_than_the_first_reading_is_marked():
    cases = [
        ([(10, None, 3, 38, None)], "active", 10, True),
        ([(0, None, 3, -1, None)], "active", -1, False),  # not later than its latest occurrence
        ([(0, None, 3, -1, -2)], "reopened", -1, False),  # before the first reading
        ([(0, 30, 3, -1, -2), (30, None, 4, 20, 10)], "reopened", 20, True),
        ([(0, None, 3, -2, -1)], "resolved", -1, True),
    ]
    result = lives(cases, quiet="99d")
    found = [*zip(result["status"], result["since"], result["known_since"], strict=True)]
    assert found == [(status, at(since * DAY)[0], known) for _, status, since, known in cases]
    quiet = lives([([(0, None, 3, 24, None)],)], quiet="14d").iloc[0]
    assert quiet[["status", "since", "known_since"]].tolist() == ["quiet", at(24 * DAY)[0], True]


def test_long_silence_resolves_a_test():
    gone, again = [(0, 12, 3, 5, None)], [(0, 12, 3, 5, None), (20, 30, 4, 19, None), (30, None, 5, 29, None)]
    cases = {
        "34d": (gone, "resolved", 39, 0),  # 35 days of silence at the last reading
        "35d": (gone, "quiet", 5, 0),
        "13d": (again, "reopened", 19, 1),
        "14d": (again, "active", 0, 0),
    }
    rows = {limit: lives([case], quiet="99d", resolved_after=limit).iloc[0] for limit, case in cases.items()}
    assert rows["35d"]["quiet_s"] == 35 * 86400  # not listed
    found = {limit: (row["status"], row["since"], row["n_reopened"]) for limit, row in rows.items()}
    assert found == {limit: (status, at(since * DAY)[0], n) for limit, (_, status, since, n) in cases.items()}


def test_a_test_that_flakes_every_eight_days_is_never_resolved_or_reopened():
    """Lists of 7 days, read every day, show it for 7 days and lack it for one."""
    states = [("a", day, day + 7, 1 + day // 8, day, None) for day in (0, 8, 16, 24, 32)]
    for is_listed in (False, True):
        history = kept(OLD, *states, *([("a", 40, None, 6, 40, None)] if is_listed else []))
        test = flaky_lifecycle(history).set_index("id").loc["a"]
        assert (test["status"], test["n_reopened"]) == ("active" if is_listed else "quiet", 0)
        assert test["quiet_s"] == (0 if is_listed else 8 * 86400)
    last, before = (kept(("other", 0, None, 1, 39, None)), kept(states[0]).assign(fetched_at=at(DAY)))
    assert flaky_board(last, before).set_index("id")["status"].to_dict() == {"a": "quiet", "other": "new"}


def test_silence_must_be_longer_than_the_period_of_the_lists():
    history = kept(OLD)
    assert len(flaky_lifecycle(history, resolved_after="8d")) == 1  # 7 days by default
    month = history.assign(period="28days")
    assert wrong_messages([
        ("resolved_after is 28 days", lambda: flaky_lifecycle(month, resolved_after="28d")),
        ("the period of a list, 28days", lambda: flaky_lifecycle(month, resolved_after="28d")),
        ("the period of a list, 7days", lambda: flaky_board(history, history, resolved_after="7d")),
    ]) == {}  # fmt: skip


def test_owners_are_those_of_the_last_state():
    history = kept(OLD, ("a", 0, 30, 3, 29, None), ("a", 30, None, 4, 29.5, None))
    result = flaky_lifecycle(history.assign(ownership_team_ids=pd.Series([None, '["x"]', '["y"]'], dtype="str")))
    assert result["ownership_team_ids"].fillna("").tolist() == ['["y"]', ""]


def test_other_columns():
    result = flaky_lifecycle(
        kept(OLD, ("a", 0, 30, 3, 29, None), ("b", 10, 20, 1, 9, None), ("b", 20, None, 2, 39, None))
    )
    assert result["id"].tolist() == ["a", "b", "old"]
    assert result["known_start"].tolist() == [False, True, False]
    assert result["first_listed_at"].tolist() == at(0, 10 * DAY, 0).tolist()
    assert result["listed_until"].tolist() == at(30 * DAY, READ, READ).tolist()
    assert result["instances"].tolist() == [3, 2, 9]
    assert result["latest_occurrence_at"].tolist() == at(29 * DAY, 39 * DAY, 39 * DAY).tolist()
    assert (result["quiet_s"] / 86400).tolist() == [11, 1, 1]
    assert {name: str(dtype) for name, dtype in result.dtypes.items()} == {
        "suite": "str", "id": "str", "scope": "str", "name": "str", "location": "str", "status": "str", "since": UTC,
        "known_since": "boolean", "first_listed_at": UTC, "known_start": "boolean", "listed_until": UTC,
        "instances": "Int64", "latest_occurrence_at": UTC, "quiet_s": "float64", "n_reopened": "Int64",
    }  # fmt: skip


def snapshots_of_tests(*rows: tuple[str, int, str, float | None]) -> pd.DataFrame:
    """The list of all tests, read every 10 days until day 40: id, day of the snapshot, labels and reliability."""
    ids, days, labels, reliability = zip(*rows, strict=True)
    until = [day + 10 if day < 40 else None for day in days]
    states = kept(*((id, day, end, 0, None, None) for id, day, end in zip(ids, days, until, strict=True)))
    only_flaky_tests = ["instances", "latest_occurrence_at", "last_resolved_at"]
    return states.drop(columns=only_flaky_tests).assign(
        labels=pd.Series(labels, dtype="str"), reliability=pd.Series(reliability, dtype="float64")
    )


FLAKY, STEADY = '["slow","flaky"]', "[]"


def test_the_list_of_all_tests_shows_those_that_are_labeled_flaky_and_passed_and_failed():
    history = snapshots_of_tests(
        *[("steady", day, STEADY, 1.0) for day in (0, 10, 20, 30, 40)],
        *[("broken", day, '["not flaky"]', 0.5) for day in (0, 40)],
        *[("always fails", day, FLAKY, 0.0) for day in (0, 40)],
        *[("labeled before", day, FLAKY, 1.0) for day in (0, 40)],
        ("not executed", 40, FLAKY, None),
        *[("active", day, FLAKY, 0.9) for day in (0, 10, 20, 30, 40)],
        *[("new", day, FLAKY, 1.0) for day in (0, 10, 20, 30)],
        ("new", 40, FLAKY, 0.8),
        ("quiet", 0, FLAKY, 1.0),
        *[("quiet", day, FLAKY, 0.9) for day in (10, 20)],
        *[("quiet", day, FLAKY, 1.0) for day in (30, 40)],
    )
    result = flaky_lifecycle(history)
    assert result["id"].tolist() == ["active", "new", "quiet"]
    assert result["status"].tolist() == ["active", "new", "quiet"]
    assert result["since"].tolist() == at(0, 40 * DAY, 30 * DAY).tolist()
    assert result["first_listed_at"].tolist() == at(0, 40 * DAY, 10 * DAY).tolist()
    assert result["known_start"].tolist() == [False, True, True]
    assert result["listed_until"].tolist() == at(40 * DAY, 40 * DAY, 30 * DAY).tolist()
    assert result[["instances", "latest_occurrence_at"]].isna().all(axis=None)
    assert result.dtypes.to_dict() == flaky_lifecycle(kept(OLD)).dtypes.to_dict()
    pd.testing.assert_frame_equal(flaky_lifecycle(pl.from_pandas(history)), result)
    assert flaky_lifecycle(history[history["id"] == "steady"]).empty


def test_a_start_is_known_if_an_earlier_snapshot_had_only_steady_tests():
    result = flaky_lifecycle(snapshots_of_tests(("a", 30, STEADY, 1.0), ("a", 40, FLAKY, 0.8)))
    assert result["known_start"].tolist() == [True]
    assert result["status"].tolist() == ["new"]


def test_snapshots_of_both_lists_are_one_history():
    """Of `flaky_tests` until day 30, of `tests` since; a steady test is in neither."""
    successor = snapshots_of_tests(*[("a", day, FLAKY, 0.9) for day in (30, 40)], ("steady", 40, STEADY, 1.0))
    result = flaky_lifecycle(pd.concat([kept(("a", 0, 30, 3, 29, None), ("b", 0, 30, 1, 28, None)), successor]))
    assert result.set_index("id")["status"].to_dict() == {"a": "active", "b": "quiet"}


def test_the_list_of_all_tests_needs_both_columns_that_decide():
    history = snapshots_of_tests(("a", 40, FLAKY, 0.8))
    assert columns_not_named(flaky_lifecycle, history, ["labels", "reliability"]) == set()
    for reliability, words in ((None, "has no value"), (98.0, "Divide percentages by 100")):
        assert words in refusal(flaky_lifecycle, snapshots_of_tests(("a", 40, FLAKY, reliability)))


def test_each_list_has_its_own_readings():
    other = kept(("x", 20, None, 1, 39, None)).assign(suite="jest")
    result = flaky_lifecycle(pd.concat([kept(OLD, ("a", 0, None, 3, 38, None)), other]), new="30d")
    assert dict(zip(result["suite"] + "/" + result["id"], result["status"], strict=True)) == {
        "jest/x": "active",  # its list was read for the first time then
        "rspec/a": "active",
        "rspec/old": "active",
    }


def test_a_history_of_nothing():
    result = flaky_lifecycle(kept())
    assert result.empty
    assert list(result) == list(flaky_lifecycle(kept(OLD)))


def test_frames_of_other_libraries():
    history = kept(OLD, ("a", 0, 30, 3, 20, 21), ("a", 30, None, 4, 29.5, 21))
    expected = flaky_lifecycle(history)
    for library, to in LIBRARIES.items():
        pd.testing.assert_frame_equal(flaky_lifecycle(to(history)), expected, obj=library)


def test_bad_input():
    twice = kept(("a", 0, 30, 3, 29, None), ("a", 0, None, 3, 29, None))
    assert wrong_messages([
        ("'a' twice", lambda: flaky_lifecycle(twice)),
        ("new='soon'", lambda: flaky_lifecycle(kept(OLD), new="soon")),
        ("no column 'valid_from'", lambda: flaky_lifecycle(kept(OLD).drop(columns="valid_from"))),
    ]) == {}  # fmt: skip


@st.composite
def readings(draw: st.DrawFn) -> list[dict[str, tuple[int, float, float | None]]]:
    """What a list held at each reading: of each test instances, latest occurrence and last resolution."""
    found: list[dict[str, tuple[int, float, float | None]]] = []
    for day in range(draw(st.integers(1, 6))):
        tests = draw(st.sets(st.sampled_from("abc")))
        moment = st.integers(0, 23).map(lambda hour, day=day: day + hour / 24)
        found.append({id: (day, draw(moment), draw(st.none() | moment)) for id in sorted(tests)})
    return found


@pytest.mark.long
@given(readings())
def test_two_lists_and_their_history_agree(lists):
    """The board of the last list and the one before names the same tests resolved, and as coming back just then."""
    states: list[State] = []
    for day, tests in enumerate(lists):
        until = None if day == len(lists) - 1 else day + 1
        states += [(id, day + 1.0, None if until is None else until + 1.0, *values) for id, values in tests.items()]
    if len(lists) < 2 or not lists[-1] or not lists[-2]:
        return
    result = flaky_lifecycle(kept(*states).sample(frac=1, random_state=1), new="0s", quiet="900d").set_index("id")
    last, before = (
        kept(*((id, day, None, *values) for id, values in lists[day - 1].items()))
        for day in (len(lists), len(lists) - 1)
    )
    board = flaky_board(last, before).set_index("id")["status"]
    assert ((result.loc[board.index, "status"] == "resolved") == (board == "resolved")).all()
    came_back = board.index[board == "came_back"]
    assert (result.loc[came_back, "status"] == "reopened").all()
    assert (result.loc[came_back, "since"] <= at(len(lists) * DAY)[0]).all()
