"""The command `buildframe`: parse, call, print."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import logging
import os
import shlex
import signal
import socket
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import buildframe
from buildframe.errors import BadInput, BuildframeError, DeadlineExceeded
from buildframe.secret import environment
from buildframe.terminal import harmless

if TYPE_CHECKING:
    from buildframe.report.thresholds import Thresholds
    from buildframe.store.syncing import Synced
    from buildframe.workspace import Workspace

STORE = "where the store is: a folder, or an object store's URL"
LONGEST = 366
LAST_PORT = 65_535


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status: 0 done, 1 failed (the reason is on stderr), 2 wrong usage, 3 incomplete,
    4 a limit is exceeded (`report --alert`), 124 the deadline passed, 130 interrupted.
    """
    chosen = _parser().parse_args(arguments)
    try:
        with _in_time(chosen):
            return int(chosen.run(chosen) or 0)
    except (BuildframeError, OSError) as why:
        notes = "".join(f"\n{note}" for note in getattr(why, "__notes__", ()))
        print(harmless(f"buildframe: {why}{notes}"), file=sys.stderr)
        return 124 if isinstance(why, DeadlineExceeded) else 1
    except KeyboardInterrupt:
        print("buildframe: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="buildframe", description=buildframe.__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    demo = commands.add_parser("demo", help="a month of CI from a sandbox: fetched, measured, drawn, written")
    demo.add_argument("--folder", type=Path, default=Path("buildframe-demo"), help="for its files (%(default)s)")
    demo.set_defaults(run=_demo)
    sandbox = commands.add_parser("sandbox", help="serve the sandbox until stopped; prints its URL and a token")
    sandbox.add_argument("--path", type=Path, help="keep it in this file (default: in memory)")
    sandbox.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s: this machine only)")
    sandbox.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    sandbox.add_argument("--seed", type=int, default=1, help="of the world, where it is new (%(default)s)")
    sandbox.add_argument("--speed", type=float, help="simulated seconds per second (default: its clock stands still)")
    sandbox.set_defaults(run=_sandbox)
    _add_store(commands)
    _add_receive(commands)
    _add_report(commands)
    _add_export(commands)
    return parser


