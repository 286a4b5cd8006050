"""Write the pages about operations and errors, with responses of a running sandbox."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_type_hints, is_typeddict
from unittest.mock import patch

from page_parts import links, markdown

import buildframe as bf
from buildframe import errors
from buildframe.fetching.options import BuildListOptions, ListOptions
from buildframe.http.client import Client
from buildframe.http.protocol import Request
from buildframe.http.response import Response
from buildframe.spec import (
    ENDPOINTS,
    Endpoint,
    Filter,
    Property,
    ProviderSettings,
    describe_type,
    properties_of,
    provider_settings_of,
)
from buildframe.workspace import Workspace

SHOWN_AS = "https://api.example.com"
SEED, BUILDS, DAYS = 1, 160, 7
MOST_KEYS = 6
EXAMPLES = {
    "list_all_builds": "everything.builds(created_from='1d')",
    "list_builds": "ci.history(created_from='1d')",
    "list_pipeline_builds": "ci.pipeline('docs').builds(state=['passed', 'failed'])",
    "get_build": "ci.pipeline('docs').build(number)",
    "list_build_jobs": "ci.pipeline('docs').jobs_of(number, state=['passed', 'failed'])",
    "get_job": "ci.pipeline('docs').job(number, job)",
    "list_annotations": "ci.pipeline(annotated.pipeline).annotations(annotated.number)",
    "retry_job": "ci.retry_job(failed)",
    "create_build": (
        "ci.pipeline('docs').create_build(commit='HEAD', branch='main', message='Try it', env={'DEPTH': 'all'})"
    ),
    "cancel_build": "ci.pipeline('docs').cancel(created.number)",
    "rebuild_build": "ci.pipeline('docs').rebuild(created.number)",
    "unblock_job": "ci.unblock(blocked)",
    "list_pipelines": "ci.pipelines()",
    "get_pipeline": "ci.pipeline('docs').get()",
    "create_pipeline": (
        "ci.create_pipeline(name='Hello World', cluster_id=cluster, repository='git@github.com:example/hello.git',"
        " configuration='steps:\\n  - command: make test\\n')"
    ),
    "update_pipeline": "ci.pipeline('hello-world').update(description='Says hello', cluster_id=None)",
    "archive_pipeline": "ci.pipeline('hello-world').archive()",
    "unarchive_pipeline": "ci.pipeline('hello-world').unarchive()",
    "add_webhook": "ci.pipeline('hello-world').add_webhook()",
    "list_team_pipelines": "ci.team_pipelines(team)",
    "create_team_pipeline": "ci.create_team_pipeline(team, pipeline_id=hello, access_level='read_only')",
    "get_team_pipeline": "ci.team_pipeline(team, hello)",
    "update_team_pipeline": "ci.update_team_pipeline(team, hello, access_level='build_and_read')",
    "delete_team_pipeline": "ci.delete_team_pipeline(team, hello)",
    "delete_pipeline": "ci.pipeline('hello-world').delete()",
    "list_members": "ci.members()",
    "get_member": "ci.member(user)",
    "list_flaky_tests": "ci.flaky_tests(suite, branch='main')",
    "list_tests": "ci.tests(suite, label='flaky', period='28days')",
    "list_failed_executions": "ci.failed_executions(suite_of_run, run)",
    "list_emojis": "ci.emojis()",
}
"""An example call for each operation. Later calls use what earlier ones created."""
CLASSES = {"ci": "buildframe.workspace.Workspace", "web": "buildframe.workspace.PipelineWorkspace"}
BUILD_LISTS = ["builds", "jobs", "history"]
"""Methods that list builds: all read the same pages."""
REFUSALS = {
    "BadInput": "ci.builds(state='pased')",
    "Unauthorized": "wrong_token.builds()",
    "Forbidden": "reader.pipeline('docs').cancel(number)",
    "NotFound": "ci.pipeline('dcos').builds()",
    "Invalid": "ci.pipeline('docs').cancel(number)",
    "GraphQLError": "ci.graphql('{ pipeline }')",
}
"""A call that raises the error, for errors that a sandbox can show."""

OPERATIONS = """The operations of the REST API that `buildframe` covers. Each has the scope that its token needs, its
filters and a response. The responses are those of a sandbox, shortened: `…` counts what is left out. Lists show one
record. `ci` is a workspace, and `web = ci.pipeline("web")` a pipeline. GraphQL is open to any query:
`ci.graphql(query)`."""

ERRORS = """Every error is a `BuildframeError`. Its message says what happened, what the service reported and what to do
next. No error contains the token. The attribute `retryable` says whether the same call may succeed later."""


class Exchange(NamedTuple):
    """A request and its response."""

    request: Request
    response: Response


class Sandboxed:
    """Run calls on a sandbox that is the same every time."""

    def __init__(self, ci: Workspace) -> None:
        self.names = names_in(ci)

    def call(self, code: str) -> tuple[Any, Exchange]:
        """Run a call; return its result and its last exchange with the sandbox."""
        exchanges: list[Exchange] = []
        original = Client._exchange

        def recording(client: Client, request: Request) -> Response:
            response = original(client, request)
            exchanges.append(Exchange(request, response))
            return response

        with patch.object(Client, "_exchange", recording):
            result = eval(code, self.names)  # noqa: S307  the text above
        return result, exchanges[-1]

    def refusal(self, code: str) -> str:
        """Return name and message of the error that a call raises."""
        try:
            eval(code, self.names)  # noqa: S307
        except errors.BuildframeError as why:
            return f"{type(why).__name__}: {why}"
        raise AssertionError(f"{code} raised nothing")


def names_in(ci: Workspace) -> dict[str, Any]:
    """Return the names that the examples use."""
    service = ci.sandbox
    builds = ci.pipeline("docs").builds()
    number = int(builds["number"].iloc[0])
    steps = ci.jobs(state="blocked")
    jobs = ci.jobs(state="failed")
    suite_of_run, run = failed_run(ci)
    return {
        "ci": ci,
        "everything": bf.connect(None, base_url=service.url, token=service.token()),
        "reader": bf.connect("acme", base_url=service.url, token=service.token()),
        "wrong_token": bf.connect("acme", base_url=service.url, token="an-unknown-token"),  # noqa: S106
        "number": number,
        "job": ci.pipeline("docs").jobs_of(number)["id"].iloc[0],
        "failed": jobs[(jobs["state"] == "failed") & ~jobs["retried"].fillna(False)].iloc[-1],
        "annotated": annotated_build(ci),
        "suite_of_run": suite_of_run,
        "run": run,
        "blocked": steps[steps["state"] == "blocked"].iloc[0],
        "cluster": ci.pipeline("docs").get().cluster_id,
        "team": service.teams()["Platform"],
        "suite": service.suites()[0],
        "user": ci.members()["id"].iloc[0],
    }


def annotated_build(ci: Workspace) -> Any:
    """Return the row of a failed build with annotations."""
    failed = ci.builds(state="failed").itertuples()
    return next(row for row in failed if len(ci.pipeline(row.pipeline).annotations(row.number)))


def failed_run(ci: Workspace) -> tuple[str, str]:
    """Return a test suite, and a run of it that failed."""
    for suite in ci.sandbox.suites():
        for run in ci.get(f"/analytics/organizations/acme/suites/{suite}/runs"):
            if run["result"] == "failed":
                return suite, run["id"]
    raise AssertionError("no run failed")


def exchanged(service: Sandboxed) -> Iterator[tuple[str, Exchange]]:
    """Run the example of each operation. Names of created objects are available to later examples."""
    for name, code in EXAMPLES.items():
        result, exchange = service.call(code)
        assert exchange.request.endpoint.name == name, code
        if name == "create_build":
            service.names["created"] = result
        if name == "create_pipeline":
            service.names["hello"] = result.id
        yield name, exchange


def operations(exchanges: dict[str, Exchange]) -> list[str]:
    return [
        "# Operations",
        OPERATIONS,
        markdown(("operation", "call", "scope", "meaning"), map(summary, ENDPOINTS)),
        *(part for endpoint in ENDPOINTS for part in operation(endpoint, exchanges[endpoint.name])),
        *options(),
    ]


def summary(endpoint: Endpoint) -> tuple[str, ...]:
    call = re.sub(r"^ci\.pipeline\('[\w-]+'\)", "web", EXAMPLES[endpoint.name]).replace("everything", "ci")
    owner, _, method = call.partition("(")[0].partition(".")
    called = BUILD_LISTS if endpoint.lists and endpoint.name.endswith("_builds") else [method]
    calls = ", ".join(f"[`{owner}.{each}`](api/{CLASSES[owner]}.{each}.rst)" for each in called)
    link = f"[{title_of(endpoint)}](#{endpoint.name.replace('_', '-')})"
    return link, calls, f"`{endpoint.scope}`" if endpoint.scope else "–", endpoint.doc


def title_of(endpoint: Endpoint) -> str:
    return endpoint.name.replace("_", " ").capitalize()


def options() -> Iterator[str]:
    yield "## Options"
    yield (
        "Options of methods that list something, in addition to filters. The default is in parentheses. `history` "
        "also takes `job_columns` and `job_extra` for the jobs; its `columns` and `extra` are for the builds."
    )
    of_all, of_builds = (get_type_hints(kind, include_extras=True) for kind in (ListOptions, BuildListOptions))
    lists = dict.fromkeys(of_builds, "builds") | dict.fromkeys(of_all, "all")
    hints = of_all | of_builds
    yield markdown(("option", "lists", "meaning"), ((f"`{n}`", lists[n], h.__metadata__[0]) for n, h in hints.items()))


def operation(endpoint: Endpoint, exchange: Exchange) -> Iterator[str]:
    yield f"## {title_of(endpoint)}"
    yield f"`{endpoint.method} /v2{endpoint.path}`"
    yield f"{endpoint.doc} {_response(endpoint)} Scope: {f'`{endpoint.scope}`' if endpoint.scope else 'none'}."
    if endpoint.filters:
        yield markdown(("filter", "type", "meaning"), ((f"`{f.name}`", _type(f), f.doc) for f in endpoint.filters))
    if endpoint.properties:
        yield markdown(("property", "type", "meaning"), map(_property, endpoint.properties))
        for entry in endpoint.properties:
            yield from objects(entry)
    yield f"```text\n>>> {EXAMPLES[endpoint.name]}\n{request_text(exchange)}\n\n{response_text(exchange)}\n```"


def _response(endpoint: Endpoint) -> str:
    if endpoint.returns is None:
        return f"Returns {endpoint.success}."
    what = f"a list of `{endpoint.returns.__name__}`" if endpoint.lists else f"`{endpoint.returns.__name__}`"
    return f"Returns {endpoint.success} with {what}{', in pages' if endpoint.paginated else ''}."


def _type(entry: Filter) -> str:
    kinds = {"text": "text", "flag": "True or False", "timestamp": "time", "map": "mapping of text to text"}
    one = kinds[entry.kind]
    many = f"{one}, or a list" if entry.many else one
    return f"{many}: {', '.join(f'`{choice}`' for choice in entry.choices)}" if entry.choices else many


def objects(entry: Property) -> Iterator[str]:
    """Describe the objects that a property accepts."""
    for kind in objects_in(entry.type):
        yield f"`{entry.name}`: {inspect.getdoc(kind)}"
        inner = properties_of(kind)
        if kind is ProviderSettings:
            rows = ((*_property(part), ", ".join(hosts_of(part.name))) for part in inner)
            yield markdown(("property", "type", "meaning", "hosts (`provider.id`)"), rows)
        else:
            yield markdown(("property", "type", "meaning"), map(_property, inner))


def objects_in(hint: Any) -> Iterator[type]:
    if is_typeddict(hint):
        yield hint
    for part in get_args(hint):
        yield from objects_in(part)


def hosts_of(setting: str) -> Iterator[str]:
    kinds = {"private": "`private` (self-hosted)", "gitlab": "other hosted kinds", "github": "`github`"}
    return (label for kind, label in kinds.items() if setting in provider_settings_of(kind))


def _property(entry: Property) -> tuple[str, ...]:
    required = " **required**" if entry.required else ""
    return f"`{entry.name}`{required}", describe_type(entry.type), entry.doc


def request_text(exchange: Exchange) -> str:
    body = exchange.request.body
    line = f"{exchange.request.endpoint.method} {exchange.request.target}"
    return f"{line}\n{dumped(json.loads(body))}" if body else line


def response_text(exchange: Exchange) -> str:
    status, body = exchange.response.status, exchange.response.body
    if not body or exchange.request.endpoint.returns is None:
        return str(status)
    shown = re.sub(r"http://127\.0\.0\.1:\d+", SHOWN_AS, body.decode())
    return f"{status}\n{dumped(shortened(json.loads(shown)))}"


def dumped(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def shortened(value: Any, depth: int = 0) -> Any:
    """Return a JSON value with one item of each list, and only the first keys of nested objects."""
    if isinstance(value, list):
        first = [shortened(item, depth + 1) for item in value[:1]]
        return [*first, f"… {len(value) - 1} more"] if len(value) > 1 else first
    if isinstance(value, dict):
        most = MOST_KEYS if depth > 1 else len(value)
        shown = {key: shortened(inner, depth + 1) for key, inner in list(value.items())[:most]}
        return shown | ({"…": f"{len(value) - most} more"} if len(value) > most else {})
    if isinstance(value, str) and len(value) > 300:
        return f"{value[:300]}…"
    return value


def refusals(service: Sandboxed) -> list[str]:
    kinds = [kind for name in bf.__all__ if isinstance(kind := getattr(bf, name), type) and issubclass(kind, Exception)]
    listed = links("errors", ERRORS, (f"buildframe.{kind.__name__}" for kind in kinds))
    rows = ((f"[`{kind.__name__}`](api/buildframe.{kind.__name__}.rst)", *advice(kind)) for kind in kinds)
    shown = (f"```text\n>>> {code}\n{service.refusal(code)}\n```" for code in REFUSALS.values())
    tree = f"```text\n{inspect.getdoc(errors)}\n```"
    return [*listed[:2], markdown(("error", "what happened", "what to do", "may succeed later"), rows), "## Examples",
            *shown, "## Tree and attributes", tree, listed[2]]  # fmt: skip


def advice(kind: type[errors.BuildframeError]) -> tuple[str, ...]:
    """Return from the docstring of an error what happened and what to do, and whether a repeated call may succeed."""
    what, to_do = (part.replace("\n", " ") for part in (inspect.getdoc(kind) or "").split("\n\n")[:2])
    return what, to_do, "yes" if kind.retryable else "no"


def pages() -> dict[str, list[str]]:
    """Return the parts of each page by file name."""
    with bf.sandbox(seed=SEED, builds=BUILDS, days=DAYS) as ci:
        service = Sandboxed(ci)
        exchanges = dict(exchanged(service))
        return {"operations.md": operations(exchanges), "errors.md": refusals(service)}
