"""`RuntimeEndpoint` on a real server: the same programs and calls as on a `Runtime`, with the same tokens."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import radixrt as rx
from radixrt.client.endpoint.backend import RuntimeEndpoint
from radixrt.client.endpoint.requests import prompt_body
from radixrt.client.endpoint.session import EndpointSession
from radixrt.client.runtime import Runtime
from radixrt.errors import GenerationFailed, InvalidConstraint, InvalidRequest, PromptTooLong, WorkerUnavailable
from radixrt.lang.roles import turn
from radixrt.protocol.events import TextEvent
from radixrt.protocol.terms import NO_TERMS, ProgramTerms
from tests.lang.test_case_programs import PROGRAMS as CASES
from tests.lang.test_case_programs import load
from tests.server.conftest import RunningServer, worker_stats
from tests.support.processes import wait_until

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6}
TIMES = {"time", "time_to_first_token"}


@pytest.fixture(scope="module")
def runtime(tiny_llama: Path) -> Iterator[Runtime]:
    with Runtime(tiny_llama, kernels="reference", dtype="float32", kv_memory=2**24, threads=1) as runtime:
        yield runtime


@pytest.fixture
def endpoint(server: RunningServer) -> Iterator[RuntimeEndpoint]:
    with RuntimeEndpoint(server.url) as endpoint:
        yield endpoint
    wait_until(lambda: worker_stats(server).running == 0, 10)
    stats = worker_stats(server)
    assert (stats.waiting, stats.leases, stats.pages_owned) == (0, 0, 0)


def seen(state: rx.ProgramState, *names: str) -> dict[str, Any]:
    """All that a run tells but for times."""
    metas = {name: state.get_meta_info(name) for name in names}
    for meta in metas.values():
        for one in meta if isinstance(meta, list) else [meta]:
            for key in TIMES:
                assert one is not None
                one.pop(key, None)
    return {"text": state.text(), "messages": state.messages(), "metas": metas, **{name: state[name] for name in names}}


class Salted(RuntimeEndpoint):
    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> EndpointSession:
        return super().open_program(on_event, ProgramTerms(cache_salt="b"))


@rx.function
def words_cut_by_forks(s: rx.ProgramState) -> None:
    """One after the other: which of them finds the others' prefixes in the cache would depend on who is quicker."""
    s += "The tid"
    for branch in s.fork(2):
        branch += "e comes in twic"
        for below in branch.fork(2):
            below += "e" + rx.gen("below")
            below.sync()
        branch += "e a day" + rx.gen("cut")
        branch.sync()
    s += "e" + rx.gen("cut")
    s += "s" + rx.gen("more")


@rx.function
def turns(s: rx.ProgramState) -> None:
    s += rx.system("You are a helpful assistant.")
    for question in ("How many days are in a week?", "Why?"):
        s += rx.user(question)
        s += rx.assistant(rx.gen("cut", stop="e"))
    with s.user():
        s += "<|im_end|> is text here"
    s += rx.assistant_begin() + rx.gen("more") + rx.assistant_end()


@rx.function
def options(s: rx.ProgramState) -> None:
    s += "The tide comes in tw" + rx.select("cut", ["ice", "elve", "i"])
    s += "ly" + rx.select("more", [" and", "ing", "a"], choices_method=rx.unconditional_likelihood_normalized)
    s += "." + rx.gen("last")


@rx.function
def from_nothing(s: rx.ProgramState) -> None:
    s += rx.gen("cut")
    s += "the boats" + rx.gen("more")


@rx.function
def option_from_nothing(s: rx.ProgramState) -> None:
    s += rx.select("cut", ["boats", "b"])
    s += " and the boats" + rx.gen("more")


@rx.function
def several(s: rx.ProgramState) -> None:
    s += "A name for a boat:" + rx.gen("cut", n=3, temperature=0.9, seed=7, logprobs=2, return_text_in_logprobs=True)
    s += " or" + rx.gen("more", seed=8, temperature=1.3, top_p=0.9, frequency_penalty=0.5, stop_token_ids=[300])


@rx.function
def scored_on_the_way(s: rx.ProgramState) -> None:
    s += "The ti" + rx.gen("cut", n=2, logprob_start_len=0)
    s += "de" + rx.gen(
        "more", return_logprob=True, logprob_start_len=2, return_text_in_logprobs=True, stop_regex="[aeiou]"
    )


