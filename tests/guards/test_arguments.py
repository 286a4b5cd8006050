"""Options of every public method: unknown ones and values of another type are refused before anything is sent."""

from __future__ import annotations

import datetime as dt
import inspect
import itertools
import traceback
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import buildframe as bf
from buildframe import metrics, plots, report, spec
from buildframe.sandbox_server import Fault, Patience, Quota, Sandbox
from buildframe.workspace import Workspace
from tests.conftest import Scripted, says
from tests.guards.public_methods import ID, METHODS, OPEN, Start, called, options_of
from tests.metrics.random_frames import builds_of, jobs_of
from tests.refusals import wrong_refusals


@pytest.fixture
def server(scripted: Start) -> Scripted:
    return scripted(says(b"[]"))


def test_all_kinds_of_methods_are_here() -> None:
    named = {(owner.__name__, name) for owner, name in METHODS}
    listings = {"builds", "jobs", "history", "pipelines", "members", "emojis", "team_pipelines", "flaky_tests"}
    assert {("Workspace", name) for name in listings} <= named
    assert {
        ("PipelineWorkspace", "history_of"),
        ("PipelineWorkspace", "create_build"),
        ("Store", "sync"),
        ("Store", "jobs"),
    } <= named


def test_a_misspelt_option_is_refused_with_the_right_name(server: Scripted, tmp_path: Path) -> None:
    cases = [
        ((owner, name, option[:-1] + option[-1] * 2), rf"{option[:-1] + option[-1] * 2}\b.*Did you mean '{option}'")
        for owner, name in METHODS
        if name not in OPEN
        for option in options_of(getattr(owner, name))
    ]
    assert wrong_refusals(cases, lambda one: called(server, tmp_path, *one[:2], **{one[2]: None})) == {}
    assert server.requests == []


def test_a_value_of_another_type_is_refused(server: Scripted, tmp_path: Path) -> None:
    cases = [
        ((owner, name, option), rf"(^|\n- ){option}\b")
        for owner, name in METHODS
        for option in options_of(getattr(owner, name))
    ]
    assert wrong_refusals(cases, lambda one: called(server, tmp_path, *one[:2], **{one[2]: object()})) == {}
    assert server.requests == []


def test_the_error_names_option_value_and_type(server: Scripted) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"raw": "yes"}, "raw='yes': pass True or False"),
        ({"raw": 1}, "raw=1: pass True or False"),
        ({"progress": 3}, "progress=3: pass True, False or None"),
        ({"partial": 1}, "partial=1: pass True or False"),
        ({"workers": True}, "workers=True: pass a whole number"),
        ({"workers": 2.0}, r"workers=2\.0: pass a whole number"),
        ({"max_requests": "10"}, "max_requests='10': pass a whole number or None"),
        ({"max_requests": np.bool_(True)}, "max_requests=.*: pass a whole number or None"),
        ({"max_requests": np.float64(2)}, "max_requests=.*: pass a whole number or None"),
        ({"max_requests": np.array([2])}, "max_requests=.*: pass a whole number or None"),
        ({"deadline": 90}, "deadline=90: pass text, a timedelta or None"),
        ({"columns": "state"}, "columns='state': pass a list of text or None"),
        ({"columns": {"state"}}, "columns={'state'}: pass a list of text or None"),
        ({"columns": ["state", 1]}, "columns=.*: pass a list of text or None"),
        ({"extra": ["team"]}, r"extra=\['team'\]: pass a mapping from text to text or a list of text"),
    ]
    assert wrong_refusals(cases, lambda options: ws.builds(**options)) == {}
    assert server.requests == []


def test_columns_may_be_any_list_of_text(server: Scripted) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    lists: list[Any] = [["state"], ("state",), pd.Index(["state"]), np.array(["state"])]
    for columns in lists:
        assert list(ws.builds(columns=columns)) == ["state"]
        assert list(ws.members(columns=["id"], progress=False)) == ["id"]


def test_numbers_may_be_those_of_numpy(ci: Workspace) -> None:
    numbers: list[Any] = [np.int64(2), np.uint8(2), pd.Series([2]).max()]
    for number in numbers:
        builds = ci.builds(workers=number, max_requests=number, partial=True, progress=False)
        assert builds.attrs["requests"] <= 2
    with bf.sandbox(builds=numbers[0], days=numbers[1], speed=np.float32(1.5)) as workspace:
        assert len(workspace.builds(progress=False)) < 20


