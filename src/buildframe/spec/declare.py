"""Declare resources, and derive fields and columns from the declarations.

A resource is a class. Its annotations declare each field: its type, its meaning and whether it is personal, secret or
plain. `KEY` marks the fields that identify a row. A nested object needs no mark if `flat` selects fields of it.

    @table("builds")
    class Build(Resource):
        id: Annotated[str, "UUID", PLAIN, KEY]
        env: Annotated[dict[str, Any] | None, "environment variables", SECRET] = None
        creator: Annotated[User | None, "user who started it", flat("name", "id")] = None

Tables register themselves. Decoders, columns, stored columns and reference pages are derived from these declarations.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from buildframe.spec.times import Moment

R = TypeVar("R", bound="Resource")
T = TypeVar("T")

Kind = Literal["text", "integer", "number", "flag", "timestamp", "json"]
"""Type of the values of a column.

`number` may have a fraction. `json` is a map or a list as JSON text.
"""


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


class flat:  # noqa: N801  reads as a word of the declaration language
    """Keys of a nested object that become columns.

    The first key becomes the column `field`, every other key `field_key`. If the first argument is None, there is no
    column `field`.
    """

    def __init__(self, named: str | None, *others: str) -> None:
        self.named = named
        self.keys = others if named is None else (named, *others)


class derived:  # noqa: N801
    """A column that is computed as `of(*needs)` from other columns if the service sends no value."""

    def __init__(self, of: Callable[..., Any], *needs: str) -> None:
        self.of, self.needs = of, needs


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
        `text`, `integer`, `number`, `flag`, `timestamp` or `json`.
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


UNKNOWN = "unknown"  # attribute of a record that contains undeclared fields


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
        Fields in order of declaration.

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
    if get_origin(bare) in (Union, types.UnionType):
        bare = Union[tuple(part for part in get_args(bare) if part is not types.NoneType)]  # noqa: UP007  at runtime
    doc, privacy = note_in(hint, str) or "", note_in(hint, Privacy)
    traits = frozenset(note for note in notes if isinstance(note, Trait))
    return Field(name, bare, doc, note_in(hint, flat), note_in(hint, derived), privacy, traits)


def note_in(hint: Any, kind: type[T]) -> T | None:
    """Return the first note of a type in `Annotated`."""
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((note for note in notes if isinstance(note, kind)), None)


def nested_resource(hint: Any) -> type[Resource] | None:
    """Return the resource in a type hint (`User`, `Author | str`); None if there is none."""
    for part in (hint, *get_args(hint)):
        if isinstance(part, type) and issubclass(part, Resource):
            return part
    return None


def is_list_of_resources(field: Field) -> bool:
    """Whether a field is a list of records with a separate table (the jobs of a build)."""
    return get_origin(field.type) is list and nested_resource(field.type) is not None


_KINDS: dict[Any, Kind] = {str: "text", int: "integer", float: "number", bool: "flag", Moment: "timestamp"}


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
    if field.flat is None and not is_list_of_resources(field):
        path, how = ((field.name,), None) if field.sent else ((), field.derived)
        yield Column(field.name, path, field.kind, field.doc, how, field.privacy, field.traits)
    elif field.flat is not None:
        nested = nested_resource(field.type)
        assert nested is not None, f"{field.name}: flat() is for nested resources"
        inner = {part.name: part for part in fields_of(nested)}
        for key in field.flat.keys:
            is_named, part = key == field.flat.named, inner[key]
            name = field.name if is_named else f"{field.name}_{key}"
            doc = f"{field.doc}: {part.doc or f'its {key}'}"
            yield Column(name, (field.name, key), part.kind, doc, field.derived if is_named else None, part.privacy)


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
        Names in order of declaration.

    Examples
    --------
    >>> from buildframe.spec import Build, Emoji, key_of
    >>> key_of(Build), key_of(Emoji)
    (('id',), ('name', 'url'))
    """
    return tuple(field.name for field in fields_of(resource) if KEY in field.traits)


RESOURCES: dict[str, type[Resource]] = {}
"""Resource of each table, by the name of the table."""


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
        resource.__doc__ = f"{inspect.cleandoc(resource.__doc__ or '')}{ATTRIBUTES}{''.join(_attributes(resource))}"
        return resource

    return register


ATTRIBUTES = "\n\nAttributes\n----------\n"
"""Heading of the section that `table` adds to the docstring of a resource."""


def _attributes(resource: type[Resource]) -> Iterator[str]:
    """Yield the entry of each field in the docstring."""
    for name, field in zip(resource.__struct_fields__, fields_of(resource), strict=False):  # `unknown` is the last
        yield f"{name} : {describe_class(field.type)}, optional\n    {field.doc[0].upper()}{field.doc[1:]}.\n"
    yield "unknown : dict\n    Fields that the service sent but the class does not declare.\n"


def describe_class(hint: Any) -> str:
    """Return a type and its alternatives, except None, as numpydoc writes them."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_class(each) for each in arguments if each is not types.NoneType))
    if origin is Annotated:
        return describe_class(arguments[0])
    if origin is Literal:
        return f"{{{', '.join(map(repr, arguments))}}}"
    if origin in (list, Sequence):
        return f"{'list' if origin is list else 'sequence'} of {describe_class(arguments[0])}"
    if origin is Mapping or is_typeddict(hint):
        return "mapping"
    return str(getattr(origin or hint, "__name__", hint))
