"""One table, of a store or straight from the service, in one Parquet or CSV file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit

import pandas as pd

from buildframe.bodies import nearest
from buildframe.errors import BadInput
from buildframe.spec import TABLES, BuildFilters, Moment, is_relative, when
from buildframe.store import files
from buildframe.store.history import Store
from buildframe.store.kept import PERSONAL, SECRET, Keeping
from buildframe.workspace import Workspace

OF_BUILDS = ("builds", "jobs")
"""Tables that are exported for a window of time; of the others there is what is listed now."""

_AGE = "30d"
_FLAGS = {"--personal": PERSONAL, "--env": SECRET}


@dataclass(frozen=True)
class Asked:
    """What is to be exported, and where to.

    Times are what `created_from` and `created_to` of a list of builds take. What a store would not keep by `keeping` is
    left out, from wherever the table comes.
    """

    out: Path
    table: str
    keeping: Keeping
    created_from: str | None = None
    created_to: str | None = None
    pipeline: str | None = None
    suite: str | None = None
    columns: Sequence[str] | None = None

    def checked(self) -> Self:
        """Itself; BadInput for what cannot be meant, before anything is asked."""
        if self.out.suffix.lower() not in (".parquet", ".csv"):
            raise BadInput(f"{str(self.out)!r}: name a file that ends in .parquet or .csv.")
        files.target(self.out)
        self._refuse("--from, --to and --pipeline", OF_BUILDS, self.created_from, self.created_to, self.pipeline)
        self._refuse("--suite", ("flaky_tests",), self.suite)
        if self.table == "members" and not self.keeping.personal:
            raise BadInput("members are names and e-mail addresses of people; add --personal to export them.")
        for name in self.columns or ():
            self._refuse_left_out(name)
            self._refuse_unknown(name)
        self._check_times()
        return self

    @property
    def left_out(self) -> frozenset[str]:
        """Columns that are not exported."""
        return self.keeping.leaves_out(self.table)

    def _refuse(self, options: str, tables: Sequence[str], *given: str | None) -> None:
        if self.table not in tables and any(value is not None for value in given):
            raise BadInput(f"{options} cannot choose {self.table}; only {' and '.join(tables)}.")

    def _refuse_left_out(self, name: str) -> None:
        if name in self.left_out:
            needed = [flag for flag, columns in _FLAGS.items() if name in columns.get(self.table, ())]
            why = f"add {needed[0]} to export it" if needed else "it is of an instant only"
            raise BadInput(f"--columns: {name} of {self.table} is left out; {why}.")

    def _refuse_unknown(self, name: str) -> None:
        known = dict.fromkeys([*(c.name for c in TABLES[self.table]), *self.keeping.schema(self.table).names])
        if name not in known:
            raise BadInput(f"--columns: {self.table} have no {name!r}.{nearest(name, list(known))}")

    def _check_times(self) -> None:
        """As far as possible without the service's time: an age and a date cannot be compared yet."""
        now, since, until = Moment.of(dt.datetime.now(dt.UTC)), self.created_from or _AGE, self.created_to
        first = when(since, "--from", now)
        if until is None:
            return
        last = when(until, "--to", now)
        if is_relative(since) == is_relative(until) and first >= last:
            raise BadInput(f"No time lies between --from {since} and --to {until}; exchange them?")


@dataclass(frozen=True)
class Exported:
    """What was exported: a frame, as of when, `window` in words, and `why` it is incomplete, if it is."""

    frame: pd.DataFrame
    as_of: str
    window: str = ""
    why: str | None = None

    def told(self, asked: Asked) -> str:
        """A line on it."""
        held = f"complete as of {self.as_of}" if self.why is None else f"INCOMPLETE: {self.why}"
        return f"{asked.out}: {len(self.frame):,} {asked.table.replace('_', ' ')}{self.window}; {held}"


def from_service(ws: Workspace, asked: Asked) -> Exported:
    """Read a table from the service and write it."""
    found = _walked(ws, asked) if asked.table in OF_BUILDS else _listed(ws, asked)
    files.save(asked.out, found.frame)
    return found


def from_store(store: Store, asked: Asked) -> Exported:
    """Read a table from a store and write it."""
    found = _kept(store, asked) if asked.table in OF_BUILDS else _kept_list(store, asked)
    files.save(asked.out, found.frame)
    return found


# --- from the service


