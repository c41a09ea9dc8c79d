"""Random programs over the real socket, against a pool of a quarter of what they use: every answer must be right.

A tiny random model gives the reference: each program alone, one request at a time, with room for all and no cache.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from radixrt.client.runtime import Runtime
from radixrt.config import WorkerConfig
from radixrt.protocol.events import Event, Failed, Finished, Piece, TextEvent, Tokens
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.messages import Stats, SubmitTree, TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids
from radixrt.worker.build import build_engine
from radixrt.worker.programs import Programs

PAGE_SIZE = 16
STATES = ("blocked", "waiting", "preempted", "prefilling", "decoding", "holding back")


@dataclass
class Answer:
    """What one choice of one node came to."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    end: Finished | Failed | None = None


Answers = dict[tuple[int, int], Answer]
"""By (node, choice)."""


@dataclass
class Case:
    """A program, what it should come to, and where to abort it, if at all."""

    nodes: tuple[TreeNode, ...]
    answers: Answers = field(default_factory=dict)
    abort: TreeNode | None = None
    abort_after_pieces: int = 0
    abort_delay: float = 0.0


def random_cases(count: int, longest: int, rng: random.Random, vocabulary: int) -> list[Case]:
    """Programs with `count` generations in all: plain ones, several choices, forks, chains, forks after a chain."""
    stems = [[rng.randrange(3, vocabulary) for _ in range(rng.randrange(20, 90))] for _ in range(12)]
    cases: list[Case] = []
    generations = 0
    while generations < count:
        case = Case(tuple(_random_tree(rng, stems, longest, vocabulary)))
        cases.append(case)
        generations += sum(node.sampling.n for node in case.nodes if node.sampling)
    return cases


def _random_tree(rng: random.Random, stems: list[list[int]], longest: int, vocabulary: int) -> Iterator[TreeNode]:
    def segment(ids: list[int]) -> tuple[Ids, ...]:
        return (Ids(pack_ids(ids)),)

    def words() -> tuple[Ids, ...]:
        return segment([rng.randrange(3, vocabulary) for _ in range(rng.randrange(1, 12))])

    def params(n: int = 1) -> SamplingParams:
        return SamplingParams(
            max_tokens=rng.randrange(4, longest),
            temperature=rng.choice([0.0, 0.8]),
            top_p=rng.choice([1.0, 0.9]),
            frequency_penalty=rng.choice([0.0, 0.0, 0.5]),
            ignore_eos=True,
            seed=rng.randrange(2**32),
            n=n,
        )

    stem = rng.choice(stems)
    prompt = segment(stem[: rng.randrange(1, len(stem) + 1)])
    kind = rng.randrange(5)
    if kind == 0:
        yield TreeNode(0, None, prompt, params())
    elif kind == 1:
        yield TreeNode(0, None, prompt, params(n=rng.randrange(2, 5)))
    elif kind == 2:
        yield TreeNode(0, None, prompt, None)
        for branch in range(rng.randrange(2, 6)):
            yield TreeNode(1 + branch, 0, words(), params())
    elif kind == 3:
        for turn in range(rng.randrange(2, 5)):
            yield TreeNode(turn, turn - 1 if turn else None, words() if turn else prompt, params())
    else:
        yield TreeNode(0, None, prompt, params())
        yield TreeNode(1, 0, words(), None)
        for branch in range(rng.randrange(2, 4)):
            yield TreeNode(2 + branch, 1, words(), params())


def answer_alone(cases: list[Case], folder: Path) -> None:
    """Fill in each case's answers: one request at a time, nothing cached."""
    config = WorkerConfig(
        model=str(folder), dtype="float32", kv_memory=2**24, max_running=1, prefix_cache=False, page_size=PAGE_SIZE
    )
    programs = Programs(*build_engine(config))
    for number, case in enumerate(cases):
        programs.submit(b"", SubmitTree(number, case.nodes))
        events: list[Event] = []
        while programs.busy:
            events += programs.step().get(b"", [])
        for event in events:
            answer = case.answers.setdefault((event.node, event.choice), Answer())
            if isinstance(event, Tokens):
                answer.ids += unpack_ids(event.ids).tolist()
            else:
                answer.end = event


