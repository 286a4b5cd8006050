"""The command `buildframe`: parse, call, print."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import buildframe
from buildframe.errors import BuildframeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status: 0 done, 1 failed (the reason is on stderr), 130 interrupted."""
    chosen = _parser().parse_args(arguments)
    try:
        chosen.run(chosen)
    except (BuildframeError, OSError) as why:
        notes = "".join(f"\n{note}" for note in getattr(why, "__notes__", ()))
        print(f"buildframe: {why}{notes}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


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
    return parser


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


if __name__ == "__main__":
    sys.exit(main())
