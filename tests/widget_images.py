"""Take the images of the widgets in the gallery of the documentation: `python -m tests.widget_images`.

Each widget runs its example in JupyterLab, in headless Chromium, in the light and in the dark theme.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from tests.chromium import launched
from tests.jupyter.lab import Page, jupyterlab, write_notebook

DOCS = Path(__file__).parent.parent / "docs"
LARGEST = 60_000  # bytes of an image
WIDTH, HEIGHT = 1100, 900  # pixels; the rest of a higher widget is cut off
SETUP = """import buildframe as bf
from buildframe import metrics, plots, widgets
ci = bf.sandbox(progress=False)"""


def select_first_build(page: Page) -> None:
    page.wait("builds, complete", 120)
    page.find(".bf-body .bf-row", has_text="failed").first.click()
    page.find(".bf-properties caption").first.wait_for(timeout=60_000)


def show_rows(page: Page) -> None:
    page.find(".bf-body .bf-row").first.wait_for(timeout=120_000)


READY: dict[str, Callable[[Page], object]] = {
    "explore": lambda page: page.find("canvas").first.wait_for(timeout=120_000),
    "BuildBrowser": select_first_build,
    "BuildMonitor": lambda page: page.find(".bf-hint", has_text="builds running").first.wait_for(timeout=120_000),
    "FlakyBoard": lambda page: page.wait("flaky tests of the suite", 120),
    "actions": lambda page: page.find("button:visible").first.wait_for(timeout=120_000),
}
"""Waits until a widget shows what its image should show; others show rows."""


def to_webp(png: bytes) -> bytes:
    """Return an image with the best quality that is small enough."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image = image.crop((0, 0, image.width, min(image.height, HEIGHT)))
    sizes = []
    for quality in range(85, 20, -5):
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", quality=quality, method=6)
        if len(webp := buffer.getvalue()) <= LARGEST:
            return webp
        sizes.append(len(webp))
    raise AssertionError(f"the smallest image has {sizes[-1]:,} bytes")


def take(page: Page, folder: Path, name: str, code: str, output: Path) -> None:
    """Run a widget, and save its image in both themes."""
    write_notebook(folder / f"{name}.ipynb", SETUP, code)
    page.run_all(f"{name}.ipynb", 1600)
    READY.get(name, show_rows)(page)
    page.page.wait_for_timeout(2000)  # for parts that the wait does not know
    for theme in ("light", "dark"):
        page.set_theme(theme)
        page.page.mouse.move(0, 0)
        page.page.wait_for_timeout(500)
        shown: Any = page.page.locator(".jp-OutputArea-output").last
        (output / f"{name}-{theme}.webp").write_bytes(to_webp(shown.screenshot()))
    page.close()


def main(names: list[str]) -> None:
    """Take the images of these widgets, or of all."""
    sys.path.insert(0, str(DOCS))
    import make_gallery

    codes = {re.sub(r".*\.", "", name): make_gallery.widget_code(name) for name in make_gallery.WIDGETS}
    output = make_gallery.WIDGET_IMAGES
    output.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, launched() as browser:
        os.environ.setdefault("IPYTHONDIR", f"{home}/ipython")
        folder = Path(home) / "lab"
        folder.mkdir()
        with jupyterlab(folder) as lab:
            page = Page(browser.new_page(viewport={"width": WIDTH, "height": 1600}), lab.address, output)
            page.load(lab)
            for name in names or codes:
                take(page, folder, name, codes[name], output)
                print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