def _walked(ws: Workspace, asked: Asked) -> Exported:
    lists = ws if asked.pipeline is None else ws.pipeline(asked.pipeline)
    columns = asked.columns or [c.name for c in TABLES[asked.table] if c.name not in asked.left_out]
    read = lists.builds if asked.table == "builds" else lists.jobs
    filters: BuildFilters = {"created_from": asked.created_from or _AGE}
    if asked.created_to is not None:
        filters["created_to"] = asked.created_to
    frame = read(columns=columns, **filters)
    as_of, meant = frame.attrs["as_of"], parse_qs(urlsplit(frame.attrs["source"]).query)
    window = _window(asked, meant["created_from"][0], meant.get("created_to", [as_of])[0])
    return Exported(frame, as_of, window, frame.attrs["why"])


def _listed(ws: Workspace, asked: Asked) -> Exported:
    if asked.table == "flaky_tests":
        if asked.suite is None:
            raise BadInput("The service lists flaky tests of one suite; name it with --suite.")
        frame = ws.flaky_tests(asked.suite)
        frame.insert(0, "suite", pd.Series(asked.suite, frame.index, dtype=frame["name"].dtype))
    else:
        frame = ws.pipelines() if asked.table == "pipelines" else ws.members()
    if "organization" not in frame:
        frame.insert(0, "organization", pd.Series(ws.organization, frame.index, dtype=frame["name"].dtype))
    return Exported(_chosen(frame, asked), frame.attrs["as_of"], why=frame.attrs["why"])


# --- from a store


def _kept(store: Store, asked: Asked) -> Exported:
    since, until = _reach(store, asked.pipeline)
    first = when(asked.created_from or _AGE, "--from", store.as_of)
    last = None if asked.created_to is None else when(asked.created_to, "--to", store.as_of)
    why = _lacks(first, since, last, until)
    if last is None and until < store.as_of:  # what it has of later builds need not be all
        last = until
    read = store.builds if asked.table == "builds" else store.jobs
    frame = read(created_from=first, created_to=last, pipeline=asked.pipeline, columns=asked.columns)
    window = _window(asked, first.text(), (last or until).text())
    return Exported(_chosen(frame, asked), until.text(), window, why)


def _lacks(first: Moment, since: Moment, last: Moment | None, until: Moment) -> str | None:
    """Why the store does not know all builds from `first` on and before `last`, if so."""
    if first < since:
        return f"the store reaches back to {since.text()} only"
    return f"the store reaches up to {until.text()} only" if last is not None and last > until else None


def _kept_list(store: Store, asked: Asked) -> Exported:
    lists = {"pipelines": store.pipelines, "members": store.members}
    frame = store.flaky_tests(asked.suite) if asked.table == "flaky_tests" else lists[asked.table]()
    return Exported(_chosen(frame, asked), frame.attrs["as_of"])


def _reach(store: Store, pipeline: str | None) -> tuple[Moment, Moment]:
    """From when and until when the store knows all builds, or all of a pipeline."""
    marks = store.covers
    if pipeline is None:
        scopes = [scope for scope in marks if "/" not in scope or scope.split("/")[0] not in marks]
        return max(marks[scope][0] for scope in scopes), min(marks[scope][1] for scope in scopes)
    whose = store.builds(pipeline=pipeline, columns=["organization", "pipeline_id"]).drop_duplicates()
    names = {name for org, id in whose.itertuples(index=False) for name in (org, f"{org}/{id}")} & set(marks)
    if not names:
        return _reach(store, None)
    return _joined([marks[name] for name in names])


def _joined(reaches: Sequence[tuple[Moment, Moment]]) -> tuple[Moment, Moment]:
    """The latest of several stretches of time, with those that meet it."""
    *others, (since, until) = sorted(reaches)
    for start, end in reversed(others):
        if end >= since:
            since, until = start, max(until, end)
    return since, until


def _chosen(frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    """The columns that are exported; BadInput where one that is wanted is not there."""
    if asked.columns is None:
        _refuse_what_was_not_kept(frame, asked)
        return frame.drop(columns=[name for name in frame if name in asked.left_out])
    for name in asked.columns:
        if name not in frame:
            raise BadInput(
                f"--columns: {asked.table} have no {name!r}.{nearest(name, [str(known) for known in frame])}"
            )
    return frame[list(asked.columns)]


def _refuse_what_was_not_kept(frame: pd.DataFrame, asked: Asked) -> None:
    for flag, columns in _FLAGS.items():
        wanted = columns.get(asked.table, frozenset()) - asked.left_out
        if not wanted.issubset(frame):
            raise BadInput(f"{flag}: the store keeps no {', '.join(sorted(wanted))}; sync it with {flag}.")


def _window(asked: Asked, first: str, last: str) -> str:
    return f"{' of builds' if asked.table == 'jobs' else ''} created from {first} to {last}"
