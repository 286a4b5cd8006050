"""The message for chat tools: its text, and that text of the service mentions nobody and formats nothing."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from buildframe.report.chat import MAX_MESSAGE, body
from buildframe.report.content import Finding, Report, Verdict
from buildframe.report.measurements import Measurements
from buildframe.report.periods import Period
from tests.conftest import Scripted, says
from tests.programs import require_program

NOW = pd.Timestamp("2026-10-26T08:00Z")
NOTHING = Measurements(**{name: pd.DataFrame() for name in Measurements.__dataclass_fields__})


def report(
    verdicts: Sequence[Verdict] = (), findings: Sequence[str] = (), why: Sequence[str] = (), organization: str = "acme"
) -> Report:
    described = tuple(Finding("speed", "web", text, bad=True) for text in findings)
    return Report(
        organization, "http://127.0.0.1", NOW, Period.last(NOW, 7), tuple(why), NOTHING, described, tuple(verdicts),
        pd.DataFrame(), pd.DataFrame(), NOW,
    )  # fmt: skip


def text(of: Report) -> str:
    made = body(of)
    assert made.keys() == {"text"}  # some tools refuse a body with a name that they do not know
    assert isinstance(made["text"], str)
    return made["text"]


def test_exceeded_limits_come_first_then_findings_then_counts_of_the_rest() -> None:
    verdicts = [
        Verdict("macos", "over", "Jobs of the queue macos wait 2 h; the limit is 1 h at most."),
        Verdict("web", "perhaps", "Perhaps."),
        *[Verdict("x", "within", "Kept.")] * 3,
        Verdict("y", "unknown", "Unknown."),
    ]
    assert text(
        report(verdicts, ["web takes 21 min instead of 17 min (at 08:15 UTC)."], ["One page was not read."])
    ) == (
        "CI of acme, 19 Oct 2026 to 25 Oct 2026: 1 limit exceeded.\n"
        "INCOMPLETE: One page was not read.\n"
        "• Limit exceeded: Jobs of the queue macos wait 2 h; the limit is 1 h at most.\n"
        "• web takes 21 min instead of 17 min (at 08:15 UTC).\n"
        "Other limits: 1 perhaps exceeded, 1 with too little data, 3 met."
    )
    assert text(report()) == "CI of acme, 19 Oct 2026 to 25 Oct 2026: 0 limits exceeded."


HOSTILE = [
    "@channel", "@here", "@all", "@everyone", "＠here", "﹫all", "@\u200bhere", "@\u2060all", "<!channel>",
    "<!here|here>",
    "<!everyone>", "<!subteam^S012AB|team>", "<@U012ABCDE>", "<#C012ABCDE|general>", "<users/all>", "<users/12345>",
    "<at>all</at>", "&lt;!channel&gt;", "&#64;here", "#general", "~town-square", "＃general",
    "<https://evil.example.com|click>",
    "https://evil.example.com/x", "http://evil.example.com", "HTTPS://EVIL.EXAMPLE.COM", "www.evil.example.com",
    "evil.example.com", "evil．example．com", "evil.example.com:8080/x", "mailto:ada@example.com", "ada@example.com",
    "javascript:alert(1)", "slack://open", "[click](https://evil.example.com)", "![x](https://evil.example.com/x.png)",
    "[click][1]", "*bold*", "_italic_", "__bold__", "**bold**", "~struck~", "~~struck~~", "`code`", "```\ncode\n```",
    "||spoiler||", "> quote", "\n> quote", "# heading", "\n# heading", "\n* item", "\n\n---\n", "| a | b |\n|---|---|",
    "$x^2$", "$$x$$", ":tada:", ":+1:", ":100:", "\\*x\\*", "<b>x</b>", "<script>alert(1)</script>", "\x00",
    "\x1b[31mred", "\u202eevil", "\r\nINCOMPLETE: x", "\u2028x", "\ud800", "1.2.3.example.com", "a..com", "x\u200d.com",
]  # fmt: skip
ACTS = re.compile(r"[@<>&*_~`#|$\[\]\\＠＃]|:(?=\S)(?!(?<=\d\d:)\d\d\b)|\w\.[^\W\d]|[^\S \n]")


def lines_with(hostile: str) -> list[str]:
    verdicts = [Verdict(hostile, "over", f"x {hostile} y"), Verdict(hostile, "within", hostile)]
    return text(report(verdicts, [hostile, f"{hostile} takes"], [f"why {hostile}"], hostile)).split("\n")


def effects(hostile: str) -> list[object]:
    """What would act in a message, and lines that do not begin as they should."""
    heads = ("CI of ", "INCOMPLETE: why", "• Limit exceeded: x ", "• ", "• ", "Other limits: 1 met.")
    lines = lines_with(hostile)
    assert len(lines) == len(heads), lines
    wrong = [line for line, head in zip(lines, heads, strict=True) if not line.startswith(head)]
    return [*(found for line in lines for found in ACTS.findall(line)), *wrong]


def test_text_of_the_service_has_no_effect_in_a_message() -> None:
    assert {hostile: found for hostile in HOSTILE if (found := effects(hostile))} == {}


@given(st.text())
def test_no_text_has_an_effect_in_a_message(hostile: str) -> None:
    assert [ACTS.findall(line) for line in lines_with(hostile)] == [[]] * 6


def test_ordinary_text_stays_as_it_is() -> None:
    texts = [
        "web", "linux-x86", "büro 東京 🚀", "took 1,234.5 s (p99.9) at 08:15", "release/1.2.3", "it's 50 % – “ok”",
        "a: b",
    ]  # fmt: skip
    assert text(report(findings=texts)).split("\n")[1:] == [f"• {plain}" for plain in texts]


def test_names_stay_readable() -> None:
    assert text(report(findings=["unit_tests of my.app, <main> [ada@example.com]"])).endswith(
        "• unitˍtests of my·app, ‹main› ［ada(at)example·com］"
    )


def test_sentences_that_do_not_fit_are_counted() -> None:
    left_out = {}
    for many, length in ((0, 10), (5, 10), (500, 10), (60, 400), (5, 5_000), (500, 5_000)):
        message = text(report(findings=[f"{n} ".ljust(length, "x") for n in range(many)]))
        assert len(message) <= MAX_MESSAGE
        head, *lines = message.split("\n")
        assert head.startswith("CI of acme")
        shown = [line for line in lines if line.startswith("• ")]
        assert all(line.startswith(f"• {n} x") for n, line in enumerate(shown))
        left = left_out[many, length] = many - len(shown)
        more = f"… and {left:,} more line{'s' if left > 1 else ''}; see the report."
        assert lines[len(shown) :] == ([more] if left else [])
    assert [case for case, left in left_out.items() if not left] == [(0, 10), (5, 10), (5, 5_000)]


def test_curl_posts_the_message_as_documented(tmp_path: Path, scripted: Callable[..., Scripted]) -> None:
    require_program("curl", package="curl")
    made = body(report(findings=["büro is slower"]))
    (tmp_path / "chat.json").write_text(json.dumps(made))
    hook = scripted(says(b"ok"))
    post = "curl --fail --silent --show-error -H 'Content-Type: application/json' --data @chat.json \"$WEBHOOK\""
    where = {"WEBHOOK": hook.url, "PATH": "/usr/bin:/bin"}
    assert subprocess.run(post, shell=True, cwd=tmp_path, env=where, check=False, timeout=30).returncode == 0
    assert json.loads(hook.bodies[0]) == made
    assert (hook.methods, hook.headers[0]["Content-Type"]) == (["POST"], "application/json")
