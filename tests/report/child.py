"""The command `buildframe report` as a timer runs it: in a separate process with its own environment."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path

import buildframe as bf
from buildframe.report import store_reader
from buildframe.report.folder import ReportFolder
from buildframe.workspace import Workspace
from tests import preloaded, worlds

ROOT = Path(__file__).parent.parent.parent
COMMAND = (sys.executable, "-m", "buildframe.cli")
LONGEST = 120  # seconds until a child that does not end is a failure
SCOPES = ("read_builds", "read_pipelines", "read_suites", "read_organizations")

PATIENCE = """
import datetime, inspect, buildframe.http.client, buildframe.http.retry
buildframe.http.retry._backoff = lambda state: 0.01
inspect.unwrap(buildframe.connect).__kwdefaults__["timeout"] = datetime.timedelta(seconds=0.5)
"""
"""Code that makes the client fail after a short time."""

WITHOUT_PLOTS = "import buildframe.report.page as p; p.render_plots = lambda report: []"
"""Code that omits the plots, because they take half of the time of a run."""

WORLD = {"builds": 150, "days": 15}
"""Settings of the sandbox of `stored`."""


def stored() -> tuple[Path, Path]:
    """Return a store of a sandbox, not to be changed, and a file of what a report measures in it.

    One process of this run makes both.
    """

    def make() -> tuple[Path, Path]:
        folder = Path(tempfile.mkdtemp(dir=os.environ[worlds.FOLDER]))
        with worlds.sandbox(**WORLD) as ci:
            bf.Store(folder / "ci").sync(ci, progress=False)
        measurements = store_reader.read(folder / "ci", 7).measurements
        (folder / "measured").write_bytes(pickle.dumps(measurements))
        return folder / "ci", folder / "measured"

    return worlds.remember("stored", make)


def measured() -> str:
    """Return code that replaces measuring by what `stored` measured, except for load, waste, objectives and cost.

    Measuring takes most of the time of a run without plots.
    """
    return f"""
import dataclasses, pickle
from pathlib import Path
from buildframe import metrics
from buildframe.report import measurements, store_reader
known = pickle.loads(Path({str(stored()[1])!r}).read_bytes())
def measure(builds, jobs, pipelines, flaky, period, since, objectives, rates):
    own, compares = period.of(jobs, "finished_at"), measurements._is_covered(period, since)
    return dataclasses.replace(
        known,
        load=measurements._load(builds, jobs, period, compares=compares),
        waste=metrics.waste(own, by="pipeline"),
        objectives=measurements.measure_objectives(objectives or {{}}, builds, jobs, period),
        cost=metrics.cost(own, rates, by="pipeline") if rates else known.cost,
    )
store_reader.measure = measure
"""


def at(ci: Workspace, scopes: Sequence[str] = SCOPES) -> dict[str, str]:
    """Return environment variables that connect the command to a sandbox."""
    token = ci.sandbox.token(list(scopes))
    return {"BUILDFRAME_URL": ci.sandbox.url, "BUILDFRAME_ORG": ci.organization or "", "BUILDFRAME_TOKEN": token}


def patched(*statements: str) -> tuple[str, ...]:
    """Return the command, preceded by statements that replace parts of it."""
    lines = (*statements, "import sys; from buildframe.cli import main; sys.exit(main())")
    return (sys.executable, "-c", "\n".join(lines))


def environment(more: dict[str, str] | None) -> dict[str, str]:
    """Return the environment of a run: no settings of this process, and `more`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BUILDFRAME_")} | (more or {})


def started(
    *arguments: object, env: dict[str, str] | None = None, command: Sequence[str] = COMMAND, around: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """A run of the command that has begun; `around` are commands to run it by."""
    return subprocess.Popen(
        [*around, *command, "report", *map(str, arguments)],
        cwd=ROOT,
        env=environment(env),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """What became of it."""
    try:
        out, err = process.communicate(timeout=LONGEST)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def report(
    *arguments: object,
    env: dict[str, str] | None = None,
    command: Sequence[str] = (),
    around: Sequence[str] = (),
    **meanwhile: Callable[[int], object],
) -> subprocess.CompletedProcess[str]:
    """Run the command from beginning to end: in a preloaded process, unless `command` or `around` needs a new one.

    `meanwhile` is called with the number of the preloaded process while it runs.
    """
    command = command or patched()
    if around or command[1] != "-c":
        return ended(started(*arguments, env=env, command=command, around=around))
    return preloaded.run(command[2], ["report", *map(str, arguments)], environment(env), LONGEST, **meanwhile)


def last_line(run: subprocess.CompletedProcess[str]) -> str:
    """What a run says at last on stderr."""
    return run.stderr.splitlines()[-1]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.seen.append(f"/{tag}")


def check_whole(folder: Path) -> str | None:
    """The newest report's name, after a look at all of its files; None where there is no report."""
    latest = ReportFolder(folder).latest
    if latest is None:
        assert not os.path.lexists(folder / "latest"), "the link leads to no report"
        return None
    tags = _Tags()
    tags.feed((latest / "report.html").read_text())
    tags.close()
    assert tags.seen[0] == "html"
    assert tags.seen[-1] == "/html"
    assert (latest / "report.md").read_text().endswith("\n")
    tables = [bf.load(path) for path in (latest / "numbers").iterdir()]
    assert len(tables) >= 10
    return latest.name


def hidden(folder: Path) -> set[str]:
    """What else is in a folder of reports."""
    return {path.name for path in folder.iterdir() if path.name.startswith(".")} - {".lock", ".lock-holder"}
