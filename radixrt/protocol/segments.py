"""The pieces of a prompt. A program's constants, roles and known ids are segments until the frontend makes them ids.

Join rule: adjacent `Text` segments merge before tokenisation, up to the last generated id, special token (hence any
role edge) or fork; across those nothing merges. A node of a request tree therefore tokenises its own segments alone.

Who sends a whole context at once, as the language does over HTTP, says with `Fork`, `Generated` and `Chosen` where its
nodes ended: then the context has the tokens that it had when each node was sent by itself.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from radixrt.protocol.options import Options


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


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """A fork point: nothing merges across it."""


class Generated(msgspec.Struct, frozen=True, tag="generated"):
    """What was generated here, as packed ids: the tokens that a generation leaves in the context."""

    ids: bytes
    healed: int = 0
    """More than 0: they stand in place of the last token before them, too, whose text has so many bytes."""


class Chosen(msgspec.Struct, frozen=True, tag="chosen"):
    """A select that was made here."""

    options: Options
    chosen: int
    """The option that the context continues with."""


Segment: TypeAlias = Text | Raw | Ids | Role | Fork | Generated | Chosen
