"""Decide whether and when to send a request again. Does not know how requests are sent."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import TypeVar

import tenacity

from buildframe.errors import BuildframeError, RateLimited, ServiceError, Unreachable
from buildframe.guards import interrupts
from buildframe.http.budget import RequestBudget
from buildframe.http.rate_limit import LONGEST_WAIT

MAX_CONNECTS = 5
"""Attempts in a row that may end without a connection or without a response in time."""

MAX_ATTEMPTS = 12
"""Attempts of one request: if one in three fails, two requests in a million fail this often."""

_BACKOFF = tenacity.wait_exponential(multiplier=0.5, max=9.0) + tenacity.wait_random(0.0, 1.0)

T = TypeVar("T")


def retry(send: Callable[[], T], budget: RequestBudget) -> T:
    """Call `send` until it returns, raises an error that is not retryable, or has been called often enough."""
    attempts = _Attempts(budget)
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: _is_worth_retrying(error, budget)),
        wait=_seconds_to_wait,
        stop=attempts.are_used_up,
        before_sleep=lambda state: _wait_before_retry(state, budget),
        sleep=lambda seconds: None,  # `before_sleep` has waited, since it knows the reason
        reraise=True,
    )
    try:
        return retrying(send)
    except BuildframeError as failure:
        attempts.add_note(failure, retrying.statistics["attempt_number"])
        raise


class _Attempts:
    """When to give up on one request."""

    def __init__(self, budget: RequestBudget) -> None:
        self._budget = budget
        self._began = time.monotonic()
        self._without_response = 0

    def are_used_up(self, state: tenacity.RetryCallState) -> bool:
        error = _error_of(state)
        is_without_response = isinstance(error, Unreachable) and not (error.sent and error.in_time)
        self._without_response = self._without_response + 1 if is_without_response else 0
        are_used_up = state.attempt_number >= MAX_ATTEMPTS or self._without_response >= MAX_CONNECTS
        return are_used_up and not self._budget.is_expired  # the wait for another attempt raises DeadlineExceeded

    def add_note(self, failure: BuildframeError, attempts: int) -> None:
        """Add the number of attempts and their duration to an error that stayed."""
        if failure.retryable and attempts > 1:
            failure.add_note(f"Tried {attempts} times in {time.monotonic() - self._began:.0f} s.")


def _wait_before_retry(state: tenacity.RetryCallState, budget: RequestBudget) -> None:
    interrupts.mark_not_performed()
    budget.wait_for_retry(state.upcoming_sleep, _reason(state))


def _is_worth_retrying(error: BaseException, budget: RequestBudget) -> bool:
    if not isinstance(error, BuildframeError) or not error.retryable:
        return False
    longest = LONGEST_WAIT if budget.seconds_left is None else math.inf  # a deadline ends waits that are too long
    return not isinstance(error, ServiceError) or (error.retry_after or 0.0) <= longest


def _error_of(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _seconds_to_wait(state: tenacity.RetryCallState) -> float:
    error = _error_of(state)
    requested = error.retry_after if isinstance(error, ServiceError) else None
    if requested is None or (isinstance(error, RateLimited) and state.attempt_number > 1):
        return _BACKOFF(state)
    if isinstance(error, RateLimited):
        return 0.0  # the rate limiter delays the next request of every thread
    return requested + random.uniform(0.0, 0.25)  # noqa: S311  not a secret


def _reason(state: tenacity.RetryCallState) -> str:
    error = _error_of(state)
    if isinstance(error, RateLimited):
        return "the rate limit is used up"
    return f"the service returned {error.status}" if isinstance(error, ServiceError) else "no readable response"
