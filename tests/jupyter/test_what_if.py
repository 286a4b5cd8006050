"""The what-if widget in JupyterLab in a real web browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests import worlds
from tests.jupyter.lab import Lab, Page, write_notebook

pytestmark = pytest.mark.long

HOSTILE = "<img src=x onerror=alert(1)>"
CELL = """import pandas as pd
from buildframe import widgets
widgets.WhatIf(pd.read_pickle("builds.pkl"), pd.read_pickle("jobs.pkl"))"""


def test_change_inputs_and_compare(lab: Lab, page: Page) -> None:
    with worlds.sandbox(seed=1, builds=150, days=7, until="2026-11-02T00:00:00Z") as ci:
        builds, jobs = ci.history(include_retried_jobs=True)
    jobs["queue"] = jobs["queue"].replace("macos", HOSTILE)
    builds.to_pickle(lab.folder / "builds.pkl")
    jobs.to_pickle(lab.folder / "jobs.pkl")
    write_notebook(lab.folder / "what_if.ipynb", CELL)
    lab.set_environment()
    page.run_all("what_if.ipynb", height=2600)
    page.wait("No change.", 60)
    before = {row[1]: row for row in page.rows()}
    assert all(row[2] == row[3] and row[4] == row[5] for row in before.values())
    assert page.find("img[src='x']").count() == 0
    slider = slider_of(page, f"Agents of {HOSTILE.replace('<', '‹')}")
    move(page, slider, "ArrowRight", 3)
    page.wait(re.compile(r"^4 agents in <img src=x onerror=alert\(1\)>\."))
    after = {row[1]: row for row in page.rows()}
    assert seconds(after[HOSTILE][5]) < seconds(before[HOSTILE][5]) / 2
    assert after[HOSTILE][4] == before[HOSTILE][4]
    expect(page.find(".bf-timeline figcaption", has_text="(before): ")).to_have_count(1)
    expect(page.find(".bf-timeline figcaption", has_text="(after): ")).to_have_count(1)
    page.page.get_by_label("Steps to speed up").select_option(label="api / integration")
    page.wait(re.compile("^4 agents.*api / integration takes 50 %"))
    page.check_accessibility()
    page.take_screenshots("what-if")
    page.page.set_viewport_size({"width": 720, "height": 2600})
    page.find(".bf-predictions .bf-foot", has_text="2 columns hidden").wait_for()
    page.take_screenshots("what-if-720")
    page.page.set_viewport_size({"width": 1200, "height": 2600})
    move(page, slider_of(page, "Load, % of recorded"), "ArrowRight", 4)
    page.wait(re.compile("^4 agents.*load 120 %, api / integration takes 50 %"))
    page.press("Reset")
    page.wait("No change.")
    assert (page.dialogs, page.external_requests) == ([], [])


def slider_of(page: Page, label: str) -> Any:
    return page.page.get_by_role("slider", name=label, exact=True)


def move(page: Page, slider: Any, key: str, times: int) -> None:
    slider.focus()
    for _ in range(times):
        page.page.keyboard.press(key)


def seconds(text: str) -> int:
    return sum({"s": 1, "m": 60, "h": 3600, "d": 86_400}[part[-1]] * int(part[:-1]) for part in text.split())
