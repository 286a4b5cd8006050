"""Compare how several values are refused with what is expected of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from buildframe.errors import BadInput, BuildframeError


def unexpected(
    call: Callable[[Any], object],
    cases: Iterable[tuple[Any, str]],
    error: type[BuildframeError] | tuple[type[BuildframeError], ...] = BadInput,
) -> list[tuple[Any, str]]:
    """Return the cases that `call` does not refuse with this error and with text that matches, and what it says."""
    found = []
    for case, pattern in cases:
        try:
            call(case)
        except error as why:
            message = str(why)
        else:
            message = "it was not refused"
        if not re.search(pattern, message):
            found.append((case, message))
    return found
