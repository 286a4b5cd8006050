"""Convert the properties of an action to JSON, and check them before anything is sent. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from buildframe.errors import BadInput
from buildframe.spec import Endpoint, Violation, create_pipeline, find_violations, update_pipeline
from buildframe.terminal import nearest


def body_of(endpoint: Endpoint, given: Mapping[str, Any]) -> bytes | None:
    """Return the body for an endpoint, None if it has none; BadInput reports everything that is wrong at once."""
    given = {name: _scalar(value) for name, value in given.items()}
    wrong = [_explain(endpoint, given, violation) for violation in find_violations(endpoint.properties, given)]
    if endpoint is create_pipeline and ("configuration" in given) == ("steps" in given):
        wrong.append("pass either configuration (YAML) or steps")
    if wrong:
        raise BadInput("\n- ".join([f"{endpoint.name} was not sent:", *wrong]))
    return json_of(given) if endpoint.properties else None


def json_of(value: Any) -> bytes:
    """Return the value as JSON; raise BadInput if JSON cannot represent it."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
        return text.encode()
    except UnicodeEncodeError as why:
        part = str(why.object)[max(0, why.start - 20) : why.end + 20]
        raise BadInput(f"{part!r} contains half of a surrogate pair. Remove it.") from None
    except (TypeError, ValueError, RecursionError) as why:
        raise BadInput(f"This cannot be sent as JSON: {why}.") from None


def _scalar(value: Any) -> Any:
    """Return a single number or flag of numpy as Python's own."""
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") and not value.shape else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return list(value)
    raise TypeError(f"values of the type {type(value).__name__} are not JSON")


def _explain(endpoint: Endpoint, given: Mapping[str, Any], violation: Violation) -> str:
    if violation.unknown and violation.field in given:
        return _unknown(endpoint, violation.field)
    required = {entry.name for entry in endpoint.properties if entry.required}
    if given.get(violation.field, ...) is None and violation.field not in required:
        instead = "to keep what is there" if endpoint.method == "PATCH" else "for the service's default"
        return f"{violation.field}=None: it cannot be null. Leave it out {instead}"
    return f"{violation.field} {violation.problem}"


def _unknown(endpoint: Endpoint, name: str) -> str:
    if endpoint is update_pipeline and name == "teams":
        return "teams cannot be changed by an update: use set_team() and remove_team() of the workspace"
    return f"there is no property {name!r}.{nearest(name, endpoint.property_names)}"
