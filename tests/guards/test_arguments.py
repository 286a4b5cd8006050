"""Options of every public method: unknown ones and values of another type are refused before anything is sent."""

from __future__ import annotations

import datetime as dt
import inspect
import itertools
import re
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


@pytest.mark.parametrize(("owner", "name"), METHODS)
def test_a_misspelt_option_is_refused_with_the_right_name(
    server: Scripted, tmp_path: Path, owner: type, name: str
) -> None:
    for option in options_of(getattr(owner, name)) if name not in OPEN else ():
        misspelt = option[:-1] + option[-1] * 2
        with pytest.raises(bf.BadInput, match=rf"{misspelt}\b.*Did you mean '{option}'"):
            called(server, tmp_path, owner, name, **{misspelt: None})
    assert server.requests == []


@pytest.mark.long
@pytest.mark.parametrize(("owner", "name"), METHODS)
def test_a_value_of_another_type_is_refused(server: Scripted, tmp_path: Path, owner: type, name: str) -> None:
    for option in options_of(getattr(owner, name)):
        with pytest.raises(bf.BadInput, match=rf"(^|\n- ){option}\b"):
            called(server, tmp_path, owner, name, **{option: object()})
    assert server.requests == []


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("raw", "yes", "raw='yes': pass True or False"),
        ("raw", 1, "raw=1: pass True or False"),
        ("progress", 3, "progress=3: pass True, False or None"),
        ("partial", 1, "partial=1: pass True or False"),
        ("workers", True, "workers=True: pass a whole number"),
        ("workers", 2.0, r"workers=2\.0: pass a whole number"),
        ("max_requests", "10", "max_requests='10': pass a whole number or None"),
        ("deadline", 90, "deadline=90: pass text, a timedelta or None"),
        ("columns", "state", "columns='state': pass a list of text or None"),
        ("columns", {"state"}, "columns={'state'}: pass a list of text or None"),
        ("columns", ["state", 1], "columns=.*: pass a list of text or None"),
        ("extra", ["team"], r"extra=\['team'\]: pass a mapping from text to text or a list of text"),
    ],
)
def test_the_error_names_option_value_and_type(server: Scripted, option: str, value: object, says: str) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    with pytest.raises(bf.BadInput, match=says):
        ws.builds(**{option: value})  # type: ignore[arg-type]
    assert server.requests == []


@pytest.mark.parametrize("columns", [["state"], ("state",), pd.Index(["state"]), np.array(["state"])])
def test_columns_may_be_any_list_of_text(server: Scripted, columns: Any) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    assert list(ws.builds(columns=columns)) == ["state"]
    assert list(ws.members(columns=["id"], progress=False)) == ["id"]


@pytest.mark.parametrize("number", [np.int64(2), np.uint8(2), pd.Series([2]).max()])
def test_numbers_may_be_those_of_numpy(ci: Workspace, number: Any) -> None:
    builds = ci.builds(workers=number, max_requests=number, partial=True, progress=False)
    assert builds.attrs["requests"] <= 2
    with bf.sandbox(builds=number, days=number, speed=np.float32(1.5)) as workspace:
        assert len(workspace.builds(progress=False)) < 20


@pytest.mark.parametrize("number", [np.bool_(True), np.float64(2), np.array([2]), "2"])
def test_what_is_no_whole_number_is_refused_as_one(server: Scripted, number: Any) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    with pytest.raises(bf.BadInput, match=r"max_requests=.*: pass a whole number or None"):
        ws.builds(max_requests=number)
    assert server.requests == []


@pytest.mark.parametrize("method", ["builds", "jobs", "history"])
def test_who_asks_for_a_page_hears_that_all_are_read(server: Scripted, method: str) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    for lists, name in itertools.product((ws, ws.pipeline("web")), ("per_page", "page", "number", "limit", "cursor")):
        with pytest.raises(bf.BadInput, match=f"{name}.*always reads all pages.*created_from.*max_requests, deadline"):
            getattr(lists, method)(**{name: 5})
    assert server.requests == []


