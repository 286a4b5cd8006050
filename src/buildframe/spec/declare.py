"""Declare resources and operations, and derive fields, columns, filters and properties from the declarations.

A resource is a class. Its annotations declare each field: its type, its meaning and whether it is personal, secret or
plain. `KEY` marks the fields that identify a row. A nested object needs no mark if `flat` selects fields of it.

    @table("builds")
    class Build(Resource):
        id: Annotated[str, "UUID", PLAIN, KEY]
        env: Annotated[dict[str, Any] | None, "environment variables", SECRET] = None
        creator: Annotated[User | None, "user who started it", flat("name", "id")] = None

An operation is a function without a body. Its signature declares the arguments:

    @endpoint("GET /organizations/{org}/builds", returns=Build, scope="read_builds", paginated=True)
    def list_builds(org: str, /, **filters: Unpack[BuildFilters]) -> None:
        "Builds of an organization, newest first."

Keyword arguments are query parameters (`Filter`) of a GET and body properties (`Property`) of other methods. Tables and
operations register themselves. Requests, decoders, columns, stored columns, routes and reference pages are derived
from these declarations.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, Required, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from buildframe.spec.forms import Form
from buildframe.spec.times import Moment, When

Kind = Literal["text", "integer", "flag", "timestamp", "json"]
"""Type of the values of a column. `json` is a map or a list as JSON text."""


class Privacy(Enum):
    """What a field may contain. Stores and exports leave out personal and secret values by default."""

    PERSONAL = "personal"  # names, e-mail addresses and other data of people; their ids are plain
    SECRET = "secret"  # noqa: S105  environment variables, YAML that sets them, webhook URLs
    PLAIN = "plain"  # neither


PERSONAL, SECRET, PLAIN = Privacy.PERSONAL, Privacy.SECRET, Privacy.PLAIN


class Trait(Enum):
    """A property of a field that decides how its rows are compared and stored."""

    KEY = "key"  # identifies a row, alone or with other keys
    GAUGE = "gauge"  # a current count: it changes constantly, so histories leave it out


KEY, GAUGE = Trait.KEY, Trait.GAUGE

Texts = str | Sequence[str]
"""One string or several; several match any of them."""


@dataclass(frozen=True)
class flat:  # noqa: N801  reads as a word of the declaration language
    """Keys of a nested object that become columns.

    The first key becomes the column `field`, every other key `field_key`. If the first argument is None, there is no
    column `field`.
    """

    named: str | None
    others: tuple[str, ...]

    def __init__(self, named: str | None, *others: str) -> None:
        object.__setattr__(self, "named", named)
        object.__setattr__(self, "others", others)

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys, in order."""
        return self.others if self.named is None else (self.named, *self.others)


@dataclass(frozen=True)
class derived:  # noqa: N801
    """A column that is computed as `of(*needs)` from other columns if the service sends no value."""

    of: Callable[..., Any]
    needs: tuple[str, ...]

    def __init__(self, of: Callable[..., Any], *needs: str) -> None:
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "needs", needs)


@dataclass(frozen=True)
class Check:
    """A format that a string must have."""

    form: Form


Slug = Annotated[str, Check("slug")]
Name = Annotated[str, Check("name")]
Uuid = Annotated[str, Check("uuid")]
Filled = Annotated[str, Check("filled")]


class Column(NamedTuple):
    """
    One column of a table.

    Attributes
    ----------
    name : str
        Name of the column.
    path : tuple of str
        Keys of its value in a record; empty if the service does not send it.
    kind : str
        `text`, `integer`, `flag`, `timestamp` or `json`.
    doc : str
        Description.
    derived : derived or None
        How the column is computed from others.
    privacy : Privacy or None
        `PERSONAL`, `SECRET` or `PLAIN`. None, if the declaration does not say, is handled as personal and secret.
    traits : frozenset of Trait
        `KEY` and `GAUGE`, if they apply.
    """

    name: str
    path: tuple[str, ...]
    kind: Kind
    doc: str
    derived: derived | None = None
    privacy: Privacy | None = None
    traits: frozenset[Trait] = frozenset()


class Field(NamedTuple):
    """One declared field of a resource."""

    name: str
    type: Any  # without None
    doc: str
    flat: flat | None
    derived: derived | None
    privacy: Privacy | None  # of nested objects with `flat` and of lists of records: None, as their own fields say it
    traits: frozenset[Trait]

    @property
    def sent(self) -> bool:
        """Whether the service sends the field."""
        return self.derived is None or self.flat is not None

    @property
    def kind(self) -> Kind:
        """The type of its column, if it becomes one column."""
        return _KINDS.get(self.type, "json")

    @property
    def may_be_text(self) -> bool:
        """Whether the service may send a string instead of an object."""
        return str in get_args(self.type)


UNKNOWN = "unknown"
"""Attribute of a record that contains undeclared fields."""


