"""Log lines of a run on stderr: whole lines, plain or JSON, of the run and of warnings, and none of other libraries."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from contextlib import redirect_stderr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe.http.budget import RequestBudget
from buildframe.report.logs import LogFormat, log_event, log_to_stderr

FORMS: tuple[LogFormat, ...] = ("plain", "json")


def test_a_plain_line_has_time_level_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr("plain"):
        log_event("synced: 3 builds", builds=3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO synced: 3 builds\n", capsys.readouterr().err)


def test_a_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr("json"):
        log_event("synced: 3 builds", builds=3, why=None)
    record = json.loads(capsys.readouterr().err)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record.pop("time"))
    assert record == {"level": "INFO", "event": "synced: 3 builds", "builds": 3, "why": None}


@given(st.text())
def test_any_text_is_logged_as_one_line(text: str) -> None:
    for form in FORMS:
        with redirect_stderr(io.StringIO()) as stderr, log_to_stderr(form):
            log_event(text)
        line = stderr.getvalue()
        assert line.endswith("\n")
        assert line[:-1].isprintable()
        assert form == "plain" or json.loads(line)["event"] == text


def test_lines_of_a_message_become_sentences_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr("plain"):
        log_event("401: no.\n  Request: GET /v2\r\n\x1b[31mCheck\u202e")
    assert capsys.readouterr().err.endswith("INFO 401: no. Request: GET /v2 \\x1b[31mCheck\\u202e\n")


@pytest.mark.parametrize("form", FORMS)
def test_warnings_are_lines(form: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr(form):
        warnings.warn("Incomplete: 3 of 4", UserWarning, stacklevel=1)
        logging.getLogger("other").warning("mind the gap")
    levels = ["WARNING Incomplete: 3 of 4", "WARNING mind the gap"]
    if form == "json":
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [f"{line['level']} {line['event']}" for line in lines] == levels
    else:
        assert [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()] == levels


def test_info_records_of_other_packages_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr("plain"):
        logging.getLogger("httpx").info('HTTP Request: GET https://example.com/log?signature=abc "HTTP/1.1 200 OK"')
        logging.getLogger("asyncio").debug("poll")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("form", FORMS)
def test_a_traceback_without_control_characters_precedes_the_last_line(
    form: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    with log_to_stderr(form):
        try:
            raise ValueError("no number: \x1b]52;c;AAAA\x07 \x9b31m \u202e")
        except ValueError:
            log_event("failed", logging.ERROR, trace=True)
    printed = capsys.readouterr().err
    assert "no number" in printed
    assert not set("\x1b\x07\x9b\u202e") & set(printed)
    lines = printed.splitlines()
    if form == "json":
        assert json.loads(lines[-1])["traceback"].startswith("Traceback (most")
    else:
        assert lines[0].startswith("Traceback (most")
        assert lines[-1].endswith("Z ERROR failed")


def test_the_reason_of_a_wait_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr("plain"):
        RequestBudget().wait_for_retry(0.0, "the service returned 503")
    assert capsys.readouterr().err.endswith("INFO retrying in 0 s: the service returned 503\n")


def test_logging_settings_are_restored(capsys: pytest.CaptureFixture[str]) -> None:
    before = (logging.getLogger().handlers[:], warnings.showwarning, logging.getLogger("buildframe").level)
    with log_to_stderr("plain"):
        pass
    log_event("nobody listens")
    assert before == (logging.getLogger().handlers, warnings.showwarning, logging.getLogger("buildframe").level)
    assert capsys.readouterr().err == ""
