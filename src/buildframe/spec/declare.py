"""How resources and operations are declared, and how a declaration is read.

A resource is a class whose annotations say each field's type and meaning:

    class Build(Resource):
        number: Annotated[int | None, "unique within its pipeline"] = None
        creator: Annotated[User | None, "who started it", flat("name", "id")] = None

An operation is a function without a body whose signature says its arguments:

    @endpoint("GET /organizations/{org}/builds", returns=Build, scope="read_builds", paginated=True)
    def list_builds(org: str, /, **filters: Unpack[BuildFilters]) -> None:
        "Builds of an organization, newest first."

The keyword arguments of a GET are its query parameters (`Filter`), those of other methods the properties of
its body (`Property`). Everything else (requests, decoders, columns, routes, reference pages) is derived from these.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Required, Union, get_args, get_origin, get_type_hints

import msgspec

from buildframe.spec.forms import Form
from buildframe.spec.times import Moment, When

Kind = Literal["text", "integer", "flag", "moment", "json"]
"""What a column holds: `json` is a map or a list, kept as JSON text."""

Texts = str | Sequence[str]
"""One text or several; several mean any of them."""


@dataclass(frozen=True)
class flat:  # noqa: N801  reads as a word of the declaration language
    """Which keys of a nested object become columns: the first under the field's own name, the others as `field_key`.

    `named=None` where no key names the object, so that none stands under the field's own name.
    """

    named: str | None
    others: tuple[str, ...]

    def __init__(self, named: str | None, *others: str) -> None:
        object.__setattr__(self, "named", named)
        object.__setattr__(self, "others", others)

    @property
    def keys(self) -> tuple[str, ...]:
        """All the keys, in order."""
        return self.others if self.named is None else (self.named, *self.others)


@dataclass(frozen=True)
class derived:  # noqa: N801
    """A column that the service does not send: `of(*needs)`, from other columns, wherever it would be null."""

    of: Callable[..., Any]
    needs: tuple[str, ...]

    def __init__(self, of: Callable[..., Any], *needs: str) -> None:
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "needs", needs)


@dataclass(frozen=True)
class Check:
    """A named form that a text must have."""

    form: Form


Slug = Annotated[str, Check("slug")]
Name = Annotated[str, Check("name")]
Uuid = Annotated[str, Check("uuid")]


class Column(NamedTuple):
    """One column of a table: where it lies in an answer, what it holds, what it means."""

    name: str
    path: tuple[str, ...]  # empty: the service does not send it
    kind: Kind
    doc: str
    derived: derived | None = None


class Field(NamedTuple):
    """One declared field of a resource."""

    name: str
    type: Any  # without None
    doc: str
    flat: flat | None
    derived: derived | None

    @property
    def sent(self) -> bool:
        """Whether the service sends it."""
        return self.derived is None or self.flat is not None

    @property
    def kind(self) -> Kind:
        """What its column holds, where it is one column."""
        return _KINDS.get(self.type, "json")

    @property
    def may_be_text(self) -> bool:
        """Whether a bare text may stand where an object is declared."""
        return str in get_args(self.type)


UNKNOWN = "unknown"
"""Attribute of a record with the fields that its declaration does not name."""


class Resource(msgspec.Struct, kw_only=True):
    """Base of the typed records: the fields that the service sent, as attributes; a field that it left out is None.

    Fields that the declaration does not name are in the dict `unknown`, under the service's keys:
    `build.unknown["new_field"]`. Records inside a record have their own.
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
        return f"{type(self).__name__}({', '.join(f'{name}={_short(value)}' for name, value in self.__rich_repr__())})"


_DEEPEST = 5


def _short(value: Any, depth: int = 0) -> str:
    if isinstance(value, Moment):
        return value.text()
    if isinstance(value, list | dict) and (len(value) > 3 or depth > _DEEPEST):
        return f"<{len(value)} {'items' if isinstance(value, list) else 'keys'}>"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_short(inner, depth + 1)}' for key, inner in value.items())}}}"
    if isinstance(value, Resource):
        return _glimpse(value)
    if isinstance(value, list):
        return f"[{', '.join(_short(inner, depth + 1) for inner in value)}]"
    return f"{value[:60]!r}…" if isinstance(value, str) and len(value) > 100 else repr(value)


def _glimpse(inner: Resource) -> str:
    """A record inside another one, by its first three fields."""
    told = [f"{name}={_short(value)}" for name, value in inner.__rich_repr__() if name != "graphql_id"]
    return f"{type(inner).__name__}({', '.join(told[:3] + ['…'] * (len(told) > 3))})"


def _column_value(record: Resource, name: str) -> Any:
    """What the column `name` would hold for this one record."""
    column = next(column for column in columns_of(type(record)) if column.name == name)
    value: Any = record
    for key in column.path:
        value = getattr(value, key, None)
    return value if value is None or column.kind != "json" else msgspec.json.encode(value).decode()


@functools.cache
def fields_of(resource: type[Resource]) -> tuple[Field, ...]:
    """The declared fields of a resource, in order, under the keys that the service uses."""
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
    )


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    rest = tuple(part for part in get_args(hint) if part is not types.NoneType)
    return rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007  built at run time


