"""Reset connections, locks and rate limiters in forked child processes. Does not know what the objects do."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkSafe(Protocol):
    """An object that a forked child inherits but must reset before use."""

    def reset_after_fork(self) -> None:
        """Replace everything that belongs to the parent. Runs in the child; must not raise or wait."""


_REGISTERED: weakref.WeakSet[ForkSafe] = weakref.WeakSet()


def reset_in_children(resource: ForkSafe) -> None:
    """Register an object for a reset in every child that is forked from now on."""
    _REGISTERED.add(resource)


def _reset_all() -> None:
    for resource in list(_REGISTERED):
        resource.reset_after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_reset_all)
