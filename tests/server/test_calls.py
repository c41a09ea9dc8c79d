"""What a request's prompts cost the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from radixrt.protocol.segments import Role, Segment, Text
from radixrt.server.calls import encode
from radixrt.text.encoder import Prompt
from radixrt.text.frontend import Frontend


class Noting(Frontend):
    """Notes in which thread it tokenises."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None

    def encode_to_generate(self, segments: Sequence[Segment]) -> Prompt:
        self.thread = threading.current_thread()
        return Prompt(np.zeros(1, np.int32))


TURN = (Role("user", "begin"), Text("Why?"), Role("user", "end"))


@pytest.mark.parametrize(
    ("prompts", "beside"),
    [([TURN], False), ([[Text("Why? " * 10_000)]], True), ([TURN * 1000], True), ([[Text("Why? " * 400)]] * 20, True)],
    ids=["short", "long", "many turns", "many prompts"],
)
def test_what_takes_long_to_tokenise_does_not_hold_up_the_event_loop(
    prompts: list[Sequence[Segment]], beside: bool
) -> None:
    frontend = Noting()
    assert len(asyncio.run(encode(frontend, *prompts))) == len(prompts)
    assert (frontend.thread is not threading.current_thread()) is beside
