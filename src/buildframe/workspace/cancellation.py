"""Cancel one build of a pipeline, or many with an outcome for each. Does not know HTTP or pagination."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput, BuildframeError, DeadlineExceeded, Invalid, NotFound, OutcomeUnknown
from buildframe.fetching import records
from buildframe.fetching.progress import ProgressBar
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked
from buildframe.guards.secrets import confined
from buildframe.http import protocol
from buildframe.http.budget import within_deadline
from buildframe.http.client import lost_response
from buildframe.spec.builds import CANCELABLE_STATES
from buildframe.spec.times import Deadline
from buildframe.terminal import show
from buildframe.workspace.build_queries import BuildQueries

_CANCELED_STATES = ("canceling", "canceled")
_COLUMNS = ["number", "branch", "state", "web_url"]  # of CanceledBuild
_NOT_SENT = "not sent"


class CanceledBuild(NamedTuple):
    """A build: its state before, the outcome of its cancellation, its state after it, and the reason of a failure."""

    pipeline: str | None
    number: int
    branch: str | None
    state: str | None
    outcome: str
    state_after: str | None = None
    reason: str | None = None
    web_url: str | None = None


@checked
class BuildCancellation(BuildQueries):
    """Actions that cancel builds of a pipeline."""

    @confined
    def cancel(self, number: int, *, deadline: Deadline = None) -> spec.Build:
        """
        Cancel a build that is scheduled, running or failing.

        If the response is lost, or has another state, the build is fetched to find out whether it was canceled.

        Parameters
        ----------
        number : int
            Number of the build.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Build
            The build, whose state is `canceled` or still `canceling`.

        Raises
        ------
        Invalid
            If the build has another state.
        OutcomeUnknown
            If the response is lost or has another state, and the build is not canceled or cannot be fetched. Canceling
            again is safe.
        BadInput, DeadlineExceeded, ServiceError, Unreachable
            If an argument is invalid, or the request fails before the action.

        See Also
        --------
        cancel_all : Cancel all builds of a branch.

        Examples
        --------
        >>> web = ci.pipeline("web")
        >>> build = web.create_build(commit="HEAD", branch="main")
        >>> web.cancel(build.number).state
        'canceled'
        """
        request = protocol.request_for(spec.cancel_build, *self._place, number)
        advice = f"Look at the state of .build({number}). Canceling again is safe."
        with within_deadline(deadline):
            try:
                build = records.record(self._client, request, spec.Build, advice)
            except OutcomeUnknown as lost:
                return self._fetch_canceled(number, lost)
            if build.state in _CANCELED_STATES:
                return build
            response = f"the build is {self._client.redact(show(build.state))}"
            return self._fetch_canceled(number, OutcomeUnknown(f"{lost_response(request, response)}\n{advice}"))

    @confined
    def cancel_all(
        self,
        *,
        branch: str | Sequence[str] | None = None,
        numbers: Iterable[int] | None = None,
        at_most: int = 100,
        dry_run: bool = False,
        progress: bool | None = None,
        deadline: Deadline = None,
    ) -> pd.DataFrame:
        """
        Cancel all builds of a branch, or those with some numbers, that are scheduled, running or failing.

        Use `dry_run=True` first to see which builds these are. A build that cannot be canceled does not stop the
        others: the result has one row for each build, with its outcome.

        Parameters
        ----------
        branch : str or sequence of str, optional
            Cancel builds of these branches only. `*` matches any text, such as `"feature/*"`; `"*"` is all branches.
        numbers : iterable of int, optional
            Cancel builds with these numbers only, such as `builds["number"]`. Pass `branch`, `numbers` or both.
        at_most : int, default 100
            Raise `BadInput`, and cancel nothing, if more builds match.
        dry_run : bool, default False
            Send no cancellation, and return what would be canceled.
        progress : bool, optional
            Show a progress bar. By default only when interactive.
        deadline : str or timedelta, optional
            Stop after this time, such as "90s". Builds that are left have the outcome `not sent`. If the time passes
            before the first cancellation, `DeadlineExceeded` is raised.

        Returns
        -------
        pandas.DataFrame
            One row per build, newest first, which is also the order in which they are canceled. No rows if no build
            matches.

            =========== ===== ========================================================================
            pipeline    str   slug of the pipeline
            number      Int64 number of the build
            branch      str   its branch; null if the build was not found among unfinished ones
            state       str   its state before; null if the build was not found among unfinished ones
            outcome     str   see Notes
            state_after str   `canceled` or `canceling`; null for other outcomes
            reason      str   why it was not canceled; null if it was
            web_url     str   web page of the build
            =========== ===== ========================================================================

        Raises
        ------
        BadInput
            If neither `branch` nor `numbers` is passed, an argument is invalid, or more than `at_most` builds match.
            Nothing was canceled.
        Incomplete, DeadlineExceeded, ServiceError, Unreachable
            If the builds cannot be listed. Nothing was canceled.

        See Also
        --------
        cancel : Cancel one build.

        Notes
        -----
        The outcome is one of these:

        - `canceled`: the service canceled the build, or is about to. With `dry_run` it is `would cancel`.
        - `finished`: a build in `numbers` is not scheduled, running or failing, or does not exist. Nothing was sent.
        - `refused`: the service refused, usually because the build ended meanwhile.
        - `unknown`: the response was lost. Canceling again is safe.
        - `failed`: the request failed before the action. Later builds are `not sent`, because they would fail, too.
        - `not sent`: no request was sent, because of the deadline or of the failure of an earlier build.

        If you interrupt the call, a note at the `KeyboardInterrupt` says which builds are canceled.

        Examples
        --------
        >>> web = ci.pipeline("web")
        >>> builds = [web.create_build(commit="HEAD", branch="main") for _ in range(2)]
        >>> numbers = [build.number for build in builds]
        >>> web.cancel_all(branch="main", numbers=numbers, dry_run=True)["outcome"].tolist()
        ['would cancel', 'would cancel']
        >>> web.cancel_all(branch="main", numbers=numbers)["outcome"].tolist()
        ['canceled', 'canceled']
        """
        wanted = _check_numbers(numbers)
        if branch is None and wanted is None:
            raise BadInput("Pass branch=, numbers= or both. branch='*' matches the builds of all branches.")
        if at_most < 1:
            raise BadInput(f"at_most={at_most} must be at least 1.")
        with within_deadline(deadline):
            builds = self._list_cancelable(branch, wanted)
            if len(builds) > at_most:
                raise BadInput(
                    f"{format_count(len(builds), 'build')} match, more than at_most={at_most}. Nothing was canceled. "
                    f"Pass at_most={len(builds)} to cancel them all."
                )
            if dry_run:
                outcomes = [build._replace(outcome="would cancel") for build in builds]
            else:
                outcomes = _collect(cancel_each(lambda build: self.cancel(build.number), builds), len(builds), progress)
        missing = (wanted or set()) - {build.number for build in builds}
        reason = "It is not scheduled, running or failing, or it does not exist, or it is of another branch."
        slug = self._place[-1]
        outcomes += [CanceledBuild(slug, number, None, None, "finished", reason=reason) for number in missing]
        return _to_frame(outcomes)

    def _list_cancelable(self, branch: str | Sequence[str] | None, numbers: set[int] | None) -> list[CanceledBuild]:
        """Return the builds that can be canceled, newest first, with an empty outcome."""
        filters: dict[str, Any] = {} if branch is None or branch == "*" else {"branch": branch}
        builds = self.builds(state=CANCELABLE_STATES, columns=_COLUMNS, progress=False, **filters)
        rows: list[dict[Any, Any]] = builds.astype(object).where(builds.notna(), None).to_dict("records")
        listed = [CanceledBuild(pipeline=self._place[-1], outcome="", **row) for row in rows]
        return [build for build in listed if numbers is None or build.number in numbers]

    def _fetch_canceled(self, number: int, lost: OutcomeUnknown) -> spec.Build:
        """Return a build whose cancellation has no response, if it is canceled."""
        try:
            build = self._record(spec.Build, spec.get_build, number, include_retried_jobs=True)
        except BuildframeError as why:
            raise OutcomeUnknown(f"{lost}\nThe build could not be fetched either: {why}") from None
        if build.state in _CANCELED_STATES:
            return build
        raise OutcomeUnknown(f"{lost}\nBuild {number} is {self._client.redact(show(build.state))} now.") from None


def cancel_each(
    cancel: Callable[[CanceledBuild], spec.Build],
    builds: Iterable[CanceledBuild],
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[CanceledBuild]:
    """Cancel builds one after the other, and yield each with its outcome, also if it was not sent."""
    stop = ""
    for build in builds:
        if not stop and is_stopped():
            stop = "Stopped before."
        if stop:
            yield build._replace(outcome=_NOT_SENT, reason=stop)
            continue
        try:
            yield build._replace(outcome="canceled", state_after=cancel(build).state)
        except (Invalid, NotFound) as error:
            yield build._replace(outcome="refused", reason=str(error))
        except OutcomeUnknown as error:
            yield build._replace(outcome="unknown", reason=str(error))
        except DeadlineExceeded as error:
            stop = str(error)
            yield build._replace(outcome=_NOT_SENT, reason=stop)
        except BuildframeError as error:
            stop = f"Build #{build.number} failed before."
            yield build._replace(outcome="failed", reason=str(error))


def _collect(outcomes: Iterator[CanceledBuild], count: int, progress: bool | None) -> list[CanceledBuild]:
    """Return all outcomes; an interrupt gets a note of those so far."""
    done: list[CanceledBuild] = []
    try:
        with ProgressBar("builds", progress) as bar:
            for build in outcomes:  # one by one, so that none is lost
                done.append(build)
                bar.show_share(len(done) / count)
    except KeyboardInterrupt as interrupt:
        canceled = ", ".join(f"#{build.number}" for build in done if build.outcome == "canceled")
        interrupt.add_note(
            f"{len(done)} of {format_count(count, 'build')} were handled; canceled: {canceled or 'none'}."
        )
        raise
    return done


def _to_frame(builds: list[CanceledBuild]) -> pd.DataFrame:
    dtypes = dict.fromkeys(CanceledBuild._fields, "str") | {"number": "Int64"}
    frame = pd.DataFrame(builds, columns=list(CanceledBuild._fields)).astype(dtypes)
    return frame.sort_values("number", ascending=False, ignore_index=True)


def _check_numbers(numbers: Iterable[Any] | None) -> set[int] | None:
    if numbers is None:
        return None
    if isinstance(numbers, pd.DataFrame):
        raise BadInput("numbers= is a DataFrame. Pass its column of numbers, such as builds['number'].")
    values = list(numbers)
    if wrong := [value for value in values if not _is_number(value)]:
        raise BadInput(f"numbers= contains {show(wrong[0])}, which is not the number of a build.")
    return {int(value) for value in values}


def _is_number(value: Any) -> bool:
    """Return whether a value can be the number of a build."""
    return not isinstance(value, bool) and isinstance(value, Integral) and 0 < int(value) < 2**63
