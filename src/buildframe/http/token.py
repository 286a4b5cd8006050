"""Hold the access token, check it, and remove it from texts that users see. Does not know requests."""

from __future__ import annotations

import hashlib
from urllib.parse import quote, quote_plus

from buildframe.errors import BadInput
from buildframe.guards.secrets import Secret
from buildframe.http.response import Response

_LEAST_LENGTH = 8
"""A shorter token could be a part of ordinary text, from which it cannot be removed."""


class Token(Secret):
    """The access token."""

    __slots__ = ()

    def check(self) -> None:
        """Raise BadInput if this cannot be a token. Not part of `__init__`, whose frame would hold the text."""
        if not isinstance(self._value, str):
            raise BadInput("token= is not text. Pass the token as a str.")
        if not self._value:
            raise BadInput(
                "There is no token: BUILDFRAME_TOKEN is not set, and none is passed as token=. "
                "Create one in your user settings of the service, with the scopes read_builds and read_pipelines."
            )
        if not self._value.isascii() or not self._value.isprintable() or " " in self._value:
            raise BadInput("The token contains blanks or characters that no token has. Copy it again, as a whole.")
        if len(self._value) < _LEAST_LENGTH:
            raise BadInput(
                f"The token has fewer than {_LEAST_LENGTH} characters, so it is not a whole one. "
                "Copy it again, as a whole. Nothing was sent."
            )

    def header(self) -> str:
        """Return the value of the Authorization header."""
        return f"Bearer {self._value}"

    def digest(self, salt: bytes, base_url: str) -> bytes:
        """Return a salted hash that is equal for clients with the same token and base URL."""
        return hashlib.blake2b(f"{base_url} {self._value}".encode(), key=salt).digest()

    def redact(self, text: str) -> str:
        """Return the text without the token, which a server or proxy may echo."""
        return text.replace(self._value, "<token>")

    def redact_query(self, url: str) -> str:
        """Return the URL without the token in its query, as it is or percent-encoded."""
        path, mark, query = url.partition("?")
        for text in (self._value, quote(self._value, safe=""), quote_plus(self._value)):
            query = query.replace(text, "redacted")
        return path + mark + query

    def redact_error(self, response: Response) -> Response:
        """Return an error response without the token. Other responses are data, and data is not changed."""
        headers = {name: self.redact(value) for name, value in response.headers.items()}
        return response._replace(headers=headers, body=response.body.replace(self._value.encode(), b"<token>"))
