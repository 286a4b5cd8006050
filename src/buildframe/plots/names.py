"""Labels for names that people chose: on one line, short, distinct, and drawable. Knows no Axes."""

from __future__ import annotations

import itertools
import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pandas as pd

from buildframe.formatting import isolate_right_to_left, label_steps, truncate_middle
from buildframe.plots.fonts import find_fallbacks, missing_characters, style_families

NO_NAME = "(no name)"
SEPARATOR = " · "
"""What stands between the parts of a title."""

_ISOLATES = "\u2068\u2069"
_BOX = "\N{WHITE VERTICAL RECTANGLE}"

_PARTS = re.compile(r"( / | \((?=[^()]*\)\Z))")
"""What stands between the parts of a label "pipeline / step (kind)"."""

_WHOLE = 1_000_000  # characters, more than any name has
_LEAST_PART = 3  # characters of a part, and of what stands between parts
_UNEVEN = 1.25  # how many times as long as others a line may be that ends where a part ends
_LEAST_HEAD = 12  # characters of a label that has room for the beginning of a name whose end distinguishes it


def prefix_if_several(names: pd.Series[str], groups: pd.Series[str]) -> pd.Series[str]:
    """Return names as "group / name" if there are several groups."""
    return groups.fillna("?") + " / " + names if groups.nunique() > 1 else names


def step_names(frame: pd.DataFrame) -> pd.Series[str]:
    """Return the label of each step: "pipeline / step" if there are several pipelines."""
    labels = label_steps(frame["step"], frame["pipeline"])
    return prefix_if_several(labels.fillna(NO_NAME), frame["pipeline"])


