"""Convert the declared filters of build lists to SQL conditions.

As in the service, an unknown state, a shortened SHA or an unknown user matches nothing. A time
without a zone is in UTC. A time that is invalid is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from buildframe.errors import BadInput
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.pagination import Query
from buildframe.sandbox_server.world.build_state import BuildState
from buildframe.spec import Filter, when
from buildframe.spec.builds import FINISHED_STATES

_MAX_VALUES = 200
_FULL_SHA = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")

FilterValue = str | bool | list[str] | dict[str, str]


class Condition(NamedTuple):
    """An SQL condition on builds, with its bound values."""

    sql: str
    values: tuple[Any, ...] = ()


def parse_filters(filters: Sequence[Filter], query: Query) -> dict[str, FilterValue]:
    """Parse the declared filters of a query; other parameters are ignored."""
    parsed = ((entry.name, _parse_filter(entry, query)) for entry in filters)
    return {name: value for name, value in parsed if value is not None}


def _parse_filter(entry: Filter, query: Query) -> FilterValue | None:
    single = [value for name, value in query if name == entry.name]
    if entry.kind == "map":
        keys = ((re.fullmatch(rf"{entry.name}\[(.*)\]", name, re.DOTALL), value) for name, value in query)
        return {match[1]: value for match, value in keys if match} or None
    if entry.many:
        return [value for name, value in query if name == f"{entry.name}[]"] + single[-1:] or None
    if not single:
        return None
    return single[-1].lower() in ("true", "1") if entry.kind == "flag" else single[-1]


def all_filters(place: Condition, filters: Mapping[str, FilterValue]) -> Condition:
    """Return the condition that builds are at a place and match filters."""
    chosen = [CONDITIONS[name](value) for name, value in filters.items() if name in CONDITIONS]
    return _join([place, *chosen], " AND ")


def any_of(column: str, values: Sequence[str | int]) -> Condition:
    """Return the condition that a column has one of the values."""
    return Condition(f"{column} IN ({', '.join('?' * len(values))})", tuple(values))


def _join(conditions: Sequence[Condition], joint: str = " OR ") -> Condition:
    sql = joint.join(condition.sql for condition in conditions)
    return Condition(f"({sql})", tuple(value for condition in conditions for value in condition.values))


def _unique(name: str, values: Iterable[Any]) -> list[Any]:
    """Return the unique values. Raises 400 if there are too many for one condition."""
    unique = list(dict.fromkeys(values))
    if len(unique) > _MAX_VALUES:
        raise HttpError(400, f"At most {_MAX_VALUES} values of {name} are allowed")
    return unique


def _branches(values: Any) -> Condition:
    values = _unique("branch", values)
    plain = any_of("branch", [name for name in values if "*" not in name])
    patterns = [name.replace("[", "[[]").replace("?", "[?]") for name in values if "*" in name]  # only `*` is special
    return _join([plain, *(Condition("branch GLOB ?", (pattern,)) for pattern in patterns)])


_STATES = {
    "finished": _join([any_of("state", FINISHED_STATES), Condition("blocked = 1")]),
    "blocked": Condition("blocked = 1"),
}


def _states(values: Any) -> Condition:
    plain = any_of("state", [state for state in get_args(BuildState) if state in values])
    return _join([plain, *(condition for name, condition in _STATES.items() if name in values)])


def _meta_data(values: Any) -> Condition:
    _unique("meta_data", values)
    sql = "EXISTS (SELECT 1 FROM meta_data AS m WHERE m.build = builds.seq AND m.key = ? AND m.value = ?)"
    return _join([Condition(sql, pair) for pair in values.items()], " AND ")


_UNENCODED_PLUS = re.compile(r"(T[\d:.]+) (\d\d:\d\d)")  # clients that do not encode `+` send a space instead


_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*")


def _parse_timestamp(name: str, text: str) -> int:
    text = _UNENCODED_PLUS.sub(r"\1+\2", text.strip())
    try:
        return when(f"{text}Z" if _WITHOUT_ZONE.fullmatch(text) else text, name).us
    except (BadInput, ValueError, OverflowError):
        message = f"{name} must be an ISO 8601 timestamp"
        raise HttpError(422, message, errors=[{"field": name, "code": "invalid"}]) from None


CONDITIONS: dict[str, Callable[[Any], Condition]] = {
    "branch": _branches,
    "commit": lambda values: any_of("sha", _unique("commit", filter(_FULL_SHA.fullmatch, values))),
    "created_from": lambda value: Condition("created >= ?", (_parse_timestamp("created_from", value),)),
    "created_to": lambda value: Condition("created < ?", (_parse_timestamp("created_to", value),)),
    "creator": lambda value: Condition("creator = ?", (value,)),
    "finished_from": lambda value: Condition("finished >= ?", (_parse_timestamp("finished_from", value),)),
    "meta_data": _meta_data,
    "state": _states,
}
"""The SQL condition of each filter that selects builds."""
