"""PipelineWorkspace: the methods for one pipeline and its builds. Does not know HTTP or pagination."""

from __future__ import annotations

from typing import Any, Unpack

import pandas as pd

from buildframe import spec
from buildframe.errors import OutcomeUnknown
from buildframe.fetching import builds, records
from buildframe.fetching.options import ListOptions
from buildframe.fetching.source import ListSource
from buildframe.guards.arguments import checked
from buildframe.http import protocol
from buildframe.http.budget import within_deadline
from buildframe.http.client import Client
from buildframe.spec import JobFilters, JobsOfBuild, NewBuild, PipelineChanges, forms
from buildframe.spec.operations import keywords
from buildframe.spec.times import Deadline
from buildframe.workspace.build_queries import History, split_query
from buildframe.workspace.cancellation import BuildCancellation
from buildframe.workspace.signatures import accepts


@keywords
class JobListing(JobFilters, ListOptions, total=False):
    """Filters and options of the list of jobs of a build."""


@checked
class PipelineWorkspace(BuildCancellation):
    """
    One pipeline of an organization. `Workspace.pipeline` returns it.

    An action whose response is lost raises `OutcomeUnknown`. It is never repeated automatically.

    Parameters
    ----------
    client : Client
        Client with the URL of the service and the token.
    organization : str
        Slug of the organization.
    slug : str
        Slug of the pipeline.

    Attributes
    ----------
    organization : str
        Slug of the organization.
    slug : str
        Slug of the pipeline.

    Examples
    --------
    >>> web = ci.pipeline("web")
    >>> web.slug
    'web'
    >>> newest = web.builds(created_from="7d").iloc[0]
    """

    def __init__(self, client: Client, organization: str, slug: str) -> None:
        self.organization = organization
        self._client = client
        self._list = spec.list_pipeline_builds
        self.slug = ""  # the check of the slug may fail, and its traceback may show this object
        self._set_slug(slug)

    def __repr__(self) -> str:
        return f"<PipelineWorkspace {self.organization}/{self.slug} at {self._client.base_url}>"

    def _set_slug(self, slug: str) -> None:
        protocol.request_for(spec.get_pipeline, self.organization, slug)  # raises BadInput for invalid slugs
        self.slug = slug
        self._place = (self.organization, slug)

    # --- its builds

    @accepts(spec.get_build, JobsOfBuild)
    def build(self, number: int, *, deadline: Deadline = None, **filters: Unpack[JobsOfBuild]) -> spec.Build:
        """
        Fetch one build with its jobs.

        Parameters
        ----------
        number : int
            Number of the build.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".
        **filters
            Options for its jobs (`JobsOfBuild`).

        Returns
        -------
        Build
            The build as a typed record. `jobs` contains all attempts, unless
            `include_retried_jobs=False`. What `include_test_engine` adds is in `unknown`.

        Raises
        ------
        NotFound
            If there is no such build.
        BadInput, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If an argument is invalid, or the request fails.

        See Also
        --------
        history_of : The build and its jobs as frames.

        Examples
        --------
        >>> ci.pipeline("web").build(1).number
        1
        """
        options: dict[str, Any] = {"include_retried_jobs": True, **JobsOfBuild(**filters)}
        return self._record(spec.Build, spec.get_build, number, deadline=deadline, **options)

    @accepts(spec.get_build, JobsOfBuild)
    def history_of(self, number: int, *, deadline: Deadline = None, **filters: Unpack[JobsOfBuild]) -> History:
        """
        Fetch one build and its jobs as frames.

        Parameters
        ----------
        number : int
            Number of the build.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".
        **filters
            Options for its jobs (`JobsOfBuild`).

        Returns
        -------
        History
            Two frames as returned by `history`: `builds` with one row and the columns of the table `builds`, and `jobs`
            with the columns of the table `jobs`.

        Raises
        ------
        NotFound
            If there is no such build.
        BadInput, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If an argument is invalid, or the request fails.

        Examples
        --------
        >>> builds, jobs = ci.pipeline("web").history_of(1)
        >>> len(builds)
        1
        """
        options = {"include_retried_jobs": True, **JobsOfBuild(**filters)}
        request = protocol.request_for(spec.get_build, *self._place, number, **options)
        with within_deadline(deadline):
            return History(*builds.one_build(self._source(), request))

    @accepts(spec.list_build_jobs, JobListing)
    def jobs_of(self, number: int, **query: Unpack[JobListing]) -> pd.DataFrame:
        """
        List the jobs of one build in pages, for builds with more jobs than one response can have.

        Takes one more request than pages, for the columns of the build.

        Parameters
        ----------
        number : int
            Number of the build.
        **query
            Filters (`JobFilters`) and options (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row per job, with the columns of the table `jobs`. All attempts of retried jobs are
            included, unless `include_retried_jobs=False`. With `state`, columns that follow from
            other jobs of the build, such as `step` and `retry_of_job_id`, know only jobs in these
            states.

        Raises
        ------
        NotFound
            If there is no such build.
        BadInput, Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If an argument is invalid, or requests fail.

        See Also
        --------
        history_of : The build and its jobs in one response.

        Examples
        --------
        >>> jobs = ci.pipeline("web").jobs_of(1, state=["passed", "failed"])
        >>> bool((jobs["build_number"] == 1).all())
        True
        """
        filters, options = split_query(JobListing(**query), spec.list_build_jobs)
        source = ListSource(self._client, spec.list_build_jobs, (*self._place, number))
        source.page(filters)  # invalid filters raise BadInput before anything is sent
        request = protocol.request_for(spec.get_build, *self._place, number, exclude_jobs=True)
        return builds.jobs_of_build(source, request, {"include_retried_jobs": True, **filters}, options)

    def job(self, number: int, id: str, *, deadline: Deadline = None) -> spec.Job:
        """
        Fetch one job of a build.

        Parameters
        ----------
        number : int
            Number of the build.
        id : str
            UUID of the job.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Job
            The job as a typed record.

        Raises
        ------
        NotFound
            If the build has no such job.
        BadInput, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If an argument is invalid, or the request fails.

        Examples
        --------
        >>> id = ci.pipeline("web").jobs_of(1)["id"].iloc[0]
        >>> ci.pipeline("web").job(1, id).id == id
        True
        """
        return self._record(spec.Job, spec.get_job, number, id, deadline=deadline)

    @accepts(spec.list_annotations, ListOptions)
    def annotations(self, number: int, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """
        List the annotations of one build: texts of its jobs, such as a list of failed tests.

        Parameters
        ----------
        number : int
            Number of the build.
        **options
            Options of the list (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `annotations`, also if there is no row.
            Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        NotFound
            If there is no such build.
        BadInput, Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If an argument is invalid, or requests fail.

        Examples
        --------
        >>> web = ci.pipeline("web")
        >>> failed = web.builds(state="failed")
        >>> annotations = web.annotations(int(failed["number"].iloc[0]))
        >>> "body_html" in annotations
        True
        """
        source = ListSource(self._client, spec.list_annotations, (*self._place, number))
        return records.records(source, "annotations", ListOptions(**options))

    @accepts(spec.create_build, NewBuild)
    def create_build(self, *, deadline: Deadline = None, **properties: Unpack[NewBuild]) -> spec.Build:
        """
        Start a build of a commit on a branch.

        Parameters
        ----------
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` if the request is not sent within this time, such as "90s".
        **properties
            Properties of the build (`NewBuild`): `commit` and `branch`, and optional ones.

        Returns
        -------
        Build
            The new build, with the next number of the pipeline.

        Raises
        ------
        BadInput
            If a property is invalid. Nothing was sent.
        Invalid
            If the service rejects the build.
        OutcomeUnknown
            If the response is lost. The message says how to check whether the build exists.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> build = ci.pipeline("web").create_build(commit="HEAD", branch="main", message="Try it")
        >>> build.message
        'Try it'
        """
        request = protocol.request_for(spec.create_build, *self._place, **NewBuild(**properties))
        advice = f"Look for it among the newest builds: .builds(branch={properties['branch']!r}, created_from='1h')."
        return records.record(self._client, request, spec.Build, advice, deadline=deadline)

    def rebuild(self, number: int, *, deadline: Deadline = None) -> spec.Build:
        """
        Start a build with the same commit and properties as another one.

        Parameters
        ----------
        number : int
            Number of the other build.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Build
            The new build. Its `rebuilt_from` names the other one.

        Raises
        ------
        OutcomeUnknown
            If the response is lost. The message says how to check whether the build exists.
        BadInput, Invalid, NotFound, DeadlineExceeded, ServiceError, Unreachable
            If an argument is invalid, or the request fails before the action.

        Examples
        --------
        >>> ci.pipeline("web").rebuild(1).rebuilt_from.number
        1
        """
        advice = f"Look for builds of the last hour whose rebuilt_from is {number}: .builds(created_from='1h')."
        return self._record(spec.Build, spec.rebuild_build, number, advice=advice, deadline=deadline)

    # --- the pipeline itself

    def get(self, *, deadline: Deadline = None) -> spec.Pipeline:
        """
        Fetch the pipeline's settings and counts.

        Parameters
        ----------
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Pipeline
            The pipeline as a typed record.

        Raises
        ------
        NotFound
            If there is no such pipeline.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If the request fails.

        Examples
        --------
        >>> ci.pipeline("web").get().slug
        'web'
        """
        return self._record(spec.Pipeline, spec.get_pipeline, deadline=deadline)

    @accepts(spec.update_pipeline, PipelineChanges)
    def update(self, *, deadline: Deadline = None, **properties: Unpack[PipelineChanges]) -> spec.Pipeline:
        """
        Change the pipeline. Properties that are not passed stay as they are.

        A new `name` also changes the slug, unless `slug` is passed. Then this object uses the new slug. To change
        teams, use `Workspace.set_team`.

        Parameters
        ----------
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".
        **properties
            Properties to change (`PipelineChanges`).

        Returns
        -------
        Pipeline
            The changed pipeline.

        Raises
        ------
        BadInput
            If a property is invalid. Nothing was sent.
        Invalid
            If the service rejects the change.
        OutcomeUnknown
            If the response is lost. Repeating the call is safe.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> ci.pipeline("web").update(description="The web site").description
        'The web site'
        """
        changes = PipelineChanges(**properties)
        advice = "Look at .get(), or at pipelines() of the workspace if the slug changes. Repeating the call is safe."
        changed = self._record(spec.Pipeline, spec.update_pipeline, advice=advice, deadline=deadline, **changes)
        if changed.slug and changed.slug.lower() != self.slug.lower():
            if changes.keys().isdisjoint({"name", "slug"}) or forms.find_problem("slug", changed.slug):
                raise OutcomeUnknown(f"The response has another pipeline, or an invalid slug.\n{advice}")
            self._set_slug(changed.slug)
        return changed

    def archive(self, *, deadline: Deadline = None) -> spec.Pipeline:
        """
        Make the pipeline read-only and hide it. Its builds stay.

        Parameters
        ----------
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Pipeline
            The archived pipeline, with the time in `archived_at`.

        Raises
        ------
        OutcomeUnknown
            If the response is lost. The message says how to check.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> docs = ci.pipeline("docs")
        >>> docs.archive().archived_at is not None
        True
        >>> docs.unarchive().archived_at is None
        True
        """
        advice = "Look at .get(): archived_at is a time if it is archived."
        return self._record(spec.Pipeline, spec.archive_pipeline, advice=advice, deadline=deadline)

    def unarchive(self, *, deadline: Deadline = None) -> spec.Pipeline:
        """
        Make the archived pipeline active again.

        Parameters
        ----------
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Pipeline
            The pipeline, whose `archived_at` is None.

        Raises
        ------
        OutcomeUnknown
            If the response is lost. The message says how to check.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> docs = ci.pipeline("docs")
        >>> archived = docs.archive()
        >>> docs.unarchive().archived_at is None
        True
        """
        advice = "Look at .get(): archived_at is None if it is active."
        return self._record(spec.Pipeline, spec.unarchive_pipeline, advice=advice, deadline=deadline)

    def delete(self, *, deadline: Deadline = None) -> None:
        """
        Delete the pipeline with all its builds. This cannot be undone.

        Parameters
        ----------
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Raises
        ------
        OutcomeUnknown
            If the response is lost. The message says how to check.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> ci.pipeline("old-site").delete()  # doctest: +SKIP
        """
        advice = "Check whether pipelines() of the workspace still contains it."
        self._act(spec.delete_pipeline, advice=advice, deadline=deadline)

    def add_webhook(self, *, deadline: Deadline = None) -> None:
        """
        Make the host of the repository report pushes, so that they start builds.

        Parameters
        ----------
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Raises
        ------
        Invalid
            If the service cannot add a webhook to the repository.
        OutcomeUnknown
            If the response is lost. The message says how to check.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> ci.pipeline("web").add_webhook()  # doctest: +SKIP
        """
        self._act(spec.add_webhook, advice="Look at the webhooks of the repository.", deadline=deadline)
