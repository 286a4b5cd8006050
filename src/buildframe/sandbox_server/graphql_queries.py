"""Execute GraphQL queries within limits on their size. Needs graphql-core; does not know the data."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import graphql

from buildframe.sandbox_server.data_files import data_file

MAX_LENGTH = 20_000
MAX_TOKENS = 1500
MAX_DEPTH = 16
MAX_FIELDS = 80_000


@functools.cache
def load_schema() -> graphql.GraphQLSchema:
    """Return the schema, which `schema.graphql` declares."""
    return graphql.build_schema(data_file("schema.graphql").read_text("utf-8"))


class _TooManyFields(BaseException):
    """Ends the execution of a query. An `Exception` would end only the field that raises it."""


def execute(
    query: str,
    variables: dict[str, Any],
    operation: str | None,
    root: Mapping[str, Any],
    context: object,
    transaction: AbstractContextManager[None],
) -> graphql.ExecutionResult:
    """Execute a query with the resolvers `root`. The result of an invalid or too large one has only errors.

    It runs in `transaction`, so that a query that turns out to be too large changes nothing.
    """
    fields = itertools.count(1)

    def count_fields(resolve: Callable[..., Any], source: Any, info: Any, **arguments: Any) -> Any:
        if next(fields) > MAX_FIELDS:
            raise _TooManyFields
        return resolve(source, info, **arguments)

    try:
        document = _parse_query(query)
        with transaction:
            return graphql.execute_sync(
                load_schema(), document, root, context, variables, operation, middleware=[count_fields]
            )
    except _TooManyFields:
        error = graphql.GraphQLError(f"The query requests more than {MAX_FIELDS} fields")
    except graphql.GraphQLError as why:
        error = why
    return graphql.ExecutionResult(None, [error])


def _parse_query(query: str) -> graphql.DocumentNode:
    """Parse and validate a query. Raises `GraphQLError` if it is invalid, or exceeds a limit."""
    if len(query) > MAX_LENGTH:
        raise graphql.GraphQLError(f"The query is longer than {MAX_LENGTH} characters")
    document = graphql.parse(query, no_location=True, max_tokens=MAX_TOKENS)
    if _depth(document) > MAX_DEPTH:
        raise graphql.GraphQLError(f"The query is more than {MAX_DEPTH} levels deep")
    for error in graphql.validate(load_schema(), document, max_errors=1):
        raise error
    return document


def _depth(document: graphql.DocumentNode) -> int:
    """Return the nesting depth of fields; a cycle of fragments counts as too deep."""
    parts = document.definitions
    operations = [part for part in parts if isinstance(part, graphql.OperationDefinitionNode)]
    fragments = {part.name.value: part for part in parts if isinstance(part, graphql.FragmentDefinitionNode)}
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
