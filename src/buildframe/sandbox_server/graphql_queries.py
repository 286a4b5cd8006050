"""Execute GraphQL queries within limits on their size. Needs graphql-core; does not know the data."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import graphql

Operations = Sequence[graphql.OperationDefinitionNode]
Fragments = Mapping[str, graphql.FragmentDefinitionNode]

MAX_LENGTH = 20_000
MAX_TOKENS = 1500
MAX_DEPTH = 16
MAX_FIELDS = 80_000


@functools.cache
def load_schema() -> graphql.GraphQLSchema:
    """Return the schema, which `schema.graphql` declares."""
    return graphql.build_schema(
        resources.files("buildframe.sandbox_server").joinpath("schema.graphql").read_text("utf-8")
    )


def execute(
    query: str,
    variables: dict[str, Any],
    operation: str | None,
    root: Mapping[str, Any],
    context: object,
    sizes: Mapping[str, int],
) -> graphql.ExecutionResult:
    """Execute a query with the resolvers `root`. The result of an invalid or too large one has only errors.

    `sizes` holds the length of the longest list of each field name.
    """
    try:
        document = _parse_query(query, variables, sizes)
    except graphql.GraphQLError as error:
        return graphql.ExecutionResult(None, [error])
    result = graphql.execute_sync(load_schema(), document, root, context, variables, operation)
    assert isinstance(result, graphql.ExecutionResult)
    return result


def _parse_query(query: str, variables: Mapping[str, Any], sizes: Mapping[str, int]) -> graphql.DocumentNode:
    """Parse and validate a query. Raises `GraphQLError` if it is invalid, or exceeds a limit."""
    if len(query) > MAX_LENGTH:
        raise graphql.GraphQLError(f"The query is longer than {MAX_LENGTH} characters")
    document = graphql.parse(query, no_location=True, max_tokens=MAX_TOKENS)
    parts = document.definitions
    operations = [part for part in parts if isinstance(part, graphql.OperationDefinitionNode)]
    fragments = {part.name.value: part for part in parts if isinstance(part, graphql.FragmentDefinitionNode)}
    if _depth(operations, fragments) > MAX_DEPTH:
        raise graphql.GraphQLError(f"The query is more than {MAX_DEPTH} levels deep")
    for error in graphql.validate(load_schema(), document, max_errors=1):
        raise error
    if _cost(operations, fragments, variables, {**_introspection_sizes(), **sizes}) > MAX_FIELDS:
        raise graphql.GraphQLError(f"The query requests more than {MAX_FIELDS} fields")
    return document


@functools.cache
def _introspection_sizes() -> dict[str, int]:
    """Return the lengths of the lists in introspection queries."""
    types = load_schema().type_map.values()

    def longest(name: str) -> int:
        return max(len(getattr(one, name, ())) for one in types)

    fields = [field for one in types for field in getattr(one, "fields", {}).values()]
    return {
        "types": len(types),
        "fields": longest("fields"),
        "inputFields": longest("fields"),
        "enumValues": longest("values"),
        "args": max(len(getattr(field, "args", ())) for field in fields),
        "directives": len(load_schema().directives),
    }


def _cost(operations: Operations, fragments: Fragments, variables: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Return the maximum number of fields in a response, with fragments expanded and lists full."""
    memo: dict[int, int] = {}

    def within(node: Any) -> int:
        cost, nodes = 0, [node]
        spread: set[str] = set()
        while nodes:
            selected = nodes.pop().selection_set.selections
            cost += sum(of_field(each) for each in selected if isinstance(each, graphql.FieldNode))
            names = {each.name.value for each in selected if isinstance(each, graphql.FragmentSpreadNode)} - spread
            nodes += [fragments[name] for name in names]
            nodes += [each for each in selected if not isinstance(each, graphql.FieldNode | graphql.FragmentSpreadNode)]
            spread |= names
        return cost

    def of_field(node: graphql.FieldNode) -> int:
        if id(node) not in memo:
            memo[id(node)] = 1 + (_items(node, variables, sizes) * within(node) if node.selection_set else 0)
        return memo[id(node)]

    return sum(map(within, operations))


def _items(field: graphql.FieldNode, variables: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Return the maximum number of items of a field; 1 if it is not a list."""
    most = sizes.get(field.name.value, 1)
    for argument in field.arguments or ():
        value = argument.value
        requested = variables.get(value.name.value) if isinstance(value, graphql.VariableNode) else None
        if isinstance(value, graphql.IntValueNode):
            requested = int(value.value)
        if argument.name.value == "first" and isinstance(requested, int):
            most = min(most, requested)
    return max(most, 1)


def _depth(operations: Operations, fragments: Fragments) -> int:
    """Return the nesting depth of fields; a cycle of fragments counts as too deep."""
    memo: dict[str, int] = {}

    def within(node: Any) -> int:
        return max(map(of, node.selection_set.selections), default=0) if node.selection_set else 0

    def of(node: Any) -> int:
        if not isinstance(node, graphql.FragmentSpreadNode):
            return within(node) + isinstance(node, graphql.FieldNode)
        name = node.name.value
        if name not in memo:
            memo[name] = MAX_DEPTH + 1
            memo[name] = within(fragments[name]) if name in fragments else 0
        return memo[name]

    return max(map(within, operations), default=0)
