"""What a widget shows: every text escaped, links to http and https only, messages that screen readers tell."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from urllib.parse import urlsplit

import ipywidgets
import pandas as pd

from buildframe.errors import BuildframeError
from buildframe.formatting import clipped, visible
from buildframe.widgets import background_tasks

_LONGEST = 4000


def text(value: object, most: int = _LONGEST) -> str:
    """A value as HTML that is only text; nothing for what is missing."""
    return html.escape(clipped(visible(plain(value)), most))


def plain(value: object) -> str:
    """A value as text; times by the second in UTC, nothing for what is missing."""
    if value is None or value is pd.NaT or value is pd.NA:
        return ""
    if isinstance(value, pd.Timestamp):
        return f"{value.tz_convert('UTC'):%Y-%m-%d %H:%M:%S}"
    return str(value)


def label(value: object) -> str:
    """A value as the text of a trait that is not HTML, such as a button's words.

    Without "<", as "<!--<script" amid the saved state would break an exported page.
    """
    return clipped(visible(plain(value))).replace("<", "‹")


def link(address: object, words: object) -> str:
    """A link that opens apart, where the address is http or https; else only its words."""
    if not isinstance(address, str) or not _is_web(address):
        return text(words)
    return f'<a href="{html.escape(address)}" target="_blank" rel="noopener noreferrer">{text(words)}</a>'


def _is_web(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and address.isprintable()


def facts(rows: Iterable[tuple[str, str]], caption: str) -> str:
    """A small table of names and HTML; rows without a value are left out."""
    shown = "".join(f'<tr><th scope="row">{text(name)}</th><td>{value}</td></tr>' for name, value in rows if value)
    return f'<table class="bf-facts"><caption>{text(caption)}</caption>{shown}</table>'


def reason(why: BaseException) -> str:
    """An error as a text for people, with its notes; what is no error of this package with its kind."""
    said = str(why) if isinstance(why, BuildframeError) else f"{type(why).__name__}: {why}"
    return "\n".join([said, *getattr(why, "__notes__", ())])


def waiting(doing: str, seconds: float, why: str) -> str:
    """What goes on, and what it waits for; true also once that wait is over."""
    return f"{doing}\nWaiting {seconds:.0f} s: {why}. Then it goes on."


class Closable(Protocol):
    """What ends when its widget is closed."""

    def close(self) -> None:
        """End it."""


class Face(ipywidgets.VBox):
    """A widget made of others. Closing it closes these, and ends what it `holds`; no thread starts from then on."""

    holds: tuple[Closable, ...] = ()  # ipywidgets closes also what was never made, as an argument was wrong

    def close(self) -> None:
        for held in self.holds:
            held.close()
        for child in getattr(self, "children", ()):
            _close(child)
        super().close()


def _close(widget: ipywidgets.Widget) -> None:
    for child in getattr(widget, "children", ()):
        _close(child)
    widget.close()


class Message(ipywidgets.HTML):
    """One message at a time, which a screen reader reads out: `tell`, `warn`, `fail`."""

    def tell(self, words: str, *, html: str = "") -> None:
        """Something that went well, or goes on; `html` is safe already, and comes after the words."""
        self._say("status", "bf-told", words, html)

    def fail(self, why: BaseException | str) -> None:
        """Something that went wrong."""
        self._say("alert", "bf-failed", why if isinstance(why, str) else reason(why), "")

    def clear(self) -> None:
        """Nothing to say."""
        self.value = ""

    def _say(self, role: str, look: str, words: str, more: str) -> None:
        lines = "<br>".join(map(text, words.splitlines()))
        self.value = f'<div role="{role}" class="{look}">{lines} {more}</div>'


def guarded(message: Message, act: Callable[..., Any]) -> Callable[..., None]:
    """A callback on the kernel's thread, whose errors show on the face: ipywidgets would swallow them."""
    home = background_tasks.home()

    def call(*arguments: Any) -> None:
        try:
            act(*arguments)
        except Exception as why:
            message.fail(why)

    return lambda *arguments: background_tasks.at_home(home, lambda: call(*arguments))


def button(words: str, tip: str, act: Callable[[], Any], message: Message, style: str = "") -> ipywidgets.Button:
    """A button whose errors show in `message`."""
    made = ipywidgets.Button(description=words, tooltip=tip, button_style=style, layout={"width": "auto"})
    made.on_click(guarded(message, lambda _: act()))
    return made


def fields(inputs: Iterable[ipywidgets.Widget]) -> ipywidgets.Box:
    """Inputs in a grid, the label above each."""
    made = ipywidgets.Box(tuple(inputs))
    made.add_class("bf-fields")
    return made


def shown(widget: ipywidgets.DOMWidget, visible: bool) -> None:
    """Show a widget or take it out of the page, and out of the way of the Tab key."""
    widget.layout.display = None if visible else "none"


STYLE = """<style>
.bf-told, .bf-failed { border-left: 4px solid; padding: 4px 8px; line-height: 1.4; overflow-wrap: anywhere; }
.bf-told { border-color: var(--jp-info-color1, #0288d1); }
.bf-failed { border-color: var(--jp-error-color1, #d32f2f); }
.bf-told, .bf-failed, .bf-facts, .bf-log, .bf-hint { color: var(--jp-content-font-color1, #212121); }
.bf-told a, .bf-facts a { color: var(--jp-content-link-color, #1565c0); text-decoration: underline; }
.bf-told progress { width: 160px; accent-color: var(--jp-brand-color1, #1976d2); vertical-align: middle; }
.bf-fields.bf-fields { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 4px 12px;
  overflow: visible; padding: 2px; }
.bf-fields.bf-fields > * { flex-direction: column; align-items: stretch; width: auto; height: auto; margin: 0;
  overflow: visible; }
.bf-fields.bf-fields > * > label { width: auto; height: 20px; line-height: 20px; font-size: 12px; text-align: left;
  margin: 0; color: var(--jp-content-font-color1, #212121); }
.bf-fields.bf-fields > * > :is(input, select) { flex: none; width: 100%; height: 28px; margin: 0; }
.bf-fields.bf-fields > :not(:has(> :is(input, select))) { grid-column: 1 / -1; }
.bf-fields.bf-fields ::placeholder { color: var(--jp-content-font-color2, #616161); opacity: 1; }
.bf-hint { line-height: 1.4; font-size: 90%; }
.bf-facts { border-collapse: collapse; line-height: 1.5; }
.bf-facts caption { font-weight: 600; text-align: left; }
.bf-facts th { text-align: left; font-weight: 600; padding: 0 12px 0 0; vertical-align: top; white-space: nowrap; }
.bf-facts td { overflow-wrap: anywhere; }
.bf-log { max-height: 300px; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.3;
  padding: 6px; border: 1px solid var(--jp-border-color1, #bdbdbd); font-family: var(--jp-code-font-family, monospace);
  background: var(--jp-layout-color1, #fff); }
</style>"""
"""What the pages of the widgets look like, in the colours of JupyterLab's theme where there is one."""
