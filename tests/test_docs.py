"""Documentation: its code runs, its links exist, and the reference matches the code."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot as plt
from sybil import Example, Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

import buildframe as bf
from tests import spark_session, worlds

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SYBIL = Sybil(parsers=[PythonCodeBlockParser()], patterns=["*.md"], path=str(ROOT))


def with_code() -> Iterator[Any]:
    for page in PAGES:
        if "```python" in (text := page.read_text()):
            yield pytest.param(page, id=page.name + (", SparkSession" if "SparkSession" in text else ""))


def run(page: Path, example: Example) -> None:
    if "SparkSession" in page.read_text()[example.start : example.end]:
        spark_session.get_session()  # the page then gets this session; skips without Java
    example.evaluate()


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.slow
def test_the_reference_matches_the_code() -> None:
    maker = ROOT / "docs" / "make_reference.py"
    module_spec = importlib.util.spec_from_file_location("make_reference", maker)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    saved = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").iterdir()}
    generated = module.pages()
    assert saved.keys() == generated.keys()
    assert [name for name in saved if saved[name] != generated[name]] == [], "run: python docs/make_reference.py"


def test_the_two_commands_of_the_readme_are_complete() -> None:
    commands = re.findall(r"^\$ (python3 -m venv .*)$", (ROOT / "README.md").read_text(), re.M)
    assert len(commands) == 2
    demo, tests = commands
    assert demo.endswith(".venv/bin/buildframe demo")
    assert tests.endswith(".venv/bin/python -m pytest -n 4 --dist loadfile")
    assert all(".venv/bin/pip install" in command for command in commands)


def test_the_design_lists_every_module_and_package() -> None:
    (tree,) = re.findall(r"^src/buildframe/ .*?```", (ROOT / "docs" / "design.md").read_text(), re.M | re.S)
    shown = set(re.findall(r"^  ([\w.]+)/? ", tree, re.M))
    package = ROOT / "src" / "buildframe"
    modules = {path.name for path in package.glob("*.py")}
    modules |= {path.parent.name for path in package.glob("*/__init__.py")}
    assert shown == modules


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    names = re.findall(r"`((?:\w+/)+\w+\.(?:py|j2|toml|css|js))`", page.read_text())
    folders = (ROOT, ROOT / "src" / "buildframe", ROOT / "tests")
    assert [name for name in names if not any((folder / name).exists() for folder in folders)] == []
