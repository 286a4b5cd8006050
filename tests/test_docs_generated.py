"""Generated parts of the documentation match the code: images, the list of decisions, parts of the reference."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any
from unittest.mock import patch

import pytest

import buildframe as bf
from buildframe import cli, plots, widgets
from buildframe.report import thresholds
from buildframe.report.objectives import Objective
from tests import worlds

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a module that makes pages."""
    monkeypatch.syspath_prepend(str(DOCS))
    return lambda name: importlib.import_module(f"make_{name}")


# --- images of the architecture ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_plan_shows_every_package_and_implies_every_import(make: Callable[[str], ModuleType]) -> None:
    architecture = make("architecture")
    imports = architecture.imports()
    with patch.object(architecture, "imports", lambda: imports):  # which takes seconds
        image = architecture.packages()
    package = Path(bf.__file__).parent
    names = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(re.findall(r'<text class="n"[^>]*>(\w+)<', image)) == names - {"__init__"}
    drawn = set(re.findall(r"<title>(\w+) imports (\w+)</title>", image))
    assert imports == imports_by_grimp()
    assert drawn < imports
    assert all(b in architecture.below(drawn, a) for a, b in imports)
    rows = architecture.rows_of(architecture.layers(), imports)
    row_of = {name: number for number, row in enumerate(rows) for name in row}
    assert all(row_of[a] < row_of[b] for a, b in imports), "arrows lead down"


def imports_by_grimp() -> set[tuple[str, str]]:
    """Return the imports between modules of the top level, as import-linter finds them."""
    import grimp  # of import-linter, which the extra `test` lacks

    graph = grimp.build_graph("buildframe")
    pairs = ((a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a))
    tops = ((a.split(".")[1:2], b.split(".")[1:2]) for a, b in pairs)
    return {(a[0], b[0]) for a, b in tops if a and b and a != b}


def test_a_page_takes_the_way_of_the_image(make: Callable[[str], ModuleType]) -> None:
    architecture = make("architecture")
    steps = {code_of(name): name for name, _ in (*architecture.REQUEST, *architecture.RESPONSE)}
    called: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in steps:
            called.setdefault(steps[frame.f_code])

    with worlds.sandbox(builds=30, days=2) as ci:
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            ci.builds(created_from="2026-01-01", workers=1, progress=False)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert list(called) == list(steps.values())


def code_of(name: str) -> CodeType:
    """Return the code of a function, or of what creates an object."""
    found: Any = pydoc.locate(f"buildframe.{name}")
    assert found is not None, f"{name} does not exist"
    function: Any = found.__init__ if isinstance(found, type) else found
    return inspect.unwrap(function).__code__


# --- decisions --------------------------------------------------------------------------------------------------------

RECORDS = {path.name: path.read_text(encoding="utf-8") for path in sorted((DOCS / "decisions").glob("0*.md"))}
INDEX = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")


def successors(text: str) -> set[str]:
    """Return the files of the records that a text says are the successors of another."""
    marks = re.findall(r"(?:partly )?superseded by .*", text, re.IGNORECASE)
    return set(re.findall(r"\((0\d+-[\w-]+\.md)\)", " ".join(marks)))


def test_the_index_of_decisions_has_each_record_once() -> None:
    listed = re.findall(r"^- (\d{4}) \[(.*?)\]\((.*?)\)", INDEX, re.M)
    assert sorted(file for *_, file in listed) == list(RECORDS)
    for number, title, file in listed:
        assert file.startswith(number)
        assert RECORDS[file].startswith(f"# {title}\n")


def test_superseded_decisions_say_so_at_their_top_and_in_the_index() -> None:
    lines = {file: line for line in INDEX.splitlines() for file in re.findall(r"^- \d{4} \[.*?\]\((.*?)\)", line)}
    marked = 0
    for file, text in RECORDS.items():
        top = text.split("\n\n")[1].replace("\n", " ")
        assert successors(top) == successors(lines[file]), file
        assert successors(top) <= {later for later in RECORDS if later > file}, file
        assert ("artly superseded" in top) == ("partly superseded" in lines[file]), file
        marked += bool(successors(top))
    assert marked >= 4


# --- reference --------------------------------------------------------------------------------------------------------


def test_the_page_of_the_command_line_has_every_command_option_and_status(make: Callable[[str], ModuleType]) -> None:
    page = "\n".join(make("command_line").command_line())
    declared = cli.declarations()
    parts = dict(zip(re.findall(r"^## buildframe (\w+)$", page, re.M), page.split("\n## ")[1:], strict=True))
    assert parts.keys() == declared["command"].keys() == cli.COMMANDS.keys()
    for name, command in declared["command"].items():
        groups = [command.get("arguments", {}), command.get("exclusive", {})]
        groups += [declared["shared"][group] for group in command.get("shared", [])]
        rows = re.findall(r"^\| `([\w-]+)", parts[name], re.M)
        assert sorted(rows) == sorted(option for group in groups for option in group)
        statuses = re.findall(r"^\| (\d+) \|", parts[name], re.M)
        assert set(statuses) == {*declared["status"], *command.get("status", {})}
        assert ("124" in statuses) == ("deadline" in command.get("shared", []))


