"""Use what an extra adds: `python -I tests/extras.py EXTRA`, or `base`, or `all`, in an environment with the wheel.

Imports no other module of the tests. Writes to the current folder.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

import buildframe as bf
from buildframe import demo, metrics, plots, receiver, widgets
from buildframe.report.folder import ReportFolder
from buildframe.templates import load_templates

NEEDS = {
    "sandbox": lambda: bf.sandbox(builds=60, days=3).builds(),
    "interactive": lambda: plots.explore(BUILDS),
    "report": lambda: load_templates("buildframe.report", "A report", str) and ReportFolder(Path("reports")).latest,
    "receiver": lambda: receiver.application(find_spec("deltalake") and bf.Store("store"), ["secret"]),
    "store": lambda: bf.Store("store").sql("SELECT 1"),
    "widgets": lambda: widgets.BuildBrowser and load_templates("buildframe.widgets", "A widget", str),
}
"""A call for each extra that raises MissingExtra without it."""

IMPORTS = {
    "notebook": ["jupyterlab", "voila"],
    "receiver": ["uvicorn"],
    "report": ["filelock", "papermill", "PIL"],
    "sandbox": ["graphql", "yaml"],
    "spark": ["pyspark.sql"],
    "store": ["deltalake", "duckdb"],
    "widgets": ["rich.ansi"],
}

START = pd.date_range("2026-10-01", periods=40, freq="h", tz="UTC")
BUILDS = pd.DataFrame({"created_at": START, "finished_at": START + pd.Timedelta("90s"), "fetched_at": START[-1]})
BUILDS = BUILDS.assign(state="passed", id=[f"build {i}" for i in range(40)])


def use_base() -> None:
    """Measure, plot, fail to connect, and ask for what needs an extra."""
    print(*(name for name in ("pandas", "scipy", "duckdb", "yaml", "pytest") if find_spec(name)))
    print(metrics.percentiles(BUILDS, of=metrics.wall_time, q=0.5)["p50_s"].item())
    plots.distribution(BUILDS, of=metrics.wall_time).figure.savefig("plot.png")
    try:
        bf.connect("acme", token="invented", base_url="http://127.0.0.1:9").builds(deadline="1s")
    except bf.BuildframeError as why:
        print(type(why).__name__)
    for extra, call in NEEDS.items():
        try:
            call()
        except bf.MissingExtra as missing:
            print(extra, missing)


def use_extra(extra: str) -> None:
    """Call what needs the extra. It may raise an error of another kind, such as for a store that was never synced."""
    for module in IMPORTS.get(extra, []):
        import_module(module)
    try:
        NEEDS.get(extra, lambda: None)()
    except bf.MissingExtra:
        raise
    except bf.BuildframeError:
        pass


def use_all() -> None:
    """Import every module, and run the demo, a store and a widget on a small sandbox."""
    library = Path(bf.__file__).parent
    for file in library.rglob("[!_]*.py"):
        import_module(".".join(file.relative_to(library.parent).with_suffix("").parts))
    for extra in sorted({*NEEDS, *IMPORTS} - {"spark"}):
        use_extra(extra)
    with bf.sandbox(builds=60, days=3) as ci:
        for paragraph in demo.run(ci, Path("out")):
            print(paragraph)
        store = bf.Store("store")
        store.sync(ci)
        counted = store.sql("SELECT count(*) AS n FROM builds")["n"].item()
        widgets.BuildBrowser(ci, created_from="2d").close()
        print("equal" if counted == len(ci.builds()) else "different")


if __name__ == "__main__":
    match sys.argv[1]:
        case "base":
            use_base()
        case "all":
            use_all()
        case extra:
            use_extra(extra)
