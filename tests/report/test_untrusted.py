"""Untrusted names appear as text in the page, both in the markup and on screen, and in the summary."""

from __future__ import annotations

import functools
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import resources

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser

from buildframe.formatting import escape_invisible, format_name, truncate_middle
from buildframe.report import page as page_module
from buildframe.report.content import Report
from buildframe.report.page import render, summary
from buildframe.report.plots import EmbeddedPlot
from buildframe.templates import web_link
from tests.chromium import launched
from tests.report.reports import FIELDS, NAMES, SENTENCES, Viewer, kept, opened, shrunk, with_text, with_texts
from tests.report.untrusted import UNTRUSTED

DOT = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg"
DOT += "=="
ELEMENTS = "[...document.querySelectorAll('*')].map(e => [e.tagName, ...e.getAttributeNames().sort()].join(' '))"
CELLS = {*NAMES, "subject"}
LINKS = "[...document.querySelectorAll('a')].map(a => a.protocol + ' ' + a.getAttribute('href'))"
IN_SUMMARY = {"why", "finding", "cause", "detail", "broken", "verdict", "pipeline", "queue"}


@pytest.fixture(scope="module")
def report(small_report: Report) -> Report:
    return shrunk(small_report)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as started:
        yield started


GROUPS = [(*UNTRUSTED[at : at + 3], "harmless", "harmless too")[:3] for at in range(0, len(UNTRUSTED), 3)]
"""The texts by three, which are in one page, because each page takes a third of a second."""
FIRST = GROUPS[:2]
"""Those of the first lane: scripts, elements that load and handlers."""


def whose(texts: Sequence[str]) -> str:
    parts = (" ".join(f"{text} {part}" for text in texts) for part in ("organization", "restriction"))
    return ", pipeline ".join(escape_invisible(truncate_middle(part, 2000)) for part in parts)


@pytest.fixture(scope="module")
def viewer(browser: Browser) -> Viewer:
    """Without the page's own policy, too, which would stop scripts and requests anyway.

    All texts are shown in one page, one after the other, because each further page takes half a second.
    """
    return Viewer(browser, bypass_csp=True)


