"""A pattern as users write it, as a pattern for Rust's `regex` syntax that means the same."""

from __future__ import annotations

from radixrt.errors import InvalidConstraint, InvalidPattern
from radixrt.text.regex.anchors import containing_text, whole_text
from radixrt.text.regex.dialects import ECMA, ECMA_AND_PYTHON, PYTHON
from radixrt.text.regex.nodes import NOTHING, Node
from radixrt.text.regex.parse import parse
from radixrt.text.regex.rust import rust_pattern


def full_match_pattern(pattern: str, *, without_nul: bool = False) -> str:
    """For the texts that `re.fullmatch` matches; `without_nul`, for those of them without the character NUL.

    >>> full_match_pattern("^a$|b")
    'a|b'

    Raises `InvalidPattern` for a pattern that is wrong, not supported or matched by no text.
    """
    try:
        tree = _checked(whole_text(parse(pattern, PYTHON)), pattern)
    except InvalidConstraint as error:
        raise InvalidPattern(f"regex: {error.message}", field="regex") from None
    return rust_pattern(tree, without_nul=without_nul)


def search_pattern(pattern: str, *, both_dialects: bool = True) -> str:
    """For the whole of a text in which the `pattern` of a schema is found.

    By ECMA 262; of what it and Python's `re` read differently, with `both_dialects`, only what both accept.

    >>> search_pattern("^a|b$")
    'a(?s:.)*|(?s:.)*b'

    Raises `InvalidConstraint` for a pattern that is wrong, not supported or matched by no text.
    """
    tree = parse(pattern, ECMA_AND_PYTHON if both_dialects else ECMA)
    return rust_pattern(_checked(containing_text(tree), pattern))


def _checked(node: Node, pattern: str) -> Node:
    if node == NOTHING:
        raise InvalidConstraint(f"no text matches the pattern {pattern!r}")
    return node
