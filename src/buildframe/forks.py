"""Start over in a forked child with what only its parent may use: connections, locks, rate limiters."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """What a child inherits and cannot use as it is."""

    def start_over(self) -> None:
        """Replace what belongs to the parent. Called in the child, which has one thread; must not raise or wait."""


_INHERITED: weakref.WeakSet[Inherited] = weakref.WeakSet()


def start_over_in_children(inherited: Inherited) -> None:
    """Let this object start over in each child that is forked from now on."""
    _INHERITED.add(inherited)


def _start_over() -> None:
    for inherited in list(_INHERITED):
        inherited.start_over()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_start_over)