def test_who_asks_for_a_page_hears_that_all_are_read(server: Scripted) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    calls = itertools.product(
        (ws, ws.pipeline("web")), ("builds", "jobs", "history"), ("per_page", "page", "number", "limit", "cursor")
    )
    cases = [(one, f"{one[2]}.*always reads all pages.*created_from.*max_requests, deadline") for one in calls]
    assert wrong_refusals(cases, lambda one: getattr(one[0], one[1])(**{one[2]: 5})) == {}
    assert server.requests == []


def test_options_that_lists_do_not_have(server: Scripted, tmp_path: Path) -> None:
    ws: Any = bf.connect("acme", base_url=server.url, token="a-test-token")
    assert (
        wrong_refusals(
            [
                (
                    lambda: ws.flaky_tests("rspec", per_page=5),
                    "per_page.*always reads all pages.*search, branch, period",
                ),
                (lambda: ws.pipelines(page=2), "page.*always reads all pages"),
                (lambda: ws.members(sort="name"), r"members\(\) has no option 'sort'. Sort the frame"),
                (
                    lambda: ws.pipelines(nonsense=True),
                    r"Options of pipelines\(\): name, repository, progress, .*, raw, page_size",
                ),
                (lambda: ws.team_pipelines(teem=ID), r"no option 'teem'\. Did you mean 'team'"),
                (lambda: ws.pipeline("web").build(numbr=3), r"no option 'numbr'\. Did you mean 'number'"),
                (lambda: ws.builds("7d"), r"builds\(\) takes nothing without a name\. .*created_from"),
                (lambda: bf.connect("acme", "t"), r"connect\(\) takes only organization without a name.*token"),  # type: ignore[misc]
                (lambda: bf.Store(tmp_path).clean("30d", "7d"), r"clean\(\) takes only keep without a name"),  # type: ignore[call-arg]
                (lambda: bf.Store(tmp_path, asof="7d"), r"Store\(\) has no option 'asof'. Did you mean 'as_of'"),  # type: ignore[call-arg]
                (lambda: ws.set_team(3, ID, "read_only"), "pipeline=3: pass a slug"),
                (lambda: ws.set_team(None, ID, "read_only"), "pipeline=None: pass a slug"),
                (lambda: ws.remove_team(3, ID), "pipeline=3: pass a slug"),
                (lambda: ws.remove_team(None, ID), "pipeline=None: pass a slug"),
                (lambda: ws.pipeline("web?page=2"), "Did you mean 'web'"),
                (lambda: ws.pipeline("https://buildkite.com/acme/web?branch=main#x"), "Did you mean 'web'"),
                (lambda: ws.builds(pipelines=["web", "api"]), r"For several, select rows: frame\["),
                *(
                    (
                        lambda method=method: method(pipeline="web"),
                        rf"has no option 'pipeline'\. .*, use ws\.pipeline\('web'\)\.{method.__name__}\(\)\.$",
                    )
                    for method in (ws.builds, ws.jobs, ws.history)
                ),
            ],
            lambda call: call(),
        )
        == {}
    )
    assert server.requests == []


# --- functions
def functions() -> Iterator[Callable[..., Any]]:
    """All public functions that are not methods, except those that take the settings of a sandbox."""
    yield from (bf.connect, bf.save, bf.load, report.read, report.render, report.summary)
    for module in (metrics, plots):
        yield from (getattr(module, name) for name in module.__all__)


def test_functions_refuse_options_that_they_do_not_have() -> None:
    for function in functions():
        names = list(inspect.signature(function).parameters)
        misspelt = names[-1] + names[-1][-1]
        cases: list[tuple[Any, str]] = [
            ({misspelt: None}, rf"{function.__name__}\(\) has no option '{misspelt}'.*'{names[-1]}'"),
            ([None] * (len(names) + 1), rf"{function.__name__}\(\) takes only .* without a name"),
        ]

        def call(given: Any, function: Callable[..., Any] = function) -> object:
            return function(**given) if isinstance(given, dict) else function(*given)

        assert wrong_refusals(cases, call) == {}, function


