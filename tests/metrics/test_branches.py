from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.branches import outages, recovery_time, red_share
from tests.metrics.any_frame import in_duckdb
from tests.metrics.metric_frames import START, UTC, at
from tests.refusals import columns_not_named, refusal

OUTAGES = {
    "pipeline": "str", "branch": "str", "failed_at": UTC, "recovered_at": UTC, "recovery_time_s": "float64",
    "seen_s": "float64", "open": "boolean", "start_unknown": "boolean", "failed": "Int64", "first_number": "Int64",
    "last_number": "Int64", "fixed_by": "Int64", "last_good_number": "Int64", "last_good_at": UTC,
    "last_good_commit": "str", "first_bad_commit": "str",
}  # fmt: skip
STATES = {"p": "passed", "f": "failed", "c": "canceled", "r": "running", "s": "skipped", "n": None}


def builds(states: str, minutes: list[float | None] | None = None, **columns: object) -> pd.DataFrame:
    """One build a letter (see STATES), 10 minutes apart, numbered from 1; fetched after 100 minutes."""
    n = len(states)
    frame = pd.DataFrame(
        {
            "pipeline": pd.Series(["web"] * n, dtype="str"),
            "branch": pd.Series(["main"] * n, dtype="str"),
            "number": pd.Series(range(1, n + 1), dtype="Int64"),
            "state": pd.Series([STATES[letter] for letter in states], dtype="str"),
            "blocked": pd.Series([False] * n, dtype="boolean"),
            "commit": pd.Series([f"c{i}" for i in range(n)], dtype="str"),
            "finished_at": at(*(range(10, 10 * n + 1, 10) if minutes is None else minutes)),
            "fetched_at": at(*[100] * n),
        }
    )
    return frame.assign(**columns)


def listed(**branches: str | None) -> pd.DataFrame:
    return pd.DataFrame({"slug": list(branches), "default_branch": pd.Series(list(branches.values()), dtype="str")})


def minutes(stamps: pd.Series) -> list[float]:
    return ((stamps - START) / pd.Timedelta("1min")).fillna(-1).tolist()


def test_two_outages_of_which_one_is_open():
    """Green 10, red 20 to 40 (two failures), green, red from 60 on."""
    frame = builds("pffpcf")
    found = outages(frame, branch="main")
    assert minutes(found["failed_at"]) == [20, 60]
    assert minutes(found["recovered_at"]) == [40, -1]
    assert found["recovery_time_s"].fillna(-1).tolist() == [1200, -1]
    assert found["seen_s"].tolist() == [1200, 2400]
    assert found["open"].tolist() == [False, True]
    assert found["start_unknown"].tolist() == [False, False]
    assert found["failed"].tolist() == [2, 1]
    assert found[["first_number", "last_number"]].values.tolist() == [[2, 3], [6, 6]]
    assert found["fixed_by"].fillna(-1).tolist() == [4, -1]
    assert {name: str(dtype) for name, dtype in found.dtypes.items()} == OUTAGES
    recovery = recovery_time(frame, branch="main", q=(0.5,)).iloc[0]
    assert recovery[["pipeline", "branch", "n", "n_censored"]].tolist() == ["web", "main", 1, 1]
    red = red_share(frame, branch="main").iloc[0]
    assert red[["red_s", "known_s"]].tolist() == [1200 + 2400, 5400]
    assert red["red_share_of_time"] == pytest.approx(2 / 3)
    assert red[["commits", "red_commits", "red_share_of_commits"]].tolist() == [5, 3, 0.6]


def test_other_states_neither_begin_nor_end_an_outage():
    for letter in "crsn":
        assert outages(builds(f"{letter}p{letter}"), branch="main").empty, letter
        assert minutes(outages(builds(f"pf{letter}p"), branch="main")["recovered_at"]) == [40], letter


