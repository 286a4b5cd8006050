"""Tables of calls that are refused: one test for one rule, whose failure names the values that break it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from buildframe.errors import BadInput


def wrong_refusals(
    cases: Iterable[tuple[Any, str]], call: Callable[[Any], object], kind: type[Exception] = BadInput
) -> dict[str, str]:
    """Call it with each value of (value, words); return what happened by value, unless it is this error with its words.

    The words are a regular expression.
    """
    found = {}
    for value, words in cases:
        try:
            happened = f"returned {call(value)!r}"
        except kind as error:
            if re.search(words, str(error), re.DOTALL):
                continue
            happened = f"{words!r} is not in: {error}"
        except Exception as error:
            happened = f"raised {error!r}"
        found[name_of(value)] = happened[:500]
    return found


def name_of(value: object) -> str:
    """Name a value in the failure of a table; a function without a name by its line."""
    code = getattr(value, "__code__", None)
    if code is not None:
        return f"{code.co_name} in line {code.co_firstlineno}"
    try:
        return repr(value)[:100]
    except Exception:  # values of tests may be unprintable
        return f"{type(value).__name__} {id(value)}"