def shortened(name: str, width: int) -> str:
    """Shorten a name to one line of at most `width` characters by removing its middle.

    Wide characters count twice. Line breaks become spaces, and unprintable characters become U+FFFD.
    """
    line = _on_one_line(name)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in line)
    if len(line) + wide <= width:
        return line
    return truncate_middle(line, width * len(line) // (len(line) + wide))


def _on_one_line(name: str) -> str:
    text = " ".join(name.split()) or NO_NAME
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def drawable(name: str, width: int) -> str:
    """
    Return the name `shortened`, with a box for each character that no installed font has.

    Without the boxes, Matplotlib warns about each such character. A right-to-left name is isolated, so that it does not
    reorder the text beside it. The result may be shortened again.
    """
    line = shortened(name.removeprefix(_ISOLATES[0]).removesuffix(_ISOLATES[1]), width)
    if lacking := missing_characters(line, style_families()):
        lacking = missing_characters(line, [*style_families(), *find_fallbacks(lacking)])
    return isolate_right_to_left("".join(_BOX if char in lacking else char for char in line))


def unique_labels(
    names: Iterable[str], width: int, short: Callable[[str, int], str] = drawable, among: Iterable[str] = ()
) -> dict[str, str]:
    """Return a distinct label per name.

    The parts of a long name "pipeline / step (kind)" are shortened each for itself. A part loses its middle, or, if
    parts of several names would look alike then, keeps where it differs. Names of `among` are considered, too. Labels
    that still look alike are numbered.
    """
    ordered = sorted(set(names), key=lambda name: (len(name), name))
    labels = _shorten_parts([*ordered, *(set(among) - set(ordered))], width, short)
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    count: Counter[str] = Counter()
    for name in ordered:
        whole = short(name, width)
        plain = label = whole if whole == short(name, _WHOLE) else labels[name]
        while label in taken:
            count[plain] += 1
            label = f"{short(plain, width - 5)} ‹{count[plain] + 1}›"
        taken.add(label)
        chosen[name] = label
    return chosen


def _shorten_parts(names: Iterable[str], width: int, short: Callable[[str, int], str]) -> dict[str, str]:
    """Return the label of each name, whose parts have together at most `width` characters."""
    shapes: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for name in names:
        parts = _PARTS.split(name)
        parts = parts if width >= _LEAST_PART * len(parts) else [name]
        shapes.setdefault(tuple(parts[1::2]), {})[name] = parts[::2]
    labels = {}
    for between, split in shapes.items():
        columns = [
            sorted(set(values), key=lambda part: (len(part), part)) for values in zip(*split.values(), strict=True)
        ]
        found: dict[tuple[int, int], dict[str, str]] = {}  # by place of the part, and its room
        for name, parts in split.items():
            room = width - len("".join(between))
            places = enumerate(share_room(room, [len(part) for part in parts]) if between else [width])
            texts = []
            for place, part in zip(places, parts, strict=True):
                if place not in found:
                    found[place] = _distinguish(columns[place[0]], place[1], short)
                texts.append(found[place][part])
            labels[name] = texts[0] + "".join(map(str.__add__, between, texts[1:]))
    return labels


def share_room(room: int, needed: Sequence[int]) -> list[int]:
    """Return how many characters each text gets: what it needs, or an equal share of what shorter texts leave."""
    shares = [1] * len(needed)
    for rank, k in enumerate(sorted(range(len(needed)), key=needed.__getitem__)):
        shares[k] = min(max(needed[k], 1), max(room // (len(needed) - rank), 1))
        room -= shares[k]
    return shares


def _distinguish(names: Sequence[str], width: int, short: Callable[[str, int], str]) -> dict[str, str]:
    """Return each name without its middle, or, if this hides where it differs from others, with that part."""
    plain = {name: short(name, width) for name in names}
    alike, labels = Counter(plain.values()), {}
    for name, place in _differences([*names]).items():
        label = plain[name]
        head, _, tail = label.partition("…")
        is_whole = label == short(name, _WHOLE)
        has_word = _word_end(name, place) <= len(head) or _word_start(name, place, width) >= len(name) - len(tail)
        is_clear = alike[label] == 1 and (is_whole or has_word)
        labels[name] = label if is_clear else short(_around(name, place, width), width)
    return labels


def _differences(names: list[str]) -> dict[str, int]:
    """Return where each name begins to differ from the one that it resembles longest."""
    ordered = sorted(names)
    shared = [_shared_length(*pair) for pair in itertools.pairwise(ordered)]
    return {name: max([*shared[max(k - 1, 0) : k + 1]], default=0) for k, name in enumerate(ordered)}


def _shared_length(one: str, other: str) -> int:
    """Return how many characters two texts have in common at the beginning."""
    pairs = zip(one, other, strict=False)
    return next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _around(name: str, place: int, width: int) -> str:
    """Return the name shortened to its beginning, if there is room for it, and to the word that has the place."""
    line = " ".join(name.split())
    if len(line) <= width:
        return line
    place -= len(name) - len(line) if len(name) > len(line) else 0
    head = width // 3 if width >= _LEAST_HEAD else 0
    room = width - head - 1
    word = _word_start(line, place, width // 2)
    # The word before it distinguishes "race-auth" from "test-auth".
    before = _word_start(line, max(word - 2, 0), len(line))
    begin = max(min(before if _word_end(line, place) - before < room else word, len(line) - room), 0)
    if begin <= head + 1:
        return line[: width - 1] + "…"
    rest = line[begin:]
    fits = len(rest) <= room or _word_end(rest, 0) == room
    return f"{line[:head]}…{rest[:room] if fits else rest[: room - 1] + '…'}"


def _word_start(line: str, place: int, most: int) -> int:
    """Return where the word at a place begins, or the place if that is more than `most` characters before it."""
    before = range(place, max(place - most, 0) - 1, -1)
    return next((k for k in before if k == 0 or not line[k - 1].isalnum()), place)


def _word_end(line: str, place: int) -> int:
    return next((k for k in range(place, len(line)) if not line[k].isalnum()), len(line))


def wrap_label(label: str, width: int) -> str:
    """Return a label on two lines of about `width` characters if it is longer than one."""
    if len(label) <= width:
        return label
    for place in (found.start() for found in re.finditer(" / ", label)):
        lines = [label[: place + 2], label[place + 3 :]]
        if max(map(len, lines)) <= _UNEVEN * width:
            return "\n".join(lines)
    label = "".join(char for char in label if char not in _ISOLATES)
    lines, longest = textwrap.wrap(label, width, break_long_words=False), _UNEVEN * width
    if len(lines) > 2 or max(map(len, lines)) > longest:  # words do not fill the lines
        half = (len(label) + 1) // 2
        ends = [k for k in range(1, len(label)) if not label[k - 1].isalnum() and max(k, len(label) - k) <= longest]
        at = min(ends, key=lambda end: abs(end - half), default=half)
        lines = [label[:at].rstrip(), label[at:].lstrip()]
    return "\n".join(map(isolate_right_to_left, lines))
