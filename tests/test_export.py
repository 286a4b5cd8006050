"""The command `export`: equal from a store and from the service, complete files only, no names by default."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import buildframe as bf
from buildframe.cli import main
from buildframe.sandbox_server import SCOPES
from buildframe.store import files
from buildframe.store.retained_columns import PERSONAL, SECRET
from buildframe.workspace import Workspace
from tests import worlds

COMMAND = [sys.executable, "-m", "buildframe.cli"]


@pytest.fixture(scope="module")
def ci() -> Iterator[Workspace]:
    """A sandbox to which the environment variables of the command refer."""
    with worlds.sandbox(builds=60, days=2, deepest=100) as ci, pytest.MonkeyPatch.context() as environment:
        environment.setenv("BUILDFRAME_URL", ci.sandbox.url)
        environment.setenv("BUILDFRAME_ORG", "acme")
        environment.setenv("BUILDFRAME_TOKEN", ci.sandbox.token(SCOPES))
        yield ci


@pytest.fixture(scope="module")
def stores(ci: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Paths of two stores: `all` with names and secrets, `ids` without."""
    folder = tmp_path_factory.mktemp("stores")
    paths = {"all": str(folder / "all"), "ids": str(folder / "ids")}
    for name, store in paths.items():
        bf.Store(store).sync(
            ci, since="10d", suites=["rspec", "jest"], personal=name == "all", env=name == "all", progress=False
        )
    return paths


def exported(*arguments: str | Path, status: int = 0) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["export", *map(str, arguments)]) == status
    assert status not in (0, 3) or err.getvalue() == ""
    return out.getvalue() + err.getvalue()


def in_order(path: Path) -> pd.DataFrame:
    frame = bf.load(path).drop(columns="fetched_at")
    frame.attrs = {}
    return frame.sort_values("id", ignore_index=True)


WINDOW = ("--from", "2026-10-29", "--to", "2026-10-30T12:00Z")
TABLES = [
    ("builds", *WINDOW),
    ("builds", *WINDOW, "--pipeline", "web", "--personal", "--env"),
    ("jobs", *WINDOW),
    ("jobs", *WINDOW, "--pipeline", "web", "--personal"),
    ("pipelines",),
    ("pipelines", "--personal", "--env"),
    ("members", "--personal"),
    ("flaky_tests", "--suite", "rspec"),
]


