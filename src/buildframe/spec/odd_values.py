"""Count values that do not fit their declared field, and name some of them.

Does not know responses or frames.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

MAX_NAMED = 20
"""Values that a listing names. The others are only counted."""

_MAX_NAMED_OF_FIELD = 3
_MAX_KEPT = 200  # bytes of a value that are kept: a token that begins in the shown part is whole, and can be removed
_MAX_SHOWN = 60


MAX_ROWS = 200_000
"""Rows of a response, together with the jobs in its builds: 100 builds of 2,000 jobs each."""


class TooManyValues(msgspec.ValidationError):
    """A list has too many values to be read one by one."""


class OddValue(NamedTuple):
    """A value that does not fit its field: where it stands, and the start of its JSON."""

    field: str
    value: bytes
    row: Any
    job: Any = None

    @classmethod
    def of(cls, path: Iterable[str], value: Any, row: Any, job: Any = None) -> OddValue:
        """Return the odd value at a path of a row or of its job.

        `value` is decoded, or raw JSON.
        """
        raw = memoryview(value) if isinstance(value, msgspec.Raw) else to_json(value).encode("utf-8", "replace")
        return cls(".".join(path), bytes(raw[:_MAX_KEPT]), row, job)


def to_json(value: Any) -> str:
    """Return a decoded value as JSON, also an integer of any size."""
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, UnicodeEncodeError):
        import json

        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


class OddValues:
    """The odd values of a listing: how many there are of each field, and the first of them.

    `is_shown` says whether the values of a field may be shown: neither personal nor secret ones
    are.
    """

    def __init__(self, is_shown: Callable[[str, bool], bool] = lambda field, is_of_job: True) -> None:
        self._is_shown = is_shown
        self._counts: dict[tuple[str, bool], int] = defaultdict(int)
        self._first: dict[tuple[str, bool], list[dict[str, Any]]] = defaultdict(list)

    def __len__(self) -> int:
        return sum(self._counts.values())

    def add(self, odd: OddValue) -> None:
        """Count a value, and keep it if it is one of the first of its field."""
        field = odd.field, odd.job is not None
        self._counts[field] += 1
        if len(self._first[field]) < _MAX_NAMED_OF_FIELD:
            value = odd.value.decode("utf-8", "replace") if self._is_shown(*field) else kind_of(odd.value)
            named = {**_identity(odd.row, odd.job), "field": odd.field, "value": value}
            self._first[field].append(named)

    def entries(self, redact: Callable[[str], str]) -> list[dict[str, Any]]:
        """Return the named values, each with how many it stands for.

        A last entry without a field counts the others.

        The first value of each field comes before the second one of any.
        """
        by_round = []
        for position in range(_MAX_NAMED_OF_FIELD):
            by_round += [(field, named[position]) for field, named in self._first.items() if position < len(named)]
        left = dict(self._counts)
        entries: list[dict[str, Any]] = []
        last: dict[tuple[str, bool], dict[str, Any]] = {}
        for field, named in by_round[:MAX_NAMED]:
            entry: dict[str, Any] = {}
            for name, value in named.items():
                entry[name] = _shorten(redact(value)) if isinstance(value, str) else value
            entry["count"] = 1
            last[field] = entry
            left[field] -= 1
            entries.append(entry)
        for field, entry in last.items():
            entry["count"] += left.pop(field)
        if left:
            entries.append({**dict.fromkeys(entries[0]), "count": sum(left.values())})
        return entries


class OddCount:
    """How many odd values several listings had.

    One that two listings name counts once, since lists overlap.
    """

    def __init__(self) -> None:
        self._named: dict[tuple[Any, ...], int] = {}
        self._unnamed = 0

    @property
    def total(self) -> int:
        """How many values there are.

        Too many if listings with a build in common have more than they name.
        """
        return sum(self._named.values()) + self._unnamed

    def add(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Count the odd values of a listing by their entries in `attrs`."""
        for entry in entries:
            if entry["field"] is None:
                self._unnamed += entry["count"]
                continue
            value = tuple(entry.get(name) for name in ("build", "id", "job", "field"))
            self._named[value] = max(self._named.get(value, 0), entry["count"])


def describe(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return a sentence that names odd values."""
    entries = list(entries)
    total = sum(entry["count"] for entry in entries)
    named = [_describe_entry(entry) for entry in entries[:3] if entry["field"] is not None]
    more = "" if len(named) == total else ", and others"
    values = "1 value does" if total == 1 else f"{total:,} values do"
    return f"{values} not fit the declared type and became null, or text in a column of text: {'; '.join(named)}{more}."


def _describe_entry(entry: Mapping[str, Any]) -> str:
    number = entry.get("number")
    id = entry.get("build") or entry.get("id") or "without id"
    kind = "build" if "build" in entry else "row"
    job = f"job {entry['job']} of " if entry.get("job") else ""
    where = f"{job}{kind} {id}" + (f" (#{number})" if number is not None else "")
    return f"`{entry['field']}` of {where} is {entry['value']}"


def _identity(row: Any, job: Any) -> dict[str, Any]:
    keys = getattr(row, "KEYS", ("id",))
    values = (getattr(row, key, None) for key in keys)
    id = _as_text(next((value for value in values if value is not None), None))
    if not getattr(row, "IS_BUILD", False):
        return {"id": id}
    number = getattr(row, "number", None)
    return {
        "build": id,
        "number": number if isinstance(number, int) and abs(number) < 2**63 else None,
        "job": _as_text(getattr(job, "id", None)),
    }


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else to_json(value)


_KINDS_OF_JSON = {ord("{"): "an object", ord("["): "a list", ord('"'): "text", ord("t"): "true", ord("f"): "false"}


def kind_of(value: bytes) -> str:
    """Return what kind of value JSON begins with, without its content."""
    return _KINDS_OF_JSON.get(value[0], "null" if value.startswith(b"n") else "a number")


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
