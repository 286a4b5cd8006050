"""How often intervals contain the truth, and how often changes are found or reported by mistake, in simulated worlds.

Prints a Markdown table for each part. A cell has three shares: of intervals that contain the true value, the same for
an interval that takes rows for independent, and of missing intervals. In bold: a target is missed.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

from buildframe import metrics
from buildframe.metrics.columns import Floats
from buildframe.metrics.confidence import size_for_interval
from buildframe.metrics.estimates import Sample
from buildframe.metrics.measured_rows import measure_rows
from buildframe.metrics.ranked_groups import RankedGroups
from buildframe.metrics.rates import wilson
from buildframe.plots import theme
from tests.benchmarks import reporting
from tests.benchmarks.calibration_cells import SEED, Cell, Table, mark
from tests.benchmarks.calibration_changes import (
    show_change_intervals,
    show_change_points,
    show_commits,
    show_comparisons,
)
from tests.benchmarks.calibration_curves import QUEUE, show_success_trends, show_survival, show_trends
from tests.metrics import simulated_flakes
from tests.metrics.simulated_worlds import (
    DURATIONS,
    DurationWorld,
    as_attempts,
    as_builds,
    as_executions,
    as_waits,
    censor,
    coverage,
    of_queue,
    order_statistics,
    outcomes,
    queue,
    recovery,
    red_branches,
)

# --- percentiles


class Waits(NamedTuple):
    """Queue times of worlds: as a frame, and in seconds with NaN for jobs that did not start."""

    frame: pd.DataFrame
    seen: Floats

    @classmethod
    def draw(cls, draw: Callable[..., Any], worlds: int, share: float = 0.0) -> Waits:
        """Draw worlds; `share` is that of the longest durations to censor."""
        random = np.random.default_rng(SEED)
        times, durations = draw(random, worlds)
        limits = censor(random, durations, share)
        return cls(as_waits(times, durations, limits), np.where(durations <= limits, durations, np.nan))

    def compare(self, percentile: Callable[[float], float], q: Sequence[float], least: Sequence[float]) -> list[Cell]:
        found = metrics.percentiles(self.frame, by="world", q=q)
        cells = []
        for p, target in zip(q, least, strict=True):
            ours = coverage(found[f"p{100 * p:g}_low_s"], found[f"p{100 * p:g}_high_s"], percentile(p))
            naive = coverage(*order_statistics(self.seen, p), percentile(p))
            cells.append(Cell(ours, naive.covered, target))
        return cells


def show_percentiles(n: int) -> Table:
    yield "world", "p50", "p90", "target"
    for (name, world), share in itertools.product(DURATIONS.items(), (0.0, 0.1)):
        least = (0.88, 0.7) if name == QUEUE else (0.92, 0.92)
        cells = Waits.draw(world.draw, n, share).compare(world.percentile, (0.5, 0.9), least)
        yield name + ", censored" * (share > 0), *(cell.text() for cell in cells), f"{least[0]:g}, {least[1]:g}"


def sized_worlds() -> Iterator[tuple[str, DurationWorld]]:
    for rows, days in ((5, 28), (20, 7), (20, 28), (20, 84), (60, 28)):
        for name in ("autocorrelated within a day", "days that differ"):
            world = DURATIONS[name]
            yield (
                f"{name}, {days} days of {rows}",
                world._replace(draw=lambda *given, own=world.draw, size=(rows, days): own(*given, *size)),
            )
    for load, jobs in ((0.5, 300), (0.5, 3000), (0.7, 1000), (0.7, 10_000), (0.83, 3000), (0.83, 10_000)):
        yield (
            f"queue, load {load:g}, {jobs:,} jobs",
            DurationWorld(
                lambda *given, size=(load, jobs): queue(*given, *size), lambda p, load=load: of_queue(p, load)
            ),
        )


def show_sizes(n: int) -> Table:
    """Worlds of different sizes; in brackets the effective rows beyond the percentile, from the variance of shares."""
    q = (0.5, 0.75, 0.9, 0.95, 0.99)
    yield "world", *(f"p{100 * p:g}" for p in q)
    for name, world in sized_worlds():
        waits = Waits.draw(world.draw, n)
        texts = []
        for p, cell in zip(q, waits.compare(world.percentile, q, [0.88] * len(q)), strict=True):
            shares = (waits.seen <= world.percentile(p)).mean(axis=1)
            beyond = shares.mean() * (1 - shares.mean()) / shares.var() * min(p, 1 - p)
            texts.append(f"{cell._replace(least=0.88 if beyond >= 4 else None).text()} ({beyond:.1f})")
        yield name, *texts


# --- rates and recovery times


def show_rates(n: int) -> Table:
    """Retries and flips are as rare as failures."""
    rates = (0.5, 0.75, 0.95, 0.99)
    yield "world", *(f"rate {rate:g}" for rate in rates), "target"
    cases: list[tuple[str, Callable[..., Cell], int]] = [
        *(("success_rate", cover_success_rate, days) for days in (7, 14, 28)),
        ("retry_rate", cover_retry_rate, 28),
        ("flips", cover_flips, 28),
    ]
    for (name, cover, days), correlation in itertools.product(cases, (0.0, 0.1)):
        texts = [cover(n, rate, correlation, days).text() for rate in rates]
        yield f"{name}, {days} days, correlation {correlation:g}", *texts, "0.92"


def cover_success_rate(n: int, rate: float, correlation: float, days: int) -> Cell:
    rows = outcomes(np.random.default_rng(SEED), n, rate, correlation, days)
    found = metrics.success_rate(as_builds(rows), by="world")
    return cover_rate(found, found["passed"], found["n"], rate)


def cover_retry_rate(n: int, rate: float, correlation: float, days: int) -> Cell:
    rows = outcomes(np.random.default_rng(SEED), n, 1 - rate, correlation, days)
    found = metrics.retry_rate(as_executions(rows), by="world")
    return cover_rate(found, found["retried"], found["executions"], 1 - rate)


def cover_flips(n: int, rate: float, correlation: float, days: int) -> Cell:
    rows = outcomes(np.random.default_rng(SEED), n, 1 - rate, correlation, days)
    found = metrics.flips(as_attempts(rows))
    return cover_rate(found, found["flaky"], found["commits_passed"], 1 - rate)


def cover_rate(found: pd.DataFrame, hits: pd.Series, n: pd.Series, truth: float) -> Cell:
    return Cell(coverage(found["low"], found["high"], truth), coverage(*wilson(hits, n), truth).covered)


def show_recovery_times(n: int) -> Table:
    yield "world", "p50", "p90", "target"
    for days, spread in itertools.product((28, 90), (0.0, 0.4)):
        builds = red_branches(np.random.default_rng(SEED), n, spread, days)
        found = metrics.recovery_time(builds, branch="main", q=(0.5, 0.9))
        over = metrics.outages(builds, branch="main")[["pipeline", "recovery_time_s"]].dropna()
        place = over.groupby("pipeline").cumcount()
        seen = over.assign(place=place).pivot(index="pipeline", columns="place", values="recovery_time_s")
        texts = []
        for p in (0.5, 0.9):
            naive = coverage(*order_statistics(seen.to_numpy(np.float64), p), recovery(p))
            ours = coverage(found[f"p{100 * p:g}_low_s"], found[f"p{100 * p:g}_high_s"], recovery(p))
            texts.append(Cell(ours, naive.covered).text())
        alike = "six in a row alike" if spread else "independent"
        yield f"recovery_time, {found['n'].mean():.0f} outages, {alike}", *texts, "0.92"


# --- flaky steps


FLAKE_WORLDS: dict[str, dict[str, Any]] = {
    "retried once": {},
    "retried twice": {"retries": 2},
    "half retried": {"retried": 0.5},
    "often broken, 30 % retried": {"retried": 0.3, "broken": 0.3},
    "planned, 3 runs": {"runs": 3, "retries": 0},
    "people retry what is random": {"retried": 0.9, "prefers": 0.1, "broken": 0.2},
}
KINDS = {"few": "few steps fail at random", "all": "all do", "alike": "alike", "wide": "from 0.003 to 10 %"}
THRESHOLD = 0.01


def show_flake_scores(n: int) -> Table:
    yield "world", "rates", "coverage (90 %)", "width", "Brier score", "of the raw rate", "of Wilson's bound"
    for (world, settings), kind in itertools.product(FLAKE_WORLDS.items(), KINDS):
        results = []
        for seed in range(100, 100 + max(1, n // 8)):
            jobs, rates = simulated_flakes.simulate(seed, kind, **settings)
            scores, flips = metrics.flake_score(jobs), metrics.flips(jobs)
            results.append(simulated_flakes.calibrate(scores, rates, flips, THRESHOLD))
        mean = simulated_flakes.Calibration(*np.mean(results, axis=0))
        score = f"**{mean.score:.3f}**" if mean.score > min(mean.raw, mean.wilson) else f"{mean.score:.3f}"
        covered = mark(mean.coverage, mean.coverage < 0.87)
        yield world, KINDS[kind], covered, f"{mean.width:.3f}", score, f"{mean.raw:.3f}", f"{mean.wilson:.3f}"


# --- nominal against observed coverage


LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
Observed = Mapping[str, Mapping[str, Sequence[float]]]
"""Per world and method the observed coverage at each level."""


def observe_levels(n: int) -> Observed:
    worlds: dict[str, dict[str, Sequence[float]]] = {}
    for name, world in DURATIONS.items():
        waits = Waits.draw(world.draw, n)
        worlds[name] = {}
        for p in (0.5, 0.9):
            ours = [coverage(*ends, world.percentile(p)).covered for ends in estimate_at_levels(waits.frame, p)]
            naive = [coverage(*order_statistics(waits.seen, p, level), world.percentile(p)) for level in LEVELS]
            worlds[name] |= {f"ours, p{100 * p:g}": ours, f"naive, p{100 * p:g}": [own.covered for own in naive]}
    for correlation in (0.0, 0.1):
        found = metrics.success_rate(as_builds(outcomes(np.random.default_rng(SEED), n, 0.75, correlation)), by="world")
        spans = np.ones((len(found), 8), np.int64)
        sizes = [size_for_interval(found["n_effective"].to_numpy(), spans, level) for level in LEVELS]
        worlds[f"success rate, correlation {correlation:g}"] = {
            name: [
                coverage(*wilson(found["rate"] * size, size, level), 0.75).covered
                for size, level in zip(own, LEVELS, strict=True)
            ]
            for name, own in (("ours", sizes), ("naive", [found["n"]] * len(LEVELS)))
        }
    return worlds


def estimate_at_levels(frame: pd.DataFrame, p: float) -> list[Floats]:
    """Return the ends of intervals (2 x worlds) for each level, of which `percentiles` has one."""
    rows = measure_rows(frame, metrics.queue_time, "world", ["runnable_at"])
    sample = Sample(RankedGroups(rows, "runnable_at"))
    found = [sample.estimate((p,), level) for level in LEVELS]
    return [np.stack([estimates.low[:, 0], estimates.high[:, 0]]) for estimates in found]


def draw(worlds: Observed) -> Figure:
    """Plot observed against nominal coverage, world by world."""
    with theme.themed_axes(None, 9, 5) as first:
        figure = first.get_figure(root=True)
        assert figure is not None
        first.remove()
        panels = figure.subplots(2, 4, sharex=True, sharey=True)
        for ax, (name, curves) in zip(panels.flat, worlds.items(), strict=True):
            ax.plot((0, 1), (0, 1), color=theme.GRAY, linewidth=0.8, zorder=0)
            for label, observed in curves.items():
                style = "o--" if label.endswith("p90") else "o-"
                color = theme.BLUE if label.startswith("ours") else theme.ORANGE
                ax.plot(LEVELS, observed, style, color=color, label=label, markersize=3.5)
            ax.set_title(name, fontsize=9, fontweight="normal")
            ax.set(xlim=(0.45, 1.03), ylim=(0, 1.03), xticks=(0.5, 0.8, 0.95), xticklabels=("0.5", "0.8", "0.95"))
        figure.supxlabel("nominal coverage", fontsize=10)
        figure.supylabel("observed coverage", fontsize=10)
        figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="upper center", ncols=4, handlelength=3)
        figure.set_layout_engine("tight", rect=(0, 0, 1, 0.95))
    return figure


def save(figure: Figure, path: str) -> None:
    """Write an image of a few colors, which is small."""
    file = BytesIO()
    figure.savefig(file, dpi=100)
    plt.close(figure)
    Image.open(file).convert("RGB").quantize(48).save(path, optimize=True)


PARTS: dict[str, Callable[[int], Table]] = {
    "percentiles": show_percentiles,
    "sizes": show_sizes,
    "survival": show_survival,
    "trend": show_trends,
    "rates": show_rates,
    "success_trend": show_success_trends,
    "recovery_time": show_recovery_times,
    "flake_score": show_flake_scores,
    "comparisons": show_comparisons,
    "change_points": show_change_points,
    "change_intervals": show_change_intervals,
    "commits": show_commits,
}


def main(seeds: int, parts: Sequence[str], plot: str | None) -> None:
    print(reporting.machine())
    for part in parts:
        print(f"\n{part}, {seeds} seeds")
        watch = reporting.Stopwatch()
        with watch.running():
            for i, row in enumerate(PARTS[part](seeds)):
                print("|", " | ".join(row), "|", flush=True)
                if i == 0:
                    print("|", " | ".join(["---"] * len(row)), "|")
        print(f"{watch.cpu:.0f} s of CPU")
    if plot is not None:
        save(draw(observe_levels(seeds)), plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=400, help="worlds per cell; half for comparisons, an eighth for flake_score"
    )
    parser.add_argument("--part", choices=[*PARTS], action="append", help="only this part; can be repeated")
    parser.add_argument("--plot", metavar="FILE", help="also draw nominal against observed coverage")
    parser.add_argument("--quick", action="store_true", help="only check that it works")
    options = parser.parse_args()
    main(8 if options.quick else options.seeds, options.part or [*PARTS], options.plot)
