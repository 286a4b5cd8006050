"""Reduce a delivery's body to what the store keeps of it, so that no secret and no name waits on disk."""

from __future__ import annotations

import functools
from typing import Any, get_args

import msgspec

from buildframe.spec import Build
from buildframe.spec.rows import row_type

_PEOPLE = frozenset({"creator", "author", "unblocked_by"})


def reduced(body: bytes, *, personal: bool, env: bool) -> bytes:
    """Return the body (JSON) with the build, job and pipeline as far as columns are made of them.

    Variables are left out without `env`, and of people all but their ids without `personal`.
    """
    document = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    left_out = _PEOPLE if not personal else frozenset()
    left_out |= {"env"} if not env else frozenset()
    kept = {name: _projected(document[name], kind, left_out) for name, kind in _KINDS.items() if name in document}
    return bytes(memoryview(msgspec.json.encode(kept)))  # the encoder's own bytes hold half as much memory again


def _projected(value: msgspec.Raw, kind: type[msgspec.Struct] | None, left_out: frozenset[str]) -> Any:
    """The fields of `value` that rows are made of; of those to be left out the ids."""
    if kind is None or not bytes(value).lstrip().startswith(b"{"):
        return value
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    return {
        name: _id_of(fields[name]) if name in left_out else _projected(fields[name], inside, left_out)
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
    """The names of a row's fields, each with the kind of what lies inside, if any; without lists of rows."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    return {name: _struct_in(declared) for name, declared in fields.items() if name != "jobs"}


def _struct_in(declared: Any) -> type[msgspec.Struct] | None:
    kinds = [kind for kind in (declared, *get_args(declared)) if isinstance(kind, type)]
    return next((kind for kind in kinds if issubclass(kind, msgspec.Struct)), None)


_BUILD = row_type(Build)
_JOB = get_args(get_args(next(f.type for f in msgspec.structs.fields(_BUILD) if f.name == "jobs"))[0])[0]
_KINDS = {"build": _BUILD, "job": _JOB, "pipeline": _fields(_BUILD)["pipeline"]}
