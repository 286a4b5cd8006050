"""What users see after `import buildframe`: names, signatures and examples."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import buildframe as bf
from buildframe import errors
from buildframe.sandbox_server import Sandbox
from tests import public_api

FUNCTIONS = [name for name in bf.__all__ if inspect.isfunction(getattr(bf, name))]
MODULES = [name for name in bf.__all__ if inspect.ismodule(getattr(bf, name))]


def test_the_names_are_the_public_ones() -> None:
    assert dir(bf) == sorted(bf.__all__)
    assert {name for name in bf.__all__ if name[0].isupper()} == {*dir(errors)} & {*bf.__all__} | {"Store"}
    assert FUNCTIONS == ["connect", "load", "sandbox", "save"]
    assert MODULES == ["metrics", "plots", "report", "spec", "webhooks", "widgets"]


def test_signatures_change_only_on_purpose() -> None:
    """After an intended change: `python -m tests.public_api > tests/public_api.txt`. The diff is part of the change."""
    assert public_api.lines() == Path(public_api.__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", ["plots", "metrics", "report", "widgets", "webhooks", ""])
def test_each_has_a_docstring(name: str) -> None:
    module = getattr(bf, name) if name else bf
    public = [getattr(module, one) for one in module.__all__]
    assert not [one for one in public if callable(one) and not one.__doc__]


@pytest.mark.long
@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_loaded_at_first_use(name: str) -> None:
    code = f"import sys, buildframe as bf; assert 'pandas' not in sys.modules; print(bf.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"buildframe.{name}"


@pytest.mark.parametrize("name", ["plots", "metrics", "report", "widgets", "webhooks"])
def test_a_module_offers_public_names_only(name: str) -> None:
    module = getattr(bf, name)
    assert sorted(one for one in dir(module) if not one.startswith("__")) == sorted(module.__all__)


@pytest.mark.parametrize("name", ["plots", "metrics", "report", "widgets", "webhooks"])
def test_signatures_show_functions_by_their_name(name: str) -> None:
    module = getattr(bf, name)
    functions = [one for one in map(vars(module).get, module.__all__) if inspect.isfunction(one)]
    assert not [one for one in functions if " at 0x" in str(inspect.signature(one))]


def test_sandbox_has_the_parameters_of_the_server() -> None:
    ours, theirs = (dict(inspect.signature(function).parameters) for function in (bf.sandbox, Sandbox))
    del ours["organization"], ours["progress"], theirs["on_progress"]  # a bar is drawn from outside
    assert ours.keys() == theirs.keys()
    assert {n: p.annotation for n, p in ours.items()} == {n: p.annotation for n, p in theirs.items()}
    until = ours.pop("until").default, theirs.pop("until").default
    assert until[0] == until[1].text()
    assert {n: p.default for n, p in ours.items()} == {n: p.default for n, p in theirs.items()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_example_runs(name: str) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(bf, name), name, globs={})
    assert test.examples
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_the_release_notes_name_what_exists() -> None:
    page = (Path(__file__).parent.parent / "docs" / "release-notes.md").read_text(encoding="utf-8")
    named = {tuple(name.split(".")) for name in re.findall(r"`((?:metrics|plots|report|webhooks)\.\w+)`", page)}
    assert len(named) > 15
    assert not [name for module, name in named if name not in getattr(bf, module).__all__]
