"""Frames that last: one table in one file (`save`, `load`), and a store of all that was ever fetched (`Store`)."""

from __future__ import annotations

from buildframe.store.files import load, save

__all__ = ["load", "save"]