def test_blocked_builds_and_those_without_an_end_count_for_nothing():
    frame = builds("fpfp", blocked=pd.array([None, True, False, False], "boolean"))
    assert outages(frame, branch="main")[["first_number", "failed", "fixed_by"]].values.tolist() == [[1, 2, 4]]
    frame = builds("fpf", [10, None, 30])
    assert outages(frame, branch="main")["failed"].tolist() == [2]


def test_a_branch_red_from_its_first_known_outcome_may_have_been_so_before():
    assert outages(builds("cfpf"), branch="main")["start_unknown"].tolist() == [True, False]


@pytest.mark.long
def test_an_outage_that_is_open_or_whose_start_is_unknown_is_censored():
    """Red at first (until 20, unknown since when), red from 30 to 40, red from 50 on."""
    frame = builds("fpfpf")
    last = START + pd.Timedelta("30min")
    found = outages(frame, branch="main")
    assert found["recovery_time_s"].fillna(-1).tolist() == [-1, 600, -1]
    assert found["seen_s"].tolist() == [600, 600, (frame["fetched_at"].max() - START).total_seconds() - 3000]
    recovery = recovery_time(frame, branch="main", q=(0.5,)).iloc[0]
    assert recovery[["n", "n_censored"]].tolist() == [1, 2]
    red = [red_share(frame, branch="main", **one) for one in ({}, {"start": last}, {"end": last})]
    assert [one["builds"].tolist() for one in red] == [[5], [3], [2]]


def test_what_finishes_later_counts_later_and_ties_go_by_number():
    overtaken = outages(builds("ppf", [10, 30, 20]), branch="main")
    assert overtaken[["first_number", "fixed_by"]].values.tolist() == [[3, 2]]
    assert overtaken["recovery_time_s"].tolist() == [600]
    for states, still in (("fp", False), ("pf", True)):
        tied = outages(builds(states, [20, 20]), branch="main")
        assert tied["open"].tolist() == [still]
        assert tied["seen_s"].tolist() == [80 * 60 if still else 0]


def test_a_list_fetched_within_the_second_of_an_outcome_sees_no_negative_time():
    frame = builds("pf", [10, 100.5])
    assert outages(frame, branch="main")["seen_s"].tolist() == [0]
    assert red_share(frame, branch="main")["known_s"].tolist() == [90.5 * 60]
    unknown = outages(builds("fc", fetched_at=None), branch="main")
    assert unknown["seen_s"].tolist() == [600]  # until the canceled one


def test_the_default_branch_of_each_pipeline():
    frame = builds("fpff", pipeline=["web", "web", "api", "api"], branch=["main", "main", "trunk", "main"])
    found = outages(frame, pipelines=listed(web="main", api="trunk", unused=None))
    assert found[["pipeline", "branch", "first_number"]].values.tolist() == [["api", "trunk", 3], ["web", "main", 1]]
    assert red_share(frame, branch="trunk")["pipeline"].tolist() == ["api"]


def test_a_branch_that_is_not_known_is_an_error():
    frame = builds("fp", pipeline=["web", "api"])
    cases = [
        ('branch="main"', {}),
        ("pipelines=ws.pipelines()", {}),
        ("Pass either branch=", {"branch": "main", "pipelines": listed(web="main")}),
        ("pipeline 'api' has no known default branch", {"pipelines": listed(web="main", api=None)}),
        ("pipeline 'api' has no known default branch", {"pipelines": listed(web="main", api="")}),
        ("does not contain 'api'", {"pipelines": listed(web="main")}),
        ("contains 'api' twice", {"pipelines": pd.concat([listed(web="main", api="main")] * 2)}),
        ("no column 'slug'", {"pipelines": listed().drop(columns="slug")}),
        ("not a frame", {"pipelines": ["web"]}),
    ]
    for summary in (outages, recovery_time, red_share):
        messages = [(words, refusal(summary, frame, **which)) for words, which in cases]
        assert [(words, message) for words, message in messages if words not in message] == [], summary


