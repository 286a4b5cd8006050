"""Measure what tests protect: change one place of the library after the other, and see whether a test fails.

`old` and `new` are two clones with the same `src` and other `tests`. In `new`, with Python 3.12 or later:

    python -m tests.benchmarks.mutants list 200 > mutants.json
    python -m tests.benchmarks.mutants map old old.jsonl        # which test runs which functions
    python -m tests.benchmarks.mutants run old old.jsonl mutants.json > old.json
    python -m tests.benchmarks.mutants map new new.jsonl
    python -m tests.benchmarks.mutants run new new.jsonl mutants.json > new.json
    python -m tests.benchmarks.mutants compare old.json new.json

`mutants.csv` has the outcomes of the first run.

A mutant meets the tests of its package that run the changed function, the quick ones first, until one fails.
Tests with Spark or in JupyterLab are left out on both sides.
"""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

SEED = 45
PACKAGES = {
    "fetching": ["tests/fetching"],
    "http": ["tests/http"],
    "metrics": ["tests/metrics"],
    "spec": ["tests/spec", "tests/contract"],
    "store": ["tests/store"],
    "webhooks": ["tests/test_webhooks.py", "tests/test_webhooks_http.py", "tests/receiver"],
    "widgets": ["tests/widgets"],
}
"""The tests of each package."""
LIMIT = 900.0
"""Seconds for the tests of a mutant: one that never ends is killed."""

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
OPERATORS: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}


class Mutant(NamedTuple):
    """A change of the text between two offsets of a file, and the first line of the function around it."""

    package: str
    path: str
    line: int
    function: int
    start: int
    end: int
    old: str
    new: str


def find_mutants(source: Path, package: str) -> Iterator[Mutant]:
    """Yield all mutants of a package."""
    files = sorted((source / package).rglob("*.py"))
    if package == "webhooks":
        files = [source / "webhooks.py", *sorted((source / "receiver").rglob("*.py"))]
    for path in files:
        text = path.read_bytes()
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef):
                continue
            first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
            for place, new in changes_in(function):
                start = starts[place.lineno - 1] + place.col_offset
                end = starts[place.end_lineno - 1] + place.end_col_offset
                old = text[start:end].decode()
                name = path.relative_to(source).as_posix()
                yield Mutant(package, name, place.lineno, first, start, end, old, new)


