"""What can be asked by GraphQL, and which queries are too large to be answered."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphql import DocumentNode, GraphQLSchema

LONGEST = 20_000
MOST_TOKENS = 1500
DEEPEST = 16

_SCHEMA = """
type Query {
  "A pipeline by `organization/pipeline`."
  pipeline(slug: ID!): Pipeline
  "An organization by its slug."
  organization(slug: ID!): Organization
}

type Mutation {
  "Give a team a pipeline."
  teamPipelineCreate(input: TeamPipelineCreateInput!): TeamPipelineCreatePayload
  "Change what a team may do at a pipeline."
  teamPipelineUpdate(input: TeamPipelineUpdateInput!): TeamPipelineUpdatePayload
  "Take a pipeline from a team."
  teamPipelineDelete(input: TeamPipelineDeleteInput!): TeamPipelineDeletePayload
}

enum PipelineAccessLevels { READ_ONLY BUILD_AND_READ MANAGE_BUILD_AND_READ }

type Organization {
  id: ID!
  uuid: ID!
  slug: String!
  name: String!
  teams(first: Int, after: String): TeamConnection!
  pipelines(first: Int, after: String): PipelineConnection!
}

type Pipeline {
  id: ID!
  uuid: ID!
  slug: String!
  name: String!
  teams(first: Int, after: String): TeamPipelineConnection!
}

type Team {
  id: ID!
  uuid: ID!
  name: String!
  description: String!
}

"A pipeline that a team has."
type TeamPipeline {
  id: ID!
  uuid: ID!
  accessLevel: PipelineAccessLevels!
  createdAt: String!
  team: Team!
}

type PageInfo { hasNextPage: Boolean! endCursor: String }
type TeamConnection { count: Int! edges: [TeamEdge!]! pageInfo: PageInfo! }
type TeamEdge { cursor: String! node: Team! }
type PipelineConnection { count: Int! edges: [PipelineEdge!]! pageInfo: PageInfo! }
type PipelineEdge { cursor: String! node: Pipeline! }
type TeamPipelineConnection { count: Int! edges: [TeamPipelineEdge!]! pageInfo: PageInfo! }
type TeamPipelineEdge { cursor: String! node: TeamPipeline! }

input TeamPipelineCreateInput {
  clientMutationId: String
  teamID: ID!
  pipelineID: ID!
  accessLevel: PipelineAccessLevels!
}
input TeamPipelineUpdateInput { clientMutationId: String id: ID! accessLevel: PipelineAccessLevels! }
input TeamPipelineDeleteInput { clientMutationId: String id: ID! }

type TeamPipelineCreatePayload {
  clientMutationId: String
  team: Team!
  pipeline: Pipeline!
  teamPipelineEdge: TeamPipelineEdge!
}
type TeamPipelineUpdatePayload { clientMutationId: String teamPipeline: TeamPipeline! }
type TeamPipelineDeletePayload { clientMutationId: String deletedTeamPipelineID: ID! team: Team! }
"""


@functools.cache
def schema() -> GraphQLSchema:
    """The types and fields that there are."""
    from graphql import build_schema

    return build_schema(_SCHEMA)


def checked(query: str) -> DocumentNode:
    """The query read, if it is one of this schema; GraphQLError if it is not, or is too long or too deep."""
    from graphql import GraphQLError, parse, validate

    if len(query) > LONGEST:
        raise GraphQLError(f"The query is longer than {LONGEST} characters")
    document = parse(query, no_location=True, max_tokens=MOST_TOKENS)
    if _depth(document) > DEEPEST:
        raise GraphQLError(f"The query is more than {DEEPEST} levels deep")
    for error in validate(schema(), document, max_errors=1):
        raise error
    return document


def _depth(document: DocumentNode) -> int:
    """How many fields lie within each other; a fragment in a circle counts as too deep."""
    from graphql import FieldNode, FragmentDefinitionNode, FragmentSpreadNode, OperationDefinitionNode

    fragments = {one.name.value: one for one in document.definitions if isinstance(one, FragmentDefinitionNode)}
    known: dict[str, int] = {}

    def within(node: Any) -> int:
        return max(map(of, node.selection_set.selections), default=0) if node.selection_set else 0

    def of(node: Any) -> int:
        if isinstance(node, FragmentSpreadNode):
            return of_fragment(node.name.value)
        return within(node) + isinstance(node, FieldNode)

    def of_fragment(name: str) -> int:
        if name not in known:
            known[name] = DEEPEST + 1
            known[name] = within(fragments[name]) if name in fragments else 0
        return known[name]

    return max((within(one) for one in document.definitions if isinstance(one, OperationDefinitionNode)), default=0)
