"""The examples in the docstrings of the spec and of the sandbox run, and show what they print."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

from buildframe import sandbox_server, spec


def modules() -> list[ModuleType]:
    found = [*pkgutil.iter_modules(spec.__path__, "buildframe.spec.")]
    found += pkgutil.walk_packages(sandbox_server.__path__, "buildframe.sandbox_server.")
    return [sandbox_server, *(importlib.import_module(module.name) for module in found)]


EXAMPLES = [
    pytest.param(example, id=example.name)
    for module in modules()
    for example in doctest.DocTestFinder().find(module, extraglobs=vars(sandbox_server))
    if example.examples
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(example: doctest.DocTest) -> None:
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert not report, "".join(report)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 15
