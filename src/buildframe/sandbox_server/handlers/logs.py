"""Handlers of logs. A log is a pure function of the job and the time, so that it is never stored."""

from __future__ import annotations

import html
from collections.abc import Iterator
from itertools import count, islice, takewhile
from typing import NamedTuple

from buildframe.sandbox_server.db.serializers import ORIGIN
from buildframe.sandbox_server.error_responses import not_found
from buildframe.sandbox_server.handlers import lookup, routes
from buildframe.sandbox_server.handlers.registry import ApiRequest, ApiResponse, HandlerGroup, handles
from buildframe.sandbox_server.world.build_state import BuildRun, JobRun
from buildframe.sandbox_server.world.hashed_random import SeededRandom
from buildframe.sandbox_server.world.model import SECOND
from buildframe.sandbox_server.world.steps import PipelineStep
from buildframe.terminal import COLORS

_MAX_LINES = 2000
_HEADERS = ("--- ", "+++ ", "~~~ ")
_TEXTS = (
    "\x1b[32m✓\x1b[0m passed", "checked", "\x1b[33mwarning\x1b[0m: nothing in the cache", "read <config> & went on",
    "copied 12 files", "\x1b[2mcompiled\x1b[0m", "日本語 🚀 ok",
)  # fmt: skip


class LogLine(NamedTuple):
    """A line of a log, and its time in microseconds."""

    at: int
    text: str


class LogHandlers(HandlerGroup):
    """Handles logs, which responses link to although the API document does not list them."""

    @handles(routes.get_log, routes.get_raw_log)
    def _get_log(self, request: ApiRequest) -> ApiResponse:
        build, job = lookup.find_job(self._db, request.path)
        step = self._db.pipelines.plans[build.plan].slots[job.step].step
        if step.kind != "script":
            raise not_found("log")
        lines = _generate_lines(build, job, step, self._db.serializer.random, self._db.load_now())
        # Each line follows its timestamp in a terminal escape sequence.
        content = "".join(f"\x1b_bk;t={line.at // 1000}\x07{line.text}\n" for line in lines)
        if request.endpoint is routes.get_raw_log or request.accept.startswith("text/plain"):
            return ApiResponse(content.encode(), kind="text/plain; charset=utf-8")
        if request.accept.startswith("text/html"):
            page = "".join(f"{html.escape(COLORS.sub('', line.text))}\n" for line in lines)
            return ApiResponse(page.encode(), kind="text/html; charset=utf-8")
        body = {
            "url": f"{ORIGIN}{routes.route_path(routes.get_log).format_map(request.path)}",
            "content": content,
            "size": len(content.encode()),
            "header_times": [line.at * 1000 for line in lines if line.text.startswith(_HEADERS)],  # nanoseconds
        }
        return ApiResponse(body)


def _generate_lines(build: BuildRun, job: JobRun, step: PipelineStep, random: SeededRandom, now: int) -> list[LogLine]:
    """Return the lines that a job has written until now; none before its start."""
    if job.started is None:
        return []
    over = job.finished is not None and job.finished <= now
    end = job.finished if job.finished is not None and over else now
    most = islice(_endless_lines(build, job, step, random, job.started), _MAX_LINES)
    lines = list(takewhile(lambda line: line.at <= end, most))
    return lines + [LogLine(end, text) for text in _ending(job)] if over else lines


def _endless_lines(
    build: BuildRun, job: JobRun, step: PipelineStep, random: SeededRandom, started: int
) -> Iterator[LogLine]:
    """Yield all lines of a job without an end, about forty in the median run time of its step."""
    for place, text in enumerate(_opening(build, step)):
        yield LogLine(started + place * SECOND // 10, text)
    at, mean = started + SECOND, max(step.seconds / 40, 0.2) * SECOND
    for n in count():
        at += 1 + int(random.exponential(mean, job.id, n, "line"))
        yield LogLine(at, f"{n + 1:4} {random.choice(_TEXTS, job.id, n, 'says')}")


def _opening(build: BuildRun, step: PipelineStep) -> Iterator[str]:
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
