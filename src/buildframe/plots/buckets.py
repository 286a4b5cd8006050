"""Choose the length of buckets of time by the number of rows in them, and find where buckets are drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

from buildframe.metrics.columns import timestamps
from buildframe.metrics.grouping import Key
from buildframe.metrics.time_buckets import to_zone
from buildframe.plots.groups import ShownGroups, group_and_cell

_LENGTHS = {"1h": 1, "3h": 3, "6h": 6, "12h": 12, "1D": 24, "2D": 48, "W-MON": 168, "MS": 730}
"""Frequencies that are tried, from short to long, with their hours."""

_MOST, _LEAST = 100, 4  # buckets
_DAY = 24
_SHORT = 96
"""Hours of a range that has buckets of less than a day; nights and days differ too much to be compared in others."""

_FILLED = 0.65  # share of buckets that have enough rows; weekends may not
_FEWEST = (5, 2)


def choose_frequency(times: pd.Series[Any], tz: str, rows: int, groups: pd.Series[Any] | None = None) -> str:
    """
    Return the frequency of the shortest buckets of which most have at least so many rows, or else as many as possible.

    With `groups` this holds for the average group.
    """
    is_known = times.notna().to_numpy(bool)
    local = to_zone(times[is_known], tz)
    if local.empty:
        return "1D"
    hours = (local - local.min().normalize()).dt.total_seconds().to_numpy(np.float64) / 3600
    codes = np.zeros(len(hours), np.int64) if groups is None else pd.factorize(groups.to_numpy()[is_known])[0]
    for least in (rows, *(few for few in _FEWEST if few < rows)):
        for freq, length in _LENGTHS.items():
            first, last = int(hours.min() // length), int(hours.max() // length)
            if last - first >= _MOST or (length < _DAY and hours.max() - hours.min() > _SHORT):
                continue
            if last - first + 1 < _LEAST:
                break
            counts = np.zeros((codes.max() + 1, last - first + 1), np.int64)
            np.add.at(counts, (codes, (hours // length).astype(np.int64) - first), 1)
            if (counts >= least).mean() >= _FILLED:
                return freq
    return "1D" if hours.max() - hours.min() >= 24 else "1h"


def choose_buckets(
    groups: ShownGroups, at: str, freq: str | None, tz: str, rows: int, cells: tuple[Key | None, Key | None]
) -> tuple[str, Begin | None]:
    """Return the frequency of buckets, by default one that suits each group and cell, and when the rows begin."""
    times = timestamps(groups.frame, at)
    if freq is None:
        freq = choose_frequency(times, tz, rows, group_and_cell(groups, *cells))
    return freq, find_begin(times, tz)


def find_edges(starts: pd.Series[Any], freq: str) -> pd.Series[Any]:
    """Return the naive starts of the buckets, and the end of the last."""
    local = starts.dt.tz_localize(None).drop_duplicates()
    edges: pd.Series[Any] = pd.concat([local, pd.Series([local.iloc[-1] + to_offset(freq)])], ignore_index=True)
    return edges


class Begin(NamedTuple):
    """When the first row begins, as a naive time, and the longest time between two rows."""

    at: pd.Timestamp
    gap: pd.Timedelta


def find_begin(times: pd.Series[Any], tz: str) -> Begin | None:
    """Return when rows begin; None without two times."""
    local = to_zone(times.dropna(), tz).dt.tz_localize(None).sort_values()
    return Begin(local.iloc[0], local.diff().max()) if len(local) > 1 else None


def _is_cut(starts: pd.Series[Any], begin: Begin | None) -> pd.Series[bool]:
    """Return which bucket the rows begin inside: the first, if no other pause is as long as the one before the rows."""
    local = starts.dt.tz_localize(None)
    if begin is None or local.nunique() < 2:
        return pd.Series(False, index=starts.index)
    is_cut: pd.Series[bool] = (local < begin.at) & (begin.at - local > begin.gap)
    return is_cut


def mark_begin(buckets: pd.DataFrame, begin: Begin | None) -> pd.DataFrame:
    """Return the buckets with the first as `partial` if the rows begin inside it."""
    partial = buckets["partial"].fillna(False).astype(bool) | _is_cut(buckets["bucket"], begin)
    return buckets.assign(partial=partial)


def find_middles(starts: pd.Series[Any], freq: str, begin: Begin | None = None) -> pd.Series[Any]:
    """Return the naive middle of each bucket, or of the part of it in which there can be rows."""
    if starts.empty:
        return starts
    edges = find_edges(starts, freq)
    middles = (edges + edges.diff().shift(-1) / 2).iloc[:-1]
    by_start = pd.Series(middles.to_numpy(), index=edges.iloc[:-1])
    found: pd.Series[Any] = starts.dt.tz_localize(None).map(by_start)
    if begin is not None:
        end = starts.dt.tz_localize(None) + 2 * (found - starts.dt.tz_localize(None))
        found = found.mask(_is_cut(starts, begin), begin.at + (end - begin.at) / 2)
    return found
