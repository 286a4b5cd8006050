"""Send requests to one service over HTTP, each once. Does not know retries, pages or frames."""

from __future__ import annotations

import secrets
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Never
from urllib.parse import urlsplit

import httpx

from buildframe.errors import BadInput, BuildframeError, Malformed, OutcomeUnknown, Unreachable
from buildframe.guards.forks import reset_in_children
from buildframe.guards.secrets import without_frames
from buildframe.http import urls
from buildframe.http.budget import Canceled, RequestBudget
from buildframe.http.page_limits import PageLimits
from buildframe.http.protocol import VERSION_HEADER, Request, is_loopback
from buildframe.http.rate_limit import RateLimiters
from buildframe.http.response import ACCEPTED, Response, is_link_parsed, read_body
from buildframe.http.sockets import (
    Sockets,
    body_pieces,
    close_idle,
    new_session,
    restore_location,
    tls_context,
)
from buildframe.http.token import Token
from buildframe.terminal import shorten

TIMEOUT, LOG_TIMEOUT = 60.0, 600.0  # seconds from sending a request to the last byte of its response
_CONNECT_TIMEOUT = 10.0  # seconds for each address of a host
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_SALT = secrets.token_bytes(32)
_RATE_LIMITERS = RateLimiters()
_CLOSED = "This workspace is closed. Connect again."


