"""Check docstrings of public functions, classes and methods by numpydoc: `python -m tests.numpydoc_lint`.

`numpydoc lint` reads files and does not know which names are public; most functions have a summary only.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import buildframe
import buildframe.errors

MODULES = [f"buildframe.{module.name}" for module in pkgutil.iter_modules(buildframe.__path__)]
CHECKED = [
    "buildframe",
    "buildframe.store.reader",
    *(name for name in MODULES if hasattr(importlib.import_module(name), "__all__")),
]

CHECKS = {
    "GL03",  # blank lines in a row
    "GL05",  # tabs
    "GL06",  # an unknown section
    "GL07",  # sections in the wrong order
    "GL08",  # no docstring
    "SS01",  # no summary
    "SS02",  # the summary begins with a lower-case letter
    "SS03",  # the summary does not end with a period
    "SS04",  # the summary has leading spaces
    "SS05",  # the summary is not in the imperative
    "SS06",  # the summary takes more than a line
    "PR01",  # parameters are missing
    "PR02",  # unknown parameters
    "PR03",  # parameters in the wrong order
    "PR04",  # a parameter without a type
    "PR05",  # a type ends with a period
    "PR06",  # a type has a standard name
    "PR07",  # a parameter without a description
    "PR08",  # a description begins with a lower-case letter
    "PR09",  # a description does not end with a period
    "PR10",  # no space before the colon
    "RT01",  # no Returns
    "RT03",  # a result without a description
    "SA04",  # See Also without a description
}
EXCEPTIONS = {name for name, public in vars(buildframe.errors).items() if isinstance(public, type)}
OF_EXCEPTIONS = CHECKS - {"PR01"}
"""The library raises them; users never pass their arguments."""


def names_of(package: str) -> Iterator[str]:
    """Public functions and classes of a package, and the public methods that these classes define."""
    module = importlib.import_module(package)
    for name in module.__all__:
        public = getattr(module, name)
        if not (inspect.isclass(public) or inspect.isroutine(public)):  # a module, a constant or a type alias
            continue
        yield f"{package}.{name}"
        if inspect.isclass(public) and public.__module__.startswith("buildframe"):
            yield from (f"{package}.{name}.{method}" for method in sorted(vars(public)) if is_method(public, method))


def is_method(owner: type, name: str) -> bool:
    """Whether it is a public method of its own: one that overrides is documented in the base."""
    kinds = (property, functools.cached_property, staticmethod, classmethod, FunctionType)
    is_new = not any(hasattr(base, name) for base in owner.__mro__[1:])
    return is_new and not name.startswith("_") and isinstance(inspect.getattr_static(owner, name), kinds)


def violations() -> Iterator[str]:
    """Yield a line for each violation."""
    for name in (name for package in CHECKED for name in names_of(package)):
        *_, member = name.split(".")
        checks = OF_EXCEPTIONS if member in EXCEPTIONS or has_all_attributes(name) else CHECKS
        yield from (f"{name}: {code} {words}" for code, words in validate(name)["errors"] if code in checks)


def has_all_attributes(name: str) -> bool:
    """Whether a class is a record or an enumeration: users only read its attributes, which are all documented."""
    package, _, member = name.rpartition(".")
    kind: Any = getattr(importlib.import_module(package), member) if package in CHECKED else None
    if not inspect.isclass(kind) or issubclass(kind, enum.Enum):
        return inspect.isclass(kind)
    documented = NumpyDocString(inspect.getdoc(kind) or "")["Attributes"]
    names = {one for entry in documented for one in entry.name.split(", ")}
    return bool(names) and {*inspect.signature(kind).parameters} <= names


if __name__ == "__main__":
    found = list(violations())
    print(*found, sep="\n", end="\n" * bool(found))
    sys.exit(bool(found))
