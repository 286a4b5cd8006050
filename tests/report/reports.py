"""Reports on the builds of a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import pandas as pd
from playwright.sync_api import Browser, Page

from buildframe.report import store_reader
from buildframe.report.content import Finding, Report, Verdict
from buildframe.report.findings import describe_outages, findings
from buildframe.report.level_changes import LevelChange
from buildframe.report.measurements import Measurements, measure
from buildframe.report.periods import Period
from buildframe.report.thresholds import Thresholds, check_limits
from buildframe.sandbox_server.world.ground_truth import Truth
from buildframe.workspace import Workspace
from tests import worlds

VERDICTS = (
    Verdict("docs", "within", "The success rate of docs is 97.1 %; the limit is 90 %."),
    Verdict("macos", "over", "The p95 of queue time of macos is 48 min; the limit is 10 min."),
    Verdict("web", "perhaps", "The success rate of web is 86.8 %; the limit is 90 %."),
    Verdict("gpu", "unknown", "The queue gpu has no jobs."),
)
BUILDS, JOBS = store_reader._BUILDS, store_reader._JOBS
"""The columns that a report reads."""


def report_of(ws: Workspace, days: int, **changes: Any) -> Report:
    """Return a report of the last days of a workspace."""
    builds, jobs = ws.history()
    return made(builds, jobs, ws.pipelines(), first_snapshot(ws.flaky_tests(suite="rspec")), days, **changes)


def first_snapshot(flaky: pd.DataFrame) -> pd.DataFrame:
    """Return a list of flaky tests as a store has it after its first sync."""
    never = pd.Series(pd.NaT, flaky.index, "datetime64[us, UTC]")
    return flaky.assign(valid_from=flaky["fetched_at"], valid_to=never)


class Month(NamedTuple):
    """The month of a new sandbox: its rows with the columns that a report reads, and what was planted."""

    builds: pd.DataFrame
    jobs: pd.DataFrame
    pipelines: pd.DataFrame
    truth: Truth


def read_month() -> Month:
    """Return the month of a new sandbox, which one process of this run fetches."""

    def fetch() -> Month:
        with worlds.sandbox() as ci:
            builds, jobs = ci.history(columns=BUILDS, job_columns=JOBS, progress=False)
            return Month(builds, jobs, ci.pipelines(), ci.sandbox.truth)

    return worlds.remember("month", fetch)


def report_of_month(as_of: str) -> Report:
    """Return a report on seven days of the month, which one process of this run makes."""

    def make() -> Report:
        builds, jobs, pipelines, _ = read_month()
        own, of_own = builds[builds["created_at"] < as_of], jobs[jobs["build_created_at"] < as_of]
        return made(own, of_own, pipelines, None, 7, as_of=as_of)

    return worlds.remember(f"month until {as_of}", make)


def made(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    pipelines: pd.DataFrame,
    flaky: pd.DataFrame | None,
    days: int,
    as_of: str = "2026-10-30T15:00Z",
    thresholds: Thresholds | None = None,
    **changes: Any,
) -> Report:
    """Return a report as the command makes it."""
    limits = thresholds or Thresholds({}, {}, {})
    builds, jobs = builds[list(BUILDS)], jobs[list(JOBS)]
    now = pd.Timestamp(as_of)
    period = Period.last(now, days)
    since = builds["created_at"].min()
    since = None if pd.isna(since) else since
    measurements = measure(
        builds, jobs, pipelines, flaky, period, since=since, objectives=limits.objectives, rates=limits.rates
    )
    report = Report(
        organization="acme",
        source="ci-history",
        as_of=now,
        period=period,
        why=(),
        measurements=measurements,
        findings=tuple(findings(measurements, period)),
        verdicts=tuple(check_limits(limits, measurements)),
        builds=builds,
        jobs=jobs,
        since=period.history.start,
        broken=tuple(describe_outages(measurements)),
        pipelines=pipelines,
    )
    return replace(report, **changes)


def without_builds(report: Report) -> Report:
    """Return a report on seven days in which there were no builds."""
    return made(report.builds.iloc[:0], report.jobs.iloc[:0], report.pipelines, None, 7, as_of="2026-10-26T08:00Z")


NAMES = ("pipeline", "step", "queue", "branch", "name", "location", "scope")
SENTENCES = ("source", "why", "finding", "cause", "detail", "verdict", "broken")
FIELDS = ("organization", "restriction", "subject", *SENTENCES, *NAMES[:-1])


def kept(text: str) -> str:
    """As a column of a frame holds it: there are no halves of signs in it."""
    return text.encode(errors="replace").decode()


def shrunk(report: Report) -> Report:
    """The report with three rows in each table, because the page may not show others."""

    def shrink(table: pd.DataFrame) -> pd.DataFrame:
        return table.iloc[[number % len(table) for number in range(3)]] if len(table) else table

    tables = {name: shrink(table) for name, table in report.measurements.tables().items()}
    builds = report.builds[report.builds["number"] == tables["outages"]["first_number"].iloc[0]]
    small = {"builds": shrink(builds), "jobs": report.jobs.head(0), "pipelines": shrink(report.pipelines)}
    return replace(report, measurements=replace(report.measurements, **tables), **small)


def with_text(report: Report, text: str) -> Report:
    """The report, shrunk, with this text and the field's name wherever a text can be."""
    return with_texts(report, [text] * 3)


