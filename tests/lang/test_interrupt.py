from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from radixrt.lang import ProgramState, function, gen
from tests.lang.scripted import Reply, Scripted


@pytest.mark.parametrize("batch", [False, True])
def test_ctrl_c_ends_a_wait_and_the_program(backend: Scripted, batch: bool) -> None:
    never = threading.Event()
    backend.script = lambda prompt, node: Reply(["x"], until=never)

    @function
    def program(s: ProgramState) -> None:
        s += gen("x")
        s["x"]

    def interrupt_when_waiting() -> None:
        while not backend.submitted:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    # A test run that was started in the background ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt_when_waiting).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        if batch:
            program.run_batch([{}, {}, {}], num_threads=2)
        else:
            program.run()
    signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 5
    backend.settle()
    assert backend.opened == backend.closed
