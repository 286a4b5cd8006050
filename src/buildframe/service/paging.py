"""Pages of a list, and the `Link` header that leads from one to the next."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

Query = list[tuple[str, str]]

_DEFAULT_SIZE = 30
_LARGEST_SIZE = 100
_LAST_PAGE = 10**12  # larger numbers do not fit the database's integers


class Page(NamedTuple):
    """Which page is asked for, and of what size."""

    number: int
    size: int

    @property
    def offset(self) -> int:
        """How many records lie before it."""
        return (self.number - 1) * self.size


def page_of(query: Query) -> Page:
    """The page that a request asks for; what is no number counts as not given."""
    asked = dict(query)
    size = _number(asked.get("per_page")) or _DEFAULT_SIZE
    return Page(min(_number(asked.get("page")) or 1, _LAST_PAGE), min(size, _LARGEST_SIZE))


def _number(text: str | None) -> int | None:
    """A positive number, else None; what is too long to be one of ours counts as the largest."""
    if not text or not text.isascii() or not text.isdigit():
        return None
    return (int(text) or None) if len(text) <= 18 else _LAST_PAGE


def link_header(address: str, query: Query, page: Page, total: int) -> str:
    """The addresses of the first, previous, next and last page, with all that was asked kept; empty for one page."""
    last = -(-total // page.size)
    if last <= 1:
        return ""
    pages = {"first": 1, "prev": min(page.number - 1, last)} if page.number > 1 else {}
    if page.number < last:
        pages |= {"next": page.number + 1, "last": last}
    return ", ".join(f'<{address}?{_at(query, number)}>; rel="{name}"' for name, number in pages.items())


def _at(query: Query, number: int) -> str:
    """The page comes first: there are clients that read a number together with the bracket that closes the address."""
    others = [(name, value) for name, value in query if name != "page"]
    return urlencode([("page", str(number)), *others])