def with_stop_strings(cases: list[Case], rng: random.Random, decode: dict[int, bytes]) -> list[Case]:
    """Give a third of the cases stop strings: some that come in their answers, some that only nearly come."""
    changed: list[Case] = []
    for case in cases:
        node = rng.choice([node for node in case.nodes if node.sampling])
        text = b"".join(decode[i] for i in case.answers[node.id, 0].ids).decode(errors="ignore")
        if rng.random() < 0.34 and len(text) > 8 and node.sampling is not None:
            start = rng.randrange(1, len(text) - 4)
            nearly = text[start : start + 40] + "\N{PILE OF POO}"
            stops = (rng.choice([nearly, nearly, text[start : start + 3]]),)
            new = TreeNode(node.id, node.parent, node.segments, _with_stop(node.sampling, stops))
            case = Case(tuple(new if old is node else old for old in case.nodes))
        changed.append(case)
    return changed


def _with_stop(params: SamplingParams, stop: tuple[str, ...]) -> SamplingParams:
    import msgspec

    return msgspec.structs.replace(params, stop=stop)


def working_set_pages(cases: list[Case]) -> int:
    """Pages of the tree of all that the cases compute: the distinct prefixes."""
    prefixes: set[int] = set()
    for case in cases:
        contexts: dict[int | None, list[int]] = {None: []}
        for node in case.nodes:
            context = contexts[node.parent] + [int(i) for s in node.segments for i in unpack_ids(s.ids)]  # type: ignore[union-attr]
            for choice in range(node.sampling.n if node.sampling else 0):
                whole = context + case.answers[node.id, choice].ids
                state = 0
                for token in whole:
                    state = hash((state, token))
                    prefixes.add(state)
            end = case.answers[node.id, 0] if node.sampling else None
            contexts[node.id] = context + (_kept(end) if end else [])
    return len(prefixes) // PAGE_SIZE


def _kept(answer: Answer) -> list[int]:
    assert isinstance(answer.end, Finished)
    return answer.ids[: answer.end.kept] + unpack_ids(answer.end.tail).tolist()


async def run_case(runtime: Runtime, case: Case) -> Answers:
    """The case over the socket; returns when every choice has ended."""
    answers: Answers = {}
    open_choices = {(n.id, c) for n in case.nodes if n.sampling for c in range(n.sampling.n)}
    done = asyncio.Event()
    pieces = 0

    def on_event(event: TextEvent) -> None:
        nonlocal pieces
        answer = answers.setdefault((event.node, event.choice), Answer())
        assert answer.end is None, "an event after the end"
        if isinstance(event, Piece):
            answer.ids += unpack_ids(event.ids).tolist()
            answer.text += event.text
            pieces += 1
        else:
            answer.end = event
            open_choices.discard((event.node, event.choice))
            if not open_choices:
                done.set()
        if case.abort and pieces == case.abort_after_pieces:
            session.abort(case.abort.id)

    session = runtime.open_program(on_event)
    session.submit(case.nodes)
    if case.abort and not case.abort_after_pieces:
        await asyncio.sleep(case.abort_delay)
        session.abort(case.abort.id)
    await asyncio.wait_for(done.wait(), 300)
    session.close()
    return answers


async def run_all(runtime: Runtime, cases: list[Case], at_once: int) -> list[Answers]:
    gate = asyncio.Semaphore(at_once)

    async def guarded(case: Case) -> Answers:
        async with gate:
            return await run_case(runtime, case)

    return list(await asyncio.gather(*(guarded(case) for case in cases)))


