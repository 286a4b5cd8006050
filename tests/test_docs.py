"""Documentation: its code runs, its links exist, and the site is complete and needs no network."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from matplotlib import pyplot as plt
from sybil import Example, Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

import buildframe as bf
from buildframe import metrics, plots, report, webhooks, widgets
from buildframe.sandbox_server import Sandbox
from buildframe.workspace import PipelineWorkspace, Workspace
from tests import spark_session, worlds

ROOT = Path(__file__).parent.parent

DOCS = ROOT / "docs"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if path.parent.name not in ("gallery", "reference")]
"""Not those that are made when the site is built."""
SYBIL = Sybil(parsers=[PythonCodeBlockParser()], patterns=["*.md"], path=str(ROOT))


def with_code() -> Iterator[Any]:
    for page in (ROOT / "README.md", *PAGES):
        if "```python" in (text := page.read_text()):
            yield pytest.param(page, id=page.name + (", SparkSession" if "SparkSession" in text else ""))


def run(page: Path, example: Example) -> None:
    """Run code, and compare what it prints with the block "text" that follows it on a how-to page."""
    text = page.read_text()
    if "SparkSession" in text[example.start : example.end]:
        spark_session.get_session()  # the page then gets this session; skips without Java
    with redirect_stdout(io.StringIO()) as printed:
        example.evaluate()
    shown = re.match(r"[`\s]*?\n```text\n(.*?)```", text[example.end :], re.S)
    if shown and page.parent.name == "how-to":
        assert [line.rstrip() for line in printed.getvalue().splitlines()] == shown[1].splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("page", list(with_code()))
def test_the_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = list(SYBIL.parse(page).examples())
    assert examples
    with ExitStack() as sandboxes:  # started before, and stopped with the page
        monkeypatch.setattr(bf, "sandbox", lambda **settings: sandboxes.enter_context(worlds.sandbox(**settings)))
        for example in examples:
            run(page, example)
    plt.close("all")


def test_the_links_of_the_readme_exist() -> None:
    """Building the site checks those of the pages."""
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation site, built from a copy by the command of the contributor's guide."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("docs", "notebooks"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)  # has the layers
    (command,) = re.findall(r"^\$ python (-m sphinx .* docs site)$", (DOCS / "contributing.md").read_text(), re.M)
    environment = worlds.environment()
    built = [sys.executable, *command.split()]
    finished = subprocess.run(built, cwd=folder, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-4000:]
    return folder / "site"


@pytest.mark.slow
def test_the_site_documents_every_public_name(site: Path) -> None:
    pages = {path.stem for path in (site / "reference" / "api").glob("*.html")}
    modules = (metrics, plots, report, webhooks, widgets)
    names = {f"{module.__name__}.{name}" for module in modules for name in module.__all__ if not name.isupper()}
    assert names <= pages
    assert {f"buildframe.{name}" for name in bf.__all__ if callable(getattr(bf, name))} <= pages


@pytest.mark.slow
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


def test_the_first_page_and_the_readme_name_the_extras_and_versions_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"all", "benchmarks", "dev", "docs", "test"}
    first, readme = (DOCS / "index.md").read_text(), (ROOT / "README.md").read_text()
    table = first.partition("| extra | adds |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == extras
    (listed,) = re.findall(r"The extras add: (.*?)\. ", readme, re.S)
    assert set(re.findall(r"`(\w+)` ", listed)) >= extras
    (everything,) = project["optional-dependencies"]["all"]
    assert set(re.findall(r"[a-z]+", everything.partition("[")[2])) == extras - {"spark"}
    versions = [each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each]
    for page in (first, readme, (DOCS / "where-it-runs.md").read_text()):
        assert f"Python {versions[0]} to {versions[-1]}" in page
    for name in ("pandas", "pyarrow"):
        (bound,) = re.findall(rf"'{name}>=(\d+)", str(project["dependencies"]))
        assert f"{name} {bound}" in first
    commands = [set(re.findall(r"^\$ (pip install .*)$", page, re.M)) for page in (first, readme)]
    assert commands[0] <= commands[1]


@pytest.mark.slow
def test_the_site_needs_no_network(site: Path) -> None:
    pages = [path.read_text() for path in site.rglob("*.html")]
    assert len(pages) > 150
    foreign = re.compile(r"<(?:script|img|iframe|link rel=.stylesheet.)[^>]*(?:src|href)=.https?:[^>]*>")
    assert [found for page in pages for found in foreign.findall(page)] == []
    assert (site / "searchindex.js").stat().st_size > 100_000


@pytest.mark.slow
def test_the_plan_of_the_code_links_packages(site: Path) -> None:
    """Sphinx does not check the links of an image."""
    linked = re.findall(r'href="(reference/[^"#]+)#([^"]+)"><title>', (site / "design.html").read_text())
    assert len(linked) >= 20
    for page, anchor in linked:
        assert f'id="{anchor}"' in (site / page).read_text()


@pytest.mark.slow
def test_the_gallery_has_an_image_of_each_plot(site: Path) -> None:
    page = (site / "gallery" / "index.html").read_text()
    drawn = set(plots.__all__) - {"explore", "shortened"}
    assert set(re.findall(r"_images/(\w+)\.png", page)) == drawn


def test_the_two_commands_of_the_readme_are_complete() -> None:
    commands = re.findall(r"^\$ (python3 -m venv .*)$", (ROOT / "README.md").read_text(), re.M)
    assert len(commands) == 2
    demo, tests = commands
    assert demo.endswith(".venv/bin/buildframe demo")
    assert tests.endswith(".venv/bin/python -m pytest -n 4 --dist loadfile")
    assert all(".venv/bin/pip install" in command for command in commands)


def test_the_design_lists_every_module_and_package() -> None:
    (tree,) = re.findall(r"^src/buildframe/ .*?```", (DOCS / "design.md").read_text(), re.M | re.S)
    shown = set(re.findall(r"^  ([\w.]+)/? ", tree, re.M))
    package = ROOT / "src" / "buildframe"
    modules = {path.name for path in package.glob("*.py")}
    modules |= {path.parent.name for path in package.glob("*/__init__.py")}
    assert shown == modules


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    names = re.findall(r"`((?:\w+/)+\w+\.(?:py|j2|toml|css|js))`", page.read_text())
    folders = (ROOT, ROOT / "src" / "buildframe", ROOT / "tests")
    assert [name for name in names if not any((folder / name).exists() for folder in folders)] == []
