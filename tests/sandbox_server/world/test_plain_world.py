"""The default world has only what clients in other languages read: ISO 8601, objects as authors, harmless names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from buildframe.sandbox_server import SCOPES, Sandbox

ISO = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")
HOSTILE = re.compile("[<>\\u202a-\\u202e\\u2066-\\u2069\\\\]|^[=+@-]|DROP TABLE")
LISTS = {
    "/builds": {"include_retried_jobs": "true"},
    "/organizations/acme/pipelines": {},
    "/organizations/acme/members": {},
    "/analytics/organizations/acme/suites/rspec/flaky-tests": {"period": "28days"},
    "/analytics/organizations/acme/suites/jest/flaky-tests": {"period": "28days"},
}
ALLOWED = "created_at"
"""Of pipelines, the only field in the older form of time."""


@pytest.fixture(scope="module")
def records(api_client: Any) -> Iterator[dict[str, list[Any]]]:
    with Sandbox(builds=150, days=7) as sandbox:
        client = api_client(sandbox, sandbox.token(SCOPES))
        yield {path: client.all_pages(path, **query) for path, query in LISTS.items()}


def values_in(record: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value with the key that it has."""
    if isinstance(record, dict):
        for key, value in record.items():
            yield from values_in(value, key)
    elif isinstance(record, list):
        for value in record:
            yield from values_in(value, name)
    else:
        yield name, record


def test_times_are_iso_8601(records: dict[str, list[Any]]) -> None:
    for path, listed in records.items():
        allowed = {"pipeline"} | ({ALLOWED} if path.endswith("/pipelines") else set())
        own = [{key: value for key, value in record.items() if key not in allowed} for record in listed]
        times = [(name, value) for name, value in values_in(own) if name.endswith("_at") and value is not None]
        assert [time for time in times if not ISO.fullmatch(time[1])] == []
        assert times or path.endswith("/members")


def test_authors_are_objects_with_names(records: dict[str, list[Any]]) -> None:
    authors = [build["author"] for build in records["/builds"]]
    assert any(authors)
    assert all(author is None or set(author) == {"name", "email"} for author in authors)


def test_no_text_is_hostile(records: dict[str, list[Any]]) -> None:
    shown = {"message", "name", "label", "scope", "location", "description", "branch"}
    for path, listed in records.items():
        texts = [text for name, text in values_in(listed) if name in shown and isinstance(text, str)]
        assert texts, path
        assert [text for text in texts if HOSTILE.search(text)] == []