def check(case: Case, got: Answers, decode: dict[int, bytes]) -> Counter[str]:
    """Every choice ended in its right answer or in its abort; an aborted one was right as far as it went."""
    ends: Counter[str] = Counter()
    assert got.keys() == case.answers.keys()
    for key, answer in got.items():
        expected = case.answers[key]
        if isinstance(answer.end, Failed):
            assert case.abort is not None
            assert answer.end.kind == "Aborted"
            assert answer.ids == expected.ids[: len(answer.ids)]
            ends["aborted"] += 1
            continue
        assert isinstance(answer.end, Finished)
        assert isinstance(expected.end, Finished)
        assert answer.ids == expected.ids
        assert (answer.end.reason, answer.end.matched) == (expected.end.reason, expected.end.matched)
        assert answer.end.usage.completion_tokens == len(expected.ids)
        visible = b"".join(decode[i] for i in _kept(expected)).decode(errors="replace")
        assert answer.text == visible
        ends["right"] += 1
    return ends


@pytest.mark.parametrize(
    ("generations", "longest", "step_tokens", "least"),
    [
        pytest.param(200, 40, 96, 0, id="200"),
        pytest.param(1000, 72, 224, 20, id="1000", marks=pytest.mark.long),
    ],
)
def test_random_programs_under_pressure_all_end_right(
    tiny_llama: Path, generations: int, longest: int, step_tokens: int, least: int
) -> None:
    """`least`: aborts that must have met a request in each state, so that the run shows what it claims to."""
    from radixrt.client.loop import shared_loop
    from radixrt.text.model_files import find_model
    from radixrt.text.tokenizer import load_tokenizer

    rng = random.Random(generations)
    tokenizer = load_tokenizer(find_model(str(tiny_llama)))
    decode = {i: tokenizer.token_bytes(i) for i in range(tokenizer.vocabulary_size)}
    plain = random_cases(generations, longest, rng, tokenizer.vocabulary_size)
    answer_alone(plain, tiny_llama)
    cases = with_stop_strings(plain, rng, decode)
    answer_alone([case for case in cases if not case.answers], tiny_llama)
    pages = working_set_pages(cases) // 4
    totals: Counter[str] = Counter()
    with Runtime(
        str(tiny_llama),
        dtype="float32",
        page_size=PAGE_SIZE,
        kv_memory=pages * _page_bytes(tiny_llama),
        max_running=256,
        step_tokens=step_tokens,
    ) as runtime:
        loop = shared_loop()
        assert runtime.info.pool_pages == pages
        rounds = 0
        while True:
            for case in cases:
                _decide_abort(case, rng)
            rounds += 1
            for case, got in zip(cases, loop.run(run_all(runtime, cases, at_once=400)), strict=True):
                totals += check(case, got, decode)
            stats = runtime.stats()
            met = min(stats.preemptions, *(stats.aborts.get(state, 0) for state in STATES))
            if met >= least or rounds == 8:
                break
        _check_premises(stats, totals, generations, least)
        flushed = runtime.flush_cache()
    assert (stats.leases, stats.pages_owned, stats.running, stats.waiting) == (0, 0, 0, 0)
    assert stats.pages_free + stats.pages_tree == pages
    assert flushed.pages_free == pages


def _decide_abort(case: Case, rng: random.Random) -> None:
    """Four in ten are aborted: after some pieces of text, or after a while, at any of their generations."""
    case.abort = rng.choice([n for n in case.nodes if n.sampling]) if rng.random() < 0.4 else None
    case.abort_after_pieces = rng.choice([0, 0, 1, rng.randrange(1, 30)])
    case.abort_delay = rng.random() ** 2 * 3.0


def _check_premises(stats: Stats, totals: Counter[str], generations: int, least: int) -> None:
    assert totals["right"] + totals["aborted"] >= generations
    assert totals["right"] > generations // 2
    assert stats.evictions >= max(least * 5 // 2, 5)
    assert stats.preemptions >= max(least, 1)
    assert stats.page_copies >= max(least * 5 // 2, 5)
    for state in STATES if least else ():
        assert stats.aborts.get(state, 0) >= least, f"too few aborts while {state}: {stats.aborts}"


def _page_bytes(folder: Path) -> int:
    """Bytes of one page of the tiny model's KV in float32."""
    import json

    config = json.loads((folder / "config.json").read_text())
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return int(2 * config["num_hidden_layers"] * PAGE_SIZE * config["num_key_value_heads"] * head * np.float32().nbytes)
