"""Assign rows of pandas to groups: by columns, by functions of rows, or all in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import TEXT, check_aligned, typed_column
from buildframe.terminal import show

Key = str | Callable[[pd.DataFrame], "pd.Series[Any]"]
By = Key | Sequence[Key] | None
"""A column's name, a function `frame -> Series` such as `metrics.step`, several of these, or None for one group."""


class Groups(NamedTuple):
    """Group number of each row (`codes`), and a frame with one row per group, in order (`keys`)."""

    codes: npt.NDArray[np.intp]
    keys: pd.DataFrame


def find_groups(frame: pd.DataFrame, by: By) -> Groups:
    """Return the groups in order of their keys, null keys last; an empty frame has none."""
    return number_groups(compute_keys(frame, by))


def number_groups(keys: pd.DataFrame) -> Groups:
    """Return the groups of rows with equal keys, which are the columns; categories have to be in order."""
    if keys.columns.empty:
        return Groups(np.zeros(len(keys), np.intp), pd.DataFrame(index=range(min(len(keys), 1))))
    first, *others = (_rank_values(keys[name]) for name in keys)
    codes, many = first
    for own, more in others:
        if many * more > 2**62:
            codes, many = compact_codes(codes, many)
        codes, many = codes * more + own, many * more
    if others:
        codes, _ = compact_codes(codes, many)
    first_rows = np.empty(codes.max(initial=-1) + 1, np.intp)
    first_rows[codes[::-1]] = np.arange(len(codes))[::-1]  # the last one written stays
    of_groups = keys.iloc[first_rows].reset_index(drop=True)
    encoded = [
        name
        for name, dtype in of_groups.dtypes.items()
        if isinstance(dtype, pd.CategoricalDtype) and dtype.categories.dtype == TEXT
    ]
    return Groups(codes, of_groups.astype(dict.fromkeys(encoded, TEXT)) if encoded else of_groups)


def _rank_values(key: pd.Series[Any]) -> tuple[npt.NDArray[np.intp], int]:
    """Return the position of each value among the ordered distinct values, null last, and their number."""
    if isinstance(key.dtype, pd.CategoricalDtype):  # the codes of the door, without a hash table of all rows
        n_categories = len(key.cat.categories)
        category = np.array(key.cat.codes, np.intp)
        return compact_codes(np.where(category < 0, n_categories, category), n_categories + 1)
    try:
        codes, values = pd.factorize(key, sort=True, use_na_sentinel=False)
    except TypeError as why:
        raise BadInput(f"The column {str(key.name)!r} cannot be grouped by: {why}.") from None
    return codes, len(values)


def compact_codes(codes: npt.NDArray[np.intp], many: int) -> tuple[npt.NDArray[np.intp], int]:
    """Renumber codes in the same order without gaps, and return how many there are."""
    if many <= 2 * len(codes) + 1024:
        is_there = np.bincount(codes, minlength=many) > 0
        return (np.cumsum(is_there) - 1)[codes], int(is_there.sum())
    numbers, there = pd.factorize(codes, sort=True)
    return numbers, len(there)


def number_runs(
    values: pd.Series[Any],
    *,
    sort: bool = False,
) -> tuple[npt.NDArray[np.intp], pd.Index[Any]]:
    """Number values as `pd.factorize` does, in less time if equal values mostly follow each other.

    The rows of a build do. A null has the number -1.
    """
    array = values.array
    is_first = np.ones(len(array), np.bool_)
    is_first[1:] = np.asarray(array[1:] != array[:-1], np.bool_)
    starts = np.flatnonzero(is_first)
    codes, distinct = pd.factorize(values.take(starts), sort=sort)
    return np.repeat(codes, np.diff(starts, append=len(array))), pd.Index(distinct)


def join_keys(keys: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Join group columns and summary into one flat frame; raise BadInput if they share a name."""
    if shared := set(keys.columns) & set(summary.columns):
        raise BadInput(f"The summary has a column {min(shared)!r} of its own. Rename the column of the frame.")
    return pd.concat([keys, summary], axis=1)


def as_key_list(by: By) -> list[Key]:
    """Return the keys as a list; raise BadInput for an invalid key."""
    keys: list[Any] = [] if by is None else list(by) if isinstance(by, list | tuple) else [by]
    if wrong := [key for key in keys if not isinstance(key, str) and not callable(key)]:
        raise BadInput(
            f"by={wrong[0]!r}: group by a column's name, a function such as metrics.step, or a list of these."
        )
    return keys


def check_distinct_names(names: Sequence[str]) -> None:
    """Raise BadInput if two keys have one name."""
    if len(set(names)) < len(names):
        raise BadInput(f"by= has two keys of the same name: {list(names)}. Rename one of them.")


def compute_keys(frame: pd.DataFrame, by: By) -> pd.DataFrame:
    """Return a column for each key; raise BadInput if two have one name."""
    columns = [compute_key(frame, key) for key in as_key_list(by)]
    names = [str(values.name) for values in columns]
    check_distinct_names(names)
    keys = {name: values.array for name, values in zip(names, columns, strict=True)}
    return pd.DataFrame(keys, index=pd.RangeIndex(len(frame)), copy=False)


def key_name(key: Key) -> str:
    """Return the name of a key, which is that of its column in a result."""
    return key if isinstance(key, str) else getattr(key, "__name__", "group")


def compute_key(frame: pd.DataFrame, key: Key) -> pd.Series[Any]:
    """Return the column of a key, or the result of its function, with a name."""
    if isinstance(key, str):
        return typed_column(frame, key)
    if not callable(key):
        raise BadInput(f"{show(key)} is no key. Pass one column name, or one function of the frame.")
    result = check_aligned(key(frame), frame, f"by={getattr(key, '__name__', key)}")
    return result if result.name is not None else result.rename(getattr(key, "__name__", "group"))
