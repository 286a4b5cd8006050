"""The pages: their code runs, their links lead somewhere, the reference is fresh."""

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
from tests import sparks, worlds

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SYBIL = Sybil(parsers=[PythonCodeBlockParser()], patterns=["*.md"], path=str(ROOT))


def with_code() -> Iterator[Any]:
    for page in PAGES:
        if "```python" in (text := page.read_text()):
            yield pytest.param(page, id=page.name + (", SparkSession" if "SparkSession" in text else ""))


def run(page: Path, example: Example) -> None:
    if "SparkSession" in page.read_text()[example.start : example.end]:
        sparks.session()  # which the page then gets, or a skip for want of Java
    example.evaluate()


@pytest.mark.parametrize("page", with_code())
def test_the_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = list(SYBIL.parse(page).examples())
    assert examples
    with ExitStack() as sandboxes:  # which start sooner, and end with the page
        monkeypatch.setattr(bf, "sandbox", lambda **told: sandboxes.enter_context(worlds.sandbox(**told)))
        for example in examples:
            run(page, example)
    plt.close("all")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_reference_is_fresh() -> None:
    maker = ROOT / "docs" / "make_reference.py"
    described = importlib.util.spec_from_file_location("make_reference", maker)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    kept = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").iterdir()}
    made = module.pages()
    assert kept.keys() == made.keys()
    assert [name for name in kept if kept[name] != made[name]] == [], "run: python docs/make_reference.py"


def test_the_two_commands_of_the_readme_are_complete() -> None:
    commands = re.findall(r"^\$ (python3 -m venv .*)$", (ROOT / "README.md").read_text(), re.M)
    assert len(commands) == 2
    demo, tests = commands
    assert demo.endswith(".venv/bin/buildframe demo")
    assert tests.endswith(".venv/bin/python -m pytest -n 3 --dist loadfile")
    assert all(".venv/bin/pip install" in command for command in commands)
