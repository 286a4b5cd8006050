"""Read two ledgers as arrays of builds and their times in each row of an explanation. Does not estimate errors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import Floats, Integers, timestamps
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.rows import Frame
from buildframe.metrics.grouping import By, as_key_list, find_groups
from buildframe.metrics.pipeline_jobs import pipeline_keys
from buildframe.metrics.queues import BY_QUEUE
from buildframe.metrics.time_buckets import to_zone

N_SIDES = 2

_NEEDS = ("build_id", "build_created_at", "kind", "pipeline", "step", "queue", "duration_s")


@dataclass(frozen=True)
class ComparedBuilds:
    """Builds of both sides, and their seconds in each row of the explanation.

    Times are whole microseconds, whose sums are exact. `side` (0: before), `day`, `group` and `wall` have an entry per
    build. `build`, `row` and `micros` have an entry per build and row that occurs in it. Of each row, `keys` has the
    keys, `of` the group whose builds it compares (-1: all), and `weight` the share of its group among all builds.

    With groups, the effect of a share depends on the mean wall time of all builds, to which each build contributes, of
    whatever group. `common` is how much each build moves this mean, and `slope` how much a row changes with it (0
    without groups). A row's value of a build is `micros` plus their product, which is 0 on average: it adds to the
    error alone.
    """

    side: Integers
    day: Integers
    group: Integers
    wall: Floats
    build: Integers
    row: Integers
    micros: Floats
    keys: pd.DataFrame
    of: Integers
    weight: Floats
    common: Floats
    slope: Floats

    @classmethod
    def read(cls, before: Frame, after: Frame, by: By, tz: str) -> ComparedBuilds:
        columns = _check_by(by)
        tables = [_read_ledger(*side, columns) for side in (("before", before), ("after", after))]
        pipeline = pipeline_keys(*tables)
        names = [*dict.fromkeys(one for name in columns for one in (pipeline if name == "pipeline" else [name]))]
        # With ids on one side only, as of an older ledger, each queue would look like two that
        # replace each other.
        has_ids = all("queue_id" in table for table in tables)
        keys = ["kind", *pipeline, "step", *(BY_QUEUE if has_ids else ["queue"])]
        table = pd.concat(tables, ignore_index=True)
        codes, ids = pd.factorize(table["build_id"], sort=True)
        _, first = np.unique(codes, return_index=True)
        side = np.repeat([0, 1], [len(one) for one in tables])
        _check_sides(ids[codes[side != side[first][codes]]])
        groups = find_groups(table, names)
        _check_groups(names, ids[codes[groups.codes != groups.codes[first][codes]]])
        days = to_zone(timestamps(table, "build_created_at").iloc[first], tz).dt.tz_localize(None)
        numbers = days.to_numpy("datetime64[D]").astype(np.int64)
        _, day = np.unique([side[first], numbers], axis=1, return_inverse=True)
        rows = find_groups(table.assign(group=groups.codes), ["group", *keys])
        pairs, place = np.unique(codes * len(rows.keys) + rows.codes, return_inverse=True)
        build, row = np.divmod(pairs, len(rows.keys))
        durations = np.rint(table["duration_s"].to_numpy(np.float64) * 1e6)
        micros = np.bincount(place, durations).astype(np.float64)
        of = rows.keys.pop("group").to_numpy(np.int64)
        wall = np.bincount(build, micros).astype(np.float64)
        weight, common, slope = np.ones(len(rows.keys)), np.zeros(len(ids)), np.zeros(len(rows.keys))
        entries = build, row, micros
        own = cls(side[first], day, groups.codes[first], wall, *entries, rows.keys, of, weight, common, slope)
        return own.by_group(groups.keys, names) if names else own

    def by_group(self, keys: pd.DataFrame, names: list[str]) -> ComparedBuilds:
        """Return these builds with rows within groups, weighted by their share, and a row for the share of each.

        Groups that only one side has differ in nothing but their share (Kitagawa 1955). Rows of shares have the
        influence of each build on the means that they contain, too, so that their errors include those of the means.
        """
        place, shape = self.side * len(keys) + self.group, (N_SIDES, len(keys))
        n = np.bincount(place, minlength=2 * len(keys)).reshape(shape)
        with np.errstate(invalid="ignore"):
            means = np.bincount(place, self.wall, minlength=2 * len(keys)).reshape(shape) / n
        usual = np.nanmean(means, axis=0)
        shares, walls = n / n.sum(axis=1, keepdims=True), self.mean_walls()
        gain, sign = shares[1] - shares[0], 2 * self.side - 1
        of_means = (self.wall - means.flat[place]) / (shares.flat[place] * (n > 0).sum(axis=0)[self.group])
        kept = np.all(n[:, self.of] > 0, axis=0)
        number = np.cumsum(kept) - 1
        chosen = kept[self.row]
        builds = np.arange(len(self.side))
        within = (
            keys.take(self.of[kept])
            .set_axis(self.keys.index[kept])
            .join(self.keys.drop(columns=names, errors="ignore"))
        )
        rows = pd.concat([within.assign(effect="time"), keys.assign(effect="mix")], ignore_index=True)
        return replace(
            self,
            build=np.concatenate([self.build[chosen], builds]),
            row=np.concatenate([number[self.row[chosen]], kept.sum() + self.group]),
            micros=np.concatenate(
                [self.micros[chosen], (usual - walls.mean())[self.group] + sign * gain[self.group] * of_means]
            ),
            keys=rows[[*names, "effect", *(name for name in self.keys if name not in names)]],
            of=np.concatenate([self.of[kept], np.full(len(keys), -1)]),
            weight=np.concatenate([shares.mean(axis=0)[self.of[kept]], np.ones(len(keys))]),
            common=-sign * (self.wall - walls[self.side]) / 2,
            slope=np.concatenate([np.zeros(kept.sum()), gain]),
        )

    def mean_walls(self) -> Floats:
        """Return the mean wall time of each side."""
        return np.array([self.wall[self.side == side].mean() for side in range(N_SIDES)])

    def sums(self, of: Integers, many: int) -> Floats:
        """Sum the times of each row (columns) by a number of each build (rows)."""
        place = of[self.build] * len(self.of) + self.row
        sums = np.bincount(place, self.micros, minlength=many * len(self.of))
        return sums.reshape(many, -1) + np.outer(np.bincount(of, self.common, minlength=many), self.slope)

    def squares(self) -> Floats:
        """Sum the squared times of each row (columns) by side (rows)."""
        products = self.micros * (self.micros + 2 * self.slope[self.row] * self.common[self.build])
        place = self.side[self.build] * len(self.of) + self.row
        sums = np.bincount(place, products, minlength=N_SIDES * len(self.of)).reshape(N_SIDES, -1)
        common = np.bincount(self.side, self.common**2, minlength=N_SIDES)
        return np.asarray(sums + np.outer(common, self.slope**2), np.float64)

    def counts(self, of: Integers, many: int) -> Integers:
        """Count the builds that each row (columns) compares by a number of each build (rows)."""
        n_groups = int(self.group.max()) + 1
        counts = np.bincount(of * n_groups + self.group, minlength=many * n_groups).reshape(many, -1)
        return np.column_stack([counts, counts.sum(axis=1)])[:, self.of]


def _check_by(by: By) -> list[str]:
    """Return the columns of groups; raise BadInput if there cannot be such."""
    if wrong := [key for key in as_key_list(by) if not isinstance(key, str)]:
        raise BadInput(f"by={wrong[0]!r}: name columns of the ledgers, such as 'pipeline' or 'branch'.")
    if "effect" in as_key_list(by):
        raise BadInput("by='effect': the result has a column of this name. Rename the column of the ledgers.")
    return [str(key) for key in as_key_list(by)]


def _read_ledger(argument: str, ledger: Frame, by: list[str]) -> pd.DataFrame:
    """Read the columns of an argument; raise BadInput if it is no ledger or empty."""
    needs = list(dict.fromkeys([*_NEEDS, *by]))
    try:
        table = engine_of(ledger).collect_columns(ledger, needs, [*{"organization", "queue_id"}.difference(needs)])
        created = timestamps(table, "build_created_at")
    except BadInput as wrong:
        raise BadInput(f"{argument}: {wrong} Pass a ledger from metrics.time_ledger.") from None
    if table.empty:
        raise BadInput(f"{argument}: the ledger has no builds, so there is nothing to compare. Select a longer period.")
    for name in ("build_id", "build_created_at", "duration_s"):
        if table[name].isna().any():
            raise BadInput(f"{argument}: {name!r} has nulls. Drop these builds from the ledger of metrics.time_ledger.")
    return table.assign(build_created_at=created)


def _check_sides(shared: pd.Index) -> None:
    if len(shared):
        raise BadInput(f"The build {shared[0]} is in both ledgers. Select each build for one of them only.")


def _check_groups(names: list[str], mixed: pd.Index) -> None:
    if len(mixed):
        raise BadInput(f"by={names}: the segments of build {mixed[0]} differ in it. Use columns that builds have.")
