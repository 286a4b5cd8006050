"""Generate the OpenAPI document from the declared endpoints."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from buildframe import spec
from buildframe.http.protocol import VERSION_HEADER
from buildframe.sandbox_server.data_files import data_file
from buildframe.sandbox_server.handlers.routes import ROUTES, get_log, get_raw_log, query_graphql
from buildframe.spec.declare import ATTRIBUTES, note_in
from buildframe.spec.operations import Parameter

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    spec.Moment: {"type": "string", "description": "ISO 8601, or a date and time followed by UTC"},
    Any: {},
}

_SCHEMAS: dict[str, Schema] = {}
"""The schemas that the document refers to, by name."""


def create_document(origin: str) -> Schema:
    """Return the OpenAPI 3.1 document, which begins with `openapi.json`. `origin` is the URL without `/v2`."""
    base: Schema = msgspec.json.decode(data_file("http/openapi.json").read_bytes())
    documented = dict.fromkeys(entry.tag for entry in ROUTES if entry.documented)
    base["tags"] = [*({"name": tag} for tag in documented), *base["tags"]]
    paths: Schema = {query_graphql.path: {"servers": [{"url": origin}]}}
    for endpoint in ROUTES:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    base["components"]["schemas"] |= _SCHEMAS
    return base | {"servers": [{"url": f"{origin}/v2"}], "paths": paths}


def _operation(endpoint: spec.Endpoint) -> Schema:
    needs = f"Needs the scope `{endpoint.scope}`." if endpoint.scope else "Needs a token, and no scope."
    note = "" if endpoint.documented else " The API document does not list it."
    operation = {
        "operationId": endpoint.name,
        "summary": endpoint.doc,
        "description": needs + note,
        "tags": [endpoint.tag if endpoint.documented else "undocumented"],
        "parameters": list(_parameters(endpoint)),
        "responses": {str(endpoint.success): _success_response(endpoint)}
        | {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(_error_statuses(endpoint))},
    }
    if endpoint.properties:
        required = any(entry.required for entry in endpoint.properties)
        content = _json_content(_object_schema(endpoint.properties))
        operation["requestBody"] = {"required": required, "content": content}
    return operation


def _error_statuses(endpoint: spec.Endpoint) -> Iterator[int]:
    """Yield the error statuses of an operation, except failures of the server."""
    yield from (401, 429)
    if endpoint.properties:
        yield from (400, 413)
    is_list_of_builds = endpoint.returns is spec.Build and endpoint.paginated
    if is_list_of_builds or endpoint.enveloped or endpoint.version is not None or endpoint is spec.retry_job:
        yield 400
    if endpoint.scope is not None:
        yield 403
    if endpoint.parameters:
        yield 404
    # A valid request can get a 422: by a filter, a body or the state of a resource.
    is_checked = any(entry.kind == "timestamp" or entry.name == "period" for entry in endpoint.filters)
    if is_checked or (endpoint.method != "GET" and endpoint not in (spec.delete_pipeline, query_graphql)):
        yield 422
    if endpoint is query_graphql:
        yield 501


def _parameters(endpoint: spec.Endpoint) -> Iterator[Schema]:
    for entry in endpoint.parameters:
        yield {"name": entry.name, "in": "path", "required": True, "schema": _checked_schema(entry)}
    for declared in endpoint.filters:
        yield from _filter_parameters(declared)
    if endpoint.enveloped:
        yield _query_parameter("after", "cursor of the job before the page", {"type": "string"})
        yield _query_parameter("before", "cursor of the job after the page", {"type": "string"})
    elif endpoint.paginated:
        yield _query_parameter("page", "which page, counted from 1", {"type": "integer", "minimum": 1})
    if endpoint.paginated:
        yield _query_parameter("per_page", "how many a page", {"type": "integer", "minimum": 1, "maximum": 100})
    if endpoint.version is not None:
        doc = f"version of the API, as a date; {endpoint.version} or later responds with more"
        schema = {"type": "string", "format": "date"}
        yield {"name": VERSION_HEADER, "in": "header", "description": doc, "schema": schema}


def _filter_parameters(entry: spec.Filter) -> Iterator[Schema]:
    kinds: dict[str, Schema] = {
        "text": {"type": "string"} | ({"enum": list(entry.choices)} if entry.choices else _form_schema(entry.check)),
        "flag": {"type": "boolean"},
        "timestamp": {"type": "string", "format": "date-time"},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    shape = {"style": "deepObject", "explode": True} if entry.kind == "map" else {}
    yield _query_parameter(entry.name, entry.doc, kinds[entry.kind]) | shape
    if entry.many:
        yield _query_parameter(f"{entry.name}[]", entry.doc, {"type": "array", "items": kinds[entry.kind]})


def _query_parameter(name: str, doc: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": doc, "schema": schema}


def _success_response(endpoint: spec.Endpoint) -> Schema:
    response: Schema = {"description": "Done." if endpoint.method != "GET" else "Found."}
    content: Schema = {}
    if endpoint.returns is not None:
        schema = _reference(endpoint.returns)
        if endpoint.lists:
            schema = {"type": "array", "items": schema}
        content |= _json_content(_envelope(schema) if endpoint.enveloped else schema)
    if endpoint in (get_log, get_raw_log):
        content["text/plain"] = {"schema": {"type": "string"}}
    if endpoint is get_log:
        content["text/html"] = {"schema": {"type": "string"}}
    if content:
        response["content"] = content
    if endpoint.paginated and not endpoint.enveloped:
        doc = "addresses of the first, previous, next and last page; empty where there is one page"
        response["headers"] = {"Link": {"description": doc, "schema": {"type": "string"}}}
    return response


def _envelope(items: Schema) -> Schema:
    links = {"type": "object", "additionalProperties": {"type": "string"}}
    return {"type": "object", "properties": {"items": items, "links": links}, "required": ["items", "links"]}


def _json_content(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _resource_schema(resource: type[spec.Resource]) -> Schema:
    """Return the schema of a resource: fields can be missing or null, except for the required ones."""
    needed = [field.encode_name for field in msgspec.structs.fields(resource) if field.required]
    properties = {
        field.name: _described(_schema(field.type if field.name in needed else field.type | None), field.doc)
        for field in spec.fields_of(resource)
        if field.sent
    }
    return _with_properties(properties, needed)


def _object_schema(entries: Sequence[spec.Property]) -> Schema:
    properties = {entry.name: _described(_checked_schema(entry), entry.doc) for entry in entries}
    return _with_properties(properties, [entry.name for entry in entries if entry.required])


def _with_properties(properties: Schema, required: Sequence[str]) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return schema | {"required": required} if required else schema


def _schema(hint: Any) -> Schema:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _schema(inner[0]) | _form_schema(note_in(hint, spec.Check))
    if origin is Literal:
        return {"type": "string", "enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(option) for option in inner]}
    if origin in (list, Sequence):
        return {"type": "array", "items": _schema(inner[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(inner[1])}
    return _PLAIN[hint] if hint in _PLAIN else _reference(hint)


def _reference(named: type) -> Schema:
    """Return a reference to the schema of a resource or of a typed dictionary, which is generated at first use."""
    if named.__name__ not in _SCHEMAS:
        is_resource = issubclass(named, spec.Resource)
        schema = _resource_schema(named) if is_resource else _object_schema(spec.properties_of(named))
        _SCHEMAS[named.__name__] = _described(schema, (named.__doc__ or "").partition(ATTRIBUTES)[0])
    return {"$ref": f"#/components/schemas/{named.__name__}"}


def _checked_schema(entry: spec.Property | Parameter) -> Schema:
    return _schema(entry.type) | _form_schema(entry.check)


def _form_schema(check: spec.Check | None) -> Schema:
    forms: dict[str, Schema] = {"uuid": {"format": "uuid"}, "sha": {"pattern": "^[0-9a-f]{40}$"}}
    return forms.get(check.form, {}) if check else {}


def _described(schema: Schema, doc: str) -> Schema:
    return schema | {"description": doc} if doc else schema
