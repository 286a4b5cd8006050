"""`:name:` in text as a picture, in HTML: for labels of steps, names of pipelines, messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

import msgspec
import pandas as pd

from buildframe.errors import BadInput

_EMOJI = re.compile(r":([\w+-]+):")
_ADDRESS = re.compile(r"https?://[^\s\x00-\x1f\x7f]+", re.IGNORECASE)
_STYLE = "height: 1em; vertical-align: -0.125em"


def render(text: object, emojis: pd.DataFrame) -> str:
    """`text` as HTML, each `:name:` of a known emoji as its picture: see `renderer`, which is faster for many texts."""
    return renderer(emojis)(text)


def renderer(emojis: pd.DataFrame) -> Callable[[object], str]:
    """A function from text to HTML, for `frame["name"].map(...)`; `emojis` is the frame of `Workspace.emojis()`.

    It escapes the text and puts an `<img class="emoji">`, as high as the text, in place of each `:name:` whose name
    or alias is known and whose address is http or https. Others stay text. What is no text (None, NaN) gives "".
    A frame without the columns `name`, `url` and `aliases` raises BadInput.
    """
    addresses = _addresses(emojis)

    def show(text: object) -> str:
        return "".join(_parts(text, addresses)) if isinstance(text, str) else ""

    return show


def _parts(text: str, addresses: dict[str, str]) -> Iterator[str]:
    at = 0
    while match := _EMOJI.search(text, at):
        known = addresses.get(match[1])
        end = match.end() if known else match.end() - 1  # a colon that ends no picture may begin the next
        yield escape(text[at : match.start()])
        yield _image(match[0], known) if known else escape(text[match.start() : end])
        at = end
    yield escape(text[at:])


def _image(name: str, url: str) -> str:
    word = escape(name)
    return f'<img class="emoji" src="{escape(url)}" alt="{word}" title="{word}" style="{_STYLE}">'


def _addresses(emojis: pd.DataFrame) -> dict[str, str]:
    """The address of each name and alias that can be shown; a name goes before an alias."""
    try:
        columns = emojis["name"], emojis["url"], emojis["aliases"]
    except KeyError as missing:
        raise BadInput(f"The frame has no column {missing}: pass the one of ws.emojis().") from None
    rows = list(zip(*columns, strict=True))
    aliases = {alias: url for _, url, text in rows for alias in _listed(text)}
    known = aliases | {name: url for name, url, _ in rows}
    return {name: url for name, url in known.items() if isinstance(url, str) and _ADDRESS.fullmatch(url)}


def _listed(aliases: Any) -> list[str]:
    """The aliases in a cell of their column: JSON text of a list, or NaN."""
    if not isinstance(aliases, str):
        return []
    try:
        return msgspec.json.decode(aliases, type=list[str])
    except msgspec.DecodeError as why:
        raise BadInput(f"The column `aliases` holds {aliases!r}, not a JSON list of texts: {why}") from None
