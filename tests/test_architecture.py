"""The project as a whole: layers, types, lint, class names, lazy imports, files at the top."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


def hooks() -> dict[str, str]:
    """Return the commands of the hooks by id, apart from those that run tests."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    commands = {hook["id"]: hook["entry"] for repository in config["repos"] for hook in repository["hooks"]}
    return {name: command for name, command in commands.items() if "pytest" not in command}


def test_the_hooks_run_every_checker() -> None:
    assert set(hooks()) == {"ruff", "ruff-format", "import-linter", "mypy", "pyright"}


@pytest.mark.parametrize("hook", hooks())
def test_a_checker_finds_nothing(hook: str) -> None:
    words = [word.replace(".venv/bin/", f"{BIN}/") for word in hooks()[hook].split()]
    of_pyright = {
        "NODE_OPTIONS": "--max-semi-space-size=128",  # a sixth of its time is freeing
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",  # it would ask the package index for a newer version
    }
    environment = os.environ | of_pyright
    run = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1200)
    assert run.returncode == 0, run.stdout + run.stderr


def imported_by(statement: str) -> set[str]:
    run = [sys.executable, "-c", f"import sys; {statement}; print(*sys.modules)"]
    return set(subprocess.run(run, capture_output=True, text=True, check=True).stdout.split())


def test_importing_loads_nothing_heavy() -> None:
    heavy = {
        "pandas",
        "pyarrow",
        "httpx",
        "msgspec",
        "matplotlib",
        "ipywidgets",
        "starlette",
        "uvicorn",
        "yaml",
        "tqdm",
    }
    assert not imported_by("import buildframe") & heavy
    fetching = imported_by("import buildframe as bf; bf.connect('a', token='a-test-token')")
    assert not fetching & {"matplotlib", "starlette", "uvicorn", "yaml", "sqlite3", "asyncio", "tenacity", "tqdm"}
    assert {"pandas", "httpx"} <= fetching


def test_http_is_spoken_in_one_place() -> None:
    users = [path for path in (ROOT / "src").rglob("*.py") if "import httpx" in path.read_text()]
    assert {path.parent.name for path in users} == {"http"}
    assert sorted(path.name for path in users) == [
        "client.py",
        "sockets.py",
        "urls.py",
    ]  # the second makes the connections


def test_a_class_name_is_used_once() -> None:
    """A private class counts as well: `_Column` beside `Column` would be mistaken for it."""
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_names_at_the_top_are_those_that_were_agreed() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    top = {name.split("/")[0] for name in listed if name}
    assert {name for name in top if not name.startswith(".")} == {
        "LICENSE", "README.md", "docs", "notebooks", "pyproject.toml", "src", "tests",
    }  # fmt: skip
