"""Signatures show real parameters, docstrings describe each of them, and their examples run."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe.workspace import Pipeline, Workspace

METHODS = [
    (f"{owner.__name__}.{name}", member)
    for owner in (Workspace, Pipeline)
    for name, member in inspect.getmembers(owner, inspect.isfunction)
    if not name.startswith("_")
]


@pytest.fixture(scope="module")
def ci() -> Iterator[Workspace]:
    with bf.sandbox(builds=150, days=7) as workspace:
        yield workspace


@pytest.mark.parametrize(("name", "method"), METHODS, ids=[name for name, _ in METHODS])
def test_signatures_and_docstrings_agree(name: str, method: Callable[..., Any]) -> None:
    parameters = [each for each in inspect.signature(method).parameters.values() if each.name != "self"]
    assert all(each.default is not ... for each in parameters)
    assert all(each.annotation is not each.empty for each in parameters)
    document = inspect.getdoc(method) or ""
    section = document.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    documented = re.findall(r"^(\*{0,2}\w+)", section, re.MULTILINE)
    assert documented == [f"**{each.name}" if each.kind is each.VAR_KEYWORD else each.name for each in parameters]
    assert "Examples\n--------\n>>> " in document


def test_keywords_are_parameters() -> None:
    parameters = inspect.signature(Pipeline.create_build).parameters
    assert {"commit", "branch", "message", "deadline"} <= set(parameters)
    assert parameters["commit"].default is inspect.Parameter.empty
    assert repr(parameters["message"].default) == "<not sent>"
    parameters = inspect.signature(Workspace.builds).parameters
    assert [parameters[name].default for name in ("branch", "workers", "overlap", "partial")] == [None, 4, "1s", False]


@pytest.mark.parametrize(
    ("name", "document"),
    [(owner.__name__, owner.__doc__) for owner in (Workspace, Pipeline)]
    + [(name, each.__doc__) for name, each in METHODS],
)
def test_examples_run(name: str, document: str, ci: Workspace) -> None:
    example = doctest.DocTestParser().get_doctest(document, {"bf": bf, "ci": ci, "pd": pd}, name, None, None)
    report: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=report.append)
    assert not report, "".join(report)
