"""The only place that talks HTTP: sends requests, retries what is safe, waits for the limits."""

from __future__ import annotations

import hashlib
import math
import random
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, Never, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx
import tenacity

from buildframe.errors import (
    BadInput,
    BuildframeError,
    Malformed,
    OutcomeUnknown,
    RateLimited,
    ServiceError,
    Unavailable,
    Unreachable,
)
from buildframe.guards import interrupts
from buildframe.guards.forks import start_over_in_children
from buildframe.guards.secrets import Secret, without_frames
from buildframe.http import decompression
from buildframe.http.protocol import Request, is_loopback
from buildframe.http.rate_limit import LONGEST_WAIT, Effort, Halted, Pace, Paces
from buildframe.http.response import Answer
from buildframe.http.sockets import Sockets, close_idle, new_session, tls_context

CONNECTS = 5  # how often in a row it is tried to connect, or to get a response within the time limit
ATTEMPTS = 12  # how often a request is sent: where one in three goes wrong, two in a million go wrong so often
TIMEOUT, LOG_TIMEOUT = 60.0, 600.0  # seconds from sending a request to the last byte of its response
_CONNECT = 10.0  # seconds for one address of a host
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_BACKOFF = tenacity.wait_exponential(multiplier=0.5, max=9.0) + tenacity.wait_random(0.0, 1.0)

T = TypeVar("T")


class Token(Secret):
    """The access token."""

    __slots__ = ()

    def check(self) -> None:
        """Refuse what cannot be a token. Apart from `__init__`, so that no traceback has the text at hand."""
        if not isinstance(self._value, str):
            raise BadInput("The token is no text.")
        if not self._value:
            raise BadInput(
                "There is no token: BUILDFRAME_TOKEN is not set, and none is passed as token=. "
                "Create one in your user settings of the service, with the scopes read_builds and read_pipelines."
            )
        if not self._value.isascii() or not self._value.isprintable() or " " in self._value:
            raise BadInput("The token holds blanks or signs that no token has; was it pasted whole?")

    def header(self) -> str:
        """The value of the Authorization header."""
        return f"Bearer {self._value}"

    def digest(self, salt: bytes, address: str) -> bytes:
        """What tells whether two clients send the same token to the same address, and tells nothing else."""
        return hashlib.blake2b(f"{address} {self._value}".encode(), key=salt).digest()

    def hidden_in(self, text: str) -> str:
        """`text`, which is to be shown, without the token, should a server or proxy echo it."""
        return text.replace(self._value, "<token>")

    def removed_from(self, refusal: Answer) -> Answer:
        """An answer that becomes an error's text, without the token; data, which may hold the same letters, stays."""
        headers = {name: self.hidden_in(value) for name, value in refusal.headers.items()}
        return refusal._replace(headers=headers, body=refusal.body.replace(self._value.encode(), b"<token>"))


def base_url_of(text: str) -> str:
    """The service's address without /v2; anything that would send the token in clear or elsewhere is refused."""
    return address_of(text).removesuffix("/v2").rstrip("/")


