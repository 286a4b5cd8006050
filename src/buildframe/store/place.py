"""Where a store lies, and what is said when it cannot be reached."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from buildframe.errors import BadInput, MissingExtra, StoreFailed
from buildframe.secret import confined, without_frames

_STACK = re.compile(r"\d+: |at /|stack backtrace", re.IGNORECASE)
_FULL = re.compile("no space left|disk quota", re.IGNORECASE)
_LONGEST = 600
_SECRET = re.compile("key|secret|token|password|credential|signature|sas", re.IGNORECASE)


def package() -> Any:
    """The package `deltalake`, loaded at first use."""
    try:
        import deltalake
    except ImportError:
        raise MissingExtra("The store", "store") from None
    return deltalake


_USED_IN: set[int] = set()


def package_in_use() -> Any:
    """The package `deltalake`, whose threads begin now; in a child that is forked later they are missing."""
    _USED_IN.add(os.getpid())
    if len(_USED_IN) > 1:
        raise StoreFailed(
            "This process was forked from one that had used a store, and the package deltalake cannot go on in it. "
            'Start it by the method "spawn" or "forkserver" instead: multiprocessing.get_context("spawn").'
        )
    return package()


@contextmanager
def told_plainly(what: str, place: Place) -> Iterator[None]:
    """What the disk or the object store says, as StoreFailed; without the secrets of the place's options."""
    package()
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as why:
        said = place.without_secrets(_said(without_frames(why)))[:_LONGEST]
        raise StoreFailed(f"The store at {place.url} could not be {what}: {said}{_next_step(said)}") from None


def _next_step(said: str) -> str:
    cure = "Free some space" if _FULL.search(said) else "Check the disk or the object store"
    return f". {cure} and try again; the store is as the last commit left it."


def _said(why: BaseException) -> str:
    """An error's text in one line, without colours and stack."""
    lines = (line.strip(" ↳") for line in re.sub(r"\x1b\[\d*m", "", str(why)).splitlines())
    return "; ".join(line for line in lines if line and not _STACK.match(line)) or type(why).__name__


@dataclass(frozen=True)
class Place:
    """Where a store lies: a folder or an object store's URL, and how to get in."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, url: str | os.PathLike[str], options: Mapping[str, str] | None) -> Place:
        """The place that a user means."""
        text = os.fspath(url) if isinstance(url, str | os.PathLike) else ""
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            raise BadInput(f"{url!r} is no place for a store; give a folder, such as 'ci-history', or a URL.")
        if not isinstance(options or {}, Mapping) or not all(
            isinstance(one, str) for pair in (options or {}).items() for one in pair
        ):
            raise BadInput("storage_options: pass a dict of texts, as the package deltalake takes them.")
        if "://" in text:
            return cls(_without_password(text.rstrip("/")), dict(options or {}))
        text = os.path.expanduser(text)
        if Path(text).exists() and not Path(text).is_dir():
            raise BadInput(f"{text!r} is a file; a store needs a folder.")
        folder = str(Path(text).absolute())
        if unquote(folder) != folder:  # deltalake would take it for the other name
            raise BadInput(f"{folder!r} cannot be a store's folder: its name would be read as {unquote(folder)!r}.")
        return cls(folder, dict(options or {}))

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return "://" not in self.url

    def of_table(self, name: str) -> str:
        """Where a table of it lies."""
        return f"{self.url}/{name}"

    def without_secrets(self, text: str) -> str:
        """The text without what the options hold in secret."""
        hidden = [value for name, value in self.options.items() if value and _SECRET.search(name)]
        for value in sorted({*hidden, *map(quote, hidden)}, key=len, reverse=True):
            text = text.replace(value, "[hidden]")
        return text

    @confined
    def files(self, name: str) -> fs.FileSystem:
        """The files of a table."""
        if self.is_local:
            return fs.SubTreeFileSystem(self.of_table(name), fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        handler: Any = DeltaStorageHandler(self.of_table(name), dict(self.options))
        return fs.PyFileSystem(handler)


def _without_password(url: str) -> str:
    """The URL, which is shown wherever the store is named."""
    try:
        has_password = urlsplit(url).password is not None
    except ValueError:
        has_password = False
    if has_password:
        raise BadInput("A store's URL must hold no password; pass it in storage_options, or in the environment.")
    return url
