from __future__ import annotations

from itertools import chain

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import metrics
from buildframe.metrics.attempts import flips, outcomes_by_commit
from buildframe.metrics.rates import wilson
from tests import golden
from tests.metrics.any_frame import LIBRARIES
from tests.metrics.metric_frames import at
from tests.refusals import columns_not_named, refusal

DTYPES = {
    "organization": "str", "pipeline": "str", "step_key": "str", "name": "str", "commit": "str", "matrix": "str",
    "parallel_group_index": "Int64", "type": "str", "state": "str", "soft_failed": "boolean", "exit_status": "Int64",
    "signal": "str", "queue": "str", "agent_id": "str", "signal_reason": "str",
}  # fmt: skip
USUAL = dict.fromkeys(DTYPES) | {
    "organization": "acme", "pipeline": "web", "step_key": "e2e", "commit": "c", "type": "script", "ended": 0,
}  # fmt: skip
ENDS = {
    "pass": {"state": "passed", "exit_status": 0},
    "fail": {"state": "failed", "exit_status": 1},
    "time out": {"state": "timed_out", "exit_status": -1, "signal": "SIGTERM"},
    "lost": {"state": "failed", "exit_status": -1},
    "killed": {"state": "failed", "exit_status": 137, "signal": "SIGKILL"},
    "crash": {"state": "failed", "exit_status": 139, "signal": "SIGSEGV"},
    "refused": {"state": "failed", "exit_status": 1, "signal_reason": "agent_refused"},
    "soft": {"state": "failed", "exit_status": 1, "soft_failed": True},
    "cancel": {"state": "canceled", "exit_status": -1, "signal": "SIGTERM"},
    "run": {"state": "running"},
    "null": {},
}
VARIANT = ["organization", "pipeline", "step", "commit", "matrix", "parallel_group_index"]
COUNTS = [
    "commits", "commits_passed", "flaky", "deterministic", "undecided", "killed", "infrastructure", "n_without_commit",
]  # fmt: skip


def attempts(*listed: dict[str, object]) -> pd.DataFrame:
    """Jobs that ended (`how`) as ENDS says; e2e at commit c, unless they say otherwise."""
    full = [USUAL | ENDS[str(one.get("how", "pass"))] | one for one in listed]
    frame = pd.DataFrame(full, columns=[*USUAL]).astype(DTYPES)
    stamps = {name: at(*[None] * len(full)) for name in ("created_at", "runnable_at", "started_at", "build_created_at")}
    return frame.assign(finished_at=at(*frame.pop("ended")), **stamps)


def of_one_commit(*hows: str) -> pd.DataFrame:
    return attempts(*({"how": how, "ended": i} for i, how in enumerate(hows)))


VERDICTS = {  # passes, failures, lost agents and killed jobs
    ("pass",): ([1, 0, 0, 0], "passed"),
    ("fail", "pass"): ([1, 1, 0, 0], "flaky"),
    ("pass", "fail"): ([1, 1, 0, 0], "flaky"),
    ("time out", "pass"): ([1, 1, 0, 0], "flaky"),
    ("crash", "pass"): ([1, 1, 0, 0], "flaky"),
    ("fail", "fail", "lost", "killed", "pass"): ([1, 2, 1, 1], "flaky"),
    ("fail",): ([0, 1, 0, 0], "undecided"),
    ("fail", "lost", "killed"): ([0, 1, 1, 1], "undecided"),
    ("fail", "fail"): ([0, 2, 0, 0], "deterministic"),
    ("crash", "time out", "lost"): ([0, 2, 1, 0], "deterministic"),
    ("lost", "refused", "pass"): ([1, 0, 2, 0], "infrastructure"),
    ("killed", "pass", "killed", "lost"): ([1, 0, 1, 2], "killed"),
    ("soft", "pass", "cancel", "run", "null"): ([1, 0, 0, 0], "passed"),
}


def test_verdicts():
    """Each case is a step of its own."""
    cases = [
        {"step_key": f"{number:02}", "how": how, "ended": i}
        for number, hows in enumerate(VERDICTS)
        for i, how in enumerate(hows)
    ]
    outcomes = outcomes_by_commit(attempts(*cases)).sort_values("step")
    counts = outcomes[["passes", "failures", "lost", "killed"]].to_numpy().tolist()
    found = zip(VERDICTS, zip(counts, outcomes["verdict"], strict=True), strict=True)
    assert dict(found) == VERDICTS
    ranked = flips(attempts(*cases)).sort_values("step")
    verdicts = [[name for name in COUNTS[2:] if row[name]] for row in ranked.to_dict("records")]
    assert verdicts == [[verdict] if verdict != "passed" else [] for _, verdict in VERDICTS.values()]
    commits = ranked[COUNTS[:2]].to_numpy().tolist()
    assert commits == [[1, int(counts[0] > 0)] for counts, _ in VERDICTS.values()]


GOLDEN_ENDS = golden.read("ends")["ends"]


