"""Reduce the body of a delivery to the fields that the store keeps, so that no others are written to disk."""

from __future__ import annotations

import functools
from typing import Any, get_args

import msgspec

from buildframe.spec import TABLES, Build, Privacy
from buildframe.spec.rows import row_type


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
    document = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    retained = {Privacy.PLAIN, *([Privacy.PERSONAL] if personal else []), *([Privacy.SECRET] if env else [])}
    excluded = frozenset(column.path[0] for column in _SENT if column.privacy not in retained)
    fields = {name: _projected(document[name], kind, excluded) for name, kind in _KINDS.items() if name in document}
    return bytes(memoryview(msgspec.json.encode(fields)))  # the encoder's own bytes use 50 % more memory


def _projected(value: msgspec.Raw, kind: type[msgspec.Struct] | None, excluded: frozenset[str]) -> Any:
    """Return the fields of `value` that become columns. Of excluded fields, only the ids are kept."""
    if kind is None or not bytes(value).lstrip().startswith(b"{"):
        return value
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    return {
        name: _id_of(fields[name]) if name in excluded else _projected(fields[name], inside, excluded)
        for name, inside in _fields(kind).items()
        if name in fields
    }


def _id_of(value: msgspec.Raw) -> Any:
    if not bytes(value).lstrip().startswith(b"{"):
        return None
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    return {name: fields[name] for name in ("id",) if name in fields}


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """Return the fields of a row type, each with its nested struct type, if any, without lists of rows."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    return {name: _struct_in(declared) for name, declared in fields.items() if name != "jobs"}


def _struct_in(declared: Any) -> type[msgspec.Struct] | None:
    kinds = [kind for kind in (declared, *get_args(declared)) if isinstance(kind, type)]
    return next((kind for kind in kinds if issubclass(kind, msgspec.Struct)), None)


_SENT = [column for table in ("builds", "jobs") for column in TABLES[table] if column.path]
_BUILD = row_type(Build)
_JOB = get_args(get_args(next(f.type for f in msgspec.structs.fields(_BUILD) if f.name == "jobs"))[0])[0]
_KINDS = {"build": _BUILD, "job": _JOB, "pipeline": _fields(_BUILD)["pipeline"]}
