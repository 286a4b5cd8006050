"""Sandboxes that start from a copy of a world that was made before: making it is most of a sandbox's start.

All processes of a test run share the worlds, also the kernels of the notebooks, by nbval and in JupyterLab, and the
commands that are started with `environment()`.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from buildframe import sandbox as started
from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.database import Database
from buildframe.workspace import Workspace

Made = TypeVar("Made")

MAKING = (
    "seed", "builds", "days", "until", "agents", "run_scale", "world", "fork_share", "no_end_share", "cancels_at_once",
)  # fmt: skip
"""Settings that a world depends on; all others are those of the sandbox that serves it."""
FOLDER = "BUILDFRAME_TEST_WORLDS"
"""Environment variable with the folder of the worlds of a test run."""
DEFAULTS = "BUILDFRAME_TEST_WORLD"
"""Environment variable with settings of worlds as JSON, for commands that open a sandbox without any."""
WITHOUT_IRIS = "import sys; sys.modules['rfc3987_syntax'] = None\n"
"""Python code that leaves out a package of jsonschema. No test needs it, and it takes a second in each process."""
KERNEL_STARTUP = f"""
def replace_sandbox():
    import sys, buildframe
    original = buildframe.sandbox
    def open_sandbox(*arguments, **settings):
        buildframe.sandbox = original
        sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
        from tests import worlds
        buildframe.sandbox = worlds.open_sandbox
        return worlds.open_sandbox(*arguments, **settings)
    buildframe.sandbox = open_sandbox
replace_sandbox()
del replace_sandbox
"""


def share_worlds() -> None:
    """Make a folder for the worlds of this process and of its children, including kernels."""
    if FOLDER in os.environ:
        return
    folder = tempfile.TemporaryDirectory(prefix="worlds-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    startup = Path(folder.name, "ipython", "profile_default", "startup")
    startup.mkdir(parents=True)
    everywhere = Path(folder.name, "everywhere")
    everywhere.mkdir()
    (startup / "worlds.py").write_text(KERNEL_STARTUP, encoding="utf-8")
    Path(folder.name, "sitecustomize.py").write_text(WITHOUT_IRIS + KERNEL_STARTUP, encoding="utf-8")
    (everywhere / "sitecustomize.py").write_text(WITHOUT_IRIS, encoding="utf-8")
    os.environ |= {FOLDER: folder.name, "IPYTHONDIR": str(startup.parent.parent), "PYTHONPATH": _path(everywhere)}


def environment(**defaults: Any) -> dict[str, str]:
    """Return an environment in which Python starts sandboxes from the worlds, too, unless their file exists.

    `defaults` are the settings of those that are started without.
    """
    return os.environ | {"PYTHONPATH": _path(os.environ[FOLDER]), DEFAULTS: json.dumps(defaults)}


def _path(first: str | Path) -> str:
    """Return the value of `PYTHONPATH` with a folder before the others."""
    return os.pathsep.join([str(first), *filter(None, [os.environ.get("PYTHONPATH")])])


def make(**world: Any) -> Path:
    """Make a world unless a process of this run has made it, and return its file, to be copied."""
    name = hashlib.sha256(repr(sorted(world.items())).encode()).hexdigest()[:20]
    path = Path(os.environ[FOLDER], f"{name}.db")
    with FileLock(f"{path}.lock"):
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            with Sandbox(unfinished, **world) as sandbox:
                read_bodies(sandbox._db)  # else each copy would make those of jobs again
            unfinished.rename(path)
    return path


def read_bodies(db: Database) -> list[bytes]:
    """Return the bodies of all builds, then those of all jobs, in order."""
    builds = db.query("SELECT seq, body FROM builds ORDER BY seq")
    jobs = db.load_job_bodies([seq for seq, _ in builds])
    return [body for _, body in builds + jobs]


def remember(name: str, make: Callable[[], Made]) -> Made:
    """Return what `make` returns: the first process of this run that asks makes it, and all others load it."""
    path = Path(os.environ[FOLDER], f"{name}.pickle")
    with FileLock(f"{path}.lock"):
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_bytes(pickle.dumps(make()))
            unfinished.rename(path)
    made: Made = pickle.loads(path.read_bytes())
    return made


def open_sandbox(organization: str = "acme", *, path: Path | None = None, **settings: Any) -> Workspace:
    """Start what `bf.sandbox` starts, but sooner: its world is its own, and the same as a newly created one."""
    path = path or Path(tempfile.mkdtemp(dir=os.environ[FOLDER]), "world.db")
    settings = json.loads(os.environ.get(DEFAULTS, "{}")) | settings
    if not path.exists():
        shutil.copy(make(**{name: settings[name] for name in MAKING if name in settings}), path)
    return started(organization, path=path, **settings)


@contextmanager
def sandbox(organization: str = "acme", *, path: Path | None = None, **settings: Any) -> Iterator[Workspace]:
    """Start a sandbox, and remove the copy of its world at the end."""
    with (
        tempfile.TemporaryDirectory(dir=os.environ[FOLDER]) as folder,
        open_sandbox(organization, path=path or Path(folder, "world.db"), **settings) as workspace,
    ):
        yield workspace
