"""A worker process without a model: the real process and socket around a `Programs` that follows a script.

A choice echoes its node's ids, one a step, each raised by the number of the choice; the byte of the same number is the
text. The configuration's `model` says how loading goes, and the first id of a prompt may be one of the orders below,
ids that no byte has and every vocabulary of the tests knows.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from radixrt.cache.invariants import BrokenInvariant
from radixrt.config import WorkerConfig
from radixrt.errors import Aborted, InternalError, InvalidRequest, ModelNotFound
from radixrt.protocol.events import Event, Failed, Finished, Tokens, Usage
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.messages import PROTOCOL_VERSION, Abort, CloseProgram, Stats, SubmitTree, Welcome
from radixrt.worker.process import main

SPOIL = 507
"""From now on the cache contradicts itself."""
BREAK = 508
"""The choice fails after a few tokens, as if the step that computed it had."""
FAULT = 509
"""The next step raises."""
KILL = 510
"""The next step kills the process."""
REFUSE = 511
"""The node fails."""

STEP_SECONDS = 0.001
_TOKENS_BEFORE_BREAK = 4


@dataclass
class _Choice:
    program: int
    node: int
    choice: int
    ids: np.ndarray
    max_tokens: int
    done: int = 0


class ScriptedPrograms:
    """What `radixrt.worker.programs.Programs` is to the process."""

    def __init__(self) -> None:
        self.welcome = Welcome(PROTOCOL_VERSION, "scripted", "cpu", "none", "float32", 16, 8, 4096, 2**31, 256)
        self._live: dict[bytes, list[_Choice]] = {}
        self._events: dict[bytes, list[Event]] = {}
        self._steps = 0
        self._tokens = 0
        self._aborts = 0
        self._spoilt = False

    @property
    def busy(self) -> bool:
        return any(self._live.values()) or bool(self._events)

    stalled = False

    def on_grammar(self, wake: Callable[[], None]) -> None:
        """Nothing is constrained here."""

    def submit(self, client: bytes, message: SubmitTree) -> None:
        for node in message.nodes:
            if node.sampling is None:
                continue
            ids = np.concatenate([unpack_ids(segment.ids) for segment in node.segments])
            for choice in range(node.sampling.n):
                self._spoilt |= bool(ids[0] == SPOIL)
                if ids[0] == REFUSE:
                    error = InvalidRequest("refused by order", field="prompt")
                    self._fail(client, message.program, node.id, choice, error)
                else:
                    live = _Choice(message.program, node.id, choice, ids, node.sampling.max_tokens)
                    self._live.setdefault(client, []).append(live)

    def abort(self, client: bytes, message: Abort) -> None:
        for live in list(self._live.get(client, [])):
            if live.program == message.program and message.node in (None, live.node):
                self._live[client].remove(live)
                self._aborts += 1
                self._fail(client, live.program, live.node, live.choice, Aborted("the request was aborted"))

    def close(self, client: bytes, message: CloseProgram) -> None:
        kept = [live for live in self._live.get(client, []) if live.program != message.program]
        self._aborts += len(self._live.get(client, [])) - len(kept)
        self._live[client] = kept

    def drop_client(self, client: bytes) -> None:
        self._live.pop(client, None)
        self._events.pop(client, None)

    def flush_cache(self) -> None:
        self._tokens = 0

    def check_invariants(self) -> None:
        if self._spoilt:
            raise BrokenInvariant("spoilt by order")

    def stats(self) -> Stats:
        nothing = dict.fromkeys(Stats.__struct_fields__, 0)
        told = {
            "running": sum(map(len, self._live.values())),
            "steps": self._steps,
            "tokens_computed": self._tokens,
            "aborts": {"decoding": self._aborts},
        }
        return Stats(**(nothing | told))

    def step(self) -> dict[bytes, list[Event]]:
        self._steps += 1
        if any(self._live.values()):
            time.sleep(STEP_SECONDS)
        for client, choices in self._live.items():
            for live in list(choices):
                self._advance(client, live)
        events, self._events = self._events, {}
        return events

    def _advance(self, client: bytes, live: _Choice) -> None:
        if live.ids[0] == FAULT:
            raise RuntimeError("the scripted fault")
        if live.ids[0] == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if live.ids[0] == BREAK and live.done == _TOKENS_BEFORE_BREAK:
            self._live[client].remove(live)
            self._fail(client, live.program, live.node, live.choice, InternalError("/secret/path.py broke"))
            return
        token = int(live.ids[live.done % len(live.ids)]) + live.choice
        live.done += 1
        token = ord("?") if token > 255 else token
        self._tokens += 1
        place = (live.program, live.node, live.choice)
        events = self._events.setdefault(client, [])
        events.append(Tokens(*place, pack_ids([token]), bytes([token])))
        if live.done == live.max_tokens:
            self._live[client].remove(live)
            events.append(Finished(*place, "length", Usage(len(live.ids), 0, live.done), kept=live.done))

    def _fail(self, client: bytes, program: int, node: int, choice: int, error: Exception) -> None:
        failed = Failed(program, node, choice, type(error).__name__, str(error), getattr(error, "field", None))
        self._events.setdefault(client, []).append(failed)


def build(config: WorkerConfig, report: Callable[[str], None]) -> ScriptedPrograms:
    match config.model:
        case "absent":
            raise ModelNotFound("there is no model of the name 'absent'", field="model")
        case "broken":
            raise ZeroDivisionError("a fault while loading")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "slow":
            time.sleep(60)
    report(f"scripted model {config.model}")
    return ScriptedPrograms()


if __name__ == "__main__":
    main(build)
