"""Define every error that buildframe raises. Does not know HTTP clients or stores.

    BuildframeError
    ├── BadInput            an argument is invalid; nothing was changed (also a ValueError)
    ├── MissingExtra        an optional package is not installed (also an ImportError)
    ├── Unreachable         no response: address, network, TLS or timeout
    ├── Malformed           a response that does not match the API description
    ├── DeadlineExceeded    the deadline of a call passed; an action was not sent
    ├── Incomplete          a listing could not be completed; the message says how far it got
    ├── StoreFailed         the store could not be read or written; its content is intact
    ├── OutcomeUnknown      an action was sent, but its response is lost; the message says how to check
    ├── GraphQLError        GraphQL returned errors
    ├── Unverified          a webhook delivery whose signature cannot be verified
    └── ServiceError        the service returned an error
        ├── Unauthorized    401: the token is missing or unknown
        ├── Forbidden       403: the token lacks a scope or a permission
        ├── NotFound        404: the resource does not exist or is not visible to the token
        ├── Invalid         400, 409 and 422: the service rejected the request and says why
        ├── RateLimited     429: the rate limit is exceeded
        └── Unavailable     5xx: the service failed

Each message says what happened, what the server reported and what to do next. No error contains the token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from buildframe.terminal import escape_control_characters, shorten


class BuildframeError(Exception):
    """
    Base class of all errors of this package.

    Catch it for any failure of a call, and read its message, which says what to do.

    Attributes
    ----------
    retryable : bool
        Whether the same call may succeed later.
    """

    retryable: bool = False

    def __str__(self) -> str:
        """Return the message, with terminal control characters made visible."""
        return escape_control_characters(super().__str__())


class BadInput(BuildframeError, ValueError):
    """
    An argument is invalid. Nothing was changed.

    Correct the argument that the message names.
    """


class MissingExtra(BuildframeError, ImportError):
    """
    A package of an optional extra is not installed.

    Run the `pip install` of the message.

    Parameters
    ----------
    feature : str
        Function or class that needs the package.
    extra : str
        Extra of buildframe to install.
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f'{feature} needs the extra "{extra}": pip install "buildframe[{extra}]"')


class Unreachable(BuildframeError):
    """
    The service sent no response.

    Check the URL, the network and the proxy. The call can be repeated.

    Attributes
    ----------
    sent : bool
        Whether the request may have reached the service.
    in_time : bool
        False if a timeout ended the request.
    """

    retryable = True
    sent = True
    in_time = True


class Malformed(BuildframeError):
    """
    A response does not match the API description.

    Repeat the call. If it fails again, look for a proxy that changes responses, and report the message.
    """

    retryable = True


class Incomplete(BuildframeError):
    """
    A listing could not be completed. The message says how far it got and why it stopped.

    Repeat the call with a shorter time range or a filter, or pass `partial=True` to get the rows that were read.
    """


class DeadlineExceeded(BuildframeError):
    """
    The deadline of a call passed. An action that may have been sent raises `OutcomeUnknown` instead.

    Repeat the call with a later deadline or a shorter time range.
    """


class StoreFailed(BuildframeError):
    """
    The store could not be read or written.

    Correct what the message says about the disk or the object store, and repeat the call. Committed data is intact, and
    the next sync fetches what this one could not store.
    """


class OutcomeUnknown(BuildframeError):
    """
    An action was sent, but it is unknown whether the service performed it.

    Check as the message says before you repeat the call, or the action may happen twice. It is not retried.
    """


class GraphQLError(BuildframeError):
    """
    GraphQL returned errors.

    Correct the query as the messages say.

    Attributes
    ----------
    errors : tuple of mapping
        The errors as the service returned them, each with its `message`.
    """

    def __init__(self, errors: Sequence[Mapping[str, Any]]) -> None:
        self.errors = tuple(errors)
        messages = "; ".join(str(error.get("message") or dict(error)) for error in errors)
        super().__init__(f"GraphQL returned errors: {shorten(messages)}")


