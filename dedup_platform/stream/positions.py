"""YAML that remembers the line of every key, so that an error can point at it."""

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

__all__ = ["Document", "YamlProblem", "parse_yaml"]

_MOST_VALUES = 100_000
_OPEN = 0
_LARGEST_NUMBER = 2**63 - 1

YamlProblem = tuple[int, str]  # the line, from 1, and what is wrong there


class Document:
    """One parsed document: its `value`, and where each path of keys stands in the text."""

    def __init__(self, root: yaml.Node | None, value: Any) -> None:
        self.value = value
        self._root = root

    def locate(self, path: Sequence[str | int]) -> tuple[int, list[str | int]]:
        """The line (from 1) of the deepest step of `path` in the text, and the steps found; others are left out."""
        node, line = self._root, 1
        steps: list[str | int] = []
        for step in path:
            child = _child(node, step)
            if child is not None:
                line, node = child
                steps.append(step)
        return line, steps


class _Loader(yaml.SafeLoader):
    """Refuses whole numbers that are larger than any of ours, which could not even be printed."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        value: int = super().construct_yaml_int(node)
        if abs(value) > _LARGEST_NUMBER:
            raise yaml.MarkedYAMLError(None, None, "a number is larger than 64 bits", node.start_mark)
        return value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def parse_yaml(text: str) -> tuple[Document, list[YamlProblem]]:
    """`text` as one YAML document, with what makes it unusable: bad syntax, keys given twice."""
    nothing = Document(None, None)
    loader = _Loader("")
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return nothing, []
        _check_size(root)
        problems = list(_repeated_keys(root))
        return Document(root, loader.construct_document(root)), problems
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return nothing, [(mark.line + 1 if mark else 1, f"is not YAML: {error.problem or error.context}")]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return nothing, [(1, f"is not YAML: {' '.join(str(error).split())}")]
    finally:
        loader.dispose()


def _check_size(root: yaml.Node) -> None:
    """YAMLError if aliases and merges, each with all that is in it, make too much of a text, or one holds itself."""
    sizes: dict[int, int] = {}
    waiting = [root]
    while waiting:
        node = waiting[-1]
        parts = _parts(node)
        if id(node) not in sizes:
            # Its parts come first. Who meets it meanwhile is one of them.
            sizes[id(node)] = _OPEN
            waiting += [part for part in parts if id(part) not in sizes]
            if any(sizes.get(id(part)) == _OPEN for part in parts):
                raise yaml.YAMLError("an alias stands for what it is itself in")
            continue
        waiting.pop()
        if sizes[id(node)] == _OPEN:
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in parts)
            if sizes[id(node)] > _MOST_VALUES:
                raise yaml.YAMLError(f"its aliases make more than {_MOST_VALUES:,} values of it")


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _child(node: yaml.Node | None, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    return None


def _repeated_keys(root: yaml.Node) -> Iterator[YamlProblem]:
    # An alias makes one node the child of several: each is looked at once.
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield from _repeated_in(node)
            waiting.extend(value for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)


def _repeated_in(mapping: yaml.MappingNode) -> Iterator[YamlProblem]:
    first: dict[str, yaml.Node] = {}
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode) and first.setdefault(key.value, key) is not key:
            there = first[key.value].start_mark.line + 1
            yield key.start_mark.line + 1, f"{key.value}: the key is given twice; the first is in line {there}"
