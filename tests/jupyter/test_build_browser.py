"""The build browser in JupyterLab in a real web browser, on a live sandbox."""

from __future__ import annotations

import csv
import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import buildframe as bf
from buildframe.sandbox_server import SCOPES
from tests import worlds
from tests.jupyter.lab import Lab, Page, other_theme, write_notebook

pytestmark = pytest.mark.long

CELL = """import pathlib, time
import buildframe as bf
from buildframe import widgets
from buildframe.widgets import filter_inputs
load_suggestions = filter_inputs._load_suggestions
def load_once_typed(ws, task):
    while not pathlib.Path("typed").exists():
        time.sleep(0.05)
    return load_suggestions(ws, task)
filter_inputs._load_suggestions = load_once_typed
browser = widgets.BuildBrowser(bf.connect("acme"), created_from="10d")
slow_inputs = [browser.bulk.branch, browser.form.fields["message"].input]
for text in slow_inputs:
    text.observe(lambda change: time.sleep(0.1), "value")  # as if the kernel were far away
browser"""
HOSTILE = "<img src=x onerror=alert(1)>"
SEARCH = "Search the loaded rows of Builds"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
GRID = ".bf-grid[aria-label=Builds]"
ROWS = f"""() => [...document.querySelectorAll('.jp-OutputArea-output {GRID} .bf-body .bf-row')]
    .map(row => [...row.children].map(cell => cell.matches('.bf-name, .bf-path') ? cell.title : cell.textContent))"""
EDGES = f"""() => ['.bf-head', '.bf-body .bf-row'].map(row => [...document.querySelector('{GRID} ' + row).children]
    .map(cell => Math.round(cell.getBoundingClientRect().left)))"""


@pytest.fixture
def ci(tmp_path: Path) -> Iterator[bf.workspace.Workspace]:
    with worlds.sandbox(builds=600, path=tmp_path / "sandbox.db", world="odd") as workspace:
        hostile = {"branch": HOSTILE, "message": "<script>alert(2)</script>"}
        workspace.pipeline("web").create_build(commit="HEAD", ignore_pipeline_branch_filters=True, **hostile)
        for slug in ("web", "api", "mobile"):
            workspace.sandbox.push(slug)
        workspace.sandbox.clock.advance(dt.timedelta(minutes=1))
        yield workspace


def test_filter_select_and_act(ci: bf.workspace.Workspace, lab: Lab, page: Page, tmp_path: Path) -> None:
    write_notebook(lab.folder / "browser.ipynb", CELL)
    lab.set_environment(BUILDFRAME_URL=ci.sandbox.url, BUILDFRAME_TOKEN=ci.sandbox.token(SCOPES))
    page.run_all("browser.ipynb")
    page.wait("complete", 60)
    keep_what_is_typed_when_suggestions_arrive(page, lab)
    show_hostile_text_escaped(page)
    filter_and_sort(page, ci)
    operate_by_keyboard(page, ci)
    arrange_columns(page)
    copy_and_download(page)
    keep_rows_when_the_theme_changes(page)
    cancel_running(page, ci)
    cancel_several(page, ci)
    show_a_refusal(page, ci)
    rebuild(page, ci)
    create(page, ci)
    page.check_accessibility()
    fit_every_width(page, ci)
    survive_a_server_outage(page, ci, tmp_path)
    assert (page.dialogs, page.external_requests) == ([], [])


def rows(page: Page) -> list[list[str]]:
    return page.page.evaluate(ROWS)


def sort(page: Page, title: str, way: str) -> None:
    page.find(f"{GRID} .bf-sort-button", has_text=title).click()
    page.find(f"{GRID} [role=columnheader][aria-sort={way}]", has_text=title).wait_for()
    page.find(".bf-foot", has_text=f"sorted by {title}, {way}").wait_for()


