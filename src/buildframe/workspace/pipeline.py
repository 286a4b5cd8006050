"""Pipeline: what a user does with one pipeline and its builds."""

from __future__ import annotations

from typing import Unpack

from buildframe import spec
from buildframe.errors import BuildframeError, OutcomeUnknown
from buildframe.fetching import builds, records
from buildframe.guards.arguments import checked
from buildframe.guards.secrets import confined
from buildframe.http import protocol
from buildframe.http.budget import within_deadline
from buildframe.http.client import Client
from buildframe.spec import Endpoint, JobsOfBuild, NewBuild, PipelineChanges, Unblocking
from buildframe.spec.times import Deadline
from buildframe.workspace import logs, unblocking
from buildframe.workspace.build_queries import BuildLists, History, takes
from buildframe.workspace.logs import AnyJob, Log


@checked
class Pipeline(BuildLists):
    """One pipeline of an organization.

    An action whose answer is lost raises OutcomeUnknown; it is never sent a second time by itself.
    """

    def __init__(self, client: Client, organization: str, slug: str) -> None:
        self.organization = organization
        self._client = client
        self._list = spec.list_pipeline_builds
        self._go_on_as(slug)

    def __repr__(self) -> str:
        return f"<Pipeline {self.organization}/{self.slug} at {self._client.base_url}>"

    def _go_on_as(self, slug: str) -> None:
        protocol.request_for(spec.get_pipeline, self.organization, slug)  # refuses what is no slug
        self.slug = slug
        self._place = (self.organization, slug)

    # --- its builds

    @takes(spec.get_build)
    def build(self, number: int, *, deadline: Deadline = None, **filters: Unpack[JobsOfBuild]) -> spec.Build:
        """One build with its jobs, as a typed record; all attempts unless `include_retried_jobs=False`."""
        wanted = {"include_retried_jobs": True, **filters}
        return records.record(
            self._client,
            protocol.request_for(spec.get_build, *self._place, number, **wanted),
            spec.Build,
            deadline=deadline,
        )

    @takes(spec.get_build)
    def history_of(self, number: int, *, deadline: Deadline = None, **filters: Unpack[JobsOfBuild]) -> History:
        """One build and its jobs as two frames, like those of `history`."""
        wanted = {"include_retried_jobs": True, **filters}
        request = protocol.request_for(spec.get_build, *self._place, number, **wanted)
        with within_deadline(deadline):
            return History(*builds.one_build(self._source(), request))

    @takes(spec.create_build)
    def create_build(self, *, deadline: Deadline = None, **properties: Unpack[NewBuild]) -> spec.Build:
        """Start a build of a commit on a branch; the new build, with the next number of the pipeline."""
        request = protocol.request_for(spec.create_build, *self._place, **properties)
        advice = f"Look for it among the newest: .builds(branch={properties['branch']!r}, created_from='1h')."
        return records.record(self._client, request, spec.Build, advice, deadline=deadline)

    def cancel(self, number: int, *, deadline: Deadline = None) -> spec.Build:
        """Cancel a build that is scheduled, running or failing; the build, `canceled` or still `canceling`.

        Of any other state raises Invalid. Where the answer is lost, the build is read to see what became of it.
        """
        request = protocol.request_for(spec.cancel_build, *self._place, number)
        advice = f"Look at the state of .build({number}). Canceling again is safe."
        with within_deadline(deadline):
            try:
                return records.record(self._client, request, spec.Build, advice)
            except OutcomeUnknown as lost:
                return self._canceled_after_all(number, lost)

    def rebuild(self, number: int, *, deadline: Deadline = None) -> spec.Build:
        """Build the same again; the new build, whose `rebuilt_from` tells of this one."""
        request = protocol.request_for(spec.rebuild_build, *self._place, number)
        advice = f"Look for builds of the last hour whose rebuilt_from is {number}: .builds(created_from='1h')."
        return records.record(self._client, request, spec.Build, advice, deadline=deadline)

    @takes(spec.unblock_job)
    def unblock(self, job: AnyJob, *, deadline: Deadline = None, **properties: Unpack[Unblocking]) -> spec.Job:
        """Unblock a block step of one of its builds, as `Workspace.unblock` does."""
        with within_deadline(deadline):
            return unblocking.unblock(self._client, job, properties, self._place)

    @confined
    def log(self, job: AnyJob, *, deadline: Deadline = None) -> Log:
        """The log of a job of one of its builds, as `Workspace.log` gives it."""
        with within_deadline(deadline):
            return logs.log_of(self._client, job)

    # --- the pipeline itself

    def get(self, *, deadline: Deadline = None) -> spec.Pipeline:
        """What the service says of the pipeline, as a typed record."""
        return records.record(
            self._client, protocol.request_for(spec.get_pipeline, *self._place), spec.Pipeline, deadline=deadline
        )

    @takes(spec.update_pipeline)
    def update(self, *, deadline: Deadline = None, **properties: Unpack[PipelineChanges]) -> spec.Pipeline:
        """Change the pipeline; what is left out stays. Where its slug changes, this object goes on under the new one.

        A new `name` changes the slug, too, unless `slug` is given. Teams: `set_team` of the workspace.
        """
        request = protocol.request_for(spec.update_pipeline, *self._place, **properties)
        advice = (
            "Look at .get(), or at pipelines() of the workspace where the slug was to change; asking again is safe."
        )
        changed = records.record(self._client, request, spec.Pipeline, advice, deadline=deadline)
        if changed.slug:
            self._go_on_as(changed.slug)
        return changed

    def archive(self, *, deadline: Deadline = None) -> spec.Pipeline:
        """Make the pipeline read-only and hide it; its builds stay."""
        return self._act(spec.archive_pipeline, "Look at .get(): once archived, its archived_at is a time.", deadline)

    def unarchive(self, *, deadline: Deadline = None) -> spec.Pipeline:
        """Make the archived pipeline active again."""
        return self._act(
            spec.unarchive_pipeline, "Look at .get(): once active again, its archived_at is None.", deadline
        )

    def delete(self, *, deadline: Deadline = None) -> None:
        """Delete the pipeline with all its builds; nothing brings them back."""
        advice = "Look whether pipelines() of the workspace still has it."
        records.send_action(
            self._client, protocol.request_for(spec.delete_pipeline, *self._place), advice, deadline=deadline
        )

    def add_webhook(self, *, deadline: Deadline = None) -> None:
        """Make the repository's host report pushes, so that they start builds."""
        advice = "Look at the repository's webhooks at its host."
        records.send_action(
            self._client, protocol.request_for(spec.add_webhook, *self._place), advice, deadline=deadline
        )

    def _act(self, action: Endpoint, advice: str, deadline: Deadline) -> spec.Pipeline:
        return records.record(
            self._client, protocol.request_for(action, *self._place), spec.Pipeline, advice, deadline=deadline
        )

    def _canceled_after_all(self, number: int, lost: OutcomeUnknown) -> spec.Build:
        try:
            build = self.build(number)
        except BuildframeError as why:
            raise OutcomeUnknown(f"{lost}\nThe build could not be read either: {why}") from None
        if build.state in {"canceled", "canceling"}:
            return build
        raise OutcomeUnknown(f"{lost}\nBuild {number} is {build.state} now.") from None
