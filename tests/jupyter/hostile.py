"""Builds in a sandbox whose names would run scripts if they were not escaped."""

from __future__ import annotations

import datetime as dt
import json

from buildframe.workspace import Workspace
from tests.report.untrusted import UNTRUSTED

NAMES = [
    *UNTRUSTED[:20],
    "<!-- --!><img src=x onerror=alert(1)>",
    *(name for name in UNTRUSTED[25:38] if "-->" not in name),
    "<!--<script>",  # hides the end of a script until "-->"
]
"""Names that attack a page."""
INJECTED_ELEMENTS = (
    "img[src='x'], img[src*='evil'], [onerror], [onload], [onfocus], [onclick], [srcdoc], a[href^='javascript']"
)
"""Elements that only an unescaped name creates."""


def create_hostile_builds(ci: Workspace) -> int:
    """Create builds with such branches, messages and authors, and one with such steps; return its number."""
    web = ci.pipeline("web")
    for name in NAMES:
        author = {"name": name, "email": "zoe@example.com"}
        web.create_build(commit="HEAD", branch=name, message=name, author=author, ignore_pipeline_branch_filters=True)
    steps = json.dumps({"steps": [{"label": name, "command": "make"} for name in NAMES]})  # JSON is YAML, too
    ci.create_pipeline(
        name="Hostile", cluster_id=None, repository="git@git.example.com:acme/x.git", configuration=steps
    )
    build = ci.pipeline("hostile").create_build(commit="HEAD", branch=NAMES[0], message=NAMES[0])
    ci.sandbox.clock.advance(dt.timedelta(minutes=2))
    assert build.number is not None
    return build.number
