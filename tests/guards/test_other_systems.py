"""Windows, simulated: what only POSIX has is hidden. The library was not run there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from buildframe.errors import BuildframeError
from buildframe.report.folder import ReportFolder

WITHOUT_POSIX = """
import asyncio, os, sys
from importlib import import_module
from pathlib import Path
import deltalake, duckdb, filelock, httpx, matplotlib.pyplot, pandas, pyarrow.dataset, scipy.stats, uvicorn

for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None
for name in ("O_NOFOLLOW", "O_DIRECTORY", "fork", "geteuid", "getuid", "killpg", "register_at_fork"):
    delattr(os, name)

import buildframe as bf
from buildframe.report.folder import ReportFolder
library = Path(bf.__file__).parent
for file in library.rglob("[!_]*.py"):
    import_module(".".join(file.relative_to(library.parent).with_suffix("").parts))
with bf.sandbox(builds=20, days=1) as ci:
    builds = ci.builds()
    bf.save("builds.parquet", builds)
    bf.Store("store").sync(ci)
    assert len(bf.Store("store").builds()) == len(bf.load("builds.parquet")) == len(builds) > 10
with ReportFolder(Path("reports")).lock():
    pass
"""


@pytest.mark.long
def test_every_module_works_without_what_only_posix_has(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_POSIX]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr


def test_a_folder_without_links_is_refused_before_a_report_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1314, "A required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with (
        pytest.raises(BuildframeError, match=r"'latest' .* privilege is not held .* developer mode"),
        ReportFolder(tmp_path).lock(),
    ):
        pytest.fail("a report would be written")


@pytest.mark.long
def test_the_demo_prints_on_a_terminal_that_lacks_signs(tmp_path: Path) -> None:
    """Such as one with a code page of Windows."""
    code = (
        "import buildframe, contextlib; from buildframe import cli, demo; buildframe.sandbox = contextlib.nullcontext;"
        "demo.run = lambda *_: ['started − runnable']; cli.main(['demo'])"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=120)
    assert (run.returncode, run.stdout) == (0, b"started ? runnable\n\n"), run.stderr
