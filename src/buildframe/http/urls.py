"""Check and split URLs: where the token may be sent, and which URL a link means. Does not send anything."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import httpx

from buildframe.errors import BadInput
from buildframe.http.protocol import is_loopback
from buildframe.terminal import show


def check_url(text: str) -> str:
    """Return a normalized URL that the token may be sent to; raise BadInput for any other."""
    parts = _split(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        shown = "" if "@" in text else f" {show(text)}"  # the part before an @ may be a password
        raise BadInput(f"The URL{shown} is not a web address. Write it like https://api.example.com.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadInput("The URL must not contain a user, password, query or fragment. Pass the token as token=.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise BadInput(f"The URL of {parts.hostname} is http: the token would be sent unencrypted. Use https.")
    url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    try:
        parts.hostname.encode("idna")
        return str(httpx.URL(url)).rstrip("/")  # in the form in which links are compared
    except (httpx.InvalidURL, UnicodeError) as why:
        raise BadInput(f"The service's URL {show(url)} cannot be used: {why}.") from None


def _split(text: str) -> SplitResult:
    if not isinstance(text, str):
        raise BadInput(f"The service's URL is {show(text)}. Pass text such as https://api.example.com.")
    if not text.isprintable() or not unquote(text).isprintable():  # urlsplit drops some of these
        raise BadInput(
            "The service's URL contains a control character or another invisible one. "
            "Write it again, like https://api.example.com."
        )
    if " " in text:  # the only printable whitespace
        shown = "" if "@" in text else f" {show(text)}"
        raise BadInput(f"The URL{shown} contains a space. Write it like https://api.example.com.")
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as why:
        reason = "" if "@" in text else f": {why}"  # it may quote a password
        raise BadInput(f"The service's URL cannot be parsed{reason}.") from None
    return parts


class SplitUrl(NamedTuple):
    """A URL in two parts: origin (scheme, host, port) and target (path and query)."""

    origin: str
    target: str

    @classmethod
    def parse(cls, url: str) -> SplitUrl:
        """Split an absolute http or https URL; raise ValueError for anything else."""
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, UnicodeError, TypeError) as why:
            raise ValueError("it cannot be parsed" if "@" in str(url) else str(why)) from None
        if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.userinfo:
            raise ValueError("it has no scheme or host, or names a user")
        return cls(str(parsed.copy_with(raw_path=b"/", fragment=None)).rstrip("/"), parsed.raw_path.decode())

    @property
    def is_private(self) -> bool:
        """Whether requests are encrypted or stay on this machine."""
        return self.origin.startswith("https:") or is_loopback(httpx.URL(self.origin).host)


def join(url: str, link: str) -> str:
    """Return the absolute URL of a link in a response from `url`; raise ValueError if it is not a URL."""
    try:
        return str(httpx.URL(url).join(link))
    except (httpx.InvalidURL, UnicodeError) as why:
        raise ValueError("it cannot be parsed" if "@" in link else str(why)) from None
