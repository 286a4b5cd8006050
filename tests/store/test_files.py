from __future__ import annotations

import datetime as dt
import errno
import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from buildframe.errors import BadInput
from buildframe.store import files as store
from tests.refusals import wrong_refusals

UTC = "datetime64[us, UTC]"


def frame(rows: int = 3) -> pd.DataFrame:
    made = pd.DataFrame(
        {
            "text": pd.Series(["a", None, "\x00é😀"], dtype="str"),
            "number": pd.array([1, None, 2**62 + 1], dtype="Int64"),
            "flag": pd.array([True, None, False], dtype="boolean"),
            "share": [0.1, np.nan, np.inf],
            "moment": pd.Series(["2026-03-29T00:30:00.123456", None, "1969-01-01"], dtype=UTC),
            "span": pd.Series([-1, None, 10**15], dtype="timedelta64[us]"),
        }
    )
    made["there"] = made["moment"].dt.tz_convert("Europe/Berlin")
    made["offset"] = made["moment"].dt.tz_convert(dt.timezone(dt.timedelta(hours=5, minutes=45)))
    return made.head(rows)


def assert_same(left: pd.DataFrame, right: pd.DataFrame) -> None:
    assert_frame_equal(left, right, check_index_type="exact", check_column_type="exact", check_exact=True)
    assert [str(dtype) for dtype in left.dtypes] == [str(dtype) for dtype in right.dtypes]
    assert left.attrs == right.attrs


@pytest.mark.parametrize("rows", [3, 0])
def test_everything_comes_back(tmp_path, rows):
    saved = frame(rows)
    saved.attrs = {"window": ["2026-03-01", None], "deep": {"\ud800é": 1.5, "big": 2**70, "yes": True}}
    path = tmp_path / "t.parquet"
    assert store.save(path, saved) == path
    assert_same(saved, store.load(str(path)))


@pytest.mark.parametrize("rows", [3, 0])
def test_every_index_comes_back(tmp_path, rows):
    for keys in ("text", "number", "flag", "share", "moment", "span", "there", ["number", "text", "there"]):
        for drop in (True, False):
            saved = frame(rows).set_index(keys, drop=drop)
            if not drop:
                saved.index.names = [None] * saved.index.nlevels
            store.save(tmp_path / "t", saved)
            loaded = store.load(tmp_path / "t")
            assert_same(saved, loaded)
            assert loaded.index.to_frame().dtypes.equals(saved.index.to_frame().dtypes), keys


