"""Name what a 404 is about, from the path that was requested and the server's message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote

_NOUNS = {"suites": "test suite", "members": "member", "flaky-tests": "flaky test"}
_LOOK = {
    "organization": "Check its slug in the service's web addresses, and that the token is authorized for it.",
    "pipeline": "Workspace.pipelines() lists slugs and ids.",
    "build": "Pipeline.builds() lists the numbers.",
    "job": "Pipeline.build(number).jobs lists the jobs of a build.",
    "test suite": "Check its slug in the web address of the suite.",
    "team": "Check its UUID; a team has no slug here.",
    "member": "Workspace.members() lists the ids.",
}


class _Thing(NamedTuple):
    noun: str
    id: str

    def __str__(self) -> str:
        return f"{self.noun} {self.id if self.noun == 'build' else repr(self.id)}"


def named(path: str, message: str) -> str:
    """What is missing and where to look; "" if the path names nothing. `message` is what the server said.

    A path names several things, and any of them may be missing. It is the one that the message names, else the last.
    """
    if path.split("?")[0].strip("/") in message:  # as in "No route matches": no name is wrong
        return ""
    things = list(_things([unquote(segment) for segment in path.split("?")[0].split("/")]))
    if not things:
        return ""
    said = [place for place, thing in enumerate(things) if thing.noun.split()[-1] in message.lower()]
    place = max(said, default=len(things) - 1)
    inside = "".join(f" of {thing}" for thing in reversed(things[:place]))
    noun = things[place].noun
    return f"There is no {things[place]}{inside}, or this token may not see it. {_LOOK.get(noun, '')}".rstrip()


def _things(segments: Sequence[str]) -> Iterator[_Thing]:
    """Pairs of a collection and what is named in it, from the organization on."""
    start = segments.index("organizations") if "organizations" in segments else len(segments)
    for collection, id in zip(segments[start::2], segments[start + 1 :: 2], strict=False):
        noun = _NOUNS.get(collection, collection.removesuffix("s").replace("-", " "))
        if noun.strip() and id:
            yield _Thing(noun, id)
