"""Decode pages to rows, Arrow tables and frames with the selected columns. Does not know pagination."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import GenericAlias
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.fetching import arrow
from buildframe.fetching.options import Extra
from buildframe.http import protocol
from buildframe.http.response import Response
from buildframe.spec import TABLES, Privacy, Resource, key_of
from buildframe.spec.decoders import decoder_of
from buildframe.spec.odd_values import OddValues
from buildframe.spec.rows import MORE, Path, RowDecoder, row_type, sort_paths
from buildframe.terminal import nearest, show


@dataclass(frozen=True)
class ColumnSelection:
    """The selected columns of a table: declared ones (None: all), and additional ones by path.

    Unknown columns, duplicates, an empty list and invalid paths raise BadInput.
    """

    table: str
    columns: Sequence[str] | None = None
    extra: Extra = field(default_factory=dict)
    raw: bool = False
    prefix: str = ""
    """Begins the names of the options that select them, such as `job_columns`."""

    @classmethod
    def of(cls, table: str, options: Mapping[str, Any], prefix: str = "") -> ColumnSelection:
        """Return the columns that options of a list select."""
        columns, extra = options.get(f"{prefix}columns"), options.get(f"{prefix}extra") or {}
        return cls(table, columns, extra, options.get("raw", False), prefix)

    def __post_init__(self) -> None:
        if self.columns is not None:
            if isinstance(self.columns, Iterable) and not isinstance(self.columns, str | Set | Mapping):
                object.__setattr__(self, "columns", tuple(self.columns))  # also the index `frame.columns`
            _check_columns(f"{self.prefix}columns", self.table, self.columns)
        if not isinstance(self.extra, Mapping) or not all(map(_is_path, self.extra.values())):
            raise BadInput(
                f'{self.prefix}extra={show(self.extra)}: pass names and paths, such as {{"team": "meta_data.team"}}.'
            )
        for name in self.extra:
            if not isinstance(name, str) or name.encode(errors="replace").decode() != name:
                problem = "is not a name of a column. Use text that UTF-8 can encode."
                raise BadInput(f"{self.prefix}extra: {show(name)} {problem}")
        known = {column.name for column in TABLES[self.table]} | ({"raw"} if self.raw else set())
        if duplicates := sorted(known & set(self.extra)):
            raise BadInput(
                f"{self.prefix}extra={duplicates}: {self.table} already have these columns. Choose other names."
            )

    @property
    def declared(self) -> tuple[str, ...]:
        """The names of the declared columns, in the requested order."""
        return tuple(column.name for column in TABLES[self.table]) if self.columns is None else tuple(self.columns)

    @property
    def additional(self) -> tuple[str, ...]:
        """The names of the additional columns."""
        return (*self.extra, *(("raw",) if self.raw else ()))

    @property
    def needs_pipeline(self) -> bool:
        """Whether an additional column may need the `pipeline` of a build."""
        inside = ("build", "pipeline") if self.table == "jobs" else ("pipeline",)
        paths = [*arrow.split_paths(self.extra).values(), *([("pipeline",)] if self.raw else [])]
        return any(path[: len(inside)] == inside[: len(path)] for path in paths)

    def read(self, document: Mapping[str, Any], build: Mapping[str, Any]) -> dict[str, str | None]:
        """Return the additional values of a record; of a job, a path that begins with `build` leads to its build."""
        found: dict[str, str | None] = {}
        for name, path in arrow.split_paths(self.extra).items():
            upward = self.table == "jobs" and path[:1] == ("build",)
            found[name] = arrow.value_at(build, path[1:]) if upward else arrow.value_at(document, path)
        return found | ({"raw": arrow.value_at(document, ())} if self.raw else {})

    def frame(self, tables: Sequence[pa.Table]) -> pd.DataFrame:
        """Return the frame of the tables; warn about paths without a value in any row, as if misspelled."""
        frame = arrow.to_frame(self.table, tables, self.declared, self.additional)
        for name, path in self.extra.items():
            if len(frame) and frame[name].isna().all():
                warnings.warn(
                    f"{self.prefix}extra: none of the {len(frame)} {self.table} has a value at {path!r}.", stacklevel=7
                )
        return frame


def _check_columns(option: str, table: str, columns: Any) -> None:
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise BadInput(f'{option}={show(columns)}: pass a list of column names, such as ["{TABLES[table][0].name}"].')
    known = [column.name for column in TABLES[table]]
    for name in columns:
        if name not in known:
            raise BadInput(f"{option}: {table} have no column {show(name)}.{nearest(str(name), known)}")
    if len(set(columns)) < len(columns):
        raise BadInput(f"{option}={list(columns)} contains a name twice. Pass each name once.")


def _is_path(path: Any) -> bool:
    return isinstance(path, str) or (isinstance(path, Sequence) and all(isinstance(key, str) for key in path))


_ORDERED_BY = {"builds": ("created_at",)}
"""Columns by which a list is ordered; rows contain them and their keys whatever columns are selected."""


def may_be_shown(table: str) -> Callable[[str, bool], bool]:
    """Return whether values of a field of a table, or of its jobs, may be shown.

    All columns of the field must be plain.
    """

    def is_plain(path: str, is_of_job: bool) -> bool:
        keys = tuple(path.split("."))
        columns = [column for column in TABLES["jobs" if is_of_job else table] if column.path[: len(keys)] == keys]
        return bool(columns) and all(column.privacy is Privacy.PLAIN for column in columns)

    return is_plain


class PageDecoder:
    """Decodes the pages of one list to frames: of its rows, and of the `jobs` in its builds.

    `build` is the record whose jobs the list contains, if it is one of a build: additional columns
    may come from it, and the rows of all pages have one type, so that they can be converted
    together.
    """

    def __init__(
        self,
        resource: type[Resource],
        selection: ColumnSelection,
        jobs: ColumnSelection | None = None,
        build: Mapping[str, Any] | None = None,
    ) -> None:
        self._build = build
        self._selection = selection
        self._jobs = jobs
        from_builds = {} if jobs is None else arrow.build_columns_of(jobs.declared)
        self._decoded_columns = tuple(dict.fromkeys([*selection.declared, *from_builds.values()]))
        self._resource = resource
        self.odd = OddValues(may_be_shown(selection.table))
        """Values of the rows in `tables` that do not fit their columns."""

        self.key: Callable[[Any], Hashable] = attrgetter(*key_of(resource))
        self._decode_in_order(self._needed())
        self._knows_order = build is not None

    def _decode_in_order(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self._row = row_type(self._resource, paths)
        self._decoder = decoder_of(GenericAlias(list, (self._row,)), strict=False)

    def _needed(self) -> tuple[Path, ...]:
        """Return the paths that must be decoded."""
        keys = (*key_of(self._resource), *_ORDERED_BY.get(self._selection.table, ()))
        own = arrow.source_columns(self._selection.table, (*self._decoded_columns, *keys))
        jobs = [] if self._jobs is None else arrow.source_columns("jobs", (*self._jobs.declared, "id"))
        return (*(c.path for c in own if c.path), *(("jobs", *c.path) for c in jobs if c.path))

    @property
    def can_exclude_pipeline(self) -> bool:
        """Whether no selected column needs the `pipeline` of a build, so that responses can omit it."""
        only_there = (c for c in arrow.select_columns("builds", self._decoded_columns) if not c.derived)
        by_path = self._selection.needs_pipeline or (self._jobs is not None and self._jobs.needs_pipeline)
        return not by_path and not any(column.path[:1] == ("pipeline",) for column in only_there)

    def read(self, request: protocol.Request, response: Response) -> protocol.Page:
        """Return the page in a response, with the rows that `tables` converts."""
        response = protocol.open_envelope(request, response)
        decoder = RowDecoder(self._row, self._decoder)
        page = protocol.read_page(request, response, decoder)
        page = replace(page, odd=decoder.odd) if decoder.odd else page
        if page.rows and not self._knows_order:
            # The next pages decode faster if keys are expected where they were in the first. Threads learn the same.
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # of half surrogates
                self._decode_in_order(sort_paths(self._paths, response.body))
                self._knows_order = True
        if self._selection.additional or (self._jobs is not None and self._jobs.additional):
            documents = protocol.read_as(request, response, list[dict[str, Any]])
            for row, document in zip(page.rows, documents, strict=True):
                setattr(row, MORE, self._selection.read(document, self._build or document))
                if self._jobs is not None:
                    sent = document.get("jobs")
                    items = sent if isinstance(sent, list) else []
                    objects = [item for item in items if isinstance(item, dict)]
                    for job, job_document in zip(row.jobs or (), objects, strict=True):
                        setattr(job, MORE, self._jobs.read(job_document, document))
        return page

    def new_rows(self, page: protocol.Page) -> Sequence[Any]:
        """Return the rows of a page. Add its values that could not be decoded to `odd`."""
        rows_of_page = set(map(id, page.rows)) if page.odd else ()  # not those of earlier pages, which are left out
        for odd in page.odd:
            if id(odd.row) in rows_of_page:
                self.odd.add(odd)
        return page.rows

    def tables(self, page: protocol.Page) -> tuple[pa.Table, pa.Table | None]:
        """Return the rows of a page, and their jobs if selected.

        Values that do not fit are added to `odd`.
        """
        selection = self._selection
        decoded = arrow.from_rows(
            selection.table, self.new_rows(page), page.at, self._decoded_columns, selection.additional, self.odd.add
        )
        rows = decoded.select([*selection.declared, *selection.additional])
        if self._jobs is None:
            return rows, None
        jobs = arrow.jobs_of(decoded, page.rows, self._jobs.declared, self._jobs.additional, self.odd.add)
        return rows, jobs

    def frames(self, tables: Sequence[tuple[pa.Table, pa.Table | None]]) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the frames of rows and of selected jobs in the tables of pages, with the declared dtypes if empty."""
        rows = self._selection.frame([rows for rows, _ in tables])
        if self._jobs is None:
            return rows, pd.DataFrame()
        return rows, self._jobs.frame([jobs for _, jobs in tables if jobs is not None])