def test_functions_refuse_values_of_another_type() -> None:
    jobs = jobs_of("one")
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: plots.flips(jobs, top=2.5), r"top=2\.5: pass a whole number"),  # type: ignore[arg-type]
        (lambda: plots.flips(jobs, top=True), "top=True: pass a whole number"),
        (lambda: plots.step_times(jobs, top=0), "top=0: pass a whole number of at least 1"),
        (lambda: plots.time_spent(jobs, top=-1), "top=-1: pass a whole number of at least 1"),
        (lambda: plots.queue_depth(jobs, "left"), "ax='left': pass an Axes or None"),  # type: ignore[arg-type]
        (lambda: plots.distribution(None), "frame=None: pass a DataFrame"),  # type: ignore[arg-type]
        (lambda: plots.distribution(jobs, at=3), "at=3: pass text"),  # type: ignore[arg-type]
        (lambda: plots.queue_times_by_hour(jobs, q="0.5"), r"q='0\.5': pass a number"),  # type: ignore[arg-type]
        (lambda: metrics.percentiles(jobs, q=[]), r"q=\[\] is empty"),
        (lambda: metrics.percentiles(jobs, q=[0.5, 0.5]), r"q=\[0\.5, 0\.5\] .* each once"),
        (
            lambda: metrics.build_success_change(
                builds_of("one"),
                builds_of("one"),
                confidence=None,  # type: ignore[arg-type]
                allow_reversed=True,
            ),
            "confidence=None",
        ),
        (lambda: bf.save(jobs, "j.csv"), r"path and frame are swapped: call save\(path, frame\)"),  # type: ignore[arg-type]
        (lambda: bf.save(jobs), r"^save\(\) needs frame\. Call save\(path, frame\)\.$"),  # type: ignore[call-arg]
        (lambda: bf.save("a.parquet", "b"), r"frame='b': pass a DataFrame\.$"),  # type: ignore[arg-type]
        (lambda: bf.save("s3://a:b@c/d.csv", jobs), "^path is a URL. Pass a path on this machine"),
        (lambda: bf.load("s3://a:b@c/d"), "^path is a URL. Pass a path on this machine"),
        (lambda: bf.save("jo\0bs.parquet", jobs), "a path cannot contain NUL"),
        (lambda: bf.load(None), "path=None: pass text or a path"),  # type: ignore[arg-type]
        (lambda: report.read("store", tz=None), "tz=None: pass text"),  # type: ignore[arg-type]
        (lambda: report.read("store", days=True), "days=True: pass a whole number"),
        (lambda: report.read("store", why="late"), "why='late': pass a list of text"),
        (lambda: report.read("store", thresholds=3), "thresholds=3: pass a Thresholds, text"),  # type: ignore[arg-type]
        (lambda: report.summary(jobs), "report=<DataFrame>: pass a Report"),  # type: ignore[arg-type]
    ]
    assert wrong_refusals(cases, lambda call: call()) == {}


def test_the_settings_of_a_sandbox_are_checked() -> None:
    sandbox: Any = bf.sandbox
    cases: list[tuple[dict[str, Any], str]] = [
        ({"biulds": 3}, r"'biulds'. Did you mean 'builds'"),
        ({"builds": "3"}, "builds='3': pass a whole number"),
        ({"builds": 10**12}, "builds=1000000000000 must be at most 1,000,000"),
        ({"days": 10**6}, "days=1000000 must be at most 3,650"),
        ({"host": "no.such.host.invalid"}, "host='no.such.host.invalid' is not an address of this machine"),
        ({"host": "192.0.2.1"}, "host='192.0.2.1' is not an address of this machine"),
        ({"host": "a\0b"}, "is not an address of this machine"),
        ({"host": ""}, "host='' is not an address of this machine"),
        ({"path": "a\0b"}, r"path='a\\x00b' cannot be opened"),
        ({"deepest": -1}, "deepest=-1 must be at least 1"),
        ({"organization": "nope"}, "organization='nope' does not exist. Use one of: acme, globex"),
    ]
    assert wrong_refusals(cases, lambda settings: sandbox(**{"builds": 1, "days": 1, **settings})) == {}
    with sandbox(builds=1, days=1, speed=2) as ws:  # a whole number is a number, too
        assert spec.TABLES["members"][0].name in ws.members()
    cases = [
        ({"sed": 3}, r"Sandbox\(\) has no option 'sed'. Did you mean 'seed'"),
        ({"quota": 3}, "quota=3: pass a Quota or None"),
    ]
    assert wrong_refusals(cases, lambda settings: Sandbox(**settings)) == {}


