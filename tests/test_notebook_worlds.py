"""The notebooks in a small world without anomalies: all cells run, and conclude that nothing stands out."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import buildframe
from tests import worlds

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
WORLD = {"seed": 12, "builds": 120, "days": 12}
CONCLUSIONS = {
    "01_a_month_of_ci": ["more than 30 minutes: in no queue", "notably slower: 0 of", "slower steps, planted: []"],
    "02_where_does_the_time_go": ["no step and no queue took notably more", "No step became notably slower."],
    "03_what_can_no_longer_be_trusted": ["flaky: 0 of", "flaky steps, planted: []"],
    "04_what_the_service_forgets": ["slower steps: 0;", "slower steps, planted: []", "equal: True"],
}
"""What must be printed, by notebook. In the world of the saved outputs, `nbval` compares all of it."""


@pytest.mark.long
@pytest.mark.parametrize("name", CONCLUSIONS)
def test_a_notebook_concludes_that_nothing_stands_out(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(buildframe, "sandbox", lambda **_: worlds.open_sandbox(**WORLD))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    variables: dict[str, object] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}[{number}]", "exec"), variables)
    plt.close("all")
    printed = capsys.readouterr().out
    assert [words for words in CONCLUSIONS[name] if words not in printed] == []