def test_the_same_of_lists_with_fewer_options(server: Scripted) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    with pytest.raises(bf.BadInput, match=r"per_page.*always reads all pages.*search, branch, period"):
        ws.flaky_tests("rspec", per_page=5)  # type: ignore[call-arg]
    with pytest.raises(bf.BadInput, match=r"page.*always reads all pages"):
        ws.pipelines(page=2)  # type: ignore[call-arg]
    with pytest.raises(bf.BadInput, match=r"members\(\) has no option 'sort'. Sort the frame"):
        ws.members(sort="name")  # type: ignore[call-arg]
    with pytest.raises(
        bf.BadInput,
        match=r"Options of pipelines\(\): name, repository, progress, .*, raw, page_size",
    ):
        ws.pipelines(nonsense=True)  # type: ignore[call-arg]
    assert server.requests == []


def test_a_misspelt_positional_argument_is_named(server: Scripted) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    with pytest.raises(bf.BadInput, match=r"no option 'teem'\. Did you mean 'team'"):
        ws.team_pipelines(teem=ID)  # type: ignore[call-arg]
    with pytest.raises(bf.BadInput, match=r"no option 'numbr'\. Did you mean 'number'"):
        ws.pipeline("web").build(numbr=3)  # type: ignore[call-arg]


def test_a_pipeline_is_not_an_option_but_a_workspace(server: Scripted) -> None:
    acme = bf.connect("acme", base_url=server.url, token="a-test-token")
    for method in (acme.builds, acme.jobs, acme.history):
        advice = re.escape(f"For one pipeline, use ws.pipeline('web').{method.__name__}().")
        with pytest.raises(bf.BadInput, match=rf"has no option 'pipeline'\. {advice}$"):
            method(pipeline="web")  # type: ignore[call-arg]
    with pytest.raises(bf.BadInput, match=r"For several, select rows: frame\["):
        acme.builds(pipelines=["web", "api"])  # type: ignore[call-arg]


def test_the_slug_that_an_address_with_a_query_means_is_named(server: Scripted) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    for slug in ("web?page=2", "https://buildkite.com/acme/web?branch=main#x"):
        with pytest.raises(bf.BadInput, match="Did you mean 'web'"):
            ws.pipeline(slug)


@pytest.mark.parametrize("pipeline", [3, None])
def test_a_team_is_given_a_pipeline_only(server: Scripted, pipeline: Any) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    with pytest.raises(bf.BadInput, match=f"pipeline={pipeline}: pass a slug"):
        ws.set_team(pipeline, ID, "read_only")
    with pytest.raises(bf.BadInput, match=f"pipeline={pipeline}: pass a slug"):
        ws.remove_team(pipeline, ID)
    assert server.requests == []


def test_the_settings_of_a_sandbox_are_checked() -> None:
    with pytest.raises(bf.BadInput, match=r"'biulds'. Did you mean 'builds'"):
        bf.sandbox(biulds=3)  # type: ignore[call-arg]
    with pytest.raises(bf.BadInput, match="builds='3': pass a whole number"):
        bf.sandbox(builds="3")  # type: ignore[arg-type]
    with bf.sandbox(builds=1, days=1, speed=2) as ws:  # a whole number is a number, too
        assert spec.TABLES["members"][0].name in ws.members()