def keep_what_is_typed_when_suggestions_arrive(page: Page, lab: Lab) -> None:
    page.page.get_by_label("Pipeline", exact=True).first.focus()
    page.page.keyboard.type("we")
    (lab.folder / "typed").touch()
    page.wait_until("() => document.querySelector('.bf-browser datalist option[value=web]')")
    page.page.keyboard.type("b")
    assert page.page.get_by_label("Pipeline", exact=True).first.input_value() == "web"
    page.fill("Pipeline", "")


def show_hostile_text_escaped(page: Page) -> None:
    assert HOSTILE in [row[3] for row in rows(page)]
    assert page.find("img[src='x'], .bf-grid img, .bf-grid script").count() == 0
    page.select(int(next(row for row in rows(page) if row[3] == HOSTILE)[0]))
    assert HOSTILE in page.find(".bf-properties").inner_text()


def filter_and_sort(page: Page, ci: bf.workspace.Workspace) -> None:
    page.fill("Pipeline", "web")
    page.wait("Filters changed")
    page.press("Load")
    expected = len(ci.pipeline("web").builds(created_from="10d", progress=False))
    page.wait(re.compile(f"^{expected} builds, complete, as of"))
    assert {row[2] for row in rows(page)} == {"web"}
    created = [row[5] for row in rows(page)]
    assert created == sorted(created, reverse=True)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", created[0])
    for way in ("ascending", "descending"):
        sort(page, "Number", way)
        numbers = [int(row[0]) for row in rows(page)]
        assert numbers == sorted(numbers, reverse=way == "descending")
    for way in ("ascending", "descending"):
        sort(page, "Took", way)
        took = [sum(UNITS[part[-1]] * int(part[:-1]) for part in row[4].split()) for row in rows(page)]
        assert took == sorted(took, reverse=way == "descending")
    page.page.keyboard.press("Tab")
    page.find(GRID).press("End")
    page.find(f"{GRID} .bf-focused[aria-rowindex='{expected + 1}']").wait_for()
    assert rows(page)[-1][4] == "", "unfinished builds have no duration, and come last"
    page.fill(SEARCH, "WEB alert(2)")
    page.find(".bf-foot", has_text=f"1 of {expected} loaded rows").wait_for()
    assert [row[3] for row in rows(page)] == [HOSTILE]
    commit = page.find(f"{GRID} .bf-commit").first.get_attribute("title")
    page.fill(SEARCH, commit)
    page.find(f"{GRID} .bf-commit", has_text=commit[:8]).first.wait_for()
    page.fill(SEARCH, "")
    page.find(".bf-foot", has_text=f"{expected} rows").wait_for()


def operate_by_keyboard(page: Page, ci: bf.workspace.Workspace) -> None:
    keys, seen = page.page.keyboard, []
    page.page.get_by_label("Pipeline", exact=True).first.focus()
    keys.press("Control+a")
    keys.press("Delete")
    keys.press("Tab")
    keys.type("main")
    keys.press("Enter")
    page.wait(re.compile(f"^{len(ci.builds(created_from='10d', branch='main', progress=False))} builds, complete"))
    assert {row[3] for row in rows(page)} == {"main"}
    while page.page.evaluate("document.activeElement.className") != "bf-grid":
        keys.press("Tab")
        seen.append(page.page.evaluate(NAME))
        assert page.page.evaluate(SHOWS_FOCUS), seen[-1]
    expected = ["State", "Creator", "Created from", "Created to", "Load", "Create build…", "Cancel several…"]
    assert seen == [*expected, SEARCH, "Builds"]
    for key in ("Home", "ArrowDown", "ArrowDown"):
        keys.press(key)
    number = page.find(f"{GRID} .bf-row[aria-rowindex='4'] .bf-number").inner_text()
    page.find(".bf-properties caption", has_text=re.compile(f"#{number}$")).wait_for()
    assert page.find(f"{GRID} .bf-row[aria-selected=true] .bf-number").inner_text() == number
    keys.press("Tab")
    keys.press("ArrowRight" if page.page.evaluate(NAME) != "Commit" else "ArrowLeft")
    keys.press("Enter")
    title = page.page.evaluate(NAME).split(" ")[0]
    page.find(".bf-foot", has_text=f"sorted by {title}").first.wait_for()
    page.fill("Branch", "")


