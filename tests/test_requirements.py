"""The requirements of the package, and the versions that contributors install."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"].values()
REQUIREMENTS = [Requirement(line) for line in chain(PROJECT["dependencies"], *EXTRAS)]
PRIVATE = ("httpcore", "httpx", "uvicorn")
"""Requirements of which private attributes are used. Only they have an upper bound."""

CONSTRAINTS = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8")


def test_the_base_requires_few_packages() -> None:
    assert len(PROJECT["dependencies"]) <= 11


def test_every_requirement_has_a_lower_bound_or_an_exact_version() -> None:
    for requirement in REQUIREMENTS:
        operators = [one.operator for one in requirement.specifier]
        expected = [["<", ">="]] if requirement.name in PRIVATE else [["=="], [">="]]
        assert sorted(operators) in expected or requirement.name == "buildframe", str(requirement)


def test_private_attributes_of_the_http_libraries_are_set_in_one_module() -> None:
    """They are the reason of the upper bounds."""
    names = ("_transport", "_mounts", "_pool", "_network_backend", "_optional_thread_lock")
    pattern = rf"\.({'|'.join(names)})\b"
    users = [path.name for path in (ROOT / "src").rglob("*.py") if re.search(pattern, path.read_text(encoding="utf-8"))]
    assert users == ["sockets.py"]


def test_the_constraints_fit_the_requirements() -> None:
    """After a change of pyproject.toml, renew them: docs/contributing.md, "Lock the versions"."""
    exact: dict[str, set[str]] = {}
    for line in CONSTRAINTS.splitlines():
        if not line.startswith("#"):
            constraint = Requirement(line)
            (pinned,) = constraint.specifier
            assert pinned.operator == "=="
            exact.setdefault(canonicalize_name(constraint.name), set()).add(pinned.version)
    for requirement in REQUIREMENTS:
        if requirement.name != "buildframe":
            versions = exact[canonicalize_name(requirement.name)]
            assert all(map(requirement.specifier.contains, versions)), (str(requirement), versions)


def test_the_constraints_name_no_host_and_no_folder() -> None:
    assert not re.search(r"://|file:|@|--index|--find-links|(^|[ =])[.~]?/", CONSTRAINTS, re.MULTILINE)
