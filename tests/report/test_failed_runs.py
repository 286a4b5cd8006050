"""When a run fails, the last good report stays unchanged, and the last line of output describes the failure."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from buildframe.report import store_reader
from buildframe.sandbox_server import Fault
from buildframe.workspace import Workspace
from tests import programs, worlds
from tests.conftest import Scripted, says
from tests.report.child import (
    LONGEST,
    PATIENCE,
    WITHOUT_PLOTS,
    at,
    check_whole,
    ended,
    hidden,
    last_line,
    measured,
    patched,
    report,
    started,
    stored,
)  # fmt: skip

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("KILLS", "4"))
GOOD = "2026-10-20T060000Z"


@pytest.fixture(scope="module")
def world() -> Iterator[Workspace]:
    with worlds.sandbox(builds=50, days=8) as ci:
        yield ci


@pytest.fixture(scope="module")
def store() -> Path:
    return stored()[0]


@pytest.fixture(scope="module")
def quickest() -> str:
    """Code that leaves only reading and writing to a run."""
    return f"{WITHOUT_PLOTS}\n{measured()}"


@pytest.fixture(scope="module")
def first(store: Path, quickest: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good report of an earlier day, to be copied."""
    folder = tmp_path_factory.mktemp("first") / "reports"
    assert report(store, folder, "--no-sync", command=patched(quickest)).returncode == 0
    (folder / "latest").resolve().rename(folder / GOOD)
    (folder / "latest").unlink()
    (folder / "latest").symlink_to(GOOD)
    return folder


@pytest.fixture
def folder(first: Path, tmp_path: Path) -> Path:
    return shutil.copytree(first, tmp_path / "reports", symlinks=True)


