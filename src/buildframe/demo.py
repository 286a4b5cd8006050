"""The demo: a month of CI from a sandbox, fetched, measured, drawn and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics, plots, store
from buildframe.metrics.groups import Key
from buildframe.workspace import Workspace

TOP = 5
NOTEBOOK = "notebooks/01_a_month_of_ci.ipynb"


def run(ci: Workspace, folder: Path) -> Iterator[str]:
    """Do it all, in paragraphs to print; the files go to `folder`, which is made."""
    yield f"A sandbox of the service runs at {ci.sandbox.url} (on this machine only). Fetching a month of its builds."
    builds, jobs = ci.history()
    yield fetched(builds, jobs)
    yield from summaries(builds, jobs)
    folder.mkdir(parents=True, exist_ok=True)
    yield written(folder, builds, jobs)
    yield next_steps()


def fetched(builds: pd.DataFrame, jobs: pd.DataFrame) -> str:
    """What was fetched, over which time, and whether it is all."""
    first, last = builds["created_at"].min(), builds["created_at"].max()
    why = builds.attrs["why"]
    complete = f"incomplete: {why}" if why else "complete: every build that was there from first to last answer, once"
    return (
        f"Fetched {len(builds):,} builds and {len(jobs):,} jobs (all attempts of retried ones) "
        f"by {builds.attrs['requests']} requests;\n"
        f"created {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, as of {builds.attrs['as_of']}.\n"
        f"The walk is {complete}."
    )


def summaries(builds: pd.DataFrame, jobs: pd.DataFrame) -> Iterator[str]:
    """The tables: where jobs wait, where they run, and how often builds pass."""
    by: Sequence[Key] = ["pipeline", metrics.step]
    waits = metrics.percentiles(jobs, of=metrics.queue_time, by=by)
    yield (
        "Longest queue time (started − runnable), by p95 with its 95 % interval, in minutes;\n"
        f"censored: still waiting or canceled while waiting, in no percentile:\n{longest(waits)}"
    )
    passed = jobs[jobs["state"] == "passed"]
    runs = metrics.percentiles(passed, of=metrics.run_time, by=by).drop(columns="n_censored")
    yield (
        "Longest run time (finished − started) of passed jobs, by p95 with its 95 % interval, in minutes:\n"
        f"{longest(runs)}"
    )
    rates = metrics.success_rate(builds, by="pipeline")
    yield f"Success rate (passed ÷ (passed + failed)) with its Wilson 95 % interval:\n{percents(rates)}"


def longest(summary: pd.DataFrame) -> str:
    """The groups with the largest p95 as text, seconds turned into minutes."""
    top = summary.nlargest(TOP, "p95_s")
    shown = {"p50": "p50_s", "p95": "p95_s", "from": "p95_low_s", "to": "p95_high_s"}
    minutes = {name: (top[column] / 60).map("{:.1f}".format) for name, column in shown.items()}
    hidden = [name for name in map(str, top) if name == "n_negative" or name.endswith("_s")]
    table = top.drop(columns=hidden).assign(**minutes)
    return table.rename(columns={"n_censored": "censored"}).to_string(index=False)


def percents(rates: pd.DataFrame) -> str:
    """Success rates as text."""
    shares = {name: (100 * rates[name]).map("{:.1f} %".format) for name in ("rate", "low", "high")}
    return rates.assign(**shares).to_string(index=False)


def written(folder: Path, builds: pd.DataFrame, jobs: pd.DataFrame) -> str:
    """Write tables and pictures, and say where."""
    lines = [f"Wrote to {folder.resolve()}:"]
    for name, frame in (("builds", builds), ("jobs", jobs)):
        path = store.save(folder / f"{name}.parquet", frame)
        lines.append(f"  {path.name:<20} {len(frame):,} {name}")
    for name, meaning, axes in pictures(builds, jobs):
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.savefig(folder / name, dpi=150, bbox_inches="tight")
        lines.append(f"  {name:<20} {meaning}")
    return "\n".join(lines)


def pictures(builds: pd.DataFrame, jobs: pd.DataFrame) -> Iterator[tuple[str, str, Axes]]:
    """The plots, with file name and meaning: of the busiest pipeline over time, its steps, its latest passed build."""
    busiest = builds["pipeline"].value_counts().index[0]
    builds, jobs = builds[builds["pipeline"] == busiest], jobs[jobs["pipeline"] == busiest]
    passed = builds[builds["state"] == "passed"]
    yield "duration_trend.png", f"passed builds of {busiest} over time", plots.duration_trend(passed)
    yield "step_times.png", f"where the steps of {busiest} wait and run", plots.step_times(jobs)
    number = passed["number"].iloc[0]
    yield "timeline.png", f"{busiest} #{number}, job by job", plots.timeline(jobs[jobs["build_number"] == number])


def next_steps() -> str:
    """What to do after the demo."""
    return (
        "Next:\n"
        f"  open the notebook:      .venv/bin/jupyter lab {NOTEBOOK}\n"
        "  your own organization:  export BUILDFRAME_ORG=acme BUILDFRAME_TOKEN=...  (scope read_builds)\n"
        "                          then in Python: import buildframe as bf; bf.connect().history(created_from='30d')"
    )
