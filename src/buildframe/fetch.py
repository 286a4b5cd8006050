"""From a list's pages to frames: one walk, its progress bar, its tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from types import GenericAlias
from typing import Any, Self, TypeVar

import msgspec
import pandas as pd
import pyarrow as pa
from tqdm.auto import tqdm

from buildframe import spec, tables, wire
from buildframe.client import Client
from buildframe.errors import BadInput, Malformed
from buildframe.spec import TABLES, Build, Endpoint, Moment, Resource
from buildframe.spec.rows import MORE, row_type
from buildframe.walk import BuildWalk, LinkWalk, Window
from buildframe.wire import Answer, Page, Request

Extra = Mapping[str, str | Sequence[str]]
"""More text columns, by path: {"team": "meta_data.team"}; a sequence of keys where a key holds a dot."""

R = TypeVar("R", bound=Resource)

PAGE_SIZE = 100
_KEYS = {"team_pipelines": attrgetter("pipeline_id"), "emojis": attrgetter("name", "url")}
"""What tells the rows of a list apart, where they have no `id`."""
_CHANGING = {"state", "finished_from"}
_CHANGED = "filtered by {}, which changes: builds that changed during the walk may or may not be here"
_BY_NUMBER = "read by page numbers: where an entry was deleted meanwhile, another one may be missing"
_BAR = "{desc} {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"


@dataclass(frozen=True)
class Source:
    """A list of the service: which endpoint, with which arguments in its path."""

    client: Client
    endpoint: Endpoint
    arguments: tuple[str, ...] = ()

    def url(self, filters: Mapping[str, Any]) -> str:
        """The list's address with these filters."""
        return self.client.base_url + wire.place(self.endpoint, *self.arguments, **filters).target

    def page(self, filters: Mapping[str, Any], per_page: int = PAGE_SIZE) -> Request:
        """The request for a page of it, or for all of it where it has no pages."""
        if not self.endpoint.paginated:
            return wire.place(self.endpoint, *self.arguments, **filters)
        return wire.place_page(self.endpoint, *self.arguments, per_page=per_page, **filters)

    def timed(self, filters: Mapping[str, Any]) -> dict[str, Any]:
        """Those of `filters` that are moments."""
        names = {entry.name for entry in self.endpoint.filters if entry.kind == "moment"}
        return {name: value for name, value in filters.items() if name in names and value is not None}


