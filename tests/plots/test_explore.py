"""What `plots.explore` sends to the page, and what a selection in the page does to the frame."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest

from buildframe import plots
from buildframe.errors import BadInput, MissingExtra
from tests.chromium import launched
from tests.jupyter.hostile import NAMES
from tests.metrics.each_case import for_each
from tests.plots.plot_frames import START, at, builds
from tests.refusals import columns_not_named, refusal
from tests.test_architecture import imported_by

MINUTE = pd.Timedelta("1min")
SHAPES = {
    "passed": "disc", "failed": "cross", "canceled": "square", "other": "diamond",
    "not finished or blocked, as long as seen": "triangle",
}  # fmt: skip


def content(explorer: Any) -> dict[str, Any]:
    """What the page draws, from the state that is sent to it."""
    return json.loads(zlib.decompress(explorer.get_state(["_points"])["_points"]))


def of_states() -> pd.DataFrame:
    """Builds of each kind: finished ones, a running, a blocked, a skipped one, and one without a time of creation."""
    state = ["passed", "failed", "canceled", "running", "passed", "skipped", "passed", "creating"]
    return pd.DataFrame(
        {
            "pipeline": "web", "number": pd.array(range(1, 9), "Int64"), "branch": "main", "state": state,
            "blocked": [k == 4 for k in range(8)], "message": "Fix\nit", "organization": "acme",
            "created_at": at(0, 1, 2, 3, 4, 5, 6, None), "finished_at": at(4, 3, 3, None, 9, None, 5, None),
            "fetched_at": at(*[20] * 8), "web_url": [f"https://ci.example.com/web/{k}" for k in range(8)],
        }
    )  # fmt: skip


def test_a_point_has_the_state_and_time_of_its_build() -> None:
    sent = content(plots.explore(of_states()))
    shapes = [sent["kinds"][kind]["shape"] for kind in sent["kind"]]
    assert shapes == ["disc", "cross", "square", "triangle", "triangle", "diamond", "disc"]
    assert {kind["name"]: kind["shape"] for kind in sent["kinds"]} == SHAPES
    assert [kind["n"] for kind in sent["kinds"]] == [2, 1, 1, 2, 0]
    lines = [text.split("\n") for text in sent["text"]]
    assert lines[0] == ["web #1", "passed, took 4 min", "branch main", "created 2026-03-10 00:00:00 UTC", "Fix"]
    assert [of_one[1] for of_one in lines[1:]] == [
        "failed, took 2 min", "canceled, took 1 min", "running, seen for 17 min", "blocked, passed, seen for 16 min",
        "skipped", "passed, took −1 min, clocks disagree",
    ]  # fmt: skip
    assert [place is None for place in sent["y"]] == [False] * 5 + [True, False]
    y = sent["y"]
    assert y[3] > y[4] > y[0] > y[1] > y[2] > y[6]
    assert sent["created"] == [(START + k * MINUTE).value // 1000 for k in range(7)]


def test_what_is_not_drawn_is_counted() -> None:
    explorer = plots.explore(of_states())
    assert content(explorer)["note"] == (
        "1 build without a duration not drawn; 1 build without a time of creation not drawn; "
        "1 build below 1 s drawn at 1 s; 1 build ended before it started (clocks disagree)"
    )
    assert explorer.summary == (
        "8 builds created 2026-03-10 00:00 to 2026-03-10 00:06 UTC: 2 passed, 1 failed, 1 canceled, 2 not finished or "
        f"blocked, as long as seen. {content(explorer)['note']}."
    )
    assert repr(explorer).startswith("BuildExplorer(8 builds created 2026-03-10 00:00")
    undated = plots.explore(of_states().drop(columns="fetched_at"))
    assert content(undated)["note"].startswith("3 builds without a duration not drawn")


@for_each({
    "no builds": builds().iloc[:0], "none was created": builds(created_at=None),
    "none has ended": builds(finished_at=None).iloc[:1],
})  # fmt: skip
def test_nothing_to_show_is_said_in_words(frame: pd.DataFrame) -> None:
    explorer = plots.explore(frame)
    assert explorer.summary.endswith(".")
    assert explorer.summary.split(" ")[0] in ("No", "60", "1")
    assert len(explorer.selected) == len(frame)


def test_jobs_are_refused() -> None:
    assert "the column build_id, so they are jobs" in refusal(plots.explore, builds().assign(build_id="1"))


def test_the_axis_names_what_all_its_times_have_in_common() -> None:
    periods = {
        ("2026-11-04", 9): "2026-Nov-04",
        ("2026-11-02", 60): "2026-Nov",  # the ticks are hours and days
        ("2026-10-30", 72): "2026",
        ("2026-12-30", 96): "2026 to 2027",
    }
    found = {}
    for first, hours in periods:
        created = pd.date_range(f"{first} 01:00", periods=hours, freq="h", tz="UTC")
        frame = pd.DataFrame({"created_at": created, "finished_at": created + MINUTE})
        found[first, hours] = content(plots.explore(frame))["period"]
    assert found == periods


def test_durations_that_differ_much_have_a_logarithmic_scale() -> None:
    even = content(plots.explore(builds(each=20)))  # 1 to 20 minutes
    assert even["scale"] == "wall time"
    assert [label for _, label in even["durations"]] == ["0", "5 min", "10 min", "15 min", "20 min"]
    gaps = [high[0] - low[0] for low, high in itertools.pairwise(even["durations"])]
    assert max(gaps) - min(gaps) < 0.001
    wide = builds(days=1, each=4, finished_at=at(0.001, 2, 62, 3 + 60 * 20))
    sent = content(plots.explore(wide))
    assert sent["scale"] == "wall time, logarithmic"
    assert sent["note"] == "1 build below 1 s drawn at 1 s"
    ticks = {label: place for place, label in sent["durations"]}
    places = sorted(ticks.values())
    assert min(high - low for low, high in itertools.pairwise(places)) > 0.08
    assert ticks["1 s"] == sent["y"][0]
    assert ticks["1 h"] == pytest.approx(sent["y"][2], abs=1e-3)
    assert all(place <= 1 for place in [*places, *sent["y"]])


def test_dates_are_in_utc_in_every_time_zone() -> None:
    with mpl.rc_context({"timezone": "Asia/Tokyo"}):
        sent = content(plots.explore(builds(days=3)))
    low, high = sent["range"]
    places = {label: low + place * (high - low) for place, label in sent["dates"]}
    for day in (0, 1, 2):
        expected = (START + pd.Timedelta(day, "D")).value // 1000
        assert abs(places[f"Mar-{10 + day}"] - expected) < 60e6 * 1440 / 1000


def test_a_selection_in_the_page_selects_builds_of_the_frame() -> None:
    frame = builds(days=3, each=4).sample(frac=1, random_state=0)
    frame["note"] = range(len(frame))
    explorer = plots.explore(frame)
    pd.testing.assert_frame_equal(explorer.selected, frame)
    assert explorer.period is None
    seen: list[pd.DataFrame] = []
    explorer.observe(lambda change: seen.append(change.new), "selected")
    first, end = START + pd.Timedelta("1D"), START + pd.Timedelta("1D") + 2 * MINUTE
    explorer.set_state({"_period": [first.value // 1000, end.value // 1000]})  # as the page does
    inside = frame[(frame["created_at"] >= first) & (frame["created_at"] < end)]
    assert len(inside) == 2
    pd.testing.assert_frame_equal(explorer.selected, inside)
    assert [len(rows) for rows in seen] == [2]
    assert explorer.period == (first, end)
    explorer.clear()
    pd.testing.assert_frame_equal(explorer.selected, frame)
    explorer.select("2026-03-11", "2026-03-12T00:00:00Z")
    assert len(explorer.selected) == 4
    assert explorer.get_state(["_period"])["_period"] == [(START + pd.Timedelta(k, "D")).value // 1000 for k in (1, 2)]
    with pytest.raises(BadInput, match="is after"):
        explorer.select("2026-03-12", "2026-03-11")


def test_a_later_change_of_the_frame_changes_nothing() -> None:
    frame = builds(days=1)
    explorer = plots.explore(frame)
    frame["state"] = "failed"
    assert (explorer.selected["state"] == "passed").any()


DRAW = """async ([code, points]) => {
  const { default: widget } = await import("data:text/javascript;base64," + code);
  const bytes = Uint8Array.from(atob(points), (char) => char.charCodeAt(0));
  const model = { get: (name) => ({ _points: new DataView(bytes.buffer), _period: [], summary: "" })[name], on() {} };
  await widget.render({ model, el: document.body });
}"""
"""Draw the explorer in a page of its own, with the state that a kernel sends."""


@pytest.mark.long
def test_the_page_offers_only_what_it_can_do() -> None:
    code = base64.b64encode((Path(plots.__path__[0]) / "explorer.js").read_bytes()).decode()
    urls = ["https://ci.example.com/1"] * 60
    said = []
    with launched() as browser:
        for frame in (builds().iloc[:0], builds(), builds(web_url=urls)):
            page = browser.new_page()
            points = plots.explore(frame).get_state(["_points"])["_points"]
            page.evaluate(DRAW, [code, base64.b64encode(points).decode()])
            said.append(page.get_by_role("status").inner_text())
    assert said == [
        "No period is selected. There is nothing to select.",
        "No period is selected. Drag to select a period.",
        "No period is selected. Drag to select a period. Click a build to open its page.",
    ]


def test_only_pages_of_the_web_are_opened() -> None:
    urls = ["https://ci.example.com/a", "javascript:alert(1)", "data:text/html,x", "file:///etc", None, " http://a.b"]
    sent = content(plots.explore(builds(days=1, each=6, web_url=urls)))
    assert sent["url"] == ["https://ci.example.com/a", *[None] * 5]


def test_the_state_has_no_text_that_could_end_a_script() -> None:
    names = NAMES * 2
    frame = builds(days=1, each=len(names), pipeline=names, branch=names, message=names)
    explorer = plots.explore(frame)
    saved = explorer.get_manager_state(widgets=[explorer])["state"]
    assert NAMES[0] in content(explorer)["text"][0]
    traits = {k: v for of_one in saved.values() for k, v in of_one["state"].items() if k not in ("_esm", "_css")}
    assert "<" not in json.dumps(traits)


def test_long_and_unprintable_names_are_one_short_line() -> None:
    frame = builds(days=1, each=2, branch="a" * 500, message="\u202eevil\x07" + "b" * 500)
    text = content(plots.explore(frame))["text"][0].split("\n")
    assert len(text) == 5
    assert max(map(len, text)) < 120
    assert "‹U+202E›" in text[4]


def test_other_columns_are_optional() -> None:
    sent = content(plots.explore(builds(days=1)[["created_at", "finished_at"]]))
    assert sent["text"][0] == "build\nstate unknown, took 1 min\ncreated 2026-03-10 00:00:00 UTC"
    assert columns_not_named(plots.explore, builds(), ["created_at", "finished_at"]) == set()
    for name in ("created_at", "finished_at"):
        naive = builds()[name].dt.tz_localize(None)
        assert "no time zone" in refusal(plots.explore, builds().assign(**{name: naive})), name


def test_organizations_are_named_if_there_are_several() -> None:
    sent = content(plots.explore(builds(days=1, each=2, organization=["acme", "emca"])))
    assert [text.split("\n")[0] for text in sent["text"]] == ["acme / web #1", "emca / web #2"]


def test_what_is_sent_is_small_and_too_many_builds_are_refused() -> None:
    frame = builds(days=30, each=100, message=[f"Change {k} of the module" for k in range(3000)])
    state = plots.explore(frame).get_state()
    size = sum(len(value) for value in state.values() if isinstance(value, str | bytes))
    assert size < 120_000  # 16 kB of script and style, about 30 bytes a build
    many = pd.DataFrame({"created_at": [START], "finished_at": [START]}).iloc[[0] * 100_001]
    assert "100,001 rows, but explore draws at most 100,000. Select a period" in refusal(plots.explore, many)


WITHOUT = """
import sys
sys.modules["anywidget"] = None
import pandas as pd
from buildframe import plots
try:
    plots.explore(pd.DataFrame({"created_at": [], "finished_at": []}))
except ImportError as why:
    print(type(why).__name__, why)
"""


@pytest.mark.long
def test_anywidget_is_an_extra() -> None:
    assert not imported_by("import buildframe.plots") & {"anywidget", "ipywidgets"}
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"MissingExtra {MissingExtra('plots.explore()', 'interactive')}"