def titles(page: Page) -> list[str]:
    return [text.rstrip(" ▲▼") for text in page.find(f"{GRID} .bf-head .bf-sort-button").all_inner_texts()]


def width_of(page: Page, title: str) -> float:
    return float(page.find(f"{GRID} [role=columnheader]", has_text=title).bounding_box()["width"])


def arrange_columns(page: Page) -> None:
    """Resize with the keyboard and the mouse, move by dragging, choose in the panel, and reset."""
    before = titles(page)
    page.find(f"{GRID} .bf-sort-button", has_text="Branch").focus()
    wide = width_of(page, "Branch")
    for _ in range(3):
        page.page.keyboard.press("Shift+ArrowRight")
    page.wait_until(f"() => document.querySelectorAll('{GRID} .bf-head > *')[3].offsetWidth >= {wide + 40}")
    edge = page.find(f"{GRID} [role=columnheader] .bf-resize").nth(3).bounding_box()
    drag(page, edge["x"] + 4, edge["y"] + 10, edge["x"] - 56)
    page.wait_until(f"() => document.querySelectorAll('{GRID} .bf-head > *')[3].offsetWidth < {wide + 10}")
    head, row = page.page.evaluate(EDGES)
    assert head == row
    commit, state = (page.find(f"{GRID} .bf-sort-button", has_text=name).bounding_box() for name in ("Commit", "State"))
    drag(page, commit["x"] + 20, commit["y"] + 10, state["x"] + 30)
    moved = [before[0], "Commit", *before[1:-1]]
    page.find(f"{GRID} [role=columnheader][aria-colindex='2']", has_text="Commit").wait_for()
    assert titles(page) == moved
    page.press("Columns")
    page.find("input[aria-label='Show Message']:visible").uncheck()
    page.find("button[aria-label='Move State earlier']:visible").click()
    page.find(".bf-foot", has_text="1 column hidden").wait_for()
    assert titles(page) == ["Number", "State", "Commit", *(name for name in moved[3:] if name != "Message")]
    page.take_screenshots("browser-columns")
    page.find("button:visible", has_text="Reset columns").click()
    page.page.keyboard.press("Escape")
    page.find(".bf-column-panel:visible").first.wait_for(state="detached")
    assert (titles(page), round(width_of(page, "Branch"))) == (before, round(wide))


def drag(page: Page, x: float, y: float, to: float) -> None:
    page.page.mouse.move(x, y)
    page.page.mouse.down()
    page.page.mouse.move((x + to) / 2, y, steps=3)
    page.page.mouse.move(to, y, steps=3)
    page.page.mouse.up()


def copy_and_download(page: Page) -> None:
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown = rows(page)
    page.find(f"{GRID} .bf-body .bf-row").first.locator(".bf-name").click()
    page.page.keyboard.press("Control+c")
    page.find(".bf-foot", has_text=f"Copied: {shown[0][3]}").wait_for()
    assert clipboard(page) == shown[0][3]
    page.press("Copy row")
    page.find(".bf-foot", has_text=f"Copied: {shown[0][0]}").wait_for()
    copied = clipboard(page).split("\t")
    assert (len(copied), copied[:4]) == (len(shown[0]), shown[0][:4])
    page.page.evaluate(HIDE_CLIPBOARD)
    page.find(GRID).focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowRight", "Control+c"):
        page.page.keyboard.press(key)
    page.find(".bf-foot", has_text=re.compile(f"^Copied: {shown[0][0]}")).wait_for()
    assert clipboard(page) == shown[0][0], "also on a page without https, which has no clipboard"
    with page.page.expect_download() as started:
        page.press("CSV")
    assert started.value.suggested_filename == "builds.csv"
    saved = list(csv.reader(Path(started.value.path()).read_text("utf-8-sig").splitlines()))
    assert saved[0] == [f"{name} (s)" if name == "Took" else name for name in titles(page)]
    assert [line[0] for line in saved[1 : len(shown) + 1]] == [row[0] for row in shown]
    assert len(saved) > len(shown)
    assert any(cell.startswith("'=SUM") for line in saved for cell in line), "no spreadsheet runs it as a formula"
    assert len(saved[1][8]) == 40, "the whole commit"
    page.page.evaluate("() => delete navigator.clipboard")


