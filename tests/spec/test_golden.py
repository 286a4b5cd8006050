"""Compare the spec with the golden files, which were transcribed manually from the service's document."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Annotated, Any, get_type_hints

import msgspec
import pytest

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


@pytest.mark.parametrize("resource", golden.RESOURCES)
def test_transcribed_types_are_of_the_vocabulary(resource: str) -> None:
    assert not unknown_types(golden.fields_of(resource))


@pytest.mark.parametrize("operation", golden.OPERATIONS)
def test_transcribed_operations_refer_to_what_is_transcribed(operation: str) -> None:
    documented = golden.OPERATIONS[operation]
    assert golden.item_of(operation) in {*golden.RESOURCES, "nothing", "any"}
    assert documented["scope"] in {*golden.STATES["scopes"], ""}
    assert documented.get("query", "builds") in golden.QUERIES | golden.HOSTED["queries"]
    assert documented.get("body", "create_build") in golden.BODIES


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


@pytest.mark.parametrize("operation", golden.OPERATIONS)
def test_operation_is_declared_as_documented(operation: str) -> None:
    assert declared_of(ENDPOINTS[operation]) == documented_of(operation)


@pytest.mark.parametrize("operation", golden.OPERATIONS)
def test_arguments_of_an_operation_are_its_paths_parameters_in_order(operation: str) -> None:
    endpoint = ENDPOINTS[operation]
    assert re.findall(r"\{(\w+)\}", endpoint.path) == [parameter.name for parameter in endpoint.parameters]


@pytest.mark.parametrize("operation", golden.OPERATIONS)
def test_uuids_in_paths_are_declared_as_such(operation: str) -> None:
    documented = golden.OPERATIONS[operation]
    names = re.findall(r"\{([^}]*)\}", documented.get("hosted_route", documented["route"]))
    checks = [parameter.check for parameter in ENDPOINTS[operation].parameters]
    assert [check == spec.Check("uuid") for check in checks] == [name.endswith(".uuid") for name in names]


WRONG = [
    {"method": "POST"},
    {"path": "/organizations/{org}/builds/{number}"},
    {"path": "/organizations/{org}/pipeline/{pipeline}/builds/{number}"},
    {"success": 201},
    {"scope": "read_pipelines"},
    {"scope": None},
    {"paginated": True},
    {"enveloped": True},
    {"version": "2026-08-01"},
    {"documented": False},
    {"lists": True},
    {"returns": spec.Pipeline},
    {"returns": None},
    {"parameters": tuple(spec.Parameter(name, str, None) for name in ("org", "pipeline", "number"))},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: "-".join(map(str, next(iter(wrong.items())))))
def test_a_wrong_operation_would_be_seen(wrong: dict[str, Any]) -> None:
    assert declared_of(dataclasses.replace(spec.get_build, **wrong)) != documented_of("get_build")


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


@pytest.mark.parametrize("operation", golden.OPERATIONS)
def test_query_parameters_are_declared_as_documented(operation: str) -> None:
    assert declared_filters(ENDPOINTS[operation].filters) == documented_filters(operation)


@pytest.mark.parametrize("operation", golden.OPERATIONS)
def test_query_parameters_are_declared_once(operation: str) -> None:
    names = ENDPOINTS[operation].filter_names
    assert len(names) == len(set(names))


def test_there_is_no_filter_for_the_end_of_finishing() -> None:
    assert "finished_to" not in spec.list_builds.filter_names


STATE = next(entry for entry in spec.list_builds.filters if entry.name == "state")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "states"},
        {"many": False},
        {"kind": "flag"},
        {"choices": STATE.choices[1:]},
        {"choices": ()},
        {"always_list": True},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_wrong_query_parameter_would_be_seen(wrong: dict[str, Any]) -> None:
    others = tuple(entry for entry in spec.list_builds.filters if entry is not STATE)
    assert declared_filters((*others, STATE._replace(**wrong))) != documented_filters("list_builds")


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


def test_every_declared_resource_is_known() -> None:
    assert DECLARED.keys() <= set(golden.RESOURCES)


@pytest.mark.parametrize("resource", sorted(DECLARED))
def test_fields_are_declared_as_documented(resource: str) -> None:
    assert declared_fields(DECLARED[resource]) == documented_fields(resource)


def nullable_fields() -> list[tuple[str, str]]:
    known = [(name, field) for name in sorted(DECLARED) for field in golden.fields_of(name)]
    return [(name, field) for name, field in known if golden.may_be_null(name, field)]


def as_json(resource: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"id": "0190f3a1-0000-4000-8000-000000000001", **fields})


@pytest.mark.parametrize(("resource", "field"), nullable_fields())
def test_a_field_that_may_be_null_is_read_when_it_is(resource: str, field: str) -> None:
    msgspec.json.decode(as_json(resource, **{field: None}), type=DECLARED[resource])


@pytest.mark.parametrize("resource", sorted(DECLARED))
def test_every_field_but_the_id_may_be_missing(resource: str) -> None:
    msgspec.json.decode(as_json(resource), type=DECLARED[resource])


def with_one_more(name: str, hint: Any) -> type[Resource]:
    """The declared pipeline with a field added or overridden."""
    return msgspec.defstruct("Pipeline", [(name, hint, None)], bases=(spec.Pipeline,), kw_only=True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("invented", str | None), ("slug", int | None), ("tags", str | None), ("archived_at", str | None)],
)
def test_a_wrong_field_would_be_seen(name: str, hint: Any) -> None:
    wrong = with_one_more(name, Annotated[hint, "a wrong field"])
    assert declared_fields(wrong) != documented_fields("Pipeline")


def without(name: str) -> type[Resource]:
    """The declared pipeline with a field left out."""
    hints = get_type_hints(spec.Pipeline, include_extras=True)
    fields = [(key, hints[key], None) for key in spec.Pipeline.__struct_fields__ if key != name]
    return msgspec.defstruct("Pipeline", fields, bases=(Resource,), kw_only=True)


@pytest.mark.parametrize("name", golden.fields_of("Pipeline"))
def test_a_missing_field_would_be_seen(name: str) -> None:
    assert declared_fields(without(name)) != documented_fields("Pipeline")


# --- columns

COLUMN_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "flag", "timestamp": "timestamp"}


TABULAR = [*spec.RESOURCES.values()]


def documented_kind(resource: str, path: tuple[str, ...]) -> str:
    """Return the kind of a column by the golden files; everything but plain values is JSON text."""
    words = documented_fields(resource)[path[0]]
    nested = next((word for word in words if word in golden.RESOURCES), None)
    if nested and len(path) > 1:
        return documented_kind(nested, path[1:])
    return COLUMN_KINDS.get("".join(words), "json")


@pytest.mark.parametrize("resource", TABULAR, ids=lambda resource: resource.__name__)
def test_columns_hold_what_is_documented(resource: type[Resource]) -> None:
    columns = [column for column in spec.columns_of(resource) if column.path]
    wrong = [column.name for column in columns if column.kind != documented_kind(resource.__name__, column.path)]
    assert wrong == []


@pytest.mark.parametrize("resource", TABULAR, ids=lambda resource: resource.__name__)
def test_every_documented_field_gives_a_column_or_a_table(resource: type[Resource]) -> None:
    columns = {column.path[0] for column in spec.columns_of(resource) if column.path}
    assert golden.fields_of(resource.__name__).keys() - columns == ({"jobs"} if resource is spec.Build else set())
