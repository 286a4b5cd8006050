"""`:name:` becomes an image, and all other text stays text."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe import emojis
from buildframe.errors import BadInput

URL = "https://emoji.example.com/"


def frame(*rows: tuple[object, object, object]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["name", "url", "aliases"])


KNOWN = frame(
    ("rails", URL + "rails.png", '["ruby-on-rails", "shared"]'),
    ("+1", URL + "up.png", '["thumbs_up"]'),
    ("b", URL + "b.png?size=1&kind='b'", None),
    ("shared", URL + "own.png", "[]"),
    ("script", "javascript:alert(1)", '["scripted"]'),
)


class Reader(HTMLParser):
    """Parse HTML into its visible text, with the alt text of images in angle brackets."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.seen = ""
        self.images: list[dict[str, str | None]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "img"
        assert [name for name, _ in attrs] == ["class", "src", "alt", "title", "style"]
        self.images.append(dict(attrs))
        self.seen += f"<{dict(attrs)['alt']}>"

    def handle_endtag(self, tag: str) -> None:
        raise AssertionError(tag)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment

    def handle_data(self, data: str) -> None:
        self.seen += data


SHOWN = {
    "build": "build",
    "": "",
    ":rails: test": "<:rails:> test",
    ":ruby-on-rails:": "<:ruby-on-rails:>",
    ":+1::+1:": "<:+1:><:+1:>",
    ":thumbs_up: :b:": "<:thumbs_up:> <:b:>",
    ":a:b:": ":a<:b:>",
    ":b:a:": "<:b:>a:",
    ":b:b:b:": "<:b:>b<:b:>",
    "12:30:45": "12:30:45",
    "::b::": ":<:b:>:",
    ": b:": ": b:",
    ":B:": ":B:",
    ":unknown: & <b>": ":unknown: & <b>",
    ":script: :scripted:": ":script: :scripted:",
}


def test_known_names_become_images() -> None:
    assert {text: Reader(emojis.render(text, KNOWN)).seen for text in SHOWN} == SHOWN


def test_an_image_has_its_url_its_name_and_the_height_of_the_text() -> None:
    (image,) = Reader(emojis.render(":b:", KNOWN)).images
    assert image["src"] == URL + "b.png?size=1&kind='b'"
    assert image["alt"] == image["title"] == ":b:"
    assert image["class"] == "emoji"
    assert "height: 1em" in str(image["style"])


def test_the_scheme_of_a_url_may_be_in_capitals() -> None:
    (image,) = Reader(emojis.render(":x:", frame(("x", "HTTPS://emoji.example.com/x", None)))).images
    assert image["src"] == "HTTPS://emoji.example.com/x"


def test_a_name_takes_precedence_over_an_alias_of_another() -> None:
    (image,) = Reader(emojis.render(":shared:", KNOWN)).images
    assert image["src"] == URL + "own.png"


NO_WEB_ADDRESSES = [
    "javascript:alert(1)", "JaVaScRiPt:alert(1)", " javascript:alert(1)",
    "java\nscript:alert(1)", "//example.com/x",
    "data:image/svg+xml,<svg onload=alert(1)>", "vbscript:x", "file:///etc/passwd", "/relative.png", "", "https://",
    "https:example.com", "https:\\\\example.com", "ftp://example.com/x", "https://example.com/a b", None, np.nan,
    "https://example.com/\x00", "x https://example.com/", "https://example.com/\n",
]  # fmt: skip


def test_only_web_addresses_become_images() -> None:
    shown = {url: emojis.render("a :x: b", frame(("x", url, '["y"]'))) for url in NO_WEB_ADDRESSES}
    assert shown == dict.fromkeys(NO_WEB_ADDRESSES, "a :x: b")


HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onload='alert(1)", "</title>", "&lt;b&gt; &amp;",
    "<!-- :b: -->", "<![CDATA[:b:]]>", "<?php :b: ?>", "<svg/onload=alert(1)>", ":<b>:", ':"b":', ":b\":b:' onx=",
    "<a href=':b:'>", "]]>", "\\:b:", "<plaintext>", "&#58;b&#58;", "<im:b:g src=x onerror=alert(1)>",
]  # fmt: skip


def test_hostile_text_is_only_text() -> None:
    shown = [Reader(emojis.render(text, KNOWN)).seen.replace("<:b:>", ":b:") for text in HOSTILE]
    assert shown == HOSTILE


def test_hostile_names_and_urls_are_quoted_attributes() -> None:
    for word in HOSTILE:
        known = frame((word, URL, None), ("x", URL + re.sub(r"\s", "", word), None))
        html = emojis.render(f":x: :{word}:", known)
        (image, *_) = Reader(html).images
        assert image["src"] == URL + re.sub(r"\s", "", word)
        assert Reader(html).seen == f"<:x:> :{word}:"


@given(st.text(st.sampled_from(":+-_b1<>&\"' \n:é") | st.characters(exclude_categories=["Cs"]), max_size=40))
def test_no_text_is_lost_or_becomes_markup(text: str) -> None:
    html = emojis.render(text, KNOWN)
    assert unescape(re.sub(r'<img class="emoji" [^>]* alt="([^"]*)"[^>]*>', r"\1", html)) == text
    assert "<" not in re.sub(r'<img class="emoji" [^>]*>', "", html)


def test_a_missing_text_becomes_empty() -> None:
    assert [emojis.render(nothing, KNOWN) for nothing in (None, np.nan, pd.NA, pd.NaT)] == [""] * 4


def test_a_column_is_mapped_by_one_lookup() -> None:
    names = pd.Series([":b: <x>", None, "y"], dtype="str")
    shown = names.map(emojis.renderer(KNOWN))
    assert [Reader(html).seen for html in shown] == ["<:b:> <x>", "", "y"]


def test_without_emojis_text_stays_as_it_is() -> None:
    assert emojis.render(":b:", frame()) == ":b:"


def test_an_invalid_frame_is_refused() -> None:
    with pytest.raises(BadInput, match="url"):
        emojis.renderer(pd.DataFrame({"name": ["b"]}))
    with pytest.raises(BadInput, match="JSON list"):
        emojis.renderer(frame(("b", URL, "thumbs_up")))
