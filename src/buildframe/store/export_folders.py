"""Find the folders of exported builds and read them as rows. Knows files and their JSON; does not know stores.

An export has a folder for each build: `…/date={YYYY-MM-DD}/pipeline={UUID}/build={UUID}/` with `build.json.gz`, and
`jobs/job-{UUID}.json.gz` for each job.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import posixpath
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pyarrow import fs

from buildframe.errors import BadInput, Malformed
from buildframe.http.json_bodies import decode_json
from buildframe.spec import Build, Job, Moment
from buildframe.spec.rows import read_row, row_type
from buildframe.spec.times import VALID_YEARS
from buildframe.store.location import Location, check_path, store_errors
from buildframe.store.merge import EVENT_TIMES
from buildframe.terminal import show

T = TypeVar("T")

MAX_BYTES = 128 * 2**20
"""Bytes of the JSON of one build with its jobs, after decompression."""

_BUILD_FILE = "build.json.gz"
_JOB_FILE = re.compile(r"jobs/job-([^/]+)\.json\.gz")
_BUILD_FOLDER = re.compile(r"(?:^|/)build=([^/]+)(?=/|$)")
_PIPELINE_FOLDER = re.compile(r"(?:^|/)pipeline=([^/]+)/build=")
_ABOVE_DAYS = re.compile(r"buildkite|build-exports|org=.+")
_DAY_OR_BELOW = re.compile(r"(date|pipeline|build)=.+")
_PAGE = re.compile(r"[^/]+/builds/\d+")
_GZIP_MAGIC = b"\x1f\x8b"
_BUILD_ROW = row_type(Build)
_JOB_ROW = row_type(Job)


class DamagedExport(Exception):
    """A folder cannot be read as one whole build; the message says why."""


@dataclass(frozen=True)
class ExportFolder:
    """The files of one build: their sizes by their path in the folder."""

    path: str
    build_id: str
    pipeline_id: str | None
    files: dict[str, int] = field(default_factory=dict)

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
        self._files = self.location.files("")

    def days(self) -> list[str]:
        """Return the folders of days in ascending order, from the level that the path names; or the path itself.

        One such folder is listed at a time, because an export can have many millions of files.
        """
        if _DAY_OR_BELOW.fullmatch(posixpath.basename(self.location.url)):
            return [""]
        with self._reading():
            days = sorted(self._find_days(""), key=posixpath.basename)
        if not days:
            raise BadInput(
                f"path: there are no exported builds at {self.location.url!r}. Pass the folder that contains the "
                "folders 'org=…', or a folder in it."
            )
        return days

    def _find_days(self, folder: str) -> Iterator[str]:
        infos = self._files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        names = [info.base_name for info in infos if info.type is fs.FileType.Directory]
        for name in names:
            if _DAY_OR_BELOW.fullmatch(name):
                yield posixpath.join(folder, name)
            elif _ABOVE_DAYS.fullmatch(name):
                yield from self._find_days(posixpath.join(folder, name))

    def builds(self, day: str) -> list[ExportFolder]:
        """List the folders of builds in the folder of a day, also those that lack files."""
        with self._reading():
            infos = self._files.get_file_info(fs.FileSelector(day, recursive=True, allow_not_found=True))
        files: dict[str, dict[str, int]] = defaultdict(dict)
        for info in infos:
            whole = f"{self.location.url}/{info.path}"
            if (match := _BUILD_FOLDER.search(whole)) is None:
                continue
            folder, name = whole[: match.end()], whole[match.end() :].strip("/")
            files[folder] |= {name: info.size} if info.is_file else {}
        return [self._folder(path, files[path]) for path in sorted(files)]

    def _folder(self, whole: str, files: dict[str, int]) -> ExportFolder:
        build, pipeline = _BUILD_FOLDER.search(whole), _PIPELINE_FOLDER.search(whole)
        assert build is not None
        path = whole.removeprefix(self.location.url).strip("/")
        return ExportFolder(path, build[1].lower(), pipeline[1].lower() if pipeline else None, files)

    def read_build(self, folder: ExportFolder) -> ExportedBuild:
        """Read a build without its jobs; raise DamagedExport if that is not the build that the folder names."""
        if _BUILD_FILE not in folder.files:
            raise DamagedExport(f"there is no {_BUILD_FILE}")
        body = self._read(folder, _BUILD_FILE, MAX_BYTES)
        row, odd = _decode(_BUILD_FILE, body, functools.partial(read_row, _BUILD_ROW))
        _check_id(_BUILD_FILE, row.id, folder.build_id)
        if row.pipeline is None:
            row.pipeline = read_row(_BUILD_ROW, b'{"pipeline": {}}')[0].pipeline
        row.pipeline.id = row.pipeline.id or folder.pipeline_id
        if folder.pipeline_id not in (None, (row.pipeline.id or "").lower()):
            raise DamagedExport(f"{_BUILD_FILE} is of the pipeline {show(row.pipeline.id)}")
        if row.number is None or row.state is None or row.created_at is None:
            raise DamagedExport(f"{_BUILD_FILE} has no number, no state or no created_at")
        times = _times(row)
        if times[0].year not in VALID_YEARS:
            raise DamagedExport(f"{_BUILD_FILE} was created in the year {times[0].year}")
        return ExportedBuild(folder, row, times[0], max(times), len(body), len(odd))

    def read_jobs(self, build: ExportedBuild) -> ExportedBuild:
        """Return the build with all its jobs; raise DamagedExport if a job is damaged, missing or of another build."""
        folder, row, size = build.folder, build.row, build.size
        jobs = []
        n_odd = build.odd
        for id, name in folder.job_files.items():
            body = self._read(folder, name, MAX_BYTES - size)
            size += len(body)
            job, odd = _decode(name, body, functools.partial(read_row, _JOB_ROW))
            n_odd += len(odd)
            _check_id(name, job.id, id)
            if (page := _page(job.web_url)) and page != (_page(row.web_url) or page):
                raise DamagedExport(f"{name} is a job of another build, {page}")
            jobs.append(job)
        _check_whole(row, jobs)
        row.jobs = jobs
        return ExportedBuild(folder, row, build.created, build.latest, size, n_odd)

    def _read(self, folder: ExportFolder, name: str, most: int) -> bytes:
        """Return a decompressed file. An object store may have decompressed it already."""
        if folder.files[name] > most:
            raise DamagedExport(_TOO_LARGE)
        with self._reading(), self._files.open_input_file(posixpath.join(folder.path, name)) as file:
            data = bytes(file.read())
        if not data.startswith(_GZIP_MAGIC):
            return data
        try:
            with gzip.GzipFile(fileobj=BytesIO(data)) as unzipped:
                body = unzipped.read(most + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as why:
            raise DamagedExport(f"{name} cannot be decompressed: {why}") from None
        if len(body) > most:
            raise DamagedExport(_TOO_LARGE)
        return body

    def _reading(self) -> Any:
        return store_errors("read", self.location, "The exports", "What was imported stays; import again to continue.")


_TOO_LARGE = f"it has more than {MAX_BYTES:,} bytes after decompression"


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
        raise DamagedExport(f"{name} cannot be read: {why}") from None


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