def test_pipelines_are_matched_by_id_and_a_renamed_one_is_one():
    frame = builds("fpf", pipeline=["shop", "web", "web"], pipeline_id=["1", "1", "2"])
    pipelines = pd.DataFrame({"slug": ["web", "old"], "id": ["1", "2"], "default_branch": "main"})
    found = outages(frame, pipelines=pipelines)
    assert found[["pipeline", "first_number"]].values.tolist() == [["web", 1], ["web", 3]]
    assert found["fixed_by"].fillna(-1).tolist() == [2, -1]
    found = outages(frame.assign(pipeline_id=["1", "1", None]), pipelines=listed(shop="main", web="main"))
    assert found["pipeline"].tolist() == ["shop", "web"]


def test_organizations_are_kept_apart():
    frame = builds("fppf", organization=["b", "a", "b", "a"])
    found = outages(frame, branch="main")
    assert found[["organization", "first_number"]].values.tolist() == [["a", 4], ["b", 1]]
    pipelines = pd.concat([listed(web="main"), listed(web="trunk")]).assign(organization=["a", "b"])
    assert outages(frame, pipelines=pipelines)["organization"].tolist() == ["a"]
    with pytest.raises(BadInput, match="'web' twice"):
        outages(frame.drop(columns="organization"), pipelines=pipelines)


def test_recovery_time_of_many_outages():
    """Twenty outages of 1 to 20 minutes, in no order: the median is 10.5."""
    ends = np.cumsum([[30, length] for length in np.random.default_rng(1).permutation(range(1, 21))])
    states, ends = "p" + "fp" * 20, [10, *ends.ravel().tolist()]
    frame = pd.concat([builds(states, ends), builds("p", pipeline="api"), builds("c", pipeline="docs")])
    found = recovery_time(frame, branch="main")
    assert found["pipeline"].tolist() == ["api", "docs", "web"]
    assert found["n"].tolist() == [0, 0, 20]
    assert found["n_censored"].tolist() == [0, 0, 0]
    web = found.iloc[2]
    assert web["p50_s"] == 630
    assert 120 <= web["p50_low_s"] < 630 < web["p50_high_s"] <= 1140
    assert 10 < web["p50_n_effective"] <= 20
    assert web["p95_s"] == pytest.approx(np.quantile(range(1, 21), 0.95) * 60)
    assert found.loc[:1, "p50_s":].isna().all(axis=None)


def test_recovery_time_of_censored_outages_by_kaplan_and_meier():
    """Recovered after 10, 20 and 30 minutes, and one that is open for 15: at 20 minutes, 3/4 times 1/2 last."""
    frame = builds("p" + "fp" * 3 + "f", [1, 2, 12, 13, 33, 34, 64, 85])
    found = recovery_time(frame, branch="main", q=(0.5, 0.75)).iloc[0]
    assert found[["n", "n_censored", "p50_s", "p75_s"]].tolist() == [3, 1, 1200, 1800]
    assert found[["p50_at_least_s", "p75_at_least_s"]].isna().all()
    assert found[["p50_low_s", "p50_high_s"]].isna().all(), "four outages are in too few spans"


def test_recovery_time_that_no_curve_shows_has_a_lower_bound():
    """Red at first, when its build ended at minute 10, until 20; red again from 30 on, fetched at 100."""
    found = recovery_time(builds("fpf"), branch="main", q=0.5).iloc[0]
    assert found[["n", "n_censored", "p50_at_least_s"]].tolist() == [0, 2, 600]
    assert np.isnan(found["p50_s"])


SUSPECTS = [
    ("pffpcf", None, [[1, "c0", 2, "c1"], [4, "c3", 6, "c5"]]),
    ("pcrf", None, [[1, "c0", 4, "c3"]]),  # canceled and running builds are suspects, too
    ("cfp", None, [[None, None, 2, "c1"]]),
    ("ppf", [10, 30, 20], [[2, "c1", 3, "c2"]]),  # the build before passed later
    ("pfp", [10, 30, 20], [[1, "c0", 2, "c1"]]),  # the build after passed earlier
    ("fpf", [30, 20, 10], [[2, "c1", 3, "c2"]]),
]


