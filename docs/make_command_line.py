"""Write the pages about the command line and the configuration, from the parser and the declarations that read them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any

from numpydoc.docscrape import NumpyDocString
from page_parts import markdown

from buildframe import cli
from buildframe.report import thresholds
from buildframe.report.objectives import Objective

ENVIRONMENT = {
    "BUILDFRAME_ORG": "slug of the organization; read by `connect()` and the command line",
    "BUILDFRAME_TOKEN": "API access token; it needs the scopes that [operations](operations.md) name",
    "BUILDFRAME_URL": "URL of the service; by default that of the hosted service",
    "BUILDFRAME_GRAPHQL_URL": "URL for GraphQL; by default `/graphql` at the URL of the service",
    "BUILDFRAME_WEBHOOK_TOKEN": "tokens of the webhook, separated by spaces, with which a receiver verifies deliveries",
    "BUILDFRAME_STORE": "store of `buildframe.receiver:app`, the application for other servers",
    "BUILDFRAME_WRITE_AHEAD": "local folder of `buildframe.receiver:app` for accepted deliveries",
    "BUILDFRAME_SANDBOX_TOKEN": "printed by `buildframe sandbox`: the token for the routes under `/sandbox`",
}
"""What the environment sets, by name."""


def command_line() -> Iterator[str]:
    """Yield the parts of the page about the command line."""
    parser, declared = cli._parser(), cli.declarations()
    yield "# Command line"
    yield f"{parser.description} {parser.epilog}"
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    rows = ((f"[`{each.dest}`](#buildframe-{each.dest})", each.help or "") for each in commands._choices_actions)
    yield markdown(("command", "purpose"), rows)
    yield (
        "Wrong arguments are status 2. A variable of the environment that is missing or invalid, such as "
        "`BUILDFRAME_TOKEN`, `BUILDFRAME_ORG` or `BUILDFRAME_WEBHOOK_TOKEN`, is a failure: status 1, and status 2 of "
        "`explain`."
    )
    for name, subparser in commands.choices.items():
        yield f"## buildframe {name}"
        yield with_code(str(subparser.description))
        yield f"```text\n{subparser.format_usage().removeprefix('usage: ').strip()}\n```"
        yield markdown(
            ("argument", "default", "meaning"), (argument(each, subparser) for each in subparser._actions[1:])
        )
        yield markdown(("exit status", "meaning"), statuses(cli.statuses_of(declared["command"][name], declared)))


def statuses(meanings: Mapping[Any, str]) -> Iterator[tuple[str, str]]:
    return ((str(status), with_code(meaning)) for status, meaning in meanings.items())


def argument(action: argparse.Action, parser: argparse.ArgumentParser) -> tuple[str, str, str]:
    """Return the row of an argument."""
    value = "" if action.nargs == 0 else f" {action.metavar or (action.dest.upper() if action.option_strings else '')}"
    name = f"`{action.option_strings[0] if action.option_strings else action.dest}{value.rstrip()}`"
    is_needed = action.required if action.option_strings else True
    default = "**required**" if is_needed else f"`{action.default}`" if action.default else "–"
    meaning = parser._get_formatter()._expand_help(action) if action.help else ""
    meaning = meaning.replace(f" ({action.default})", "")
    return name, default, f"{with_code(meaning)} {choices(action)}".strip()


def with_code(text: str) -> str:
    """Mark the options in a text as code, so that their hyphens stay."""
    return re.sub(r"(?<![\w`])(--[a-z][a-z-]*)", r"`\1`", text)


def choices(action: argparse.Action) -> str:
    return f"({', '.join(f'`{each}`' for each in action.choices)})" if action.choices else ""


def configuration() -> Iterator[str]:
    """Yield the parts of the page about the environment and the file of limits."""
    yield "# Configuration"
    yield "## Environment variables"
    yield markdown(("variable", "meaning"), ((f"`{name}`", meaning) for name, meaning in ENVIRONMENT.items()))
    yield (
        "Proxies and certificates are those of the environment, too (`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`): "
        "[behind a proxy](../how-to/proxy.md). Arguments of `buildframe.connect` take precedence."
    )
    yield "## Limits and objectives of a report"
    yield (
        "`buildframe report --thresholds FILE` reads a TOML file with these tables, each of which is optional. "
        f'The keys are names of queues or pipelines; `"{thresholds.DEFAULT}"` is for all others. '
        "[Set limits](../report.md#set-limits) has an example, and says when a limit counts as exceeded."
    )
    meanings = parameters(thresholds.Thresholds)
    rows = [(f"`[{name}]`", meanings[name], allowed) for name, (_, allowed) in thresholds._VALUES.items()]
    rows.append(('`[objectives."NAME"]`', meanings["objectives"], "a table with the keys below"))
    yield markdown(("table", "meaning", "values"), rows)
    yield "Keys of an objective:"
    meanings = parameters(Objective)
    keys = ((_key(name, needed), meanings[name], allowed) for name, (_, allowed, needed) in thresholds._KEYS.items())
    yield markdown(("key", "meaning", "values"), keys)


def _key(name: str, is_needed: bool) -> str:
    return f"`{name}` **required**" if is_needed else f"`{name}`"


def parameters(kind: type) -> dict[str, str]:
    """Return the meaning of each parameter in a docstring."""
    parsed: list[Any] = NumpyDocString(kind.__doc__ or "")["Parameters"]
    return {name: " ".join(entry.desc) for entry in parsed for name in entry.name.split(", ")}


def pages() -> dict[str, list[str]]:
    """Return the parts of each page by file name."""
    return {"command-line.md": [*command_line()], "configuration.md": [*configuration()]}
