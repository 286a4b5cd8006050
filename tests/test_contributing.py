"""The examples of the contributor's guide: each diff applies to a copy of the project, and its commands succeed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
MOST_PLACES = {"list endpoint": 5, "field": 4, "metric": 6, "plot": 6, "widget": 6}
NUMBERS = {"three": 3, "four": 4, "five": 5, "six": 6}

WITHOUT_UNUSED_PLUGINS = "-o addopts=--mpl -p no:nbval -p no:schemathesis"
"""Importing them takes longer than most of the tests that the guide runs."""

Change = tuple[list[str], list[str]]
"""Lines that a file has at one place, and those that replace them."""


class Case(NamedTuple):
    """A section of the guide: what it says, the changes by file, and the commands to run afterwards."""

    text: str
    changes: list[tuple[str, Change]]
    commands: list[str]


def case_of(topic: str) -> Case:
    text = re.search(rf"^## Add a {topic}\n(.*?)^## ", GUIDE, re.M | re.S)[1]
    blocks = re.findall(r"^   ```diff\n(.*?)^   ```", text, re.M | re.S)
    lines = [line[3:] for block in blocks for line in block.splitlines()]
    return Case(text, list(changes_in(lines)), re.findall(r"^\$ (.*)", text, re.M))


def changes_in(diff: list[str]) -> Iterator[tuple[str, Change]]:
    """The changes of a diff, in which `# path` begins a file and `@@` the next place in it."""
    path = ""
    old: list[str] = []
    new: list[str] = []
    for line in [*diff, "@@"]:
        if line.startswith(("# ", "@@")):
            if old or new:
                yield path, (old, new)
            path, old, new = path if line == "@@" else line[2:], [], []
            continue
        sign, rest = line[:1] or " ", line[1:]
        assert sign in " +-", f"no line of a diff: {line!r}"
        old += [rest] * (sign != "+")
        new += [rest] * (sign != "-")


def apply(project: Path, path: str, change: Change) -> None:
    """Change one place of a file. Without lines that it must have, it is a new file."""
    old, new = change
    file = project / path
    if not old:
        assert not file.exists(), f"{path} exists: the diff needs a line of it to show the place"
        file.write_text("\n".join([*new, ""]), encoding="utf-8")
        return
    lines = file.read_text(encoding="utf-8").split("\n")
    places = [place for place in range(len(lines)) if lines[place : place + len(old)] == old]
    assert len(places) == 1, f"{path} has the following lines {len(places)} times:\n" + "\n".join(old)
    lines[places[0] : places[0] + len(old)] = new
    file.write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the commands of the guide read."""
    for name in ("src", "tests", "docs"):
        ignored = shutil.ignore_patterns("0*.ipynb", "api")  # some are made by a build of the site
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", ".pre-commit-config.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def run(project: Path, command: str) -> None:
    """Run a command of the guide, with the copy's package in place of the one that is installed."""
    program, *arguments = shlex.split(command)
    assert program == "python"
    folders = os.pathsep.join([str(project / "src"), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": folders, "PYTEST_ADDOPTS": WITHOUT_UNUSED_PLUGINS}
    finished = subprocess.run(
        [sys.executable, *arguments], cwd=project, env=environment, capture_output=True, text=True
    )
    assert finished.returncode == 0, f"{command}\n{finished.stdout[-4000:]}\n{finished.stderr[-2000:]}"


@pytest.mark.parametrize("topic", MOST_PLACES)
def test_the_guide_counts_the_places_of_a_change(topic: str) -> None:
    case = case_of(topic)
    places = re.findall(r"^\d+\. \*\*", case.text, re.M)
    assert NUMBERS[re.search(r"takes (\w+) places", case.text)[1]] == len(places) <= MOST_PLACES[topic]
    assert len(re.findall(r"^   ```diff$", case.text, re.M)) == len(places)


@pytest.mark.parametrize("topic", MOST_PLACES)
def test_the_diffs_of_the_guide_apply(topic: str, tmp_path: Path) -> None:
    changes = case_of(topic).changes
    for path in {path for path, _ in changes}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).exists():
            shutil.copy(ROOT / path, tmp_path / path)
    for path, change in changes:
        apply(tmp_path, path, change)


@pytest.mark.long
@pytest.mark.parametrize("topic", MOST_PLACES)
def test_the_change_of_the_guide_works(topic: str, project: Path) -> None:
    case = case_of(topic)
    for path, change in case.changes:
        apply(project, path, change)
    run(project, "python -m ruff check .")
    run(project, "python -m ruff format --check .")
    for command in case.commands:
        run(project, command)