def test_suspects_are_the_builds_since_the_last_one_before_that_passed():
    names = ["last_good_number", "last_good_commit", "first_number", "first_bad_commit"]
    for states, minutes, suspects in SUSPECTS:
        found = outages(builds(states, minutes), branch="main")
        known = found[names].astype(object).where(found[names].notna(), None).to_numpy().tolist()
        assert known[: len(suspects)] == suspects, (states, minutes)
        assert found["last_good_at"].isna().tolist() == found["last_good_number"].isna().tolist()
        without = outages(builds(states, minutes).drop(columns="commit"), branch="main")
        assert without[["last_good_commit", "first_bad_commit"]].isna().all(axis=None)
        pd.testing.assert_frame_equal(without[names[::2]], found[names[::2]])


def test_suspects_of_pipelines_are_kept_apart():
    frame = builds("pfpf", pipeline=["web", "web", "api", "api"], number=[7, 8, 1, 2])
    found = outages(frame, branch="main")
    assert found[["last_good_number", "first_number"]].values.tolist() == [[1, 2], [7, 8]]
    frame = builds("pfff", pipeline=["api", "web", "web", "api"], number=[7, 8, 9, None])
    assert outages(frame, branch="main")["last_good_number"].isna().all()


FAILED_JOBS = [  # build, step, end in minutes, what differs from a job that failed hard
    ("b1", "late", 19, {}),
    ("b1", "first", 15, {}),
    ("b1", "soft", 11, {"soft_failed": True}),
    ("b1", "retried", 12, {"retried": True}),
    ("b1", "trigger", 10, {"type": "trigger"}),
    ("b1", "passed", 9, {"state": "passed"}),
    ("b0", "of another build", 5, {}),
    ("b5", "timed out", 59, {"state": "timed_out"}),
]


def jobs_of_builds() -> pd.DataFrame:
    usual = {"type": "script", "state": "failed", "soft_failed": False, "retried": False}
    rows = [usual | {"build_id": build, "step_key": step, "ended": end} | own for build, step, end, own in FAILED_JOBS]
    frame = pd.DataFrame(rows).assign(name=None, build_created_at=at(*[0] * len(rows)))
    stamps = {name: at(*[None] * len(rows)) for name in ("created_at", "runnable_at", "started_at")}
    frame = frame.assign(**stamps, finished_at=at(*frame.pop("ended")))
    texts = dict.fromkeys(["type", "state", "build_id", "step_key", "name"], "str")
    return metrics.with_seconds(frame.astype(texts | dict.fromkeys(["soft_failed", "retried"], "boolean")))


def test_the_step_that_failed_first():
    frame = builds("pffpcfpf", id=pd.Series([f"b{i}" for i in range(8)], dtype="str"))
    found = outages(frame, branch="main", jobs=jobs_of_builds())
    assert list(found)[-1] == "first_failed_step"
    assert found["first_failed_step"].fillna("none").tolist() == ["first", "timed out", "none"]
    nothing = outages(builds("pp", id=["b0", "b1"]), branch="main", jobs=jobs_of_builds())
    assert nothing.dtypes.equals(found.dtypes)


def test_builds_and_jobs_and_pipelines_may_be_frames_of_different_libraries():
    frame = builds("pffpcfpf", id=pd.Series([f"b{i}" for i in range(8)], dtype="str"))
    of_main, of_web = {"branch": "main"}, {"pipelines": pl.from_pandas(listed(web="main"))}
    for options, jobs in ((of_main, pl.from_pandas(jobs_of_builds()).lazy()), (of_web, in_duckdb(jobs_of_builds()))):
        found = outages(in_duckdb(frame), jobs=jobs, **options)
        assert found["first_failed_step"].fillna("none").tolist() == ["first", "timed out", "none"]


