"""Locate a store on disk or in an object store, and convert errors of either to StoreFailed without secrets. Does not
know tables."""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from pyarrow import fs

from buildframe.errors import BadInput, StoreFailed
from buildframe.guards.extras import needs_extra
from buildframe.guards.secrets import confined, without_frames
from buildframe.terminal import show

_BACKTRACE_LINE = re.compile(r"\d+: |at /|stack backtrace", re.IGNORECASE)
_DISK_FULL = re.compile("no space left|disk quota", re.IGNORECASE)
_MAX_MESSAGE = 600
_NO_STORES = ("http", "https", "memory")
"""Schemes of URLs at which nothing can be written, or nothing outlives the process."""

_PASSWORD = re.compile("://[^/?#]*:[^/?#]*@")
_SECRET_OPTION = re.compile("key|secret|token|password|credential|signature|sas", re.IGNORECASE)


def import_deltalake() -> Any:
    """Import `deltalake` at first use; raise MissingExtra if it is not installed."""
    with needs_extra("The store", "store"):
        import deltalake
    return deltalake


_USED_BY_PROCESSES: set[int] = set()


def import_deltalake_for_use() -> Any:
    """Import `deltalake` for use; raise StoreFailed in a forked child, where its threads no longer run."""
    _USED_BY_PROCESSES.add(os.getpid())
    if len(_USED_BY_PROCESSES) > 1:
        raise StoreFailed(
            "This process was forked from one that had already used a store. The package deltalake does not work here. "
            'Start processes with "spawn" or "forkserver" instead: multiprocessing.get_context("spawn").'
        )
    return import_deltalake()


@contextmanager
def store_errors(
    action: str, location: Location, subject: str = "The store", state: str = "The store is as the last commit left it."
) -> Iterator[None]:
    """Convert errors of the disk or the object store to StoreFailed, with secrets of the options removed."""
    import_deltalake()
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as why:
        message = location.redacted(_one_line(without_frames(why)))[:_MAX_MESSAGE]
        advice = "Free some space" if _DISK_FULL.search(message) else "Check the disk or the object store"
        raise StoreFailed(
            f"{subject} at {location.url} could not be {action}: {message}. {advice} and try again. {state}"
        ) from None


def _one_line(why: BaseException) -> str:
    """Return an error message as one line, without terminal colors and backtrace."""
    lines = (line.strip(" ↳") for line in re.sub(r"\x1b\[\d*m", "", str(why)).splitlines())
    return "; ".join(line for line in lines if line and not _BACKTRACE_LINE.match(line)) or type(why).__name__


def check_path(name: str, path: str) -> None:
    """Raise BadInput for a path that no file can have: too long, or with characters that it cannot contain."""
    try:
        os.stat(path)
    except (OSError, ValueError) as why:
        if isinstance(why, ValueError) or why.errno == errno.ENAMETOOLONG:
            reason = "is too long" if isinstance(why, OSError) else "contains characters that a path cannot contain"
            raise BadInput(f"{name}={show(path)} {reason}. Use another path.") from None


@dataclass(frozen=True)
class Location:
    """The folder or URL of a store, with the options that `deltalake` needs to open it."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, url: str | os.PathLike[str], options: Mapping[str, str] | None) -> Location:
        """Validate the arguments of a user and resolve a local folder."""
        text = os.fspath(url) if isinstance(url, str | os.PathLike) else ""
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            raise BadInput(
                f"url={show(url)} is not a store location. "
                "Pass a folder, such as 'ci-history', or a URL, such as 's3://bucket/ci'."
            )
        options = {} if options is None else options
        if not isinstance(options, Mapping) or not all(
            isinstance(one, str) for pair in options.items() for one in pair
        ):
            raise BadInput(
                "storage_options must be a dict with string keys and values, as the package deltalake expects."
            )
        if "://" in text:
            if _PASSWORD.search(text):  # the URL appears in messages
                raise BadInput("url must not contain a password. Pass it in storage_options or in the environment.")
            if text.partition("://")[0].lower() in _NO_STORES:
                raise BadInput(
                    f"There can be no store at {show(text)}. "
                    "Pass a folder, such as 'ci-history', or a URL, such as 's3://bucket/ci'."
                )
            return cls(text.rstrip("/"), dict(options))
        check_path("url", text := os.path.expanduser(text))
        if Path(text).exists() and not Path(text).is_dir():
            raise BadInput(f"url={show(text)} is a file. Pass a folder; it is created if it does not exist.")
        folder = str(Path(text).absolute())
        if unquote(folder) != folder:  # deltalake decodes percent escapes in paths
            raise BadInput(
                f"url={folder!r} cannot be used, because deltalake reads it as {unquote(folder)!r}. Rename it."
            )
        return cls(folder, dict(options))

    @property
    def is_local(self) -> bool:
        """Whether the store is a local folder."""
        return "://" not in self.url

    @property
    def missing_store_error(self) -> BadInput:
        """The error that there is no store at this location."""
        command = f"buildframe sync {shlex.quote(self.url)}"
        return BadInput(f"There is no store at {self.url!r}. Create one with `{command}`, or store.sync(ws) in Python.")

    def table_url(self, name: str) -> str:
        """Return the path or URL of a table."""
        return f"{self.url}/{name}"

    def redacted(self, text: str) -> str:
        """Replace secret option values in a text."""
        secret_values = [value for name, value in self.options.items() if value and _SECRET_OPTION.search(name)]
        for value in sorted({*secret_values, *map(quote, secret_values)}, key=len, reverse=True):
            text = text.replace(value, "[hidden]")
        return text

    @confined
    def files(self, name: str) -> fs.FileSystem:
        """Return the file system rooted at a table."""
        if self.is_local:
            return fs.SubTreeFileSystem(self.table_url(name), fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        handler: Any = DeltaStorageHandler(self.table_url(name), dict(self.options))
        return fs.PyFileSystem(handler)