@pytest.fixture(scope="module")
def harmless(report: Report, viewer: Viewer) -> Counter[str]:
    viewer.show(render(with_texts(report, ["harmless", "harmless 2", "harmless 3"])))
    return Counter(viewer.page.evaluate(ELEMENTS))


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Omit the plots, because they take most of the time."""
    monkeypatch.setattr(page_module, "render_plots", lambda report: [])


@pytest.mark.usefixtures("without_plots")
def test_each_untrusted_text_is_put_into_every_field(report: Report) -> None:
    html = render(with_text(report, "harmless"))
    assert [field for field in FIELDS if f"harmless {field}" not in html] == []


def check_pages(
    groups: Sequence[tuple[str, ...]], report: Report, viewer: Viewer, harmless: Counter[str], plots: bool
) -> None:
    """Show each group of texts in a page: without own plots, three images have the texts as captions."""
    wrong = {}
    for texts in groups:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("error")
            if not plots:  # test_plots checks the text in plots, which take most of the time
                names = [kept(texts[n % 3]) for n in range(4)]
                shown_plots = [EmbeddedPlot(DOT, DOT, f"{name} {n}", f"{name} {n}.") for n, name in enumerate(names)]
                patch.setattr(page_module, "render_plots", lambda report, shown_plots=shown_plots: shown_plots)
            html = render(with_texts(report, texts))
        viewer.show(html)
        page = viewer.page
        page.mouse.move(0, 0)
        page.mouse.move(600, 300)
        page.keyboard.press("Tab")
        elements = {name: n for name, n in Counter(page.evaluate(ELEMENTS)).items() if name != "A href rel"}
        links = page.evaluate(LINKS)
        addresses = {one.partition(": ")[2] for one in links}
        content = page.evaluate("document.body.textContent")
        title = " ".join(f"Incomplete: CI of {whose(texts)}, ".split()) + page.title().rpartition(",")[2]
        found = {
            "elements": elements != harmless and elements,
            "links": [one for one in links if not one.startswith(("http: ", "https: "))],
            "addresses": {one for one in addresses if one[:1] != "#"} ^ {text for text in texts if web_link(text)},
            "hidden": [(text, field) for text in texts for field in FIELDS if shown(text, field) not in content],
            "title": page.title() != title and page.title(),
            "seen": [*viewer.seen],
        }
        if any(found.values()):
            wrong[texts] = {name: what for name, what in found.items() if what}
    assert wrong == {}


def test_the_page_shows_scripts_and_elements_as_text(report: Report, viewer: Viewer, harmless: Counter[str]) -> None:
    check_pages(FIRST, report, viewer, harmless, plots=False)


@pytest.mark.long
def test_the_page_shows_untrusted_text_as_text(report: Report, viewer: Viewer, harmless: Counter[str]) -> None:
    others = [texts for texts in GROUPS if texts not in FIRST]
    check_pages(others, report, viewer, harmless, plots=False)
    check_pages(GROUPS[::13], report, viewer, harmless, plots=True)


@pytest.mark.parametrize(
    "groups",
    [GROUPS[::4], pytest.param([texts for texts in GROUPS if texts not in GROUPS[::4]], marks=pytest.mark.long)],
    ids=["first lane", "others"],
)
def test_every_renderer_shows_untrusted_text_in_the_summary_as_text(
    report: Report, groups: Sequence[tuple[str, ...]]
) -> None:
    harmless_tags, wrong = tags(summary(with_texts(report, ["harmless", "harmless 2", "harmless 3"]))), {}
    for texts in groups:
        markdown = summary(with_texts(report, texts))
        plain = text_of(markdown)
        organization = squeezed(format_name(" ".join(f"{text} organization" for text in texts)))
        found = {
            "organization": organization not in plain,
            "tags": tags(markdown) != harmless_tags and tags(markdown),
            "control characters": set("\x1b\x07\x9b\r\x08\u202e") & set(markdown),
            "hidden": [
                (text, field)
                for text in texts
                for field in IN_SUMMARY
                if squeezed(in_sentence(text, field)) not in plain
            ],
            "references": re.findall(r"(?<!\w)@\w|#\d|!\d|GH-\d|:\w+:|//|[0-9a-f]{7}", markdown.split("\n", 1)[1]),
            # what chat tools take up, whatever is escaped for Markdown
            "of chat tools": re.findall(r"<[!@#a-z/]", markdown),
        }
        if any(found.values()):
            wrong[texts] = {name: what for name, what in found.items() if what}
    assert wrong == {}


@functools.cache
def markdown_parser() -> MarkdownIt:
    return MarkdownIt("gfm-like", {"html": True, "linkify": True})


def tags(markdown: str) -> list[str]:
    """With raw HTML, tables, strikethrough, and every link that can be guessed."""
    html = markdown_parser().render(markdown)
    return re.findall(r"<[^>]*>", html)


def text_of(markdown: str) -> str:
    tokens = markdown_parser().parse(markdown)
    inline = [child.content for token in tokens for child in token.children or ()]
    return squeezed("".join(inline).replace("\u2060", ""))


def squeezed(text: str) -> str:
    """With one blank for many, as Markdown does at the ends of a cell, and titles everywhere."""
    return " ".join(text.split())


def shown(text: str, field: str) -> str:
    """What the page shows of it: of sentences, which hold names, more than of names."""
    held = kept(text) if field in NAMES else text
    return escape_invisible(truncate_middle(f"{held} {field}", 80 if field in CELLS else 2000))


def in_sentence(text: str, field: str) -> str:
    return (
        shown(text, field) if field in SENTENCES else format_name(f"{kept(text) if field in NAMES else text} {field}")
    )


@pytest.mark.usefixtures("without_plots")
def test_a_page_without_links_of_the_service_has_only_its_own_links(report: Report, browser: Browser) -> None:
    html = render(with_text(report, "https://ci.example.com/acme/web/builds/1"))
    page, _ = opened(browser, html)
    assert {a for a in page.evaluate(LINKS) if "#" not in a} == {"https: https://ci.example.com/acme/web/builds/1"}
    page.context.close()


def test_only_web_addresses_become_links() -> None:
    refused = [
        "", None, "javascript:alert(1)", " https://a.example.com", "https://", "https:///x", "java\nscript:x", "//x",
        "x", "data:text/html,x", "file:///etc/passwd", "http://[::1", "https://a.example.com/\u202e", "https://a b.c",
    ]  # fmt: skip
    assert [address for address in refused if web_link(address) is not None] == []


@pytest.mark.long
@pytest.mark.usefixtures("without_plots")
def test_right_to_left_names_do_not_reorder_the_sentence(report: Report, browser: Browser) -> None:
    page, _ = opened(browser, render(with_text(report, "\u05e9\u05dc\u05d5\u05dd")))
    outside = "[...document.querySelectorAll('bdi')].filter(e => getComputedStyle(e).unicodeBidi != 'isolate').length"
    assert page.evaluate(outside) == 0
    heading = "document.querySelector('h1').firstChild.textContent"
    assert page.evaluate(heading) == "CI of "
    page.context.close()


TEMPLATES = [
    file for package in ("report", "widgets") for file in resources.files(f"buildframe.{package}").iterdir()
    if file.name.endswith(".j2")
]  # fmt: skip


def test_the_templates_escape_all_values_and_contain_no_script() -> None:
    unsafe = r"\|\s*safe|Markup|<script|\son\w+\s*=|autoescape|javascript:|https?:"
    unquoted = r"[\w-]+=\{\{"  # an attribute's value stands in quotes
    texts = {file.name: file.read_text("utf-8") for file in TEMPLATES}
    assert len(texts) > 5
    found = {name: re.findall(f"(?i:{unsafe})|{unquoted}", text) for name, text in texts.items()}
    assert {name: words for name, words in found.items() if words} == {}
