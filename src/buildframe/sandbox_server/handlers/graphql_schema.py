"""The GraphQL schema, and the limits on the size of queries."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphql import DocumentNode, FieldNode, GraphQLSchema

LONGEST = 20_000
MOST_TOKENS = 1500
DEEPEST = 16
MOST_FIELDS = 80_000


@functools.cache
def schema() -> GraphQLSchema:
    """Return the schema, which `schema.graphql` declares."""
    from graphql import build_schema

    return build_schema(
        resources.files("buildframe.sandbox_server.handlers").joinpath("schema.graphql").read_text("utf-8")
    )


def parse_query(query: str, variables: Mapping[str, Any], sizes: Mapping[str, int]) -> DocumentNode:
    """Parse and validate a query. Raises `GraphQLError` if it is invalid, or exceeds a limit.

    `sizes` holds the length of the longest list of each field name.
    """
    from graphql import GraphQLError, parse, validate

    if len(query) > LONGEST:
        raise GraphQLError(f"The query is longer than {LONGEST} characters")
    document = parse(query, no_location=True, max_tokens=MOST_TOKENS)
    if _depth(document) > DEEPEST:
        raise GraphQLError(f"The query is more than {DEEPEST} levels deep")
    for error in validate(schema(), document, max_errors=1):
        raise error
    if _cost(document, variables, {**_introspection_sizes(), **sizes}) > MOST_FIELDS:
        raise GraphQLError(f"The query requests more than {MOST_FIELDS} fields")
    return document


@functools.cache
def _introspection_sizes() -> dict[str, int]:
    """Return the lengths of the lists in introspection queries."""
    types = schema().type_map.values()

    def longest(name: str) -> int:
        return max(len(getattr(one, name, ())) for one in types)

    fields = [field for one in types for field in getattr(one, "fields", {}).values()]
    return {
        "types": len(types),
        "fields": longest("fields"),
        "inputFields": longest("fields"),
        "enumValues": longest("values"),
        "args": max(len(getattr(field, "args", ())) for field in fields),
        "directives": len(schema().directives),
    }


def _cost(document: DocumentNode, variables: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Return the maximum number of fields in a response, with fragments expanded and lists full."""
    from graphql import FieldNode, FragmentDefinitionNode, FragmentSpreadNode, OperationDefinitionNode

    fragments = {one.name.value: one for one in document.definitions if isinstance(one, FragmentDefinitionNode)}
    memo: dict[int, int] = {}

    def within(node: Any) -> int:
        cost, nodes = 0, [node]
        spread: set[str] = set()
        while nodes:
            selected = nodes.pop().selection_set.selections
            cost += sum(of_field(each) for each in selected if isinstance(each, FieldNode))
            names = {each.name.value for each in selected if isinstance(each, FragmentSpreadNode)} - spread
            nodes += [fragments[name] for name in names]
            nodes += [each for each in selected if not isinstance(each, FieldNode | FragmentSpreadNode)]
            spread |= names
        return cost

    def of_field(node: FieldNode) -> int:
        if id(node) not in memo:
            memo[id(node)] = 1 + (_items(node, variables, sizes) * within(node) if node.selection_set else 0)
        return memo[id(node)]

    return sum(within(one) for one in document.definitions if isinstance(one, OperationDefinitionNode))


def _items(field: FieldNode, variables: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Return the maximum number of items of a field; 1 if it is not a list."""
    from graphql import IntValueNode, VariableNode

    most = sizes.get(field.name.value, 1)
    for argument in field.arguments or ():
        value = argument.value
        requested = variables.get(value.name.value) if isinstance(value, VariableNode) else None
        if isinstance(value, IntValueNode):
            requested = int(value.value)
        if argument.name.value == "first" and isinstance(requested, int):
            most = min(most, requested)
    return max(most, 1)


def _depth(document: DocumentNode) -> int:
    """Return the nesting depth of fields; a cycle of fragments counts as too deep."""
    from graphql import FieldNode, FragmentDefinitionNode, FragmentSpreadNode, OperationDefinitionNode

    fragments = {one.name.value: one for one in document.definitions if isinstance(one, FragmentDefinitionNode)}
    memo: dict[str, int] = {}

    def within(node: Any) -> int:
        return max(map(of, node.selection_set.selections), default=0) if node.selection_set else 0

    def of(node: Any) -> int:
        if isinstance(node, FragmentSpreadNode):
            return of_fragment(node.name.value)
        return within(node) + isinstance(node, FieldNode)

    def of_fragment(name: str) -> int:
        if name not in memo:
            memo[name] = DEEPEST + 1
            memo[name] = within(fragments[name]) if name in fragments else 0
        return memo[name]

    return max((within(one) for one in document.definitions if isinstance(one, OperationDefinitionNode)), default=0)
