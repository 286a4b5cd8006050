"""The examples in the docstrings of widgets run."""

from __future__ import annotations

import doctest

import pytest

from buildframe import widgets
from buildframe.workspace import Workspace


@pytest.mark.long
@pytest.mark.parametrize("name", widgets.__all__)
def test_an_example_runs(name: str, ci: Workspace) -> None:
    names = {"ci": ci, "widgets": widgets}
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(widgets, name), name, globs=names)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