class Unverified(BuildframeError):
    """
    A webhook delivery has a missing, wrong or expired token or signature.

    Do not process it, and respond with 401. If deliveries of your service fail, compare the webhook's token.
    """


class ServiceError(BuildframeError):
    """
    The service returned an error.

    Do what the last line of the message says.

    Attributes
    ----------
    status : int
        HTTP status code.
    message : str
        Message of the server, without its end if it is longer than 1,000 characters.
    where : str
        Method and path of the request.
    errors : tuple of mapping
        Details from the server, such as the invalid fields.
    scope : str or None
        Scope that the operation needs, if the token lacks it.
    missing : str
        For a 404, what does not exist.
    retry_after : float or None
        Seconds that the server asks to wait.
    request_id : str or None
        Identifier of the request, for the support of the service.
    """

    hint: str = ""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        where: str = "",
        errors: Sequence[Mapping[str, Any]] = (),
        scope: str | None = None,
        missing: str = "",
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        self.status, self.message, self.where, self.errors = status, message, where, tuple(errors)
        self.scope, self.missing, self.retry_after, self.request_id = scope, missing, retry_after, request_id
        details = shorten("; ".join(_detail(error) for error in self.errors))
        summary = f"{status}: {message} ({details})" if details else f"{status}: {message}"
        lines = [summary, f"Request: {where}" if where else "", self.advice()]
        super().__init__("\n".join(filter(None, lines)))

    def advice(self) -> str:
        """
        Return what to do next.

        Returns
        -------
        str
            One or two sentences; empty if there is no advice.
        """
        return self.hint


def _detail(error: Mapping[str, Any]) -> str:
    """Format one error detail: field and code first, then everything else."""
    names = [str(error[key]) for key in ("field", "code") if error.get(key) is not None]
    others = [f"{key}: {value}" for key, value in error.items() if key not in ("field", "code")]
    return ", ".join([" ".join(names), *others] if names else others)


class Unauthorized(ServiceError):
    """
    401: the token is missing or unknown.

    Pass `token=` or set `BUILDFRAME_TOKEN`, and make sure that the token is not revoked.
    """

    hint = "Check the token: pass token=... or set BUILDFRAME_TOKEN, and make sure that it is not revoked."


class Forbidden(ServiceError):
    """
    403: the token lacks a scope, which `scope` names, or its user lacks a permission.

    Create a token with the scope, or ask an administrator for the permission.
    """

    def advice(self) -> str:
        if self.scope:
            return f"Use a token that has the scope {self.scope}."
        return "The token's user has no permission for this. Ask an administrator of the organization."


class NotFound(ServiceError):
    """
    404: the resource does not exist, or the token may not see it.

    Check the name, for which the message suggests the nearest one, the organization and the URL.
    """

    hint = "The resource does not exist, or this token may not see it. Check the path, and base_url= or BUILDFRAME_URL."

    def advice(self) -> str:
        """Return what is missing, or how to check the address."""
        return self.missing or self.hint


class Invalid(ServiceError):
    """
    400, 409 or 422: the service rejected the request. `message` contains the reason.

    Correct what the message names. After 409 or 422 for an action, look at the present state of the build first.
    """

    hint = "The service rejected the request. Correct what the message names, then try again."


class RateLimited(ServiceError):
    """
    429: the rate limit is exceeded, also after the waits that the service requested.

    Wait, or send fewer requests: a shorter time range, fewer users of the token, or a store.
    """

    retryable = True

    def advice(self) -> str:
        wait = f"Wait {self.retry_after:.10g} s" if self.retry_after is not None else "Wait"
        return f"{wait} and try again, or send fewer requests (a shorter time range, fewer parallel users)."


class Unavailable(ServiceError):
    """
    5xx: the service failed, also after retries.

    Try again later.
    """

    retryable = True
    hint = "The service failed. Try again later."
