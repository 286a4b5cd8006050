"""Records in every form that the service sends, for property tests."""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import strategies as st

from buildframe.spec import RESOURCES, Column, Moment, columns_of

AT = Moment(2026, 11, 1, 12, tzinfo=dt.UTC)
OTHERS = {table: resource for table, resource in RESOURCES.items() if table not in ("builds", "jobs")}

moments = st.datetimes(min_value=dt.datetime(2000, 1, 1), max_value=dt.datetime(2100, 1, 1))
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
forms = st.one_of(
    moments.map(lambda at: at.isoformat(timespec="milliseconds") + "Z"),
    moments.map(lambda at: at.isoformat(timespec="seconds") + "Z"),
    moments.map(lambda at: f"{at:%Y-%m-%d %H:%M:%S} UTC"),
    st.builds(lambda at, zone: at.replace(tzinfo=zone).isoformat(timespec="microseconds"), moments, zones),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "flag": st.booleans(),
    "timestamp": forms,
    "json": st.one_of(st.dictionaries(st.text(), st.text()), st.lists(st.text())),
}


def documents_of(resource: type, required: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Records with any keys missing, null, or there, in any form that the service uses."""
    optional: dict[str, st.SearchStrategy[Any]] = {}
    nested: dict[str, dict[str, st.SearchStrategy[Any]]] = {}
    for column in columns_of(resource):
        if len(column.path) == 1:
            optional[column.path[0]] = st.none() | VALUES[column.kind]
        elif column.path:
            nested.setdefault(column.path[0], {})[column.path[1]] = st.none() | VALUES[column.kind]
    for name, keys in nested.items():
        optional[name] = st.none() | st.fixed_dictionaries({}, optional=keys)
    fixed = {name: st.uuids().map(str) for name in required}
    return st.fixed_dictionaries(fixed, optional={k: v for k, v in optional.items() if k not in fixed})


def expected(column: Column, document: Any) -> Any:
    for key in column.path:
        document = document.get(key) if isinstance(document, dict) else None
    if document is None:
        return None
    return Moment.parse(document) if column.kind == "timestamp" else document


def visible(text: str) -> str:
    """Replace what controls a terminal: signs from U+2400 on for C0, code points for DEL and C1."""
    signs = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"}
    return text.translate(signs | {code: f"‹U+{code:04X}›" for code in range(0x7F, 0xA0)})
