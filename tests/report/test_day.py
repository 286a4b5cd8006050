"""`buildframe explain` on a store: its text, its JSON and its exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe.cli import main
from buildframe.formatting import format_whole_seconds
from buildframe.report import day
from tests import worlds

DAY = pd.Timestamp("2026-10-28", tz="UTC")
READ_ROWS = day.read_rows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained") / "ci"
    with worlds.sandbox(builds=700, days=30) as ci:
        bf.Store(folder).sync(ci, progress=False)
    return folder


@pytest.fixture(autouse=True)
def no_organization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILDFRAME_ORG", raising=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    status = main(["explain", *map(str, arguments)])
    output = capsys.readouterr()
    assert output.err == ""
    return status, output.out


def read(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    status, output = run(capsys, *arguments, "--json")
    content: dict[str, Any] = json.loads(output)
    assert status == int(content["notable"])
    assert content["notable"] == any(row["notable"] for row in content["rows"])
    return content


def mean_wall(store: Path, start: pd.Timestamp, end: pd.Timestamp, pipeline: str | None) -> tuple[int, float]:
    builds = bf.Store(store).builds(pipeline=pipeline)
    builds = builds[builds["created_at"].between(start, end, "left") & builds["finished_at"].notna()]
    builds = builds[~builds["blocked"] & ~builds["state"].isin(["skipped", "not_run"])]
    return len(builds), (builds["finished_at"] - builds["created_at"]).dt.total_seconds().mean()


@pytest.mark.long
@pytest.mark.parametrize(("pipeline", "tz"), [(None, "UTC"), ("api", "America/New_York")])
def test_contributions_add_up_to_the_difference_of_the_days(store, pipeline, tz, capsys):
    options = [] if pipeline is None else ["--pipeline", pipeline]
    content = read(capsys, store, "--day", DAY.date(), "--tz", tz, *options)
    start = pd.Timestamp(DAY.date(), tz=tz)
    covered = max(start - pd.Timedelta(28, "D"), pd.Timestamp(bf.Store(store).covers["acme"][0]))
    for side, (first, end) in {"after": (start, start + pd.Timedelta(1, "D")), "before": (covered, start)}.items():
        n, mean = mean_wall(store, first, end, pipeline)
        assert content[side]["builds"] == n
        assert content[side]["mean_s"] == pytest.approx(mean)
    assert content["change_s"] == pytest.approx(content["after"]["mean_s"] - content["before"]["mean_s"])
    assert sum(row["change_s"] for row in content["rows"]) == pytest.approx(content["change_s"])
    assert {row["pipeline"] for row in content["rows"]} == {pipeline} or pipeline is None
    assert ("effect" in content["rows"][0]) == (pipeline is None)


@pytest.mark.long
@pytest.mark.parametrize("pipeline", [None, "api"])
def test_the_text_is_that_of_the_json(store, pipeline, capsys):
    options = [] if pipeline is None else ["--pipeline", pipeline]
    content = read(capsys, store, "--day", DAY.date(), *options)
    status, text = run(capsys, store, "--day", DAY.date(), *options)
    assert status == int(content["notable"])
    first, means, empty, *rest = text.splitlines()
    scope, (heads, *rows) = ([], rest) if pipeline else (rest[:2], rest[2:])
    assert scope == ([] if pipeline else ["Per build of all pipelines:", ""])
    means_of_shares = [row[heads.index("before") : heads.index("kind")] for row in rows if "share of builds" in row]
    assert not "".join(means_of_shares).strip()
    assert first.startswith(f"{pipeline or 'All pipelines'} on Wed 28 Oct 2026 (UTC): ")
    after, before = (format_whole_seconds(content[side]["mean_s"]) for side in ("after", "before"))
    assert means.startswith(f"Mean wall time: {after} of {content['after']['builds']} builds; before, {before} of ")
    assert (empty, heads.split()[:4]) == ("", ["change", "interval", "before", "after"])
    assert [row.split()[-1] for row in rows[-2:]] == ["other", "total"]
    assert re.search(rf"{before} +{after} +total$", rows[-1])
    assert sum(row.startswith("*") for row in rows) == sum(row["notable"] for row in content["rows"])
    if not content["notable"]:
        assert first.endswith(": no change is significant.")


@pytest.mark.long
def test_a_slower_step_is_named(store, monkeypatch, capsys):
    """The last job of the builds of a day runs ten minutes longer."""
    changed_day, pipeline = pd.Timestamp("2026-10-23", tz="UTC"), "web"
    builds, jobs = bf.Store(store).builds(pipeline=pipeline), bf.Store(store).jobs(pipeline=pipeline)
    ran = jobs[jobs["finished_at"].notna() & jobs["queue"].notna()]
    last = ran.sort_values("finished_at").drop_duplicates("build_id", keep="last").query("step_key == 'scan'")
    last = last[last["build_created_at"].dt.floor("D") == changed_day]
    assert len(last) > 5
    for rows, is_later in ((jobs, jobs["id"].isin(last["id"])), (builds, builds["id"].isin(last["build_id"]))):
        rows["finished_at"] = rows["finished_at"].mask(is_later, rows["finished_at"] + pd.Timedelta(600, "s"))

    def read_changed(*arguments: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
        start, end = arguments[3:]
        return tuple(
            rows[rows[at].between(start, end, "left")]
            for rows, at in ((builds, "created_at"), (jobs, "build_created_at"))
        )

    arguments = (store, "--day", changed_day.date(), "--pipeline", pipeline)
    assert "scan +" not in run(capsys, *arguments)[1].splitlines()[0]
    monkeypatch.setattr("buildframe.report.day.read_rows", read_changed)
    status, text = run(capsys, *arguments)
    assert status == 1
    assert re.match(r"web on .*: \d+ min .*slower on average: scan \+\d+ min .*\(run\)", text)
    assert re.search(r"^\*  \+\d+ min .* run +web +scan$", text, re.MULTILINE)


def change_rows(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Let the command read builds and jobs that `change` returns for those of the store."""
    monkeypatch.setattr("buildframe.report.day.read_rows", lambda *arguments: change(*READ_ROWS(*arguments)))


