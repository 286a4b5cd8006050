"""An environment that holds the wheel and only the packages that it requires, without a download.

An installation by pip takes 25 s of CPU time and the network. Here the wheel is installed by pip, and the packages that
its metadata requires, by way of each other, are links to those of this environment. A package that is used but not
required is missing, as after an installation by pip. `.ci/release` installs each extra by pip.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def make(folder: Path, wheel: Path, extra: str = "") -> Path:
    """Create an environment with the wheel, the packages of the base, and those of an extra. Return its Python."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *options, str(wheel)], check=True, timeout=120)
    site = next(folder.glob("lib/python3*/site-packages"))
    (installed,) = importlib.metadata.distributions(name="buildframe", path=[str(site)])
    for required in _required(installed, extra, set()):
        _link(required, site)
    subprocess.run([*pip, "check"], check=True, timeout=120)
    return python


def _required(of: Distribution, extra: str, seen: set[tuple[str, str]]) -> Iterator[Distribution]:
    """Yield the distributions that one requires, and those that they require."""
    for requirement in map(Requirement, of.requires or ()):
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        own = canonicalize_name(requirement.name) == canonicalize_name(of.name)
        for one in ("", *requirement.extras):
            if (key := (canonicalize_name(requirement.name), one)) not in seen:
                seen.add(key)
                other = of if own else importlib.metadata.distribution(requirement.name)
                yield other
                yield from _required(other, one, seen)


def _link(required: Distribution, site: Path) -> None:
    """Link the packages, modules and metadata of a distribution, and the packages of a shared namespace one by one."""
    for file in required.files or ():
        parts = file.parts
        if parts[0] in ("..", "__pycache__"):
            continue
        source = Path(str(required.locate_file(parts[0])))
        is_shared = source.is_dir() and source.suffix != ".dist-info" and not (source / "__init__.py").exists()
        name = Path(*parts[: 2 if is_shared else 1])
        target = site / name
        if not target.exists() and not target.is_symlink():
            target.parent.mkdir(exist_ok=True)
            target.symlink_to(Path(str(required.locate_file(name))))