def test_jobs_need_the_ids_of_builds():
    with pytest.raises(BadInput, match="no column 'id'"):
        outages(builds("pf"), branch="main", jobs=jobs_of_builds())
    with pytest.raises(BadInput, match="no column 'build_id'"):
        outages(builds("pf", id=["b0", "b1"]), branch="main", jobs=jobs_of_builds().drop(columns="build_id"))


WINDOWS = {  # begin and end: minutes red and known, commits and red ones
    (25, 35): (10, 10, 1, 1),  # the failure at 30
    (40, 50): (0, 10, 1, 0),  # begins as it recovers
    (0, 20): (0, 10, 1, 0),  # nothing is known before 10, and the failure at 20 is excluded
    (90, 200): (10, 10, 0, 0),  # nothing is known after 100
    (150, 200): (0, 0, 0, 0),
    (None, 30): (10, 20, 2, 1),
    (70, None): (30, 30, 0, 0),
}


def test_windows():
    found = {}
    for window in WINDOWS:
        ends = zip(("start", "end"), window, strict=True)
        given = {name: START + pd.Timedelta(minute, "min") for name, minute in ends if minute is not None}
        row = red_share(builds("pffpcf"), branch="main", **given).iloc[0]
        found[window] = (row["red_s"] / 60, row["known_s"] / 60, row["commits"], row["red_commits"])
        assert np.isnan(row["red_share_of_time"]) == (row["known_s"] == 0), window
        assert np.isnan(row["red_share_of_commits"]) == (row["commits"] == 0), window
    assert found == WINDOWS


def test_ages_count_back_from_the_latest_stamp_and_nonsense_is_refused():
    assert red_share(builds("pf"), branch="main", start="30m", end="10m")["red_s"].tolist() == [1200]
    for window in ({"start": "10m", "end": "10m"}, {"start": "2026-01-01T00:00"}, {"end": 3}):
        with pytest.raises(BadInput):
            red_share(builds("pf"), branch="main", **window)
    with pytest.raises(BadInput, match="unknown here"):
        red_share(builds("pf").iloc[:0], branch="main", start="10m")


def test_a_commit_is_what_its_last_outcome_in_the_frame_says():
    frame = builds("fpfpf", commit=["a", "a", "b", None, "c"], pipeline=["web"] * 4 + ["api"])
    found = red_share(frame, branch="main", end=START + pd.Timedelta("35min"))
    assert found[["commits", "red_commits"]].values.tolist() == [[0, 0], [2, 1]]


drawn_builds = st.lists(
    st.tuples(
        st.sampled_from("ppffcrn"), st.integers(0, 90) | st.none(), st.sampled_from(["web", "api"]), st.booleans()
    )
)


def frame_of(drawn: list[tuple[str, int | None, str, bool]]) -> pd.DataFrame:
    letters, ends, pipelines, is_main = zip(*drawn, strict=True) if drawn else ((), (), (), ())
    branches = pd.Series(["main" if main else "topic" for main in is_main], dtype="str")
    commits = pd.Series([f"c{i // 2}" for i in range(len(drawn))], dtype="str")
    frame = builds("".join(letters), list(ends), pipeline=pd.Series(pipelines, dtype="str"), branch=branches)
    return frame.assign(commit=commits)


def known(frame: pd.DataFrame, pipeline: str) -> list[tuple[float, int, bool, str]]:
    """When, number, failed, commit of the pipeline's outcomes on main, in order."""
    there = [row for row in frame.itertuples() if (row.pipeline, row.branch) == (pipeline, "main")]
    settled = [row for row in there if row.state in ("passed", "failed") and pd.notna(row.finished_at)]
    return sorted(
        ((row.finished_at - START).total_seconds(), row.number, row.state == "failed", row.commit) for row in settled
    )


