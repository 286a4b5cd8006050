"""The examples of the contributor's guide: their diffs apply, and the project passes its checks with them."""

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
import yaml

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
MOST_PLACES = {
    "list endpoint": 5, "field": 3, "filter": 5, "metric": 4, "summary": 5, "plot": 5, "widget": 4, "widget column": 3,
}  # fmt: skip
NUMBERS = {"three": 3, "four": 4, "five": 5, "six": 6}

Change = tuple[list[str], list[str]]
"""Lines that a file has at one place, and those that replace them."""


class Recipe(NamedTuple):
    """A section of the guide: what it says, the changes by file, and the commands to run afterwards."""

    text: str
    changes: list[tuple[str, Change]]
    commands: list[str]


def recipe_of(topic: str) -> Recipe:
    text = re.search(rf"^## Add a {topic}\n(.*?)^## ", GUIDE, re.M | re.S)[1]
    blocks = re.findall(r"^   ```diff\n(.*?)^   ```", text, re.M | re.S)
    lines = [line[3:] for block in blocks for line in block.splitlines()]
    return Recipe(text, list(changes_in(lines)), re.findall(r"^\$ (.*)", text, re.M))


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
    """Change one place of a file, unless it is changed. Without lines that it must have, it is a new file."""
    old, new = change
    file = project / path
    lines = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
    if len(places_of(new, lines)) == 1:
        return
    if not old:
        assert not lines, f"{path} exists: the diff needs a line of it to show the place"
        file.write_text("\n".join([*new, ""]), encoding="utf-8")
        return
    places = places_of(old, lines)
    assert len(places) == 1, f"{path} has the following lines {len(places)} times:\n" + "\n".join(old)
    lines[places[0] : places[0] + len(old)] = new
    file.write_text("\n".join(lines), encoding="utf-8")


def places_of(part: list[str], lines: list[str]) -> list[int]:
    return [place for place in range(len(lines)) if lines[place : place + len(part)] == part]


def test_the_diffs_of_the_guide_apply_to_as_many_places_as_it_says(tmp_path: Path) -> None:
    recipes = {topic: recipe_of(topic) for topic in MOST_PLACES}
    assert re.findall(r"^## Add a (.*)$", GUIDE, re.M) == list(MOST_PLACES)
    for path in {path for recipe in recipes.values() for path, _ in recipe.changes}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).exists():
            shutil.copy(ROOT / path, tmp_path / path)
    for topic, (text, changes, _) in recipes.items():
        places = len(re.findall(r"^\d+\. \*\*", text, re.M))
        assert (topic, NUMBERS[re.search(r"takes (\w+) places", text)[1]]) == (topic, places)
        assert places <= MOST_PLACES[topic], topic
        assert len(re.findall(r"^   ```diff$", text, re.M)) == places, topic
        for path, change in changes:
            apply(tmp_path, path, change)


def test_the_map_of_the_tests_has_each_folder_and_helpers_that_exist() -> None:
    table = GUIDE.partition("| folder of `tests/` ")[2].partition("\n\n")[0]
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert {name for of_row, *_ in rows for name in re.findall(r"`(\w+)`", of_row)} == folders
    helpers = [ROOT / name.replace(".", "/") for *_, last in rows for name in re.findall(r"`(tests\.[\w.]+)`", last)]
    assert [path for path in helpers if not (path.is_dir() or path.with_suffix(".py").exists())] == []


# --- the whole project with all changes together

AFFECTED = (
    "tests/contract", "tests/spec/test_golden.py", "tests/spec/test_registration.py",
    "tests/sandbox_server/http/test_openapi.py", "tests/sandbox_server/http/test_requests_and_lists.py",
    "tests/sandbox_server/http/test_faults.py::test_every_route_can_be_met",
    "tests/sandbox_server/handlers/test_members.py", "tests/http/test_protocol.py", "tests/guards/test_arguments.py",
    "tests/workspace/test_signatures.py", "tests/workspace/test_end_to_end.py", "tests/metrics/test_examples.py",
    "tests/metrics/test_input_frames.py::test_no_summary_is_forgotten",
    "tests/metrics/test_input_frames.py::test_summaries_are_those_of_pandas[categories]",
    "tests/plots/test_every_plot.py::test_every_public_plot_is_tested",
    "tests/plots/test_every_plot.py::test_rules_of_each_plot[throughput]",
    "tests/plots/test_plot_examples.py::test_an_example_runs[throughput]",
    "tests/plots/test_groups.py::test_the_page_on_plots_lists_which_arguments_a_plot_does_not_have",
    "tests/widgets/test_build_browser.py::test_time_comes_before_texts_and_one_pipeline_needs_no_column",
    "tests/widgets/test_lazy_imports.py", "tests/widgets/test_widget_examples.py::test_an_example_runs[QueueBoard]",
    "tests/test_public_names.py", "tests/test_docs_generated.py",
    "tests/test_architecture.py::test_a_class_name_is_used_once",
)  # fmt: skip
"""Tests of all operations, fields, options, metrics, plots or widgets, beside the files that the guide changes."""

OPTIONS = "-o addopts=\"--mpl -m 'not long'\" -p no:nbval -p no:schemathesis"
"""Options of the first lane without plugins whose import takes longer than most tests."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with all changes of the guide, after all its commands."""
    copy = tmp_path_factory.mktemp("project")
    ignored = shutil.ignore_patterns("*.ipynb", "api", "__pycache__")  # some are made by a build of the site
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", ".pre-commit-config.yaml"):
        shutil.copy(ROOT / name, copy)
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", copy / ".mypy_cache")
    (copy / ".venv").symlink_to(sys.prefix)
    recipes = [recipe_of(topic) for topic in MOST_PLACES]
    for path, change in (change for recipe in recipes for change in recipe.changes):
        apply(copy, path, change)
    for command in dict.fromkeys(command for recipe in recipes for command in recipe.commands):
        run(copy, command)
    return copy


def run(project: Path, command: str) -> None:
    """Run a command of the guide or of a hook, with the copy's package in place of the one that is installed."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(project / "src"), os.environ["PYTHONPATH"]]),
        "PYTEST_ADDOPTS": OPTIONS,
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",  # it would ask the package index for a newer version
    }
    done = subprocess.run(command, shell=True, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


@pytest.mark.long
def test_the_checkers_find_nothing_in_the_changes_of_the_guide(project: Path) -> None:
    """All but pyright, which takes two minutes, and finds here what mypy finds."""
    config = yaml.safe_load((project / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    for hook in (hook for repository in config["repos"] for hook in repository["hooks"]):
        if hook["id"] != "pyright":
            run(project, hook["entry"])


@pytest.mark.long
def test_the_first_lane_passes_with_the_changes_of_the_guide(project: Path) -> None:
    changed = {path for topic in MOST_PLACES for path, _ in recipe_of(topic).changes if "/test_" in path}
    run(project, f"python -m pytest -q -p no:cacheprovider {shlex.join([*AFFECTED, *sorted(changed)])}")
