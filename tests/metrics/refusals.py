"""What calls refuse, and with which words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from buildframe.errors import BadInput


def message_of(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the message of the BadInput that a call raises, or an empty one if it raises none."""
    try:
        call(*arguments, **options)
    except BadInput as refused:
        return str(refused)
    return ""


def wrong_messages(cases: Iterable[tuple[str, Callable[[], object]]]) -> dict[str, str]:
    """Of calls and the words that their messages must contain: the messages that do not, by the words."""
    messages = [(words, message_of(call)) for words, call in cases]
    return {words: message for words, message in messages if words not in message}


def columns_not_named(call: Callable[[Any], object], frame: Any, names: Iterable[str], source: str = "") -> set[str]:
    """Return the columns whose absence a call does not refuse by name, with the method that they come with."""
    messages = {name: message_of(call, frame.drop(columns=name)) for name in names}
    assert messages, "no column was removed"
    return {name for name, words in messages.items() if f"no column '{name}'" not in words or source not in words}
