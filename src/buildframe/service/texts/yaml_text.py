"""YAML as plain lists, maps and texts: every scalar as it was written, nothing constructed, every size bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are not among our tools

_LONGEST = 64 * 1024
_MOST_VALUES = 20_000
_LARGEST = 10**6
TRUE, FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off", ""})
_NULL = "tag:yaml.org,2002:null"


class Unreadable(Exception):
    """YAML that cannot be read; the text says why and, where known, in which line."""


class Map(dict[str, Any]):
    """A map that knows the line where it stands, and reads its values as what they should be.

    Every method raises `Unreadable` where a value is something else; what is not given, or null, is empty.
    """

    line: int = 0

    def wrong(self, name: str, what: str) -> Unreadable:
        """That a value should be something else."""
        return Unreadable(f"{f'line {self.line}: ' if self.line else ''}`{name}` must be {what}.")

    def text(self, *names: str) -> str:
        """The first of these that is given."""
        for name in names:
            value = self.get(name)
            if value is not None and not isinstance(value, str):
                raise self.wrong(name, "a text")
            if value:
                return value
        return ""

    def texts(self, name: str) -> list[str]:
        """A list of texts, or one text as a list."""
        value = self.get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(each, str) for each in values):
            raise self.wrong(name, "a text or a list of texts")
        return values

    def map(self, name: str) -> Map:
        """A map."""
        value = self.get(name)
        if value is not None and not isinstance(value, Map):
            raise self.wrong(name, "a map")
        return Map() if value is None else value

    def flag(self, name: str) -> bool:
        """True or false, in one of YAML's ways to write them."""
        value = "" if self.get(name) is None else self[name]
        if not isinstance(value, str) or value.lower() not in TRUE | FALSE:
            raise self.wrong(name, "true or false")
        return value.lower() in TRUE

    def number(self, name: str, least: int = 0) -> int | None:
        """A whole number."""
        value = self.get(name)
        if value is None:
            return None
        number = int(value) if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,9}", value) else None
        if number is None or not least <= number <= _LARGEST:
            raise self.wrong(name, f"a whole number from {least} to {_LARGEST}")
        return number


def read(text: str) -> Any:
    """What a YAML text holds: lists, maps (`Map`), texts and None.

    Scalars stay as they were written, so that `1.10` and `on` are no number and no flag until someone asks for one.
    Raises `Unreadable`, also where aliases make a small text large.
    """
    if len(text) > _LONGEST:
        raise Unreadable(f"The YAML is longer than {_LONGEST} characters.")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _measure(node, {}, set())
        return _plain(loader, node)
    except yaml.MarkedYAMLError as why:
        line = f"line {why.problem_mark.line + 1}: " if why.problem_mark else ""
        raise Unreadable(f"{line}{why.problem or why.context}.") from None
    except (yaml.YAMLError, ValueError) as why:
        raise Unreadable(f"It is no YAML: {str(why).splitlines()[0]}.") from None
    except RecursionError:
        raise Unreadable("The YAML is nested too deeply.") from None


def _measure(node: yaml.Node, known: dict[int, int], above: set[int]) -> int:
    """How many values a node stands for, its aliases written out."""
    if id(node) in above:
        raise Unreadable(f"line {node.start_mark.line + 1}: a value holds itself.")
    if id(node) not in known:
        inner = _measure_all(node, known, above | {id(node)}) if isinstance(node, yaml.CollectionNode) else 0
        known[id(node)] = 1 + inner
    if known[id(node)] > _MOST_VALUES:
        raise Unreadable(f"The YAML holds more than {_MOST_VALUES} values.")
    return known[id(node)]


def _measure_all(node: yaml.CollectionNode, known: dict[int, int], above: set[int]) -> int:
    return sum(_measure(child, known, above) for child in _children(node))


def _children(node: yaml.CollectionNode) -> Iterator[yaml.Node]:
    for child in node.value:
        yield from child if isinstance(child, tuple) else (child,)


def _plain(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == _NULL else _whole(node)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, child) for child in node.value]
    assert isinstance(node, yaml.MappingNode)
    loader.flatten_mapping(node)
    found = Map((_name(key), _plain(loader, value)) for key, value in node.value)
    found.line = node.start_mark.line + 1
    return found


def _name(key: yaml.Node) -> str:
    if not isinstance(key, yaml.ScalarNode):
        raise Unreadable(f"line {key.start_mark.line + 1}: a name must be a text.")
    return _whole(key)


def _whole(node: yaml.ScalarNode) -> str:
    """The text of a scalar, in which an escape can have put half a character."""
    text = str(node.value)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise Unreadable(f"line {node.start_mark.line + 1}: a surrogate is no character.")
    return text
