"""Messages of refusals, one or a table: one test for one rule, whose failure names the values that break it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from buildframe.errors import BadInput

Kind = type[BaseException] | tuple[type[BaseException], ...]


def refusal(call: Callable[..., object], *arguments: Any, error: Kind = BadInput, **options: Any) -> str:
    """Return the message of the error that a call raises, or an empty one if it raises none."""
    try:
        call(*arguments, **options)
    except error as refused:
        return str(refused)
    return ""


def wrong_refusals(
    cases: Iterable[tuple[Any, str]], call: Callable[[Any], object], error: Kind = BadInput
) -> dict[str, str]:
    """Call it with each value of (value, words); return what happened by value, unless it is this error with its words.

    The words are a regular expression. There is at least one value.
    """
    found, cases = {}, list(cases)
    assert cases, "no value is refused"
    for value, words in cases:
        try:
            happened = f"returned {call(value)!r}"
        except error as refused:
            if re.search(words, str(refused), re.DOTALL):
                continue
            happened = f"{words!r} is not in: {refused}"
        except Exception as other:
            happened = f"raised {other!r}"
        found[name_of(value)] = happened[:500]
    return found


def wrong_messages(cases: Iterable[tuple[str, Callable[[], object]]]) -> dict[str, str]:
    """Of calls and the words that their messages must contain: the messages that do not, by the words."""
    messages = [(words, refusal(call)) for words, call in cases]
    return {words: message for words, message in messages if words not in message}


def columns_not_named(call: Callable[[Any], object], frame: Any, names: Iterable[str], source: str = "") -> set[str]:
    """Return the columns whose absence a call does not refuse by name, with the method that they come with."""
    messages = {name: refusal(call, frame.drop(columns=name)) for name in names}
    assert messages, "no column was removed"
    return {name for name, words in messages.items() if f"no column '{name}'" not in words or source not in words}


def name_of(value: object) -> str:
    """Name a value in the failure of a table; a function without a name by its line."""
    code = getattr(value, "__code__", None)
    if code is not None:
        return f"{code.co_name} in line {code.co_firstlineno}"
    try:
        return repr(value)[:100]
    except Exception:  # values of tests may be unprintable
        return f"{type(value).__name__} {id(value)}"
