"""Handler of annotations.

They follow from the jobs of a build and the seed, so that they are never stored.
"""

from __future__ import annotations

import html
from collections.abc import Iterator

from buildframe import spec
from buildframe.sandbox_server.db.serializers import JsonObject, format_time
from buildframe.sandbox_server.handlers import lookup
from buildframe.sandbox_server.handlers.registry import ApiRequest, ApiResponse, HandlerGroup, handles
from buildframe.sandbox_server.world.build_state import BuildRun, JobRun

_FAILED = ("failed", "timed_out")
_WITH_ERRORS = 0.8
"""Share of failed builds that list their failures."""

_WITH_COVERAGE = 0.5
"""Share of passed builds that report their coverage."""


class AnnotationHandlers(HandlerGroup):
    """Handles the annotations of builds."""

    @handles(spec.list_annotations)
    def _list(self, request: ApiRequest) -> ApiResponse:
        annotations = list(self._annotations(lookup.find_build(self._db, request.path)))
        return ApiResponse(request.page.slice(annotations), len(annotations))

    def _annotations(self, build: BuildRun) -> Iterator[JsonObject]:
        """Yield annotations of failures, of each failed job, of soft failures, and of coverage."""
        random = self._db.serializer.random
        ended = [job for job in build.latest().values() if job.finished is not None and job.started is not None]
        failed = [job for job in ended if job.state in _FAILED and not job.soft_failed]
        soft_failed = [job for job in ended if job.state in _FAILED and job.soft_failed]
        if failed and random.happens(_WITH_ERRORS, build.id, "annotated"):
            items = "".join(f"<li>{self._describe(build, job)}</li>" for job in failed)
            yield self._annotation(build, failed, "failures", "error", f"<p>Failed:</p><ul>{items}</ul>", priority=5)
            for job in failed:
                body = f"<p>{self._describe(build, job)}</p>"
                yield self._annotation(build, [job], f"job-{job.step}", "error", body, job_id=job.id)
        if soft_failed:
            items = "".join(f"<li>{self._describe(build, job)}</li>" for job in soft_failed)
            yield self._annotation(build, soft_failed, "soft-failures", "warning", f"<ul>{items}</ul>")
        if ended and build.state == "passed" and random.happens(_WITH_COVERAGE, build.id, "covered"):
            share = random.uniform_between(70, 95, build.id, "coverage")
            yield self._annotation(build, ended, "coverage", "info", f"<p>{share:.1f} % of lines are covered</p>")

    def _describe(self, build: BuildRun, job: JobRun) -> str:
        step = self._db.pipelines.plans[build.plan].slots[job.step].step
        outcome = "timed out" if job.state == "timed_out" else f"exited with status {job.exit_status}"
        return f"<strong>{html.escape(step.label or step.key)}</strong> {outcome}"

    def _annotation(
        self,
        build: BuildRun,
        jobs: list[JobRun],
        context: str,
        style: str,
        body: str,
        *,
        priority: int = 3,
        job_id: str | None = None,
    ) -> JsonObject:
        times = [job.finished for job in jobs if job.finished is not None]
        return {
            "id": self._db.serializer.random.uuid("annotation", build.id, context),
            "context": context,
            "style": style,
            "scope": "build" if job_id is None else "job",
            "job_id": job_id,
            "priority": priority,
            "body_html": body,
            "created_at": format_time(min(times)),
            "updated_at": format_time(max(times)),
        }
