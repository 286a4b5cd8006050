"""The documentation site is complete, and needs no network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import FunctionType

import pytest

import buildframe as bf
from buildframe import metrics, plots, report, webhooks, widgets
from buildframe.sandbox_server import Sandbox
from buildframe.workspace import PipelineWorkspace, Workspace
from tests import worlds

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation site, built from a copy by the command of the contributor's guide."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("docs", "notebooks"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)  # has the layers
    (command,) = re.findall(
        r"^\$ \.venv/bin/python (-m sphinx .* docs site)$", (DOCS / "contributing.md").read_text(), re.M
    )
    environment = worlds.environment()
    built = [sys.executable, *command.split()]
    finished = subprocess.run(built, cwd=folder, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-4000:]
    return folder / "site"


def test_the_site_documents_every_public_name(site: Path) -> None:
    pages = {path.stem for path in (site / "reference" / "api").glob("*.html")}
    modules = (metrics, plots, report, webhooks, widgets)
    names = {f"{module.__name__}.{name}" for module in modules for name in module.__all__ if not name.isupper()}
    assert names <= pages
    assert {f"buildframe.{name}" for name in bf.__all__ if callable(getattr(bf, name))} <= pages


def test_the_site_documents_every_public_method_once(site: Path) -> None:
    api = {path.stem: path.read_text() for path in (site / "reference" / "api").glob("*.html")}
    documented = Counter(name for text in api.values() for name in re.findall(r'<dt [^>]*id="([\w.]+)"', text))
    assert [name for name, count in documented.items() if count > 1] == []
    methods = {f"{full}.{name}" for full, kind in public_classes() for name in public_methods(kind)}
    assert len(methods) > 90
    assert methods - set(documented) == set()
    assert "__init__" not in (site / "genindex.html").read_text()
    history = re.sub(r"<[^>]+>", "", api["buildframe.workspace.Workspace.history"])
    assert "job_extra=None" in history
    assert "Columns of jobs to return." in history
    assert "buildframe.workspace.Workspace.history.html" in api["buildframe.workspace.Workspace"]


def public_classes() -> Iterator[tuple[str, type]]:
    yield "buildframe.workspace.Workspace", Workspace
    yield "buildframe.workspace.PipelineWorkspace", PipelineWorkspace
    yield "buildframe.sandbox_server.Sandbox", Sandbox
    for module in (bf, metrics, plots, report, webhooks, widgets):
        for name in module.__all__:
            kind = getattr(module, name)
            if isinstance(kind, type) and not issubclass(kind, Exception):
                yield f"{module.__name__}.{name}", kind


def public_methods(kind: type) -> set[str]:
    """Return the names of methods and properties that the package defines."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("buildframe")]
    values = {name: value for base in own for name, value in vars(base).items() if not name.startswith("_")}
    kinds = (FunctionType, classmethod, staticmethod, property, cached_property)
    return {name for name, value in values.items() if isinstance(value, kinds)}


def test_the_site_needs_no_network(site: Path) -> None:
    pages = [path.read_text() for path in site.rglob("*.html")]
    assert len(pages) > 150
    foreign = re.compile(r"<(?:script|img|iframe|link rel=.stylesheet.)[^>]*(?:src|href)=.https?:[^>]*>")
    assert [found for page in pages for found in foreign.findall(page)] == []
    assert (site / "searchindex.js").stat().st_size > 100_000


def test_the_plan_of_the_code_links_packages(site: Path) -> None:
    """Sphinx does not check the links of an image."""
    linked = re.findall(r'href="(reference/[^"#]+)#([^"]+)"><title>', (site / "design.html").read_text())
    assert len(linked) >= 20
    for page, anchor in linked:
        assert f'id="{anchor}"' in (site / page).read_text()


def test_the_gallery_has_an_image_of_each_plot(site: Path) -> None:
    page = (site / "gallery" / "index.html").read_text()
    drawn = set(plots.__all__) - {"explore", "shortened"}
    assert set(re.findall(r"_images/(\w+)\.png", page)) == drawn