def address_of(text: str) -> str:
    """An address that the token is to be sent to; anything that would send it in clear or elsewhere is refused."""
    parts = _split(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        shown = "" if "@" in text else f" {text!r}"  # what stands before an @ may be a secret
        raise BadInput(f"The address{shown} is no web address; write it like https://api.example.com.")
    if any(sign.isspace() for sign in parts.netloc):
        raise BadInput(f"The address {text!r} has a space in its host; write it like https://api.example.com.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadInput("The address must hold no user, password, query or fragment; the token goes in token=.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise BadInput(f"The address of {parts.hostname} is http: the token would travel unencrypted. Use https.")
    return _normal(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}")


def _normal(url: str) -> str:
    """The address in the one form that links are compared in."""
    try:
        (urlsplit(url).hostname or "").encode("idna")
        return str(httpx.URL(url)).rstrip("/")
    except (httpx.InvalidURL, UnicodeError) as why:
        raise BadInput(f"The service's address {url!r} cannot be used: {why}.") from None


def _split(text: str) -> SplitResult:
    if not isinstance(text, str):
        raise BadInput(f"The service's address is a text such as https://api.example.com, not {text!r}.")
    try:
        parts = urlsplit(text.strip())
        _ = parts.port
    except ValueError as why:
        reason = "" if "@" in text else f": {why}"  # which may quote a password
        raise BadInput(f"The service's address cannot be read{reason}.") from None
    return parts


class Place(NamedTuple):
    """An address in two: where it is (scheme, host, port), and the path with its query there."""

    origin: str
    target: str

    @classmethod
    def of(cls, address: str) -> Place:
        """An absolute address of http or https in two; anything else raises ValueError."""
        try:
            url = httpx.URL(address)
        except (httpx.InvalidURL, UnicodeError, TypeError) as why:
            raise ValueError("it cannot be read" if "@" in str(address) else str(why)) from None
        if url.scheme not in {"http", "https"} or not url.host or url.userinfo:
            raise ValueError("it has no scheme or host, or names a user")
        return cls(str(url.copy_with(raw_path=b"/", fragment=None)).rstrip("/"), url.raw_path.decode())

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read along."""
        return self.origin.startswith("https:") or is_loopback(httpx.URL(self.origin).host)

    def joined(self, link: str) -> str:
        """The absolute address that a link means that was found here; one that is no address raises ValueError."""
        try:
            return str(httpx.URL(self.origin + self.target).join(link))
        except (httpx.InvalidURL, UnicodeError) as why:
            raise ValueError("it cannot be read" if "@" in link else str(why)) from None


_SALT = secrets.token_bytes(32)
_PACES = Paces()


def _pace_of(address: str, token: Token | None) -> Pace:
    """The one pace of an address and a token in this process."""
    key = address.encode() if token is None else token.digest(_SALT, address)
    return _PACES.of(key)


class Client:
    """One session with one service: `fetch` sends a request and reads its answer. Threads may share it.

    `pace` is what is known of the service's limits for this token. `as_stranger` never sends the token. `timeout` is
    how many seconds a request may take, from sending it to the last byte of its response; `log_timeout`, one for a log.
    """

    base_url = "nowhere"  # until it is known; a traceback may print a client whose address was refused

    def __init__(
        self,
        base_url: str,
        token: Token,
        *,
        as_stranger: bool = False,
        tls: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT,
        log_timeout: float = LOG_TIMEOUT,
    ) -> None:
        self.base_url = base_url_of(base_url)
        token.check()
        self._token = token
        self._as_stranger = as_stranger
        self._from_environment = not is_loopback(urlsplit(self.base_url).hostname or "")
        self._tls = tls or tls_context(self._from_environment)
        self._sockets = Sockets()
        self._http = new_session(self._sockets, self._tls, self._from_environment)
        self._is_spent = False
        self.timeout, self.log_timeout = timeout, log_timeout
        self.pace = _pace_of(self.base_url, None if as_stranger else token)
        self._others: dict[tuple[str, bool], Client] = {}
        self._spare: list[Client] = []
        self._lock = threading.Lock()
        start_over_in_children(self)

    def start_over(self) -> None:
        """Leave the connections to the parent process; this child makes its own when it needs one."""
        self._sockets.start_over()
        self._is_spent, self._lock = True, threading.Lock()

    def __reduce__(self) -> Never:
        raise TypeError("a connection to the service is not pickled: call connect() in the process that needs it")

    def __repr__(self) -> str:
        return f"<Client of {self.base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session; its connections are closed."""
        self._take_over()
        self._http.close()
        for other in [*self._others.values(), *self._spare]:
            other.close()

    def apart(self) -> Client:
        """A client of the same service with the same token and pace, and with connections of its own."""
        if self._http.is_closed:
            raise BadInput(_CLOSED)
        return self._another(self.base_url, as_stranger=self._as_stranger, tls=self._tls)

    def _another(self, base_url: str, *, as_stranger: bool, tls: ssl.SSLContext | None = None) -> Client:
        client = Client(base_url, self._token, as_stranger=as_stranger, tls=tls)
        client.timeout, client.log_timeout = self.timeout, self.log_timeout
        return client

    @contextmanager
    def lent(self) -> Iterator[Client]:
        """A client apart for one walk; the next walk goes on with its connections, unless they were cut off."""
        with self._lock:
            client = self._spare.pop() if self._spare else self.apart()
        try:
            yield client
        finally:
            if client._sockets.is_cut or self._http.is_closed:
                client.close()
            else:
                self._spare.append(client)

    def abort(self) -> None:
        """Cut off all connections, from any thread; nothing is sent any more.

        Requests that wait for TLS or an answer end at once. One for which a connection is still being made ends
        when it is made, or when the time for that is over, at most 10 seconds.
        """
        self._sockets.cut()

    def at(self, origin: str, *, as_stranger: bool = False) -> Client:
        """A client at another origin, with limits of its own: with the same token, or without."""
        if self._http.is_closed:
            raise BadInput(_CLOSED)
        if origin == self.base_url and not as_stranger:
            return self
        which = origin, as_stranger
        with self._lock:
            if which not in self._others:
                self._others[which] = self._another(origin, as_stranger=as_stranger)
            return self._others[which]

    def without_token(self, text: str) -> str:
        """`text`, which a server wrote and a user will see, without the token."""
        return self._token.hidden_in(text)

    def fetch(
        self,
        request: Request,
        read: Callable[[Answer], T],
        effort: Effort | None = None,
        *,
        look: str = "",
        timeout: float | None = None,
    ) -> T:
        """Send a request and read its answer; `effort` counts what it takes, and may end it: Halted, DeadlineExceeded.

        Sent again, at most `ATTEMPTS` times in all, after 429, where no connection was made, and, where the request is
        repeatable, after 5xx, no answer (within `timeout` seconds; by default the client's), or one that `read`
        finds Malformed; the waits are the server's where it names one, else they grow, with jitter. No connection, or
        no answer in time, is put up with at most `CONNECTS` times in a row. What is not
        repeatable raises OutcomeUnknown in the latter cases; `look` tells the user how to see what became of it.
        """
        spent = effort or Effort()
        tries = _Tries(spent)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: _worth_retrying(error, spent)),
            wait=_wait,
            stop=tries.are_enough,
            before_sleep=lambda state: self._before_another(state, spent),
            sleep=lambda seconds: None,  # it was waited before, where the reason is known
            reraise=True,
        )
        interrupts.begin_request(None if request.repeatable else f"{_sent(request)}\n{look or _LOOK}")
        try:
            result: T = retrying(self._once, request, read, spent, timeout or self.timeout)
        except OutcomeUnknown as lost:
            raise OutcomeUnknown(f"{lost}\n{look or _LOOK}") from None
        except BuildframeError as failure:
            tries.note_on(failure, retrying.statistics["attempt_number"])
            raise
        return result

    def _before_another(self, state: tenacity.RetryCallState, effort: Effort) -> None:
        interrupts.mark_not_performed()
        effort.retry(state.upcoming_sleep, _reason(state))

    def follow(self, request: Request, link: str) -> Request:
        """The request for a link in an answer to `request`; one to elsewhere is refused: the token stays here."""
        try:
            url = str(httpx.URL(self.base_url + request.target).join(link))
        except (httpx.InvalidURL, ValueError) as why:
            raise Malformed(f"The service's link to its next page, {link!r}, is no address: {why}.") from None
        if not url.startswith(f"{self.base_url}/"):
            raise Malformed(f"The service links its next page at {link!r}, which is not below {self.base_url!r}.")
        return request._replace(target=url.removeprefix(self.base_url))

    def _once(self, request: Request, read: Callable[[Answer], T], effort: Effort, timeout: float) -> T:
        failure: BuildframeError
        answer = self._ask(request, effort, timeout)
        effort.time.read(answer)
        try:
            return read(answer)
        except Malformed as why:  # its text may quote the answer
            told = self.without_token(str(why))
            failure = Malformed(told) if request.repeatable else _lost(request, _unreadable(answer, told))
        except ServiceError as why:
            if request.repeatable or not _leaves_open(why):
                raise
            failure = _lost(request, f"{why.status}: {why.message}")
        except RecursionError:
            nested = "it is nested too deeply"
            failure = Malformed(f"The response cannot be read: {nested}.\nRequest: {request.where}")
            failure = failure if request.repeatable else _lost(request, _unreadable(answer, nested))
        raise failure

    def _ask(self, request: Request, effort: Effort, timeout: float) -> Answer:
        """The answer to a request that keeps the pace."""
        if self._sockets.is_cut:
            raise Halted("it was stopped")
        if self._http.is_closed:
            raise BadInput(_CLOSED)
        self._take_over()
        answer: Answer | None = None
        try:
            self.pace.enter(effort)
            seconds = timeout if effort.seconds_left is None else min(timeout, effort.seconds_left)
            answer = self._send(request, seconds)
            return answer
        finally:
            self.pace.leave(answer)

    def _take_over(self) -> None:
        """Replace a session of the parent process, or an interrupted one; it is not closed: its locks may be held."""
        with self._lock:
            if self._is_spent and not self._http.is_closed:
                self._http = new_session(self._sockets, self._tls, self._from_environment)
            self._is_spent = False

    def _send(self, request: Request, seconds: float) -> Answer:
        """Errors are raised outside of the `except`, so that no traceback leads into frames that hold the token."""
        failure: BaseException
        try:
            with self._sockets.within(seconds):
                return self._exchange(request)
        except httpx.HTTPError as why:
            failure = self._no_answer(request, why, seconds)
        except Malformed as why:
            failure = without_frames(why) if request.repeatable else _lost(request, str(why))
        except BaseException as why:  # Ctrl-C, or what a signal handler raises
            self._is_spent = True
            close_idle(self._http)
            failure = without_frames(why)
        raise failure

    def _exchange(self, request: Request) -> Answer:
        headers = {"Accept": request.accept, "Accept-Encoding": decompression.ACCEPTED}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        if not self._as_stranger:
            headers["Authorization"] = self._token.header()
        url = self.base_url + request.target
        limits = httpx.Timeout(self._sockets.seconds_left, connect=_CONNECT)
        with self._http.stream(
            request.endpoint.method, url, content=request.body, headers=headers, timeout=limits
        ) as response:
            self.pace.hear()
            body = decompression.read_body(response.iter_raw(), response.headers.get("content-encoding", ""))
        following, last = (self._link(response, name) for name in ("next", "last"))
        answer = Answer(response.status_code, response.headers, body, following, last)
        return answer if response.is_success else self._token.removed_from(answer)

    def _link(self, response: httpx.Response, name: str) -> str | None:
        """A link of an answer; one to elsewhere will be shown and not followed, so it goes without the token."""
        link = response.links.get(name, {}).get("url")
        elsewhere = link is not None and "//" in link.split("?")[0] and not link.startswith(f"{self.base_url}/")
        return self._token.hidden_in(link) if link and elsewhere else link

    def _no_answer(self, request: Request, why: httpx.HTTPError, seconds: float) -> BuildframeError:
        sent, is_late = not isinstance(why, _NEVER_SENT), isinstance(why, httpx.TimeoutException)
        said = self.without_token(str(why)) or type(why).__name__
        if is_late and sent:
            said = (
                f"it was not complete within {seconds:.3g} s (see deadline=, and timeout= and log_timeout= of connect)"
            )
        if sent and not request.repeatable:
            return _lost(request, f"no answer ({said})")
        failure = Unreachable(
            f"No answer from {self.base_url}: {said}.\nRequest: {request.where}\n{_of_tls(why)}"
            "Check the address (base_url= or BUILDFRAME_URL; for GraphQL graphql_url= or BUILDFRAME_GRAPHQL_URL), "
            "the network, and whether a proxy stands between."
        )
        failure.sent, failure.in_time = sent, not is_late
        return failure