class Resource(msgspec.Struct, kw_only=True):
    """
    Base class of typed records.

    Each declared field is an attribute. It is None if the service did not send it.

    Attributes
    ----------
    unknown : dict
        Fields that the service sent but the class does not declare, such as `build.unknown["new_field"]`. Nested
        records have their own.
    """

    unknown: dict[str, Any] = msgspec.field(default_factory=dict, name="(not sent)")

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            if not field.sent and field.derived is not None and getattr(self, field.name) is None:
                values = [_column_value(self, need) for need in field.derived.needs]
                setattr(self, field.name, field.derived.of(*values))

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        names = [*(name for name in self.__struct_fields__ if name != UNKNOWN), UNKNOWN]
        return [(name, value) for name in names if (value := getattr(self, name)) not in (None, {})]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_short_repr(value)}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({fields})"


_MAX_DEPTH = 5


def _short_repr(value: Any, depth: int = 0) -> str:
    if isinstance(value, Moment):
        return value.text()
    if isinstance(value, list | dict) and (len(value) > 3 or depth > _MAX_DEPTH):
        return f"<{len(value)} {'items' if isinstance(value, list) else 'keys'}>"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_short_repr(inner, depth + 1)}' for key, inner in value.items())}}}"
    if isinstance(value, Resource):
        return _summary(value)
    if isinstance(value, list):
        return f"[{', '.join(_short_repr(inner, depth + 1) for inner in value)}]"
    return f"{value[:60]!r}…" if isinstance(value, str) and len(value) > 100 else repr(value)


def _summary(inner: Resource) -> str:
    """Return a nested record as text, shortened to its first three fields."""
    shown = [f"{name}={_short_repr(value)}" for name, value in inner.__rich_repr__() if name != "graphql_id"]
    return f"{type(inner).__name__}({', '.join(shown[:3] + ['…'] * (len(shown) > 3))})"


def _column_value(record: Resource, name: str) -> Any:
    """Return the value that the column `name` has for this record."""
    column = next(column for column in columns_of(type(record)) if column.name == name)
    value: Any = record
    for key in column.path:
        value = getattr(value, key, None)
    return value if value is None or column.kind != "json" else msgspec.json.encode(value).decode()


@functools.cache
def fields_of(resource: type[Resource]) -> tuple[Field, ...]:
    """
    Return the declared fields of a resource in order, named by the keys of the service.

    Parameters
    ----------
    resource : type of Resource
        Declared class, such as `Build`.

    Returns
    -------
    tuple of Field

    Examples
    --------
    >>> from buildframe.spec import Emoji, fields_of
    >>> [field.name for field in fields_of(Emoji)]
    ['name', 'url', 'aliases']
    """
    hints = get_type_hints(resource, include_extras=True)
    names = zip(resource.__struct_fields__, resource.__struct_encode_fields__, strict=True)
    return tuple(_field(key, hints[name]) for name, key in names if name != UNKNOWN)


def _field(name: str, hint: Any) -> Field:
    bare, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    doc = next((note for note in notes if isinstance(note, str)), "")
    return Field(
        name,
        _without_none(bare),
        doc,
        next((note for note in notes if isinstance(note, flat)), None),
        next((note for note in notes if isinstance(note, derived)), None),
        next((note for note in notes if isinstance(note, Privacy)), None),
        frozenset(note for note in notes if isinstance(note, Trait)),
    )


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    rest = tuple(part for part in get_args(hint) if part is not types.NoneType)
    return rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007  built at runtime


def nested_resource(hint: Any) -> type[Resource] | None:
    """Return the resource in a type hint (`User`, `Author | str`); None if there is none."""
    for part in (hint, *get_args(hint)):
        if isinstance(part, type) and issubclass(part, Resource):
            return part
    return None


def is_list_of_resources(field: Field) -> bool:
    """Whether a field is a list of records with a separate table (the jobs of a build)."""
    return get_origin(field.type) is list and nested_resource(field.type) is not None


_KINDS: dict[Any, Kind] = {str: "text", int: "integer", bool: "flag", Moment: "timestamp"}


@functools.cache
def columns_of(resource: type[Resource]) -> tuple[Column, ...]:
    """
    Return the columns that the fields of a resource define, in order of declaration.

    Parameters
    ----------
    resource : type of Resource
        Declared class, such as `Build`.

    Returns
    -------
    tuple of Column
        Without the columns of nested lists, such as the jobs of a build.

    Examples
    --------
    >>> from buildframe.spec import Emoji, columns_of
    >>> [(column.name, column.kind, column.privacy.value) for column in columns_of(Emoji)]
    [('name', 'text', 'plain'), ('url', 'text', 'plain'), ('aliases', 'json', 'plain')]
    """
    return tuple(column for field in fields_of(resource) for column in _columns(field))


def _columns(field: Field) -> Iterator[Column]:
    if field.flat is not None:
        yield from _flattened(field, field.flat)
    elif not field.sent:
        yield Column(field.name, (), field.kind, field.doc, field.derived, field.privacy, field.traits)
    elif not is_list_of_resources(field):
        yield Column(field.name, (field.name,), field.kind, field.doc, None, field.privacy, field.traits)


