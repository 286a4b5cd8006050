"""msgspec's decoders are built under a lock: threads that use a type at first do not crash the process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import buildframe

SOURCES = Path(buildframe.__file__).parent

THREADS = """
import sys
import threading

import msgspec

from buildframe.spec import RESOURCES, columns_of
from buildframe.spec.reading import convert_record
from buildframe.spec.rows import read_row, row_type

sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)
finished = []

def read(thread):
    for kind in RESOURCES.values():
        names = [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
        identity = dict.fromkeys(names, "5f2a")
        barrier.wait()
        convert_record(kind, identity)
        convert_record(kind, {**identity, "creator": 1})
        for first in range(4):  # selections of columns, each with types of its own
            row = row_type(kind, tuple(column.path for column in columns_of(kind)[first:] if column.path))
            barrier.wait()
            read_row(row, b'{"creator": {"name": "x"}, "provider": {"id": "x"}, "agent": {"name": "x"}}')
    finished.append(thread)

threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(finished))
"""


SLOW = """
import threading
import time

import msgspec

from buildframe.spec.decoders import convert

def slow():
    time.sleep(0.2)
    return int

class Inner(msgspec.Struct):
    number: "slow()" = 0  # msgspec evaluates it while it builds the type

class Outer(msgspec.Struct):
    inner: Inner | None = None

def read(delay):
    time.sleep(delay)
    numbers.append(convert({"inner": {"number": 1}}, Outer).inner.number)

numbers = []
threads = [threading.Thread(target=read, args=(delay,)) for delay in (0, 0.1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*numbers)
"""


def run_fresh(program: str) -> tuple[int, list[str]]:
    """Run a program in a fresh process; return its exit status and its words."""
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return run.returncode, run.stdout.split()


def test_a_type_is_not_read_while_another_thread_builds_it() -> None:
    assert run_fresh(SLOW) == (0, ["1", "1"])


@pytest.mark.long
def test_threads_of_fresh_processes_read_every_resource_at_once() -> None:
    for _ in range(6):  # without the lock, 3 of 10 crash
        assert run_fresh(THREADS) == (0, ["8"])


PLAIN = {"dict", "list", "tuple", "str", "bytes", "int", "float", "bool", "Any", "msgspec"}
"""Names in types about which msgspec keeps nothing at a class."""


def decoded_types(call: ast.Call) -> list[ast.expr]:
    """Return the type that a call passes to msgspec, if any."""
    function = ast.unparse(call.func)
    named = [keyword.value for keyword in call.keywords if keyword.arg == "type"]
    if function.split(".")[-1] == "Decoder":
        return named or call.args[:1]
    if function == "msgspec.convert":
        return named or call.args[1:2]
    return named if function.endswith("decode") else []


def test_no_other_module_lets_msgspec_build_a_type() -> None:
    found = []
    for path in SOURCES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "msgspec" not in text and "decode" not in text.lower():
            continue
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        for kind in (kind for call in calls for kind in decoded_types(call)):
            names = {node.id for node in ast.walk(kind) if isinstance(node, ast.Name)}
            if names - PLAIN:
                found.append(f"{path.relative_to(SOURCES)}: {ast.unparse(kind)}")
    assert set(found) == {"spec/decoders.py: kind"}, found
