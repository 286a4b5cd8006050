"""The golden files as Python values. README.md describes the files."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))


OPERATIONS, QUERIES, BODIES = read("operations"), read("queries"), read("bodies")
STATES, SHAPES, ERRORS, HOSTED = read("states"), read("shapes"), read("errors")["error"], read("hosted")
PIPELINES = read("pipelines")
_TABLES = read("builds") | PIPELINES | read("others")
DOCUMENTED: dict[str, dict[str, str]] = {name: fields for name, fields in _TABLES.items() if name[0].isupper()}
"""The document's resources: their fields' types."""

RESOURCES = sorted(DOCUMENTED | HOSTED["fields"])
"""Names of all resources, also of those that only the hosted service's pages describe."""


@functools.cache
def fields_of(resource: str) -> dict[str, str]:
    """Every field that a resource may have, with its type as exactly as it is described."""
    known = DOCUMENTED.get(resource, {}) | HOSTED["fields"].get(resource, {})
    return {name: HOSTED["refined"].get(f"{resource}.{name}", type) for name, type in known.items()}


def may_be_null(resource: str, field: str) -> bool:
    return "null" in fields_of(resource)[field].split(" or ") or field in HOSTED["null"].get(resource, [])


def query_of(operation: str) -> dict[str, dict[str, Any]]:
    """Every query parameter that an operation takes, beside paging."""
    named = OPERATIONS[operation].get("query")
    return QUERIES.get(named, {}) | HOSTED["queries"].get(named, {}) if named else {}


def item_of(operation: str) -> str:
    """Return the resource that an operation returns, or that its list contains."""
    return OPERATIONS[operation]["returns"].removeprefix("array of ")