_CLOSED = "This workspace was closed; connect again."
_LOOK = "Look whether it happened before you ask again."


def _lost(request: Request, came_back: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"{_sent(request)}\nCame back: {came_back}\nIt is not sent again by itself.")


def _of_tls(why: httpx.HTTPError) -> str:
    """What OpenSSL's words for a server without TLS mean."""
    is_plain = "WRONG_VERSION_NUMBER" in str(why)
    return "The server does not speak TLS at this port: is the address http, not https? " if is_plain else ""


def _sent(request: Request) -> str:
    return f"It was sent, and whether it happened is not known.\nRequest: {request.where}"


def _unreadable(answer: Answer, why: str) -> str:
    return f"{answer.status} with an answer that cannot be read ({why.splitlines()[0]})"


def _leaves_open(error: ServiceError) -> bool:
    """Whether an action may have been done although this is its answer: failures on the way, and redirects."""
    return isinstance(error, Unavailable) or error.status < 400 or error.status in (408, 499)


class _Tries:
    """When to give one request up: it was sent often enough, or too often in a row there was nobody, or no end."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._began = time.monotonic()
        self._in_vain = 0

    def are_enough(self, state: tenacity.RetryCallState) -> bool:
        error = _failure(state)
        is_vain = isinstance(error, Unreachable) and not (error.sent and error.in_time)
        self._in_vain = self._in_vain + 1 if is_vain else 0
        is_enough = state.attempt_number >= ATTEMPTS or self._in_vain >= CONNECTS
        return is_enough and not self._effort.is_late  # then the wait for another attempt says so

    def note_on(self, failure: BuildframeError, times: int) -> None:
        """Tell on an error that lasted how often it was tried, and over what time."""
        if failure.retryable and times > 1:
            failure.add_note(f"Tried {times} times in {time.monotonic() - self._began:.0f} s.")


def _worth_retrying(error: BaseException, effort: Effort) -> bool:
    if not isinstance(error, BuildframeError) or not error.retryable:
        return False
    longest = LONGEST_WAIT if effort.seconds_left is None else math.inf  # a deadline ends what would last too long
    return not isinstance(error, ServiceError) or (error.retry_after or 0.0) <= longest


def _failure(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _wait(state: tenacity.RetryCallState) -> float:
    error = _failure(state)
    told = error.retry_after if isinstance(error, ServiceError) else None
    if told is None or (isinstance(error, RateLimited) and state.attempt_number > 1):
        return _BACKOFF(state)
    if isinstance(error, RateLimited):
        return 0.0  # the pace holds the next request back, whoever sends it
    return told + random.uniform(0.0, 0.25)  # noqa: S311  no secret


def _reason(state: tenacity.RetryCallState) -> str:
    error = _failure(state)
    if isinstance(error, RateLimited):
        return "the limit of requests is used up"
    return f"the service answered {error.status}" if isinstance(error, ServiceError) else "no readable answer"
