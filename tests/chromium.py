"""Debian's Chromium, headless, for the tests that want a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.programs import require_program

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def chromium() -> str:
    """Return its path; without it the test is skipped, or fails where all have to run."""
    return require_program("chromium", "google-chrome", package="chromium")


@contextmanager
def launched(*more: str) -> Iterator[Browser]:
    """A browser that ends with the block, with more options."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", *more]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()
