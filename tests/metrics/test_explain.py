"""Contributions add up to the difference of means, their intervals hold, and what is planted comes first."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import metrics
from tests.metrics.any_frame import LIBRARIES
from tests.metrics.each_case import for_each
from tests.refusals import refusal, wrong_messages

START = pd.Timestamp("2026-09-01", tz="UTC")
TEXTS = ["build_id", "pipeline", "branch", "kind", "step", "queue"]


def ledger(rows: list[tuple[int, int, str, float]], **more: str | None) -> pd.DataFrame:
    """A ledger of rows (build, day, step, seconds)."""
    frame = pd.DataFrame(rows, columns=["build_id", "day", "step", "duration_s"])
    created = START + pd.to_timedelta(frame.pop("day"), unit="D")
    usual = {"pipeline": "api", "branch": "main", "kind": "run", "queue": "linux"} | more
    frame = frame.assign(build_created_at=created.dt.as_unit("us"), **usual)
    return frame.astype(dict.fromkeys(TEXTS, "str"))


def world(seed: int, *, steps: int = 10, day_sd: float = 0.1, slower: int | None = None) -> pd.DataFrame:
    """35 days of 40 builds, each with most of the steps; `slower` takes half as long again from day 28."""
    random = np.random.default_rng(seed)
    day = np.repeat(np.arange(35), 40)
    parts = []
    for step in range(steps):
        of_day = random.normal(0, day_sd, 35)[day]
        seconds = random.uniform(5, 300) * np.exp(of_day + random.normal(0, 0.4, len(day)))
        if step == slower:
            seconds = np.where(day >= 28, 1.5 * seconds, seconds)
        occurs = np.flatnonzero(random.random(len(day)) < (1 if step == slower else random.choice([1, 1, 0.3, 0.05])))
        parts.append(
            pd.DataFrame({"build_id": occurs, "day": day[occurs], "step": f"s{step}", "s": seconds[occurs].round(6)})
        )
    table = pd.concat(parts, ignore_index=True)
    return ledger(list(table.itertuples(index=False, name=None)))


def halves(frame: pd.DataFrame, first: int = 28, last: int = 35) -> tuple[pd.DataFrame, pd.DataFrame]:
    day = (frame["build_created_at"] - START).dt.days
    return frame[day < 28], frame[(day >= first) & (day < last)]


def mean_wall(frame: pd.DataFrame) -> float:
    return frame.groupby("build_id")["duration_s"].sum().mean()


def headship() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Households per 100 persons by age in 1970 and 1985 (Das Gupta 1993, table 5.1), as seconds of 1,000 builds."""
    sizes = [
        [129, 109, 95, 80, 78, 84, 86, 78, 70, 59, 47, 36, 49],
        [101, 112, 116, 109, 94, 77, 63, 60, 63, 59, 51, 40, 55],
    ]
    rates = [
        [1.9, 25.8, 45.7, 49.6, 51.2, 51.6, 51.8, 54.9, 58.7, 60.4, 62.8, 66.6, 66.8],
        [2.2, 24.3, 45.8, 52.5, 56.1, 55.6, 56.0, 57.4, 57.2, 61.2, 63.9, 68.6, 72.2],
    ]
    sides = []
    for year, (many, rate) in enumerate(zip(sizes, rates, strict=True)):
        age = np.repeat(np.arange(13), many)
        rows = [(1000 * year + i, i % 10, "head", rate[a]) for i, a in enumerate(age)]
        sides.append(ledger(rows).assign(branch=age.astype(str)))
    return sides[0], sides[1]


def test_the_symmetrical_decomposition_of_a_published_table() -> None:
    rows = metrics.explain(*headship(), by="branch", allow_reversed=True)
    effects = rows.groupby("effect")["change_s"].sum()
    assert effects["time"] == pytest.approx(1.7403)
    assert effects["mix"] == pytest.approx(1.2269)
    assert mean_wall(headship()[0]) == pytest.approx(44.7268)


