"""Send a request, decode its response, and send it again if that fails and is safe. Does not know lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from buildframe.errors import BuildframeError, Malformed, OutcomeUnknown, ServiceError, Unavailable
from buildframe.guards import interrupts
from buildframe.http.budget import RequestBudget
from buildframe.http.client import Client, lost_response, sent_note
from buildframe.http.protocol import Request
from buildframe.http.response import Response
from buildframe.http.retry import retry

_CHECK_FIRST = "Check whether it was performed before you repeat the call."

T = TypeVar("T")


def fetch(
    client: Client,
    request: Request,
    decode: Callable[[Request, Response], T],
    budget: RequestBudget | None = None,
    *,
    advice: str = "",
    timeout: float | None = None,
) -> T:
    """Send a request and return its decoded response.

    A request is sent again after 429 and if no connection was made. One that is repeatable is also sent again after
    5xx, if there is no response in time, and if `decode` raises Malformed: a proxy may have cut the response. The waits
    are the server's if it names one, else they grow, with jitter. `retry` limits the attempts; `budget` counts
    them and may end them with Canceled or DeadlineExceeded. In these cases a request that is not repeatable raises
    OutcomeUnknown, with `advice` on how to check what happened.
    """
    budget, advice = budget or RequestBudget(), advice or _CHECK_FIRST
    interrupts.begin_request(None if request.repeatable else f"{sent_note(request)}\n{advice}")
    try:
        return retry(lambda: _fetch_once(client, request, decode, budget, timeout), budget)
    except OutcomeUnknown as lost:
        raise OutcomeUnknown(f"{lost}\n{advice}") from None


def _fetch_once(
    client: Client,
    request: Request,
    decode: Callable[[Request, Response], T],
    budget: RequestBudget,
    timeout: float | None,
) -> T:
    failure: BuildframeError
    response = client.send(request, budget, timeout)
    try:
        return decode(request, response)
    except Malformed as why:
        failure = Malformed(client.redact(str(why)))  # its text may quote the response
    except ServiceError as why:
        if request.repeatable or not _may_be_performed(why):
            raise
        failure = lost_response(request, f"{why.status}: {why.message}")
    except RecursionError:
        failure = Malformed(f"The response is nested too deeply.\nRequest: {request.where}")
    if isinstance(failure, Malformed) and not request.repeatable:
        reason = str(failure).splitlines()[0]
        failure = lost_response(request, f"{response.status}, which cannot be read ({reason})")
    raise failure


def _may_be_performed(error: ServiceError) -> bool:
    """Whether the service may have performed an action despite this error: failures on the way, and redirects."""
    return isinstance(error, Unavailable) or error.status < 400 or error.status in (408, 499)
