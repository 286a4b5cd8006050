"""Name what a 404 is about, from the path that was requested and the server's message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import unquote

_NOUNS = {"suites": "test suite", "members": "member", "flaky-tests": "flaky test"}
_ADVICE = {
    "organization": "Check its slug in the URL of its page, and that the token is authorized for it.",
    "pipeline": "Workspace.pipelines() lists slugs and ids.",
    "build": ".pipeline(slug).builds() lists the numbers.",
    "job": ".pipeline(slug).build(number).jobs lists the jobs of a build.",
    "test suite": "Check its slug in the URL of the suite's page.",
    "team": "Check its UUID. Teams have no slug in the API.",
    "member": "Workspace.members() lists the ids.",
}


def describe(path: str, message: str, near: str | None = None) -> str:
    """Return what is missing and how to find it, or "" if the path names no resource. `message` is the server's.

    `near` is an existing name to suggest.
    """
    resources = _missing(path, message)
    if not resources:
        return ""
    named = " of ".join(f"{noun} {id if noun == 'build' else repr(id)}" for noun, id in reversed(resources))
    suggestion = f" Did you mean {near!r}?" if near else ""
    text = f"There is no {named}, or this token may not see it.{suggestion} {_ADVICE.get(resources[-1][0], '')}"
    return text.rstrip()


def missing_pipeline(path: str, message: str) -> tuple[str, str] | None:
    """Return the slugs of the organization and of the pipeline if a pipeline is missing."""
    resources = _missing(path, message)
    if [noun for noun, _ in resources] != ["organization", "pipeline"]:
        return None
    return resources[0][1], resources[1][1]


def _missing(path: str, message: str) -> list[tuple[str, str]]:
    """Return the missing resource after those that contain it, each with its noun and its name.

    A path names several resources, and any of them may be missing: the one that the message names, else the last.
    """
    if path.split("?")[0].strip("/") in message:  # as in "No route matches": the path is wrong, not a name in it
        return []
    resources = list(_resources_in([unquote(segment) for segment in path.split("?")[0].split("/")]))
    mentioned = [place for place, (noun, _) in enumerate(resources) if noun.split()[-1] in message.lower()]
    return resources[: max(mentioned, default=len(resources) - 1) + 1]


def _resources_in(segments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the noun and the name of each resource in a path, such as "team" and "ops", organization first."""
    start = segments.index("organizations") if "organizations" in segments else len(segments)
    for collection, id in zip(segments[start::2], segments[start + 1 :: 2], strict=False):
        noun = _NOUNS.get(collection, collection.removesuffix("s").replace("-", " "))
        if noun.strip() and id:
            yield noun, id
