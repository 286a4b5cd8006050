"""Render emoji names such as `:rocket:` as images in HTML. Does not fetch emojis."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

import msgspec
import pandas as pd

from buildframe.errors import BadInput

__all__ = ["render", "renderer"]

_EMOJI = re.compile(r":([\w+-]+):")
_URL = re.compile(r"https?://[^\s\x00-\x1f\x7f]+", re.IGNORECASE)
_STYLE = "height: 1em; vertical-align: -0.125em"


def render(text: object, emojis: pd.DataFrame) -> str:
    """
    Render a text as HTML with emojis as images.

    Parameters
    ----------
    text : object
        Text such as the name of a step. Values that are not str, such as NaN, give an empty string.
    emojis : DataFrame
        Emojis as returned by `Workspace.emojis`, with the columns `name`, `url` and `aliases`.

    Returns
    -------
    str
        Escaped HTML. Each `:name:` of an emoji with an HTTP URL is an `<img class="emoji">`. Others stay text.

    Raises
    ------
    BadInput
        If a column is missing or `aliases` is not a JSON list.

    See Also
    --------
    renderer : Faster for many texts.

    Examples
    --------
    >>> emojis = pd.DataFrame({"name": ["tada"], "url": ["https://e.example/t.png"], "aliases": [None]})
    >>> render("<b> :tada:", emojis)[:37]
    '&lt;b&gt; <img class="emoji" src="htt'
    """
    return renderer(emojis)(text)


def renderer(emojis: pd.DataFrame) -> Callable[[object], str]:
    """
    Return a function that renders texts as HTML.

    Parameters
    ----------
    emojis : DataFrame
        Emojis as returned by `Workspace.emojis`, with the columns `name`, `url` and `aliases`.

    Returns
    -------
    callable
        Function of one text that works like `render`.

    Raises
    ------
    BadInput
        If a column is missing or `aliases` is not a JSON list.

    See Also
    --------
    render : Render one text.

    Examples
    --------
    >>> emojis = pd.DataFrame({"name": ["tada"], "url": ["https://e.example/t.png"], "aliases": [None]})
    >>> pd.Series(["a & b", None]).map(renderer(emojis)).tolist()
    ['a &amp; b', '']
    """
    urls = _urls_by_name(emojis)
    return lambda text: "".join(_fragments(text, urls)) if isinstance(text, str) else ""


def _fragments(text: str, urls: dict[str, str]) -> Iterator[str]:
    at = 0
    while match := _EMOJI.search(text, at):
        url = urls.get(match[1])
        end = match.end() if url else match.end() - 1  # the second colon may start an emoji
        yield escape(text[at : match.start()])
        label = escape(text[match.start() : end])
        if url:
            yield f'<img class="emoji" src="{escape(url)}" alt="{label}" title="{label}" style="{_STYLE}">'
        else:
            yield label
        at = end
    yield escape(text[at:])


def _urls_by_name(emojis: pd.DataFrame) -> dict[str, str]:
    """Return the URL of each name and alias. Names take precedence over aliases."""
    try:
        columns = emojis["name"], emojis["url"], emojis["aliases"]
    except KeyError as missing:
        raise BadInput(f"The frame of emojis has no column {missing}. Pass the result of ws.emojis().") from None
    rows = list(zip(*columns, strict=True))
    aliases = {alias: url for _, url, text in rows for alias in _aliases_in(text)}
    by_name = aliases | {name: url for name, url, _ in rows}
    return {name: url for name, url in by_name.items() if isinstance(url, str) and _URL.fullmatch(url)}


def _aliases_in(aliases: Any) -> list[str]:
    """Return the aliases in a cell, which contains a JSON list or NaN."""
    if not isinstance(aliases, str):
        return []
    try:
        return msgspec.json.decode(aliases, type=list[str])
    except msgspec.DecodeError as why:
        raise BadInput(f"The column `aliases` contains {aliases!r}, not a JSON list of str: {why}") from None