def test_plain_indexes_come_back(tmp_path):
    for index in (pd.RangeIndex(5, 11, 2, name="k"), pd.Index([1, 1, 2]), pd.Index(["x", "y", "z"])):
        saved = frame().set_axis(index)
        store.save(tmp_path / "t", saved)
        assert_same(saved, store.load(tmp_path / "t"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
columns = {
    "text": (st.none() | st.text(st.characters(exclude_categories=["Cs"])), "str"),
    "number": (st.none() | st.integers(-(2**63), 2**63 - 1), "Int64"),
    "flag": (st.none() | st.booleans(), "boolean"),
    "share": (st.floats(), "float64"),
    "moment": (st.none() | st.datetimes(dt.datetime(1700, 1, 1), timezones=st.just(dt.UTC)), UTC),
    "span": (st.none() | st.timedeltas(dt.timedelta(-(10**5)), dt.timedelta(10**5)), "timedelta64[us]"),
}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.data(),
    st.dictionaries(st.text(), json_values, max_size=3),
    st.sampled_from(["UTC", "Asia/Kathmandu", "America/Lima"]),
)
def test_any_values_and_attrs_come_back(tmp_path, data, attrs, zone):
    rows = data.draw(st.integers(0, 5))
    drawn = {
        name: pd.Series(data.draw(st.lists(values, min_size=rows, max_size=rows)), dtype=dtype)
        for name, (values, dtype) in columns.items()
    }
    saved = pd.DataFrame(drawn | {"there": drawn["moment"].dt.tz_convert(zone)})
    saved.attrs = attrs
    store.save(tmp_path / "t", saved)
    assert_same(saved, store.load(tmp_path / "t"))


def test_others_read_the_same_types(tmp_path):
    path = store.save(tmp_path / "t.parquet", frame())
    assert_same(pd.read_parquet(path), frame())
    described = {name: kind for name, kind, *_ in duckdb.sql(f"describe select * from '{path}'").fetchall()}
    assert described == {
        "text": "VARCHAR", "number": "BIGINT", "flag": "BOOLEAN", "share": "DOUBLE", "span": "BIGINT",
        "moment": "TIMESTAMP WITH TIME ZONE", "there": "TIMESTAMP WITH TIME ZONE", "offset": "TIMESTAMP WITH TIME ZONE",
    }  # fmt: skip
    assert str(pq.read_schema(path).field("moment").type) == "timestamp[us, tz=UTC]"


def test_a_path_with_key_and_value_adds_no_column(tmp_path):
    (tmp_path / "day=3").mkdir()
    store.save(tmp_path / "day=3" / "t.parquet", frame())
    assert_same(frame(), store.load(tmp_path / "day=3" / "t.parquet"))


def test_attrs_that_json_would_change_are_refused(tmp_path):
    def save(attrs):
        saved = frame()
        saved.attrs = attrs
        store.save(tmp_path / "t", saved)

    values = ((1,), float("nan"), float("inf"), {1}, np.int64(3), object())
    assert (
        wrong_refusals([(attrs, r"frame\.attrs") for attrs in ({1: 2}, *({"a": value} for value in values))], save)
        == {}
    )
    assert list(tmp_path.iterdir()) == []


REFUSED = [
    (frame()["text"], "frame=<Series>"),
    ("t.parquet", "frame='t.parquet'"),
    (frame()[[]], "at least one column"),
    (pd.DataFrame({0: [1]}), "must be a string"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Parquet"),
    (pd.DataFrame({"a": ["x", 1]}), "Parquet"),
    (pd.DataFrame({"a": [object()]}), "Parquet"),
]


def test_what_is_no_table_is_refused_and_the_old_file_stays(tmp_path):
    store.save(tmp_path / "t", frame())
    assert wrong_refusals(REFUSED, lambda bad: store.save(tmp_path / "t", bad)) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
    assert_same(frame(), store.load(tmp_path / "t"))


def test_paths_that_cannot_be_files_are_refused(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        store.save(tmp_path / "nowhere" / "t", frame())
    for place in (tmp_path, os.devnull):
        with pytest.raises(BadInput, match="a folder or a device"):
            store.save(place, frame())


def test_loading_what_is_not_there_or_not_parquet_or_damaged(tmp_path):
    path = tmp_path / "t"
    for missing in (path, tmp_path):
        with pytest.raises(BadInput, match="is not a file"):
            store.load(missing)
    store.save(path, frame())
    whole = path.read_bytes()
    for damaged in (b"", b"id,name\n1,a\n", whole[:-20], whole[: len(whole) // 2], b"PAR1" + b"\0" * 50 + b"PAR1"):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="complete Parquet file"):
            store.load(path)


def test_the_mode_is_that_of_the_umask_and_stays(tmp_path):
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            path = store.save(tmp_path / f"t-{mask}", frame())
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    store.save(path, frame(1))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "real" / "t")
    assert store.save(link, frame()) == link
    assert link.is_symlink()
    assert_same(frame(), store.load(tmp_path / "real" / "t"))


def test_a_full_disk_or_an_interrupt_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    store.save(tmp_path / "t", frame())
    for failing in ("fsync", "replace"):
        for failure in (OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()):
            with monkeypatch.context() as patch:
                patch.setattr(os, failing, mock.Mock(side_effect=failure))
                with pytest.raises(type(failure)):
                    store.save(tmp_path / "t", frame(1))
            assert [path.name for path in tmp_path.iterdir()] == ["t"]
            assert_same(frame(), store.load(tmp_path / "t"))


def test_file_then_name_then_folder_reach_the_disk(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace

    def kind(descriptor: int) -> str:
        return "folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "file"

    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append(kind(fd)), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (steps.append("name"), replace(a, b)))
    store.save(tmp_path / "t", frame())
    assert steps == ["file", "name", "folder"]


WRITER = """
import sys, numpy as np, pandas as pd
from buildframe.store import files as store
frames = [pd.DataFrame({"a": np.full(400_000, k), "b": np.random.default_rng(k).random(400_000)}) for k in (0, 1)]
for k in range(10_000):
    store.save(sys.argv[1], frames[k % 2])
    print(k, flush=True)
"""


@pytest.mark.long
def test_a_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "t.parquet"
    for pause in (0.0, 0.02, 0.05):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(pause)
            writer.send_signal(signal.SIGKILL)
        loaded = store.load(path)
        assert len(loaded) == 400_000
        assert loaded["a"].nunique() == 1
    torn = [left for left in tmp_path.iterdir() if left != path]
    assert all(left.name.startswith(".buildframe-") for left in torn)


def test_loaded_times_compare_with_datetimes(tmp_path: Path) -> None:
    """A column in the UTC of zoneinfo does not, in pandas 3.1."""
    moment = dt.datetime(2026, 10, 1, 12, tzinfo=dt.UTC)
    store.save(tmp_path / "f.parquet", pd.DataFrame({"at": pd.Series([moment], dtype="datetime64[us, UTC]")}))
    assert moment == store.load(tmp_path / "f.parquet")["at"][0]


def test_names_of_other_formats_are_refused(tmp_path):
    names = ("t.xlsx", "t.XLS", "t.json", "t.feather", "t.csv.gz", "t.parquet.gz", "t.tsv")
    cases = [(name, rf"{name}.*\.csv or \.parquet") for name in names]
    assert wrong_refusals(cases, lambda name: store.save(tmp_path / name, frame())) == {}
    assert os.listdir(tmp_path) == []


def test_no_thread_of_arrow_reads_by_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that still holds a Python object when the interpreter exits would end the process with SIGABRT."""
    path = store.save(tmp_path / "x.parquet", pd.DataFrame({"a": range(1000), "b": "x"}))
    threads = set()

    class Watched(io.FileIO):
        def readinto(self, buffer):
            threads.add(threading.get_ident())
            return super().readinto(buffer)

        def read(self, size=-1):
            threads.add(threading.get_ident())
            return super().read(size)

    monkeypatch.setattr("builtins.open", lambda file, *_, **__: Watched(file))
    store.load(path)
    assert threads <= {threading.get_ident()}
