"""The command, as a user runs it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pandas as pd
import pytest

import buildframe as bf
from buildframe.cli import main

COMMAND = [sys.executable, "-m", "buildframe.cli"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("demo") / "out"
    run = subprocess.run(
        ["buildframe", "demo", "--folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout, folder


def test_the_demo_tells_what_it_fetched_and_whether_that_is_all(demo: tuple[str, Path]) -> None:
    told, folder = demo
    builds, jobs = bf.load(folder / "builds.parquet"), bf.load(folder / "jobs.parquet")
    assert len(builds) >= 2_000
    assert len(jobs) >= 40_000
    assert f"Fetched {len(builds):,} builds and {len(jobs):,} jobs" in told
    assert "The walk is complete" in told


def test_the_demo_prints_numbers_that_a_hand_made_computation_gives(demo: tuple[str, Path]) -> None:
    told, folder = demo
    jobs = bf.load(folder / "jobs.parquet")
    waits = (jobs["started_at"] - jobs["runnable_at"])[jobs["type"] == "script"].dt.total_seconds() / 60
    by_step = waits.groupby([jobs["pipeline"], jobs["step_key"]])
    p95 = by_step.quantile(0.95)[by_step.count() >= 20].nlargest(5)
    table = told.split("Longest queue time")[1].split("\n\n")[0].splitlines()[3:]
    assert [(row.split()[0], row.split()[1]) for row in table] == list(p95.index)
    assert [float(row.split()[-3]) for row in table] == list(p95.round(1))
    assert all(float(row.split()[-2]) <= float(row.split()[-3]) <= float(row.split()[-1]) for row in table)


def test_the_demo_counts_success_by_pipeline(demo: tuple[str, Path]) -> None:
    told, folder = demo
    builds = bf.load(folder / "builds.parquet")
    web = builds[builds["pipeline"] == "web"]["state"].value_counts()
    row = next(line for line in told.splitlines() if line.split()[:1] == ["web"] and "%" in line)
    passed, failed, n, rate = row.split()[1:5]
    assert (int(passed), int(failed), int(n)) == (web["passed"], web["failed"], web["passed"] + web["failed"])
    assert float(rate) == pytest.approx(100 * web["passed"] / int(n), abs=0.05)


def test_the_demo_writes_what_it_names_and_says_what_comes_next(demo: tuple[str, Path]) -> None:
    told, folder = demo
    assert str(folder) in told
    written = sorted(path.name for path in folder.iterdir())
    assert written == ["builds.parquet", "duration_trend.png", "jobs.parquet", "step_times.png", "timeline.png"]
    assert all(name in told for name in written)
    assert pd.read_parquet(folder / "jobs.parquet").dtypes["started_at"] == "datetime64[us, UTC]"
    notebook = told.split("jupyter lab ")[1].split()[0]
    assert (Path(__file__).parent.parent / notebook).is_file()


def test_the_sandbox_serves_until_stopped(tmp_path: Path) -> None:
    serving = subprocess.Popen(
        [*COMMAND, "sandbox", "--path", str(tmp_path / "world.sqlite")], stdout=subprocess.PIPE, text=True
    )
    assert serving.stdout is not None
    told = dict(serving.stdout.readline().strip().removeprefix("export ").split("=", 1) for _ in range(4))
    try:
        assert told["BUILDFRAME_URL"].startswith("http://127.0.0.1:")
        ws = bf.connect(told["BUILDFRAME_ORG"], base_url=told["BUILDFRAME_URL"], token=told["BUILDFRAME_TOKEN"])
        assert len(ws.pipelines()) >= 6
        with pytest.raises(bf.Unauthorized):
            bf.connect("acme", base_url=told["BUILDFRAME_URL"], token="other").pipelines()
        headers = {"Authorization": f"Bearer {told['BUILDFRAME_SANDBOX_TOKEN']}"}
        assert httpx.get(f"{told['BUILDFRAME_URL']}/sandbox/faults", headers=headers).json() == []
    finally:
        serving.terminate()  # Ctrl-C does the same, but is ignored by what runs in the background of a shell
    assert serving.wait(20) == 0


def test_an_error_is_a_line_and_a_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["sandbox", "--path", str(tmp_path / "file" / "below")]) == 1
    told = capsys.readouterr().err
    assert told.startswith("buildframe: ")
    assert "Traceback" not in told


def test_without_a_command_it_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 2
    assert "command" in capsys.readouterr().err
