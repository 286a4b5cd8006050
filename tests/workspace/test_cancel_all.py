"""Cancel all builds of a branch: which builds, their outcomes, and what is reported if it stops."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe.sandbox_server import Fault
from buildframe.workspace import PipelineWorkspace, Workspace
from tests import worlds
from tests.refusals import wrong_refusals

COLUMNS = ["pipeline", "number", "branch", "state", "outcome", "state_after", "reason", "web_url"]


@pytest.fixture(scope="module")
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=50) as workspace:
        yield workspace


@pytest.fixture
def web(live: Workspace) -> PipelineWorkspace:
    """A pipeline with running builds of the last hour: two of feature/a, and one of feature/b and of main."""
    live.sandbox.clock.advance(dt.timedelta(hours=9))  # those of the test before have ended
    pipeline = live.pipeline("web")
    for branch in ("feature/a", "feature/a", "feature/b", "main"):
        pipeline.create_build(commit="HEAD", branch=branch, ignore_pipeline_branch_filters=True)
    live.sandbox.clock.advance(dt.timedelta(seconds=30))
    return pipeline


def states(web: PipelineWorkspace, branch: str) -> set[str]:
    return set(web.builds(branch=branch, created_from="1h", progress=False)["state"])


def outcomes(frame: pd.DataFrame) -> dict[int, str]:
    return dict(zip(frame["number"], frame["outcome"], strict=True))


def test_all_builds_of_a_branch_and_no_others(web: PipelineWorkspace) -> None:
    before = web.builds(branch="feature/a", created_from="1h", progress=False)
    done = web.cancel_all(branch="feature/a", progress=False)
    assert list(done.columns) == COLUMNS
    assert done["number"].tolist() == sorted(before["number"], reverse=True)
    assert set(done["outcome"]) == {"canceled"}
    assert set(done["state_after"]) <= {"canceled", "canceling"}
    assert done["reason"].isna().all()
    assert (done["pipeline"] == "web").all()
    assert states(web, "feature/a") <= {"canceled", "canceling"}
    assert not {"canceled", "canceling"} & states(web, "feature/b")


def test_patterns_lists_and_numbers(web: PipelineWorkspace) -> None:
    numbers = web.builds(branch=["feature/a", "feature/b"], created_from="1h", progress=False)["number"]
    assert set(outcomes(web.cancel_all(branch="feature/*", dry_run=True))) == set(numbers)
    assert set(outcomes(web.cancel_all(branch=["feature/a", "feature/b"], dry_run=True))) == set(numbers)
    chosen = web.cancel_all(branch="feature/*", numbers=numbers.head(1))
    assert outcomes(chosen) == {numbers.iloc[0]: "canceled"}
    everything = web.cancel_all(branch="*", dry_run=True)
    assert set(everything["branch"]) >= {"main", "feature/a"}


def test_a_dry_run_sends_no_cancellation(web: PipelineWorkspace) -> None:
    planned = web.cancel_all(branch="feature/a", dry_run=True)
    assert planned["outcome"].tolist() == ["would cancel"] * 2
    assert planned["state_after"].isna().all()
    assert not {"canceled", "canceling"} & states(web, "feature/a")


def test_a_build_that_ended_meanwhile_does_not_stop_the_others(live: Workspace, web: PipelineWorkspace) -> None:
    first, second = sorted(web.builds(branch="feature/a", created_from="1h", progress=False)["number"])
    web.cancel(second)
    done = web.cancel_all(numbers=[first, second, 9999])
    assert outcomes(done) == {9999: "finished", second: "finished", first: "canceled"}
    assert done["reason"].notna().tolist() == [True, True, False]


def test_a_refusal_is_an_outcome(live: Workspace, web: PipelineWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """All builds end between the listing and the cancellation."""
    cancel = PipelineWorkspace.cancel

    def cancel_later(of: PipelineWorkspace, number: int) -> object:
        live.sandbox.clock.advance(dt.timedelta(hours=9))
        return cancel(of, number)

    monkeypatch.setattr(PipelineWorkspace, "cancel", cancel_later)
    done = web.cancel_all(branch="feature/a")
    assert set(done["outcome"]) == {"refused"}
    assert done["reason"].str.contains("can't be canceled because it's already").all()


def test_a_lost_response_is_unknown_and_others_go_on(live: Workspace, web: PipelineWorkspace) -> None:
    live.sandbox.fault(Fault("reset", route="cancel_build", times=1, before=True))
    done = web.cancel_all(branch="feature/a")
    assert done["outcome"].tolist() == ["unknown", "canceled"]
    assert "Canceling again is safe" in done["reason"].iloc[0]


def test_after_a_failure_the_rest_is_not_sent(live: Workspace, web: PipelineWorkspace) -> None:
    ws = bf.connect("acme", base_url=live.sandbox.url, token=live.sandbox.token(["read_builds"]))
    done = ws.pipeline("web").cancel_all(branch="feature/a")
    assert done["outcome"].tolist() == ["failed", "not sent"]
    assert "write_builds" in done["reason"].iloc[0]
    assert done["reason"].iloc[1] == f"Build #{done['number'].iloc[0]} failed before."


def test_an_interrupt_reports_what_is_done(web: PipelineWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    cancel, calls = PipelineWorkspace.cancel, []

    def interrupt_second(of: PipelineWorkspace, number: int) -> object:
        calls.append(number)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return cancel(of, number)

    monkeypatch.setattr(PipelineWorkspace, "cancel", interrupt_second)
    with pytest.raises(KeyboardInterrupt) as raised:
        web.cancel_all(branch="feature/a")
    assert f"1 of 2 builds were handled; canceled: #{calls[0]}." in raised.value.__notes__


def test_more_builds_than_expected_are_not_canceled(web: PipelineWorkspace) -> None:
    with pytest.raises(bf.BadInput, match=r"2 builds.*at_most=1"):
        web.cancel_all(branch="feature/a", at_most=1)
    assert not {"canceled", "canceling"} & states(web, "feature/a")


def test_no_build_gives_an_empty_frame_with_dtypes(web: PipelineWorkspace) -> None:
    empty, some = web.cancel_all(branch="nowhere"), web.cancel_all(branch="feature/a", dry_run=True)
    assert empty.empty
    assert empty.dtypes.to_dict() == some.dtypes.to_dict()
    document = PipelineWorkspace.cancel_all.__doc__ or ""
    documented = re.findall(r"^ +(\w+) +(str|Int64) ", document, re.MULTILINE)
    assert documented == [(name, str(dtype)) for name, dtype in empty.dtypes.items()]


def test_invalid_arguments_send_nothing(web: PipelineWorkspace) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "Pass branch=, numbers= or both"),
        ({"numbers": ["x"]}, "numbers="),
        ({"numbers": [10**30]}, "numbers="),
        ({"branch": "main", "at_most": -1}, "at_most=-1"),
        ({"numbers": [1.5]}, "numbers="),
        ({"numbers": [True]}, "numbers="),
        ({"brnach": "main"}, "brnach"),
    ]
    assert wrong_refusals(cases, lambda arguments: web.cancel_all(**arguments)) == {}
