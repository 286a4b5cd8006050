"""Parse YAML to lists, maps and text: scalars stay text, nothing is constructed, sizes are limited."""

from __future__ import annotations

import re
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are not among our tools

_MAX_LENGTH = 64 * 1024
_MAX_VALUES = 20_000
_MAX_NUMBER = 10**6
TRUE, FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off", ""})
_NULL = "tag:yaml.org,2002:null"


class InvalidYaml(Exception):
    """Invalid YAML; the message gives the reason and the line, if known."""


class YamlMap(dict[str, Any]):
    """A map with its line in the source and typed access to values.

    Missing values and null are empty. Every method raises `InvalidYaml` for a value of another type.
    """

    line: int = 0

    def wrong(self, name: str, what: str) -> InvalidYaml:
        """Return the error of a value of the wrong type."""
        return InvalidYaml(f"{f'line {self.line}: ' if self.line else ''}`{name}` must be {what}.")

    def text(self, *names: str) -> str:
        """Return the first of several texts that is not empty."""
        for name in names:
            value = self.get(name)
            if value is not None and not isinstance(value, str):
                raise self.wrong(name, "a string")
            if value:
                return value
        return ""

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; a single text is a list of one."""
        value = self.get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(each, str) for each in values):
            raise self.wrong(name, "a string or a list of strings")
        return values

    def map(self, name: str) -> YamlMap:
        """A map."""
        value = self.get(name)
        if value is not None and not isinstance(value, YamlMap):
            raise self.wrong(name, "a map")
        return YamlMap() if value is None else value

    def flag(self, name: str) -> bool:
        """Return a flag in any of the spellings of YAML."""
        value = "" if self.get(name) is None else self[name]
        if not isinstance(value, str) or value.lower() not in TRUE | FALSE:
            raise self.wrong(name, "true or false")
        return value.lower() in TRUE

    def number(self, name: str, least: int = 0) -> int | None:
        """Return a whole number."""
        value = self.get(name)
        if value is None:
            return None
        number = int(value) if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,9}", value) else None
        if number is None or not least <= number <= _MAX_NUMBER:
            raise self.wrong(name, f"a whole number from {least} to {_MAX_NUMBER}")
        return number


def parse_yaml(text: str) -> Any:
    """Parse a YAML text to lists, maps (`YamlMap`), texts and None.

    Scalars stay text until a typed accessor reads them, so that `1.10` and `on` are neither number nor flag. Raises
    `InvalidYaml`, also if aliases expand a small text to a large value.
    """
    if len(text) > _MAX_LENGTH:
        raise InvalidYaml(f"The YAML is longer than {_MAX_LENGTH} characters.")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _measure(node, {}, set())
        return _plain(loader, node)
    except yaml.MarkedYAMLError as why:
        line = f"line {why.problem_mark.line + 1}: " if why.problem_mark else ""
        raise InvalidYaml(f"{line}{why.problem or why.context}.") from None
    except (yaml.YAMLError, ValueError) as why:
        raise InvalidYaml(f"The text is not valid YAML: {str(why).splitlines()[0]}.") from None
    except RecursionError:
        raise InvalidYaml("The YAML is nested too deeply.") from None


def _measure(node: yaml.Node, sizes: dict[int, int], above: set[int]) -> int:
    """Return the number of values of a node, with aliases expanded."""
    if id(node) in above:
        raise InvalidYaml(f"line {node.start_mark.line + 1}: a value contains itself.")
    if id(node) not in sizes:
        inside = above | {id(node)}
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        pairs = [child if isinstance(child, tuple) else (child,) for child in children]
        sizes[id(node)] = 1 + sum(_measure(child, sizes, inside) for pair in pairs for child in pair)
    if sizes[id(node)] > _MAX_VALUES:
        raise InvalidYaml(f"The YAML holds more than {_MAX_VALUES} values.")
    return sizes[id(node)]


def _plain(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == _NULL else _text_of(node)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, child) for child in node.value]
    assert isinstance(node, yaml.MappingNode)
    loader.flatten_mapping(node)
    result = YamlMap((_text_of(key), _plain(loader, value)) for key, value in node.value)
    result.line = node.start_mark.line + 1
    return result


def _text_of(node: yaml.Node) -> str:
    """Return the text of a scalar, which names must be. Escapes can contain surrogates, which are refused."""
    if not isinstance(node, yaml.ScalarNode):
        raise InvalidYaml(f"line {node.start_mark.line + 1}: a name must be a string.")
    text = str(node.value)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidYaml(f"line {node.start_mark.line + 1}: a surrogate is not a character.")
    return text
