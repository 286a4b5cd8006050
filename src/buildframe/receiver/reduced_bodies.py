"""Reduce deliveries to the fields that a store keeps, so that no others are written to disk."""

from __future__ import annotations

import functools
from typing import Any, get_args

import msgspec

from buildframe import webhooks
from buildframe.spec import TABLES
from buildframe.store.retained_columns import Retention


def reduce_body(body: bytes, *, personal: bool, env: bool) -> bytes:
    """
    Return a body with only the fields of build, job and pipeline that become columns.

    Parameters
    ----------
    body : bytes
        Delivery as JSON.
    personal : bool
        Whether to keep names and e-mail addresses. Ids of people are always kept.
    env : bool
        Whether to keep environment variables.

    Returns
    -------
    bytes
        JSON object.
    """
    fields = _projected(msgspec.Raw(body), webhooks.DELIVERY_ROWS, _excluded_fields(Retention(personal, env)))
    return bytes(memoryview(msgspec.json.encode(fields)))  # the encoder's own bytes use 50 % more memory


@functools.cache
def _excluded_fields(retention: Retention) -> frozenset[str]:
    names = {table: retention.excluded_columns(table) for table in ("builds", "jobs")}
    return frozenset(c.path[0] for table in names for c in TABLES[table] if c.path and c.name in names[table])


def _projected(value: msgspec.Raw, kind: type[msgspec.Struct] | None, excluded: frozenset[str]) -> Any:
    """Return the fields of `value` that become columns. Of excluded fields, only the ids are kept."""
    if kind is None or not bytes(value).lstrip().startswith(b"{"):
        return value
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    return {
        name: _only_id(fields[name]) if name in excluded else _projected(fields[name], inside, excluded)
        for name, inside in _fields(kind).items()
        if name in fields
    }


def _only_id(value: msgspec.Raw) -> Any:
    if not bytes(value).lstrip().startswith(b"{"):
        return None
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    return {name: fields[name] for name in ("id",) if name in fields}


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """Return the fields of a row type, each with its nested struct type, if any, without lists of rows."""
    nested: dict[str, type[msgspec.Struct] | None] = {}
    for field in msgspec.structs.fields(kind):
        kinds = [each for each in (field.type, *get_args(field.type)) if isinstance(each, type)]
        nested[field.encode_name] = next((each for each in kinds if issubclass(each, msgspec.Struct)), None)
    return {name: struct for name, struct in nested.items() if name != "jobs"}
