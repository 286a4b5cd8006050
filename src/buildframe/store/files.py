"""One table in one file, Parquet or CSV, whole or not at all."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from buildframe.arguments import checked_call
from buildframe.errors import BadInput
from buildframe.store import cells

_BATCH = 20_000
_OTHER_FORMATS = frozenset(
    {
        *(".arrow", ".avro", ".feather", ".h5", ".hdf5", ".html", ".ipc", ".json", ".jsonl", ".md", ".ndjson", ".orc"),
        *(".db", ".duckdb", ".ods", ".pickle", ".pkl", ".sqlite", ".tsv", ".txt", ".xls", ".xlsb", ".xlsm", ".xlsx"),
        *(".bz2", ".gz", ".xml", ".xz", ".yaml", ".yml", ".zip", ".zst"),
    }
)
"""Endings of names that promise neither CSV nor Parquet."""
_ABANDONED_S = 86_400
"""Age of a temporary file that no process writes any more."""


@checked_call
def save(path: str | os.PathLike[str], frame: pd.DataFrame) -> Path:
    """Write a frame to a file, replacing an older one, and return its path: CSV if it ends in `.csv`, else Parquet.

    Parquet: dtypes, time zones, the index and `frame.attrs` come back from `load` as they were; but Parquet has
    no times in whole seconds (they become milliseconds), and an `object` column of texts comes back as
    `str`. Other programs read plain Parquet, in which a timedelta is a whole number of its unit.

    CSV, for spreadsheets: UTF-8 with a header; times in UTC as `2026-10-26T08:00:00.000000Z`, timedeltas as seconds in
    a column whose name ends in `_s`, flags as `true` and `false`, lists and objects as JSON, null as nothing; index
    levels that have a name are columns, too. Texts and headers that a spreadsheet program would run as formulas,
    since they begin with one of `= + - @`, a tab or a line break, get an apostrophe in front; so do such beginnings
    after a `;`, a tab or a line break in a text, where a program with another separator sees a new cell. NUL becomes
    U+FFFD.

    The file is written beside its place, flushed to disk and moved there, so that a reader, a crash or
    a full disk finds the old file or the new one, never part of one. A killed process may leave
    `.buildframe-*.tmp` behind; a later `save` to the same folder deletes it when it is a day old.

    BadInput: no DataFrame, no such folder, a path that is no file, a name that ends as those of another format do, such
    as `.xlsx`, columns without names or of values that the file cannot hold, for Parquet also attrs that are not plain
    JSON. OSError: the disk is full or write-protected.
    """
    _check_ending(path)
    place = target(path)
    is_csv = Path(path).suffix.lower() == ".csv"
    _check_columns(frame)
    if not is_csv:
        _check_attrs(frame)
    with _replacing(place) as file:
        try:
            (_write_csv if is_csv else _write_parquet)(frame, file)
        except (pa.ArrowException, TypeError, ValueError) as why:
            raise BadInput(f"This frame does not fit into {'CSV' if is_csv else 'Parquet'}: {why}") from why
    return Path(path)


def _write_parquet(frame: pd.DataFrame, file: BinaryIO) -> None:
    frame.to_parquet(file, engine="pyarrow")


def _write_csv(frame: pd.DataFrame, file: BinaryIO) -> None:
    """In batches, so that memory holds few rows as texts."""
    named = [level for level, name in enumerate(frame.index.names) if name is not None]
    whole = frame.reset_index(named) if named else frame.copy(deep=False)
    whole.attrs = {}
    table = pa.Table.from_pandas(whole, preserve_index=False)
    headers = cells.named(table.schema)
    for start in range(0, max(1, len(table)), _BATCH):
        columns = [cells.as_written(column.combine_chunks()) for column in table.slice(start, _BATCH).columns]
        csv.write_csv(pa.table(columns, headers), file, csv.WriteOptions(include_header=start == 0))


@checked_call
def load(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read the frame that `save` wrote, or any other Parquet file.

    BadInput: no such file, or one that is not Parquet or is damaged.
    """
    if not Path(path).is_file():
        raise BadInput(f"{os.fspath(path)!r} is no file; write one with bf.save(path, frame).")
    try:
        with open(path, "rb") as file:  # opened once: a replacement meanwhile does not mix two
            frame = _read(file)
            return _with_plain_utc(_with_exact_index(frame, file))
    except (pa.ArrowException, OSError) as why:
        advice = " Read CSV with pandas.read_csv." if Path(path).suffix.lower() == ".csv" else ""
        raise BadInput(f"{os.fspath(path)!r} is not a whole Parquet file: {why}{advice}") from why


