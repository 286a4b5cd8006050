"""Data that is part of the sandbox: its catalog, texts, schemas and SQL statements."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable


def data_file(path: str) -> Traversable:
    """Return a file by its path in the package of the sandbox."""
    return resources.files("buildframe.sandbox_server").joinpath(path)
