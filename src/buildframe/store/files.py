"""Write one frame to one Parquet or CSV file atomically, and read it again. Does not know the Delta store.

No spreadsheet program runs a cell of a CSV file as a formula.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv, types

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_location
from buildframe.store.location import check_path

_BATCH = 20_000
_OTHER_FORMATS = (
    *(".arrow", ".avro", ".feather", ".h5", ".hdf5", ".html", ".ipc", ".json", ".jsonl", ".md", ".ndjson", ".orc"),
    *(".db", ".duckdb", ".ods", ".pickle", ".pkl", ".sqlite", ".tsv", ".txt", ".xls", ".xlsb", ".xlsm", ".xlsx"),
    *(".bz2", ".gz", ".xml", ".xz", ".yaml", ".yml", ".zip", ".zst"),
)  # file name endings
_FORMULA_SIGN = r"[=+\-@＝＋－＠]"
_IGNORED = '[" \u00a0\u3000\u200b\ufeff]*'
_CELL_ENDS = r"[;\t\r\n]"
"""Characters that end a cell in a program that does not use the comma as its separator and so ignores our quotes."""

_FORMULA = f"(^|{_CELL_ENDS})'*{_IGNORED}{_FORMULA_SIGN}|^'*[\t\r\n]"
_FORMULA_START = re.compile(f"(?:^|(?<={_CELL_ENDS}))(?='*{_IGNORED}{_FORMULA_SIGN})|^(?='*[\t\r\n])")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ABANDONED_S = 86_400  # age after which a temporary file is regarded as abandoned


@checked_location
def save(path: str | os.PathLike[str], frame: pd.DataFrame) -> Path:
    """
    Write a frame to one Parquet or CSV file, completely or not at all.

    Parquet keeps everything that `load` needs to return an equal frame. CSV is meant for spreadsheets.

    Parameters
    ----------
    path : str or path-like
        File to write. An existing file is replaced. A name that ends in ``.csv`` selects CSV, every other name
        Parquet. Endings of other formats, such as ``.xlsx``, are refused.
    frame : pandas.DataFrame
        Frame with at least one column. Column names must be strings. For Parquet, `frame.attrs` must be plain JSON.

    Returns
    -------
    pathlib.Path
        The path that was passed.

    Raises
    ------
    BadInput
        If the path names a folder, its folder does not exist, its ending belongs to another format, or the file
        cannot hold the columns, values or attrs.
    OSError
        If the disk is full or read-only.

    See Also
    --------
    load : Read the file again.

    Notes
    -----
    Parquet: `load` restores dtypes, time zones, the index and `frame.attrs`, with two exceptions. Parquet has no
    timestamps in whole seconds, so they become milliseconds. A column of dtype `object` that holds strings becomes
    `str`. Other programs see a timedelta as an integer in its unit.

    CSV: UTF-8 with a header. Times are in UTC, such as `2026-10-26T08:00:00.000000Z`. Timedeltas are in seconds, in a
    column whose name ends in `_s`. Booleans are `true` and `false`, lists and objects are JSON, and nulls are empty.
    Named index levels become columns. NUL becomes U+FFFD.

    Text and headers that a spreadsheet program would run as a formula get an apostrophe in front. They start with
    one of `= + - @`, a tab or a line break. The same applies after a `;`, tab or line break inside a text, because a
    program with another separator starts a new cell there.

    The data goes to a temporary file in the same folder, is flushed to disk and then renamed. A reader therefore sees
    the old file or the new one, also after a crash. A killed process may leave a file `.buildframe-*.tmp`; a later
    `save` to that folder deletes it after one day.

    Examples
    --------
    >>> import tempfile, pathlib, pandas as pd, buildframe as bf
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = bf.save(pathlib.Path(folder.name, "builds.parquet"), pd.DataFrame({"number": [1, 2]}))
    >>> bf.load(path)["number"].tolist()
    [1, 2]
    >>> folder.cleanup()
    """
    ending = Path(path).suffix.lower()
    if ending in _OTHER_FORMATS:
        raise BadInput(
            f"path={os.fspath(path)!r}: save() cannot write {ending}. Use a name that ends in .csv or .parquet."
        )
    resolved, is_csv = target(path), ending == ".csv"
    if frame.columns.empty or not all(isinstance(name, str) for name in frame.columns):
        raise BadInput(
            "The frame needs at least one column, and every column name must be a string. Check frame.columns."
        )
    if not is_csv:
        _check_attrs(frame)
    with _atomic_write(resolved) as file:
        try:
            _write_csv(frame, file) if is_csv else frame.to_parquet(file, engine="pyarrow", write_page_checksum=True)
        except (pa.ArrowException, TypeError, ValueError) as why:
            raise BadInput(f"The frame cannot be written as {'CSV' if is_csv else 'Parquet'}: {why}") from why
    return Path(path)


def _write_csv(frame: pd.DataFrame, file: BinaryIO) -> None:
    """Write in batches, so that few rows are in memory as text."""
    named_levels = [level for level, name in enumerate(frame.index.names) if name is not None]
    whole = frame.reset_index(named_levels) if named_levels else frame.copy(deep=False)
    whole.attrs = {}
    table = pa.Table.from_pandas(whole, preserve_index=False)
    headers = _csv_headers(table.schema)
    for start in range(0, max(1, len(table)), _BATCH):
        columns = [_csv_cells(column.combine_chunks()) for column in table.slice(start, _BATCH).columns]
        csv.write_csv(pa.table(columns, headers), file, csv.WriteOptions(include_header=start == 0))


def _csv_headers(schema: pa.Schema) -> list[str]:
    """Return the column headers; timedelta columns get the suffix `_s`."""
    headers = [f"{field.name}_s" if types.is_duration(field.type) else field.name for field in schema]
    if len(set(headers)) < len(headers):
        raise ValueError(
            "two columns would have the same header, because timedelta columns get the suffix '_s'; rename one of them"
        )
    return [_FORMULA_START.sub("'", header) for header in headers]


def _csv_cells(column: Any) -> Any:
    """Convert an Arrow array: times in UTC with `Z`, timedeltas in seconds, nested values as JSON, text escaped."""
    kind = column.type
    if types.is_dictionary(kind):
        return _csv_cells(column.cast(kind.value_type))
    if types.is_timestamp(kind):
        utc = column if kind.tz is None else column.cast(pa.timestamp(kind.unit, "UTC"))
        return pc.strftime(utc, "%Y-%m-%dT%H:%M:%S" if kind.tz is None else "%Y-%m-%dT%H:%M:%SZ")
    if types.is_duration(kind):
        return pc.divide(column.cast(pa.int64()).cast(pa.float64()), float(_PER_SECOND[kind.unit]))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _escape_texts(column.cast(pa.large_string()))
    if types.is_nested(kind):
        return _escape_texts(_to_json(column))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        raise TypeError("columns of bytes cannot be written as text; decode or drop them")
    return column


def _to_json(column: Any) -> Any:
    write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    texts = [None if value is None else write(value) for value in column.to_pylist()]
    return pa.array(texts, pa.large_string())


def _escape_texts(texts: Any) -> Any:
    """Put an apostrophe before each character at which a spreadsheet program would start a formula."""
    whole: Any = pc.replace_substring(texts, "\0", "\ufffd")
    matches: Any = pc.match_substring_regex(whole, _FORMULA)
    dangerous = matches.fill_null(False)
    if not pc.any(dangerous).as_py():
        return whole
    escaped = [_FORMULA_START.sub("'", text) for text in whole.filter(dangerous).to_pylist()]
    return pc.replace_with_mask(whole, dangerous, pa.array(escaped, pa.large_string()))


@checked_location
def load(path: str | os.PathLike[str]) -> pd.DataFrame:
    """
    Read a frame from a Parquet file, such as one that `save` wrote.

    Parameters
    ----------
    path : str or path-like
        Parquet file to read.

    Returns
    -------
    pandas.DataFrame
        The columns of the file. Dtypes, index and `attrs` are restored if `save` wrote the file.

    Raises
    ------
    BadInput
        If the file does not exist, is not Parquet or is damaged.

    See Also
    --------
    save : Write a frame to a file.

    Examples
    --------
    >>> import tempfile, pathlib, pandas as pd, buildframe as bf
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = bf.save(pathlib.Path(folder.name, "jobs.parquet"), pd.DataFrame({"state": ["passed"]}))
    >>> bf.load(path).shape
    (1, 1)
    >>> folder.cleanup()
    """
    check_path("path", os.fspath(path))
    if not Path(path).is_file():
        raise BadInput(
            f"path={os.fspath(path)!r} is not a file. Pass an existing Parquet file, such as one written by bf.save()."
        )
    try:
        # Opened once, so that a concurrent save() cannot mix two files, and by Arrow: a thread of Arrow that holds a
        # Python file when the interpreter exits aborts the process (https://github.com/apache/arrow/issues/34314).
        with pa.OSFile(os.fspath(path), "rb") as file:
            return _with_plain_utc(_as_frame(pq.read_table(file, page_checksum_verification=True)))
    except (pa.ArrowException, OSError) as why:
        advice = " Read CSV with pandas.read_csv." if Path(path).suffix.lower() == ".csv" else ""
        raise BadInput(f"path={os.fspath(path)!r} is not a complete Parquet file: {why}{advice}") from why


def _as_frame(table: pa.Table) -> pd.DataFrame:
    """Convert a table with the dtypes that were saved.

    `pandas.read_parquet` cannot parse the names of nested Arrow dtypes that it wrote, and reads an `Int64` index as
    int64 or float64.
    """
    described = table.schema.pandas_metadata or {"columns": [], "index_columns": []}
    by_arrow = (column for column in described["columns"] if str(column["numpy_type"]).endswith("[pyarrow]"))
    names = [column["field_name"] for column in by_arrow if column.get("field_name") is not None]
    kinds = [table.schema.field(name).type for name in names]
    nested: dict[pa.DataType, Any] = {kind: pd.ArrowDtype(kind) for kind in kinds if pa.types.is_nested(kind)}
    frame = table.to_pandas(types_mapper=nested.get)
    frame.attrs = json.loads((table.schema.metadata or {}).get(b"PANDAS_ATTRS", b"{}"))
    stored = [name for name in described["index_columns"] if isinstance(name, str)]
    if not stored:
        return frame
    as_columns = json.dumps({**described, "index_columns": [], "column_indexes": []})
    levels = table.select(stored).replace_schema_metadata({"pandas": as_columns}).to_pandas()
    index = pd.MultiIndex.from_frame(levels) if len(stored) > 1 else pd.Index(levels.iloc[:, 0])
    return frame.set_axis(index.set_names(frame.index.names))


def _with_plain_utc(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace `zoneinfo` UTC by `datetime.UTC`, because datetimes with different UTC objects compare as unequal."""
    zoned = {name: dtype for name, dtype in frame.dtypes.items() if isinstance(dtype, pd.DatetimeTZDtype)}
    utc = {name: pd.DatetimeTZDtype(one.unit, dt.UTC) for name, one in zoned.items() if str(one.tz) == "UTC"}
    return frame.astype(utc)


