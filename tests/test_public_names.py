"""What users see after `import buildframe`: names, signatures and examples."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest

import buildframe as bf
from buildframe.sandbox_server import Sandbox
from tests import public_api

FUNCTIONS = ["connect", "load", "sandbox", "save"]
MODULES = ["metrics", "plots", "report", "spec", "webhooks", "widgets"]


def test_modules_show_and_load_public_names_only() -> None:
    assert {name for name in bf.__all__ if not name[0].isupper()} == {*FUNCTIONS, *MODULES}
    assert {name: bf.__getattr__(name).__name__ for name in MODULES} == {name: f"buildframe.{name}" for name in MODULES}
    for module in (bf, *(getattr(bf, name) for name in MODULES if name != "spec")):
        assert not {"annotations", "Any", "pd"} & {*dir(module)}, "what it imports is not offered"
        with pytest.raises(AttributeError, match="nothing"):
            module.nothing  # noqa: B018


def test_signatures_change_only_on_purpose() -> None:
    """After an intended change: `python -m tests.public_api > tests/public_api.txt`. The diff is part of the change."""
    assert public_api.lines() == Path(public_api.__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()


def test_signatures_show_functions_by_their_name() -> None:
    for name in ("plots", "metrics", "report", "widgets", "webhooks"):
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


def test_examples_run() -> None:
    for name in FUNCTIONS:
        (test,) = doctest.DocTestFinder(recurse=False).find(getattr(bf, name), name, globs={})
        assert test.examples, name
        assert doctest.DocTestRunner(verbose=False).run(test).failed == 0, name


def test_the_release_notes_name_what_exists() -> None:
    page = (Path(__file__).parent.parent / "docs" / "release-notes.md").read_text(encoding="utf-8")
    named = {tuple(name.split(".")) for name in re.findall(r"`((?:metrics|plots|report|webhooks)\.\w+)`", page)}
    assert len(named) > 15
    assert not [name for module, name in named if name not in getattr(bf, module).__all__]
