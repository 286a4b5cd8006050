"""Locate a store on disk or in an object store, and convert errors of either to StoreFailed without secrets. Does not
know tables."""

from __future__ import annotations

import errno
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from urllib.request import url2pathname

import pyarrow as pa
from pyarrow import fs

from buildframe.errors import BadInput, StoreFailed
from buildframe.guards.extras import needs_extra
from buildframe.guards.secrets import confined, without_frames
from buildframe.terminal import show

_BACKTRACE_LINE = re.compile(r"\d+: |at \S*[/\\]|stack backtrace", re.IGNORECASE)
_DISK_FULL = re.compile("no space left|disk quota", re.IGNORECASE)
_LOST_ENTRY = re.compile("found gap|LogSegment end version|no table metadata", re.IGNORECASE)  # of deltalake
_MAX_MESSAGE = 600
_NO_STORES = ("ftp", "http", "https", "memory")
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
        message = location.redacted(one_line(without_frames(why)))[:_MAX_MESSAGE]
        if _LOST_ENTRY.search(message):
            raise StoreFailed(
                f"{subject} at {location.url} could not be {action}, because a log entry is missing, as after a "
                f"partial copy. Copy the store again, or sync it: a sync restores the newest version. ({message})"
            ) from None
        advice = "Free some space" if _DISK_FULL.search(message) else "Check the disk or the object store"
        raise StoreFailed(
            f"{subject} at {location.url} could not be {action}: {message}. {advice} and try again. {state}"
        ) from None


def one_line(why: BaseException) -> str:
    """Return an error message as one line, without terminal colors and backtrace."""
    lines = (line.strip(" ↳") for line in re.sub(r"\x1b\[\d*m", "", str(why)).splitlines())
    return "; ".join(line for line in lines if line and not _BACKTRACE_LINE.match(line)) or type(why).__name__


def check_hard_links(location: Location) -> None:
    """Raise StoreFailed if the file system of a local store has no hard links.

    A commit links its log entry to its name, which fails if another writer was first. Nothing else on a disk is as
    safe with several writers.
    """
    if not location.is_local:
        return
    try:
        with tempfile.TemporaryDirectory(prefix=".buildframe-", dir=location.url) as folder:
            file = Path(folder, "file")
            file.touch()
            try:
                os.link(file, Path(folder, "link"))
            except OSError as why:
                raise StoreFailed(
                    f"There can be no store at {location.url}: its file system has no hard links ({why.strerror}), "
                    "which commits need. Use a folder on another file system, such as ext4, XFS, APFS or NTFS, or an "
                    "object store."
                ) from None
    except OSError:
        return  # nothing can be written there, which the caller reports


def check_path(name: str, path: str) -> None:
    """Raise BadInput for a path that no file can have, such as a URL, or that the user has no permission to open."""
    if "://" in path:  # the message does not contain the URL, which may contain a password
        raise BadInput(f"{name} is a URL. Pass a path on this machine; `buildframe export` writes to object stores.")
    try:
        os.stat(path)
        return
    except ValueError:
        reason = "contains characters that a path cannot contain"
    except PermissionError:
        reason = "is in a folder that you have no permission to open"
    except OSError as why:
        if why.errno != errno.ENAMETOOLONG:
            return
        reason = "is too long"
    raise BadInput(f"{name}={show(path)} {reason}. Use another path.")


def _without_file_scheme(text: str) -> str:
    """Return the path of a `file://` URL, so that its folder is protected as others; another text as it is."""
    if not text.lower().startswith("file://"):
        return text
    host, slash, path = text[len("file://") :].partition("/")
    path = url2pathname(slash + path)
    if host.lower() not in ("", "localhost") or not path or "\0" in path:
        raise BadInput(f"url={show(text)} is not a folder of this machine. Pass a path, such as 'ci-history'.")
    return path


def _check_store_url(url: str) -> None:
    """Raise BadInput for a URL with a password, or at which there can be no store."""
    if _PASSWORD.search(url):  # the URL appears in messages
        raise BadInput("url must not contain a password. Pass it in storage_options or in the environment.")
    scheme, _, rest = url.partition("://")
    if scheme.lower() in _NO_STORES:
        raise BadInput(
            f"There can be no store at {show(url)}. "
            "Pass a folder, such as 'ci-history', or a URL, such as 's3://bucket/ci'."
        )
    host = re.split("[/?#]", rest)[0].strip()
    if not scheme or not host:  # pyarrow ends the process at a URL without a bucket
        raise BadInput(
            f"url={show(url)} names no bucket or container. "
            "Pass a folder, such as 'ci-history', or a URL, such as 's3://bucket/ci'."
        )


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
        text = _without_file_scheme(text)
        if "://" in text:
            _check_store_url(text)
            return cls(text.rstrip("/"), dict(options))
        check_path("url", text := os.path.expanduser(text))
        if os.path.exists(text) and not os.path.isdir(text):
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
