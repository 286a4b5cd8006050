"""The declared filters of lists of builds, as conditions in SQL.

What the service does with values that make no sense: an unknown state, a shortened SHA or an unknown user match
nothing; a time that cannot be read, or has no zone, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from buildframe.errors import BadInput
from buildframe.service.paging import Query
from buildframe.service.problems import Refused
from buildframe.service.world.runs import BuildState
from buildframe.spec import Filter, when

_MOST_VALUES = 200
_FULL_SHA = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")

Asked = str | bool | list[str] | dict[str, str]


class Condition(NamedTuple):
    """A condition on rows of builds, with the values bound in it."""

    sql: str
    values: tuple[Any, ...] = ()


def asked_for(filters: Sequence[Filter], query: Query) -> dict[str, Asked]:
    """The filters in a query, read as they are declared; other parameters are ignored."""
    read = ((entry.name, _read(entry, query)) for entry in filters)
    return {name: value for name, value in read if value is not None}


def _read(entry: Filter, query: Query) -> Asked | None:
    single = [value for name, value in query if name == entry.name]
    if entry.kind == "map":
        return _map(entry.name, query) or None
    if entry.many:
        return [value for name, value in query if name == f"{entry.name}[]"] + single[-1:] or None
    if not single:
        return None
    return single[-1].lower() in ("true", "1") if entry.kind == "flag" else single[-1]


def _map(prefix: str, query: Query) -> dict[str, str]:
    start = f"{prefix}["
    return {
        name.removeprefix(start).removesuffix("]"): value
        for name, value in query
        if name.startswith(start) and name.endswith("]")
    }


def where(asked: Mapping[str, Asked]) -> list[Condition]:
    """The conditions that the filters asked for make."""
    return [CONDITIONS[name](value) for name, value in asked.items() if name in CONDITIONS]


def any_of(column: str, values: Sequence[str | int]) -> Condition:
    """The column holds one of the values."""
    return Condition(f"{column} IN ({', '.join('?' * len(values))})", tuple(values))


def _either(conditions: Sequence[Condition], joint: str = " OR ") -> Condition:
    sql = joint.join(condition.sql for condition in conditions)
    return Condition(f"({sql})", tuple(value for condition in conditions for value in condition.values))


def _few(name: str, values: Iterable[Any]) -> list[Any]:
    """Each value once; there may not be too many to be one condition."""
    unique = list(dict.fromkeys(values))
    if len(unique) > _MOST_VALUES:
        raise Refused(400, f"At most {_MOST_VALUES} values of {name} can be asked for")
    return unique


def _branches(asked: Any) -> Condition:
    asked = _few("branch", asked)
    plain = any_of("branch", [name for name in asked if "*" not in name])
    globs = [Condition("branch GLOB ?", (_glob(name),)) for name in asked if "*" in name]
    return _either([plain, *globs])


def _glob(pattern: str) -> str:
    """A pattern in which only `*` has a meaning."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


_STATES = {
    "finished": Condition("(state IN ('passed', 'failed', 'canceled') OR blocked = 1)"),
    "blocked": Condition("blocked = 1"),
}


def _states(asked: Any) -> Condition:
    plain = any_of("state", [state for state in get_args(BuildState) if state in asked])
    return _either([plain, *(condition for name, condition in _STATES.items() if name in asked)])


def _commits(asked: Any) -> Condition:
    return any_of("sha", _few("commit", [sha for sha in asked if _FULL_SHA.fullmatch(sha)]))


def _meta_data(asked: Any) -> Condition:
    _few("meta_data", asked)
    sql = "EXISTS (SELECT 1 FROM meta_data AS m WHERE m.build = builds.seq AND m.key = ? AND m.value = ?)"
    return _either([Condition(sql, pair) for pair in asked.items()], " AND ")


def _time(name: str, sql: str) -> Callable[[Any], Condition]:
    def condition(asked: Any) -> Condition:
        return Condition(sql, (_moment(name, asked),))

    return condition


_UNENCODED_PLUS = re.compile(r"(T[\d:.]+) (\d\d:\d\d)")  # clients that do not encode a zone's `+` send a blank


def _moment(name: str, text: str) -> int:
    try:
        return when(_UNENCODED_PLUS.sub(r"\1+\2", text), name).us
    except (BadInput, ValueError, OverflowError):
        message = f"{name} must be an ISO 8601 timestamp with a time zone"
        raise Refused(422, message, errors=[{"field": name, "code": "invalid"}]) from None


CONDITIONS: dict[str, Callable[[Any], Condition]] = {
    "branch": _branches,
    "commit": _commits,
    "created_from": _time("created_from", "created >= ?"),
    "created_to": _time("created_to", "created < ?"),
    "creator": lambda asked: Condition("creator = ?", (asked,)),
    "finished_from": _time("finished_from", "finished >= ?"),
    "meta_data": _meta_data,
    "state": _states,
}
"""How each filter that chooses builds is done."""

SHAPES = frozenset({"include_retried_jobs", "exclude_jobs", "exclude_pipeline"})
"""The filters that choose what the answer holds of each build."""