def naive_outages(outcomes: list[tuple[float, int, bool, str]]) -> list[list[float]]:
    """First number, last number, failures, fixed by (0: open), seen seconds."""
    found: list[list[float]] = []
    begun: list[tuple[float, int]] = []
    for second, number, failed, _ in outcomes:
        if failed:
            begun.append((second, number))
        elif begun:
            found.append([begun[0][1], begun[-1][1], len(begun), number, second - begun[0][0]])
            begun = []
    return found + ([[begun[0][1], begun[-1][1], len(begun), 0, 6000 - begun[0][0]]] if begun else [])


@pytest.mark.long
@given(drawn_builds, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_outages_by_the_naive_definition_in_whatever_order(drawn, random):
    frame = frame_of(drawn)
    shuffled = frame.iloc[random.sample(range(len(frame)), len(frame))]
    before = shuffled.copy(deep=True)
    found = outages(shuffled, branch="main")
    pd.testing.assert_frame_equal(shuffled, before)
    pd.testing.assert_frame_equal(found, outages(frame, branch="main"))
    columns = found[["first_number", "last_number", "failed", "fixed_by", "seen_s"]].fillna({"fixed_by": 0})
    for pipeline in ("api", "web"):
        assert columns[found["pipeline"] == pipeline].values.tolist() == naive_outages(known(frame, pipeline))
    later = found[found["pipeline"].eq(found["pipeline"].shift())]
    assert (later["failed_at"] >= found["recovered_at"].shift().loc[later.index]).all()


@pytest.mark.long
@given(drawn_builds, st.integers(0, 100), st.integers(1, 50))
@settings(max_examples=75, deadline=None)
def test_red_time_minute_by_minute(drawn, start, length):
    frame = frame_of(drawn)
    window = {"start": START + pd.Timedelta(start, "min"), "end": START + pd.Timedelta(start + length, "min")}
    found = red_share(frame, branch="main", **window).set_index("pipeline")
    for pipeline in found.index:
        outcomes = known(frame, pipeline)
        before = [
            [failed for second, _, failed, _ in outcomes if second <= 60 * minute]
            for minute in range(start, min(start + length, 100))
        ]
        assert found.loc[pipeline, "known_s"] == 60 * sum(bool(colors) for colors in before)
        assert found.loc[pipeline, "red_s"] == 60 * sum(colors[-1] for colors in before if colors)
        last = {commit: (second, failed) for second, _, failed, commit in outcomes}
        within = [failed for second, failed in last.values() if start <= second / 60 < start + length]
        assert found.loc[pipeline, ["commits", "red_commits"]].tolist() == [len(within), sum(within)]


@pytest.mark.long
@given(drawn_builds, st.lists(st.integers(0, 101), max_size=4, unique=True).map(sorted))
@settings(max_examples=15, deadline=None)
def test_slices_add_up_to_the_whole_which_is_the_time_of_its_outages(drawn, cuts):
    frame = frame_of(drawn)
    whole = red_share(frame, branch="main")
    bounds = [None, *(START + pd.Timedelta(cut, "min") for cut in cuts), None]
    sums = ["red_s", "known_s", "commits", "red_commits"]
    slices = [red_share(frame, branch="main", start=a, end=b)[sums] for a, b in pairwise(bounds)]
    np.testing.assert_allclose(sum(one.astype(float) for one in slices), whole[sums].astype(float))
    seen = outages(frame, branch="main").groupby("pipeline")["seen_s"].sum()
    assert whole["red_s"].tolist() == seen.reindex(whole["pipeline"], fill_value=0).tolist()


SUMMARIES = {
    "outages": lambda frame: outages(frame, branch="main"),
    "by pipelines": lambda frame: outages(frame, pipelines=pl.from_pandas(listed(web="main", api="topic"))),
    "recovery_time": lambda frame: recovery_time(frame, branch="main"),
    "red_share": lambda frame: red_share(frame, branch="main", start="80m"),
}
FRAME = frame_of([(letter, 3 * i, "web" if i % 3 else "api", i % 4 > 0) for i, letter in enumerate("pffpcrpffnpf")])


def test_ugly_frames():
    zones = {"finished_at": "datetime64[us, Asia/Kathmandu]", "fetched_at": "datetime64[ns, America/Havana]"}
    for name, summary in SUMMARIES.items():
        whole = summary(FRAME)
        pd.testing.assert_frame_equal(summary(FRAME.astype(zones)), whole, obj=name)
        found = {states: summary(builds(states)).dtypes for states in ("p", "f", "r", "nn")}
        assert [states for states, dtypes in found.items() if not dtypes.equals(whole.dtypes)] == [], name


def test_no_builds_and_no_pipelines_are_no_outages():
    """Filters of Arrow leave columns without any chunk, which pandas does not join."""
    nothing = pa.table({"builds": ["a"]}).filter([False])["builds"]
    text = pd.Series(nothing, dtype="str")
    assert text.array.__arrow_array__().num_chunks == 0
    pipelines = pd.DataFrame(dict.fromkeys(("id", "slug", "default_branch", "repository"), text))
    frame = builds("p").iloc[:0].assign(pipeline_id=text, pipeline=text, branch=text, commit=text)
    for summary in (outages, recovery_time, red_share):
        assert summary(frame, pipelines=pipelines).empty


def test_empty_and_null_frames_have_no_rows():
    for summary in (outages, recovery_time, red_share):
        whole = summary(FRAME, branch="main")
        for empty in (FRAME.iloc[:0], FRAME.assign(**dict.fromkeys(FRAME)), FRAME.assign(branch="topic")):
            found = summary(empty, branch="main")
            assert found.empty
            assert found.dtypes.equals(whole.dtypes)
        assert "null" in refusal(summary, FRAME.assign(pipeline=None), pipelines=listed(web="main"))


def test_missing_columns_are_named():
    for to in (pd.DataFrame, pl.from_pandas):
        missing = columns_not_named(lambda frame, to=to: red_share(to(frame), branch="main"), FRAME, FRAME, "ws.builds")
        assert missing == set(), to


def test_naive_times_are_refused():
    with pytest.raises(BadInput, match="time zone"):
        outages(FRAME.assign(finished_at=FRAME["finished_at"].dt.tz_localize(None)), branch="main")


HERE = "git@github.com:acme/web.git"
FORKED = {"pull_request": "7", "pull_request_repository": "https://github.com/mallory/web.git"}


def from_forks(states: str, forks: str, **columns: object) -> pd.DataFrame:
    """Builds of `states`; an x in `forks` marks those of a fork, whose branch is called main, too."""
    frame = builds(states, pipeline_repository=HERE)
    for name, value in FORKED.items():
        frame[name] = pd.Series([value if letter == "x" else None for letter in forks], dtype="str")
    return frame.assign(**columns)


def test_failures_of_forks_are_no_outages_of_the_branch_of_that_name():
    frame = from_forks("pfpfpffp", "-x-x-xx-")
    own = from_forks("pfpf", "-x--")  # the last failure is the pipeline's own
    assert outages(frame, branch="main").empty
    red = red_share(frame, branch="main")[["red_s", "builds", "commits"]]
    assert red.to_numpy().tolist() == [[0, 4, 4]]
    assert recovery_time(frame, branch="main")[["n", "n_censored"]].to_numpy().tolist() == [[0, 0]]
    assert outages(own, branch="main")["first_number"].tolist() == [4]
    assert outages(own, pipelines=listed(web="main"))["first_number"].tolist() == [4]


REPOSITORIES = [  # of the pipeline and of the pull request, and whether it is of a fork
    (HERE, "https://github.com/acme/web", False),
    (HERE, "HTTPS://GitHub.com/Acme/Web.git/", False),
    (HERE, "ssh://git@github.com:22/acme/web.git", False),
    (HERE, "git://github.com/acme/web.git", False),
    ("https://user:secret@github.com/acme/web", HERE, False),
    (HERE, "https://github.com/mallory/web.git", True),
    (HERE, "git@gitlab.com:acme/web.git", True),
    (HERE, "https://github.com/acme/website.git", True),
    (None, HERE, True),  # unknown, so each build with a pull request
    ("", HERE, True),
    (HERE, None, True),
    ("https://[::1]/acme/web", "ssh://git@[::1]:22/acme/web.git", False),
    ("https://[::2]/acme/web", "ssh://git@[::1]:22/acme/web.git", True),
]


def test_repositories_are_compared_by_host_and_path():
    found, without_number = [], []
    for repository, source, _ in REPOSITORIES:
        frame = pd.DataFrame({"pull_request": ["7", None, ""], "pull_request_repository": [source, None, None]})
        frame = frame.assign(pipeline_repository=repository)
        found.append((repository, source, metrics.is_from_fork(frame).tolist()))
        without_number.append((source, metrics.is_from_fork(frame.drop(columns="pull_request")).tolist()))
    assert found == [(*urls, [is_fork, False, False]) for *urls, is_fork in REPOSITORIES]
    assert without_number == [(url, [fork and bool(url), False, False]) for _, url, fork in REPOSITORIES]


URLS = [
    "https://user@bitbucket.org/acme/web.git",
    "https://user:token@bitbucket.org/Acme/web/",
    "https://user:to@ken@bitbucket.org/acme/web.git",
    "https://bitbucket.org:443/acme/web",
    "https://bitbucket.org:/acme/web",
    "ssh://git@bitbucket.org/acme/web.git",
    "ssh://git@bitbucket.org:7999/acme/web.git",
    "ssh://git@bitbucket.org:acme/web.git",
    "git@bitbucket.org:acme/web.git",
    "git@bitbucket.org:/acme/web.git/",
    "user:token@bitbucket.org/acme/web.git",
]


def test_user_information_and_ports_make_no_fork():
    """The pull request of the repository itself is none, and one of mallory's is; on either side."""
    here, fork = "https://bitbucket.org/acme/web", "https://bitbucket.org/mallory/web"
    found = {}
    for url in URLS:
        frame = pd.DataFrame({"pull_request": "7", "pull_request_repository": [here, url, fork, url]})
        frame["pipeline_repository"] = [url, here, url, fork]
        found[url] = metrics.is_from_fork(frame).tolist()
    assert found == {key: [False, False, True, True] for key in URLS}


def test_encoded_columns_say_the_same_of_forks():
    """One URL of a fork, one of the pipeline itself, and no pull request, as categories."""
    numbers = pd.Series(["7", "8", None], dtype="category")
    sources = pd.Series(["https://github.com/mallory/web", HERE, None], dtype="category")
    frame = pd.DataFrame({"pull_request": numbers, "pull_request_repository": sources})
    frame["pipeline_repository"] = pd.Series([HERE] * 3, dtype="category")
    assert metrics.is_from_fork(frame).tolist() == [True, False, False]


def test_the_list_of_pipelines_says_the_repository_if_builds_do_not():
    """The pull request of main itself, as into a branch of releases, is of the pipeline; that of the fork is not."""
    frame = from_forks("pfpfp", "-x-x-").drop(columns="pipeline_repository")
    frame["pull_request_repository"] = pd.Series(
        [None, HERE, None, FORKED["pull_request_repository"], None], dtype="str"
    )
    known = listed(web="main").assign(repository="https://github.com/acme/web")
    assert outages(frame, pipelines=known)["first_number"].tolist() == [2]
    assert outages(frame, pipelines=known.drop(columns="repository")).empty  # nothing to compare with
    assert outages(frame.drop(columns=list(FORKED)), branch="main")["first_number"].tolist() == [2, 4]
