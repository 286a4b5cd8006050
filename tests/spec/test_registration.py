"""What declarations state: privacy and keys of fields; and how tables, operations and handlers register themselves."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated, Any

import buildframe.sandbox_server
from buildframe import spec
from buildframe.sandbox_server.handlers.registry import HandlerGroup
from buildframe.sandbox_server.handlers.routes import ROUTES
from buildframe.spec import Endpoint, Resource
from buildframe.spec.declare import PERSONAL, PLAIN, fields_of, flat, is_list_of_resources
from buildframe.spec.operations import endpoints_of
from buildframe.store.retained_columns import PERSONAL as PERSONAL_COLUMNS
from buildframe.store.retained_columns import SECRET as SECRET_COLUMNS


def resources(base: type[Resource] = Resource) -> list[type[Resource]]:
    """Every declared resource, of the client and of the sandbox."""
    found = [one for child in base.__subclasses__() for one in (child, *resources(child))]
    return [one for one in found if one.__module__.startswith("buildframe.")]


def without_privacy(resource: type[Resource]) -> list[str]:
    """Fields that say nothing. Nested rows and flattened objects say it in their own fields."""
    stated_inside = (field for field in fields_of(resource) if field.flat is None and not is_list_of_resources(field))
    return [field.name for field in stated_inside if field.privacy is None]


def test_every_field_and_column_says_whether_it_is_personal_or_secret() -> None:
    silent = [f"{resource.__name__}.{field}" for resource in resources() for field in without_privacy(resource)]
    assert silent == []
    columns = [(table, column) for table, columns in spec.TABLES.items() for column in columns]
    assert [(table, column.name) for table, column in columns if column.privacy is None] == []


class Contact(Resource):
    email: Annotated[str | None, "e-mail address"] = None
    phone: Annotated[str | None, "phone number", PERSONAL] = None


class Visit(Resource):
    id: Annotated[str | None, "UUID", PLAIN] = None
    host: Annotated[Contact | None, "who is visited", flat("phone", "email")] = None


def test_a_field_that_says_nothing_is_found() -> None:
    assert without_privacy(Contact) == ["email"]
    assert {column.name: column.privacy for column in spec.columns_of(Visit)} == {
        "id": PLAIN,
        "host": PERSONAL,
        "host_email": None,
    }


PEOPLE = {
    "builds": {"creator", "creator_email", "author", "author_email"},
    "jobs": {"unblocked_by", "retried_by"},
    "pipelines": {"created_by", "created_by_email"},
    "members": {"name", "email"},
}
SECRETS = {"builds": {"env"}, "pipelines": {"env", "configuration", "steps", "provider_webhook_url"}}


def test_stores_leave_out_what_is_personal_or_secret() -> None:
    assert {table: columns for table, columns in PERSONAL_COLUMNS.items() if columns} == PEOPLE
    assert {table: columns for table, columns in SECRET_COLUMNS.items() if columns} == SECRETS
    assert PERSONAL_COLUMNS.keys() == SECRET_COLUMNS.keys() == spec.TABLES.keys()


KEYS = {
    "team_pipelines": ("pipeline_id",),
    "failed_executions": ("execution_id",),
    "emojis": ("name", "url"),
}


def test_every_table_has_a_key() -> None:
    keys = {table: spec.key_of(resource) for table, resource in spec.RESOURCES.items()}
    assert keys == dict.fromkeys(spec.RESOURCES, ("id",)) | KEYS


def declared_in(package: Any) -> list[Endpoint]:
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return [value for module in modules for value in vars(module).values() if isinstance(value, Endpoint)]


def test_operations_register_themselves() -> None:
    assert {one.name for one in spec.ENDPOINTS} == {one.name for one in declared_in(spec)}
    assert set(endpoints_of("buildframe.spec")) == set(spec.ENDPOINTS)
    assert set(spec.ENDPOINTS) < set(ROUTES)


def test_every_route_has_a_handler() -> None:
    with buildframe.sandbox_server.Sandbox(builds=1, days=1):
        marked = [
            name
            for group in HandlerGroup.__subclasses__()
            for method in vars(group).values()
            for name in getattr(method, "handled_operations", ())
        ]
    assert sorted(marked) == sorted(route.name for route in ROUTES)
