"""A store in an object store: S3 as the server of moto implements it."""

from __future__ import annotations

import functools
import io
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import boto3
import httpx
import pandas as pd
import pytest

import buildframe as bf
from buildframe.errors import BadInput, StoreFailed
from buildframe.export import ExportOptions, write
from buildframe.store import transactions
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.store import Store
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.receiver.deliveries import of_job, states, synced
from tests.store.batches import PLAIN, Build, batch, expected, flaky, stored_content

pytestmark = pytest.mark.long

SECRET = "an+invented/secret=that=is=nobodys"
OPTIONS = {
    "AWS_ACCESS_KEY_ID": "INVENTEDKEYOFNOBODY0",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
    "max_retries": "1",
    "retry_timeout": "2s",
}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, **quiet)
    url = f"http://127.0.0.1:{port}"
    try:
        _until_it_answers(url)
        yield url
    finally:
        _client(url).close()
        server.kill()
        server.wait()


def _until_it_answers(url: str) -> None:
    for _ in range(600):
        try:
            httpx.get(url)
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("moto's server does not answer")


@functools.cache
def _client(url: str) -> boto3.client:
    keys = {"aws_access_key_id": OPTIONS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": SECRET}
    return boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)


@pytest.fixture
def options(s3: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """For an address of a bucket of its own, `url`."""
    return {**OPTIONS, "AWS_ENDPOINT_URL": s3}


@pytest.fixture
def url(s3: str, request: pytest.FixtureRequest) -> str:
    bucket = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:50].strip("-")
    _client(s3).create_bucket(Bucket=bucket)
    return f"s3://{bucket}/ci-history"


def test_a_sync_is_read_in_every_way(ci: Workspace, url: str, options: dict[str, str]) -> None:
    store = Store(url, storage_options=options)
    with pytest.raises(BadInput, match="no store at"):
        store.builds()
    first = store.sync(ci, since="1d", suites=["rspec"], progress=False)
    again = store.sync(ci, since="2d", suites=["rspec"], progress=False)
    assert first.complete
    assert again.complete
    builds = store.builds()
    assert builds["id"].is_unique
    assert set(ci.builds(created_from="2d", progress=False)["id"]) == set(builds["id"])
    assert len(store.sql("select * from jobs")) == len(store.jobs()) == len(ci.jobs(created_from="2d", progress=False))
    assert len(Store(url, storage_options=options, as_of=first.version).builds()) == first.builds
    assert all(file.startswith(url) for file in store.files("builds"))
    assert not [value for value in builds.attrs.values() if SECRET in str(value)]
    assert SECRET not in repr(store)
    assert SECRET not in repr(vars(store))


