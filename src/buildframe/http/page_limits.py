"""Remember what a service does with the pages of its lists. Knows pages; sends no requests."""

from __future__ import annotations

import threading
from dataclasses import replace

from buildframe.http.protocol import Page

_DEFAULT_ROWS = 30
"""Rows of a page without `per_page`. A service that ignores `per_page` never sends more."""


class PageLimits:
    """Whether a page with fewer rows than requested, and without links, is the last.

    Threads share it.

    The service may allow fewer rows than requested, and a proxy may drop its links. One more
    request, for the page after the first such page, shows whether rows follow. The outcome holds
    for all lists of the service.
    """

    def __init__(self) -> None:
        self._longest = 0  # rows of the longest page: the service allows at least as many
        self._allowed: int | None = None  # most rows of a page that is not the last and has fewer than requested
        self._ends_with_short_page = False
        self._doubtful = {_DEFAULT_ROWS}
        self._lock = threading.Lock()

    def settle(self, page: Page) -> Page:
        """Take a page into account. Return it as the last one, or as a full one, if known."""
        rows = len(page.rows)
        with self._lock:
            if not page.short:
                self._see(page)
                return page
            if rows < self._longest:
                return replace(page, open=False, short=False)
            if self._allowed is not None and self._allowed >= self._longest:
                return replace(page, short=False)
            if self._ends_with_short_page and rows not in self._doubtful:
                return replace(page, open=False, short=False)
            return page

    def confirm(self, rows: int, *, is_followed: bool) -> None:
        """Take into account whether a page followed a short one without links."""
        with self._lock:
            self._longest = max(self._longest, rows)
            if is_followed:
                self._allowed = max(rows, self._allowed or 0)
            else:
                self._ends_with_short_page = True
                self._doubtful.discard(rows)

    def _see(self, page: Page) -> None:
        rows = len(page.rows)
        if page.size is None or rows > page.size:  # a list without pages, which shows nothing about those of others
            return
        self._longest = max(self._longest, rows)
        if page.next is not None and 0 < rows < page.size:
            self._allowed = max(rows, self._allowed or 0)