@for_each({"all": None, "one key": "branch", "two keys": ["pipeline", "branch"]})
def test_contributions_add_up(by: str | list[str] | None) -> None:
    frame = world(3)
    frame["branch"] = np.where(frame["build_id"].astype(int) % 3 == 0, "main", "feature")
    before, after = halves(frame)
    after = after[(after["branch"] == "main") | (after["build_id"].astype(int) % 2 == 0)]  # another mix
    rows = metrics.explain(before, after, by=by)
    assert rows["change_s"].sum() == pytest.approx(mean_wall(after) - mean_wall(before), abs=1e-9)
    assert (rows["after_s"] - rows["before_s"]).to_numpy() == pytest.approx(rows["change_s"].to_numpy())


SEGMENTS = st.tuples(st.integers(0, 8), st.integers(0, 3), st.sampled_from("abc"), st.integers(-3, 10**7))


@pytest.mark.long
@given(st.lists(SEGMENTS, min_size=1, max_size=30), st.lists(SEGMENTS, min_size=1, max_size=30), st.randoms())
@settings(max_examples=30)
def test_contributions_add_up_whatever_the_segments(one: list, other: list, random: object) -> None:
    sides = []
    for offset, rows in ((0, one), (100, other)):
        days = {build: day for build, day, _, _ in rows}  # a build has one time of creation
        segments = [(offset + build, days[build], step, micros / 1e6) for build, _, step, micros in rows]
        sides.append(ledger(segments).assign(branch=lambda f: "b" + (f["build_id"].astype(int) % 2).astype(str)))
    before, after = sides
    difference = mean_wall(after) - mean_wall(before)
    for by in (None, "branch"):
        rows = metrics.explain(before, after, by=by, allow_reversed=True)
        assert rows["change_s"].sum() == pytest.approx(difference, abs=1e-6)
        reordered = before.sample(frac=1, random_state=1), after.iloc[::-1]
        shuffled = metrics.explain(*reordered, by=by, allow_reversed=True)
        pd.testing.assert_frame_equal(rows, shuffled, check_exact=False, rtol=1e-9, atol=1e-9)


def test_a_group_on_one_side_changes_the_mix_only() -> None:
    before = ledger([(i, i % 5, "a", 10.0) for i in range(20)])
    after = pd.concat(
        [
            ledger([(100 + i, 5 + i % 5, "a", 10.0) for i in range(10)]),
            ledger([(200 + i, 5 + i % 5, "a", 40.0) for i in range(10)], branch="slow"),
        ]
    )
    rows = metrics.explain(before, after, by="branch").set_index(["branch", "effect"])
    assert ("slow", "time") not in rows.index
    assert rows["change_s"].sum() == pytest.approx(15)
    assert rows.loc[("main", "time"), "change_s"] == 0
    assert pd.isna(rows.loc[("slow", "mix"), "step"])


def branches(seed: int, shares: tuple[float, float], days: int, slower: float = 0.0) -> pd.DataFrame:
    """28 days and some more, of 40 builds of branches 0 and 1; 1 has a share of the builds before, and one after."""
    random = np.random.default_rng(seed)
    day = np.repeat(np.arange(28 + days), 40)
    is_new = random.random(len(day)) < np.where(day >= 28, shares[1], shares[0])
    of_day = random.normal(0, 0.1, 28 + days)[day]
    seconds = 100 * np.exp(of_day + random.normal(0, 0.4, len(day))) + slower * is_new
    frame = ledger(list(zip(range(len(day)), day, ["a"] * len(day), seconds.round(6), strict=True)))
    return frame.assign(branch=is_new.astype(int).astype(str))


