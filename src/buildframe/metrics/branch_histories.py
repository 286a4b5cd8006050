"""Read the builds that turn branches red or green, and find outages among them.

Knows builds of whole pipelines and their default branches; does not summarize outages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import NAT, Integers, check_are_builds, microseconds
from buildframe.metrics.forks import COLUMNS as FORK_COLUMNS
from buildframe.metrics.forks import find_shared_keys, is_complete, is_from_fork, with_repositories
from buildframe.metrics.group_summaries import concat_results, summarize_groups
from buildframe.metrics.grouping import compact_codes, find_groups
from buildframe.metrics.input_frames import (
    Frame,
    collect_columns,
    column_names,
    distinct_rows,
    read_whole_groups,
    time_limits,
)
from buildframe.metrics.row_flags import equals, is_set
from buildframe.metrics.validation import check_states

_NEEDS = ("pipeline", "branch", "number", "state", "blocked", "finished_at", "fetched_at")
_WANTS = ("organization", "pipeline_id")

_ID = "id of pipeline"


class BranchSelection(NamedTuple):
    """Which builds count, and what one worker cannot see of the whole frame.

    `by` are the columns that identify a pipeline. `branch` is that of all pipelines, or `defaults`
    has the default branch of each. `until` is the latest timestamp of all builds.
    """

    by: list[str]
    branch: str | None
    defaults: pd.DataFrame | None
    until: Any


class BranchHistories(NamedTuple):
    """The branch of each pipeline.

    `names` has a row for each pipeline, `builds` all their builds. `outcomes` are the
    builds that passed or failed, ordered by pipeline and time: `number`, `finished_at`, `pipeline`
    (its row in `names`), `failed` and `place` (its row in `builds`).
    """

    names: pd.DataFrame
    builds: pd.DataFrame
    outcomes: pd.DataFrame
    until: Any


def select_branches(builds: Frame, branch: str | None, pipelines: Frame | None) -> BranchSelection:
    """Return which builds count; raise BadInput for wrong arguments and unknown branches."""
    if not isinstance(branch, str | None) or (branch is None) == (pipelines is None):
        advice = "or pipelines=ws.pipelines() for the default branch of each."
        raise BadInput(f'Pass either branch="main" for all pipelines, {advice}')
    listed = None
    if pipelines is not None:
        optional = ["id", "organization", "repository"]
        listed = collect_columns(pipelines, ["slug", "default_branch"], optional)
    check_states(builds, "state")
    available = column_names(builds)
    check_are_builds(available, "The history of a branch")
    names = distinct_rows(builds, ["pipeline", *_existing_columns(available, *_WANTS)])
    by = ["pipeline_id"]
    if not is_complete(names, "pipeline_id"):
        by = _existing_columns(names, "organization", "pipeline")
    defaults = None
    if listed is not None:
        defaults = _find_default_branches(names.drop_duplicates(by), listed)
    latest = max(last for _, last in time_limits(builds, ["finished_at", "fetched_at"]))
    until = pd.DatetimeIndex(np.array([latest]).view("datetime64[us]"), tz="UTC")[0]
    return BranchSelection(by, branch, defaults, until)


def _existing_columns(columns: Collection[str] | pd.DataFrame, *names: str) -> list[str]:
    return [name for name in names if name in columns]


def _find_default_branches(pipelines: pd.DataFrame, listed: pd.DataFrame) -> pd.DataFrame:
    """Return the pipelines of builds with their default branch."""
    left, right = find_shared_keys(pipelines, listed)
    is_repeated = listed.duplicated(right)
    if is_repeated.any():
        name = _show_first_name(listed.loc[is_repeated, "slug"])
        raise BadInput(f"pipelines= contains {name} twice. Keep one row of it.")
    matched = pipelines.merge(
        listed,
        how="left",
        left_on=left,
        right_on=right,
        indicator=True,
        suffixes=("", "_listed"),
    )
    is_absent = matched["_merge"].ne("both")
    if is_absent.any():
        name = _show_first_name(matched.loc[is_absent, "pipeline"])
        raise BadInput(f"pipelines= does not contain {name}, which has builds. Pass all pipelines.")
    is_unknown = matched["default_branch"].fillna("").eq("")
    if is_unknown.any():
        name = _show_first_name(matched.loc[is_unknown, "pipeline"])
        advice = 'Pass its builds alone, with branch="main".'
        raise BadInput(f"The pipeline {name} has no known default branch. {advice}")
    return matched


def _show_first_name(names: pd.Series[str]) -> str:
    return repr(names.min()) if names.notna().any() else "a pipeline that is null"


def summarize_branches(
    builds: Frame,
    selection: BranchSelection,
    of: Callable[[BranchHistories], pd.DataFrame],
    more: Sequence[str] = (),
) -> pd.DataFrame:
    """Apply `of` to the branches of whole pipelines, and order the result by their names."""
    summarize = functools.partial(_summarize_pipelines, of, selection, [*_NEEDS, *more])
    result = summarize_groups(builds, summarize, selection.by)
    order = [*_existing_columns(result, "organization"), "pipeline", _ID]
    result = result.sort_values(order, kind="stable", ignore_index=True)
    return result.drop(columns=_ID)


def _summarize_pipelines(
    of: Callable[[BranchHistories], pd.DataFrame],
    selection: BranchSelection,
    needs: list[str],
    builds: Frame,
) -> pd.DataFrame:
    groups = read_whole_groups(builds, selection.by, needs, (*_WANTS, *FORK_COLUMNS))
    return concat_results([of(_read_branches(selection, rows)) for rows in groups], [])


def _read_branches(selection: BranchSelection, builds: pd.DataFrame) -> BranchHistories:
    """Return the branches of whole pipelines."""
    places = _find_places_on_branches(selection, builds)
    pipelines = find_groups(builds[selection.by].take(places).reset_index(drop=True), selection.by)
    codes = pipelines.codes
    if selection.defaults is not None:
        with_defaults = pipelines.keys.merge(selection.defaults, how="left", on=selection.by)
        default_branch = with_defaults["default_branch"].array.take(codes)
        is_default = np.asarray(builds["branch"].array.take(places) == default_branch, bool)
        places = places[is_default]
        codes, _ = compact_codes(codes[is_default], len(pipelines.keys))
    names = _name_pipelines(builds, places, codes)
    outcomes = _select_outcomes(builds, places, codes)
    return BranchHistories(names, builds, outcomes, selection.until)


def _find_places_on_branches(selection: BranchSelection, builds: pd.DataFrame) -> Integers:
    """Return the rows of builds on a selected branch, or on one that some pipeline has by default.

    Those from forks are left out.
    """
    defaults = selection.defaults
    branches = [selection.branch] if defaults is None else defaults["default_branch"].unique()
    places = np.flatnonzero(builds["branch"].isin(branches).to_numpy())
    names = [name for name in builds if name in (*selection.by, *FORK_COLUMNS)]
    on_branches = builds[names].take(places)
    with_targets = with_repositories(on_branches, defaults, selection.by, selection.by)
    return places[~is_from_fork(with_targets).to_numpy()]


def _name_pipelines(builds: pd.DataFrame, places: Integers, codes: Integers) -> pd.DataFrame:
    """Return the names of each pipeline in its newest build.

    `_ID` distinguishes pipelines of one name.
    """
    newest = pd.Series(get_build_numbers(builds)[places]).groupby(codes).idxmax()
    columns = [*_existing_columns(builds, "organization", "pipeline_id"), "pipeline", "branch"]
    named = builds[columns].take(places[newest]).reset_index(drop=True)
    ids = named.pop("pipeline_id") if "pipeline_id" in named else named["pipeline"]
    return named.assign(**{_ID: ids})


def get_build_numbers(builds: pd.DataFrame) -> Integers:
    """Return the numbers of builds, -1 if missing."""
    return builds["number"].fillna(-1).to_numpy(np.int64)


def _select_outcomes(builds: pd.DataFrame, places: Integers, codes: Integers) -> pd.DataFrame:
    """Return the builds that passed or failed and are not blocked, by pipeline and time."""
    rows = builds[["state", "blocked", "number", "finished_at"]].take(places)
    failed = equals(rows, "state", "failed")
    has_outcome = failed | equals(rows, "state", "passed")
    at = microseconds(rows["finished_at"])
    settled = np.flatnonzero(has_outcome & ~is_set(rows, "blocked") & (at != NAT))
    # At one time the build with the higher number is later, then the failed one.
    later = 2 * get_build_numbers(rows)[settled] + failed[settled]
    settled = settled[np.lexsort((later, at[settled], codes[settled]))]
    outcomes = rows[["number", "finished_at"]].take(settled).reset_index(drop=True)
    return outcomes.assign(pipeline=codes[settled], failed=failed[settled], place=places[settled])


def find_outages(branches: BranchHistories) -> pd.DataFrame:
    """Return the columns of `outages` without names.

    `pipeline` is its row in `branches.names`, and `first_failed` the row of the first failed build
    among the outcomes.
    """
    outcomes = branches.outcomes
    pipeline = outcomes["pipeline"].to_numpy()
    failed = outcomes["failed"].to_numpy()
    # A turn is an outcome that differs from the one before it, or is the first of its pipeline.
    begins = np.diff(pipeline, prepend=-1) > 0
    turns = np.flatnonzero(begins | np.diff(failed, prepend=False))
    is_red = failed[turns]
    after = np.append(turns[1:], len(outcomes))[is_red]
    turns = turns[is_red]
    is_open = np.append(begins, True)[after]
    fix = np.where(is_open, -1, after)
    at = outcomes["finished_at"].array
    number = outcomes["number"].array
    failed_at = pd.Series(at[turns])
    recovered_at = pd.Series(at.take(fix, allow_fill=True))
    recovery_s = (recovered_at - failed_at).dt.total_seconds()
    return pd.DataFrame(
        {
            "pipeline": pipeline[turns],
            "first_failed": turns,
            "failed_at": failed_at,
            "recovered_at": recovered_at,
            "recovery_time_s": recovery_s.mask(begins[turns]),
            "seen_s": (recovered_at.fillna(branches.until) - failed_at).dt.total_seconds(),
            "open": pd.array(is_open, "boolean"),
            "start_unknown": pd.array(begins[turns], "boolean"),
            "failed": pd.array(after - turns, "Int64"),
            "first_number": number[turns],
            "last_number": number[after - 1],
            "fixed_by": number.take(fix, allow_fill=True),
        }
    )
