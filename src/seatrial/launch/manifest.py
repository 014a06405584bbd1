"""Kubernetes objects as YAML that a person can review: comments beside what surprises, and text that stays text."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import LiteralScalarString

Object = dict[str, Any]
"""A Kubernetes object or a part of one."""

_PLAIN = re.compile(r"(?!(y|n|yes|no|on|off|true|false|null)$)[a-z/][-a-z0-9_./]*", re.IGNORECASE)
"""Text that is text in every version of YAML. Kubernetes reads 1.1, in which ``no``, ``1:30`` and ``0x1f`` are not."""


def literal(value: str) -> str:
    """For an environment variable, command or argument, where Kubernetes replaces ``$(NAME)`` and ``$$``."""
    return value.replace("$", "$$")


def block(value: str) -> str:
    """Many lines, as they stand; quoted where there is something in them that cannot stand in a block."""
    if not all(character.isprintable() or character == "\n" for character in value):
        return value
    lines: str = LiteralScalarString(value)
    return lines


def commented(fields: Mapping[str, Any], comments: Mapping[str, str]) -> Object:
    """``fields``, with a comment above some of them."""
    made = CommentedMap(fields)
    for key, comment in comments.items():
        made.yaml_set_comment_before_after_key(key, before=comment)
    return made


def commented_list(items: Iterable[tuple[Object, str]]) -> list[Object]:
    """A list in which every item has a comment above it, unless that is empty."""
    pairs = list(items)
    made = CommentedSeq(item for item, _ in pairs)
    for at, (_, comment) in enumerate(pairs):
        if comment:
            made.yaml_set_comment_before_after_key(at, before=comment)
    return made


class _Representer(RoundTripRepresenter):
    """Quotes all text that is not plainly text."""

    def represent_quoted(self, value: str) -> ScalarNode:
        style = None if _PLAIN.fullmatch(value) else '"'
        node: ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", value, style=style)
        return node

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Representer.add_representer(str, _Representer.represent_quoted)


def as_yaml(objects: Sequence[Object], *, heading: str) -> str:
    """All objects as one file that begins with ``heading``, a comment."""
    yaml = YAML()
    yaml.Representer = _Representer
    yaml.width = 1_000_000  # a folded line is no longer one that can be searched for
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.explicit_start = True
    whole = io.StringIO()
    for line in heading.splitlines():
        whole.write(f"# {line}".rstrip() + "\n")
    for each in objects:
        _indent_comments(each, 0)
        yaml.dump(each, whole)
    return whole.getvalue()


def _indent_comments(value: Any, column: int) -> None:
    """Give comments the column of what they stand above: ruamel asks for it, and only the whole object tells it."""
    items: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items, column = enumerate(value), column + 2
    else:
        return
    if isinstance(value, CommentedMap | CommentedSeq):
        for _, before, *_ in value.ca.items.values():
            for token in before or ():
                token.start_mark.column = column
    for _, inner in items:
        _indent_comments(inner, column if isinstance(inner, list) else column + 2)
