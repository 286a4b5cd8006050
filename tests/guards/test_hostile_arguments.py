"""Values that break messages, checks or requests: each is refused as bad input before anything is sent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import buildframe as bf
from buildframe.workspace import Workspace
from tests.conftest import Scripted, says
from tests.guards.public_methods import ID, METHODS, Start, called, options_of
from tests.refusals import wrong_refusals


@pytest.fixture
def server(scripted: Start) -> Scripted:
    return scripted(says(b"[]"))


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
FRAME = pd.DataFrame({"a": [1]})
NUMBERS = pd.DataFrame({1: [1, 2]})
DEEP = nested(100_000)
STRANGE = [Unprintable(), DEEP, {"a": DEEP}, pd.NA, NUMBERS, NUMBERS[1], np.array([1, 2]), CIRCLE]


@pytest.mark.parametrize("value", STRANGE[:2], ids=lambda value: type(value).__name__)
def test_an_unprintable_or_deep_value_of_any_option_is_refused_as_bad_input(
    server: Scripted, tmp_path: Path, value: Any
) -> None:
    assert refused_by_every_option(server, tmp_path, value) == {}


@pytest.mark.long
@pytest.mark.parametrize("value", STRANGE[2:], ids=lambda value: type(value).__name__)
def test_any_value_of_any_option_is_refused_as_bad_input(server: Scripted, tmp_path: Path, value: Any) -> None:
    assert refused_by_every_option(server, tmp_path, value) == {}


def refused_by_every_option(server: Scripted, folder: Path, value: Any) -> dict[str, str]:
    cases = [
        ((owner, name, option), "")
        for owner, name in METHODS
        for option in options_of(getattr(owner, name))
        if option != "numbers" or not isinstance(value, pd.Series | np.ndarray)  # numbers of builds, as frames hold
    ]
    wrong = wrong_refusals(cases, lambda one: called(server, folder, *one[:2], **{one[2]: value}))
    assert server.requests == []
    return wrong


def test_any_value_of_any_other_argument_is_refused_as_bad_input(server: Scripted, tmp_path: Path) -> None:
    ws: Any = bf.connect("acme", base_url=server.url, token="a-secret-token")
    calls: list[Callable[[Any], object]] = [
        lambda value: bf.connect(value, token="a-secret-token"),
        lambda value: bf.connect("acme", token=value),
        lambda value: bf.connect("acme", base_url=value, token="a-secret-token"),
        lambda value: bf.connect("acme", graphql_url=value, token="a-secret-token"),
        lambda value: bf.connect("acme", timeout=value, token="a-secret-token"),
        lambda value: bf.Store(value),
        lambda value: bf.Store(tmp_path, storage_options=value if not isinstance(value, dict) else {"a": value}),
        lambda value: bf.save(value, FRAME),
        lambda value: bf.load(value),
        lambda value: ws.pipeline(value),
        lambda value: ws.pipeline("web").build(value),
        lambda value: ws.set_team("web", ID, value),
        lambda value: ws.set_team("web", value, "read_only"),
        lambda value: ws.set_team(value, ID, "read_only"),
        lambda value: ws.graphql(value),
        lambda value: ws.graphql("{ a }", {"a": value}),
        lambda value: ws.get(value),
        lambda value: ws.unblock(value),
        lambda value: ws.log(value),
    ]
    for value in STRANGE:
        assert wrong_refusals([(call, "") for call in calls], lambda call, value=value: call(value)) == {}
    assert server.requests == []


def test_any_value_of_an_argument_of_a_store_is_refused_as_bad_input(stored: bf.Store) -> None:
    calls: list[Callable[[Any], object]] = [
        stored.files,
        stored.flaky_tests,
        stored.sql,
        lambda value: stored.receive([value]),
        stored.clean,
        lambda value: bf.Store(stored.url, as_of=value).version,
    ]
    for value in STRANGE:
        assert wrong_refusals([(call, "") for call in calls], lambda call, value=value: call(value)) == {}


def test_a_store_is_not_cleaned_for_a_time_before_the_year_1(stored: bf.Store) -> None:
    assert wrong_refusals([(dt.timedelta.max, "keep"), ("999999999d", "keep")], stored.clean) == {}


@pytest.fixture(scope="module")
def stored(ci: Workspace, tmp_path_factory: pytest.TempPathFactory) -> bf.Store:
    store = bf.Store(tmp_path_factory.mktemp("stored") / "store")
    store.sync(ci, since="1d", progress=False)
    return store


def test_a_parameter_that_contains_itself_is_refused(server: Scripted) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-secret-token")
    with pytest.raises(bf.BadInput, match=r"x is nested.*contains itself"):
        ws.get("/organizations/acme/agents", x=CIRCLE)
    assert server.requests == []


def test_an_array_without_dimensions_counts_as_its_value(ci: Workspace) -> None:
    assert ci.builds(max_requests=np.array(3), progress=np.array(False)).attrs["requests"] <= 3  # type: ignore[arg-type]
    with pytest.raises(bf.BadInput, match="columns=3"):
        ci.builds(columns=np.array(3))  # type: ignore[arg-type]


def test_what_cannot_be_right_is_refused_before_anything_is_sent(server: Scripted, tmp_path: Path) -> None:
    ws: Any = bf.connect("acme", base_url=server.url, token="a-secret-token")
    times: list[Any] = [
        dt.timedelta(days=-1),
        dt.timedelta.max,
        "999999999d",
        "9" * 400 + "d",
        "9999-12-31T23:59:59-05:00",
        dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=5))),
    ]
    others: list[tuple[dict[str, Any], str]] = [
        ({"extra": {"\ud800": "a"}}, "extra"),
        ({"commit": " "}, "commit"),
        ({"branch": ["main", "\n"]}, "branch"),
    ]
    cases = [*(({"created_from": time}, "created_from") for time in times), *others]
    assert wrong_refusals(cases, lambda options: ws.builds(**options)) == {}
    assert wrong_refusals(cases, lambda options: ws.pipeline("web").builds(**options)) == {}
    store = bf.Store(tmp_path / "store")
    assert wrong_refusals([(time, "since") for time in times], lambda time: store.sync(ws, since=time)) == {}
    assert server.requests == []


def test_properties_that_cannot_be_right_are_not_sent(server: Scripted) -> None:
    web: Any = bf.connect("acme", base_url=server.url, token="a-secret-token").pipeline("web")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"env": {"": "x"}}, "env.* must not be empty"),
        ({"meta_data": {" ": "x"}}, "meta_data.* must not be empty"),
        ({"commit": "a\0b"}, "commit must not contain NUL"),
        ({"branch": "a\0b"}, "branch must not contain NUL"),
    ]
    build = {"commit": "HEAD", "branch": "main"}
    assert wrong_refusals(cases, lambda properties: web.create_build(**(build | properties))) == {}
    empty = [(text, "configuration must not be empty") for text in ("", " \n")]
    assert wrong_refusals(empty, lambda text: web.update(configuration=text)) == {}
    assert server.requests == []


def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for name in ("a" * 1000, "\ud800"):
        path = f"{tmp_path}/{name}"
        cases = [(call, "too long|cannot contain") for call in (lambda path: bf.save(path, FRAME), bf.load, bf.Store)]
        assert wrong_refusals(cases, lambda call, path=path: call(path)) == {}
