"""Define the command line `buildframe`. Parses arguments, calls the library, and prints results; computes nothing."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import datetime as dt
import gc
import importlib.metadata
import io
import logging
import os
import re
import signal
import socket
import sys
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn
from zoneinfo import ZoneInfo

import buildframe
from buildframe.errors import BadInput, BuildframeError, DeadlineExceeded
from buildframe.guards.secrets import environment
from buildframe.store import STORED_TABLES
from buildframe.terminal import escape_control_characters, nearest

if TYPE_CHECKING:
    from buildframe.store.sync import SyncResult
    from buildframe.workspace import Workspace

MAX_DAYS = 366
MAX_PORT = 65_535
LONGEST_EVERY = dt.timedelta(days=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run a command and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments without the program name. By default those of this process.

    Returns
    -------
    int
        0: success. 1: failure; the reason is on stderr. 3: the result is incomplete. 4: a limit is exceeded
        (`report --alert`). 124: the deadline passed. 130: interrupted. `explain` returns 1 if a row is notable, and 2
        for a failure.

    Raises
    ------
    SystemExit
        With status 2 for wrong usage, and with status 0 after `--help` and `--version`.
    """
    from buildframe.http.budget import within_deadline

    if arguments is None:  # a process of its own, whose many objects last until its end
        gc.set_threshold(10_000, 20, 50)
        atexit.register(gc.freeze)
    args = _parser().parse_args(arguments)
    try:
        with within_deadline(getattr(args, "deadline", None)):
            return int(args.run(args) or 0)
    except (BuildframeError, OSError) as why:
        notes = "".join(f"\n{note}" for note in getattr(why, "__notes__", ()))
        _print_error(args.say(f"{why}{notes}"))
        return 124 if isinstance(why, DeadlineExceeded) else 2 if args.run is _explain else 1
    except argparse.ArgumentTypeError as why:
        args.usage_error(str(why))
    except KeyboardInterrupt:
        _print_error("interrupted")
    return 130


class _Parser(argparse.ArgumentParser):
    """A parser whose messages have the words of the command line, also those of the library."""

    words: Mapping[str, str] = MappingProxyType({})

    def error(self, message: str) -> NoReturn:
        super().error(self.say(message))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest the nearest command or table, which argparse does from Python 3.14 on."""
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}.{nearest(value, [*action.choices])}")

    def say(self, message: str) -> str:
        """Return a message with the words of the command line: `--since='...'` instead of `since='...'`."""
        for python, shell in self.words.items():
            message = message.replace(python, shell)
        options = {action.dest: action.option_strings[0] for action in self._actions if action.option_strings}
        options["url"] = "store"
        return re.sub(r"(?<![\w.?&-])([a-z_]+)(?==)", lambda name: options.get(name[0], name[0]), message)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments that `cli.toml` declares."""
    declared = declarations()
    about = {name: declared[name] for name in ("description", "epilog")}
    parser = _Parser(prog="buildframe", **about)
    version = f"buildframe {importlib.metadata.version('buildframe')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, command in declared["command"].items():
        statuses = "; ".join(f"{status} {meaning}" for status, meaning in statuses_of(command, declared).items())
        about = {"description": command.get("description", command["help"]), "epilog": f"Exit status: {statuses}."}
        subparser = commands.add_parser(name, help=command["help"], **about)
        subparser.set_defaults(run=COMMANDS[name], usage_error=subparser.error)
        _add_arguments(subparser, command.get("arguments", {}))
        if "exclusive" in command:
            _add_arguments(subparser.add_mutually_exclusive_group(), command["exclusive"])
        for group in command.get("shared", []):
            _add_arguments(subparser, declared["shared"][group])
        subparser.words = declared["words"]
        subparser.set_defaults(say=subparser.say)
    return parser


def declarations() -> dict[str, Any]:
    """Return what `cli.toml` declares."""
    return tomllib.loads(resources.files("buildframe").joinpath("cli.toml").read_text("utf-8"))


def statuses_of(command: Mapping[str, Any], declared: Mapping[str, Any]) -> dict[str, str]:
    """Return the exit statuses of a command with their meaning."""
    statuses = {**declared["status"], **command.get("status", {})}
    return {status: statuses[status] for status in sorted(statuses, key=int)}