def test_quotas_patience_and_faults_that_mean_nothing_are_refused() -> None:
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: Quota(organization=-1), "organization=-1 must be a number of requests from 0"),
        (lambda: Quota(user=1.5), r"user=1\.5: pass a whole number"),  # type: ignore[arg-type]
        (lambda: Quota(window=0), "window=0 must be a number of seconds above 0"),
        (lambda: Quota(window=float("nan")), "window=nan must be a number"),
        (lambda: Quota(windw=1), r"Quota\(\) has no option 'windw'. Did you mean 'window'"),  # type: ignore[call-arg]
        (lambda: Patience(attempts=0), "attempts=0 must be between 1 and 1000"),
        (lambda: Patience(attempts=1.5), r"attempts=1\.5: pass a whole number"),  # type: ignore[arg-type]
        (lambda: Patience(wait="1"), "wait='1': pass a number"),  # type: ignore[arg-type]
        (lambda: Patience(wait=float("nan")), "wait=nan must be a number of seconds from 0"),
        (lambda: Patience(timeout=0), "timeout=0 must be a number of seconds above 0, at most 86400"),
        (lambda: Patience(atempts=1), r"Patience\(\) has no option 'atempts'. Did you mean 'attempts'"),  # type: ignore[call-arg]
        (lambda: Fault("status", rate="x"), "rate='x': pass a number"),  # type: ignore[arg-type]
        (lambda: Fault("status", seconds="1"), "seconds='1': pass a number or None"),  # type: ignore[arg-type]
        (lambda: Fault("status", times=1.5), r"times=1\.5: pass a whole number or None"),  # type: ignore[arg-type]
        (lambda: Fault("status", html=3), "html=3: pass True or False"),  # type: ignore[arg-type]
        (lambda: Fault("slow"), "There is no fault 'slow'"),
        (lambda: Fault(["status"]), r"kind=\['status'\]: pass text"),  # type: ignore[arg-type]
    ]
    assert wrong_refusals(cases, lambda call: call()) == {}


def test_methods_of_a_sandbox_refuse_values_of_another_type() -> None:
    hook = {"token": "a-test-token"}
    cases: list[tuple[Callable[[Any], Any], str]] = [
        (lambda one: one.clock.advance(3), "by=3: pass a timedelta"),
        (lambda one: one.clock.advance(dt.timedelta.max), "by=.* is too long"),
        (lambda one: one.clock.advance(bye=3), r"advance\(\) has no option 'bye'. Did you mean 'by'"),
        (lambda one: one.clock.set(3), "timestamp=3 is not a time"),
        (lambda one: one.clock.set(timestmp=3), "Did you mean 'timestamp'"),
        (lambda one: one.teams(["acme"]), r"organization=\['acme'\]: pass text"),
        (lambda one: one.suites(3), "organization=3: pass text"),
        (lambda one: one.suites(organisation="acme"), "Did you mean 'organization'"),
        (lambda one: one.push("web", 1.5), r"n=1\.5: pass a whole number"),
        (lambda one: one.fault(3), "fault=3: pass a Fault"),
        (lambda one: one.remove_webhook("x"), "hook='x': pass a Hook"),
        (lambda one: one.webhook("http://127.0.0.1:9/", tken="x"), "no option 'tken'. Did you mean 'token'"),
        (lambda one: one.webhook(3, **hook), "url=3: pass text"),
        (lambda one: one.webhook("http://127.0.0.1:1/", token=3), "token must be a string of printable ASCII"),
        (lambda one: one.webhook("http://127.0.0.1:1/", signed="yes", **hook), "signed='yes': pass True or False"),
        (lambda one: one.webhook("http://127.0.0.1:1/", events=[3], **hook), r"events=\[3\]: pass a list of text"),
        (lambda one: one.webhook("http://127.0.0.1:1/", organization=[], **hook), r"organization=\[\]: pass text"),
    ]
    with Sandbox(builds=5, days=1) as sandbox:
        assert wrong_refusals(cases, lambda call: call(sandbox)) == {}
        assert sandbox.deliveries() == []


LONG: Any = pd.DataFrame({f"c{n}": ["x" * 200] * 200 for n in range(200)})


