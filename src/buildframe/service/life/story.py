"""What happens by chance or by plan: who pushes what and when, how long a job runs and how it ends."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from buildframe.service.life.rules import LOST, Ended
from buildframe.service.world import rhythm
from buildframe.service.world.chance import Chance
from buildframe.service.world.lines import Line, Lines
from buildframe.service.world.model import DAY, SECOND, World
from buildframe.service.world.runs import BuildRun, Commit, JobRun, PullRequest
from buildframe.service.world.steps import UPLOAD, Step, Trigger
from buildframe.service.world.truth import BrokenBranch, FlakyStep, SlowerStep

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

_SPREAD = 0.18
_LOST_SHARE = 0.004
_FLAKE_SHARE = 0.003
_REGRESSION_SHARE = 0.007
_BAD_UPLOAD_SHARE = 0.002
_HURRY_SHARE = 0.04
_CALM = 3 * HOUR

_MESSAGES = (
    "Round totals before tax", "Retry the search once", "Move settings to their own page", "Pin the base image",
    "Fix the flicker of the cart badge", "Speed up the first query", "Remove an unused flag",
    "Say why an import failed",
    "Update dependencies", "Log the request's id", "Cache the price list", "Handle empty baskets",
    "Revert \"Cache the price list\"", "Show <b>bold</b> & \"quoted\" names as text", "<script>alert('hi')</script>",
    "Größe, naïveté, 日本語 and 🚀 in titles",
    "Split the migration\n\nThe first half is safe to run twice.\nThe second isn't.",
    "=SUM(A1:A9) is a title, too", "Name the worker's queue; DROP TABLE builds;--",
)  # fmt: skip
_TOPICS = ("checkout", "search", "prices", "login", "import", "cleanup", "speed", "labels")


class Outcome(NamedTuple):
    """How long a job runs and how it ends."""

    microseconds: int
    exit_status: int
    signal_reason: str | None = None
    state: Ended = "passed"


class Story:
    """The world's chances: everything here is a pure function of the world and of what is asked."""

    def __init__(self, world: World, lines: Lines) -> None:
        self.world, self._lines = world, lines
        self.chance = Chance(world.seed)

    def next_push(self, line: Line, n: int) -> int:
        """How long after the chance of a push its next chance comes, were every hour the busiest."""
        return int(self.chance.gap(HOUR / line.pipeline.pushes_per_hour, line.key, "push", n)) + 1

    def push_happens(self, line: Line, n: int, now: int) -> bool:
        """Whether a chance of a push is taken, as people's working hours go."""
        return self.chance.happens(rhythm.busyness(now), line.key, "pushed", n)

    def commit(self, line: Line, key: str, now: int) -> Commit:
        """A new commit of someone."""
        chance, pipeline = self.chance, line.pipeline
        on_main = chance.happens(pipeline.main_share, line.key, key, "main")
        branch = pipeline.default_branch if on_main else self._branch(line, key, now)
        person = int(chance.number(line.key, branch if not on_main else key, "person") * len(line.organization.people))
        how = chance.number(line.key, key, "source")
        source = "webhook" if how > 0.08 else "api" if how > 0.04 else "ui"
        in_pull_request = not on_main and chance.happens(0.6, line.key, branch, "pr")
        return Commit(
            sha=chance.sha(line.key, key, "sha"),
            branch=branch,
            message=chance.pick(_MESSAGES, line.key, key, "message"),
            source=source,
            creator=person if chance.happens(0.9, line.key, person, key, "member") else None,
            author=_author(line, person, source),
            env={"STARTED_BY": "release-bot"} if source == "api" else {},
            pull_request=self._pull_request(line, branch) if in_pull_request else None,
        )

    def _pull_request(self, line: Line, branch: str) -> PullRequest:
        id = 1 + int(self.chance.number(line.key, branch, "pr id") * 4000)
        return PullRequest(id, line.pipeline.default_branch, labels=("preview",) if id % 4 == 0 else ())

    def _branch(self, line: Line, key: str, now: int) -> str:
        era, place = now // (2 * DAY), int(self.chance.number(line.key, key, "branch") * 8)
        topic = self.chance.pick(_TOPICS, line.key, era, place, "topic")
        kind = self.chance.pick(("feature", "fix", "dev"), line.key, era, place, "kind")
        return f"{kind}/{topic}-{era % 1000}{place}"

    def nightly(self, line: Line, key: str) -> Commit:
        """The default branch as it is at night, built because the clock says so."""
        return Commit(
            sha=self.chance.sha(line.key, key, "sha"),
            branch=line.pipeline.default_branch,
            message="Nightly",
            source="schedule",
        )

    def repairs(self) -> list[int]:
        """When someone tries to repair the branch that is broken on purpose; the last try, at the end, works."""
        broken = self.world.truth.broken_branch
        return [int(broken.since.us + part * (broken.until.us - broken.since.us)) for part in (0.25, 0.5, 0.75, 1.0)]

    def repair(self, line: Line, key: str) -> Commit:
        """A commit on the default branch that is to repair it."""
        person = int(self.chance.number(line.key, key, "person") * len(line.organization.people))
        return Commit(
            sha=self.chance.sha(line.key, key, "sha"),
            branch=line.pipeline.default_branch,
            message="Repair the checkout",
            source="webhook",
            creator=person,
            author=_author(line, person, "webhook"),
        )

    def rebuilt(self, line: Line, build: BuildRun) -> Commit:
        """The commit of a build, built again by someone."""
        person = int(self.chance.number(build.id, "rebuilder") * len(line.organization.people))
        return msgspec.structs.replace(build.commit, source="ui", creator=person, author=None)

    def hurried(self, line: Line, n: str) -> int | None:
        """How soon someone pushes once more to the same branch, having forgotten something, if anyone does."""
        if not self.chance.happens(_HURRY_SHARE, line.key, n, "hurry"):
            return None
        return int(self.chance.between(0.1, 0.4, line.key, n, "hurried") * SECOND)

    def hurried_commit(self, build: BuildRun) -> Commit:
        """The commit that follows at once on that of a build."""
        sha = self.chance.sha(build.id, "hurried sha")
        return msgspec.structs.replace(build.commit, sha=sha, message="Add what was forgotten")

    def triggered(self, build: BuildRun, trigger: Trigger) -> Commit:
        """What a trigger step of a build has built."""
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

    def marked(self, line: Line, commit: Commit, number: int) -> Commit:
        """A commit with the tag and the meta-data that its build has by its number."""
        if commit.branch != line.pipeline.default_branch:
            preview = {"preview": commit.branch} if commit.pull_request else {}
            return msgspec.structs.replace(commit, tag=None, meta_data=preview)
        release = {"release": f"2026.{number}", "channel": "stable" if number % 5 == 0 else "edge"}
        tag = f"v2.{number}.0" if commit.source == "api" else None
        return msgspec.structs.replace(commit, tag=tag, meta_data=release)

    def skips_a_number(self, line: Line, number: int) -> int:
        """How many build numbers get lost before this one."""
        return int(self.chance.happens(0.02, line.key, number, "gap")) * (1 + number % 3)

    def dispatch(self, job: JobRun) -> int:
        """How long an agent takes from being given a job to starting it."""
        return int(self.chance.between(0.4, 2.2, job.id, "dispatch") * SECOND)

    def outcome(self, line: Line, build: BuildRun, job: JobRun) -> Outcome:
        """How an attempt goes; cut off where the step's time is up."""
        outcome = self._unlimited(line, build, job)
        minutes = self._step(build, job).timeout_in_minutes
        if minutes is None or outcome.microseconds <= minutes * MINUTE:
            return outcome
        return Outcome(minutes * MINUTE, LOST, "cancel", "timed_out")

    def _unlimited(self, line: Line, build: BuildRun, job: JobRun) -> Outcome:
        full = self._duration(line, build, job)
        if self.chance.happens(_LOST_SHARE, job.id, "lost"):
            return Outcome(int(full * self.chance.number(job.id, "lost at")) + SECOND, LOST, "agent_lost", "failed")
        if not self._fails(line, build, job):
            return Outcome(full, 0)
        status = 1 if self.chance.happens(0.8, job.id, "status") else 2
        return Outcome(int(full * self.chance.between(0.4, 1.0, job.id, "failed at")), status, None, "failed")

    def _step(self, build: BuildRun, job: JobRun) -> Step:
        return self._lines.plan(build.plan).slots[job.step].step

    def _duration(self, line: Line, build: BuildRun, job: JobRun) -> int:
        seconds = self.chance.around(self._step(build, job).seconds, _SPREAD, job.id, "seconds")
        slower = self.world.truth.slower_step
        if self._is(slower, line, job) and build.created >= slower.day.us:
            seconds *= slower.factor
        return int(seconds * SECOND)

    def _is(self, planted: SlowerStep | FlakyStep | BrokenBranch, line: Line, job: JobRun) -> bool:
        return (f"{planted.organization}/{planted.pipeline}", planted.step_key) == (line.key, job.step)

    def _fails(self, line: Line, build: BuildRun, job: JobRun) -> bool:
        if job.step == UPLOAD:
            return not self._is_spared(line, build) and self.chance.happens(_BAD_UPLOAD_SHARE, job.id, "fails")
        flaky, broken = self.world.truth.flaky_step, self.world.truth.broken_branch
        if self._is(broken, line, job) and self.is_broken(line, build):
            return True
        if self._is_spared(line, build):
            return False
        if self._is(flaky, line, job):
            return self.chance.happens(flaky.rate, job.id, "flake")
        regressed = self.chance.happens(_REGRESSION_SHARE, line.key, build.commit.sha, job.step, "bad")
        return regressed or self.chance.happens(_FLAKE_SHARE, job.id, "flake")

    def is_broken(self, line: Line, build: BuildRun) -> bool:
        """Whether a build falls into the hours in which its branch was broken on purpose."""
        broken = self.world.truth.broken_branch
        return self._is_on_broken_branch(line, build) and broken.since.us <= build.created < broken.until.us

    def _is_spared(self, line: Line, build: BuildRun) -> bool:
        """In and around the planted outage nothing else fails on its branch, so that it is clear."""
        broken = self.world.truth.broken_branch
        if not self._is_on_broken_branch(line, build):
            return False
        return broken.since.us - _CALM <= build.created < broken.until.us + _CALM

    def _is_on_broken_branch(self, line: Line, build: BuildRun) -> bool:
        broken = self.world.truth.broken_branch
        return (f"{broken.organization}/{broken.pipeline}", broken.branch) == (line.key, build.commit.branch)

    def retry_by_hand(self, line: Line, build: BuildRun, job: JobRun) -> int | None:
        """How long after a failure someone repeats the job, if anyone does."""
        left = build.asked_for or job.soft_failed or self.is_broken(line, build)
        if left or not self.chance.happens(0.3, job.id, "by hand"):
            return None
        return int(self.chance.around(7 * MINUTE, 0.6, job.id, "by hand after"))

    def unblock_by_hand(self, line: Line, build: BuildRun, job: JobRun) -> tuple[int, int] | None:
        """How long a block step waits until someone unblocks it, and who, if anyone does."""
        if build.asked_for or not self.chance.happens(0.8, job.id, "unblock"):
            return None
        person = int(self.chance.number(job.id, "unblocker") * len(line.organization.people))
        return int(self.chance.around(35 * MINUTE, 1.2, job.id, "unblock after")), person

    def cancel_by_hand(self, line: Line, build: BuildRun) -> int | None:
        """How long after its creation someone cancels a build, if anyone does."""
        left = build.asked_for or build.commit.branch == line.pipeline.default_branch
        if left or not self.chance.happens(0.04, build.id, "cancel"):
            return None
        return int(self.chance.around(4 * MINUTE, 0.7, build.id, "cancel after"))

    def rebuild(self, line: Line, build: BuildRun) -> int | None:
        """How long after its end someone builds a commit again, if anyone does."""
        chance = 0.25 if build.state == "failed" else 0.02 if build.state == "passed" else 0.0
        left = build.asked_for or build.triggered_from or build.commit.branch == line.pipeline.default_branch
        if left or not self.chance.happens(chance, build.id, "rebuild"):
            return None
        return int(self.chance.around(12 * MINUTE, 0.8, build.id, "rebuild after"))

    def beginning(self, build: BuildRun) -> int:
        """How long a build takes to begin that has no job to schedule first."""
        return int(self.chance.between(0.3, 1.5, build.id, "begin") * SECOND)

    def triggering(self, job: JobRun) -> int:
        """How long a trigger job takes to create its build."""
        return int(self.chance.between(0.3, 1.5, job.id, "trigger") * SECOND)

    def stopping(self, job: JobRun) -> int:
        """How long a canceled job takes to stop."""
        return int(self.chance.between(1, 9, job.id, "stop") * SECOND)

    def away(self, job: JobRun) -> int:
        """How long a lost agent stays away."""
        return int(self.chance.between(4, 15, job.id, "away") * MINUTE)


def _author(line: Line, person: int, source: str) -> tuple[str, str] | str | None:
    """The author as the source of a build tells of one."""
    who = line.organization.people[person]
    shapes: dict[str, tuple[str, str] | str] = {"webhook": (who.name, who.email), "api": who.name}
    return shapes.get(source)