def test_the_page_of_the_configuration_has_every_variable_table_and_key(make: Callable[[str], ModuleType]) -> None:
    pages = make("command_line")
    source = "".join(path.read_text("utf-8") for path in (DOCS.parent / "src").rglob("*.py"))
    assert set(re.findall(r"\bBUILDFRAME_[A-Z_]+\b", source)) == set(pages.ENVIRONMENT)
    page = "\n".join(pages.configuration())
    for kind in (thresholds.Thresholds, Objective):
        assert [each.name for each in fields(kind) if not re.search(rf"^\| `\[?{each.name}\b", page, re.M)] == []


def test_every_error_says_what_to_do(make: Callable[[str], ModuleType]) -> None:
    kinds = [kind for name in bf.__all__ if isinstance(kind := getattr(bf, name), type) and issubclass(kind, Exception)]
    assert len(kinds) >= 18
    for kind in kinds:
        what, to_do, _ = make("operations").advice(kind)
        assert what.endswith("."), kind
        assert to_do.endswith("."), kind
        assert to_do not in ("Attributes", "Parameters")


def test_options_in_texts_of_the_command_line_are_code(make: Callable[[str], ModuleType]) -> None:
    """Else a browser shows a dash in place of their hyphens."""
    pages = make("command_line")
    assert pages.with_code("with `--a`, --b-c or x--d") == "with `--a`, `--b-c` or x--d"
    text = re.sub(r"```.*?```|`[^`]*`", "", "\n".join(pages.command_line()), flags=re.S)
    assert re.findall(r"(?<!\w)--[a-z]\w*", text) == []


def test_each_operation_links_a_method_that_exists(make: Callable[[str], ModuleType]) -> None:
    operations = make("operations")
    rows = {endpoint.name: operations.summary(endpoint) for endpoint in operations.ENDPOINTS}
    links = re.findall(r"\(api/(.*?)\.rst\)", str(list(rows.values())))
    assert len(links) >= len(rows)
    assert [name for name in links if pydoc.locate(name) is None] == []
    assert [f"ci.{name}" in rows["list_builds"][1] for name in ("builds", "jobs", "history")] == [True] * 3


def test_search_words_lead_to_one_page_that_exists(make: Callable[[str], ModuleType]) -> None:
    make("reference")  # finds the folder
    words = importlib.import_module("search_words").WORDS
    assert [page for page in words if not (DOCS / f"{page}.md").exists()] == []
    all_words = [word.lower() for of_page in words.values() for word in of_page]
    assert len(all_words) == len(set(all_words))
    assert {"slo", "429", "throttling", "deployment", "autoscaling", "95 %", "marimo"} <= {*all_words}
    assert not any("," in word for word in all_words)


# --- gallery ----------------------------------------------------------------------------------------------------------


def test_the_gallery_has_each_plot_once_by_question(make: Callable[[str], ModuleType]) -> None:
    gallery = make("gallery")
    names = [name for name in plots.__all__ if name not in gallery.NOT_DRAWN]
    parts = list(gallery.sections(names))
    assert sorted(re.findall(r"^### (\w+)$", "\n".join(parts), re.M)) == sorted(names)
    assert parts[0] == "## Are builds slower than before, and since when?"
    with pytest.raises(AssertionError, match="unknown"):
        list(gallery.sections(["unknown"]))


def test_each_widget_has_a_small_image_for_each_theme(make: Callable[[str], ModuleType]) -> None:
    gallery = make("gallery")
    shown = {name.rpartition(".")[2] for name in gallery.WIDGETS}
    assert shown == {*widgets.__all__, "explore"}
    images = {path.name: path.stat().st_size for path in gallery.WIDGET_IMAGES.iterdir()}
    assert set(images) == {f"{name}-{theme}.webp" for name in shown for theme in ("light", "dark")}
    assert max(images.values()) <= 60_000


def test_the_code_of_a_widget_shows_it(make: Callable[[str], ModuleType]) -> None:
    """Doctest runs the statements; the last line is the widget, and nothing closes it."""
    gallery = make("gallery")
    for name in gallery.WIDGETS:
        *_, shown, _ = gallery.widget_code(name).split("\n")
        assert re.search(rf"^{shown} = {re.escape(name)}\(", gallery.widget_code(name), re.M)
