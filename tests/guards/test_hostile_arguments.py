"""Values that break messages, checks or requests: each is refused as bad input before anything is sent."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import buildframe as bf
from buildframe.workspace import Workspace
from tests.conftest import Scripted, says
from tests.guards.public_methods import ID, METHODS, Start, called, options_of


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


@pytest.mark.long
@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
def test_any_value_of_any_option_is_refused_as_bad_input(server: Scripted, tmp_path: Path, value: Any) -> None:
    for owner, name in METHODS:
        for option in options_of(getattr(owner, name)):
            if option == "numbers" and isinstance(value, pd.Series | np.ndarray):
                continue  # numbers of builds, as frames hold them
            with pytest.raises(bf.BadInput):
                called(server, tmp_path, owner, name, **{option: value})
    assert server.requests == []


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
def test_any_value_of_any_other_argument_is_refused_as_bad_input(server: Scripted, tmp_path: Path, value: Any) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-secret-token")
    for call in (
        lambda: bf.connect(value, token="a-secret-token"),
        lambda: bf.connect("acme", token=value),
        lambda: bf.connect("acme", base_url=value, token="a-secret-token"),
        lambda: bf.connect("acme", graphql_url=value, token="a-secret-token"),
        lambda: bf.connect("acme", timeout=value, token="a-secret-token"),
        lambda: bf.Store(value),
        lambda: bf.Store(tmp_path, storage_options=value if not isinstance(value, dict) else {"a": value}),
        lambda: bf.save(value, FRAME),
        lambda: bf.load(value),
        lambda: ws.pipeline(value),
        lambda: ws.pipeline("web").build(value),
        lambda: ws.set_team("web", ID, value),
        lambda: ws.set_team("web", value, "read_only"),
        lambda: ws.set_team(value, ID, "read_only"),
        lambda: ws.graphql(value),
        lambda: ws.graphql("{ a }", {"a": value}),
        lambda: ws.get(value),
        lambda: ws.unblock(value),
        lambda: ws.log(value),
    ):
        with pytest.raises(bf.BadInput):
            call()  # type: ignore[no-untyped-call]
    assert server.requests == []


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
def test_any_value_of_an_argument_of_a_store_is_refused_as_bad_input(stored: bf.Store, value: Any) -> None:
    for call in (
        lambda: stored.files(value),
        lambda: stored.flaky_tests(value),
        lambda: stored.sql(value),
        lambda: stored.receive([value]),
        lambda: stored.clean(value),
        lambda: bf.Store(stored.url, as_of=value).version,
    ):
        with pytest.raises(bf.BadInput):
            call()


@pytest.mark.parametrize("keep", [dt.timedelta.max, "999999999d"])
def test_a_store_is_not_cleaned_for_a_time_before_the_year_1(stored: bf.Store, keep: Any) -> None:
    with pytest.raises(bf.BadInput, match="keep"):
        stored.clean(keep)


@pytest.fixture(scope="module")
def stored(ci: Workspace, tmp_path_factory: pytest.TempPathFactory) -> bf.Store:
    store = bf.Store(tmp_path_factory.mktemp("stored") / "store")
    store.sync(ci, since="1d", progress=False)
    return store


def test_a_parameter_that_contains_itself_is_refused(server: Scripted) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-secret-token")
    with pytest.raises(bf.BadInput, match="x is nested too deeply, or contains itself"):
        ws.get("/organizations/acme/agents", x=CIRCLE)
    assert server.requests == []


def test_an_array_without_dimensions_counts_as_its_value(ci: Workspace) -> None:
    assert ci.builds(max_requests=np.array(3), progress=np.array(False)).attrs["requests"] <= 3  # type: ignore[arg-type]
    with pytest.raises(bf.BadInput, match="columns=3: pass a list"):
        ci.builds(columns=np.array(3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"extra": {"\ud800": "a"}},
        {"created_from": dt.timedelta(days=-1)},
        {"created_from": dt.timedelta.max},
        {"created_from": "999999999d"},
        {"created_from": "9" * 400 + "d"},
        {"created_from": "9999-12-31T23:59:59-05:00"},
        {"created_from": dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))},
        {"commit": " "},
        {"branch": ["main", "\n"]},
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_is_sent(
    server: Scripted, tmp_path: Path, options: dict[str, Any]
) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-secret-token")
    [(name, value)] = options.items()
    for lists in (ws, ws.pipeline("web")):
        with pytest.raises(bf.BadInput, match=name):
            lists.builds(**options)
    if name == "created_from":
        with pytest.raises(bf.BadInput, match="since"):
            bf.Store(tmp_path / "store").sync(ws, since=value)
    assert server.requests == []


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"env": {"": "x"}}, "env.* must not be empty"),
        ({"meta_data": {" ": "x"}}, "meta_data.* must not be empty"),
        ({"commit": "a\0b"}, "commit must not contain NUL"),
        ({"branch": "a\0b"}, "branch must not contain NUL"),
    ],
)
def test_properties_that_cannot_be_right_are_not_sent(server: Scripted, properties: dict[str, Any], says: str) -> None:
    web = bf.connect("acme", base_url=server.url, token="a-secret-token").pipeline("web")
    with pytest.raises(bf.BadInput, match=says):
        web.create_build(**({"commit": "HEAD", "branch": "main"} | properties))
    for empty in ("", " \n"):
        with pytest.raises(bf.BadInput, match="configuration must not be empty"):
            web.update(configuration=empty)
    assert server.requests == []


@pytest.mark.parametrize("name", ["a" * 1000, "\ud800"])
def test_a_path_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    path = f"{tmp_path}/{name}"
    for call in (lambda: bf.save(path, FRAME), lambda: bf.load(path), lambda: bf.Store(path)):
        with pytest.raises(bf.BadInput, match=r"is too long|characters that a path cannot contain"):
            call()
