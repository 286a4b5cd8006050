"""Draw every plot, report page and widget in several variants, to look at: light and dark, wide and narrow.

`python -m tests.gallery FOLDER` writes images and `index.html`. Plots and report pages show usual, ugly and no data.
Widgets are those of the browser tests. `--parts plots` selects a part, `--only trend,flips` plots, `--data month` data.
"""

from __future__ import annotations

import argparse
import html
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import buildframe as bf
from buildframe import metrics, plots
from buildframe.report.content import Report
from buildframe.report.objectives import Objective
from buildframe.report.page import render
from buildframe.report.thresholds import Thresholds
from tests.chromium import launched
from tests.report.reports import first_snapshot, made

ROOT = Path(__file__).parent.parent
PARTS = ("plots", "report", "widgets")
NAMES = [
    "a-pipeline-with-a-very-long-name-for-integration-tests-of-the-billing-service-on-linux-x86-shard-1-of-2",
    "a-pipeline-with-a-very-long-name-for-integration-tests-of-the-billing-service-on-linux-x86-shard-2-of-2",
    "שירות התשלומים של החברה", "خدمة الدفع", "日本語のパイプライン名前", "\N{FIRE} hotfix",
    r"$\frac{x$ y_{", "_under", "x",
]  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Builds and jobs, the pipelines, and two lists of flaky tests."""

    builds: pd.DataFrame
    jobs: pd.DataFrame
    pipelines: pd.DataFrame
    tests: pd.DataFrame

    @cached_property
    def ledger(self) -> pd.DataFrame:
        return metrics.time_ledger(self.builds, self.jobs)

    @cached_property
    def busiest(self) -> str:
        """The pipeline with most builds; "" without builds."""
        return next(iter(self.builds["pipeline"].value_counts().index), "")

    @cached_property
    def builds_of_one(self) -> pd.DataFrame:
        return self.builds[self.builds["pipeline"] == self.busiest]

    @cached_property
    def jobs_of_one(self) -> pd.DataFrame:
        return self.jobs[self.jobs["pipeline"] == self.busiest]

    @cached_property
    def jobs_of_main(self) -> pd.DataFrame:
        return self.jobs_of_one[self.jobs_of_one["branch"] == "main"]

    @cached_property
    def halves(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        created = self.ledger["build_created_at"]
        is_early = created < created.quantile(0.5)
        return self.ledger[is_early], self.ledger[~is_early]

    @cached_property
    def one_build(self) -> pd.DataFrame:
        """The jobs of a build with many jobs."""
        sizes = self.jobs.groupby("build_id")["id"].count().sort_values()
        return self.jobs[self.jobs["build_id"].isin(sizes.index[len(sizes) * 3 // 4 :][:1])]


def month() -> Data:
    """The history of the sandbox."""
    ci = bf.sandbox()
    builds, jobs = ci.history(created_from="30d", include_retried_jobs=True, progress=False)
    return Data(builds, jobs, ci.pipelines(), ci.flaky_tests(suite="rspec"))


def ugly(data: Data) -> Data:
    """50 pipelines, and names that are long, alike, from right to left, or of many scripts."""
    names = [*NAMES, *(f"team-{k % 7}/service-{k}-nightly" for k in range(50 - len(NAMES)))]
    pipeline = {build: names[k % len(names)] for k, build in enumerate(data.builds["id"])}
    steps = dict(zip(sorted(data.jobs["name"].dropna().unique()), NAMES * 99, strict=False))
    queues = {queue: NAMES[k % len(NAMES)] for k, queue in enumerate(data.jobs["queue"].dropna().unique())}
    jobs = data.jobs.assign(
        pipeline=data.jobs["build_id"].map(pipeline), name=data.jobs["name"].map(steps), step_key=None,
        queue=data.jobs["queue"].map(queues),
    )  # fmt: skip
    tests = data.tests.assign(name=[f"{NAMES[k % len(NAMES)]} {k // len(NAMES)}" for k in range(len(data.tests))])
    return Data(data.builds.assign(pipeline=data.builds["id"].map(pipeline)), jobs, data.pipelines, tests)


def few(data: Data, n: int) -> Data:
    """The jobs and builds of n builds of one pipeline."""
    builds = data.builds_of_one.iloc[-n:]
    jobs = data.jobs[data.jobs["build_id"].isin(builds["id"])]
    return Data(builds, jobs, data.pipelines, data.tests.head(n))


def none(data: Data) -> Data:
    """No builds, jobs or tests, with all columns."""
    return Data(data.builds.head(0), data.jobs.head(0), data.pipelines.head(0), data.tests.head(0))


def _short(data: Data) -> Data:
    """Jobs and builds of a few seconds."""
    builds, jobs = (frame.copy() for frame in (data.builds_of_one, data.jobs_of_one))
    builds["finished_at"] = builds["created_at"] + (builds["finished_at"] - builds["created_at"]) / 400
    for name in ("started_at", "finished_at"):
        jobs[name] = jobs["runnable_at"] + (jobs[name] - jobs["runnable_at"]) / 400
    return Data(builds, jobs, data.pipelines, data.tests)


PLOTS: dict[str, Callable[[Data], object]] = {
    "agents_needed": lambda data: plots.agents_needed(
        data.builds, data.jobs, queue=next(iter(data.jobs["queue"].dropna()), "default")
    ),
    "calendar": lambda data: plots.calendar(data.builds),
    "calendar_of_durations": lambda data: plots.calendar(data.builds_of_one, of=metrics.wall_time),
    "calendar_by_pipeline": lambda data: plots.calendar(data.builds, col="pipeline"),
    "commit_grid": lambda data: plots.commit_grid(data.jobs_of_main),
    "commit_grid_of_all": lambda data: plots.commit_grid(data.jobs),
    "concurrency": lambda data: plots.concurrency(data.jobs),
    "concurrency_on_one": lambda data: plots.concurrency(data.jobs, by=None),
    "concurrency_by_pipeline": lambda data: plots.concurrency(data.jobs, col="pipeline"),
    "contention": lambda data: plots.contention(data.jobs),
    "contention_by_queue": lambda data: plots.contention(data.jobs, col="queue", top=4),
    "distribution": lambda data: plots.distribution(data.builds_of_one),
    "distribution_by": lambda data: plots.distribution(data.jobs, of=metrics.queue_time, by="queue"),
    "distribution_by_row": lambda data: plots.distribution(data.builds, by="state", col="pipeline"),
    "duration_trend": lambda data: plots.duration_trend(data.builds_of_one, changes=True),
    "duration_trend_by_pipeline": lambda data: plots.duration_trend(data.builds, col="pipeline"),
    "duration_trend_by": lambda data: plots.duration_trend(data.builds, by="pipeline"),
    "explain": lambda data: plots.explain(*data.halves),
    "flake_scores": lambda data: plots.flake_scores(data.jobs),
    "flaky_board": lambda data: plots.flaky_board(data.tests),
    "flips": lambda data: plots.flips(data.jobs),
    "flips_by_pipeline": lambda data: plots.flips(data.jobs, row="pipeline", top=6),
    "leverage": lambda data: plots.leverage(data.builds, data.jobs),
    "objective": lambda data: plots.objective(data.jobs, of=metrics.queue_time, within="5m", target=0.95),
    "objective_by_queue": lambda data: plots.objective(
        data.jobs, of=metrics.queue_time, within="5m", target=0.95, col="queue"
    ),
    "queue_depth": lambda data: plots.queue_depth(data.jobs),
    "queue_times_by_hour": lambda data: plots.queue_times_by_hour(data.jobs),
    "queue_times_by_hour_by_queue": lambda data: plots.queue_times_by_hour(data.jobs, row="queue"),
    "step_graph": lambda data: plots.step_graph(data.builds_of_one, data.jobs_of_one),
    "step_times": lambda data: plots.step_times(data.jobs),
    "step_times_by_pipeline": lambda data: plots.step_times(data.jobs, col="pipeline", top=5),
    "success_trend": lambda data: plots.success_trend(data.builds_of_one, branch="main"),
    "success_trend_by_pipeline": lambda data: plots.success_trend(data.builds, col="pipeline"),
    "success_trend_by": lambda data: plots.success_trend(data.builds, by="pipeline", top=3),
    "survival": lambda data: plots.survival(data.jobs, by="queue"),
    "survival_by_queue": lambda data: plots.survival(data.jobs, col="queue"),
    "time_ledger": lambda data: plots.time_ledger(data.ledger),
    "time_spent": lambda data: plots.time_spent(data.jobs),
    "time_spent_by_queue": lambda data: plots.time_spent(data.jobs, by="queue", top=10),
    "timeline": lambda data: plots.timeline(data.one_build, ledger=data.ledger),
    "trend": lambda data: plots.trend(data.jobs, of=metrics.queue_time, by="queue", q=0.95),
    "trend_by_pipeline": lambda data: plots.trend(data.builds, col="pipeline", by="state"),
}
"""Each plot as it is usually called, and in its less usual forms."""

STYLES: dict[str, dict[str, object]] = {
    "light": {}, "light-narrow": {"figure.figsize": (4, 3.4)}, "light-small": {"figure.figsize": (3.5, 2.6)},
    "light-large-font": {"font.size": 14}, "dark": {"dark": True},
}  # fmt: skip


def draw(name: str, data: Data, style: str) -> plt.Figure:
    """Draw one plot in a style."""
    settings = dict(STYLES[style])
    with plt.style.context("dark_background" if settings.pop("dark", False) else "default"), mpl.rc_context(settings):
        drawn = PLOTS[name](data)
        ax = drawn.flat[0] if isinstance(drawn, np.ndarray) else drawn
        return ax.get_figure(root=True)


def data_sets(names: list[str]) -> dict[str, Data]:
    """Return the sets of data with these names."""
    whole = month()
    makers: dict[str, Callable[[], Data]] = {
        "month": lambda: whole, "ugly": lambda: ugly(whole), "seconds": lambda: _short(whole),
        "two": lambda: few(whole, 2), "one": lambda: few(whole, 1), "none": lambda: none(whole),
    }  # fmt: skip
    return {name: makers[name]() for name in names}


def draw_plots(folder: Path, only: list[str], sets: dict[str, Data], styles: list[str]) -> Iterator[str]:
    """Draw plots, and return what could not be drawn."""
    for kind, data in sets.items():
        for name in only:
            for style in styles:
                path = folder / f"{name}-{kind}-{style}.png"
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")
                        figure = draw(name, data, style)
                        with plt.style.context("dark_background" if style == "dark" else "default"):
                            figure.savefig(path, dpi=80)
                except bf.BadInput as refused:
                    print(f"{path.name}: refused: {refused}")
                except Exception as error:
                    yield f"{path.name}: {type(error).__name__}: {error}"
                plt.close("all")


LIMITS = Thresholds(
    queue_time={"*": 600.0, "macos": 5400.0, "macoss": 60.0},
    success_rate={"*": 0.7, "web": 0.9},
    wall_time={"*": 0.2},
    objectives={
        "jobs start": Objective("queue_time", 300.0, 0.95, by="queue"),
        "web is fast": Objective("wall_time", 1200.0, 0.9, pipeline="web"),
    },
    rates={"default": 0.008, "macos": 0.08, "idle": 1.0},
)


def broken(data: Data) -> Report:
    """A report with limits, objectives and costs, made while the default branches were broken that were so longest."""
    outages = metrics.outages(data.builds, pipelines=data.pipelines)
    latest = outages[outages["recovered_at"] > data.builds["created_at"].max() - pd.Timedelta("8D")]
    longest = latest.sort_values("seen_s").iloc[-1]
    as_of = longest["recovered_at"] - (longest["recovered_at"] - longest["failed_at"]) / 10
    builds, jobs = data.builds[data.builds["created_at"] < as_of], data.jobs[data.jobs["build_created_at"] < as_of]
    late = builds["finished_at"] > as_of
    builds = builds.assign(
        finished_at=builds["finished_at"].mask(late), state=builds["state"].mask(late, "running"), fetched_at=as_of
    )
    flaky = first_snapshot(data.tests)
    return made(builds, jobs, data.pipelines, flaky, 7, as_of=as_of.isoformat(), thresholds=LIMITS)


def nine_weeks() -> Report:
    """A report on a store with nine weeks of builds, so that it compares 28 days with 28."""
    with bf.sandbox(builds=2600, days=63) as ci:
        builds, jobs = ci.history(include_retried_jobs=True, progress=False)
        return made(builds, jobs, ci.pipelines(), first_snapshot(ci.flaky_tests(suite="rspec")), 7, thresholds=LIMITS)


def make_reports(sets: dict[str, Data]) -> Iterator[tuple[str, Report]]:
    """Return a report of each set of data, and those that show what these do not."""
    for kind, data in sets.items():
        yield kind, made(data.builds, data.jobs, data.pipelines, None, 7)
    if "month" in sets:
        yield "broken", broken(sets["month"])
        yield "weeks", nine_weeks()


def draw_reports(folder: Path, sets: dict[str, Data]) -> None:
    """Take screenshots of the page of each report."""
    with launched() as browser:
        for kind, report in make_reports(sets):
            (folder / f"{kind}.html").write_text(render(report), encoding="utf-8")
            for scheme in ("light", "dark"):
                for width in (1280, 720):
                    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
                    page.goto((folder / f"{kind}.html").absolute().as_uri())
                    page.screenshot(path=folder / f"{kind}-{scheme}-{width}.png", full_page=True)
                    page.close()


def draw_widgets(folder: Path) -> None:
    """Run the browser tests, which take screenshots of each widget in its states."""
    environment = os.environ | {"BUILDFRAME_SCREENSHOTS": str(folder.absolute())}
    subprocess.run([sys.executable, "-m", "pytest", "-q", "tests/jupyter"], cwd=ROOT, env=environment, check=True)


def write_index(folder: Path) -> None:
    """Write a page with all images."""
    parts = []
    for part in PARTS:
        names = sorted(path.name for path in (folder / part).glob("*.png"))
        images = (f'<figure><img src="{part}/{name}" alt=""><figcaption>{html.escape(name)}</figure>' for name in names)
        parts.append(f"<h1>{part}</h1>{''.join(images)}")
    page = f"<!doctype html><meta charset='utf-8'><title>Gallery</title>{''.join(parts)}"
    (folder / "index.html").write_text(page, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write the gallery, list what could not be drawn, and return 1 if there is any."""
    parser = argparse.ArgumentParser(prog="python -m tests.gallery", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--only", default=",".join(PLOTS), help="names of plots, separated by commas")
    parser.add_argument("--data", default="month,ugly,seconds,two,one,none", help="sets of data, separated by commas")
    parser.add_argument("--styles", default=",".join(STYLES), help="styles, separated by commas")
    options = parser.parse_args(arguments)
    mpl.use("Agg")
    only, names, styles, parts = (getattr(options, one).split(",") for one in ("only", "data", "styles", "parts"))
    if unknown := {*parts} - {*PARTS}:
        parser.error(f"no part {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    for part in parts:
        (options.folder / part).mkdir(parents=True, exist_ok=True)
    sets = data_sets(names) if {"plots", "report"} & {*parts} else {}
    failed = list(draw_plots(options.folder / "plots", only, sets, styles)) if "plots" in parts else []
    if "report" in parts:
        draw_reports(options.folder / "report", sets)
    if "widgets" in parts:
        draw_widgets(options.folder / "widgets")
    write_index(options.folder)
    print(*failed, f"Wrote {options.folder / 'index.html'}", sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
