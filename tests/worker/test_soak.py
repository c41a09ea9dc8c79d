"""Random programs over the real socket, against a pool of a quarter of what they use: every answer must be right.

A tiny random model gives the reference: each program alone, one request at a time, with room for all and no cache.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from radixrt.client.runtime import Runtime
from radixrt.config import WorkerConfig
from radixrt.protocol.events import Event, Failed, Finished, Piece, TextEvent, Tokens
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.messages import SubmitTree, TreeNode
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


@dataclass(frozen=True)
class Abortion:
    """Which node to abort, and what to wait for: pieces of text, a pause in the node's text, or seconds."""

    node: int
    wait_for: Literal["pieces", "pause", "seconds"]
    amount: float


@dataclass
class Case:
    """A program, what it should come to, and how to abort it, if at all."""

    nodes: tuple[TreeNode, ...]
    answers: Answers = field(default_factory=dict)
    abortion: Abortion | None = None


def random_cases(count: int, longest: int, rng: random.Random, vocabulary: int) -> list[Case]:
    """Programs with `count` generations in all: plain ones, several choices, forks, chains, forks after a chain.

    One program in eight begins with a long prompt of its own: its prefill takes several steps.
    """
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
    if rng.random() < 0.125:
        prompt = segment([rng.randrange(3, vocabulary) for _ in range(longest * 6)])
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
    loop = asyncio.get_running_loop()
    abortion = case.abortion
    answers: Answers = {}
    open_choices = {(n.id, c) for n in case.nodes if n.sampling for c in range(n.sampling.n)}
    done = asyncio.Event()
    pieces = 0
    timer: asyncio.TimerHandle | None = None

    def abort_after(seconds: float, node: int) -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        timer = loop.call_later(seconds, session.abort, node)

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
        match abortion:
            case Abortion(node, "pieces", amount) if pieces == amount:
                session.abort(node)
            case Abortion(node, "pause", amount) if event.node == node:
                abort_after(amount, node)

    session = runtime.open_program(on_event)
    session.submit(case.nodes)
    if abortion is not None and abortion.wait_for == "seconds":
        abort_after(abortion.amount, abortion.node)
    await asyncio.wait_for(done.wait(), 300)
    if timer is not None:
        timer.cancel()
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
            assert case.abortion is not None
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


@dataclass(frozen=True)
class Setting:
    """How a round presses the worker."""

    step_tokens: int
    max_running: int
    programs_at_once: int
    copies: int = 1
    """How often each program runs."""
    long_prompts: bool = True


CROWD = Setting(step_tokens=768, max_running=768, programs_at_once=3000, copies=3, long_prompts=False)
"""More than fits the pool at every moment: evictions, preemptions."""
TRICKLE = Setting(step_tokens=48, max_running=48, programs_at_once=12)
"""Steps too small for a prompt: requests wait between the chunks of their prefill."""


@pytest.mark.parametrize(
    ("generations", "longest", "least"),
    [pytest.param(100, 40, 0, id="100"), pytest.param(1000, 72, 20, id="1000", marks=pytest.mark.long)],
)
def test_random_programs_under_pressure_all_end_right(
    tiny_llama: Path, generations: int, longest: int, least: int
) -> None:
    """`least`: aborts that must have met a request in each state, so that the run shows what it claims to."""
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
    counts: Counter[str] = Counter()
    for number in range(12):
        counts += run_round(TRICKLE if number % 3 else CROWD, cases, rng, decode, tiny_llama, pages)
        if number > 0 and least <= min(counts[name] for name in ("preemptions", *STATES)):
            break
    assert counts["right"] + counts["aborted"] >= generations
    assert counts["right"] > generations // 2
    assert counts["evictions"] >= max(least * 5 // 2, 5)
    assert counts["preemptions"] >= max(least, 1)
    assert counts["page copies"] >= max(least * 5 // 2, 5)
    for state in STATES:
        assert counts[state] >= least, f"too few aborts while {state}: {counts}"


def run_round(
    setting: Setting, cases: list[Case], rng: random.Random, decode: dict[int, bytes], folder: Path, pages: int
) -> Counter[str]:
    """Run the cases in a worker of its own, check every answer and that all is given back; what happened, counted."""
    from radixrt.client.loop import shared_loop

    crowd = [
        replace(case, abortion=_random_abortion(case, rng))
        for case in cases * setting.copies
        if setting.long_prompts or not _has_long_prompt(case)
    ]
    rng.shuffle(crowd)
    counts: Counter[str] = Counter()
    with Runtime(
        str(folder),
        dtype="float32",
        page_size=PAGE_SIZE,
        kv_memory=pages * _page_bytes(folder),
        max_running=setting.max_running,
        step_tokens=setting.step_tokens,
        threads=1,
    ) as runtime:
        assert runtime.info.pool_pages == pages
        results = shared_loop().run(run_all(runtime, crowd, setting.programs_at_once))
        for case, got in zip(crowd, results, strict=True):
            counts += check(case, got, decode)
        stats = runtime.stats()
        flushed = runtime.flush_cache()
    assert (stats.leases, stats.pages_owned, stats.running, stats.waiting) == (0, 0, 0, 0)
    assert stats.pages_free + stats.pages_tree == pages
    assert flushed.pages_free == pages
    counts.update(stats.aborts)
    counts.update({"evictions": stats.evictions, "preemptions": stats.preemptions, "page copies": stats.page_copies})
    return counts


def _has_long_prompt(case: Case) -> bool:
    return max(len(unpack_ids(s.ids)) for s in case.nodes[0].segments) > 200  # type: ignore[union-attr]


def _random_abortion(case: Case, rng: random.Random) -> Abortion | None:
    """Aborts for more than a third, where they meet much: long prefills, text held back, a pause under pressure."""
    generating = {node.id: node.sampling for node in case.nodes if node.sampling}
    held = [node for node, sampling in generating.items() if sampling.stop]
    if _has_long_prompt(case) and rng.random() < 0.6:
        return Abortion(min(generating), "seconds", rng.random() * 0.15)
    if held and rng.random() < 0.4:
        return Abortion(held[0], "pause", rng.choice([0.05, 0.1, 0.2]))
    if rng.random() < 0.6:
        return None
    node = rng.choice(list(generating))
    return rng.choice(
        [
            Abortion(node, "pieces", rng.choice([1, rng.randrange(1, 30)])),
            Abortion(node, "pause", rng.choice([0.1, 0.2, 0.4])),
            Abortion(node, "seconds", rng.random() ** 2 * 3.0),
        ]
    )


def _page_bytes(folder: Path) -> int:
    """Bytes of one page of the tiny model's KV in float32."""
    import json

    config = json.loads((folder / "config.json").read_text())
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return int(2 * config["num_hidden_layers"] * PAGE_SIZE * config["num_key_value_heads"] * head * np.float32().nbytes)
