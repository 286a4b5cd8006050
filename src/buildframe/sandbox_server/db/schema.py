"""The tables of webhooks and their deliveries."""

from __future__ import annotations

SCHEMA = """
CREATE TABLE hooks (
    id TEXT PRIMARY KEY, organization TEXT NOT NULL, url TEXT NOT NULL, token TEXT NOT NULL, signed INTEGER NOT NULL,
    events TEXT NOT NULL
);
CREATE TABLE deliveries (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, hook TEXT NOT NULL, url TEXT NOT NULL, event TEXT NOT NULL,
    at INTEGER NOT NULL, body BLOB, due REAL NOT NULL, attempts INTEGER NOT NULL, status INTEGER, failure TEXT,
    delivered REAL
);
CREATE INDEX pending_deliveries ON deliveries (hook, seq) WHERE body IS NOT NULL;
CREATE INDEX settled_deliveries ON deliveries (hook, seq) WHERE body IS NULL;
"""
"""Tokens of hooks are stored in clear text, because deliveries contain them. A delivery is pending while it has a
body. `due` and `delivered` are seconds of real time since 1970."""
