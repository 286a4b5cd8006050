"""The examples in the docstrings of the spec and of the sandbox run, and show what they print."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

from buildframe import sandbox_server, spec


def modules() -> list[ModuleType]:
    found = [*pkgutil.iter_modules(spec.__path__, "buildframe.spec.")]
    found += pkgutil.walk_packages(sandbox_server.__path__, "buildframe.sandbox_server.")
    return [sandbox_server, *(importlib.import_module(module.name) for module in found)]


def test_examples_run() -> None:
    finder, report = doctest.DocTestFinder(), []
    found = [one for module in modules() for one in finder.find(module, extraglobs=vars(sandbox_server))]
    examples = [one for one in found if one.examples]
    assert len(examples) > 15
    for example in examples:
        doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert not report, "".join(report)