class Client:
    """A session with one service: `send` sends a request and returns its response. Threads may share it.

    `rate_limiter` knows the service's limits for this token, and `page_limits` what the service
    does with pages. If `sends_token` is False, requests are anonymous. `timeout` is how many
    seconds a request may take, from sending it to the last byte of its response; `log_timeout`, one
    for a log.
    """

    base_url = "unknown"  # for tracebacks that print a client whose URL was refused

    def __init__(
        self,
        base_url: str,
        token: Token,
        *,
        sends_token: bool = True,
        tls: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT,
        log_timeout: float = LOG_TIMEOUT,
    ) -> None:
        self.base_url = urls.check_url(base_url).removesuffix("/v2").rstrip("/")
        token.check()
        self._token = token
        self._sends_token = sends_token
        self._from_environment = not is_loopback(urlsplit(self.base_url).hostname or "")
        self._tls = tls or tls_context(self._from_environment)
        self._sockets = Sockets()
        self._http = new_session(self._sockets, self._tls, self._from_environment)
        self._needs_new_session = False
        self.timeout, self.log_timeout = timeout, log_timeout
        key = token.digest(_SALT, self.base_url) if sends_token else self.base_url.encode()
        self.rate_limiter = _RATE_LIMITERS.get(key)
        self.page_limits = PageLimits()
        self._others: dict[tuple[str, bool], Client] = {}
        self._idle: list[Client] = []
        self._lock = threading.Lock()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Leave the connections to the parent process; this child makes its own when it needs one."""
        self._sockets.reset_after_fork()
        self._needs_new_session, self._lock = True, threading.Lock()

    def __reduce__(self) -> Never:
        raise TypeError("a connection to the service cannot be pickled: call connect() in the process that needs it")

    def __deepcopy__(self, _: object) -> Never:
        raise TypeError("a connection to the service cannot be copied: call connect() for another one")

    def __repr__(self) -> str:
        return f"<Client of {self.base_url}>"

    def close(self) -> None:
        """Close the session and its connections."""
        self._renew_session()
        self._http.close()
        for other in [*self._others.values(), *self._idle]:
            other.close()

    # --- other clients

    def copy(self, base_url: str | None = None, *, sends_token: bool = True) -> Client:
        """Return a client of this or another service with the same token, and with its own connections."""
        if self._http.is_closed:
            raise BadInput(_CLOSED)
        tls, sends_token = None if base_url else self._tls, sends_token and self._sends_token
        limits = {"timeout": self.timeout, "log_timeout": self.log_timeout}
        client = Client(base_url or self.base_url, self._token, sends_token=sends_token, tls=tls, **limits)
        if base_url is None:
            client.page_limits = self.page_limits
        return client

    @contextmanager
    def borrowed_copy(self) -> Iterator[Client]:
        """Return a copy for one listing. The next listing uses its connections again, unless they were aborted."""
        with self._lock:
            client = self._idle.pop() if self._idle else self.copy()
        try:
            yield client
        finally:
            if client._sockets.is_aborted or self._http.is_closed:
                client.close()
            else:
                self._idle.append(client)

    def for_origin(self, origin: str, *, sends_token: bool = True) -> Client:
        """Return a client for another origin, with its own rate limiter: with the same token, or without."""
        if origin == self.base_url and sends_token:
            return self
        key = origin, sends_token
        with self._lock:
            if key not in self._others:
                self._others[key] = self.copy(origin, sends_token=sends_token)
            return self._others[key]

    # --- requests

    def abort(self) -> None:
        """Abort all connections, from any thread, and send nothing more.

        Requests that wait for TLS or a response end at once. One that still connects ends when the connection is made
        or when connecting times out, after at most 10 seconds.
        """
        self._sockets.abort()

    def redact(self, text: str) -> str:
        """Return the text, which a server wrote and a user will see, without the token."""
        return self._token.redact(text)

    def redacted(self, error: Malformed) -> Malformed:
        """Return an error, whose text may quote the response, without the token and the ends of long lines.

        A line is shortened last: in a shortened one, a part of the token could not be recognized.
        """
        lines = self.redact(str(error)).split("\n")
        redacted = type(error)("\n".join(shorten(line) for line in lines))
        redacted.retryable = error.retryable
        return redacted

    def follow(self, request: Request, link: str) -> Request:
        """Return the request for a link in the response to `request`. Links to other places raise Malformed."""
        link = self._token.redact_query(link)
        try:
            url = urls.join(self.base_url + request.target, link)
        except ValueError as why:
            raise Malformed(
                f"The service's link to its next page, {shorten(self.redact(repr(link)))}, is not a URL: {why}."
            ) from None
        if not url.startswith(f"{self.base_url}/"):  # the token must not go there
            raise Malformed(
                f"The service links its next page at {shorten(repr(link))}, which is not below {self.base_url!r}."
            )
        return request._replace(target=url.removeprefix(self.base_url))

    def target_of(self, url: str) -> str | None:
        """Return the path and query of a URL below the service's, None for another; raise ValueError if it is none."""
        place, service = urls.SplitUrl.parse(url), urls.SplitUrl.parse(self.base_url)
        return place.target.removeprefix(service.target.rstrip("/")) if place.origin == service.origin else None

    def send(self, request: Request, budget: RequestBudget, timeout: float | None = None) -> Response:
        """Send a request once, when the rate limit allows it, and return the response, whatever its status.

        If there is no response within `timeout` seconds (by default the client's), or only a part of one, this raises
        OutcomeUnknown for an action, else Unreachable or Malformed. `budget` counts the request, and may end it with
        Canceled or DeadlineExceeded.
        """
        if self._sockets.is_aborted:
            raise Canceled("it was canceled")
        if self._http.is_closed:
            raise BadInput(_CLOSED)
        self._renew_session()
        response: Response | None = None
        try:
            self.rate_limiter.acquire(budget)
            seconds, left = self.timeout if timeout is None else timeout, budget.seconds_left
            response = self._send(request, seconds if left is None else min(seconds, left))
            budget.time.read(response)
            return response
        finally:
            self.rate_limiter.release(response)

    def _renew_session(self) -> None:
        """Replace a session of the parent process or an interrupted one. Its locks may be held, so it is not closed."""
        with self._lock:
            if self._needs_new_session and not self._http.is_closed:
                self._http = new_session(self._sockets, self._tls, self._from_environment)
            self._needs_new_session = False

    def _send(self, request: Request, seconds: float) -> Response:
        """Send a request. Errors are raised outside of `except`, so that no traceback has a frame with the token."""
        failure: BaseException
        try:
            with self._sockets.time_limit(seconds):
                return self._exchange(request)
        except httpx.HTTPError as why:
            failure = self._no_response(request, why, seconds)
        except Malformed as why:
            error = self.redacted(why)
            failure = error if request.repeatable else lost_response(request, str(error))
        except BaseException as why:  # Ctrl-C, or what a signal handler raises
            self._needs_new_session = True
            close_idle(self._http)
            failure = without_frames(why)
        raise failure

    def _exchange(self, request: Request) -> Response:
        headers = {"Accept": request.accept, "Accept-Encoding": ACCEPTED}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        if request.version is not None:
            headers[VERSION_HEADER] = request.version
        if self._sends_token:
            headers["Authorization"] = self._token.header()
        url = self.base_url + request.target
        limits = httpx.Timeout(self._sockets.seconds_left, connect=_CONNECT_TIMEOUT)
        with self._http.stream(
            request.endpoint.method, url, content=request.body, headers=headers, timeout=limits
        ) as received:
            restore_location(received)
            self.rate_limiter.see_headers()
            body = read_body(body_pieces(received), received.headers.get("content-encoding", ""))
        links = (self._link(received, name) for name in ("next", "last"))
        response = Response(received.status_code, received.headers, body, *links)
        is_data = received.status_code == request.endpoint.success
        return response if is_data else self._token.redact_error(response)

    def _link(self, received: httpx.Response, name: str) -> str | None:
        """Return a link of a response without the token as a value of its query: errors name URLs of requests.

        Links to other places are shown, not followed, so they lose the token anywhere.
        """
        header = received.headers.get("link", "")
        link = received.links.get(name, {}).get("url") if is_link_parsed(header) else None
        leads_away = link is not None and "//" in link.split("?")[0] and not link.startswith(f"{self.base_url}/")
        return link and (self._token.redact(link) if leads_away else self._token.redact_query(link))

    def _no_response(self, request: Request, why: httpx.HTTPError, seconds: float) -> BuildframeError:
        was_sent, is_timeout = not isinstance(why, _NEVER_SENT), isinstance(why, httpx.TimeoutException)
        reason = shorten(self.redact(str(why))) or type(why).__name__
        if is_timeout and was_sent:
            options = "see deadline=, and timeout= and log_timeout= of connect"
            reason = f"it was not complete within {seconds:.3g} s ({options})"
        if was_sent and not request.repeatable:
            return lost_response(request, f"none ({reason})")
        is_plain = "WRONG_VERSION_NUMBER" in str(why)  # OpenSSL's message for a server without TLS
        hint = "The server does not use TLS at this port. Is the URL http, not https? " if is_plain else ""
        failure = Unreachable(
            f"No response from {self.base_url}: {reason}.\nRequest: {request.where}\n{hint}"
            "Check the URL (base_url= or BUILDFRAME_URL; for GraphQL graphql_url= or BUILDFRAME_GRAPHQL_URL), "
            "the network, and whether there is a proxy in between."
        )
        failure.sent, failure.in_time = was_sent, not is_timeout
        return failure


def lost_response(request: Request, response: str) -> OutcomeUnknown:
    """Return the error of an action whose response is lost; `response` describes what is there of it."""
    return OutcomeUnknown(f"{sent_note(request)}\nResponse: {response}\nThe request is not repeated automatically.")


def sent_note(request: Request) -> str:
    """Return a note that an action was sent and may have been performed."""
    return f"The request was sent, but it is unknown whether the service performed it.\nRequest: {request.where}"
