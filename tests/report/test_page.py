"""The page and the summary: their text, and their layout in a browser, on a phone, in the dark theme and on paper."""

from __future__ import annotations

import base64
import io
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import Browser

from buildframe import metrics, plots
from buildframe.formatting import format_duration
from buildframe.report import page as page_module
from buildframe.report import plots as plots_module
from buildframe.report.content import Finding, Report
from buildframe.report.findings import findings
from buildframe.report.page import render, summary
from buildframe.report.plots import HEIGHT, WIDTH, EmbeddedPlot
from tests.chromium import launched
from tests.report.reports import VERDICTS, Viewer, made, opened, report_of_month, without_builds

pytestmark = pytest.mark.long

WHY = (
    "The listing of builds stopped at Mon 19 Oct 2026, 08:15 UTC: 503 Service Unavailable.",
    "Jobs of 3 builds could not be read.",
    "The flaky tests of the suite rspec are those of last week.",
)
LONG = "a-very-long-name/" * 12
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}


@pytest.fixture(scope="module")
def whole() -> Report:
    return replace(report_of_month("2026-10-26T08:00Z"), verdicts=VERDICTS)


@pytest.fixture(scope="module")
def reports(whole: Report, small_report: Report) -> dict[str, Report]:
    few = small_report
    one = few.builds[few.builds["id"] == few.builds["id"].iloc[-1]]
    return {
        "month": whole,
        "one build": made(one, few.jobs[few.jobs["build_id"].isin(one["id"])], few.pipelines, None, 3),
        "no builds": without_builds(few),
        "incomplete": with_long_names(replace(few, why=WHY, verdicts=VERDICTS, source=LONG)),
    }