def _flattened(field: Field, selection: flat) -> Iterator[Column]:
    nested = nested_resource(field.type)
    assert nested is not None, f"{field.name}: flat() is for nested resources"
    inner = {part.name: part for part in fields_of(nested)}
    for key in selection.keys:
        first = key == selection.named
        name = field.name if first else f"{field.name}_{key}"
        doc = f"{field.doc}: {inner[key].doc}" if inner[key].doc else f"{field.doc}: its {key}"
        part = inner[key]
        yield Column(name, (field.name, key), part.kind, doc, field.derived if first else None, part.privacy)


def key_of(resource: type[Resource]) -> tuple[str, ...]:
    """
    Return the names of the fields that identify a row.

    Parameters
    ----------
    resource : type of Resource
        Declared class, such as `Build`.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from buildframe.spec import Build, Emoji, key_of
    >>> key_of(Build), key_of(Emoji)
    (('id',), ('name', 'url'))
    """
    return tuple(field.name for field in fields_of(resource) if KEY in field.traits)


RESOURCES: dict[str, type[Resource]] = {}
"""Resource of each table, by the name of the table."""

R = TypeVar("R", bound=Resource)


def table(name: str) -> Callable[[type[R]], type[R]]:
    """
    Register a resource as a table that can be fetched.

    Parameters
    ----------
    name : str
        Name of the table, such as "builds".

    Returns
    -------
    callable
        A class decorator that returns the class.
    """

    def register(resource: type[R]) -> type[R]:
        RESOURCES[name] = resource
        return resource

    return register


class Filter(NamedTuple):
    """One query parameter of a list."""

    name: str
    kind: Literal["text", "flag", "timestamp", "map"]
    many: bool
    choices: tuple[str, ...]
    check: Check | None
    doc: str


class Parameter(NamedTuple):
    """One parameter in the path of an operation."""

    name: str
    type: type
    check: Check | None


class Property(NamedTuple):
    """One property of a request body."""

    name: str
    type: Any  # includes None if null is allowed
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
    """

    name: str
    method: str
    path: str
    returns: type[Resource] | None
    scope: str | None
    lists: bool
    paginated: bool
    success: int
    doc: str
    parameters: tuple[Parameter, ...]
    filters: tuple[Filter, ...]
    properties: tuple[Property, ...]
    tag: str
    documented: bool

    def __repr__(self) -> str:
        return f"<{self.name}: {self.method} {self.path}>"

    @property
    def filter_names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.filters)

    @property
    def property_names(self) -> tuple[str, ...]:
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
    >>> from buildframe.spec.declare import endpoints_of
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
    success: int = 200,
    documented: bool = True,
    also_in_query: bool = False,
    tag: str | None = None,
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
    success : int, default 200
        Status of a successful response.
    documented : bool, default True
        Whether the API document lists the operation. Responses link to the others.
    also_in_query : bool, default False
        Whether properties of the body can be sent in the query instead.
    tag : str, optional
        Group of the operation. By default the name of the declaring module.

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
            lists=lists or paginated,
            paginated=paginated,
            success=success,
            doc=inspect.getdoc(function) or "",
            parameters=positional,
            filters=filters,
            properties=properties,
            tag=tag or function.__module__.rpartition(".")[2].replace("_", "-"),
            documented=documented,
        )
        _REGISTERED.append((function.__module__, declared))
        return declared

    return declare


def _parameter(name: str, hint: Any) -> Parameter:
    return Parameter(name, get_args(hint)[0] if get_origin(hint) is Annotated else hint, check_in(hint))


def check_in(hint: Any) -> Check | None:
    """Return the format check of an annotation."""
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((note for note in notes if isinstance(note, Check)), None)


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
    bare, *notes = get_args(get_args(hint)[0] if required else hint)
    doc = next(note for note in notes if isinstance(note, str))
    return Property(name, bare, required, doc, next((note for note in notes if isinstance(note, Check)), None))


@functools.cache
def filters_of(declared: type) -> tuple[Filter, ...]:
    """Return the query parameters that a TypedDict declares."""
    return tuple(_filter(name, hint) for name, hint in get_type_hints(declared, include_extras=True).items())


def _filter(name: str, hint: Any) -> Filter:
    bare, *notes = get_args(hint)
    doc = next(note for note in notes if isinstance(note, str))
    check = next((note for note in notes if isinstance(note, Check)), None)
    literal = next((part for part in (bare, *get_args(bare)) if get_origin(part) is Literal), None)
    if literal is not None:
        return Filter(name, "text", bare is not literal, get_args(literal), check, doc)
    kind, many = _FILTER_KINDS[bare]
    return Filter(name, kind, many, (), check, doc)


_FILTER_KINDS: dict[Any, tuple[Literal["text", "flag", "timestamp", "map"], bool]] = {
    str: ("text", False),
    Texts: ("text", True),
    bool: ("flag", False),
    When: ("timestamp", False),
    Mapping[str, str]: ("map", False),
}