def test_a_message_does_not_contain_a_long_value() -> None:
    jobs = jobs_of("one")
    calls: list[Callable[[], Any]] = [
        lambda: metrics.percentiles(jobs, q=[0.5] * 5000),
        lambda: metrics.percentiles(jobs, of=LONG),
        lambda: metrics.trend(jobs, freq=LONG),
        lambda: metrics.survival(jobs, points=LONG),
        lambda: metrics.objective(jobs, within="5m", target=LONG),
        lambda: metrics.replay(jobs, jobs, agents=LONG),
        lambda: metrics.replay(jobs, jobs, run_scale=LONG),
    ]
    assert wrong_refusals([(call, r"^.{1,499}$") for call in calls], lambda call: call()) == {}


def unusable(frame: pd.DataFrame) -> pd.Series[Any]:
    raise bf.BadInput("no column of mine")


def test_the_traceback_of_a_custom_metric_ends_in_its_own_line() -> None:
    calls: list[Callable[[pd.DataFrame], Any]] = [
        lambda jobs: metrics.percentiles(jobs, of=unusable),
        lambda jobs: metrics.percentiles(jobs, by=unusable),
        lambda jobs: plots.trend(jobs, of=unusable),
    ]
    for call in calls:
        with pytest.raises(bf.BadInput, match="no column of mine") as caught:
            call(jobs_of("one"))
        assert caught.traceback[-1].name == "unusable"


def test_a_number_that_a_custom_metric_cannot_print_has_its_cause() -> None:
    def too_long(frame: pd.DataFrame) -> pd.Series[Any]:
        return pd.Series(str(10**5000), frame.index)

    with pytest.raises(bf.BadInput, match="at most 300 digits") as caught:
        metrics.percentiles(jobs_of("one"), of=too_long)
    cause = caught.value.__cause__
    assert cause is not None
    assert traceback.extract_tb(cause.__traceback__)[-1].name == "too_long"


def test_required_arguments_are_named_without_the_class_that_defines_the_method(server: Scripted) -> None:
    ws = bf.connect("acme", base_url=server.url, token="an-invented-token")
    for owner in (ws, ws.pipeline("web"), bf.Store("none")):
        for name, method in inspect.getmembers(type(owner), inspect.isfunction):
            parameters = inspect.signature(method).parameters.values()
            required = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD][1:]
            if required and not name.startswith("_"):
                usage = f"{name}({', '.join(required)})"
                with pytest.raises(bf.BadInput) as caught:
                    method(owner)
                assert str(caught.value) == f"{name}() needs {', '.join(required)}. Call {usage}."
    with pytest.raises(bf.BadInput, match=r"^flaky_tests\(\) is passed suite twice"):
        ws.flaky_tests("rspec", suite="rspec")  # type: ignore[misc]
    assert server.requests == []


def test_options_of_an_object_store_are_text(tmp_path: Path) -> None:
    cases = [(options, "storage_options must be a dict") for options in ({3: "a"}, {None: "a"}, {"a": 3})]
    assert wrong_refusals(cases, lambda options: bf.Store(tmp_path, storage_options=options)) == {}


def test_numbers_that_python_does_not_print_and_a_list_that_holds_itself_are_refused() -> None:
    number, states = 10**5000, list[Any]()
    states.append(states)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"workers": number}, "at most 300 digits"),
        ({"created_from": number}, "at most 300 digits"),
        ({"state": [number]}, "at most 300 digits"),
        ({"state": {number}}, "at most 300 digits"),
        ({"state": np.array([number], dtype=object)}, "at most 300 digits"),
        ({"meta_data": {"team": (number,)}}, "at most 300 digits"),
        ({"meta_data": {number: "x"}}, "at most 300 digits"),
        ({"columns": {number}}, "at most 300 digits"),
        ({"workers": Fraction(number)}, "at most 300 digits"),
        ({"state": states}, "state"),
    ]
    ws = bf.connect("acme", token="bkua_invented0123")
    assert wrong_refusals(cases, lambda options: ws.builds(**options)) == {}


def test_properties_of_a_store_refuse_numbers_that_python_does_not_print(tmp_path: Path) -> None:
    with bf.sandbox(builds=5, days=1) as ci:
        bf.Store(tmp_path).sync(ci, since="1d", progress=False)
    names, times = ("version", "as_of", "covers"), (10**5000, [10**5000])
    cases = [((name, as_of), "at most 300 digits") for name in names for as_of in times]
    assert wrong_refusals(cases, lambda one: getattr(bf.Store(tmp_path, as_of=one[1]), one[0])) == {}
