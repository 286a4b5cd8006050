"""Write the pages in docs/reference/ from the declarations, with answers of a running sandbox:
`python docs/make_reference.py`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints, is_typeddict
from unittest.mock import patch

import buildframe as bf
from buildframe import errors
from buildframe.client import Client
from buildframe.spec import (
    ENDPOINTS,
    TABLES,
    Column,
    Endpoint,
    Filter,
    Property,
    ProviderSettings,
    properties_of,
    provider_settings_of,
    words,
)
from buildframe.terms import Listing, Walking
from buildframe.wire import Answer, Request
from buildframe.workspace import Workspace

FOLDER = Path(__file__).with_name("reference")
SHOWN_AS = "https://api.example.com"
SEED, BUILDS, DAYS = 1, 150, 7
DTYPES = {
    "text": ("`str`", "–"),
    "integer": ("`Int64`", "whole number"),
    "flag": ("`boolean`", "true or false"),
    "moment": ("`datetime64[us, UTC]`", "instant, microseconds"),
    "json": ("`str`", "JSON text"),
}
MOST_KEYS = 6
BESIDE = (Workspace.graphql, Workspace.set_team, Workspace.remove_team, Workspace.log)

EXAMPLES = {
    "list_all_builds": "everything.builds(created_from='1d')",
    "list_builds": "ci.history(created_from='1d')",
    "list_pipeline_builds": "ci.pipeline('docs').builds(state=['passed', 'failed'])",
    "get_build": "ci.pipeline('docs').build(number)",
    "create_build": (
        "ci.pipeline('docs').create_build(commit='HEAD', branch='main', message='Try it', env={'DEPTH': 'all'})"
    ),
    "cancel_build": "ci.pipeline('docs').cancel(created.number)",
    "rebuild_build": "ci.pipeline('docs').rebuild(created.number)",
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
    "list_emojis": "ci.emojis()",
}
"""For each operation a call, in an order in which each finds what it needs."""

REFUSALS = {
    "BadInput": "ci.builds(state='pased')",
    "Unauthorized": "stranger.builds()",
    "Forbidden": "reader.pipeline('docs').cancel(number)",
    "NotFound": "ci.pipeline('dcos').builds()",
    "Invalid": "ci.pipeline('docs').cancel(number)",
    "GraphQLError": "ci.graphql('{ pipeline }')",
}
"""For errors that a sandbox can show: a call that raises it."""


# --- what the sandbox answers -----------------------------------------------------------------------------------------


class Exchange(NamedTuple):
    """A request and its answer."""

    request: Request
    answer: Answer


class Sandboxed:
    """Calls on a sandbox whose world is the same every time."""

    def __init__(self, ci: Workspace) -> None:
        self.names = names_in(ci)

    def call(self, code: str) -> tuple[Any, Exchange]:
        """What a call returns, and its last exchange with the sandbox."""
        seen: list[Exchange] = []
        really = Client._exchange

        def watched(client: Client, request: Request) -> Answer:
            answer = really(client, request)
            seen.append(Exchange(request, answer))
            return answer

        with patch.object(Client, "_exchange", watched):
            result = eval(code, self.names)  # noqa: S307  our own text above
        return result, seen[-1]

    def refusal(self, code: str) -> str:
        """The text of the error that a call raises, after the error's name."""
        try:
            eval(code, self.names)  # noqa: S307
        except errors.BuildframeError as why:
            return f"{type(why).__name__}: {why}"
        raise AssertionError(f"{code} raised nothing")


def names_in(ci: Workspace) -> dict[str, Any]:
    """What the examples call things."""
    service = ci.sandbox
    builds = ci.pipeline("docs").builds()
    return {
        "ci": ci,
        "everything": bf.connect(None, base_url=service.url, token=service.token()),
        "reader": bf.connect("acme", base_url=service.url, token=service.token()),
        "stranger": bf.connect("acme", base_url=service.url, token="unknown"),  # noqa: S106
        "number": int(builds["number"].iloc[0]),
        "cluster": ci.pipeline("docs").get().cluster_id,
        "team": service.teams()["Platform"],
        "suite": service.suites()[0],
        "user": ci.members()["id"].iloc[0],
    }


# --- pages ------------------------------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """The text of every page by its name."""
    with bf.sandbox(seed=SEED, builds=BUILDS, days=DAYS) as ci:
        service = Sandboxed(ci)
        exchanges = dict(exchanged(service))
        made = {"operations.md": operations(exchanges), "errors.md": refusals(service), "tables.md": tables()}
    return {name: "\n\n".join(parts) + "\n" for name, parts in made.items()}


def exchanged(service: Sandboxed) -> Iterator[tuple[str, Exchange]]:
    """For each operation its example's exchange; what examples made has a name for the next ones."""
    for name, code in EXAMPLES.items():
        result, exchange = service.call(code)
        assert exchange.request.endpoint.name == name, code
        if name == "create_build":
            service.names["created"] = result
        if name == "create_pipeline":
            service.names["hello"] = result.id
        yield name, exchange


GENERATED = (
    "Generated from the declarations in `src/buildframe/spec/` by `docs/make_reference.py`; a test compares them."
)


def tables() -> list[str]:
    return [
        "# Tables",
        GENERATED,
        "Every column is there with its dtype, also in an empty frame and where the service left a key out. "
        "A nested object gives the columns that its declaration lists. Maps and lists are JSON text.",
        *(part for name, columns in TABLES.items() for part in table(name, columns)),
    ]


def table(name: str, columns: Iterable[Column]) -> Iterator[str]:
    yield f"## `{name}`"
    yield markdown(("column", "dtype", "unit", "in the answer", "meaning"), map(_row, columns))


