"""The examples in the docstrings of plots run."""

from __future__ import annotations

import doctest

import pandas as pd
import pytest

from buildframe import metrics, plots
from buildframe.workspace import Workspace


@pytest.mark.slow
@pytest.mark.parametrize("name", plots.__all__)
def test_an_example_runs(name: str, ci: Workspace) -> None:
    names = {"ci": ci, "metrics": metrics, "pd": pd, "plots": plots}
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(plots, name), name, globs=names)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
