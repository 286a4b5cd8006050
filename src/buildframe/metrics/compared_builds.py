"""Read two ledgers as arrays of builds and their times in each row of an explanation.

Does not estimate errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import TEXT, Floats, Integers, timestamps
from buildframe.metrics.grouping import By, Groups, as_key_list, find_groups
from buildframe.metrics.input_frames import Frame, collect_columns
from buildframe.metrics.pipeline_jobs import pipeline_keys
from buildframe.metrics.queues import BY_QUEUE
from buildframe.metrics.time_buckets import to_zone

N_SIDES = 2

_NEEDS = (
    "build_id",
    "build_created_at",
    "kind",
    "pipeline",
    "step",
    "queue",
    "duration_s",
)
_WANTS = ("organization", "queue_id")

NAMELESS = ("setup", "unknown")
"""Kinds of segments that no step or queue causes."""


@dataclass(frozen=True)
class ComparedBuilds:
    """Builds of both sides, and their seconds in each row of the explanation.

    Times are whole microseconds, whose sums are exact. `side` (0: before), `day`, `group` and
    `wall` have an entry per build. `build`, `row` and `micros` have an entry per build and row that
    occurs in it. Of each row, `keys` has the keys, `row_group` the group whose builds it compares
    (-1: all), and `weight` the share of its group among all builds.

    With groups, the effect of a share depends on the mean wall time of all builds, to which each
    build contributes, of whatever group. `common` is how much each build moves this mean, and
    `slope` how much a row changes with it (0 without groups). A row's value of a build is `micros`
    plus their product, which is 0 on average: it adds to the error alone.
    """

    side: Integers
    day: Integers
    group: Integers
    wall: Floats
    build: Integers
    row: Integers
    micros: Floats
    keys: pd.DataFrame
    row_group: Integers
    weight: Floats
    common: Floats
    slope: Floats

    @property
    def n_rows(self) -> int:
        """Number of rows of the explanation."""
        return len(self.row_group)

    def mean_walls(self) -> Floats:
        """Return the mean wall time of each side."""
        return np.array([self.wall[self.side == side].mean() for side in range(N_SIDES)])

    def sums(self, number: Integers, n: int) -> Floats:
        """Sum the times of each row (columns) by a number of each build (rows)."""
        cell = number[self.build] * self.n_rows + self.row
        sums = np.bincount(cell, self.micros, minlength=n * self.n_rows).reshape(n, -1)
        common = np.bincount(number, self.common, minlength=n)
        return sums + np.outer(common, self.slope)

    def squares(self) -> Floats:
        """Sum the squared times of each row (columns) by side (rows)."""
        # (m + s c)^2 = m (m + 2 s c) + s^2 c^2, of which the last term is the same for all rows.
        products = self.micros * (self.micros + 2 * self.slope[self.row] * self.common[self.build])
        cell = self.side[self.build] * self.n_rows + self.row
        sums = np.bincount(cell, products, minlength=N_SIDES * self.n_rows).reshape(N_SIDES, -1)
        common = np.bincount(self.side, self.common**2, minlength=N_SIDES)
        return np.asarray(sums + np.outer(common, self.slope**2), np.float64)

    def counts(self, number: Integers, n: int) -> Integers:
        """Count the builds that each row (columns) compares by a number of each build (rows)."""
        n_groups = int(self.group.max()) + 1
        cell = number * n_groups + self.group
        counts = np.bincount(cell, minlength=n * n_groups).reshape(n, -1)
        with_all = np.column_stack([counts, counts.sum(axis=1)])  # -1 is the column of all builds
        return with_all[:, self.row_group]

    def occurrences(self) -> Integers:
        """Count the builds that have each row (columns) by side (rows)."""
        cell = self.side[self.build] * self.n_rows + self.row
        return np.bincount(cell, minlength=N_SIDES * self.n_rows).reshape(N_SIDES, -1)


def read_compared_builds(before: Frame, after: Frame, by: By, tz: str) -> ComparedBuilds:
    """Read the ledgers of both sides; raise BadInput if they cannot be compared."""
    group_names = _check_by(by)
    ledgers = [
        _read_ledger("before", before, group_names),
        _read_ledger("after", after, group_names),
    ]
    pipeline = pipeline_keys(*ledgers)
    names: list[str] = []
    for name in group_names:
        names += pipeline if name == "pipeline" else [name]
    group_names = [*dict.fromkeys(names)]
    # With ids on one side only, as of an older ledger, each queue would look like two that replace
    # each other.
    has_ids = all("queue_id" in ledger for ledger in ledgers)
    keys = ["kind", *pipeline, "step", *(BY_QUEUE if has_ids else ["queue"])]
    segments = pd.concat(ledgers, ignore_index=True)
    side_of_segment = np.repeat([0, 1], [len(ledger) for ledger in ledgers])
    build_of_segment, ids = pd.factorize(segments["build_id"], sort=True)
    _, first_segment = np.unique(build_of_segment, return_index=True)
    side = side_of_segment[first_segment]
    _check_sides(ids[build_of_segment[side_of_segment != side[build_of_segment]]])
    groups = find_groups(segments, group_names)
    group = groups.codes[first_segment]
    _check_groups(group_names, ids[build_of_segment[groups.codes != group[build_of_segment]]])
    created = timestamps(segments, "build_created_at").iloc[first_segment]
    rows = find_groups(segments.assign(group=groups.codes), ["group", *keys])
    n_rows = len(rows.keys)
    # One entry per build and row: the sum of its segments.
    pairs, entry = np.unique(build_of_segment * n_rows + rows.codes, return_inverse=True)
    build, row = np.divmod(pairs, n_rows)
    durations = np.rint(segments["duration_s"].to_numpy(np.float64) * 1e6)
    micros = np.bincount(entry, durations).astype(np.float64)
    builds = ComparedBuilds(
        side=side,
        day=_number_days(created, side, tz),
        group=group,
        wall=np.bincount(build, micros).astype(np.float64),
        build=build,
        row=row,
        micros=micros,
        keys=rows.keys.drop(columns="group"),
        row_group=rows.keys["group"].to_numpy(np.int64),
        weight=np.ones(n_rows),
        common=np.zeros(len(ids)),
        slope=np.zeros(n_rows),
    )
    return _divide_by_group(builds, groups, group_names) if group_names else builds


def _number_days(created: pd.Series[pd.Timestamp], side: Integers, tz: str) -> Integers:
    """Number the days of both sides, which are different ones."""
    local = to_zone(created, tz).dt.tz_localize(None)
    dates = local.to_numpy("datetime64[D]").astype(np.int64)
    _, day = np.unique([side, dates], axis=1, return_inverse=True)
    return day


def _divide_by_group(builds: ComparedBuilds, groups: Groups, names: list[str]) -> ComparedBuilds:
    """Return rows within groups, weighted by their share, and a row for the share of each group.

    Groups that only one side has differ in nothing but their share (Kitagawa 1955). Rows of shares
    have the influence of each build on the means that they contain, too, so that their errors
    include those of the means.
    """
    group_keys = groups.keys
    n_groups = len(group_keys)
    cell = builds.side * n_groups + builds.group
    # Matrices: sides x groups.
    n = np.bincount(cell, minlength=N_SIDES * n_groups).reshape(N_SIDES, -1)
    wall_sums = np.bincount(cell, builds.wall, minlength=N_SIDES * n_groups)
    with np.errstate(invalid="ignore"):
        means = wall_sums.reshape(N_SIDES, -1) / n
    usual = np.nanmean(means, axis=0)
    shares = n / n.sum(axis=1, keepdims=True)
    walls = builds.mean_walls()
    gain = shares[1] - shares[0]
    sign = 2 * builds.side - 1
    n_sides_of_group = (n > 0).sum(axis=0)[builds.group]
    influence = (builds.wall - means.flat[cell]) / (shares.flat[cell] * n_sides_of_group)
    share_effect = (usual - walls.mean())[builds.group] + sign * gain[builds.group] * influence
    # Rows of groups that both sides have are kept, and a row for each share follows.
    is_kept = np.all(n[:, builds.row_group] > 0, axis=0)
    n_kept = int(is_kept.sum())
    new_row = np.cumsum(is_kept) - 1
    is_entry_kept = is_kept[builds.row]
    kept_groups = builds.row_group[is_kept]
    all_builds = np.arange(len(builds.side))
    return replace(
        builds,
        build=np.concatenate([builds.build[is_entry_kept], all_builds]),
        row=np.concatenate([new_row[builds.row[is_entry_kept]], n_kept + builds.group]),
        micros=np.concatenate([builds.micros[is_entry_kept], share_effect]),
        keys=_join_keys_of_groups(builds.keys[is_kept], groups.keys, kept_groups),
        row_group=np.concatenate([kept_groups, np.full(n_groups, -1)]),
        weight=np.concatenate([shares.mean(axis=0)[kept_groups], np.ones(n_groups)]),
        common=-sign * (builds.wall - walls[builds.side]) / 2,
        slope=np.concatenate([np.zeros(n_kept), gain]),
    )


def _join_keys_of_groups(
    keys: pd.DataFrame,
    group_keys: pd.DataFrame,
    row_group: Integers,
) -> pd.DataFrame:
    """Return the keys of rows with those of their group, and the keys of shares of groups."""
    names = [*group_keys]
    others = [name for name in keys if name not in names]
    of_rows = group_keys.take(row_group).reset_index(drop=True)
    within = pd.concat([of_rows, keys[others].reset_index(drop=True)], axis=1)
    effects = np.repeat(["time", "mix"], [len(within), len(group_keys)])
    both = pd.concat([within, group_keys], ignore_index=True)
    both["effect"] = pd.array(effects, TEXT)
    return both[[*names, "effect", *others]]


def _check_by(by: By) -> list[str]:
    """Return the columns of groups; raise BadInput if there cannot be such."""
    keys = as_key_list(by)
    functions = [key for key in keys if not isinstance(key, str)]
    if functions:
        raise BadInput(
            f"by={functions[0]!r}: name columns of the ledgers, such as 'pipeline' or 'branch'.",
        )
    if "effect" in keys:
        raise BadInput(
            "by='effect': the result has a column of this name. Rename the column of the ledgers.",
        )
    return [str(key) for key in keys]


def _read_ledger(argument: str, ledger: Frame, by: list[str]) -> pd.DataFrame:
    """Read the columns of an argument; raise BadInput if it is no ledger or empty."""
    try:
        segments = collect_columns(ledger, [*_NEEDS, *by], _WANTS)
    except BadInput as wrong:
        raise BadInput(
            f"{argument}: {wrong} Pass a ledger from metrics.time_ledger. "
            "To explain a day of builds and jobs, pass day=."
        ) from None
    if segments.empty:
        advice = "so there is nothing to compare. Select a longer period."
        raise BadInput(f"{argument}: the ledger has no builds, {advice}")
    for name in ("build_id", "build_created_at", "duration_s"):
        if segments[name].isna().any():
            advice = "Drop these builds from the ledger of metrics.time_ledger."
            raise BadInput(f"{argument}: {name!r} has nulls. {advice}")
    return _assign_to_causes(segments)


def _assign_to_causes(segments: pd.DataFrame) -> pd.DataFrame:
    """Return waits by queue, whatever step waited, and other segments by step.

    A wait is caused by its queue: the waits of its steps add up to a change that none of them
    shows alone.
    """
    is_wait = segments["kind"].eq("queue").to_numpy(bool, na_value=False)
    is_nameless = segments["kind"].isin(NAMELESS).to_numpy()
    causes = {"step": segments["step"].mask(is_wait | is_nameless)}
    for name in ("queue", "queue_id"):
        if name in segments:
            causes[name] = segments[name].where(is_wait)
    return segments.assign(**causes)


def _check_sides(shared: pd.Index) -> None:
    if len(shared):
        raise BadInput(
            f"The build {shared[0]} is in both ledgers. Select each build for one of them only.",
        )


def _check_groups(names: list[str], mixed: pd.Index) -> None:
    if len(mixed):
        advice = "Use columns that builds have."
        raise BadInput(f"by={names}: the segments of build {mixed[0]} differ in it. {advice}")
