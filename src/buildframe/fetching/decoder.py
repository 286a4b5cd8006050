"""A page's bytes -> typed rows -> Arrow tables -> frames, with the columns that are wanted and no others."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, NamedTuple

import msgspec
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.fetching import arrow
from buildframe.fetching.options import Extra
from buildframe.http import protocol, response
from buildframe.http.request_body import nearest
from buildframe.spec import TABLES, Resource, key_of
from buildframe.spec.rows import MORE, Path, row_type, sort_paths


@dataclass(frozen=True)
class Wanted:
    """What is wanted of each row of a table: its declared columns, all or those named, and more by path.

    Unknown columns, duplicates, an empty list and paths that are none raise BadInput.
    """

    table: str
    columns: Sequence[str] | None = None
    extra: Extra = field(default_factory=dict)
    raw: bool = False

    def __post_init__(self) -> None:
        if self.columns is not None:
            if isinstance(self.columns, Iterable) and not isinstance(self.columns, str | Set | Mapping):
                object.__setattr__(self, "columns", tuple(self.columns))  # of a frame's columns, too
            _check_columns(self.table, self.columns)
        if not isinstance(self.extra, Mapping) or not all(map(_is_path, self.extra.values())):
            raise BadInput(f'extra={self.extra!r}: name columns and their paths, as in {{"team": "meta_data.team"}}.')
        known = {column.name for column in TABLES[self.table]} | ({"raw"} if self.raw else set())
        if taken := sorted(known & set(self.extra)):
            raise BadInput(f"extra={taken}: {self.table} have such columns already; choose other names.")

    @property
    def declared(self) -> tuple[str, ...]:
        """The names of the declared columns, in the order asked for."""
        return tuple(column.name for column in TABLES[self.table]) if self.columns is None else tuple(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns beyond the declared ones."""
        return (*self.extra, *(("raw",) if self.raw else ()))

    @property
    def looks_into_pipeline(self) -> bool:
        """Whether something beyond the declared columns lies in a build's `pipeline`, or may."""
        inside = ("build", "pipeline") if self.table == "jobs" else ("pipeline",)
        paths = [*arrow.paths_of(self.extra).values(), *([("pipeline",)] if self.raw else [])]
        return any(path[: len(inside)] == inside[: len(path)] for path in paths)

    def read(self, document: Mapping[str, Any], build: Mapping[str, Any]) -> dict[str, str | None]:
        """Their values in one decoded record; a path that begins with `build` goes to the record's build."""
        found: dict[str, str | None] = {}
        for name, path in arrow.paths_of(self.extra).items():
            upward = self.table == "jobs" and path[:1] == ("build",)
            found[name] = arrow.at_path(build, path[1:]) if upward else arrow.at_path(document, path)
        return found | ({"raw": arrow.at_path(document, ())} if self.raw else {})

    def warn_if_nowhere(self, frame: pd.DataFrame) -> None:
        """A path that leads nowhere in any row is more likely misspelt than empty."""
        for name, path in self.extra.items():
            if len(frame) and frame[name].isna().all():
                warnings.warn(f"extra: none of the {len(frame)} {self.table} has anything at {path!r}.", stacklevel=6)


def _check_columns(table: str, columns: Any) -> None:
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise BadInput(f'columns={columns!r}: pass a list of names, such as ["{TABLES[table][0].name}"].')
    known = [column.name for column in TABLES[table]]
    for name in columns:
        if name not in known:
            raise BadInput(f"columns: {table} have no column {name!r}.{nearest(str(name), known)}")
    if len(set(columns)) < len(columns):
        raise BadInput(f"columns={list(columns)}: each name once.")


def _is_path(path: Any) -> bool:
    return isinstance(path, str) or (isinstance(path, Sequence) and all(isinstance(key, str) for key in path))


class Decoded(NamedTuple):
    """One page as Arrow tables: its rows, and the jobs inside them where these are wanted."""

    rows: pa.Table
    jobs: pa.Table | None


_ORDERED_BY = {"builds": ("created_at",)}
"""Columns by which a list is ordered; rows contain them and their keys whatever columns are selected."""


