"""YAML as plain data: no tags, no key given twice, nothing that contains itself; what is wrong is told with its line."""

from __future__ import annotations

from typing import Any

import yaml

from raystitch.errors import InputError
from raystitch.remote import read_url


def read_file(path: str) -> str:
    """The text of a file at a path or URL.

    Raises:
        InputError: it cannot be read, for whatever reason its file system has.
    """
    try:
        return read_url(path).decode("utf-8")
    except Exception as error:  # what a remote file system raises depends on its driver
        reason = str(error) or type(error).__name__
        raise InputError("config", path, f"cannot be read: {reason}") from error


def parse_yaml(text: str, where: str, value: object = None) -> Any:
    """The value that a YAML text stands for.

    Args:
        text: one YAML document.
        where: file or option it comes from, for errors.
        value: what to show in errors.

    Raises:
        InputError: it is not YAML, gives a key twice, or is nested too deeply or in itself.
    """
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(where, value, f"not valid YAML{place}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(where, value, f"not valid YAML: {error}") from error
    except RecursionError as error:
        raise InputError(where, value, "not valid YAML: it is nested too deeply") from error


class _StrictLoader(yaml.SafeLoader):
    """Also refuses what SafeLoader lets pass in silence: of two equal keys it would keep the last."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.deep_construct = True  # at once, so that a collection inside itself is noticed

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A mapping whose keys all differ."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], yaml.Mark] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            before = first.setdefault((key.tag, key.value), key.start_mark)
            if before is not key.start_mark:
                problem = f"the key {key.value!r} is given twice, first in line {before.line + 1}"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        return node
