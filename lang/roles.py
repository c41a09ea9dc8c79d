"""Chat turns as expressions: `s += user("Hello")`, `s += assistant(gen("reply"))`.

What a turn looks like is the model's chat template to say; a program only marks where turns begin and end. States have
the same words as methods and as context managers (`state.py`).
"""

from __future__ import annotations

from radixrt.lang.expressions import Expression, RoleEdge, Sequenced, as_expression


def turn(role: str, content: Expression | str | None = None) -> Sequenced:
    """A whole turn of any role that the chat template knows."""
    inside = () if content is None else as_expression(content).pieces()
    return Sequenced((RoleEdge(role, "begin"), *inside, RoleEdge(role, "end")))


def system(content: Expression | str | None = None) -> Sequenced:
    """A system turn."""
    return turn("system", content)


def user(content: Expression | str | None = None) -> Sequenced:
    """A user turn."""
    return turn("user", content)


def assistant(content: Expression | str | None = None) -> Sequenced:
    """An assistant turn."""
    return turn("assistant", content)


def system_begin() -> RoleEdge:
    """The beginning of a system turn."""
    return RoleEdge("system", "begin")


def system_end() -> RoleEdge:
    """The end of a system turn."""
    return RoleEdge("system", "end")


def user_begin() -> RoleEdge:
    """The beginning of a user turn."""
    return RoleEdge("user", "begin")


def user_end() -> RoleEdge:
    """The end of a user turn."""
    return RoleEdge("user", "end")


def assistant_begin() -> RoleEdge:
    """The beginning of an assistant turn."""
    return RoleEdge("assistant", "begin")


def assistant_end() -> RoleEdge:
    """The end of an assistant turn."""
    return RoleEdge("assistant", "end")
