"""The project as a whole: layers, types, lint, class names, lazy imports, files at the top."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


def hooks() -> dict[str, str]:
    """Return the commands of the hooks by id, the longest first."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    commands = {hook["id"]: hook["entry"] for repository in config["repos"] for hook in repository["hooks"]}
    return dict(sorted(commands.items(), key=lambda item: item[0] != "mypy"))


LONG = {"pyright"}
"""It takes two minutes of CPU. mypy checks the types in the first lane."""


@pytest.mark.parametrize(
    "hook", [pytest.param(hook, marks=pytest.mark.long if hook in LONG else ()) for hook in hooks()]
)
def test_a_checker_finds_nothing(hook: str) -> None:
    words = [word.replace(".venv/bin/", f"{BIN}/") for word in hooks()[hook].split()]
    of_pyright = {
        "NODE_OPTIONS": "--max-semi-space-size=128",  # a sixth of its time is freeing
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",  # it would ask the package index for a newer version
    }
    environment = os.environ | of_pyright
    run = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1200)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_hooks_run_every_checker() -> None:
    assert set(hooks()) == {"ruff", "ruff-format", "import-linter", "mypy", "pyright", "numpydoc"}


def imported_by(statement: str) -> set[str]:
    run = [sys.executable, "-c", f"import sys; {statement}; print(*sys.modules)"]
    return set(subprocess.run(run, capture_output=True, text=True, check=True).stdout.split())


def test_importing_loads_nothing_heavy() -> None:
    served = {"matplotlib", "starlette", "uvicorn", "yaml", "tqdm"}
    assert not imported_by("import buildframe") & {"pandas", "pyarrow", "httpx", "msgspec", "ipywidgets", *served}
    fetching = imported_by("import buildframe as bf; bf.connect('a', token='a-test-token')")
    assert not fetching & {"sqlite3", "asyncio", "tenacity", *served}
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
        for name in re.findall(r"^class _*(\w+)", path.read_text(encoding="utf-8"), re.M):
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_names_at_the_top_are_those_that_were_agreed() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    top = {name.split("/")[0] for name in listed.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        "LICENSE", "README.md", "docs", "notebooks", "pyproject.toml", "src", "tests",
    }  # fmt: skip
