"""Steps: from a job and its build alone, and never one of two different steps of a build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buildframe as bf
from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.formatting import label_jobs, label_steps
from tests.documented.test_documented_responses import service
from tests.metrics.random_frames import jobs_of

TEXTS = ("id", "build_id", "step_key", "name", "group_key", "command", "step_id", "matrix", "retried_in_job_id",
         "retry_source")  # fmt: skip
NUMBERS = ("parallel_group_index", "parallel_group_total")


def frame_of(*jobs: dict[str, Any]) -> pd.DataFrame:
    """Jobs of one build, unless they name another, with every column that decides on steps; others are null."""
    rows = [{"id": f"j{k}", "build_id": "b"} | job for k, job in enumerate(jobs)]
    frame = pd.DataFrame(rows, columns=[*TEXTS, *NUMBERS])
    return frame.astype(dict.fromkeys(TEXTS, "str") | dict.fromkeys(NUMBERS, "Int64"))


def steps_of(*jobs: dict[str, Any]) -> list[Any]:
    return list(metrics.step(frame_of(*jobs)))


def shard(name: str, index: int | None, total: int | None) -> dict[str, Any]:
    return {"name": name, "parallel_group_index": index, "parallel_group_total": total}


ALONE: list[tuple[dict[str, Any], str | None]] = [
    ({"step_key": "unit", "name": ":x: Unit 1/2", "group_key": "g", "command": "make"}, "unit"),
    ({"step_key": " ", "name": ":linux:  Test", "command": "make"}, ":linux: Test"),
    ({"name": "Test", "group_key": "backend"}, "Test (backend)"),
    ({"name": "", "command": "make  test\nmake lint"}, "make test make lint"),
    ({"command": "x" * 61}, "x" * 59 + "…"),
    ({"group_key": "backend"}, None),
    # Only the own number of a parallel job is removed.
    (shard(":rspec: RSpec 3/10", 2, 10), ":rspec: RSpec"),
    (shard("RSpec (3 of 10)", 2, 10), "RSpec"),
    (shard("RSpec - 10/10 on linux", 9, 10), "RSpec on linux"),
    (shard("RSpec 0/10 :ruby:", 0, 10), "RSpec :ruby:"),
    (shard("RSpec [shard 3/10]", None, 10), "RSpec"),
    (shard("RSpec #3", 2, 10), "RSpec"),
    (shard("RSpec: part 3", 2, 10), "RSpec"),
    (shard(":rspec: 3/10", 2, 10), ":rspec:"),
    (shard("3/10", 2, 10), "3/10"),
    (shard("RSpec 3/10", None, None), "RSpec 3/10"),
    (shard("iOS 17/18", 0, 2), "iOS 17/18"),
    (shard("RSpec 3/10", 5, 10), "RSpec 3/10"),
    (shard("RSpec #3", 7, 10), "RSpec #3"),
    (shard("Python 3", 2, 10), "Python 3"),
    (shard("C#3", 2, 10), "C#3"),
    (shard("deploy 10:30:15", 14, 30), "deploy 10:30:15"),
    # A value of the matrix becomes its placeholder.
    ({"name": "Test 3.10 on linux", "matrix": '{"os":"linux","py":"3.10"}'}, "Test {{matrix.py}} on {{matrix.os}}"),
    ({"command": "make a", "matrix": '{"matrix":"a"}'}, "make {{matrix}}"),
    ({"name": "Test 13.1", "matrix": '{"py":"3.1"}'}, "Test 13.1"),
    ({"name": "Test a", "matrix": "no JSON"}, "Test a"),
]


def test_the_step_of_a_job_alone() -> None:
    found = steps_of(*(job | {"build_id": f"b{k}"} for k, (job, _) in enumerate(ALONE)))
    assert [None if pd.isna(step) else step for step in found] == [step for _, step in ALONE]


APART: list[tuple[list[dict[str, Any]], list[str]]] = [
    ([{"name": "Test", "command": "a"}, {"name": "Test", "command": "b"}], ["Test (a)", "Test (b)"]),
    ([{"name": "Test", "command": "a"}, {"name": "Test", "command": "a"}], ["Test #1", "Test #2"]),
    ([{"name": "Test", "command": "a"}, {"name": "Test"}], ["Test #1", "Test #2"]),
    ([{"command": "a"}, {"command": "a"}], ["a #1", "a #2"]),
    ([{"name": "Test"}, {"name": "Test"}, {"name": "Test #1"}], ["Test #2", "Test #3", "Test #1"]),
    ([{"name": "x", "command": "a"}, {"name": "x", "command": "b"}, {"name": "x (a)"}], ["x #1", "x #2", "x (a)"]),
    ([{"name": "Test"}, {"step_key": "Test"}], ["Test #1", "Test #2"]),
    ([{"name": "Test"}, {"name": "Test", "build_id": "c"}], ["Test", "Test"]),
]


def test_steps_of_a_build_are_reported_apart_by_commands_or_order() -> None:
    for with_ids in (True, False):
        found = []
        for jobs, _ in APART:
            ids = [{"step_id": f"s{k}"} if with_ids else {} for k in range(len(jobs))]
            found.append((jobs, steps_of(*(job | step_id for job, step_id in zip(jobs, ids, strict=True)))))
        assert found == APART, with_ids


def test_parallel_and_matrix_jobs_and_attempts_are_one_step() -> None:
    same = {"step_id": "s"}
    parallel = [shard("RSpec 1/2", 0, 2), shard("RSpec 2/2", 1, 2)]
    matrix = [{"name": f"Test {py}", "command": f"make {py}", "matrix": f'{{"py":"{py}"}}'} for py in ("3.9", "3.10")]
    attempts = [
        {"name": "Lint", "retried_in_job_id": "j1"},
        {"name": "Lint", "retried_in_job_id": "j2"},
        {"name": "Lint"},
    ]
    by_source = [{"name": "Lint"}, {"name": "Lint", "retry_source": '{"job_id":"j0","retry_type":"manual"}'}]
    by_key = [{"step_key": "lint"}, {"step_key": "lint"}]
    jobs = [parallel, matrix, attempts, by_source, by_key]
    expected = ["RSpec", "Test {{matrix.py}}", "Lint", "Lint", "lint"]
    for listed, step in zip(jobs, expected, strict=True):
        assert steps_of(*listed) == [step] * len(listed)
        assert steps_of(*(job | same for job in listed)) == [step] * len(listed)
    # Without ids: the second job of a shard that is no attempt of the first belongs to another step.
    assert steps_of(*parallel, *parallel) == ["RSpec #1", "RSpec #1", "RSpec #2", "RSpec #2"]
    # The commands of a matrix step do not depend on the order of its jobs.
    other = {"name": "Test 3.9", "command": "lint", "matrix": '{"py":"3.9"}', "step_id": "t"}
    forward = steps_of(*(job | same for job in matrix), other)
    assert forward == ["Test {{matrix.py}} (make 3.10)"] * 2 + ["Test {{matrix.py}} (lint)"]
    assert steps_of(other, *(job | same for job in reversed(matrix))) == forward[::-1]


def test_all_shards_of_one_step_id_are_one_step_without_the_number_of_parallel_jobs() -> None:
    spec = [{"name": f"Spec {k}/3", "step_id": "s"} for k in (1, 2, 3)]
    assert steps_of(*spec) == ["Spec"] * 3
    assert steps_of(*spec, spec[0] | {"id": "retry", "retry_source": '{"job_id":"j0"}'}) == ["Spec"] * 4
    assert steps_of(*spec, {"name": "Spec", "command": "make", "step_id": "t"}) == ["Spec #1"] * 3 + ["Spec #2"]
    # Numbers stay if shards are missing, belong to different steps, or differ in more than the number.
    assert steps_of(*spec[:2]) == ["Spec 1/3", "Spec 2/3"]
    assert steps_of(*(job | {"step_id": f"s{k}"} for k, job in enumerate(spec))) == [job["name"] for job in spec]
    apart = [{"name": name, "step_id": "s"} for name in ("Spec 1/2", "Lint 2/2")]
    assert steps_of(*apart) == ["Spec 1/2", "Lint 2/2"]
    spellings = [{"name": name, "step_id": "s"} for name in ("Spec 1/2", "Spec (1/2)")]  # shard 2 is missing
    assert steps_of(*spellings) == ["Spec 1/2", "Spec (1/2)"]
    systems = [{"name": f"iOS {version}/18", "step_id": "s"} for version in (17, 18)]
    assert steps_of(*systems) == ["iOS 17/18", "iOS 18/18"]


JOBS = st.fixed_dictionaries(
    {
        "step_id": st.sampled_from(["s0", "s1", "s2"]),
        "step_key": st.sampled_from([None, None, "Test"]),
        "name": st.sampled_from([None, "Test", ":x: Test", "Test #1", "Test (a)", "Test 1/2"]),
        "group_key": st.sampled_from([None, "a"]),
        "command": st.sampled_from([None, "a", "b"]),
        "parallel_group_index": st.sampled_from([None, 0]),
        "parallel_group_total": st.sampled_from([None, 2]),
    }
)


@settings(max_examples=25)
@given(st.lists(st.lists(JOBS, max_size=5), min_size=1, max_size=4), st.randoms())
def test_a_step_depends_on_its_build_alone(builds: list[list[dict[str, Any]]], random: Any) -> None:
    jobs = [
        job | {"id": f"{b} {k}", "build_id": f"b{b}", "step_id": f"{b} {job['step_id']}"}
        for b, build in enumerate(builds)
        for k, job in enumerate(build)
    ]
    whole = frame_of(*jobs)
    whole["step"] = metrics.step(whole)
    for _, build in whole.groupby("build_id"):  # other builds change nothing
        assert metrics.step(build.drop(columns="step")).equals(build["step"])
    # Two steps of a build are never one.
    assert (whole.dropna(subset=["step"]).groupby(["build_id", "step"])["step_id"].nunique() == 1).all()
    rows = random.sample(range(len(whole)), random.randint(0, len(whole)))
    assert metrics.step(whole.iloc[rows]).equals(whole["step"].iloc[rows])
    if rows:
        later = whole.iloc[rows].assign(build_created_at=pd.Timestamp(0, tz="UTC"))
        times = dict.fromkeys(("created_at", "runnable_at", "started_at", "finished_at"), pd.Timestamp(0, tz="UTC"))
        prepared = metrics.with_seconds(later.assign(type="script", **times))
        assert prepared["step"].equals(whole["step"].iloc[rows])


def one_always_fails(*jobs: dict[str, Any], with_ids: bool) -> list[dict[str, Any]]:
    """12 builds of a month, in the documented form: the first job passes and the others fail."""
    return [one_build(number, jobs, with_ids=with_ids) for number in range(12, 0, -1)]


def one_build(number: int, jobs: Sequence[dict[str, Any]], *, with_ids: bool) -> dict[str, Any]:
    day = f"2026-10-{2 * number:02}T10:0"
    listed = []
    for k, job in enumerate(jobs):
        state = {"state": "passed", "exit_status": 0} if k == 0 else {"state": "failed", "exit_status": 1}
        times = {"created_at": f"{day}0:00.000Z", "runnable_at": f"{day}0:01.000Z", "started_at": f"{day}0:02.000Z"}
        listed.append(
            {"id": f"{number:04}{k:04}-0000-4000-8000-000000000000", "type": "script", "agent_query_rules": []}
            | times | state | {"finished_at": f"{day}1:0{k}.000Z"} | job
            | ({"step": {"id": f"{number:04}{job.get('step', k)}"}} if with_ids else {})
        )  # fmt: skip
    pipeline = {"id": "01920000-0000-7000-8000-00000000aa01", "slug": "web", "name": "Web"}
    return {
        "id": f"{number:08}-0000-4000-8000-000000000000", "number": number, "state": "failed", "branch": "main",
        "commit": f"{number:040}", "created_at": f"{day}0:00.000Z", "finished_at": f"{day}2:00.000Z",
        "pipeline": pipeline, "jobs": listed,
    }  # fmt: skip


def flips_of(*jobs: dict[str, Any], with_ids: bool) -> pd.DataFrame:
    builds = one_always_fails(*jobs, with_ids=with_ids)
    with service(builds) as url, bf.connect("acme", base_url=url, token="a-test-token" * 20) as ci:
        return metrics.flips(ci.jobs(include_retried_jobs=True, progress=False)).sort_values("step")


PAIRS: list[tuple[list[dict[str, Any]], list[str]]] = [
    ([{"name": ":linux: Test"}, {"name": ":windows: Test"}], [":linux: Test", ":windows: Test"]),
    ([{"name": "Test", "group_key": "a"}, {"name": "Test", "group_key": "b"}], ["Test (a)", "Test (b)"]),
    ([{"name": "Test", "command": "make"}, {"name": "Test", "command": "make"}], ["Test #1", "Test #2"]),
    ([{"command": "make a"}, {"command": "make b"}], ["make a", "make b"]),
    ([{"name": "Test", "command": "a"}, {"name": "Test", "command": "b"}], ["Test (a)", "Test (b)"]),
    ([{"name": "Test (1/2)"}, {"name": "Test (2/2)"}], ["Test (1/2)", "Test (2/2)"]),
]


@pytest.mark.parametrize("with_ids", [True, False])
def test_one_that_passes_and_one_that_fails_are_not_flaky(with_ids: bool) -> None:
    found = []
    for pair, _ in PAIRS:
        ranked = flips_of(*pair, with_ids=with_ids)
        found.append((pair, ranked["step"].tolist()))
        assert ranked[["flaky", "commits"]].to_numpy().tolist() == [[0, 12], [0, 12]], pair
    assert found == PAIRS


def test_attempts_of_one_step_are_flaky() -> None:
    ranked = flips_of({"name": "RSpec", "step": 7}, {"name": "RSpec", "step": 7}, with_ids=True)
    assert ranked[["step", "flaky", "commits"]].to_numpy().tolist() == [["RSpec", 12, 12]]


def test_labels_are_short_where_that_is_clear() -> None:
    steps = pd.Series([":linux: Test", ":windows: Test", ":x: Lint", None, ":rocket:", "Test", ":linux: Test"])
    labels = ["Test · linux", "Test · windows", "Lint", "null", ":rocket:", "Test", "Test · linux"]
    assert label_steps(steps).fillna("null").tolist() == labels
    assert label_steps(pd.Series([":x: Test", "Test :x:"])).tolist() == [":x: Test", "Test :x:"]
    pipelines = pd.Series(["web", "api"])
    assert label_steps(pd.Series([":linux: Test", ":windows: Test"]), pipelines).tolist() == ["Test", "Test"]
    names = pd.Series(["Test", "Test", ":x: Lint", ":x: Lint"])
    assert label_jobs(names, pd.Series(["Test (a)", "b", "lint", "lint"])).tolist() == [
        "Test (a)", "Test · b", "Lint", "Lint"
    ]  # fmt: skip


def test_frames_without_the_column() -> None:
    frame = pd.DataFrame({"step_key": [None, "k", None], "name": ["a 1/2", "b", None]}, index=[4, 4, 5])
    result = metrics.step(frame)
    assert result.index.tolist() == [4, 4, 5]
    assert result.fillna("null").tolist() == ["a 1/2", "k", "null"]
    for rows in (result, metrics.step(frame.iloc[:0]), metrics.step(frame.assign(name=None, step_key=None))):
        assert (rows.dtype, rows.name) == ("str", "step")
    # Nothing says which of these jobs are attempts of each other.
    assert metrics.step(frame_of({"name": "a"}, {"name": "a"})[["build_id", "step_key", "name"]]).tolist() == ["a", "a"]
    for name in ("step_key", "name"):
        with pytest.raises(BadInput, match=repr(name)):
            metrics.step(frame.drop(columns=name))
    with pytest.raises(BadInput, match="no column 'step'"):
        metrics.flips(pl.from_pandas(jobs_of("few")))
