"""The message with which a call is refused, so that one test can compare many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from buildframe.errors import BadInput


def refusal(call: Callable[..., object], *arguments: Any, error: type[BaseException] = BadInput, **options: Any) -> str:
    """Return the message of the error that this call raises, or an empty text if it raises none."""
    try:
        call(*arguments, **options)
    except error as refused:
        return str(refused)
    return ""
