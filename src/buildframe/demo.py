"""Run the demo: fetch, analyze and plot a month of builds from a sandbox. Does not know the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics, plots
from buildframe.errors import BadInput
from buildframe.metrics.grouping import Key
from buildframe.store.files import check_writable, save
from buildframe.workspace import Workspace

TOP = 5
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_a_month_of_ci.ipynb"
"""In a checkout. A wheel contains no notebooks."""


def prepare(folder: Path) -> None:
    """
    Create the folder of the demo if needed, and check that files can be written to it.

    Parameters
    ----------
    folder : Path
        Folder for tables and plots.

    Raises
    ------
    BadInput
        If the folder cannot be created or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        raise BadInput(f"folder={str(folder)!r} cannot be created: {why.strerror}. Choose another folder.") from why
    check_writable(folder)


def run(ci: Workspace, folder: Path) -> Iterator[str]:
    """
    Run the demo and yield paragraphs to print.

    Parameters
    ----------
    ci : Workspace
        Connection to a sandbox.
    folder : Path
        Folder for tables and plots. It is created if needed.

    Yields
    ------
    str
        Paragraph without a final newline.

    Raises
    ------
    BadInput
        If the folder cannot be created or written. Nothing is fetched then.
    """
    prepare(folder)
    yield f"A sandbox of the service runs at {ci.sandbox.url} (on this machine only). Fetching a month of its builds."
    builds, jobs = ci.history()
    yield describe_fetch(builds, jobs)
    yield from summarize(builds, jobs)
    yield write_files(folder, builds, jobs)
    yield next_steps()


def describe_fetch(builds: pd.DataFrame, jobs: pd.DataFrame) -> str:
    """Describe the fetched rows, their time range and their completeness."""
    first, last = builds["created_at"].min(), builds["created_at"].max()
    why = builds.attrs["why"]
    complete = f"incomplete: {why}" if why else "complete: it contains every build exactly once"
    return (
        f"Fetched {len(builds):,} builds and {len(jobs):,} jobs (all attempts of retried ones) "
        f"by {builds.attrs['requests']} requests;\n"
        f"created {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, as of {builds.attrs['as_of']}.\n"
        f"The listing is {complete}."
    )


def summarize(builds: pd.DataFrame, jobs: pd.DataFrame) -> Iterator[str]:
    """Return tables of queue times, run times and success rates."""
    by: Sequence[Key] = ["pipeline", metrics.step]
    waits = metrics.percentiles(jobs, of=metrics.queue_time, by=by)
    yield (
        "Longest queue time (started − runnable): p95 with its 95 % interval, in minutes;\n"
        f"censored jobs still wait or were canceled while waiting:\n{format_longest(waits)}"
    )
    passed = jobs[jobs["state"] == "passed"]
    runs = metrics.percentiles(passed, of=metrics.run_time, by=by).drop(columns="n_censored")
    yield (
        "Longest run time (finished − started) of passed jobs: p95 with its 95 % interval, in minutes:\n"
        f"{format_longest(runs)}"
    )
    rates = metrics.success_rate(builds, by="pipeline")
    yield f"Success rate (passed ÷ (passed + failed)) with its 95 % interval:\n{format_rates(rates)}"


def format_longest(summary: pd.DataFrame) -> str:
    """Format the groups with the largest p95, in minutes."""
    top = summary.nlargest(TOP, "p95_s")
    shown = {"p50": "p50_s", "p95": "p95_s", "from": "p95_low_s", "to": "p95_high_s"}
    minutes = {name: (top[column] / 60).map("{:.1f}".format) for name, column in shown.items()}
    hidden = [name for name in map(str, top) if name == "n_negative" or name.endswith(("_s", "_n_effective"))]
    table = top.drop(columns=hidden).assign(**minutes)
    return table.rename(columns={"n_censored": "censored"}).to_string(index=False)


def format_rates(rates: pd.DataFrame) -> str:
    """Format success rates in percent."""
    shares = {name: (100 * rates[name]).map("{:.1f} %".format) for name in ("rate", "low", "high")}
    return rates.assign(**shares, n_effective=rates["n_effective"].round()).to_string(index=False)


def write_files(folder: Path, builds: pd.DataFrame, jobs: pd.DataFrame) -> str:
    """Write tables and plots, and list the files."""
    lines = [f"Wrote to {folder.resolve()}:"]
    for name, frame in (("builds", builds), ("jobs", jobs)):
        path = save(folder / f"{name}.parquet", frame)
        lines.append(f"  {path.name:<20} {len(frame):,} {name}")
    for name, meaning, axes in draw_plots(builds, jobs):
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.savefig(folder / name, dpi=150, bbox_inches="tight")
        lines.append(f"  {name:<20} {meaning}")
    return "\n".join(lines)


def draw_plots(builds: pd.DataFrame, jobs: pd.DataFrame) -> Iterator[tuple[str, str, Axes]]:
    """Return file name, description and plot: wall times and steps of the busiest pipeline, and its latest build."""
    busiest = builds["pipeline"].value_counts().index[0]
    builds, jobs = builds[builds["pipeline"] == busiest], jobs[jobs["pipeline"] == busiest]
    passed = builds[builds["state"] == "passed"]
    yield "duration_trend.png", f"wall time of passed builds of {busiest}", plots.duration_trend(passed, changes=True)
    yield "step_times.png", f"queue and run times of the steps of {busiest}", plots.step_times(jobs)
    number = passed["number"].iloc[0]
    of_build, ledger = jobs[jobs["build_number"] == number], metrics.time_ledger(builds, jobs)
    yield "timeline.png", f"jobs of {busiest} #{number}", plots.timeline(of_build, ledger=ledger)


def next_steps() -> str:
    """Suggest what to do after the demo."""
    jupyter = _from_here(Path(sys.executable).with_name("jupyter"))
    notebook = f"  open the notebook:      {jupyter} lab {_from_here(NOTEBOOK)}\n" if NOTEBOOK.exists() else ""
    return (
        f"Next:\n{notebook}"
        "  your own organization:  export BUILDFRAME_ORG=acme BUILDFRAME_TOKEN=...  (scope read_builds)\n"
        "                          then in Python: import buildframe as bf; bf.connect().history(created_from='30d')"
    )


def _from_here(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