# --- functions
def functions() -> Iterator[Callable[..., Any]]:
    """All public functions that are not methods, except those that take the settings of a sandbox."""
    yield from (bf.connect, bf.save, bf.load, report.read, report.render, report.summary)
    for module in (metrics, plots):
        yield from (getattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("function", list(functions()), ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_functions_refuse_options_that_they_do_not_have(function: Callable[..., Any]) -> None:
    names = list(inspect.signature(function).parameters)
    misspelt = names[-1] + names[-1][-1]
    with pytest.raises(bf.BadInput, match=rf"{function.__name__}\(\) has no option '{misspelt}'.*'{names[-1]}'"):
        function(**{misspelt: None})
    with pytest.raises(bf.BadInput, match=rf"{function.__name__}\(\) takes only .* without a name"):
        function(*[None] * (len(names) + 1))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda jobs: plots.flips(jobs, top=2.5), r"top=2\.5: pass a whole number"),
        (lambda jobs: plots.flips(jobs, top=True), "top=True: pass a whole number"),
        (lambda jobs: plots.step_times(jobs, top=0), "top=0: pass a whole number of at least 1"),
        (lambda jobs: plots.time_spent(jobs, top=-1), "top=-1: pass a whole number of at least 1"),
        (lambda jobs: plots.queue_depth(jobs, "left"), "ax='left': pass an Axes or None"),
        (lambda jobs: plots.distribution(None), "frame=None: pass a DataFrame"),
        (lambda jobs: plots.distribution(jobs, at=3), "at=3: pass text"),
        (lambda jobs: plots.queue_times_by_hour(jobs, q="0.5"), r"q='0\.5': pass a number"),
        (lambda jobs: plots.shortened("main", 0), "width=0: pass a whole number of at least 1"),
        (lambda jobs: metrics.percentiles(jobs, q=[]), r"q=\[\] is empty"),
        (lambda jobs: metrics.percentiles(jobs, q=[0.5, 0.5]), r"q=\[0\.5, 0\.5\] .* each once"),
        (
            lambda jobs: metrics.build_success_change(
                builds_of("one"), builds_of("one"), confidence=None, allow_reversed=True
            ),
            "confidence=None",
        ),
        (lambda jobs: bf.save(jobs, "j.csv"), r"text or a path\. path and frame are swapped: call save\(path, frame\)"),  # type: ignore[arg-type]
        (lambda jobs: bf.save(jobs), r"^save\(\) needs frame\. Call save\(path, frame\)\.$"),  # type: ignore[call-arg]
        (lambda jobs: bf.save("a.parquet", "b"), r"frame='b': pass a DataFrame\.$"),  # type: ignore[arg-type]
        (lambda jobs: bf.save("s3://a:b@c/d.csv", jobs), "^path is a URL. Pass a path on this machine"),
        (lambda jobs: bf.load("s3://a:b@c/d"), "^path is a URL. Pass a path on this machine"),
        (lambda jobs: bf.save("jo\0bs.parquet", jobs), "a path cannot contain NUL"),
        (lambda jobs: bf.load(None), "path=None: pass text or a path"),  # type: ignore[arg-type]
        (lambda jobs: report.read("store", tz=None), "tz=None: pass text"),  # type: ignore[arg-type]
        (lambda jobs: report.read("store", days=True), "days=True: pass a whole number"),
        (lambda jobs: report.read("store", why="late"), "why='late': pass a list of text"),
        (lambda jobs: report.read("store", thresholds=3), "thresholds=3: pass a Thresholds, text"),  # type: ignore[arg-type]
        (lambda jobs: report.summary(jobs), "report=<DataFrame>: pass a Report"),  # type: ignore[arg-type]
    ],
)
def test_functions_refuse_values_of_another_type(call: Callable[[pd.DataFrame], Any], says: str) -> None:
    with pytest.raises(bf.BadInput, match=says):
        call(jobs_of("one"))


def test_numbers_of_numpy_count_as_numbers() -> None:
    assert plots.shortened("a/long/name", np.int64(5)) == plots.shortened("a/long/name", width=np.int8(5)) == "a/…me"


def test_options_need_their_names(server: Scripted, tmp_path: Path) -> None:
    ws = bf.connect("acme", base_url=server.url, token="a-test-token")
    with pytest.raises(bf.BadInput, match=r"builds\(\) takes nothing without a name\. .*created_from"):
        ws.builds("7d")  # type: ignore[misc]
    with pytest.raises(bf.BadInput, match=r"connect\(\) takes only organization without a name.*token"):
        bf.connect("acme", "t")  # type: ignore[misc]
    with pytest.raises(bf.BadInput, match=r"clean\(\) takes only keep without a name"):
        bf.Store(tmp_path).clean("30d", "7d")  # type: ignore[call-arg]
    with pytest.raises(bf.BadInput, match=r"Store\(\) has no option 'asof'. Did you mean 'as_of'"):
        bf.Store(tmp_path, asof="7d")  # type: ignore[call-arg]
    assert server.requests == []