def _read(file: BinaryIO) -> pd.DataFrame:
    """The frame in a file. pandas alone does not know the names of its own dtypes for Arrow's lists and objects."""
    schema = pq.read_schema(file)
    described = (schema.pandas_metadata or {"columns": []})["columns"]
    by_arrow = [schema.field(column["field_name"]).type for column in described if _is_arrow(column)]
    nested: dict[pa.DataType, Any] = {kind: pd.ArrowDtype(kind) for kind in by_arrow if pa.types.is_nested(kind)}
    if not nested:
        return pd.read_parquet(file, engine="pyarrow")
    table = pq.read_table(file)
    frame = table.to_pandas(types_mapper=nested.get)
    frame.attrs = json.loads((table.schema.metadata or {}).get(b"PANDAS_ATTRS", b"{}"))
    return frame


def _is_arrow(column: dict[str, Any]) -> bool:
    return column.get("field_name") is not None and str(column["numpy_type"]).endswith("[pyarrow]")


def _with_exact_index(frame: pd.DataFrame, file: BinaryIO) -> pd.DataFrame:
    """The frame with its index as it was saved: pandas alone reads one of `Int64` as integers or floats."""
    described = pq.read_schema(file).pandas_metadata or {"index_columns": []}
    stored = [name for name in described["index_columns"] if isinstance(name, str)]
    if not stored:
        return frame
    as_columns = json.dumps({**described, "index_columns": [], "column_indexes": []})
    levels = pq.read_table(file, columns=stored).replace_schema_metadata({"pandas": as_columns}).to_pandas()
    index = pd.MultiIndex.from_frame(levels) if len(stored) > 1 else pd.Index(levels.iloc[:, 0])
    return frame.set_axis(index.set_names(frame.index.names))


def _with_plain_utc(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the UTC of `datetime`, not `zoneinfo`'s, with which datetimes fail to compare."""
    utc = {
        name: pd.DatetimeTZDtype(dtype.unit, dt.UTC)
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, pd.DatetimeTZDtype) and str(dtype.tz) == "UTC"
    }
    return frame.astype(utc)


def target(path: str | os.PathLike[str]) -> Path:
    """Where the bytes of a file go: behind a link the file that it names. BadInput where there can be none."""
    if "\0" in os.fspath(path):
        raise BadInput(f"path={os.fspath(path)!r}: a path holds no NUL.")
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        raise BadInput(f"{os.fspath(path)!r} is a folder or a device; name a file, such as 'builds.parquet'.")
    if not place.parent.is_dir():
        raise BadInput(f"There is no folder {os.fspath(place.parent)!r}; make it first.")
    return place


def _check_ending(path: str | os.PathLike[str]) -> None:
    ending = Path(path).suffix.lower()
    if ending in _OTHER_FORMATS:
        raise BadInput(
            f"path={os.fspath(path)!r}: save() does not write {ending}. Use a name that ends in .csv or .parquet."
        )


def _check_columns(frame: pd.DataFrame) -> None:
    if frame.columns.empty or not all(isinstance(name, str) for name in frame.columns):
        raise BadInput("A file needs columns, and texts to name them; see frame.columns.")


def _check_attrs(frame: pd.DataFrame) -> None:
    try:
        same = json.loads(json.dumps(frame.attrs, allow_nan=False)) == frame.attrs
    except (TypeError, ValueError, RecursionError) as why:
        raise BadInput(f"frame.attrs cannot be written as JSON: {why}") from None
    if not same:
        raise BadInput(
            "frame.attrs would not come back as they are; keep to dicts of text keys, lists and plain values."
        )


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """A new file beside `target` that takes its place when the block ends, and vanishes when it fails."""
    _delete_abandoned(target.parent)
    temporary = target.parent / f".buildframe-{secrets.token_hex(8)}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def _delete_abandoned(folder: Path) -> None:
    """Delete the temporary files of processes that were killed, where that is possible."""
    with contextlib.suppress(OSError):
        for file in folder.glob(".buildframe-*.tmp"):
            if time.time() - file.stat().st_mtime > _ABANDONED_S:
                file.unlink()


def sync_folder(folder: Path) -> None:
    """Make the new name last over a crash of the machine."""
    if os.name != "posix":  # other systems cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
