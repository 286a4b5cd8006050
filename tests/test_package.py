"""The archives that are published, and the wheel in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests import wheel_venv

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LARGEST = 1_150_000
"""Bytes of the wheel, which are those of source files: none has more than 10,000, and `RECORD` has 18,000."""
EXTRAS = ROOT / "tests" / "extras.py"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the source archive from the checkout, and the wheel from the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, timeout=300, stdout=subprocess.PIPE)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def use(python: Path, folder: Path, extra: str) -> str:
    """Use an extra in a folder of its own, without the variables of the tests, and return the output."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "MPLCONFIGDIR": str(folder / "matplotlib")}
    command = [str(python), "-I", str(EXTRAS), extra]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_archives_are_small_and_their_metadata_are_valid(archives: tuple[Path, Path]) -> None:
    wheel, source = archives
    assert {wheel.name, source.name} == {
        f"buildframe-{PROJECT['version']}-py3-none-any.whl",
        f"buildframe-{PROJECT['version']}.tar.gz",
    }
    assert wheel.stat().st_size < LARGEST
    twine = [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)]
    check = subprocess.run(twine, capture_output=True, text=True, check=False, timeout=120)
    assert check.returncode == 0, check.stdout + check.stderr


def test_the_wheel_contains_every_file_of_the_library_and_nothing_else(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[0]) as file:
        names = set(file.namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert {name for name in names if ".dist-info/" not in name} == {name.removeprefix("src/") for name in tracked}
    assert {Path(name).suffix for name in names} >= {".py", ".js", ".css", ".j2", ".toml", ".typed"}
    assert f"buildframe-{PROJECT['version']}.dist-info/licenses/LICENSE" in names


def test_the_source_archive_contains_tests_docs_and_notebooks(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[1]) as file:
        names = file.getnames()
    assert {name.split("/")[1] for name in names} >= {"src", "tests", "docs", "notebooks", "LICENSE", "README.md"}
    private = (".venv", "__pycache__", ".git/", ".ipynb_checkpoints")
    assert not [name for name in names if any(part in name for part in private)]


def test_the_base_works_and_names_the_extra_of_what_is_missing(archives: tuple[Path, Path], tmp_path: Path) -> None:
    python = wheel_venv.make(tmp_path / "base", archives[0])
    present, median, failure, *messages = use(python, tmp_path, "base").splitlines()
    assert present == "pandas scipy"  # a package that is used but not required would be missing
    assert median == "90.0"
    assert failure == "DeadlineExceeded"
    assert (tmp_path / "plot.png").stat().st_size > 1_000
    by_extra = dict(line.split(" ", 1) for line in messages)
    assert by_extra.keys() == {"sandbox", "interactive", "report", "receiver", "store", "widgets"}
    for extra, message in by_extra.items():
        assert f'pip install "buildframe[{extra}]"' in message
    command = [python.parent / "buildframe", "--version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert version.stdout == f"buildframe {PROJECT['version']}\n"


def test_all_works_with_nothing_but_the_required_packages(archives: tuple[Path, Path], tmp_path: Path) -> None:
    python = wheel_venv.make(tmp_path / "all", archives[0], "all")
    output = use(python, tmp_path, "all")
    assert output.splitlines()[-1] == "equal"
    assert "notebook" not in output  # which a wheel does not contain
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".parquet", ".png"}