def test_a_sandbox_refuses_what_it_has_not() -> None:
    with pytest.raises(bf.BadInput, match=r"Sandbox\(\) has no option 'sed'. Did you mean 'seed'"):
        Sandbox(sed=3)  # type: ignore[call-arg]
    with pytest.raises(bf.BadInput, match="quota=3: pass a Quota or None"):
        Sandbox(quota=3)  # type: ignore[arg-type]
    with Sandbox(builds=20, days=2) as service:
        with pytest.raises(bf.BadInput, match=r"n=1\.5: pass a whole number"):
            service.push("web", 1.5)  # type: ignore[arg-type]
        with pytest.raises(bf.BadInput, match="fault=3: pass a Fault"):
            service.fault(3)  # type: ignore[arg-type]
        with pytest.raises(bf.BadInput, match=r"webhook\(\) has no option 'tken'. Did you mean 'token'"):
            service.webhook("http://127.0.0.1:9/", tken="x")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"builds": 10**12}, "builds=1000000000000 must be at most 1,000,000"),
        ({"days": 10**6}, "days=1000000 must be at most 3,650"),
        ({"host": "no.such.host.invalid"}, "host='no.such.host.invalid' is not an address of this machine"),
        ({"host": "192.0.2.1"}, "host='192.0.2.1' is not an address of this machine"),
        ({"host": "a\0b"}, "is not an address of this machine"),
        ({"host": ""}, "host='' is not an address of this machine"),
        ({"path": "a\0b"}, r"path='a\\x00b' cannot be opened"),
        ({"deepest": -1}, "deepest=-1 must be at least 1"),
        ({"organization": "nope"}, "organization='nope' does not exist. Use one of: acme, globex"),
    ],
)
def test_settings_that_no_sandbox_can_have_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(bf.BadInput, match=says):
        bf.sandbox(**{"builds": 1, "days": 1, **settings})


@pytest.mark.parametrize(
    ("quota", "says"),
    [
        ({"organization": -1}, "organization=-1 must be a number of requests from 0"),
        ({"user": 1.5}, r"user=1\.5: pass a whole number"),
        ({"window": 0}, "window=0 must be a number of seconds above 0"),
        ({"window": float("nan")}, "window=nan must be a number"),
        ({"windw": 1}, r"Quota\(\) has no option 'windw'. Did you mean 'window'"),
    ],
)
def test_quotas_that_mean_nothing_are_refused(quota: dict[str, Any], says: str) -> None:
    with pytest.raises(bf.BadInput, match=says):
        Quota(**quota)


@pytest.mark.parametrize(
    ("patience", "says"),
    [
        ({"attempts": 0}, "attempts=0 must be between 1 and 1000"),
        ({"attempts": 1.5}, r"attempts=1\.5: pass a whole number"),
        ({"wait": "1"}, "wait='1': pass a number"),
        ({"wait": float("nan")}, "wait=nan must be a number of seconds from 0"),
        ({"timeout": 0}, "timeout=0 must be a number of seconds above 0, at most 86400"),
        ({"atempts": 1}, r"Patience\(\) has no option 'atempts'. Did you mean 'attempts'"),
    ],
)
def test_patience_that_means_nothing_is_refused(patience: dict[str, Any], says: str) -> None:
    with pytest.raises(bf.BadInput, match=says):
        Patience(**patience)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"rate": "x"}, "rate='x': pass a number"),
        ({"seconds": "1"}, "seconds='1': pass a number or None"),
        ({"times": 1.5}, r"times=1\.5: pass a whole number or None"),
        ({"html": 3}, "html=3: pass True or False"),
        ({"kind": "slow"}, "There is no fault 'slow'"),
        ({"kind": ["status"]}, r"kind=\['status'\]: pass text"),
    ],
)
def test_faults_of_another_type_are_refused(fault: dict[str, Any], says: str) -> None:
    with pytest.raises(bf.BadInput, match=says):
        Fault(**{"kind": "status", **fault})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda one: one.clock.advance(3), "by=3: pass a timedelta"),
        (lambda one: one.clock.advance(dt.timedelta.max), "by=.* is too long"),
        (lambda one: one.clock.advance(bye=3), r"advance\(\) has no option 'bye'. Did you mean 'by'"),
        (lambda one: one.clock.set(3), "timestamp=3 is not a time"),
        (lambda one: one.clock.set(timestmp=3), "Did you mean 'timestamp'"),
        (lambda one: one.teams(["acme"]), r"organization=\['acme'\]: pass text"),
        (lambda one: one.suites(3), "organization=3: pass text"),
        (lambda one: one.suites(organisation="acme"), "Did you mean 'organization'"),
        (lambda one: one.remove_webhook("x"), "hook='x': pass a Hook"),
        (lambda one: one.webhook(3, token="a-test-token"), "url=3: pass text"),
        (lambda one: one.webhook("http://127.0.0.1:1/", token=3), "token must be a string of printable ASCII"),
        (
            lambda one: one.webhook("http://127.0.0.1:1/", token="a-test-token", signed="yes"),
            "signed='yes': pass True or False",
        ),
        (
            lambda one: one.webhook("http://127.0.0.1:1/", token="a-test-token", events=[3]),
            r"events=\[3\]: pass a list of text",
        ),
        (
            lambda one: one.webhook("http://127.0.0.1:1/", token="a-test-token", organization=[]),
            r"organization=\[\]: pass text",
        ),
    ],
)
def test_methods_of_a_sandbox_refuse_values_of_another_type(
    small: Sandbox, call: Callable[[Sandbox], Any], says: str
) -> None:
    with pytest.raises(bf.BadInput, match=says):
        call(small)
    assert small.deliveries() == []