def content(folder: Path) -> dict[str, bytes]:
    """What readers find."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent != folder
    }


def check_left(run: subprocess.CompletedProcess[str], folder: Path, words: str, status: int = 1) -> None:
    """The run failed with these words, and left the good report."""
    assert run.returncode == status, run.stderr
    assert run.stdout == ""
    assert re.fullmatch(rf"[-\dT:]+Z ERROR .*{words}.*", last_line(run)), last_line(run)
    assert last_line(run).endswith(f"; the report of 2026-10-20T06:00:00Z in {folder}/latest is unchanged")
    assert check_whole(folder) == GOOD
    assert hidden(folder) == set()


# --- failures of the service


def test_a_refused_token_keeps_the_last_report(world: Workspace, folder: Path, tmp_path: Path) -> None:
    before = content(folder)
    env = {**at(world), "BUILDFRAME_TOKEN": "an-invented-token"}
    run = report(tmp_path / "ci", folder, env=env)
    check_left(run, folder, "401: .* Request: GET /v2/organizations/acme/.* Check the token")
    assert "an-invented-token" not in run.stderr
    run = report(tmp_path / "ci", folder, env=at(world, ["read_builds"]))
    check_left(run, folder, "403: .*Use a token that has the scope read_pipelines")
    run = report(tmp_path / "ci", folder, env={"BUILDFRAME_ORG": "acme"})
    check_left(run, folder, "There is no token: BUILDFRAME_TOKEN is not set")
    assert content(folder) == before


def test_a_first_run_that_fails_says_that_there_is_no_report_yet(world: Workspace, tmp_path: Path) -> None:
    run = report(tmp_path / "ci", tmp_path / "reports", env={**at(world), "BUILDFRAME_TOKEN": "an-invented-token"})
    assert run.returncode == 1
    assert last_line(run).endswith(f"; there is no report in {tmp_path}/reports")
    assert check_whole(tmp_path / "reports") is None


def test_an_unavailable_service_keeps_the_last_report(folder: Path, tmp_path: Path, scripted: type[Scripted]) -> None:
    env = {"BUILDFRAME_URL": "http://127.0.0.1:9", "BUILDFRAME_ORG": "acme", "BUILDFRAME_TOKEN": "an-invented-token"}
    run = report(tmp_path / "ci", folder, env=env, command=patched(PATIENCE))
    check_left(run, folder, "No response from http://127.0.0.1:9: .*refused.*Check the URL.*Tried 5 times")
    hanging = scripted(lambda _: time.sleep(3))
    run = report(tmp_path / "ci", folder, env={**env, "BUILDFRAME_URL": hanging.url}, command=patched(PATIENCE))
    check_left(run, folder, r"No response from http://127.0.0.1:.* within 0.5 s \(the limit of one request\)")
    ill = scripted(says(b'{"message":"On fire"}', 503))
    run = report(tmp_path / "ci", folder, env={**env, "BUILDFRAME_URL": ill.url}, command=patched(PATIENCE))
    check_left(run, folder, "503: On fire.*Try again later")
    again = [line for line in run.stderr.splitlines() if "retrying" in line]
    probes = [request for request in ill.requests if "per_page=1" in request.split("&")]
    assert (len(ill.requests), len(probes)) == (12, 1)  # the limit, and the page of one row that shows it is down
    assert len(again) == 12 - 1 - 1  # neither the first request nor the probe repeats one
    assert all(re.fullmatch(r"[-\dT:]+Z INFO retrying in 0 s: the service returned 503", line) for line in again)


def test_a_deadline_keeps_the_last_report(folder: Path, tmp_path: Path, scripted: type[Scripted]) -> None:
    hanging = scripted(lambda _: time.sleep(3))
    env = {"BUILDFRAME_URL": hanging.url, "BUILDFRAME_ORG": "acme", "BUILDFRAME_TOKEN": "an-invented-token"}
    run = report(tmp_path / "ci", folder, "--deadline", "1s", env=env)
    check_left(run, folder, "the deadline passed: --deadline=1s has passed.*Nothing was committed", 124)


def test_a_failed_sync_keeps_the_last_report(folder: Path, tmp_path: Path, quickest: str) -> None:
    with worlds.sandbox(builds=50, days=8) as ci:
        ci.sandbox.fault(Fault("status", status=502, route="list_pipelines"))
        run = report(tmp_path / "ci", folder, env=at(ci), command=patched(PATIENCE))
        check_left(run, folder, "502: .*The service failed")
        ci.sandbox.clear_faults()
        assert report(tmp_path / "ci", folder, env=at(ci), command=patched(quickest)).returncode == 0
    assert check_whole(folder) == "2026-10-30T150000Z"


# --- folders and disks


def test_a_folder_that_cannot_hold_reports_is_refused(store: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    run = report(store, tmp_path / "file", "--no-sync")
    assert (run.returncode, (tmp_path / "file").read_text()) == (2, "mine")
    assert "is not a folder. Pass a folder" in last_line(run)
    (tmp_path / "own" / "latest").mkdir(parents=True)
    run = report(store, tmp_path / "own", "--no-sync")
    assert run.returncode == 1
    assert "is not a link to a report and would be replaced. Choose another folder" in last_line(run)
    assert list((tmp_path / "own").rglob("*")) == [tmp_path / "own" / "latest"]
    check_left(report(tmp_path / "none", folder, "--no-sync"), folder, "There is no store at")
    line = json.loads(last_line(report(tmp_path / "none", folder, "--no-sync", "--log", "json")))
    assert (line["level"], line["error"], line["status"]) == ("ERROR", "BadInput", 1)
    assert line["latest"] == str(folder / GOOD)


def test_a_read_only_folder_keeps_the_last_report(store: Path, folder: Path) -> None:
    place = Path(tempfile.mkdtemp())
    reports = shutil.copytree(folder, place / "reports", symlinks=True)
    kept = shutil.copytree(store, place / "ci")
    for one in (place, *place.rglob("*")):
        one.chmod(0o555 if one.is_dir() else 0o444)
    try:
        loaded = "import os, filelock, buildframe.cli as cli; from buildframe.report import run"
        parsed = "parser = cli._parser(); cli._parser = lambda: parser"  # its table may not be readable afterwards
        become_nobody = f"{loaded}; {parsed}; os.getuid() or os.setuid(65534)"  # root may write anywhere
        run = report(kept, reports, "--no-sync", command=patched(become_nobody))
        check_left(run, reports, "ermission denied")
    finally:
        for one in (place, *place.rglob("*")):
            one.chmod(0o755)
    shutil.rmtree(place)


@pytest.mark.parametrize("bytes", [0, 5_000])
def test_a_file_size_limit_keeps_the_last_report(store: Path, folder: Path, quickest: str, bytes: int) -> None:
    before = content(folder)
    limit = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({bytes}, r.RLIM_INFINITY))"
    check_left(report(store, folder, "--no-sync", command=patched(quickest, limit)), folder, "File too large")
    assert content(folder) == before


def test_a_file_size_limit_of_the_store_keeps_the_last_report(world: Workspace, folder: Path, tmp_path: Path) -> None:
    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (2_000, r.RLIM_INFINITY))"
    run = report(tmp_path / "ci", folder, env=at(world), command=patched(limit))
    check_left(run, folder, "The store at .* could not be written: .*File too large")


FILL = """
import os
there = os.statvfs({disk!r})
with open({disk!r} + "/ballast", "wb") as file:
    file.write(bytes(max(0, there.f_bavail * there.f_frsize - {free})))