@rx.function
def healed(s: rx.ProgramState) -> None:
    s += rx.user("Why?")
    s += rx.assistant("The ti" + rx.gen("cut", heal=True))
    s += "and th" + rx.gen("more", heal=True, stop="e", logprob_start_len=0)
    branches = s.fork(2)
    for index, branch in enumerate(branches):
        branch += rx.gen(heal=True) + f"{index} the bo" + rx.gen(heal=True, regex="[a-z]+") + "!"
    branches.join("concate_and_append")


@rx.function
def constrained(s: rx.ProgramState) -> None:
    s += "It is " + rx.gen("cut", regex="[1-9][0-9]? miles") + " to "
    schema = {"type": "object", "properties": {"b": {"type": "boolean"}, "a": {"enum": [1, 2]}}, "required": ["b", "a"]}
    s += rx.gen("more", json_schema=schema, max_tokens=40)


@rx.function
def appended(s: rx.ProgramState) -> None:
    branches = s.fork(2)
    for index, branch in enumerate(branches):
        branch += f"{index}: the ti" + rx.gen("cut", stop="e") + "de"
    branches.join("concate_and_append")
    s += " and" + rx.gen("more")


PROGRAMS = [words_cut_by_forks, turns, options, from_nothing, option_from_nothing, several, scored_on_the_way]
PROGRAMS += [healed, constrained, appended]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_says_the_same_on_a_server_as_on_a_runtime(
    program: rx.Program, endpoint: RuntimeEndpoint, runtime: Runtime
) -> None:
    told = []
    for backend in (runtime, endpoint):
        rx.flush_cache(backend)
        state = program.run(backend=backend, **GREEDY)
        told.append(seen(state, *(["more"] if program is appended else ["cut", "more"])))
    assert told[0]["metas"]["more"]["prompt_tokens"] > 3
    assert told[0] == told[1]


def test_a_fork_point_is_a_border_for_the_tokenizer(endpoint: RuntimeEndpoint, server: RunningServer) -> None:
    encode = server.service.supervisor.frontend.tokenizer.encode
    apart = len(encode("The tid")) + len(encode("e"))
    assert apart != len(encode("The tide")), "nothing would merge anyway"
    meta = words_cut_by_forks.run(backend=endpoint, **GREEDY).get_meta_info("cut")
    assert isinstance(meta, dict)
    assert meta["prompt_tokens"] == apart


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_program_in_sglangs_syntax_passes_its_check(path: Path, endpoint: RuntimeEndpoint) -> None:
    program = load(path)
    program.check(program.main(endpoint))


@pytest.mark.parametrize("adds_text", [True, False])
def test_the_prefix_of_a_fork_is_computed_once(
    adds_text: bool, endpoint: RuntimeEndpoint, server: RunningServer
) -> None:
    """64 requests come at once, and each of them brings the whole prefix."""
    encode = server.service.supervisor.frontend.tokenizer.encode
    prefix = "".join(chr(97 + number * number % 26) for number in range(2140))
    size, generated = 64, 4
    branches: list[rx.ProgramState] = []
    own = [f" {number}:" if adds_text else "" for number in range(size)]

    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += prefix
        for number, branch in enumerate(s.fork(size)):
            branch += own[number] + rx.gen("text", max_tokens=generated, ignore_eos=True, seed=number)
            branches.append(branch)

    endpoint.flush_cache()
    before = endpoint.stats()
    program.run(backend=endpoint)
    assert [branch.error() for branch in branches] == [None] * size
    stats = endpoint.stats()
    shared = len(encode(prefix))
    assert shared > 1950
    assert stats.prompt_tokens - before.prompt_tokens == size * shared + sum(len(encode(text)) for text in own)
    # The last token that is generated is never computed.
    unique = shared + sum(len(encode(text)) for text in own) + size * (generated - 1)
    computed = stats.tokens_computed - before.tokens_computed
    assert computed <= 1.01 * unique + (0 if adds_text else size)


def test_turns_are_asked_for_once_and_only_to_be_shown(endpoint: RuntimeEndpoint, http: httpx.Client) -> None:
    def asked() -> float:
        lines = http.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith('radixrt_requests_total{route="/turns",status="200"}')]
        return float(found[0].split()[-1]) if found else 0.0

    @rx.function
    def program(s: rx.ProgramState, count: int) -> None:
        for number in range(count):
            s += rx.user(f"Question {number}") + rx.assistant("Answer")

    before = asked()
    states = [program.run(6, backend=endpoint) for _ in range(2)]
    assert states[0].messages()[0] == {"role": "user", "content": "Question 0"}
    begin = "<|im_start|>user\nQuestion 0<|im_end|>\n<|im_start|>assistant\nAnswer<|im_end|>\n"
    assert [state.text().startswith(begin) for state in states] == [True, True]
    assert program.run(3, backend=endpoint).text().count("<|im_start|>") == 6
    assert asked() == before + 1


