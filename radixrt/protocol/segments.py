"""The pieces of a prompt. A program's constants, roles and known ids are segments until the frontend makes them ids.

Join rule: adjacent `Text` segments merge before tokenisation, up to the last generated id, special token (hence any
role edge) or fork; across those nothing merges. A node of a request tree therefore tokenises its own segments alone.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Plain text: what looks like a special token in it stays text."""

    text: str


class Raw(msgspec.Struct, frozen=True, tag="raw"):
    """A rendered prompt: its special tokens are recognised."""

    text: str


class Ids(msgspec.Struct, frozen=True, tag="ids"):
    """Token ids, packed (see `protocol.ids`)."""

    ids: bytes


class Role(msgspec.Struct, frozen=True, tag="role"):
    """One edge of a chat turn: the chat template says which ids it becomes."""

    role: str
    edge: Literal["begin", "end"]


Segment: TypeAlias = Text | Raw | Ids | Role
