"""One JupyterLab server, one browser and one loaded page of JupyterLab for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chromium import launched
from tests.jupyter.lab import Lab, Page, jupyterlab, screenshot_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a test again, at most twice, if the browser did not show in time what it waits for; not if it shows it wrong.

    After a page is loaded, ipywidgets may look for models before it has them, and does not look again.
    """
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=["^TimeoutError: "]))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A browser that reaches no other address. Pages with routes, which could block them, would cache nothing."""
    with launched("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1") as started:
        yield started


@pytest.fixture(scope="package")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return screenshot_folder(tmp_path_factory.mktemp("screenshots"))


@pytest.fixture(scope="package")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with jupyterlab(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture(scope="package")
def context(browser: Browser) -> BrowserContext:
    """What pages of JupyterLab share: the cache and the login."""
    return browser.new_context()


@pytest.fixture(scope="package")
def loaded_page(lab: Lab, context: BrowserContext, screenshots: Path) -> Page:
    page = Page(context.new_page(), lab.address, screenshots)
    page.load(lab)
    return page


@pytest.fixture
def page(loaded_page: Page) -> Iterator[Page]:
    """The page of JupyterLab, without a notebook. Its notebook is closed after the test, and its kernel ended."""
    yield loaded_page
    loaded_page.close()


@pytest.fixture
def own_page(page: Page, lab: Lab, context: BrowserContext, screenshots: Path) -> Iterator[Page]:
    """A further page, which the test loads, and may load again or close."""
    own = Page(context.new_page(), lab.address, screenshots)
    yield own
    own.page.close()