class Decoding:
    """How the pages of one list become frames: of `wanted`, and of the `jobs` inside its builds."""

    def __init__(self, resource: type[Resource], wanted: Wanted, jobs: Wanted | None = None) -> None:
        self._wanted = wanted
        self._jobs = jobs
        beside = {} if jobs is None else arrow.beside(jobs.declared)
        self._heads = _and(wanted.declared, beside.values())
        self._resource = resource
        self._paths = self._needed()
        self._decoder = self._new_decoder()
        self._knows_order = False

    def _new_decoder(self) -> msgspec.json.Decoder[list[Any]]:
        return msgspec.json.Decoder(GenericAlias(list, (row_type(self._resource, self._paths),)), strict=False)

    def _needed(self) -> tuple[Path, ...]:
        """Where everything lies that rows must carry."""
        table = self._wanted.table
        keys = (*key_of(self._resource), *_ORDERED_BY.get(table, ()))
        own = arrow.needed_for(table, _and(self._heads, keys))
        jobs = [] if self._jobs is None else arrow.needed_for("jobs", _and(self._jobs.declared, ["id"]))
        return (*(c.path for c in own if c.path), *(("jobs", *c.path) for c in jobs if c.path))

    @property
    def leaves_out_pipeline(self) -> bool:
        """Whether nothing that is wanted lies only in a build's `pipeline`, so that the list may be asked without it.

        Never where all columns of builds, or of jobs, are wanted.
        """
        only_there = (c for c in arrow.columns_named("builds", self._heads) if not c.derived)
        by_path = self._wanted.looks_into_pipeline or (self._jobs is not None and self._jobs.looks_into_pipeline)
        return not by_path and not any(column.path[:1] == ("pipeline",) for column in only_there)

    def read(self, request: protocol.Request, response: response.Response) -> protocol.Page:
        """The page that an answer holds; its rows carry what `tables` turns into columns."""
        page = protocol.read_page(request, response, self._decoder)
        if page.rows and not self._knows_order:
            self._learn_order(response.body)
        if self._wanted.names or (self._jobs is not None and self._jobs.names):
            for row, document in zip(page.rows, protocol.read_documents(request, response), strict=True):
                self._add_more(row, document)
        return page

    def _learn_order(self, body: bytes) -> None:
        """The next pages are read faster: each key is looked for where it was in the first; threads learn alike."""
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # it was mended to be read
            self._paths = sort_paths(self._paths, body)
            self._decoder = self._new_decoder()
            self._knows_order = True

    def _add_more(self, row: Any, document: Mapping[str, Any]) -> None:
        """A second reading of a row: the values that are wanted by path."""
        setattr(row, MORE, self._wanted.read(document, document))
        if self._jobs is not None:
            for job, part in zip(row.jobs or (), document.get("jobs") or (), strict=True):
                setattr(job, MORE, self._jobs.read(part, document))

    def tables(self, page: protocol.Page) -> Decoded:
        """The rows of a page, or what is left of them, as Arrow tables; a value that does not fit raises Malformed."""
        heads = arrow.from_rows(self._wanted.table, page.rows, page.at, self._heads, self._wanted.names)
        rows = heads.select([*self._wanted.declared, *self._wanted.names])
        if self._jobs is None:
            return Decoded(rows, None)
        return Decoded(rows, arrow.jobs_of(heads, page.rows, self._jobs.declared, self._jobs.names))

    def frame(self, parts: Sequence[pa.Table]) -> pd.DataFrame:
        """The frame of `parts`, with the declared dtypes also where there are no rows."""
        return _frame(self._wanted, parts)

    def job_frame(self, parts: Sequence[pa.Table]) -> pd.DataFrame:
        """The same for the tables of jobs."""
        return _frame(self._jobs or Wanted("jobs"), parts)


def _and(names: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """Both, each name once."""
    return tuple(dict.fromkeys([*names, *others]))


def _frame(wanted: Wanted, parts: Sequence[pa.Table]) -> pd.DataFrame:
    frame = arrow.to_frame(wanted.table, parts, wanted.declared, wanted.names)
    wanted.warn_if_nowhere(frame)
    return frame
