"""Frames are safe to print: no text in them controls a terminal, wherever the rows come from."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import buildframe as bf
from buildframe import webhooks
from buildframe.fetching.control_characters import replace_controls
from tests import worlds

HOSTILE = "a\x1b]0;title\x07b\x9b2J\x7f\tc\r\nשלום\u200f 👩\u200d💻"
SAFE = "a␛]0;title␇b‹U+009B›2J‹U+007F›\tc\r\nשלום\u200f 👩\u200d💻"
"""The same with the symbols of Unicode for C0, and with codes for the others. Marks of scripts and emoji stay."""

CONTROLS = [char for char in map(chr, range(0x110000)) if unicodedata.category(char) == "Cc" and char not in "\t\r\n"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_each_control_character_is_replaced_and_nothing_else(kind: pa.DataType) -> None:
    texts = [None, "", "plain", "Grüße", "a\tb\r\n", HOSTILE, *CONTROLS]
    chunks = [pa.array(["x", *texts], kind)[1:], pa.array([], kind)]
    table = pa.table({"text": pa.chunked_array(chunks), "n": [1] * len(texts)})
    cleaned = replace_controls(table)
    first, last = cleaned["text"].to_pylist()[:6], cleaned["text"].to_pylist()[6:]
    assert first == [None, "", "plain", "Grüße", "a\tb\r\n", SAFE]
    assert len(last) == 62
    assert all(text.isprintable() for text in last)
    assert cleaned.schema == table.schema
    assert replace_controls(table.slice(0, 5)).equals(table.slice(0, 5))


def test_frames_of_lists_events_and_stores_are_safe_to_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bf.Store(tmp_path / "ci")
    with worlds.sandbox(builds=5, days=1) as ci:
        build = ci.pipeline("web").create_build(commit="HEAD", branch="main", message=HOSTILE)
        with monkeypatch.context() as older:  # a version that stored the texts as they were sent
            older.setattr("buildframe.fetching.arrow.replace_controls", lambda table: table)
            store.sync(ci, since="2d")
        frames = [
            ci.builds(created_from="2d"),
            ci.table("/organizations/acme/builds"),
            store.builds(),
            store.sql("select id, message from builds"),
        ]
        received = ci.get(f"/organizations/acme/pipelines/web/builds/{build.number}")
    event = webhooks.parse(msgspec.json.encode({"event": "build.scheduled", "build": received}))
    for frame in (*frames, webhooks.frames([event]).builds):
        assert frame.set_index("id").loc[build.id, "message"] == SAFE
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", frame.to_string())
