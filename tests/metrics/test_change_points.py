"""Change points: known answers, levels, suspects, time zones, and promises about chance."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import metrics
from buildframe.errors import BadInput
from tests.metrics.test_commit_search import HISTORIES, counts
from tests.refusals import wrong_messages

START = pd.Timestamp("2026-03-01", tz="UTC")
UTC = "datetime64[us, UTC]"

NILE = """
1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140 1100 1210 1150 1250 1260
1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831 726 456 824 702 1120 1100 832 764 821 768 845 864
862 698 845 744 796 1040 759 781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040 860 874 848 890 744 749
838 1050 918 986 797 923 975 815 1020 906 901 1170 912 746 919 718 714 740
"""
"""Annual flow of the Nile at Aswan from 1871 on (Cobb, G. W. (1978). Biometrika 65, 243-251)."""


def rows(values: Any, per_day: int = 1, **more: object) -> pd.DataFrame:
    """Return builds with these values, some each day, an hour apart."""
    number = np.arange(len(values))
    times = START + pd.to_timedelta(number // per_day, unit="D") + pd.to_timedelta(number % per_day, unit="h")
    frame = pd.DataFrame(
        {"x_s": np.asarray(values, float), "created_at": pd.Series(times, dtype=UTC), "pipeline": "web"}
    )
    return frame.astype({"pipeline": "str"}).assign(**more)


def builds(values: Any, per_day: int = 1, **more: object) -> pd.DataFrame:
    """Return the same with numbers, branches and commits."""
    frame = rows(values, per_day)
    names = {"branch": "main", "commit": [f"c{number}" for number in range(1, len(frame) + 1)]}
    numbers = pd.array(range(1, len(frame) + 1), "Int64")
    return frame.assign(number=numbers, **names, **more).astype(dict.fromkeys(names, "str"))


def stepped(random: np.random.Generator, step: float, days: int = 60, at: int = 30, effect: float = 0.1) -> np.ndarray:
    """Return eight durations a day, which become longer by a share."""
    level = effect * random.standard_normal(days) + np.log1p(step) * (np.arange(days) >= at)
    return 600 * np.exp(np.repeat(level, 8) + 0.25 * random.standard_normal(8 * days))


def many(step: float, series: int, seed: int = 0, **more: Any) -> pd.DataFrame:
    """Return independent series as pipelines of one frame."""
    random = np.random.default_rng(seed)
    each = [rows(stepped(random, step, **more), 8, pipeline=f"p{number:03d}") for number in range(series)]
    return pd.concat(each, ignore_index=True).astype({"pipeline": "str"})


def days_of(changes: pd.DataFrame, name: str = "at") -> list[int]:
    return ((changes[name] - START).dt.days).tolist()


# --- known answers


def test_the_nile_changed_in_1899() -> None:
    (change,) = metrics.change_points(rows(counts(NILE)), "x_s").to_dict("records")
    assert 1871 + (change["at"] - START).days == 1899
    assert (change["at_low"], change["at_high"]) == (START + pd.Timedelta(26, "D"), START + pd.Timedelta(30, "D"))
    flow = counts(NILE)
    assert (change["p50_before_s"], change["p50_after_s"]) == (np.median(flow[:28]), np.median(flow[28:]))
    assert change["p50_change_low_s"] < change["p50_change_s"] < change["p50_change_high_s"] < 0
    assert [change[name] for name in ("days_before", "days_after", "n_before", "n_after")] == [28, 72, 28, 72]
    assert change["p"] < 1e-6
    assert change["notable"]


def jobs_of(name: str) -> pd.DataFrame:
    """Runs of a commit as jobs, each with its commit; one that was retried has only its last attempt, with a count."""
    position, *texts, _ = HISTORIES[name]
    jobs: list[tuple[int, str, int]] = []
    for commit, n, failed, retried, again in zip(counts(position), *map(counts, texts), strict=False):
        jobs += [(commit, "failed", 1)] * again + [(commit, "passed", 1)] * (retried - again)
        jobs += [(commit, "failed", 0)] * (failed - retried) + [(commit, "passed", 0)] * (n - failed)
    table = pd.DataFrame(jobs, columns=["commit", "state", "retries_count"]).assign(pipeline=name)
    times = pd.Series(START + pd.to_timedelta(np.arange(len(table)), unit="min"), dtype=UTC)
    texts_of = dict.fromkeys(["commit", "state", "pipeline"], "str")
    frame = table.astype(texts_of | {"retries_count": "Int64"})
    return frame.assign(type="script", soft_failed=False, created_at=times)


def test_published_histories_of_commits() -> None:
    frame = pd.concat(map(jobs_of, HISTORIES), ignore_index=True)
    changes = metrics.change_points(frame, metrics.failed, "pipeline", unit="commit")
    found = {}
    for name, (position, *_, _) in HISTORIES.items():
        own, commits = changes[changes["pipeline"] == name], counts(position)
        commit_at = frame[frame["pipeline"] == name].set_index("created_at")["commit"].astype(int)
        changed = commit_at[own["at"]]
        found[name] = [commits.index(commit) for commit in changed]
        assert (own["commit_before"].astype(int).to_numpy() < changed.to_numpy()).all(), name
        assert (changed.to_numpy() <= own["commit_after"].astype(int).to_numpy()).all(), name
    assert found == {name: expected for name, (*_, expected) in HISTORIES.items()}


# --- columns


def test_levels_are_medians_between_changes_and_suspects_are_the_builds_next_to_them() -> None:
    parts = (stepped(np.random.default_rng(seed), 0, 20, effect=0) for seed in range(3))
    values = np.concatenate([factor * part for factor, part in zip((1, 2, 1), parts, strict=True)])
    result = metrics.change_points(builds(values, 8), "x_s", "pipeline")
    assert result["pipeline"].tolist() == ["web"] * 2
    assert days_of(result) == [20, 40]
    medians = [np.median(part) for part in np.split(values, 3)]
    assert result["p50_before_s"].tolist() == medians[:2]
    assert result["p50_after_s"].tolist() == medians[1:]
    assert result["p50_change_s"].tolist() == np.diff(medians).tolist()
    assert (result["p50_change_low_s"] < result["p50_change_s"]).all()
    assert result[["days_before", "days_after", "n_before", "n_after"]].to_numpy().tolist() == [[20, 20, 160, 160]] * 2
    assert result["number_before"].tolist() == [160, 320]
    assert result["commit_before"].tolist() == ["c160", "c320"]
    assert result["number_after"].tolist() == [161, 321]
    assert result["commit_after"].tolist() == ["c161", "c321"]
    assert {*result["branch_before"], *result["branch_after"]} == {"main"}
    numbers = {name: str(dtype) for name, dtype in result.dtypes.items() if "_s" in name or "at" in name[:3]}
    assert {name: dtype for name, dtype in numbers.items() if dtype != "float64"} == dict.fromkeys(
        ["at", "at_low", "at_high"], UTC
    )


def test_rates_of_builds() -> None:
    random = np.random.default_rng(4)
    fails = np.concatenate([random.random(240) < 0.1, random.random(240) < 0.4])
    frame = builds(np.ones(480), 8, state=pd.Series(np.where(fails, "failed", "passed"), dtype="str"))
    noise = builds(np.ones(480), 8, state=pd.Series(["canceled"] * 480, dtype="str"))
    blocked = builds(np.ones(480), 8, state=frame["state"]).assign(state="failed", blocked=True)
    frame = pd.concat([frame.assign(blocked=False), noise.assign(blocked=False), blocked], ignore_index=True)
    (change,) = metrics.change_points(frame.astype({"state": "str", "blocked": "boolean"}), metrics.failed).to_dict(
        "records"
    )
    before = round((change["at"] - START).days * 8)
    assert abs(before - 240) <= 3 * 8
    assert change["rate_before"] == fails[:before].mean()
    assert change["rate_after"] == fails[before:].mean()
    assert change["rate_change_low"] < change["rate_after"] - change["rate_before"] < change["rate_change_high"]
    assert change["number_before"] <= before < change["number_after"]


def test_jobs_have_the_numbers_of_their_builds_and_other_columns_are_optional() -> None:
    values = np.concatenate([stepped(np.random.default_rng(1), 0, 10), 3 * stepped(np.random.default_rng(2), 0, 10)])
    frame = builds(values, 8)
    jobs = frame.rename(columns={"number": "build_number"}).assign(number=7)
    (change,) = metrics.change_points(jobs, "x_s").to_dict("records")
    assert (change["number_before"], change["number_after"]) == (80, 81)
    (bare,) = metrics.change_points(rows(values, 8), "x_s").to_dict("records")
    suspects = [f"{name}_{side}" for name in ("number", "branch", "commit") for side in ("before", "after")]
    assert all(pd.isna(bare[name]) for name in suspects)
    assert {key: one for key, one in bare.items() if key not in suspects} == {
        key: one for key, one in change.items() if key not in suspects
    }


@pytest.mark.long
def test_suspects_are_the_builds_around_the_interval() -> None:
    random = np.random.default_rng(8)
    frame = builds(np.concatenate([stepped(random, 0, 30), 1.2 * stepped(random, 0, 30)]), 8)
    other = builds(np.concatenate([stepped(random, 0, 8), 9 * stepped(random, 0, 8), stepped(random, 0, 8)]), 8)
    both = pd.concat([frame, other.assign(pipeline="other")], ignore_index=True).astype({"pipeline": "str"})
    result = metrics.change_points(both, "x_s", "pipeline")
    assert result["pipeline"].tolist() == ["other", "other", "web"]
    low, high = (np.array(days_of(result, end)) for end in ("at_low", "at_high"))
    assert high[2] > low[2]
    assert result["number_before"].tolist() == (8 * low).tolist()
    assert result["number_after"].tolist() == (8 * high + 1).tolist()
    assert result["commit_before"].tolist() == [f"c{8 * day}" for day in low]


def test_groups_without_a_change_have_no_row_and_null_keys_are_last() -> None:
    step = stepped(np.random.default_rng(1), 1.0)
    flat = stepped(np.random.default_rng(5), 0.0)
    frames = [rows(step, 8, pipeline=None), rows(flat, 8, pipeline="flat"), rows(step, 8, pipeline="step")]
    frames += [rows([5.0] * 80, 8, pipeline="constant"), rows([np.nan] * 80, 8, pipeline="none"), rows([1, 2], 1)]
    frame = pd.concat(frames, ignore_index=True).astype({"pipeline": "str"})
    result = metrics.change_points(frame, "x_s", "pipeline")
    assert result["pipeline"].tolist()[:1] == ["step"]
    assert result["pipeline"].isna().tolist() == [False, True]
    nothing = metrics.change_points(frame.iloc[:0], "x_s", "pipeline")
    pd.testing.assert_series_equal(nothing.dtypes, result.dtypes)
    flat_only = metrics.change_points(frame[frame["pipeline"] == "flat"], "x_s", "pipeline")
    pd.testing.assert_series_equal(flat_only.dtypes, result.dtypes)


def test_days_begin_at_midnight_of_the_zone_also_when_clocks_change() -> None:
    values = np.concatenate([stepped(np.random.default_rng(1), 0, 29), 2 * stepped(np.random.default_rng(2), 0, 20)])
    frame = rows(values, 8).assign(created_at=lambda table: table["created_at"] - pd.Timedelta(90, "min"))
    (change,) = metrics.change_points(frame, "x_s", tz="Europe/Berlin").to_dict("records")
    assert change["at"] == pd.Timestamp("2026-03-30", tz="Europe/Berlin")  # the day after a day of 23 hours
    assert (change["days_before"], change["n_before"]) == (30, 8 * 29)  # the first day has one build
    (other,) = metrics.change_points(frame, "x_s").to_dict("records")
    assert other["at"] == pd.Timestamp("2026-03-30", tz="UTC")
    assert other["n_before"] == 8 * 29 + 2


@pytest.mark.long
@settings(max_examples=20)
@given(st.lists(st.integers(0, 5), min_size=30, max_size=90), st.integers(1, 1000))
def test_only_ranks_and_the_order_of_days_matter(values: list[int], factor: int) -> None:
    plain = np.array(values, float)
    kinds = {"plain": plain, "cubed": plain**3 * factor, "turned": -plain}
    frame = pd.concat([rows(numbers, 3, pipeline=kind) for kind, numbers in kinds.items()], ignore_index=True)
    result = metrics.change_points(frame.sample(frac=1, random_state=1).astype({"pipeline": "str"}), "x_s", "pipeline")
    plain_changes, *others = (result[result["pipeline"] == kind] for kind in kinds)
    for other in others:
        assert other["at"].tolist() == plain_changes["at"].tolist()
        assert other["p"].tolist() == plain_changes["p"].tolist()


# --- what it promises about chance: shares of simulated series


@pytest.mark.long
def test_series_in_which_nothing_changes_seldom_have_a_change() -> None:
    found = metrics.change_points(many(0.0, 250), "x_s", "pipeline")
    assert found["pipeline"].nunique() / 250 <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 250)
    assert found.loc[found["notable"], "pipeline"].nunique() <= 3


@pytest.mark.long
def test_changes_are_found_where_they_are_and_intervals_contain_their_place_and_size() -> None:
    found = metrics.change_points(many(0.25, 60, seed=1), "x_s", "pipeline")
    near = found[np.abs(np.array(days_of(found)) - 30) <= 3].drop_duplicates("pipeline")
    assert len(near) / 60 >= 0.9 - 2 * np.sqrt(0.9 * 0.1 / 60)
    assert near["at"].between(near["at_low"], near["at_high"]).all()
    place = pd.Series(START + pd.Timedelta(30, "D"), near.index)
    assert place.between(near["at_low"], near["at_high"]).mean() >= 0.9
    size = near["p50_before_s"].median() * 0.25
    covered = pd.Series(size, near.index).between(near["p50_change_low_s"], near["p50_change_high_s"])
    assert covered.mean() >= 0.88
    assert near["notable"].mean() >= 0.95


@pytest.mark.long
def test_a_recent_change_is_found() -> None:
    found = metrics.change_points(many(0.5, 40, seed=2, at=56), "x_s", "pipeline")
    near = found[np.abs(np.array(days_of(found)) - 56) <= 3]
    assert near["pipeline"].nunique() / 40 >= 0.9
    assert near["p50_change_low_s"].notna().mean() >= 0.8


@pytest.mark.long
def test_few_changed_groups_among_many_are_notable_and_chance_is_not() -> None:
    frame = pd.concat(
        [many(0.0, 150, seed=3), many(0.6, 3, seed=4).replace({"pipeline": r"p(.*)"}, r"q\1", regex=True)]
    )
    found = metrics.change_points(frame.reset_index(drop=True), "x_s", "pipeline")
    notable = set(found.loc[found["notable"], "pipeline"])
    assert {"q000", "q001", "q002"} <= notable
    assert len(notable) <= 4


# --- errors


def test_bad_input() -> None:
    frame = rows([1.0, 2.0])
    cases: list[tuple[str, dict[str, Any]]] = [
        ("unit='hour'", {"unit": "hour"}),
        ("unit='commit' compares failure rates", {"unit": "commit"}),
        ("no column 'started_at'", {"at": "started_at"}),
        ("tz='Mars'", {"tz": "Mars"}),
        ("not timedelta", {"of": "pipeline"}),
        ("no column 'state'", {"of": metrics.failed}),
        ("no column", {"of": metrics.failed, "unit": "commit"}),
    ]
    calls = [(words, functools.partial(metrics.change_points, frame, **{"of": "x_s"} | own)) for words, own in cases]
    assert wrong_messages(calls) == {}


# --- failed


def test_failed_builds() -> None:
    states = pd.Series(["passed", "failed", "canceled", "running", None, "failed"], dtype="str")
    frame = pd.DataFrame({"state": states, "blocked": pd.array([False] * 5 + [True], "boolean")})
    frame = frame.set_axis(range(3, 9))
    expected = pd.Series([False, True, None, None, None, None], frame.index, dtype="boolean", name="failed")
    pd.testing.assert_series_equal(metrics.failed(frame), expected)
    assert frame.assign(failed=metrics.failed)["failed"].sum() == 1
    with pytest.raises(BadInput, match="'success'"):
        metrics.failed(frame.assign(state="success"))


def test_failed_jobs() -> None:
    states = ["passed", "failed", "timed_out", "failed", "canceled", "failed"]
    frame = pd.DataFrame(
        {
            "type": pd.Series(["script"] * 5 + ["trigger"], dtype="str"),
            "state": pd.Series(states, dtype="str"),
            "soft_failed": pd.array([False, False, None, True, False, False], "boolean"),
        }
    )
    expected = pd.Series([False, True, True, None, None, None], dtype="boolean", name="failed")
    pd.testing.assert_series_equal(metrics.failed(frame), expected)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_infinite_durations_are_refused() -> None:
    values = np.r_[np.linspace(100, 110, 60), np.inf, np.inf]
    with pytest.raises(BadInput, match="infinite values"):
        metrics.change_points(rows(values), "x_s")