def _in_time(chosen: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """What a command asks of the service ends by its deadline, if it has one."""
    if getattr(chosen, "deadline", None) is None:
        return contextlib.nullcontext()
    from buildframe.pace import until

    return until(chosen.deadline)


def _add_store(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sync = commands.add_parser("sync", help="bring a store up to date with the service (BUILDFRAME_ORG, ..._TOKEN)")
    _add_syncing(sync)
    sync.add_argument(
        "--pipeline", action="append", default=[], help="only this pipeline of the organization; repeatable"
    )
    compact = commands.add_parser("compact", help="make few files of the many small ones that syncs have left")
    clean = commands.add_parser("clean", help="delete files that only old versions of a store need")
    clean.add_argument("--keep", default="30d", help="versions that can still be read then: an age (%(default)s)")
    for command, run in ((sync, _sync), (compact, _compact), (clean, _clean)):
        command.add_argument("store", help=STORE)
        command.set_defaults(run=run)


def _add_receive(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    receive = commands.add_parser(
        "receive", help="write what webhooks deliver into a store until stopped (BUILDFRAME_WEBHOOK_TOKEN)"
    )
    receive.add_argument("store", help=f"{STORE}; it was synced before")
    receive.add_argument("--port", type=_port, default=0, help="port of this machine (default: a free one)")
    receive.add_argument("--every", type=_age, default="60s", help="how long a delivery waits at most (%(default)s)")
    receive.add_argument(
        "--write-ahead",
        metavar="FOLDER",
        help="local folder where answered deliveries wait (default: _deliveries in the store's folder)",
    )
    receive.add_argument("--personal", action="store_true", help="keep names and e-mail addresses")
    receive.add_argument("--env", action="store_true", help="keep variables, which may hold secrets")
    receive.add_argument(
        "--per-peer", type=int, default=400, help="connections that one address may have, of 800 in all (%(default)s)"
    )
    receive.set_defaults(run=_receive)


def _add_syncing(command: argparse.ArgumentParser) -> None:
    command.add_argument("--since", default="90d", help="builds created from then: an age or a date (%(default)s)")
    command.add_argument(
        "--suite", action="append", default=[], help="a test suite whose flaky tests are kept; repeatable"
    )
    command.add_argument("--personal", action="store_true", help="keep names and e-mail addresses, and the members")
    command.add_argument("--env", action="store_true", help="keep variables, steps and YAML, which may hold secrets")
    command.add_argument(
        "--sandbox", action="store_true", help="from a sandbox beside the store, a day later each time; for a try"
    )
    _add_deadline(command)
    command.set_defaults(refuse=command.error)


def _add_deadline(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--deadline", type=_deadline, default="6h", help="end after this time, with status 124; or none (%(default)s)"
    )


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser("report", help="sync, measure, and write a page of what changed; for a timer")
    report.add_argument("store", help=STORE)
    report.add_argument("folder", type=Path, help="where reports go; `latest` in it leads to the newest")
    report.add_argument("--days", type=_days, default=7, help="so many days, and as many before (%(default)s)")
    report.add_argument("--tz", type=_zone, default="UTC", help="the zone of their midnights (%(default)s)")
    _add_syncing(report)
    report.add_argument("--pipeline", help="only this pipeline of the organization")
    report.add_argument("--no-sync", action="store_true", help="of the store as it is; needs no token")
    report.add_argument("--thresholds", type=Path, help="a TOML file of limits")
    report.add_argument("--alert", action="store_true", help="exit status 4 when a limit is exceeded")
    report.add_argument("--log", choices=["plain", "json"], default="plain", help="lines on stderr (%(default)s)")
    report.set_defaults(run=_report)


def _add_export(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = commands.add_parser("export", help="one table in one Parquet or CSV file")
    export.add_argument("out", type=Path, help="the file; it ends in .parquet or .csv")
    export.add_argument("table", choices=["builds", "jobs", "pipelines", "members", "flaky_tests"])
    where = export.add_mutually_exclusive_group()
    where.add_argument("--store", help=f"{STORE} (default: straight from the service)")
    where.add_argument("--sandbox", action="store_true", help="from a sandbox of its own, for a try")
    export.add_argument("--from", dest="created_from", metavar="WHEN", help="builds created from then (default: 30d)")
    export.add_argument("--to", dest="created_to", metavar="WHEN", help="and before then: an age or a date")
    export.add_argument("--pipeline", help="builds or jobs of this pipeline only")
    export.add_argument("--suite", help="flaky tests of this test suite")
    export.add_argument("--columns", type=_names, help="only these, in this order: names with commas between them")
    export.add_argument("--personal", action="store_true", help="with names and e-mail addresses")
    export.add_argument("--env", action="store_true", help="with variables, steps and YAML, which may hold secrets")
    _add_deadline(export)
    export.set_defaults(run=_export, refuse=export.error)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r}: each name once, with commas between them")
    return names


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days from 1 to {LONGEST}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 (a free one) to {LAST_PORT}")
    return int(text)


def _deadline(text: str) -> str | None:
    from buildframe.terms import seconds_of

    try:
        if text != "none":
            seconds_of(text, "deadline")
    except BadInput as why:
        raise argparse.ArgumentTypeError(str(why)) from None
    return None if text == "none" else text


def _age(text: str) -> dt.timedelta:
    from buildframe.spec.times import span

    try:
        return span(text, "every")
    except BadInput as why:
        raise argparse.ArgumentTypeError(str(why)) from None


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise argparse.ArgumentTypeError(f"{name!r} is no time zone, such as Europe/Berlin") from None
    return name


def _tell(line: str) -> None:
    """Print what was done. It stays done where that cannot be printed (a closed pipe, a full disk): a warning."""
    try:
        print(harmless(line), flush=True)
    except (OSError, UnicodeError) as why:
        logging.getLogger("buildframe").warning("stdout takes no line (%s); it would be: %a", why, line)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the exit tries again, and fails


def _demo(chosen: argparse.Namespace) -> None:
    from buildframe import demo

    with buildframe.sandbox() as ci:
        for paragraph in demo.run(ci, chosen.folder):
            print(paragraph, end="\n\n", flush=True)


def _sandbox(chosen: argparse.Namespace) -> None:
    from buildframe.service import SCOPES, Sandbox

    with Sandbox(chosen.path, host=chosen.host, port=chosen.port, seed=chosen.seed, speed=chosen.speed) as service:
        print(f"export BUILDFRAME_URL={service.url}")
        print("export BUILDFRAME_ORG=acme")
        print(f"export BUILDFRAME_TOKEN={service.token(SCOPES)}")
        print(f"export BUILDFRAME_SANDBOX_TOKEN={service.token(['sandbox'])}")  # for its own routes below /sandbox
        print("The sandbox serves until Ctrl-C.", file=sys.stderr, flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


def _sync(chosen: argparse.Namespace) -> int:
    _check_since(chosen)
    store, is_complete = buildframe.Store(chosen.store), True
    with warnings.catch_warnings(), _connected(chosen) as ws:
        warnings.filterwarnings("ignore", "Incomplete", UserWarning)  # it is said in the end
        warnings.showwarning = lambda message, *_: print(harmless(f"buildframe: {message}"), file=sys.stderr)
        for pipeline in chosen.pipeline or [None]:
            done = _synced(chosen, store, ws, pipeline)
            _tell(f"{chosen.store}{f', pipeline {pipeline}' if pipeline else ''}: {done}")
            is_complete = is_complete and done.complete
    return 0 if is_complete else 3


def _check_since(chosen: argparse.Namespace) -> None:
    from buildframe.spec import Moment, when

    try:
        when(chosen.since, "--since", Moment.of(dt.datetime.now(dt.UTC)))
    except BadInput as why:
        chosen.refuse(str(why))


def _connected(chosen: argparse.Namespace) -> Workspace:
    return _sandbox_beside(chosen.store) if chosen.sandbox else buildframe.connect()


def _synced(chosen: argparse.Namespace, store: buildframe.Store, ws: Workspace, pipeline: str | None) -> Synced:
    return store.sync(
        ws if pipeline is None else ws.pipeline(pipeline),
        since=chosen.since,
        suites=chosen.suite or (ws.sandbox.suites() if chosen.sandbox and pipeline is None else []),
        personal=chosen.personal,
        env=chosen.env,
    )


def _receive(chosen: argparse.Namespace) -> int:
    from buildframe import receiving

    application = receiving.application(
        secrets=receiving.secrets_set(),
        store=_synced_before(chosen.store),
        personal=chosen.personal,
        env=chosen.env,
        every=chosen.every.total_seconds(),
        write_ahead=chosen.write_ahead,
    )
    from buildframe.receiving.door import serve

    with socket.create_server(("127.0.0.1", chosen.port)) as door:
        print(f"Deliveries are received at http://127.0.0.1:{door.getsockname()[1]}/", flush=True)
        print("It receives until Ctrl-C.", file=sys.stderr, flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return 3 if serve(application, door, chosen.per_peer) else 0


def _synced_before(folder: str) -> buildframe.Store:
    store = buildframe.Store(folder)
    try:
        _ = store.version
    except BadInput:
        command = f"buildframe sync {shlex.quote(folder)}"
        raise BadInput(f"There is no store at {folder!r} yet; fill one with `{command}`.") from None
    return store


def _sandbox_beside(store: str) -> Workspace:
    """A sandbox in a file beside the store, in which a day passes from one time to the next."""
    if "://" in store:
        return buildframe.sandbox()
    file = Path(f"{Path(store).expanduser()}-sandbox.db")
    is_known = file.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    ws = buildframe.sandbox(path=file)
    if is_known:
        ws.sandbox.clock.advance(dt.timedelta(days=1))
    return ws


def _report(chosen: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # by which a service manager ends it
    if chosen.alert and chosen.thresholds is None:
        chosen.refuse("--alert needs --thresholds")
    if chosen.no_sync and chosen.sandbox:
        chosen.refuse("--sandbox is for a sync; leave out --no-sync")
    _check_since(chosen)
    from buildframe.report import running

    asked = running.Asked(
        store=chosen.store,
        folder=chosen.folder,
        days=chosen.days,
        tz=chosen.tz,
        organization="acme" if chosen.sandbox else environment("BUILDFRAME_ORG") or None,
        pipeline=chosen.pipeline,
        thresholds=_thresholds(chosen),
        alert=chosen.alert,
    )
    return running.run(asked, None if chosen.no_sync else lambda: _synced_once(chosen), _tell, chosen.log)


def _synced_once(chosen: argparse.Namespace) -> Synced:
    store = buildframe.Store(chosen.store)
    with _connected(chosen) as ws:
        return _synced(chosen, store, ws, chosen.pipeline)


def _thresholds(chosen: argparse.Namespace) -> Thresholds | None:
    from buildframe.report.thresholds import Thresholds

    try:
        return None if chosen.thresholds is None else Thresholds.read(chosen.thresholds)
    except BadInput as why:
        chosen.refuse(str(why))
        raise  # which type checkers do not know to be out of reach


def _export(chosen: argparse.Namespace) -> int:
    from buildframe import exporting
    from buildframe.store.kept import Keeping

    options = ("out", "table", "created_from", "created_to", "pipeline", "suite", "columns")
    given = {name: getattr(chosen, name) for name in options}
    try:
        asked = exporting.Asked(**given, keeping=Keeping(chosen.personal, chosen.env)).checked()
    except BadInput as why:
        chosen.refuse(str(why))
        raise  # which type checkers do not know to be out of reach
    if chosen.store is not None:
        done = exporting.from_store(buildframe.Store(chosen.store), asked)
    else:
        with warnings.catch_warnings(), buildframe.sandbox() if chosen.sandbox else buildframe.connect() as ws:
            warnings.filterwarnings("ignore", "Incomplete", UserWarning)  # it is said in the end
            done = exporting.from_service(ws, asked)
    _tell(done.told(asked))
    return 0 if done.why is None else 3


def _compact(chosen: argparse.Namespace) -> None:
    print(f"{chosen.store}: {buildframe.Store(chosen.store).compact():,} files fewer")


def _clean(chosen: argparse.Namespace) -> None:
    print(f"{chosen.store}: {buildframe.Store(chosen.store).clean(chosen.keep):,} files deleted")


if __name__ == "__main__":
    sys.exit(main())
