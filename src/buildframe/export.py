"""Export one table from a store or the service to a Parquet or CSV file, on disk or in an object store.

Does not know the command line.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import parse_qs, urlsplit

import pandas as pd

from buildframe.errors import BadInput
from buildframe.spec import TABLES, BuildFilters, Moment, is_relative, when
from buildframe.store import files, objects
from buildframe.store.retained_columns import PERIOD, PERSONAL, SECRET, Retention
from buildframe.store.store import Store
from buildframe.terminal import nearest
from buildframe.workspace import Workspace
from buildframe.workspace.flaky_windows import FlakyTestLists

__all__ = ["ExportOptions", "ExportResult", "write"]

TIME_RANGE_TABLES = ("builds", "jobs")
"""Tables that are exported for a range of creation times. The others are exported as last listed."""

_DEFAULT_AGE = "30d"
_FLAGS = {"--personal": PERSONAL, "--env": SECRET}


@dataclass(frozen=True)
class ExportOptions:
    """
    Hold the options of an export.

    Parameters
    ----------
    out : str
        File to write, or its URL in an object store. Its suffix, `.parquet` or `.csv`, defines the format.
    table : str
        Table to export: `builds`, `jobs`, `pipelines`, `members` or `flaky_tests`.
    retention : Retention
        Whether personal and secret columns are included. Applies to stores and to the service.
    created_from, created_to : str, optional
        Range of creation times of builds: an ISO date, a time or an age. By default the last 30 days.
    pipeline : str, optional
        Slug of the pipeline whose builds or jobs are exported. By default all pipelines.
    suite : str, optional
        Slug of the test suite whose flaky tests are exported.
    columns : sequence of str, optional
        Columns in the order in which they are written. By default all columns that `retention` allows.

    Raises
    ------
    BadInput
        If an option is invalid or does not apply to the table.
    MissingExtra
        If `out` is a URL, and the extra `store` is not installed.
    """

    out: str
    table: str
    retention: Retention
    created_from: str | None = None
    created_to: str | None = None
    pipeline: str | None = None
    suite: str | None = None
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if PurePath(self.out).suffix.lower() not in (".parquet", ".csv"):
            raise BadInput(f"{self.out!r} is neither a Parquet nor a CSV file. End its name in .parquet or .csv.")
        if objects.is_url(self.out):
            objects.check(self.out)
        else:
            files.check_writable(files.target(self.out).parent)
        self._refuse(
            "--from, --to and --pipeline", TIME_RANGE_TABLES, self.created_from, self.created_to, self.pipeline
        )
        self._refuse("--suite", ("flaky_tests",), self.suite)
        if self.table == "members" and not self.retention.personal:
            raise BadInput("members contain names and e-mail addresses. Add --personal to export them.")
        known = dict.fromkeys([*(c.name for c in TABLES[self.table]), *self.retention.schema(self.table).names])
        for name in self.columns or ():
            if name in self.excluded:
                needed = [flag for flag, columns in _FLAGS.items() if name in columns[self.table]]
                why = f"Add {needed[0]} to export it." if needed else "It is valid at the time of a request only."
                raise BadInput(f"--columns: {name} of {self.table} is not exported. {why}")
            _check_column(self.table, name, list(known))
        self._check_times()

    @property
    def excluded(self) -> frozenset[str]:
        """Names of the columns that are not exported."""
        return self.retention.excluded_columns(self.table)

    def _refuse(self, options: str, tables: Sequence[str], *values: str | None) -> None:
        if self.table not in tables and any(value is not None for value in values):
            raise BadInput(f"{options} cannot be used with {self.table}, only with {' and '.join(tables)}.")

    def _check_times(self) -> None:
        """Compare the times if both are ages or both are dates. Mixed times need the time of the service."""
        now, since, until = Moment.of(dt.datetime.now(dt.UTC)), self.created_from or _DEFAULT_AGE, self.created_to
        first = when(since, "--from", now)
        if until is None:
            return
        last = when(until, "--to", now)
        if is_relative(since) == is_relative(until) and first >= last:
            raise BadInput(f"--from {since} is not before --to {until}. Exchange them.")


@dataclass(frozen=True)
class ExportResult:
    """
    Hold the result of an export.

    Parameters
    ----------
    frame : DataFrame
        Rows that were written.
    as_of : str
        Time at which the rows were listed.
    time_range : str
        Text that describes the range of creation times.
    why : str, optional
        Reason why the rows are incomplete. None if they are complete.
    """

    frame: pd.DataFrame
    as_of: str
    time_range: str = ""
    why: str | None = None

    def summary(self, options: ExportOptions) -> str:
        """
        Describe the result in one line.

        Parameters
        ----------
        options : ExportOptions
            Options of the export.

        Returns
        -------
        str
            The file, the number of rows, the time range and the completeness.
        """
        state = f"complete as of {self.as_of}" if self.why is None else f"INCOMPLETE: {self.why}"
        return f"{options.out}: {len(self.frame):,} {options.table.replace('_', ' ')}{self.time_range}; {state}"


def write(source: Workspace | Store, options: ExportOptions) -> ExportResult:
    """
    Export a table from the service or a store.

    Parameters
    ----------
    source : Workspace or Store
        Connection or store to read from.
    options : ExportOptions
        Table, file and filters.

    Returns
    -------
    ExportResult
        The rows and whether they are complete.

    Raises
    ------
    BadInput
        If the source lacks a column or a suite, or the file cannot be written.
    StoreFailed
        If the object store cannot be written.
    """
    if options.table not in TIME_RANGE_TABLES:
        result = _from_list(source, options)
    else:
        result = _stored_builds(source, options) if isinstance(source, Store) else _fetched_builds(source, options)
    if objects.is_url(options.out):
        objects.upload(options.out, result.frame)
    else:
        files.save(options.out, result.frame)
    return result


def _from_list(source: Workspace | Store, options: ExportOptions) -> ExportResult:
    """Return a whole list, with the columns that identify it."""
    organization = source.organization if isinstance(source, Workspace) else None
    frame = _list(source, options)
    for name, value in (("suite", options.suite), ("organization", organization)):
        if value is not None and name not in frame:
            frame.insert(0, name, pd.Series(value, frame.index, dtype=frame["name"].dtype))
    return ExportResult(_selected(frame, options), frame.attrs["as_of"], why=frame.attrs.get("why"))


def _list(source: Workspace | Store, options: ExportOptions) -> pd.DataFrame:
    """Return a list. One of flaky tests has its period, which is that of a sync."""
    if options.table != "flaky_tests":
        frame: pd.DataFrame = getattr(source, options.table)()
        return frame
    if isinstance(source, Store):
        return source.flaky_tests(options.suite)
    if options.suite is None:
        raise BadInput("The service lists flaky tests per suite. Name one with --suite.")
    tests, period = FlakyTestLists(source).list(options.suite)
    return tests.assign(**{PERIOD: pd.Series(period, tests.index, dtype=tests["name"].dtype)})


def _fetched_builds(ws: Workspace, options: ExportOptions) -> ExportResult:
    lists = ws if options.pipeline is None else ws.pipeline(options.pipeline)
    columns = options.columns or [c.name for c in TABLES[options.table] if c.name not in options.excluded]
    read = lists.builds if options.table == "builds" else lists.jobs
    filters: BuildFilters = {"created_from": options.created_from or _DEFAULT_AGE}
    if options.created_to is not None:
        filters["created_to"] = options.created_to
    frame = read(columns=columns, **filters)
    as_of, query = frame.attrs["as_of"], parse_qs(urlsplit(frame.attrs["source"]).query)
    time_range = _time_range(options, query["created_from"][0], query.get("created_to", [as_of])[0])
    return ExportResult(frame, as_of, time_range, frame.attrs["why"])


def _stored_builds(store: Store, options: ExportOptions) -> ExportResult:
    since, until = _complete_range(store, options.pipeline)
    first = when(options.created_from or _DEFAULT_AGE, "--from", store.as_of)
    last = None if options.created_to is None else when(options.created_to, "--to", store.as_of)
    why = None
    if first < since:
        why = f"the store is complete from {since.text()} only"
    elif last is not None and last > until:
        why = f"the store is complete up to {until.text()} only"
    if last is None and until < store.as_of:  # later builds may be incomplete
        last = until
    read = store.builds if options.table == "builds" else store.jobs
    frame = read(created_from=first, created_to=last, pipeline=options.pipeline, columns=options.columns)
    time_range = _time_range(options, first.text(), (last or until).text())
    return ExportResult(_selected(frame, options), until.text(), time_range, why)


def _complete_range(store: Store, pipeline: str | None) -> tuple[Moment, Moment]:
    """Return the time range for which the store has all builds, or all builds of a pipeline."""
    covers = store.covers
    if pipeline is not None:
        rows = store.builds(pipeline=pipeline, columns=["organization", "pipeline_id"]).drop_duplicates()
        scopes = {scope for org, id in rows.itertuples(index=False) for scope in (org, f"{org}/{id}")} & set(covers)
        if scopes:
            return _latest_contiguous([covers[scope] for scope in scopes])
    ranges = [times for scope, times in covers.items() if "/" not in scope or scope.split("/")[0] not in covers]
    return max(since for since, _ in ranges), min(until for _, until in ranges)


def _latest_contiguous(ranges: Sequence[tuple[Moment, Moment]]) -> tuple[Moment, Moment]:
    """Return the latest of several time ranges, extended by the ranges that touch it."""
    *others, (since, until) = sorted(ranges)
    for start, end in reversed(others):
        if end >= since:
            since, until = start, max(until, end)
    return since, until


def _selected(frame: pd.DataFrame, options: ExportOptions) -> pd.DataFrame:
    """Return the exported columns of a frame. Raise BadInput if a selected column is missing."""
    if options.columns is None:
        for flag, columns in _FLAGS.items():
            selected = columns[options.table] - options.excluded
            if not selected.issubset(frame):
                raise BadInput(f"{flag}: the store has no {', '.join(sorted(selected))}. Sync it with {flag}.")
        return frame.drop(columns=[name for name in frame if name in options.excluded])
    for name in options.columns:
        _check_column(options.table, name, [*map(str, frame)])
    return frame[list(options.columns)]


def _check_column(table: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise BadInput(f"--columns: {table} has no column {name!r}.{nearest(name, known)}")


def _time_range(options: ExportOptions, first: str, last: str) -> str:
    return f"{' of builds' if options.table == 'jobs' else ''} created from {first} to {last}"
