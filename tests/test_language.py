"""Plain language: source, docs, notebooks and tests contain no words that only the authors would understand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PRIVATE_WORDS = {
    "tell": "return, report, contain, describe, log, raise",
    "tells": "returns, reports, contains, describes",
    "telling": "reporting, describing",
    "told": "reported, returned, described",
    "tellable": "known",
    "what came": "response, result",
    "what came of it": "result, outcome",
    "what is asked": "query, request, options, filters",
    "what is wanted": "selected columns, arguments",
    "what is given": "arguments",
    "what is kept": "retained columns",
    "what is to be said": "metadata, completeness report",
    "is asked for": "is requested",
    "asked": "requested, called with",
    "handed back": "returned",
    "hand back": "return",
    "hands back": "returns",
    "crew": "worker pool, workers",
    "walk": "listing, pagination",
    "walks": "listings",
    "walked": "paginated, read",
    "seam": "cursor",
    "stretch": "time range",
    "stretches": "time ranges",
    "crowded": "with a timestamp tie, busy",
    "doubts": "unverified ranges",
    "in doubt": "unverified",
    "pace": "rate limiter, rate",
    "paced": "rate limited",
    "effort": "request budget",
    "halted": "canceled",
    "wire": "protocol, connection",
    "faces": "validation, signatures",
    "facts": "measurements, values",
    "picture": "plot, image, screenshot",
    "pictures": "plots, images, screenshots",
    "trap": "pitfall",
    "traps": "pitfalls",
    "house": "architecture",
    "door": "http, entrance",
    "news": "significant change",
    "of another's making": "custom",
    "of others' making": "custom",
    "by hand": "manually",
    "one's own": "your own, custom",
    "ones own": "your own, custom",
    "the service's own word": "reported by the service",
    "metric of rows": "row metric",
    "metrics of rows": "row metrics",
    "whom": "that, which, whose",
    "thereof": "of it",
    "wherefrom": "from which",
    "whence": "from which",
    "whereby": "by which",
    "wherein": "in which",
    "thereby": "so",
    "hereby": "with this",
    "anew": "again",
    "upon": "on",
    "shall": "must, should",
    "nought": "zero, nothing",
    "amongst": "among",
    "whilst": "while",
    "so-manieth": "n-th",
    "in earnest": "in production",
    "in vain": "without a new row, without success",
    "utilisation": "utilization",
    "organisation": "organization",
    "behaviour": "behavior",
    "colour": "color",
    "colours": "colors",
    "coloured": "colored",
    "favour": "favor",
    "neighbour": "neighbor",
    "neighbours": "neighbors",
    "honour": "honor",
    "grey": "gray",
    "centre": "center",
    "catalogue": "catalog",
    "cancelled": "canceled",
    "cancelling": "canceling",
    "labelled": "labeled",
    "labelling": "labeling",
    "modelled": "modeled",
    "travelled": "traveled",
    "analyse": "analyze",
    "recognise": "recognize",
    "recognised": "recognized",
    "normalise": "normalize",
    "normalised": "normalized",
    "summarise": "summarize",
    "licence": "license",
}
"""Each private word, and what to write instead."""

ALLOWED: dict[str, set[str]] = {
    "src/buildframe/widgets/widgets.css": {"stretch"},  # a keyword of CSS
    "src/buildframe/report/page.html.j2": {"picture"},  # an element of HTML
    "src/buildframe/receiver/asgi.py": {"cancelled"},  # a class of asyncio
    "src/buildframe/metrics/validation.py": {"cancelled", "cancelling"},  # spellings of users
    "docs/changelog.md": {"asked", "facts", "told", "utilisation"},  # former names
    "src/buildframe/sandbox_server/simulation/scenario.py": {"by hand"},  # a key of random values
    "tests/leaks.py": {"walk"},  # a function of traceback
    "tests/jupyter/lab.py": {"news"},  # a setting of JupyterLab
    "tests/widgets/test_build_monitor_schedule.py": {"cancelled"},  # a method of asyncio
    "tests/test_architecture.py": {"walk"},  # a function of ast
    "docs/make_architecture.py": {"walk"},
    "src/buildframe/store/contained_paths.py": {"walk"},  # a function of os
    "tests/spec/test_examples.py": {"walk"},  # a function of pkgutil
    "tests/guards/test_arguments.py": {"organisation"},  # a misspelled argument
    "tests/metrics/test_engine_protocol.py": {"walk"},
    "tests/spec/test_decoders.py": {"walk"},
    "tests/metrics/test_validation.py": {"cancelled"},  # a spelling of users
}
"""Exceptions: words that a file needs, by its path."""

FOLDERS = ["src", "docs", "notebooks", "tests"]
UNCHECKED = ("tests/test_language.py", "docs/gallery/", "docs/reference/", "docs/tutorials/0")
"""Paths that are not checked: this file, which lists the words, and pages that are made from files that are checked."""

ENDINGS = {".py", ".md", ".ipynb", ".js", ".css", ".j2", ".toml", ".sql", ".graphql"}
_PATTERN = re.compile(rf"(?<![a-z])({'|'.join(sorted(PRIVATE_WORDS, key=len, reverse=True))})(?![a-z])")


def texts() -> Iterator[tuple[str, str]]:
    """Yield path and text of each file; of notebooks only the sources of their cells."""
    for path in [ROOT / "README.md", *(file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*")))]:
        name = path.relative_to(ROOT).as_posix()
        is_hidden = any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        if path.suffix in ENDINGS and not is_hidden and not name.startswith(UNCHECKED):
            yield name, source(path)


def source(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def private_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and word, also of parts of identifiers such as `told_of` and `ToldStep`."""
    for number, line in enumerate(text.splitlines(), 1):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", line.replace("’", "'")).lower()
        yield from ((number, found[1]) for found in _PATTERN.finditer(words))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What was told of it", ["told"]),
        ("def told_of(x): return ToldStep, isTold", ["told", "told", "told"]),
        ("a layout of one’s own, of one's own", ["one's own", "one's own"]),
        ("intellisense, storytelling, threshold, seamless", []),
    ],
)
def test_words_are_found(text: str, words: list[str]) -> None:
    assert [word for _, word in private_words(text)] == words


@pytest.mark.long
def test_no_private_words() -> None:
    found = [
        f"{name}:{line}: {word!r}; write: {PRIVATE_WORDS[word]}"
        for name, text in texts()
        for line, word in private_words(text)
        if word not in ALLOWED.get(name, ())
    ]
    assert found == [], "\n".join(found)


@pytest.mark.long
def test_the_exceptions_are_needed() -> None:
    used = {name: {word for _, word in private_words(text)} for name, text in texts()}
    assert [(name, word) for name, words in ALLOWED.items() for word in words - used.get(name, set())] == []


_PERCENT = re.compile(r"[\d}]% \w|:\.\d%\}")
"""A percent sign after a number, or in a format; of CSS, `100%` ends a value, and no word follows."""


def test_a_space_precedes_the_percent_sign() -> None:
    """As in "95 % interval"; notebooks may print numbers with Python's own format."""
    assert _PERCENT.search("its 95% interval")
    assert _PERCENT.search("{share:.0%}")
    assert not _PERCENT.search("its 95 % interval, width: 100%; %s of 5 %")
    found = [
        f"{name}: {match[0]!r}; write '95 %', and {{100 * share:.0f}} %"
        for name, text in texts()
        if not name.startswith(("notebooks/", "tests/"))
        for match in _PERCENT.finditer(text)
    ]
    assert found == [], "\n".join(found)
