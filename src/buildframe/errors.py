"""Everything that buildframe raises on purpose.

    BuildframeError
    ├── BadInput            what you passed cannot be used; nothing was changed (also a ValueError)
    ├── MissingExtra        an optional package is not installed (also an ImportError)
    ├── Unreachable         no answer: address, network, TLS, time-out
    ├── Malformed           an answer that is not what the service's document says
    ├── DeadlineExceeded    the deadline of a call passed; of an action: it was not sent
    ├── Incomplete          a walk could not be finished; says how far it came
    ├── StoreFailed         the store could not be read or written; what was in it is whole
    ├── OutcomeUnknown      an action was sent and its answer is lost; says how to look what became of it
    ├── GraphQLError        GraphQL answered with errors
    ├── Unverified          a webhook delivery that cannot be trusted
    └── ServiceError        the service answered with an error
        ├── Unauthorized    401: no token, or a wrong one
        ├── Forbidden       403: the token lacks a scope or a permission
        ├── NotFound        404: no such thing, or not for this token
        ├── Invalid         400, 409 and 422: understood and refused, with the reason
        ├── RateLimited     429: over the limit
        └── Unavailable     5xx: the service itself failed

Each says what happened, what the server said and what to do next. None ever holds the token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from buildframe.terminal import harmless


class BuildframeError(Exception):
    """Base of all errors of this package. `retryable` tells whether trying again may help."""

    retryable: bool = False

    def __str__(self) -> str:
        """The text, in which characters of others that would steer a terminal are made visible."""
        return harmless(super().__str__())


class BadInput(BuildframeError, ValueError):
    """What you passed cannot be used; nothing was changed."""


class MissingExtra(BuildframeError, ImportError):
    """A package of an optional extra is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs more packages: pip install "buildframe[{extra}]"')


class Unreachable(BuildframeError):
    """The service gave no answer. `sent`: whether the request may have reached it; `in_time`: not for a time limit."""

    retryable = True
    sent = True
    in_time = True


class Malformed(BuildframeError):
    """An answer that is not what the service's document says."""

    retryable = True


class Incomplete(BuildframeError):
    """A walk could not be finished; the text says how far it came and why it stopped."""


class DeadlineExceeded(BuildframeError):
    """The deadline of a call passed before it was done. An action that may have been sent raises OutcomeUnknown."""


class StoreFailed(BuildframeError):
    """The store could not be read or written; the text holds what the disk or the object store said.

    What was committed before is whole, and the next sync brings what this one could not.
    """


class OutcomeUnknown(BuildframeError):
    """An action was sent, and what came back does not tell whether it happened. It is not sent again.

    The text says how to look; asking again without looking may do it twice.
    """


class GraphQLError(BuildframeError):
    """GraphQL answered with errors; `errors` holds them as they came, each with its `message`."""

    def __init__(self, errors: Sequence[Mapping[str, Any]]) -> None:
        self.errors = tuple(errors)
        said = "; ".join(str(error.get("message") or dict(error)) for error in errors)
        super().__init__(f"GraphQL answered: {said}")


class Unverified(BuildframeError):
    """A webhook delivery whose token or signature is missing, wrong or too old: do not act on it."""


class ServiceError(BuildframeError):
    """The service answered with an error.

    Attributes: `status` (HTTP), `message` and `errors` (what the server said), `scope` (the one that
    the operation needs, where the token lacks it), `missing` (of a 404: what does not exist), `retry_after`
    (seconds, where the server named a wait), `retryable`, `request_id` (for the service's support).
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
        self.status = status
        self.message = message
        self.where = where
        self.errors = tuple(errors)
        self.scope = scope
        self.missing = missing
        self.retry_after = retry_after
        self.request_id = request_id
        super().__init__(self._text())

    def _text(self) -> str:
        said = f"{self.status}: {self.message}"
        details = "; ".join(_detail(error) for error in self.errors)
        parts = [f"{said} ({details})" if details else said]
        if self.where:
            parts.append(f"Asked: {self.where}")
        if self.advice():
            parts.append(self.advice())
        return "\n".join(parts)

    def advice(self) -> str:
        """What to do next."""
        return self.hint


def _detail(error: Mapping[str, Any]) -> str:
    """`field code`, and whatever else an element holds."""
    named = [str(error[key]) for key in ("field", "code") if error.get(key) is not None]
    others = [f"{key}: {value}" for key, value in error.items() if key not in ("field", "code")]
    return ", ".join([" ".join(named), *others] if named else others)


class Unauthorized(ServiceError):
    """401: no token, or one that the service does not know."""

    hint = "Check the token: pass token=... or set BUILDFRAME_TOKEN, and see that it is not revoked."


class Forbidden(ServiceError):
    """403: the token lacks a scope (then `scope` names it) or a permission."""

    def advice(self) -> str:
        if self.scope:
            return f"Use a token that has the scope {self.scope}."
        return "The token's user has no permission for this; ask an administrator of the organization."


class NotFound(ServiceError):
    """404: it does not exist, or this token may not see it."""

    def advice(self) -> str:
        """What is missing, where the address names it."""
        return (
            self.missing
            or "Nothing is at this address, or this token may not see it. "
            "Check the address: the path, and base_url= or BUILDFRAME_URL."
        )


class Invalid(ServiceError):
    """400, 409 or 422: the service understood and refused; `message` holds its reason."""

    hint = "The service understood and refused: change what it names, then ask again."


class RateLimited(ServiceError):
    """429: over the limit, and still so after the waits that the service asked for."""

    retryable = True

    def advice(self) -> str:
        wait = f"Wait {self.retry_after:.10g} s" if self.retry_after is not None else "Wait"
        return f"{wait} and ask again, or for less at once (a shorter window, fewer parallel users)."


class Unavailable(ServiceError):
    """5xx: the service itself failed, also after retries."""

    retryable = True
    hint = "The service has a problem of its own; try again later."
