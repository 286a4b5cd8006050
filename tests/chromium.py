"""Debian's Chromium, headless, for the tests that want a real browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def chromium() -> str:
    """Where it is; without it the test is skipped, or fails where all have to run."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        stop = pytest.fail if os.environ.get("CI") else pytest.skip
        stop("there is no Chromium: apt-get install chromium")
    return found


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