@pytest.mark.long
@pytest.mark.parametrize(("shares", "days"), [((0.3, 0.6), 7), ((0, 0.2), 1), ((0.1, 0.9), 1)])
def test_other_shares_of_equal_groups_are_not_notable(shares: tuple[float, float], days: int) -> None:
    covered, alarms = [], 0
    for seed in range(40):
        rows = metrics.explain(*halves(branches(seed, shares, days), last=28 + days), by="branch")
        mix = rows[(rows["effect"] == "mix") & rows["low_s"].notna()]
        covered += [*(mix["low_s"] <= 0) & (mix["high_s"] >= 0)]
        alarms += mix["notable"].any()
    assert np.mean(covered) >= 0.9
    assert alarms <= 5


@pytest.mark.long
def test_the_interval_of_a_share_contains_its_effect() -> None:
    """Branch 1 takes 50 s longer, and has 30 % of the builds before, 60 % after: it adds 0.3 * 50 * (1 - 0.45) s."""
    covered = []
    for seed in range(60):
        rows = metrics.explain(*halves(branches(seed, (0.3, 0.6), 7, slower=50)), by="branch")
        one = rows[rows["effect"] == "mix"].set_index("branch").loc["1"]
        assert one["notable"]
        covered.append(one["low_s"] <= 8.25 <= one["high_s"])
    assert np.mean(covered) >= 0.88


def test_the_tail_is_the_mean_of_the_slowest_builds() -> None:
    before = ledger([(i, i % 10, "a", float(i)) for i in range(25)] + [(i, i % 10, "b", 1.0) for i in range(25)])
    after = ledger([(100 + i, 10 + i % 10, "a", float(i)) for i in range(25)])
    rows = metrics.explain(before, after, tail=0.1).set_index("step")
    slowest = (24 + 23 + 0.5 * 22) / 2.5  # a tenth of 25 builds
    assert rows.loc["a", "before_s"] == rows.loc["a", "after_s"] == pytest.approx(slowest)
    assert rows.loc["b", "change_s"] == pytest.approx(-1)
    assert rows.loc["b", "notable"]
    whole = metrics.explain(before, after, tail=1)
    assert whole["change_s"].sum() == pytest.approx(mean_wall(after) - mean_wall(before))


def test_few_days_give_the_tail_no_interval() -> None:
    before, after = halves(world(1))
    assert metrics.explain(before, after, tail=0.1)["low_s"].isna().all()  # seven days
    is_early = before["build_created_at"] < START + pd.Timedelta(8, "D")
    assert metrics.explain(before[is_early], before[~is_early], tail=0.1)["low_s"].notna().any()