def target(path: str | os.PathLike[str]) -> Path:
    """Resolve links and return the file to write. Raise BadInput if no file can be written there."""
    if "\0" in os.fspath(path):
        raise BadInput(f"path={os.fspath(path)!r}: a path cannot contain NUL.")
    check_path("path", os.fspath(path))
    resolved = Path(os.path.realpath(path))
    if resolved.exists() and not resolved.is_file():
        raise BadInput(f"{os.fspath(path)!r} is a folder or a device. Pass a file name, such as 'builds.parquet'.")
    if not resolved.parent.is_dir():
        raise BadInput(
            f"{os.fspath(path)!r}: the folder {os.fspath(resolved.parent)!r} does not exist. Create it first."
        )
    return resolved


def check_writable(folder: Path) -> None:
    """Raise BadInput if no file can be created in a folder, which permissions alone do not say."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".buildframe-", suffix=".tmp"):
            pass
    except OSError as why:
        raise BadInput(f"The folder {str(folder)!r} cannot be written: {why.strerror}. Choose another.") from why


def _check_attrs(frame: pd.DataFrame) -> None:
    try:
        same = json.loads(json.dumps(frame.attrs, allow_nan=False)) == frame.attrs
    except (TypeError, ValueError, RecursionError) as why:
        raise BadInput(
            f"frame.attrs cannot be written as JSON: {why}. Remove the entries that are not plain JSON."
        ) from None
    if not same:
        raise BadInput(
            "frame.attrs would change when read again. Use only dicts with string keys, lists and plain values."
        )


@contextlib.contextmanager
def _atomic_write(target: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `target` when the block ends and is deleted when the block fails."""
    with contextlib.suppress(OSError):
        for old in target.parent.glob(".buildframe-*.tmp"):  # of killed processes
            if time.time() - old.stat().st_mtime > _ABANDONED_S:
                old.unlink()
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
    flush(target.parent)


def flush(*paths: Path) -> None:
    """Flush files and folders to disk. The folder of a new name must be flushed for it to survive a crash."""
    for path in paths if os.name == "posix" else ():  # other systems cannot open a folder
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
