"""Fixtures of tests in which a receiver and syncs write to one store."""

from __future__ import annotations

from tests.store.conftest import service, ws

__all__ = ["service", "ws"]
