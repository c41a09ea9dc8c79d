"""Where a node of a request tree was recorded."""

from __future__ import annotations

import msgspec


class Origin(msgspec.Struct, frozen=True):
    """For backends that know programs by name, or speak to chat APIs; no worker is told of it."""

    program: str
    branch: tuple[int, ...]
    """Which branch of each fork on the way to it, from the outermost; () in none."""
    name: str | None
    """The variable that its text becomes."""
    num_api_spec_tokens: int | None = None
    """How many tokens its program lets a chat API write past what one call was made for."""
