"""The properties of an action -> the JSON of its request; what the service would refuse is refused before sending."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from buildframe.errors import BadInput
from buildframe.spec import Endpoint, Violation, create_pipeline, find_violations, update_pipeline


def body_of(endpoint: Endpoint, given: Mapping[str, Any]) -> bytes | None:
    """The body for `endpoint`, None where it takes none; BadInput names everything that is wrong at once."""
    given = {name: _scalar(value) for name, value in given.items()}
    wrong = [
        *(_told(endpoint, given, misfit) for misfit in find_violations(endpoint.properties, given)),
        *_further(endpoint, given),
    ]
    if wrong:
        raise BadInput("\n- ".join([f"{endpoint.name} was not sent:", *wrong]))
    return json_of(given) if endpoint.properties else None


def json_of(value: Any) -> bytes:
    """`value` as JSON; what JSON cannot carry raises BadInput."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
        return text.encode()
    except UnicodeEncodeError as why:
        raise BadInput(f"{_around(why)!r} holds half of a surrogate pair, which no request can carry.") from None
    except (TypeError, ValueError, RecursionError) as why:
        raise BadInput(f"This cannot be sent as JSON: {why}.") from None


def _scalar(value: Any) -> Any:
    """A single number or flag out of a frame as Python's own."""
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") and not value.shape else value


def _around(why: UnicodeEncodeError) -> str:
    return str(why.object)[max(0, why.start - 20) : why.end + 20]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return list(value)
    raise TypeError(f"a value of the type {type(value).__name__} is no JSON")


def _told(endpoint: Endpoint, given: Mapping[str, Any], misfit: Violation) -> str:
    if misfit.unknown and misfit.field in given:
        return _unknown(endpoint, misfit.field)
    required = {entry.name for entry in endpoint.properties if entry.required}
    if given.get(misfit.field, ...) is None and misfit.field not in required:
        instead = "to keep what is there" if endpoint.method == "PATCH" else "for the service's default"
        return f"{misfit.field}=None: it cannot be null; leave it out {instead}"
    return f"{misfit.field} {misfit.problem}"


def _unknown(endpoint: Endpoint, name: str) -> str:
    if endpoint is update_pipeline and name == "teams":
        return "teams cannot be changed by an update: use set_team() and remove_team() of the workspace"
    return f"{name} is not known.{nearest(name, endpoint.property_names)}"


def _further(endpoint: Endpoint, given: Mapping[str, Any]) -> Iterator[str]:
    if endpoint is create_pipeline and ("configuration" in given) == ("steps" in given):
        yield "give either configuration (YAML) or steps"


def nearest(given: str, known: Sequence[str]) -> str:
    """A sentence that names the right word for a misspelt one, or all words where none is near."""
    near = difflib.get_close_matches(given.lower(), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else f" It takes: {', '.join(known) or 'none'}."
