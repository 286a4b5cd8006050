"""The examples in the docstrings of plots run."""

from __future__ import annotations

import doctest
import functools
from collections.abc import Callable

import pandas as pd
import pytest

from buildframe import metrics, plots
from buildframe.workspace import Workspace


class Remembering:
    """A workspace that makes each request once, as examples request the same builds and jobs."""

    def __init__(self, ci: Workspace) -> None:
        self._ci = ci

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = functools.cache(getattr(self._ci, name))
        setattr(self, name, method)
        return method


@pytest.fixture(scope="module")
def remembering(ci: Workspace) -> Remembering:
    return Remembering(ci)


@pytest.mark.long
@pytest.mark.parametrize("name", plots.__all__)
def test_an_example_runs(name: str, remembering: Remembering) -> None:
    names = {"ci": remembering, "metrics": metrics, "pd": pd, "plots": plots}
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(plots, name), name, globs=names)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
