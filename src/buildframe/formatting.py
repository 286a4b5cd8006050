"""Format numbers, times and names for people. Knows no other module's types."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from buildframe.terminal import code_point, escape_control_characters, nearest_name

_MAX_NAME = 300
"""Characters of a name that are shown. Names that people choose are shorter."""

_ISOLATE, _END = "\u2068", "\u2069"
_RIGHT_TO_LEFT = {"R", "AL", "AN"}

_MAX_NAMES = 10
"""Names that a suggestion lists."""

_EMOJI = re.compile(r"(?<!\w):[\w+-]+:")  # not after a letter: "test:unit:fast" is a name


def format_duration(seconds: float) -> str:
    """Return a duration in at most two units: "45 s", "4 min 10 s", "2 h 5 min"; "unknown" for NaN."""
    if math.isnan(seconds):
        return "unknown"
    sign, magnitude = ("−" if seconds <= -0.05 else ""), abs(seconds)
    if magnitude < 9.95:
        return f"{sign}{magnitude:.1f} s"
    return sign + _in_units(round(magnitude), 2)


def format_whole_seconds(seconds: float) -> str:
    """Return a duration rounded to seconds, in all units, so that sums agree: "1 h 2 min 5 s", "−6 s", "0 s"."""
    whole = round(seconds)
    return ("−" if whole < 0 else "") + _in_units(abs(whole), 4)


def format_change(seconds: float) -> str:
    """Return a change rounded to seconds, with its sign: "+3 min 9 s", "−6 s", "0 s"."""
    return ("+" if round(seconds) > 0 else "") + format_whole_seconds(seconds)


def _in_units(seconds: int, most: int) -> str:
    """Return whole seconds in the largest unit and the ones below it, at most so many."""
    rest, parts = seconds, []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts.append(f"{count} {name}" if count else "")
    largest = next((index for index, part in enumerate(parts) if part), 0)
    return " ".join(filter(None, parts[largest : largest + most])) or "0 s"


def format_percent(share: float) -> str:
    """Return a share in percent: "81.3 %"; "unknown" for NaN."""
    return "unknown" if math.isnan(share) else f"{100 * share:.1f} %"


def format_points(share: float) -> str:
    """Return a difference of shares in percentage points, without the unit: "−2.4"; "unknown" for NaN."""
    return "unknown" if math.isnan(share) else _plain(100 * share)


def _plain(number: float) -> str:
    text = f"{number:,.1f}".replace("-", "−")
    return "0.0" if text == "−0.0" else text


def format_timestamp(time: pd.Timestamp) -> str:
    """Return a time in UTC to the minute: "Mon 19 Oct 2026, 08:15 UTC"; "unknown" for NaT."""
    return "unknown" if pd.isna(time) else f"{format_date(time.tz_convert('UTC'))}, {time.tz_convert('UTC'):%H:%M} UTC"


def format_date(midnight: pd.Timestamp) -> str:
    """Return the day of a time in its own zone: "Mon 19 Oct 2026"; "unknown" for NaT."""
    return "unknown" if pd.isna(midnight) else f"{midnight:%a} {midnight.day} {midnight:%b %Y}"


def format_count(n: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: "1 build", "2,510 builds"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def escape_invisible(text: str) -> str:
    """Return the text on one line with visible substitutes for control characters: "␊", "‹U+202E›"."""
    return escape_control_characters(text, keep="")


def truncate_middle(text: str, max_length: int = _MAX_NAME) -> str:
    """Return the text, shortened in the middle to `max_length` characters."""
    tail = (max_length - 1) // 2
    return text if len(text) <= max_length else f"{text[: max_length - 1 - tail]}…{text[len(text) - tail :]}"


def format_name(name: object) -> str:
    """
    Return a name for use in a sentence: on one line, shortened, and isolated if it is written from right to left.

    A missing or blank name gives "(no name)".
    """
    if not isinstance(name, str) or not name.strip():
        return "(no name)"
    text = (
        escape_invisible(truncate_middle(name)).replace(_ISOLATE, code_point(_ISOLATE)).replace(_END, code_point(_END))
    )
    return isolate_right_to_left(text)


def without_emoji(name: str) -> str:
    """Return the name on one line without its `:emoji:`, or unchanged if nothing else is left."""
    return " ".join(_EMOJI.sub(" ", name).split()) or name


def short_labels(names: Iterable[str]) -> dict[str, str]:
    """Return a distinct label of each name, such as that of a step.

    Labels are without emoji where that is clear.

    Names that would look alike keep the names of their emoji: ":linux: Test" becomes "Test ·
    linux".
    """
    distinct = list(dict.fromkeys(names))
    labels = {name: without_emoji(name) for name in distinct}
    count = Counter(labels.values())
    for name, label in labels.items():
        emoji = " ".join(found.strip(":") for found in _EMOJI.findall(name))
        if count[label] > 1 and emoji:
            labels[name] = f"{label} · {emoji}"
    count = Counter(labels.values())
    return {name: label if count[label] == 1 else name for name, label in labels.items()}


def label_steps(steps: pd.Series[str], pipelines: pd.Series[str] | None = None) -> pd.Series[str]:
    """Return the label of each step, null if it is null. Labels are distinct within a pipeline."""
    groups = "" if pipelines is None else pipelines.astype("str").fillna("").array
    pairs = pd.DataFrame({"pipeline": groups, "step": steps.astype("str").array})
    distinct = pairs.dropna().drop_duplicates().assign(label=None)
    for _, steps_of_pipeline in distinct.groupby("pipeline")["step"]:
        labels = steps_of_pipeline.map(short_labels(steps_of_pipeline))
        distinct.loc[steps_of_pipeline.index, "label"] = labels
    labeled = pairs.merge(distinct, "left", ["pipeline", "step"])["label"]
    return pd.Series(labeled.array, steps.index, dtype="str", name=steps.name)


def label_jobs(names: pd.Series[str], steps: pd.Series[str]) -> pd.Series[str]:
    """Return the label of each job of a build: its name, with the step if several have it."""
    n_steps = steps.groupby(names).transform("nunique")
    with_step = [step if name in step else f"{name} · {step}" for name, step in zip(names, steps, strict=True)]
    return label_steps(names.where(n_steps <= 1, pd.Series(with_step, names.index, dtype="str")))


def suggest_names(name: str, known: Sequence[str], heading: str) -> str:
    """Return a sentence with the name of the nearest spelling, or else with the first ones that are known."""
    if near := nearest_name(name, known):
        return f"Did you mean {format_name(near)}?"
    shown = [format_name(each) for each in known[:_MAX_NAMES]]
    more = f", and {len(known) - len(shown):,} more" if len(known) > len(shown) else ""
    return f"{heading}: {', '.join(shown) or 'none'}{more}."


def isolate_right_to_left(text: str) -> str:
    """Return the text, isolated if it is written from right to left, so that it does not reorder the text beside it."""
    turns = _RIGHT_TO_LEFT.intersection(map(unicodedata.bidirectional, text))
    return f"{_ISOLATE}{text}{_END}" if turns else text
