"""Settings at their limits."""

from __future__ import annotations

import datetime as dt

import pytest

import buildframe as bf
from buildframe.sandbox_server import Sandbox
from buildframe.spec import Moment


@pytest.mark.slow
def test_a_history_that_ends_at_midnight_has_its_days() -> None:
    with Sandbox(builds=40, days=2, until="2026-10-30") as sandbox:
        assert sandbox.clock.now() == Moment(2026, 10, 30, tzinfo=dt.UTC)


def test_truths_lie_within_the_history() -> None:
    with Sandbox(builds=40, days=9, until="2026-11-01T12:00Z") as sandbox:
        assert sandbox.truth.slower_steps[0].at <= sandbox.clock.now()
        assert sandbox.truth.broken_branches[0].until <= sandbox.clock.now()
    with Sandbox(builds=40, days=1, until="2026-10-31T12:00Z") as weekend:
        assert (weekend.truth.slower_steps, weekend.truth.broken_branches) == ((), ())


@pytest.mark.slow
def test_progress_grows_to_the_whole(tmp_path) -> None:
    shares: list[float] = []
    with Sandbox(tmp_path / "world.sqlite", builds=200, days=4, on_progress=shares.append):
        assert shares == sorted(shares)
        assert len(shares) > 3
        assert shares[-1] == 1
    shares.clear()
    with Sandbox(tmp_path / "world.sqlite", on_progress=shares.append):
        assert shares == []  # the history is there


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"port": 99999, "builds": 20}, "port=99999"),
        ({"until": "2026-10-30T12:00"}, "has no time zone"),
        ({"builds": 0}, "builds=0 and days=.* must be at least 1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(bf.BadInput, match=words):
        Sandbox(**settings)  # type: ignore[arg-type]


def test_a_sandbox_that_listens_everywhere_is_reached_from_here() -> None:
    with bf.sandbox(builds=20, days=2, host="0.0.0.0") as ci:
        assert ci.sandbox.url.startswith("http://127.0.0.1:")
        assert len(ci.pipelines()) >= 6
