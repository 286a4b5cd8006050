"""The build browser in JupyterLab in a real browser, against a live sandbox."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import buildframe as bf
from buildframe.service import SCOPES
from tests.test_notebooks import chromium
from tests.widgets.jupyter import Page, browsing, lab, write_notebook

CELL = """import buildframe as bf
from buildframe import widgets
browser = widgets.BuildBrowser(bf.connect("acme"), created_from="10d")
browser"""
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("BUILDFRAME_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def ci(tmp_path: Path) -> Iterator[bf.workspace.Workspace]:
    with bf.sandbox(builds=600, path=tmp_path / "sandbox.db") as workspace:
        hostile = {"branch": HOSTILE, "message": "<script>alert(2)</script>"}
        workspace.pipeline("web").create_build(commit="HEAD", ignore_pipeline_branch_filters=True, **hostile)
        for slug in ("web", "api", "mobile"):
            workspace.sandbox.push(slug)
        workspace.sandbox.clock.advance(dt.timedelta(minutes=1))
        yield workspace


def test_find_choose_and_act(ci: bf.workspace.Workspace, tmp_path: Path, pictures: Path) -> None:
    chromium()
    folder = tmp_path / "lab"
    folder.mkdir()
    write_notebook(folder / "browser.ipynb", CELL)
    token = ci.sandbox.token(SCOPES)
    environment = {"BUILDFRAME_URL": ci.sandbox.url, "BUILDFRAME_TOKEN": token}
    with lab(folder, environment) as (address, of_lab), browsing(address, pictures) as page:
        page.run_all(address, of_lab, "browser.ipynb")
        page.wait("complete", 60)
        show_hostile_text_as_text(page)
        filter_and_sort(page, ci)
        choose_by_keys(page)
        cancel_running(page, ci)
        be_refused(page, ci)
        rebuild(page, ci)
        create(page, ci)
        page.shoot("browser")
        page.page.set_viewport_size({"width": 900, "height": 1500})
        page.shoot("browser-900")
        lose_the_server_and_go_on(page, ci, tmp_path)
        page.command("docmanager:save")
        page.page.wait_for_timeout(1500)
        assert (page.dialogs, page.strangers) == ([], [])
        assert token not in (folder / "browser.ipynb").read_text()


def show_hostile_text_as_text(page: Page) -> None:
    assert HOSTILE in [row[3] for row in page.rows()]
    assert page.find("img[src='x'], .bf-grid img, .bf-grid script").count() == 0
    page.choose(int(next(row for row in page.rows() if row[3] == HOSTILE)[0]))
    assert HOSTILE in page.find(".bf-facts").inner_text()


def filter_and_sort(page: Page, ci: bf.workspace.Workspace) -> None:
    page.fill("Pipeline", "web")
    page.press("Load")
    page.page.wait_for_function("() => !document.querySelector('.bf-foot').textContent.startsWith('0')")
    expected = len(ci.pipeline("web").builds(created_from="10d", progress=False))
    page.wait(re.compile(f"^{expected} builds, complete"))
    assert {row[2] for row in page.rows()} == {"web"}
    page.find(".bf-sorter", has_text="Number").click()
    page.find("[role=columnheader][aria-sort=ascending]").wait_for()
    numbers = [int(row[0]) for row in page.rows()]
    assert numbers == sorted(numbers)
    page.find(".bf-sorter", has_text="Number").click()
    page.find("[role=columnheader][aria-sort=descending]").wait_for()
    numbers = [int(row[0]) for row in page.rows()]
    assert numbers == sorted(numbers, reverse=True)
    page.fill("Message", "<script>alert(2)")
    page.find(".bf-foot", has_text=f"of {expected} loaded rows").wait_for()
    assert [row[3] for row in page.rows()] == [HOSTILE]
    page.fill("Message", "")
    page.fill("Pipeline", "")


def choose_by_keys(page: Page) -> None:
    before = page.find(".bf-facts caption").inner_text()
    page.find(".bf-grid").focus()
    for key in ("Home", "ArrowDown", "ArrowDown"):
        page.page.keyboard.press(key)
    page.page.wait_for_function(
        "before => document.querySelector('.bf-facts caption').textContent !== before", arg=before
    )
    number = page.find(".bf-row[aria-selected=true] .bf-number").inner_text()
    page.find(".bf-facts caption", has_text=f"#{number}").wait_for()


def running(page: Page, ci: bf.workspace.Workspace) -> tuple[str, int]:
    """A build that runs, chosen on the page: its pipeline and number."""
    page.page.get_by_label("State", exact=True).select_option("running")
    page.press("Load")
    expected = ci.builds(created_from="10d", state="running", progress=False)
    page.wait(re.compile(f"^{len(expected)} builds?, complete"))
    page.find(".bf-body .bf-row").first.wait_for()
    row = page.rows()[0]
    page.choose(int(row[0]))
    return row[2], int(row[0])


def cancel_running(page: Page, ci: bf.workspace.Workspace) -> None:
    slug, number = running(page, ci)
    page.press("Cancel…")
    assert f"Cancel build {slug} #{number}?" in page.wait("Cancel build")
    page.shoot("question")
    page.press("No, let it go on")
    assert ci.pipeline(slug).build(number).state == "running"
    page.press("Cancel…")
    page.press("Yes, cancel it")
    page.wait(f"#{number} is canceled")
    assert ci.pipeline(slug).build(number).state == "canceled"
    page.find("button:disabled", has_text="Cancel…").wait_for()


def be_refused(page: Page, ci: bf.workspace.Workspace) -> None:
    slug, number = running(page, ci)
    ci.sandbox.clock.advance(dt.timedelta(hours=6))
    state = ci.pipeline(slug).build(number).state
    page.press("Cancel…")
    page.press("Yes, cancel it")
    assert f"Build can't be canceled because it's already {state}" in page.wait("422")
    page.find(".bf-facts td", has_text=re.compile(f"^{state}$")).wait_for()
    assert "already" in page.wait("422")
    page.shoot("refused")


def rebuild(page: Page, ci: bf.workspace.Workspace) -> None:
    of, number = page.find(".bf-facts caption").inner_text().split(" #")
    page.find("button:visible", has_text="Rebuild").dblclick()
    said = page.wait("was created")
    made = ci.pipeline(of).builds(created_from="1h", progress=False)
    again = made[made["rebuilt_from"] == int(number)]["number"].tolist()
    assert len(again) == 1
    assert f"#{again[0]} was created" in said
    assert page.find(".bf-told a:visible").first.get_attribute("href") == ci.pipeline(of).build(again[0]).web_url


def create(page: Page, ci: bf.workspace.Workspace) -> None:
    page.press("Create build…")
    for label, text in {"pipeline": "docs", "commit": "HEAD", "pull_request_id": "seven"}.items():
        page.fill(label, text)
    page.press("Create this build")
    page.wait("Nothing was sent: 2 of the fields")
    page.wait("branch is missing")
    page.wait("pull_request_id must be a whole number")
    page.shoot("form")
    for label, text in {"branch": "main", "pull_request_id": "7", "message": "By hand", "author.name": "Zoe"}.items():
        page.fill(label, text)
    page.page.get_by_label("env", exact=True).fill("CACHE=v2\nA=b=c")
    page.press("Create this build")
    page.find(".bf-told:visible", has_text="was created").first.wait_for()
    page.press("Close the form")
    made = ci.pipeline("docs").builds(created_from="1h", branch="main", progress=False).iloc[0]
    build = ci.pipeline("docs").build(int(made["number"]))
    assert (build.message, build.pull_request.id) == ("By hand", "7")
    assert {"CACHE": "v2", "A": "b=c"}.items() <= build.env.items()


def lose_the_server_and_go_on(page: Page, ci: bf.workspace.Workspace, tmp_path: Path) -> None:
    port = urlsplit(ci.sandbox.url).port
    ci.sandbox.stop()
    page.page.get_by_label("State", exact=True).select_option(label="all")
    page.press("Load")
    page.wait("No answer from http://127.0.0.1", 120)
    page.shoot("no-server")
    with bf.sandbox(path=tmp_path / "sandbox.db", port=port):
        page.press("Load")
        page.wait("complete", 60)
