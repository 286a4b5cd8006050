"""Pages of a list, and the `Link` header with their URLs. Does not know what is listed."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

Item = TypeVar("Item")
Query = list[tuple[str, str]]

_DEFAULT_SIZE = 30
_MAX_PAGE_SIZE = 100
_MAX_PAGE_NUMBER = 10**12  # larger numbers do not fit the database's integers


PAGE_ROWS = "buildframe.page_rows"
"""Key of an ASGI scope: the most rows of a page, or None for all rows of the list."""


class PageRequest(NamedTuple):
    """A requested page."""

    number: int
    size: int

    @property
    def offset(self) -> int:
        """The number of records before the page."""
        return (self.number - 1) * self.size

    def slice(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items on the page."""
        return items[self.offset : self.offset + self.size]


def parse_page(query: Query) -> PageRequest:
    """Read the page from a query; values that are not numbers are ignored."""
    parameters = dict(query)
    size = parse_number(parameters.get("per_page")) or _DEFAULT_SIZE
    return PageRequest(min(parse_number(parameters.get("page")) or 1, _MAX_PAGE_NUMBER), min(size, _MAX_PAGE_SIZE))


def limit_page(page: PageRequest, scope: MutableMapping[str, Any]) -> PageRequest:
    """Return the page with at most as many rows as the scope of its request says."""
    if PAGE_ROWS not in scope:
        return page
    rows = scope[PAGE_ROWS]
    return PageRequest(1, _MAX_PAGE_NUMBER) if rows is None else page._replace(size=min(page.size, rows))


def parse_number(text: str | None) -> int | None:
    """Return a positive number, or None. Numbers that are too long count as the largest."""
    if not text or not text.isascii() or not text.isdigit():
        return None
    return (int(text) or None) if len(text) <= 18 else _MAX_PAGE_NUMBER


def format_link_header(address: str, query: Query, page: PageRequest, total: int) -> str:
    """Return the URLs of the first, previous, next and last page with the same query; empty for a single page."""
    last = -(-total // page.size)
    if last <= 1:
        return ""
    # The page comes first: some clients read a number at the end together with the closing bracket.
    others = [(name, value) for name, value in query if name != "page"]
    pages = {"first": 1, "prev": min(page.number - 1, last)} if page.number > 1 else {}
    if page.number < last:
        pages |= {"next": page.number + 1, "last": last}
    return ", ".join(
        f'<{address}?{urlencode([("page", number), *others])}>; rel="{name}"' for name, number in pages.items()
    )