def _add_arguments(parser: argparse._ActionsContainer, arguments: dict[str, dict[str, Any]]) -> None:
    for name, declared in arguments.items():
        converter = {"type": CONVERTERS[declared["type"]]} if "type" in declared else {}
        choices = {"choices": STORED_TABLES} if declared.get("choices") == "tables" else {}
        options: dict[str, Any] = {**declared, **converter, **choices}
        parser.add_argument(name, **options)


@contextlib.contextmanager
def _convert_to_usage_error() -> Iterator[None]:
    """Convert BadInput to an error of usage, whose exit status is 2."""
    try:
        yield
    except BadInput as why:
        raise argparse.ArgumentTypeError(str(why)) from None


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of columns. Name each column once, separated by commas."
        )
    return names


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port. Use 0 (a free port) to {MAX_PORT}.")
    return int(text)


@_convert_to_usage_error()
def _deadline(text: str) -> str | None:
    from buildframe.spec.times import seconds_of

    if text == "none":
        return None
    seconds_of(text, "deadline")
    return text


@_convert_to_usage_error()
def _every(text: str) -> dt.timedelta:
    from buildframe.spec.times import parse_duration

    every = parse_duration(text, "every")
    if not dt.timedelta() < every <= LONGEST_EVERY:
        raise BadInput(f"every={text!r} is not an interval above 0 and up to a day. Use text such as '60s'.")
    return every


@_convert_to_usage_error()
def _keep(text: str) -> str:
    from buildframe.spec import Moment, when
    from buildframe.spec.times import parse_duration

    parse_duration(text, "keep")
    when(text, "keep", Moment.of(dt.datetime.now(dt.UTC)))  # raises BadInput for an age before the year 1
    return text


@_convert_to_usage_error()
def _store(text: str) -> str:
    buildframe.Store(text)
    return text


@_convert_to_usage_error()
def _pipeline(text: str) -> str:
    from buildframe import spec
    from buildframe.http import protocol

    protocol.slug_segment(spec.get_pipeline.parameters[-1], text)
    return text


@_convert_to_usage_error()
def _suite(text: str) -> str:
    from buildframe import spec
    from buildframe.http import protocol

    protocol.slug_segment(spec.list_flaky_tests.parameters[-1], text)
    return text


@_convert_to_usage_error()
def _folder(text: str) -> Path:
    from buildframe.store.location import check_path

    check_path("folder", text)
    if not text or os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder. Pass a folder; it is created if needed.")
    return Path(text)


