"""Name the extra to install if an import fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from buildframe.errors import MissingExtra


@contextmanager
def needs_extra(feature: str, extra: str, *packages: str) -> Iterator[None]:
    """Raise MissingExtra if an import in the block fails; with packages, only if one of them is not installed."""
    try:
        yield
    except ImportError as why:
        is_missing = isinstance(why, ModuleNotFoundError) and (why.name or "").split(".")[0] in packages
        if packages and not is_missing:
            raise
        raise MissingExtra(feature, extra) from None
