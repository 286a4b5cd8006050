"""Declare operations, and derive filters, parameters and properties from the declarations.

An operation is a function without a body. Its signature declares the arguments:

    @endpoint("GET /organizations/{org}/builds", returns=Build, scope="read_builds", paginated=True)
    def list_builds(org: str, /, **filters: Unpack[BuildFilters]) -> None:
        "Builds of an organization, newest first."

Keyword arguments are query parameters (`Filter`) of a GET and body properties (`Property`) of other methods. Operations
register themselves. Requests, routes and reference pages are derived from these declarations.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Required,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from buildframe.spec.declare import Resource, note_in
from buildframe.spec.forms import Form
from buildframe.spec.times import When

FilterKind = Literal["text", "flag", "timestamp", "map"]
Texts = str | Sequence[str]
"""One string or several; several match any of them."""


@dataclass(frozen=True)
class Check:
    """
    A format that a string must have.

    Attributes
    ----------
    form : str
        `filled`, `name`, `sha`, `slug`, `uuid` or `yaml`.
    """

    form: Form


class AlwaysList:
    """Mark a query parameter that the service reads as a list: one value is sent as `name[]`."""


ALWAYS_LIST = AlwaysList()

Slug = Annotated[str, Check("slug")]
Name = Annotated[str, Check("name")]
Uuid = Annotated[str, Check("uuid")]
Filled = Annotated[str, Check("filled")]


class Filter(NamedTuple):
    """
    One query parameter of a list.

    Attributes
    ----------
    name : str
        Name of the parameter.
    kind : {"text", "flag", "timestamp", "map"}
        Type of its value.
    many : bool
        Whether it may have several values.
    choices : tuple of str
        Allowed values; empty if all are.
    check : Check or None
        Format of its text.
    doc : str
        Description.
    always_list : bool, default False
        Whether a single value is sent as a list, too.
    """

    name: str
    kind: FilterKind
    many: bool
    choices: tuple[str, ...]
    check: Check | None
    doc: str
    always_list: bool = False


class Parameter(NamedTuple):
    """
    One parameter in the path of an operation.

    Attributes
    ----------
    name : str
        Name of the parameter.
    type : type
        `str` or `int`.
    check : Check or None
        Format of its text.
    """

    name: str
    type: type
    check: Check | None


class Property(NamedTuple):
    """
    One property of a request body.

    Attributes
    ----------
    name : str
        Name of the property.
    type : type hint
        Type of its value. It includes None if null is allowed.
    required : bool
        Whether a body must contain it.
    doc : str
        Description.
    check : Check or None
        Format of its text.
    """

    name: str
    type: Any
    required: bool
    doc: str
    check: Check | None


@dataclass(frozen=True)
class Endpoint:
    """
    One declared operation of the service; see `endpoint`.

    Attributes
    ----------
    name : str
        Name of the operation, such as "list_builds".
    method, path : str
        Method, and path below `/v2` with `{names}`.
    returns : type of Resource or None
        Resource in the response; None if there is no body, or an undocumented one.
    scope : str or None
        Scope that the token needs.
    lists, paginated : bool
        Whether the response is a list, and whether it is one page of a list.
    key : str or None
        Field of the returned record that equals the last parameter of the path.
    success : int
        Status of a successful response.
    doc : str
        Description.
    parameters : tuple of Parameter
        Parameters of the path, in order.
    filters : tuple of Filter
        Parameters of the query.
    properties : tuple of Property
        Properties of the body.
    tag : str
        Group of the operation, such as "flaky-tests".
    documented : bool
        Whether the API document lists the operation.
    enveloped : bool
        Whether a page is an object with `items` and `links`, whose `next` is the next page.
    ends_without_link : bool
        Whether a response without a link to a next page ends the list, however many rows it has.
    version : str or None
        Version of the API that the request asks for, as a date; None for none.
    """

    name: str
    method: str
    path: str
    returns: type[Resource] | None
    scope: str | None
    lists: bool
    paginated: bool
    key: str | None
    success: int
    doc: str
    parameters: tuple[Parameter, ...]
    filters: tuple[Filter, ...]
    properties: tuple[Property, ...]
    tag: str
    documented: bool
    enveloped: bool = False
    version: str | None = None
    ends_without_link: bool = False

    def __repr__(self) -> str:
        return f"<{self.name}: {self.method} {self.path}>"

    @property
    def filter_names(self) -> tuple[str, ...]:
        """Names of the parameters of the query."""
        return tuple(entry.name for entry in self.filters)

    @property
    def property_names(self) -> tuple[str, ...]:
        """Names of the properties of the body."""
        return tuple(entry.name for entry in self.properties)


_REGISTERED: list[tuple[str, Endpoint]] = []


def endpoints_of(package: str) -> tuple[Endpoint, ...]:
    """
    Return the operations that the imported modules of a package declare, grouped by tag.

    Parameters
    ----------
    package : str
        Full name of the package.

    Returns
    -------
    tuple of Endpoint

    Examples
    --------
    >>> from buildframe.spec.operations import endpoints_of
    >>> [operation.name for operation in endpoints_of("buildframe.spec") if operation.tag == "members"]
    ['list_members', 'get_member']
    """
    own = (operation for module, operation in _REGISTERED if module.startswith(f"{package}."))
    return tuple(sorted(own, key=lambda operation: operation.tag))


def endpoint(
    route: str,
    *,
    returns: type[Resource] | None,
    scope: str | None,
    lists: bool = False,
    paginated: bool = False,
    key: str | None = None,
    success: int = 200,
    documented: bool = True,
    also_in_query: bool = False,
    tag: str | None = None,
    enveloped: bool = False,
    version: str | None = None,
    ends_without_link: bool = False,
) -> Callable[[Callable[..., None]], Endpoint]:
    """
    Declare and register an operation by a function without a body.

    The function's name is that of the operation. Its positional parameters are those of the path, and its docstring is
    the description. Keyword arguments are query parameters of a GET and body properties of other methods.

    Parameters
    ----------
    route : str
        Method and path below `/v2`, such as "GET /organizations/{org}/builds".
    returns : type of Resource or None
        Resource in the response; None if there is no body, or an undocumented one.
    scope : str or None
        Scope that the token needs.
    lists : bool, default False
        Whether the response is a list.
    paginated : bool, default False
        Whether the response is one page of a list.
    key : str, optional
        Field of the returned record that equals the last parameter of the path. None if there is no such record, or if
        another one is returned, such as a new one.
    success : int, default 200
        Status of a successful response.
    documented : bool, default True
        Whether the API document lists the operation. Others are known from links in responses, or
        from public pages of the hosted service.
    also_in_query : bool, default False
        Whether properties of the body can be sent in the query instead.
    tag : str, optional
        Group of the operation. By default the name of the declaring module.
    enveloped : bool, default False
        Whether a page is an object with `items` and `links` instead of a list.
    version : str, optional
        Version of the API that the request asks for in a header, as a date such as "2026-08-01".
    ends_without_link : bool, default False
        Whether a response without a link to a next page ends the list, however many rows it has.
        The document of such a list does not say that it has pages.

    Returns
    -------
    callable
        A decorator that returns the `Endpoint`.

    Examples
    --------
    >>> from buildframe.spec import get_member
    >>> get_member
    <get_member: GET /organizations/{org}/members/{user}>
    >>> get_member.scope, get_member.tag, [parameter.name for parameter in get_member.parameters]
    ('read_organizations', 'members', ['org', 'user'])
    """
    method, path = route.split(" ", 1)

    def declare(function: Callable[..., None]) -> Endpoint:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
        positional = tuple(_parameter(p.name, hints[p.name]) for p in parameters if p.kind is p.POSITIONAL_ONLY)
        named = [get_args(hints[p.name])[0] for p in parameters if p.kind is p.VAR_KEYWORD]
        filters = filters_of(named[0]) if named and (method == "GET" or also_in_query) else ()
        properties = properties_of(named[0]) if named and method != "GET" else ()
        declared = Endpoint(
            name=function.__name__,
            method=method,
            path=path,
            returns=returns,
            scope=scope,
            lists=lists or paginated or enveloped,
            paginated=paginated or enveloped,
            key=key,
            success=success,
            doc=inspect.getdoc(function) or "",
            parameters=positional,
            filters=filters,
            properties=properties,
            tag=tag or function.__module__.rpartition(".")[2].replace("_", "-"),
            documented=documented,
            enveloped=enveloped,
            version=version,
            ends_without_link=ends_without_link,
        )
        _REGISTERED.append((function.__module__, declared))
        return declared

    return declare


def _parameter(name: str, hint: Any) -> Parameter:
    return Parameter(name, get_args(hint)[0] if get_origin(hint) is Annotated else hint, note_in(hint, Check))


T = TypeVar("T")


@dataclass_transform(kw_only_default=True)
def keywords(declared: type[T]) -> type[T]:
    """Decorate a TypedDict whose keys are the keyword arguments of a method.

    Jedi does not know `Unpack`. It completes these names if it sees a dataclass, and the method calls `X(**keywords)`.
    """
    return declared


@functools.cache
def properties_of(declared: type) -> tuple[Property, ...]:
    """
    Return the properties that a TypedDict declares for a body or an object in it.

    Parameters
    ----------
    declared : type
        A TypedDict, such as `NewBuild`.

    Returns
    -------
    tuple of Property
        In order of declaration.

    Examples
    --------
    >>> from buildframe.spec import NewTeamPipeline, properties_of
    >>> [(entry.name, entry.required) for entry in properties_of(NewTeamPipeline)]
    [('pipeline_id', True), ('access_level', True)]
    """
    return tuple(_property(name, hint) for name, hint in get_type_hints(declared, include_extras=True).items())


def _property(name: str, hint: Any) -> Property:
    required = get_origin(hint) is Required
    hint = get_args(hint)[0] if required else hint
    return Property(name, get_args(hint)[0], required, note_in(hint, str) or "", note_in(hint, Check))


@functools.cache
def filters_of(declared: type) -> tuple[Filter, ...]:
    """Return the query parameters that a TypedDict declares."""
    return tuple(_filter(name, hint) for name, hint in get_type_hints(declared, include_extras=True).items())


def _filter(name: str, hint: Any) -> Filter:
    bare, doc, check = get_args(hint)[0], note_in(hint, str) or "", note_in(hint, Check)
    always_list = note_in(hint, AlwaysList) is not None
    literal = next((part for part in (bare, *get_args(bare)) if get_origin(part) is Literal), None)
    if literal is not None:
        return Filter(name, "text", bare is not literal, get_args(literal), check, doc, always_list)
    return Filter(name, *_FILTER_KINDS[bare], (), check, doc, always_list)


_FILTER_KINDS: dict[Any, tuple[FilterKind, bool]] = {
    str: ("text", False),
    Texts: ("text", True),
    bool: ("flag", False),
    When: ("timestamp", False),
    Mapping[str, str]: ("map", False),
}