"""


@pytest.mark.parametrize("free", [0, 65_536])
def test_a_full_disk_keeps_the_last_report(store: Path, first: Path, quickest: str, tmp_path: Path, free: int) -> None:
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"mount -t tmpfs -o size=4m tmpfs {disk} && cp -a {first} {disk}/reports"
    if shutil.which("unshare") is None or subprocess.run([*mount, script], check=False, capture_output=True).returncode:
        programs.skip_or_fail("no disk can be mounted here: unshare --map-root-user --mount fails")
    look = f"diff -r --no-dereference --exclude '.lock*' {first} {disk}/reports >&2"
    again = f'{script} && "$@"; status=$?; {look} && exit $status'
    command = patched(quickest, FILL.format(disk=str(disk), free=free))
    run = report(store, disk / "reports", "--no-sync", command=command, around=(*mount, again, "sh"))
    assert run.returncode == 1, run.stderr
    assert "No space left on device" in last_line(run)
    assert last_line(run).endswith(f"; the report of 2026-10-20T06:00:00Z in {disk}/reports/latest is unchanged")


# --- signals, kills, two at once


def env_of(service: Scripted) -> dict[str, str]:
    """The environment in which the command finds a service."""
    return {"BUILDFRAME_URL": service.url, "BUILDFRAME_ORG": "acme", "BUILDFRAME_TOKEN": "an-invented-token"}


HEEDED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # in background it is ignored


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_an_interrupt_during_a_sync_keeps_the_last_report(
    folder: Path, tmp_path: Path, scripted: type[Scripted], number: signal.Signals
) -> None:
    service = scripted(lambda _: time.sleep(30))

    def interrupt(process: int) -> None:
        wait_until(lambda: service.requests)
        os.kill(process, number)

    run = report(tmp_path / "ci", folder, env=env_of(service), command=patched(HEEDED), meanwhile=interrupt)
    check_left(run, folder, "interrupted", 130)


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_an_interrupt_during_writing_keeps_the_last_report(store: Path, folder: Path, quickest: str) -> None:
    def interrupt(process: int) -> None:
        wait_until(lambda: list(folder.glob(".*.part/report.md")))
        os.kill(process, signal.SIGTERM)

    slow = patched(quickest, SLOW.replace("0.01", "0.3"))
    check_left(report(store, folder, "--no-sync", command=slow, meanwhile=interrupt), folder, "interrupted", 130)


AMID_LOADING = """
import os, signal, sys
class Interrupt:
    def find_spec(name, *_):
        if name == "buildframe.report":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Interrupt)
