"""How likely a model finds given text: the log-probabilities of a prompt's own tokens, or of options behind it.

`score_prompt` and `score_options` are for whoever can open a program (`Runtime.open_program` is such a function); they
run on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from radixrt.client.backend import Session
from radixrt.errors import InvalidRequest, error_from_wire
from radixrt.protocol.events import Failed, Logprobs, ScoredTokens, Scores, TextEvent, Usage
from radixrt.protocol.ids import IdArray, pack_ids, unpack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.options import options_of
from radixrt.protocol.segments import Ids, Segment
from radixrt.text.frontend import Frontend

OpenProgram: TypeAlias = Callable[[Callable[[TextEvent], None]], Session]
"""Opens a program whose events go to the function given."""


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Tokens and the natural log-probability of each behind all that stand before it."""

    ids: IdArray
    logprobs: Logprobs
    """One for each of `ids`; None for a token that nothing stands before."""

    @property
    def total(self) -> float:
        """The log-probability of all tokens together; one that nothing stands before counts as certain."""
        return sum(value or 0.0 for value in self.logprobs)

    @property
    def mean(self) -> float:
        """`total` a token; 0 for none."""
        return self.total / max(len(self.logprobs), 1)


@dataclass(frozen=True, eq=False)
class PromptScores:
    """A prompt's own tokens from `start` on."""

    tokens: TokenScores
    start: int
    usage: Usage


@dataclass(frozen=True, eq=False)
class OptionScore:
    """One option."""

    text: str
    tokens: TokenScores
    """Its tokens after the longest common prefix of all options: at least one. Where the tokenizer joins the end of the
    prompt with an option, the first of them holds both."""
    unconditional: TokenScores | None
    """The same tokens without the prompt (behind the BOS, if the tokenizer writes one before every text)."""


@dataclass(frozen=True, eq=False)
class OptionScores:
    """All options behind one prompt."""

    options: tuple[OptionScore, ...]
    """In the order given."""
    prefix_tokens: int
    """The length of the longest common prefix of prompt and option, over all options."""
    usage: Usage
    """The sums over all that was scored."""

    @property
    def best(self) -> OptionScore:
        """The option with the highest mean log-probability, the first of equal ones."""
        return max(self.options, key=lambda option: option.tokens.mean)


async def score_prompt(
    open_program: OpenProgram, frontend: Frontend, segments: Sequence[Segment], start: int = 0
) -> PromptScores:
    """The log-probabilities of a prompt's own tokens from position `start` on.

    Raises `InvalidRequest` for a wrong prompt or a `start` that it does not have (its length is allowed: no tokens),
    `PromptTooLong`, `Aborted` or `WorkerUnavailable`.
    """
    ids = frontend.encode_prompt(segments)
    if not isinstance(start, int) or not 0 <= start <= len(ids):
        raise InvalidRequest(f"start is {start!r}; the prompt has {len(ids)} tokens", field="start")
    node = TreeNode(id=0, parent=None, segments=(Ids(pack_ids(ids)),), score=start)
    scores = await _scores(open_program, node)
    return PromptScores(_tokens(scores.scored[0]), start, scores.usage)


async def score_options(
    open_program: OpenProgram,
    segments: Sequence[Segment],
    choices: Sequence[str],
    *,
    unconditional: bool = False,
) -> OptionScores:
    """The log-probabilities of each option behind a prompt; with `unconditional`, also without it.

    Raises `InvalidRequest` for a wrong prompt or wrong options (the field is `choices`), `PromptTooLong`, `Aborted` or
    `WorkerUnavailable`.
    """
    options = options_of(choices, unconditional=unconditional)
    scores = await _scores(open_program, TreeNode(id=0, parent=None, segments=tuple(segments), select=options))
    alone = [_tokens(scored) for scored in scores.unconditional] if unconditional else [None] * len(options.texts)
    by_text = {
        text: OptionScore(text, _tokens(scored), bare)
        for text, scored, bare in zip(options.texts, scores.scored, alone, strict=True)
    }
    return OptionScores(tuple(by_text[text] for text in choices), scores.prefix_tokens, scores.usage)


async def _scores(open_program: OpenProgram, node: TreeNode) -> Scores:
    """What becomes of the one node of a program of its own; to cancel this is to abort it."""
    events: asyncio.Queue[TextEvent] = asyncio.Queue()
    session = open_program(events.put_nowait)
    try:
        session.submit([node])
        match await events.get():
            case Scores() as scores:
                return scores
            case Failed(kind=kind, message=message, field=field):
                raise error_from_wire(kind, message, field)
            case event:
                raise TypeError(f"a scored node ended in {event!r}")
    finally:
        session.close()


def _tokens(scored: ScoredTokens) -> TokenScores:
    return TokenScores(unpack_ids(scored.ids), scored.logprobs)
