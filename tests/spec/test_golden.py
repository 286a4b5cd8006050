"""Compare the spec with the golden files, which were transcribed manually from the service's document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from buildframe import spec
from buildframe.spec.declare import Resource, nested_resource
from buildframe.spec.operations import Endpoint, Filter
from tests import golden
from tests.golden.declared_types import type_names

ENDPOINTS = {endpoint.name: endpoint for endpoint in spec.ENDPOINTS}


def nested_in(resource: type[Resource]) -> Iterator[type[Resource]]:
    yield resource
    for field in spec.fields_of(resource):
        inner = nested_resource(field.type)
        if inner is not None:
            yield from nested_in(inner)


RETURNED = [endpoint.returns for endpoint in spec.ENDPOINTS if endpoint.returns is not None]
DECLARED = {part.__name__: part for resource in RETURNED for part in nested_in(resource)}


# --- the transcription itself

KNOWN_TYPES = {
    "string",
    "uuid",
    "integer",
    "number",
    "boolean",
    "timestamp",
    "map",
    "object",
    "any",
    "null",
    *golden.RESOURCES,
}


def unknown_types(fields: dict[str, str]) -> set[str]:
    parts = {part.removeprefix("array of ") for type in fields.values() for part in type.split(" or ")}
    return parts - KNOWN_TYPES


def test_transcribed_types_are_of_the_vocabulary() -> None:
    unknown = {(resource, type) for resource in golden.RESOURCES for type in unknown_types(golden.fields_of(resource))}
    assert unknown == set()


def test_transcribed_operations_refer_to_what_is_transcribed() -> None:
    for operation, documented in golden.OPERATIONS.items():
        assert golden.item_of(operation) in {*golden.RESOURCES, "nothing", "any"}, operation
        assert documented["scope"] in {*golden.STATES["scopes"], ""}, operation
        assert documented.get("query", "builds") in golden.QUERIES | golden.HOSTED["queries"], operation
        assert documented.get("body", "create_build") in golden.BODIES, operation


def test_transcribed_refinements_belong_to_documented_fields() -> None:
    places = [
        *golden.HOSTED["refined"],
        *(f"{name}.{key}" for name, keys in golden.HOSTED["null"].items() for key in keys),
    ]
    assert [place for place in places if place.split(".")[1] not in golden.DOCUMENTED[place.split(".")[0]]] == []


def test_transcribed_errors_and_shapes_name_operations() -> None:
    named = {name for row in golden.ERRORS for name in row["operations"]} | set(golden.SHAPES["agent"]["full_in"])
    assert named <= golden.OPERATIONS.keys()


# --- operations


def test_every_documented_operation_is_declared_and_no_other() -> None:
    reached_by_an_address = {"unblock_job"}  # the document shows its address, as `unblock_url` of a job, and no more
    assert golden.OPERATIONS.keys() == ENDPOINTS.keys() - reached_by_an_address


def test_operation_names_are_declared_once() -> None:
    assert len(ENDPOINTS) == len(spec.ENDPOINTS)


def shape_of(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path).rstrip("/")


def path_types(path: str) -> list[type]:
    return [int if name == "number" else str for name in re.findall(r"\{([^}]*)\}", path)]


def documented_of(operation: str) -> dict[str, Any]:
    """Return the golden row of an operation in the form of the spec."""
    documented = golden.OPERATIONS[operation]
    method, path = documented.get("hosted_route", documented["route"]).split(" ", 1)
    return {
        "method": method,
        "path": shape_of(path),
        "parameters": path_types(path),
        "success": documented["success"],
        "scope": documented["scope"] or None,
        "lists": documented["returns"].startswith("array of "),
        "paginated": documented.get("paginated", False),
        "enveloped": documented.get("envelope") == ["items", "links"],
        "version": documented.get("version"),
        "documented": documented.get("documented", True),
        "returns": golden.item_of(operation).replace("any", "nothing"),  # of no known shape: not read either
    }


def declared_of(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "method": endpoint.method,
        "path": shape_of(endpoint.path),
        "parameters": [parameter.type for parameter in endpoint.parameters],
        "success": endpoint.success,
        "scope": endpoint.scope,
        "lists": endpoint.lists,
        "paginated": endpoint.paginated,
        "enveloped": endpoint.enveloped,
        "version": endpoint.version,
        "documented": endpoint.documented,
        "returns": endpoint.returns.__name__ if endpoint.returns else "nothing",
    }


def test_operations_are_declared_as_documented() -> None:
    documented = {operation: documented_of(operation) for operation in golden.OPERATIONS}
    assert {operation: declared_of(ENDPOINTS[operation]) for operation in golden.OPERATIONS} == documented


def test_arguments_of_operations_are_the_parameters_of_their_paths_in_order() -> None:
    named = {endpoint.name: [parameter.name for parameter in endpoint.parameters] for endpoint in spec.ENDPOINTS}
    assert named == {endpoint.name: re.findall(r"\{(\w+)\}", endpoint.path) for endpoint in spec.ENDPOINTS}


def test_uuids_in_paths_are_declared_as_such() -> None:
    declared, documented = {}, {}
    for operation, row in golden.OPERATIONS.items():
        names = re.findall(r"\{([^}]*)\}", row.get("hosted_route", row["route"]))
        documented[operation] = [name.endswith(".uuid") for name in names]
        declared[operation] = [one.check == spec.Check("uuid") for one in ENDPOINTS[operation].parameters]
    assert declared == documented


# --- query parameters

FILTER_KINDS = {"string": "text", "boolean": "flag", "timestamp": "timestamp", "map": "map"}


def choices_of(parameter: dict[str, Any]) -> set[str]:
    if "values" not in parameter:
        return set()
    if parameter["values"] == "job":
        return set(golden.HOSTED["states"]["job"])
    if parameter["values"] in golden.HOSTED["choices"]:
        return set(golden.HOSTED["choices"][parameter["values"]])
    return {*golden.STATES[parameter["values"]], *golden.HOSTED["states"]["build"]}


def documented_filters(operation: str) -> dict[str, tuple[Any, ...]]:
    return {
        name: (
            FILTER_KINDS[documented["type"]],
            documented.get("many", False),
            documented.get("form"),
            choices_of(documented),
            documented.get("always_list", False),
        )
        for name, documented in golden.query_of(operation).items()
    }


def declared_filters(filters: tuple[Filter, ...]) -> dict[str, tuple[Any, ...]]:
    return {
        entry.name: (
            entry.kind,
            entry.many,
            entry.check.form if entry.check else None,
            set(entry.choices),
            entry.always_list,
        )
        for entry in filters
    }


def test_query_parameters_are_declared_once_and_as_documented() -> None:
    documented = {operation: documented_filters(operation) for operation in golden.OPERATIONS}
    assert {operation: declared_filters(ENDPOINTS[operation].filters) for operation in documented} == documented
    for operation in documented:
        assert len(ENDPOINTS[operation].filter_names) == len(documented[operation]), operation


def test_there_is_no_filter_for_the_end_of_finishing() -> None:
    assert "finished_to" not in spec.list_builds.filter_names


# --- fields

LOOSELY = {"uuid": "string", "map": "object"}


def loosely(documented: str) -> set[str]:
    words = [part.removeprefix("array of ") for part in documented.split(" or ")]
    arrays = ["array of " * part.startswith("array of ") for part in documented.split(" or ")]
    return {array + LOOSELY.get(word, word) for array, word in zip(arrays, words, strict=True)} - {"null"}


def documented_fields(resource: str) -> dict[str, set[str]]:
    return {name: loosely(type) for name, type in golden.fields_of(resource).items()}


def declared_fields(resource: type[Resource]) -> dict[str, set[str]]:
    return {field.name: type_names(field.type) for field in spec.fields_of(resource) if field.sent}


def test_fields_are_declared_as_documented() -> None:
    """Of every resource that an operation returns, or that such a resource contains."""
    documented = {name: documented_fields(name) for name in DECLARED}
    assert {name: declared_fields(resource) for name, resource in DECLARED.items()} == documented


def is_read(resource: str, **fields: None) -> bool:
    """Whether a resource with these fields and an id is valid, as msgspec reads it."""
    try:
        msgspec.convert({"id": "0190f3a1-0000-4000-8000-000000000001", **fields}, DECLARED[resource])
    except msgspec.ValidationError:
        return False
    return True


def test_fields_that_may_be_null_are_read_when_they_are() -> None:
    known = [(name, field) for name in sorted(DECLARED) for field in golden.fields_of(name)]
    nullable = [(name, field) for name, field in known if golden.may_be_null(name, field)]
    assert len(nullable) > 50
    assert [(name, field) for name, field in nullable if not is_read(name, **{field: None})] == []


def test_every_field_but_the_id_may_be_missing() -> None:
    assert [resource for resource in DECLARED if not is_read(resource)] == []


# --- columns

COLUMN_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "flag", "timestamp": "timestamp"}


def documented_kind(resource: str, path: tuple[str, ...]) -> str:
    """Return the kind of a column by the golden files; everything but plain values is JSON text."""
    words = documented_fields(resource)[path[0]]
    nested = next((word for word in words if word in golden.RESOURCES), None)
    if nested and len(path) > 1:
        return documented_kind(nested, path[1:])
    return COLUMN_KINDS.get("".join(words), "json")


def test_columns_hold_what_is_documented() -> None:
    wrong = [
        (resource.__name__, column.name, column.kind)
        for resource in spec.RESOURCES.values()
        for column in spec.columns_of(resource)
        if column.path and column.kind != documented_kind(resource.__name__, column.path)
    ]
    assert wrong == []


def test_every_documented_field_gives_a_column_or_a_table() -> None:
    for resource in spec.RESOURCES.values():
        columns = {column.path[0] for column in spec.columns_of(resource) if column.path}
        lacks = golden.fields_of(resource.__name__).keys() - columns
        assert lacks == ({"jobs"} if resource is spec.Build else set()), resource
