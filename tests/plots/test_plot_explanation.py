"""The waterfall chart of what makes builds slower."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from buildframe import metrics, plots
from buildframe.errors import BadInput
from tests.plots.plot_frames import explain, labels, laid_out, note, scope, segments, title


def many_changes() -> pd.DataFrame:
    """Twelve steps that become a little slower, steadily; and steps that change much more, in few builds."""
    random = np.random.default_rng(5)
    steady = [segments(60, step=f"steady {k}") for k in range(12)]
    steady = [rows.assign(duration_s=30 + 5 * (rows["build_id"].astype(int) % 2)) for rows in steady]
    ends = ["3", "5", "7"], ["4", "6", "8"]
    rare = [
        segments(60, step=f"rare {k}", duration_s=3000 * random.random(120)).query(f"build_id in {list(ends[k % 2])}")
        for k in range(9)
    ]
    return pd.concat([*steady, *rare], ignore_index=True)


def difference(ledger: pd.DataFrame) -> pd.DataFrame:
    is_odd = ledger["build_id"].astype(int) % 2 == 1
    return metrics.explain(ledger[~is_odd], ledger[is_odd], allow_reversed=True)


def test_the_bars_are_the_largest_notable_rows_and_the_largest_others():
    ledger = many_changes()
    rows = difference(ledger)
    notable, others = rows[rows["notable"].astype(bool)], rows[~rows["notable"].astype(bool)]
    assert (len(notable), len(others)) == (12, 9)
    ax = explain(ledger)
    laid_out(ax)
    shown = [f"{step} (run)" for step in [*notable["step"][:7], *others["step"][:3]]]
    hidden = pd.concat([notable["change_s"][7:], others["change_s"][3:]])
    grew, shrank = (hidden > 0).sum(), (hidden < 0).sum()
    assert min(grew, shrank) > 1
    sums = [f"{grew} others that grew", f"{shrank} others that shrank"]
    assert labels(ax) == ["before", *shown, *sums, "after"]
    bars = [one.patches[0] for one in ax.containers]
    walls = [one.get_x() + one.get_width() for one in bars]
    assert walls[-1] == pytest.approx(rows.attrs["after_s"])
    assert walls[-2] == pytest.approx(rows.attrs["after_s"])  # the bars before lead there
    assert bars[-3].get_width() == pytest.approx(hidden[hidden > 0].sum())


def test_one_hidden_row_is_one_other():
    ax = explain(segments(), top=1)
    assert labels(ax)[-2:] == ["1 other that grew", "after"]


def test_the_title_names_both_periods():
    ledger = segments(60)
    middle = ledger["build_created_at"].iloc[60]
    parts = [ledger[ledger["build_created_at"] < middle], ledger[ledger["build_created_at"] >= middle]]
    assert scope(plots.explain(*parts)) == ["api", "main", "15 to 19 Mar 2026 against 10 to 14 Mar 2026"]
    assert scope(explain(ledger)) == ["api", "main", "10 to 19 Mar 2026"]


def test_equal_sides_are_unchanged():
    ledger = segments(20, duration_s=60.0)
    assert title(explain(ledger)) == "Mean wall time of builds: unchanged"
    assert title(explain(segments())).endswith(" longer")


@pytest.mark.long
def test_the_note_says_if_builds_have_not_ended():
    ledger, text = segments(), "builds that have not ended are not counted"
    assert text not in note(explain(ledger))
    ledger.attrs["open"] = {"pipeline": ["other"], "build_created_at": [ledger["build_created_at"].max().isoformat()]}
    assert text not in note(explain(ledger))
    ledger.attrs["open"]["pipeline"] = ["api"]
    assert text in note(explain(ledger))


def test_days_are_those_of_the_time_zone():
    ledger = segments(60, duration_s=np.random.default_rng(1).gamma(9, 30, 120))
    is_odd = ledger["build_id"].astype(int) % 2 == 1
    zones = ("UTC", "Asia/Tokyo")
    sides = ledger[~is_odd], ledger[is_odd]
    low = [metrics.explain(*sides, tz=zone, allow_reversed=True)["low_s"].iloc[0] / 60 for zone in zones]
    ends = [plots.explain(*sides, tz=zone, allow_reversed=True).collections[0].get_paths()[0] for zone in zones]
    lengths = [np.ptp(path.vertices[:, 0]) for path in ends]
    assert low[0] != low[1]
    assert lengths[0] != lengths[1]
    with pytest.raises(BadInput, match="Mars/Phobos"):
        plots.explain(*sides, tz="Mars/Phobos")
