"""Remember what was read from data files, which never change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Name = tuple[str, str, str]
"""Address of the table, path of the file in it, and column."""


class FileCache(Generic[T]):
    """Values read from columns of files. Beyond `max_size` in total, all are forgotten.

    `size_of` is the size of a value, by default 1. Threads share the cache without a lock: values
    are then read twice, or a little more is kept.
    """

    def __init__(self, max_size: int, size_of: Callable[[Any], int] = lambda value: 1) -> None:
        self._max_size = max_size
        self._size_of = size_of
        self._size = 0
        self._values: dict[Name, T] = {}

    def get(self, name: Name, read: Callable[[], T]) -> T:
        """Return the value of this name, from `read` if it is not known."""
        try:
            return self._values[name]
        except KeyError:
            value = read()
        size = self._size_of(value)
        if self._size + size > self._max_size:
            self._values.clear()
            self._size = 0
        self._values[name] = value
        self._size += size
        return value