def test_appending_turns_does_not_wait_for_the_server() -> None:
    """It never answers."""

    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Question") + rx.assistant("Answer")

    with socket.create_server(("127.0.0.1", 0)) as mute:
        with RuntimeEndpoint(f"http://127.0.0.1:{mute.getsockname()[1]}") as endpoint:
            state = program.run(backend=endpoint)
            assert state.messages()[1] == {"role": "assistant", "content": "Answer"}
        with pytest.raises(WorkerUnavailable):
            state.text()


def test_a_state_shows_its_turns_when_its_backend_is_closed(server: RunningServer) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hi") + rx.assistant(rx.gen("text", max_tokens=2)) + rx.user("Bye")

    with RuntimeEndpoint(server.url) as endpoint:
        state = program.run(backend=endpoint)
    assert state.text().endswith("<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n")


@pytest.mark.parametrize("with_gen", [False, True])
def test_a_role_that_the_template_refuses_fails_where_it_is_read(endpoint: RuntimeEndpoint, with_gen: bool) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hi") + turn("no such role!", rx.gen("text") if with_gen else "Ho")

    state = program.run(backend=endpoint)
    with pytest.raises((InvalidRequest, GenerationFailed), match="no such role!"):
        state.text()


async def test_a_program_written_with_async_def_runs_in_its_callers_loop(endpoint: RuntimeEndpoint) -> None:
    @rx.function
    async def program(s: rx.AsyncProgramState) -> None:
        s += rx.user("Hi")
        s += rx.assistant_begin()
        word = await s.gen("word", max_tokens=3, ignore_eos=True, temperature=0)
        s += rx.assistant_end()
        assert await s.text() == f"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{word}<|im_end|>\n"

    states = await asyncio.gather(*(program.run_async(backend=endpoint) for _ in range(20)))
    assert [state.error() for state in states] == [None] * 20


def test_pieces_come_as_they_are_generated(endpoint: RuntimeEndpoint) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += "The tide" + rx.gen("text", max_tokens=40, ignore_eos=True, temperature=0)

    state = program.run(backend=endpoint, stream=True)
    pieces = list(state.text_iter("text"))
    assert len(pieces) > 2
    assert "".join(pieces) == state["text"]


def test_plain_calls_say_the_same_as_a_runtimes(endpoint: RuntimeEndpoint, runtime: Runtime) -> None:
    calls: list[Callable[[Runtime | RuntimeEndpoint], Any]] = [
        lambda backend: [
            (choice.text, choice.ids.tolist(), choice.finish_reason, choice.matched, choice.usage, choice.logprobs)
            for choice in backend.generate(
                "<|im_start|>user\nOnce", {"max_tokens": 5, "n": 3, "seed": 1, "logprobs": 3, "stop": ["a", "o"]}
            ).choices
        ],
        lambda backend: [reply.text for reply in backend.generate(["Once", "The tide"], GREEDY)],
        lambda backend: [reply.ids.tolist() for reply in backend.generate([[65, 66], [67]], GREEDY)],
        lambda backend: "".join(backend.stream("The tide", GREEDY)),
        lambda backend: seen_scores(backend.score("The tide comes in", start=1).tokens),
        lambda backend: backend.score("The tide comes in", start=2).usage.prompt_tokens,
        lambda backend: [
            (option.text, seen_scores(option.tokens), option.unconditional and seen_scores(option.unconditional))
            for option in backend.score("The tide comes in tw", ["ice", "elve"], unconditional=True).options
        ],
    ]
    for call in calls:
        runtime.flush_cache()
        endpoint.flush_cache()
        assert call(endpoint) == call(runtime)


def seen_scores(scores: Any) -> tuple[list[int], Any]:
    return scores.ids.tolist(), scores.logprobs


def test_more_branches_than_connections_wait_for_their_turn(server: RunningServer) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        branches = s.fork(40)
        branches += "The tide" + rx.gen("text", max_tokens=2, ignore_eos=True)
        branches.join()

    with RuntimeEndpoint(server.url, max_connections=3) as endpoint:
        assert len(program.run(backend=endpoint)["text"]) == 40


