"""The command as a user runs it."""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
from scipy.stats import CensoredData, ecdf

import buildframe as bf
from buildframe.cli import main
from buildframe.workspace import Workspace
from tests import worlds

ROOT = Path(__file__).parent.parent
SCOPES = ["read_builds", "read_pipelines", "read_suites", "read_organizations"]
COMMAND = [sys.executable, "-m", "buildframe.cli"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("demo") / "out"
    run = subprocess.run(
        ["buildframe", "demo", "--folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**worlds.environment(), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout, folder


@pytest.mark.long
def test_the_demo_prints_how_much_it_fetched_and_whether_the_listing_is_complete(demo: tuple[str, Path]) -> None:
    output, folder = demo
    builds, jobs = bf.load(folder / "builds.parquet"), bf.load(folder / "jobs.parquet")
    assert len(builds) >= 2_000
    assert len(jobs) >= 40_000
    assert f"Fetched {len(builds):,} builds and {len(jobs):,} jobs" in output
    assert "The listing is complete" in output


def _p95(waits: pd.DataFrame) -> float:
    if waits["started"].sum() < 20:
        return math.nan
    if waits["started"].all():
        return float(waits["minutes"].quantile(0.95))
    left = CensoredData.right_censored(waits["minutes"], ~waits["started"])
    curve = ecdf(left).sf
    return float(min(curve.quantiles[curve.probabilities <= 0.05], default=math.nan))


@pytest.mark.long
def test_the_demo_prints_the_same_queue_times_as_kaplan_and_meier(demo: tuple[str, Path]) -> None:
    """Jobs that were canceled while they waited, and those that still wait, are censored."""
    output, folder = demo
    jobs = bf.load(folder / "jobs.parquet").query("type == 'script'").dropna(subset="runnable_at")
    until = jobs["started_at"].fillna(jobs["finished_at"]).fillna(jobs["fetched_at"])
    waits = jobs.assign(
        minutes=(until - jobs["runnable_at"]).dt.total_seconds() / 60, started=jobs["started_at"].notna()
    )
    p95 = waits.groupby(["pipeline", "step_key"])[["minutes", "started"]].apply(_p95).nlargest(5)
    table = output.split("Longest queue time")[1].split("\n\n")[0].splitlines()[3:]
    assert [(row.split()[0], row.split()[1]) for row in table] == list(p95.index)
    assert [float(row.split()[-3]) for row in table] == pytest.approx(list(p95), abs=0.051)
    assert all(float(row.split()[-2]) <= float(row.split()[-3]) <= float(row.split()[-1]) for row in table)


@pytest.mark.long
def test_the_demo_counts_success_by_pipeline(demo: tuple[str, Path]) -> None:
    output, folder = demo
    builds = bf.load(folder / "builds.parquet")
    web = builds[builds["pipeline"] == "web"]["state"].value_counts()
    row = next(line for line in output.splitlines() if line.split()[:1] == ["web"] and "%" in line)
    passed, failed, n, rate = row.split()[1:5]
    assert (int(passed), int(failed), int(n)) == (web["passed"], web["failed"], web["passed"] + web["failed"])
    assert float(rate) == pytest.approx(100 * web["passed"] / int(n), abs=0.05)


@pytest.mark.long
def test_the_demo_writes_the_files_it_names_and_names_an_existing_notebook(demo: tuple[str, Path]) -> None:
    output, folder = demo
    assert str(folder) in output
    written = sorted(path.name for path in folder.iterdir())
    assert written == ["builds.parquet", "duration_trend.png", "jobs.parquet", "step_times.png", "timeline.png"]
    assert all(name in output for name in written)
    assert pd.read_parquet(folder / "jobs.parquet").dtypes["started_at"] == "datetime64[us, UTC]"
    notebook = output.split("jupyter lab ")[1].split()[0]
    assert (Path(__file__).parent.parent / notebook).is_file()


@pytest.mark.long
def test_the_sandbox_serves_until_stopped(tmp_path: Path) -> None:
    path = shutil.copy(worlds.make(builds=60, days=2), tmp_path)
    serving = subprocess.Popen([*COMMAND, "sandbox", "--path", path], stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    exports = dict(serving.stdout.readline().strip().removeprefix("export ").split("=", 1) for _ in range(4))
    try:
        assert exports["BUILDFRAME_URL"].startswith("http://127.0.0.1:")
        ws = bf.connect(
            exports["BUILDFRAME_ORG"], base_url=exports["BUILDFRAME_URL"], token=exports["BUILDFRAME_TOKEN"]
        )
        assert len(ws.pipelines()) >= 6
        assert 40 < len(ws.builds(progress=False)) < 120
        with pytest.raises(bf.Unauthorized):
            bf.connect("acme", base_url=exports["BUILDFRAME_URL"], token="another-token").pipelines()
        headers = {"Authorization": f"Bearer {exports['BUILDFRAME_SANDBOX_TOKEN']}"}
        assert httpx.get(f"{exports['BUILDFRAME_URL']}/sandbox/faults", headers=headers).json() == []
    finally:
        serving.terminate()  # Ctrl-C does the same, but is ignored by what runs in the background of a shell
    assert serving.wait(20) == 0


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """A sandbox that the command finds where it would find the service."""
    with worlds.sandbox(builds=60, days=2, deepest=100) as ci:
        monkeypatch.setenv("BUILDFRAME_URL", ci.sandbox.url)
        monkeypatch.setenv("BUILDFRAME_ORG", "acme")
        monkeypatch.setenv("BUILDFRAME_TOKEN", ci.sandbox.token(SCOPES))
        yield ci


@pytest.fixture(scope="module")
def unchanged() -> Iterator[Workspace]:
    """A sandbox for commands that are refused, and the environment in which they find it."""
    with worlds.sandbox(builds=5, days=1) as ci, pytest.MonkeyPatch.context() as environment:
        environment.setenv("BUILDFRAME_URL", ci.sandbox.url)
        environment.setenv("BUILDFRAME_ORG", "acme")
        environment.setenv("BUILDFRAME_TOKEN", ci.sandbox.token(SCOPES))
        yield ci


def left_with(arguments: list[str]) -> object:
    """Return the status with which a command leaves, or what it returns instead."""
    try:
        return f"returned {main(arguments)}"
    except SystemExit as left:
        return left.code


@pytest.mark.long
def test_two_documented_commands_sync_the_sandbox_and_read_the_store(tmp_path: Path) -> None:
    commands = re.findall(
        r"^\$ ((?:buildframe|python) .*(?:sync .*--sandbox|Store).*)$", (ROOT / "docs" / "store.md").read_text(), re.M
    )
    assert len(commands) == 2
    outputs, env = [], worlds.environment()
    for command in commands:
        here = f"{Path(sys.executable).parent}/{command}"
        run = subprocess.run(here, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        assert (run.returncode, run.stderr) == (0, "")
        outputs.append(run.stdout)
    with worlds.sandbox() as ci:
        builds, jobs = ci.history(progress=False)
    assert f"{len(builds):,} builds and {len(jobs):,} jobs new or read again" in outputs[0]
    assert "complete from 2026-08-01T15:00:00Z" in outputs[0]
    assert f"[{len(builds)} rows x " in outputs[1]
    assert bf.Store(tmp_path / "sandbox-history").flaky_tests()["suite"].nunique() > 1


@pytest.mark.long
def test_a_sync_prints_its_result(service: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "ci")
    assert main(["sync", folder, "--since", "1d", "--suite", "rspec", "--suite", "jest", "--personal"]) == 0
    builds, jobs = service.history(created_from="1d", progress=False)
    output = capsys.readouterr().out
    assert output.startswith(f"{folder}: {len(builds):,} builds and {len(jobs):,} jobs new or read again")
    store = bf.Store(folder)
    assert set(store.flaky_tests()["suite"]) == {"rspec", "jest"}
    assert len(store.members()) == len(service.members(progress=False))
    assert "env" not in store.sql("SELECT * FROM builds LIMIT 1")
    assert main(["sync", folder, "--pipeline", "web", "--env"]) == 0
    assert "env" in store.sql("SELECT * FROM builds LIMIT 1")
    assert sorted(scope.count("/") for scope in store.covers) == [0, 1]


@pytest.mark.long
@pytest.mark.filterwarnings("error", "ignore::pytest.PytestUnraisableExceptionWarning")  # these are of earlier tests
def test_an_incomplete_sync_prints_the_reason_and_exits_with_status_3(
    service: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(130):  # with one timestamp, of which the service lists 100
        service.pipeline("web").create_build(commit="HEAD", branch="main")
    assert main(["sync", str(tmp_path)]) == 3
    output = capsys.readouterr().out
    assert "INCOMPLETE" in output
    assert "the service refuses to list them by page numbers" in output
    assert len(bf.Store(tmp_path).builds()) >= 100


@pytest.mark.long
def test_a_store_is_compacted_and_cleaned(
    service: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main(["sync", str(tmp_path)]) == 0
        service.pipeline("web").create_build(commit="HEAD", branch="main")
    many = sum(len(bf.Store(tmp_path).files(name)) for name in ("builds", "jobs"))
    capsys.readouterr()
    assert main(["compact", str(tmp_path)]) == 0
    fewer = many - sum(len(bf.Store(tmp_path).files(name)) for name in ("builds", "jobs"))
    assert fewer > 0
    assert capsys.readouterr().out == f"{tmp_path}: {fewer} files fewer\n"
    assert main(["clean", str(tmp_path), "--keep", "1d"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: 0 files deleted\n"  # none is a day old


@pytest.mark.long
def test_damaged_files_of_a_store_are_listed(
    service: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sync", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["verify", str(tmp_path)]) == 0
    assert re.fullmatch(r"\S+: \d+ data files, \d\.\d MB: intact\n", capsys.readouterr().out)
    file = Path(bf.Store(tmp_path).files("jobs")[0])
    file.write_bytes(file.read_bytes()[:-1])
    day = file.parent.name.removeprefix("day=")
    for option in ([], ["--drop"]):
        assert main(["verify", str(tmp_path), *option]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"jobs/day={day}/{file.name}: is not as it was written"
        assert lines[1] == f"days to read again: {day}"
        assert lines[2].endswith(": 1 file DAMAGED")
    assert main(["verify", str(tmp_path)]) == 0
    before = capsys.readouterr()
    assert main(["sync", str(tmp_path)]) == 0
    assert f"jobs/day={day}" in "".join(bf.Store(tmp_path).files("jobs")), before


REFUSED = [
    (["verify", "none"], "There is no store at"),
    (["compact", "none"], "Create one with `buildframe sync "),
    (["clean", "none"], "There is no store at"),
    (["sync", "none", "--pipeline", "wbe"], "404: No pipeline found"),
    (
        ["sync", "none", "--pipeline", "wbe"],
        "Did you mean 'web'? `buildframe export pipelines.csv pipelines` lists",
    ),
    (["sync", "none", "--suite", "nope"], "404"),
    (["sync", "none", "--since", "2099-01-01"], "--since=2099-01-01T00:00:00Z is in the future"),
    (["export", "none.csv", "flaky_tests", "--suite", "nope"], "404"),
]


@pytest.mark.usefixtures("unchanged")
def test_an_error_of_the_store_is_printed_and_exits_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    unexpected = []
    for arguments, words in REFUSED:
        status, output = main(arguments), capsys.readouterr().err
        in_words_of_python = re.findall(r"\w\(|(?<![-?&\w])[a-z_]+=", output)
        if status != 1 or not output.startswith("buildframe: ") or words not in output or in_words_of_python:
            unexpected.append((arguments, status, output))
    assert unexpected == []
    assert list(tmp_path.iterdir()) == []


WRONG_REPORTS = [
    ["--days", "0"], ["--days", "367"], ["--days", "week"], ["--days", "-3"], ["--tz", "Mars/Phobos"],
    ["--tz", "../zone"], ["--since", "yesterday"], ["--since", "2026-10-01T08:00"], ["--log", "xml"],
    ["--alert", "--no-sync"], ["--sandbox", "--no-sync"], ["--thresholds", "none.toml"], ["--thresholds", "file"],
]  # fmt: skip
WRONG_USAGE = [
    (["demo", "--folder", "file"], "'file' is not a folder"),
    (["demo", "--folder", "/proc/none"], "--folder='/proc/none' cannot be created"),
    (["demo", "--folder", "x" * 300], "(300 characters) is too long"),
    (["sandbox", "--agents", "macos"], "'macos' is not a queue with a number of agents"),
    (["sandbox", "--agents", "macos=many"], "'macos=many' is not a queue with a number of agents"),
    (["sandbox", "--agents", "macos=8", "--agents", "docker=0"], "agents['docker']=0 must be between"),
    (["sandbox", "--run-scale", "e2e=fast"], "'e2e=fast' is not a step with a factor"),
    (["sandbox", "--run-scale", "e2e=0.5", "--run-scale", "e3e=2"], "there is no step 'e3e'"),
    (["sandbox", "--port", "99999"], "'99999' is not a port. Use 0 (a free port) to 65535"),
    (["sandbox", "--speed", "0"], "--speed=0.0 is not a speed"),
    (["sandbox", "--host", "999.1.1.1"], "--host='999.1.1.1' is not an address of this machine"),
    (["sandbox", "--path", "file/below"], "--path='file/below' cannot be opened"),
    (["sync", "file"], "store='file' is a file. Pass a folder"),
    (["sync", "memory:///none"], "There can be no store at 'memory:///none'. Pass a folder, such as "),
    (["sync", "http://127.0.0.1:9/none"], "There can be no store at 'http://127.0.0.1:9/none'. "),
    (["sync", "s3://", "--sandbox"], "store='s3://' names no bucket or container"),
    (["sync", "none", "--pipeline", "a/b"], "--pipeline='a/b' is not a slug"),
    (["sync", "none", "--suite", "a b"], "--suite='a b' is not a slug"),
    (["sync", "none", "--pipeline", "web", "--suite", "rspec"], "--suite cannot be used with --pipeline"),
    (["compact", "file"], "store='file' is a file"),
    (["clean", "none", "--keep", "5"], "--keep='5' is not a valid duration"),
    (["clean", "none", "--keep", "999999999d"], "--keep='999999999d'"),
    (["clean", "ftp://example.com/ci"], "There can be no store at 'ftp://example.com/ci'"),
    (["receive", "none", "--port", "99999"], "'99999' is not a port"),
    (["receive", "none", "--every", "0s"], "--every='0s' is not an interval above 0 and up to a day"),
    (["receive", "none", "--every", "2d"], "--every='2d' is not an interval above 0 and up to a day"),
    (["receive", "s3://bucket/x"], "folder for waiting deliveries with --write-ahead.\n"),
    (["receive", "none", "--write-ahead", "file"], "'file' is not a folder"),
    (["import", "file", "--store", "none"], "'file' is not a folder. Pass the folder of the exports"),
    (["import", "~nobody-here/x", "--store", "none"], "'~nobody-here/x' is not a folder"),
    (["import", "x" * 300, "--store", "none"], "xxx' is not a folder"),
    (["import", ".", "--store", "file"], "store='file' is a file"),
    (["report", "none", "s3://bucket/x"], "folder is a URL. Pass a path on this machine"),
    (["report", "none", "file"], "'file' is not a folder"),
    (["report", "none", "out", "--pipeline", "a/b"], "--pipeline='a/b' is not a slug"),
    (["report", "none", "out", "--pipeline", "web", "--suite", "rspec"], "--suite cannot be used with"),
    *((["report", "none", "out", *options], "buildframe report: error: ") for options in WRONG_REPORTS),
    (["explain", "none", "--day", "monday"], "'monday' is not a day"),
    (["export", "o.csv", "builds", "--pipeline", "a/b"], "--pipeline='a/b' is not a slug"),
    (["export", "o.csv", "flaky_tests"], "Name one with --suite"),
    (["export", "/proc/o.csv", "builds"], "The folder '/proc' cannot be written"),
    (["export", "o.csv", "builds", "--store", "file"], "store='file' is a file"),
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "cases",
    [
        WRONG_USAGE[::4],
        pytest.param([case for case in WRONG_USAGE if case not in WRONG_USAGE[::4]], marks=pytest.mark.long),
    ],
    ids=["first lane", "others"],
)
def test_wrong_usage_is_status_2_before_anything_is_done(
    cases: list[tuple[list[str], str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    unexpected = []
    for arguments, words in cases:
        status, output = left_with(arguments), capsys.readouterr()
        if status != 2 or output.out or words not in output.err:
            unexpected.append((arguments, status, output))
        assert [path.name for path in tmp_path.iterdir()] == ["file"], arguments
    assert unexpected == []


LOCKED = [
    (["compact", "locked/ci"], "argument store: store='locked/ci' is in a folder that you have no"),
    (["report", "none", "locked/reports"], "argument folder: folder='locked/reports' is in a folder that you have"),
    (["import", "locked/exports", "--store", "none"], "argument path: 'locked/exports' is not a folder"),
    (["export", "locked/builds.csv", "builds"], "path='locked/builds.csv' is in a folder that you have no"),
]


@pytest.mark.usefixtures("unchanged")
def test_a_path_in_a_folder_of_another_user_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stat = os.stat

    def refuse(path: Any, **options: Any) -> os.stat_result:  # permissions would not stop root
        if "locked" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    for arguments, words in LOCKED:
        assert left_with(arguments) == 2
        assert words in capsys.readouterr().err


@pytest.mark.usefixtures("unchanged")
def test_an_invalid_time_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert left_with(["sync", str(tmp_path / "none"), "--since", "yesterday"]) == 2
    assert "error: --since='yesterday' is not a valid time" in capsys.readouterr().err
    assert left_with(["sync", str(tmp_path / "none"), "--deadline", "soon"]) == 2
    assert capsys.readouterr().err.endswith("--deadline='soon' is not a valid duration. Use text such as '90s'.\n")
    assert not (tmp_path / "none").exists()


def test_a_missing_token_is_reported_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BUILDFRAME_TOKEN", raising=False)
    for empty in (False, True):
        if empty:
            monkeypatch.setenv("BUILDFRAME_TOKEN", "")
        assert main(["sync", str(tmp_path / "ci")]) == 1
        assert capsys.readouterr().err.startswith("buildframe: There is no token: BUILDFRAME_TOKEN is not set")


def test_a_missing_or_misspelled_command_is_wrong_usage_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command, words in (
        ([], "command"),
        (["reprt", "ci", "reports"], "invalid choice: 'reprt'. Did you mean 'report'?"),
        (["Report", "ci", "reports"], "invalid choice: 'Report'. Did you mean 'report'?"),
        (["quit", "ci", "reports"], "invalid choice: 'quit'. Valid names: demo, sandbox, sync, "),
    ):
        assert left_with(command) == 2
        assert words in capsys.readouterr().err


def test_the_help_begins_with_a_sentence_for_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert left_with(["--help"]) == 0
    usage, first, *_ = capsys.readouterr().out.split("\n\n")
    assert usage.startswith("usage: buildframe [-h] [--version] command")
    assert " ".join(first.split()).startswith("Find out where the time of your CI builds goes: fetch builds, ")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert left_with(["--version"]) == 0
    assert capsys.readouterr().out == f"buildframe {version('buildframe')}\n"


def test_words_that_the_command_line_replaces_occur_in_messages() -> None:
    """Otherwise a message has changed, and its users read the words of Python again."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    joined = re.sub(r'"\s+f?"', "", source.replace("\\n", ""))
    declared = tomllib.loads((ROOT / "src" / "buildframe" / "cli.toml").read_text("utf-8"))
    assert [words for words in declared["words"] if words not in joined] == []
