"""The language: programs that mix text with generation, fork and join, and run on any backend.

A `@function` records what its body appends to its state (`recording`, `tree`); recorded nodes are sent to the backend
in batches (`dispatch`), and what comes back fills their results (`results`), for which readers wait (`state`,
`streaming`).
"""

from radixrt.lang.async_state import AsyncForkGroup, AsyncProgramState
from radixrt.lang.backends import flush_cache, get_server_info, set_default_backend
from radixrt.lang.choices import (
    ChoicesDecision,
    ChoicesSamplingMethod,
    greedy_token_selection,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from radixrt.lang.expressions import gen, raw, select
from radixrt.lang.function import AnyProgram, AsyncProgram, Program, function
from radixrt.lang.pending import Pending
from radixrt.lang.reasoning import separate_reasoning
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
from radixrt.lang.show import render_plain, render_rich, render_svg
from radixrt.lang.simple_gens import gen_int, gen_string
from radixrt.lang.state import ForkGroup, ProgramState
from radixrt.lang.tracing import Trace

__all__ = [
    "AnyProgram",
    "AsyncForkGroup",
    "AsyncProgram",
    "AsyncProgramState",
    "ChoicesDecision",
    "ChoicesSamplingMethod",
    "ForkGroup",
    "Pending",
    "Program",
    "ProgramState",
    "Trace",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_server_info",
    "greedy_token_selection",
    "raw",
    "render_plain",
    "render_rich",
    "render_svg",
    "select",
    "separate_reasoning",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
]
