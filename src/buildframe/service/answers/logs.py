"""What jobs write while they run, worked out from the job: the same job has written the same, up to any moment."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import NamedTuple

from buildframe.service.world.chance import Chance
from buildframe.service.world.model import SECOND
from buildframe.service.world.runs import BuildRun, JobRun
from buildframe.service.world.steps import Step

_MOST = 2000
_HEADERS = ("--- ", "+++ ", "~~~ ")
_SAID = (
    "\x1b[32m✓\x1b[0m passed", "checked", "\x1b[33mwarning\x1b[0m: nothing in the cache", "read <config> & went on",
    "copied 12 files", "\x1b[2mcompiled\x1b[0m", "日本語 🚀 ok",
)  # fmt: skip


class Written(NamedTuple):
    """A line of a log and when it was written, in microseconds."""

    at: int
    text: str

    @property
    def is_header(self) -> bool:
        """Whether it begins a group of lines."""
        return self.text.startswith(_HEADERS)


def written(build: BuildRun, job: JobRun, step: Step, chance: Chance, now: int) -> list[Written]:
    """The lines that a job has written up to now: none before it started."""
    if job.started is None:
        return []
    over = job.finished is not None and job.finished <= now
    end = job.finished if job.finished is not None and over else now
    told = list(takewhile(lambda line: line.at <= end, islice(_coming(build, job, step, chance, job.started), _MOST)))
    return told + [Written(end, text) for text in _ending(job)] if over else told


def _coming(build: BuildRun, job: JobRun, step: Step, chance: Chance, started: int) -> Iterator[Written]:
    """All that a job would write if it never ended; about forty lines in the time that its step usually takes."""
    for place, text in enumerate(_opening(build, step)):
        yield Written(started + place * SECOND // 10, text)
    at, pace, n = started + SECOND, max(step.seconds / 40, 0.2) * SECOND, 0
    while True:
        at += 1 + int(chance.gap(pace, job.id, n, "line"))
        yield Written(at, f"{n + 1:4} {chance.pick(_SAID, job.id, n, 'says')}")
        n += 1


def _opening(build: BuildRun, step: Step) -> Iterator[str]:
    yield "~~~ :hammer: Prepare the checkout"
    yield f"$ git fetch origin {build.commit.branch}"
    yield f"$ git checkout --force {build.commit.sha}"
    yield from (f"    {text}" for text in build.commit.message.splitlines())
    yield f"--- {step.label or step.key}"
    yield from (f"$ {text}" for text in step.command.splitlines())


def _ending(job: JobRun) -> Iterator[str]:
    if job.signal_reason is not None:
        yield f"\x1b[31mEnded: {job.signal_reason}\x1b[0m"
    elif job.exit_status:
        yield "^^^ +++"
        yield "\x1b[31m1 failure\x1b[0m: expected 3, got <b>4</b>"
        yield f"\x1b[31mThe command exited with status {job.exit_status}\x1b[0m"
    else:
        yield "\x1b[32mDone\x1b[0m"


def text(lines: list[Written]) -> str:
    """The lines one after the other, each behind its time in an escape that terminals do not show."""
    return "".join(f"\x1b_bk;t={line.at // 1000}\x07{line.text}\n" for line in lines)
