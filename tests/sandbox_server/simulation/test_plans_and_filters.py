"""Plans: what jobs steps make and what waits for what; branch filters; rules that hold of any build."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from buildframe.sandbox_server.simulation import rules
from buildframe.sandbox_server.world.build_state import ACTIVE_JOB_STATES, BuildRun, Commit, JobRun
from buildframe.sandbox_server.world.steps import UPLOAD, PipelineStep, Plan
from buildframe.spec.builds import FINISHED_STATES
from tests.refusals import refusal


def steps_of(kinds):
    return tuple(PipelineStep(key=f"{kind}-{place}", kind=kind) for place, kind in enumerate(kinds))


def test_a_step_makes_one_job_by_default():
    plan = Plan(
        (
            PipelineStep(key="one"),
            PipelineStep(key="three", parallelism=3),
            PipelineStep(key="none", parallelism=0),
            PipelineStep(key="four", matrix={"os": ("linux", "mac"), "python": ("3.11", "3.12")}),
        )
    )
    assert list(plan.slots) == ["one", *(f"three#{n}" for n in range(3)), *(f"four#{n}" for n in range(4))]
    assert [(slot.index, slot.total) for slot in plan.slots.values() if slot.step.key == "three"] == [
        (0, 3), (1, 3), (2, 3),
    ]  # fmt: skip
    assert [slot.matrix for slot in plan.slots.values() if slot.step.key == "four"] == [
        {"os": system, "python": python} for system in ("linux", "mac") for python in ("3.11", "3.12")
    ]


def test_needs_are_of_all_jobs_of_a_step_and_go_both_ways():
    plan = Plan(
        (PipelineStep(key="unit", parallelism=2), PipelineStep(key="report", needs=("unit",)), PipelineStep(key="lint"))
    )
    assert plan.needs == {"unit#0": (), "unit#1": (), "report": ("unit#0", "unit#1"), "lint": ()}
    assert plan.dependents == {"unit#0": ["report"], "unit#1": ["report"], "report": [], "lint": []}


def test_a_first_step_may_upload_the_others():
    wait_step = PipelineStep(key="wait-2", kind="waiter")
    plan = Plan((PipelineStep(key=UPLOAD), PipelineStep(key="lint"), wait_step, PipelineStep(key="ship")))
    assert (plan.uploads, plan.first()) == (True, (UPLOAD,))
    assert list(plan.needs) == ["lint", "wait-2", "ship"]
    plain = Plan((PipelineStep(key="lint"),))
    assert (plain.uploads, plain.first()) == (False, ("lint",))


@given(st.lists(st.sampled_from(["script", "trigger", "waiter", "manual"]), max_size=12))
def test_nothing_passes_a_wait_or_block_step(kinds):
    steps = steps_of(kinds)
    plan = Plan(steps)
    before = {}
    for key, needs in plan.needs.items():
        before[key] = set(needs).union(*(before[need] for need in needs))
    for place, step in enumerate(steps):
        earlier = [other.key for other in steps[:place]]
        bars = [place for place, other in enumerate(steps[:place]) if other.kind in ("waiter", "manual")]
        reach = earlier if step.kind in ("waiter", "manual") else earlier[: bars[-1] + 1] if bars else []
        assert before[step.key] == set(reach)


def test_steps_that_cannot_be():
    for steps, why in (
        ((PipelineStep(key="a"), PipelineStep(key="a")), "same key"),
        ((PipelineStep(key="a", needs=("b",)),), "needs 'b'"),
        ((PipelineStep(key="a", needs=("b",)), PipelineStep(key="b", needs=("a",))), "depend on each other"),
        ((PipelineStep(key="a", needs=("a",)),), "depend on each other"),
    ):
        assert why in refusal(Plan, steps)


def test_the_key_of_a_plan_goes_by_its_steps_alone():
    one, same, other = ((PipelineStep(key="a", seconds=seconds),) for seconds in (5, 5.0, 6))
    assert Plan(one).key == Plan(same).key != Plan(other).key


# --- branch filters


FILTERS = {
    (None, "anything"): True,
    ("", "anything"): True,
    ("main", "main"): True,
    ("main", "maintenance"): False,
    ("release/*", "release/2.0"): True,
    ("main release/*", "release/2.0"): True,
    ("*fix*", "a-fix-b"): True,
    ("!main", "main"): False,
    ("!main", "dev"): True,
    ("dev/* !dev/secret", "dev/secret"): False,
    ("dev/* !dev/secret", "dev/open"): True,
    ("dev/* !dev/secret", "main"): False,
    ("v1.*", "v1x2"): False,
    ("[ab]", "a"): False,
}


def test_branch_filters():
    assert {(pattern, branch): rules.matches(pattern, branch) for pattern, branch in FILTERS} == FILTERS


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_a_star_stands_for_anything(pattern, branch):
    expected = re.fullmatch(pattern.replace("*", ".*"), branch) is not None
    assert rules.matches(pattern, branch) is (expected or not pattern)


def test_a_filter_of_many_stars_is_quick_to_decide():
    assert not rules.matches("*a" * 200 + "b", "a" * 5000)


words = st.text("ab/*.", min_size=1, max_size=6)


@given(words, st.text("ab/.", max_size=8))
def test_an_excluding_filter_is_the_opposite(pattern, branch):
    assert rules.matches(f"!{pattern}", branch) is not rules.matches(pattern, branch)


@given(st.lists(words, min_size=1, max_size=4), st.text("ab/.", max_size=8))
def test_one_pattern_of_several_is_enough(patterns, branch):
    assert rules.matches(" ".join(patterns), branch) is any(rules.matches(one, branch) for one in patterns)


# --- any build

states = st.sampled_from([
    "waiting", "waiting_failed", "blocked", "unblocked", "scheduled", "assigned", "running", "canceling", "passed",
    "failed", "timed_out", "canceled", "broken", "skipped",
])  # fmt: skip
jobs = st.lists(st.builds(JobRun, st.uuids().map(str), st.uuids().map(str), st.just(0), states, st.just(0),
                          soft_failed=st.booleans()), max_size=6)  # fmt: skip


def build_of(jobs, **more):
    return BuildRun(1, "b", "line", "plan", 1, "running", Commit("a" * 40, "main", "", "api"), 0, jobs=jobs, **more)


@given(jobs, st.sampled_from([None, 5]))
def test_any_build_follows_from_its_jobs(jobs, started):
    states = {job.state for job in jobs}
    build = build_of(jobs, started=started)
    build.state, build.blocked = rules.build_state(build)
    active = states & ACTIVE_JOB_STATES
    assert build.is_over == (not active), "when nothing can happen to it"
    assert (build.state in FINISHED_STATES) == (not active or build.blocked)
    busy = states & {"scheduled", "assigned", "running", "canceling"}
    assert build.blocked == ("blocked" in states and not busy), "if it has nothing else to do"
    hard = any(job.state in ("failed", "timed_out") and not job.soft_failed for job in jobs)
    assert (rules.build_state(build_of(jobs, started=1))[0] in ("failed", "failing")) == hard
    assert rules.build_state(build_of(jobs, cancel_reason="manually"))[0] in ("canceling", "canceled")


@given(jobs, st.booleans())
def test_a_wait_that_goes_on_after_failures_waits_for_the_end_of_all(jobs, whatever):
    latest = {job.step: job for job in jobs}
    verdict = rules.readiness(tuple(latest), latest, whatever)
    active = any(job.state in ACTIVE_JOB_STATES for job in jobs)
    if whatever:
        assert verdict == ("waiting" if active else "ready")
    elif verdict == "ready":
        assert not active
        assert not any(map(rules.failed, jobs))
