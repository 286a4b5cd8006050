"""Save frames to files (`save`, `load`) and keep an incremental history of a service (`history.Store`)."""

from __future__ import annotations

from buildframe.store.files import load, save

__all__ = ["load", "save"]