async def test_coroutines_of_any_loop_may_call(endpoint: RuntimeEndpoint) -> None:
    replies = await asyncio.gather(*(endpoint.agenerate([65 + i], GREEDY) for i in range(10)))
    pieces = [piece async for piece in endpoint.astream([65], GREEDY)]
    assert "".join(pieces) == replies[0].text
    scores = await endpoint.ascore([65, 66, 67])
    assert scores.tokens.ids.tolist() == [65, 66, 67]


def test_a_forked_process_has_connections_of_its_own(server: RunningServer) -> None:
    """In a fresh interpreter: this one has threads, which a fork does not keep."""
    code = f"""
import os
import radixrt as rx

endpoint = rx.RuntimeEndpoint({server.url!r})
before = endpoint.generate([65], {{"max_tokens": 2, "temperature": 0}}).text
child = os.fork()
assert endpoint.generate([65], {{"max_tokens": 2, "temperature": 0}}).text == before
if child:
    assert os.waitpid(child, 0)[1] == 0
endpoint.close()
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_server_tells_what_it_runs(endpoint: RuntimeEndpoint, server: RunningServer) -> None:
    info = rx.get_server_info(endpoint)
    assert info["worker"]["kernels"] == "reference"
    assert info["stats"]["tokens_computed"] == endpoint.stats().tokens_computed
    endpoint.generate("The tide", GREEDY)
    assert rx.flush_cache(endpoint)["pages_tree"] == 0


@pytest.mark.parametrize(
    ("call", "kind", "field"),
    [
        (lambda e: e.generate("x", {"temperature": -1}), InvalidRequest, "temperature"),
        (lambda e: e.generate("x", {"stop_token_ids": [5000]}), InvalidRequest, "stop_token_ids"),
        (lambda e: e.generate([5000]), InvalidRequest, "prompt"),
        (lambda e: e.generate("x \ud800"), InvalidRequest, "prompt"),
        (lambda e: e.generate([100] * 3000), PromptTooLong, "prompt"),
        (lambda e: e.generate("x", {"json_schema": {"type": "nothing"}}), InvalidConstraint, "json_schema"),
        (lambda e: e.generate("x", {"regex": "(?<=a)b"}), InvalidConstraint, "regex"),
        (lambda e: e.score("x", start=9), InvalidRequest, "start"),
        (lambda e: e.score("x", ["a", ""]), InvalidRequest, "choices[1]"),
        (lambda e: list(e.stream("x", {"n": 2})), InvalidRequest, "n"),
    ],
    ids=range(10),
)
def test_what_is_wrong_is_the_error_that_a_runtime_raises(
    call: Callable[[Any], object], kind: type[Exception], field: str, endpoint: RuntimeEndpoint, runtime: Runtime
) -> None:
    caught = []
    for backend in (endpoint, runtime):
        with pytest.raises(InvalidRequest) as error:
            call(backend)
        caught.append((type(error.value), error.value.field))
    assert caught[0] == caught[1]
    assert issubclass(caught[0][0], kind)
    assert caught[0][1] == field


def test_a_failed_node_fails_what_continues_it_and_leaves_its_siblings(endpoint: RuntimeEndpoint) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += "The tide"
        bad, good = s.fork(2)
        bad += rx.gen("first", stop_token_ids=[5000]) + " and" + rx.gen("second") + rx.select("third", ["a", "b"])
        good += rx.gen("first", max_tokens=2)
        s["branches"] = [bad, good]

    bad, good = program.run(backend=endpoint)["branches"]
    for name in ("first", "second", "third"):
        with pytest.raises(GenerationFailed) as caught:
            bad[name]
        assert (type(caught.value.__cause__), caught.value.field) == (InvalidRequest, "stop_token_ids")
    assert good.error() is None


def test_the_terms_of_a_program_go_along(endpoint: RuntimeEndpoint, server: RunningServer) -> None:
    """A salt keeps what is cached apart, which shows that it arrived."""
    terms = ProgramTerms(cache_salt="a", priority=-3, steps=3)
    assert [prompt_body([], terms, generated, None)["steps"] for generated in (0, 2, 7)] == [3, 1, 1]
    assert prompt_body([], terms, 0, None)["priority"] == -3

    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += "The tide comes in twice a day" + rx.gen("text", max_tokens=1)

    with Salted(server.url) as salted:
        endpoint.flush_cache()
        cached = [program.run(backend=backend).get_meta_info("text") for backend in (endpoint, salted, salted)]
    assert [meta["cached_tokens"] > 0 for meta in cached if isinstance(meta, dict)] == [False, False, True]
