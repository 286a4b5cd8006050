"""Send a request, decode its response, and send it again if that fails and is safe. Does not know lists."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from buildframe.errors import (
    BuildframeError,
    Malformed,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    ServiceError,
    Unavailable,
    Unreachable,
)
from buildframe.guards import interrupts
from buildframe.http.budget import RequestBudget
from buildframe.http.client import Client, lost_response, sent_note
from buildframe.http.protocol import Request
from buildframe.http.rate_limit import LONGEST_WAIT, USED_UP
from buildframe.http.response import Response, TooLarge, refused
from buildframe.http.suggestions import with_suggestion

if TYPE_CHECKING:
    import tenacity

MAX_CONNECTS = 5  # attempts in a row that may end without a connection or without a response in time
MAX_ATTEMPTS = 12  # attempts of one request: if one in three fails, two requests in a million fail this often
_CHECK_FIRST = "Check whether it was performed before you repeat the call."

T = TypeVar("T")
Decode = Callable[[Request, Response], T]


def fetch(
    client: Client,
    request: Request,
    decode: Decode[T],
    budget: RequestBudget | None = None,
    *,
    advice: str = "",
    timeout: float | None = None,
    tries: int | None = None,
    is_up: Callable[[], bool] | None = None,
) -> T:
    """Send a request and return its decoded response.

    A request is sent again after 429 and if no connection was made. One that is repeatable is also
    sent again after 5xx, if there is no response in time, and if its body is no JSON: a proxy may
    have cut it. A body that is JSON but was refused would be the same again. The waits are the
    server's if it names one, else they grow, with jitter. The attempts are limited; `budget` counts
    them and may end them with Canceled or DeadlineExceeded. In these cases a request that is not
    repeatable raises OutcomeUnknown, with `advice` on how to check what happened.

    With `tries`, fetch gives up after so many responses with 5xx, or after one that is not in time,
    unless `is_up` returns False: then the service is down, and the request is sent again as usual.
    `is_up` counts as an attempt.
    """
    import tenacity  # with asyncio and, if it is installed, tornado: connect() does not need them

    budget, advice = budget or RequestBudget(), advice or _CHECK_FIRST
    interrupts.begin_request(None if request.repeatable else f"{sent_note(request)}\n{advice}")
    attempts = _Attempts(budget, tries, is_up)
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(attempts.is_worth_another),
        wait=_seconds_to_wait,
        stop=attempts.are_used_up,
        before_sleep=attempts.wait,
        sleep=lambda seconds: None,  # `before_sleep` has waited, since it knows the reason
        reraise=True,
    )
    try:
        decoded: T = retrying(_fetch_once, client, request, decode, budget, timeout)
        return decoded
    except OutcomeUnknown as lost:
        raise OutcomeUnknown(f"{lost}\n{advice}") from None
    except NotFound as missing:
        interrupts.begin_request(None)
        raise with_suggestion(client, request, missing) from None
    except BuildframeError as failure:
        attempts.add_note(failure, retrying.statistics["attempt_number"])
        raise


def _fetch_once(client: Client, request: Request, decode: Decode[T], budget: RequestBudget, timeout: float | None) -> T:
    failure: BuildframeError
    response = client.send(request, budget, timeout)
    try:
        return decode(request, response)
    except Malformed as why:
        failure = client.redacted(why)
    except ServiceError as why:
        # failures on the way, and redirects: the service may have performed an action
        may_be_performed = isinstance(why, Unavailable) or why.status < 400 or why.status in (408, 499)
        if request.repeatable or not may_be_performed:
            raise
        failure = lost_response(request, f"{why.status}: {why.message}")
    except RecursionError:
        failure = refused(f"The response is nested too deeply.\nRequest: {request.where}")
    if isinstance(failure, Malformed) and not request.repeatable:
        reason = str(failure).splitlines()[0]
        failure = lost_response(request, f"{response.status}, which cannot be read ({reason})")
    raise failure


def is_overload(error: BaseException | None) -> bool:
    """Whether a smaller response may succeed: after 5xx, a timeout, or too large a body."""
    is_timeout = isinstance(error, Unreachable) and error.sent and not error.in_time
    return is_timeout or isinstance(error, Unavailable | TooLarge)


class _Attempts:
    """The attempts of one request: whether to make another one, when, and when to give up."""

    def __init__(self, budget: RequestBudget, tries: int | None, is_up: Callable[[], bool] | None) -> None:
        self._budget = budget
        self._tries = tries
        self._is_up = is_up
        self._overloads = self._probes = 0
        self._began = time.monotonic()
        self._without_response = 0

    def is_worth_another(self, error: BaseException) -> bool:
        if not isinstance(error, BuildframeError) or not error.retryable:
            return False
        longest = LONGEST_WAIT if self._budget.seconds_left is None else math.inf  # a deadline ends long waits
        return not isinstance(error, ServiceError) or (error.retry_after or 0.0) <= longest

    def are_used_up(self, state: tenacity.RetryCallState) -> bool:
        error = _error_of(state)
        is_without_response = isinstance(error, Unreachable) and not (error.sent and error.in_time)
        self._without_response = self._without_response + 1 if is_without_response else 0
        if self._budget.is_expired:
            return False  # the wait for another attempt raises DeadlineExceeded
        attempts = state.attempt_number + self._probes
        are_used_up = attempts >= MAX_ATTEMPTS or self._without_response >= MAX_CONNECTS
        return are_used_up or self._may_shrink(error)

    def _may_shrink(self, error: BaseException | None) -> bool:
        """Whether to give up early because a smaller response may not fail."""
        if self._tries is None or not is_overload(error):
            return False
        self._overloads += self._tries if isinstance(error, Unreachable) else 1
        if self._overloads < self._tries:
            return False
        if self._is_up is None or self._is_up():
            return True
        self._tries = None
        self._probes = 1
        return False

    def wait(self, state: tenacity.RetryCallState) -> None:
        interrupts.mark_not_performed()
        error = _error_of(state)
        reason = f"the service returned {error.status}" if isinstance(error, ServiceError) else "no readable response"
        self._budget.wait_for_retry(state.upcoming_sleep, USED_UP if isinstance(error, RateLimited) else reason)

    def add_note(self, failure: BuildframeError, attempts: int) -> None:
        """Add the number of attempts and their duration to an error that stayed."""
        if failure.retryable and attempts > 1:
            failure.add_note(f"Tried {attempts} times in {time.monotonic() - self._began:.0f} s.")


def _error_of(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _backoff(state: tenacity.RetryCallState) -> float:
    import tenacity

    return (tenacity.wait_exponential(multiplier=0.5, max=9.0) + tenacity.wait_random(0.0, 1.0))(state)


def _seconds_to_wait(state: tenacity.RetryCallState) -> float:
    error = _error_of(state)
    requested = error.retry_after if isinstance(error, ServiceError) else None
    if requested is None or (isinstance(error, RateLimited) and state.attempt_number > 1):
        return _backoff(state)
    if isinstance(error, RateLimited):
        return 0.0  # the rate limiter delays the next request of every thread
    return requested + random.uniform(0.0, 0.25)  # noqa: S311  not a secret
