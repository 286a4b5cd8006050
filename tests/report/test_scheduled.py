"""The schedules in docs/report.md and the notebook with parameters run as documented."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import buildframe as bf
from buildframe.workspace import Workspace
from tests import worlds
from tests.programs import require_program
from tests.report.child import ROOT, WITHOUT_PLOTS, WORLD, at, measured, patched, stored

DOC = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def world() -> Iterator[Workspace]:
    with worlds.sandbox(**WORLD) as ci:
        yield ci


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of `world`."""
    return shutil.copytree(stored()[0], tmp_path_factory.mktemp("filled") / "ci-history")


def block(language: str, words: str) -> str:
    """The block of code of the page that has these words."""
    found = [text for text in re.findall(rf"^```{language}\n(.*?)^```", DOC, re.M | re.S) if words in text]
    assert len(found) == 1
    return found[0]


def install_command(folder: Path) -> None:
    """Write the command without plots, and almost without measuring, where the documentation has it."""
    python, _, program = patched(WITHOUT_PLOTS, measured())
    command = folder / ".venv" / "bin" / "buildframe"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!{python}\n{program}\n")
    command.chmod(0o755)


@pytest.mark.long
def test_the_documentation_leads_to_a_nightly_report_of_the_sandbox(tmp_path: Path) -> None:
    """Its command, then its line of a crontab, as cron runs it: by sh, in another folder."""
    first, schedule = re.findall(r"^\$ (.*buildframe\)? report .*--sandbox.*)$", DOC, re.M)
    install_command(tmp_path)
    env = worlds.environment(**WORLD)
    env["PATH"] = f"{tmp_path}/.venv/bin:{env['PATH']}"
    done = subprocess.run(first, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout == "reports/2026-10-30T150000Z/report.html\n"
    assert done.returncode == 0
    kept = schedule.replace("crontab -l 2>/dev/null", "true").replace("| crontab -", "")
    line = subprocess.run(kept, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=10).stdout
    assert re.match(r"30 5 \* \* \* ", line)
    assert "%" not in line  # which cron takes for the end of a line
    night = subprocess.run(
        ["sh", "-c", line.split(maxsplit=5)[5]], cwd="/", env={"HOME": str(tmp_path)}, capture_output=True, timeout=120
    )
    assert (night.returncode, night.stdout, night.stderr) == (0, b"", b"")
    assert os.readlink(tmp_path / "reports" / "latest") == "2026-10-31T150000Z", "its sandbox is a day older each time"
    assert (tmp_path / "sandbox-history-sandbox.db").is_file()
    loads = [bf.load(path)["now"].iloc[0] for path in (tmp_path / "reports").glob("2*/numbers/load.parquet")]
    assert len(set(loads)) == 2


AGENT = """#!/bin/sh
echo "$@" >> "$CALLED"
case "$1" in annotate) cat > "$CALLED.body";; esac
"""
"""A stand-in for the service's agent that records its input."""


@pytest.fixture
def machine(tmp_path: Path, store: Path) -> Path:
    """A folder as the step of the pipeline finds it: an environment, limits, a store, an agent."""
    install_command(tmp_path)
    agent = tmp_path / ".venv" / "bin" / "buildkite-agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    script = block("bash", "buildkite-agent").replace("/var/lib/ci-history", str(store))
    (tmp_path / "ci-report.sh").write_text(script)
    return tmp_path


def step(world: Workspace, machine: Path, **env: str) -> tuple[str, dict[str, str]]:
    """Return the command that an agent gets for the step of the pipeline, and the environment to run it in."""
    configuration = block("yaml", "ci-report.sh")
    pipeline = f"ci-report-{machine.name}".replace("_", "-")
    made = world.create_pipeline(
        name=pipeline,
        repository="https://git.example.com/acme/ci.git",
        configuration=configuration,
        cluster_id=world.pipelines(columns=["cluster_id"])["cluster_id"].dropna().iloc[0],
    )
    build = world.pipeline(made.slug).create_build(commit="HEAD", branch="main", message="Nightly")
    jobs = world.pipeline(made.slug).history_of(build.number)[1]
    (command,) = jobs["command"]
    assert "soft_fail" in yaml.safe_load(configuration)["steps"][0]
    environment = {**os.environ, **at(world), **env, "CALLED": str(machine / "called")}
    environment["PATH"] = f"{machine}/.venv/bin:{environment['PATH']}"
    return command, environment


def run_step(world: Workspace, machine: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command of the pipeline in a shell, as an agent does."""
    command, environment = step(world, machine, **env)
    return subprocess.run(
        ["bash", "-e", "-c", command], cwd=machine, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.long
@pytest.mark.parametrize(("limit", "status", "style"), [(0.01, 0, "success"), (1.0, 4, "warning")])
def test_the_documented_pipeline_step_writes_and_uploads_a_report(
    world: Workspace, machine: Path, limit: float, status: int, style: str
) -> None:
    (machine / "limits.toml").write_text(f'[success_rate]\n"*" = {limit}\n')
    run = run_step(world, machine)
    assert run.returncode == status, run.stderr
    called = (machine / "called").read_text().splitlines()
    assert called == ["artifact upload reports/latest/report.html", f"annotate --style {style}"]
    assert (machine / "called.body").read_text().startswith("# CI of acme")
    assert (machine / "reports/latest/report.html").is_file()


@pytest.mark.long
def test_the_step_fails_if_the_report_fails(world: Workspace, machine: Path) -> None:
    (machine / "limits.toml").write_text("[success_rate]\nweb = 0.5\n")
    run = run_step(world, machine, BUILDFRAME_TOKEN="an-invented-token-of-nobody")
    assert run.returncode == 1
    assert not (machine / "called").exists()


def fake_report(machine: Path, status: int) -> None:
    """Replace the command by one that prints a reason and ends with a status."""
    command = machine / ".venv" / "bin" / "buildframe"
    command.unlink(missing_ok=True)
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f"#!/bin/sh\necho the reason is {status} >&2\nexit {status}\n")
    command.chmod(0o755)


@pytest.mark.long
def test_the_step_ends_with_the_status_of_the_report_and_uploads_no_earlier_page(
    world: Workspace, machine: Path
) -> None:
    (machine / "reports" / "latest").mkdir(parents=True)
    (machine / "reports" / "latest" / "report.html").write_text("of an earlier day")
    command, environment = step(world, machine)
    for status in (1, 2, 127, 130, 137):
        fake_report(machine, status)
        run = subprocess.run(["bash", "-e", "-c", command], cwd=machine, env=environment, timeout=120)
        assert run.returncode == status
        assert not (machine / "called").exists()


CURL = """#!/bin/sh
echo posted to $WEBHOOK
"""


def test_the_crontab_line_for_chat_posts_limits_and_mails_failures(tmp_path: Path) -> None:
    (line,) = re.findall(r"^0 7 \* \* 1 +(.* --alert .*)$", DOC, re.M)
    curl = tmp_path / "bin" / "curl"
    curl.parent.mkdir()
    curl.write_text(CURL)
    curl.chmod(0o755)
    (tmp_path / ".buildframe").write_text("export WEBHOOK=https://example.com/hook\n")
    env = {"HOME": str(tmp_path), "PATH": f"{curl.parent}:{os.environ['PATH']}"}
    outputs = {0: "", 1: "the reason is 1\n", 3: "the reason is 3\n", 4: "posted to https://example.com/hook\n"}
    for status, output in outputs.items():
        fake_report(tmp_path / "buildframe", status)
        run = subprocess.run(["sh", "-c", line], cwd="/", env=env, capture_output=True, text=True, timeout=60)
        assert (run.stdout, run.stderr) == (output, "")


def test_old_reports_are_deleted_except_the_newest(tmp_path: Path) -> None:
    (command,) = re.findall(r"^\$ (find reports .*)$", DOC, re.M)
    names = ["2026-01-01T053000Z", "2026-01-02T053000Z", "2026-01-02T053000Z-2", "notes"]
    for name in names:
        (tmp_path / "reports" / name / "numbers").mkdir(parents=True)
        os.utime(tmp_path / "reports" / name, (0, 0))
    (tmp_path / "reports" / "latest").symlink_to(names[1])
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {names[1], "latest", "notes"}


@pytest.mark.long
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """All but where the program is, and the user, which are not on this machine."""
    require_program("systemd-analyze", package="systemd")
    service = block("ini", "[Service]").replace("/opt/buildframe/.venv/bin/buildframe", str(BIN / "buildframe"))
    (tmp_path / "buildframe-report.service").write_text(service.replace("User=buildframe\n", ""))
    (tmp_path / "buildframe-report.timer").write_text(block("ini", "[Timer]"))
    for name in ("buildframe-report.service", "buildframe-report.timer"):
        done = subprocess.run(
            ["systemd-analyze", "verify", tmp_path / name], capture_output=True, text=True, timeout=60
        )
        mine = [line for line in done.stderr.splitlines() if "buildframe" in line]
        assert mine == []


@pytest.mark.long
def test_the_notebook_runs_headless_with_parameters_and_becomes_a_page(store: Path, tmp_path: Path) -> None:
    papermill, nbconvert = re.findall(r"^\$ ((?:papermill|jupyter nbconvert) .*)$", DOC, re.M)
    papermill = papermill.replace("05_", f"{ROOT}/notebooks/05_").replace("ci-history", str(store))
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "BUILDFRAME_TOKEN": "an-invented-token"}
    for command in (papermill, nbconvert):
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "report.ipynb").read_text())["cells"]
    outputs = "".join("".join(out.get("text", "")) for cell in cells for out in cell.get("outputs", ()))
    assert "(Europe/Berlin)" in outputs
    assert "complete" in outputs
    page = (tmp_path / "report.html").read_text()
    assert len(re.findall(r'<img[^>]* src="data:image/png', page)) == 2
    assert "an-invented-token" not in page
