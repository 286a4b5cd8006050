"""Random behavior of people, jobs and agents: who pushes when, how long a job runs and how it ends.

Pure functions of the world and their arguments; does not know the state of the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from buildframe.sandbox_server.data_files import data_file
from buildframe.sandbox_server.simulation.rules import LOST, JobEndState
from buildframe.sandbox_server.world import work_hours
from buildframe.sandbox_server.world.build_state import AGENT_LOST, BuildRun, Commit, JobRun, PullRequestInfo
from buildframe.sandbox_server.world.ground_truth import (
    BrokenBranch,
    FailingStep,
    FlakyStep,
    RepeatedBuilds,
    SlowerStep,
    Storm,
)
from buildframe.sandbox_server.world.hashed_random import SeededRandom
from buildframe.sandbox_server.world.model import DAY, SECOND, World, machine_of_agent
from buildframe.sandbox_server.world.pipelines import PipelineEntry, PipelineRegistry
from buildframe.sandbox_server.world.steps import UPLOAD, PipelineStep, Trigger

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

_SPREAD = 0.18
_LOST_SHARE = 0.004
_FLAKE_SHARE = 0.003
_REGRESSION_SHARE = 0.007
_BAD_UPLOAD_SHARE = 0.002
_FOLLOW_UP_SHARE = 0.04
_QUIET_PERIOD = 3 * HOUR
"""Time before and after the planted outage in which nothing else fails on its branch, so that it stands out."""

_TEXTS: dict[str, list[str]] = msgspec.json.decode(data_file("simulation/commits.json").read_bytes())


OfStep = TypeVar("OfStep", SlowerStep, FlakyStep, FailingStep, BrokenBranch)

Action = Literal["begin", "trigger", "dispatch", "stop", "away"]
_DELAYS: dict[Action, tuple[float, float, int]] = {
    "begin": (0.3, 1.5, SECOND),  # of a build without immediate jobs
    "trigger": (0.3, 1.5, SECOND),
    "dispatch": (0.4, 2.2, SECOND),  # from the assignment of a job to its start
    "stop": (1, 9, SECOND),  # of a canceled job
    "away": (4, 15, MINUTE),  # until a lost agent returns
}
"""Bounds of each random delay, and their unit."""


class JobOutcome(msgspec.Struct, frozen=True, gc=False):
    """The run time of a job, and how it ends."""

    microseconds: int
    exit_status: int
    signal_reason: str | None = None
    state: JobEndState = "passed"


class Scenario:
    """Draws random behavior. Every method is a pure function of the world and its arguments."""

    def __init__(self, world: World, entries: PipelineRegistry) -> None:
        self.world, self._pipelines = world, entries
        self.random = SeededRandom(world.seed)
        self._messages = _TEXTS["odd_messages" if world.is_odd else "messages"]
        truth = world.truth
        self._slower, self._flaky = _by_step(truth.slower_steps), _by_step(truth.flaky_steps)
        self._failing, self._broken = _by_step(truth.failing_steps), _by_step(truth.broken_branches)
        self._outages: dict[str, list[BrokenBranch]] = {}  # by the key of the pipeline
        for broken in truth.broken_branches:
            self._outages.setdefault(_key(broken), []).append(broken)
        self._storms = [(storm, storm.since.us, storm.until.us) for storm in truth.storms]

    def next_push(self, entry: PipelineEntry, n: int) -> int:
        """Return the time until the next possible push, at the rate of the busiest hours."""
        return int(self.random.exponential(HOUR / entry.pipeline.pushes_per_hour, entry.key, "push", n)) + 1

    def push_happens(self, entry: PipelineEntry, n: int, now: int) -> bool:
        """Return whether a possible push happens, by the working hours (thinning of a Poisson process)."""
        return self.random.happens(work_hours.activity(now), entry.key, "pushed", n)

    def commit(self, entry: PipelineEntry, key: str, now: int) -> Commit:
        """Return a new random commit."""
        random, pipeline = self.random, entry.pipeline
        on_main = random.happens(pipeline.main_share, entry.key, key, "main")
        branch = pipeline.default_branch if on_main else self._branch(entry, key, now)
        person = self._person(entry, entry.key, key if on_main else branch, "person")
        how = random.uniform(entry.key, key, "source")
        source = "webhook" if how > 0.08 else "api" if how > 0.04 else "ui"
        in_pull_request = not on_main and random.happens(0.6, entry.key, branch, "pr")
        pull_request = self._pull_request(entry, branch) if in_pull_request else None
        if not on_main and random.happens(self.world.fork_share, entry.key, key, "fork"):
            repository = f"https://git.example.com/contributor-{int(10 * how)}/{pipeline.slug}.git"
            pull_request = msgspec.structs.replace(self._pull_request(entry, branch), repository=repository)
            branch = pipeline.default_branch
        return Commit(
            sha=random.sha(entry.key, key, "sha"),
            branch=branch,
            message=random.choice(self._messages, entry.key, key, "message"),
            source=source,
            creator=person if random.happens(0.9, entry.key, person, key, "member") else None,
            author=_author(entry, person, source, is_odd=self.world.is_odd),
            env={"STARTED_BY": "release-bot"} if source == "api" else {},
            pull_request=pull_request,
        )

    def _pull_request(self, entry: PipelineEntry, branch: str) -> PullRequestInfo:
        id = 1 + int(self.random.uniform(entry.key, branch, "pr id") * 4000)
        return PullRequestInfo(id, entry.pipeline.default_branch, labels=("preview",) if id % 4 == 0 else ())

    def _branch(self, entry: PipelineEntry, key: str, now: int) -> str:
        era, place = now // (2 * DAY), int(self.random.uniform(entry.key, key, "branch") * 8)
        topic = self.random.choice(_TEXTS["topics"], entry.key, era, place, "topic")
        kind = self.random.choice(("feature", "fix", "dev"), entry.key, era, place, "kind")
        return f"{kind}/{topic}-{era % 1000}{place}"

    def nightly_commit(self, entry: PipelineEntry, key: str) -> Commit:
        """Return the commit of a scheduled nightly build of the default branch."""
        sha = self.random.sha(entry.key, key, "sha")
        return Commit(sha, entry.pipeline.default_branch, "Nightly", "schedule")

    def repair_times(self, broken: BrokenBranch) -> list[int]:
        """Return the times of the attempts to repair a broken branch; the last one succeeds."""
        return [int(broken.since.us + part * (broken.until.us - broken.since.us)) for part in (0.25, 0.5, 0.75, 1.0)]

    def repair_commit(self, entry: PipelineEntry, key: str) -> Commit:
        """Return a commit that attempts to repair the default branch."""
        person, sha = self._person(entry, entry.key, key, "person"), self.random.sha(entry.key, key, "sha")
        author = _author(entry, person, "webhook", is_odd=self.world.is_odd)
        return Commit(sha, entry.pipeline.default_branch, "Repair the checkout", "webhook", person, author)

    def rebuild_commit(self, entry: PipelineEntry, build: BuildRun) -> Commit:
        """Return the commit of a build with the person who rebuilds it."""
        person = self._person(entry, build.id, "rebuilder")
        return msgspec.structs.replace(build.commit, source="ui", creator=person, author=None)

    def follow_up_delay(self, entry: PipelineEntry, n: str) -> int | None:
        """Return the delay until a follow-up push to the same branch; None if there is none."""
        if not self.random.happens(_FOLLOW_UP_SHARE, entry.key, n, "hurry"):
            return None
        return int(self.random.uniform_between(0.1, 0.4, entry.key, n, "hurried") * SECOND)

    def follow_up_commit(self, build: BuildRun) -> Commit:
        """Return the follow-up commit to that of a build."""
        sha = self.random.sha(build.id, "hurried sha")
        return msgspec.structs.replace(build.commit, sha=sha, message="Add what was forgotten")

    def repeat_delay(self, entry: PipelineEntry, build: BuildRun) -> int | None:
        """Return the delay until the push of a build is built a second time; None if it is not."""
        for repeated in self.world.truth.repeated_builds:
            is_affected = entry.key == _key(repeated) and repeated.since.us <= build.created < repeated.until.us
            if is_affected and self.random.happens(repeated.share, build.id, "repeated"):
                return int(self.random.uniform_between(0.5, 3, build.id, "repeated after") * SECOND)
        return None

    def triggered_commit(self, build: BuildRun, trigger: Trigger) -> Commit:
        """Return the commit that a trigger step of a build passes to the new build."""
        own = build.commit
        return Commit(
            sha=own.sha if trigger.commit is None else trigger.commit,
            branch=own.branch if trigger.branch is None else trigger.branch,
            message=own.message if trigger.message is None else trigger.message,
            source="trigger_job",
            creator=own.creator,
            author=own.author,
            env=trigger.env or own.env,
        )

    def with_meta_data(self, entry: PipelineEntry, commit: Commit, id: str, number: int) -> Commit:
        """Return a commit with the tag and the meta-data of its build."""
        if commit.branch != entry.pipeline.default_branch:
            preview = {"preview": commit.branch} if commit.pull_request else {}
            return msgspec.structs.replace(commit, tag=None, meta_data=preview)
        is_stable = self.random.happens(0.2, id, "stable")
        release = {"release": f"2026.{number}", "channel": "stable" if is_stable else "edge"}
        tag = f"v2.{number}.0" if commit.source == "api" else None
        return msgspec.structs.replace(commit, tag=tag, meta_data=release)

    def skipped_numbers(self, id: str) -> int:
        """Return how many build numbers are skipped before that of a build."""
        return self.random.choice((1, 2, 3), id, "skipped numbers") if self.random.happens(0.02, id, "gap") else 0

    def outcome(self, entry: PipelineEntry, build: BuildRun, job: JobRun) -> JobOutcome:
        """Return the outcome of an attempt, limited by the timeout of its step."""
        outcome, step = self._unlimited(entry, build, job), self._step(build, job)
        scale = self.world.run_scale.get(step.key)
        if scale is not None:
            outcome = msgspec.structs.replace(outcome, microseconds=round(outcome.microseconds * scale))
        minutes = step.timeout_in_minutes
        if minutes is None or outcome.microseconds <= minutes * MINUTE:
            return outcome
        return JobOutcome(minutes * MINUTE, LOST, "cancel", "timed_out")

    def _unlimited(self, entry: PipelineEntry, build: BuildRun, job: JobRun) -> JobOutcome:
        full = self._duration(entry, build, job)
        storm = self._storm(entry, job)
        if storm is not None and storm.exit_status != LOST:
            seconds = self.random.uniform_between(2, 15, job.id, "stormed at")
            return JobOutcome(int(seconds * SECOND), storm.exit_status, None, "failed")
        if storm is not None or self.random.happens(_LOST_SHARE, job.id, "lost"):
            return JobOutcome(int(full * self.random.uniform(job.id, "lost at")) + SECOND, LOST, AGENT_LOST, "failed")
        if not self._fails(entry, build, job):
            return JobOutcome(full, 0)
        status = 1 if self.random.happens(0.8, job.id, "status") else 2
        part = self.random.uniform_between(0.4, 1.0, job.id, "failed at")
        return JobOutcome(int(full * part), status, None, "failed")

    def _step(self, build: BuildRun, job: JobRun) -> PipelineStep:
        return self._pipelines.plans[build.plan].slots[job.step].step

    def _duration(self, entry: PipelineEntry, build: BuildRun, job: JobRun) -> int:
        step = self._step(build, job)
        seconds = self.random.lognormal(step.seconds, _SPREAD, job.id, "seconds")
        for slower in self._slower.get((entry.key, step.key), ()):
            if build.created >= slower.at.us:
                seconds *= slower.factor
        return int(seconds * SECOND)

    def _storm(self, entry: PipelineEntry, job: JobRun) -> Storm | None:
        """Return the storm in which a job started."""
        if job.agent is None or job.started is None:
            return None
        for storm, since, until in self._storms:
            is_within = since <= job.started < until and storm.organization == entry.organization.slug
            if is_within and machine_of_agent(job.agent) in storm.agents:
                return storm
        return None

    def _fails(self, entry: PipelineEntry, build: BuildRun, job: JobRun) -> bool:
        is_quiet = self.is_broken(entry, build, _QUIET_PERIOD)
        if job.step == UPLOAD:
            return not is_quiet and self.random.happens(_BAD_UPLOAD_SHARE, job.id, "fails")
        step = entry.key, self._step(build, job).key
        if any(_is_broken(broken, build) for broken in self._broken.get(step, ())):
            return True
        if is_quiet:
            return False
        for failing in self._failing.get(step, ()):
            if self.random.happens(failing.rate, entry.key, build.commit.sha, job.step, "fails early"):
                return True
        for flaky in self._flaky.get(step, ()):
            return self.random.happens(flaky.rate, job.id, "flake")
        regressed = self.random.happens(_REGRESSION_SHARE, entry.key, build.commit.sha, job.step, "bad")
        return regressed or self.random.happens(_FLAKE_SHARE, job.id, "flake")

    def is_broken(self, entry: PipelineEntry, build: BuildRun, margin: int = 0) -> bool:
        """Return whether a build falls into a planted outage of its branch, or lies within `margin` of it."""
        return any(_is_broken(broken, build, margin) for broken in self._outages.get(entry.key, ()))

    def manual_retry_delay(self, entry: PipelineEntry, build: BuildRun, job: JobRun) -> int | None:
        """Return the delay until someone retries a failed job; None if nobody does."""
        is_skipped = build.is_requested or job.soft_failed or self.is_broken(entry, build)
        return None if is_skipped else self._reaction_delay(0.3, 7 * MINUTE, 0.6, job.id, "by hand")

    def manual_unblock(self, entry: PipelineEntry, build: BuildRun, job: JobRun) -> tuple[int, int] | None:
        """Return the delay until someone unblocks a job, and the person; None if nobody does."""
        delay = None if build.is_requested else self._reaction_delay(0.8, 35 * MINUTE, 1.2, job.id, "unblock")
        return None if delay is None else (delay, self._person(entry, job.id, "unblocker"))

    def manual_cancel_delay(self, entry: PipelineEntry, build: BuildRun) -> int | None:
        """Return the delay until someone cancels a build; None if nobody does."""
        is_skipped = build.is_requested or build.commit.branch == entry.pipeline.default_branch
        return None if is_skipped else self._reaction_delay(0.04, 4 * MINUTE, 0.7, build.id, "cancel")

    def rebuild_delay(self, entry: PipelineEntry, build: BuildRun) -> int | None:
        """Return the delay until someone rebuilds a finished build; None if nobody does."""
        probability = 0.25 if build.state == "failed" else 0.02 if build.state == "passed" else 0.0
        is_skipped = build.is_requested or build.triggered_from or build.commit.branch == entry.pipeline.default_branch
        return None if is_skipped else self._reaction_delay(probability, 12 * MINUTE, 0.8, build.id, "rebuild")

    def _reaction_delay(self, probability: float, median: float, spread: float, id: str, action: str) -> int | None:
        if not self.random.happens(probability, id, action):
            return None
        return int(self.random.lognormal(median, spread, id, f"{action} after"))

    def _person(self, entry: PipelineEntry, *key: str) -> int:
        return self.random.choice(range(len(entry.organization.people)), *key)

    def boot_time(self, median_s: float, id: str) -> int:
        """Return how long the agent of a job boots."""
        return int(self.random.lognormal(median_s * SECOND, _SPREAD, id, "boot")) if median_s else 0

    def delay(self, action: Action, id: str) -> int:
        """Return how long an action of a build or a job takes."""
        low, high, unit = _DELAYS[action]
        return int(self.random.uniform_between(low, high, id, action) * unit)


def _key(planted: SlowerStep | FlakyStep | FailingStep | BrokenBranch | RepeatedBuilds) -> str:
    """Return the key of the pipeline with an anomaly."""
    return f"{planted.organization}/{planted.pipeline}"


def _by_step(planted: Sequence[OfStep]) -> dict[tuple[str, str], list[OfStep]]:
    """Return anomalies by the keys of their pipeline and step."""
    by_step: dict[tuple[str, str], list[OfStep]] = {}
    for one in planted:
        by_step.setdefault((_key(one), one.step_key), []).append(one)
    return by_step


def _is_broken(broken: BrokenBranch, build: BuildRun, margin: int = 0) -> bool:
    """Return whether a build of the pipeline that is broken falls into the outage."""
    return build.commit.branch == broken.branch and broken.since.us - margin <= build.created < broken.until.us + margin


def _author(entry: PipelineEntry, person: int, source: str, *, is_odd: bool) -> tuple[str, str] | str | None:
    """Return the author of a commit; in an odd world, as the source of the build reports it."""
    who = entry.organization.people[person]
    shapes: dict[str, tuple[str, str] | str] = {"webhook": (who.name, who.email)}
    shapes["api"] = who.name if is_odd else (who.name, who.email)
    return shapes.get(source)
