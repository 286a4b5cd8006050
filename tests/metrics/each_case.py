"""One test for one rule that holds for several cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest


def for_each(cases: Mapping[str, Any]) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Make one test of a function that is called with each case. A failure lists the names of all cases that fail."""

    def decorate(check: Callable[[Any], None]) -> Callable[[], None]:
        def test() -> None:
            failures: dict[str, BaseException] = {}
            for name, case in cases.items():
                try:
                    check(case)
                except (Exception, pytest.fail.Exception) as failure:
                    failures[name] = failure
            for failure in failures.values():
                failure.add_note(f"Cases that fail: {', '.join(failures)}")
                raise failure

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorate
