"""Import of exported builds: the same rows as by the API, resumed after a kill, never an older row, damaged folders."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe.cli import main
from buildframe.errors import BadInput
from buildframe.spec import Moment
from buildframe.store import export_folders, imports, transactions
from buildframe.workspace import Workspace
from tests import worlds
from tests.store.batches import dies_at
from tests.store.test_privacy import occurring

SECRETS = {"SESAME_KEY", "open-sesame-4711"}
ALL = {"personal": True, "env": True, "progress": False}


@pytest.fixture(scope="module")
def world() -> Iterator[Workspace]:
    with worlds.sandbox(builds=25, days=3) as workspace:
        workspace.pipeline("web").create_build(commit="HEAD", branch="main", env={"SESAME_KEY": "open-sesame-4711"})
        yield workspace


@pytest.fixture(scope="module")
def exports(world: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exports of all builds of that world."""
    folder = tmp_path_factory.mktemp("exports")
    world.sandbox.write_exports(folder)
    return folder


@pytest.fixture(scope="module")
def by_api(world: Workspace, tmp_path_factory: pytest.TempPathFactory) -> bf.Store:
    """A store with the same builds, fetched by the API, with everything in them."""
    store = bf.Store(tmp_path_factory.mktemp("by-api"))
    assert store.sync(world, since="10d", **ALL).complete
    return store


@pytest.fixture(scope="module")
def few(exports: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few exported builds, the first of which have retried jobs."""
    few = tmp_path_factory.mktemp("few")
    retried = [path for path in sorted(exports.rglob("build=*")) if any(job["retried"] for job in jobs_in(path))]
    for folder in (retried + [path for path in sorted(exports.rglob("build=*")) if path not in retried])[:5]:
        shutil.copytree(folder, few / folder.relative_to(exports))
    return few


@pytest.fixture
def some(few: Path, tmp_path: Path) -> Path:
    """A copy of them, which a test may change."""
    return shutil.copytree(few, tmp_path / "some")


@pytest.fixture(scope="module")
def whole(few: Path, tmp_path_factory: pytest.TempPathFactory) -> bf.Store:
    """A store with their import."""
    store = bf.Store(tmp_path_factory.mktemp("whole"))
    store.import_exports(few, progress=False)
    return store


def read(file: Path) -> Any:
    return json.loads(gzip.decompress(file.read_bytes()))


def compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


def edit(file: Path, **values: Any) -> None:
    file.write_bytes(gzip.compress(compact({**read(file), **values}).encode()))


def jobs_in(folder: Path) -> list[dict[str, Any]]:
    return [{"retried": False, **read(file)} for file in sorted(folder.glob("jobs/*.json.gz"))]


def content(store: bf.Store) -> dict[str, pd.DataFrame]:
    """Every stored column of builds and jobs."""
    tables = {table: store.sql(f"SELECT * FROM {table} ORDER BY id") for table in ("builds", "jobs")}
    assert all(frame["id"].is_unique for frame in tables.values())
    return tables


def assert_same(ours: bf.Store, theirs: bf.Store, without: tuple[str, ...] = ()) -> None:
    for ours_of, theirs_of in zip(content(ours).values(), content(theirs).values(), strict=True):
        aside = [name for name in without if name in ours_of]
        pd.testing.assert_frame_equal(ours_of.drop(columns=aside), theirs_of.drop(columns=aside))


# --- which rows


@pytest.mark.long
def test_the_rows_are_those_of_a_sync(exports: Path, by_api: bf.Store, store: bf.Store) -> None:
    result = store.import_exports(exports, **ALL)
    assert_same(store, by_api, without=("fetched_at", "is_open"))
    builds, jobs = content(store).values()
    assert (result.builds, result.jobs, result.unchanged) == (len(builds), len(jobs), 0)
    assert result.complete
    assert result.why is None
    assert jobs["retried"].any()
    assert builds["finished_at"].isna().any()
    assert not builds["is_open"].any()


@pytest.mark.long
def test_a_row_is_dated_by_the_latest_time_in_its_build(some: Path, store: bf.Store) -> None:
    store.import_exports(some, progress=False)
    builds = store.builds().set_index("id")
    for folder in some.rglob("build=*"):
        documents = [read(folder / "build.json.gz"), *jobs_in(folder)]
        names = ("created_at", "runnable_at", "started_at", "failing_at", "finished_at", "unblocked_at")
        latest = max(document[name] for document in documents for name in names if document.get(name))
        fetched = builds.at[folder.name.removeprefix("build="), "fetched_at"]
        assert fetched == pd.Timestamp(latest).ceil("s")
    jobs = store.jobs()
    assert (jobs["fetched_at"] == jobs["build_id"].map(builds["fetched_at"])).all()
    assert store.as_of == builds[["created_at", "finished_at"]].max(axis=None).ceil("s")


@pytest.mark.long
def test_importing_again_changes_nothing(some: Path, store: bf.Store) -> None:
    first = store.import_exports(some, progress=False)
    again = store.import_exports(some, progress=False)
    assert (again.builds, again.jobs, again.unchanged, again.bytes) == (0, 0, first.builds, 0)
    assert again.version == first.version == store.version


@pytest.mark.long
@pytest.mark.parametrize("instant", [0, 9, 23])
def test_a_killed_import_continues(
    few: Path, whole: bf.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instant: int
) -> None:
    monkeypatch.setattr(imports, "_BUILDS_PER_BATCH", 2)
    killed = bf.Store(tmp_path / "killed")
    with dies_at(instant):
        killed.import_exports(few, progress=False)
        pytest.fail("the import ended before it was killed")
    result = killed.import_exports(few, progress=False)
    assert result.builds + result.unchanged == len(whole.builds())
    assert_same(killed, whole)


@pytest.mark.long
def test_a_batch_is_a_commit(some: Path, store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "_BYTES_PER_BATCH", 1)
    assert store.import_exports(some, progress=False).version == 5  # of as many builds; version 0 is empty
    assert len(store.builds()) == 5


@dataclass(frozen=True)
class Reopened:
    """A sandbox whose builds were exported and stored, and the failed build in it of which a job was retried since.

    `by_now` is a store with what they became.
    """

    ci: Workspace
    build_id: str
    before: Path
    after: Path
    synced_before: Path
    by_now: bf.Store


@pytest.fixture(scope="module")
def reopened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reopened]:
    folder = tmp_path_factory.mktemp("reopened")
    with worlds.sandbox(builds=20, days=2) as ci:
        ci.pipeline("web").create_build(commit="HEAD", branch="main")  # which then runs
        ci.sandbox.write_exports(folder / "before")
        bf.Store(folder / "synced-before").sync(ci, since="10d", progress=False)
        jobs = ci.jobs(progress=False)
        failed = jobs[(jobs["state"] == "failed") & ~jobs["retried"] & (jobs["build_state"] == "failed")].iloc[0]
        ci.sandbox.retry(failed["pipeline"], int(failed["build_number"]), failed["id"])
        ci.sandbox.clock.advance(dt.timedelta(days=1))
        ci.sandbox.write_exports(folder / "after")
        by_now = bf.Store(folder / "by-now")
        by_now.sync(ci, since="10d", progress=False)
        yield Reopened(ci, failed["build_id"], folder / "before", folder / "after", folder / "synced-before", by_now)


@pytest.mark.long
def test_an_export_never_replaces_a_newer_row(reopened: Reopened, tmp_path: Path) -> None:
    store = bf.Store(shutil.copytree(reopened.by_now.url, tmp_path / "history"))
    stored, covers, version = content(store), store.covers, store.version
    result = store.import_exports(reopened.before, progress=False)
    assert (result.builds, result.version) == (0, version)
    assert store.import_exports(reopened.after, progress=False).builds == 0
    for table, frame in content(store).items():
        pd.testing.assert_frame_equal(frame, stored[table])
    assert store.covers == covers


@pytest.mark.long
def test_an_export_does_not_replace_a_newer_row_of_an_open_build(tmp_path: Path, store: bf.Store) -> None:
    with worlds.sandbox(builds=5, days=2) as ci:
        id = ci.pipeline("web").create_build(commit="HEAD", branch="main").id
        ci.sandbox.write_exports(tmp_path / "exports")
        ci.sandbox.clock.advance(dt.timedelta(minutes=1))
        store.sync(ci, since="10d", progress=False)
    assert store.import_exports(tmp_path / "exports", progress=False).builds == 0
    assert store.builds(columns=["id", "is_open"]).set_index("id").at[id, "is_open"]


def test_jobs_are_read_unless_the_stored_build_is_as_new() -> None:
    at = Moment(2026, 10, 30, tzinfo=dt.UTC)
    folder = export_folders.ExportFolder("", "b", "p", {f"jobs/job-{id}.json.gz": 1 for id in "12"})
    exported = export_folders.ExportedBuild(folder, None, at, at, 1)
    expected = {
        (0, False, "12"): True,
        (5, False, "123"): True,
        (-1, False, "12"): False,
        (5, True, "12"): False,  # after a webhook, or while an agent stopped a job of a canceled build
        (5, False, "1"): False,
    }
    found = {}
    for seconds, is_partial, jobs in expected:
        fetched = Moment.of(at + dt.timedelta(seconds=seconds))
        stored = imports._StoredBuild(fetched, at, is_partial, set(jobs))
        found[seconds, is_partial, jobs] = stored.is_current(exported)
    assert found == expected


@pytest.mark.long
def test_lost_jobs_are_imported_again(reopened: Reopened, tmp_path: Path) -> None:
    """But not with an earlier state of a build, whose retry is lost, too."""
    store = bf.Store(shutil.copytree(reopened.by_now.url, tmp_path / "history"))
    for path in store.files("jobs"):
        Path(path).unlink()
    store.verify(drop=True)
    assert store.jobs().empty
    assert store.import_exports(reopened.before, progress=False).builds > 0
    assert reopened.build_id not in set(store.jobs()["build_id"])
    assert store.import_exports(reopened.after, progress=False).builds > 0
    assert_same(store, reopened.by_now, without=("fetched_at", "is_open"))


@pytest.mark.long
def test_an_export_replaces_older_rows(reopened: Reopened, tmp_path: Path) -> None:
    """Of a build that a store has as failed, and the export after a retry; and of builds that were running."""
    then = bf.Store(shutil.copytree(reopened.synced_before, tmp_path / "then"))
    was_open = then.builds(columns=["id", "is_open"]).query("is_open")["id"]
    assert len(was_open)
    result = then.import_exports(reopened.after, progress=False)
    assert 1 + len(was_open) <= result.builds
    assert result.unchanged > 0
    assert_same(then, reopened.by_now, without=("fetched_at", "is_open"))
    assert then.covers == bf.Store(reopened.synced_before).covers
    finished = then.builds(columns=["id", "finished_at"]).set_index("id")["finished_at"]
    assert finished[[reopened.build_id, *was_open]].notna().all()


@pytest.mark.long
def test_a_sync_during_an_import_is_not_undone(
    reopened: Reopened, store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_BYTES_PER_BATCH", 1)
    commit = transactions.commit

    def commit_after_a_sync(*arguments: Any) -> Any:
        monkeypatch.setattr(transactions, "commit", commit)
        store.sync(reopened.ci, since="10d", progress=False)
        return commit(*arguments)

    monkeypatch.setattr(transactions, "commit", commit_after_a_sync)
    result = store.import_exports(reopened.before, progress=False)
    assert (result.builds, result.unchanged) == (0, len(list(reopened.before.rglob("build.json.gz"))))
    assert_same(store, reopened.by_now)
    assert (store.covers, store.as_of) == (reopened.by_now.covers, reopened.by_now.as_of)


@pytest.mark.long
def test_a_job_that_was_exported_later_is_added(some: Path, tmp_path: Path, store: bf.Store) -> None:
    """An import may read a folder that the service is still writing."""
    file = next(file for file in sorted(some.rglob("job-*")) if not read(file).get("retry_source"))
    shutil.move(file, tmp_path / "later")
    store.import_exports(some, progress=False)
    count = len(store.jobs())
    shutil.move(tmp_path / "later", file)
    assert store.import_exports(some, progress=False).builds == 1
    assert len(store.jobs()) == count + 1


# --- the store around them


@pytest.mark.long
def test_an_import_claims_no_coverage_and_a_sync_goes_on(
    exports: Path, world: Workspace, by_api: bf.Store, store: bf.Store
) -> None:
    assert "covered time ranges are unchanged" in str(store.import_exports(exports, **ALL))
    assert store.covers == {}
    done = store.sync(world, since="10d", **ALL)
    assert (done.complete, done.gone) == (True, 0)
    assert_same(store, by_api)
    assert store.covers == by_api.covers


@pytest.mark.long
def test_an_earlier_time_is_read_as_the_sync_left_it(exports: Path, world: Workspace, tmp_path: Path) -> None:
    store = bf.Store(tmp_path / "history")
    store.sync(world, since="1d", progress=False)
    synced, at = len(store.builds()), store.as_of
    assert store.import_exports(exports, progress=False).builds > 0
    assert store.as_of == at
    assert len(bf.Store(tmp_path / "history", as_of=at).builds()) == synced < len(store.builds())


@pytest.mark.long
def test_names_and_secrets_are_stored_on_request_only(exports: Path, world: Workspace, tmp_path: Path) -> None:
    builds = world.builds(progress=False)
    people = {*builds["creator"].dropna(), *builds["author_email"].dropna()}
    bf.Store(tmp_path / "none").import_exports(exports, progress=False)
    assert occurring(tmp_path / "none", people | SECRETS) == set()
    bf.Store(tmp_path / "people").import_exports(exports, personal=True, progress=False)
    assert occurring(tmp_path / "people", people | SECRETS) == people


# --- folders


@pytest.mark.long
def test_a_path_may_name_any_level(some: Path, tmp_path: Path) -> None:
    for level in ("org=*", "date=*", "pipeline=*", "build=*"):
        folder = sorted(some.rglob(level))[0]
        inside = folder.name.startswith("build=") or len(list(folder.rglob("build=*")))
        assert bf.Store(tmp_path / level[:-2]).import_exports(folder, progress=False).builds == inside


@pytest.mark.long
def test_folders_above_and_beside_the_exports(some: Path, tmp_path: Path, store: bf.Store) -> None:
    shutil.copytree(some, tmp_path / "bucket" / "buildkite" / "build-exports")
    (tmp_path / "bucket" / "logs" / "date=2026-10-01" / "build=1").mkdir(parents=True)
    assert str(store.import_exports(tmp_path / "bucket", progress=False)).startswith("5 builds")


@pytest.mark.long
def test_what_an_export_may_have_or_lack(some: Path, tmp_path: Path, store: bf.Store) -> None:
    """Fields that nobody knows, a pipeline without id, jobs in the build, files that are not compressed."""
    store.import_exports(some, progress=False)
    for folder in some.rglob("build=*"):
        build = read(folder / "build.json.gz")
        (folder / "build.json.gz").write_text(
            compact(
                {
                    **build,
                    "pipeline": {"repository": build["pipeline"]["repository"]},
                    "jobs": [{"id": "another"}],
                    "of_tomorrow": {"a": [1]},
                }
            )
        )
        edit(next(folder.glob("jobs/*")), of_tomorrow=1)
        (folder / "jobs" / "job-1.log").write_text("a log")
    other = bf.Store(tmp_path / "other")
    assert other.import_exports(some, progress=False).complete
    assert_same(other, store)


def _delete(folder: Path) -> None:
    (folder / "build.json.gz").unlink()


def _truncate(folder: Path) -> None:
    file = folder / "build.json.gz"
    file.write_bytes(file.read_bytes()[:-20])


def _corrupt(folder: Path) -> None:
    file = next(folder.glob("jobs/*"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)


def _not_json(folder: Path) -> None:
    next(folder.glob("jobs/*")).write_bytes(gzip.compress(b'{"id": "1", '))


def _other_build(folder: Path) -> None:
    edit(folder / "build.json.gz", id="of-another-build")


def _other_pipeline(folder: Path) -> None:
    edit(folder / "build.json.gz", pipeline={"id": "of-another-pipeline"})


def _other_job(folder: Path) -> None:
    edit(next(folder.glob("jobs/*")), id="of-another-job")


def _job_of_another_build(folder: Path) -> None:
    file = next(file for file in folder.glob("jobs/*") if "web_url" in read(file))
    edit(file, web_url="https://ci.example.com/acme/web/builds/4711#1")


def _no_jobs(folder: Path) -> None:
    shutil.rmtree(folder / "jobs")


def _lost_retry(folder: Path) -> None:
    retry = next(job["retried_in_job_id"] for job in jobs_in(folder) if job["retried"])
    (folder / "jobs" / f"job-{retry}.json.gz").unlink()


def _bomb(folder: Path) -> None:
    (folder / "build.json.gz").write_bytes(gzip.compress(b" " * 3_000_000))


def _wrong_type(folder: Path) -> None:
    edit(folder / "build.json.gz", number="many")


def _no_creation(folder: Path) -> None:
    edit(folder / "build.json.gz", created_at=None)


def _no_time(folder: Path) -> None:
    edit(folder / "build.json.gz", finished_at="at noon")


def _ancient(folder: Path) -> None:
    edit(folder / "build.json.gz", created_at="0001-01-01T00:00:00Z")


def _too_large_a_number(folder: Path) -> None:
    edit(folder / "build.json.gz", number=2**63)


def _no_time_in_a_job(folder: Path) -> None:
    edit(next(folder.glob("jobs/*")), expired_at="at noon")


DAMAGES: dict[Callable[[Path], None], str] = {
    _lost_retry: "there is no jobs/job-.*json.gz, which another job was retried in",
    _delete: "there is no build.json.gz",
    _truncate: "build.json.gz cannot be decompressed: Compressed file ended",
    _corrupt: "cannot be decompressed|cannot be read",
    _not_json: "jobs/job-.*json.gz cannot be read: Input data was truncated",
    _other_build: "build.json.gz has the id 'of-another-build', which is not the one in its path",
    _other_pipeline: "build.json.gz is of the pipeline 'of-another-pipeline'",
    _other_job: "jobs/job-.*json.gz has the id 'of-another-job'",
    _job_of_another_build: "jobs/job-.*json.gz is a job of another build, web/builds/4711",
    _no_jobs: "the build was started, and there are no jobs",
    _bomb: "more than 1,000,000 bytes after decompression",
    _wrong_type: "build.json.gz has no number, no state or no created_at",
    _no_creation: "build.json.gz has no number, no state or no created_at",
    _ancient: "build.json.gz was created in the year 1",
}


@pytest.mark.long
def test_one_odd_value_does_not_skip_a_folder(exports: Path, tmp_path: Path, store: bf.Store) -> None:
    copy = shutil.copytree(exports, tmp_path / "copy")
    folders = sorted(path for path in copy.rglob("build=*") if jobs_in(path))
    for folder, change in zip(folders, (_no_time, _too_large_a_number, _no_time_in_a_job), strict=False):
        change(folder)
    result = store.import_exports(copy, progress=False)
    assert result.complete
    assert result.builds == len(list(exports.rglob("build.json.gz")))
    assert result.odd == 3
    assert "3 odd values became null or text" in str(result)
    assert store.builds()["number"].isna().sum() == 1


@pytest.mark.long
def test_damaged_folders_are_skipped_and_named(
    exports: Path, tmp_path: Path, store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_folders, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(export_folders, "_TOO_LARGE", "it has more than 1,000,000 bytes after decompression")
    copy = shutil.copytree(exports, tmp_path / "copy")
    folders = [path for path in copy.rglob("build=*") if read(path / "build.json.gz")["started_at"]]
    folders.sort(key=lambda path: (not any(job["retried"] for job in jobs_in(path)), path))
    reasons = {str(path.relative_to(copy)): why for path, why in zip(folders, DAMAGES.values(), strict=False)}
    for folder, damage in zip(folders, DAMAGES, strict=False):
        damage(folder)
    result = store.import_exports(copy, progress=False)
    assert result.skipped.keys() == reasons.keys()
    assert len(reasons) == len(DAMAGES)
    assert [
        (why, result.skipped[path]) for path, why in reasons.items() if not re.search(why, result.skipped[path])
    ] == []
    assert result.builds == len(store.builds()) == len(list(exports.rglob("build.json.gz"))) - len(DAMAGES)
    assert not result.complete
    assert f"INCOMPLETE: {len(DAMAGES)} folders skipped: " in str(result)
    assert f"; and {len(DAMAGES) - 3} more; " in str(result)
    again = store.import_exports(exports, progress=False)  # where the same folders are intact
    assert again.complete
    assert (again.builds, again.unchanged) == (len(DAMAGES), result.builds)


@pytest.mark.long
def test_a_build_that_is_exported_twice_is_imported_once(some: Path, store: bf.Store) -> None:
    folder = next(iter(sorted(some.rglob("build=*"))))
    twin = folder.parent.parent / "pipeline=twin" / folder.name
    shutil.copytree(folder, twin)
    edit(twin / "build.json.gz", pipeline=None)
    result = store.import_exports(some, progress=False)
    assert result.builds == 5
    assert result.skipped == {str(twin.relative_to(some)): f"{folder.relative_to(some)} is of the same build"}
    assert store.builds()["id"].is_unique


def test_a_path_without_exports(store: bf.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path, why in (
        ("none", "path='none' is"),
        ("", "path='' is"),
        (".", "no exported builds"),
        ("s3://user:secret@bucket", "contain a password"),
    ):
        with pytest.raises(BadInput, match=why):
            store.import_exports(path, progress=False)
    with pytest.raises(BadInput, match="no store at"):
        store.builds()


@pytest.mark.long
def test_an_earlier_state_cannot_be_updated(some: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="earlier state"):
        bf.Store(tmp_path, as_of=1).import_exports(some)


# --- the command, and the sandbox


@pytest.mark.long
def test_the_command(some: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "history")
    assert main(["import", str(some), "--store", folder, "--personal", "--env"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{folder}: 5 builds and ")
    assert bf.Store(folder).builds(columns=["creator", "env"]).notna().any().all()
    damaged = next(iter(sorted(some.rglob("build=*"))))
    _delete(damaged)
    assert main(["import", str(some), "--store", folder]) == 3
    printed = capsys.readouterr()
    assert f"skipped {damaged.relative_to(some)}: there is no build.json.gz" in printed.err
    assert "0 builds and 0 jobs imported, 4 builds unchanged; INCOMPLETE: 1 folder skipped" in printed.out
    for wrong in ([str(tmp_path / "none"), "--store", folder], [str(some)]):
        with pytest.raises(SystemExit) as ended:
            main(["import", *wrong])
        assert ended.value.code == 2


@pytest.mark.long
def test_a_sandbox_writes_equal_exports_of_equal_builds(exports: Path, world: Workspace, tmp_path: Path) -> None:
    def files(folder: Path) -> dict[str, bytes]:
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    def write_exports(name: str, before: str | None) -> dict[str, bytes]:
        count = world.sandbox.write_exports(tmp_path / name, before=before)
        assert count == len(list((tmp_path / name).rglob("build.json.gz")))
        return files(tmp_path / name)

    assert write_exports("again", None) == files(exports)
    older = write_exports("older", "1d")
    assert older.items() < files(exports).items()
    created = {read(file)["created_at"] for file in (tmp_path / "older").rglob("build.json.gz")}
    assert created == set(world.builds(created_to="1d", extra={"at": "created_at"}, progress=False)["at"])
    with pytest.raises(BadInput, match="nobody"):
        world.sandbox.write_exports(tmp_path, organization="nobody")