def _row(column: Column) -> tuple[str, ...]:
    path = f"`{'.'.join(column.path)}`" if column.path else "–"
    return (f"`{column.name}`", *DTYPES[column.kind], path, column.doc)


def operations(exchanges: dict[str, Exchange]) -> list[str]:
    return [
        "# Operations",
        GENERATED,
        "The answers are those of a sandbox, shortened: `…` tells how much was left out. Of lists one record is shown.",
        *(part for endpoint in ENDPOINTS for part in operation(endpoint, exchanges[endpoint.name])),
        *options(),
        "## Beside these",
        *(f"`ws.{method.__name__}`: {inspect.getdoc(method)}" for method in BESIDE),
    ]


def options() -> Iterator[str]:
    yield "## Options"
    yield (
        "Arguments of methods that list something, beside its filters; in brackets what holds without them. `history` "
        "also takes `job_columns` and `job_extra`, for the jobs; `columns` and `extra` are for its builds."
    )
    of_all, of_builds = (get_type_hints(kind, include_extras=True) for kind in (Listing, Walking))
    lists = dict.fromkeys(of_builds, "builds") | dict.fromkeys(of_all, "all")
    hints = of_all | of_builds
    yield markdown(
        ("option", "of lists", "meaning"), ((f"`{n}`", lists[n], h.__metadata__[0]) for n, h in hints.items())
    )


def operation(endpoint: Endpoint, exchange: Exchange) -> Iterator[str]:
    yield f"## {endpoint.name.replace('_', ' ').capitalize()}"
    yield f"`{endpoint.method} /v2{endpoint.path}`"
    yield f"{endpoint.doc} {_answers(endpoint)} Scope: {f'`{endpoint.scope}`' if endpoint.scope else 'none'}."
    if endpoint.filters:
        yield markdown(("filter", "takes", "meaning"), ((f"`{f.name}`", _takes(f), f.doc) for f in endpoint.filters))
    if endpoint.properties:
        yield markdown(("property", "takes", "meaning"), map(_property, endpoint.properties))
        for entry in endpoint.properties:
            yield from objects(entry)
    yield f"```text\n>>> {EXAMPLES[endpoint.name]}\n{asked(exchange)}\n\n{answered(exchange)}\n```"


def _answers(endpoint: Endpoint) -> str:
    if endpoint.returns is None:
        return f"Answers {endpoint.success}."
    what = f"a list of `{endpoint.returns.__name__}`" if endpoint.lists else f"`{endpoint.returns.__name__}`"
    return f"Answers {endpoint.success} with {what}{', in pages' if endpoint.paginated else ''}."


def _takes(entry: Filter) -> str:
    kinds = {"text": "text", "flag": "True or False", "moment": "time", "map": "mapping of texts"}
    one = kinds[entry.kind]
    many = f"{one}, or a list" if entry.many else one
    return f"{many}: {', '.join(f'`{choice}`' for choice in entry.choices)}" if entry.choices else many


def objects(entry: Property) -> Iterator[str]:
    """What the objects are made of that a property takes."""
    for kind in objects_in(entry.type):
        yield f"`{entry.name}`: {inspect.getdoc(kind)}"
        inner = properties_of(kind)
        if kind is ProviderSettings:
            rows = ((*_property(part), ", ".join(hosts_of(part.name))) for part in inner)
            yield markdown(("property", "takes", "meaning", "hosts (`provider.id`)"), rows)
        else:
            yield markdown(("property", "takes", "meaning"), map(_property, inner))


def objects_in(hint: Any) -> Iterator[type]:
    if is_typeddict(hint):
        yield hint
    for part in get_args(hint):
        yield from objects_in(part)


def hosts_of(setting: str) -> Iterator[str]:
    kinds = {"private": "`private` (self-hosted)", "gitlab": "other hosted kinds", "github": "`github`"}
    return (told for kind, told in kinds.items() if setting in provider_settings_of(kind))


def _property(entry: Property) -> tuple[str, ...]:
    required = " **required**" if entry.required else ""
    return f"`{entry.name}`{required}", words(entry.type), entry.doc


def asked(exchange: Exchange) -> str:
    body = exchange.request.body
    line = f"{exchange.request.endpoint.method} {exchange.request.target}"
    return f"{line}\n{dumped(json.loads(body))}" if body else line


def answered(exchange: Exchange) -> str:
    status, body = exchange.answer.status, exchange.answer.body
    if not body or exchange.request.endpoint.returns is None:
        return str(status)
    shown = re.sub(r"http://127\.0\.0\.1:\d+", SHOWN_AS, body.decode())
    return f"{status}\n{dumped(shortened(json.loads(shown)))}"


def dumped(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def shortened(value: Any, depth: int = 0) -> Any:
    """A JSON value with one item of each list, and of objects inside objects the first keys only."""
    if isinstance(value, list):
        kept = [shortened(item, depth + 1) for item in value[:1]]
        return [*kept, f"… {len(value) - 1} more"] if len(value) > 1 else kept
    if isinstance(value, dict):
        most = MOST_KEYS if depth > 1 else len(value)
        kept_keys = {key: shortened(inner, depth + 1) for key, inner in list(value.items())[:most]}
        return kept_keys | ({"…": f"{len(value) - most} more"} if len(value) > most else {})
    if isinstance(value, str) and len(value) > 300:
        return f"{value[:300]}…"
    return value


def refusals(service: Sandboxed) -> list[str]:
    shown = (f"```text\n>>> {code}\n{service.refusal(code)}\n```" for code in REFUSALS.values())
    return ["# Errors", GENERATED, f"```text\n{inspect.getdoc(errors)}\n```", "What some of them say:", *shown]


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