def test_ends_of_failed_jobs_as_the_documents_describe_them():
    names = ("exit_status", "signal", "signal_reason")
    failures = [{name: end.get(name) for name in names} | {"state": "failed"} for end in GOLDEN_ENDS]
    jobs = [of | {"commit": f"{i:02}", "ended": i} for i, end in enumerate(failures) for of in (end, {})]
    frame = attempts(*jobs)
    assert metrics.outcome(frame).iloc[::2].tolist() == [end["outcome"] for end in GOLDEN_ENDS]
    assert outcomes_by_commit(frame)["verdict"].tolist() == [end["verdict"] for end in GOLDEN_ENDS]


def test_frames_without_reasons_fall_back_on_signals_and_exit_statuses():
    frame = attempts({"how": "refused"}, {"how": "lost"}, {"how": "killed"}).drop(columns="signal_reason")
    assert metrics.outcome(frame).tolist() == ["failed", "infrastructure", "killed"]
    assert outcomes_by_commit(frame).loc[0, ["failures", "lost", "killed"]].tolist() == [1, 1, 1]


def test_outcomes_that_no_cause_decides():
    states = ["passed", "timed_out", "expired", "canceled", "failed", "running", "broken", "failed", None]
    frame = attempts(*({"state": state, "exit_status": -1} for state in states))
    frame = frame.assign(soft_failed=[None] * 4 + [True] + [None] * 4, type=["script"] * 7 + ["trigger", "script"])
    outcomes = metrics.outcome(frame.astype({"soft_failed": "boolean", "type": "str"}).set_axis(range(9, 0, -1)))
    assert outcomes.index.tolist() == [*range(9, 0, -1)]
    assert outcomes.tolist()[:5] == ["passed", "timed_out", "expired", "canceled", "soft_failed"]
    assert outcomes.isna().tolist() == [False] * 5 + [True] * 4
    assert outcomes.dtype == "str"


def test_first_and_last_are_ends_of_what_counts():
    row = outcomes_by_commit(of_one_commit("soft", "fail", "lost", "pass", "cancel")).loc[0]
    assert row[["first_at", "last_at"]].tolist() == at(1, 3).tolist()


def test_soft_failures_and_unfinished_jobs_are_no_outcome():
    frame = of_one_commit("soft", "cancel", "run", "null").assign(type="script")
    assert outcomes_by_commit(frame).empty
    assert flips(frame).empty
    assert flips(of_one_commit("fail", "pass").assign(type="trigger")).empty


def test_only_like_is_compared_with_like_and_a_commit_counts_once():
    frame = attempts(
        {"how": "fail", "parallel_group_index": 0},
        {"how": "pass", "parallel_group_index": 1},
        {"how": "fail", "matrix": '{"os":"linux"}'},
        {"how": "pass", "matrix": '{"os":"macos"}'},
        {"how": "fail", "commit": "d"},
        {"how": "fail", "pipeline": "api"},
        {"how": "fail", "organization": "other"},
        {"how": "fail", "step_key": None, "name": ":x: Unit 1/2"},
    )
    assert (outcomes_by_commit(frame)["verdict"] == "flaky").sum() == 0
    row = flips(frame).set_index(["organization", "pipeline", "step"]).loc[("acme", "web", "e2e")]
    assert row[COUNTS].tolist() == [2, 1, 0, 0, 2, 0, 0, 0]
    twice = attempts(*({"how": how, "parallel_group_index": i} for i in (0, 1) for how in ("fail", "pass")))
    row = flips(twice).loc[0]
    assert row[COUNTS].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert row["flake_rate"] == 1


def test_attempts_without_a_commit_are_left_out_and_counted():
    frame = attempts({"how": "fail", "commit": "HEAD"}, {"commit": "HEAD"}, {"commit": None}, {"step_key": "lint"})
    assert outcomes_by_commit(frame)["step"].tolist() == ["lint"]
    ranked = flips(frame).set_index("step")
    assert ranked.loc["e2e", COUNTS].tolist() == [0, 0, 0, 0, 0, 0, 0, 3]
    assert ranked.loc["e2e", ["flake_rate", "low", "high"]].isna().all()
    assert ranked.index.tolist() == ["lint", "e2e"]


def test_ranked_by_the_lower_bound_not_by_the_rate():
    once = [{"step_key": "once", "how": how} for how in ("fail", "pass")]
    often = [{"step_key": "often", "how": "pass", "commit": str(i), "ended": i} for i in range(100)]
    often += [{"step_key": "often", "how": "fail", "commit": str(i), "ended": i} for i in range(0, 100, 2)]
    ranked = flips(attempts(*once, *often))
    assert ranked["step"].tolist() == ["often", "once"]
    assert ranked["flake_rate"].tolist() == [0.5, 1]
    assert ranked.loc[0, "n_effective"] == 100
    assert ranked.loc[0, "low"] < wilson(50, 100)[0] < wilson(50, 100)[1] < ranked.loc[0, "high"]
    assert ranked.loc[1, ["low", "high", "n_effective"]].isna().all(), "one commit"