HIDE_CLIPBOARD = """() => {
    window.clipboard = navigator.clipboard;
    Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true }) }"""


def clipboard(page: Page) -> str:
    return str(page.page.evaluate("() => (window.clipboard ?? navigator.clipboard).readText()"))


def keep_rows_when_the_theme_changes(page: Page) -> None:
    """The rows stay when JupyterLab changes its theme, and when it puts the table into the page again."""
    page.find(GRID).evaluate("grid => { grid.scrollTop = 900 }")
    page.wait_until(VISIBLE_ROWS)
    page.set_theme(other_theme(page.theme))
    page.wait_until(VISIBLE_ROWS)
    page.find(GRID).evaluate(REINSERT)
    page.wait_until(VISIBLE_ROWS)
    assert page.find(GRID).evaluate("grid => grid.scrollTop") == 900


VISIBLE_ROWS = f"""() => {{
    const grid = document.querySelector('{GRID}'), {{ top, bottom }} = grid.getBoundingClientRect();
    const isVisible = (box) => box.bottom > top + 28 && box.top < bottom;
    const boxes = [...grid.querySelectorAll('.bf-body .bf-row')].map((row) => row.getBoundingClientRect());
    return grid.scrollTop === 900 && boxes.filter(isVisible).length > 8 }}"""
REINSERT = """async grid => {
    const { parentElement, nextSibling } = grid;
    grid.remove();
    parentElement.insertBefore(grid, nextSibling);
    for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame) }"""
NAME = """() => { const it = document.activeElement;
    return it.ariaLabel ?? it.labels?.[0]?.textContent ?? it.textContent }"""
SHOWS_FOCUS = """() => { const it = document.activeElement, style = getComputedStyle(it);
    const look = () => [style.outline, style.boxShadow, style.borderColor].join();
    const focused = look();
    it.blur();
    const other = look();
    it.focus();
    return focused !== other }"""


def running(page: Page, ci: bf.workspace.Workspace) -> tuple[str, int]:
    """Select a running build on the page; return its pipeline and number."""
    page.page.get_by_label("State", exact=True).select_option("running")
    page.press("Load")
    expected = ci.builds(created_from="10d", state="running", progress=False)
    page.wait(re.compile(f"^{len(expected)} builds?, complete"))
    page.find(f"{GRID} .bf-body .bf-row").first.wait_for()
    row = rows(page)[0]
    page.select(int(row[0]))
    return row[2], int(row[0])


def cancel_running(page: Page, ci: bf.workspace.Workspace) -> None:
    slug, number = running(page, ci)
    page.press("Cancel…")
    assert f"Cancel build {slug} #{number}?" in page.wait("Cancel build")
    page.press("Keep running")
    assert ci.pipeline(slug).build(number).state == "running"
    page.press("Cancel…")
    page.press("Yes, cancel it")
    page.wait(f"#{number} is canceled")
    assert ci.pipeline(slug).build(number).state == "canceled"
    page.find("button:disabled", has_text="Cancel…").wait_for()


