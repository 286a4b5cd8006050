"""The two organizations of `catalog.json`: their pipelines, steps and people."""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec

from buildframe.sandbox_server.world.model import Organization


def _load_organizations() -> tuple[Organization, ...]:
    data = resources.files("buildframe.sandbox_server.world").joinpath("catalog.json").read_bytes()
    organizations = msgspec.json.decode(data)
    for organization in organizations:
        for pipeline in organization["pipelines"]:
            pipeline["steps"] = [step for row in pipeline["steps"] for step in _expand_group(row)]
    return msgspec.convert(organizations, tuple[Organization, ...])


def _expand_group(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the step of a row, or one step per part of a group, with somewhat different run times."""
    if "parts" not in row:
        is_script = row.get("kind", "script") == "script"
        return [({"command": f"scripts/ci {row['key']}"} if is_script else {}) | row]
    group = row["group"]
    common = {name: value for name, value in row.items() if name != "parts"} | {"artifact_paths": "reports/**/*"}
    return [
        common
        | {
            "key": f"{group}-{part}",
            "label": f"{row['label']} {part}",
            "command": f"scripts/ci {group}-{part}",
            "seconds": row["seconds"] * (0.7 + 0.12 * place),
        }
        for place, part in enumerate(row["parts"])
    ]


ORGANIZATIONS = _load_organizations()