def test_compaction_and_cleaning(url: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    import datetime as dt

    place, store = Location.of(url, options), Store(url, storage_options=options)
    for step in range(3):
        builds = [Build(1, step, day=1), Build(10 + step, step)]
        transactions.commit(place, PLAIN, batch(builds, step, lists=(flaky({"a": step}, step),)))
    wanted = expected([Build(1, 2, day=1), *(Build(10 + step, step) for step in range(3))])
    many = len(store.files("builds"))
    transactions.compact(place)
    assert len(store.files("builds")) < many
    assert stored_content(store) == wanted
    version = store.version
    assert transactions.clean(place, dt.timedelta(0)) == 0
    monkeypatch.setattr(transactions, "GRACE", dt.timedelta(seconds=-5))  # its stamps are whole seconds
    assert transactions.clean(place, dt.timedelta(0)) > 0
    assert stored_content(store) == wanted
    assert store.version == version + 2
    with pytest.raises(BadInput, match="first readable sync"):
        Store(url, storage_options=options, as_of=0).builds()


def test_deliveries(url: str, options: dict[str, str]) -> None:
    store = synced(url, Build(1, 0, state="running"), options=options)
    result = store.receive([of_job(5, number=7), of_job(6, key=2)])
    assert (result.builds, result.jobs) == (2, 2)
    assert states(store).keys() == {"build-1", "build-1/0", "build-1/1", "build-1/7", "build-2", "build-2/0"}
    assert store.receive([of_job(5, number=7)]).version == result.version


def test_two_writers(url: str, options: dict[str, str]) -> None:
    place = Location.of(url, options)

    def write(writer: int) -> None:
        for step in range(3):
            builds = [Build(1, 2 * step + writer, jobs=(writer,)), Build(10 * (writer + 1) + step, step)]
            transactions.commit(place, PLAIN, batch(builds, step))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own = [Build(10 * (writer + 1) + step, step) for writer in (0, 1) for step in range(3)]
    assert stored_content(Store(url, storage_options=options)) == expected([Build(1, 5, jobs=(1,)), *own])


def test_an_import_of_exports(s3: str, url: str, options: dict[str, str], tmp_path: Path) -> None:
    bucket = url.removeprefix("s3://").partition("/")[0]
    with worlds.sandbox(builds=3, days=1) as small:
        small.sandbox.write_exports(tmp_path)
    exported = [*tmp_path.rglob("*.gz")]
    assert exported
    for file in exported:
        key = f"buildkite/build-exports/{file.relative_to(tmp_path)}"
        _client(s3).put_object(Bucket=bucket, Key=key, Body=file.read_bytes())
    store, local = Store(url, storage_options=options), Store(tmp_path / "local")
    local.import_exports(tmp_path, progress=False)
    for _ in range(2):
        result = store.import_exports(f"s3://{bucket}", storage_options=options, progress=False)
        assert result.complete
        for table in ("builds", "jobs"):
            query = f"SELECT * FROM {table} ORDER BY id"
            pd.testing.assert_frame_equal(store.sql(query), local.sql(query))
    with pytest.raises(BadInput, match=r"at 's3://.*/none'"):
        store.import_exports(f"s3://{bucket}/none", storage_options=options, progress=False)
    with pytest.raises(StoreFailed, match=r"The exports at s3://there-is-none could not be read: .*NoSuchBucket"):
        store.import_exports("s3://there-is-none", storage_options=options, progress=False)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_an_export(
    ci: Workspace, s3: str, url: str, options: dict[str, str], ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    file, read = f"{url}/nightly/builds.{ending}", {"parquet": pd.read_parquet, "csv": pd.read_csv}[ending]

    def export(age: str, file: str = file) -> int:
        chosen = ExportOptions(file, "builds", Retention(personal=False, env=False), created_from=age)
        return len(write(ci, chosen).frame)

    sizes = [export("3d"), export("1d")]  # the second replaces the first
    bucket, _, key = file.removeprefix("s3://").partition("/")
    stored = _client(s3).get_object(Bucket=bucket, Key=key)["Body"].read()
    assert 0 < len(read(io.BytesIO(stored))) == sizes[1] < sizes[0]
    with pytest.raises(StoreFailed, match=r"s3://there-is-none/b.csv .*NoSuchBucket"):
        export("1d", "s3://there-is-none/b.csv")


def test_a_bucket_that_is_not_there(options: dict[str, str]) -> None:
    store = Store("s3://there-is-none/ci", storage_options=options)
    with pytest.raises(StoreFailed, match="NoSuchBucket"):
        store.builds()


def test_no_object_store_there(ci: Workspace) -> None:
    gone = {**OPTIONS, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    with pytest.raises(StoreFailed, match="onnection refused"):
        Store("s3://bucket/ci", storage_options=gone).sync(ci, since="1d", progress=False)


def test_wrong_credentials_are_refused_and_not_shown(s3: str, url: str, options: dict[str, str]) -> None:
    options["AWS_SESSION_TOKEN"] = "an invented token, too"
    before = httpx.post(f"{s3}/moto-api/reset-auth", content="0").json()  # requests for which no key is looked at
    try:
        with pytest.raises(StoreFailed) as refused:
            Store(url, storage_options=options).builds()
    finally:
        httpx.post(f"{s3}/moto-api/reset-auth", content=before["PREVIOUS_INITIAL_NO_AUTH_ACTION_COUNT"])
    assert "403" in str(refused.value)
    assert refused.value.__cause__ is None
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        assert options[name] not in str(refused.value)


def test_secrets_in_a_response_are_hidden(scripted: Callable[..., Scripted]) -> None:
    body = f"<Error><Code>AccessDenied</Code>{OPTIONS['AWS_ACCESS_KEY_ID']} {SECRET}</Error>"
    server = scripted(says(body.encode(), 403))
    with pytest.raises(StoreFailed) as refused:
        Store("s3://bucket/ci", storage_options={**OPTIONS, "AWS_ENDPOINT_URL": server.url}).builds()
    assert "AccessDenied" in str(refused.value)
    assert "[hidden] [hidden]" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_option_values_in_errors_are_hidden() -> None:
    place = Location.of("s3://bucket/ci", {**OPTIONS, "AWS_SESSION_TOKEN": ""})
    said = place.redacted(f"key {OPTIONS['AWS_ACCESS_KEY_ID']}, {SECRET}, in us-east-1")
    assert said == "key [hidden], [hidden], in us-east-1"


def test_options_are_passed_unchanged() -> None:
    assert repr(bf.Store("s3://bucket/ci", storage_options=OPTIONS)) == "<Store at s3://bucket/ci>"
