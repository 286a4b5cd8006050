"""A disk that fails on request: counts the I/O calls below a folder, and makes one of them fail or be the last.

Calls of Python (open, write, fsync, replace, mkdir, unlink) are counted, and those of Arrow's readers and writers that
go through Python here. deltalake does its I/O in Rust: each of its operations counts twice, before and after it, as its
error may come before or after the commit. test_disk.py lets the kernel refuse its writes; real full disks are in
tests/store/test_crashes.py.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
import pyarrow as pa
from deltalake.table import TableAlterer
from pyarrow import fs

from buildframe.store.location import Location


class Died(BaseException):
    """The process ended here: no call after it reaches the disk, and nothing in the package catches it."""


class Disk:
    """What happens below a folder: `calls` are named in their order.

    `at` is the number of the call that goes wrong, and `error` the errno that it raises; None: the process dies there.
    """

    def __init__(self, folder: Path, at: int | None = None, error: int | None = None) -> None:
        self.calls: list[str] = []
        self._folder, self._at, self._error = str(folder), at, error
        self._is_dead = False

    def __repr__(self) -> str:
        way = "death" if self._error is None else os.strerror(self._error)
        name = self.calls[self._at] if self._at is not None and self._at < len(self.calls) else "no call"
        return f"<Disk: {way} at call {self._at}, {name}>"

    def call(self, kind: str, path: object) -> None:
        """Count a call, and let it go wrong if it is the one; calls elsewhere do not count."""
        where = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if not isinstance(where, str) or not where.startswith(self._folder):
            return
        if self._is_dead:
            raise Died
        self.calls.append(f"{kind} {where.removeprefix(self._folder)}")
        if len(self.calls) - 1 != self._at:
            return
        if self._error is None:
            self._is_dead = True
            raise Died
        raise OSError(self._error, os.strerror(self._error), where)

    @contextmanager
    def installed(self) -> Iterator[Disk]:
        """Let all I/O meanwhile go through this disk."""
        with ExitStack() as stack:
            for owner, name in ((os, "replace"), (os, "mkdir"), (os, "unlink"), (os, "open")):
                stack.enter_context(self._before(owner, name))
            stack.enter_context(mock.patch.object(os, "fsync", self._fsync(os.fsync)))
            stack.enter_context(mock.patch.object(builtins, "open", self._opened(builtins.open)))
            stack.enter_context(mock.patch.object(Location, "files", self._files(Location.files)))
            for owner, name in (
                (deltalake.DeltaTable, "create_write_transaction"),
                (deltalake.DeltaTable, "restore"),
                (TableAlterer, "add_columns"),
            ):
                stack.enter_context(self._around(owner, name))
            created = self._created(deltalake.DeltaTable.create)
            stack.enter_context(mock.patch.object(deltalake.DeltaTable, "create", created))
            yield self

    # --- what stands in the place of the true calls

    def _before(self, owner: Any, name: str) -> Any:
        true = getattr(owner, name)

        def instead(path: Any, *args: Any, **kwargs: Any) -> Any:
            self.call(name, path)
            return true(path, *args, **kwargs)

        return mock.patch.object(owner, name, instead)

    def _fsync(self, true: Callable[[int], None]) -> Callable[[int], None]:
        def fsync(descriptor: int) -> None:
            self.call("fsync", os.path.realpath(f"/proc/self/fd/{descriptor}"))
            true(descriptor)

        return fsync

    def _opened(self, true: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            self.call(f"open({mode})", path)
            file = true(path, mode, *args, **kwargs)
            is_ours = isinstance(path, str | os.PathLike) and str(path).startswith(self._folder)
            return _File(self, file, path) if is_ours and set(mode) & set("wxa") else file

        return opened

    def _files(self, true: Callable[[Location, str], Any]) -> Callable[[Location, str], Any]:
        def files(place: Location, name: str) -> Any:
            return fs.PyFileSystem(_Files(self, true(place, name), place.table_url(name)))

        return files

    def _around(self, owner: Any, name: str) -> Any:
        true = getattr(owner, name)

        def instead(own: Any, *args: Any, **kwargs: Any) -> Any:
            table = own if isinstance(own, deltalake.DeltaTable) else own.table
            self.call(f"before {name}", table.table_uri.removeprefix("file://"))
            found = true(own, *args, **kwargs)
            self.call(f"after {name}", table.table_uri.removeprefix("file://"))
            return found

        return mock.patch.object(owner, name, instead)

    def _created(self, true: Callable[..., Any]) -> Callable[..., Any]:
        def create(uri: str, *args: Any, **kwargs: Any) -> Any:
            self.call("before create", uri)
            found = true(uri, *args, **kwargs)
            self.call("after create", uri)
            return found

        return create


class _File:
    """A file that is written, whose every write counts."""

    def __init__(self, disk: Disk, file: Any, path: Any) -> None:
        self._disk, self._file, self._path = disk, file, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *failure: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def write(self, data: Any) -> int:
        self._disk.call("write", self._path)
        return int(self._file.write(data))


class _Files(fs.FileSystemHandler):
    """The files of a table for Arrow, each call counted."""

    def __init__(self, disk: Disk, true: fs.FileSystem, folder: str) -> None:
        self._disk, self._true, self._folder = disk, true, folder

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Files) and other._folder == self._folder

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def _call(self, kind: str, path: str) -> None:
        self._disk.call(kind, f"{self._folder}/{path}")

    def get_type_name(self) -> str:
        return "counted"

    def normalize_path(self, path: str) -> str:
        return str(self._true.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> Any:
        return self._true.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        self._call("list", "")
        return self._true.get_file_info(selector)

    def delete_file(self, path: str) -> None:
        self._call("delete", path)
        self._true.delete_file(path)

    def open_input_file(self, path: str) -> Any:
        self._call("read", path)
        return self._true.open_input_file(path)

    def open_input_stream(self, path: str) -> Any:
        self._call("read", path)
        return self._true.open_input_stream(path, compression=None)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return pa.PythonFile(builtins.open(f"{self._folder}/{path}", "wb"), mode="w")

    def _never(self, *_: object) -> Any:
        raise AssertionError("a store does not do this")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _never
    move = copy_file = open_append_stream = _never