def with_texts(report: Report, texts: Sequence[str]) -> Report:
    """The report, shrunk, with these three texts and the field's name wherever a text can be."""

    def put(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(
            **{
                name: pd.array([kept(f"{text} {name}") for text in texts[: len(table)]], "str")
                for name in NAMES
                if name in table
            }
        )

    def each(field: str) -> tuple[str, ...]:
        return tuple(f"{text} {field}" for text in texts)

    measurements = Measurements(
        **{field.name: put(getattr(report.measurements, field.name)) for field in fields(Measurements)}
    )
    first = measurements.outages["first_number"].iloc[0]
    builds = put(report.builds)
    builds["web_url"] = [kept(text) for text in texts]
    times = (report.period.start, None, None)

    def find(question: Any, text: str) -> Finding:
        names = [kept(f"{text} {name}") for name in ("pipeline", "step", "queue")]
        change = LevelChange(
            *("wall time", "median", *names, True, "day"),
            *(*times, 600.0, 900.0, 300.0, 200.0, 400.0, 0.001, 90, 40, first, first, "s"),
        )
        return Finding(
            question,
            f"{text} subject",
            f"{text} finding",
            bad=True,
            since=report.period.start,
            why=f"{text} cause",
            detail=f"{text} detail",
            change=change,
        )

    questions = ("speed", "reliability", "waiting")  # each begins with another text, because its details are shown
    found = (find(q, text) for turn, q in enumerate(questions) for text in (*texts[turn:], *texts[:turn]))
    verdicts = (replace(one, subject=text, text=text) for one, text in zip(VERDICTS, (texts[0], *texts), strict=True))
    return replace(
        report,
        organization=" ".join(dict.fromkeys(each("organization"))),
        pipeline=" ".join(dict.fromkeys(each("restriction"))),
        broken=each("broken"),
        source=" ".join(dict.fromkeys(each("source"))),
        why=(*each("why"), f"{texts[0]} why"),
        measurements=measurements,
        findings=tuple(found),
        verdicts=tuple(replace(one, subject=f"{one.text} verdict", text=f"{one.text} verdict") for one in verdicts),
        builds=builds,
        pipelines=put(report.pipelines).assign(
            slug=[kept(text) for text in each("pipeline")], web_url=[kept(text) for text in texts]
        ),
    )


ADDRESS = "http://report.example.com/"


class Viewer:
    """A page of a browser; `seen` lists unwanted dialogs, requests, messages and further loads since `show`."""

    def __init__(self, browser: Browser, **look: Any) -> None:
        self.page = browser.new_context(**look).new_page()
        self.html, self.seen = "", list[str]()
        note = self.seen.append
        self.page.on("dialog", lambda dialog: (note(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("console", lambda message: note(f"console {message.text}"))
        self.page.on("pageerror", lambda error: note(f"error {error}"))
        self.page.on("popup", lambda popup: note(f"popup {popup.url}"))
        self.page.on("framenavigated", lambda frame: note(f"load {frame.url}"))
        self.page.route("**/*", self._answer)

    def _answer(self, route: Any) -> None:
        if route.request.url == ADDRESS:
            route.fulfill(body=self.html.encode(), content_type="text/html")
        else:
            self.seen.append(f"request {route.request.url}")
            route.abort()

    def show(self, html: str) -> None:
        """Load it as a new document."""
        self.html = html
        self.seen.clear()
        self.page.goto(ADDRESS)
        assert self.seen.pop(0) == f"load {ADDRESS}"


def opened(browser: Browser, html: str, **look: Any) -> tuple[Page, list[str]]:
    """Return a page of its own, and what was seen."""
    viewer = Viewer(browser, **look)
    viewer.show(html)
    return viewer.page, viewer.seen