LONG: Any = pd.DataFrame({f"c{n}": ["x" * 200] * 200 for n in range(200)})


@pytest.mark.parametrize(
    "call",
    [
        lambda jobs: metrics.percentiles(jobs, q=[0.5] * 5000),
        lambda jobs: metrics.percentiles(jobs, of=LONG),
        lambda jobs: metrics.percentiles(jobs, method=LONG),
        lambda jobs: metrics.trend(jobs, freq=LONG),
        lambda jobs: metrics.survival(jobs, points=LONG),
        lambda jobs: metrics.objective(jobs, within="5m", target=LONG),
        lambda jobs: metrics.replay(jobs, jobs, agents=LONG),
        lambda jobs: metrics.replay(jobs, jobs, run_scale=LONG),
    ],
)
def test_a_message_does_not_contain_a_long_value(call: Callable[[pd.DataFrame], Any]) -> None:
    with pytest.raises(bf.BadInput) as caught:
        call(jobs_of("one"))
    assert len(str(caught.value)) < 500


def unusable(frame: pd.DataFrame) -> pd.Series[Any]:
    raise bf.BadInput("no column of mine")


@pytest.mark.parametrize(
    "call",
    [
        lambda jobs: metrics.percentiles(jobs, of=unusable),
        lambda jobs: metrics.percentiles(jobs, by=unusable),
        lambda jobs: plots.trend(jobs, of=unusable),
    ],
)
def test_the_traceback_of_a_custom_metric_ends_in_its_own_line(call: Callable[[pd.DataFrame], Any]) -> None:
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


@pytest.fixture(scope="module")
def small() -> Iterator[Sandbox]:
    with Sandbox(builds=5, days=1) as sandbox:
        yield sandbox


@pytest.mark.parametrize("options", [{3: "a"}, {None: "a"}, {"a": 3}])
def test_options_of_an_object_store_are_text(tmp_path: Path, options: Any) -> None:
    with pytest.raises(bf.BadInput, match="storage_options must be a dict"):
        bf.Store(tmp_path, storage_options=options)


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 10**5000},
        {"created_from": 10**5000},
        {"state": [10**5000]},
        {"state": {10**5000}},
        {"state": np.array([10**5000], dtype=object)},
        {"meta_data": {"team": (10**5000,)}},
        {"meta_data": {10**5000: "x"}},
        {"columns": {10**5000}},
        {"workers": Fraction(10**5000)},
    ],
)
def test_numbers_that_python_does_not_print_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(bf.BadInput, match="at most 300 digits"):
        bf.connect("acme", token="bkua_invented0123").builds(**options)


@pytest.mark.parametrize("name", ["version", "as_of", "covers"])
def test_properties_of_a_store_refuse_numbers_that_python_does_not_print(tmp_path: Path, name: str) -> None:
    with bf.sandbox(builds=5, days=1) as ci:
        bf.Store(tmp_path).sync(ci, since="1d", progress=False)
    for as_of in (10**5000, [10**5000]):
        with pytest.raises(bf.BadInput, match="at most 300 digits"):
            getattr(bf.Store(tmp_path, as_of=as_of), name)  # type: ignore[arg-type]


def test_a_list_that_holds_itself_is_refused() -> None:
    states: list[Any] = []
    states.append(states)
    with pytest.raises(bf.BadInput, match="state"):
        bf.connect("acme", token="bkua_invented0123").builds(state=states)
