"""`buildframe report` as a timer runs it: its files, its output and its exit status."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

import buildframe as bf
from buildframe.cli import main
from buildframe.report import store_reader
from buildframe.report.measurements import Measurements
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.report.child import (
    COMMAND,
    SCOPES,
    WITHOUT_PLOTS,
    WORLD,
    at,
    check_whole,
    hidden,
    last_line,
    measured,
    patched,
    report,
    stored,
)

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (INFO|WARNING|ERROR) .+")
AS_OF = "2026-10-30T150000Z"
QUICK_COMMAND = patched(WITHOUT_PLOTS)
"""The command without plots, for tests of numbers."""


@pytest.fixture(scope="module")
def world() -> Iterator[Workspace]:
    with worlds.sandbox(**WORLD) as ci:
        yield ci


@pytest.fixture(scope="module")
def quickest() -> tuple[str, ...]:
    """The command without plots and measuring, for tests of statuses."""
    return patched(WITHOUT_PLOTS, measured())


@pytest.fixture(scope="module")
def env(world: Workspace) -> dict[str, str]:
    return at(world)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first report and its store are."""
    return tmp_path_factory.mktemp("first")


@pytest.fixture(scope="module")
def first(folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A report that fills a store."""
    run = report(folder / "ci", folder / "reports", "--suite", "rspec", env=env, command=COMMAND)
    assert run.returncode == 0, run.stderr
    return run


@pytest.fixture(scope="module")
def store() -> Path:
    return stored()[0]


def connected(ci: Workspace, organization: str) -> Workspace:
    """A workspace of another organization of the same service."""
    return bf.connect(organization, base_url=ci.sandbox.url, token=ci.sandbox.token(list(SCOPES)))


def reported(run_folder: Path, name: str) -> pd.DataFrame:
    return bf.load(run_folder / "latest" / "numbers" / f"{name}.parquet")


@pytest.mark.long
def test_a_report_is_synced_measured_and_written(
    folder: Path, first: subprocess.CompletedProcess[str], env: dict[str, str]
) -> None:
    assert first.stdout == f"{folder}/reports/{AS_OF}/report.html\n"
    lines = first.stderr.splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    assert [line.split()[2].rstrip(":") for line in lines] == ["syncing", "synced", "measured", "written"]
    assert "HTTP" not in first.stderr
    assert check_whole(folder / "reports") == AS_OF
    page = (folder / "reports" / "latest" / "report.html").read_text()
    assert env["BUILDFRAME_TOKEN"] not in page + first.stderr
    assert hidden(folder / "reports") == set()
    assert not (folder / "reports" / "latest" / "chat.json").exists()
    tables = {path.stem for path in (folder / "reports" / "latest" / "numbers").iterdir()}
    measured = set(Measurements.__dataclass_fields__) - {"cost", "objectives"}  # which a file of limits asks for
    assert tables == measured | {"level_changes"}


@pytest.mark.long
def test_the_numbers_of_a_report_are_those_of_the_service(
    world: Workspace, store: Path, tmp_path: Path, quickest: tuple[str, ...]
) -> None:
    options = ("--no-sync", "--days", "3", "--tz", "Europe/Berlin")
    assert report(store, tmp_path, *options, command=quickest).returncode == 0
    zone = "Europe/Berlin"
    midnights = [pd.Timestamp(f"2026-10-{day}", tz=zone) for day in (24, 27, 30)]
    builds, jobs = world.history(created_from="9d", progress=False)
    load = reported(tmp_path, "load").set_index("what")
    for what, stamps in (("builds created", builds["created_at"]), ("jobs finished", jobs["finished_at"])):
        within = [int(stamps.between(a, b, "left").sum()) for a, b in itertools.pairwise(midnights)]
        assert load.loc[what, ["before", "now"]].tolist() == within
        assert min(within) > 0


def test_jobs_that_never_became_runnable_did_not_finish() -> None:
    """Of six jobs of a build that ended at 10:00, five ended: one was broken, and has no end but that of the build."""
    ten, nine = pd.Timestamp("2026-10-26T10:00Z"), pd.Timestamp("2026-10-26T09:00Z")
    rows = {
        "passed": (nine, nine, nine, None),
        "canceled": (nine, None, None, None),
        "expired": (nine, None, None, nine),
        "expired, too": (None, None, None, nine),
        "skipped": (None, None, nine, None),
        "broken": (None, None, None, None),
    }
    names = ["runnable_at", "started_at", "finished_at", "expired_at"]
    jobs = pd.DataFrame.from_dict(rows, orient="index", columns=names).rename_axis("state").reset_index()
    jobs["state"] = jobs["state"].replace("expired, too", "expired")
    jobs = jobs.astype(dict.fromkeys(names, "datetime64[us, UTC]")).assign(
        organization="acme", build_finished_at=ten, fetched_at=ten + pd.Timedelta("1h")
    )
    snapshot = SimpleNamespace(builds=lambda **_: jobs[["organization"]], jobs=lambda **_: jobs)
    _, read = store_reader.read_rows(cast("Any", snapshot), "acme", None, nine)
    assert read["finished_at"].tolist() == [nine, ten, nine, nine, nine, pd.NaT]


@pytest.mark.long
def test_json_lines_have_fields(store: Path, tmp_path: Path, quickest: tuple[str, ...]) -> None:
    run = report(store, tmp_path, "--no-sync", "--log", "json", command=quickest)
    measured, written = map(json.loads, run.stderr.splitlines())
    assert measured["builds"] > 100
    assert measured["end"] == "2026-10-30T00:00:00+00:00"
    assert written["folder"] == str(tmp_path / AS_OF)
    assert (written["complete"], written["why"]) == (True, [])


def assert_page_contains(folder: Path, words: str) -> None:
    for name in ("report.html", "report.md"):
        assert words in (folder / "latest" / name).read_text(encoding="utf-8")


@pytest.mark.long
def test_a_report_can_be_restricted_to_a_pipeline(store: Path, tmp_path: Path, quickest: tuple[str, ...]) -> None:
    assert report(store, tmp_path, "--no-sync", "--pipeline", "web", command=quickest).returncode == 0
    assert set(reported(tmp_path, "waste")["pipeline"]) == {"web"}
    run = report(store, tmp_path, "--no-sync", "--pipeline", "wbe")
    assert run.returncode == 1
    assert "is not in the store" in last_line(run)


@pytest.mark.long
def test_a_store_of_one_pipeline_is_reported_as_such(world: Workspace, tmp_path: Path) -> None:
    run = report(tmp_path / "ci", tmp_path / "reports", "--pipeline", "web", env=at(world), command=QUICK_COMMAND)
    assert run.returncode == 0
    assert "WARNING The store has no list of pipelines" in run.stderr
    assert_page_contains(tmp_path / "reports", "The store has no list of pipelines")
    assert set(reported(tmp_path / "reports", "success")["pipeline"]) == {"web"}
    assert reported(tmp_path / "reports", "outages").empty


@pytest.mark.long
def test_a_store_of_two_organizations_needs_the_organization(
    world: Workspace, tmp_path: Path, quickest: tuple[str, ...]
) -> None:
    with connected(world, "globex") as other:
        slugs = set(other.pipelines(progress=False)["slug"])
        for ci in (world, other):
            bf.Store(tmp_path / "ci").sync(ci, since="20d", progress=False)
    run = report(tmp_path / "ci", tmp_path / "reports", "--no-sync")
    assert run.returncode == 1
    assert "Set BUILDFRAME_ORG to one of: acme, globex" in last_line(run)
    assert report(tmp_path / "ci", tmp_path / "reports", "--no-sync", env={"BUILDFRAME_ORG": "initech"}).returncode == 1
    run = report(tmp_path / "ci", tmp_path / "reports", "--no-sync", env={"BUILDFRAME_ORG": "globex"}, command=quickest)
    assert run.returncode == 0
    assert set() < set(reported(tmp_path / "reports", "waste")["pipeline"]) <= slugs


@pytest.mark.long
def test_a_deleted_pipeline_is_still_reported(tmp_path: Path, quickest: tuple[str, ...]) -> None:
    with worlds.sandbox(builds=50, days=8) as ci:
        bf.Store(tmp_path / "ci").sync(ci, progress=False)
        ci.pipeline("web").delete()
        run = report(tmp_path / "ci", tmp_path / "reports", env=at(ci), command=quickest)
    assert run.returncode == 0, run.stderr
    assert "web" in set(reported(tmp_path / "reports", "waste")["pipeline"])


# --- missing data


@pytest.mark.long
def test_an_organization_without_builds_has_a_report(tmp_path: Path, scripted: type[Scripted]) -> None:
    service = scripted(says(b"[]"))
    env = {"BUILDFRAME_URL": service.url, "BUILDFRAME_ORG": "acme", "BUILDFRAME_TOKEN": "an-invented-token"}
    run = report(tmp_path / "ci", tmp_path / "reports", env=env)
    assert run.returncode == 0, run.stderr
    assert check_whole(tmp_path / "reports") == "2026-11-01T120000Z"
    assert (reported(tmp_path / "reports", "load")["now"] == 0).all()


@pytest.mark.long
@pytest.mark.usefixtures("first")
def test_an_incomplete_previous_period_is_not_compared(world: Workspace, folder: Path, tmp_path: Path) -> None:
    run = report(tmp_path / "ci", tmp_path / "reports", "--since", "10d", env=at(world), command=QUICK_COMMAND)
    assert run.returncode == 0
    assert "so the report compares with no period before" in run.stderr
    assert_page_contains(tmp_path / "reports", "so the report compares with no period before")
    load = reported(tmp_path / "reports", "load")
    assert load["before"].isna().all()
    assert (load["now"] > 0).all()
    wall_time = reported(tmp_path / "reports", "wall_time")
    assert wall_time["p50_change_s"].isna().all()
    assert wall_time["p50_s"].notna().any()
    assert (reported(tmp_path / "reports", "queue_time")["n_before"] == 0).all()
    whole = reported(folder / "reports", "load")
    assert (whole["before"] > 0).all()
    assert whole["now"].iloc[0] == load["now"].iloc[0]


@pytest.mark.long
def test_a_store_that_begins_within_the_period_makes_the_report_incomplete(
    world: Workspace, tmp_path: Path, quickest: tuple[str, ...]
) -> None:
    run = report(tmp_path / "ci", tmp_path / "reports", "--since", "3d", env=at(world), command=quickest)
    assert run.returncode == 3
    why = "The store has all builds since 2026-10-27T15:00:00Z only, and the period begins earlier."
    assert last_line(run).endswith(f"written: {tmp_path}/reports/{AS_OF}, INCOMPLETE: {why}")
    assert "2026-10-27" in (tmp_path / "reports" / "latest" / "report.html").read_text()
    assert run.stdout.endswith("report.html\n")


@pytest.mark.long
def test_a_report_is_incomplete_if_only_another_organization_was_synced_later(
    tmp_path: Path, quickest: tuple[str, ...]
) -> None:
    """As of the last sync of the store, the period ends after the last sync of the organization."""
    with worlds.sandbox(builds=50, days=8) as ci, connected(ci, "globex") as other:
        bf.Store(tmp_path / "ci").sync(ci, progress=False)
        ci.sandbox.clock.advance(pd.Timedelta(1, "D").to_pytimedelta())
        bf.Store(tmp_path / "ci").sync(other, progress=False)
    run = report(tmp_path / "ci", tmp_path / "reports", "--no-sync", env={"BUILDFRAME_ORG": "acme"}, command=quickest)
    assert run.returncode == 3
    assert "The last sync was at 2026-10-30T15:00:00Z, and the period ends later" in last_line(run)


@pytest.mark.long
def test_incomplete_data_makes_the_report_incomplete_even_if_limits_are_exceeded(
    tmp_path: Path, quickest: tuple[str, ...]
) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text('[success_rate]\n"*" = 1.0\n')
    with worlds.sandbox(builds=50, days=8, deepest=100) as ci:
        for _ in range(130):  # with one timestamp, of which the service lists 100
            ci.pipeline("web").create_build(commit="HEAD", branch="main")
        options = ("--thresholds", limits, "--alert")
        run = report(tmp_path / "ci", tmp_path / "reports", *options, env=at(ci), command=quickest)
    assert run.returncode == 3
    assert "WARNING Incomplete" in run.stderr
    assert "INCOMPLETE: The service could not be read completely: " in last_line(run)
    assert "page numbers" in last_line(run)
    assert check_whole(tmp_path / "reports") == AS_OF
    assert "; limit exceeded: " in last_line(run)
    later = report(tmp_path / "ci", tmp_path / "reports", "--no-sync", command=quickest)
    assert later.returncode == 3
    assert last_line(later).endswith("INCOMPLETE: No sync of the store has been complete so far.")


FULL = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
CLOSED = "import os, sys; os.close(1); sys.stdout = None"  # as Python starts
ASCII = "import sys; sys.stdout = open(1, 'w', encoding='ascii', closefd=False)"


@pytest.mark.long
@pytest.mark.parametrize("away", [FULL, CLOSED, ASCII], ids=["full", "closed", "ASCII"])
def test_a_path_that_cannot_be_printed_does_not_change_the_status(store: Path, tmp_path: Path, away: str) -> None:
    reports = tmp_path / "berichte-für-alle"
    run = report(store, reports, "--no-sync", command=patched(WITHOUT_PLOTS, measured(), away))
    assert run.returncode == 0, run.stderr
    assert check_whole(reports) == AS_OF
    assert all(LINE.fullmatch(line) for line in run.stderr.splitlines())
    assert ("WARNING Cannot write to stdout" in last_line(run)) == (away != CLOSED)  # to which Python prints nothing


# --- thresholds


@pytest.mark.long
@pytest.mark.parametrize(("rate", "options", "status"), [(1.0, ["--alert"], 4), (0.01, ["--alert"], 0), (1.0, [], 0)])
def test_an_exceeded_limit_changes_the_status_on_request(
    store: Path, tmp_path: Path, quickest: tuple[str, ...], rate: float, options: list[str], status: int
) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text(f'[success_rate]\n"*" = {rate}\n')
    run = report(store, tmp_path / "reports", "--no-sync", "--thresholds", limits, *options, command=quickest)
    assert run.returncode == status
    assert ("; limit exceeded: " in last_line(run)) == (rate == 1.0)
    assert check_whole(tmp_path / "reports") == AS_OF
    assert set(json.loads((tmp_path / "reports" / "latest" / "chat.json").read_text())) == {"text"}


@pytest.mark.long
def test_a_missed_objective_changes_the_status(store: Path, tmp_path: Path, quickest: tuple[str, ...]) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text('[objectives.start]\nof = "run_time"\nwithin = "1s"\ntarget = 0.95\n[rates]\n"*" = 0.1\n')
    options = ("--no-sync", "--thresholds", limits, "--alert")
    run = report(store, tmp_path / "reports", *options, command=quickest)
    assert run.returncode == 4, run.stderr
    assert "; limit exceeded: start: " in last_line(run)
    numbers = tmp_path / "reports" / "latest" / "numbers"
    assert bf.load(numbers / "objectives.parquet")["objective"].tolist() == ["start"]
    assert (bf.load(numbers / "cost.parquet")["cost"] > 0).all()


def test_wrong_thresholds_are_status_2_before_anything_is_sent(
    tmp_path: Path, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits, service = tmp_path / "limits.toml", scripted(says(b"[]"))
    for name, value in (("URL", service.url), ("ORG", "acme"), ("TOKEN", "an-invented-token")):
        monkeypatch.setenv(f"BUILDFRAME_{name}", value)
    for text in (None, "success_rate = [", "[sucess_rate]\nweb = 0.9", "[success_rate]\nweb = 90"):
        if text is not None:
            limits.write_text(text)
        with pytest.raises(SystemExit) as left:
            main(["report", str(tmp_path / "ci"), str(tmp_path / "reports"), "--thresholds", str(limits)])
        assert left.value.code == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"buildframe report: error: {limits}: ")
    assert (service.requests, os.path.exists(tmp_path / "ci")) == ([], False)