def test_what_one_retry_makes_of_a_rate_of_attempts():
    """Attempts that fail with chance p, tried once more: of the commits that pass, p / (1 + p) flipped."""
    fails = np.random.default_rng(4).random((3_000, 2)) < 0.12
    tried = [
        {"how": "fail" if failed else "pass", "commit": str(i), "ended": i}
        for i, both in enumerate(fails)
        for failed in both[: 1 + both[0]]
    ]
    row = flips(attempts(*tried)).loc[0]
    assert row["low"] < 0.12 / 1.12 < row["high"]
    assert row["high"] - row["low"] < 0.03


@pytest.mark.long
def test_dtypes_hold_whatever_the_rows():
    for summary in (flips, outcomes_by_commit):
        full = summary(attempts({"matrix": "{}", "parallel_group_index": 1}))
        for frame in (attempts(), attempts(USUAL).reindex([1, 2]), of_one_commit("run")):
            empty = summary(frame.astype({"type": "str"}))
            assert empty.empty
            assert empty.dtypes.astype(str).to_dict() == full.dtypes.astype(str).to_dict()
    assert outcomes_by_commit(attempts({})).dtypes.astype(str).to_dict() == dict.fromkeys(VARIANT, "str") | {
        "parallel_group_index": "Int64", "passes": "Int64", "failures": "Int64", "lost": "Int64", "killed": "Int64",
        "n_storm": "Int64", "first_at": "datetime64[us, UTC]", "last_at": "datetime64[us, UTC]", "verdict": "str",
    }  # fmt: skip


def test_missing_columns_are_named():
    names = [*sorted(DTYPES.keys() - {"signal_reason"}), "finished_at"]
    assert [columns_not_named(summary, attempts({}), names) for summary in (flips, outcomes_by_commit)] == [set()] * 2
    for to in (LIBRARIES["polars, lazy"], LIBRARIES["duckdb"]):
        assert "no column 'step'" in refusal(flips, to(attempts({})))


one = st.fixed_dictionaries(
    {
        "how": st.sampled_from([*ENDS, "pass", "fail", "fail", "lost"]),
        "pipeline": st.sampled_from(["web", "api"]),
        "step_key": st.sampled_from(["e2e", "e2e", None]),
        "commit": st.sampled_from(["c", "d", "HEAD", None]),
        "matrix": st.sampled_from([None, None, "{}"]),
        "parallel_group_index": st.sampled_from([None, None, 0]),
        "ended": st.integers(0, 9) | st.none(),
    }
)


def naive(drawn: list[dict[str, object]]) -> dict[tuple[object, ...], tuple[set[str], list[str]]]:
    """Of each pipeline, step and commit: whether it passed, and the verdicts of its variants."""
    hows: dict[tuple[object, ...], dict[tuple[object, ...], list[str]]] = {}
    for job in drawn:
        if job["how"] not in ("soft", "cancel", "run", "null"):
            variants = hows.setdefault((job["pipeline"], job["step_key"], job["commit"]), {})
            variants.setdefault((job["matrix"], job["parallel_group_index"]), []).append(str(job["how"]))
    return {
        key: (set(chain.from_iterable(of.values())), [naive_verdict(one) for one in of.values()])
        for key, of in hows.items()
    }


def naive_verdict(hows: list[str]) -> str:
    failures = sum(how in ("fail", "time out", "crash") for how in hows)
    if failures:
        return "flaky" if "pass" in hows else "deterministic" if failures > 1 else "undecided"
    if "killed" in hows:
        return "killed"
    return "infrastructure" if {"lost", "refused"} & set(hows) else "passed"


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(st.lists(one, max_size=14), st.randoms(use_true_random=False))
def test_agrees_with_the_definition_in_any_order(drawn, random):
    frame = attempts(*random.sample(drawn, len(drawn)))
    result = {key: of for key, of in naive(drawn).items() if key[2] not in (None, "HEAD")}
    cells = outcomes_by_commit(frame)
    assert sorted(cells["verdict"]) == sorted(chain.from_iterable(verdicts for _, verdicts in result.values()))
    pd.testing.assert_frame_equal(cells, cells.sort_values(VARIANT, ignore_index=True))

    ranked = flips(frame)
    for row in ranked.itertuples(index=False):
        mine = [of for key, of in result.items() if key[:2] == (row.pipeline, None if pd.isna(row.step) else row.step)]
        order = ["flaky", "deterministic", "undecided", "killed", "infrastructure", "passed"]
        worst = [min(verdicts, key=order.index) for _, verdicts in mine]
        assert row.commits == len(mine)
        assert row.commits_passed == sum("pass" in hows for hows, _ in mine)
        assert [getattr(row, name) for name in order[:5]] == [worst.count(name) for name in order[:5]]
        np.testing.assert_equal(row.flake_rate, row.flaky / row.commits_passed if row.commits_passed else np.nan)
    lows = ranked["low"].fillna(-1).tolist()
    assert lows == sorted(lows, reverse=True)
    assert ranked["commits"].sum() == len(result)
    counted = [job for job in drawn if job["how"] not in ("soft", "cancel", "run", "null")]
    assert ranked["n_without_commit"].sum() == sum(job["commit"] in (None, "HEAD") for job in counted)