def resource_in(hint: Any) -> type[Resource] | None:
    """The resource that a field's type is or may be (`User`, `Author | str`), else None."""
    for part in (hint, *get_args(hint)):
        if isinstance(part, type) and issubclass(part, Resource):
            return part
    return None


def is_list_of_resources(field: Field) -> bool:
    """Whether a field holds records that have a table of their own (the jobs of a build)."""
    return get_origin(field.type) is list and resource_in(field.type) is not None


_KINDS: dict[Any, Kind] = {str: "text", int: "integer", bool: "flag", Moment: "moment"}


@functools.cache
def columns_of(resource: type[Resource]) -> tuple[Column, ...]:
    """The columns of a resource's table that its own fields give, in order of declaration."""
    return tuple(column for field in fields_of(resource) for column in _columns(field))


def _columns(field: Field) -> Iterator[Column]:
    if field.flat is not None:
        yield from _flattened(field, field.flat)
    elif not field.sent:
        yield Column(field.name, (), field.kind, field.doc, field.derived)
    elif not is_list_of_resources(field):
        yield Column(field.name, (field.name,), field.kind, field.doc)


def _flattened(field: Field, chosen: flat) -> Iterator[Column]:
    nested = resource_in(field.type)
    assert nested is not None, f"{field.name}: flat() is for nested resources"
    inner = {part.name: part for part in fields_of(nested)}
    for key in chosen.keys:
        first = key == chosen.named
        name = field.name if first else f"{field.name}_{key}"
        doc = f"{field.doc}: {inner[key].doc}" if inner[key].doc else f"{field.doc}: its {key}"
        yield Column(name, (field.name, key), inner[key].kind, doc, field.derived if first else None)


class Filter(NamedTuple):
    """One query parameter of a list."""

    name: str
    kind: Literal["text", "flag", "moment", "map"]
    many: bool
    choices: tuple[str, ...]
    check: Check | None
    doc: str


class Parameter(NamedTuple):
    """One name in an operation's path."""

    name: str
    type: type
    check: Check | None


class Property(NamedTuple):
    """One property of a request's body."""

    name: str
    type: Any  # with None where a null may be sent
    required: bool
    doc: str
    check: Check | None


@dataclass(frozen=True)
class Endpoint:
    """One operation of the service, as declared."""

    name: str
    method: str
    path: str  # below /v2, with {names}
    returns: type[Resource] | None  # None: no body, or none that is documented
    scope: str | None
    lists: bool  # answers with a list
    paginated: bool  # in pages
    success: int
    doc: str
    parameters: tuple[Parameter, ...]  # of the path, in order
    filters: tuple[Filter, ...]
    properties: tuple[Property, ...]

    def __repr__(self) -> str:
        return f"<{self.name}: {self.method} {self.path}>"

    @property
    def filter_names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.filters)

    @property
    def property_names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.properties)


def endpoint(
    route: str,
    *,
    returns: type[Resource] | None,
    scope: str | None,
    lists: bool = False,
    paginated: bool = False,
    success: int = 200,
) -> Callable[[Callable[..., None]], Endpoint]:
    """Declare the operation `route` ("METHOD /path/{parameter}"); its arguments and doc are the function's."""
    method, path = route.split(" ", 1)

    def declare(function: Callable[..., None]) -> Endpoint:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
        positional = tuple(_parameter(p.name, hints[p.name]) for p in parameters if p.kind is p.POSITIONAL_ONLY)
        named = [get_args(hints[p.name])[0] for p in parameters if p.kind is p.VAR_KEYWORD]
        filters = filters_of(named[0]) if named and method == "GET" else ()
        properties = properties_of(named[0]) if named and method != "GET" else ()
        return Endpoint(
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
        )

    return declare


def _parameter(name: str, hint: Any) -> Parameter:
    return Parameter(name, get_args(hint)[0] if get_origin(hint) is Annotated else hint, check_in(hint))


def check_in(hint: Any) -> Check | None:
    """The form that an annotation asks for."""
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((note for note in notes if isinstance(note, Check)), None)


@functools.cache
def properties_of(declared: type) -> tuple[Property, ...]:
    """The properties of a body, or of an object in it, that a TypedDict declares."""
    return tuple(_property(name, hint) for name, hint in get_type_hints(declared, include_extras=True).items())


def _property(name: str, hint: Any) -> Property:
    required = get_origin(hint) is Required
    bare, *notes = get_args(get_args(hint)[0] if required else hint)
    doc = next(note for note in notes if isinstance(note, str))
    return Property(name, bare, required, doc, next((note for note in notes if isinstance(note, Check)), None))


@functools.cache
def filters_of(declared: type) -> tuple[Filter, ...]:
    """The query parameters that a TypedDict declares."""
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


_FILTER_KINDS: dict[Any, tuple[Literal["text", "flag", "moment", "map"], bool]] = {
    str: ("text", False),
    Texts: ("text", True),
    bool: ("flag", False),
    When: ("moment", False),
    Mapping[str, str]: ("map", False),
}
