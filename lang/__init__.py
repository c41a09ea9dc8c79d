"""The language: programs that mix text with generation, fork and join, and run on any backend.

A `@function` records what its body appends to its state (`recording`, `tree`); recorded nodes are sent to the backend
in batches (`dispatch`), and what comes back fills their results (`results`), for which readers wait (`state`,
`streaming`).
"""

from radixrt.lang.backends import set_default_backend
from radixrt.lang.expressions import gen, raw
from radixrt.lang.function import Program, function
from radixrt.lang.group import ForkGroup
from radixrt.lang.roles import (
    assistant,
    assistant_begin,
    assistant_end,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
)
from radixrt.lang.show import render_plain, render_rich
from radixrt.lang.state import ProgramState

__all__ = [
    "ForkGroup",
    "Program",
    "ProgramState",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "function",
    "gen",
    "raw",
    "render_plain",
    "render_rich",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "user",
    "user_begin",
    "user_end",
]
