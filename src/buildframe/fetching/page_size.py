"""Choose how many rows a page has. Knows requests and their failures; does not know lists."""

from __future__ import annotations

import threading

from buildframe.errors import BuildframeError
from buildframe.fetching.listing_state import PagesShrunk
from buildframe.http import protocol
from buildframe.http.budget import RequestBudget
from buildframe.http.client import Client
from buildframe.http.protocol import Page, Request
from buildframe.http.response import TooLarge
from buildframe.http.retry import Decode, fetch, is_overload

_FEW_TRIES = 3  # failures with 5xx; a timeout counts at once


class PageSize:
    """The number of rows to request per page of a listing. Threads share it.

    A service that cannot send a page of so many rows responds with 5xx, or not in time, or with too
    large a body. Then the next pages have half as many rows, but not fewer than `least`.
    """

    def __init__(self, rows: int, least: int = 1) -> None:
        self.rows = rows
        self._least = least
        self._lock = threading.Lock()

    def fetch(
        self,
        client: Client,
        request: Request,
        decode: Decode[Page],
        budget: RequestBudget,
        *,
        rows: int,
        probe: Request,
        is_up: bool = False,
    ) -> Page:
        """Fetch a page of `rows` rows; if fewer rows may help, shrink pages and raise PagesShrunk.

        If a response to `probe`, a page of one row, fails as well, the service is down, and its
        pages keep their size. `is_up` says that the service is known to respond.
        """
        responds = is_up

        def probe_service() -> bool:
            nonlocal responds
            responds = responds or _responds(client, probe, budget)
            return responds

        try:
            tries = 1 if is_up else _FEW_TRIES
            return fetch(client, request, decode, budget, tries=tries, is_up=probe_service)
        except BuildframeError as failure:
            if not is_overload(failure) or not (responds or isinstance(failure, TooLarge)):
                raise
        with self._lock:
            self.rows = min(self.rows, max(self._least, rows // 2))
        raise PagesShrunk(f"The service cannot send a page of {rows} rows.")


def _responds(client: Client, probe: Request, budget: RequestBudget) -> bool:
    try:
        fetch(client, probe, protocol.read_date, budget, tries=1)
    except BuildframeError as failure:
        if not is_overload(failure):
            raise
        return False
    return True