@pytest.mark.long
@pytest.mark.parametrize("pipeline", [None, "web"])
def test_builds_that_have_not_ended_are_counted_in_words(store, pipeline, monkeypatch, capsys):
    options = [] if pipeline is None else ["--pipeline", pipeline]
    arguments = (store, "--day", DAY.date(), *options)
    known = read(capsys, *arguments)

    def change(builds: pd.DataFrame, jobs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        own = builds["pipeline"].eq("web") & builds["state"].eq("passed") & ~builds["blocked"]
        first, second = builds.index[own & (builds["created_at"] >= DAY)][:2]
        third = builds.index[own & (builds["created_at"] < DAY)][0]
        builds["finished_at"] = builds["finished_at"].mask(builds.index == first)
        builds["state"] = builds["state"].mask(builds.index == first, "running")
        builds["blocked"] = builds["blocked"].mask(builds.index.isin([second, third]), True)
        return builds, jobs

    change_rows(monkeypatch, change)
    content = read(capsys, *arguments)
    for side, n in (("after", 2), ("before", 1)):
        assert content[side]["not_ended"] == known[side]["not_ended"] + n
        assert content[side]["builds"] == known[side]["builds"] - n
    first, means, *_ = run(capsys, *arguments)[1].splitlines()
    assert (
        f"on average ({content['after']['not_ended']} builds of the day have not ended and are not counted): " in first
    )
    n = content["before"]["not_ended"]
    assert means.endswith(
        f"({n} build{'s have' if n > 1 else ' has'} not ended and {'are' if n > 1 else 'is'} not counted)."
    )


@pytest.mark.long
def test_a_change_below_a_second_is_not_notable(store, monkeypatch, capsys):
    """Each build of a day lasts exactly 0.7 s longer, and those before last equally long."""
    changed_day = pd.Timestamp("2026-10-23", tz="UTC")

    def change(extra: float) -> Any:
        def changed(builds: pd.DataFrame, jobs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
            lengths = 60 + extra * (builds["created_at"] >= changed_day)
            builds["finished_at"] = builds["created_at"] + pd.to_timedelta(lengths, "s")
            builds = builds.assign(state="passed", blocked=False)
            return builds, jobs.iloc[:0]

        return changed

    arguments = (store, "--day", changed_day.date(), "--pipeline", "web")
    assert read(capsys, *arguments)["after"]["builds"] >= 5
    for extra, status in ((0.7, 0), (1.3, 1)):
        change_rows(monkeypatch, change(extra))
        content = read(capsys, *arguments)
        assert content["notable"] == bool(status)
        assert content["rows"][0]["low_s"] == pytest.approx(extra, abs=1e-3)


UNKNOWN = [
    (["--day", "2026-10-28", "--pipeline", "wbe"], "is not in the store. Did you mean 'web'?"),
    (["--day", "2025-10-28"], "day=2025-10-28 is not covered"),
    (["--day", "2026-10-30"], "day=2026-10-30 is not covered"),  # the last sync was at 15:00
    (["--day", "9999-12-31"], "is not covered"),
    (["--day", "0001-01-01"], "is not covered"),
    (["--day", "2026-09-01"], "No build that was created on --day=2026-09-01 has ended"),
]


@pytest.mark.long
def test_bad_input_is_status_2(store, tmp_path, capsys):
    missing = (tmp_path / "none", ["--day", "2026-10-28"], "There is no store at")
    for folder, arguments, words in (*((store, *unknown) for unknown in UNKNOWN), missing):
        assert main(["explain", str(folder), *arguments]) == 2
        output = capsys.readouterr()
        assert output.err.startswith("buildframe: ")
        assert words in output.err
        assert output.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_output_that_cannot_be_written_is_status_2(store):
    command = [sys.executable, "-m", "buildframe.cli", "explain", store, "--day", "2026-10-28"]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    assert result.returncode == 2
    assert "Cannot write to stdout" in result.stderr


def test_the_help_lists_the_exit_statuses(capsys):
    with pytest.raises(SystemExit):
        main(["explain", "--help"])
    assert "Exit status: 0 no change" in " ".join(capsys.readouterr().out.split())


def test_wrong_usage_is_status_2(tmp_path, capsys):
    wrong_zone = ["--day", "2026-10-28", "--tz", "Mars/Phobos"]
    for arguments in ([], ["--day", "yesterday"], ["--day", "2026-13-01"], wrong_zone):
        with pytest.raises(SystemExit) as left:
            main(["explain", str(tmp_path), *arguments])
        assert left.value.code == 2
        assert "error: " in capsys.readouterr().err