def test_frames_of_other_libraries() -> None:
    before, after = halves(world(2, steps=4))
    expected = metrics.explain(before, after, by="branch")
    for one, other in itertools.pairwise([LIBRARIES["polars, lazy"], LIBRARIES["duckdb"], pl.from_pandas]):
        result = metrics.explain(one(before), other(after), by="branch")
        pd.testing.assert_frame_equal(result, expected, check_exact=False, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("days", [7, 1])
def test_intervals_hold_and_nothing_is_notable_without_a_change(days: int) -> None:
    covered, alarms = [], 0
    for seed in range(40):
        rows = metrics.explain(*halves(world(1000 + seed), last=28 + days))
        known = rows[rows["low_s"].notna()]
        covered += [*((known["low_s"] <= 0) & (known["high_s"] >= 0))]
        alarms += rows["notable"].any()
    assert np.mean(covered) >= 0.92
    assert alarms <= 6


@pytest.mark.long
@pytest.mark.parametrize("days", [7, 1])
def test_the_slower_step_is_the_most_certain(days: int) -> None:
    found = sum(
        metrics.explain(*halves(world(seed, slower=0), last=28 + days)).sort_values("p")["step"].iloc[0] == "s0"
        for seed in range(20)
    )
    assert found >= (19 if days == 7 else 14)


def test_a_new_step_is_notable() -> None:
    frame = world(4, steps=3)
    before, after = halves(frame)
    builds = after.drop_duplicates("build_id").assign(step="scan", duration_s=30.0)
    rows = metrics.explain(before, pd.concat([after, builds])).set_index("step")
    assert rows.loc["scan", "change_s"] == pytest.approx(30)
    assert rows.loc["scan", "notable"]
    assert (rows.loc["scan", "builds_before"], rows.loc["scan", "builds_after"]) == (0, 280)


def test_rare_segments_have_no_interval() -> None:
    before, after = halves(world(5, steps=3))
    rare = after.drop_duplicates("build_id").head(4).assign(step="rare")
    row = metrics.explain(before, pd.concat([after, rare])).set_index("step").loc["rare"]
    assert pd.isna(row["low_s"])
    assert pd.isna(row["p"])
    assert not row["notable"]


def test_equal_segments_have_not_changed() -> None:
    """Sums of 0.3 s are not multiples of it, so means differ by rounding."""
    for seconds in (0.1, 0.3, 2.1, 6.338, 33.333333):
        before = ledger([(i, i // 7, "a", seconds) for i in range(70)])
        after = ledger([(100 + i, 10 + i // 3, "a", seconds) for i in range(10)])
        for by in (None, "branch"):
            rows = metrics.explain(before, after, by=by)
            assert (rows["change_s"].abs() < 1e-9).all()
            assert rows["p"].tolist() == [1.0] * len(rows)
            assert not rows["notable"].any()
        assert metrics.explain(before, after)["change_s"].tolist() == [0.0]


def test_a_change_between_constants_is_certain_if_both_sides_have_five_builds() -> None:
    for n_before, n_after, p in ((5, 5, 0.0), (4, 9, None), (9, 4, None)):
        before = ledger([(i, i % 3, "a", 2.0) for i in range(n_before)])
        after = ledger([(100 + i, 5 + i % 3, "a", 2.000001) for i in range(n_after)])
        row = metrics.explain(before, after).iloc[0]
        assert row["change_s"] == pytest.approx(1e-6)
        assert row["notable"] == (p is not None)
        assert pd.isna(row["p"]) if p is None else row["p"] == p


def test_new_segments_need_five_builds_on_both_sides() -> None:
    after = ledger([(100 + i, 10 + i % 5, step, 10.0) for i in range(30) for step in "ab"])
    others = ledger([(500 + i, i % 5, "a", 10.0) for i in range(20)], branch="other")
    for n_before in (1, 4, 5):
        before = ledger([(i, i, "a", 10.0) for i in range(n_before)])
        alone = metrics.explain(before, after)
        by_branch = metrics.explain(pd.concat([before, others]), after, by="branch")
        for rows in (alone, by_branch):
            row = rows.set_index("step").loc["b"]
            assert row["builds_before"] == 0, n_before
            assert row["notable"] == (n_before >= 5), n_before
            assert pd.isna(row["p"]) == (n_before < 5), n_before


def test_builds_that_have_not_ended_are_counted_by_side() -> None:
    before, after = halves(world(1, steps=2))
    days = (0, 27, 28, 34, 35)  # the last is that of neither ledger
    created = [(START + pd.Timedelta(day, "D")).isoformat() for day in days]
    running = {
        "pipeline": ["api"] * len(days) + ["other", "api"],
        "build_created_at": [*created, created[2], None],
    }
    for side in (before, after):
        side.attrs["open"] = running
    counts = {"n_open_before": 2, "n_open_after": 2}
    assert metrics.explain(before, after).attrs.items() >= counts.items()
    # In Pacific time, midnight in UTC is the day before, as are the builds of the ledgers.
    assert metrics.explain(before, after, tz="America/Los_Angeles").attrs.items() >= counts.items()
    after.attrs = {}
    assert metrics.explain(before, after).attrs.items() >= {"n_open_before": 2, "n_open_after": None}.items()


def test_builds_of_another_organization_that_have_not_ended_are_not_counted() -> None:
    before, after = (side.assign(organization="acme") for side in halves(world(1, steps=2)))
    opened = {"pipeline": ["api"] * 3, "build_created_at": [START.isoformat()] * 3}
    for side in (before, after):
        side.attrs["open"] = {"organization": ["acme", "globex", "globex"], **opened}
    assert metrics.explain(before, after).attrs["n_open_before"] == 1
    before.attrs["open"] = opened  # without the column
    assert metrics.explain(before, after).attrs["n_open_before"] == 3


def test_invalid_arguments() -> None:
    cases: list[tuple[str, dict]] = [
        ("tail=0 is not a fraction in (0, 1]", {"tail": 0}), ("tail='0.1' is not a fraction", {"tail": "0.1"}),
        ("tail=True is not a fraction", {"tail": True}),
        ("by and tail cannot be combined", {"tail": 0.1, "by": "branch"}),
        ("by='effect': the result has a column of this name", {"by": "effect"}),
        ("name columns of the ledgers", {"by": metrics.step}), ("differ in it", {"by": "step"}),
        ("not a time zone", {"tz": "Mars"}),
    ]  # fmt: skip
    call = functools.partial(metrics.explain, *halves(world(0, steps=3)))
    assert wrong_messages((words, functools.partial(call, **change)) for words, change in cases) == {}


def test_pipelines_of_two_organizations_are_apart() -> None:
    """The same pipeline, step and queue: it takes 100 s longer in one organization, and in the other it does not."""
    sides = []
    for first, slower in ((0, 0.0), (100, 100.0)):
        rows = [(first + i, first // 10 + i // 8, "a", 20.0 + i % 3 + slower * (i % 2)) for i in range(40)]
        frame = ledger(rows)
        is_other = frame["build_id"].astype(int) % 2 == 1
        sides.append(frame.assign(organization=is_other.map({True: "globex", False: "acme"}).astype("str")))
    rows = metrics.explain(*sides)
    assert list(rows)[:5] == ["kind", "organization", "pipeline", "step", "queue"]
    assert rows[["organization", "notable"]].to_numpy().tolist() == [["globex", True], ["acme", False]]
    for by, keys in (("organization", ["organization"]), ("pipeline", ["organization", "pipeline"])):
        rows = metrics.explain(*sides, by=by)
        assert list(rows)[: len(keys) + 1] == [*keys, "effect"]
        times = rows[rows["effect"] == "time"].set_index("organization")["change_s"]
        assert times.round(6).to_dict() == {"globex": pytest.approx(50, abs=1), "acme": pytest.approx(0, abs=1)}
    without = metrics.explain(sides[0], sides[1].drop(columns="organization"), by="pipeline")
    assert list(without)[:2] == ["pipeline", "effect"]
    assert len(without) == 2


def test_invalid_ledgers() -> None:
    before, after = halves(world(0, steps=3))
    is_other = before["step"] != "s0"
    naive = after.assign(build_created_at=after["build_created_at"].dt.tz_localize(None))
    without = after.assign(duration_s=after["duration_s"].where(after["step"] != "s0"))
    sides: list[tuple[str, tuple]] = [
        ("before: A list is not a frame", ([1], after)),
        ("Pass a ledger from metrics.time_ledger", ([1], after)),
        ("after: The times in 'build_created_at' have no time zone", (before, naive)),
        ("before: 'build_id' has nulls", (before.assign(build_id=before["build_id"].where(is_other)), after)),
        ("after: the ledger has no builds", (before, after.iloc[:0])),
        ("is in both ledgers", (before, before)),
        ("before: The frame has no column 'duration_s'", (before.drop(columns="duration_s"), after)),
        ("from metrics.time_ledger", (before.drop(columns="duration_s"), after)),
        ("after: 'duration_s' has nulls", (before, without)),
    ]
    assert wrong_messages((words, functools.partial(metrics.explain, *own)) for words, own in sides) == {}
    both = before.assign(q="x"), after.assign(q="x")
    assert "a column 'q' of its own" in refusal(metrics.explain, *both, by="q")
