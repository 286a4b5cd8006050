"""Plain language: source, docs and notebooks contain no words that only the authors would understand."""

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
    "whom": "that, which, whose",
    "thereof": "of it",
    "wherefrom": "from which",
    "thereby": "so",
    "hereby": "with this",
    "crew": "worker pool, workers",
    "seam": "cursor",
    "halted": "canceled",
    "one's own": "your own, custom",
    "ones own": "your own, custom",
    "so-manieth": "n-th",
    "in earnest": "in production",
    "in vain": "without a new row, without success",
    "by hand": "manually",
    "walk": "listing, pagination",
    "walks": "listings",
    "walked": "paginated, read",
    "stretch": "time range",
    "stretches": "time ranges",
    "news": "significant change",
    "doubts": "unverified ranges",
    "effort": "request budget",
    "anew": "again",
    "what came": "response, result",
    "handed back": "returned",
    "hand back": "return",
}
"""Each private word, and what to write instead."""

ALLOWED: dict[str, set[str]] = {
    "src/buildframe/widgets/widgets.css": {"stretch"},  # a keyword of CSS
    "docs/changelog.md": {"told"},  # a former name
    "src/buildframe/http/decompression.py": {"tell"},  # a method of files
    "src/buildframe/sandbox_server/simulation/scenario.py": {"by hand"},  # a key of random values
}
"""Exceptions: words that a file needs, by its path."""

FOLDERS = ["src", "docs", "notebooks"]
ENDINGS = {".py", ".md", ".ipynb", ".js", ".css", ".j2", ".toml", ".sql"}
_PATTERN = re.compile(rf"(?<![a-z])({'|'.join(sorted(PRIVATE_WORDS, key=len, reverse=True))})(?![a-z])")


def texts() -> Iterator[tuple[str, str]]:
    """Yield path and text of each file; of notebooks only the sources of their cells."""
    for path in [ROOT / "README.md", *(file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*")))]:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in ENDINGS and not any(part.startswith(".") for part in path.relative_to(ROOT).parts):
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


def test_no_private_words() -> None:
    found = [
        f"{name}:{line}: {word!r}; write: {PRIVATE_WORDS[word]}"
        for name, text in texts()
        for line, word in private_words(text)
        if word not in ALLOWED.get(name, ())
    ]
    assert found == [], "\n".join(found)


def test_the_exceptions_are_needed() -> None:
    used = {name: {word for _, word in private_words(text)} for name, text in texts()}
    assert [(name, word) for name, words in ALLOWED.items() for word in words - used.get(name, set())] == []