def with_long_names(report: Report) -> Report:
    def rename(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(**{name: LONG + table[name] for name in ("pipeline", "queue", "branch") if name in table})

    tables = {name: rename(table) for name, table in report.measurements.tables().items()}
    measurements = replace(report.measurements, **tables | {"outages": tables["outages"].iloc[:0]})
    return replace(
        report,
        measurements=measurements,
        findings=tuple(findings(measurements, report.period)),
        broken=(),
        builds=rename(report.builds),
        jobs=rename(report.jobs),
    )


NAMES = ("month", "one build", "no builds", "incomplete")


@pytest.fixture(scope="module")
def pages(reports: dict[str, Report]) -> dict[str, str]:
    """Return the pages: that of the month with its plots, and others with white and black images."""
    pages = {"month": render(reports["month"])}
    with pytest.MonkeyPatch.context() as patch:
        blank = EmbeddedPlot(image("white"), image("black"), "Caption", "Alternative.")
        patch.setattr(page_module, "render_plots", lambda report: [blank] * 4 if len(report.builds) else [])
        return pages | {name: render(report) for name, report in reports.items() if name != "month"}


def image(color: str) -> str:
    file = io.BytesIO()
    Image.new("RGB", (2 * WIDTH, 2 * HEIGHT), color).save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as started:
        yield started


@pytest.fixture(scope="module")
def viewer(browser: Browser) -> Callable[[str, str], Viewer]:
    """Return one page for each look and scheme, because each further page takes half a second."""
    looks = {"desktop": DESKTOP, "phone": PHONE}
    return cache(lambda look, scheme: Viewer(browser, **looks[look], color_scheme=scheme))


# Text


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Omit the plots, because they take most of the time."""
    monkeypatch.setattr(page_module, "render_plots", lambda report: [])


def test_the_head_names_organization_periods_and_completeness(pages: dict[str, str]) -> None:
    page = pages["month"]
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert "<title>CI of acme, Mon 19 to Sun 25 Oct 2026</title>" in page
    assert "compared with Mon 12 to Sun 18 Oct 2026 (7 days each, UTC)" in page
    assert "as of Mon 26 Oct 2026, 08:00 UTC" in page
    assert "✓ COMPLETE" in page
    assert "INCOMPLETE" not in page
    page = pages["incomplete"]
    assert "<title>Incomplete: CI of acme" in page
    assert "⚠ INCOMPLETE" in page
    assert all(reason in page for reason in WHY)


@pytest.mark.usefixtures("without_plots")
def test_the_conclusions_concern_only_what_was_compared(reports: dict[str, Report]) -> None:
    answers = conclusions(render(reports["month"]))
    assert re.match(
        r"▲ api has been 4 min \d+ s slower at the median since \d+ Oct Why: integration \+3 min \d* ?s? ?\(run\), "
        r"other \+\d+ s; in all \+3 min \d+ s on average\. Cost: Since 19 Oct, \d+ passed builds took \d h \d+ min "
        r"longer in all\. The median wall time of passed builds of api has been longer since about [^;]*; the mean is ",
        answers["Are we slower?"],
    )
    assert "The longest waits are in the queue macos: of its " in answers["Do we wait for agents?"]
    assert "builds created (" in answers["What else changed?"]
    quiet = conclusions(page := render(replace(reports["month"], findings=())))
    assert "What changed" not in page
    assert page.index("Nothing changed significantly") < page.index("What did not change")
    assert quiet["Are we slower?"].startswith("No significant change. Compared: the median wall time of 8 pipelines (")
    assert re.search(
        r"If builds of \w+ take \d+ % longer, reports show it within 7 days in four of five cases\.",
        quiet["Are we slower?"],
    )
    reliable = quiet["Are we less reliable?"]
    assert reliable.startswith("No significant change. Flakiest: e2e of web, at random in ")
    assert "Compared: the success rate of 8 pipelines (" in reliable
    assert re.search(r"If the success rate of \w+ falls by \d+ points, reports show it within 7 days", reliable)
    assert quiet["Do we wait for agents?"].startswith("No significant change. ")
    better = Finding("speed", "web", "Builds of web take less.", bad=False)
    good = conclusions(render(replace(reports["month"], findings=(better,))))
    assert good["Are we slower?"].startswith("✓ Builds of web take less. Compared: ")


@pytest.mark.usefixtures("without_plots")
def test_the_first_screen_is_in_the_order_of_importance(whole: Report) -> None:
    found = (*whole.findings, Finding("waiting", "macos", "It waits less", bad=False))
    cost = metrics.cost(whole.period.of(whole.jobs, "finished_at"), {"*": 0.1}, by="pipeline")
    report = replace(whole, findings=found, measurements=replace(whole.measurements, cost=cost))
    page = render(report)
    parts = ["Broken now", "What changed", "▲ api has been", "Why:", "Cost:", "✓ It waits less", "What else changed?"]
    parts += ["What does it cost?", "▲ Exceeded", "What did not change", "Are we less reliable?"]
    text = " ".join(re.sub("<[^>]*>", "", page.split("<body>")[1]).split())
    places = [text.index(part) for part in [*parts, "Significant changes", "Tables The store does not"]]
    assert places == sorted(places)
    markdown = summary(report)
    lines = [markdown.index(part.lstrip("▲✓ ")) for part in parts if part not in ("Why:", "Cost:")]
    assert lines == sorted(lines)
    strip = page.split('<div class="broken">')[1].split("</div>")[0]
    assert [text in strip for text in whole.broken] == [True] * len(whole.broken)
    outages = whole.measurements.outages.query("open")
    first = whole.builds.merge(outages[["pipeline", "first_number"]].set_axis(["pipeline", "number"], axis=1))
    assert set(re.findall(r'href="([^"]*)"', strip)) == set(first["web_url"])
    assert "Broken now" not in render(replace(whole, broken=()))


@pytest.mark.usefixtures("without_plots")
def test_links_lead_to_the_pages_of_the_service_and_those_of_a_sandbox_say_so(whole: Report) -> None:
    said = "This report is about a sandbox"
    page = render(whole)
    assert said in page
    assert said in summary(whole)
    known = {*whole.builds["web_url"], *whole.pipelines["web_url"]}
    links = set(re.findall(r'href="([^#"][^"]*)"', page))
    assert links <= known
    assert whole.pipelines.set_index("slug").loc["api", "web_url"] in links
    served = whole.builds.assign(web_url="https://ci.example.com/acme/web/builds/1")
    hosted = replace(whole, builds=served)
    assert said not in render(hosted) + summary(hosted)


@pytest.mark.usefixtures("without_plots")
def test_the_numbers_behind_the_headlines_are_those_of_the_files(whole: Report) -> None:
    (row,) = tables(render(whole))["level_changes"][1:]
    (change,) = whole.tables()["level_changes"].to_dict("records")
    finding = next(one for one in whole.findings if one.change is not None)
    assert words(row[0]) == finding.subject == change["pipeline"]
    assert row[1] == "median wall time"
    assert row[2] == f"since {change['since'].day} {change['since']:%b}"
    assert row[2] in finding.headline
    assert row[4:6] == [format_duration(change["before"]), format_duration(change["after"])]
    assert words(row[3]).startswith(f"▲ +{format_duration(change['change'])}+")
    assert f"interval +{format_duration(change['low'])} to +{format_duration(change['high'])}" in row[3]
    assert row[7:9] == [f"{change['n_before']}", f"{change['n']}"]
    assert words(row[9]) == f"#{change['number_before']:.0f} to #{change['number_after']:.0f}"
    compared = next(one for one in tables(render(whole))["wall_time"] if words(one[0]) == change["pipeline"])
    assert words(compared[1]) == f"▲ longer {row[2]}"
    assert f"{format_duration(change['change'])} slower at the median" in finding.headline


def test_the_plot_marks_the_change_of_the_headline(whole: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[pd.DataFrame] = []
    monkeypatch.setattr(plots, "duration_trend", lambda *_, changes, **__: marked.append(changes))
    monkeypatch.setattr(plots_module, "_draw_pngs", lambda draw: (draw(None) if not marked else None, ("", ""))[1])
    compared = replace(whole.findings[0].change, change=300.0, before=600.0, compares="period")
    for change in (whole.findings[0].change, compared):
        marked.clear()
        plots_module.render_plots(replace(whole, findings=(replace(whole.findings[0], change=change),)))
        (mark,) = marked[0].to_dict("records")
        numbers = [mark[name] for name in ("at", "at_low", "at_high", "p50_change_s", "p50_before_s")]
        assert numbers == [change.since, change.since_low, change.since_high, change.change, change.before]


@pytest.mark.usefixtures("without_plots")
def test_headline_findings_and_tables_name_one_day(whole: Report) -> None:
    page = render(whole)
    (first, *_) = [finding for finding in whole.findings if finding.question == "speed"]
    assert first.since is not None
    day = f"since {first.since.day} {first.since:%b}"
    assert conclusions(page)["Are we slower?"].startswith(f"▲ {first.headline} Why: ")
    assert first.headline.endswith(f" slower at the median {day}")
    cells = {words(row[0]): words(row[1]) for row in tables(page)["wall_time"][1:]}
    assert cells.pop(first.subject) == f"▲ longer {day}"
    assert not [cell for cell in cells.values() if "since" in cell]  # no other pipeline has a finding


@pytest.mark.usefixtures("without_plots")
def test_a_change_that_the_periods_do_not_show_is_in_the_table_too(whole: Report) -> None:
    compared = {
        name: getattr(whole.measurements, name).assign(p50_notable=False) for name in ("wall_time", "step_time")
    }
    measurements = replace(whole.measurements, **compared)
    report = replace(whole, measurements=measurements, findings=tuple(findings(measurements, whole.period)))
    page = render(report)
    assert re.match(r"▲ api has been .* slower at the median since ", conclusions(page)["Are we slower?"])
    first, *others = tables(page)["wall_time"][1:]
    assert (words(first[0]), words(first[1])[:14]) == ("api", "▲ longer since")
    assert {words(row[1]) for row in others} == {""}


def test_without_builds_to_compare_the_page_draws_no_conclusions(pages: dict[str, str]) -> None:
    for name in ("one build", "no builds"):
        answers = conclusions(pages[name])
        first = ("Are we slower?", "Are we less reliable?", "Do we wait for agents?")
        assert all(answers[question].startswith("Nothing to compare. There are ") for question in first)
        assert "Nothing could be compared" in pages[name]
        assert "What could not be compared" in pages[name]
        assert "What did not change" not in pages[name]


def conclusions(page: str) -> dict[str, str]:
    """Return the text below each question."""
    changed = re.findall(r"<article[^>]*>\s*<h3>(.*?)</h3>(.*?)</article>", page, re.DOTALL)
    unchanged = re.findall(r'<dl class="answers">(.*?)</dl>', page, re.DOTALL)
    others = re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", " ".join(unchanged), re.DOTALL)
    return {question: " ".join(re.sub("<[^>]*>", "", rest).split()) for question, rest in [*changed, *others]}


def test_exceeded_limits_come_first(pages: dict[str, str]) -> None:
    listed = re.findall(r'<li class="(over|perhaps|unknown|within)"', pages["month"])
    assert listed == ["over", "perhaps", "unknown"]
    assert "1 exceeded, 1 perhaps exceeded, 1 unknown, 1 met." in pages["month"]
    assert "<h2>Limits</h2>" not in pages["month"]
    assert "exceeded" not in pages["no builds"]


@pytest.mark.usefixtures("without_plots")
def test_limits_beyond_the_first_screen_follow_the_changes(whole: Report) -> None:
    page = render(replace(whole, verdicts=VERDICTS * 3))
    first, more = page.split("<h2>Limits</h2>")
    listed = [re.findall(r'<li class="(over|perhaps|unknown|within)"', part) for part in (first, more)]
    assert listed == [["over"] * 3 + ["perhaps"], ["perhaps"] * 2 + ["unknown"] * 3]
    assert '<a href="#limits">5 further limits</a>' in first


def tables(page: str) -> dict[str, list[list[str]]]:
    """Return the rows of each table, each with its cells as HTML."""
    sections = re.findall(r'<section class="table(?: long)?" aria-labelledby="(\w+)">(.*?)</section>', page, re.DOTALL)
    rows = {name: re.findall(r"<tr>(.*?)</tr>", section, re.DOTALL) for name, section in sections}
    return {name: [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in of] for name, of in rows.items()}


def words(cell: str) -> str:
    return re.sub("<[^>]*>", "", cell)


def test_the_tables_contain_the_measurements(whole: Report, pages: dict[str, str]) -> None:
    found = tables(pages["month"])
    names = (
        "level_changes wall_time explanation step_time success step_failures outages queue_time load waste flake_scores"
    )
    assert " ".join(found) == names
    assert all(len(row) == len(of[0]) for of in found.values() for row in of)
    assert len(found["wall_time"]) == 1 + len(whole.measurements.wall_time)
    api = next(row for row in found["success"] if words(row[0]) == "api")
    expected = whole.measurements.success.set_index("pipeline").loc["api"]
    assert api[2] == f"{100 * expected['rate']:.1f} %"
    assert api[4] == f"{expected['passed']:.0f} of {expected['n']:.0f}"
    assert words(found["step_time"][1][1]) == "integration"
    assert found["step_time"][1][3].startswith("▲ longer since ")
    assert 'class="range"' in found["step_time"][1][4]
    assert [row[:2] for row in found["queue_time"][1:3]] == [
        [found["queue_time"][1][0], name] for name in ("median", "p95")
    ]
    ends = [row[3] for row in found["outages"][1:]]
    assert ends == sorted(ends, key=lambda end: "still" not in end)
    assert sum("still" in end for end in ends) == whole.measurements.outages["open"].sum() > 0
    (link,) = re.findall(r'href="([^"]*)"', found["outages"][1][6])
    assert link in set(whole.builds["web_url"])
    shares = [float(cell.removesuffix(" %")) for cell in found["waste"][1][3:]]
    assert sum(shares) == pytest.approx(100, abs=0.3)


@pytest.mark.usefixtures("without_plots")
def test_a_higher_success_rate_is_better_and_a_higher_failure_rate_is_worse(whole: Report) -> None:
    change = {"low": 0.1, "high": 0.2, "change": 0.15, "notable": True}
    measured = whole.measurements
    success, failures = measured.success.assign(**change), measured.step_failures.assign(**change)
    undated = {name: getattr(measured, name).iloc[:0] for name in ("failure_changes", "step_failure_changes")}
    compared = replace(measured, success=success, step_failures=failures, **undated)
    page = render(replace(whole, measurements=compared))
    assert page.count('<td class="text better">▲ higher</td>') == len(success)
    assert page.count('<td class="text worse">▲ higher</td>') == len(failures)


@pytest.mark.usefixtures("without_plots")
def test_flaky_tests_are_listed_if_the_store_has_them(small_report: Report, pages: dict[str, str]) -> None:
    assert "flaky_tests" not in tables(pages["month"])
    page = render(small_report)
    assert len(tables(page)["flaky_tests"]) == 1 + 10
    assert re.search(r'<p class="note">\d+ tests: [^<]*active[^<]*\.</p>', page)


def test_a_store_that_is_too_young_for_four_periods_is_named(pages: dict[str, str]) -> None:
    assert "so no 28 days are compared with 28." in pages["month"]
    assert "28 days against 28" not in pages["month"]


@pytest.mark.usefixtures("without_plots")
def test_a_flaky_test_that_the_first_list_already_shows_has_no_exact_start(small_report: Report) -> None:
    rows = tables(render(small_report))["flaky_tests"][1:]  # its store has one list
    assert {row[2] for row in rows} <= {"reopened", "active"}
    assert all(row[3].startswith("by ") for row in rows)
    shown = [(pd.to_datetime(row[3].removeprefix("by ")), pd.to_datetime(row[5])) for row in rows]
    assert all(since <= latest for since, latest in shown)
    owners = {re.sub("<.*?>", "", row[6]) for row in rows} - {""}
    assert owners
    assert all(re.fullmatch(r"[0-9a-f]{8}(, [0-9a-f]{8})*", owner) for owner in owners)


@pytest.mark.usefixtures("without_plots")
def test_censored_and_negative_durations_are_counted(whole: Report) -> None:
    queues = whole.measurements.queue_time.assign(n_censored=2, n_negative=1)
    page = render(replace(whole, measurements=replace(whole.measurements, queue_time=queues)))
    assert f"{2 * len(queues)} waits in the period had no end" in page
    assert f"{len(queues)} durations below zero" in page


@pytest.mark.usefixtures("without_plots")
def test_a_queue_in_which_too_many_jobs_wait_has_a_lower_bound(whole: Report) -> None:
    """100 jobs that waited a minute, and 30 that have waited for two hours."""
    nothing = float("nan")
    unknown = dict.fromkeys(("p95_s", "p95_low_s", "p95_high_s", "p95_change_s", "p95_change_p"), nothing)
    bound = {"n": 100, "n_censored": 30, "p50_s": 60.0, "p95_at_least_s": 7200.0, **unknown}
    queue = whole.measurements.queue_time.head(1).assign(queue="gpu", **bound)
    queue = queue.assign(p95_change_low_s=nothing, p95_change_high_s=nothing)
    page = render(replace(whole, measurements=replace(whole.measurements, queue_time=queue)))
    assert "In the queue gpu, 30 of 130 jobs did not start: one in twenty waits at least 2 h." in page
    assert '<td class="number">at least 2 h</td>' in page
    assert "30 waits in the period had no end or no start. They count for as long as they were seen." in page


def test_the_summary_is_short_and_agrees_with_the_page(reports: dict[str, Report]) -> None:
    for report in reports.values():
        text = summary(report)
        assert len(text.splitlines()) <= 60
        assert text.startswith(f"# CI of acme: {report.period.start:%a %d} to ")
        assert ("**Complete.**" in text) == report.complete
        assert all(f"- Because: {reason}"[:40] in text for reason in report.why)
    text = summary(reports["month"])
    assert "- **Broken now:** billing has been broken on main since " in text
    assert re.search(
        r"- \*\*Worse:\*\* api has been .* slower at the median since [^:]*: integration \+.* Since 19 Oct, ", text
    )
    assert re.search(
        r"\*\*Worse:\*\* .*The median wall time of passed builds of api has been longer since about ", text
    )
    assert "- **Are we less reliable?** No significant change" in text
    assert "- **Exceeded:** The p95 of queue time of macos is 48 min" in text
    assert re.search(r"^\| api \| \d+ \| [\d.]+ % \| ", text, re.MULTILINE)
    assert re.search(r"^\| macos \| \d+ \| ", text, re.MULTILINE)


def test_a_report_of_much_data_is_still_small(whole: Report) -> None:
    def many(table: pd.DataFrame) -> pd.DataFrame:
        copies = pd.concat([table] * 50, ignore_index=True)
        names = [name for name in ("pipeline", "queue") if name in copies]
        suffixes = pd.Series(range(50)).repeat(len(table)).astype("str").to_numpy()
        return copies.assign(**{name: copies[name] + suffixes for name in names})

    measurements = replace(
        whole.measurements, **{name: many(table) for name, table in whole.measurements.tables().items()}
    )
    findings = tuple(
        Finding("speed", "web", f"Step {k} of web takes longer. {'x' * 200}", bad=True) for k in range(300)
    )
    big = replace(whole, measurements=measurements, findings=findings, why=WHY * 100, verdicts=VERDICTS * 50)
    assert len(render(big).encode()) < 1_000_000
    assert len(summary(big).splitlines()) <= 64


# Layout


@pytest.mark.parametrize("name", NAMES)
def test_the_page_can_be_read(pages: dict[str, str], viewer: Callable[[str, str], Viewer], name: str) -> None:
    for look, scheme in itertools.product(("desktop", "phone"), ("light", "dark")):
        viewed = viewer(look, scheme)
        viewed.show(pages[name])
        page = viewed.page
        assert page.evaluate("document.documentElement.scrollWidth") == page.viewport_size["width"], look
        assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0 && i.alt)")
        assert page.evaluate("getComputedStyle(document.body).maxWidth") != "none", "the policy lets the style in"
        assert page.evaluate(FAINTEST) >= 4.5, scheme
        drawn = page.evaluate("[...document.images].map(i => i.currentSrc == i.getAttribute('src'))")
        assert drawn == [scheme == "light"] * (0 if name == "no builds" else 4)
        assert viewed.seen == []


FAINTEST = """() => {
    const parts = color => color.match(/[\\d.]+/g).map(Number)
    const bright = color => parts(color).slice(0, 3).map(p => p / 255)
        .map(p => p <= 0.04045 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4)
        .reduce((sum, p, i) => sum + p * [0.2126, 0.7152, 0.0722][i], 0)
    const ground = e => !e ? 'rgb(255,255,255)'
        : parts(getComputedStyle(e).backgroundColor)[3] === 0 ? ground(e.parentElement)
        : getComputedStyle(e).backgroundColor
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    let faintest = 21
    while (texts.nextNode()) {
        if (!texts.currentNode.textContent.trim()) continue
        const e = texts.currentNode.parentElement
        const [dark, light] = [bright(getComputedStyle(e).color), bright(ground(e))].sort((a, b) => a - b)
        faintest = Math.min(faintest, (light + 0.05) / (dark + 0.05))
    }
    return faintest
}"""


LOWEST = "Math.max(...[...document.querySelectorAll('SOME')].map(e => e.getBoundingClientRect().bottom))"


def test_the_first_screen_shows_the_conclusion(pages: dict[str, str], viewer: Callable[[str, str], Viewer]) -> None:
    desktop, phone = viewer("desktop", "light"), viewer("phone", "light")
    for name in NAMES:
        desktop.show(pages[name])
        assert desktop.page.evaluate(LOWEST.replace("SOME", "header, .answer")) < 800
    phone.show(pages["month"])
    assert phone.page.evaluate(LOWEST.replace("SOME", ".broken, .finding .headline")) < 844


@pytest.mark.parametrize("name", ["month", "incomplete"])
def test_the_page_can_be_printed(pages: dict[str, str], browser: Browser, name: str) -> None:
    page, _ = opened(browser, pages[name], **DESKTOP, color_scheme="dark")
    printed = page.pdf(prefer_css_page_size=True)
    most = 11 if name == "incomplete" else 6  # names of several lines make high tables, which are not cut
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= most
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 703, "height": 1000})  # A4 without its margins
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    assert page.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
    assert page.evaluate("[...document.images].every(i => i.currentSrc == i.getAttribute('src'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.context.close()


def test_every_table_has_heads_and_a_name(pages: dict[str, str], browser: Browser) -> None:
    page, _ = opened(browser, pages["month"])
    assert page.evaluate(
        "[...document.querySelectorAll('svg')].every(e => e.role == 'img' && e.firstChild.textContent)"
    )
    assert page.evaluate("document.querySelectorAll('table').length") == 11
    assert page.evaluate("[...document.querySelectorAll('thead th')].every(e => e.scope == 'col' && e.innerText)")
    assert page.evaluate("[...document.querySelectorAll('tbody tr')].every(e => e.cells[0].scope == 'row')")
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    assert page.evaluate("[...document.querySelectorAll('[aria-labelledby]')]"
                         ".every(e => document.getElementById(e.getAttribute('aria-labelledby')))")  # fmt: skip
    page.context.close()


def test_the_content_security_policy_blocks_foreign_content(pages: dict[str, str], browser: Browser) -> None:
    more = "<script>alert(1)</script><style>h1 { display: none }</style><img src='https://evil.example.com/x.png'>"
    page, seen = opened(browser, pages["month"].replace("</main>", f"{more}</main>"))
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).display") == "block"
    assert len(seen) == 3
    assert all(one.startswith("console ") and "Content Security Policy" in one for one in seen)
    page.context.close()
