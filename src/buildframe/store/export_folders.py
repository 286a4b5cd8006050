"""Find the folders of exported builds and read them as rows. Knows files and their JSON; does not know stores.

An export has a folder for each build: `…/date={YYYY-MM-DD}/pipeline={UUID}/build={UUID}/` with `build.json.gz`, and
`jobs/job-{UUID}.json.gz` for each job.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import gzip
import os
import posixpath
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from buildframe.errors import BadInput, Malformed
from buildframe.http.json_bodies import decode_json
from buildframe.spec import Build, Job, Moment
from buildframe.spec.declare import columns_of
from buildframe.spec.rows import read_row, row_type
from buildframe.spec.times import VALID_YEARS
from buildframe.store.export_files import Entry, ExportFiles, UnreadableFile
from buildframe.store.location import Location, check_path
from buildframe.store.merge import EVENT_TIMES
from buildframe.terminal import shorten, show

T = TypeVar("T")

MAX_BYTES = 128 * 2**20
"""Bytes of the JSON of one build with its jobs, after decompression."""

MAX_FILE_BYTES = 16 * 2**20
"""Bytes of the JSON in one file, after decompression: decoded, it can take 30 times as much memory."""

MAX_JOBS = 20_000
"""Jobs of one build."""

_ONE_DAY = dt.timedelta(days=1)
_MAX_BEHIND = dt.timedelta(days=3 * 365)  # of the local clock; folders of later days do not count as days
_DAY_FOLDER = re.compile(r"(?:^|/)date=(\d{4}-\d{2}-\d{2})(?=/|$)")
_BUILD_FILE = "build.json.gz"
_JOB_FILE = re.compile(r"jobs/job-([^/]+)\.json\.gz")
_BUILD_FOLDER = re.compile(r"(?:^|/)build=([^/]+)(?=/|$)")
_PIPELINE_FOLDER = re.compile(r"(?:^|/)pipeline=([^/]+)/build=")
_ABOVE_DAYS = re.compile(r"buildkite|build-exports|org=.+")
_DAY_OR_BELOW = re.compile(r"(date|pipeline|build)=.+")
_PAGE = re.compile(r"[^/]+/builds/\d+")
_GZIP_MAGIC = b"\x1f\x8b"
_BUILD_ROW = row_type(Build)
_BUILD_ROW_WITHOUT_JOBS = row_type(Build, tuple(column.path for column in columns_of(Build) if column.path))
_JOB_ROW = row_type(Job)


@dataclass(frozen=True)
class Bounds:
    """How much a reader may hold: bytes of JSON in a file, bytes of a build with its jobs, and jobs of a build."""

    file_bytes: int
    build_bytes: int
    jobs: int


class DamagedExport(Exception):
    """A folder cannot be read as one whole build; the message says why."""


class ExportTooLarge(DamagedExport):
    """A build has more bytes or jobs than a reader may hold."""


@dataclass(frozen=True)
class ExportFolder:
    """The files of one build: their sizes by their path in the folder. `damage` says which of them cannot be read."""

    path: str
    build_id: str
    pipeline_id: str | None
    files: dict[str, int] = field(default_factory=dict)
    damage: str | None = None

    @property
    def job_files(self) -> dict[str, str]:
        """The files of jobs by the id in their name, ordered by id."""
        matches = ((name, _JOB_FILE.fullmatch(name)) for name in sorted(self.files))
        return {match[1].lower(): name for name, match in matches if match}


@dataclass(frozen=True)
class ExportedBuild:
    """The row of an exported build, its creation, the latest of its times, and its bytes of JSON.

    `odd` counts the values of the build and its jobs that do not fit their columns.
    """

    folder: ExportFolder
    row: Any
    created: Moment
    latest: Moment
    size: int
    odd: int = 0


class BuildExports:
    """A local folder, or an object store, with the folders of exported builds."""

    def __init__(self, path: str | os.PathLike[str], options: Mapping[str, str] | None) -> None:
        self.location = _location(path, options)
        self.skipped: dict[str, str] = {}
        self._files = ExportFiles(self.location)
        self._end = _end_of_import([self.location.url])

    def days(self) -> list[str]:
        """Return the folders of days in ascending order, from the level that the path names; or the path itself.

        One such folder is listed at a time, because an export can have many millions of files.
        """
        if _DAY_OR_BELOW.fullmatch(posixpath.basename(self.location.url)):
            return [""]
        days = sorted(self._find_days(""), key=posixpath.basename)
        if not days:
            raise BadInput(
                f"path: there are no exported builds at {self.location.url!r}. Pass the folder that contains the "
                "folders 'org=…', or a folder in it."
            )
        self._end = _end_of_import(days)
        return days

    def _find_days(self, folder: str) -> Iterator[str]:
        for entry in self._files.list_folder(folder):
            is_of_export = _DAY_OR_BELOW.fullmatch(entry.name) or _ABOVE_DAYS.fullmatch(entry.name)
            if not is_of_export or entry.size is not None:
                continue
            if entry.problem is not None:
                self._skip(entry)
            elif _DAY_OR_BELOW.fullmatch(entry.name):
                yield entry.path
            else:
                yield from self._find_days(entry.path)

    def builds(self, day: str) -> list[ExportFolder]:
        """List the folders of builds in the folder of a day, also those that lack files."""
        files: dict[str, dict[str, int]] = defaultdict(dict)
        damages: dict[str, str] = {}
        for entry in self._files.list_below(day):
            whole = f"{self.location.url}/{entry.path}"
            if (match := _BUILD_FOLDER.search(whole)) is None:
                if entry.problem is not None:
                    self._skip(entry)
                continue
            folder, name = whole[: match.end()], whole[match.end() :].strip("/")
            files[folder] |= {} if entry.size is None else {name: entry.size}
            if entry.problem is not None and (name in ("", "jobs", _BUILD_FILE) or _JOB_FILE.fullmatch(name)):
                damages[folder] = f"{name}: {entry.problem}" if name else entry.problem
        return [self._folder(path, files[path], damages.get(path)) for path in sorted(files)]

    def _skip(self, entry: Entry) -> None:
        self.skipped[entry.path] = entry.problem or ""

    def _folder(self, whole: str, files: dict[str, int], damage: str | None) -> ExportFolder:
        build, pipeline = _BUILD_FOLDER.search(whole), _PIPELINE_FOLDER.search(whole)
        assert build is not None
        path = whole.removeprefix(self.location.url).strip("/")
        return ExportFolder(path, build[1].lower(), pipeline[1].lower() if pipeline else None, files, damage)

    def read_build(self, folder: ExportFolder, bounds: Bounds | None = None) -> ExportedBuild:
        """Read a build without its jobs; raise DamagedExport if that is not the build that the folder names.

        Raise ExportTooLarge if it exceeds the bounds, which are by default those of every build.
        """
        if folder.damage is not None:
            raise DamagedExport(folder.damage)
        if _BUILD_FILE not in folder.files:
            raise DamagedExport(f"there is no {_BUILD_FILE}")
        body = self._read(folder, _BUILD_FILE, _bounded(bounds), 0)
        row, odd = _decode(_BUILD_FILE, body, functools.partial(read_row, _BUILD_ROW_WITHOUT_JOBS))
        _check_id(_BUILD_FILE, row.id, folder.build_id)
        if row.pipeline is None:
            row.pipeline = read_row(_BUILD_ROW_WITHOUT_JOBS, b'{"pipeline": {}}')[0].pipeline
        row.pipeline.id = row.pipeline.id or folder.pipeline_id
        if folder.pipeline_id not in (None, (row.pipeline.id or "").lower()):
            raise DamagedExport(f"{_BUILD_FILE} is of the pipeline {show(row.pipeline.id)}")
        if row.number is None or row.state is None or row.created_at is None:
            raise DamagedExport(f"{_BUILD_FILE} has no number, no state or no created_at")
        n_late = _clear_late_times(row, "builds", self._end)
        if row.created_at is None:
            raise DamagedExport(f"{_BUILD_FILE} was created after the day of this import")
        times = _times(row)
        if times[0].year not in VALID_YEARS:
            raise DamagedExport(f"{_BUILD_FILE} was created in the year {times[0].year}")
        return ExportedBuild(folder, row, times[0], max(times), len(body), len(odd) + n_late)

    def read_jobs(self, build: ExportedBuild, bounds: Bounds | None = None) -> ExportedBuild:
        """Return the build with all its jobs; raise DamagedExport if a job is damaged, missing or of another build.

        Raise ExportTooLarge if it exceeds the bounds, which are by default those of every build.
        """
        bounds = _bounded(bounds)
        folder, row, size = build.folder, build.row, build.size
        files = folder.job_files
        if len(files) > bounds.jobs:
            raise ExportTooLarge(f"it has {len(files):,} jobs, more than {bounds.jobs:,}")
        jobs = []
        n_odd = build.odd
        for id, name in files.items():
            body = self._read(folder, name, bounds, size)
            size += len(body)
            job, odd = _decode(name, body, functools.partial(read_row, _JOB_ROW))
            n_odd += len(odd) + _clear_late_times(job, "jobs", self._end)
            _check_id(name, job.id, id)
            if (page := _page(job.web_url)) and page != (_page(row.web_url) or page):
                raise DamagedExport(f"{name} is a job of another build, {page}")
            jobs.append(job)
        _check_whole(row, jobs)
        whole = _BUILD_ROW(**{**msgspec.structs.asdict(row), "jobs": jobs})
        return ExportedBuild(folder, whole, build.created, build.latest, size, n_odd)

    def _read(self, folder: ExportFolder, name: str, bounds: Bounds, n_read: int) -> bytes:
        """Return a decompressed file of a build of which so many bytes were read.

        An object store may have decompressed it already.
        """
        most = min(bounds.file_bytes, bounds.build_bytes - n_read)
        too_large = ExportTooLarge(f"{name} has more than {most:,} bytes after decompression")
        if most < bounds.file_bytes:
            too_large = ExportTooLarge(_TOO_LARGE)
        if folder.files[name] > most:
            raise too_large
        try:
            data = self._files.read(posixpath.join(folder.path, name), most + 1)
            if data.startswith(_GZIP_MAGIC):
                with gzip.GzipFile(fileobj=BytesIO(data)) as unzipped:
                    data = unzipped.read(most + 1)
        except UnreadableFile as why:
            raise DamagedExport(f"{name} cannot be read: {why}") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as why:
            raise DamagedExport(f"{name} cannot be decompressed: {why}") from None
        if len(data) > most:
            raise too_large
        return data


_TOO_LARGE = f"it has more than {MAX_BYTES:,} bytes after decompression"


def _bounded(bounds: Bounds | None) -> Bounds:
    """Return bounds that are at most those of every build."""
    if bounds is None:
        return Bounds(MAX_FILE_BYTES, MAX_BYTES, MAX_JOBS)
    return Bounds(
        min(bounds.file_bytes, MAX_FILE_BYTES), min(bounds.build_bytes, MAX_BYTES), min(bounds.jobs, MAX_JOBS)
    )


def _end_of_import(folders: Iterable[str]) -> Moment:
    """Return the end of the day after an import, since clocks differ.

    The day of an import is that of the local clock, or of the newest exported day if the clock is behind.
    """
    now = dt.datetime.now(dt.UTC)
    days = [now]
    for text in (match[1] for folder in folders if (match := _DAY_FOLDER.search(folder))):
        with contextlib.suppress(ValueError):
            day = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
            days += [day] if day < now + _MAX_BEHIND else []
    return Moment.of(max(days).replace(hour=0, minute=0, second=0, microsecond=0) + 2 * _ONE_DAY)


def _clear_late_times(row: Any, table: str, end: Moment) -> int:
    """Set times of events after the import to null, and return how many there are."""
    n_late = 0
    for name in EVENT_TIMES[table]:
        text = getattr(row, name)
        with contextlib.suppress(Malformed):
            if isinstance(text, str) and Moment.parse(text) >= end:
                setattr(row, name, None)
                n_late += 1
    return n_late


def _location(path: str | os.PathLike[str], options: Mapping[str, str] | None) -> Location:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if isinstance(text, str) and "://" in text:
        return Location.of(text, options)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise BadInput(f"path={show(path)} is not a folder or the URL of an object store.")
    check_path("path", text := os.path.expanduser(text))
    if not Path(text).is_dir():
        raise BadInput(f"path={show(text)} is not a folder. Pass the folder of the exports, or its URL.")
    return Location(str(Path(text).absolute()))


def _decode(name: str, body: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode_json(body, decode)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        raise DamagedExport(f"{name} cannot be read: {shorten(str(why))}") from None


def _check_id(name: str, id: str | None, named: str) -> None:
    if (id or "").lower() != named:
        raise DamagedExport(f"{name} has the id {show(id)}, which is not the one in its path")


def _times(build: Any) -> list[Moment]:
    """Return the readable times of a build, first its creation."""
    try:
        created = Moment.parse(build.created_at)
    except Malformed as why:
        raise DamagedExport(f"{_BUILD_FILE}: {why}") from None
    times = [created]
    for text in (getattr(build, name) for name in EVENT_TIMES["builds"] if name != "created_at"):
        with contextlib.suppress(Malformed):
            times += [Moment.parse(text)] if isinstance(text, str) else []
    return times


def _page(url: str | None) -> str | None:
    """Return the slug of the pipeline and the number of the build in a URL, such as `web/builds/12`."""
    match = _PAGE.search(url or "")
    return match[0] if match else None


def _check_whole(build: Any, jobs: list[Any]) -> None:
    """Raise DamagedExport if other records show that jobs are missing; a build has no list of its jobs."""
    if build.started_at is not None and not jobs:
        raise DamagedExport("the build was started, and there are no jobs")
    ids = {job.id for job in jobs}
    missing = next((job.retried_in_job_id for job in jobs if (job.retried_in_job_id or job.id) not in ids), None)
    if missing is not None:
        raise DamagedExport(f"there is no jobs/job-{missing}.json.gz, which another job was retried in")