"""


def test_an_interrupt_during_imports_prints_one_line(store: Path, folder: Path) -> None:
    run = ended(started(store, folder, "--no-sync", command=patched(AMID_LOADING)))
    assert (run.returncode, run.stderr) == (130, "buildframe: interrupted\n")
    assert check_whole(folder) == GOOD


def test_an_interrupt_after_a_report_is_written_does_not_change_the_status(
    store: Path, folder: Path, quickest: str
) -> None:
    process = started(store, folder, "--no-sync", command=patched(quickest))
    assert process.stdout is not None
    assert process.stdout.readline().endswith("report.html\n")
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.002)
    assert (process.returncode, ended(process).stderr.count("\n")) == (0, 2)
    assert check_whole(folder) != GOOD


def test_a_second_run_at_the_same_time_ends_and_names_the_first(
    folder: Path, tmp_path: Path, scripted: type[Scripted]
) -> None:
    env = env_of(scripted(lambda _: time.sleep(30)))
    one = started(tmp_path / "ci", folder, env=env)
    assert one.stderr is not None
    one.stderr.readline()
    two = report(tmp_path / "ci", folder, env=env)
    one.kill()
    one.communicate()
    check_left(two, folder, rf"{folder} is locked by another report: process {one.pid}, since 20[-\dT:]+Z")


def test_kills_at_random_times_leave_a_complete_report(store: Path, folder: Path, quickest: str) -> None:
    instants, whole, writing = random.Random(5), GOOD, False
    slow = patched(quickest, SLOW.replace("0.01", "0.1"))  # at least 2.5 s

    def kill(process: int) -> None:
        if writing:
            wait_until(lambda: hidden(folder))
        time.sleep(instants.uniform(0.0, 2.0))
        os.kill(process, signal.SIGKILL)

    for turn in range(KILLS // 2):
        writing = bool(turn % 2)
        run = report(store, folder, "--no-sync", command=slow, meanwhile=kill)
        assert run.returncode == -signal.SIGKILL
        now = check_whole(folder)
        assert now is not None
        assert now >= whole, "an older report came back"
        whole = now
    assert report(store, folder, "--no-sync", command=patched(quickest)).returncode == 0
    assert hidden(folder) == set()
    assert check_whole(folder) != whole


SLOW = "import os, time; sync = os.fsync; os.fsync = lambda fd: (time.sleep(0.01), sync(fd))"
AGAIN_AND_AGAIN = f"""{SLOW}
import pickle, sys
from pathlib import Path
from buildframe.report import run
measured = pickle.loads(Path(sys.argv[2]).read_bytes())
drawn = Path(sys.argv[3], "latest", "report.html").read_text()
run.page.render = lambda report: drawn
while True:
    run.run(Path(sys.argv[3]), lambda why: measured, None, lambda page: print(page, flush=True))
"""


def test_kills_during_writing_leave_a_complete_report_and_the_next_run_cleans_up(
    store: Path, folder: Path, tmp_path: Path, quickest: str
) -> None:
    """What was measured and drawn before, and a disk on which each flush takes its time: most of a run is writing."""
    instants, parts, content = random.Random(6), 0, tmp_path / "content"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_reader, "measure", lambda *_, **__: pickle.loads(stored()[1].read_bytes()))
        content.write_bytes(pickle.dumps(store_reader.read(str(store), 7, "UTC")))

    def kill(process: int) -> None:
        before = os.readlink(folder / "latest")
        wait_until(lambda: os.readlink(folder / "latest") != before)
        time.sleep(instants.uniform(0.0, 0.75))
        os.kill(process, signal.SIGKILL)

    for _ in range(KILLS):
        run = report(content, folder, command=patched(AGAIN_AND_AGAIN), meanwhile=kill)
        assert run.returncode == -signal.SIGKILL
        parts += bool(hidden(folder))
        assert check_whole(folder) is not None
    assert parts > 0
    assert report(store, folder, "--no-sync", command=patched(quickest)).returncode == 0
    assert hidden(folder) == set()


# --- errors of our own


@pytest.mark.parametrize("where", ["store_reader.measure", "page.render", "run.save"])
def test_an_internal_error_is_logged_with_its_traceback(
    store: Path, folder: Path, tmp_path: Path, quickest: str, where: str
) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text("[success_rate]\nweb = 0.5\n")
    bug = f"from buildframe.report import chat, page, run, store_reader\n{where} = lambda *_, **__: 1 // 0"
    run = report(store, folder, "--no-sync", "--thresholds", limits, command=patched(quickest, bug))
    assert "Traceback (most recent call last)" in run.stderr
    check_left(run, folder, "failed by an internal error of buildframe: ZeroDivisionError: ")