@pytest.mark.long
@pytest.mark.parametrize("arguments", TABLES, ids=" ".join)
def test_the_same_comes_from_a_store_and_from_the_service(
    stores: dict[str, str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    lines = [exported(tmp_path / "service.parquet", *arguments)]
    lines.append(exported(tmp_path / "store.parquet", *arguments, "--store", stores["all"]))
    service, store = (in_order(tmp_path / f"{name}.parquet") for name in ("service", "store"))
    of_one_build_only = [name for name in ("agent_hostname", "agent_meta_data") if name in store]
    service, store = (frame.drop(columns=of_one_build_only) for frame in (service, store))
    assert len(service) > 0
    assert_frame_equal(service, store)
    window = r" created from 2026-10-29T00:00:00Z to 2026-10-30T12:00:00Z" if arguments[0] in ("builds", "jobs") else ""
    for line, name in zip(lines, ("service", "store"), strict=True):
        assert line.startswith(f"{tmp_path / name}.parquet: {len(service):,} {arguments[0].replace('_', ' ')}")
        assert re.search(rf"{window}; complete as of 2026-10-\d\dT[\d:.]+Z\n$", line)


@pytest.mark.long
@pytest.mark.usefixtures("ci")
def test_the_command_runs_in_its_own_process(tmp_path: Path) -> None:
    run = subprocess.run(
        [*COMMAND, "export", "jobs.csv", "jobs", "--from", "1d"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith(f"jobs.csv: {len(pd.read_csv(tmp_path / 'jobs.csv')):,} jobs of builds created from ")


@pytest.mark.long
@pytest.mark.usefixtures("ci")
def test_a_line_that_cannot_be_printed_does_not_change_the_status(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [*COMMAND, "export", "jobs.csv", "jobs"], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert run.returncode == 0
    assert re.fullmatch(r"Cannot write to stdout .*: 'jobs.csv: .*'\n", run.stderr)
    assert len(pd.read_csv(tmp_path / "jobs.csv")) > 0


def test_the_file_equals_the_rows_of_the_library(ci: Workspace, tmp_path: Path) -> None:
    exported(tmp_path / "b.parquet", "builds", *WINDOW)
    builds = ci.builds(created_from="2026-10-29", created_to="2026-10-30T12:00Z", progress=False)
    assert set(bf.load(tmp_path / "b.parquet")["id"]) == set(builds["id"])
    exported(tmp_path / "b.CSV", "builds", "--columns", "number, pipeline", *WINDOW)
    read = pd.read_csv(tmp_path / "b.CSV")
    assert list(read.columns) == ["number", "pipeline"]
    assert sorted(read["number"]) == sorted(builds["number"])


@pytest.mark.parametrize(("store", "suffix"), [(None, "csv"), ("all", "parquet"), ("ids", "csv")])
def test_by_default_no_name_and_no_secret_is_written(
    ci: Workspace, stores: dict[str, str], tmp_path: Path, store: str | None, suffix: str
) -> None:
    where = ["--store", stores[store]] if store else []
    members = ci.members(progress=False)
    known = {*members["name"], *members["email"]}
    window = ("--from", "9d")
    for table, *others in (
        ("builds", *window),
        ("jobs", *window),
        ("pipelines",),
        ("flaky_tests", "--suite", "rspec"),
    ):
        path = tmp_path / f"{table}.{suffix}"
        exported(path, table, *others, *where)
        frame = bf.load(path) if suffix == "parquet" else pd.read_csv(path)
        left_out = {*PERSONAL.get(table, ()), *SECRET.get(table, ())}
        assert len(frame) > 0
        assert left_out.isdisjoint(frame.columns)
        text = path.read_bytes() + frame.to_csv().encode()
        assert not [name for name in known if name.encode() in text]


def test_names_and_secrets_are_written_on_request(ci: Workspace, tmp_path: Path) -> None:
    exported(tmp_path / "b.csv", "builds", "--personal", "--env", "--from", "10d")
    text = (tmp_path / "b.csv").read_text()
    builds = ci.builds(created_from="10d", progress=False)
    assert builds["creator_email"].dropna().iloc[0] in text
    assert {"creator", "creator_email", "author", "author_email", "env"} <= set(pd.read_csv(tmp_path / "b.csv"))


INVALID = [
    (["o.txt", "builds"], "End its name in .parquet or .csv"),
    (["o", "builds"], "End its name in .parquet or .csv"),
    (["nowhere/o.csv", "builds"], "does not exist"),
    (["folder.csv", "builds"], "is a folder or a device"),
    (["s3://o.csv", "builds"], "'s3://o.csv' names no bucket"),
    (["s3://bucket/o.txt", "builds"], "End its name in .parquet or .csv"),
    (["s3://me:secret@bucket/o.csv", "builds"], "must not contain a password"),
    (
        ["http://example.com/o.csv", "builds"],
        "URLs that begin with http:// cannot be written. Use a path, or a URL",
    ),
    (["https://me:secret@example.com/o.csv", "builds"], "URLs that begin with https:// cannot be written"),
    (["memory:///o.csv", "builds"], "URLs that begin with memory:// cannot be written"),
    (["o.csv", "members"], "Add --personal"),
    (["o.csv", "pipelines", "--from", "3d"], "--from, --to and --pipeline cannot be used with pipelines"),
    (["o.csv", "flaky_tests", "--pipeline", "web"], "only with builds and jobs"),
    (["o.csv", "builds", "--suite", "rspec"], "--suite cannot be used with builds"),
    (
        ["o.csv", "builds", "--columns", "id,creator_email"],
        "creator_email of builds is not exported. Add --personal",
    ),
    (["o.csv", "builds", "--columns", "env"], "env of builds is not exported. Add --env"),
    (["o.csv", "pipelines", "--columns", "running_jobs_count"], "It is valid at the time of a request only"),
    (["o.csv", "builds", "--columns", "id,,number"], "Name each column once"),
    (["o.csv", "builds", "--columns", "id,id"], "Name each column once"),
    (["o.csv", "builds", "--columns", "id,nubmer"], "Did you mean 'number'"),
    (["o.csv", "pipelines", "--columns", "id,slugg"], "Did you mean 'slug'"),
    (["o.csv", "builds", "--from", "yesterday"], "is not a valid time"),
    (["o.csv", "builds", "--from", "2026-10-30T08:00"], "has no time zone"),
    (["o.csv", "builds", "--to", "tomorrow"], "is not a valid time"),
    (["o.csv", "builds", "--from", "3d", "--to", "10d"], "--from 3d is not before --to 10d"),
    (["o.csv", "builds", "--from", "2026-10-30", "--to", "2026-10-29"], "is not before --to 2026"),
    (["o.csv", "buidls"], "invalid choice: 'buidls'. Did you mean 'builds'?"),
    (["o.csv", "steps"], "invalid choice: 'steps'. Valid names: builds, jobs, "),
    (["o.csv", "builds", "--sandbox", "--store", "s"], "not allowed with"),
]


def test_invalid_options_are_status_2_before_any_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.csv").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUILDFRAME_URL", "http://127.0.0.1:9")  # where nothing answers
    unexpected = []
    for arguments, words in INVALID:
        try:
            status: object = f"returned {main(['export', *arguments])}"
        except SystemExit as left:
            status = left.code
        error = " ".join(capsys.readouterr().err.split())
        if status != 2 or words not in error or "secret" in error:
            unexpected.append((arguments, status, error))
        assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"], arguments
    assert unexpected == []


def test_a_refused_export_is_one_line_with_status_1_and_the_old_file_stays(
    ci: Workspace, stores: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o.csv"
    out.write_text("old")
    for arguments, words in (
        (["builds", "--from", "30d", "--to", "2026-01-01"], "The time range is empty"),
        (["builds", "--pipeline", "wbe"], "wbe"),
        (["flaky_tests", "--suite", "nope"], "nope"),
    ):
        for store in ([], ["--store", stores["all"]]):
            assert main(["export", str(out), *arguments, *store]) == 1
            error = capsys.readouterr().err
            assert error.startswith("buildframe: ")
            assert words in error or (not store and "404" in error)
            assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_store_lists_the_flaky_tests_of_all_suites(stores: dict[str, str], tmp_path: Path) -> None:
    exported(tmp_path / "f.csv", "flaky_tests", "--store", stores["ids"])
    assert set(pd.read_csv(tmp_path / "f.csv")["suite"]) == {"rspec", "jest"}


def test_a_column_that_a_store_lacks_is_refused(stores: dict[str, str], tmp_path: Path) -> None:
    for flag, words in (("--personal", "has no author"), ("--env", "has no env")):
        line = exported(tmp_path / "b.csv", "builds", flag, "--store", stores["ids"], status=1)
        assert words in line
        assert f"Sync it with {flag}" in line
    line = exported(tmp_path / "b.csv", "members", "--personal", "--store", stores["ids"], status=1)
    assert "Sync with --personal" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_store_that_does_not_reach_so_far_back_is_status_3(
    ci: Workspace, stores: dict[str, str], tmp_path: Path
) -> None:
    store = stores["ids"]
    line = exported(tmp_path / "b.csv", "builds", "--from", "30d", "--store", store, status=3)
    since = bf.Store(store).covers["acme"][0].text()
    assert line.endswith(f"INCOMPLETE: the store is complete from {since} only\n")
    assert len(pd.read_csv(tmp_path / "b.csv")) == len(bf.Store(store).builds())
    own = tmp_path / "web"
    bf.Store(own).sync(ci.pipeline("web"), since="1d", progress=False)
    exported(tmp_path / "b.csv", "jobs", "--from", "1d", "--pipeline", "web", "--store", own)
    assert "INCOMPLETE" in exported(tmp_path / "b.csv", "jobs", "--pipeline", "web", "--store", own, status=3)
    assert "INCOMPLETE" in exported(tmp_path / "b.csv", "jobs", "--store", own, status=3)


@pytest.mark.long
def test_a_store_reports_until_when_it_is_complete(tmp_path: Path) -> None:
    with worlds.sandbox(builds=60, days=2) as ci:
        store = bf.Store(tmp_path / "s")
        whole = store.sync(ci, since="1d", progress=False).as_of
        ci.sandbox.clock.advance(dt.timedelta(hours=5))
        ci.pipeline("web").create_build(commit="HEAD", branch="main")
        last = store.sync(ci.pipeline("web"), since="1d", progress=False).as_of
    out = tmp_path / "b.csv"
    arguments = (out, "builds", "--from", "20h", "--store", tmp_path / "s")
    line = exported(*arguments)
    assert f" to {whole.text()}; complete as of {whole.text()}\n" in line
    assert (pd.to_datetime(pd.read_csv(out)["created_at"]) < whole).all()
    assert f" to {last.text()}; complete as of {last.text()}\n" in exported(*arguments, "--pipeline", "web")
    assert (pd.to_datetime(pd.read_csv(out)["created_at"]) > whole).any()
    line = exported(*arguments, "--to", last.text(), status=3)
    assert line.endswith(f"INCOMPLETE: the store is complete up to {whole.text()} only\n")


@pytest.mark.long
def test_a_pipeline_that_is_synced_further_back_than_its_organization_is_complete(
    ci: Workspace, tmp_path: Path
) -> None:
    store = tmp_path / "s"
    bf.Store(store).sync(ci, since="1d", progress=False)
    bf.Store(store).sync(ci.pipeline("web"), since="10d", progress=False)
    exported(tmp_path / "b.csv", "builds", "--from", "9d", "--pipeline", "web", "--store", store)
    exported(tmp_path / "b.csv", "builds", "--from", "9d", "--pipeline", "api", "--store", store, status=3)
    exported(tmp_path / "b.csv", "builds", "--from", "9d", "--store", store, status=3)


@pytest.mark.long
@pytest.mark.filterwarnings("error", "ignore::pytest.PytestUnraisableExceptionWarning")  # these are of earlier tests
def test_what_the_service_cannot_list_completely_is_status_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with worlds.sandbox(builds=60, days=2, deepest=100) as ci:
        for _ in range(130):  # at one instant, of which the service lists 100
            ci.pipeline("web").create_build(commit="HEAD", branch="main")
        monkeypatch.setenv("BUILDFRAME_URL", ci.sandbox.url)
        monkeypatch.setenv("BUILDFRAME_TOKEN", ci.sandbox.token(SCOPES))
        monkeypatch.setenv("BUILDFRAME_ORG", "acme")
        assert main(["export", str(tmp_path / "b.csv"), "builds"]) == 3
    assert "INCOMPLETE: " in capsys.readouterr().out
    assert len(pd.read_csv(tmp_path / "b.csv")) >= 100


def test_a_full_disk_or_an_interrupt_leaves_the_old_file(
    ci: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for failure, suffix, status in ((full, "csv", 1), (KeyboardInterrupt(), "csv", 130), (full, "parquet", 1)):
        folder = tmp_path / f"{suffix} {status}"
        folder.mkdir()
        out = folder / f"o.{suffix}"
        out.write_text("old")
        monkeypatch.setattr(files.os, "fsync", mock.Mock(side_effect=failure))
        assert main(["export", str(out), "builds"]) == status
        assert [path.read_text() for path in folder.iterdir()] == ["old"]


def test_a_refused_token_is_a_line_and_status_1(
    ci: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUILDFRAME_TOKEN", "another-token")
    assert main(["export", str(tmp_path / "o.csv"), "builds"]) == 1
    assert capsys.readouterr().err.startswith("buildframe: 401")
    assert list(tmp_path.iterdir()) == []
