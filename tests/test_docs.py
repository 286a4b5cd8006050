"""Documentation: its code runs, and its links exist."""

from __future__ import annotations

import io
import re
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot as plt
from sybil import Example, Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

import buildframe as bf
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


@pytest.mark.long
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


def test_files_that_pages_name_exist() -> None:
    folders = (ROOT, ROOT / "src" / "buildframe", ROOT / "tests")
    missing = [
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|j2|toml|css|js))`", page.read_text())
        if not any((folder / name).exists() for folder in folders)
    ]
    assert missing == []


def test_a_space_precedes_the_percent_sign() -> None:
    """As in "95 % interval" and `{100 * share:.0f} %`. Of CSS, `100%` ends a value, and no word follows."""
    percent = re.compile(r"[\d}]% \w|:\.\d%\}")
    endings = {".py", ".md", ".js", ".css", ".j2", ".toml", ".graphql"}
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in endings]
    found = [
        (path.name, match[0])
        for path in (ROOT / "README.md", *PAGES, *DOCS.glob("*.py"), *sources)
        for match in percent.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