@dataclass(frozen=True)
class More:
    """What is wanted of each row beyond its declared columns."""

    table: str
    extra: Extra = field(default_factory=dict)
    raw: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.extra, Mapping) or not all(map(_is_path, self.extra.values())):
            raise BadInput(f'extra={self.extra!r}: name columns and their paths, as in {{"team": "meta_data.team"}}.')
        known = {column.name for column in TABLES[self.table]} | ({"raw"} if self.raw else set())
        if taken := sorted(known & set(self.extra)):
            raise BadInput(f"extra={taken}: {self.table} have such columns already; choose other names.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of these columns."""
        return (*self.extra, *(("raw",) if self.raw else ()))

    def read(self, document: Mapping[str, Any], build: Mapping[str, Any]) -> dict[str, str | None]:
        """Their values in one decoded record; a path that begins with `build` goes to the record's build."""
        found: dict[str, str | None] = {}
        for name, path in tables.paths_of(self.extra).items():
            upward = self.table == "jobs" and path[0] == "build"
            found[name] = tables.at_path(build, path[1:]) if upward else tables.at_path(document, path)
        return found | ({"raw": tables.at_path(document, ())} if self.raw else {})

    def warn_if_nowhere(self, frame: pd.DataFrame) -> None:
        """A path that leads nowhere in any row is more likely misspelt than empty."""
        for name, path in self.extra.items():
            if len(frame) and frame[name].isna().all():
                warnings.warn(f"extra: none of the {len(frame)} {self.table} has anything at {path!r}.", stacklevel=5)


def _is_path(path: Any) -> bool:
    return isinstance(path, str) or (isinstance(path, Sequence) and all(isinstance(key, str) for key in path))


def records(
    source: Source, more: More, progress: bool | None, filters: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """A list without an order in time (pipelines, members and so on) as a frame."""
    table, chosen = more.table, filters or {}
    assert source.endpoint.returns is not None
    with _without_token(source.client), _Bar(table.replace("_", " "), progress) as bar:
        ask = _Asking(source, _reader(source.endpoint.returns, more), bar)
        walk = LinkWalk(lambda: ask.page(chosen), ask.follow, _KEYS.get(table, attrgetter("id")))
        parts = [tables.from_rows(table, page.rows, page.at, more.names) for page in bar.over(walk)]
    summary = _summary(source, chosen, walk, ask)
    return _framed(table, parts, more, summary | ({"note": _BY_NUMBER} if walk.requests > 1 else {}))


@contextmanager
def _without_token(client: Client) -> Iterator[None]:
    """An error that quotes a value of an answer must not show the token, should a server echo it."""
    try:
        yield
        return
    except Malformed as why:
        told = client.without_token(str(why))
    raise Malformed(told)


def record(client: Client, request: Request, kind: type[R], look: str = "") -> R:
    """The record that a request answers with; `look` tells how to see what became of an action without an answer."""
    found = client.fetch(request, lambda answer: wire.read_record(request, answer), look=look)
    assert isinstance(found, kind)
    return found


def nothing(client: Client, request: Request, look: str) -> None:
    """Send an action that answers with nothing of use."""
    client.fetch(request, lambda answer: wire.read_nothing(request, answer), look=look)


def builds(
    source: Source, filters: Mapping[str, Any], more: More, job_more: More | None, progress: bool | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One walk over a list of builds: their frame, and the frame of their jobs (empty without `job_more`)."""
    _refuse_early(source, filters)
    with _without_token(source.client), _Bar("builds", progress) as bar:
        ask = _Asking(source, _reader(Build, more, job_more), bar)
        settled = dict(filters) | _settled(source.timed(filters), ask)
        others = {name: value for name, value in settled.items() if name not in {"created_from", "created_to"}}
        walk = BuildWalk(lambda part: ask.page(others | _bounds(part)), ask.follow, _window(settled))
        heads, jobs = _tables(bar.over(walk), more, job_more)
    summary = _summary(source, settled, walk, ask)
    return _framed("builds", heads, more, summary), _framed("jobs", jobs, job_more or More("jobs"), summary)


def _tables(pages: Iterable[Page], more: More, job_more: More | None) -> tuple[list[pa.Table], list[pa.Table]]:
    heads, jobs = [], []
    for page in pages:
        heads.append(tables.from_rows("builds", page.rows, page.at, more.names))
        if job_more is not None:
            jobs.append(tables.jobs_of(heads[-1], page.rows, job_more.names))
    return heads, jobs


def _refuse_early(source: Source, filters: Mapping[str, Any]) -> None:
    ages = {name for name, value in source.timed(filters).items() if spec.is_relative(value)}
    source.page({name: value for name, value in filters.items() if name not in ages})


def _settled(timed: Mapping[str, Any], ask: _Asking) -> dict[str, Moment]:
    """Moments for all times; ages count back from the service's time, which one small answer tells."""
    now = ask.now() if any(spec.is_relative(value) for value in timed.values()) else None
    return {name: spec.when(value, name, now) for name, value in timed.items()}


def _window(filters: Mapping[str, Any]) -> Window:
    window = Window(filters.get("created_from"), filters.get("created_to"))
    if window.start is not None and window.end is not None and window.start >= window.end:
        raise BadInput(f"No time lies between: {window}. Exchange created_from and created_to?")
    return window


def _bounds(window: Window) -> dict[str, Moment]:
    bounds = {"created_from": window.start, "created_to": window.end}
    return {name: bound for name, bound in bounds.items() if bound is not None}


Read = Callable[[Request, Answer], Page]


class _Asking:
    """Pages of one list, fetched through its client; what the client waits for shows on the bar."""

    def __init__(self, source: Source, read: Read, bar: _Bar) -> None:
        self._source = source
        self._read = read
        self._bar = bar
        self._latest = source.page({})
        self.requests = 0

    def page(self, filters: Mapping[str, Any]) -> Page:
        return self._fetch(self._source.page(filters))

    def follow(self, link: str) -> Page:
        return self._fetch(self._source.client.follow(self._latest, link))

    def now(self) -> Moment:
        self.requests += 1
        request = self._source.page({"exclude_jobs": True}, per_page=1)
        return self._source.client.fetch(request, lambda answer: wire.read_date(request, answer), self._bar.wait)

    def _fetch(self, request: Request) -> Page:
        self.requests += 1
        self._latest = request
        return self._source.client.fetch(request, lambda answer: self._read(request, answer), self._bar.wait)


def _reader(resource: type[Resource], more: More, job_more: More | None = None) -> Read:
    rows = row_type(resource, nested_lists=job_more is not None)
    decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(GenericAlias(list, (rows,)), strict=False)

    def read(request: Request, answer: Answer) -> Page:
        page = wire.read_page(request, answer, decoder)
        if more.names or (job_more is not None and job_more.names):
            for row, document in zip(page.rows, wire.read_documents(request, answer), strict=True):
                _add_more(row, document, more, job_more)
        return page

    return read


def _add_more(row: Any, document: Mapping[str, Any], more: More, job_more: More | None) -> None:
    """A second reading of a row: the values that are wanted by path."""
    setattr(row, MORE, more.read(document, document))
    if job_more is not None:
        for job, part in zip(row.jobs or (), document.get("jobs") or (), strict=True):
            setattr(job, MORE, job_more.read(part, document))


def _framed(table: str, parts: list[pa.Table], more: More, summary: dict[str, Any]) -> pd.DataFrame:
    frame = tables.to_frame(table, parts, more.names)
    frame.attrs.update({"table": table} | summary)
    more.warn_if_nowhere(frame)
    return frame


def _summary(source: Source, filters: Mapping[str, Any], walk: LinkWalk, ask: _Asking) -> dict[str, Any]:
    """What `frame.attrs` tells of a walk; plain values, so that they survive Parquet."""
    changing = sorted(_CHANGING & {name for name, value in filters.items() if value is not None})
    return {
        "source": source.url(filters),
        "as_of": walk.as_of.text() if walk.as_of else None,
        "complete": True,
        "note": _CHANGED.format(" and ".join(changing)) if changing else None,
        "requests": ask.requests,
    }


class _Bar:
    """The progress bar of one walk: in notebooks and terminals, silent elsewhere unless `progress=True`."""

    def __init__(self, what: str, progress: bool | None) -> None:
        disable = None if progress is None else not progress
        self._what = what
        self._bar: tqdm[Any] = tqdm(desc=what, total=100.0, bar_format=_BAR, disable=disable)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._bar.close()

    def wait(self, seconds: float, why: str) -> None:
        self._bar.set_postfix_str(f"waiting {seconds:.0f} s: {why}")

    def over(self, walk: LinkWalk) -> Iterator[Page]:
        """The walk's pages, each shown on the bar as it is used."""
        for page in walk:
            yield page
            self._bar.set_postfix_str(f"{walk.rows:,} {self._what} in {walk.requests} answers")
            self._bar.update(100.0 * (walk.share or 0.0) - self._bar.n)
        self._bar.update(100.0 - self._bar.n)
