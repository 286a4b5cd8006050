"""Run Python programs in processes forked from one that has imported the large packages: importing takes 1.5 s each."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = (
    *("buildframe.cli", "buildframe.plots", "buildframe.report.run", "buildframe.store", "buildframe.workspace"),
    *("deltalake.fs", "filelock", "jinja2", "matplotlib.backends.backend_agg", "matplotlib.pyplot"),
    *("pyarrow.dataset", "scipy.stats"),
)
SERVE = "import sys; from tests.preloaded import serve; exec(serve(int(sys.argv[1])), {'__name__': '__main__'})"


def run(
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    timeout: float,
    meanwhile: Callable[[int], object] = lambda process: None,
) -> subprocess.CompletedProcess[str]:
    """Run a program as `python -c` does, in a process of its own with its own output and environment.

    `meanwhile` is called with the number of the process while it runs.
    """
    channel, pipes = _server(), [os.pipe(), os.pipe()]
    request = json.dumps([program, list(arguments), dict(environment)]).encode()
    socket.send_fds(channel, [request], [written for _, written in pipes])
    for _, written in pipes:
        os.close(written)
    process = int(channel.recv(100))
    with ThreadPoolExecutor(2) as readers:
        outputs = readers.map(_read, [read for read, _ in pipes])
        try:
            meanwhile(process)
            channel.settimeout(timeout)
            status = int(channel.recv(100))
        except BaseException:
            os.kill(process, signal.SIGKILL)
            channel.settimeout(None)
            channel.recv(100)
            raise
        return subprocess.CompletedProcess([program, *arguments], status, *outputs)


def _read(pipe: int) -> str:
    with open(pipe, encoding="utf-8") as file:
        return file.read()


@cache
def _server() -> socket.socket:
    """Start the process that is forked; it ends when this process closes the channel."""
    channel, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with served:
        command = [sys.executable, "-c", SERVE, str(served.fileno())]
        server = subprocess.Popen(command, cwd=ROOT, pass_fds=[served.fileno()], stdin=subprocess.DEVNULL)
    atexit.register(lambda: (channel.close(), server.wait()))
    return channel


def compile_templates() -> None:
    """Compile the templates of reports, which takes 0.1 s."""
    page = importlib.import_module("buildframe.report.page")
    for html, names in ((True, ("page.html.j2", "macros.html.j2", "tables.html.j2")), (False, ("summary.md.j2",))):
        for name in names:
            page._environment(html=html).get_template(name)


def serve(descriptor: int) -> str:
    """Fork a process for each request, and return the program in that process."""
    for name in MODULES:
        importlib.import_module(name)
    compile_templates()
    gc.freeze()  # at the end of a process, to collect what it did not make took half a second
    importlib.import_module("duckdb")  # complains at the end about whatever was not collected
    channel = socket.socket(fileno=descriptor)
    process = 0
    while True:
        message, outputs, _, _ = socket.recv_fds(channel, 1 << 20, 2)
        if process:
            os.waitpid(process, 0)
        if not message:
            os._exit(0)
        process = os.fork()
        if process == 0:
            break
        for output in outputs:
            os.close(output)
        channel.send(str(process).encode())
        # The number of a process is not used again until the process is reaped.
        ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        channel.send(str(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status).encode())
    channel.close()
    for number, output in enumerate(outputs, start=1):
        os.dup2(output, number)
        os.close(output)
    program, arguments, environment = json.loads(message)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    return str(program)