def cancel_several(page: Page, ci: bf.workspace.Workspace) -> None:
    """Mark builds with the mouse and the keyboard, and cancel them after one question; then those of a branch."""
    builds = ci.builds(created_from="10d", state="running", progress=False)
    page.press("Load")
    page.wait(re.compile(f"^{len(builds)} builds, complete"))
    page.press("Cancel several…")
    page.find(f"{GRID} .bf-mark").nth(1).wait_for()
    page.find(f"{GRID} .bf-body .bf-row .bf-mark").first.click()
    page.find("button:enabled", has_text="Cancel 1 marked build…").wait_for()
    page.find(GRID).press("ArrowDown")
    page.find(GRID).press(" ")
    page.find("button:enabled", has_text="Cancel 2 marked builds…").wait_for()
    marked = [(row[3], int(row[1])) for row in rows(page) if row[0] == "☑"]
    page.press("Cancel 2 marked builds…")
    question = page.wait("Cancel 2 builds of 2 marked builds")
    assert all(f"{slug} #{number}" in question for slug, number in marked)
    page.check_accessibility()
    page.take_screenshots("cancel-several")
    page.press("Yes, cancel 2 builds")
    page.wait("2 builds: 2 canceled.")
    assert {ci.pipeline(slug).build(number).state for slug, number in marked} == {"canceled"}
    page.wait(re.compile(f"^{len(builds) - 2} builds, complete"))
    ci.pipeline("web").create_build(commit="HEAD", ignore_pipeline_branch_filters=True, branch=HOSTILE)
    page.page.get_by_label("Branch to cancel", exact=True).focus()
    page.page.keyboard.type(HOSTILE)
    page.press("Cancel all of this branch…")
    page.wait(f"of branch {HOSTILE}: web #")
    page.press("Keep all running")
    page.take_screenshots("canceled-several")
    page.press("Close cancellation")


def show_a_refusal(page: Page, ci: bf.workspace.Workspace) -> None:
    slug, number = running(page, ci)
    ci.sandbox.clock.advance(dt.timedelta(hours=6))
    state = ci.pipeline(slug).build(number).state
    page.press("Cancel…")
    page.press("Yes, cancel it")
    assert f"Build can't be canceled because it's already {state}" in page.wait("422")
    page.find(".bf-properties td", has_text=re.compile(f"^{state}$")).wait_for()
    assert "already" in page.wait("422")
    page.take_screenshots("refused")


def rebuild(page: Page, ci: bf.workspace.Workspace) -> None:
    of, number = page.find(".bf-properties caption").inner_text().split(" #")
    page.find("button:visible", has_text="Rebuild").dblclick()
    message = page.wait("was created")
    made = ci.pipeline(of).builds(created_from="1h", progress=False)
    again = made[made["rebuilt_from"] == int(number)]["number"].tolist()
    assert len(again) == 1
    assert f"#{again[0]} was created" in message
    assert page.find(".bf-status a:visible").first.get_attribute("href") == ci.pipeline(of).build(again[0]).web_url


def fill_form(page: Page, **texts: str) -> None:
    for name, text in texts.items():
        field = page.find(f".bf-field-{name} :is(input, textarea)")
        field.fill(text)
        field.press("Tab")


def create(page: Page, ci: bf.workspace.Workspace) -> None:
    page.press("Create build…")
    assert page.find(".bf-field-commit input").input_value() == "HEAD"
    fill_form(page, pipeline="docs")
    page.wait_until("() => document.querySelector('.bf-field-branch input').value === 'main'")
    assert page.find(".bf-field-env textarea:visible").count() == 0
    page.take_screenshots("form")
    page.press("More options")
    fill_form(page, branch="", pull_request_id="seven")
    page.press("Fewer options")
    page.press("Create this build")
    page.wait("Nothing was sent. Correct 2 marked fields")
    page.wait("Branch is missing")
    page.wait("Pull request number must be a whole number")
    page.find("button[aria-expanded=true]", has_text="Fewer options").wait_for()
    page.take_screenshots("form-all")
    fill_form(page, branch="main", pull_request_id="7", message="", **{"author-name": "Zoe"})
    fill_form(page, env="CACHE=v2\nA=b=c")
    page.find(".bf-field-message textarea").focus()
    page.page.keyboard.type("Manual")
    page.press("Create this build")
    page.find(".bf-status:visible", has_text=re.compile(r"Build #\d+ was created")).first.wait_for()
    page.press("Close the form")
    made = ci.pipeline("docs").builds(created_from="1h", branch="main", progress=False).iloc[0]
    build = ci.pipeline("docs").build(int(made["number"]))
    assert (build.message, build.pull_request.id) == ("Manual", "7")
    assert {"CACHE": "v2", "A": "b=c"}.items() <= build.env.items()


