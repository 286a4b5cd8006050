"""Signatures show real parameters, docstrings describe each of them, and their examples run."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import jedi
import pandas as pd
import pytest

import buildframe as bf
from buildframe.spec import TABLES
from buildframe.workspace import PipelineWorkspace, Workspace
from tests import worlds

METHODS = [
    (f"{owner.__name__}.{name}", member)
    for owner in (Workspace, PipelineWorkspace)
    for name, member in inspect.getmembers(owner, inspect.isfunction)
    if not name.startswith("_")
]

RETURNED = {
    **{name: [name] for name in TABLES},
    "jobs_of": ["jobs"],
    **{name: ["builds", "jobs"] for name in ("history", "history_of")},
}
"""Tables of the frames that a method returns."""

PROJECT = jedi.Project(Path(bf.__file__).parent.parent)


@pytest.fixture(scope="module")
def ci() -> Iterator[Workspace]:
    with worlds.sandbox(builds=160, days=7) as workspace:
        yield workspace


def test_signatures_and_docstrings_agree() -> None:
    for name, method in METHODS:
        parameters = [each for each in inspect.signature(method).parameters.values() if each.name != "self"]
        assert all(each.default is not ... for each in parameters), name
        assert all(each.annotation is not each.empty for each in parameters), name
        document = inspect.getdoc(method) or ""
        section = document.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
        documented = re.findall(r"^(\*{0,2}\w+)", section, re.MULTILINE)
        named = [f"**{each.name}" if each.kind is each.VAR_KEYWORD else each.name for each in parameters]
        assert documented == named, name
        assert "Examples\n--------\n>>> " in document, name


def test_returns_list_each_column_with_its_dtype() -> None:
    dtypes = r"str \(JSON\)|str|Int64|float64|boolean|datetime64\[us, UTC\]"
    for name, method in METHODS:
        section = (inspect.getdoc(method) or "").partition("Returns\n-------\n")[2].partition("\n\nRaises\n")[0]
        tables = RETURNED.get(name.partition(".")[2], [])
        assert re.findall(r"^    Columns of `(\w+)`", section, re.MULTILINE) == tables, name
        rows = re.findall(rf"^    (\w+) +(?:{dtypes}) +(\S.*)$", section, re.MULTILINE)
        assert name == "PipelineWorkspace.cancel_all" or rows == [
            (column.name, column.doc) for table in tables for column in TABLES[table]
        ], name


def test_dtypes_in_docstrings_are_those_of_frames(ci: Workspace) -> None:
    document = Workspace.jobs.__doc__ or ""
    dtypes = {name: str(dtype) for name, dtype in ci.jobs(created_from="1d").dtypes.items()}
    assert all(re.search(rf"^ +{name} +{re.escape(dtype)} ", document, re.MULTILINE) for name, dtype in dtypes.items())


@pytest.mark.long
def test_static_tools_complete_each_keyword() -> None:
    for name, method in METHODS:
        call = name.replace("PipelineWorkspace", "ci.pipeline('web')").replace("Workspace", "ci") + "("
        code = f"import buildframe as bf\nimport buildframe.workspace\nci: bf.workspace.Workspace\n{call}"
        completions = jedi.Script(code, project=PROJECT).complete(4, len(call))
        completed = {each.name.removesuffix("=") for each in completions if each.name.endswith("=")}
        parameters = inspect.signature(method).parameters.values()
        names = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
        assert completed | {"self"} == names, name  # Jedi also completes `self` if a decorator has a ParamSpec


def test_keywords_are_parameters() -> None:
    parameters = inspect.signature(PipelineWorkspace.create_build).parameters
    assert {"commit", "branch", "message", "deadline"} <= set(parameters)
    assert parameters["commit"].default is inspect.Parameter.empty
    assert repr(parameters["message"].default) == "<not sent>"
    parameters = inspect.signature(Workspace.builds).parameters
    assert [parameters[name].default for name in ("branch", "workers", "overlap", "partial")] == [None, 4, "1s", False]


DOCUMENTS = {owner.__doc__: owner.__name__ for owner in (Workspace, PipelineWorkspace)}
DOCUMENTS |= {method.__doc__: name for name, method in reversed(METHODS)}  # one for a method that both inherit


@pytest.mark.long
def test_examples_run(ci: Workspace) -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    for document, name in DOCUMENTS.items():
        example = doctest.DocTestParser().get_doctest(document, {"bf": bf, "ci": ci, "pd": pd}, name, None, None)
        runner.run(example, out=report.append)
    assert not report, "".join(report)