def changes_in(function: ast.FunctionDef) -> Iterator[tuple[Any, str]]:
    """Yield each place that can change, and its new text. Inner functions have their own."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            waiting += [child for name, child in children_of(node) if name not in ("annotation", "returns")]
            yield from changed_statement(node)
            yield from changed_expression(node)


def changed_statement(node: ast.AST) -> Iterator[tuple[Any, str]]:
    match node:
        case ast.If(test=test):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "return None"
        case ast.Expr(value=ast.Call()):
            yield node, "pass"


def changed_expression(node: ast.AST) -> Iterator[tuple[Any, str]]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
            yield node, f"{ast.unparse(left)} {COMPARISONS[type(operator)]} {ast.unparse(right)}"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield node, "(" + word.join(f"({ast.unparse(value)})" for value in values) + ")"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            yield node, f"(({ast.unparse(left)}) {OPERATORS[type(operator)]} ({ast.unparse(right)}))"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, repr(value + 1)


def children_of(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(node, ast.JoinedStr):
                yield name, child


def choose(source: Path, number: int) -> list[Mutant]:
    """Choose the same number of mutants from each package, each in a function of its own if there are enough.

    The packages take turns, so that a run can stop after any of them.
    """
    chosen: list[list[Mutant]] = []
    for position, package in enumerate(PACKAGES):
        share = number * (position + 1) // len(PACKAGES) - number * position // len(PACKAGES)
        by_function = defaultdict(list)
        for mutant in find_mutants(source, package):
            by_function[mutant.path, mutant.function].append(mutant)
        draw = random.Random(f"{SEED} {package}")
        functions = draw.sample(sorted(by_function), min(share, len(by_function)))
        chosen.append([draw.choice(by_function[each]) for each in functions])
    return [mutant for turn in zip_longest(*chosen) for mutant in turn if mutant is not None]


def map_tests(root: Path, output: Path) -> None:
    """Run the tests of a folder, and write which functions each of them runs."""
    plugin = Path(__file__).with_name("functions_of_tests.py")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(plugin, folder)
        tests = [each for paths in PACKAGES.values() for each in paths if (root / each).exists()]
        command = [sys.executable, "-m", "pytest", "-p", plugin.stem, "-q", "-n", "2", "--dist", "loadfile", "-m", ""]
        command += ["-k", "not spark"]
        paths = os.pathsep.join([folder, str(root / "src")])
        environment = os.environ | {"PYTHONPATH": paths, "FUNCTIONS_OF_TESTS": f"{folder}/part"}
        status = subprocess.run([*command, *tests], cwd=root, env=environment, check=False).returncode
        assert status in (0, 1), f"pytest ended with {status}: the map is not complete"
        output.write_text("".join(part.read_text() for part in sorted(Path(folder).glob("part*"))))


class Runner:
    """Runs the tests of one folder against mutants."""

    def __init__(self, root: Path, known: Path) -> None:
        self.root = root
        self.tests = [json.loads(line) for line in known.read_text().splitlines()]

    def select(self, mutant: Mutant) -> list[str]:
        """Return the tests of its package that run the function, the quick ones first."""
        function = [mutant.path, mutant.function]
        mine = [
            each
            for each in self.tests
            if each["id"].startswith(tuple(PACKAGES[mutant.package]))
            and function in each["functions"]
            and "failed" not in each["outcome"]
            and "spark" not in each["id"].lower()
        ]
        return [each["id"] for each in sorted(mine, key=lambda each: each["wall"])]

    def run(self, mutant: Mutant) -> dict[str, Any]:
        """Return whether a test fails, the exit status of pytest, how many tests were selected, and the seconds."""
        selected = self.select(mutant)
        outcome: dict[str, Any] = {**mutant._asdict(), "tests": len(selected), "killed": False, "seconds": 0.0}
        if not selected:
            return outcome
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "src")
            shutil.copytree(self.root / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
            file = source / "buildframe" / mutant.path
            text = file.read_bytes()
            file.write_bytes(text[: mutant.start] + mutant.new.encode() + text[mutant.end :])
            listed = Path(folder, "tests.txt")
            listed.write_text("\n".join(selected))
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:randomly",
                "-m",
                "",
            ]
            environment = os.environ | {"PYTHONPATH": str(source)}
            begin = time.monotonic()
            with open(Path(folder, "output"), "wb") as output:
                process = subprocess.Popen(
                    [*command, f"@{listed}"], cwd=self.root, env=environment, stdout=output, stderr=output,
                    start_new_session=True,
                )  # fmt: skip
                try:
                    process.wait(LIMIT)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, 9)
                    process.wait()
            outcome["status"] = process.returncode
            outcome["killed"] = process.returncode != 0
            outcome["seconds"] = round(time.monotonic() - begin, 1)
            lines = Path(folder, "output").read_text(errors="replace").splitlines()
            failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
            assert not any("ERROR: not found" in line for line in failed), f"ids of tests change: {failed}"
            is_import_error = process.returncode == 4
            assert failed or is_import_error or process.returncode in (0, -9), f"{mutant}: {lines[-20:]}"
            outcome["by"] = failed[0][:200] if failed else lines[-1][:200] if lines else ""
        return outcome


def main(command: str, *arguments: str) -> None:
    source = Path(__file__).parents[2] / "src" / "buildframe"
    match command, arguments:
        case "list", [number]:
            print(json.dumps([each._asdict() for each in choose(source, int(number))], indent=1))
        case "map", [root, output]:
            map_tests(Path(root).resolve(), Path(output))
        case "run", [root, known, mutants]:
            runner = Runner(Path(root).resolve(), Path(known))
            listed = [Mutant(**each) for each in json.loads(Path(mutants).read_text())]
            with ThreadPoolExecutor(2) as pool:
                for outcome in pool.map(runner.run, listed):
                    print(json.dumps(outcome), flush=True)
            print(f"{sum(os.times()[2:4]) / 3600:.2f} hours of CPU", file=sys.stderr)
        case "compare", files:
            compare(*files)


def compare(*files: str) -> None:
    """Print the share that is killed by package, and each mutant with different outcomes."""
    runs = [[json.loads(line) for line in Path(file).read_text().splitlines()] for file in files]
    for package in [*PACKAGES, ""]:
        for file, run in zip(files, runs, strict=True):
            mine = [each for each in run if package in ("", each["package"])]
            killed = Counter(each["killed"] for each in mine)[True]
            print(f"{package or 'all':10} {file}: {killed} of {len(mine)}")
    for each in zip(*runs, strict=True):
        if len({one["killed"] for one in each}) > 1:
            print(
                [one["killed"] for one in each], each[0]["path"], each[0]["line"], each[0]["old"], "->", each[0]["new"]
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
