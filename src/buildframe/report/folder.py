"""Write reports to a folder atomically, one process at a time. Does not know what a report contains."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from buildframe.errors import BadInput, BuildframeError
from buildframe.guards.extras import needs_extra
from buildframe.store.files import flush

PAGE = "report.html"
LATEST = "latest"
LOCK, HOLDER = ".lock", ".lock-holder"

_NAME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)(\d\d)(\d\dZ)(-\d+)?")
_PART = re.compile(rf"\.({_NAME.pattern}|{LATEST})\.part")


class ReportFolder:
    """
    Manage a folder of reports: a subfolder per report, named by its time, and a link `latest` to the newest.

    A report is written to a temporary subfolder, flushed to disk and renamed. Then the link is replaced. After a crash
    or on a full disk, the link leads to the last complete report. Other files in the folder are not touched.

    Parameters
    ----------
    folder : str or path-like
        Folder of the reports. It is created when a report is written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    @property
    def latest(self) -> Path | None:
        """Folder of the newest report; None if there is none."""
        link = self._folder / LATEST
        target = self._folder / os.readlink(link) if os.path.islink(link) else None
        return target if target is not None and os.path.isfile(target / PAGE) else None

    @property
    def state(self) -> str:
        """Text that describes which report readers find after a failed run."""
        if self.latest is None:
            return f"there is no report in {self._folder}"
        time = _NAME.sub(r"\1:\2:\3", self.latest.name)
        return f"the report of {time} in {self._folder / LATEST} is unchanged"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """
        Lock the folder against other processes. Create it if needed, and delete incomplete reports.

        Raises
        ------
        BadInput
            If the path is a file, `latest` is not a link to a report, or a lock file is a link.
        BuildframeError
            If another process holds the lock.
        """
        with needs_extra("A report", "report"):
            import filelock
        self._refuse_others()
        self._folder.mkdir(parents=True, exist_ok=True)
        holder = self._folder / HOLDER  # a second file, because filelock may truncate the locked one
        try:
            lock = filelock.FileLock(self._folder / LOCK).acquire(blocking=False)
        except filelock.Timeout:
            who = holder.read_text() if holder.exists() else ""
            raise BuildframeError(
                f"{self._folder} is locked by another report: {who or 'it has just started'}."
            ) from None
        with lock:
            with open(holder, "w", opener=_open_no_link) as file:
                file.write(f"process {os.getpid()}, since {dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}")
            for part in self._folder.iterdir():
                if _PART.fullmatch(part.name):
                    part.unlink() if part.is_symlink() else shutil.rmtree(part)
            self._check_links()
            yield

    @contextmanager
    def create(self, as_of: dt.datetime) -> Iterator[Path]:
        """
        Provide an empty folder for a report, and publish it as the newest when the block ends. Needs the lock.

        If the block raises, the folder is deleted.

        Parameters
        ----------
        as_of : datetime
            Time of the report in UTC, which names the folder.

        Raises
        ------
        OSError
            If the disk is full or write-protected.
        """
        time = f"{as_of:%Y-%m-%dT%H%M%SZ}"
        # The clock of a sandbox can stand still, so a time may be in use.
        names = itertools.chain([time], (f"{time}-{n}" for n in itertools.count(2)))
        name = next(one for one in names if not (self._folder / one).exists())
        part = self._folder / f".{name}.part"
        try:
            part.mkdir()
            yield part
            flush(*part.rglob("*"), part)
            part.rename(self._folder / name)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        self._link(name)

    def _link(self, name: str) -> None:
        link = self._folder / f".{LATEST}.part"
        link.symlink_to(name, target_is_directory=True)
        flush(self._folder)
        if os.name != "posix":  # Windows replaces no link to a folder
            (self._folder / LATEST).unlink(missing_ok=True)
        link.replace(self._folder / LATEST)
        flush(self._folder)

    def _check_links(self) -> None:
        """Raise BuildframeError if the folder cannot hold the link to the newest report, before one is written."""
        link = self._folder / f".{LATEST}.part"
        try:
            link.symlink_to(HOLDER)
            link.unlink()
        except (OSError, NotImplementedError) as why:
            raise BuildframeError(
                f"{str(self._folder)!r} cannot hold the link {LATEST!r} to the newest report: {why}. "
                "Choose a folder of a file system with symbolic links. On Windows, turn on the developer mode."
            ) from None

    def _refuse_others(self) -> None:
        """Raise BadInput if a file that is not part of a report would be replaced."""
        if self._folder.exists() and not self._folder.is_dir():
            raise BadInput(f"{str(self._folder)!r} is a file. Pass a folder for reports.")
        for path in (self._folder / LOCK, self._folder / HOLDER):
            if path.is_symlink():
                raise BadInput(f"{str(path)!r} is a link whose target would be overwritten. Delete the link.")
        link = self._folder / LATEST
        is_own = os.path.islink(link) and _NAME.fullmatch(os.readlink(link))
        if os.path.lexists(link) and not is_own:
            raise BadInput(f"{str(link)!r} is not a link to a report and would be replaced. Choose another folder.")


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o644)  # Windows has no such flag
