"""Labels for names that people chose: on one line, short, distinct, and drawable. Knows no Axes."""

from __future__ import annotations

import itertools
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

import pandas as pd

from buildframe.errors import BadInput
from buildframe.formatting import isolate_right_to_left, truncate_middle
from buildframe.guards.arguments import checked_call
from buildframe.plots.fonts import find_fallbacks, missing_characters, style_families

NO_NAME = "(no name)"
SEPARATOR = " · "
"""What stands between the parts of a title."""

_ISOLATES = "\u2068\u2069"
_BOX = "\N{WHITE VERTICAL RECTANGLE}"


def prefix_if_several(names: pd.Series[str], groups: pd.Series[str]) -> pd.Series[str]:
    """Return names as "group / name" if there are several groups."""
    return groups.fillna("?") + " / " + names if groups.nunique() > 1 else names


@checked_call
def shortened(name: str, width: int) -> str:
    """
    Shorten a name to one line of at most `width` characters by removing its middle.

    Wide characters count twice. Line breaks become spaces, and unprintable characters become U+FFFD.

    Parameters
    ----------
    name : str
        Name to shorten. An empty name becomes "(no name)".
    width : int
        Maximum number of characters, at least 1.

    Returns
    -------
    str
        The name on one line, with "…" in place of what was removed.

    Raises
    ------
    BadInput
        If `width` is below 1.

    Examples
    --------
    >>> plots.shortened("integration tests of the billing service", 21)
    'integratio…ng service'
    """
    if width < 1:
        raise BadInput(f"width={width}: pass a whole number of at least 1.")
    return _shorten(name, width)


def _shorten(name: str, width: int) -> str:
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
    reorder the text beside it.
    """
    line = _shorten(name, width)
    if lacking := missing_characters(line, style_families()):
        lacking = missing_characters(line, [*style_families(), *find_fallbacks(lacking)])
    return isolate_right_to_left("".join(_BOX if char in lacking else char for char in line))


def unique_labels(names: Iterable[str], width: int, short: Callable[[str, int], str] = drawable) -> dict[str, str]:
    """Return a distinct label per name.

    A long name loses its middle. If names would look alike then, each keeps the part in which it differs, and those
    that still look alike are numbered.
    """
    ordered = sorted(set(names), key=lambda name: (len(name), name))
    alike = Counter(short(name, width) for name in ordered)
    places = _differences([name for name in ordered if alike[short(name, width)] > 1])
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    count: Counter[str] = Counter()
    for name in ordered:
        text = _around(name, places[name], width) if name in places else name
        plain = label = short(text, width)
        while label in taken:
            count[plain] += 1
            label = f"{short(text, width - 5)} ‹{count[plain] + 1}›"
        taken.add(label)
        chosen[name] = label
    return chosen


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
    """Return the name shortened to its beginning and to what follows the place, with a few characters before it."""
    line = " ".join(name.split())
    place -= len(name) - len(line) if len(name) > len(line) else 0
    head = max(width // 3, 1)
    begin = max(min(place - width // 4, len(line) - (width - head - 1)), 0)
    if len(line) <= width or begin <= head:
        return line if len(line) <= width else line[: width - 1] + "…"
    rest = line[begin:]
    room = width - head - 1
    return f"{line[:head]}…{rest if len(rest) <= room else rest[: room - 1] + '…'}"


def wrap_label(label: str, width: int) -> str:
    """Return a label on two lines of about `width` characters if it is longer than one."""
    if len(label) <= width:
        return label
    label = label.strip(_ISOLATES)
    lines = textwrap.wrap(label, width, break_long_words=True, break_on_hyphens=True)
    if len(lines) > 2:  # words do not fill the lines
        half = (len(label) + 1) // 2
        lines = [label[:half], label[half:]]
    return "\n".join(map(isolate_right_to_left, lines))
