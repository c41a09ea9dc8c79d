"""A language of made-up words, and a model of it without weights: its next token is a function of all tokens before.

Each slot of the model's KV pool holds a fingerprint of the prefix that ends there. So a request that was given a wrong
slot says something else than it would alone, and a replay that says what the recording said has read the right ones.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from benchmarks.programs.texts import WORDS, Texts
from radixrt.grammar.compiler import GrammarCompiler
from radixrt.grammar.interface import Grammar
from radixrt.protocol.constraint import Constraint
from radixrt.protocol.events import TokenLogprob
from radixrt.protocol.plan import SampledToken, SampleSpec, ScoreSpec, StepPlan, StepResult
from radixrt.text.frontend import Frontend
from radixrt.text.tokenizer import Tokenizer, TokenizerParts
from radixrt.text.turns import derive_turns

END, TURN_BEGINS, TURN_ENDS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EMPTY = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


class Language:
    """The words' tokenizer, a byte-level BPE, and what a client and a worker need of it."""

    def __init__(self) -> None:
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=2048,
            special_tokens=[END, TURN_BEGINS, TURN_ENDS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        texts = Texts(0)
        tokenizer.train_from_iterator([" ".join(WORDS), *(texts.paragraph(20) for _ in range(20))], trainer)
        self.source = tokenizer
        """As the `tokenizers` library has it."""
        self.tokenizer = Tokenizer(TokenizerParts(tokenizer, bos=END, eos=END, chat_template=CHAT_TEMPLATE))
        self.frontend = Frontend(self.tokenizer, derive_turns(self.tokenizer))
        self.compiler = ReadyCompiler(self.tokenizer)
        self.line_end = int(self.tokenizer.encode("\n")[0])
        self.end = self.tokenizer.special_ids[END]
        spoken = [t for t in range(self.tokenizer.vocabulary_size) if self.tokenizer.token_bytes(t)[:1] == b" "]
        self.words: NDArray[np.int64] = np.array(spoken)
        """The tokens with which a word begins: what the model says."""

    def next_token(self, noise: int) -> int:
        """A word; one time in 24 the end of the line, and one time in 48 the end of the text."""
        if noise % 24 == 0:
            return self.line_end if noise % 48 else self.end
        return int(self.words[(noise >> 8) % len(self.words)])


class ReadyCompiler:
    """Compiles at once: if a request waited for its grammar, the order of admission would depend on the clock."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._inner = GrammarCompiler(tokenizer)

    def submit(self, constraint: Constraint) -> Future[Grammar]:
        future = self._inner.submit(constraint)
        wait([future])
        return future


class SimulatedModel:
    """Runs step plans. `rows_written` counts what kernels would write to the KV pool; copies of pages do not count."""

    def __init__(self, language: Language, pages: int, page_size: int) -> None:
        self.rows_written = 0
        self.on_plan: Callable[[StepPlan], None] = lambda plan: None
        self._language = language
        self._page_size = page_size
        self._slots = [0] * (pages * page_size)
        """The fingerprint of the prefix that ends in each."""

    def submit(self, plan: StepPlan) -> StepResult:
        """Compute the plan's rows; nothing fails."""
        self.on_plan(plan)
        size, slots = self._page_size, self._slots
        for copy in plan.copies:
            source, target = copy.source * size, copy.target * size
            slots[target : target + copy.slots] = slots[source : source + copy.slots]
        self.rows_written += len(plan.token_ids)
        rows = [self._run_row(plan, row) for row in range(len(plan.requests))]
        sampled = tuple(self._sample(rows[spec.row][-1], spec, plan) for spec in plan.samples)
        return StepResult(plan.step, sampled, tuple(_score(rows[spec.row], spec) for spec in plan.scores))

    def _run_row(self, plan: StepPlan, row: int) -> list[int]:
        """Write a row's slots; the fingerprint at each of its tokens."""
        size, slots = self._page_size, self._slots
        pages = plan.pages[plan.page_starts[row] : plan.page_starts[row + 1]].tolist()
        tokens = plan.token_ids[plan.query_starts[row] : plan.query_starts[row + 1]].tolist()
        position = int(plan.context_lengths[row]) - len(tokens)
        before = position - 1
        prefix = EMPTY if position == 0 else slots[pages[before // size] * size + before % size]
        prefixes = []
        for at, token in enumerate(tokens, position):
            prefix = mixed(prefix, token)
            slots[pages[at // size] * size + at % size] = prefix
            prefixes.append(prefix)
        return prefixes

    def _sample(self, prefix: int, spec: SampleSpec, plan: StepPlan) -> SampledToken:
        noise = mixed(mixed(prefix, spec.seed), spec.choice) if spec.params.temperature else prefix
        if spec.mask is not None:
            allowed = np.flatnonzero(np.unpackbits(plan.masks[spec.mask].view(np.uint8), bitorder="little"))
            return _told(int(allowed[(noise >> 8) % len(allowed)]))
        token = self._language.next_token(noise)
        while token in spec.forbidden:
            noise = mixed(noise, 0)
            token = self._language.next_token(noise)
        return _told(token)


def mixed(fingerprint: int, token: int) -> int:
    """The fingerprint of a prefix extended by a token (the finaliser of splitmix64)."""
    x = (fingerprint * 31 + token + 1) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _told(token: int) -> SampledToken:
    return SampledToken(token, TokenLogprob(token, -1.0))


def _score(prefixes: list[int], spec: ScoreSpec) -> tuple[float, ...]:
    """Log-probabilities: any numbers below 0, but always the same."""
    targets = spec.targets.tolist()
    before = prefixes[spec.offset : spec.offset + len(targets)]
    return tuple(-(mixed(p, target) % 10_000 + 1) / 1000 for p, target in zip(before, targets, strict=True))
