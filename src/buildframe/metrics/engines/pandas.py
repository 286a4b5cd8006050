"""Run summaries on pandas frames, in numpy. Groups are numbered, so that sums and ranks need no hashing or joins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe.metrics import failure_causes
from buildframe.metrics.columns import (
    NAT,
    Flags,
    Floats,
    Integers,
    check_aligned,
    check_are_builds,
    check_unique_ids,
    column,
    encoded_column,
    microseconds,
    seconds,
    seconds_between,
    timestamp_micros,
    timestamps,
    typed_column,
)
from buildframe.metrics.durations import RowMetric, Span, is_blocked, is_script
from buildframe.metrics.engines import attribution, storms
from buildframe.metrics.engines.dtypes import check_zones, micros_column
from buildframe.metrics.engines.intervals import AT, LEVEL, FrameCoverage, IntervalKind, TimeWindow, count_intervals
from buildframe.metrics.engines.normal_scores import SCORE
from buildframe.metrics.engines.protocol import Engine
from buildframe.metrics.engines.rows import (
    GROUP,
    PLACE,
    SEEN_FOR,
    Frame,
    GroupedRows,
    GroupSums,
    RankedRows,
    Rows,
    SplitBy,
)
from buildframe.metrics.engines.sorted_rows import CensoredRows, SortedRows
from buildframe.metrics.grouping import By, Key, compute_key, find_groups
from buildframe.metrics.job_ends import IS_OVER, with_ends
from buildframe.metrics.numbered import earliest_by, latest_by, sum_by
from buildframe.metrics.queues import queue_identities
from buildframe.metrics.steps import step

DAY = pd.ArrowDtype(pa.date32())
"""Dtype of days: a date in Parquet and in every engine."""

_MAX_EMPTY = 2**20
"""Cells without rows that cost less than a search for those that have some."""


class PandasEngine(Engine):
    """Engine for pandas, the reference for all others."""

    def join_nulls_equal(self, rows: Rows, others: Rows, names: Mapping[str, str]) -> Rows:
        left, right = list(names), list(names.values())
        return _to_rows(_to_pandas(rows).merge(_to_pandas(others), left_on=left, right_on=right))

    def bring(self, rows: Rows, small: pd.DataFrame) -> Rows:
        return _to_rows(small)

    def column_names(self, frame: Frame) -> list[str]:
        return list(frame.columns)

    def select_columns(self, frame: Frame, needs: Sequence[str], wants: Sequence[str] = ()) -> Rows:
        names = [*needs, *(name for name in wants if name in frame)]
        typed = {name: encoded_column(frame, name) for name in names}
        return _to_rows(pd.DataFrame(typed, index=frame.index, copy=False))

    def collect(self, rows: Rows) -> pd.DataFrame:
        return _to_pandas(rows)

    def with_steps(self, jobs: Frame) -> Frame:
        return jobs if "step" in jobs else jobs.assign(step=step(jobs))

    def with_ends(self, jobs: Frame) -> Frame:
        return with_ends(jobs)

    def with_queue_identities(self, jobs: Frame) -> Frame:
        return jobs.assign(queue=queue_identities(jobs)) if "queue_id" in jobs else jobs

    def with_key_column(self, frame: Frame, key: Key) -> tuple[Frame, str]:
        values = compute_key(frame, key)
        return frame.assign(**{str(values.name): values}), str(values.name)

    def append(self, rows: Rows, others: Rows) -> Frame:
        return pd.concat([_to_pandas(rows), _to_pandas(others)], ignore_index=True)

    def encode_texts(self, frame: Frame, names: Sequence[str], usual: Sequence[str]) -> tuple[Frame, dict[str, Any]]:
        encoded, texts = {}, {}
        for name in names:
            codes, values = pd.factorize(typed_column(frame, name))
            texts[name] = values.tolist()
            encoded[name] = pd.Categorical.from_codes(codes, pd.Index(texts[name], dtype="str"))
        return frame.assign(**encoded), texts

    def combinations(self, rows: Rows, names: Sequence[str]) -> pd.DataFrame:
        return _to_pandas(rows)[[*names]]  # they are in memory; dropping duplicates would take longer

    def with_micros(self, rows: Rows, names: Sequence[str]) -> Rows:
        check_zones(rows, names)
        native = _to_pandas(rows)
        exact = {micros_column(name): microseconds(native[name]) for name in names}
        return _to_rows(native.assign(**{name: _with_mask(us) for name, us in exact.items()}))

    def time_ranges(self, rows: Rows, names: Sequence[str]) -> list[tuple[Any, Any]]:
        limits = np.array([_first_and_last(microseconds(_to_pandas(rows)[name])) for name in names])
        times = pd.DatetimeIndex(limits.ravel().view("M8[us]"), tz="UTC")
        return [*zip(times[::2], times[1::2], strict=True)]

    def with_durations(self, frame: Frame, metrics: Sequence[RowMetric], created: str, *, of_jobs: bool) -> Frame:
        timestamps(frame, "created_at")
        check_unique_ids(frame)
        added: dict[str, Any] = {f"{of.__name__}_s": seconds(of(frame), of.__name__) for of in metrics}
        if of_jobs:
            added["step"] = step(frame)
        return frame.assign(**added, day=timestamps(frame, created).dt.tz_localize(None).astype(DAY))

    def group_rows(
        self, frame: Frame, needs: Collection[str], by: By = None, wants: Collection[str] = (), **more: Any
    ) -> GroupedRows:
        groups = find_groups(frame, by)
        names = [*needs, *(name for name in wants if name in frame and name not in needs)]
        columns = {name: _without_mask(encoded_column(frame, name)) for name in names}
        columns |= {name: np.asarray(new) for name, new in more.items()} | {GROUP: groups.codes}
        rows = _to_rows(pd.DataFrame(columns, copy=False))
        return GroupedRows(self, rows, [GROUP], list(groups.keys.columns), [groups.keys])

    def measure_rows(self, frame: Frame, of: RowMetric | str, span: Span | None) -> tuple[Frame, Any]:
        if isinstance(of, str):
            value = seconds(column(frame, of), f"The column {of!r}").to_numpy(np.float64, na_value=np.nan)
        elif span is None:
            metric = getattr(of, "__name__", of)
            durations = check_aligned(of(frame), frame, f"of={metric}")
            value = seconds(durations, f"The result of {metric}").to_numpy(np.float64, na_value=np.nan)
        else:
            value = seconds_between(timestamp_micros(frame, span.start), timestamp_micros(frame, span.end))
        if span is not None and span.unless_blocked:
            check_are_builds(frame.columns, "wall_time")
            value = np.where(is_blocked(frame), np.nan, value)
        return frame, value

    def filter_groups(self, rows: GroupedRows, chosen: nw.Expr, names: Iterable[str] = ()) -> GroupedRows:
        native, keys = _to_pandas(rows.frame), _keys(rows)
        places = np.flatnonzero(_to_pandas(rows.frame.select(chosen=chosen))["chosen"])
        names = [*dict.fromkeys(names)] or [str(name) for name in native if name != GROUP]
        codes = native[GROUP].to_numpy(np.intp)[places]
        is_present = np.bincount(codes, minlength=len(keys)) > 0
        present, codes = np.flatnonzero(is_present), (np.cumsum(is_present) - 1)[codes]
        numbered = pd.DataFrame({name: native[name].array.take(places) for name in names} | {GROUP: codes}, copy=False)
        return replace(rows, frame=_to_rows(numbered), keys=[keys.take(present).reset_index(drop=True)])

    def nested_groups(self, frame: Frame, needs: Collection[str], levels: Sequence[Sequence[Key]]) -> GroupedRows:
        codes, keys = zip(*(find_groups(frame, list(level)) for level in levels), strict=True)
        number = np.ravel_multi_index(codes, [max(len(of_level), 1) for of_level in keys])
        columns = {name: _without_mask(encoded_column(frame, name)) for name in needs}
        rows = _to_rows(pd.DataFrame(columns | {GROUP: number}, copy=False))
        return GroupedRows(self, rows, [GROUP], [str(name) for of_level in keys for name in of_level], keys)

    def without_level(self, rows: GroupedRows, level: Sequence[Key]) -> GroupedRows:
        *coarser, finest = rows.keys
        return replace(rows.with_columns(**{GROUP: nw.col(GROUP) // max(len(finest), 1)}), keys=coarser)

    def split_groups(self, rows: GroupedRows, part: str, size: int) -> GroupedRows:
        native = _to_pandas(rows.frame.filter(nw.col(part) < size))
        codes = native[GROUP].to_numpy(np.intp) * size + native[part].to_numpy(np.intp)
        codes, present = pd.factorize(codes, sort=True)
        place, number = np.divmod(present, max(size, 1))
        keys = _keys(rows).take(place).reset_index(drop=True).assign(**{part: number})
        return replace(rows, frame=_to_rows(native.assign(**{GROUP: codes})), names=[*rows.names, part], keys=[keys])

    def group_sums(self, rows: GroupedRows, **counts: nw.Expr) -> GroupSums:
        native, keys = _to_pandas(rows.frame.select(GROUP, **counts)), _keys(rows)
        codes = native.pop(GROUP).to_numpy(np.int64)
        sums = {str(name): sums_by_code(codes, one, len(keys)) for name, one in native.items()}
        return GroupSums.numbered(keys, sums)

    def part_sums(self, rows: GroupedRows, part: str, size: int, **counts: nw.Expr) -> tuple[GroupSums, pd.DataFrame]:
        native, keys = _to_pandas(rows.frame.select(GROUP, part, **counts)), _keys(rows)
        codes, many = native[GROUP].to_numpy(np.int64) * (size + 1) + native[part].to_numpy(np.int64), size + 1
        if len(keys) * many > 2 * len(codes) + _MAX_EMPTY:
            codes, cells = pd.factorize(codes)
        else:
            cells = np.arange(len(keys) * many)
        sums = {name: sums_by_code(codes, native[name], len(cells)) for name in counts}
        place, value = np.divmod(cells, many)
        groups = {name: sums_by_code(place, pd.Series(one), len(keys)) for name, one in sums.items()}
        parts = pd.DataFrame(sums).assign(**{PLACE: place, part: value})
        return GroupSums.numbered(keys, groups), parts

    def with_group_values(
        self, rows: GroupedRows, groups: pd.DataFrame, values: Mapping[str, Floats | Integers]
    ) -> GroupedRows:
        native = _to_pandas(rows.frame)
        place = pd.Index(groups[GROUP]).get_indexer(pd.Index(native[GROUP]))
        own, place = (native, place) if (place >= 0).all() else (native[place >= 0], place[place >= 0])
        of_rows = {name: of_groups[place] for name, of_groups in values.items()}
        return replace(rows, frame=_to_rows(own.assign(**of_rows)))

    def rank_rows(self, rows: GroupedRows, counts: GroupSums, span: Span | None, at: SplitBy) -> RankedRows:
        native = _to_pandas(rows.frame)
        codes, values = native[GROUP].to_numpy(np.int64), native["value"].to_numpy(np.float64)
        times = (
            microseconds(native[at]) if isinstance(at, str) else native[at.column].to_numpy(np.int64) if at else None
        )
        return SortedRows(codes, values, counts.n_values, times, self._find_censored(rows, span, at), at)

    def _find_censored(self, rows: GroupedRows, span: Span | None, at: SplitBy) -> CensoredRows | None:
        """Return the censored rows, which are few."""
        native = _to_pandas(rows.frame)
        if span is None or "censored" not in native:
            return None
        few = replace(rows, frame=_to_rows(native.take(np.flatnonzero(native["censored"]))))
        table = _to_pandas(self.ranking_columns(few, span, at))
        seen = table[SEEN_FOR].to_numpy(np.float64, na_value=np.nan)
        times = table[AT].to_numpy(np.int64, na_value=NAT) if at else None
        return CensoredRows(table[GROUP].to_numpy(np.int64), seen, times)

    def with_bucket_numbers(self, rows: Rows, at: str, edges: Integers, name: str = GROUP) -> Rows:
        native = _to_pandas(rows)
        return _to_rows(native.assign(**{name: _bucket_numbers(microseconds(native[at]), edges)}))

    def count_by_bucket(self, rows: GroupedRows, at: Mapping[str, str], edges: Integers) -> GroupSums:
        native, n_buckets = _to_pandas(rows.frame), max(len(edges) - 1, 0)
        numbers = {name: _bucket_numbers(microseconds(native[stamp]), edges) for name, stamp in at.items()}
        counts = {name: np.bincount(one, minlength=n_buckets)[:n_buckets] for name, one in numbers.items()}
        return GroupSums.numbered(pd.DataFrame(index=range(n_buckets)), counts)

    def intervals(self, frame: Frame, by: By, kind: IntervalKind) -> tuple[GroupedRows, FrameCoverage]:
        table = self.collect_columns(frame, [*kind.stamps, *(["type"] if kind.scripts_only else [])])
        begin, finish, *others = (timestamp_micros(table, name) for name in (kind.begins, *kind.ends))
        for other in others:
            finish = np.where(finish == NAT, other, finish)
        begin = np.where(is_script(table), begin, NAT) if kind.scripts_only else begin
        created, fetched = timestamp_micros(table, "build_created_at"), timestamp_micros(table, "fetched_at")
        lasting = (finish - created)[(begin != NAT) & (finish != NAT) & (created != NAT)]
        ends = [*_first_and_last(fetched)[1:], *_first_and_last(created), *_first_and_last(lasting)[1:]]
        rows = self.group_rows(frame, (), by, begin=begin, finish=finish)
        return rows, FrameCoverage(*(None if end == NAT else end for end in ends))

    def levels(self, rows: GroupedRows, window: TimeWindow) -> tuple[pd.DataFrame, pd.DataFrame]:
        native = _to_pandas(rows.frame)
        codes, begin, finish = (native[name].to_numpy(np.int64) for name in (GROUP, "begin", "finish"))
        complete, n_groups = (begin != NAT) & (finish != NAT), len(_keys(rows))
        codes, begin, finish = codes[complete], begin[complete], finish[complete]
        negative = np.bincount(codes[finish < begin], minlength=n_groups)
        steps = count_intervals(window, codes, begin, np.maximum(begin, finish), n_groups)
        columns = {AT: steps.at, LEVEL: steps.level, "n_negative": pd.array(negative[steps.group], "Int64")}
        return rows.name_keys(pd.DataFrame({GROUP: steps.group})), pd.DataFrame(columns)

    def agent_sums(self, frame: Frame, by: By) -> GroupSums:
        needs = ["agent_id", "type", "started_at", "finished_at", IS_OVER]
        table, groups = self.collect_columns(with_ends(frame), needs), find_groups(frame, by)
        begin, finish = timestamp_micros(table, "started_at"), timestamp_micros(table, "finished_at")
        begin = np.where(is_script(table), begin, NAT)
        is_over = table[IS_OVER].to_numpy(np.bool_)
        agents, n = pd.factorize(table["agent_id"])[0], len(groups.keys)
        started = begin != NAT
        ended = started & (finish != NAT)
        ran = ended & (agents >= 0)
        counted = {
            "started": started,
            "n_running": started & ~is_over,
            "n_no_end": started & is_over & ~ended,
            "n_no_agent": ended & ~ran,
            "n_negative": ran & (finish < begin),
        }
        counts = {name: np.bincount(groups.codes[flags], minlength=n) for name, flags in counted.items()}
        counts |= _sum_agents(groups.codes[ran], agents[ran], begin[ran], finish[ran], n)
        return GroupSums.numbered(groups.keys, counts)

    def with_normal_scores(self, rows: GroupedRows) -> GroupedRows:
        from scipy.special import ndtri

        native = _to_pandas(rows.frame)
        codes, values = native[GROUP].to_numpy(), native["value"].to_numpy()
        order = np.lexsort((values, codes))
        begins_group = np.diff(codes[order], prepend=-1) != 0
        begins_tie = begins_group | np.append(True, values[order][1:] != values[order][:-1])[: len(order)]
        places, tie = np.arange(len(order)), np.cumsum(begins_tie) - 1
        start, first = np.flatnonzero(begins_tie), np.maximum.accumulate(np.where(begins_group, places, 0))
        rank = (start + np.diff(start, append=len(order)) / 2 + 0.5)[tie] - first
        scores = np.empty(len(order))
        scores[order] = ndtri(rank / (np.bincount(codes)[codes[order]] + 1))
        return replace(rows, frame=_to_rows(native.assign(**{SCORE: scores})))

    def with_causes(self, rows: GroupedRows) -> GroupedRows:
        """Examine only failures, which are few: comparing texts of all rows takes as long as the rest of a summary."""
        native = _to_pandas(rows.frame)
        names = [name for name in (*failure_causes.NEEDS, *failure_causes.WANTS) if name in native]
        failed = np.flatnonzero((native["state"] == "failed").to_numpy(bool, na_value=False))
        few = _to_rows(native[names].take(failed))
        causes = _to_pandas(few.select(cause=failure_causes.number_cause(names)))["cause"]
        cause = np.full(len(native), failure_causes.COMMAND)
        cause[failed] = causes.to_numpy(np.int64)
        return replace(rows, frame=_to_rows(native.assign(**{failure_causes.CAUSE: cause})))

    def mark_storms(self, attempts: GroupedRows, n_keys: int) -> GroupedRows | None:
        native = _to_pandas(attempts.frame)
        times = microseconds(native["finished_at"])
        first = times[times != NAT].min(initial=np.iinfo(np.int64).max)
        period = np.where(times == NAT, -1, times // storms.PERIOD_EDGES[1] - first // storms.PERIOD_EDGES[1])
        sizes = [max(len(keys), 1) for keys in attempts.keys]
        step, commit, *_ = np.unravel_index(native[GROUP].to_numpy(np.int64), sizes)
        is_known = attempts.keys[1].iloc[:, 0].notna().to_numpy(bool)
        commit = np.where(np.append(is_known, False)[commit], commit, -1)
        has_passed = native["passes"].to_numpy(bool)
        marks = [storms.find_storms(native[place], period, step, commit, has_passed) for place in storms.PLACES]
        is_stormy = np.any(marks, axis=0)
        if not is_stormy.any():
            return None
        return replace(attempts, frame=_to_rows(native.assign(**{storms.STORM: is_stormy.astype(np.int64)})))

    def sum_run_time(self, jobs: Frame, by: By) -> GroupSums:
        jobs = with_ends(jobs)
        table, groups = self.collect_columns(jobs, attribution.NEEDS, ("fetched_at",)), find_groups(jobs, by)
        begin, finish = timestamp_micros(table, "started_at"), timestamp_micros(table, "finished_at")
        is_started, has_end = is_script(table) & (begin != NAT), finish != NAT
        is_over = table[IS_OVER].to_numpy(np.bool_)
        build, ids = pd.factorize(table["build_id"])  # null is -1, the last element of arrays of builds
        retried = table["retried"].to_numpy(bool, na_value=False)
        place = np.append(np.where(_find_repeats(table, build, ids), 3, 4), 4)[build]
        place[(table["state"] == "canceled").to_numpy(bool)] = 1
        place[retried] = 0
        first = _find_first_failures(table, build, finish, len(ids))[build]
        ran, n_groups = np.flatnonzero(is_started & has_end), len(groups.keys)
        codes, place, begin, finish, first = (one[ran] for one in (groups.codes, place, begin, finish, first))
        span = finish - begin
        late = np.where((finish > first) & (place > 1), finish - np.maximum(begin, first), 0)
        sums = attribution.sum_classes(codes, place, span - late, late, n_groups)
        counted = {
            "n": codes,
            "n_running": groups.codes[is_started & ~is_over],
            "n_no_end": groups.codes[is_started & is_over & ~has_end],
            "n_negative": codes[span < 0],
        }
        counts = {name: np.bincount(own, minlength=n_groups) for name, own in counted.items()}
        return GroupSums.numbered(groups.keys, {"n": counts.pop("n"), **sums, **counts})


def sums_by_code(codes: Integers, counts: pd.Series[Any], n_groups: int) -> Integers:
    """Sum flags or whole numbers in numbered groups."""
    if pd.api.types.is_bool_dtype(counts.dtype):
        flags = counts.to_numpy(bool, na_value=False)
        n = np.count_nonzero(flags)
        chosen = codes if n == len(flags) else codes[np.flatnonzero(flags) if n < len(flags) / 4 else flags]
        return np.bincount(chosen, minlength=n_groups)
    return sum_by(codes, counts.to_numpy(np.int64, na_value=0), n_groups)


def _to_rows(frame: pd.DataFrame) -> Rows:
    return nw.from_native(frame).lazy()


def _to_pandas(rows: Rows) -> pd.DataFrame:
    native: pd.DataFrame = rows.to_native()
    return native


def _keys(rows: GroupedRows) -> pd.DataFrame:
    (keys,) = rows.keys
    return keys


def _with_mask(times: Integers) -> Any:
    """Return the times as whole numbers with nulls; plain ones if there is no null, which take a third of the time."""
    is_missing = times == NAT
    return pd.arrays.IntegerArray(times, is_missing) if is_missing.any() else times


def _without_mask(column: pd.Series[Any]) -> Any:
    """Return the values; flags without nulls as plain booleans, which take a fifth of the time."""
    if isinstance(column.dtype, pd.BooleanDtype) and not column.hasnans:
        return column.to_numpy(bool)
    return column.array


def _first_and_last(times: Integers) -> tuple[int, int]:
    """Return the first and the last of the known times, `NAT` if there is none."""
    first, last = (times.min(), times.max()) if len(times) else (NAT, NAT)
    if first == NAT != last:
        unsigned = times.view(np.uint64)  # NaT is greater than all since 1970, and less than all before
        first = unsigned.min() if unsigned.max() == 2**63 else times[times != NAT].min()
    return int(first), int(last)


def _bucket_numbers(times: Integers, edges: Integers) -> Integers:
    """Return the number of each time's bucket, or the number of buckets if it has none.

    A division takes a third of the time of a search, but needs buckets of equal length.
    """
    widths, n_buckets = np.diff(edges), max(len(edges) - 1, 0)
    if not n_buckets:
        return np.zeros(len(times), np.int64)
    if np.any(widths != widths[0]):
        numbers = np.searchsorted(edges, times, side="right") - 1
    else:
        numbers = times - edges[0]  # the only new array: memory takes longer than sums
        numbers //= widths[0]
    unsigned = numbers.view(np.uint64)  # times before the first bucket are large numbers
    np.minimum(unsigned, np.uint64(n_buckets), out=unsigned)
    return numbers


def _sum_agents(groups: Integers, agents: Integers, begin: Integers, finish: Integers, n: int) -> dict[str, Integers]:
    n_agents = agents.max(initial=0) + 1
    codes, pairs = pd.factorize(groups * n_agents + agents)
    first, last = earliest_by(codes, begin, len(pairs)), latest_by(codes, finish, len(pairs))
    of, busy = pairs // n_agents, sum_by(groups, finish - begin, n)
    return {"agents": np.bincount(of, minlength=n), "busy": busy, "seen": sum_by(of, last - first, n)}


def _find_first_failures(jobs: pd.DataFrame, build: Integers, finish: Integers, n_builds: int) -> Integers:
    """Return when the first failure of each build ended; the largest number if it has none."""
    fails = _to_pandas(_to_rows(jobs).select(fails=attribution.FAILS_BUILD))["fails"].to_numpy(bool)
    places = np.flatnonzero(fails & (finish != NAT) & (build >= 0))
    failed_at = np.full(n_builds + 1, np.iinfo(np.int64).max)
    np.minimum.at(failed_at, build[places], finish[places])
    return failed_at


def _find_repeats(jobs: pd.DataFrame, build: Integers, ids: Any) -> Flags:
    """Return for each build, as it was fetched last, whether it repeated the outcome of the one before it."""
    rows, row = np.arange(len(jobs)), np.zeros(len(ids) + 1, np.int64)  # null is the last element
    if "fetched_at" in jobs:
        seen, last = timestamp_micros(jobs, "fetched_at"), np.full(len(row), NAT)
        np.maximum.at(last, build, seen)
        rows = np.flatnonzero(seen == last[build])
    row[build[rows]] = rows
    builds = jobs[list(attribution.OF_BUILD)].take(row[:-1])
    has_failed = _find_first_states(jobs["build_state"], build, rows, len(ids))
    created, commit = timestamp_micros(builds, "build_created_at"), builds["commit"]
    is_known = (commit.notna() & (commit != "HEAD")).to_numpy(bool) & (created != NAT)
    own = np.flatnonzero(is_known & (has_failed >= 0))
    number = builds["build_number"].to_numpy(np.int64, na_value=NAT)
    line, rank = _number_rows(builds[attribution.LINE].take(own)), pd.Index(ids).argsort().argsort()
    order = np.lexsort((rank[own], number[own], created[own], line))
    own, line = own[order], line[order]
    repeated = np.zeros(len(ids), bool)
    repeated[own[1:]] = (line[1:] == line[:-1]) & (has_failed[own[1:]] == has_failed[own[:-1]])
    return repeated


def _find_first_states(states: pd.Series[str], build: Integers, rows: Integers, n_builds: int) -> Integers:
    """Return whether each build failed (1) or passed (0), by the first of its states in order; -1 for other states."""
    codes, values = pd.factorize(states)
    texts = pd.Index(values, dtype="str")
    rank = np.append(texts.argsort().argsort(), len(texts))  # null is last
    first = np.full(n_builds + 1, len(texts))
    np.minimum.at(first, build[rows], rank[codes[rows]])
    outcome = {"failed": 1, "passed": 0}
    outcomes = np.array([*(outcome.get(text, -1) for text in texts.sort_values()), -1])
    of_builds: Integers = outcomes[first[:-1]]
    return of_builds


def _number_rows(keys: pd.DataFrame) -> Integers:
    """Return the same number for rows with equal keys."""
    numbers = np.zeros(len(keys), np.int64)
    for name in keys:
        codes, values = pd.factorize(keys[name], use_na_sentinel=False)
        numbers, _ = pd.factorize(numbers * len(values) + codes)
    return numbers
