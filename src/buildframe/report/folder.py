"""Where reports go: a single run at a time, and each report whole or not there at all."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from buildframe.errors import BadInput, BuildframeError, MissingExtra
from buildframe.store.files import sync_folder

PAGE = "report.html"
LATEST = "latest"
LOCK, HOLDER = ".lock", ".lock-holder"

_NAME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)(\d\d)(\d\dZ)(-\d+)?")
_PART = re.compile(rf"\.({_NAME.pattern}|{LATEST})\.part")


class Reports:
    """The reports in a folder, each in one of its own that bears its time; the link `latest` leads to the newest.

    A report is written beside the others, flushed to disk and renamed, and then the link is replaced. So a reader, a
    crash or a full disk finds the last report or the new one, never part of one. What else is in the folder stays.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    @property
    def latest(self) -> Path | None:
        """The folder of the newest report; None where there is none yet."""
        link = self._folder / LATEST
        found = self._folder / os.readlink(link) if os.path.islink(link) else None
        return found if found is not None and os.path.isfile(found / PAGE) else None

    @property
    def left(self) -> str:
        """What is there for readers after a run that failed, in words."""
        if self.latest is None:
            return f"there is no report in {self._folder} yet"
        time = _NAME.sub(r"\1:\2:\3", self.latest.name)
        return f"the report of {time} in {self._folder / LATEST} is left as it was"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out, and delete what killed ones left; the folder is made where there is none.

        BadInput: what is there is no folder, its `latest` is not of reports, or what keeps others out is a link.
        BuildframeError: another run is at it.
        """
        filelock = _package()
        self._refuse_others()
        self._folder.mkdir(parents=True, exist_ok=True)
        holder = self._folder / HOLDER  # a file of its own, as filelock may empty the one that it locks
        lock = filelock.FileLock(self._folder / LOCK)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            who = holder.read_text() if holder.exists() else ""
            raise BuildframeError(f"Another run is at {self._folder}: {who or 'it has just begun'}.") from None
        try:
            with open(holder, "w", opener=_no_link) as file:
                file.write(f"process {os.getpid()}, since {dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}")
            self._delete_parts()
            yield
        finally:
            lock.release()

    @contextmanager
    def new(self, as_of: dt.datetime) -> Iterator[Path]:
        """An empty folder for a report of a time (in UTC), under the lock; the newest when the block ends.

        It vanishes when the block fails. OSError: the disk is full or write-protected.
        """
        name = self._free(f"{as_of:%Y-%m-%dT%H%M%SZ}")
        part = self._folder / f".{name}.part"
        try:
            part.mkdir()
            yield part
            for path in (*part.rglob("*"), part):  # files, too
                sync_folder(path)
            part.rename(self._folder / name)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        self._link(name)

    def _link(self, name: str) -> None:
        link = self._folder / f".{LATEST}.part"
        link.symlink_to(name)
        sync_folder(self._folder)
        link.replace(self._folder / LATEST)
        sync_folder(self._folder)

    def _free(self, name: str) -> str:
        """The name, or the first of it with a number that no report has: a service's time can stand still."""
        names = (name if n == 1 else f"{name}-{n}" for n in range(1, 1_000_000))
        return next(one for one in names if not (self._folder / one).exists())

    def _refuse_others(self) -> None:
        """What is not of reports is never replaced."""
        if self._folder.exists() and not self._folder.is_dir():
            raise BadInput(f"{str(self._folder)!r} is a file; reports need a folder.")
        for path in (self._folder / LOCK, self._folder / HOLDER):
            if path.is_symlink():
                raise BadInput(f"{str(path)!r} is a link, and what it leads to would be overwritten; delete it.")
        link = self._folder / LATEST
        is_own = os.path.islink(link) and _NAME.fullmatch(os.readlink(link))
        if os.path.lexists(link) and not is_own:
            raise BadInput(f"{str(link)!r} is no link to a report, and would be replaced; take another folder.")

    def _delete_parts(self) -> None:
        for path in self._folder.iterdir():
            if _PART.fullmatch(path.name):
                path.unlink() if path.is_symlink() else shutil.rmtree(path)


def _no_link(path: str, flags: int) -> int:
    """Open a file, also where somebody has just put a link in its place: an OSError."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def _package() -> Any:
    """The package `filelock`, loaded at first use."""
    try:
        import filelock
    except ImportError:
        raise MissingExtra("A report", "report") from None
    return filelock
