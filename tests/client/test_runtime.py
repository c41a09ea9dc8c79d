"""`Runtime` over a scripted worker: calls, streams, mistakes, and every way to end."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from radixrt.client import worker_process
from radixrt.client.runtime import Runtime
from radixrt.errors import Aborted, InvalidRequest, ModelNotFound, WorkerUnavailable
from radixrt.protocol.sampling import SamplingParams
from tests.support.processes import SCRIPTED_WORKER, children_of, is_running, wait_until
from tests.support.scripted_worker import KILL, REFUSE

ENDLESS = {"max_tokens": 10**6}


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "WORKER_COMMAND", SCRIPTED_WORKER)


@pytest.fixture
def runtime(tiny_llama: Path, socket_home: Path) -> Iterator[Runtime]:
    with Runtime(tiny_llama) as runtime:
        yield runtime


def idle(runtime: Runtime) -> bool:
    return runtime.stats().running == 0


def test_a_plain_call_gives_text_ids_and_counts(runtime: Runtime) -> None:
    result = runtime.generate([72, 105, 33], {"max_tokens": 5, "temperature": 0})
    assert result.text == "Hi!Hi"
    assert result.ids.tolist() == [72, 105, 33, 72, 105]
    assert result.finish_reason == "length"
    assert result.matched is None
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (3, 5)
    assert len(result.choices) == 1


def test_a_string_is_a_rendered_prompt(runtime: Runtime) -> None:
    # The scripted worker echoes the ids: three special tokens and no letters.
    special = runtime.generate("<|im_start|><|im_end|><|endoftext|>", {"max_tokens": 3})
    assert special.ids.tolist() == [1, 2, 0]


def test_a_list_of_prompts_gives_results_in_its_order(runtime: Runtime) -> None:
    results = runtime.generate([[65 + i] for i in range(20)], SamplingParams(max_tokens=2))
    assert [result.text for result in results] == [chr(65 + i) * 2 for i in range(20)]
    assert [result.ids.tolist() for result in runtime.generate(["<|im_end|>"] * 2, {"max_tokens": 1})] == [[2], [2]]


def test_one_bad_prompt_of_a_batch_ends_the_others(runtime: Runtime) -> None:
    with pytest.raises(InvalidRequest, match="refused by order"):
        runtime.generate([[65], [REFUSE], [66]], ENDLESS)
    wait_until(lambda: idle(runtime), 10)
    assert aborts(runtime) == 2


def test_n_choices_come_in_one_result(runtime: Runtime) -> None:
    result = runtime.generate([65, 66], {"max_tokens": 4, "n": 3})
    assert [choice.text for choice in result.choices] == ["ABAB", "BCBC", "CDCD"]
    assert result.text == "ABAB"


def test_a_stream_brings_the_text_in_pieces(runtime: Runtime) -> None:
    assert list(runtime.stream([65, 66], {"max_tokens": 4})) == ["A", "B", "A", "B"]


def test_a_character_is_never_split_between_pieces(runtime: Runtime) -> None:
    assert list(runtime.stream(list("é!".encode()), {"max_tokens": 6})) == ["é", "!", "é", "!"]


def test_closing_a_stream_early_aborts_it(runtime: Runtime) -> None:
    stream = runtime.stream([65], ENDLESS)
    assert next(stream) == "A"
    stream.close()
    wait_until(lambda: idle(runtime), 10)
    assert aborts(runtime) == 1


async def test_coroutines_of_any_loop_may_call(runtime: Runtime) -> None:
    results = await asyncio.gather(*(runtime.agenerate([65 + i], {"max_tokens": 2}) for i in range(10)))
    assert [result.text for result in results] == [chr(65 + i) * 2 for i in range(10)]
    assert [piece async for piece in runtime.astream([65, 66], {"max_tokens": 3})] == ["A", "B", "A"]


async def test_cancelling_a_call_aborts_it(runtime: Runtime) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runtime.agenerate([65], ENDLESS), 0.1)
    await asyncio.to_thread(wait_until, lambda: idle(runtime), 10)
    assert aborts(runtime) == 1


async def test_leaving_an_asynchronous_stream_aborts_it(runtime: Runtime) -> None:
    stream = runtime.astream([65], ENDLESS)
    assert await anext(stream) == "A"
    await stream.aclose()
    await asyncio.to_thread(wait_until, lambda: idle(runtime), 10)
    assert aborts(runtime) == 1


def aborts(runtime: Runtime) -> int:
    return sum(runtime.stats().aborts.values())


@pytest.mark.parametrize("way", ["generate", "stream"])
def test_ctrl_c_aborts_the_call_and_leaves_the_runtime(runtime: Runtime, way: str) -> None:
    def interrupt() -> None:
        wait_until(lambda: not idle(runtime), 10)
        # As a terminal does: the worker gets it too.
        for pid in (runtime._worker.pid, os.getpid()):
            os.kill(pid, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        runtime.generate([65], ENDLESS) if way == "generate" else list(runtime.stream([65], ENDLESS))
    interrupter.join()
    wait_until(lambda: idle(runtime), 10)
    assert runtime.generate([65], {"max_tokens": 1}).text == "A"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"stop": "one string"}, "stop"),
        ({"tempreature": 1}, None),
        ({"stop": ["half a pair: \ud800"]}, "stop[0]"),
        ({"stop_regex": ["a", "\ud800"]}, "stop_regex[1]"),
        ({"json_schema": {"const": "\ud800"}}, "json_schema"),
        ({"choices": ["a", "\ud800"]}, "choices"),
        ({"regex": "\ud800"}, "regex"),
        ("temperature=0", "sampling_params"),
        ([{"temperature": 0}], "sampling_params"),
        (SamplingParams(stop="one string"), "stop"),
        (SamplingParams(top_p=0.0), "top_p"),
    ],
)
def test_a_mistake_in_the_parameters_is_raised_where_it_is_written(
    runtime: Runtime, params: object, field: str | None
) -> None:
    steps = runtime.stats().steps
    for call in (runtime.generate, runtime.stream, runtime.astream):
        with pytest.raises(InvalidRequest, match=re.escape(field or "tempreature")) as raised:
            call([65], params)
        assert raised.value.field == field
    assert runtime.stats().tokens_computed == 0
    assert runtime.stats().steps <= steps + 10


@pytest.mark.parametrize("prompt", [[1.5], [65, "A"], [2**31], [None]])
def test_a_prompt_that_is_neither_text_nor_ids_is_refused(runtime: Runtime, prompt: object) -> None:
    with pytest.raises(InvalidRequest) as raised:
        runtime.generate(prompt)
    assert raised.value.field == "prompt"


def test_a_stream_of_several_choices_is_refused(runtime: Runtime) -> None:
    with pytest.raises(InvalidRequest) as raised:
        runtime.stream([65], {"n": 2})
    assert raised.value.field == "n"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"page_size": 3}, "page_size"),
        ({"dtype": "float8"}, "dtype"),
        ({"activations": "int4"}, "activations"),
        ({"kv_dtype": "int4"}, "kv_dtype"),
        ({"weights_dtype": "int4"}, "weights_dtype"),
        ({"max_running": 0}, "max_running"),
        ({"model_path": "another"}, "model_path"),
        ({"kv_memory": "2 GB"}, "kv_memory"),
        ({"log_level": "loud"}, "log_level"),
    ],
)
def test_a_bad_option_is_refused_before_anything_starts(
    tiny_llama: Path, socket_home: Path, options: dict[str, object], field: str
) -> None:
    children = children_of(os.getpid())
    with pytest.raises(InvalidRequest, match=field) as raised:
        Runtime(tiny_llama, **options)
    assert raised.value.field == field
    assert children_of(os.getpid()) == children
    assert list(socket_home.iterdir()) == []


def test_a_refusal_says_what_is_allowed(tiny_llama: Path, runtime: Runtime) -> None:
    with pytest.raises(InvalidRequest, match="auto, float32, bfloat16, float16"):
        Runtime(tiny_llama, dtype="float8")
    with pytest.raises(InvalidRequest, match="unknown field `tempreature`; the fields are max_tokens, min_tokens"):
        runtime.generate([65], {"tempreature": 1})


def test_an_unknown_model_is_refused_and_nothing_is_left(socket_home: Path) -> None:
    children = children_of(os.getpid())
    with pytest.raises(ModelNotFound):
        Runtime("/nowhere/at-all")
    assert children_of(os.getpid()) == children
    assert list(socket_home.iterdir()) == []


def test_a_worker_that_dies_fails_the_call_and_all_later_ones(runtime: Runtime) -> None:
    start = time.monotonic()
    with pytest.raises(WorkerUnavailable, match="SIGKILL"):
        runtime.generate([[KILL], [65]], ENDLESS)
    assert time.monotonic() - start < 1
    for call in (runtime.stats, runtime.flush_cache, lambda: runtime.generate([65])):
        with pytest.raises(WorkerUnavailable, match="SIGKILL"):
            call()


def test_shutdown_fails_what_is_live_and_may_be_repeated(runtime: Runtime) -> None:
    errors: list[BaseException] = []

    def generate() -> None:
        try:
            runtime.generate([65], ENDLESS)
        except WorkerUnavailable as error:
            errors.append(error)

    caller = threading.Thread(target=generate)
    caller.start()
    wait_until(lambda: not idle(runtime), 10)
    pid = runtime._worker.pid
    runtime.shutdown()
    caller.join(10)
    assert [str(error) for error in errors] == ["the runtime was shut down"]
    assert not is_running(pid)
    runtime.shutdown()
    with pytest.raises(WorkerUnavailable, match="shut down"):
        runtime.generate([65])


def test_an_abort_from_elsewhere_is_raised_as_aborted(runtime: Runtime) -> None:
    loop = runtime._loop
    stream = runtime.stream([65], ENDLESS)
    assert next(stream) == "A"
    line = loop.call(lambda: next(iter(runtime._connection._lines.values())))
    loop.call(lambda: line.abort(None))
    with pytest.raises(Aborted):
        list(stream)


def test_a_runtime_that_nobody_holds_ends_its_worker(tiny_llama: Path, socket_home: Path) -> None:
    runtime = Runtime(tiny_llama)
    assert runtime.generate([65], {"max_tokens": 1}).text == "A"
    pid = runtime._worker.pid
    del runtime
    gc.collect()
    wait_until(lambda: not is_running(pid), 5)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_the_end_of_a_forked_child_leaves_the_worker(runtime: Runtime) -> None:
    pid = os.fork()
    if pid == 0:
        runtime.shutdown()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert runtime.generate([65], {"max_tokens": 1}).text == "A"


SCRIPT = """
import os, signal, sys, threading, time
from radixrt.client import worker_process
from radixrt.client.runtime import Runtime
from tests.support.processes import SCRIPTED_WORKER
worker_process.WORKER_COMMAND = SCRIPTED_WORKER
runtime = Runtime(sys.argv[1])
print(runtime._worker.pid, flush=True)
interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
{rest}
"""


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        ("", 0),
        ("raise ValueError('a script that ends by exception')", 1),
        ("next(runtime.stream([65], {'max_tokens': 10**6}))", 0),
        ("interrupt.start(); runtime.generate([65], {'max_tokens': 10**6})", -2),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -15),
        ("os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)", -9),
    ],
    ids=["end", "exception", "open stream", "SIGINT", "SIGTERM", "SIGKILL"],
)
def test_a_script_leaves_nothing_behind_however_it_ends(
    tiny_llama: Path, socket_home: Path, rest: str, code: int
) -> None:
    command = [sys.executable, "-c", SCRIPT.format(rest=rest), str(tiny_llama)]
    environment = os.environ | {"TMPDIR": str(socket_home)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == code, result.stderr
    wait_until(lambda: not is_running(int(result.stdout)), 2)
    assert list(socket_home.iterdir()) == []
    assert "Exception ignored" not in result.stderr
    assert "Warning" not in result.stderr
