"""Programs that tests need beside Python's packages. Without one its tests are skipped; in `.ci/run` they fail."""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import NoReturn

import pytest

REQUIRED = "BUILDFRAME_REQUIRE_PROGRAMS"
"""Environment variable that `.ci/run` sets, since it installs everything."""


def require_program(*names: str, package: str) -> str:
    """Return the path of the first of these programs that exists; `package` is the name at Debian."""
    found = next(filter(None, map(shutil.which, names)), None)
    return found or skip_or_fail(f"there is no {names[0]}: apt-get install {package}")


def require_module(name: str, extra: str) -> None:
    """Check that the extra of this module is installed."""
    if importlib.util.find_spec(name) is None:
        skip_or_fail(f'there is no {name}: pip install -e ".[{extra}]"')


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test; in `.ci/run`, fail it."""
    __tracebackhide__ = True
    if os.environ.get(REQUIRED):
        pytest.fail(reason)
    pytest.skip(reason)
