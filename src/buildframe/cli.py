"""The command `buildframe`: parse, call, print."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import buildframe
from buildframe.errors import BuildframeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status: 0 done, 1 failed (the reason is on stderr), 3 incomplete, 130 interrupted."""
    chosen = _parser().parse_args(arguments)
    try:
        return int(chosen.run(chosen) or 0)
    except (BuildframeError, OSError) as why:
        notes = "".join(f"\n{note}" for note in getattr(why, "__notes__", ()))
        print(f"buildframe: {why}{notes}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
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
    return parser


def _add_store(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sync = commands.add_parser("sync", help="bring a store up to date with the service (BUILDFRAME_ORG, ..._TOKEN)")
    sync.add_argument("--since", default="90d", help="builds created from then: an age or a date (%(default)s)")
    sync.add_argument(
        "--suite", action="append", default=[], help="a test suite whose flaky tests are kept; repeatable"
    )
    sync.add_argument("--pipeline", help="only this pipeline of the organization")
    sync.add_argument("--personal", action="store_true", help="keep names and e-mail addresses, and the members")
    sync.add_argument("--env", action="store_true", help="keep variables, steps and YAML, which may hold secrets")
    sync.add_argument("--sandbox", action="store_true", help="from a sandbox of its own, all suites, for a try")
    compact = commands.add_parser("compact", help="make few files of the many small ones that syncs have left")
    clean = commands.add_parser("clean", help="delete files that only old versions of a store need")
    clean.add_argument("--keep", default="30d", help="versions that can still be read then: an age (%(default)s)")
    for command, run in ((sync, _sync), (compact, _compact), (clean, _clean)):
        command.add_argument("folder", help="where the store is: a folder, or an object store's URL")
        command.set_defaults(run=run)


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
    store = buildframe.Store(chosen.folder)
    with warnings.catch_warnings(), buildframe.sandbox() if chosen.sandbox else buildframe.connect() as ws:
        warnings.filterwarnings("ignore", "Incomplete", UserWarning)  # it is said in the end
        done = store.sync(
            ws if chosen.pipeline is None else ws.pipeline(chosen.pipeline),
            since=chosen.since,
            suites=chosen.suite or (ws.sandbox.suites() if chosen.sandbox and chosen.pipeline is None else []),
            personal=chosen.personal,
            env=chosen.env,
        )
    print(f"{chosen.folder}: {done}")
    return 0 if done.complete else 3


def _compact(chosen: argparse.Namespace) -> None:
    print(f"{chosen.folder}: {buildframe.Store(chosen.folder).compact():,} files fewer")


def _clean(chosen: argparse.Namespace) -> None:
    print(f"{chosen.folder}: {buildframe.Store(chosen.folder).clean(chosen.keep):,} files deleted")


if __name__ == "__main__":
    sys.exit(main())