def _exports(text: str) -> str:
    if "://" not in text and not os.path.isdir(os.path.expanduser(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder. Pass the folder of the exports, or its URL.")
    return text


def _agents(text: str) -> tuple[str, int]:
    queue, _, number = text.rpartition("=")
    if not queue or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a queue with a number of agents. Use macos=8, for example.")
    return queue, int(number)


def _factor(text: str) -> tuple[str, float]:
    step, _, factor = text.rpartition("=")
    try:
        return step, float(factor)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a step with a factor. Use e2e=0.5, for example.") from None


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day. Use an ISO date such as 2026-10-29.") from None


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise argparse.ArgumentTypeError(f"{name!r} is not a time zone. Use a name such as Europe/Berlin.") from None
    return name


def _print_error(text: str) -> None:
    print(escape_control_characters(f"buildframe: {text}"), file=sys.stderr)


def _print_result(line: str) -> bool:
    """Print a result line. If stdout fails (a closed pipe, a full disk), log a warning and return False."""
    try:
        print(escape_control_characters(line), flush=True)
        return True
    except (OSError, UnicodeError) as why:
        logging.getLogger("buildframe").warning(
            "Cannot write to stdout (%s). The line is: %a", why, line.partition("\n")[0][:1000]
        )
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or exit flushes again
        return False


def _demo(args: argparse.Namespace) -> None:
    from buildframe import demo

    if isinstance(sys.stdout, io.TextIOWrapper):  # a Windows code page lacks some of the signs
        sys.stdout.reconfigure(errors="replace")
    with _convert_to_usage_error():
        demo.prepare(args.folder)
    with buildframe.sandbox() as ci:
        for paragraph in demo.run(ci, args.folder):
            print(paragraph, end="\n\n", flush=True)


def _sandbox(args: argparse.Namespace) -> None:
    from buildframe.sandbox_server import SCOPES, Sandbox

    options = {name: getattr(args, name) for name in ("host", "port", "seed", "speed")}
    with _convert_to_usage_error():
        sandbox = Sandbox(args.path, **options, agents=dict(args.agents), run_scale=dict(args.run_scale))
    with sandbox as service:
        print(f"export BUILDFRAME_URL={service.url}")
        print("export BUILDFRAME_ORG=acme")
        print(f"export BUILDFRAME_TOKEN={service.token(SCOPES)}")
        print(f"export BUILDFRAME_SANDBOX_TOKEN={service.token(['sandbox'])}")  # for the routes under /sandbox
        print("Serving until Ctrl-C.", file=sys.stderr, flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(60)  # Windows ends a sleep by Ctrl-C, but not the wait for an event


def _sync(args: argparse.Namespace) -> int:
    _check_sync_options(args)
    store, is_complete = buildframe.Store(args.store), True
    with warnings.catch_warnings(), _connect(args) as ws:
        warnings.filterwarnings("ignore", "Incomplete", UserWarning)  # the result line contains it
        warnings.showwarning = lambda message, *_: _print_error(args.say(str(message)))
        for pipeline in args.pipeline or [None]:
            result = _sync_store(args, store, ws, pipeline)
            _print_result(f"{args.store}{f', pipeline {pipeline}' if pipeline else ''}: {args.say(str(result))}")
            is_complete = is_complete and result.complete
    return 0 if is_complete else 3


@_convert_to_usage_error()
def _check_sync_options(args: argparse.Namespace) -> None:
    from buildframe.spec import Moment, when

    if args.suite and args.pipeline:
        raise BadInput(
            "--suite cannot be used with --pipeline, because test suites belong to an organization. "
            "Leave one of them out."
        )
    when(args.since, "--since", Moment.of(dt.datetime.now(dt.UTC)))


def _connect(args: argparse.Namespace) -> Workspace:
    return _sandbox_beside(args.store) if args.sandbox else buildframe.connect()


def _sync_store(args: argparse.Namespace, store: buildframe.Store, ws: Workspace, pipeline: str | None) -> SyncResult:
    return store.sync(
        ws if pipeline is None else ws.pipeline(pipeline),
        since=args.since,
        suites=args.suite or (ws.sandbox.suites() if args.sandbox and pipeline is None else []),
        personal=args.personal,
        env=args.env,
    )


def _receive(args: argparse.Namespace) -> int:
    from buildframe import receiver

    store = buildframe.Store(args.store)
    with _convert_to_usage_error():
        receiver.database_of(store, args.write_ahead)
    application = receiver.application(
        secrets=receiver.secrets_set(),
        store=store,
        personal=args.personal,
        env=args.env,
        every=args.every.total_seconds(),
        write_ahead=args.write_ahead,
    )
    from buildframe.receiver.server import serve

    with socket.create_server(("127.0.0.1", args.port)) as listener:
        print(f"Receiving deliveries at http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
        print("Receiving until Ctrl-C.", file=sys.stderr, flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return 3 if serve(application, listener) else 0


def _import(args: argparse.Namespace) -> int:
    result = buildframe.Store(args.store).import_exports(args.path, personal=args.personal, env=args.env)
    for folder, why in result.skipped.items():
        _print_error(f"skipped {folder}: {why}")
    _print_result(f"{args.store}: {result}")
    return 0 if result.complete else 3


def _sandbox_beside(store: str) -> Workspace:
    """Return a sandbox in a file beside the store. If the file exists, advance its clock by a day."""
    if "://" in store:
        return buildframe.sandbox()
    file = Path(f"{os.path.expanduser(store)}-sandbox.db")
    exists = file.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    ws = buildframe.sandbox(path=file)
    if exists:
        ws.sandbox.clock.advance(dt.timedelta(days=1))
    return ws


def _report(args: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # sent by service managers
    if not 1 <= args.days <= MAX_DAYS:
        args.usage_error(f"--days must be between 1 and {MAX_DAYS}")
    if args.alert and args.thresholds is None:
        args.usage_error("--alert requires --thresholds")
    if args.no_sync and args.sandbox:
        args.usage_error("--sandbox and --no-sync exclude each other")
    _check_sync_options(args)
    from buildframe import report
    from buildframe.report import run
    from buildframe.report.thresholds import Thresholds

    with _convert_to_usage_error():
        thresholds = None if args.thresholds is None else Thresholds.read(args.thresholds)
    organization = "acme" if args.sandbox else environment("BUILDFRAME_ORG") or None
    selection = {name: getattr(args, name) for name in ("store", "days", "tz", "pipeline")}
    return run.run(
        args.folder,
        lambda why: report.read(**selection, organization=organization, thresholds=thresholds, why=why),
        None if args.no_sync else lambda: _sync_once(args),
        _print_result,
        args.say,
        log_format=args.log,
        alert=args.alert,
        with_message=thresholds is not None,
    )


def _sync_once(args: argparse.Namespace) -> SyncResult:
    store = buildframe.Store(args.store)
    with _connect(args) as ws:
        return _sync_store(args, store, ws, args.pipeline)


def _explain(args: argparse.Namespace) -> int:
    from buildframe.report.day import explain_day

    organization = environment("BUILDFRAME_ORG") or None
    explained = explain_day(args.store, args.day, args.tz, organization=organization, pipeline=args.pipeline)
    is_printed = _print_result(explained.to_json() if args.json else explained.to_text())
    return int(explained.is_notable) if is_printed else 2


def _export(args: argparse.Namespace) -> int:
    from buildframe import export
    from buildframe.store.retained_columns import Retention

    names = ("out", "table", "created_from", "created_to", "pipeline", "suite", "columns")
    values = {name: getattr(args, name) for name in names}
    with _convert_to_usage_error():
        options = export.ExportOptions(**values, retention=Retention(args.personal, args.env))
    if args.table == "flaky_tests" and args.store is None and args.suite is None:
        args.usage_error("The service lists flaky tests per suite. Name one with --suite.")
    if args.store is not None:
        source: Any = contextlib.nullcontext(buildframe.Store(args.store))
    else:
        source = buildframe.sandbox() if args.sandbox else buildframe.connect()
    with warnings.catch_warnings(), source as opened:
        warnings.filterwarnings("ignore", "Incomplete", UserWarning)  # the result line contains it
        result = export.write(opened, options)
    _print_result(args.say(result.summary(options)))
    return 0 if result.why is None else 3


def _compact(args: argparse.Namespace) -> None:
    print(f"{args.store}: {buildframe.Store(args.store).compact():,} files fewer")


def _clean(args: argparse.Namespace) -> None:
    print(f"{args.store}: {buildframe.Store(args.store).clean(args.keep):,} files deleted")


def _verify(args: argparse.Namespace) -> int:
    result = buildframe.Store(args.store).verify(drop=args.drop)
    for path, why in result.damaged.items():
        _print_result(f"{path}: {why}")
    if result.days:
        _print_result(f"days to read again: {', '.join(result.days)}")
    if not result.intact:
        advice = "the next sync reads them again" if args.drop else "restore the files, or drop them: verify --drop"
        _print_error(f"damaged files; {advice}")
    _print_result(f"{args.store}: {result}")
    return 0 if result.intact else 1


CONVERTERS: dict[str, Callable[[str], Any]] = {
    converter.__name__.strip("_").lower(): converter
    for converter in (
        *(_agents, _date, _deadline, _every, _exports, _factor, float, _folder, int),
        *(_keep, _names, Path, _pipeline, _port, _store, _suite, _zone),
    )
}
COMMANDS: dict[str, Callable[[argparse.Namespace], int | None]] = {
    command.__name__.strip("_"): command
    for command in (_demo, _sandbox, _sync, _import, _compact, _clean, _verify, _receive, _report, _explain, _export)
}

if __name__ == "__main__":
    sys.exit(main())