def fit_every_width(page: Page, ci: bf.workspace.Workspace) -> None:
    page.page.get_by_label("State", exact=True).select_option(label="all")
    page.press("Load")
    page.wait(re.compile(f"^{len(ci.builds(created_from='10d', progress=False))} builds, complete"))
    for width, beside in ((1400, True), (1200, False), (720, False)):
        page.page.set_viewport_size({"width": width, "height": 1500})
        page.find(GRID).evaluate("async grid => { grid.scrollLeft = 90; await new Promise(requestAnimationFrame) }")
        head, row = page.page.evaluate(EDGES)
        assert head == row
        table, detail = (page.find(name).first.bounding_box() for name in (GRID, ".bf-properties"))
        assert (detail["x"] > table["x"] + table["width"]) == beside
        outputs = page.page.locator(".jp-OutputArea-output:has(.bf-browser)")
        assert outputs.evaluate("it => it.scrollWidth <= it.clientWidth"), "nothing is cut off at this width"
        page.find(GRID).evaluate("grid => { grid.scrollLeft = 0 }")
        page.take_screenshots(f"browser-{width}")
    assert set(titles(page)) >= {"Number", "State", "Branch", "Took", "Created (UTC)"}
    grid = page.find(GRID)
    assert grid.evaluate("grid => grid.scrollWidth <= grid.clientWidth"), "all of them are visible"
    cut = grid.evaluate(
        "grid => [...grid.querySelectorAll('.bf-seconds')].filter(it => it.scrollWidth > it.clientWidth)"
    )
    assert cut == []
    page.page.set_viewport_size({"width": 480, "height": 1500})
    page.wait_until(f"() => document.querySelectorAll('{GRID} .bf-head .bf-cell').length === 4")
    assert titles(page) == ["Number", "State", "Took", "Created (UTC)"]
    assert grid.evaluate("grid => grid.scrollWidth <= grid.clientWidth"), "all of them are visible"
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d", page.find(f"{GRID} .bf-body .bf-time").first.inner_text())
    page.page.screenshot(path=page.screenshots / "browser-480.png")
    page.find("button:visible", has_text="Close").first.click()
    page.wait_until(f"() => document.activeElement.matches('{GRID}')")
    page.page.set_viewport_size({"width": 1400, "height": 1500})
    page.wait_until(
        f"() => document.querySelector('{GRID}').offsetWidth > document.querySelector('.bf-browser').offsetWidth - 20"
    )


def survive_a_server_outage(page: Page, ci: bf.workspace.Workspace, tmp_path: Path) -> None:
    port = urlsplit(ci.sandbox.url).port
    ci.sandbox.stop()
    page.press("Load")
    page.wait(re.compile(r"Waiting \d+ s: no readable response"))
    page.wait("No response from http://127.0.0.1", 60)
    page.wait("Showing previous results (created from 10d)")
    page.find(".bf-foot", has_text="(previous results)").wait_for()
    page.take_screenshots("browser-no-server")
    with bf.sandbox(path=tmp_path / "sandbox.db", port=port):
        page.press("Load")
        page.wait("complete", 60)
        page.find(".bf-stale").wait_for(state="detached")
