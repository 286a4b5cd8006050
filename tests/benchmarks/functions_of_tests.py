"""A plugin of pytest that writes which functions of the library each test runs, with its seconds. Needs Python 3.12."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator
from types import CodeType
from typing import Any

import pytest

monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
TOOL = 4
PACKAGE = os.sep + os.path.join("src", "buildframe") + os.sep
entered: set[tuple[str, int]] = set()


def note(code: CodeType, _: int) -> object:
    """Note a function the first time that it is entered in a test, from any thread."""
    if PACKAGE in code.co_filename:
        entered.add((code.co_filename.split(PACKAGE)[1], code.co_firstlineno))
    return monitoring.DISABLE


monitoring.use_tool_id(TOOL, "functions of tests")
monitoring.register_callback(TOOL, monitoring.events.PY_START, note)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Generator[None, object, object]:
    entered.clear()
    item.outcomes = []
    monitoring.set_events(TOOL, monitoring.events.PY_START)
    monitoring.restart_events()
    begin, cpu = time.monotonic(), sum(os.times()[:4])
    result = yield
    monitoring.set_events(TOOL, 0)
    line = {
        "id": item.nodeid,
        "wall": round(time.monotonic() - begin, 4),
        "cpu": round(sum(os.times()[:4]) - cpu, 4),
        "functions": sorted(entered),
        "outcome": item.outcomes,
    }
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    with open(f"{os.environ['FUNCTIONS_OF_TESTS']}-{worker}.jsonl", "a") as output:
        output.write(json.dumps(line) + "\n")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.outcomes.append(report.outcome)
    return report
