"""Rows that tables copy or download: no spreadsheet runs a cell as a formula, by the rule that `save` has for CSV."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import buildframe.widgets
from buildframe.store.files import _FORMULA_START
from tests.programs import require_module

CELLS = Path(buildframe.widgets.__file__).with_name("table_cells.js").read_text("utf-8")
ROW = ["=1+1", " -2", "'@a", "a\t=b", "a;+1", "web", -5, None, "＝x"]
COPIED = ["'=1+1", "' -2", "''@a", "a =b", "a;'+1", "web", "-5", "", "'＝x"]
"""By the rule of docs/exporting.md. A tab of a text becomes a space, so no cell begins after it."""


def test_the_rule_of_copied_and_downloaded_rows_is_that_of_save() -> None:
    [pattern] = re.findall(r"FORMULA_STARTS = /(.+)/g;", CELLS)
    rule = re.compile(pattern)
    for first in " \"'=+-@＝＋－＠;\t\r\n\u00a0\u3000\u200b\ufeffa1":
        for second in "=@-;\t\n'\" a":
            for text in (first + second, f"a{first}{second}", f"{first}{second}="):
                assert rule.sub("'", text) == _FORMULA_START.sub("'", text), ascii(text)


def test_a_copied_row_contains_no_formula() -> None:
    require_module("playwright", "dev")
    from playwright._impl._driver import compute_driver_executable

    node = compute_driver_executable()[0]
    page = "const document = { createElement: () => ({ getContext: () => ({}) }) };"
    call = f"console.log(formatRow({json.dumps(ROW)}, []));"
    ran = subprocess.run([node, "-e", page + CELLS + call], capture_output=True, text=True, check=True)
    assert ran.stdout.rstrip("\n").split("\t") == COPIED
